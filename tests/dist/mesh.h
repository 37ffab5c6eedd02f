// Programs on meshes of ranks against one device, through the interpreter in f64: what is left of a difference is an
// error. A sample model is imported, made a training step, distributed and localized; losses, gradients, predictions
// and every global after the step are compared.
#pragma once
#include "frontend/onnx.h"
#include "ir/interp.h"
#include "ir/print.h"
#include "passes/partition/distribute.h"
#include "passes/pass.h"
#include "passes/training/training.h"
#include "runtime/data/npy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SAMPLE_INPUTS = 8 };

typedef struct sample {
    char path[512];
    const char *loss; // as --loss; NULL: the model's own
    sn_diags diags;
    sn_onnx_model *model;
    int n_inputs;
    sn_npy data[SAMPLE_INPUTS];
    sn_onnx_shape shapes[SAMPLE_INPUTS];
} sample;

// tests/data/models/NAME or, for models that the project does not bundle, the folder SENNIT_MODELS. False: not there.
static inline bool sample_find(const char *name, const char *file, sample *s) {
    const char *models = getenv("SENNIT_MODELS");
    const char *folders[] = {SENNIT_SOURCE_DIR "/tests/data/models",
                             models ? models : SENNIT_SOURCE_DIR "/../shared/data/models"};
    *s = (sample){.loss = strcmp(name, "moe") == 0 ? "mse:logits,target" : "softmax_cross_entropy:logits,labels"};
    if (strstr(file, "loss")) s->loss = NULL;
    for (int i = 0; i < 2; i++) {
        snprintf(s->path, sizeof s->path, "%s/%s/%s.onnx", folders[i], name, file);
        if (access(s->path, R_OK) == 0) return true;
    }
    return false;
}

static inline void sample_open(sample *s, int64_t batch) {
    s->model = sn_onnx_open(s->path, &s->diags);
    if (!s->model) fail_msg("%s does not open", s->path);
    const sn_onnx_info *info = sn_onnx_info_of(s->model);
    const char *slash = strrchr(s->path, '/');
    for (size_t i = 0; i < info->n_inputs; i++) {
        char path[600];
        snprintf(path, sizeof path, "%.*s/data/%s.npy", (int)(slash - s->path), s->path, info->inputs[i].name);
        sn_npy *npy = &s->data[s->n_inputs];
        sn_status status = sn_npy_open(path, npy);
        sn_status_free(status);
        if (status) continue;
        sn_onnx_shape *shape = &s->shapes[s->n_inputs++];
        *shape = (sn_onnx_shape){.input = info->inputs[i].name, .rank = (int)npy->rank};
        memcpy(shape->dim, npy->shape, npy->rank * sizeof *shape->dim);
        shape->dim[0] = batch;
    }
}

static inline void sample_close(sample *s) {
    for (int i = 0; i < s->n_inputs; i++) sn_npy_close(&s->data[i]);
    sn_onnx_close(s->model);
    sn_diags_free(&s->diags);
}

// What a program leaves: results of its functions in order, then all globals.
typedef struct outcome {
    SN_VEC(sn_tensor) tensors;
    SN_VEC(const char *) names; // in the module's arena
    sn_module *module;
} outcome;

static inline void outcome_free(outcome *o) {
    for (size_t i = 0; i < o->tensors.count; i++) sn_tensor_free(&o->tensors.data[i]);
    sn_vec_free(&o->tensors);
    sn_vec_free(&o->names);
    sn_module_free(o->module);
}

// Rows of an input from micro-batch `part` on; the specials get the values that the runtime writes.
static inline sn_tensor sample_argument(const sample *s, const sn_module *module, const sn_value *arg, int part,
                                        int64_t step) {
    sn_tensor tensor = sn_tensor_new(sn_whole_type(&module->mesh, arg->type, arg->layout));
    size_t bytes = (size_t)sn_type_bytes(tensor.type);
    for (int i = 0; i < s->n_inputs; i++) {
        if (strcmp(s->shapes[i].input, arg->name) != 0) continue;
        assert_int_equal(s->data[i].dtype, arg->type.dtype);
        memcpy(tensor.data, (const char *)s->data[i].data + (size_t)part * bytes, bytes);
        return tensor;
    }
    char path[600];
    const char *slash = strrchr(s->path, '/');
    snprintf(path, sizeof path, "%.*s/data/%s.npy", (int)(slash - s->path), s->path, arg->name);
    sn_npy npy;
    sn_status status = arg->name[0] == '$' ? NULL : sn_npy_open(path, &npy); // a target that the loss added
    if (status) fail_msg("%s: %s", path, sn_status_message(status));
    if (arg->name[0] != '$') {
        memcpy(tensor.data, (const char *)npy.data + (size_t)part * bytes, bytes);
        sn_npy_close(&npy);
    } else if (strcmp(arg->name, "$lr") == 0) {
        sn_store_f64(tensor.type.dtype, tensor.data, 0, 1e-2);
    } else {
        sn_store_i64(tensor.type.dtype, tensor.data, 0, strcmp(arg->name, "$step") == 0 ? step : 7);
    }
    return tensor;
}

