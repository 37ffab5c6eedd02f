// Parametric search. The least bottleneck T* comes from bisection on the question "do all stages fit within T?": every
// yes gives a plan whose longest stage is the next upper end, and the search ends with a no just below the plan it
// holds, so T* is exact and not a midpoint. For the objectives that also count the stages or their sum, branch and
// bound over the bottleneck follows: with cost(b) the least secondary cost within bottleneck b, no plan whose
// bottleneck lies in [a, b] is better than value(cost(b), a), which prunes the interval or splits it. A plan found for
// b with bottleneck m settles [m, b] by itself.
#include "passes/partition/inter/bottleneck.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <math.h>

double sn_stage_objective_of(sn_stage_objective objective, double weight, double cost, double longest) {
    switch (objective) {
    case SN_STAGE_FILLED:
        return (weight + cost) * longest;
    case SN_STAGE_SYNCHRONOUS:
        return weight > 0 ? cost + weight * longest : cost;
    default:
        return longest;
    }
}

static double below(double x) {
    return nextafter(x, -INFINITY);
}

// Some plan. Tight bounds leave fewer stages to look at, so they are tried first where a least one is known; *low is
// the largest that was not reached.
static bool climb(const sn_bottleneck *b, double *low, sn_bottleneck_plan *plan) {
    enum { ROUNDS = 12 };
    double bound = b->least * (1 + 1e-9), step = 0.01 * bound;
    *low = b->least * (1 - 1e-9);
    for (int round = 0; round < ROUNDS && bound > 0; round++) {
        if (b->fit(b->problem, bound, plan)) return true;
        *low = bound;
        bound += step;
        step *= 2;
    }
    return b->fit(b->problem, INFINITY, plan);
}

// The plan of the least bottleneck; false when there is none.
static bool least_bottleneck(const sn_bottleneck *b, sn_bottleneck_plan *plan) {
    double low;
    bool tried_below = false;
    if (!climb(b, &low, plan)) return false;
    b->keep(b->problem);
    while (low < below(plan->longest)) {
        double high = plan->longest, bound = low > 0 ? low + (high - low) / 2 : high / 4;
        bool last_step = (high - low <= 1e-2 * high && !tried_below) || bound <= low || bound >= high;
        if (last_step) bound = below(high);
        tried_below = last_step;
        if (bound < 1e-300) bound = 0;
        bool reached = b->fit(b->problem, bound, plan);
        if (b->narrow) b->narrow(b->problem, reached);
        if (reached)
            b->keep(b->problem);
        else
            low = bound;
        if (bound == 0) break;
    }
    return true;
}

// Plans whose bottleneck lies in [from, to] cost at least `cost`.
typedef struct interval {
    double from, to, cost;
} interval;

typedef struct branching {
    const sn_bottleneck *bottleneck;
    sn_bottleneck_plan *best;
    SN_VEC(interval) open;
    double unexplored; // least value of the intervals given up
} branching;

static double interval_value(const branching *b, const interval *i) {
    return sn_stage_objective_of(b->bottleneck->objective, b->bottleneck->weight, i->cost, i->from);
}

// The bottleneck above which plans that cost at least so much do not beat the best.
static double bottleneck_to_beat(const branching *b, double cost) {
    double weight = b->bottleneck->weight, best = b->best->objective;
    if (b->bottleneck->objective == SN_STAGE_FILLED) return best / (weight + cost);
    return weight > 0 ? (best - cost) / weight * (1 + 1e-12) : INFINITY;
}

static void explore(branching *b, interval i) {
    const sn_bottleneck *problem = b->bottleneck;
    sn_bottleneck_plan plan;
    i.to = fmin(i.to, bottleneck_to_beat(b, i.cost));
    if (i.to < i.from || interval_value(b, &i) >= b->best->objective) return;
    if (!problem->cheapest(problem->problem, i.to, i.from, b->best->objective, &plan)) {
        if (problem->exhausted && problem->exhausted(problem->problem))
            b->unexplored = fmin(b->unexplored, interval_value(b, &i));
        return;
    }
    double longest = plan.longest, middle = i.from + (longest - i.from) / 2;
    if (plan.objective < b->best->objective) {
        *b->best = plan;
        problem->keep(problem->problem);
    }
    if (longest <= i.from) return;
    if (middle > i.from && middle < below(longest)) {
        sn_vec_push(&b->open, (interval){nextafter(middle, INFINITY), below(longest), plan.cost});
        sn_vec_push(&b->open, (interval){i.from, middle, plan.cost});
    } else {
        sn_vec_push(&b->open, (interval){i.from, below(longest), plan.cost});
    }
}

// From the plan of the least bottleneck to the plan of the least objective; returns the lower bound.
static double branch(const sn_bottleneck *problem, sn_bottleneck_plan *best) {
    branching b = {.bottleneck = problem, .best = best, .unexplored = INFINITY};
    double from = best->longest, cost = problem->least_cost;
    sn_vec_push(&b.open, (interval){from, INFINITY, cost});
    sn_vec_push(&b.open, (interval){from, from, cost}); // first: a good plan to prune with
    while (b.open.count > 0) {
        interval next = sn_vec_last(&b.open);
        --b.open.count;
        explore(&b, next);
    }
    sn_vec_free(&b.open);
    return fmin(b.unexplored, best->objective);
}

sn_bottleneck_answer sn_bottleneck_solve(const sn_bottleneck *problem) {
    sn_bottleneck_answer answer = {.lower_bound = INFINITY};
    answer.feasible = least_bottleneck(problem, &answer.plan);
    if (!answer.feasible) return answer;
    answer.lower_bound = answer.plan.objective;
    if (problem->objective != SN_STAGE_STEADY) answer.lower_bound = branch(problem, &answer.plan);
    return answer;
}
