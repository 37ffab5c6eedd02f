// Replays of schedules made by hand, with prices made by hand, against times found by hand.
#include "backend/simulate/replay.h"
#include "backend/simulate/simulate.h"
#include "backend/simulate/trace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// Two pipeline ranks of two data-parallel ranks each. For each of two micro-batches class 0 works and sends, class 1
// receives and works; then all work once, and reduce over dp and over pp.
enum { CLASSES = 2, PROGRAMS = 2, DP = 1, PP = 0 };

typedef struct fixture {
    sn_arena arena;
    sn_schedules schedules;
    sn_prices prices;
    sn_cluster cluster;
} fixture;

static const double work[CLASSES] = {2, 3}, message = 0.5, update = 1, over_dp = 0.25, over_pp = 0.125;

static sn_instr instr(sn_instr_kind kind, int64_t number) {
    sn_instr in = {.kind = kind, .origin = -1};
    if (sn_instr_is_collective(kind)) in.collective = (sn_do_collective){.dtype = SN_F32, .axes = 1ll << number};
    if (kind == SN_INSTR_SEND || kind == SN_INSTR_RECV) in.transfer = (sn_do_transfer){.dtype = SN_F32, .peer = number};
    return in;
}

static void add_program(fixture *f, sn_schedule *s, int c, const char *name, size_t n, const sn_instr *instrs,
                        const sn_price *prices) {
    size_t p = s->programs.count++;
    s->programs.items[p].name = name;
    s->programs.items[p].instrs.items = sn_arena_copy(&f->arena, instrs, n * sizeof *instrs);
    s->programs.items[p].instrs.count = n;
    f->prices.of[c][p] = sn_arena_copy(&f->arena, prices, n * sizeof *prices);
}

static void make_class(fixture *f, int c) {
    sn_schedule *s = &f->schedules.classes.items[c];
    *s = (sn_schedule){.ranks = 4, .micro_batches = 2, .pipeline_axis = PP};
    s->mesh.items = SN_NEW_N(&f->arena, sn_schedule_axis, 2), s->mesh.count = 2;
    s->mesh.items[PP] = (sn_schedule_axis){"pp", 2};
    s->mesh.items[DP] = (sn_schedule_axis){"dp", 2};
    s->programs.items = SN_NEW_N(&f->arena, sn_program, PROGRAMS);
    f->prices.of[c] = SN_NEW_N(&f->arena, sn_price *, PROGRAMS);
    sn_instr gemm = instr(SN_INSTR_GEMM, 0);
    sn_instr first[] = {gemm, instr(SN_INSTR_SEND, 1)}, second[] = {instr(SN_INSTR_RECV, 0), gemm};
    sn_price first_price[] = {{work[0], 0}, {0, message}}, second_price[] = {{0, 0}, {work[1], 0}};
    add_program(f, s, c, "forward", 2, c ? second : first, c ? second_price : first_price);
    sn_instr last[] = {gemm, instr(SN_INSTR_ALL_REDUCE, DP), instr(SN_INSTR_ALL_REDUCE, PP)};
    sn_price last_price[] = {{update, 0}, {over_dp, 0}, {over_pp, 0}};
    add_program(f, s, c, "update", 3, last, last_price);
    static const sn_sequence_run runs[] = {{0, 0, false}, {0, 1, false}, {1, -1, false}};
    s->sequences.items = SN_NEW(&f->arena, sn_sequence), s->sequences.count = 1;
    s->sequences.items[0].name = "step";
    s->sequences.items[0].runs.items = sn_arena_copy(&f->arena, runs, sizeof runs);
    s->sequences.items[0].runs.count = 3;
}

static void make(fixture *f) {
    *f = (fixture){.schedules = {.version = SN_SCHEDULE_VERSION}};
    f->schedules.classes.items = SN_NEW_N(&f->arena, sn_schedule, CLASSES);
    f->schedules.classes.count = CLASSES;
    f->prices.of = SN_NEW_N(&f->arena, sn_price **, CLASSES);
    assert_true(sn_cluster_preset("local", 4, &f->cluster));
    for (int c = 0; c < CLASSES; c++) make_class(f, c);
}

static sn_replay replay(fixture *f, double cores, bool by_class) {
    sn_replay_request request = {.schedules = &f->schedules,
                                 .prices = &f->prices,
                                 .cluster = &f->cluster,
                                 .cores = cores,
                                 .sharing = 1,
                                 .sequence = "step",
                                 .by_class = by_class};
    sn_replay out;
    sn_str stuck = {0};
    assert_true(sn_replay_run(&request, &f->arena, &out, &stuck));
    return out;
}

// Class 1 has its first operand at 2.5 and works until 8.5; class 0 has updated long before and waits for it.
static void test_by_hand(void **state) {
    (void)state;
    fixture f;
    make(&f);
    double step = work[0] + message + 2 * work[1] + update + over_dp + over_pp;
    for (int by_class = 0; by_class < 2; by_class++) {
        sn_replay r = replay(&f, 0, by_class);
        assert_int_equal(r.n_ranks, by_class ? 2 : 4);
        assert_float_equal(r.seconds, step, 1e-12);
        for (size_t i = 0; i < r.n_ranks; i++) {
            const sn_replay_rank *rank = &r.ranks[i];
            assert_float_equal(rank->compute, 2 * work[rank->rank_class] + update, 1e-12);
            assert_float_equal(rank->communication, over_dp + over_pp, 1e-12);
            assert_float_equal(rank->compute + rank->communication + rank->waiting, step, 1e-12);
        }
        sn_replay_free(&r);
    }
    sn_arena_free(&f.arena);
}

