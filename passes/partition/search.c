// Every outline (axis sizes, micro-batch, schedule, chunks, ZeRO, layout between blocks, order of the axes) is priced
// with an even cut of the blocks, unless a bound that no cut can beat shows that it is worse than what is known. The
// outlines are then taken in the order of their bounds and given exact stages until the next bound is no better than
// the best step found: the best candidate is optimal for the cost model, and what was left out says by how much.
#include "passes/partition/search.h"

#include "passes/partition/search_stages.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_RUNNERS = 6,
    MOST_FIRST = 8,
    MOST_SOLVED = 24,
    MOST_TENSOR = 64,
    MOST_CONTEXT = 16,
    MOST_MICRO = 64,
    MOST_CHUNKS = 16
};

struct sn_search {
    sn_search_request request;
    sn_arena *arena;
    sn_cost_model model; // of the slowest kind of device
    sn_evaluator *evaluator;
    int *before; // see sn_stage_context
    int64_t devices;
    double *speed, *limits; // of each node kind, against the slowest
    bool uneven;
};

// One run: what was found so far.
typedef struct run {
    sn_search *search;
    double limit_scale;
    double best; // step of the best feasible estimate
    double best_excess;
    sn_candidate closest;      // to fitting
    SN_VEC(sn_candidate) kept; // estimates worth an exact look, and the best of each property
    SN_VEC(sn_alternative) alternatives;
    double dropped_bound; // least bound of what was not solved
    long candidates, solved;
} run;

const char *sn_objective_name(sn_objective objective) {
    static const char *const names[SN_OBJECTIVE_COUNT] = {"step", "steady", "filled"};
    return names[objective];
}

sn_evaluator *sn_search_evaluator(sn_search *search) {
    return search->evaluator;
}

// Stages run at the pace of their slowest device: blocks are costed for the slowest kind, and a stage on others is
// faster by the ratio of their peaks on the element type of the contractions.
static double pace(const sn_device *device) {
    return device->flops[SN_RATE_16] > 0 ? device->flops[SN_RATE_16] : device->flops[SN_RATE_F32];
}

static void read_cluster(sn_search *s) {
    const sn_cluster *cluster = s->request.cluster;
    const sn_device *slowest = cluster->nodes[0].device;
    for (int k = 0; k < cluster->n_kinds; k++)
        if (pace(cluster->nodes[k].device) < pace(slowest)) slowest = cluster->nodes[k].device;
    s->model = (sn_cost_model){.device = slowest, .plugins = s->request.plugins, .diags = s->request.diags};
    s->devices = sn_cluster_devices(cluster);
    s->uneven = !sn_cluster_is_uniform(cluster);
}

sn_search *sn_search_new(const sn_search_request *request, sn_arena *arena) {
    sn_search *s = SN_NEW(arena, sn_search);
    s->request = *request;
    s->arena = arena;
    read_cluster(s);
    const sn_blocks *blocks = request->blocks;
    s->evaluator = sn_evaluator_new(blocks, request->cluster, &s->model);
    s->before = SN_NEW_N(arena, int, (blocks->n_blocks + 1) * blocks->n_classes + 1);
    for (int b = 0; b < blocks->n_blocks; b++) {
        int *next = s->before + (b + 1) * blocks->n_classes;
        memcpy(next, next - blocks->n_classes, (size_t)blocks->n_classes * sizeof *next);
        next[blocks->blocks[b].kind]++;
    }
    return s;
}

void sn_search_free(sn_search *search) {
    sn_evaluator_free(search->evaluator);
}

// Ranks of the axes: tp innermost, then cp; pp outermost, or dp.
static int64_t stride_of_data(const sn_candidate *c) {
    return (int64_t)c->setting.tp * c->setting.cp * (c->data_outside ? c->pp : 1);
}

static int64_t stride_of_pipeline(const sn_candidate *c) {
    return (int64_t)c->setting.tp * c->setting.cp * (c->data_outside ? 1 : c->dp);
}

static double collective(const sn_search *s, sn_op_kind kind, double bytes, const sn_group *group) {
    return group->ranks > 1 ? sn_cost_collective(&s->model, kind, bytes, group) : 0;
}

