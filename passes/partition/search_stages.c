// What a stage costs, and the cut into stages. For a bound T on the longest stage, f[s][i] is the least sum of times of
// s stages that cover the blocks before cut i, each at most T: one dynamic program, asked by the search over T that all
// stage problems share (inter/bottleneck.h). Unlike inter/stages.h, where a stage picks a shape and its memory follows
// from how many stages come behind it, here a stage's place is known: its devices, their pace and memory, and what the
// schedule makes it hold, which need not fall from stage to stage.
#include "passes/partition/search_stages.h"

#include "passes/partition/inter/bottleneck.h"
#include "passes/schedule/pipeline_order.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct totals {
    double forward, backward_input, backward_weight, communication, input;
    double again[SN_REMAT_COUNT];
    sn_block_activations activations[SN_REMAT_COUNT];
    double parameters, gradients, optimizer, working, unkept;
} totals;

static void add_class(totals *t, const sn_block_cost *c, int n) {
    t->forward += n * c->forward;
    t->backward_input += n * c->backward_input;
    t->backward_weight += n * c->backward_weight;
    t->communication += n * c->communication;
    for (int r = 0; r < SN_REMAT_COUNT; r++) {
        t->again[r] += n * c->again[r];
        t->activations[r].kept += n * c->activations[r].kept;
        t->activations[r].late += n * c->activations[r].late;
        t->activations[r].waiting += n * c->activations[r].waiting;
    }
    t->parameters += n * c->parameters;
    t->gradients += n * c->gradients;
    t->optimizer += n * c->optimizer;
    t->working = fmax(t->working, c->working);
    t->unkept = fmax(t->unkept, c->activations[SN_REMAT_NONE].kept);
}

static totals sum_blocks(const sn_stage_context *x, int first, int end) {
    totals t = {0};
    int n = x->blocks->n_classes;
    for (int k = 0; k < n; k++) {
        int count = x->before[end * n + k] - x->before[first * n + k];
        if (count) add_class(&t, &x->costs[k], count);
    }
    t.input = x->costs[x->blocks->blocks[first].kind].input;
    return t;
}

double sn_candidate_in_flight(const sn_candidate *c, int index) {
    return sn_pipeline_in_flight(c->schedule, c->pp, c->chunks, c->pp, c->microbatches, index % c->pp);
}

double sn_candidate_activations(const sn_candidate *c, int index, const sn_block_activations *bytes) {
    int rank = index % c->pp;
    double held = sn_candidate_in_flight(c, index);
    if (c->schedule != SN_PIPELINE_ZERO_BUBBLE) return held * bytes->kept;
    // Its first backward passes run where 1F1B has the whole ones.
    double early = sn_pipeline_in_flight(SN_PIPELINE_1F1B, c->pp, 1, c->pp, c->microbatches, rank);
    double waiting = sn_pipeline_waiting(c->schedule, c->microbatches, rank);
    return early * bytes->kept + (held - early) * bytes->late + waiting * bytes->waiting;
}

static sn_memory stage_memory(const sn_stage_context *x, const totals *t, sn_remat remat, int index) {
    const sn_candidate *c = x->candidate;
    sn_memory m = {.parameters = t->parameters, .gradients = t->gradients, .optimizer = t->optimizer};
    if (c->zero >= 1) m.optimizer /= c->dp;
    if (c->zero >= 2) m.gradients /= c->dp;
    if (c->zero >= 3) m.parameters /= c->dp;
    m.activations = sn_candidate_activations(c, index, &t->activations[remat]);
    m.working = t->working + (remat == SN_REMAT_NONE ? 0 : t->unkept);
    m.buffers = c->pp > 1 ? 2 * t->input : 0;
    // Whole parameters of the block at work and of the next, and one block's gradients before they are scattered.
    if (c->zero >= 3) m.buffers += 2 * t->parameters / fmax(1, x->blocks->n_blocks / (double)x->stages);
    return m;
}

static void fill_report(const sn_stage_context *x, int index, int first, int end, const totals *t, sn_remat remat,
                        sn_stage_report *out) {
    double held = sn_candidate_in_flight(x->candidate, index), speed = x->speed ? x->speed[index] : 1;
    double message = index ? x->message : 0;
    *out = (sn_stage_report){.first = first, .end = end, .remat = remat, .in_flight = held};
    out->forward = t->forward * speed + message + x->gather * t->parameters;
    out->again = t->again[remat] * speed;
    out->backward_input = t->backward_input * speed + out->again + message + x->gather * t->parameters;
    out->backward_weight = t->backward_weight * speed + x->scatter * t->gradients;
    out->communication =
        t->communication * speed + 2 * message + 2 * x->gather * t->parameters + x->scatter * t->gradients;
    out->memory = stage_memory(x, t, remat, index);
    double now = sn_memory_total(&out->memory), least = now;
    for (int r = 0; r < SN_REMAT_COUNT; r++) {
        sn_memory other = stage_memory(x, t, (sn_remat)r, index);
        least = fmin(least, sn_memory_total(&other));
        if (r == SN_REMAT_NONE) out->saved = sn_memory_total(&other) - now;
    }
    out->could_save = now - least;
}

