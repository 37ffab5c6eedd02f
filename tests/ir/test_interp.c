// The reference interpreter, one op at a time: hand-computed values, odd shapes, and what must be refused.
#include "base/alloc.h"
#include "ir/build.h"
#include "ir/interp.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
// after the above, as cmocka asks
#include <cmocka.h>

// A module with one function, whose arguments are the operands of the ops under test.
typedef struct bench {
    sn_module *module;
    sn_builder b;
    sn_tensor args[8];
    int n_args;
} bench;

static void bench_begin(bench *t) {
    *t = (bench){.module = sn_module_new("test")};
    t->b.func = sn_module_add_func(t->module, "main");
}

static sn_value *arg(bench *t, sn_dtype dtype, int rank, const int64_t *dims, const void *data) {
    sn_type type = sn_type_make(dtype, rank, dims);
    t->args[t->n_args++] = (sn_tensor){type, (void *)(uintptr_t)data};
    return sn_func_add_arg(t->b.func, "x", type);
}

static const char *run(bench *t, sn_value *result, sn_tensor *out) {
    sn_func_add_result(t->b.func, result, "y");
    sn_interp *interp = sn_interp_new(t->module);
    const char *problem = sn_interp_run(interp, t->b.func, t->args, out);
    static char kept[200];
    if (problem) problem = strncpy(kept, problem, sizeof kept - 1);
    sn_interp_free(interp);
    return problem;
}

static void check(bench *t, sn_value *result, int count, const double *expected) {
    sn_tensor out;
    assert_null(run(t, result, &out));
    assert_int_equal(sn_type_count(out.type), count);
    for (int i = 0; i < count; i++) {
        double x = sn_load_f64(out.type.dtype, out.data, i);
        if (isnan(expected[i]))
            assert_true(isnan(x));
        else if (!(x == expected[i]) && fabs(x - expected[i]) > 1e-6 * (1 + fabs(expected[i])))
            fail_msg("element %d is %.9g, not %.9g", i, x, expected[i]);
    }
    sn_tensor_free(&out);
    sn_module_free(t->module);
}
#define CHECK(t, result, ...)                                                                                          \
    check(t, result, (int)(sizeof(double[]){__VA_ARGS__} / sizeof(double)), (double[]){__VA_ARGS__})

static void check_empty(bench *t, sn_value *result) {
    check(t, result, 0, NULL);
}

static void test_broadcast(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_F32, 2, (int64_t[]){2, 1}, (float[]){1, 2});
    sn_value *y = arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){10, 20, 30});
    CHECK(&t, sn_build_binary(&t.b, SN_OP_ADD, x, y), 11, 21, 31, 12, 22, 32);

    bench_begin(&t);
    x = arg(&t, SN_F32, 0, NULL, (float[]){3});
    y = arg(&t, SN_F32, 0, NULL, (float[]){4});
    CHECK(&t, sn_build_binary(&t.b, SN_OP_MUL, x, y), 12);

    bench_begin(&t);
    x = arg(&t, SN_F32, 2, (int64_t[]){2, 0}, (float[]){0});
    y = arg(&t, SN_F32, 1, (int64_t[]){1}, (float[]){4});
    check_empty(&t, sn_build_binary(&t.b, SN_OP_MUL, x, y));
}

static void test_integers_wrap(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_I8, 1, (int64_t[]){3}, (int8_t[]){127, -128, -7});
    sn_value *y = arg(&t, SN_I8, 1, (int64_t[]){3}, (int8_t[]){1, -1, 0});
    CHECK(&t, sn_build_binary(&t.b, SN_OP_ADD, x, y), -128, 127, -7);

    bench_begin(&t);
    x = arg(&t, SN_I64, 1, (int64_t[]){4}, (int64_t[]){INT64_MIN, 7, -7, 5});
    y = arg(&t, SN_I64, 1, (int64_t[]){4}, (int64_t[]){-1, -2, 2, 0});
    CHECK(&t, sn_build_binary(&t.b, SN_OP_DIV, x, y), (double)INT64_MIN, -3, -3, 0);

    bench_begin(&t);
    x = arg(&t, SN_I64, 1, (int64_t[]){4}, (int64_t[]){7, -7, 7, 5});
    y = arg(&t, SN_I64, 1, (int64_t[]){4}, (int64_t[]){3, 3, -3, 0});
    CHECK(&t, sn_build_binary(&t.b, SN_OP_MOD, x, y), 1, 2, -2, 0);

    bench_begin(&t);
    x = arg(&t, SN_U64, 1, (int64_t[]){2}, (uint64_t[]){UINT64_MAX, 1});
    y = arg(&t, SN_U64, 1, (int64_t[]){2}, (uint64_t[]){1, UINT64_MAX});
    CHECK(&t, sn_build_binary(&t.b, SN_OP_GREATER, x, y), 1, 0);

    bench_begin(&t);
    x = arg(&t, SN_U8, 1, (int64_t[]){2}, (uint8_t[]){255, 3});
    y = arg(&t, SN_U8, 1, (int64_t[]){2}, (uint8_t[]){1, 8});
    CHECK(&t, sn_build_binary(&t.b, SN_OP_SHIFT_LEFT, x, y), 254, 0);
}

