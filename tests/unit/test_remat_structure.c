// Blocks of a model of repeated layers: one per layer, cut where one value crosses.
#include "ir/build.h"
#include "passes/memory/remat_structure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { WIDE = 8, ROWS = 4 };

static sn_value *weight(sn_builder *b, int64_t rows, int64_t columns) {
    sn_type type = sn_type_make(SN_F32, 2, (int64_t[]){rows, columns});
    return sn_module_add_global(b->func->module, "w", type, SN_ROLE_PARAMETER, (sn_source){0})->value;
}

// x + tanh(x w1) w2, with a wide middle: three values cross a cut inside, one crosses between layers.
static sn_value *layer(sn_builder *b, sn_value *x) {
    sn_value *h = sn_build_matmul(b, x, weight(b, WIDE, 4 * WIDE), false, false);
    h = sn_build_matmul(b, sn_build_unary(b, SN_OP_TANH, h), weight(b, 4 * WIDE, WIDE), false, false);
    return sn_build_binary(b, SN_OP_ADD, x, h);
}

static int blocks_of(int layers, int *block, sn_func **out) {
    sn_module *module = sn_module_new("test");
    sn_builder b = {.func = sn_module_add_func(module, "micro")};
    sn_value *x = sn_func_add_arg(b.func, "x", sn_type_make(SN_F32, 2, (int64_t[]){ROWS, WIDE}));
    x = sn_build_unary(&b, SN_OP_EXP, x);
    for (int i = 0; i < layers; i++) x = layer(&b, x);
    x = sn_build_matmul(&b, x, weight(&b, WIDE, 3), false, false);
    sn_func_add_result(b.func, x, "y");
    *out = b.func;
    return sn_remat_find_blocks(b.func, NULL, block);
}

static void test_layers(void **state) {
    (void)state;
    int block[64];
    sn_func *func;
    int n = blocks_of(5, block, &func);
    assert_int_equal(n, 7); // five layers, what is before them and the head
    const sn_op *before = NULL;
    SN_FOR_OPS(op, func) {
        // a block ends where a layer does: behind its sum
        bool ends = before && block[op->mark] != block[before->mark];
        if (ends && before != func->first) assert_int_equal(before->kind, SN_OP_ADD);
        before = op;
    }
    assert_int_equal(block[func->first->mark], 0);
    assert_int_equal(block[func->last->mark], n - 1);
    sn_module_free(func->module);
}

static void test_nothing_repeats(void **state) {
    (void)state;
    int block[64];
    sn_func *func;
    assert_int_equal(blocks_of(1, block, &func), 1);
    SN_FOR_OPS(op, func) assert_int_equal(block[op->mark], 0);
    sn_module_free(func->module);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers), cmocka_unit_test(test_nothing_repeats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
