// Labels from the first operator to the last: for each way of an operator, what the operators so far may cost. A label
// is dropped when another one of the same way is no worse in time, in both sums and in both buffers, or when the
// cheapest rest does not fit in the bound. The dominance looks at every part of the memory: pruning by total memory and
// time alone loses optimal plans, because two equal totals grow differently.
#include "passes/partition/inter/chain.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <math.h>
#include <stdlib.h>

typedef struct label {
    double time;
    double with_activations, with_optimizer; // resident plus one of the two sums
    double buffers[2];                       // the largest first
    int way, before;                         // `before`: label of the operator before
} label;

typedef struct chain {
    const sn_chain_problem *p;
    SN_VEC(label) labels;
    int *first;                                // [operators + 1] labels of an operator
    double *rest_activations, *rest_optimizer; // [operators + 1] least sums of the operators from here on
} chain;

static double with_buffers(double activations, double optimizer, const double *buffers) {
    return fmax(activations, optimizer) + buffers[0] + buffers[1];
}

static void bound_rest(chain *c) {
    for (int i = c->p->operators - 1; i >= 0; --i) {
        double activations = INFINITY, optimizer = INFINITY;
        for (int w = c->p->first_way[i]; w < c->p->first_way[i + 1]; ++w) {
            activations = fmin(activations, c->p->ways[w].resident + c->p->ways[w].activations);
            optimizer = fmin(optimizer, c->p->ways[w].resident + c->p->ways[w].optimizer);
        }
        c->rest_activations[i] = c->rest_activations[i + 1] + activations;
        c->rest_optimizer[i] = c->rest_optimizer[i + 1] + optimizer;
    }
}

static label extend(const chain *c, const label *from, int operator, int way) {
    const sn_chain_way *w = &c->p->ways[c->p->first_way[operator] + way];
    label next = {.way = way, .before = from ? (int)(from - c->labels.data) : -1};
    if (from)
        next = (label){from->time + w->move[from->way],
                       from->with_activations,
                       from->with_optimizer,
                       {from->buffers[0], from->buffers[1]},
                       way,
                       next.before};
    next.time += w->time;
    next.with_activations += w->resident + w->activations;
    next.with_optimizer += w->resident + w->optimizer;
    double larger = fmax(w->buffer, next.buffers[0]), smaller = fmin(w->buffer, next.buffers[0]);
    next.buffers[0] = larger;
    next.buffers[1] = fmax(smaller, next.buffers[1]);
    return next;
}

static bool may_fit(const chain *c, const label *l, int operator) {
    return with_buffers(l->with_activations + c->rest_activations[operator + 1],
                        l->with_optimizer + c->rest_optimizer[operator + 1], l->buffers) <= c->p->bound;
}

static bool no_worse(const label *a, const label *b) {
    return a->time <= b->time && a->with_activations <= b->with_activations && a->with_optimizer <= b->with_optimizer &&
           a->buffers[0] <= b->buffers[0] && a->buffers[1] <= b->buffers[1];
}

static int by_time(const void *left, const void *right) {
    const label *a = left, *b = right;
    return a->time < b->time ? -1 : a->time > b->time;
}

static void reach(chain *c, int operator, int way) {
    SN_VEC(label) found = {0};
    int start = operator> 0 ? c->first[operator- 1] : 0, end = operator> 0 ? c->first[operator] : 1;
    for (int i = start; i < end; ++i) {
        label next = extend(c, operator> 0 ? &c->labels.data[i] : NULL, operator, way);
        if (may_fit(c, &next, operator)) sn_vec_push(&found, next);
    }
    if (found.count > 0) qsort(found.data, found.count, sizeof *found.data, by_time);
    size_t first = c->labels.count;
    for (size_t i = 0; i < found.count; ++i) {
        bool dominated = false;
        for (size_t k = first; k < c->labels.count && !dominated; ++k)
            dominated = no_worse(&c->labels.data[k], &found.data[i]);
        if (!dominated) sn_vec_push(&c->labels, found.data[i]);
    }
    sn_vec_free(&found);
}

sn_chain_plan sn_chain_solve(const sn_chain_problem *p) {
    size_t count = (size_t)p->operators;
    chain c = {.p = p, .first = sn_alloc(sizeof(int) * (count + 1))};
    c.rest_activations = sn_alloc(sizeof(double) * (count + 1));
    c.rest_optimizer = sn_alloc(sizeof(double) * (count + 1));
    bound_rest(&c);
    for (int i = 0; i < p->operators; ++i) {
        c.first[i] = (int)c.labels.count;
        for (int way = 0; way < p->first_way[i + 1] - p->first_way[i]; ++way) reach(&c, i, way);
    }
    sn_chain_plan plan = {.way = sn_alloc(sizeof(int) * (count + 1)), .time = INFINITY, .lower_bound = INFINITY};
    int best = -1;
    for (int i = count > 0 ? c.first[count - 1] : 0; i < (int)c.labels.count; ++i) {
        if (c.labels.data[i].time < plan.time) best = i;
        plan.time = fmin(plan.time, c.labels.data[i].time);
    }
    plan.feasible = best >= 0;
    plan.lower_bound = plan.time;
    for (int i = p->operators - 1; i >= 0 && best >= 0; --i, best = c.labels.data[best].before)
        plan.way[i] = c.labels.data[best].way;
    sn_vec_free(&c.labels);
    sn_free(c.first);
    sn_free(c.rest_activations);
    sn_free(c.rest_optimizer);
    return plan;
}

void sn_chain_plan_free(sn_chain_plan *plan) {
    sn_free(plan->way);
    *plan = (sn_chain_plan){0};
}
