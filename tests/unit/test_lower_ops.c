// Every operator that has a rule, compiled against the interpreter: element types, odd shapes, views.
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

static sn_value *arg(graph *g, sn_dtype dtype, int rank, const int64_t *dims) {
    char name[16];
    snprintf(name, sizeof name, "x%zu", g->b.func->args.count);
    return sn_func_add_arg(g->b.func, name, sn_type_make(dtype, rank, dims));
}
#define ARG(g, dtype, ...) arg(g, dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})

static void result(graph *g, sn_value *value) {
    char name[16];
    snprintf(name, sizeof name, "y%zu", g->b.func->results.count);
    sn_func_add_result(g->b.func, value, name);
}

static sn_op *op(graph *g, sn_op_kind kind, int n, sn_value *const *in, int n_attrs, const sn_attr *attrs,
                 const sn_type *typed) {
    sn_op *made = sn_build(&g->b, kind, n, in, n_attrs, attrs, typed);
    for (int i = 0; i < made->n_results; i++) result(g, made->results[i]);
    return made;
}

static void check(graph *g, const char *what, sn_dtype dtype, double low, double high, double scale) {
    char name[64];
    snprintf(name, sizeof name, "%s %s", what, sn_dtype_name(dtype));
    check_module(name, g->module, low, high, scale);
}

// An i64 constant of the graph.
static sn_value *indices(graph *g, int rank, const int64_t *dims, const int64_t *data) {
    sn_type type = sn_type_make(SN_I64, rank, dims);
    void *copy = sn_arena_copy(&g->module->arena, data, (size_t)sn_type_bytes(type));
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = copy};
    return sn_module_add_global(g->module, "i", type, SN_ROLE_CONSTANT, source)->value;
}

static const sn_dtype floats[] = {SN_F32, SN_F64, SN_F16, SN_BF16};
static const sn_dtype some[] = {SN_F32, SN_F16, SN_I64, SN_U8, SN_BOOL};
static const sn_dtype numbers[] = {SN_F32, SN_F64, SN_F16, SN_BF16, SN_I8,  SN_I16,
                                   SN_I32, SN_I64, SN_U8,  SN_U16,  SN_U32, SN_U64};
#define FOR_EACH(dtype, list)                                                                                          \
    for (size_t at_ = 0; at_ < sizeof(list) / sizeof *(list); at_++)                                                   \
        for (sn_dtype dtype = (list)[at_], *once_ = &dtype; once_; once_ = NULL)

static void test_unary(void **state) {
    (void)state;
    FOR_EACH(dtype, floats) {
        graph g = new_graph();
        sn_value *x = ARG(&g, dtype, 7, 19);
        for (sn_op_kind kind = SN_OP_NEG; kind <= SN_OP_IS_NAN; kind++)
            if (kind != SN_OP_ACOSH) op(&g, kind, 1, &x, 0, NULL, NULL);
        sn_value *more = sn_build_binary_number(&g.b, SN_OP_ADD, x, 1);
        op(&g, SN_OP_ACOSH, 1, &more, 0, NULL, NULL);
        check(&g, "unary", dtype, 0.05, 0.95, 4);
    }
    FOR_EACH(dtype, floats) {
        graph g = new_graph();
        sn_value *x = ARG(&g, dtype, 3, 1, 11);
        static const sn_op_kind kinds[] = {SN_OP_NEG,     SN_OP_ABS,  SN_OP_SIGN, SN_OP_FLOOR,   SN_OP_CEIL,
                                           SN_OP_ROUND,   SN_OP_TANH, SN_OP_ERF,  SN_OP_GELU,    SN_OP_GELU_TANH,
                                           SN_OP_SIGMOID, SN_OP_RELU, SN_OP_EXP,  SN_OP_SOFTPLUS};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) op(&g, kinds[i], 1, &x, 0, NULL, NULL);
        check(&g, "unary, both signs", dtype, -6, 6, 8);
    }
    FOR_EACH(dtype, numbers) {
        if (sn_dtype_is_float(dtype)) continue;
        graph g = new_graph();
        sn_value *x = ARG(&g, dtype, 5, 13);
        static const sn_op_kind kinds[] = {SN_OP_NEG, SN_OP_ABS, SN_OP_SIGN, SN_OP_RELU, SN_OP_BIT_NOT, SN_OP_COPY};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) op(&g, kinds[i], 1, &x, 0, NULL, NULL);
        check(&g, "unary", dtype, sn_dtype_class(dtype) == 'u' ? 0 : -100, 100, 1);
    }
}

