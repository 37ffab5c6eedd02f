// The outer search's parts against enumeration, on random chains of blocks: exact stages, memory that forces
// rematerialisation, and bounds that no cut beats.
#include "passes/partition/search_price.h"

#include "base/philox.h"
#include "passes/partition/inter/stages.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_BLOCKS = 9, MOST_KINDS = 3, INSTANCES = 3000 };

typedef struct instance {
    sn_blocks blocks;
    sn_block block[MOST_BLOCKS];
    sn_block_class class[MOST_KINDS];
    sn_block_cost costs[MOST_KINDS];
    int before[(MOST_BLOCKS + 1) * MOST_KINDS];
    double messages[MOST_BLOCKS * MOST_KINDS];
    sn_block_cost elsewhere[MOST_BLOCKS][MOST_KINDS]; // costs of a pipeline rank with devices of its own
    sn_stage_site sites[MOST_BLOCKS];
    int site_of[MOST_BLOCKS];
    sn_candidate candidate;
    sn_stage_context context;
} instance;

static uint64_t draws;

static double random_in(double low, double high) {
    return low + (high - low) * sn_random_uniform(7, 0, 0, draws++);
}

static int random_int(int low, int high) {
    return low + (int)random_in(0, high - low + 0.999999);
}

static sn_block_cost random_cost(void) {
    sn_block_cost c = {
        .forward = random_in(1, 3), .backward_input = random_in(1, 3), .backward_weight = random_in(0, 2)};
    c.again[SN_REMAT_SELECTIVE] = 0.2 * c.forward;
    c.again[SN_REMAT_FULL] = c.forward;
    c.input = random_in(0.2, 0.5);
    c.activations[SN_REMAT_NONE].kept = random_in(4, 8);
    c.activations[SN_REMAT_SELECTIVE].kept = random_in(1.5, 3);
    c.activations[SN_REMAT_FULL].kept = c.input;
    for (int r = 0; r < SN_REMAT_COUNT; r++) {
        c.activations[r].late = random_in(0, 1) * c.activations[r].kept;
        c.activations[r].waiting = random_in(0, 2);
    }
    c.working = random_in(0, 1);
    c.parameters = random_in(1, 2);
    c.gradients = random_in(1, 2);
    c.optimizer = random_in(2, 4);
    return c;
}

static double seconds_of(const sn_block_cost *c) {
    return c->forward + c->backward_input + c->backward_weight;
}

// Each class and pass is faster, or slower, in its own way.
static void make_site(instance *t, int rank) {
    double pace = INFINITY;
    for (int k = 0; k < t->blocks.n_classes; k++) {
        sn_block_cost *c = &t->elsewhere[rank][k];
        *c = t->costs[k];
        c->forward *= random_in(0.3, 1.5);
        c->backward_input *= random_in(0.3, 1.5);
        c->backward_weight *= random_in(0.3, 1.5);
        for (int r = 0; r < SN_REMAT_COUNT; r++) c->again[r] *= c->forward / t->costs[k].forward;
        pace = fmin(pace, seconds_of(c) / seconds_of(&t->costs[k]));
    }
    t->sites[rank] = (sn_stage_site){.costs = t->elsewhere[rank], .limit = random_in(10, 120), .pace = pace};
    t->site_of[rank] = rank;
}

static void make_one_site(instance *t, double limit) {
    t->context.site_of = NULL, t->context.sites = NULL, t->context.n_sites = 0;
    t->context.first.limit = limit;
}

