// sn_stages_solve against the enumeration of every plan, on random instances with every feature on: cuts of a chain or
// of a partial order, several shapes, times that grow with the micro-batches in flight, every objective and stash,
// bounds on stages and replicas. The enumeration has its own arithmetic and calls nothing of the planner.
#include "passes/partition/inter/stages.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dice.h"

enum { INSTANCES = 40000, CUTS_MAX = 9, SHAPES_MAX = 6, HELD_MAX = 8, KINDS = CUTS_MAX * CUTS_MAX };

typedef struct instance {
    sn_stage_problem problem;
    sn_stage_shape shapes[SHAPES_MAX];
    int kind[KINDS];
    double time[KINDS][SHAPES_MAX][HELD_MAX + 1];
    int held[KINDS][SHAPES_MAX]; // the most micro-batches that fit
} instance;

static double stage_time(void *context, int kind, int shape, int in_flight, int *same_until) {
    const instance *x = context;
    (void)same_until;
    if (in_flight > x->held[kind][shape]) return INFINITY;
    return x->time[kind][shape][in_flight < HELD_MAX ? in_flight : HELD_MAX];
}

static void make_times(instance *x, int kind, int units) {
    for (int shape = 0; shape < x->problem.shape_count; ++shape) {
        int devices = x->shapes[shape].data * x->shapes[shape].tensor;
        double time = (units * (4 + dice(5)) + dice(4)) / (double)devices + dice(3) * 0.25;
        x->held[kind][shape] = dice(4) == 0 ? dice(HELD_MAX) : HELD_MAX * 8;
        for (int held = 1; held <= HELD_MAX; ++held) {
            x->time[kind][shape][held] = time;
            if (dice(3) == 0) time += dice(8) * 0.125;
        }
    }
}

static void make_shapes(instance *x) {
    sn_stage_problem *p = &x->problem;
    p->shape_count = 1 + dice(SHAPES_MAX);
    for (int i = 0; i < p->shape_count; ++i) x->shapes[i] = (sn_stage_shape){1 + dice(3), 1 << dice(3)};
    p->shapes = x->shapes;
}

static void make(instance *x) {
    memset(x, 0, sizeof *x);
    sn_stage_problem *p = &x->problem;
    *p =
        (sn_stage_problem){.cuts = 2 + dice(CUTS_MAX - 1), .kinds = KINDS, .devices = 1 + dice(12), .time = stage_time};
    p->context = x;
    p->objective = (sn_stage_objective)dice(SN_STAGE_OBJECTIVE_COUNT);
    p->stash = (sn_stage_stash)dice(SN_STAGE_STASH_COUNT);
    p->microbatches = p->objective == SN_STAGE_STEADY && dice(2) ? 0 : 1 + dice(24);
    if (dice(3) == 0) p->max_depth = 1 + dice(5);
    make_shapes(x);
    bool repeated = dice(2), holes = dice(2);
    for (int from = 0; from < p->cuts; ++from) {
        for (int to = 0; to < p->cuts; ++to) {
            int kind = repeated ? to - from : from * p->cuts + to;
            if (to <= from || (holes && dice(4) == 0)) kind = -1;
            x->kind[from * p->cuts + to] = kind;
        }
    }
    for (int units = 1; units < p->cuts; ++units) {
        if (repeated) make_times(x, units, units);
        for (int from = 0; !repeated && from + units < p->cuts; ++from)
            make_times(x, from * p->cuts + from + units, units);
    }
    p->kind = x->kind;
}

// Every plan, from the last stage to the first.
typedef struct enumeration {
    const instance *x;
    double best;
    long plans;
} enumeration;

static int in_flight_of(const sn_stage_problem *p, int data, int stages_after, int replicas_after) {
    int held = stages_after + 1;
    if (p->stash == SN_STAGE_STASH_REPLICAS) {
        held = 1;
        while (held * data < replicas_after + data) ++held;
    }
    return p->microbatches > 0 && held > p->microbatches ? p->microbatches : held;
}

static double objective_of(const sn_stage_problem *p, int stages, double sum, double longest) {
    if (p->objective == SN_STAGE_STEADY) return longest;
    if (p->objective == SN_STAGE_FILLED) return longest * (stages + p->microbatches - 1);
    return sum + longest * (p->microbatches - 1);
}

static void enumerate(enumeration *e, int cut, int devices, int replicas, int stages, double sum, double longest) {
    const sn_stage_problem *p = &e->x->problem;
    if (cut == 0) {
        ++e->plans;
        e->best = fmin(e->best, objective_of(p, stages, sum, longest));
        return;
    }
    for (int from = 0; from < cut; ++from) {
        int kind = e->x->kind[from * p->cuts + cut];
        for (int shape = 0; kind >= 0 && shape < p->shape_count; ++shape) {
            int data = e->x->shapes[shape].data, used = devices + data * e->x->shapes[shape].tensor;
            int depth = p->stash == SN_STAGE_STASH_STAGES ? stages + 1 : replicas + data;
            if (used > p->devices || (p->max_depth && depth > p->max_depth)) continue;
            int held = in_flight_of(p, data, stages, replicas);
            if (held > e->x->held[kind][shape]) continue;
            double time = e->x->time[kind][shape][held < HELD_MAX ? held : HELD_MAX];
            enumerate(e, from, used, replicas + data, stages + 1, sum + time, fmax(longest, time));
        }
    }
}