static void test_binary(void **state) {
    (void)state;
    FOR_EACH(dtype, numbers) {
        graph g = new_graph();
        sn_value *in[] = {ARG(&g, dtype, 7, 1, 5), ARG(&g, dtype, 3, 1)};
        static const sn_op_kind kinds[] = {SN_OP_ADD,        SN_OP_SUB,     SN_OP_MUL,          SN_OP_DIV,   SN_OP_MOD,
                                           SN_OP_FMOD,       SN_OP_MIN,     SN_OP_MAX,          SN_OP_EQUAL, SN_OP_LESS,
                                           SN_OP_LESS_EQUAL, SN_OP_GREATER, SN_OP_GREATER_EQUAL};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) op(&g, kinds[i], 2, in, 0, NULL, NULL);
        static const sn_op_kind bits[] = {SN_OP_BIT_AND, SN_OP_BIT_OR, SN_OP_BIT_XOR};
        for (size_t i = 0; i < 3 && !sn_dtype_is_float(dtype); i++) op(&g, bits[i], 2, in, 0, NULL, NULL);
        if (sn_dtype_class(dtype) == 'u') {
            op(&g, SN_OP_SHIFT_LEFT, 2, in, 0, NULL, NULL);
            op(&g, SN_OP_SHIFT_RIGHT, 2, in, 0, NULL, NULL);
        }
        check(&g, "binary", dtype, sn_dtype_class(dtype) == 'u' ? 0 : -9, 9, 4);
    }
    graph g = new_graph();
    sn_value *in[] = {ARG(&g, SN_BOOL, 4, 9), ARG(&g, SN_BOOL, 9)};
    static const sn_op_kind kinds[] = {SN_OP_AND, SN_OP_OR, SN_OP_XOR, SN_OP_EQUAL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) op(&g, kinds[i], 2, in, 0, NULL, NULL);
    op(&g, SN_OP_NOT, 1, in, 0, NULL, NULL);
    check(&g, "logical", SN_BOOL, 0, 2, 1);
}

static void test_pow(void **state) {
    (void)state;
    static const sn_dtype types[] = {SN_F32, SN_F64, SN_I32, SN_I64};
    FOR_EACH(dtype, types) {
        graph g = new_graph();
        sn_value *in[] = {ARG(&g, dtype, 6, 5), ARG(&g, dtype, 1)};
        op(&g, SN_OP_POW, 2, in, 0, NULL, NULL);
        check(&g, "pow", dtype, 1, 5, 8);
    }
}

static void test_cast(void **state) {
    (void)state;
    for (sn_dtype from = 0; from < SN_DTYPE_COUNT; from++) {
        graph g = new_graph();
        sn_value *x = ARG(&g, from, 17, 3);
        for (sn_dtype to = 0; to < SN_DTYPE_COUNT; to++)
            if (to != from) result(&g, sn_build_cast(&g.b, x, to));
        check(&g, "cast from", from, sn_dtype_class(from) == 'u' || from == SN_BOOL ? 0 : -100,
              from == SN_BOOL ? 2 : 100, 1);
    }
}

static void test_generators(void **state) {
    (void)state;
    for (sn_dtype dtype = 0; dtype < SN_DTYPE_COUNT; dtype++) {
        graph g = new_graph();
        result(&g, sn_build_splat(&g.b, sn_type_make(dtype, 2, (int64_t[]){3, 5}), 1));
        if (dtype != SN_BOOL) result(&g, sn_build_iota(&g.b, sn_type_make(dtype, 3, (int64_t[]){3, 7, 2}), 1));
        check(&g, "generators", dtype, 0, 1, 1);
    }
    graph g = new_graph();
    sn_value *in[] = {ARG(&g, SN_I64, 1), ARG(&g, SN_I64, 1)};
    for (int i = 0; i < 2; i++) in[i] = sn_build_reshape(&g.b, in[i], 0, NULL);
    sn_attr id = sn_attr_int("id", 3);
    sn_type type = sn_type_make(SN_F32, 2, (int64_t[]){9, 31});
    op(&g, SN_OP_RANDOM_UNIFORM, 2, in, 1, &id, &type);
    check(&g, "random_uniform", SN_F32, 1, 100, 1);
}