// The devices of a stage: with pp outermost a block of ranks, else some of every group.
static void pace_stages(const sn_search *s, const sn_candidate *c, double scale, double *speed, double *limits) {
    const sn_cluster *cluster = s->request.cluster;
    int64_t per_stage = s->devices / c->pp;
    for (int i = 0; i < c->pp * c->chunks; i++) {
        double slowest = INFINITY;
        limits[i] = INFINITY;
        int64_t first = c->data_outside ? 0 : (i % c->pp) * per_stage, begin = 0;
        int64_t end = c->data_outside ? s->devices : first + per_stage;
        for (int k = 0; k < cluster->n_kinds; k++) {
            int64_t after = begin + cluster->nodes[k].count * cluster->nodes[k].devices;
            if (begin < end && after > first) {
                slowest = fmin(slowest, pace(cluster->nodes[k].device));
                limits[i] = fmin(limits[i], cluster->nodes[k].memory * scale);
            }
            begin = after;
        }
        speed[i] = pace(s->model.device) / slowest;
    }
}

static sn_stage_context make_context(const run *r, sn_candidate *c, const sn_block_cost *costs, double *paces) {
    const sn_search *s = r->search;
    sn_stage_context x = {
        .blocks = s->request.blocks, .costs = costs, .before = s->before, .candidate = c, .stages = c->pp * c->chunks};
    x.limit = s->request.cluster->nodes[0].memory * r->limit_scale;
    if (s->uneven) {
        x.speed = paces;
        x.limits = paces + x.stages;
        pace_stages(s, c, r->limit_scale, paces, paces + x.stages);
    }
    if (c->pp > 1) {
        sn_group pair = sn_cluster_group(s->request.cluster, 0, 2, stride_of_pipeline(c));
        double bytes = 0;
        for (int k = 0; k < x.blocks->n_classes; k++) bytes = fmax(bytes, costs[k].input);
        x.message = sn_cost_message(&s->model, bytes, &pair);
    }
    if (c->zero >= 2 && c->dp > 1) {
        // A rate: what a gigabyte takes, so that latency counts as for large buckets.
        sn_group group = sn_cluster_group(s->request.cluster, 0, c->dp, stride_of_data(c));
        x.scatter = collective(s, SN_OP_REDUCE_SCATTER, 1e9, &group) / 1e9;
        if (c->zero >= 3) x.gather = c->dp * collective(s, SN_OP_ALL_GATHER, 1e9, &group) / 1e9;
    }
    return x;
}

// Once a step: gradients over dp and cp, the update, and the parameters' way back.
static double once_a_step(const run *r, sn_candidate *c, const sn_block_cost *costs, const sn_stage_report *stage) {
    const sn_search *s = r->search;
    const sn_blocks *blocks = s->request.blocks;
    double gradients = 0, parameters = 0, update = 0, reduce = 0;
    int n = blocks->n_classes;
    for (int k = 0; k < n; k++) {
        int count = s->before[stage->end * n + k] - s->before[stage->first * n + k];
        gradients += count * costs[k].gradients;
        parameters += count * costs[k].parameters;
        update += count * costs[k].update;
        reduce += count * costs[k].reduce;
    }
    sn_group data = sn_cluster_group(s->request.cluster, 0, c->dp, stride_of_data(c));
    sn_group context = sn_cluster_group(s->request.cluster, 0, c->setting.cp, c->setting.tp);
    double sync = reduce + collective(s, SN_OP_ALL_REDUCE, gradients, &context);
    if (c->zero == 0) sync += collective(s, SN_OP_ALL_REDUCE, gradients, &data);
    if (c->zero == 1) sync += collective(s, SN_OP_REDUCE_SCATTER, gradients, &data);
    if (c->zero == 1 || c->zero == 2) sync += collective(s, SN_OP_ALL_GATHER, parameters, &data);
    if (c->zero >= 1) update /= c->dp;
    c->sync = fmax(c->sync, sync);
    c->update = fmax(c->update, update);
    return sync + update;
}

// What the closed forms of passes/schedule/pipeline_order.c need of the stages.
typedef struct pipeline_sums {
    double sum, longest_rank, longest_stage;
    double fill;                             // of all stages but the last: forward + backward of inputs - of weights
    double without_weights, longest_without; // forward + backward of inputs
    double least_weights;
} pipeline_sums;

static double pipeline_seconds(const run *r, const sn_candidate *c, const pipeline_sums *p) {
    double m = c->microbatches;
    if (r->search->request.objective == SN_OBJECTIVE_STEADY) return p->longest_rank;
    if (r->search->request.objective == SN_OBJECTIVE_FILLED) return (m - 1 + c->pp * c->chunks) * p->longest_rank;
    switch (c->schedule) {
    case SN_PIPELINE_INTERLEAVED:
        return m * p->longest_rank + (c->pp - 1) * p->longest_stage;
    case SN_PIPELINE_ZERO_BUBBLE:
        // With fewer micro-batches than ranks the gradients of weights have all run before the pipeline is empty.
        return fmax(m * p->longest_rank + fmax(0, p->fill),
                    p->without_weights + (m - 1) * p->longest_without + p->least_weights);
    default:
        return p->sum + (m - 1) * p->longest_rank;
    }
}

