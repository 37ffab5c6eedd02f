// Replayed pipelines against the closed forms of the papers, to 1e-9, and, where stages differ and messages take time,
// against longest paths found by relaxation.
#include "passes/simulate/pipeline.h"

#include "passes/schedule/pipeline_order.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = 16, MOST_CHUNKS = 4, MOST_STAGES = MOST_RANKS * MOST_CHUNKS, MOST_MICRO_BATCHES = 64 };

static const char *describe(const sn_pipeline_case *p) {
    static char text[128];
    snprintf(text, sizeof text, "%s, %d ranks, %d chunks, %d micro-batches", sn_pipeline_name(p->schedule), p->ranks,
             p->chunks, p->microbatches);
    return text;
}

static void expect(const sn_pipeline_case *p, double seconds, const char *what, double expected) {
    if (fabs(seconds - expected) > 1e-9 * fmax(1, fabs(expected)))
        fail_msg("%s: %s of %.12g, not %.12g", describe(p), what, seconds, expected);
}

static sn_pipeline_replay even(sn_pipeline schedule, int ranks, int chunks, int microbatches, sn_stage_times times,
                               sn_pipeline_case *out) {
    static sn_stage_times stages[MOST_STAGES];
    for (int s = 0; s < ranks * chunks; s++) stages[s] = times;
    *out = (sn_pipeline_case){schedule, ranks, chunks, microbatches, stages, NULL, 0, 1};
    return sn_pipeline_simulate(out);
}

// Stage times that are no round numbers.
static const sn_stage_times some_times[] = {
    {.forward = 1, .backward_input = 1, .backward_weight = 1},
    {.forward = 0.3717, .backward_input = 0.4193, .backward_weight = 0.2871},
    {.forward = 1.7, .backward_input = 1.1, .backward_weight = 0.4},
};
enum { TIMES = sizeof some_times / sizeof *some_times };

// Huang et al. 2019 (GPipe), section 2.3: (p - 1) of (M + p - 1) places are idle. Narayanan et al. 2021, section 2.1:
// the same for 1F1B with flushes, (p - 1) (f + b).
static void test_gpipe_and_1f1b(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        for (int m = 1; m <= MOST_MICRO_BATCHES; m += m < 20 ? 1 : 7) {
            for (int i = 0; i < TIMES; i++) {
                sn_stage_times t = some_times[i];
                double both = t.forward + t.backward_input + t.backward_weight;
                for (int s = 0; s < 2; s++) {
                    sn_pipeline_case p;
                    sn_pipeline_replay r = even(s ? SN_PIPELINE_1F1B : SN_PIPELINE_GPIPE, ranks, 1, m, t, &p);
                    expect(&p, r.bubble, "bubble", (ranks - 1) * both);
                    expect(&p, r.seconds, "step", (m + ranks - 1) * both);
                    expect(&p, r.bubble / r.seconds, "share", (ranks - 1.0) / (m + ranks - 1.0));
                }
            }
        }
    }
}

// GPipe with messages: they go along with the wave of micro-batches, so each hop costs one, there and back.
static void test_gpipe_messages(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        for (int m = 1; m <= 24; m++) {
            sn_stage_times t = {1.3, 1.1, 0.8, 0.25, 0.35};
            sn_pipeline_case p;
            sn_pipeline_replay r = even(SN_PIPELINE_GPIPE, ranks, 1, m, t, &p);
            expect(&p, r.seconds, "step", (m + ranks - 1) * 3.2 + (ranks - 1) * 0.6);
        }
    }
}

// Narayanan et al. 2021 (Megatron-LM), section 2.2: the bubble is (p - 1) (f + b) / v, with f and b a rank's.
static void test_interleaved(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        for (int chunks = 1; chunks <= MOST_CHUNKS; chunks++) {
            for (int groups = 1; groups * ranks <= MOST_MICRO_BATCHES; groups++) {
                for (int i = 0; i < TIMES; i++) {
                    sn_stage_times t = some_times[i];
                    double both = (t.forward + t.backward_input + t.backward_weight) * chunks;
                    sn_pipeline_case p;
                    sn_pipeline_replay r = even(SN_PIPELINE_INTERLEAVED, ranks, chunks, groups * ranks, t, &p);
                    expect(&p, r.bubble, "bubble", (ranks - 1) * both / chunks);
                }
            }
        }
    }
}

// Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2 and table 1: ZB-H1 idles (p - 1) (F + B - W). The
// schedule is laid out for equal F, B and W; it still fills the wait where a weight part is no longer than the gap that
// it goes into (W <= B and W <= F).
static void test_zero_bubble(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        for (int m = ranks; m <= MOST_MICRO_BATCHES; m += m < 20 ? 1 : 7) {
            for (int i = 0; i < TIMES; i++) {
                sn_stage_times t = some_times[i];
                sn_pipeline_case p;
                sn_pipeline_replay r = even(SN_PIPELINE_ZERO_BUBBLE, ranks, 1, m, t, &p);
                expect(&p, r.bubble, "bubble", (ranks - 1) * (t.forward + t.backward_input - t.backward_weight));
            }
        }
    }
}

