// What the builder simplifies, what the verifier refuses, and how kernels print.
#include "backend/kernel/kir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define INDEX(value) sn_kir_index(k, value)

typedef sn_kir_node *expr;

static sn_kir *fresh(int64_t grid) {
    return sn_kir_new("test", grid);
}

static expr lanes(sn_kir *k, int64_t n) {
    return sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1);
}

static void constants_fold(void **state) {
    (void)state;
    sn_kir *k = fresh(1);
    expr sum = sn_kir_add(k, INDEX(40), INDEX(2));
    assert_true(sum->op == SN_KIR_CONST && sum->i64 == 42);
    assert_true(sum == INDEX(42));
    expr wrapped = sn_kir_add(k, sn_kir_int(k, SN_I8, 127), sn_kir_int(k, SN_I8, 1));
    assert_int_equal(wrapped->i64, -128);
    assert_int_equal(sn_kir_divi(k, INDEX(-7), 2)->i64, -4);
    assert_int_equal(sn_kir_rem(k, INDEX(-7), INDEX(2))->i64, -1);
    assert_int_equal(sn_kir_div(k, INDEX(5), INDEX(0))->i64, 0);
    expr third = sn_kir_div(k, sn_kir_float(k, SN_F32, 1), sn_kir_float(k, SN_F32, 3));
    assert_true(third->f64 == (double)(1.0f / 3.0f));
    expr byte = sn_kir_cast(k, sn_kir_float(k, SN_F32, 300), SN_U8);
    assert_int_equal(byte->i64, 255);
    sn_kir_free(k);
}

static void reshapes_cancel(void **state) {
    (void)state;
    sn_kir *k = fresh(64);
    expr i = lanes(k, 12 * 64), block = sn_kir_block(k);
    expr row = sn_kir_divi(k, i, 64), column = sn_kir_modi(k, i, 64);
    assert_true(sn_kir_add(k, sn_kir_muli(k, row, 64), column) == i);
    // (b, 12, 64) -> b * 768 + h * 64 + d and back
    expr flat = sn_kir_add(k, sn_kir_muli(k, block, 768), i);
    assert_true(sn_kir_divi(k, flat, 768) == block);
    assert_true(sn_kir_modi(k, flat, 768) == i);
    assert_true(sn_kir_modi(k, sn_kir_divi(k, flat, 64), 12) == row);
    assert_true(sn_kir_sub(k, flat, flat)->op == SN_KIR_CONST);
    assert_true(sn_kir_divi(k, sn_kir_divi(k, i, 4), 16) == row);
    assert_true(sn_kir_modi(k, column, 32) == sn_kir_modi(k, i, 32));
    sn_kir_end(k);
    sn_kir_free(k);
}

static void divisions_are_exact(void **state) { // against arithmetic, over all values of a few shapes
    (void)state;
    static const int64_t shapes[][3] = {{2, 3, 5}, {4, 6, 8}, {1, 7, 9}, {12, 64, 2}, {8, 8, 8}};
    for (size_t s = 0; s < 5; s++) {
        int64_t a = shapes[s][0], b = shapes[s][1], c = shapes[s][2], n = a * b * c;
        sn_kir *k = fresh(1);
        sn_kir_buffer *y = sn_kir_param(k, "y", SN_I64, n * 4, SN_KIR_WRITE);
        expr i = sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), INDEX(a), 1);
        expr j = sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), INDEX(b), 1);
        expr l = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(c), 1);
        expr flat = sn_kir_add(k, sn_kir_muli(k, sn_kir_add(k, sn_kir_muli(k, i, b), j), c), l);
        expr shifted = sn_kir_addi(k, flat, -3);
        expr values[] = {sn_kir_divi(k, flat, b), sn_kir_modi(k, flat, a * c), sn_kir_divi(k, shifted, 2 * c),
                         sn_kir_modi(k, shifted, 4)};
        for (int v = 0; v < 4; v++) sn_kir_store(k, y, sn_kir_add(k, sn_kir_muli(k, flat, 4), INDEX(v)), values[v]);
        sn_kir_end(k), sn_kir_end(k), sn_kir_end(k);
        assert_null(sn_kir_verify(k));
        int64_t out[12 * 64 * 2 * 4];
        sn_kir_evaluate(k, (void *[]){out}, 0, 1);
        for (int64_t f = 0; f < n; f++) {
            assert_int_equal(out[f * 4], f / b);
            assert_int_equal(out[f * 4 + 1], f % (a * c));
            assert_int_equal(out[f * 4 + 2], (f - 3 + 2 * c) / (2 * c) - 1);
            assert_int_equal(out[f * 4 + 3], (f + 1) % 4);
        }
        sn_kir_free(k);
    }
}