// Fills everything of a candidate from its cut.
static void price(const run *r, sn_candidate *c, const sn_stage_context *x, const int *cut, sn_stage_report *stages) {
    pipeline_sums p = {.least_weights = INFINITY};
    double once = 0, *ranks = sn_alloc((size_t)c->pp * sizeof *ranks);
    c->memory = c->excess = c->sync = c->update = 0;
    double *bytes = sn_alloc((size_t)c->pp * sizeof *bytes);
    for (int i = 0; i < x->stages; i++) {
        sn_stage_report report;
        (void)sn_stage_cost(x, i, cut[i], cut[i + 1], &report);
        double seconds = report.forward + report.backward_input + report.backward_weight;
        double without = report.forward + report.backward_input;
        p.sum += seconds;
        ranks[i % c->pp] += seconds;
        bytes[i % c->pp] += sn_memory_classes_total(&report.memory);
        if (ranks[i % c->pp] > ranks[c->binding % c->pp] || i == 0) c->binding = i;
        p.longest_rank = fmax(p.longest_rank, ranks[i % c->pp]);
        p.longest_stage = fmax(p.longest_stage, seconds);
        p.longest_without = fmax(p.longest_without, without);
        p.without_weights += without;
        p.least_weights = fmin(p.least_weights, report.backward_weight);
        if (i < x->stages - 1) p.fill += without - report.backward_weight;
        once = fmax(once, once_a_step(r, c, x->costs, &report));
        if (stages) stages[i] = report;
    }
    for (int i = 0; i < c->pp; i++) {
        double limit = x->limits ? x->limits[i] : x->limit;
        if (bytes[i] > c->memory) c->memory = bytes[i], c->fullest = i;
        c->excess = fmax(c->excess, bytes[i] - limit);
    }
    c->pipeline = pipeline_seconds(r, c, &p);
    c->step = c->pipeline + once;
    c->n_stages = x->stages;
    c->stages = stages;
    if (r->search->request.objective != SN_OBJECTIVE_STEP) c->step = c->pipeline;
    sn_free(ranks);
    sn_free(bytes);
}

// No cut does better than one whose stages all take the same time, none computes anything again, and nothing waits.
static double bound_of(const run *r, const sn_candidate *c, const sn_stage_context *x) {
    double total = 0, longest = 0, fastest = 1, m = c->microbatches, weights = 0, least_fill = 0;
    for (int k = 0; k < x->blocks->n_classes; k++) {
        const sn_block_cost *cost = &x->costs[k];
        double seconds = cost->forward + cost->backward_input + cost->backward_weight +
                         2 * x->gather * cost->parameters + x->scatter * cost->gradients;
        total += x->blocks->classes[k].count * seconds;
        longest = fmax(longest, seconds);
        least_fill += x->blocks->classes[k].count * (cost->forward + cost->backward_input - cost->backward_weight);
    }
    for (int i = 0; x->speed && i < x->stages; i++) fastest = fmin(fastest, x->speed[i]), weights += 1 / x->speed[i];
    if (!x->speed) weights = x->stages;
    total *= x->speed ? c->pp * c->chunks / weights : 1;
    double each = fmax(total / c->pp, longest * fastest), messages = 2 * x->message * (x->stages - 1);
    if (r->search->request.objective == SN_OBJECTIVE_STEADY) return each;
    if (r->search->request.objective == SN_OBJECTIVE_FILLED) return (m - 1 + x->stages) * total / x->stages;
    double busy = m * each;
    if (c->schedule == SN_PIPELINE_ZERO_BUBBLE) return busy + fmax(0, least_fill * fastest * (c->pp - 1) / c->pp * 0.5);
    if (c->schedule == SN_PIPELINE_INTERLEAVED) return busy + (c->pp - 1) * total / x->stages;
    return total + messages + (m - 1) * each;
}

