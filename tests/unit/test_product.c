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

// As an embedding that is tied to the last layer: g = xᵀ y + the rows of z at i; v = 0.9 v + g², w -= g v.
static const char tied[] = "sennit 1 graph\n"
                           "param @w : f32[%1$lld,%2$lld] fill 0.25\n"
                           "optimizer @v : f32[%1$lld,%2$lld] of @w fill 0.5\n"
                           "func @main(%%x: f32[1,%3$lld,%1$lld], %%y: f32[1,%3$lld,%2$lld], %%i: i64[1,%4$lld],\n"
                           "           %%z: f32[1,%4$lld,%2$lld]) {\n"
                           "  %%p = matmul(%%x, %%y) <transpose_a=1> : f32[1,%1$lld,%2$lld] backward\n"
                           "  %%q = reshape(%%p) : f32[%1$lld,%2$lld] backward\n"
                           "  %%e = gather_grad(%%i, %%z) <axis=0> : f32[%1$lld,%2$lld] backward\n"
                           "  %%g = add(%%q, %%e) : f32[%1$lld,%2$lld] backward\n"
                           "  %%s = mul(%%g, %%g) : f32[%1$lld,%2$lld] update\n"
                           "  %%r = reduce_sum(%%s) <axes=[1]> : f32[%1$lld] update\n"
                           "  %%a = constant() <value=0.9> : f32[] update\n"
                           "  %%b = mul(@v, %%a) : f32[%1$lld,%2$lld] update\n"
                           "  %%c = add(%%b, %%s) : f32[%1$lld,%2$lld] update\n"
                           "  assign(@v, %%c) update\n"
                           "  %%h = mul(%%g, %%c) : f32[%1$lld,%2$lld] update\n"
                           "  %%d = sub(@w, %%h) : f32[%1$lld,%2$lld] update\n"
                           "  assign(@w, %%d) update\n"
                           "  return %%r \"squares\"\n"
                           "}\n";

static void check_tied(int64_t m, int64_t n, int64_t k, int64_t indices) {
    char text[2048], name[64];
    snprintf(text, sizeof text, tied, (long long)m, (long long)n, (long long)k, (long long)indices);
    snprintf(name, sizeof name, "tied %lld x %lld x %lld", (long long)m, (long long)n, (long long)k);
    sn_module *module = parse(text);
    const sn_func *func = sn_module_func(module, "main");
    sn_tensor args[4];
    for (size_t i = 0; i < 4; i++) {
        bool index = func->args.data[i]->type.dtype == SN_I64; // some of them from the end, some more than once
        args[i] = random_tensor(func->args.data[i]->type, index ? (double)-m : -1, index ? (double)m : 1, i + 5);
    }
    int64_t *first = args[2].data;
    first[0] = 0, first[1] = m - 1, first[2] = -1;
    for (int64_t i = 3; i < 7; i++) first[i] = m / 2;
    sn_device *device = NULL;
    sn_jit *jit = compare_function(name, module, "main", args, 4, 40, &device);
    assert_true(has_product(jit));
    sn_jit_free(jit);
    sn_device_destroy(device);
    for (size_t i = 0; i < 4; i++) sn_tensor_free(&args[i]);
    sn_module_free(module);
}

static void test_tied(void **state) {
    (void)state;
    check_tied(96, 48, 16, 7);
    check_tied(250, 96, 24, 100);  // rows beyond the last block
    check_tied(40, 1056, 16, 300); // many to a row
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
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