static uint64_t state_of_random = 1234567;

static unsigned random_below(unsigned n) {
    state_of_random = state_of_random * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state_of_random >> 33) % n;
}

typedef struct longest {
    const sn_pipeline_case *pipeline;
    sn_pipeline_order orders[MOST_RANKS];
    double end[SN_RUN_KIND_COUNT][MOST_STAGES][MOST_MICRO_BATCHES];
    double sent[SN_RUN_KIND_COUNT][MOST_STAGES][MOST_MICRO_BATCHES]; // its message has arrived
} longest;

static double pass_seconds(const sn_stage_times *t, sn_run_kind kind) {
    const double seconds[SN_RUN_KIND_COUNT] = {t->forward, t->backward_input + t->backward_weight, t->backward_input,
                                               t->backward_weight};
    return seconds[kind];
}

static double arrival(const longest *l, const sn_pipeline_run *run, int stage) {
    int stages = l->pipeline->ranks * l->pipeline->chunks, m = run->micro_batch;
    if (run->kind == SN_RUN_FORWARD) return stage ? l->sent[SN_RUN_FORWARD][stage - 1][m] : 0;
    if (run->kind == SN_RUN_BACKWARD_WEIGHT) return l->end[SN_RUN_BACKWARD_INPUT][stage][m];
    double own = l->end[SN_RUN_FORWARD][stage][m];
    return stage + 1 < stages ? fmax(own, l->sent[run->kind][stage + 1][m]) : own;
}

static double sending(const sn_pipeline_case *p, int stage, sn_run_kind kind) {
    if (kind == SN_RUN_FORWARD) return stage + 1 < p->ranks * p->chunks ? p->stages[stage].to_next : 0;
    return kind == SN_RUN_BACKWARD_WEIGHT || !stage ? 0 : p->stages[stage].to_previous;
}

static double longest_path(const sn_pipeline_case *p) {
    static longest l;
    memset(&l, 0, sizeof l);
    l.pipeline = p;
    double last = 0;
    for (int r = 0; r < p->ranks; r++)
        sn_pipeline_order_of(p->schedule, p->ranks, p->chunks, p->microbatches, r, &l.orders[r]);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->ranks; r++) {
            double clock = 0, link = 0;
            for (size_t i = 0; i < l.orders[r].count; i++) {
                const sn_pipeline_run *run = &l.orders[r].data[i];
                int stage = run->chunk * p->ranks + r;
                double *end = &l.end[run->kind][stage][run->micro_batch];
                clock = fmax(clock, arrival(&l, run, stage)) + pass_seconds(&p->stages[stage], run->kind);
                double *sent = &l.sent[run->kind][stage][run->micro_batch], message = sending(p, stage, run->kind);
                if (message > 0) link = fmax(link, clock) + message;
                double arrives = message > 0 ? link : clock;
                moved |= clock > *end || arrives > *sent;
                *end = clock, *sent = arrives;
                last = fmax(last, clock);
            }
        }
    }
    for (int r = 0; r < p->ranks; r++) sn_vec_free(&l.orders[r]);
    return last;
}

static double random_seconds(void) {
    return 0.25 + (double)random_below(1000) / 300;
}

static void test_uneven(void **state) {
    (void)state;
    for (int i = 0; i < 2000; i++) {
        sn_stage_times stages[MOST_STAGES];
        sn_pipeline_case p = {.schedule = (sn_pipeline)random_below(SN_PIPELINE_COUNT), .stages = stages, .chunks = 1};
        p.ranks = 1 + (int)random_below(8);
        p.microbatches = 1 + (int)random_below(24);
        if (p.schedule == SN_PIPELINE_INTERLEAVED) {
            p.chunks = 1 + (int)random_below(MOST_CHUNKS);
            p.microbatches = p.ranks * (1 + (int)random_below(4));
        }
        for (int s = 0; s < p.ranks * p.chunks; s++)
            stages[s] = (sn_stage_times){random_seconds(), random_seconds(), random_seconds(),
                                         random_below(2) ? 0 : random_seconds() / 2, random_seconds() / 2};
        expect(&p, sn_pipeline_simulate(&p).seconds, "step", longest_path(&p));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpipe_and_1f1b), cmocka_unit_test(test_gpipe_messages),
        cmocka_unit_test(test_interleaved),    cmocka_unit_test(test_zero_bubble),
        cmocka_unit_test(test_uneven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
