// Updates that compute their gradient themselves (fuse-products, backend/lower/schedule_product.c), compiled against
// the interpreter.
#include "ir/parse.h"
#include "tests/support/compiled.h"

// RMSProp with the sums of squares that a global norm needs: v = 0.9 v + 0.1 g², w -= 0.1 g / sqrt(v), g = xᵀ y.
static const char rmsprop[] = "sennit 1 graph\n"
                              "param @w : f32[%1$lld,%2$lld] fill 0.25\n"
                              "optimizer @v : f32[%1$lld,%2$lld] of @w fill 0.5\n"
                              "func @main(%%x: f32[%3$lld,%1$lld], %%y: f32[%3$lld,%2$lld]) {\n"
                              "  %%g = matmul(%%x, %%y) <transpose_a=1> : f32[%1$lld,%2$lld] backward\n"
                              "  %%s = mul(%%g, %%g) : f32[%1$lld,%2$lld] update\n"
                              "  %%r = reduce_sum(%%s) <axes=[1]> : f32[%1$lld] update\n"
                              "  %%a = constant() <value=0.9> : f32[] update\n"
                              "  %%b = mul(@v, %%a) : f32[%1$lld,%2$lld] update\n"
                              "  %%c = constant() <value=0.1> : f32[] update\n"
                              "  %%d = mul(%%s, %%c) : f32[%1$lld,%2$lld] update\n"
                              "  %%e = add(%%b, %%d) : f32[%1$lld,%2$lld] update\n"
                              "  assign(@v, %%e) update\n"
                              "  %%f = sqrt(%%e) : f32[%1$lld,%2$lld] update\n"
                              "  %%h = div(%%g, %%f) : f32[%1$lld,%2$lld] update\n"
                              "  %%i = mul(%%h, %%c) : f32[%1$lld,%2$lld] update\n"
                              "  %%j = sub(@w, %%i) : f32[%1$lld,%2$lld] update\n"
                              "  assign(@w, %%j) update\n"
                              "  return %%r \"squares\"\n"
                              "}\n";

static sn_module *parse(const char *text) {
    sn_diags diags = {0};
    sn_module *module = sn_parse(text, strlen(text), "test", &diags);
    if (!module) sn_diags_print(&diags, 0, false, stderr);
    assert_non_null(module);
    sn_diags_free(&diags);
    return module;
}

static bool has_product(const sn_jit *jit) {
    const sn_kernels *kernels = sn_jit_kernels(jit);
    for (size_t i = 0; i < kernels->n; i++)
        if (strncmp(kernels->kirs[i]->name, "k_matmul", 8) == 0) return true;
    return false;
}

static void check(int64_t m, int64_t n, int64_t k, bool fused) {
    char text[2048], name[64];
    snprintf(text, sizeof text, rmsprop, (long long)m, (long long)n, (long long)k);
    snprintf(name, sizeof name, "%lld x %lld x %lld", (long long)m, (long long)n, (long long)k);
    sn_module *module = parse(text);
    const sn_func *func = sn_module_func(module, "main");
    sn_tensor args[2];
    for (size_t i = 0; i < 2; i++) args[i] = random_tensor(func->args.data[i]->type, -1, 1, i + 17);
    sn_device *device = NULL;
    sn_jit *jit = compare_function(name, module, "main", args, 2, 40, &device); // sums of m products, of n squares
    assert_int_equal(has_product(jit), fused);
    sn_jit_free(jit);
    sn_device_destroy(device);
    for (size_t i = 0; i < 2; i++) sn_tensor_free(&args[i]);
    sn_module_free(module);
}

static void test_shapes(void **state) {
    (void)state;
    check(96, 48, 32, true);     // one block, one strip
    check(192, 144, 64, true);   // strips of 48
    check(288, 64, 40, true);    // of 32
    check(100, 80, 16, true);    // of 16; rows beyond the last block
    check(200, 96, 7, true);     // a depth that is not unrolled
    check(17, 1056, 5, true);    // less than a block
    check(192, 3072, 128, true); // runs of strips
}

static void test_refusals(void **state) {
    (void)state;
    check(96, 50, 16, false);  // columns are no vectors
    check(96, 48, 200, false); // operands larger than the gradient
    check(8, 96, 4, false);    // too few rows
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
