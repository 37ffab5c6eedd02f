// Parametric search. The least bottleneck T* comes from bisection: "do all stages fit within T?" is a small dynamic
// program (fit.c), every yes gives a plan whose longest stage is the next upper end, and the search ends with a no just
// below the plan it holds, so T* is exact and not a midpoint. For the objectives that also count the stages or their
// sum, branch and bound over the bottleneck follows: with cost(b) the least secondary cost within bottleneck b
// (cheapest.c), no plan whose bottleneck lies in [a, b] is better than value(cost(b), a), which prunes the interval or
// splits it. A plan found for b with bottleneck m settles [m, b] by itself.
#include "passes/partition/inter/stages.h"

#include "passes/partition/inter/solver.h"

#include <math.h>

double sn_stage_objective_value(sn_stage_objective objective, int stages, double sum, double longest,
                                int microbatches) {
    switch (objective) {
    case SN_STAGE_FILLED:
        return (microbatches - 1 + stages) * longest;
    case SN_STAGE_SYNCHRONOUS:
        return microbatches > 1 ? sum + (microbatches - 1) * longest : sum;
    default:
        return longest;
    }
}

static double below(double x) {
    return nextafter(x, -INFINITY);
}

// The plan of the least bottleneck; false when there is none.
static bool least_bottleneck(sn_stage_solver *s, sn_stage_plan *plan) {
    sn_stage_solver_bound(s, INFINITY);
    if (!sn_stage_fit(s, plan)) return false;
    double low = 0;
    bool tried_below = false;
    while (low < below(plan->bottleneck)) {
        double high = plan->bottleneck, bound = low > 0 ? low + (high - low) / 2 : high / 4;
        bool last_step = (high - low <= 1e-4 * high && !tried_below) || bound <= low || bound >= high;
        if (last_step) bound = below(high);
        tried_below = last_step;
        if (bound < 1e-300) bound = 0;
        sn_stage_solver_bound(s, bound);
        bool reached = sn_stage_fit(s, plan);
        sn_stage_solver_narrow(s, reached);
        if (!reached) low = bound;
        if (bound == 0) break;
    }
    return true;
}

// Plans whose bottleneck lies in [from, to] cost at least `cost`.
typedef struct interval {
    double from, to, cost;
} interval;

typedef struct branching {
    sn_stage_solver *solver;
    sn_stage_plan *best;
    SN_VEC(interval) open;
    double unexplored; // least value of the intervals given up
} branching;

static double interval_value(const branching *b, const interval *i) {
    const sn_stage_problem *p = b->solver->problem;
    return sn_stage_objective_value(p->objective, (int)i->cost, i->cost, i->from, p->microbatches);
}

// The bottleneck above which plans that cost at least so much do not beat the best.
static double bottleneck_to_beat(const branching *b, double cost) {
    const sn_stage_problem *p = b->solver->problem;
    double weight = p->microbatches - 1, best = b->best->objective;
    if (p->objective == SN_STAGE_FILLED) return best / (weight + cost);
    return weight > 0 ? (best - cost) / weight * (1 + 1e-12) : INFINITY;
}

static void take(branching *b, sn_stage_plan *plan) {
    if (b->best->objective <= plan->objective) {
        sn_free(plan->stages);
        return;
    }
    sn_free(b->best->stages);
    *b->best = *plan;
}

static void explore(branching *b, interval i) {
    double best = b->best->objective, cost;
    sn_stage_plan plan = {0};
    i.to = fmin(i.to, bottleneck_to_beat(b, i.cost));
    if (i.to < i.from || interval_value(b, &i) >= best) return;
    sn_stage_solver_bound(b->solver, i.to);
    if (!sn_stage_cheapest(b->solver, i.from, best, &plan, &cost)) {
        if (sn_stage_exhausted(b->solver)) b->unexplored = fmin(b->unexplored, interval_value(b, &i));
        return;
    }
    double longest = plan.bottleneck, middle = i.from + (longest - i.from) / 2;
    take(b, &plan);
    if (longest <= i.from) return;
    if (middle > i.from && middle < below(longest)) {
        sn_vec_push(&b->open, (interval){nextafter(middle, INFINITY), below(longest), cost});
        sn_vec_push(&b->open, (interval){i.from, middle, cost});
    } else {
        sn_vec_push(&b->open, (interval){i.from, below(longest), cost});
    }
}

// From the plan of the least bottleneck to the plan of the least objective.
static void branch(sn_stage_solver *s, double bottleneck, sn_stage_plan *best) {
    branching b = {.solver = s, .best = best, .unexplored = INFINITY};
    sn_vec_push(&b.open, (interval){bottleneck, INFINITY, 0});
    sn_vec_push(&b.open, (interval){bottleneck, bottleneck, 0}); // first: a good plan to prune with
    while (b.open.count > 0) {
        interval next = sn_vec_last(&b.open);
        --b.open.count;
        explore(&b, next);
    }
    sn_vec_free(&b.open);
    best->lower_bound = fmin(b.unexplored, best->objective);
}

sn_stage_plan sn_stages_solve(const sn_stage_problem *problem) {
    sn_stage_solver s;
    sn_stage_plan plan = {.objective = INFINITY, .bottleneck = INFINITY, .lower_bound = INFINITY};
    sn_stage_solver_init(&s, problem);
    if (least_bottleneck(&s, &plan)) {
        double bottleneck = plan.bottleneck;
        plan.lower_bound = plan.objective;
        if (problem->objective != SN_STAGE_STEADY) branch(&s, bottleneck, &plan);
    }
    plan.work = s.work;
    sn_stage_solver_free(&s);
    return plan;
}

void sn_stage_plan_free(sn_stage_plan *plan) {
    sn_free(plan->stages);
    *plan = (sn_stage_plan){0};
}
