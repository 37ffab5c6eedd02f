#include "passes/partition/inter/solver.h"

#include "base/bug.h"

#include <float.h>
#include <math.h>

static void collect_moves(sn_stage_solver *s) {
    const sn_stage_problem *p = s->problem;
    SN_VEC(sn_stage_move) moves = {0};
    s->first_move = sn_alloc(sizeof(int) * (size_t)(p->cuts + 1));
    for (int from = 0; from < p->cuts; ++from) {
        s->first_move[from] = (int)moves.count;
        for (int to = from + 1; to < p->cuts; ++to) {
            int pair = from * p->cuts + to, kind = p->kind ? p->kind[pair] : pair;
            if (kind >= 0) sn_vec_push(&moves, (sn_stage_move){to, kind});
        }
    }
    s->first_move[p->cuts] = (int)moves.count;
    s->moves = moves.data;
}

// The kinds that occur, once each.
static void collect_kinds(sn_stage_solver *s, size_t kinds) {
    bool *seen = sn_alloc(kinds + 1);
    s->kinds = sn_alloc(sizeof(int) * (kinds + 1));
    for (int i = 0; i < s->first_move[s->last]; ++i) {
        int kind = s->moves[i].kind;
        if (!seen[kind]) s->kinds[s->kind_count++] = kind;
        seen[kind] = true;
    }
    sn_free(seen);
}

static int shape_devices(const sn_stage_shape *shape) {
    return shape->data * shape->tensor;
}