static void test_nan_propagates(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){NAN, 1, 2});
    sn_value *y = arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){1, NAN, 1});
    CHECK(&t, sn_build_binary(&t.b, SN_OP_MAX, x, y), NAN, NAN, 2);
    bench_begin(&t);
    x = arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){1, NAN, 2});
    CHECK(&t, sn_build_reduce(&t.b, SN_OP_REDUCE_MIN, x, 1, (int64_t[]){0}, false), NAN);
    bench_begin(&t);
    x = arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){NAN, 0, 2});
    CHECK(&t, sn_build_unary(&t.b, SN_OP_RELU, x), NAN, 0, 2);
}

static void test_casts_saturate(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_F32, 1, (int64_t[]){5}, (float[]){-1e9f, 1e9f, -1.9f, NAN, 126.9f});
    CHECK(&t, sn_build_cast(&t.b, x, SN_I8), -128, 127, -1, 0, 126);
    bench_begin(&t);
    x = arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){-1, 1e30f, NAN});
    CHECK(&t, sn_build_cast(&t.b, x, SN_U32), 0, 4294967295.0, 0);
    bench_begin(&t);
    x = arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){0.1f, 0, NAN});
    CHECK(&t, sn_build_cast(&t.b, x, SN_BOOL), 1, 0, 1);
    bench_begin(&t);
    x = arg(&t, SN_I64, 1, (int64_t[]){2}, (int64_t[]){257, -1});
    CHECK(&t, sn_build_cast(&t.b, x, SN_U8), 1, 255);
}

// A little above the middle of two halves: rounding to f32 on the way would give the lower one.
static void test_halves_round_once(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_value *x =
        arg(&t, SN_F64, 1, (int64_t[]){3}, (double[]){1 + 0x1p-11 + 0x1p-40, -1 - 0x1p-11 - 0x1p-40, 1 + 0x1p-11});
    CHECK(&t, sn_build_cast(&t.b, x, SN_F16), 1 + 0x1p-10, -1 - 0x1p-10, 1);
    bench_begin(&t);
    x = arg(&t, SN_F64, 1, (int64_t[]){2}, (double[]){1 + 0x1p-8 + 0x1p-40, 1e300});
    CHECK(&t, sn_build_cast(&t.b, x, SN_BF16), 1 + 0x1p-7, INFINITY);
}

static void test_reductions(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_F32, 2, (int64_t[]){2, 3}, (float[]){1, 2, 3, 4, 5, 6});
    CHECK(&t, sn_build_reduce(&t.b, SN_OP_REDUCE_SUM, x, 1, (int64_t[]){0}, false), 5, 7, 9);
    bench_begin(&t);
    x = arg(&t, SN_F32, 2, (int64_t[]){2, 0}, (float[]){0});
    CHECK(&t, sn_build_reduce(&t.b, SN_OP_REDUCE_MAX, x, 1, (int64_t[]){1}, true), -INFINITY, -INFINITY);
    bench_begin(&t);
    x = arg(&t, SN_I8, 1, (int64_t[]){0}, (int8_t[]){0});
    CHECK(&t, sn_build_reduce(&t.b, SN_OP_REDUCE_MIN, x, 1, (int64_t[]){0}, true), 127);
    bench_begin(&t);
    x = arg(&t, SN_F32, 0, NULL, (float[]){7});
    CHECK(&t, sn_build_reduce(&t.b, SN_OP_REDUCE_PROD, x, 0, NULL, false), 7);
}