// Seconds of a stage with these sums; INFINITY, and the rematerialisation of least memory, when nothing fits.
static double cost_of(const sn_stage_context *x, int index, const totals *t, sn_remat *chosen) {
    double speed = x->speed ? x->speed[index] : 1;
    double limit = (x->limits ? x->limits[index] : x->limit) / x->candidate->chunks;
    double best = INFINITY, least = INFINITY;
    int first = x->remat_is_fixed ? (int)x->remat : 0, end = x->remat_is_fixed ? first + 1 : SN_REMAT_COUNT;
    for (int r = first; r < end && !isfinite(best); r++) {
        // In the order of the enumeration each saves more and takes longer.
        sn_memory memory = stage_memory(x, t, (sn_remat)r, index);
        double bytes = sn_memory_total(&memory);
        if (bytes < least && !isfinite(best)) least = bytes, *chosen = (sn_remat)r;
        if (bytes <= limit) best = t->again[r], *chosen = (sn_remat)r;
    }
    if (!isfinite(best)) return INFINITY;
    double seconds = (t->forward + t->backward_input + t->backward_weight + best) * speed;
    return seconds + (index ? 2 * x->message : 0) + 2 * x->gather * t->parameters + x->scatter * t->gradients;
}

double sn_stage_cost(const sn_stage_context *x, int index, int first, int end, sn_stage_report *out) {
    totals t = sum_blocks(x, first, end);
    sn_remat chosen = SN_REMAT_NONE;
    double seconds = cost_of(x, index, &t, &chosen);
    if (out) fill_report(x, index, first, end, &t, chosen, out);
    return seconds;
}

double sn_stage_with(const sn_stage_context *x, int index, int first, int end, sn_remat remat, sn_stage_report *out) {
    totals t = sum_blocks(x, first, end);
    fill_report(x, index, first, end, &t, remat, out);
    return sn_memory_total(&out->memory);
}

static double block_seconds(const sn_stage_context *x, int block) {
    const sn_block_cost *c = &x->costs[x->blocks->blocks[block].kind];
    return c->forward + c->backward_input + c->backward_weight;
}

void sn_stages_even(const sn_stage_context *x, int *cut) {
    int n = x->blocks->n_blocks;
    double total = 0, done = 0, weights = 0, given = 0;
    for (int b = 0; b < n; b++) total += block_seconds(x, b);
    for (int s = 0; s < x->stages; s++) weights += x->speed ? 1 / x->speed[s] : 1;
    cut[0] = 0;
    for (int s = 0, b = 0; s < x->stages; s++) {
        given += x->speed ? 1 / x->speed[s] : 1;
        double goal = total * given / weights;
        int least = cut[s] + 1, most = n - (x->stages - 1 - s);
        while (b < most && (b < least || done + block_seconds(x, b) / 2 <= goal)) done += block_seconds(x, b++);
        cut[s + 1] = s == x->stages - 1 ? n : b;
    }
}

typedef struct solver {
    const sn_stage_context *x;
    int n, stages;
    double *sum; // [stages + 1][n + 1]
    int *from;
    double bound, weight, slowest; // slowest: a block's seconds over those on the fastest stage
    int *trial, *cut;              // [stages + 1]: of the plan found last; of the best
    long *work;
} solver;

// Stages `index` that begin at cut `first`; whether there is one. Times grow with the stage's end, so the loop ends
// with the first stage that is too long. What does not fit in memory is too long as well: more blocks take no less.
static bool extend(solver *v, int index, int first) {
    const sn_stage_context *x = v->x;
    int width = v->n + 1, most = v->n - (v->stages - 1 - index);
    double before = v->sum[index * width + first];
    bool any = false, last = index == v->stages - 1;
    totals t = {.input = x->costs[x->blocks->blocks[first].kind].input};
    for (int end = first + 1; end <= most; end++) {
        sn_remat remat;
        add_class(&t, &x->costs[x->blocks->blocks[end - 1].kind], 1);
        if (t.forward + t.backward_input + t.backward_weight > v->bound * v->slowest) break;
        double seconds = cost_of(x, index, &t, &remat);
        (*v->work)++;
        if (!(seconds <= v->bound)) break;
        any = true;
        if (last && end < v->n) continue;
        double *best = &v->sum[(index + 1) * width + end];
        if (before + seconds >= *best) continue;
        *best = before + seconds;
        v->from[(index + 1) * width + end] = first;
    }
    return any;
}

static bool solve_bound(solver *v) {
    int n = v->n, width = n + 1;
    for (int i = 0; i < (v->stages + 1) * width; i++) v->sum[i] = INFINITY;
    v->sum[0] = 0;
    for (int s = 0; s < v->stages; s++) {
        bool any = false;
        for (int i = s; i < n - (v->stages - 1 - s); i++)
            if (isfinite(v->sum[s * width + i])) any |= extend(v, s, i);
        if (!any) return false;
    }
    return isfinite(v->sum[v->stages * width + n]);
}

