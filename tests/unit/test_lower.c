// Fused kernels of the patterns that models are made of, compiled against the interpreter.
#include "tests/support/compiled.h"

typedef struct graph {
    sn_module *module;
    sn_builder b;
} graph;

static graph new_graph(void) {
    graph g = {.module = sn_module_new("test")};
    g.b.func = sn_module_add_func(g.module, "main");
    return g;
}

static sn_value *arg(graph *g, sn_dtype dtype, int rank, int64_t a, int64_t b, int64_t c) {
    int64_t dims[] = {a, b, c};
    char name[16];
    snprintf(name, sizeof name, "x%zu", g->b.func->args.count);
    return sn_func_add_arg(g->b.func, name, sn_type_make(dtype, rank, dims));
}

static void result(graph *g, sn_value *value) {
    char name[16];
    snprintf(name, sizeof name, "y%zu", g->b.func->results.count);
    sn_func_add_result(g->b.func, value, name);
}

static void test_pointwise(void **state) {
    (void)state;
    graph g = new_graph();
    sn_value *x = arg(&g, SN_F32, 2, 37, 129, 0), *y = arg(&g, SN_F32, 1, 129, 0, 0);
    sn_value *sum = sn_build_binary(&g.b, SN_OP_ADD, x, y);
    result(&g, sn_build_unary(&g.b, SN_OP_GELU_TANH, sum));
    result(&g, sum);
    assert_int_equal(check_module("bias and gelu", g.module, -3, 3, 1), 1);
}

// A kernel reads at most as many operands as a GPU's parameters allow (see compare_function): the others' parts are
// stored first.
static void test_many_operands(void **state) {
    (void)state;
    graph g = new_graph();
    sn_value *sum = arg(&g, SN_F32, 1, 5, 0, 0);
    for (int i = 1; i < 400; i++) sum = sn_build_binary(&g.b, SN_OP_ADD, sum, arg(&g, SN_F32, 1, 5, 0, 0));
    result(&g, sum);
    assert_true(check_module("a sum of many", g.module, -1, 1, 20) > 1);
}

// The norm of all gradients of a deep model, which is made from a sum of squares per parameter.
static void test_norm_of_many(void **state) {
    (void)state;
    static const int counts[] = {127, 129, 400};
    for (int c = 0; c < 3; c++) {
        graph g = new_graph();
        sn_value *squares[400];
        for (int i = 0; i < counts[c]; i++) {
            sn_value *x = arg(&g, SN_F32, 1, 1, 0, 0);
            squares[i] = i % 3 ? x : sn_build_unary(&g.b, SN_OP_ABS, x);
        }
        sn_value *all = sn_build_concat(&g.b, counts[c], squares, 0);
        result(&g, sn_build_reduce(&g.b, SN_OP_REDUCE_SUM, all, 1, (int64_t[]){0}, false));
        result(&g, sn_build_concat(&g.b, 2, (sn_value *[]){all, all}, 0));
        assert_true(check_module("a norm of many", g.module, 0, 1, 20) > (counts[c] > 128));
    }
}

static void test_matmul(void **state) {
    (void)state;
    graph g = new_graph();
    sn_value *x = arg(&g, SN_F32, 2, 33, 65, 0), *y = arg(&g, SN_F32, 2, 65, 17, 0),
             *bias = arg(&g, SN_F32, 1, 17, 0, 0);
    result(&g, sn_build_unary(&g.b, SN_OP_RELU,
                              sn_build_binary(&g.b, SN_OP_ADD, sn_build_matmul(&g.b, x, y, false, false), bias)));
    assert_int_equal(check_module("linear layer", g.module, -1, 1, 10), 1);
}

static void test_softmax(void **state) {
    (void)state;
    for (int64_t columns = 1; columns < 3000; columns = columns * 7 + 1) {
        graph g = new_graph();
        sn_value *x = arg(&g, SN_F32, 2, 19, columns, 0);
        sn_attr axis = sn_attr_int("axis", 1);
        result(&g, sn_build(&g.b, SN_OP_SOFTMAX, 1, &x, 1, &axis, NULL)->results[0]);
        assert_int_equal(check_module("softmax", g.module, -5, 5, 4), 1);
    }
}

static void test_layer_norm(void **state) {
    (void)state;
    graph g = new_graph();
    sn_value *in[] = {arg(&g, SN_F32, 3, 2, 19, 48), arg(&g, SN_F32, 1, 48, 0, 0), arg(&g, SN_F32, 1, 48, 0, 0)};
    sn_attr axis = sn_attr_int("axis", 2);
    sn_op *op = sn_build(&g.b, SN_OP_LAYER_NORM, 3, in, 1, &axis, NULL);
    for (int i = 0; i < 3; i++) result(&g, op->results[i]);
    assert_int_equal(check_module("layer norm", g.module, -2, 2, 8), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise), cmocka_unit_test(test_many_operands), cmocka_unit_test(test_norm_of_many),
        cmocka_unit_test(test_matmul),    cmocka_unit_test(test_softmax),       cmocka_unit_test(test_layer_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