static sn_value *build(bench *t, sn_op_kind kind, int n, sn_value **operands, int n_attrs, const sn_attr *attrs,
                       const sn_type *types, int result) {
    return sn_build(&t->b, kind, n, operands, n_attrs, attrs, types)->results[result];
}

static void test_ties(void **state) {
    (void)state;
    sn_attr last[] = {sn_attr_int("axis", 0), sn_attr_int("last", 1)};
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_F32, 1, (int64_t[]){4}, (float[]){3, 1, 3, 2});
    CHECK(&t, build(&t, SN_OP_ARG_MAX, 1, &x, 1, last, NULL, 0), 0);
    bench_begin(&t);
    x = arg(&t, SN_F32, 1, (int64_t[]){4}, (float[]){3, 1, 3, 2});
    CHECK(&t, build(&t, SN_OP_ARG_MAX, 1, &x, 2, last, NULL, 0), 2);
    sn_attr three[] = {sn_attr_int("k", 3), sn_attr_int("axis", 0)};
    bench_begin(&t);
    x = arg(&t, SN_F32, 1, (int64_t[]){4}, (float[]){3, 1, 3, 2});
    CHECK(&t, build(&t, SN_OP_TOP_K, 1, &x, 2, three, NULL, 1), 0, 2, 3);
}

static void test_scan(void **state) {
    (void)state;
    sn_attr attrs[] = {sn_attr_int("axis", 0), sn_attr_int("exclusive", 1), sn_attr_int("reverse", 1)};
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){1, 2, 4});
    CHECK(&t, build(&t, SN_OP_CUM_SUM, 1, &x, 3, attrs, NULL, 0), 6, 4, 0);
}

static void test_gather(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_F32, 2, (int64_t[]){2, 3}, (float[]){1, 2, 3, 4, 5, 6});
    sn_value *at = arg(&t, SN_I64, 1, (int64_t[]){2}, (int64_t[]){-1, 0});
    CHECK(&t, sn_build_gather(&t.b, x, at, 1), 3, 1, 6, 4);

    bench_begin(&t);
    x = arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){1, 2, 3});
    at = arg(&t, SN_I64, 1, (int64_t[]){1}, (int64_t[]){3});
    sn_tensor out;
    assert_string_equal(run(&t, sn_build_gather(&t.b, x, at, 0), &out), "gather: index out of range");
    sn_module_free(t.module);
}

static void test_scatter_adds(void **state) {
    (void)state;
    sn_attr attrs[] = {sn_attr_int("axis", 0), sn_attr_string("reduction", "add")};
    bench t;
    bench_begin(&t);
    sn_value *operands[] = {arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){1, 2, 3}),
                            arg(&t, SN_I64, 1, (int64_t[]){3}, (int64_t[]){0, -3, 2}),
                            arg(&t, SN_F32, 1, (int64_t[]){3}, (float[]){10, 20, 30})};
    CHECK(&t, build(&t, SN_OP_SCATTER_ELEMENTS, 3, operands, 2, attrs, NULL, 0), 31, 2, 33);
}

static void test_matmul(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_F32, 2, (int64_t[]){3, 2}, (float[]){1, 4, 2, 5, 3, 6});
    sn_value *y = arg(&t, SN_F32, 3, (int64_t[]){2, 1, 3}, (float[]){1, 0, 2, 1, 1, 1});
    CHECK(&t, sn_build_matmul(&t.b, x, y, true, true), 7, 16, 6, 15);

    bench_begin(&t);
    x = arg(&t, SN_I32, 2, (int64_t[]){1, 0}, (int32_t[]){0});
    y = arg(&t, SN_I32, 2, (int64_t[]){0, 2}, (int32_t[]){0});
    CHECK(&t, sn_build_matmul(&t.b, x, y, false, false), 0, 0);
}

// Numbers without a pattern that a wrong index would reproduce.
static void fill(float *data, int count, unsigned seed) {
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        data[i] = (float)(seed >> 16 & 0xff) / 64 - 2;
    }
}

static double inner(const sn_tensor *x, const float *y) {
    double sum = 0;
    for (int64_t i = 0; i < sn_type_count(x->type); i++) sum += (double)((const float *)x->data)[i] * (double)y[i];
    return sum;
}

