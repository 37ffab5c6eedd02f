#include "tools/training.h"

#include "backend/package/lowered.h"
#include "backend/package/package.h"
#include "frontend/onnx.h"
#include "passes/cost/cluster.h"
#include "passes/partition/blocks.h"
#include "passes/pass.h"
#include "passes/plugin.h"
#include "passes/training/training.h"
#include "runtime/options.h"
#include "tools/model.h"
#include "tools/passes.h"
#include "tools/planning.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// All values of an option that may be repeated.
static const char *const *list_of(const sn_options *options, const char *name, sn_arena *arena, int *count) {
    SN_VEC(const char *) list = {0};
    const char *text;
    for (size_t i = 0; (text = sn_options_item(options, name, i)); i++) sn_vec_push(&list, text);
    const char *const *copy = sn_arena_copy(arena, list.data, list.count * sizeof *list.data);
    *count = (int)list.count;
    sn_vec_free(&list);
    return copy;
}

void sn_train_rules(const sn_options *options, sn_arena *arena, sn_parameter_rules *out) {
    out->frozen = list_of(options, "frozen", arena, &out->n_frozen);
    out->trainable = list_of(options, "trainable", arena, &out->n_trainable);
}

bool sn_train_read(const sn_options *options, sn_arena *arena, sn_diags *diags, sn_training *out) {
    *out = sn_training_default();
    out->loss = sn_options_text(options, "loss", NULL);
    out->ignore_index = sn_options_int(options, "ignore-index", out->ignore_index);
    out->clip = sn_options_number(options, "clip", 0);
    out->with_gradients = sn_options_has(options, "save-gradients");
    sn_train_rules(options, arena, &out->parameters);
    out->paddings = list_of(options, "padding-index", arena, &out->n_paddings);
    if (out->clip < 0) {
        sn_error(diags, "E0311", "--clip", "a norm, such as --clip 1.0; 0 clips nothing", "a norm is never negative");
        return false;
    }
    const char *optimizer = sn_options_text(options, "optimizer", NULL);
    return !optimizer || sn_optimizer_parse(optimizer, diags, &out->optimizer);
}

static bool load_plan(const char *path, sn_diags *diags, sn_arena *arena, sn_plan *out) {
    json_t *json = sn_plan_load(path, diags);
    bool good = json && sn_plan_from_json(json, path, diags, arena, out);
    json_decref(json);
    return good;
}

// A plan for a cluster uses all its devices.
static bool check_cluster_ranks(const sn_options *options, sn_diags *diags) {
    sn_cluster cluster;
    const char *name = sn_options_text(options, "cluster", NULL);
    if (!sn_options_has(options, "ranks")) return true;
    if (!sn_cluster_load(name, diags, &cluster)) return false;
    int64_t devices = sn_cluster_devices(&cluster);
    if (devices == sn_options_int(options, "ranks", 1)) return true;
    sn_error(diags, "E0406", name, "leave --ranks out, or name a cluster of as many devices",
             "--ranks %" PRId64 ": the cluster has %" PRId64 " devices, and each gets a rank",
             sn_options_int(options, "ranks", 1), devices);
    return false;
}

// --plan, else the best one for --cluster (within --mesh), else --mesh, else data parallelism over --ranks.
static bool read_plan(const sn_options *options, sn_diags *diags, sn_arena *arena, sn_plan *out) {
    const char *path = sn_options_text(options, "plan", NULL), *outline = sn_options_text(options, "mesh", NULL);
    int accumulate = (int)sn_options_int(options, "accumulate", 0);
    if (!path && sn_options_has(options, "cluster"))
        return check_cluster_ranks(options, diags) && sn_planning_find(options, diags, arena, out);
    if (!path && !outline) {
        *out = sn_plan_data_parallel((int)sn_options_int(options, "ranks", 1), accumulate ? accumulate : 1);
        return true;
    }
    const char *option = path ? "--plan" : "--mesh", *subject = path ? path : "--mesh";
    if (path && outline) {
        sn_error(diags, "E0452", "--mesh", "leave one of them out", "--plan and --mesh both say how to split the run");
        return false;
    }
    if (!(path ? load_plan(path, diags, arena, out) : sn_plan_from_outline(outline, diags, out))) return false;
    int ranks = sn_plan_ranks(out);
    int64_t batch = sn_options_int(options, "batch", out->batch);
    if (out->batch && batch != out->batch) {
        sn_error(diags, "E0444", subject, "leave --batch out, or plan again",
                 "the plan was made for a batch of %" PRId64, out->batch);
    } else if (sn_options_has(options, "ranks") && sn_options_int(options, "ranks", 1) != ranks) {
        sn_error(diags, "E0406", subject, "leave --ranks out, or make the sizes of the axes multiply to it",
                 "%s is for %d ranks, --ranks says %" PRId64, option, ranks, sn_options_int(options, "ranks", 1));
    } else if (accumulate && accumulate != out->microbatches) {
        sn_error(diags, "E0452", "--accumulate", "leave --accumulate out; a plan's micro-batches share --batch",
                 "%s says %d micro-batches", option, out->microbatches);
    } else if (batch % out->microbatches) {
        sn_error(diags, "E0451", subject, "choose a batch that the number of micro-batches divides",
                 "a batch of %" PRId64 " does not divide into %d micro-batches", batch, out->microbatches);
    } else {
        return true;
    }
    return false;
}