// The plan's own stages, added up again.
static void check_plan(const instance *x, const sn_stage_plan *plan) {
    const sn_stage_problem *p = &x->problem;
    double sum = 0, longest = 0;
    int cut = p->cuts - 1, devices = 0, replicas = 0;
    for (int i = plan->stage_count - 1; i >= 0; --i) {
        const sn_stage *stage = &plan->stages[i];
        int data = x->shapes[stage->shape].data, kind = x->kind[stage->from * p->cuts + stage->to];
        int held = in_flight_of(p, data, plan->stage_count - 1 - i, replicas);
        assert_int_equal(stage->to, cut);
        assert_int_equal(stage->in_flight, held);
        assert_true(kind >= 0 && held <= x->held[kind][stage->shape]);
        double time = x->time[kind][stage->shape][held < HELD_MAX ? held : HELD_MAX];
        assert_true(time == stage->time);
        sum += time;
        longest = fmax(longest, time);
        devices += data * x->shapes[stage->shape].tensor;
        replicas += data;
        cut = stage->from;
    }
    assert_int_equal(cut, 0);
    int depth = p->stash == SN_STAGE_STASH_STAGES ? plan->stage_count : replicas;
    assert_true(devices <= p->devices && (!p->max_depth || depth <= p->max_depth));
    assert_true(fabs(objective_of(p, plan->stage_count, sum, longest) - plan->objective) <= 1e-12 * plan->objective);
}

static void test_every_plan(void **unused) {
    (void)unused;
    static instance x;
    long feasible = 0, several = 0;
    for (int i = 0; i < INSTANCES; ++i) {
        make(&x);
        enumeration e = {&x, INFINITY, 0};
        enumerate(&e, x.problem.cuts - 1, 0, 0, 0, 0, 0);
        sn_stage_plan plan = sn_stages_solve(&x.problem);
        assert_int_equal(plan.feasible, e.plans > 0);
        if (plan.feasible) {
            check_plan(&x, &plan);
            assert_true(fabs(plan.objective - e.best) <= 1e-9 * e.best);
            assert_true(fabs(plan.lower_bound - e.best) <= 1e-9 * e.best);
            ++feasible;
            several += plan.stage_count > 1;
        }
        sn_stage_plan_free(&plan);
    }
    print_message("%d instances, %ld feasible, %ld with several stages\n", INSTANCES, feasible, several);
    assert_true(feasible > INSTANCES / 2 && several > INSTANCES / 4);
}

// A search that stops early still has a plan, and a bound that no plan undercuts.
static void test_budget(void **unused) {
    (void)unused;
    static instance x;
    int open = 0;
    for (int i = 0; i < 4000; ++i) {
        make(&x);
        x.problem.work_limit = 1 + dice(20);
        enumeration e = {&x, INFINITY, 0};
        enumerate(&e, x.problem.cuts - 1, 0, 0, 0, 0, 0);
        sn_stage_plan plan = sn_stages_solve(&x.problem);
        assert_int_equal(plan.feasible, e.plans > 0);
        if (plan.feasible) {
            check_plan(&x, &plan);
            assert_true(plan.objective >= e.best * (1 - 1e-12));
            assert_true(plan.lower_bound <= e.best * (1 + 1e-12));
            open += plan.lower_bound < plan.objective;
        }
        sn_stage_plan_free(&plan);
    }
    assert_true(open > 50);
}

enum { BLOCKS = 96, BLOCKS_A_STAGE = 3, DEVICES = 16384, MICROBATCHES = 1536 };

static double block_time(void *context, int kind, int shape, int in_flight, int *same_until) {
    const sn_stage_problem *p = context;
    int blocks = kind % p->cuts - kind / p->cuts;
    (void)in_flight;
    *same_until = INT_MAX;
    return blocks > BLOCKS_A_STAGE ? INFINITY : (double)blocks / (p->shapes[shape].data * p->shapes[shape].tensor);
}

// 96 blocks on 16,384 devices, three blocks a stage at most, that scale perfectly. Of S stages with m_i blocks on d_i
// devices, sum(m_i / d_i) >= (sum sqrt(m_i))^2 / sum(d_i), which 32 stages of three blocks on 512 devices attain.
static void test_large(void **unused) {
    (void)unused;
    sn_stage_shape shapes[48];
    int count = 0;
    for (int tensor = 1; tensor <= 8; tensor *= 2) {
        for (int data = 1; data <= 2048; data *= 2) shapes[count++] = (sn_stage_shape){data, tensor};
    }
    for (int stash = 0; stash < SN_STAGE_STASH_COUNT; ++stash) {
        for (int objective = 0; objective < SN_STAGE_OBJECTIVE_COUNT; ++objective) {
            sn_stage_problem p = {.cuts = BLOCKS + 1, .shapes = shapes, .shape_count = count, .devices = DEVICES};
            p.microbatches = MICROBATCHES;
            p.objective = (sn_stage_objective)objective;
            p.stash = (sn_stage_stash)stash;
            p.time = block_time;
            p.context = &p;
            sn_stage_plan plan = sn_stages_solve(&p);
            double longest = (double)BLOCKS / DEVICES, stages = BLOCKS / BLOCKS_A_STAGE;
            double expected = objective == SN_STAGE_STEADY ? longest : (MICROBATCHES - 1 + stages) * longest;
            assert_true(plan.feasible && fabs(plan.objective - expected) <= 1e-12 * expected);
            assert_true(fabs(plan.lower_bound - expected) <= 1e-12 * expected);
            sn_stage_plan_free(&plan);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_plan), cmocka_unit_test(test_budget),
                                       cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
