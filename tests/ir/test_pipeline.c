// The whole pipeline keeps what a training step computes: tests/ir/step.sir, as the program that `training` makes and
// as the program of one rank with kernels and addresses, both run by the interpreter for some steps.
#include "base/philox.h"
#include "ir/interp.h"
#include "ir/parse.h"
#include "passes/pass.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static sn_module *compiled(const char *pipeline, sn_diags *diags) {
    sn_module *module = sn_parse_file(SENNIT_SOURCE_DIR "/tests/ir/step.sir", diags);
    assert_non_null(module);
    sn_pass_context context = {.diags = diags};
    sn_pipeline_options options = {.pipeline = pipeline, .pass_limit = -1};
    if (!sn_passes_run(module, &context, &options)) {
        sn_diags_print(diags, 0, true, stderr);
        fail();
    }
    return module;
}

// An argument by its name: data are pseudo-random and change from step to step.
static sn_tensor argument(const sn_value *arg, int step) {
    sn_tensor tensor = sn_tensor_new(arg->type);
    int64_t count = sn_type_count(arg->type);
    for (int64_t i = 0; i < count; i++) {
        double number = sn_random_uniform(3, (uint32_t)step, 0, (uint64_t)i);
        if (strcmp(arg->name, "$step") == 0)
            number = step;
        else if (strcmp(arg->name, "$lr") == 0)
            number = 0.01;
        else if (strcmp(arg->name, "labels") == 0)
            number = floor(number * 5);
        else
            number = 2 * number - 1;
        if (sn_dtype_is_float(arg->type.dtype))
            sn_store_f64(arg->type.dtype, tensor.data, i, number);
        else
            sn_store_i64(arg->type.dtype, tensor.data, i, (int64_t)number);
    }
    return tensor;
}

enum { MOST_RESULTS = 8 };

static void run_step(sn_interp *interp, const sn_func *func, int step, double *results) {
    sn_tensor *args = calloc(func->args.count, sizeof *args), out[MOST_RESULTS];
    assert_true(func->results.count <= MOST_RESULTS);
    for (size_t i = 0; i < func->args.count; i++) args[i] = argument(func->args.data[i], step);
    const char *problem = sn_interp_run(interp, func, args, out);
    if (problem) fail_msg("step %d: %s", step, problem);
    for (size_t i = 0; i < func->results.count; i++) {
        results[i] = sn_load_f64(out[i].type.dtype, out[i].data, 0);
        sn_tensor_free(&out[i]);
    }
    for (size_t i = 0; i < func->args.count; i++) sn_tensor_free(&args[i]);
    free(args);
}

static void expect_close(const char *what, double a, double b) {
    if (!(fabs(a - b) <= 1e-5 * fabs(a) + 1e-6)) fail_msg("%s: %.9g became %.9g", what, a, b);
}

static void expect_same_globals(const sn_module *a, sn_interp *ia, const sn_module *b, sn_interp *ib) {
    for (size_t i = 0; i < a->globals.count; i++) {
        const sn_global *global = a->globals.data[i];
        if (global->role == SN_ROLE_CONSTANT) continue;
        const char *problem = NULL;
        const sn_global *other = sn_module_global(b, global->name);
        assert_non_null(other);
        sn_tensor *x = sn_interp_global(ia, global, &problem), *y = sn_interp_global(ib, other, &problem);
        if (problem) fail_msg("@%s: %s", global->name, problem);
        for (int64_t j = 0; j < sn_type_count(x->type); j++)
            expect_close(global->name, sn_load_f64(x->type.dtype, x->data, j), sn_load_f64(y->type.dtype, y->data, j));
    }
}

static void test_step(void **state) {
    (void)state;
    sn_diags diags = {0};
    sn_module *before = compiled("training", &diags), *after = compiled(NULL, &diags);
    const sn_func *f = sn_module_func(before, "step"), *g = sn_module_func(after, "step");
    assert_true(before->form == SN_FORM_GRAPH && after->form == SN_FORM_SCHED);
    sn_interp *a = sn_interp_new(before), *b = sn_interp_new(after);
    double first = 0, last = 0;
    for (int step = 1; step <= 4; step++) {
        double x[MOST_RESULTS], y[MOST_RESULTS];
        run_step(a, f, step, x);
        run_step(b, g, step, y);
        for (size_t i = 0; i < f->results.count; i++) expect_close(f->result_names.data[i], x[i], y[i]);
        if (step == 1) first = x[0];
        last = x[0];
    }
    assert_true(first != last && last > 0); // it trains at all
    expect_same_globals(before, a, after, b);
    sn_interp_free(a);
    sn_interp_free(b);
    sn_module_free(before);
    sn_module_free(after);
    sn_diags_free(&diags);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