int sn_train_ranks(const sn_options *options, sn_diags *diags) {
    sn_plan plan;
    sn_cluster cluster;
    const char *name = sn_options_text(options, "plan", NULL) ? NULL : sn_options_text(options, "cluster", NULL);
    if (name) return sn_cluster_load(name, diags, &cluster) ? (int)sn_cluster_devices(&cluster) : 0;
    return read_plan(options, diags, &diags->arena, &plan) ? sn_plan_ranks(&plan) : 0;
}

// A plan cuts --batch in its micro-batches; --accumulate takes so many whole ones.
static int batch_parts(const sn_options *options, const sn_plan *plan) {
    bool planned =
        sn_options_has(options, "plan") || sn_options_has(options, "mesh") || sn_options_has(options, "cluster");
    return planned ? plan->microbatches : 1;
}

bool sn_train_mode(const sn_options *options, sn_diags *diags, sn_onnx_mode *out) {
    const char *text = sn_options_text(options, "train-mode", "as-exported");
    if (strcmp(text, "all") == 0)
        *out = SN_ONNX_TRAINING;
    else if (strcmp(text, "as-exported") == 0)
        *out = SN_ONNX_AS_EXPORTED;
    else if (strcmp(text, "none") == 0)
        *out = SN_ONNX_INFERENCE;
    else {
        sn_error(diags, "E0309", "--train-mode", "one of all, as-exported, none", "'%s' is no training mode", text);
        return false;
    }
    return true;
}

// sennit-rank lies beside the command itself.
static char *find_runner(sn_arena *arena) {
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) length = 0;
    self[length] = 0;
    char *slash = strrchr(self, '/');
    return sn_arena_printf(arena, "%.*s/sennit-rank", slash ? (int)(slash - self) : 1, slash ? self : ".");
}

// The label arguments: those that the loss added, which the model does not have.
static sn_texts find_labels(const sn_options *options, sn_arena *arena) {
    const char *loss = sn_options_text(options, "loss", NULL), *comma = loss ? strchr(loss, ',') : NULL;
    sn_texts labels = {0};
    if (!comma) return labels;
    labels.items = SN_NEW(arena, const char *);
    labels.items[labels.count++] = comma + 1;
    return labels;
}

static const sn_option *find_run_option(const char *name) {
    for (size_t i = 0; i < sn_run_option_count; i++)
        if (strcmp(sn_run_option_table[i].spelling, name) == 0) return &sn_run_option_table[i];
    return NULL;
}

// Run options on a `compile` line are kept in the executable.
static sn_setting *read_settings(const sn_options *options, sn_arena *arena, size_t *count) {
    sn_setting *settings = SN_NEW_N(arena, sn_setting, options->given.count + 1);
    *count = 0;
    for (size_t i = 0; i < options->given.count; i++) {
        const char *name = options->given.data[i].spec->name;
        if (!find_run_option(name)) continue;
        bool flag = options->given.data[i].spec->type == SN_OPTION_FLAG;
        settings[(*count)++] = (sn_setting){name, flag ? "true" : options->given.data[i].text};
    }
    return settings;
}

const char *const *sn_train_run_arguments(const sn_options *options, sn_arena *arena) {
    size_t count;
    const sn_setting *settings = read_settings(options, arena, &count);
    const char **arguments = SN_NEW_N(arena, const char *, 2 * count + 1);
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const char *value = find_run_option(settings[i].name)->value;
        arguments[n++] = sn_arena_printf(arena, "--%s", settings[i].name);
        if (value && value[0]) arguments[n++] = settings[i].value;
    }
    return arguments;
}