static void test_movement(void **state) {
    (void)state;
    FOR_EACH(dtype, some) {
        graph g = new_graph();
        sn_value *x = ARG(&g, dtype, 3, 5, 7), *y = ARG(&g, dtype, 3, 2, 7), *c = ARG(&g, SN_BOOL, 5, 1);
        sn_value *t = sn_build_transpose(&g.b, x, (int64_t[]){2, 0, 1});
        result(&g, t);
        result(&g, sn_build_reshape(&g.b, t, 2, (int64_t[]){21, 5}));
        result(&g, sn_build_broadcast(&g.b, sn_build_reshape(&g.b, c, 2, (int64_t[]){5, 1}), 3, (int64_t[]){2, 5, 3}));
        sn_value *s = sn_build_slice(&g.b, x, (int64_t[]){2, 1, 6}, (int64_t[]){-1, 2, -2}, (int64_t[]){3, 2, 3});
        result(&g, s);
        result(&g, sn_build_pad(&g.b, s, (int64_t[]){1, 0, 2}, (int64_t[]){0, 3, 1}, 1));
        result(&g, sn_build_concat(&g.b, 3, (sn_value *[]){x, y, x}, 1));
        sn_value *w = sn_build_concat(&g.b, 2, (sn_value *[]){x, x}, 2);
        result(&g, sn_build_transpose(&g.b, w, (int64_t[]){1, 2, 0}));
        result(&g, sn_build_where(
                       &g.b, c, x,
                       sn_build_slice(&g.b, x, (int64_t[]){0, 0, 0}, (int64_t[]){1, 1, 1}, (int64_t[]){1, 5, 7})));
        check(&g, "movement", dtype, 0, dtype == SN_BOOL ? 2 : 50, 1);
    }
}

static void test_gather(void **state) {
    (void)state;
    FOR_EACH(dtype, some) {
        graph g = new_graph();
        sn_value *x = ARG(&g, dtype, 4, 6, 5);
        sn_value *i = indices(&g, 2, (int64_t[]){2, 3}, (int64_t[]){5, -1, 0, 2, 2, -6});
        for (int64_t axis = 0; axis < 3; axis++)
            if (axis == 1) result(&g, sn_build_gather(&g.b, x, i, (int)axis));
        sn_value *j = indices(&g, 3, (int64_t[]){4, 2, 5}, (int64_t[40]){1, -1, 5, 3, 2, [20] = 4, -2, [39] = 5});
        sn_attr axis = sn_attr_int("axis", 1);
        op(&g, SN_OP_GATHER_ELEMENTS, 2, (sn_value *[]){x, j}, 1, &axis, NULL);
        sn_value *n = indices(&g, 2, (int64_t[]){3, 2}, (int64_t[]){0, 5, -1, 2, 3, 0});
        op(&g, SN_OP_GATHER_ND, 2, (sn_value *[]){x, n}, 0, NULL, NULL);
        sn_attr batch = sn_attr_int("batch_dims", 1);
        sn_value *m = indices(&g, 2, (int64_t[]){4, 1}, (int64_t[]){0, 5, -1, 2});
        op(&g, SN_OP_GATHER_ND, 2, (sn_value *[]){x, m}, 1, &batch, NULL);
        check(&g, "gather", dtype, 0, dtype == SN_BOOL ? 2 : 50, 1);
    }
}