static bool same_outline(const sn_candidate *a, const sn_candidate *b) {
    return a->pp == b->pp && a->dp == b->dp && a->setting.tp == b->setting.tp && a->setting.cp == b->setting.cp &&
           a->setting.micro == b->setting.micro && a->schedule == b->schedule && a->chunks == b->chunks &&
           a->zero == b->zero && a->setting.boundary == b->setting.boundary && a->data_outside == b->data_outside;
}

static void note_alternative(run *r, const char *axis, const char *value, const sn_candidate *c) {
    for (size_t i = 0; i < r->alternatives.count; i++) {
        sn_alternative *a = &r->alternatives.data[i];
        if (strcmp(a->axis, axis) != 0 || strcmp(a->value, value) != 0) continue;
        const sn_candidate *old = &a->candidate;
        bool priced = c->n_stages > 0, old_priced = old->n_stages > 0; // else a bound
        bool better = priced != old_priced                     ? priced
                      : (c->excess <= 0) != (old->excess <= 0) ? c->excess <= 0
                      : c->excess > 0                          ? c->excess < old->excess
                                                               : c->step < old->step;
        if (better) a->candidate = *c;
        return;
    }
    sn_vec_push(&r->alternatives, (sn_alternative){axis, sn_arena_strdup(r->search->arena, value), *c});
}

static void note_number(run *r, const char *axis, int64_t number, const sn_candidate *c) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    note_alternative(r, axis, text, c);
}

static void note_alternatives(run *r, const sn_candidate *c) {
    note_number(r, "tp", c->setting.tp, c);
    note_number(r, "pp", c->pp, c);
    note_number(r, "dp", c->dp, c);
    note_number(r, "cp", c->setting.cp, c);
    note_number(r, "zero", c->zero, c);
    note_number(r, "micro-batch", c->setting.micro, c);
    note_alternative(r, "schedule", sn_pipeline_name(c->schedule), c);
    if (c->setting.tp > 1) note_alternative(r, "sequence", c->setting.boundary ? "cut" : "whole", c);
}

// Prices an outline with an even cut.
static void consider(run *r, sn_candidate *c, const sn_block_cost *costs) {
    int stages = c->pp * c->chunks;
    r->candidates++;
    double *paces = r->search->uneven ? sn_alloc(2 * (size_t)stages * sizeof *paces) : NULL;
    sn_stage_context x = make_context(r, c, costs, paces);
    c->bound = bound_of(r, c, &x);
    if (c->bound < r->best * 1.25) {
        int *cut = sn_alloc((size_t)(stages + 1) * sizeof *cut);
        sn_stages_even(&x, cut);
        price(r, c, &x, cut, NULL);
        if (c->excess <= 0) {
            r->best = fmin(r->best, c->step);
        } else if (c->excess < r->best_excess) {
            r->best_excess = c->excess;
            r->closest = *c;
        }
        sn_vec_push(&r->kept, *c);
        sn_free(cut);
    } else {
        c->step = c->bound; // at the least
        note_alternatives(r, c);
    }
    sn_free(paces);
}

static bool is_open(const run *r, const char *axis, int size) {
    const sn_plan *fixed = r->search->request.fixed;
    return !fixed || sn_plan_axis_size(fixed, axis) == size;
}

static void consider_schedules(run *r, sn_candidate *c, const sn_block_cost *costs) {
    const sn_plan *fixed = r->search->request.fixed;
    int blocks = r->search->request.blocks->n_blocks;
    for (int zero = 0; zero <= (c->dp > 1 ? 3 : 0); zero++)
        for (int schedule = 0; schedule < SN_PIPELINE_COUNT; schedule++)
            for (int chunks = 1; chunks <= MOST_CHUNKS; chunks++) {
                bool interleaved = schedule == SN_PIPELINE_INTERLEAVED;
                if (interleaved != (chunks > 1) || c->pp * chunks > blocks) continue;
                if (interleaved &&
                    (c->microbatches % c->pp || (chunks & (chunks - 1) && blocks % (c->pp * chunks) > 4)))
                    continue;
                // GPipe takes as long as 1F1B and holds more.
                bool asked = fixed && (int)fixed->schedule == schedule;
                if (c->pp == 1 && schedule != SN_PIPELINE_1F1B && !asked) continue;
                if (schedule == SN_PIPELINE_GPIPE && !asked) continue;
                if (fixed && (!asked || fixed->chunks != chunks || fixed->zero != zero)) continue;
                for (int order = 0; order < (c->pp > 1 && c->dp > 1 && !r->search->uneven ? 2 : 1); order++) {
                    sn_candidate candidate = *c;
                    candidate.zero = zero;
                    candidate.schedule = (sn_pipeline)schedule;
                    candidate.chunks = chunks;
                    candidate.data_outside = order;
                    consider(r, &candidate, costs);
                }
            }
}