static void ranges_decide(void **state) {
    (void)state;
    sn_kir *k = fresh(10);
    expr block = sn_kir_block(k), i = lanes(k, 100);
    assert_true(sn_kir_lt(k, i, INDEX(100))->op == SN_KIR_CONST);
    assert_true(sn_kir_ge(k, sn_kir_add(k, block, i), INDEX(0))->i64 == 1);
    assert_true(sn_kir_lt(k, i, INDEX(99))->op == SN_KIR_LT);
    assert_true(sn_kir_mini(k, i, 100) == i);
    assert_true(sn_kir_clamp(k, i, 0, 99) == i);
    expr chunk = sn_kir_muli(k, block, 64);
    assert_int_equal(chunk->multiple, 64);
    assert_int_equal(sn_kir_mini(k, sn_kir_addi(k, chunk, 64), 96)->multiple, 32);
    sn_kir_end(k);
    sn_kir_free(k);
}

static void values_move_out_of_loops_but_not_of_branches(void **state) {
    (void)state;
    sn_kir *k = fresh(4);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_F32, 100, SN_KIR_WRITE);
    expr block = sn_kir_block(k), i = lanes(k, 25);
    expr base = sn_kir_muli(k, block, 25);
    assert_int_equal(base->depth, 0);
    sn_kir_if(k, sn_kir_lt(k, i, INDEX(5)));
    expr inside = sn_kir_muli(k, block, 17);
    assert_int_equal(inside->depth, 2);
    sn_kir_store(k, y, sn_kir_add(k, base, i), sn_kir_float(k, SN_F32, 0));
    sn_kir_end(k);
    expr outside = sn_kir_muli(k, block, 17); // the former is out of scope
    assert_true(outside != inside && outside->depth == 0);
    sn_kir_end(k);
    assert_null(sn_kir_verify(k));
    sn_kir_free(k);
}

static void only_loads_of_constant_memory_are_shared_and_move(void **state) {
    (void)state;
    sn_kir *k = fresh(1);
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_F32, 8, SN_KIR_READ),
                  *y = sn_kir_param(k, "y", SN_F32, 8, SN_KIR_UPDATE);
    expr i = lanes(k, 8);
    assert_true(sn_kir_load(k, x, i) == sn_kir_load(k, x, i));
    assert_true(sn_kir_load(k, y, i) != sn_kir_load(k, y, i));
    assert_int_equal(sn_kir_load(k, x, INDEX(7))->depth, 0); // out of the loop
    assert_int_equal(sn_kir_load(k, y, INDEX(7))->depth, 1);
    assert_int_equal(sn_kir_load(k, x, INDEX(8))->depth, 1); // where it may not be executed
    sn_kir_end(k);
    sn_kir_free(k);
}

static void expect_problem(sn_kir *k, const char *text) {
    const char *problem = sn_kir_verify(k);
    assert_non_null(problem);
    if (!strstr(problem, text)) fail_msg("'%s' says nothing of '%s'", problem, text);
    sn_kir_free(k);
}

static void indices_must_stay_inside(void **state) {
    (void)state;
    sn_kir *k = fresh(1);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_I64, 8, SN_KIR_WRITE);
    expr i = lanes(k, 9);
    sn_kir_store(k, y, i, i);
    sn_kir_end(k);
    expect_problem(k, "may leave y[8]");
    k = fresh(1);
    y = sn_kir_param(k, "y", SN_I64, 8, SN_KIR_WRITE);
    i = lanes(k, 9);
    sn_kir_if(k, sn_kir_lt(k, i, INDEX(8)));
    sn_kir_store(k, y, i, i);
    sn_kir_end(k);
    sn_kir_end(k);
    assert_null(sn_kir_verify(k));
    sn_kir_free(k);
}

static void lanes_must_not_nest(void **state) {
    (void)state;
    sn_kir *k = fresh(1);
    lanes(k, 4);
    lanes(k, 4);
    sn_kir_end(k);
    sn_kir_end(k);
    expect_problem(k, "a lanes loop inside a lanes loop");
    k = fresh(1);
    expr i = lanes(k, 4);
    sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), i, 1);
    sn_kir_end(k);
    sn_kir_end(k);
    expect_problem(k, "bounds differ between lanes");
}

static void lanes_must_not_meet(void **state) {
    (void)state;
    sn_kir *k = fresh(1);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_I64, 8, SN_KIR_WRITE);
    expr i = lanes(k, 4);
    sn_kir_store(k, y, INDEX(3), i);
    sn_kir_end(k);
    expect_problem(k, "all lanes store to one element");
}

static sn_kir *two_phases(bool barrier, bool again) {
    sn_kir *k = fresh(1);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_I64, 8, SN_KIR_UPDATE), *s = sn_kir_scratch(k, "s", SN_I64, 8);
    if (again) sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), INDEX(2), 1);
    expr i = lanes(k, 8);
    sn_kir_store(k, s, i, i);
    sn_kir_end(k);
    if (barrier) sn_kir_barrier(k);
    i = lanes(k, 8);
    sn_kir_store(k, y, i, sn_kir_load(k, s, sn_kir_sub(k, INDEX(7), i)));
    sn_kir_end(k);
    if (again) sn_kir_end(k);
    return k;
}

