// For one level with m' groups a stage, and a start i, with S the time of a last stage (and of its transfers):
//
//     A[m][j] = min( one stage on m groups,  min over k before j, m' < m of max(A[m - m'][k], S[m'][j][k]) )
//
// S does not depend on the start, so a level is a sequence of "least of the larger" over rows of doubles. The level
// above takes A[all groups][j] from every start as its compute time; the outermost needs the start of the model alone.
#include "passes/partition/inter/levels.h"

#include "base/alloc.h"
#include "base/bug.h"
#include "base/vec.h"

#include <math.h>
#include <string.h>

typedef double lanes __attribute__((vector_size(32), aligned(8), may_alias));
typedef long mask __attribute__((vector_size(32)));

typedef struct table {
    const sn_level_problem *p;
    int level, states, below; // below: machines in a group
    const double *inner; // [states + 1][states] time on one group, by start (0: the beginning, i + 1: behind state i)
    double *stage;       // [machines + 1][states][states] S
    double *best;        // [machines + 1][states] A for one start
} table;

static double inner_time(const table *t, int start, int j) {
    return t->inner[(long)start * t->states + j];
}

static double sum_between(const double *sums, int start, int j) {
    return sums[j] - (start > 0 ? sums[start - 1] : 0);
}

static bool comes_after(const sn_level_problem *p, int start, int j) {
    return start == 0 || p->precedes[(long)(start - 1) * p->states + j];
}

// The micro-batches that the stages behind keep a stage holding: ceil(machines behind / its own).
static bool fits(const table *t, int start, int j, int machines_behind, int m) {
    const sn_level_problem *p = t->p;
    double bytes = sum_between(p->activations, start, j) + sum_between(p->parameters, start, j);
    return ((machines_behind + m - 1) / m) * bytes <= p->memory;
}

// One stage on m groups: time inside a group and the exchange of gradients between them.
static double lone_stage(const table *t, int start, int j, int m) {
    const sn_level *level = &t->p->levels[t->level];
    if (!fits(t, start, j, level->machines - m, m)) return INFINITY;
    double exchange = 4 * (m - 1) * sum_between(t->p->parameters, start, j) / (level->bandwidth * m);
    return (inner_time(t, start, j) + exchange / t->below) / m;
}

static double last_stage(const table *t, int k, int j, int m) {
    const sn_level_problem *p = t->p;
    double bandwidth = p->levels[t->level].bandwidth;
    double exchange = 4 * (m - 1) * sum_between(p->parameters, k + 1, j) / (bandwidth * m);
    double time = (inner_time(t, k + 1, j) + exchange) / m;
    time = fmax(time, p->transfer_weight * 2 * p->output[k] / (bandwidth * m));
    if (j < p->states - 1) time = fmax(time, p->transfer_weight * 2 * p->output[j] / (bandwidth * m));
    return time;
}

static double *stage_row(const table *t, int m, int j) {
    return t->stage + ((long)m * t->states + j) * t->states;
}
static double *best_row(const table *t, int m) {
    return t->best + (long)m * t->states;
}

static void fill_stages(table *t) {
    int n = t->states, machines = t->p->levels[t->level].machines;
    for (int m = 1; m < machines; ++m) {
        for (int j = 0; j < n; ++j) {
            double *row = stage_row(t, m, j);
            for (int k = 0; k < n; ++k) row[k] = t->p->precedes[(long)k * n + j] ? last_stage(t, k, j, m) : INFINITY;
        }
    }
}

// min over i of max(a[i], b[i])
static double least_of_larger(const double *a, const double *b, int count) {
    double least = INFINITY;
    lanes lowest = {INFINITY, INFINITY, INFINITY, INFINITY};
    int i = 0;
    for (; i + 4 <= count; i += 4) {
        lanes x = *(const lanes *)(a + i), y = *(const lanes *)(b + i);
        mask more = x > y;
        lanes larger = (lanes)(((mask)x & more) | ((mask)y & ~more));
        mask less = larger < lowest;
        lowest = (lanes)(((mask)larger & less) | ((mask)lowest & ~less));
    }
    for (; i < count; ++i) least = fmin(least, fmax(a[i], b[i]));
    for (i = 0; i < 4; ++i) least = fmin(least, lowest[i]);
    return least;
}

static double least_fitting(const table *t, const double *before, const double *stage, int j, int machines_behind,
                            int m) {
    double least = INFINITY;
    for (int k = 0; k < j; ++k) {
        double larger = before[k] > stage[k] ? before[k] : stage[k];
        if (larger < least && fits(t, k + 1, j, machines_behind, m)) least = larger;
    }
    return least;
}

static double best_ending_at(const table *t, int start, int j, int m) {
    int machines = t->p->levels[t->level].machines;
    double least = lone_stage(t, start, j, m);
    for (int own = 1; own < m; ++own) {
        const double *before = best_row(t, m - own), *stage = stage_row(t, own, j);
        int from = start; // earlier states do not come after the start
        double found = isinf(t->p->memory) ? least_of_larger(before + from, stage + from, j - from)
                                           : least_fitting(t, before, stage, j, machines - m, own);
        least = fmin(least, found);
    }
    return least;
}

