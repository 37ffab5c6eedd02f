#include "passes/partition/inter/stages.h"

#include "passes/partition/inter/solver.h"

#include <math.h>

double sn_stage_objective_value(sn_stage_objective objective, int stages, double sum, double longest,
                                int microbatches) {
    double cost = objective == SN_STAGE_FILLED ? stages : sum;
    return sn_stage_objective_of(objective, microbatches - 1, cost, longest);
}

typedef struct search {
    sn_stage_solver solver;
    sn_stage_plan found, best;
} search;

static bool fit(void *problem, double bound, sn_bottleneck_plan *out) {
    search *s = problem;
    sn_stage_solver_bound(&s->solver, bound);
    if (!sn_stage_fit(&s->solver, &s->found)) return false;
    *out = (sn_bottleneck_plan){.longest = s->found.bottleneck, .objective = s->found.objective};
    return true;
}

static bool cheapest(void *problem, double bound, double at_least, double best, sn_bottleneck_plan *out) {
    search *s = problem;
    double cost;
    sn_stage_solver_bound(&s->solver, bound);
    if (!sn_stage_cheapest(&s->solver, at_least, best, &s->found, &cost)) return false;
    *out = (sn_bottleneck_plan){s->found.bottleneck, cost, s->found.objective};
    return true;
}

static void keep(void *problem) {
    search *s = problem;
    sn_stage_plan former = s->best;
    s->best = s->found;
    s->found = former;
}

static void narrow(void *problem, bool reached) {
    search *s = problem;
    sn_stage_solver_narrow(&s->solver, reached);
}

static bool exhausted(const void *problem) {
    const search *s = problem;
    return sn_stage_exhausted(&s->solver);
}

sn_stage_plan sn_stages_solve(const sn_stage_problem *problem) {
    search s = {.best = {.objective = INFINITY, .bottleneck = INFINITY}};
    sn_stage_solver_init(&s.solver, problem);
    sn_bottleneck_answer answer = sn_bottleneck_solve(&(sn_bottleneck){.problem = &s,
                                                                       .objective = problem->objective,
                                                                       .weight = problem->microbatches - 1,
                                                                       .fit = fit,
                                                                       .cheapest = cheapest,
                                                                       .keep = keep,
                                                                       .narrow = narrow,
                                                                       .exhausted = exhausted});
    s.best.lower_bound = answer.lower_bound;
    s.best.work = s.solver.work;
    sn_stage_solver_free(&s.solver);
    sn_stage_plan_free(&s.found);
    return s.best;
}

void sn_stage_plan_free(sn_stage_plan *plan) {
    sn_free(plan->stages);
    *plan = (sn_stage_plan){0};
}
