// The outer search against the enumeration of everything that it chooses among: all factorizations of the devices into
// pp, dp, ep, cp and tp, micro-batches, layouts between blocks, ZeRO, orders of the axes and cuts into stages, each
// priced by the same evaluator. For models with and without experts, with memory to spare and with too little.
#include "passes/partition/search_price.h"

#include "frontend/onnx.h"
#include "passes/pass.h"
#include "passes/training/training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 16, MOST_CUTS = 512 };

typedef struct problem {
    sn_onnx_model *onnx;
    sn_module *module;
    sn_arena arena;
    sn_diags diags;
    sn_blocks blocks;
    sn_cluster cluster;
    sn_plan fixed;
    sn_search *search;
} problem;

static const sn_onnx_shape moe_shapes[] = {{"x", 3, {BATCH, 16, 16}}, {"target", 3, {BATCH, 16, 16}}};
static const sn_onnx_shape text_shapes[] = {{"input_ids", 2, {BATCH, 32}}};

// A step of the model, and a search over the named schedule alone (NULL: over all).
static void open_problem(problem *p, const char *path, const char *cluster, int64_t nodes, const char *schedule) {
    bool experts = strstr(path, "moe") != NULL;
    *p = (problem){0};
    p->onnx = sn_onnx_open_shapes(path, &p->diags);
    assert_non_null(p->onnx);
    sn_onnx_options options = {0};
    options.shapes = experts ? moe_shapes : text_shapes;
    options.n_shapes = experts ? 2 : 1;
    p->module = sn_onnx_import(p->onnx, &options, &p->diags);
    assert_non_null(p->module);
    sn_training training = sn_training_default();
    training.loss = experts ? NULL : "softmax_cross_entropy:logits,labels";
    training.accumulate = 2;
    sn_pass_context context = {.diags = &p->diags, .training = &training};
    sn_pipeline_options pipeline = {.stop_after = "training", .pass_limit = -1};
    assert_true(sn_passes_run(p->module, &context, &pipeline));
    p->blocks = sn_blocks_find(p->module, BATCH, &p->arena);
    assert_true(sn_cluster_preset(cluster, nodes, &p->cluster));
    if (schedule) assert_true(sn_plan_from_outline(schedule, &p->diags, &p->fixed));
    sn_search_request request = {.blocks = &p->blocks,
                                 .cluster = &p->cluster,
                                 .diags = &p->diags,
                                 .batch = BATCH,
                                 .fixed = schedule ? &p->fixed : NULL};
    p->search = sn_search_new(&request, &p->arena);
}

static void close_problem(problem *p) {
    sn_search_free(p->search);
    sn_module_free(p->module);
    sn_onnx_close(p->onnx);
    sn_arena_free(&p->arena);
    sn_diags_free(&p->diags);
}

typedef struct tally {
    const problem *problem;
    double limit_scale;
    double best, best_even; // over all cuts of 1F1B; over even cuts of all schedules
    long outlines, with_experts;
    sn_candidate found;
} tally;

static void price_cut(tally *t, const sn_candidate *outline, sn_stage_context *x, const int *cut, double *best) {
    sn_candidate c = *outline;
    x->candidate = &c;
    sn_price(t->problem->search, &c, x, cut, NULL);
    if (c.excess > 0 || c.step >= *best) return;
    *best = c.step;
    t->found = c;
}

static void for_cuts(tally *t, const sn_candidate *c, sn_stage_context *x, int stage, int *cut) {
    int blocks = t->problem->blocks.n_blocks;
    if (stage == x->stages) {
        if (cut[stage] == blocks) price_cut(t, c, x, cut, &t->best);
        return;
    }
    for (int end = cut[stage] + 1; end <= blocks; end++) {
        cut[stage + 1] = end;
        for_cuts(t, c, x, stage + 1, cut);
    }
}

static void price_outline(tally *t, sn_candidate c) {
    int cut[MOST_CUTS] = {0};
    sn_stage_context x = sn_price_context(t->problem->search, t->limit_scale, &c);
    t->outlines++;
    t->with_experts += c.setting.ep > 1;
    if (c.schedule == SN_PIPELINE_1F1B) for_cuts(t, &c, &x, 0, cut);
    sn_stages_even(&x, cut);
    price_cut(t, &c, &x, cut, &t->best_even);
    sn_price_context_free(&x);
}