static bool run_passes(const sn_options *options, const sn_train_build *build, sn_module *module,
                       sn_pass_context *context) {
    sn_pipeline_options pipeline = sn_command_pipeline(options);
    if (build->inference && !pipeline.pipeline) pipeline.pipeline = sn_inference_pipeline();
    if (sn_options_has(options, "print-pipeline")) {
        sn_passes_print(context, &pipeline, stdout);
        return false;
    }
    return sn_passes_run(module, context, &pipeline);
}

// cpu or cuda:sm_NN, and what is emitted for it.
static bool check_target(const sn_options *options, sn_diags *diags) {
    static const char arch[] = "cuda:sm_";
    const char *target = sn_options_text(options, "target", "cpu");
    bool source = strcmp(sn_options_text(options, "emit", "executable"), "source") == 0;
    size_t prefix = sizeof arch - 1, digits = strncmp(target, arch, prefix) ? 0 : strspn(target + prefix, "0123456789");
    if (strcmp(target, "cpu") == 0) {
        if (source)
            sn_error(diags, "E0503", "--emit", "add --target cuda:sm_90 for the kernels' CUDA C",
                     "kernels for cpu have no source: they are made as machine code");
        return !source;
    }
    if (!digits || target[prefix + digits])
        sn_error(diags, "E0504", "--target", "one of cpu, cuda:sm_NN (cuda:sm_90, say)", "'%s' is no target", target);
    else if (!source)
        sn_error(diags, "E0503", "--target", "add --emit=source for the kernels' CUDA C, or use --target cpu",
                 "executables for %s are not made yet", target);
    else
        return true;
    return false;
}

static bool package(const sn_options *options, const sn_train_build *build, sn_train_step *step, sn_diags *diags) {
    if (strcmp(sn_options_text(options, "target", "cpu"), "cpu") != 0)
        return sn_package_cuda_source(step->module, build->output, diags);
    const char *model = options->arguments.data[0];
    sn_arena *arena = &step->arena;
    char *path = realpath(model, NULL);
    struct stat info = {0};
    if (path) stat(path, &info);
    sn_package_request request = {
        .path = build->output, .runner = find_runner(arena), .plan = &step->plan, .plugins = step->plugins};
    if (step->has_cluster) request.cluster = &step->cluster;
    request.schedule = (sn_schedule_request){
        .model_path = path ? path : model,
        .model_bytes = info.st_size,
        .model_hash = sn_arena_printf(arena, "%016" PRIx64, step->model_hash),
        .plan_hash = sn_arena_printf(arena, "%016" PRIx64, sn_plan_hash(&step->plan)),
        .plan = &step->plan,
        .microbatches = step->training.accumulate,
        .lr = step->training.optimizer.lr,
    };
    sn_texts labels = find_labels(options, arena);
    request.schedule.labels = &labels;
    request.schedule.settings = read_settings(options, arena, &request.schedule.n_settings);
    bool good = sn_package_build(step->module, &request, diags);
    free(path);
    return good;
}

// --cluster beside a plan: the machines that it was made for.
static bool read_cluster(const sn_options *options, sn_diags *diags, sn_train_step *step) {
    const char *name = sn_options_text(options, "cluster", NULL);
    const sn_plan *plan = &step->plan;
    if (!name) return true;
    step->has_cluster = sn_cluster_load(name, diags, &step->cluster);
    if (!step->has_cluster) return false;
    int64_t devices = sn_cluster_devices(&step->cluster);
    if (plan->cluster_hash && plan->cluster_hash != sn_cluster_hash(&step->cluster))
        sn_error(diags, "E0443", name, "plan again with `sennit plan`, or leave --cluster out",
                 "the plan was made for another cluster");
    else if (devices != sn_plan_ranks(plan))
        sn_error(diags, "E0443", name, "a plan uses every device of its cluster",
                 "the plan is for %d ranks and the cluster has %" PRId64 " devices", sn_plan_ranks(plan), devices);
    else
        return true;
    return false;
}

// A plan is good for the model that it was made for, and for that model's shapes.
static bool check_model(const sn_plan *plan, const sn_module *module, const char *path, sn_diags *diags) {
    if (!plan->model_hash || plan->model_hash == sn_model_hash(module)) return true;
    sn_error(diags, "E0442", path, "plan again with `sennit plan`",
             "the plan was made for another model, or for other shapes of this one");
    return false;
}