// For linear maps, <A x, g> = <x, A^T g>: the gradients of a convolution follow from the convolution.
static void test_conv_adjoints(void **state) {
    (void)state;
    sn_attr attrs[] = {sn_attr_ints("strides", (int64_t[]){2, 1}, 2), sn_attr_ints("pads", (int64_t[]){1, 0, 0, 2}, 4),
                       sn_attr_ints("dilations", (int64_t[]){1, 2}, 2), sn_attr_int("groups", 2)};
    float x[2 * 4 * 5 * 7], w[6 * 2 * 3 * 2], g[2 * 6 * 2 * 7];
    fill(x, 280, 1), fill(w, 72, 2), fill(g, 168, 3);
    sn_type x_type = sn_type_make(SN_F32, 4, (int64_t[]){2, 4, 5, 7});
    sn_type w_type = sn_type_make(SN_F32, 4, (int64_t[]){6, 2, 3, 2});
    bench t;
    bench_begin(&t);
    sn_value *xs = arg(&t, SN_F32, 4, x_type.dim, x), *ws = arg(&t, SN_F32, 4, w_type.dim, w);
    sn_value *y = build(&t, SN_OP_CONV, 2, (sn_value *[]){xs, ws}, 4, attrs, NULL, 0);
    assert_int_equal(sn_type_count(y->type), 168);
    sn_value *gs = arg(&t, SN_F32, 4, y->type.dim, g);
    sn_func_add_result(t.b.func, y, "y");
    sn_func_add_result(t.b.func, build(&t, SN_OP_CONV_INPUT_GRAD, 2, (sn_value *[]){gs, ws}, 4, attrs, &x_type, 0), "");
    sn_tensor out[3];
    assert_null(run(&t, build(&t, SN_OP_CONV_WEIGHT_GRAD, 2, (sn_value *[]){xs, gs}, 4, attrs, &w_type, 0), out));
    double forward = inner(&out[0], g);
    assert_true(fabs(forward) > 1);
    assert_true(fabs(inner(&out[1], x) - forward) < 1e-3);
    assert_true(fabs(inner(&out[2], w) - forward) < 1e-3);
    for (int i = 0; i < 3; i++) sn_tensor_free(&out[i]);
    sn_module_free(t.module);
}

static void test_conv_by_hand(void **state) {
    (void)state;
    sn_attr attrs[] = {sn_attr_ints("strides", (int64_t[]){1}, 1), sn_attr_ints("pads", (int64_t[]){1, 0}, 2),
                       sn_attr_ints("dilations", (int64_t[]){1}, 1)};
    bench t;
    bench_begin(&t);
    sn_value *operands[] = {arg(&t, SN_F32, 3, (int64_t[]){1, 1, 4}, (float[]){1, 2, 3, 4}),
                            arg(&t, SN_F32, 3, (int64_t[]){1, 1, 2}, (float[]){10, 1})};
    CHECK(&t, build(&t, SN_OP_CONV, 2, operands, 3, attrs, NULL, 0), 1, 12, 23, 34);
}

static void test_pools(void **state) {
    (void)state;
    sn_attr attrs[] = {sn_attr_ints("kernel", (int64_t[]){3}, 1), sn_attr_ints("strides", (int64_t[]){2}, 1),
                       sn_attr_ints("pads", (int64_t[]){1, 1}, 2), sn_attr_ints("dilations", (int64_t[]){1}, 1),
                       sn_attr_int("include_pad", 1)};
    sn_type types[] = {sn_type_make(SN_F32, 3, (int64_t[]){1, 2, 2}), sn_type_make(SN_I64, 3, (int64_t[]){1, 2, 2})};
    static const float data[] = {-5, -1, -2, 4, 4, 3};
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_F32, 3, (int64_t[]){1, 2, 3}, data);
    CHECK(&t, build(&t, SN_OP_MAX_POOL, 1, &x, 4, attrs, types, 0), -1, -1, 4, 4);
    bench_begin(&t);
    x = arg(&t, SN_F32, 3, (int64_t[]){1, 2, 3}, data);
    CHECK(&t, build(&t, SN_OP_MAX_POOL, 1, &x, 4, attrs, types, 1), 1, 1, 3, 4);
    bench_begin(&t);
    x = arg(&t, SN_F32, 3, (int64_t[]){1, 2, 3}, data);
    CHECK(&t, build(&t, SN_OP_AVG_POOL, 1, &x, 4, attrs, types, 0), -3, -1.5, 4, 3.5);
    bench_begin(&t);
    x = arg(&t, SN_F32, 3, (int64_t[]){1, 2, 3}, data);
    CHECK(&t, build(&t, SN_OP_AVG_POOL, 1, &x, 5, attrs, types, 0), -2, -1, 8.0 / 3, 7.0 / 3);
}

