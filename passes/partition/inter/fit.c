// Is there a plan whose stages all take at most T? With f[cut][depth] the fewest devices that run the units behind the
// cut, where depth is what their stages make the stage before them stash (their number, or the sum of their data
// degrees):
//
//     f[last][0] = 0,    f[cut][q + w] = min over stages (cut, to, shape) of devices(shape) + f[to][q]
//
// with w the shape's weight, for every q that leaves the stage within T. Time does not decrease with the number in
// flight, so these q are a prefix, and a row is updated by one vector operation "min with a shifted row plus a
// constant". Two observations keep it small. A stage of more devices and more weight than another that also stays
// within T only serves the tails too deep for the other. And a cell that leaves fewer devices than the units before the
// cut need (sn_stage_devices_before) is useless, which near the optimum leaves a narrow band of each row.
#include "passes/partition/inter/solver.h"

#include "base/bug.h"

enum { NONE = 0x8000, LANES = 16 };
typedef uint16_t lanes __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(2), may_alias));

typedef struct fit {
    sn_stage_solver *solver;
    size_t width;    // of a row
    uint16_t *row;   // [cuts][width] devices, at most NONE
    int *low, *high; // [cuts] the finite cells lie in low .. high; low > high when there are none
    int *before;     // [cuts] devices the units before need
} fit;

// target[i] = min(target[i], source[i] + add)
static void merge(uint16_t *target, const uint16_t *source, int count, uint16_t add) {
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes candidate = *(const lanes *)(source + i) + add, old = *(const lanes *)(target + i);
        lanes smaller = (lanes)(candidate < old);
        *(lanes *)(target + i) = (candidate & smaller) | (old & ~smaller);
    }
    for (; i < count; ++i) {
        uint16_t candidate = (uint16_t)(source[i] + add);
        if (candidate < target[i]) target[i] = candidate;
    }
}

// Tails of up to `until` are served by an earlier shape of `weight` and no more devices.
typedef struct served {
    int weight, until;
} served;

static void add_stages(fit *f, int from, const sn_stage_move *move) {
    const sn_stage_problem *p = f->solver->problem;
    const uint16_t *limit = f->solver->limit + (size_t)move->kind * (size_t)p->shape_count;
    const uint16_t *source = f->row + (size_t)move->to * f->width;
    uint16_t *target = f->row + (size_t)from * f->width;
    int room = p->devices - f->before[from];
    served done[64];
    int done_count = 0;
    for (int k = 0; k < p->shape_count; ++k) {
        int shape = f->solver->order[k], weight = sn_stage_weight(f->solver, shape);
        int devices = p->shapes[shape].data * p->shapes[shape].tensor;
        if (devices > room) break;
        if (limit[shape] == 0) continue;
        int until = sn_stage_deepest_tail(f->solver, shape, limit[shape]), low = f->low[move->to];
        if (until > f->high[move->to]) until = f->high[move->to];
        for (int i = 0; i < done_count; ++i) {
            if (done[i].weight <= weight && done[i].until >= low) low = done[i].until + 1;
        }
        if (low > until) continue;
        merge(target + low + weight, source + low, until - low + 1, (uint16_t)devices);
        if (low + weight < f->low[from]) f->low[from] = low + weight;
        if (until + weight > f->high[from]) f->high[from] = until + weight;
        if (done_count < 64) done[done_count++] = (served){weight, until};
    }
}

// Drops the cells that need more devices than the units before the cut leave.
static void prune(fit *f, int cut) {
    uint16_t *row = f->row + (size_t)cut * f->width;
    int room = f->solver->problem->devices - f->before[cut];
    int low = f->low[cut], high = f->high[cut];
    f->low[cut] = (int)f->width;
    f->high[cut] = -1;
    int fewest = NONE;
    for (int q = low; q <= high; ++q) {
        if (row[q] > room || row[q] >= fewest) { // a shallower tail on as few devices serves as well
            row[q] = NONE;
            continue;
        }
        fewest = row[q];
        if (q < f->low[cut]) f->low[cut] = q;
        f->high[cut] = q;
    }
}

static sn_stage backtrack_stage(const fit *f, int cut, int depth, int *tail_depth) {
    const sn_stage_solver *s = f->solver;
    const sn_stage_problem *p = s->problem;
    int devices = f->row[(size_t)cut * f->width + (size_t)depth];
    for (int i = s->first_move[cut]; i < s->first_move[cut + 1]; ++i) {
        const sn_stage_move *move = &s->moves[i];
        for (int shape = 0; shape < p->shape_count; ++shape) {
            int limit = s->limit[(size_t)move->kind * (size_t)p->shape_count + (size_t)shape];
            int tail = depth - sn_stage_weight(s, shape);
            if (tail < 0 || tail > sn_stage_deepest_tail(s, shape, limit)) continue;
            int sum =
                f->row[(size_t)move->to * f->width + (size_t)tail] + p->shapes[shape].data * p->shapes[shape].tensor;
            if (sum != devices) continue;
            int in_flight = sn_stage_in_flight(s, shape, tail);
            *tail_depth = tail;
            return (sn_stage){cut, move->to, shape, in_flight, sn_stage_time(s, move->kind, shape, in_flight)};
        }
    }
    SN_BUG("a reached state has no way there");
}

static void backtrack(const fit *f, int depth, sn_stage_plan *plan) {
    SN_VEC(sn_stage) stages = {0};
    for (int cut = 0; cut < f->solver->last;) {
        sn_stage stage = backtrack_stage(f, cut, depth, &depth);
        sn_vec_push(&stages, stage);
        cut = stage.to;
    }
    sn_free(plan->stages);
    plan->stages = stages.data;
    plan->stage_count = (int)stages.count;
    sn_stage_plan_finish(f->solver, plan);
}

bool sn_stage_fit(sn_stage_solver *s, sn_stage_plan *plan) {
    size_t cuts = (size_t)s->problem->cuts;
    fit f = {.solver = s, .width = (size_t)s->depth_max + 1};
    f.before = sn_alloc(sizeof(int) * cuts);
    sn_stage_devices_before(s, f.before);
    bool fits = f.before[s->last] <= s->problem->devices;
    if (fits) {
        f.row = sn_alloc(sizeof *f.row * cuts * f.width);
        for (size_t i = 0; i < cuts * f.width; ++i) f.row[i] = NONE;
        f.low = sn_alloc(sizeof(int) * cuts);
        f.high = sn_alloc(sizeof(int) * cuts);
        f.row[(size_t)s->last * f.width] = 0;
        for (int cut = s->last - 1; cut >= 0; --cut) {
            f.low[cut] = (int)f.width;
            f.high[cut] = -1;
            if (f.before[cut] > s->problem->devices) continue;
            for (int i = s->first_move[cut]; i < s->first_move[cut + 1]; ++i) {
                if (f.low[s->moves[i].to] <= f.high[s->moves[i].to]) add_stages(&f, cut, &s->moves[i]);
            }
            prune(&f, cut);
        }
        fits = f.low[0] <= f.high[0];
        if (fits) backtrack(&f, f.low[0], plan);
    }
    sn_free(f.row);
    sn_free(f.low);
    sn_free(f.high);
    sn_free(f.before);
    return fits;
}