// A model of a fixed batch is one micro-batch: the batch of an update follows, and nobody may have asked for it.
static bool check_batch(const sn_options *options, const sn_train_step *step, int parts, sn_diags *diags) {
    const char *path = options->arguments.data[0], *plan = sn_options_text(options, "plan", path);
    int64_t fixed = step->source.fixed_batch, batch = fixed * parts;
    if (!fixed || parts == 1 || sn_options_has(options, "batch") || batch == step->plan.batch) return true;
    const char *help = sn_arena_printf(&diags->arena,
                                       "--batch %" PRId64 " says that this is meant; exported with a symbolic batch "
                                       "dim (dynamic_shapes=…) the model takes any",
                                       batch);
    if (step->plan.batch)
        sn_error(diags, "E0212", plan, "plan again, or export the model with a symbolic batch dim",
                 "the plan's batch of %" PRId64 " in %d micro-batches: the model's batch is fixed at %" PRId64
                 " for each micro-batch",
                 step->plan.batch, parts, fixed);
    else
        sn_warning(diags, "W0212", path, help,
                   "an update takes %" PRId64 " samples: the model's batch is fixed at %" PRId64
                   ", and each of the %d micro-batches is one",
                   batch, fixed, parts);
    return !step->plan.batch;
}

bool sn_train_lower(const sn_options *options, const sn_train_build *build, sn_diags *diags, sn_train_step *out) {
    *out = (sn_train_step){0};
    sn_plan *plan = &out->plan;
    sn_onnx_mode mode = SN_ONNX_AS_EXPORTED;
    const char *model = options->arguments.data[0];
    bool good = sn_train_read(options, &out->arena, diags, &out->training) &
                read_plan(options, diags, &out->arena, plan) & sn_train_mode(options, diags, &mode) &
                check_target(options, diags);
    good = good && read_cluster(options, diags, out);
    out->plugins = sn_command_plugins(options, diags);
    if (!good || !out->plugins) return false;
    out->training.accumulate = plan->microbatches;
    int parts = batch_parts(options, plan);
    // A plan's batch stands in for --batch: build->batch is what the model itself sees.
    int64_t batch = plan->batch ? plan->batch / parts : build->batch;
    if (build->ranks && build->ranks != sn_plan_ranks(plan))
        *plan = sn_plan_data_parallel(build->ranks, out->training.accumulate);
    out->training.splits = sn_plan_stage_count(plan) > 1;
    out->training.with_gradients |= build->with_gradients;
    const char *data = sn_options_text(options, "data", NULL);
    if (!sn_model_source_open(model, options, data, batch, build->shapes_alone ? 0 : parts, mode, diags, &out->source))
        return false;
    out->module = sn_onnx_import(out->source.model, &out->source.import, diags);
    if (!out->module || !check_model(plan, out->module, model, diags)) return false;
    if (!build->inference && !check_batch(options, out, parts, diags)) return false;
    if (!build->inference) sn_onnx_check_training(out->source.model, out->module, mode, diags);
    out->model_hash = sn_model_hash(out->module);
    sn_pass_context context = {.diags = diags,
                               .training = &out->training,
                               .plan = plan,
                               .plugins = out->plugins,
                               .gpu = strcmp(sn_options_text(options, "target", "cpu"), "cpu") != 0};
    if (!run_passes(options, build, out->module, &context)) return false;
    *plan = *context.plan; // as `partition` completed it; its lists are the module's
    if (sn_module_is_lowered(out->module)) return true;
    sn_warning(
        diags, "W0703", NULL,
        "leave --stop-after, --pass-limit and --passes out for a program; --dump-ir after-all shows the passes' work",
        "the passes ended before there was a program to run: nothing was compiled");
    return false;
}

void sn_train_step_free(sn_train_step *step) {
    sn_module_free(step->module);
    sn_plugins_free(step->plugins);
    sn_model_source_close(&step->source);
    sn_arena_free(&step->arena);
}

bool sn_train_compile(const sn_options *options, const sn_train_build *build, sn_diags *diags) {
    sn_train_step step;
    bool good = sn_train_lower(options, build, diags, &step) && package(options, build, &step, diags);
    sn_train_step_free(&step);
    return good;
}
