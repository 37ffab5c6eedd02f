// Real models through the pipeline: simplifying keeps what a model computes, finds the operators that exporters took
// apart, and the text of the module after every pass parses back to the same text.
//
// The models are those in tests/data/models, and all of the folder SENNIT_MODELS (default ../shared/data/models) when
// it is there.
#include "frontend/onnx.h"
#include "ir/interp.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "passes/pass.h"
#include "passes/training/training.h"
#include "runtime/data/npy.h"

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 4, MOST_INPUTS = 8 };

// A model with the first batch of its data.
typedef struct sample {
    const char *path;
    sn_diags diags;
    sn_onnx_model *model;
    int n_inputs;
    sn_npy data[MOST_INPUTS];
    sn_onnx_shape shapes[MOST_INPUTS];
} sample;

static void fail_with(const sample *s, const char *what) {
    sn_diags_print(&s->diags, 0, false, stderr);
    fail_msg("%s: %s", s->path, what);
}

static bool open_data(const sample *s, const char *input, sn_npy *out) {
    char path[1024];
    const char *slash = strrchr(s->path, '/');
    snprintf(path, sizeof path, "%.*s/data/%s.npy", (int)(slash - s->path), s->path, input);
    sn_status status = sn_npy_open(path, out);
    bool fine = !status;
    sn_status_free(status);
    return fine;
}

static void open_sample(const char *path, sample *s) {
    *s = (sample){.path = path};
    s->model = sn_onnx_open(path, &s->diags);
    if (!s->model) fail_with(s, "does not open");
    const sn_onnx_info *info = sn_onnx_info_of(s->model);
    for (size_t i = 0; i < info->n_inputs; i++) {
        sn_npy *npy = &s->data[s->n_inputs];
        if (!open_data(s, info->inputs[i].name, npy)) continue;
        sn_onnx_shape *shape = &s->shapes[s->n_inputs++];
        *shape = (sn_onnx_shape){.input = info->inputs[i].name, .rank = (int)npy->rank};
        memcpy(shape->dim, npy->shape, npy->rank * sizeof *shape->dim);
        shape->dim[0] = BATCH;
    }
}

static void close_sample(sample *s) {
    for (int i = 0; i < s->n_inputs; i++) sn_npy_close(&s->data[i]);
    sn_onnx_close(s->model);
    sn_diags_free(&s->diags);
}

static sn_module *import(sample *s, sn_onnx_mode mode) {
    sn_onnx_options options = {.n_shapes = s->n_inputs, .shapes = s->shapes, .mode = mode};
    sn_module *module = sn_onnx_import(s->model, &options, &s->diags);
    if (!module) fail_with(s, "is not imported");
    return module;
}

static void run_passes(sample *s, sn_module *module, const sn_pipeline_options *options, const sn_training *training) {
    sn_pass_context context = {.diags = &s->diags, .training = training};
    if (!sn_passes_run(module, &context, options)) fail_with(s, "a pass failed");
}

// The first batch of an input; 1 for the rest (seed and step).
static sn_tensor argument(const sample *s, const sn_value *arg) {
    sn_tensor tensor = sn_tensor_new(arg->type);
    for (int i = 0; i < s->n_inputs; i++) {
        if (strcmp(s->shapes[i].input, arg->name) != 0) continue;
        assert_int_equal(s->data[i].dtype, arg->type.dtype);
        memcpy(tensor.data, s->data[i].data, (size_t)sn_type_bytes(arg->type));
        return tensor;
    }
    for (int64_t i = 0; i < sn_type_count(arg->type); i++) sn_store_f64(arg->type.dtype, tensor.data, i, 1);
    return tensor;
}

static sn_tensor *run_main(const sample *s, const sn_module *module) {
    const sn_func *func = sn_module_func(module, "main");
    sn_tensor *args = calloc(func->args.count + 1, sizeof *args),
              *results = calloc(func->results.count + 1, sizeof *results);
    for (size_t i = 0; i < func->args.count; i++) args[i] = argument(s, func->args.data[i]);
    sn_interp *interp = sn_interp_new(module);
    sn_interp_set_f64(interp, true);
    const char *problem = sn_interp_run(interp, func, args, results);
    if (problem) fail_msg("%s: %s", s->path, problem);
    sn_interp_free(interp);
    for (size_t i = 0; i < func->args.count; i++) sn_tensor_free(&args[i]);
    free(args);
    return results;
}

static double largest_difference(const sn_tensor *a, const sn_tensor *b) {
    double largest = 0, scale = 0;
    assert_true(sn_shape_equal(a->type, b->type));
    for (int64_t i = 0; i < sn_type_count(a->type); i++) {
        double x = sn_load_f64(a->type.dtype, a->data, i), y = sn_load_f64(b->type.dtype, b->data, i);
        largest = fmax(largest, x == y ? 0 : fabs(x - y));
        scale = fmax(scale, fabs(x));
    }
    return largest / (scale + 1e-30);
}

