// sn_levels_solve against the recursion it states, on random chains and partial orders of states, one to three levels,
// with and without transfers and memory.
#include "passes/partition/inter/levels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dice.h"

enum { INSTANCES = 3000, STATES_MAX = 6, LEVELS_MAX = 3 };

typedef struct instance {
    sn_level_problem p;
    bool precedes[STATES_MAX * STATES_MAX];
    double time[STATES_MAX], parameters[STATES_MAX], activations[STATES_MAX], output[STATES_MAX];
    sn_level levels[LEVELS_MAX];
} instance;

static void make(instance *x) {
    memset(x, 0, sizeof *x);
    int n = 1 + dice(STATES_MAX);
    x->p = (sn_level_problem){.states = n,
                              .precedes = x->precedes,
                              .time = x->time,
                              .parameters = x->parameters,
                              .activations = x->activations,
                              .output = x->output,
                              .level_count = 1 + dice(LEVELS_MAX),
                              .levels = x->levels,
                              .memory = dice(3) ? INFINITY : 10 + dice(60),
                              .transfer_weight = dice(2) * 0.5};
    bool chain = dice(2);
    for (int j = 0; j < n; ++j) {
        x->time[j] = (j > 0 ? x->time[j - 1] : 0) + dice(8);
        x->parameters[j] = (j > 0 ? x->parameters[j - 1] : 0) + dice(8);
        x->activations[j] = (j > 0 ? x->activations[j - 1] : 0) + dice(8);
        x->output[j] = dice(8);
        for (int k = 0; k < j; ++k) x->precedes[k * n + j] = chain || j == n - 1 || k == 0 || (dice(2) && k + 1 < j);
    }
    // Closed under composition.
    for (int b = 0; b < n; ++b) {
        for (int a = 0; a < b; ++a) {
            for (int c = b + 1; c < n; ++c) x->precedes[a * n + c] |= x->precedes[a * n + b] && x->precedes[b * n + c];
        }
    }
    for (int i = 0; i < x->p.level_count; ++i) x->levels[i] = (sn_level){1 + dice(3), 1 + dice(4)};
}

static double part(const double *sums, int from, int to) {
    return sums[to] - (from >= 0 ? sums[from] : 0);
}

static bool behind(const sn_level_problem *p, int from, int to) {
    return from < 0 || p->precedes[from * p->states + to];
}

static bool fits(const sn_level_problem *p, int level, int from, int to, int used, int own) {
    double held = ceil((p->levels[level].machines - used) / (double)own);
    return held * (part(p->activations, from, to) + part(p->parameters, from, to)) <= p->memory;
}

// The slowest stage of the best pipeline of a level on `machines` groups, for the units behind `from` up to `to`.
static double best_of(const sn_level_problem *p, int level, int from, int to, int machines) {
    if (level < 0) return part(p->time, from, to);
    const sn_level *l = &p->levels[level];
    int inside = level > 0 ? p->levels[level - 1].machines : 1;
    double best = INFINITY;
    if (fits(p, level, from, to, machines, machines)) {
        double exchange = 4 * (machines - 1) * part(p->parameters, from, to) / (l->bandwidth * machines) / inside;
        best = (best_of(p, level - 1, from, to, inside) + exchange) / machines;
    }
    for (int k = 0; k < to; ++k) {
        if (!behind(p, from, k) || k == from || !behind(p, k, to)) continue;
        for (int own = 1; own < machines; ++own) {
            if (!fits(p, level, k, to, machines, own)) continue;
            double exchange = 4 * (own - 1) * part(p->parameters, k, to) / (l->bandwidth * own);
            double time = (best_of(p, level - 1, k, to, inside) + exchange) / own;
            time = fmax(time, p->transfer_weight * 2 * p->output[k] / (l->bandwidth * own));
            if (to < p->states - 1) time = fmax(time, p->transfer_weight * 2 * p->output[to] / (l->bandwidth * own));
            best = fmin(best, fmax(time, best_of(p, level, from, k, machines - own)));
        }
    }
    return best;
}

static void test_every_pipeline(void **unused) {
    (void)unused;
    static instance x;
    int feasible = 0, several = 0;
    for (int i = 0; i < INSTANCES; ++i) {
        make(&x);
        int top = x.p.level_count - 1;
        double best = best_of(&x.p, top, -1, x.p.states - 1, x.levels[top].machines);
        sn_level_plan plan = sn_levels_solve(&x.p);
        assert_int_equal(plan.feasible, !isinf(best));
        if (plan.feasible) assert_true(fabs(plan.objective - best) <= 1e-9 * best);
        int at = -1, stages = 0, machines = 0;
        for (int k = 0; k < plan.stage_count; ++k) {
            if (plan.stages[k].level != top) continue;
            assert_int_equal(plan.stages[k].from, at);
            at = plan.stages[k].to;
            machines += plan.stages[k].machines;
            ++stages;
        }
        assert_true(!plan.feasible || (at == x.p.states - 1 && machines == x.levels[top].machines));
        feasible += plan.feasible;
        several += stages > 1;
        sn_level_plan_free(&plan);
    }
    print_message("%d instances, %d feasible, %d of several stages\n", INSTANCES, feasible, several);
    assert_true(feasible > INSTANCES / 2 && several > INSTANCES / 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_pipeline)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
