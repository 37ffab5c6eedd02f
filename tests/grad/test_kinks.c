// What gradients are where functions have none, as PyTorch has it; and where differentiation has nothing to give.
#include "ir/build.h"
#include "ir/interp.h"
#include "passes/autodiff/differentiate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef sn_value *build_case(sn_builder *b, sn_value *x);

static sn_value *numbers(sn_builder *b, sn_type type, const double *data) {
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = data};
    return sn_module_add_global(b->func->module, "numbers", type, SN_ROLE_CONSTANT, source)->value;
}

// The gradient of `y`'s sum with respect to x at `at`, n elements each.
static void expect_gradient(build_case *build, int64_t n, const double *at, const double *wanted) {
    sn_module *module = sn_module_new("kink");
    sn_builder b = {.func = sn_module_add_func(module, "f")};
    sn_value *x = sn_func_add_arg(b.func, "x", sn_type_make(SN_F64, 1, &n)), *gradient, *y = build(&b, x);
    int64_t axes[] = {0};
    sn_value *loss = sn_build_reduce(&b, SN_OP_REDUCE_SUM, y, y->type.rank, axes, false);
    sn_diags diags = {0};
    assert_true(sn_differentiate(&b, loss, 1, &x, &gradient, &diags));
    assert_non_null(gradient);
    sn_func_add_result(b.func, gradient, "");
    sn_interp *interp = sn_interp_new(module);
    sn_tensor args = {x->type, (void *)at}, result;
    const char *problem = sn_interp_run(interp, b.func, &args, &result);
    if (problem) fail_msg("%s", problem);
    for (int64_t i = 0; i < n; i++)
        if (((double *)result.data)[i] != wanted[i])
            fail_msg("element %d: %g instead of %g", (int)i, ((double *)result.data)[i], wanted[i]);
    sn_tensor_free(&result);
    sn_interp_free(interp);
    sn_module_free(module);
}

static sn_value *build_relu(sn_builder *b, sn_value *x) {
    return sn_build_unary(b, SN_OP_RELU, x);
}

static sn_value *build_abs(sn_builder *b, sn_value *x) {
    return sn_build_unary(b, SN_OP_ABS, x);
}

static sn_value *build_clamp(sn_builder *b, sn_value *x) {
    sn_value *above = sn_build_binary_number(b, SN_OP_MAX, x, -1);
    return sn_build_binary_number(b, SN_OP_MIN, above, 1);
}

static sn_value *build_maximum(sn_builder *b, sn_value *x) {
    static const double other[] = {1, 1, 1, 1};
    return sn_build_binary(b, SN_OP_MAX, x, numbers(b, x->type, other));
}

static sn_value *build_amax(sn_builder *b, sn_value *x) {
    return sn_build_reduce(b, SN_OP_REDUCE_MAX, x, 1, (int64_t[]){0}, false);
}

static sn_value *build_square_root(sn_builder *b, sn_value *x) {
    return sn_build_binary_number(b, SN_OP_POW, x, 2);
}

static sn_value *build_power(sn_builder *b, sn_value *x) { // 0^x
    static const double zero[] = {0, 0, 2, 1};
    return sn_build_binary(b, SN_OP_POW, numbers(b, x->type, zero), x);
}

static void test_kinks(void **state) {
    (void)state;
    expect_gradient(build_relu, 4, (double[]){-1, 0, -0.0, 2}, (double[]){0, 0, 0, 1});
    expect_gradient(build_abs, 4, (double[]){-1, 0, -0.0, 2}, (double[]){-1, 0, 0, 1});
    expect_gradient(build_clamp, 4, (double[]){-1, 1, -2, 0.5}, (double[]){1, 1, 0, 1});
    expect_gradient(build_maximum, 4, (double[]){1, 0, 2, 1}, (double[]){0.5, 0, 1, 0.5});
    expect_gradient(build_amax, 4, (double[]){3, 1, 3, 2}, (double[]){0.5, 0, 0.5, 0});
    expect_gradient(build_square_root, 4, (double[]){0, -1, 2, 3}, (double[]){0, -2, 4, 6});
    expect_gradient(build_power, 4, (double[]){0, 2, 0, 3}, (double[]){0, 0, log(2), 0});
}