static inline void outcome_add(outcome *o, const char *name, sn_tensor tensor) {
    sn_vec_push(&o->tensors, tensor);
    sn_vec_push(&o->names, (const char *)sn_arena_strdup(&o->module->arena, name));
}

static inline void run_function(const sample *s, outcome *o, sn_interp *interp, const char *name, int part,
                                int64_t step) {
    const sn_func *func = sn_module_func(o->module, name);
    if (!func) return;
    sn_tensor *args = calloc(func->args.count + 1, sizeof *args);
    sn_tensor *results = calloc(func->results.count + 1, sizeof *results);
    for (size_t i = 0; i < func->args.count; i++)
        args[i] = sample_argument(s, o->module, func->args.data[i], part, step);
    const char *problem = sn_interp_run(interp, func, args, results);
    if (problem) fail_msg("%s @%s: %s", s->path, name, problem);
    for (size_t i = 0; i < func->results.count; i++) {
        char full[600];
        snprintf(full, sizeof full, "@%s %s", name, func->result_names.data[i]);
        outcome_add(o, full, results[i]);
    }
    for (size_t i = 0; i < func->args.count; i++) sn_tensor_free(&args[i]);
    free(args);
    free(results);
}

// One step (two with micro-batches would be the same), its gradients, evaluation and prediction.
static inline void run_all(const sample *s, outcome *o, int microbatches) {
    sn_interp *interp = sn_interp_new(o->module);
    sn_interp_set_f64(interp, true);
    run_function(s, o, interp, "gradients", 0, 1);
    run_function(s, o, interp, "step", 0, 1);
    for (int part = 0; part < microbatches && sn_module_func(o->module, "micro"); part++)
        run_function(s, o, interp, "micro", part, part + 1);
    run_function(s, o, interp, "update", 0, 1);
    run_function(s, o, interp, "eval", 0, 1);
    run_function(s, o, interp, "predict", 0, 1);
    for (size_t i = 0; i < o->module->globals.count; i++) {
        const sn_global *global = o->module->globals.data[i];
        const char *problem = NULL;
        const sn_tensor *now = sn_interp_global(interp, global, &problem);
        if (!now) fail_msg("%s: %s", global->name, problem);
        sn_tensor copy = sn_tensor_new(now->type);
        memcpy(copy.data, now->data, (size_t)sn_type_bytes(now->type));
        outcome_add(o, global->name, copy);
    }
    sn_interp_free(interp);
}

// Imports the model, makes its training step, and with a plan what each rank runs.
static inline outcome sample_run(sample *s, const sn_plan *plan, int microbatches, int64_t batch) {
    for (int i = 0; i < s->n_inputs; i++) s->shapes[i].dim[0] = batch;
    sn_onnx_options options = {.n_shapes = s->n_inputs, .shapes = s->shapes, .mode = SN_ONNX_AS_EXPORTED};
    outcome o = {.module = sn_onnx_import(s->model, &options, &s->diags)};
    sn_training training = sn_training_default();
    training.loss = s->loss;
    training.accumulate = microbatches;
    training.with_gradients = true;
    sn_pass_context context = {.diags = &s->diags, .training = &training, .plan = plan};
    sn_pipeline_options to_step = {.stop_after = plan ? "localize" : "training", .pass_limit = -1};
    if (!o.module || !sn_passes_run(o.module, &context, &to_step)) {
        sn_diags_print(&s->diags, 0, false, stderr);
        fail_msg("%s is not compiled", s->path);
    }
    run_all(s, &o, microbatches);
    return o;
}

static inline double norm_of(const sn_tensor *a, const sn_tensor *minus) {
    double square = 0;
    for (int64_t i = 0; i < sn_type_count(a->type); i++) {
        double x = sn_load_f64(a->type.dtype, a->data, i);
        if (minus) x -= sn_load_f64(minus->type.dtype, minus->data, i);
        square += x * x;
    }
    return sqrt(square);
}

// The largest relative difference of a float tensor that both programs left; *where names it.
static inline double outcome_difference(const outcome *many, const outcome *one, const char **where) {
    double worst = 0, total = 1e-30;
    *where = "";
    for (size_t i = 0; i < one->tensors.count; i++)
        if (strncmp(one->names.data[i], "@gradients grad:", 16) == 0) total += norm_of(&one->tensors.data[i], NULL);
    for (size_t i = 0; i < one->tensors.count; i++) {
        const sn_tensor *a = &one->tensors.data[i], *b = i < many->tensors.count ? &many->tensors.data[i] : NULL;
        if (!b || strcmp(one->names.data[i], many->names.data[i]) != 0 || !sn_type_equal(a->type, b->type)) {
            *where = one->names.data[i];
            return INFINITY;
        }
        if (!sn_dtype_is_float(a->type.dtype)) continue;
        // a gradient that is zero but for rounding is weighed by all gradients; and Adam makes steps of one size of it
        double floor = strstr(one->names.data[i], "grad:") ? 1e-3 * total : 1e-3;
        double error = norm_of(a, b) / (norm_of(a, NULL) + floor);
        if (!(error <= worst)) {
            worst = error;
            *where = one->names.data[i];
        }
    }
    return worst;
}