static void consider_degrees(run *r, int tp, int cp, int pp) {
    const sn_search_request *q = &r->search->request;
    int64_t rest = r->search->devices / ((int64_t)tp * cp), dp = rest / pp;
    if (rest % pp || q->batch % dp || pp > q->blocks->n_blocks || !is_open(r, "pp", pp) || !is_open(r, "dp", (int)dp))
        return;
    for (int64_t micro = 1; micro <= MOST_MICRO && micro <= q->batch / dp; micro++) {
        if ((q->batch / dp) % micro || (q->fixed_micro && micro * dp != q->fixed_micro)) continue;
        int64_t microbatches = q->batch / dp / micro;
        if (q->fixed && q->fixed->microbatches != microbatches) continue;
        int boundaries = tp > 1 ? sn_evaluator_boundaries(r->search->evaluator) : 1;
        for (int boundary = 0; boundary < boundaries; boundary++) {
            sn_candidate c = {.pp = pp, .dp = (int)dp, .chunks = 1, .microbatches = (int)microbatches};
            c.setting = (sn_setting){.tp = tp, .cp = cp, .boundary = boundary, .micro = micro};
            const sn_block_cost *costs = sn_evaluator_costs(r->search->evaluator, c.setting);
            if (costs) consider_schedules(r, &c, costs);
        }
    }
}

static void consider_all(run *r) {
    int64_t devices = r->search->devices;
    int largest = r->search->request.cluster->nodes[0].devices > MOST_TENSOR
                      ? MOST_TENSOR
                      : (int)r->search->request.cluster->nodes[0].devices;
    for (int tp = 1; tp <= largest; tp++) {
        if (devices % tp || largest % tp || !is_open(r, "tp", tp)) continue;
        for (int cp = 1; cp <= MOST_CONTEXT; cp *= 2) {
            if (devices % ((int64_t)tp * cp) || !is_open(r, "cp", cp)) continue;
            for (int pp = 1; pp <= devices / tp / cp && pp <= r->search->request.blocks->n_blocks; pp++)
                consider_degrees(r, tp, cp, pp);
        }
    }
}

static int by_bound(const void *left, const void *right) {
    const sn_candidate *a = left, *b = right;
    return (a->bound > b->bound) - (a->bound < b->bound);
}

static int by_step(const void *left, const void *right) {
    const sn_candidate *a = left, *b = right;
    if ((a->excess > 0) != (b->excess > 0)) return a->excess > 0 ? 1 : -1;
    if (a->excess > 0) return (a->excess > b->excess) - (a->excess < b->excess);
    return (a->step > b->step) - (a->step < b->step);
}

// Exact stages for one outline; false when nothing fits.
static bool solve(run *r, sn_candidate *c) {
    const sn_search *s = r->search;
    const sn_block_cost *costs = sn_evaluator_costs(s->evaluator, c->setting);
    int stages = c->pp * c->chunks;
    double *paces = s->uneven ? sn_alloc(2 * (size_t)stages * sizeof *paces) : NULL;
    sn_stage_context x = make_context(r, c, costs, paces);
    int *cut = sn_alloc((size_t)(stages + 1) * sizeof *cut);
    // The exact cut is exact for flushed 1F1B; for the other schedules it is a second guess beside the even one.
    double weight = c->schedule == SN_PIPELINE_1F1B || c->schedule == SN_PIPELINE_GPIPE
                        ? c->microbatches - 1
                        : (double)c->microbatches * c->chunks;
    long work = 0;
    sn_candidate even = *c;
    sn_stages_even(&x, cut);
    price(r, &even, &x, cut, SN_NEW_N(s->arena, sn_stage_report, stages));
    bool exact = stages == 1 || sn_stages_exact(&x, weight, cut, &work);
    if (exact) price(r, c, &x, cut, SN_NEW_N(s->arena, sn_stage_report, stages));
    bool prefer_even = !exact || (even.excess <= 0 && (c->excess > 0 || even.step < c->step));
    if (prefer_even) *c = even;
    c->exact = exact;
    r->solved++;
    sn_free(cut);
    sn_free(paces);
    return c->excess <= 0;
}