static void phases_need_barriers(void **state) {
    (void)state;
    expect_problem(two_phases(false, false), "no barrier after another loop's store");
    sn_kir *k = two_phases(true, false);
    assert_null(sn_kir_verify(k));
    sn_kir_free(k);
    expect_problem(two_phases(true, true), "no barrier after another loop's load"); // the next round's stores
    k = fresh(1);
    lanes(k, 4);
    sn_kir_barrier(k);
    sn_kir_end(k);
    expect_problem(k, "inside a lanes loop");
}

// One thread stores outside lanes loops: it sees its own stores, others do not.
static void one_thread_needs_no_barrier(void **state) {
    (void)state;
    for (int escapes = 0; escapes < 2; escapes++) {
        sn_kir *k = fresh(1);
        sn_kir_buffer *y = sn_kir_param(k, "y", SN_I64, 8, SN_KIR_UPDATE);
        sn_kir_buffer *z = sn_kir_param(k, "z", SN_I64, 8, SN_KIR_WRITE);
        sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), INDEX(4), 1);
        expr old = sn_kir_load(k, y, INDEX(0));
        sn_kir_store(k, y, INDEX(0), sn_kir_addi(k, old, 1));
        if (escapes) {
            expr i = lanes(k, 8);
            sn_kir_store(k, z, i, old);
            sn_kir_end(k);
        }
        sn_kir_end(k);
        if (escapes) {
            expect_problem(k, "no barrier after another loop's load");
        } else {
            assert_null(sn_kir_verify(k));
            sn_kir_free(k);
        }
    }
}

static void results_exist_after_their_loop(void **state) {
    (void)state;
    sn_kir *k = fresh(1);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_I64, 8, SN_KIR_WRITE);
    expr i = lanes(k, 8), sum = sn_kir_reduce(k, SN_KIR_ADD, i);
    sn_kir_store(k, y, i, sum);
    sn_kir_end(k);
    expect_problem(k, "before it is computed");
}

static void too_much_scratch(void **state) {
    (void)state;
    sn_kir *k = fresh(1);
    sn_kir_scratch(k, "s", SN_F64, SN_KIR_SCRATCH_MAX / 8 + 1);
    expect_problem(k, "scratch");
}

static void prints(void **state) {
    (void)state;
    sn_kir *k = sn_kir_new("rows", 4);
    sn_kir_set_origin(k, "/h.0/Sum\nf32[4,32]");
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_BF16, 128, SN_KIR_READ),
                  *y = sn_kir_param(k, "y", SN_F32, 4, SN_KIR_WRITE);
    expr row = sn_kir_muli(k, sn_kir_block(k), 32), c = sn_kir_named(lanes(k, 32), "c");
    expr sum = sn_kir_reduce(k, SN_KIR_ADD, sn_kir_exp(k, sn_kir_load(k, x, sn_kir_add(k, row, c))));
    sn_kir_end(k);
    sn_kir_store(k, y, sn_kir_block(k), sum);
    assert_null(sn_kir_verify(k));
    sn_str out = {0};
    sn_kir_print(k, &out);
    assert_string_equal(sn_str_text(&out), "// /h.0/Sum\n"
                                           "// f32[4,32]\n"
                                           "kernel rows(x: read bf16[128], y: write f32[4]) grid 4 threads 256 {\n"
                                           "  %2 = mul block, 32 : i64\n"
                                           "  for.lanes %c.5 in [0, 32) {\n"
                                           "    %6 = add %2, %c.5 : i64\n"
                                           "    %7 = load x[%6] : f32\n"
                                           "    %8 = exp %7 : f32\n"
                                           "    %9 = reduce add %8 : f32\n"
                                           "  }\n"
                                           "  store y[block], %9\n"
                                           "}\n");
    sn_str_free(&out);
    sn_kir_free(k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_fold),
        cmocka_unit_test(reshapes_cancel),
        cmocka_unit_test(divisions_are_exact),
        cmocka_unit_test(ranges_decide),
        cmocka_unit_test(values_move_out_of_loops_but_not_of_branches),
        cmocka_unit_test(only_loads_of_constant_memory_are_shared_and_move),
        cmocka_unit_test(indices_must_stay_inside),
        cmocka_unit_test(lanes_must_not_nest),
        cmocka_unit_test(lanes_must_not_meet),
        cmocka_unit_test(phases_need_barriers),
        cmocka_unit_test(one_thread_needs_no_barrier),
        cmocka_unit_test(results_exist_after_their_loop),
        cmocka_unit_test(too_much_scratch),
        cmocka_unit_test(prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