typedef struct small {
    sn_module *module;
    sn_builder b;
    sn_value *x, *w;
} small;

static small start(void) {
    small s = {.module = sn_module_new("small")};
    s.b.func = sn_module_add_func(s.module, "f");
    s.x = sn_func_add_arg(s.b.func, "x", sn_type_make(SN_F32, 1, (int64_t[]){3}));
    s.w = sn_func_add_arg(s.b.func, "w", sn_type_make(SN_F32, 1, (int64_t[]){3}));
    return s;
}

static sn_value *sum(sn_builder *b, sn_value *x) {
    return sn_build_reduce(b, SN_OP_REDUCE_SUM, x, 1, (int64_t[]){0}, false);
}

static void test_no_path(void **state) {
    (void)state;
    small s = start();
    sn_value *rounded = sn_build_unary(&s.b, SN_OP_ROUND, s.w), *gradients[2];
    sn_value *loss = sum(&s.b, sn_build_binary(&s.b, SN_OP_MUL, s.x, rounded));
    sn_diags diags = {0};
    assert_true(sn_differentiate(&s.b, loss, 2, (sn_value *[]){s.x, s.w}, gradients, &diags));
    assert_non_null(gradients[0]);
    assert_null(gradients[1]);
    assert_int_equal(diags.count, 0);
    sn_module_free(s.module);
}

// No op is made for what no wanted value needs.
static void test_only_what_is_wanted(void **state) {
    (void)state;
    small s = start();
    sn_value *product = sn_build_binary(&s.b, SN_OP_MUL, sn_build_unary(&s.b, SN_OP_EXP, s.x), s.w), *gradient;
    sn_value *loss = sum(&s.b, product);
    size_t before = s.b.func->n_ops;
    sn_diags diags = {0};
    assert_true(sn_differentiate(&s.b, loss, 1, &s.w, &gradient, &diags));
    // the seed, its reshape and broadcast, and the product with e^x
    assert_int_equal(s.b.func->n_ops - before, 4);
    const sn_op *op = s.b.func->last;
    for (int i = 0; i < 4; i++, op = op->prev) assert_int_equal(op->phase, SN_PHASE_BACKWARD);
    assert_int_equal(op->phase, SN_PHASE_FORWARD);
    sn_module_free(s.module);
}

static void test_missing_gradient(void **state) {
    (void)state;
    small s = start();
    s.b.origin = sn_origin_new(s.module, "/block/Reduce", NULL);
    sn_attr axes = sn_attr_string("axes", "dp");
    sn_value *reduced = sn_build(&s.b, SN_OP_ALL_REDUCE, 1, &s.w, 1, &axes, NULL)->results[0], *gradient;
    sn_value *loss = sum(&s.b, reduced);
    sn_diags diags = {0};
    assert_false(sn_differentiate(&s.b, loss, 1, &s.w, &gradient, &diags));
    assert_int_equal(diags.errors, 1);
    assert_string_equal(diags.items[0].code, "E0310");
    assert_string_equal(diags.items[0].subject, "/block/Reduce");
    assert_non_null(strstr(diags.items[0].message, "all_reduce"));
    assert_non_null(diags.items[0].help);
    // not on a path to anything wanted: no one's business
    assert_true(sn_differentiate(&s.b, loss, 1, &s.x, &gradient, &diags));
    assert_null(gradient);
    sn_diags_free(&diags);
    sn_module_free(s.module);
}

static int count_ops(const sn_func *func, sn_op_kind kind) {
    int n = 0;
    SN_FOR_OPS(op, func) {
        n += op->kind == kind;
    }
    return n;
}