static void for_schedules(tally *t, sn_candidate c) {
    sn_evaluator *e = sn_search_evaluator(t->problem->search);
    if (!sn_evaluator_costs(e, c.setting, sn_evaluator_site(e))) return;
    for (c.zero = 0; c.zero <= (sn_candidate_shares(&c) > 1 ? 3 : 0); c.zero++)
        for (int order = 0; order < (c.pp > 1 && c.dp > 1 ? 2 : 1); order++) {
            c.data_outside = order;
            c.chunks = 1;
            c.schedule = SN_PIPELINE_1F1B;
            price_outline(t, c);
            c.schedule = SN_PIPELINE_ZERO_BUBBLE;
            if (c.pp > 1) price_outline(t, c);
            c.schedule = SN_PIPELINE_INTERLEAVED;
            c.chunks = 2;
            if (c.pp > 1 && c.pp * 2 <= t->problem->blocks.n_blocks && c.microbatches % c.pp == 0) price_outline(t, c);
        }
}

// Nested loops over all sizes, and nothing that is clever.
static tally enumerate(const problem *p, double limit_scale) {
    tally t = {.problem = p, .limit_scale = limit_scale, .best = INFINITY, .best_even = INFINITY};
    int n = (int)sn_cluster_devices(&p->cluster);
    for (int pp = 1; pp <= n; pp++)
        for (int dp = 1; dp <= n; dp++)
            for (int ep = 1; ep <= n; ep++)
                for (int cp = 1; cp <= n; cp++)
                    for (int tp = 1; tp <= n; tp++)
                        for (int micro = 1; micro <= BATCH; micro++)
                            for (int boundary = 0; boundary < (tp > 1 ? 2 : 1); boundary++) {
                                if (pp * dp * ep * cp * tp != n || pp > p->blocks.n_blocks) continue;
                                if (BATCH % dp || BATCH / dp % micro) continue;
                                sn_candidate c = {.pp = pp, .dp = dp, .microbatches = BATCH / dp / micro};
                                c.setting = (sn_cut_setting){
                                    .tp = tp, .cp = cp, .ep = ep, .boundary = boundary, .micro = micro};
                                for_schedules(&t, c);
                            }
    return t;
}

// The least step among what a search returns: the replay may put another first.
static double least_step(const sn_search_result *result) {
    double least = result->best.step;
    for (int i = 0; i < result->n_runners; i++) least = fmin(least, result->runners[i].step);
    return least;
}

static void compare(const char *path, const char *cluster, int64_t nodes, bool experts) {
    bool chosen = false; // ep
    for (int all = 0; all < 2; all++) {
        problem p;
        open_problem(&p, path, cluster, nodes, all ? NULL : "schedule=1f1b");
        double scale = 1, before = INFINITY;
        for (int round = 0; round < 5; round++) { // each with less memory than the last best plan takes
            sn_search_result result;
            assert_true(sn_search_run(p.search, scale, NULL, &result));
            tally t = enumerate(&p, scale);
            assert_true(t.outlines > 50);
            assert_true(!experts == !t.with_experts);
            if (!all) assert_int_equal(result.feasible, isfinite(t.best));
            if (!result.feasible) break;
            chosen |= result.best.setting.ep > 1;
            double least = least_step(&result);
            if (!all) assert_true(fabs(least - t.best) <= 1e-9 * t.best);
            assert_true(least <= fmin(t.best, all ? t.best_even : INFINITY) * (1 + 1e-9));
            assert_true(result.lower_bound <= least * (1 + 1e-9));
            assert_true(result.best.memory < before || round == 0);
            before = result.best.memory;
            scale = 0.8 * result.best.memory / p.cluster.nodes[0].memory;
        }
        close_problem(&p);
    }
    assert_true(chosen == experts); // memory asks for it
}

#define DATA SENNIT_SOURCE_DIR "/tests/data/models"

static void a_mixture_of_experts(void **state) {
    (void)state;
    compare(DATA "/moe/dynamo-21-raw-loss-dyn.onnx", "local", 4, true);
    compare(DATA "/moe/dynamo-21-raw-loss-dyn.onnx", "dgx-a100", 1, true);
}

static void a_transformer(void **state) {
    (void)state;
    compare(SENNIT_SOURCE_DIR "/samples/chargpt/model.onnx", "local", 4, false);
    compare(SENNIT_SOURCE_DIR "/samples/chargpt/model.onnx", "dgx-a100", 1, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mixture_of_experts),
        cmocka_unit_test(a_transformer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