static void test_softmax_of_masked_rows(void **state) {
    (void)state;
    sn_attr axis = sn_attr_int("axis", 1);
    bench t;
    bench_begin(&t);
    sn_value *x = arg(&t, SN_F32, 2, (int64_t[]){2, 2}, (float[]){1000, 1000, -INFINITY, 0});
    CHECK(&t, build(&t, SN_OP_SOFTMAX, 1, &x, 1, &axis, NULL, 0), 0.5, 0.5, 0, 1);
}

static void test_cross_entropy(void **state) {
    (void)state;
    sn_attr axis = sn_attr_int("axis", 1);
    bench t;
    bench_begin(&t);
    sn_value *operands[] = {arg(&t, SN_F32, 2, (int64_t[]){2, 2}, (float[]){0, 0, 5, 5}),
                            arg(&t, SN_I64, 1, (int64_t[]){2}, (int64_t[]){1, -100})};
    CHECK(&t, build(&t, SN_OP_CROSS_ENTROPY, 2, operands, 1, &axis, NULL, 0), M_LN2, 0);

    bench_begin(&t);
    operands[0] = arg(&t, SN_F32, 2, (int64_t[]){1, 2}, (float[]){0, 0});
    operands[1] = arg(&t, SN_I64, 1, (int64_t[]){1}, (int64_t[]){2});
    sn_tensor out;
    const char *problem = run(&t, build(&t, SN_OP_CROSS_ENTROPY, 2, operands, 1, &axis, NULL, 0), &out);
    assert_non_null(problem);
    assert_non_null(strstr(problem, "label out of range"));
    sn_module_free(t.module);
}

// The loss sum(w * attention(q, k, v)) at q, k, v with element i of operand `which` moved by `delta`.
typedef struct attention_case {
    sn_module *module;
    sn_func *func;
    sn_interp *interp;
    double data[4][96]; // q, k, v, w
    sn_tensor args[4];
} attention_case;

static void attention_case_begin(attention_case *c) {
    c->module = sn_module_new("attention");
    c->func = sn_module_add_func(c->module, "main");
    sn_builder b = {.func = c->func};
    static const int64_t dims[4][4] = {{2, 4, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}, {2, 4, 3, 3}};
    sn_value *x[4];
    for (int i = 0; i < 4; i++) {
        sn_type type = sn_type_make(SN_F32, 4, dims[i]);
        x[i] = sn_func_add_arg(c->func, "x", type);
        float noise[96];
        fill(noise, 96, (unsigned)i + 7);
        for (int j = 0; j < 96; j++) c->data[i][j] = (double)noise[j];
        c->args[i] = (sn_tensor){sn_type_with_dtype(type, SN_F64), c->data[i]};
    }
    sn_attr attrs[] = {sn_attr_float("scale", 0.7), sn_attr_int("causal", 1)};
    sn_op *op = sn_build(&b, SN_OP_ATTENTION, 3, x, 2, attrs, NULL);
    sn_value *product = sn_build_binary(&b, SN_OP_MUL, op->results[0], x[3]);
    sn_func_add_result(c->func, sn_build_reduce(&b, SN_OP_REDUCE_SUM, product, 4, (int64_t[]){0, 1, 2, 3}, false), "l");
    sn_value *in[] = {x[0], x[1], x[2], op->results[0], op->results[1], x[3]};
    sn_op *grad = sn_build(&b, SN_OP_ATTENTION_GRAD, 6, in, 2, attrs, NULL);
    for (int i = 0; i < 3; i++) sn_func_add_result(c->func, grad->results[i], "g");
    c->interp = sn_interp_new(c->module);
    sn_interp_set_f64(c->interp, true);
}

