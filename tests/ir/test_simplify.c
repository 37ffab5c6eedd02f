// The simplifying passes keep the values: every tests/ir/*.sir in graph form is run by the interpreter, in f64, before
// and after the passes of its "// RUN:" line.
#include "base/philox.h"
#include "ir/interp.h"
#include "ir/parse.h"
#include "passes/pass.h"

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void fill(sn_tensor *tensor, uint32_t which) {
    int64_t count = sn_type_count(tensor->type);
    for (int64_t i = 0; i < count; i++) {
        double number = sn_random_uniform(7, 0, which, (uint64_t)i);
        if (sn_dtype_is_float(tensor->type.dtype))
            sn_store_f64(tensor->type.dtype, tensor->data, i, 4 * number - 2);
        else
            sn_store_i64(tensor->type.dtype, tensor->data, i, (int64_t)(2 * number));
    }
}

// New tensors of a function's results on fixed pseudo-random arguments.
static sn_tensor *run_func(const sn_module *module, const sn_func *func) {
    sn_tensor *args = calloc(func->args.count + 1, sizeof *args),
              *results = calloc(func->results.count + 1, sizeof *results);
    for (size_t i = 0; i < func->args.count; i++) {
        args[i] = sn_tensor_new(func->args.data[i]->type);
        fill(&args[i], (uint32_t)i);
    }
    sn_interp *interp = sn_interp_new(module);
    sn_interp_set_f64(interp, true);
    const char *problem = sn_interp_run(interp, func, args, results);
    if (problem) fail_msg("@%s: %s", func->name, problem);
    sn_interp_free(interp);
    for (size_t i = 0; i < func->args.count; i++) sn_tensor_free(&args[i]);
    free(args);
    return results;
}

static void expect_equal(const char *path, const sn_func *func, const sn_tensor *a, const sn_tensor *b) {
    for (size_t r = 0; r < func->results.count; r++) {
        assert_true(sn_shape_equal(a[r].type, b[r].type));
        int64_t count = sn_type_count(a[r].type);
        for (int64_t i = 0; i < count; i++) {
            double x = sn_load_f64(a[r].type.dtype, a[r].data, i), y = sn_load_f64(b[r].type.dtype, b[r].data, i);
            if (x == y || (isnan(x) && isnan(y))) continue;
            // models carry constants like 1/sqrt(2) rounded to f32; the operators that replace them use the exact ones
            if (!(fabs(x - y) <= 2e-7 * (1 + fabs(x))))
                fail_msg("%s: @%s, result %zu, element %ld: %.17g became %.17g", path, func->name, r, (long)i, x, y);
        }
    }
}

static char *passes_of(const char *path) {
    static char line[512];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    char *passes = strstr(line, "--passes=");
    if (!passes) return NULL;
    passes += strlen("--passes=");
    passes[strcspn(passes, " \n")] = 0;
    return passes;
}

static int check(const char *path, sn_diags *diags) {
    sn_module *before = sn_parse_file(path, diags), *after = sn_parse_file(path, diags);
    assert_non_null(before);
    sn_pass_context context = {.diags = diags};
    sn_pipeline_options options = {.pipeline = passes_of(path), .pass_limit = -1};
    int checked = 0;
    bool ran = options.pipeline && before->form == SN_FORM_GRAPH && sn_passes_run(after, &context, &options);
    if (ran && after->form == SN_FORM_GRAPH) {
        for (size_t i = 0; i < before->funcs.count; i++, checked++) {
            const sn_func *func = before->funcs.data[i], *other = sn_module_func(after, func->name);
            sn_tensor *a = run_func(before, func), *b = run_func(after, other);
            expect_equal(path, func, a, b);
            for (size_t r = 0; r < func->results.count; r++) {
                sn_tensor_free(&a[r]);
                sn_tensor_free(&b[r]);
            }
            free(a);
            free(b);
        }
    }
    sn_module_free(before);
    sn_module_free(after);
    return checked;
}

static void test_equivalence(void **state) {
    (void)state;
    sn_diags diags = {0};
    glob_t found;
    assert_int_equal(glob(SENNIT_SOURCE_DIR "/tests/ir/*.sir", 0, NULL, &found), 0);
    int checked = 0;
    for (size_t i = 0; i < found.gl_pathc; i++) checked += check(found.gl_pathv[i], &diags);
    globfree(&found);
    sn_diags_free(&diags);
    assert_true(checked > 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equivalence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