// The best estimates get exact stages first; then, in the order of their bounds, what could still be better.
static void solve_promising(run *r, sn_search_result *out) {
    sn_candidate *list = r->kept.data;
    size_t count = r->kept.count, first = count < MOST_FIRST ? count : MOST_FIRST;
    double best = INFINITY;
    qsort(list, count, sizeof *list, by_step);
    for (size_t i = 0; i < first; i++)
        if (list[i].bound < best && solve(r, &list[i])) best = fmin(best, list[i].step);
    if (count > first) qsort(list + first, count - first, sizeof *list, by_bound);
    r->dropped_bound = INFINITY;
    for (size_t i = first; i < count && list[i].bound < best; i++) {
        if (r->solved >= MOST_SOLVED) {
            r->dropped_bound = list[i].bound; // of all that follow
            break;
        }
        if (solve(r, &list[i])) best = fmin(best, list[i].step);
    }
    qsort(list, count, sizeof *list, by_step);
    out->feasible = isfinite(best);
    out->runners = SN_NEW_N(r->search->arena, sn_candidate, MOST_RUNNERS);
    size_t at = 0;
    while (out->feasible && (!list[at].stages || list[at].excess > 0)) at++; // estimates that the exact search refuted
    if (out->feasible) out->best = list[at];
    for (size_t i = 0; i < count && out->feasible && out->n_runners < MOST_RUNNERS; i++)
        if (list[i].excess <= 0 && !same_outline(&list[i], &out->best)) out->runners[out->n_runners++] = list[i];
}

bool sn_search_run(sn_search *search, double memory_scale, sn_search_result *out) {
    *out = (sn_search_result){0};
    run r = {.search = search, .limit_scale = memory_scale, .best = INFINITY, .best_excess = INFINITY};
    consider_all(&r);
    if (!r.candidates) {
        sn_error(search->request.diags, "E0440", NULL,
                 "choose a batch that the data-parallel ranks divide, or another number of devices",
                 "no way to share a batch of %" PRId64 " among %" PRId64 " devices", search->request.batch,
                 search->devices);
        sn_vec_free(&r.kept);
        return false;
    }
    solve_promising(&r, out);
    for (size_t i = 0; i < r.kept.count; i++) note_alternatives(&r, &r.kept.data[i]);
    if (!out->feasible) {
        out->best = r.closest;
        (void)solve(&r, &out->best);
    }
    out->lower_bound = fmin(out->best.step, r.dropped_bound);
    out->candidates = r.candidates;
    out->solved = r.solved;
    out->n_alternatives = (int)r.alternatives.count;
    out->alternatives =
        sn_arena_copy(search->arena, r.alternatives.data, r.alternatives.count * sizeof *r.alternatives.data);
    sn_vec_free(&r.kept);
    sn_vec_free(&r.alternatives);
    return true;
}

static void add_axis(sn_mesh *mesh, const char *name, int64_t size) {
    if (size == 1) return;
    strcpy(mesh->name[mesh->n_axes], name);
    mesh->size[mesh->n_axes++] = (int)size;
}

sn_plan sn_search_plan(sn_search *search, const sn_candidate *c, sn_arena *arena) {
    const sn_search_request *q = &search->request;
    sn_plan plan = {.microbatches = c->microbatches,
                    .batch = q->batch,
                    .schedule = c->schedule,
                    .chunks = c->chunks,
                    .zero = c->zero,
                    .model_hash = q->blocks->model_hash,
                    .cluster_hash = sn_cluster_hash(q->cluster),
                    .predicted_step_seconds = c->step,
                    .predicted_memory_bytes = c->memory};
    add_axis(&plan.mesh, c->data_outside ? "dp" : "pp", c->data_outside ? c->dp : c->pp);
    add_axis(&plan.mesh, c->data_outside ? "pp" : "dp", c->data_outside ? c->pp : c->dp);
    add_axis(&plan.mesh, "cp", c->setting.cp);
    add_axis(&plan.mesh, "tp", c->setting.tp);
    plan.remat = c->stages ? c->stages[0].remat : SN_REMAT_NONE;
    if (c->stages && c->n_stages > 1) {
        plan.n_stages = c->n_stages;
        plan.stages = SN_NEW_N(arena, sn_plan_stage, c->n_stages);
        for (int i = 0; i < c->n_stages; i++) {
            const char *first = q->blocks->blocks[c->stages[i].first].first;
            plan.stages[i] = (sn_plan_stage){i ? first : "", c->stages[i].remat};
        }
    }
    if (c->setting.tp > 1)
        plan.layouts = sn_evaluator_layouts(search->evaluator, c->setting, &plan.mesh, arena, &plan.n_layouts);
    return plan;
}
