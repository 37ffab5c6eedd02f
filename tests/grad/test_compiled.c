// Every operator and its gradients in f32, compiled against interpreted, at the shapes of test_operators.c: odd, prime,
// of size 1, broadcast, with negative steps. (Sizes beyond a tile are in tests/unit/test_lower.c.)
#include "case.h"

#include "passes/autodiff/differentiate.h"
#include "tests/support/compiled.h"

static const sn_dtype float_type = SN_F32;

static void compare_case(const grad_case *c) {
    sn_module *module = sn_module_new("grad");
    sn_builder b = {.func = sn_module_add_func(module, "main")};
    sn_value *x[MOST_INPUTS], *out[MOST_OUTPUTS], *gradients[MOST_INPUTS];
    int n = add_inputs(b.func, c, x), n_out = c->build(&b, x, c, out);
    sn_value *loss = weighted_sum(&b, out, n_out);
    sn_diags diags = {0};
    assert_true(sn_differentiate(&b, loss, n, x, gradients, &diags));
    static const char *const names[] = {"out 0", "out 1", "out 2", "grad 0", "grad 1", "grad 2", "grad 3", "grad 4"};
    for (int i = 0; i < n_out; i++) sn_func_add_result(b.func, out[i], names[i]);
    for (int i = 0; i < n; i++) sn_func_add_result(b.func, gradients[i], names[MOST_OUTPUTS + i]);
    sn_tensor args[MOST_INPUTS];
    for (int i = 0; i < n; i++) {
        int64_t count = sn_type_count(x[i]->type);
        double *data = sn_alloc(sizeof *data * (size_t)(count + 1));
        draw_input(c, i, data, count);
        args[i] = sn_tensor_new(x[i]->type);
        for (int64_t k = 0; k < count; k++) sn_store_f64(float_type, args[i].data, k, data[k]);
        sn_free(data);
    }
    sn_device *device = NULL;
    sn_jit *jit = compare_function(c->name, module, "main", args, 1, 20, &device);
    sn_jit_free(jit);
    sn_device_destroy(device);
    for (int i = 0; i < n; i++) sn_tensor_free(&args[i]);
    sn_diags_free(&diags);
    sn_module_free(module);
}

static void run_cases(const grad_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) compare_case(&cases[i]);
}
#define RUN(cases) run_cases(cases, sizeof(cases) / sizeof *(cases))

#include "cases_movement.h"
#include "cases_nn.h"
#include "cases_pointwise.h"
#include "cases_reduction.h"

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),    cmocka_unit_test(test_binary),     cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_movement), cmocka_unit_test(test_reductions), cmocka_unit_test(test_contractions),
        cmocka_unit_test(test_windows),  cmocka_unit_test(test_composites), cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