// q, k and v cut out of one tensor: their gradients are joined, not padded and added.
static void test_split_joins(void **state) {
    (void)state;
    sn_module *module = sn_module_new("split");
    sn_builder b = {.func = sn_module_add_func(module, "f")};
    sn_value *x = sn_func_add_arg(b.func, "x", sn_type_make(SN_F32, 2, (int64_t[]){4, 6})), *gradient, *parts[3];
    static const int64_t ones[] = {1, 1}, sizes[] = {4, 2};
    for (int64_t i = 0; i < 3; i++) parts[i] = sn_build_slice(&b, x, (int64_t[]){0, 2 * i}, ones, sizes);
    sn_value *product = sn_build_binary(&b, SN_OP_MUL, sn_build_binary(&b, SN_OP_MUL, parts[2], parts[0]), parts[1]);
    sn_value *loss = sn_build_reduce(&b, SN_OP_REDUCE_SUM, product, 2, (int64_t[]){0, 1}, false);
    sn_diags diags = {0};
    assert_true(sn_differentiate(&b, loss, 1, &x, &gradient, &diags));
    assert_int_equal(count_ops(b.func, SN_OP_CONCAT), 1);
    assert_int_equal(count_ops(b.func, SN_OP_PAD) + count_ops(b.func, SN_OP_ADD), 0);
    sn_module_free(module);
}

// A batch of rows through one matrix: its gradient is one 2-D product without transposes or sums over the batch.
static void test_weight_gradients_fold_the_batch(void **state) {
    (void)state;
    for (int tb = 0; tb < 2; tb++) {
        sn_module *module = sn_module_new("linear");
        sn_builder b = {.func = sn_module_add_func(module, "f")};
        sn_value *x = sn_func_add_arg(b.func, "x", sn_type_make(SN_F32, 3, (int64_t[]){2, 3, 4}));
        sn_value *w = sn_func_add_arg(b.func, "w", sn_type_make(SN_F32, 2, tb ? (int64_t[]){5, 4} : (int64_t[]){4, 5}));
        sn_value *y = sn_build_matmul(&b, x, w, false, tb != 0), *gradients[2];
        sn_value *loss =
            sn_build_reduce(&b, SN_OP_REDUCE_SUM, sn_build_binary(&b, SN_OP_MUL, y, y), 3, (int64_t[]){0, 1, 2}, false);
        sn_diags diags = {0};
        assert_true(sn_differentiate(&b, loss, 2, (sn_value *[]){x, w}, gradients, &diags));
        assert_int_equal(gradients[1]->def->kind, SN_OP_MATMUL);
        assert_int_equal(gradients[1]->def->operands[0]->type.rank, 2);
        assert_int_equal(count_ops(b.func, SN_OP_TRANSPOSE), 0);
        assert_int_equal(count_ops(b.func, SN_OP_REDUCE_SUM), 1);
        sn_module_free(module);
    }
}

// Gradients have the type of the values, whatever precision the rule computes in.
static void test_gradients_keep_types(void **state) {
    (void)state;
    sn_module *module = sn_module_new("half");
    sn_builder b = {.func = sn_module_add_func(module, "f")};
    sn_value *x = sn_func_add_arg(b.func, "x", sn_type_make(SN_BF16, 2, (int64_t[]){2, 4}));
    sn_value *scale = sn_func_add_arg(b.func, "s", sn_type_make(SN_BF16, 1, (int64_t[]){4})), *gradients[2];
    sn_attr axis = sn_attr_int("axis", 1);
    sn_value *y = sn_build(&b, SN_OP_RMS_NORM, 2, (sn_value *[]){x, scale}, 1, &axis, NULL)->results[0];
    int64_t two = 2;
    sn_value *labels = sn_func_add_arg(b.func, "labels", sn_type_make(SN_I64, 1, &two));
    sn_value *losses = sn_build(&b, SN_OP_CROSS_ENTROPY, 2, (sn_value *[]){y, labels}, 1, &axis, NULL)->results[0];
    sn_value *loss = sn_build_reduce(&b, SN_OP_REDUCE_SUM, losses, 1, (int64_t[]){0}, false);
    assert_int_equal(loss->type.dtype, SN_F32);
    sn_diags diags = {0};
    assert_true(sn_differentiate(&b, loss, 2, (sn_value *[]){x, scale}, gradients, &diags));
    assert_true(sn_type_equal(gradients[0]->type, x->type));
    assert_true(sn_type_equal(gradients[1]->type, scale->type));
    sn_module_free(module);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinks),
        cmocka_unit_test(test_no_path),
        cmocka_unit_test(test_only_what_is_wanted),
        cmocka_unit_test(test_missing_gradient),
        cmocka_unit_test(test_split_joins),
        cmocka_unit_test(test_weight_gradients_fold_the_batch),
        cmocka_unit_test(test_gradients_keep_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