static double loss_of(attention_case *c) {
    sn_tensor out[4];
    assert_null(sn_interp_run(c->interp, c->func, c->args, out));
    double loss = *(double *)out[0].data;
    for (int i = 0; i < 4; i++) sn_tensor_free(&out[i]);
    return loss;
}

static void test_attention_gradients(void **state) {
    (void)state;
    attention_case *c = sn_alloc(sizeof *c);
    attention_case_begin(c);
    sn_tensor out[4];
    assert_null(sn_interp_run(c->interp, c->func, c->args, out));
    for (int which = 0; which < 3; which++)
        for (int64_t i = 0; i < sn_type_count(out[1 + which].type); i++) {
            double held = c->data[which][i], step = 1e-5;
            c->data[which][i] = held + step;
            double above = loss_of(c);
            c->data[which][i] = held - step;
            double slope = (above - loss_of(c)) / (2 * step);
            c->data[which][i] = held;
            assert_true(fabs(slope - ((double *)out[1 + which].data)[i]) < 1e-7);
        }
    for (int i = 0; i < 4; i++) sn_tensor_free(&out[i]);
    sn_interp_free(c->interp);
    sn_module_free(c->module);
    sn_free(c);
}

// The first step of Adam moves each weight by the rate against the gradient's sign, whatever its size.
static void test_adam_first_step(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_value *operands[6];
    operands[0] = arg(&t, SN_F32, 1, (int64_t[]){2}, (float[]){1, 1});
    operands[1] = arg(&t, SN_F32, 1, (int64_t[]){2}, (float[]){100, -0.5f});
    operands[2] = arg(&t, SN_F32, 1, (int64_t[]){2}, (float[]){0, 0});
    operands[3] = arg(&t, SN_F32, 1, (int64_t[]){2}, (float[]){0, 0});
    operands[4] = arg(&t, SN_F32, 0, NULL, (float[]){0.1f});
    operands[5] = arg(&t, SN_I64, 0, NULL, (int64_t[]){1});
    CHECK(&t, build(&t, SN_OP_ADAM, 6, operands, 0, NULL, NULL, 0), 0.9, 1.1);
}

static void test_random_parts_agree(void **state) {
    (void)state;
    sn_attr attrs[] = {sn_attr_int("id", 3), sn_attr_ints("global", (int64_t[]){4, 3}, 2),
                       sn_attr_ints("dims", (int64_t[]){0}, 1)};
    sn_type whole = sn_type_make(SN_F32, 2, (int64_t[]){4, 3}), part = sn_type_make(SN_F32, 2, (int64_t[]){2, 3});
    bench t;
    bench_begin(&t);
    sn_value *operands[] = {arg(&t, SN_I64, 0, NULL, (int64_t[]){5}), arg(&t, SN_I64, 0, NULL, (int64_t[]){1}),
                            arg(&t, SN_I64, 0, NULL, (int64_t[]){2})};
    sn_func_add_result(t.b.func, build(&t, SN_OP_RANDOM_UNIFORM, 2, operands, 2, attrs, &whole, 0), "");
    sn_tensor out[2];
    assert_null(run(&t, build(&t, SN_OP_RANDOM_UNIFORM, 3, operands, 3, attrs, &part, 0), out));
    assert_memory_equal((float *)out[0].data + 6, out[1].data, 6 * sizeof(float));
    sn_tensor_free(&out[0]), sn_tensor_free(&out[1]);
    sn_module_free(t.module);
}

// An assignment is seen by the next run alone.
static void test_assign(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_global *w = sn_module_add_global(t.module, "w", sn_type_scalar(SN_F32), SN_ROLE_PARAMETER,
                                        (sn_source){.kind = SN_SOURCE_FILL, .fill = 2});
    sn_value *doubled = sn_build_binary(&t.b, SN_OP_ADD, w->value, w->value);
    sn_build(&t.b, SN_OP_ASSIGN, 2, (sn_value *[]){w->value, doubled}, 0, NULL, NULL);
    sn_func_add_result(t.b.func, sn_build_unary(&t.b, SN_OP_NEG, w->value), "y");
    sn_interp *interp = sn_interp_new(t.module);
    for (int i = 1; i <= 3; i++) {
        sn_tensor out;
        assert_null(sn_interp_run(interp, t.b.func, NULL, &out));
        assert_true(*(float *)out.data == -(float)(1 << i));
        sn_tensor_free(&out);
    }
    const char *problem;
    assert_true(*(float *)sn_interp_global(interp, w, &problem)->data == 16);
    sn_interp_free(interp);
    sn_module_free(t.module);
}