static void make(instance *t) {
    memset(t, 0, sizeof *t);
    t->blocks = (sn_blocks){.n_blocks = random_int(2, MOST_BLOCKS), .n_classes = random_int(1, MOST_KINDS)};
    t->blocks.blocks = t->block;
    t->blocks.classes = t->class;
    for (int k = 0; k < t->blocks.n_classes; k++) t->costs[k] = random_cost();
    for (int b = 0; b < t->blocks.n_blocks; b++) {
        int kind = random_int(0, t->blocks.n_classes - 1), n = t->blocks.n_classes;
        t->block[b].kind = kind;
        t->class[kind].count++;
        memcpy(t->before + (b + 1) * n, t->before + b * n, (size_t)n * sizeof *t->before);
        t->before[(b + 1) * n + kind]++;
    }
    static const sn_pipeline schedules[] = {SN_PIPELINE_1F1B, SN_PIPELINE_GPIPE, SN_PIPELINE_ZERO_BUBBLE};
    int pp = random_int(1, t->blocks.n_blocks < 4 ? t->blocks.n_blocks : 4);
    t->candidate = (sn_candidate){.pp = pp, .dp = random_int(1, 4), .chunks = 1, .microbatches = random_int(1, 12)};
    t->candidate.schedule = schedules[random_int(0, 2)];
    t->candidate.zero = t->candidate.dp > 1 ? random_int(0, 3) : 0;
    t->candidate.setting = (sn_cut_setting){.tp = 1, .cp = 1, .ep = 1, .micro = 1};
    t->context = (sn_stage_context){.blocks = &t->blocks,
                                    .before = t->before,
                                    .candidate = &t->candidate,
                                    .stages = pp,
                                    .first = {.costs = t->costs, .limit = random_in(10, 120), .pace = 1},
                                    .message = random_in(0, 0.2)};
    if (random_int(0, 2) == 0) t->context.messages = t->messages;
    if (random_int(0, 1)) t->context.messages_apart = t->blocks.n_classes; // some boundaries are between nodes
    if (random_int(0, 3) == 0) t->context.first.limit = INFINITY;
    for (int i = 0; i < MOST_BLOCKS * MOST_KINDS; i++) t->messages[i] = random_in(t->context.message, 1);
    if (random_int(0, 2) > 0) return;
    for (int i = 0; i < pp; i++) make_site(t, i);
    t->context.sites = t->sites, t->context.site_of = t->site_of, t->context.n_sites = pp;
    if (pp > 1 && random_int(0, 1)) t->site_of[pp - 1] = 0; // two ranks of one site
}

// Calls `visit` for each cut of the blocks into the stages.
static void for_cuts(const instance *t, int stage, int *cut, void (*visit)(const instance *, const int *, void *),
                     void *user) {
    if (stage == t->context.stages) {
        if (cut[stage] == t->blocks.n_blocks) visit(t, cut, user);
        return;
    }
    for (int end = cut[stage] + 1; end <= t->blocks.n_blocks; end++) {
        cut[stage + 1] = end;
        for_cuts(t, stage + 1, cut, visit, user);
    }
}

typedef struct best {
    double weight, value;
} best;

static double value_of(const instance *t, const int *cut, double weight) {
    double sum = 0, longest = 0;
    for (int s = 0; s < t->context.stages; s++) {
        double seconds = sn_stage_cost(&t->context, s, cut[s], cut[s + 1], NULL);
        sum += seconds;
        longest = fmax(longest, seconds);
    }
    return sum + weight * longest;
}

static void keep_best(const instance *t, const int *cut, void *user) {
    best *b = user;
    b->value = fmin(b->value, value_of(t, cut, b->weight));
}

// As a plug-in may say: only messages take time.
static void make_timeless(instance *t) {
    make(t);
    for (int k = 0; k < t->blocks.n_classes; k++) {
        sn_block_cost *c = &t->costs[k];
        c->forward = c->backward_input = c->backward_weight = 0;
        memset(c->again, 0, sizeof c->again);
    }
    make_one_site(t, random_int(0, 1) ? t->context.first.limit : INFINITY);
}

static void exact_stages_equal_enumeration(void **state) {
    (void)state;
    int feasible = 0, forced = 0;
    for (int i = 0; i < INSTANCES; i++) {
        instance t;
        i % 8 ? make(&t) : make_timeless(&t);
        int cut[MOST_BLOCKS + 1] = {0}, found[MOST_BLOCKS + 1];
        best b = {t.candidate.microbatches - 1, INFINITY};
        for_cuts(&t, 0, cut, keep_best, &b);
        long work = 0;
        bool fits = sn_stages_exact(&t.context, b.weight, found, &work);
        assert_int_equal(fits, isfinite(b.value));
        if (!fits) continue;
        double value = value_of(&t, found, b.weight);
        assert_true(fabs(value - b.value) <= 1e-9 * b.value);
        feasible++;
        for (int s = 0; s < t.context.stages; s++) {
            sn_stage_report report;
            (void)sn_stage_cost(&t.context, s, found[s], found[s + 1], &report);
            forced += report.remat != SN_REMAT_NONE;
        }
    }
    assert_true(feasible > INSTANCES / 4 && feasible < INSTANCES); // both kinds were met
    assert_true(forced > 100);
}

// On equal devices without memory limits the inter-operator planner answers the same question.
static double planner_time(void *context, int kind, int shape, int in_flight, int *same_until) {
    const instance *t = context;
    (void)shape, (void)in_flight;
    int from = kind / (t->blocks.n_blocks + 1), to = kind % (t->blocks.n_blocks + 1);
    *same_until = INT32_MAX;
    return sn_stage_cost(&t->context, 1, from, to, NULL); // 1: every stage but the first receives
}

