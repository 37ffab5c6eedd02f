#include "tools/plan_step.h"

#include "tools/passes.h"
#include "tools/plan_options.h"

#include <string.h>

typedef SN_VEC(char *) words;

static void add_word(sn_plan_step *s, words *line, const char *text) {
    sn_vec_push(line, sn_arena_strdup(&s->arena, text));
}

// An option that the build takes as well, other than where its result goes: that is the command's own.
static bool is_passed_on(const sn_option_spec *option) {
    return (option->commands & (1u << SN_COMMAND_COMPILE)) && strcmp(option->name, "output") != 0;
}

static bool make_build_line(sn_plan_step *s, const char *path, const char *model, const sn_options *options,
                            sn_diags *diags) {
    if (!model) model = json_string_value(json_object_get(json_object_get(s->plan, "made_from"), "model"));
    if (!model) {
        sn_error(diags, "E0453", path, "name the model: sennit simulate plan.json MODEL.onnx",
                 "the plan does not say what it was made from");
        return false;
    }
    words line = {0};
    add_word(s, &line, "compile");
    add_word(s, &line, model);
    add_word(s, &line, sn_arena_printf(&s->arena, "--plan=%s", path));
    for (size_t i = 0; i < options->given.count; i++) {
        const struct sn_option_given *given = &options->given.data[i];
        if (!is_passed_on(given->spec)) continue;
        bool is_flag = given->spec->type == SN_OPTION_FLAG;
        add_word(
            s, &line,
            sn_arena_printf(&s->arena, "--%s%s%s", given->spec->name, is_flag ? "" : "=", is_flag ? "" : given->text));
    }
    int status;
    bool good = sn_command_parse(SN_COMMAND_COMPILE, (int)line.count, line.data, &s->own, &status);
    SN_CHECK(good); // what it says was parsed before
    sn_vec_free(&line);
    return (s->build = sn_plan_options(&s->own, true, diags)) != NULL;
}

static bool lower(sn_plan_step *s, sn_diags *diags) {
    sn_train_build build = {.output = "", .shapes_alone = true};
    if (!sn_train_lower(s->build, &build, diags, &s->step)) return false;
    s->cluster = s->step.cluster;
    if (!s->step.has_cluster && !sn_cluster_preset("local", sn_plan_ranks(&s->step.plan), &s->cluster)) return false;
    if (!sn_kernels_lower(s->step.module, diags, &s->kernels)) return false;
    sn_schedule_request request = {.model_path = "",
                                   .model_hash = "",
                                   .plan_hash = "",
                                   .plan = &s->step.plan,
                                   .microbatches = s->step.training.accumulate,
                                   .lr = s->step.training.optimizer.lr};
    sn_schedules_build(s->step.module, &request, s->kernels.entries, s->kernels.n, &s->arena, &s->constants,
                       &s->schedules);
    return true;
}

bool sn_plan_step_make(const char *path, const char *model, const sn_options *options, sn_diags *diags,
                       sn_plan_step *out) {
    *out = (sn_plan_step){.plan = sn_plan_load(path, diags)};
    sn_plan plan; // read again by the build: what is wrong with the file itself is said before what it lacks
    return out->plan && sn_plan_from_json(out->plan, path, diags, &out->arena, &plan) &&
           make_build_line(out, path, model, options, diags) && lower(out, diags);
}

void sn_plan_step_free(sn_plan_step *s) {
    sn_kernels_free(&s->kernels);
    sn_train_step_free(&s->step);
    sn_options_free(&s->own);
    sn_str_free(&s->constants);
    json_decref(s->plan);
    sn_arena_free(&s->arena);
}