// Four ranks on a 2 x 2 mesh: rows over dp, columns over tp; a partial sum over dp is reduced.
static void test_mesh(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    t.module->form = SN_FORM_DIST;
    t.module->mesh = (sn_mesh){.n_axes = 2, .name = {"dp", "tp"}, .size = {2, 2}};
    sn_value *x = arg(&t, SN_F32, 2, (int64_t[]){4, 2}, (float[]){1, 2, 3, 4, 5, 6, 7, 8});
    x->layout = (sn_layout){.dim = {1, 2}};
    sn_value *sum = sn_build_reduce(&t.b, SN_OP_REDUCE_SUM, x, 1, (int64_t[]){0}, false);
    sum->layout = (sn_layout){.dim = {2}, .partial = 1};
    sn_attr attrs[] = {sn_attr_string("axes", "dp"), sn_attr_string("axes", "tp"), sn_attr_int("dim", 0)};
    sn_value *reduced = build(&t, SN_OP_ALL_REDUCE, 1, &sum, 1, attrs, NULL, 0);
    reduced->layout = (sn_layout){.dim = {2}};
    sn_value *gathered = build(&t, SN_OP_ALL_GATHER, 1, &reduced, 2, attrs + 1, NULL, 0);
    sn_func_add_result(t.b.func, x, "x");
    sn_func_add_result(t.b.func, reduced, "y");
    sn_tensor out[3];
    assert_null(run(&t, gathered, out));
    assert_memory_equal(out[0].data, ((float[]){1, 2, 3, 4, 5, 6, 7, 8}), 8 * sizeof(float));
    assert_memory_equal(out[1].data, ((float[]){16, 20}), 2 * sizeof(float));
    assert_memory_equal(out[2].data, ((float[]){16, 20}), 2 * sizeof(float));
    for (int i = 0; i < 3; i++) sn_tensor_free(&out[i]);
    sn_module_free(t.module);
}

// A value that claims to be whole while ranks hold different sums is found out.
static void test_mesh_finds_disagreement(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    t.module->form = SN_FORM_DIST;
    t.module->mesh = (sn_mesh){.n_axes = 1, .name = {"dp"}, .size = {2}};
    sn_value *x = arg(&t, SN_F32, 1, (int64_t[]){2}, (float[]){1, 2});
    x->layout = (sn_layout){.dim = {1}};
    sn_tensor out;
    const char *problem = run(&t, sn_build_reduce(&t.b, SN_OP_REDUCE_SUM, x, 1, (int64_t[]){0}, false), &out);
    assert_non_null(problem);
    assert_non_null(strstr(problem, "disagree"));
    sn_module_free(t.module);
}

// A kernel's body is a function like any other.
static void test_kernel_body(void **state) {
    (void)state;
    bench t;
    bench_begin(&t);
    sn_func *body = sn_module_add_func(t.module, "k0");
    body->is_body = true;
    sn_type type = sn_type_make(SN_F32, 1, (int64_t[]){2});
    sn_builder inside = {.func = body};
    sn_func_add_result(body, sn_build_unary(&inside, SN_OP_NEG, sn_func_add_arg(body, "x", type)), "y");
    sn_value *x = arg(&t, SN_F32, 1, (int64_t[]){2}, (float[]){1, -2});
    sn_attr attr = sn_attr_func("body", body);
    sn_op *kernel = sn_op_new(t.b.func, NULL, SN_OP_KERNEL, 1, &x, 1, &attr, 1, &type);
    CHECK(&t, kernel->results[0], -1, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_integers_wrap),
        cmocka_unit_test(test_nan_propagates),
        cmocka_unit_test(test_casts_saturate),
        cmocka_unit_test(test_halves_round_once),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_scatter_adds),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_conv_adjoints),
        cmocka_unit_test(test_conv_by_hand),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_softmax_of_masked_rows),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_attention_gradients),
        cmocka_unit_test(test_adam_first_step),
        cmocka_unit_test(test_random_parts_agree),
        cmocka_unit_test(test_assign),
        cmocka_unit_test(test_mesh),
        cmocka_unit_test(test_mesh_finds_disagreement),
        cmocka_unit_test(test_kernel_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