static void check_simplified(const char *path) {
    sample s;
    open_sample(path, &s);
    sn_module *before = import(&s, SN_ONNX_INFERENCE), *after = import(&s, SN_ONNX_INFERENCE);
    run_passes(&s, after, &(sn_pipeline_options){.stop_after = "dce", .pass_limit = -1}, NULL);
    sn_tensor *a = run_main(&s, before), *b = run_main(&s, after);
    for (size_t i = 0; i < sn_module_func(before, "main")->results.count; i++) {
        double difference = largest_difference(&a[i], &b[i]);
        // constants like 1/sqrt(2) are in the file as f32, masks as large numbers instead of infinities
        if (!(difference < 2e-6)) fail_msg("%s: result %zu differs by %g", path, i, difference);
        sn_tensor_free(&a[i]);
        sn_tensor_free(&b[i]);
    }
    printf("%-60s %4zu ops become %zu\n", path + strlen(path) - (strlen(path) > 60 ? 60 : strlen(path)),
           sn_module_func(before, "main")->n_ops, sn_module_func(after, "main")->n_ops);
    free(a);
    free(b);
    sn_module_free(before);
    sn_module_free(after);
    close_sample(&s);
}

static void expect_same_text(const sample *s, sn_module *module, const char *pass) {
    sn_str once = {0}, twice = {0};
    sn_diags diags = {0};
    sn_print(&once, module, NULL);
    sn_module *again = sn_parse(sn_str_text(&once), once.length, pass, &diags);
    if (!again) {
        sn_diags_print(&diags, 0, false, stderr);
        fail_msg("%s: the text after %s does not parse", s->path, pass);
    }
    sn_print(&twice, again, NULL);
    if (strcmp(once.data, twice.data) != 0) fail_msg("%s: the text after %s changes", s->path, pass);
    sn_module_free(again);
    sn_str_free(&once);
    sn_str_free(&twice);
    sn_diags_free(&diags);
}

// The model's own loss when its one result is a scalar, else one on its first output.
static const char *loss_of(const sample *s, const sn_module *module, char *buffer, size_t size) {
    const sn_func *func = sn_module_func(module, "main");
    if (func->results.data[0]->type.rank == 0) return NULL;
    sn_npy labels;
    bool classes = open_data(s, "labels", &labels);
    if (classes) sn_npy_close(&labels);
    snprintf(buffer, size, classes ? "softmax_cross_entropy:%s,labels" : "mse:%s,target", func->result_names.data[0]);
    return buffer;
}

static void check_texts(const char *path) {
    sample s;
    open_sample(path, &s);
    sn_module *module = import(&s, SN_ONNX_AS_EXPORTED);
    char loss[256];
    sn_training training = sn_training_default();
    training.loss = loss_of(&s, module, loss, sizeof loss);
    expect_same_text(&s, module, "import");
    const char *at = sn_default_pipeline();
    while (*at) {
        char pass[64];
        size_t length = strcspn(at, ",");
        snprintf(pass, sizeof pass, "%.*s", (int)length, at);
        run_passes(&s, module, &(sn_pipeline_options){.pipeline = pass, .pass_limit = -1}, &training);
        expect_same_text(&s, module, pass);
        at += length + (at[length] == ',');
    }
    sn_module_free(module);
    close_sample(&s);
}

static void for_each_model(void (*check)(const char *path)) {
    const char *folders[] = {SENNIT_SOURCE_DIR "/tests/data/models", getenv("SENNIT_MODELS")};
    if (!folders[1]) folders[1] = SENNIT_SOURCE_DIR "/../shared/data/models";
    int checked = 0;
    for (int f = 0; f < 2; f++) {
        char pattern[1024];
        glob_t found;
        snprintf(pattern, sizeof pattern, "%s/*/*.onnx", folders[f]);
        if (glob(pattern, 0, NULL, &found) != 0) continue;
        for (size_t i = 0; i < found.gl_pathc; i++) {
            if (strstr(found.gl_pathv[i], "/hazards/")) continue; // no data beside them
            check(found.gl_pathv[i]);
            checked++;
        }
        globfree(&found);
    }
    assert_true(checked > 0);
}

static void test_simplified(void **state) {
    (void)state;
    for_each_model(check_simplified);
}

static void test_texts(void **state) {
    (void)state;
    for_each_model(check_texts);
}

// With arguments: checks those models alone.
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        check_simplified(argv[i]);
        check_texts(argv[i]);
    }
    if (argc > 1) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_simplified), cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
