// `sennit plan`: the best way to split the training of a model over a cluster, as plan.json and one screen of text.
#include "base/file.h"
#include "passes/cost/profile.h"
#include "passes/partition/explain.h"
#include "passes/training/training.h"
#include "tools/model.h"
#include "tools/passes.h"
#include "tools/training.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct planning {
    const sn_options *options;
    sn_diags *diags;
    sn_arena arena;
    sn_cluster cluster;
    sn_training training;
    sn_plugins *plugins;
    sn_profile profile; // of --profile
    bool has_profile;
    sn_model_source source;
    sn_module *module;
    uint64_t model_hash;
    int64_t batch, fixed_micro;
    bool is_fixed;
    sn_plan fixed; // of --mesh
} planning;

static bool read_command(planning *p) {
    const char *cluster = sn_options_text(p->options, "cluster", NULL),
               *mesh = sn_options_text(p->options, "mesh", NULL);
    sn_arena *arena = &p->arena;
    p->batch = sn_options_int(p->options, "batch", 0);
    if (!cluster)
        sn_error(p->diags, "E0448", "--cluster",
                 sn_arena_printf(arena, "--cluster PRESET:N with one of %s, or a file", sn_cluster_preset_names(arena)),
                 "a plan is made for a cluster");
    if (!p->batch) sn_error(p->diags, "E0448", "--batch", NULL, "a plan is made for a batch: add --batch");
    p->is_fixed = mesh != NULL;
    return cluster && p->batch && sn_cluster_load(cluster, p->diags, &p->cluster) &&
           (!mesh || sn_plan_from_outline(mesh, p->diags, &p->fixed)) &&
           sn_train_read(p->options, arena, p->diags, &p->training) &&
           (p->plugins = sn_command_plugins(p->options, p->diags)) != NULL;
}

static bool read_profile(planning *p) {
    const char *path = sn_options_text(p->options, "profile", NULL);
    p->has_profile = path && sn_profile_load(path, &p->arena, p->diags, &p->profile);
    return !path || p->has_profile;
}

// The batch that the model itself fixes: a micro-batch's.
static int64_t fixed_batch(const sn_onnx_model *model) {
    const sn_onnx_info *info = sn_onnx_info_of(model);
    for (size_t i = 0; i < info->n_inputs; i++)
        if (info->inputs[i].rank > 0) return info->inputs[i].dim[0].size > 0 ? info->inputs[i].dim[0].size : 0;
    return 0;
}

static bool build_step(planning *p) {
    const char *path = p->options->arguments.data[0];
    sn_onnx_mode mode;
    if (!sn_train_mode(p->options, p->diags, &mode) ||
        !sn_model_source_open(path, p->options, NULL, 0, 0, mode, p->diags, &p->source))
        return false;
    p->fixed_micro = fixed_batch(p->source.model);
    if (p->fixed_micro && p->batch % p->fixed_micro) {
        sn_error(p->diags, "E0449", path, "choose a multiple, or export the model with a symbolic batch dim",
                 "the model's batch of %" PRId64 " is a micro-batch's, and --batch %" PRId64 " is no multiple of it",
                 p->fixed_micro, p->batch);
        return false;
    }
    p->module = sn_onnx_import(p->source.model, &p->source.import, p->diags);
    if (!p->module) return false;
    p->model_hash = sn_model_hash(p->module);
    p->training.accumulate = 2; // so that what runs each micro-batch and what runs once are functions of their own
    p->training.with_gradients = false;
    sn_pass_context context = {.diags = p->diags, .training = &p->training, .plugins = p->plugins};
    sn_pipeline_options pipeline = {.stop_after = "training", .pass_limit = -1};
    return sn_passes_run(p->module, &context, &pipeline);
}

static sn_objective objective_of(const sn_options *options) {
    const char *name = sn_options_text(options, "objective", "step");
    for (int i = 0; i < SN_OBJECTIVE_COUNT; i++)
        if (strcmp(name, sn_objective_name((sn_objective)i)) == 0) return (sn_objective)i;
    return SN_OBJECTIVE_STEP;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sn_what_if ask_memory(sn_search *search, double scale, const char *what) {
    sn_search_result result;
    bool found = sn_search_run(search, scale, &result) && result.feasible;
    return (sn_what_if){what, found, result.best};
}

static sn_what_if ask_links(planning *p, const sn_search_request *request) {
    sn_cluster faster = p->cluster;
    for (int i = 0; i < faster.n_levels; i++) faster.level[i].beta *= 2;
    sn_search_request again = *request;
    again.cluster = &faster;
    sn_search_result result;
    sn_search *search = sn_search_new(&again, &p->arena);
    bool found = sn_search_run(search, 1, &result) && result.feasible;
    sn_search_free(search);
    return (sn_what_if){"links of twice the bandwidth", found, result.best};
}

static bool write_plan(planning *p, const json_t *json) {
    const char *path = sn_options_text(p->options, "output", NULL);
    char *text = path ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) : NULL;
    sn_status status = text ? sn_file_write(path, text, strlen(text)) : SN_OK;
    free(text);
    if (!status) return true;
    sn_error(p->diags, "E0445", path, NULL, "%s", sn_status_message(status));
    sn_status_free(status);
    return false;
}

