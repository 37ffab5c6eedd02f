// Layouts: digits of axes, what a rank holds, their text; and the moves between them.
#include "ir/layout.h"
#include "passes/partition/relayout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const sn_mesh mesh = {.n_axes = 3, .name = {"dp", "cp", "tp"}, .size = {2, 3, 4}};
enum { DP, CP, TP };

static void expect_text(sn_layout layout, int rank, const char *wanted) {
    sn_str text = {0};
    sn_layout_print(&text, &mesh, layout, rank);
    assert_string_equal(sn_str_text(&text), wanted);
    sn_str_free(&text);
}

static void test_nested_blocks_need_no_digits(void **state) {
    (void)state;
    sn_layout a = {.dim = {1 << DP | 1 << TP}}, b = {0};
    sn_layout_add(&mesh, &b, 0, TP, 2); // inside of the two blocks of dp
    sn_layout_add(&mesh, &b, 0, DP, 1);
    assert_true(sn_layout_equal(a, b));
    expect_text(b, 2, "{dp.tp,-}");
}

static void test_digits_are_kept(void **state) {
    (void)state;
    sn_layout a = {.dim = {1 << DP | 1 << TP}};
    sn_layout_remove(&mesh, &a, 1 << DP); // tp still cuts each half
    expect_text(a, 1, "{tp:2}");
    sn_layout_add(&mesh, &a, 0, DP, 8); // and dp goes inside
    expect_text(a, 1, "{dp.tp:8:2}");
    sn_layout_remove(&mesh, &a, 1 << DP | 1 << TP);
    assert_true(sn_layout_is_replicated(a));
}

static void test_which_digits_divide(void **state) {
    (void)state;
    sn_layout a = {0};
    sn_layout_add(&mesh, &a, 0, TP, 3);
    assert_true(sn_layout_divides(&mesh, a, 0, 24));
    assert_false(sn_layout_divides(&mesh, a, 0, 18)); // blocks of 6 in 4 parts
    sn_layout_add(&mesh, &a, 0, DP, 6);               // in the middle of tp's digit
    assert_false(sn_layout_divides(&mesh, a, 0, 24));
}

// Every element of the whole is held by one rank (of those that differ on the axes that cut), at increasing places.
static void check_cover(sn_layout layout, int64_t size) {
    int64_t count[96] = {0}, parts = sn_mesh_size(&mesh, layout.dim[0]), at[SN_MAX_AXES];
    assert_true(sn_layout_divides(&mesh, layout, 0, size));
    for (at[DP] = 0; at[DP] < 2; at[DP]++)
        for (at[CP] = 0; at[CP] < 3; at[CP]++)
            for (at[TP] = 0; at[TP] < 4; at[TP]++) {
                int64_t last = -1;
                for (int64_t i = 0; i < size / parts; i++) {
                    int64_t whole = sn_layout_index(&mesh, layout, 0, size, at, i);
                    assert_in_range(whole, 0, size - 1);
                    assert_true(whole > last);
                    count[last = whole]++;
                }
            }
    for (int64_t i = 0; i < size; i++) assert_int_equal(count[i], 24 / parts);
}

static void test_parts_cover_the_whole(void **state) {
    (void)state;
    for (int64_t dp = 1; dp <= 48; dp++)
        for (int64_t tp = 0; tp <= 48; tp++) {
            sn_layout layout = {0};
            sn_layout_add(&mesh, &layout, 0, DP, dp);
            if (tp) sn_layout_add(&mesh, &layout, 0, TP, tp);
            if (sn_layout_divides(&mesh, layout, 0, 96)) check_cover(layout, 96);
        }
}

