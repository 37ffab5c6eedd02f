// Factors of single ops, as text.
#include "ir/build.h"
#include "ir/factors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct fixture {
    sn_module *module;
    sn_builder b;
} fixture;

static fixture start(void) {
    sn_module *module = sn_module_new("test");
    return (fixture){module, {.func = sn_module_add_func(module, "main")}};
}

static sn_value *arg(fixture *f, sn_dtype dtype, int rank, const int64_t *dims) {
    return sn_func_add_arg(f->b.func, "x", sn_type_make(dtype, rank, dims));
}
#define ARG(f, dtype, ...)                                                                                             \
    arg(f, dtype, (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

static void expect(fixture *f, const sn_value *value, const char *wanted) {
    sn_factors factors;
    sn_arena arena = {0};
    sn_str text = {0};
    sn_factors_of(value->def, &arena, &factors);
    sn_factors_print(&text, value->def, &factors);
    assert_string_equal(sn_str_text(&text), wanted);
    sn_str_free(&text);
    sn_arena_free(&arena);
    sn_module_free(f->module);
}

static void test_matmul(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y = sn_build_matmul(&f.b, ARG(&f, SN_F32, 5, 2, 3), ARG(&f, SN_F32, 3, 4), false, false);
    expect(&f, y, "matmul (a b d), (d c) -> (a b c)  d: reduce(sum)");
}

static void test_matmul_transposed(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y = sn_build_matmul(&f.b, ARG(&f, SN_F32, 3, 2), ARG(&f, SN_F32, 4, 3), true, true);
    expect(&f, y, "matmul (c a), (b c) -> (a b)  c: reduce(sum)");
}

static void test_broadcast_has_no_factor(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y = sn_build_binary(&f.b, SN_OP_ADD, ARG(&f, SN_F32, 2, 1, 3), ARG(&f, SN_F32, 4, 1));
    expect(&f, y, "add (a 1 c), (b 1) -> (a b c)");
}

static void test_reshape_splits(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y = sn_build_reshape(&f.b, ARG(&f, SN_F32, 2, 3, 20), 4, (int64_t[]){2, 3, 4, 5});
    expect(&f, y, "reshape (a b (c d)) -> (a b c d)");
}

static void test_reshape_merges(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y = sn_build_reshape(&f.b, ARG(&f, SN_F32, 2, 1, 3, 20), 2, (int64_t[]){6, 20});
    expect(&f, y, "reshape (a 1 b c) -> ((a b) c)");
}

static void test_reshape_refines(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y = sn_build_reshape(&f.b, ARG(&f, SN_F32, 4, 6), 2, (int64_t[]){2, 12});
    expect(&f, y, "reshape ((a b) c) -> (a (b c))");
}

static void test_reshape_without_common_factor(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y = sn_build_reshape(&f.b, ARG(&f, SN_F32, 2, 3), 2, (int64_t[]){3, 2});
    expect(&f, y, "reshape (a b) -> (c d)  a: whole  b: whole  c: whole  d: whole");
}

static void test_gather(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y = sn_build_gather(&f.b, ARG(&f, SN_F32, 50, 8), ARG(&f, SN_I64, 2, 3), 0);
    expect(&f, y, "gather (a d), (b c) -> (b c d)  a: reduce(sum)");
}

static void test_reduce(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y = sn_build_reduce(&f.b, SN_OP_REDUCE_MAX, ARG(&f, SN_F32, 2, 3), 1, (int64_t[]){1}, true);
    expect(&f, y, "reduce_max (a b) -> (a 1)  b: reduce(max)");
}

static void test_grouped_attention(void **state) {
    (void)state;
    fixture f = start();
    sn_value *operands[] = {ARG(&f, SN_F32, 2, 6, 5, 4), ARG(&f, SN_F32, 2, 3, 7, 4), ARG(&f, SN_F32, 2, 3, 7, 4)};
    sn_attr scale = sn_attr_float("scale", 0.5);
    sn_value *y = sn_build(&f.b, SN_OP_ATTENTION, 3, operands, 1, &scale, NULL)->results[0];
    expect(&f, y,
           "attention (a (b c) d e), (a b f g), (a b h i) -> (a (b c) d 1), (a (b c) d)"
           "  e: whole  f: whole  g: whole  h: whole  i: whole");
}

// The third part of a fused dim: the inside of the three blocks passes.
static void test_slice_of_blocks(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y =
        sn_build_slice(&f.b, ARG(&f, SN_F32, 5, 96), (int64_t[]){0, 64}, (int64_t[]){1, 1}, (int64_t[]){5, 32});
    expect(&f, y, "slice (a (c b)) -> (a b)  c: whole");
}

static void test_pad_of_blocks(void **state) {
    (void)state;
    fixture f = start();
    sn_value *y = sn_build_pad(&f.b, ARG(&f, SN_F32, 5, 32), (int64_t[]){0, 32}, (int64_t[]){1, 32}, 0);
    expect(&f, y, "pad (c a) -> (1 (b a))  b: whole  c: whole");
}

static void test_concat_of_blocks(void **state) {
    (void)state;
    fixture f = start();
    sn_value *parts[] = {ARG(&f, SN_F32, 8, 3), ARG(&f, SN_F32, 4, 3)};
    sn_value *y = sn_build_concat(&f.b, 2, parts, 0);
    expect(&f, y, "concat ((b a) d), (a d) -> ((c a) d)  b: whole  c: whole");
}

// Every operator's rule can be asked for; a rule that is missing aborts.
static void test_every_operator_has_a_rule(void **state) {
    (void)state;
    for (int kind = 0; kind < SN_OP_COUNT; kind++) {
        sn_module *module = sn_module_new("test");
        sn_func *func = sn_module_add_func(module, "main");
        const sn_op_info *info = sn_op_info_of(kind);
        bool simple = sn_op_has(kind, SN_TRAIT_POINTWISE) && info->min_operands == info->max_operands;
        if (simple) {
            sn_value *x = sn_func_add_arg(func, "x", sn_type_make(SN_F32, 1, (int64_t[]){4}));
            sn_value *operands[] = {x, x, x};
            sn_op *op = sn_op_new(func, NULL, kind, info->min_operands, operands, 0, NULL, 1, &x->type);
            sn_factors factors;
            sn_factors_of(op, &module->arena, &factors);
            assert_int_equal(factors.n, 1);
        }
        sn_module_free(module);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_matmul_transposed),
        cmocka_unit_test(test_broadcast_has_no_factor),
        cmocka_unit_test(test_reshape_splits),
        cmocka_unit_test(test_reshape_merges),
        cmocka_unit_test(test_reshape_refines),
        cmocka_unit_test(test_reshape_without_common_factor),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_grouped_attention),
        cmocka_unit_test(test_slice_of_blocks),
        cmocka_unit_test(test_pad_of_blocks),
        cmocka_unit_test(test_concat_of_blocks),
        cmocka_unit_test(test_every_operator_has_a_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