static void test_scatter(void **state) {
    (void)state;
    static const char *const reductions[] = {"none", "add", "mul", "min", "max"};
    static const sn_dtype types[] = {SN_F32, SN_I64, SN_F16};
    FOR_EACH(dtype, types) {
        for (int r = 0; r < 5; r++) {
            graph g = new_graph();
            sn_value *x = ARG(&g, dtype, 4, 6), *u = ARG(&g, dtype, 3, 5), *v = ARG(&g, dtype, 3, 6);
            int64_t at[15] = {1, 3, -1, 0, 2, 0, 1, 2, 3, -2, 3, 3, 0, 1, 2};
            sn_value *i = indices(&g, 2, (int64_t[]){3, 5}, at);
            sn_attr attrs[] = {sn_attr_int("axis", 0), sn_attr_string("reduction", reductions[r])};
            op(&g, SN_OP_SCATTER_ELEMENTS, 3, (sn_value *[]){x, i, u}, 2, attrs, NULL);
            sn_value *n = indices(&g, 2, (int64_t[]){3, 1}, (int64_t[]){3, -4, r ? 3 : 1});
            op(&g, SN_OP_SCATTER_ND, 3, (sn_value *[]){x, n, v}, 1, &attrs[1], NULL);
            check(&g, reductions[r], dtype, 0, 4, 4);
        }
        graph g = new_graph();
        sn_value *i = indices(&g, 2, (int64_t[]){2, 3}, (int64_t[]){5, 0, 0, 2, 2, 6});
        sn_value *gradient = ARG(&g, dtype, 2, 3, 19), *base = ARG(&g, dtype, 7, 19);
        sn_attr axis = sn_attr_int("axis", 0);
        sn_type type = sn_type_make(dtype, 2, (int64_t[]){7, 19});
        sn_op *grad = op(&g, SN_OP_GATHER_GRAD, 2, (sn_value *[]){i, gradient}, 1, &axis, &type);
        sn_op *other = sn_build(&g.b, SN_OP_GATHER_GRAD, 2, (sn_value *[]){i, gradient}, 1, &axis, &type);
        result(&g, sn_build_binary(&g.b, SN_OP_ADD, other->results[0], base));
        assert_non_null(grad);
        check(&g, "gather_grad", dtype, 0, 4, 4);
    }
}

static void test_reductions(void **state) {
    (void)state;
    static const struct {
        int n;
        int64_t axes[3];
    } over[] = {{1, {2}}, {1, {0}}, {1, {1}}, {2, {0, 2}}, {2, {1, 2}}, {3, {0, 1, 2}}};
    FOR_EACH(dtype, numbers) {
        for (size_t i = 0; i < sizeof over / sizeof *over; i++) {
            graph g = new_graph();
            sn_value *x = ARG(&g, dtype, 5, 3, 37);
            for (sn_op_kind kind = SN_OP_REDUCE_SUM; kind <= SN_OP_REDUCE_MIN; kind++)
                result(&g, sn_build_reduce(&g.b, kind, x, over[i].n, over[i].axes, i % 2));
            check(&g, "reductions", dtype, sn_dtype_class(dtype) == 'u' ? 0 : 0.9, sn_dtype_is_float(dtype) ? 1.1 : 3,
                  sn_dtype_is_float(dtype) ? 100 : 1);
        }
    }
}

static void test_empty(void **state) {
    (void)state;
    graph g = new_graph();
    sn_value *x = ARG(&g, SN_F32, 3, 0), *y = ARG(&g, SN_F32, 3, 2);
    for (sn_op_kind kind = SN_OP_REDUCE_SUM; kind <= SN_OP_REDUCE_MIN; kind++)
        result(&g, sn_build_reduce(&g.b, kind, x, 1, (int64_t[]){1}, false));
    result(&g, sn_build_concat(&g.b, 2, (sn_value *[]){x, y}, 1));
    result(&g, sn_build_unary(&g.b, SN_OP_EXP, x));
    result(&g, sn_build_matmul(&g.b, x, x, false, true));
    result(&g, sn_build_matmul(&g.b, x, y, true, false));
    check(&g, "empty", SN_F32, 0, 1, 1);
}

static void test_along_axis(void **state) {
    (void)state;
    static const sn_dtype types[] = {SN_F32, SN_F64, SN_F16, SN_I32, SN_I64, SN_U8};
    FOR_EACH(dtype, types) {
        for (int64_t axis = 0; axis < 3; axis++) {
            graph g = new_graph();
            sn_value *x = ARG(&g, dtype, 4, 5, 6);
            for (int last = 0; last < 2; last++) {
                sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_int("last", last), sn_attr_int("keepdims", last)};
                op(&g, SN_OP_ARG_MAX, 1, &x, 3, attrs, NULL);
                op(&g, SN_OP_ARG_MIN, 1, &x, 3, attrs, NULL);
                sn_attr scan[] = {sn_attr_int("axis", axis), sn_attr_int("exclusive", last),
                                  sn_attr_int("reverse", !last)};
                op(&g, SN_OP_CUM_SUM, 1, &x, 3, scan, NULL);
                op(&g, SN_OP_CUM_PROD, 1, &x, 3, scan, NULL);
                sn_attr k[] = {sn_attr_int("k", 3), sn_attr_int("axis", axis), sn_attr_int("largest", last)};
                op(&g, SN_OP_TOP_K, 1, &x, 3, k, NULL);
            }
            check(&g, "along axis", dtype, 0, 3, 8);
        }
    }
}