// One core for all: nothing can be faster than the sum of all work, and nothing is ever idle.
static void test_one_core(void **state) {
    (void)state;
    fixture f;
    make(&f);
    sn_replay r = replay(&f, 1, false);
    double sum = 2 * (2 * work[0] + 2 * work[1]) + 4 * (update + over_dp + over_pp);
    assert_float_equal(r.seconds, sum, 1e-9);
    sn_replay_free(&r);
    sn_arena_free(&f.arena);
}

// A receive before a send on both sides: the replay says who waits, and where.
static void test_deadlock(void **state) {
    (void)state;
    fixture f;
    make(&f);
    sn_instr zero[] = {instr(SN_INSTR_RECV, 1), instr(SN_INSTR_SEND, 1)};
    sn_instr one[] = {instr(SN_INSTR_RECV, 0), instr(SN_INSTR_SEND, 0)};
    memcpy(f.schedules.classes.items[0].programs.items[0].instrs.items, zero, sizeof zero);
    memcpy(f.schedules.classes.items[1].programs.items[0].instrs.items, one, sizeof one);
    sn_replay_request request = {
        .schedules = &f.schedules, .prices = &f.prices, .cluster = &f.cluster, .sequence = "step"};
    sn_replay out;
    sn_str stuck = {0};
    assert_false(sn_replay_run(&request, &f.arena, &out, &stuck));
    assert_string_equal(sn_str_text(&stuck), "rank 0, micro-batch 0: recv #0 of forward");
    sn_replay_free(&out);
    sn_str_free(&stuck);
    sn_arena_free(&f.arena);
}

static json_t *measured_event(int pid, int step, double ts, double dur) {
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:i}}", "ph", "X", "name", "gemm", "cat", "forward", "pid",
                     pid, "tid", 0, "ts", ts, "dur", dur, "args", "step", step);
}

// The trace event format: docs/simulator.md names the fields that every viewer wants.
static void check_event(const json_t *event) {
    const char *ph = json_string_value(json_object_get(event, "ph"));
    assert_non_null(ph);
    assert_non_null(json_string_value(json_object_get(event, "name")));
    assert_true(json_is_integer(json_object_get(event, "pid")) && json_is_integer(json_object_get(event, "tid")));
    if (strcmp(ph, "M") == 0) {
        assert_non_null(json_string_value(json_object_get(json_object_get(event, "args"), "name")));
        return;
    }
    assert_string_equal(ph, "X");
    assert_true(json_number_value(json_object_get(event, "ts")) >= 0);
    assert_true(json_number_value(json_object_get(event, "dur")) >= 0);
    assert_non_null(json_string_value(json_object_get(event, "cat")));
}

static size_t count_processes(const json_t *events, const char *prefix) {
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char *name = json_string_value(json_object_get(event, "name"));
        const char *value = json_string_value(json_object_get(json_object_get(event, "args"), "name"));
        n += strcmp(name, "process_name") == 0 && sn_starts_with(value, prefix);
    }
    return n;
}

// Prediction and measurement in one file: of three measured steps, the one of median length, from 0 on.
static void test_trace(void **state) {
    (void)state;
    fixture f;
    make(&f);
    sn_simulation simulation = {.schedules = &f.schedules, .replay = replay(&f, 0, false)};
    json_t *events = sn_simulation_trace(&simulation);
    json_t *list = json_array(), *measured = json_pack("{s:o}", "traceEvents", list);
    static const double lengths[] = {9, 5, 7}; // of steps 1, 2, 3
    json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", "process_name", "pid", 0,
                                          "tid", 0, "args", "name", "rank 0 (pp=0, dp=0)"));
    for (int step = 0; step < 3; step++)
        json_array_append_new(list, measured_event(0, step + 1, 100 + 10 * step, lengths[step]));
    sn_diags diags = {0};
    assert_true(sn_trace_add_measured(events, measured, "measured.json", &diags));
    double predicted_end = 0, measured_end = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        check_event(event);
        double end = json_number_value(json_object_get(event, "ts")) + json_number_value(json_object_get(event, "dur"));
        double *last = json_integer_value(json_object_get(event, "pid")) % 2 ? &measured_end : &predicted_end;
        *last = fmax(*last, end);
    }
    assert_float_equal(predicted_end, 1e6 * simulation.replay.seconds, 1e-3);
    assert_float_equal(measured_end, 7, 1e-9);
    assert_int_equal(count_processes(events, "predicted rank "), 4);
    assert_int_equal(count_processes(events, "measured rank "), 1);
    json_decref(events);
    json_decref(measured);
    sn_simulation_free(&simulation);
    sn_diags_free(&diags);
    sn_arena_free(&f.arena);
}

// What is no trace is an error of the user's.
static void test_no_trace(void **state) {
    (void)state;
    sn_diags diags = {0};
    json_t *events = json_array(), *measured = json_pack("{s:[]}", "traceEvents");
    assert_false(sn_trace_add_measured(events, measured, "empty.json", &diags));
    assert_int_equal(diags.errors, 1);
    json_decref(events);
    json_decref(measured);
    sn_diags_free(&diags);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_one_core), cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_trace),   cmocka_unit_test(test_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