static bool print_plan(planning *p, json_t *json) {
    if (!write_plan(p, json)) return false;
    sn_str text = {0};
    if (sn_options_has(p->options, "json")) {
        json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
        putchar('\n');
    } else {
        sn_plan_summary(json, &text);
        fputs(sn_str_text(&text), stdout);
    }
    sn_str_free(&text);
    return true;
}

// What the plan was made from, so that `sennit simulate` builds the same step: paths do not depend on where it is run.
static json_t *made_from(const planning *p) {
    static const char *const left_out[] = {"output", "json", "batch", "mesh", "objective"};
    json_t *options = json_array();
    for (size_t i = 0; i < p->options->given.count; i++) {
        const struct sn_option_given *given = &p->options->given.data[i];
        bool skip = false;
        for (size_t k = 0; k < sizeof left_out / sizeof *left_out; k++)
            skip |= strcmp(given->spec->name, left_out[k]) == 0;
        if (skip) continue;
        char *path = strcmp(given->spec->name, "cluster") == 0 ? realpath(given->text, NULL) : NULL;
        json_array_append_new(options, json_sprintf("--%s=%s", given->spec->name, path ? path : given->text));
        free(path);
    }
    const char *model = p->options->arguments.data[0];
    char *path = realpath(model, NULL);
    json_t *json = json_pack("{s:s, s:o}", "model", path ? path : model, "options", options);
    free(path);
    return json;
}

static bool search_and_print(planning *p) {
    double start = now();
    sn_blocks blocks = sn_blocks_find(p->module, p->fixed_micro ? p->fixed_micro : p->batch, &p->arena);
    blocks.model_hash = p->model_hash;
    sn_search_request request = {.blocks = &blocks,
                                 .cluster = &p->cluster,
                                 .plugins = p->plugins,
                                 .profile = p->has_profile ? &p->profile : NULL,
                                 .diags = p->diags,
                                 .batch = p->batch,
                                 .fixed_micro = p->fixed_micro,
                                 .objective = objective_of(p->options),
                                 .fixed = p->is_fixed ? &p->fixed : NULL};
    if (!blocks.n_blocks) {
        sn_error(p->diags, "E0440", p->options->arguments.data[0], NULL, "the model has nothing to split");
        return false;
    }
    sn_search *search = sn_search_new(&request, &p->arena);
    sn_search_result result;
    bool good = sn_search_run(search, 1, &result) && !p->diags->errors;
    if (good && !result.feasible) sn_report_infeasible(&request, &result, p->diags);
    if (good && result.feasible) {
        double seconds = now() - start;
        sn_plan plan = sn_search_plan(search, &result.best, &p->arena);
        sn_what_if more[] = {ask_memory(search, 1.25, "a quarter more memory"),
                             ask_memory(search, 2, "twice the memory"), ask_links(p, &request)};
        json_t *json = sn_plan_to_json(&plan);
        json_t *explanation = sn_explanation(search, &request, &result, sizeof more / sizeof *more, more);
        json_object_set_new(explanation, "search_seconds", json_real(seconds));
        json_object_set_new(json, "explanation", explanation);
        json_object_set_new(json, "made_from", made_from(p));
        good = print_plan(p, json);
        json_decref(json);
    }
    sn_search_free(search);
    return good && result.feasible;
}

int sn_cmd_plan(int argc, char **argv) {
    sn_options options;
    sn_diags diags = {0};
    int status = 0;
    if (sn_command_parse(SN_COMMAND_PLAN, argc, argv, &options, &status)) {
        planning p = {.options = &options, .diags = &diags};
        if (read_command(&p) && read_profile(&p) && build_step(&p)) (void)search_and_print(&p);
        sn_module_free(p.module);
        sn_model_source_close(&p.source);
        if (p.has_profile) sn_profile_free(&p.profile);
        sn_plugins_free(p.plugins);
        sn_arena_free(&p.arena);
        status = sn_command_end(&options, &diags);
    }
    sn_options_free(&options);
    return status;
}
