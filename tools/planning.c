#include "tools/planning.h"

#include "backend/simulate/simulate.h"
#include "passes/partition/explain.h"
#include "passes/pass.h"
#include "passes/simplify/decompose.h"
#include "tools/passes.h"
#include "tools/training.h"

#include <inttypes.h>
#include <string.h>

static bool read_command(sn_planning *p) {
    const char *cluster = sn_options_text(p->options, "cluster", NULL),
               *mesh = sn_options_text(p->options, "mesh", NULL);
    sn_arena *arena = &p->arena;
    p->batch = sn_options_int(p->options, "batch", 0);
    if (!cluster)
        sn_error(p->diags, "E0448", "--cluster",
                 sn_arena_printf(arena, "--cluster PRESET:N with one of %s, or a file", sn_cluster_preset_names(arena)),
                 "a plan is made for a cluster");
    if (!p->batch)
        sn_error(p->diags, "E0448", "--batch", "add --batch N: samples of one update, over all ranks",
                 "a plan is made for a batch: add --batch");
    p->is_fixed = mesh != NULL;
    return cluster && p->batch && sn_cluster_load(cluster, p->diags, &p->cluster) &&
           (!mesh || sn_plan_from_outline(mesh, p->diags, &p->fixed)) &&
           sn_train_read(p->options, arena, p->diags, &p->training) &&
           (p->plugins = sn_command_plugins(p->options, p->diags)) != NULL;
}

// What --mesh fixes must be something that is searched.
static bool check_axes(sn_planning *p) {
    static const char *const known[] = {"pp", "dp", "ep", "cp", "tp"};
    for (int a = 0; p->is_fixed && a < p->fixed.mesh.n_axes; a++) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= strcmp(p->fixed.mesh.name[a], known[i]) == 0;
        if (found || p->fixed.mesh.size[a] == 1) continue;
        sn_error(p->diags, "E0440", "--mesh", "leave --cluster out to run with this axis as it is",
                 "the search knows the axes pp, dp, ep, cp and tp, not '%s'", p->fixed.mesh.name[a]);
        return false;
    }
    return true;
}

static bool read_profile(sn_planning *p) {
    const char *path = sn_options_text(p->options, "profile", NULL);
    p->has_profile = path && sn_profile_load(path, &p->arena, p->diags, &p->profile);
    return !path || p->has_profile;
}

static bool build_step(sn_planning *p) {
    const char *path = p->options->arguments.data[0];
    sn_onnx_mode mode;
    if (!sn_train_mode(p->options, p->diags, &mode) ||
        !sn_model_source_open(path, p->options, sn_options_text(p->options, "data", NULL), 0, 0, mode, p->diags,
                              &p->source))
        return false;
    p->fixed_micro = p->source.fixed_batch;
    if (p->fixed_micro && p->batch % p->fixed_micro) {
        sn_error(p->diags, "E0449", path,
                 "choose a multiple, export the model with a symbolic batch dim, or leave --dim of that out",
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
    if (!sn_passes_run(p->module, &context, &pipeline)) return false;
    sn_decompose_cross_entropy(p->module, &context); // as partition does, for classes to be cut
    return true;
}

static sn_objective objective_of(const sn_options *options) {
    const char *name = sn_options_text(options, "objective", "step");
    for (int i = 0; i < SN_OBJECTIVE_COUNT; i++)
        if (strcmp(name, sn_objective_name((sn_objective)i)) == 0) return (sn_objective)i;
    return SN_OBJECTIVE_STEP;
}

bool sn_planning_open(sn_planning *p, const sn_options *options, sn_diags *diags) {
    *p = (sn_planning){.options = options, .diags = diags};
    if (!read_command(p) || !check_axes(p) || !read_profile(p) || !build_step(p)) return false;
    p->blocks = sn_blocks_find(p->module, p->fixed_micro ? p->fixed_micro : p->batch, &p->arena);
    p->blocks.model_hash = p->model_hash;
    p->request = (sn_search_request){.blocks = &p->blocks,
                                     .cluster = &p->cluster,
                                     .plugins = p->plugins,
                                     .profile = p->has_profile ? &p->profile : NULL,
                                     .diags = diags,
                                     .batch = p->batch,
                                     .fixed_micro = p->fixed_micro,
                                     .objective = objective_of(options),
                                     .fixed = p->is_fixed ? &p->fixed : NULL};
    p->request.cores = sn_simulate_cores(&p->cluster, p->request.profile);
    p->request.sharing = p->has_profile ? p->profile.sharing : 1;
    if (!p->blocks.n_blocks) {
        sn_error(diags, "E0440", options->arguments.data[0],
                 "a model to train needs an operator with a weight: is it the right file?",
                 "the model has nothing to split");
        return false;
    }
    p->search = sn_search_new(&p->request, &p->arena);
    return true;
}

void sn_planning_close(sn_planning *p) {
    if (p->search) sn_search_free(p->search);
    sn_module_free(p->module);
    sn_model_source_close(&p->source);
    if (p->has_profile) sn_profile_free(&p->profile);
    sn_plugins_free(p->plugins);
    sn_arena_free(&p->arena);
}

bool sn_planning_find(const sn_options *options, sn_diags *diags, sn_arena *arena, sn_plan *out) {
    sn_planning p;
    sn_search_result result;
    bool good = sn_planning_open(&p, options, diags) && sn_search_run(p.search, 1, NULL, &result) && !diags->errors;
    if (good && !result.feasible) sn_report_infeasible(&p.request, &result, diags);
    good = good && result.feasible;
    if (good) *out = sn_search_plan(p.search, &result.best, arena);
    sn_planning_close(&p);
    return good;
}
