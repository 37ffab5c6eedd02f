// Of the plans whose stages all take at most T, one of the least secondary cost: the sum of the stages' times, or their
// number. Labels (depth, devices, cost) are carried from the last cut to the first. A label is dropped when another of
// the same cut is no worse in each, or when the devices and the cost that the units before the cut take at the least
// make it useless: no plan through it fits the cluster, or none beats the best plan known.
#include "passes/partition/inter/solver.h"

#include "base/bug.h"

#include <math.h>
#include <stdlib.h>

typedef struct label {
    int depth, devices, stages;
    double cost;
    int next;      // the label of the cut behind the stage; -1 at the last cut
    int to, shape; // the stage
    double time;
    int in_flight;
} label;

typedef SN_VEC(label) labels;

typedef struct search {
    sn_stage_solver *solver;
    double at_least, best;
    int *devices_before; // [cuts]
    double *cost_before; // [cuts] least cost of the units before
    labels kept, found;
    int *first; // [cuts + 1]: the labels of a cut are kept[first[cut] .. end[cut])
    int *end;
    double *fewest; // Fenwick tree over devices: least cost of the labels on at most so many
} search;

bool sn_stage_exhausted(const sn_stage_solver *s) {
    return s->problem->work_limit > 0 && s->work > s->problem->work_limit;
}

static double stage_cost(const sn_stage_problem *p, double time) {
    return p->objective == SN_STAGE_SYNCHRONOUS ? time : 1;
}

// The least objective of plans that cost at least so much and whose longest stage takes at_least or more.
static double value_bound(const search *x, double cost) {
    const sn_stage_problem *p = x->solver->problem;
    return sn_stage_objective_value(p->objective, (int)cost, cost, x->at_least, p->microbatches);
}

static void bound_cost_before(search *x) {
    const sn_stage_solver *s = x->solver;
    const sn_stage_problem *p = s->problem;
    for (int cut = 0; cut < p->cuts; ++cut) x->cost_before[cut] = cut == 0 ? 0 : INFINITY;
    for (int from = 0; from < s->last; ++from) {
        if (isinf(x->cost_before[from])) continue;
        for (int i = s->first_move[from]; i < s->first_move[from + 1]; ++i) {
            const sn_stage_move *move = &s->moves[i];
            const uint16_t *limit = s->limit + (size_t)move->kind * (size_t)p->shape_count;
            for (int shape = 0; shape < p->shape_count; ++shape) {
                if (limit[shape] == 0) continue;
                double cost = x->cost_before[from] + stage_cost(p, sn_stage_time(s, move->kind, shape, 1));
                if (cost < x->cost_before[move->to]) x->cost_before[move->to] = cost;
            }
        }
    }
}

static void extend(search *x, int from, const sn_stage_move *move, int shape) {
    sn_stage_solver *s = x->solver;
    const sn_stage_problem *p = s->problem;
    int limit = s->limit[(size_t)move->kind * (size_t)p->shape_count + (size_t)shape];
    int deepest = sn_stage_deepest_tail(s, shape, limit), weight = sn_stage_weight(s, shape);
    int devices = p->shapes[shape].data * p->shapes[shape].tensor, room = p->devices - x->devices_before[from];
    int same_until = 0;
    double time = 0;
    for (int i = x->first[move->to]; i < x->end[move->to]; ++i) {
        const label *tail = &x->kept.data[i];
        if (tail->depth > deepest) break; // labels are sorted by depth
        if (tail->devices + devices > room) continue;
        ++s->work;
        int in_flight = sn_stage_in_flight(s, shape, tail->depth);
        if (in_flight > same_until) {
            same_until = in_flight;
            time = p->time(p->context, move->kind, shape, in_flight, &same_until);
        }
        double cost = tail->cost + stage_cost(p, time);
        if (value_bound(x, cost + x->cost_before[from]) >= x->best) continue;
        sn_vec_push(&x->found, (label){tail->depth + weight, tail->devices + devices, tail->stages + 1, cost, i,
                                       move->to, shape, time, in_flight});
    }
}

