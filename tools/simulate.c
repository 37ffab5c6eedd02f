// `sennit simulate`: what a step of a plan takes on its cluster, replayed from the programs that `compile` would make.
//
// plan.json says what it was made from ("made_from": the model and the options that `sennit plan` was given), so that
// the same training step is lowered again; a command line may say otherwise.
#include "backend/lower/kernels.h"
#include "backend/simulate/trace.h"
#include "base/file.h"
#include "passes/cost/profile.h"
#include "tools/passes.h"
#include "tools/training.h"

#include <stdlib.h>
#include <string.h>

typedef struct simulating {
    const sn_options *options; // of this command
    sn_diags *diags;
    sn_arena arena;
    json_t *plan;
    sn_options build; // the same as a command line of `compile`
    sn_train_step step;
    sn_cluster cluster;
    sn_profile profile;
    bool has_profile;
    sn_kernels kernels;
    sn_schedules schedules;
    sn_str constants;
    sn_simulation simulation;
} simulating;

typedef SN_VEC(char *) words;

static void add_word(simulating *s, words *line, const char *text) {
    sn_vec_push(line, sn_arena_strdup(&s->arena, text));
}

// Options of the command line that `compile` takes as well.
static bool is_passed_on(const char *name) {
    static const char *const own[] = {"json", "trace", "measured", "profile"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i], name) == 0) return false;
    return true;
}

static bool make_build_line(simulating *s, int *status) {
    const char *path = s->options->arguments.data[0];
    const json_t *from = json_object_get(s->plan, "made_from"), *recorded = json_object_get(from, "options");
    const char *model = s->options->arguments.count > 1 ? s->options->arguments.data[1]
                                                        : json_string_value(json_object_get(from, "model"));
    if (!model) {
        sn_error(s->diags, "E0453", path, "name the model: sennit simulate plan.json MODEL.onnx",
                 "the plan does not say what it was made from");
        return false;
    }
    words line = {0};
    add_word(s, &line, "compile");
    add_word(s, &line, model);
    for (size_t i = 0; i < json_array_size(recorded); i++)
        add_word(s, &line, json_string_value(json_array_get(recorded, i)));
    add_word(s, &line, sn_arena_printf(&s->arena, "--plan=%s", path));
    for (size_t i = 0; i < s->options->given.count; i++) {
        const struct sn_option_given *given = &s->options->given.data[i];
        if (is_passed_on(given->spec->name))
            add_word(s, &line, sn_arena_printf(&s->arena, "--%s=%s", given->spec->name, given->text));
    }
    bool good = sn_command_parse(SN_COMMAND_COMPILE, (int)line.count, line.data, &s->build, status);
    sn_vec_free(&line);
    return good;
}

static bool find_cluster(simulating *s) {
    const char *name = sn_options_text(&s->build, "cluster", NULL);
    int ranks = sn_plan_ranks(&s->step.plan);
    if (!name) return sn_cluster_preset("local", ranks, &s->cluster);
    return sn_cluster_load(name, s->diags, &s->cluster);
}

static bool read_profile(simulating *s) {
    const char *path = sn_options_text(s->options, "profile", NULL);
    s->has_profile = path && sn_profile_load(path, &s->arena, s->diags, &s->profile);
    return !path || s->has_profile;
}

static bool simulate(simulating *s) {
    sn_train_build build = {.output = "", .shapes_alone = true};
    if (!sn_train_lower(&s->build, &build, s->diags, &s->step) || !find_cluster(s) || !read_profile(s)) return false;
    if (!sn_kernels_lower(s->step.module, s->diags, &s->kernels)) return false;
    sn_schedule_request request = {.model_path = "",
                                   .model_hash = "",
                                   .plan_hash = "",
                                   .plan = &s->step.plan,
                                   .microbatches = s->step.training.accumulate,
                                   .lr = s->step.training.optimizer.lr};
    sn_schedules_build(s->step.module, &request, s->kernels.entries, s->kernels.n, &s->arena, &s->constants,
                       &s->schedules);
    const sn_profile *profile = s->has_profile ? &s->profile : NULL;
    sn_price_request prices = {.module = s->step.module,
                               .schedules = &s->schedules,
                               .kernels = &s->kernels,
                               .cluster = &s->cluster,
                               .profile = profile,
                               .plugins = s->step.plugins,
                               .diags = s->diags};
    return sn_simulate(&prices, sn_simulate_cores(&s->cluster, profile), &s->arena, &s->simulation) &&
           !s->diags->errors;
}

static bool write_trace(simulating *s) {
    const char *path = sn_options_text(s->options, "trace", NULL);
    const char *measured_path = sn_options_text(s->options, "measured", NULL);
    if (!path && !measured_path) return true;
    if (!path) {
        sn_error(s->diags, "E0829", "--measured", "add --trace FILE", "a measured trace is merged into --trace");
        return false;
    }
    json_t *events = sn_simulation_trace(&s->simulation), *measured = NULL;
    json_error_t error;
    bool good = true;
    if (measured_path) {
        measured = json_load_file(measured_path, 0, &error);
        if (!measured) sn_error(s->diags, "E0829", measured_path, NULL, "line %d: %s", error.line, error.text);
        good = measured && sn_trace_add_measured(events, measured, measured_path, s->diags);
    }
    json_t *all = json_pack("{s:s, s:o}", "displayTimeUnit", "ms", "traceEvents", events);
    char *text = good ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    sn_status status = text ? sn_file_write(path, text, strlen(text)) : SN_OK;
    if (status) sn_error(s->diags, "E0830", path, NULL, "%s", sn_status_message(status));
    good = good && !status;
    sn_status_free(status);
    free(text);
    json_decref(all);
    json_decref(measured);
    return good;
}

static void print(simulating *s) {
    if (sn_options_has(s->options, "json")) {
        json_t *json = sn_simulation_to_json(&s->simulation);
        json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        putchar('\n');
        json_decref(json);
        return;
    }
    sn_str text = {0};
    sn_simulation_print(&s->simulation, &text);
    fputs(sn_str_text(&text), stdout);
    sn_str_free(&text);
}

static void release(simulating *s) {
    sn_simulation_free(&s->simulation);
    sn_kernels_free(&s->kernels);
    sn_profile_free(&s->profile);
    sn_train_step_free(&s->step);
    sn_options_free(&s->build);
    sn_str_free(&s->constants);
    json_decref(s->plan);
    sn_arena_free(&s->arena);
}

static int run(simulating *s) {
    json_error_t error;
    int wrong = 0;
    const char *path = s->options->arguments.data[0];
    s->plan = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!s->plan)
        sn_error(s->diags, "E0405", path, NULL, "the plan cannot be read: line %d: %s", error.line, error.text);
    else if (make_build_line(s, &wrong) && simulate(s) && write_trace(s))
        print(s);
    release(s);
    return wrong;
}

int sn_cmd_simulate(int argc, char **argv) {
    sn_options options;
    sn_diags diags = {0};
    int status = 0;
    if (sn_command_parse(SN_COMMAND_SIMULATE, argc, argv, &options, &status)) {
        simulating s = {.options = &options, .diags = &diags};
        int wrong = run(&s);
        status = sn_command_end(&options, &diags);
        if (wrong) status = wrong;
    }
    sn_options_free(&options);
    return status;
}