static void sort_shapes(sn_stage_solver *s) {
    const sn_stage_problem *p = s->problem;
    s->order = sn_alloc(sizeof(int) * (size_t)(p->shape_count + 1));
    for (int i = 0; i < p->shape_count; ++i) {
        int at = i;
        const sn_stage_shape *shape = &p->shapes[i];
        for (; at > 0; --at) {
            const sn_stage_shape *before = &p->shapes[s->order[at - 1]];
            int more = shape_devices(before) - shape_devices(shape);
            if (more < 0 || (more == 0 && before->data <= shape->data)) break;
            s->order[at] = s->order[at - 1];
        }
        s->order[at] = i;
    }
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

void sn_stage_solver_init(sn_stage_solver *s, const sn_stage_problem *p) {
    SN_CHECK(p->cuts >= 2 && p->devices <= SN_STAGE_MAX_DEVICES &&
             (p->microbatches > 0 || p->objective == SN_STAGE_STEADY));
    *s = (sn_stage_solver){.problem = p, .last = p->cuts - 1, .bound_low = -1, .bound_high = INFINITY};
    s->depth_max = p->stash == SN_STAGE_STASH_STAGES ? smaller(p->cuts - 1, p->devices) : p->devices;
    if (p->max_depth > 0) s->depth_max = smaller(s->depth_max, p->max_depth);
    s->in_flight_cap = p->microbatches > 0 ? smaller(s->depth_max, p->microbatches) : s->depth_max;
    collect_moves(s);
    sort_shapes(s);
    size_t kinds = (size_t)(p->kind ? p->kinds : p->cuts * p->cuts);
    collect_kinds(s, kinds);
    size_t cells = kinds * (size_t)p->shape_count + 1;
    s->limit = sn_alloc(sizeof *s->limit * cells);
    s->limit_low = sn_alloc(sizeof *s->limit_low * cells);
    s->limit_high = sn_alloc(sizeof *s->limit_high * cells);
    for (size_t i = 0; i < cells; ++i) s->limit_high[i] = (uint16_t)s->in_flight_cap;
}

void sn_stage_solver_free(sn_stage_solver *s) {
    sn_free(s->moves);
    sn_free(s->first_move);
    sn_free(s->order);
    sn_free(s->kinds);
    sn_free(s->limit);
    sn_free(s->limit_low);
    sn_free(s->limit_high);
}

// The largest count in (low, high] that takes at most `bound`, or low.
static int limit_between(const sn_stage_solver *s, int kind, int shape, int low, int high) {
    const sn_stage_problem *p = s->problem;
    while (low < high) {
        int middle = low + (high - low + 1) / 2, until = middle;
        double time = p->time(p->context, kind, shape, middle, &until);
        if (time <= s->bound) {
            low = smaller(until, high);
        } else {
            high = middle - 1;
        }
    }
    return low;
}

void sn_stage_solver_bound(sn_stage_solver *s, double bound) {
    const sn_stage_problem *p = s->problem;
    s->bound = fmin(bound, DBL_MAX); // no bound lets an infinite time pass
    bool low = bound >= s->bound_low, high = bound <= s->bound_high;
    for (int i = 0; i < s->kind_count; ++i) {
        size_t row = (size_t)s->kinds[i] * (size_t)p->shape_count;
        for (int k = 0; k < p->shape_count; ++k) {
            size_t cell = row + (size_t)k;
            int from = low ? s->limit_low[cell] : 0, to = high ? s->limit_high[cell] : s->in_flight_cap;
            s->limit[cell] = (uint16_t)limit_between(s, s->kinds[i], k, from, to);
        }
    }
}

void sn_stage_solver_narrow(sn_stage_solver *s, bool reached) {
    uint16_t **side = reached ? &s->limit_high : &s->limit_low;
    *(reached ? &s->bound_high : &s->bound_low) = s->bound;
    uint16_t *spare = *side;
    *side = s->limit;
    s->limit = spare;
}

int sn_stage_weight(const sn_stage_solver *s, int shape) {
    return s->problem->stash == SN_STAGE_STASH_REPLICAS ? s->problem->shapes[shape].data : 1;
}

int sn_stage_in_flight(const sn_stage_solver *s, int shape, int depth_after) {
    int weight = sn_stage_weight(s, shape), count = (depth_after + weight + weight - 1) / weight;
    return smaller(count, s->in_flight_cap);
}

int sn_stage_deepest_tail(const sn_stage_solver *s, int shape, int limit) {
    int weight = sn_stage_weight(s, shape);
    if (limit == 0) return -1;
    if (limit >= s->in_flight_cap) return s->depth_max - weight;
    return smaller((limit - 1) * weight, s->depth_max - weight);
}

double sn_stage_time(const sn_stage_solver *s, int kind, int shape, int in_flight) {
    int until = in_flight;
    return s->problem->time(s->problem->context, kind, shape, in_flight, &until);
}

void sn_stage_devices_before(sn_stage_solver *s, int *devices) {
    const sn_stage_problem *p = s->problem;
    devices[0] = 0;
    for (int cut = 1; cut < p->cuts; ++cut) devices[cut] = p->devices + 1;
    for (int from = 0; from < s->last; ++from) {
        if (devices[from] > p->devices) continue;
        for (int i = s->first_move[from]; i < s->first_move[from + 1]; ++i) {
            const uint16_t *limit = s->limit + (size_t)s->moves[i].kind * (size_t)p->shape_count;
            for (int k = 0; k < p->shape_count; ++k) {
                int shape = s->order[k];
                if (limit[shape] == 0) continue;
                int sum = devices[from] + shape_devices(&p->shapes[shape]);
                if (sum < devices[s->moves[i].to]) devices[s->moves[i].to] = sum;
                break; // the shapes that follow take no fewer
            }
        }
    }
}

void sn_stage_plan_finish(const sn_stage_solver *s, sn_stage_plan *plan) {
    const sn_stage_problem *p = s->problem;
    double sum = 0;
    plan->feasible = true;
    plan->bottleneck = 0;
    plan->devices = plan->replicas = 0;
    for (int i = 0; i < plan->stage_count; ++i) {
        const sn_stage *stage = &plan->stages[i];
        sum += stage->time;
        if (stage->time > plan->bottleneck) plan->bottleneck = stage->time;
        plan->devices += shape_devices(&p->shapes[stage->shape]);
        plan->replicas += p->shapes[stage->shape].data;
    }
    plan->objective = sn_stage_objective_value(p->objective, plan->stage_count, sum, plan->bottleneck, p->microbatches);
}