static int by_depth(const void *left, const void *right) {
    const label *a = left, *b = right;
    if (a->depth != b->depth) return a->depth - b->depth;
    if (a->devices != b->devices) return a->devices - b->devices;
    return a->cost < b->cost ? -1 : a->cost > b->cost;
}

static double cheapest_within(const search *x, int devices) {
    double least = INFINITY;
    for (int i = devices; i > 0; i -= i & -i) least = fmin(least, x->fewest[i]);
    return least;
}

static void record(search *x, int devices, double cost) {
    for (int i = devices; i <= x->solver->problem->devices; i += i & -i) x->fewest[i] = fmin(x->fewest[i], cost);
}

static void keep_undominated(search *x, int from) {
    const sn_stage_problem *p = x->solver->problem;
    if (x->found.count > 0) qsort(x->found.data, x->found.count, sizeof *x->found.data, by_depth);
    for (int i = 0; i <= p->devices; ++i) x->fewest[i] = INFINITY;
    x->first[from] = (int)x->kept.count;
    for (size_t i = 0; i < x->found.count; ++i) {
        const label *candidate = &x->found.data[i];
        if (cheapest_within(x, candidate->devices) <= candidate->cost) continue;
        record(x, candidate->devices, candidate->cost);
        sn_vec_push(&x->kept, *candidate);
    }
    x->end[from] = (int)x->kept.count;
    x->found.count = 0;
}

static void backtrack(const search *x, const label *first, sn_stage_plan *plan) {
    plan->stages = sn_realloc(plan->stages, sizeof *plan->stages * (size_t)first->stages);
    plan->stage_count = 0;
    int from = 0;
    for (const label *l = first; l->next >= 0; l = &x->kept.data[l->next]) {
        plan->stages[plan->stage_count++] = (sn_stage){from, l->to, l->shape, l->in_flight, l->time};
        from = l->to;
    }
    sn_stage_plan_finish(x->solver, plan);
}

static bool take_cheapest(const search *x, sn_stage_plan *plan, double *cost) {
    const label *best = NULL;
    for (int i = x->first[0]; i < x->end[0]; ++i) {
        if (!best || x->kept.data[i].cost < best->cost) best = &x->kept.data[i];
    }
    if (!best) return false;
    *cost = best->cost;
    backtrack(x, best, plan);
    return true;
}

bool sn_stage_cheapest(sn_stage_solver *s, double at_least, double best, sn_stage_plan *plan, double *cost) {
    const sn_stage_problem *p = s->problem;
    size_t cuts = (size_t)p->cuts;
    search x = {.solver = s, .at_least = at_least, .best = best};
    x.devices_before = sn_alloc(sizeof(int) * cuts);
    x.cost_before = sn_alloc(sizeof(double) * cuts);
    x.first = sn_alloc(sizeof(int) * cuts);
    x.end = sn_alloc(sizeof(int) * cuts);
    x.fewest = sn_alloc(sizeof(double) * (size_t)(p->devices + 1));
    sn_stage_devices_before(s, x.devices_before);
    bound_cost_before(&x);
    sn_vec_push(&x.kept, (label){.next = -1});
    x.end[s->last] = 1;
    for (int from = s->last - 1; from >= 0 && !sn_stage_exhausted(s); --from) {
        for (int i = s->first_move[from]; i < s->first_move[from + 1]; ++i) {
            for (int shape = 0; shape < p->shape_count; ++shape) extend(&x, from, &s->moves[i], shape);
        }
        keep_undominated(&x, from);
    }
    bool found = !sn_stage_exhausted(s) && take_cheapest(&x, plan, cost);
    sn_vec_free(&x.kept);
    sn_vec_free(&x.found);
    sn_free(x.devices_before);
    sn_free(x.cost_before);
    sn_free(x.first);
    sn_free(x.end);
    sn_free(x.fewest);
    return found;
}