// Seconds of a stage to the last bit as `extend` adds them up: a plan within a bound is to be seen as one.
static double extended_seconds(const solver *v, int index, int first, int end) {
    const sn_stage_context *x = v->x;
    totals t = {0};
    sn_remat remat;
    t.input = x->costs[x->blocks->blocks[first].kind].input;
    for (int b = first; b < end; b++) add_class(&t, &x->costs[x->blocks->blocks[b].kind], 1);
    return cost_of(x, index, &t, &remat);
}

// The plan of the least sum within the bound.
static bool within(void *problem, double bound, sn_bottleneck_plan *out) {
    solver *v = problem;
    int *cut = v->trial;
    v->bound = fmin(bound, DBL_MAX); // no bound lets an infinite time pass
    if (!solve_bound(v)) return false;
    double longest = 0, sum = v->sum[v->stages * (v->n + 1) + v->n];
    cut[v->stages] = v->n;
    for (int s = v->stages; s > 0; s--) cut[s - 1] = v->from[s * (v->n + 1) + cut[s]];
    for (int s = 0; s < v->stages; s++) longest = fmax(longest, extended_seconds(v, s, cut[s], cut[s + 1]));
    *out = (sn_bottleneck_plan){longest, sum, sn_stage_objective_of(SN_STAGE_SYNCHRONOUS, v->weight, sum, longest)};
    return true;
}

static bool cheapest_within(void *problem, double bound, double at_least, double best, sn_bottleneck_plan *out) {
    (void)at_least, (void)best;
    return within(problem, bound, out);
}

static void keep_trial(void *problem) {
    solver *v = problem;
    memcpy(v->cut, v->trial, (size_t)(v->stages + 1) * sizeof *v->cut);
}

static double least_bound(const solver *v) {
    double total = 0, longest = 0;
    for (int b = 0; b < v->n; b++) {
        double seconds = block_seconds(v->x, b);
        total += seconds;
        longest = fmax(longest, seconds);
    }
    return fmax(longest, total / v->stages) / v->slowest;
}

// Without a limit of memory nothing is computed again and the sum is what it is: stages as long as a bound allows, one
// after the other, and bisection on the bound. False when the bound does not suffice.
static bool fill_stages(const sn_stage_context *x, double bound, int *cut, long *work) {
    int n = x->blocks->n_blocks;
    cut[0] = 0;
    for (int s = 0; s < x->stages; s++) {
        int most = n - (x->stages - 1 - s), end = cut[s];
        totals t = {0};
        for (sn_remat remat; end < most; end++, (*work)++) {
            add_class(&t, &x->costs[x->blocks->blocks[end].kind], 1);
            if (cost_of(x, s, &t, &remat) > bound) break;
        }
        if (end == cut[s]) return false;
        cut[s + 1] = end;
    }
    return cut[x->stages] == n;
}

static bool balance(const sn_stage_context *x, double low, int *cut, long *work) {
    double high = 2 * low;
    while (!fill_stages(x, high, cut, work)) {
        low = high;
        if (!isfinite(high *= 2)) return false;
    }
    for (int round = 0; round < 50 && high - low > 1e-9 * high; round++) {
        double middle = 0.5 * (low + high);
        *(fill_stages(x, middle, cut, work) ? &high : &low) = middle;
    }
    return fill_stages(x, high, cut, work);
}

bool sn_stages_exact(const sn_stage_context *x, double weight, int *cut, long *work) {
    solver v = {.x = x, .n = x->blocks->n_blocks, .stages = x->stages, .weight = weight, .cut = cut, .work = work};
    size_t cells = (size_t)(v.stages + 1) * (size_t)(v.n + 1);
    if (v.stages > v.n) return false;
    v.slowest = 1 + 1e-9;
    for (int i = 0; x->speed && i < v.stages; i++) v.slowest = fmax(v.slowest, (1 + 1e-9) / x->speed[i]);
    if (!x->limits && !isfinite(x->limit)) return balance(x, least_bound(&v), cut, work);
    v.sum = sn_alloc(cells * sizeof *v.sum);
    v.from = sn_alloc(cells * sizeof *v.from);
    v.trial = sn_alloc((size_t)(v.stages + 1) * sizeof *v.trial);
    double least_sum = 0;
    for (int b = 0; b < v.n; b++) least_sum += block_seconds(x, b) / v.slowest;
    sn_bottleneck_answer answer = sn_bottleneck_solve(&(sn_bottleneck){.problem = &v,
                                                                       .objective = SN_STAGE_SYNCHRONOUS,
                                                                       .weight = weight,
                                                                       .least = least_bound(&v),
                                                                       .least_cost = least_sum,
                                                                       .fit = within,
                                                                       .cheapest = cheapest_within,
                                                                       .keep = keep_trial});
    sn_free(v.sum);
    sn_free(v.from);
    sn_free(v.trial);
    return answer.feasible;
}
