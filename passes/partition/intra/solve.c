#include "base/alloc.h"
#include "passes/partition/intra/branch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TABLE_CELLS = 20000 };
static const uint64_t branch_steps = 200000;

typedef struct solver {
    const sn_network *network;
    const sn_network_budget *budget;
    sn_core *core;
    double start;
    uint64_t work;
    int *best; // the cheapest within the limits; until there is one, that of the least excess
    int64_t cost, excess, lower_bound;
    bool feasible, proven;
} solver;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool is_over(const solver *s) {
    if (s->feasible && s->lower_bound >= s->cost) return true;
    if (s->budget->work && s->work >= s->budget->work) return true;
    return s->budget->seconds > 0 && now() - s->start >= s->budget->seconds;
}

static void offer(solver *s, const int *values, int64_t excess) {
    int64_t cost = sn_core_cost(s->core, values);
    bool allowed = cost < SN_NETWORK_FORBIDDEN;
    if (!allowed || (s->feasible && (excess || cost >= s->cost)) || (!s->feasible && excess && excess >= s->excess))
        return;
    s->feasible = excess == 0;
    s->excess = excess;
    s->cost = cost;
    memcpy(s->best, values, sizeof *values * (size_t)s->core->n_nodes);
}

static double target(const solver *s, const sn_relaxation *r) {
    if (s->feasible) return (double)s->cost;
    return r->bound > -INFINITY ? r->bound + 0.5 * fabs(r->bound) + 1 : 1;
}

static void relax(solver *s) {
    sn_relaxation *r = sn_relaxation_new(s->core, TABLE_CELLS);
    bool moves = true;
    for (int i = 0; moves && !is_over(s) && r->scale > 1e-3; i++) {
        moves = sn_relaxation_step(r, target(s, r));
        s->work += r->work;
        r->work = 0;
        offer(s, r->values, r->excess);
        if (r->lower_bound > s->lower_bound) s->lower_bound = r->lower_bound;
    }
    if (!is_over(s)) {
        sn_relaxation_return(r);
        int64_t cost = s->feasible ? s->cost : SN_NETWORK_FORBIDDEN;
        int *values = sn_alloc(sizeof *values * (size_t)(s->core->n_nodes + 1));
        s->proven = sn_branch(r, &cost, values, branch_steps);
        if (cost < (s->feasible ? s->cost : SN_NETWORK_FORBIDDEN)) offer(s, values, 0);
        if (s->proven && s->feasible) s->lower_bound = s->cost;
        s->work += r->work;
        sn_free(values);
    }
    sn_relaxation_free(r);
}

static sn_network_answer answer(solver *s) {
    int *choice = sn_alloc(sizeof *choice * (s->network->n_nodes + 1));
    sn_network_result result = SN_NETWORK_UNKNOWN;
    if (s->core->infeasible || (s->proven && !s->feasible))
        result = SN_NETWORK_INFEASIBLE;
    else if (s->feasible)
        result = s->lower_bound >= s->cost ? SN_NETWORK_OPTIMAL : SN_NETWORK_FEASIBLE;
    if (!s->core->infeasible) sn_core_lift(s->core, s->best, choice);
    return (sn_network_answer){.result = result,
                               .choice = choice,
                               .cost = sn_network_cost(s->network, choice),
                               .peak = sn_network_peak(s->network, choice),
                               .lower_bound = s->lower_bound,
                               .work = s->work,
                               .seconds = now() - s->start};
}

sn_network_answer sn_network_solve(const sn_network *network, const sn_network_budget *budget) {
    solver s = {.network = network, .budget = budget, .start = now(), .excess = INT64_MAX, .lower_bound = INT64_MIN};
    s.core = sn_core_new(network);
    s.best = sn_alloc(sizeof *s.best * (size_t)(s.core->n_nodes + 1));
    if (!s.core->infeasible) relax(&s);
    sn_network_answer result = answer(&s);
    sn_free(s.best);
    sn_core_free(s.core);
    return result;
}