static void test_pieces(void **state) {
    (void)state;
    sn_piece pieces[SN_MAX_AXES + 1];
    sn_layout fused = {0}, rows = {0};
    sn_layout_add(&mesh, &fused, 0, TP, 3);
    assert_int_equal(sn_layout_pieces(&mesh, fused, 0, 96, pieces), 2); // [3, 32], the second cut
    assert_int_equal(pieces[0].size, 3);
    assert_int_equal(pieces[0].axes, 0);
    assert_int_equal(pieces[1].local, 8);
    assert_int_equal(pieces[1].axes, 1 << TP);
    sn_layout_add(&mesh, &rows, 0, DP, 1);
    sn_layout_add(&mesh, &rows, 0, CP, 8);
    assert_int_equal(sn_layout_pieces(&mesh, rows, 0, 96, pieces), 2); // [batch 8 over dp, sequence 12 over cp]
    assert_int_equal(pieces[0].local, 4);
    assert_int_equal(pieces[1].local, 4);
    assert_int_equal(pieces[0].after, 12);
}

static const sn_type matrix = {.dtype = SN_F32, .rank = 2, .dim = {48, 96}};

static void expect_moves(sn_layout from, sn_layout to, int n, const sn_op_kind *kinds, double bytes) {
    sn_move moves[SN_MAX_MOVES];
    assert_int_equal(sn_relayout(&mesh, matrix, from, to, moves), n);
    for (int i = 0; i < n; i++) assert_int_equal(moves[i].kind, kinds[i]);
    if (n) assert_true(sn_layout_equal(moves[n - 1].layout, to));
    assert_true(sn_relayout_bytes(&mesh, matrix, from, to) == bytes);
}

static void test_moves(void **state) {
    (void)state;
    const double whole = 48 * 96 * 4;
    sn_layout none = {0}, rows = {.dim = {1 << TP}}, columns = {.dim = {0, 1 << TP}}, sum = {.partial = 1 << TP};
    sn_layout digit = {0}, both = {.dim = {1 << DP, 1 << TP}}, sum_rows = {.dim = {1 << DP}, .partial = 1 << TP};
    sn_layout_add(&mesh, &digit, 0, TP, 3);
    expect_moves(rows, rows, 0, NULL, 0);
    expect_moves(none, rows, 1, (sn_op_kind[]){SN_OP_SHARD}, 0);
    expect_moves(rows, none, 1, (sn_op_kind[]){SN_OP_ALL_GATHER}, whole * 3 / 4);
    expect_moves(sum, none, 1, (sn_op_kind[]){SN_OP_ALL_REDUCE}, 2 * whole * 3 / 4);
    expect_moves(sum, rows, 1, (sn_op_kind[]){SN_OP_REDUCE_SCATTER}, whole * 3 / 4);
    expect_moves(rows, columns, 1, (sn_op_kind[]){SN_OP_ALL_TO_ALL}, whole / 4 * 3 / 4);
    expect_moves(rows, digit, 2, (sn_op_kind[]){SN_OP_ALL_GATHER, SN_OP_SHARD}, whole * 3 / 4);
    // what is cut already makes the rest small: first the cut, then the sum; first the sum, then the join
    expect_moves(sum, both, 2, (sn_op_kind[]){SN_OP_SHARD, SN_OP_REDUCE_SCATTER}, whole / 2 * 3 / 4);
    expect_moves(sum_rows, columns, 2, (sn_op_kind[]){SN_OP_REDUCE_SCATTER, SN_OP_ALL_GATHER},
                 whole / 2 * 3 / 4 + whole / 4 / 2);
}

// A digit that does not fit beside one that is to go comes last.
static void test_moves_make_room(void **state) {
    (void)state;
    sn_layout from = {.dim = {1 << DP}}, to = {0};
    sn_layout_add(&mesh, &to, 0, TP, 1);
    sn_layout_add(&mesh, &to, 0, CP, 4);
    sn_layout whole = {0};
    sn_move moves[SN_MAX_MOVES];
    int n = sn_relayout(&mesh, matrix, from, to, moves);
    assert_true(n >= 3);
    for (int i = 0; i < n; i++) assert_true(sn_layout_divides(&mesh, moves[i].layout, 0, 48));
    assert_true(sn_layout_equal(moves[n - 1].layout, to));
    assert_int_equal(sn_relayout(&mesh, matrix, to, whole, moves), 1); // both axes at once
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nested_blocks_need_no_digits),
        cmocka_unit_test(test_digits_are_kept),
        cmocka_unit_test(test_which_digits_divide),
        cmocka_unit_test(test_parts_cover_the_whole),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_moves_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