static void test_matmul(void **state) {
    (void)state;
    FOR_EACH(dtype, numbers) {
        graph g = new_graph();
        sn_value *x = ARG(&g, dtype, 3, 5, 7), *y = ARG(&g, dtype, 7, 4), *z = ARG(&g, dtype, 2, 1, 4, 7);
        sn_value *t = ARG(&g, dtype, 3, 7, 5);
        result(&g, sn_build_matmul(&g.b, x, y, false, false));
        result(&g, sn_build_matmul(&g.b, x, z, false, true));
        result(&g, sn_build_matmul(&g.b, t, y, true, false));
        result(&g, sn_build_matmul(&g.b, sn_build_transpose(&g.b, t, (int64_t[]){0, 2, 1}), y, false, false));
        sn_value *s = sn_build_slice(&g.b, y, (int64_t[]){6, 1}, (int64_t[]){-1, 1}, (int64_t[]){7, 2});
        result(&g, sn_build_matmul(&g.b, x, s, false, false));
        check(&g, "matmul", dtype, 0, 2, 16);
    }
}

static void test_conv(void **state) {
    (void)state;
    FOR_EACH(dtype, floats) {
        for (int64_t groups = 1; groups <= 2; groups++) {
            graph g = new_graph();
            sn_value *x = ARG(&g, dtype, 2, 4, 9, 8), *w = ARG(&g, dtype, 6, 4 / groups, 3, 2);
            sn_attr attrs[] = {sn_attr_ints("strides", (int64_t[]){2, 1}, 2),
                               sn_attr_ints("pads", (int64_t[]){1, 0, 2, 1}, 4),
                               sn_attr_ints("dilations", (int64_t[]){1, 2}, 2), sn_attr_int("groups", groups)};
            sn_op *y = op(&g, SN_OP_CONV, 2, (sn_value *[]){x, w}, 4, attrs, NULL);
            sn_value *dy = sn_func_add_arg(g.b.func, "dy", y->results[0]->type);
            op(&g, SN_OP_CONV_INPUT_GRAD, 2, (sn_value *[]){dy, w}, 4, attrs, &x->type);
            op(&g, SN_OP_CONV_WEIGHT_GRAD, 2, (sn_value *[]){x, dy}, 4, attrs, &w->type);
            check(&g, "conv", dtype, -1, 1, 64);
        }
    }
}

static void test_pool(void **state) {
    (void)state;
    static const sn_dtype types[] = {SN_F32, SN_F64, SN_F16};
    FOR_EACH(dtype, types) {
        graph g = new_graph();
        sn_value *x = ARG(&g, dtype, 2, 3, 9, 8);
        sn_type out = sn_type_make(dtype, 4, (int64_t[]){2, 3, 5, 4});
        for (int64_t include = 0; include < 2; include++) {
            sn_attr attrs[] = {sn_attr_ints("kernel", (int64_t[]){3, 2}, 2),
                               sn_attr_ints("strides", (int64_t[]){2, 2}, 2),
                               sn_attr_ints("pads", (int64_t[]){1, 0, 1, 0}, 4),
                               sn_attr_ints("dilations", (int64_t[]){1, 1}, 2), sn_attr_int("include_pad", include)};
            op(&g, SN_OP_AVG_POOL, 1, &x, 5, attrs, &out);
            sn_value *dy = ARG(&g, dtype, 2, 3, 5, 4);
            op(&g, SN_OP_AVG_POOL_GRAD, 1, &dy, 5, attrs, &x->type);
            if (include) continue;
            sn_op *max = op(&g, SN_OP_MAX_POOL, 1, &x, 4, attrs, (sn_type[]){out, sn_type_with_dtype(out, SN_I64)});
            op(&g, SN_OP_MAX_POOL_GRAD, 2, (sn_value *[]){dy, max->results[1]}, 4, attrs, &x->type);
        }
        check(&g, "pool", dtype, -1, 1, 16);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),  cmocka_unit_test(test_binary),     cmocka_unit_test(test_pow),
        cmocka_unit_test(test_cast),   cmocka_unit_test(test_generators), cmocka_unit_test(test_movement),
        cmocka_unit_test(test_gather), cmocka_unit_test(test_scatter),    cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_empty),  cmocka_unit_test(test_along_axis), cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_conv),   cmocka_unit_test(test_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