static void exact_stages_equal_the_planner(void **state) {
    (void)state;
    for (int i = 0; i < 300; i++) {
        instance t;
        make(&t);
        make_one_site(&t, INFINITY);
        t.context.message = 0;
        t.context.messages = NULL, t.context.messages_apart = 0;
        t.candidate.microbatches = random_int(4, 12);
        int found[MOST_BLOCKS + 1];
        long work = 0;
        double weight = t.candidate.microbatches - 1, least = INFINITY;
        for (int pp = 1; pp <= t.candidate.pp; pp++) { // the planner may use fewer stages
            t.context.stages = pp;
            assert_true(sn_stages_exact(&t.context, weight, found, &work));
            least = fmin(least, value_of(&t, found, weight));
        }
        sn_stage_shape shape = {1, 1};
        sn_stage_problem problem = {.cuts = t.blocks.n_blocks + 1,
                                    .kinds = (t.blocks.n_blocks + 1) * (t.blocks.n_blocks + 1),
                                    .shapes = &shape,
                                    .shape_count = 1,
                                    .devices = t.candidate.pp,
                                    .max_depth = t.candidate.pp,
                                    .microbatches = t.candidate.microbatches,
                                    .objective = SN_STAGE_SYNCHRONOUS,
                                    .time = planner_time,
                                    .context = &t};
        sn_stage_plan plan = sn_stages_solve(&problem);
        assert_true(plan.feasible);
        assert_true(fabs(plan.objective - least) <= 1e-9 * least);
        sn_stage_plan_free(&plan);
    }
}

typedef struct bounded {
    sn_search *search;
    double bound, tight, least;
} bounded;

static void check_bound(const instance *t, const int *cut, void *user) {
    bounded *b = user;
    sn_candidate c = t->candidate;
    sn_stage_context x = t->context;
    x.candidate = &c;
    sn_price(b->search, &c, &x, cut, NULL);
    if (c.excess > 0) return;
    b->least = fmin(b->least, c.step);
    assert_true(b->bound <= c.step * (1 + 1e-9));
    assert_true(b->tight <= c.step * (1 + 1e-3)); // its bisection stops at a few parts in ten thousand
}

static void no_cut_beats_a_bound(void **state) {
    (void)state;
    double gap = 0;
    int counted = 0;
    sn_cluster cluster;
    assert_true(sn_cluster_preset("dgx-a100", 1, &cluster));
    for (int i = 0; i < INSTANCES; i++) {
        instance t;
        make(&t);
        sn_search search = {.request = {.blocks = &t.blocks, .cluster = &cluster},
                            .before = t.before,
                            .devices = 8,
                            .model = {.device = cluster.nodes[0].device}};
        int cut[MOST_BLOCKS + 1] = {0};
        sn_price_sums sums = sn_price_sums_of(&search, &t.candidate, &t.context);
        bounded b = {&search, sn_price_bound(&search, &t.candidate, &t.context, &sums), 0, INFINITY};
        t.candidate.bound = b.bound;
        b.tight = sn_price_tight_bound(&search, &t.candidate, &t.context, &sums);
        assert_true(b.tight >= b.bound);
        for_cuts(&t, 0, cut, check_bound, &b);
        if (isfinite(b.least)) gap += b.least / b.tight - 1, counted++;
        sn_vec_free(&search.groups);
    }
    assert_true(counted > INSTANCES / 4);
    assert_true(gap / counted < 0.35); // chains of a few uneven blocks do not divide well
}