static void fill_best(table *t, int start) {
    int n = t->states, machines = t->p->levels[t->level].machines;
    for (int m = 1; m <= machines; ++m) {
        double *row = best_row(t, m);
        for (int j = 0; j < n; ++j)
            row[j] = j >= start && comes_after(t->p, start, j) ? best_ending_at(t, start, j, m) : INFINITY;
    }
}

static table make_table(const sn_level_problem *p, int level, int below, const double *inner) {
    size_t n = (size_t)p->states, rows = (size_t)p->levels[level].machines + 1;
    table t = {p,
               level,
               p->states,
               below,
               inner,
               sn_alloc(sizeof(double) * rows * n * n),
               sn_alloc(sizeof(double) * rows * n)};
    fill_stages(&t);
    return t;
}

static void free_table(table *t) {
    sn_free(t->stage);
    sn_free(t->best);
}

typedef struct solver {
    const sn_level_problem *p;
    table *tables;  // [levels]
    double **times; // [levels + 1] inner times; times[0] from the problem
    SN_VEC(sn_level_stage) stages;
} solver;

static void backtrack(solver *s, int level, int start, int j);

static void add_stage(solver *s, int level, int start, int j, int machines) {
    sn_vec_push(&s->stages, (sn_level_stage){level, start - 1, j, machines});
    if (level > 0) backtrack(s, level - 1, start, j);
}

// The stages of one pipeline, by the state they end in.
static void backtrack(solver *s, int level, int start, int end) {
    table *t = &s->tables[level];
    int machines = s->p->levels[level].machines, m = machines, j = end;
    SN_VEC(sn_level_stage) found = {0};
    fill_best(t, start);
    while (true) {
        double value = best_row(t, m)[j];
        int from = -1, own = 0;
        if (lone_stage(t, start, j, m) == value) {
            sn_vec_push(&found, (sn_level_stage){level, start, j, m});
            break;
        }
        for (int taken = 1; taken < m && own == 0; ++taken) {
            for (int k = start; k < j && own == 0; ++k) {
                if (fmax(best_row(t, m - taken)[k], stage_row(t, taken, j)[k]) != value) continue;
                if (!fits(t, k + 1, j, machines - m, taken)) continue;
                from = k;
                own = taken;
            }
        }
        SN_CHECK(own > 0);
        sn_vec_push(&found, (sn_level_stage){level, from + 1, j, own});
        j = from;
        m -= own;
    }
    for (size_t i = found.count; i-- > 0;)
        add_stage(s, level, found.data[i].from, found.data[i].to, found.data[i].machines);
    sn_vec_free(&found);
}

static double *first_times(const sn_level_problem *p) {
    int n = p->states;
    double *times = sn_alloc(sizeof(double) * (size_t)(n + 1) * (size_t)n);
    for (int start = 0; start <= n; ++start) {
        for (int j = 0; j < n; ++j) {
            times[(long)start * n + j] =
                j >= start && comes_after(p, start, j) ? sum_between(p->time, start, j) : INFINITY;
        }
    }
    return times;
}

sn_level_plan sn_levels_solve(const sn_level_problem *p) {
    size_t levels = (size_t)p->level_count, n = (size_t)p->states;
    solver s = {.p = p, .tables = sn_alloc(sizeof(table) * levels), .times = sn_alloc(sizeof(double *) * (levels + 1))};
    s.times[0] = first_times(p);
    for (size_t level = 0; level < levels; ++level) {
        int below = level > 0 ? p->levels[level - 1].machines : 1;
        s.tables[level] = make_table(p, (int)level, below, s.times[level]);
        if (level + 1 == levels) break;
        s.times[level + 1] = sn_alloc(sizeof(double) * (n + 1) * n);
        for (int start = 0; start <= p->states; ++start) {
            fill_best(&s.tables[level], start);
            memcpy(s.times[level + 1] + (size_t)start * n, best_row(&s.tables[level], p->levels[level].machines),
                   sizeof(double) * n);
        }
    }
    table *top = &s.tables[levels - 1];
    fill_best(top, 0);
    sn_level_plan plan = {.objective = best_row(top, p->levels[levels - 1].machines)[n - 1]};
    plan.feasible = !isinf(plan.objective);
    if (plan.feasible) backtrack(&s, (int)levels - 1, 0, p->states - 1);
    plan.stages = s.stages.data;
    plan.stage_count = (int)s.stages.count;
    for (size_t level = 0; level < levels; ++level) {
        free_table(&s.tables[level]);
        sn_free(s.times[level]);
    }
    sn_free(s.tables);
    sn_free(s.times);
    return plan;
}

void sn_level_plan_free(sn_level_plan *plan) {
    sn_free(plan->stages);
    *plan = (sn_level_plan){0};
}