// Chunks of a rank share its memory: what price says fits, fits, and nothing is computed again without need.
static void interleaved_ranks_fit(void **state) {
    (void)state;
    sn_cluster cluster;
    assert_true(sn_cluster_preset("dgx-a100", 1, &cluster));
    for (int i = 0; i < INSTANCES; i++) {
        instance t;
        make(&t);
        if (t.blocks.n_blocks < 4) continue;
        t.candidate.pp = 2, t.candidate.chunks = 2, t.candidate.schedule = SN_PIPELINE_INTERLEAVED;
        t.candidate.microbatches = 4;
        t.context.stages = 4;
        make_one_site(&t, t.context.first.limit);
        sn_search search = {.request = {.blocks = &t.blocks, .cluster = &cluster},
                            .before = t.before,
                            .devices = 8,
                            .model = {.device = cluster.nodes[0].device}};
        int cut[MOST_BLOCKS + 1];
        sn_stage_report stages[4];
        sn_stages_even(&t.context, cut);
        sn_price(&search, &t.candidate, &t.context, cut, stages);
        double fullest = 0;
        for (int rank = 0; rank < 2; rank++) {
            double bytes = 0, none = 0, working = 0, working_none = 0;
            for (int s = rank; s < 4; s += 2) {
                sn_stage_report plain;
                bytes += sn_memory_total(&stages[s].memory) - stages[s].memory.working;
                working = fmax(working, stages[s].memory.working);
                none += sn_stage_with(&t.context, s, cut[s], cut[s + 1], SN_REMAT_NONE, &plain);
                none -= plain.memory.working;
                working_none = fmax(working_none, plain.memory.working);
            }
            bytes += working, none += working_none; // one chunk works at a time
            fullest = fmax(fullest, bytes);
            for (int s = rank; s < 4; s += 2)
                if (none <= t.context.first.limit) assert_int_equal(stages[s].remat, SN_REMAT_NONE);
            assert_true(t.candidate.excess > 0 || bytes <= t.context.first.limit * (1 + 1e-12));
        }
        assert_true(fabs(t.candidate.memory - fullest) <= 1e-9 * fullest);
        sn_vec_free(&search.groups);
    }
}

// Chunks do not change what a rank reduces once a step: the gradients of all its blocks.
static void chunks_reduce_what_their_rank_holds(void **state) {
    (void)state;
    sn_cluster cluster;
    assert_true(sn_cluster_preset("dgx-a100", 1, &cluster));
    for (int i = 0; i < 100; i++) {
        instance t;
        make(&t);
        t.blocks.n_blocks = 4, t.blocks.n_classes = 1; // equal blocks
        for (int b = 0; b <= 4; b++) t.before[b] = b;
        for (int b = 0; b < 4; b++) t.block[b].kind = 0;
        t.class[0].count = 4;
        sn_block_moves moves = {.once = 0.01};
        t.context.first.moves = &moves;
        t.candidate.pp = 2, t.candidate.dp = 2, t.candidate.microbatches = 4;
        make_one_site(&t, 1e12);
        t.candidate.zero = i % 2;
        sn_search search = {.request = {.blocks = &t.blocks, .cluster = &cluster},
                            .before = t.before,
                            .devices = 8,
                            .model = {.device = cluster.nodes[0].device}};
        sn_candidate plain = t.candidate, chunked = t.candidate;
        plain.schedule = SN_PIPELINE_1F1B;
        chunked.schedule = SN_PIPELINE_INTERLEAVED, chunked.chunks = 2;
        sn_stage_context x = t.context;
        x.candidate = &plain, x.stages = 2;
        sn_price(&search, &plain, &x, (int[]){0, 2, 4}, NULL);
        x.candidate = &chunked, x.stages = 4;
        sn_price(&search, &chunked, &x, (int[]){0, 1, 2, 3, 4}, NULL);
        assert_true(plain.sync > 0 && fabs(plain.sync - chunked.sync) <= 1e-12 * plain.sync);
        sn_price_sums sums = sn_price_sums_of(&search, &chunked, &x);
        assert_true(sn_price_bound(&search, &chunked, &x, &sums) <= chunked.step * (1 + 1e-9));
        sn_vec_free(&search.groups);
    }
}

// What an outline leaves out is open to the search, even where it has the default's value.
static void an_outline_tells_what_it_names(void **state) {
    (void)state;
    sn_diags diags = {0};
    sn_plan plan;
    assert_true(sn_plan_from_outline("pp=2", &diags, &plan));
    assert_int_equal(plan.named, 0);
    assert_true(sn_mesh_axis(&plan.mesh, "tp") < 0);
    assert_true(sn_plan_from_outline("tp=1,microbatches=1,zero=0,schedule=1f1b", &diags, &plan));
    assert_int_equal(plan.named, SN_PLAN_MICROBATCHES | SN_PLAN_ZERO | SN_PLAN_SCHEDULE);
    assert_true(sn_mesh_axis(&plan.mesh, "tp") >= 0);
    assert_true(sn_plan_from_outline("schedule=interleaved,chunks=2,remat=none", &diags, &plan));
    assert_int_equal(plan.named, SN_PLAN_SCHEDULE | SN_PLAN_CHUNKS | SN_PLAN_REMAT);
    sn_diags_free(&diags);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_stages_equal_enumeration),
        cmocka_unit_test(exact_stages_equal_the_planner),
        cmocka_unit_test(no_cut_beats_a_bound),
        cmocka_unit_test(interleaved_ranks_fit),
        cmocka_unit_test(chunks_reduce_what_their_rank_holds),
        cmocka_unit_test(an_outline_tells_what_it_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
