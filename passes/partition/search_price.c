#include "passes/partition/search_price.h"

#include "passes/cost/step.h"

#include <math.h>

double sn_price_pace(const sn_device_kind *device) {
    return device->flops[SN_RATE_16] > 0 ? device->flops[SN_RATE_16] : device->flops[SN_RATE_F32];
}

// Ranks of the axes: tp innermost, then cp, then ep; pp outermost, or dp.
static int64_t ranks_inside(const sn_candidate *c) {
    return (int64_t)c->setting.tp * c->setting.cp * c->setting.ep;
}

static int64_t stride_of_data(const sn_candidate *c) {
    return ranks_inside(c) * (c->data_outside ? c->pp : 1);
}

static int64_t stride_of_pipeline(const sn_candidate *c) {
    return ranks_inside(c) * (c->data_outside ? 1 : c->dp);
}

static const sn_group *find_group(sn_search *s, int64_t size, int64_t stride) {
    for (size_t i = 0; i < s->groups.count; i++)
        if (s->groups.data[i].size == size && s->groups.data[i].stride == stride) return &s->groups.data[i].group;
    sn_vec_push(&s->groups, (known_group){size, stride, sn_cluster_group(s->request.cluster, 0, size, stride)});
    return &sn_vec_last(&s->groups).group;
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
                slowest = fmin(slowest, sn_price_pace(cluster->nodes[k].device));
                limits[i] = fmin(limits[i], cluster->nodes[k].memory * scale);
            }
            begin = after;
        }
        speed[i] = sn_price_pace(s->model.device) / slowest;
    }
}

sn_stage_context sn_price_context(sn_search *s, double limit_scale, sn_candidate *c, const sn_block_cost *costs,
                                  double *paces) {
    sn_stage_context x = {
        .blocks = s->request.blocks, .costs = costs, .before = s->before, .candidate = c, .stages = c->pp * c->chunks};
    x.limit = s->request.cluster->nodes[0].memory * limit_scale;
    x.remat_is_fixed = s->request.fixed && s->request.fixed->named & SN_PLAN_REMAT;
    if (x.remat_is_fixed) x.remat = s->request.fixed->remat;
    if (s->uneven) {
        x.speed = paces;
        x.limits = paces + x.stages;
        pace_stages(s, c, limit_scale, paces, paces + x.stages);
    }
    if (c->pp > 1) {
        const sn_group *pair = find_group(s, 2, stride_of_pipeline(c));
        double bytes = 0;
        for (int k = 0; k < x.blocks->n_classes; k++) bytes = fmax(bytes, costs[k].input);
        x.message = sn_cost_message(&s->model, bytes, pair);
    }
    if (c->zero >= 2 && c->dp > 1) {
        // A rate: what a gigabyte takes, so that latency counts as for large buckets.
        const sn_group *group = find_group(s, c->dp, stride_of_data(c));
        x.scatter = collective(s, SN_OP_REDUCE_SCATTER, 1e9, group) / 1e9;
        if (c->zero >= 3) x.gather = collective(s, SN_OP_ALL_GATHER, 1e9, group) / 1e9;
    }
    return x;
}

// What a pipeline rank does once a step, over all its chunks.
typedef struct rank_sums {
    double seconds;          // of a micro-batch
    double lasting, working; // bytes: what all chunks hold; the most that a chunk at work takes
    double gradients, shared, parameters, update, reduce;
} rank_sums;

static void add_once(const sn_search *s, const sn_block_cost *costs, const sn_stage_report *stage, rank_sums *rank) {
    int n = s->request.blocks->n_classes;
    for (int k = 0; k < n; k++) {
        int count = s->before[stage->end * n + k] - s->before[stage->first * n + k];
        rank->gradients += count * costs[k].gradients;
        rank->shared += count * costs[k].shared;
        rank->parameters += count * costs[k].parameters;
        rank->update += count * costs[k].update;
        rank->reduce += count * costs[k].reduce;
    }
}

// Gradients over dp, cp and, but for the experts', ep, the update, and the parameters' way back.
static double once_a_step(sn_search *s, sn_candidate *c, const rank_sums *rank) {
    double sync = rank->reduce;
    const sn_group *context = find_group(s, c->setting.cp, c->setting.tp);
    sync += collective(s, SN_OP_ALL_REDUCE, rank->gradients, context);
    const sn_group *experts = find_group(s, c->setting.ep, (int64_t)c->setting.tp * c->setting.cp);
    sync += collective(s, SN_OP_ALL_REDUCE, rank->shared, experts);
    const sn_group *data = find_group(s, c->dp, stride_of_data(c));
    sn_zero_seconds zero = sn_zero_step(&s->model, c->zero, rank->gradients, rank->parameters, data);
    sync += zero.reduce + zero.gather;
    double update = rank->update / (c->zero >= 1 ? c->dp : 1);
    c->sync = fmax(c->sync, sync);
    c->update = fmax(c->update, update);
    return sync + update;
}

static double pipeline_seconds(const sn_search *s, const sn_candidate *c, const sn_pipeline_times *times) {
    if (s->request.objective == SN_OBJECTIVE_STEADY) return times->longest_rank;
    if (s->request.objective == SN_OBJECTIVE_FILLED)
        return (c->microbatches - 1 + c->pp * c->chunks) * times->longest_rank;
    return sn_pipeline_seconds(c->schedule, c->pp, c->microbatches, times);
}

// One rank of an interleaved pipeline: what its chunks compute again is chosen together. From nothing, the cheapest
// second for each byte is taken until the rank fits. A rank runs one chunk at a time: of working memory the chunk with
// the most counts, everything else adds up.
typedef struct chunk_choice {
    double lasting[SN_REMAT_COUNT], working[SN_REMAT_COUNT], again[SN_REMAT_COUNT];
    sn_remat now;
} chunk_choice;

static void read_choices(const sn_stage_context *x, const int *cut, int rank, chunk_choice *choices) {
    for (int c = 0; c < x->candidate->chunks; c++) {
        int stage = c * x->candidate->pp + rank;
        choices[c].now = x->remat;
        for (int k = 0; k < SN_REMAT_COUNT; k++) {
            sn_stage_report report;
            double bytes = sn_stage_with(x, stage, cut[stage], cut[stage + 1], (sn_remat)k, &report);
            choices[c].lasting[k] = bytes - report.memory.working;
            choices[c].working[k] = report.memory.working;
            choices[c].again[k] = report.again;
        }
    }
}

// The bytes of a rank without the working memory of chunk `but` (-1: with all), of which `working` gets the most.
static double rank_bytes(const chunk_choice *choices, int chunks, int but, double *working) {
    double lasting = 0;
    *working = 0;
    for (int c = 0; c < chunks; c++) {
        lasting += choices[c].lasting[choices[c].now];
        if (c != but) *working = fmax(*working, choices[c].working[choices[c].now]);
    }
    return lasting;
}

// The change that saves most bytes a second; false when none saves any.
static bool take_cheapest(chunk_choice *choices, int chunks, double total) {
    int chunk = -1, kind = 0;
    double best = 0;
    for (int c = 0; c < chunks; c++) {
        int now = (int)choices[c].now;
        double others, lasting = rank_bytes(choices, chunks, c, &others);
        for (int k = now + 1; k < SN_REMAT_COUNT; k++) {
            double after = lasting - choices[c].lasting[now] + choices[c].lasting[k];
            double saved = total - after - fmax(others, choices[c].working[k]);
            double rate = saved / (choices[c].again[k] - choices[c].again[now] + 1e-12);
            if (saved > 0 && rate > best) best = rate, chunk = c, kind = k;
        }
    }
    if (chunk >= 0) choices[chunk].now = (sn_remat)kind;
    return chunk >= 0;
}

static void choose_rank(const sn_stage_context *x, const int *cut, int rank, chunk_choice *choices, sn_remat *remat) {
    int pp = x->candidate->pp, chunks = x->candidate->chunks;
    for (int c = 0; c < chunks; c++) remat[c * pp + rank] = x->remat;
    if (x->remat_is_fixed) return;
    double limit = x->limits ? x->limits[rank] : x->limit, working;
    read_choices(x, cut, rank, choices);
    double total = rank_bytes(choices, chunks, -1, &working) + working;
    while (total > limit && take_cheapest(choices, chunks, total))
        total = rank_bytes(choices, chunks, -1, &working) + working;
    for (int c = 0; c < chunks; c++) remat[c * pp + rank] = choices[c].now;
    // The first chunk to compute again brings its working memory, so one alone may save nothing where all do.
    for (int c = 0; c < chunks && total > limit; c++) choices[c].now = SN_REMAT_FULL;
    if (total > limit && rank_bytes(choices, chunks, -1, &working) + working < total)
        for (int c = 0; c < chunks; c++) remat[c * pp + rank] = SN_REMAT_FULL;
}

static void report_stage(const sn_stage_context *x, const int *cut, int i, const sn_remat *remat,
                         sn_stage_report *out) {
    if (remat)
        (void)sn_stage_with(x, i, cut[i], cut[i + 1], remat[i], out);
    else
        (void)sn_stage_cost(x, i, cut[i], cut[i + 1], out);
}

// Ranks that outnumber the cores of their host take turns: no step is shorter than all of its work on all cores, and,
// as who waits leaves its core to others, few are longer than that or the step with a core for each (Graham 1969).
static double crowded_seconds(const sn_search *s, double work) {
    double cores = s->request.cores;
    return cores > 0 && cores < (double)s->devices ? work / (cores * s->request.sharing) : 0;
}

// Ranks of one pipeline coordinate.
static double ranks_at_once(const sn_search *s, const sn_candidate *c) {
    return (double)s->devices / c->pp;
}

void sn_price(sn_search *s, sn_candidate *c, const sn_stage_context *x, const int *cut, sn_stage_report *stages) {
    sn_pipeline_times times = {0};
    rank_sums *ranks = sn_alloc((size_t)c->pp * sizeof *ranks);
    double once = 0, work = 0;
    sn_remat *remat = c->chunks > 1 ? sn_alloc((size_t)x->stages * sizeof *remat) : NULL;
    c->memory = c->excess = c->sync = c->update = 0;
    chunk_choice *choices = remat ? sn_alloc((size_t)c->chunks * sizeof *choices) : NULL;
    for (int rank = 0; remat && rank < c->pp; rank++) choose_rank(x, cut, rank, choices, remat);
    for (int i = 0; i < x->stages; i++) {
        sn_stage_report report;
        report_stage(x, cut, i, remat, &report);
        sn_pipeline_times_add(&times, report.forward, report.backward_input, report.backward_weight,
                              i == x->stages - 1);
        rank_sums *rank = &ranks[i % c->pp];
        rank->seconds += report.forward + report.backward_input + report.backward_weight;
        rank->lasting += sn_memory_total(&report.memory) - report.memory.working;
        rank->working = fmax(rank->working, report.memory.working);
        add_once(s, x->costs, &report, rank);
        if (i == 0 || rank->seconds > times.longest_rank) c->binding = i;
        times.longest_rank = fmax(times.longest_rank, rank->seconds);
        if (stages) stages[i] = report;
    }
    for (int i = 0; i < c->pp; i++) {
        double limit = x->limits ? x->limits[i] : x->limit;
        double bytes = ranks[i].lasting + ranks[i].working;
        if (bytes > c->memory) c->memory = bytes, c->memory_limit = limit, c->fullest = i;
        c->excess = fmax(c->excess, bytes - limit);
        double last = once_a_step(s, c, &ranks[i]);
        once = fmax(once, last);
        work += ranks_at_once(s, c) * (c->microbatches * ranks[i].seconds + last);
    }
    c->pipeline = pipeline_seconds(s, c, &times);
    c->crowded = crowded_seconds(s, work);
    c->step = s->request.objective == SN_OBJECTIVE_STEP ? fmax(c->pipeline + once, c->crowded) : c->pipeline;
    c->n_stages = x->stages;
    c->stages = stages;
    sn_free(ranks);
    sn_free(remat);
    sn_free(choices);
}

// What all blocks take together, and the average rank's gradients.
typedef struct bound_sums {
    double total, longest, fill, without, gradients, parameters, update;
} bound_sums;

static bound_sums sum_all(const sn_stage_context *x) {
    bound_sums b = {0};
    for (int k = 0; k < x->blocks->n_classes; k++) {
        const sn_block_cost *cost = &x->costs[k];
        if (!x->blocks->classes[k].count) continue;
        double seconds = cost->forward + cost->backward_input + cost->backward_weight +
                         2 * x->gather * cost->parameters + x->scatter * cost->gradients;
        int count = x->blocks->classes[k].count;
        b.total += count * seconds;
        b.longest = fmax(b.longest, seconds);
        b.fill += count * (cost->forward + cost->backward_input - cost->backward_weight);
        b.without += count * (cost->forward + cost->backward_input);
        b.gradients += count * cost->gradients;
        b.parameters += count * cost->parameters;
        b.update += count * cost->update;
    }
    return b;
}

static double least_once(sn_search *s, const sn_candidate *c, const bound_sums *b) {
    const sn_group *data = find_group(s, c->dp, stride_of_data(c));
    sn_zero_seconds zero = sn_zero_step(&s->model, c->zero, b->gradients / c->pp, b->parameters / c->pp, data);
    return b->update / c->pp / (c->zero >= 1 ? c->dp : 1) + zero.reduce + zero.gather;
}

// The closed form with every rank at `each` seconds a micro-batch, or at the average where that is more.
static double bound_with(sn_search *s, const sn_candidate *c, const sn_stage_context *x, const bound_sums *b,
                         double each) {
    double m = c->microbatches, fastest = 1, messages = 2 * x->message * (x->stages - 1);
    for (int i = 0; x->speed && i < x->stages; i++) fastest = fmin(fastest, x->speed[i]);
    if (s->request.objective == SN_OBJECTIVE_STEADY) return each;
    if (s->request.objective == SN_OBJECTIVE_FILLED) return (m - 1 + x->stages) * each;
    double once = least_once(s, c, b), total = b->total * fastest;
    // Of the fill the last stage's part is missing, which is no longer than the longest stage.
    if (c->schedule == SN_PIPELINE_ZERO_BUBBLE) {
        double fill = (m - 1) * each + b->fill * fastest, through = b->without * fastest * (1 + (m - 1) / x->stages);
        return fmax(fmax(m * each, fill), through) + once;
    }
    if (c->schedule == SN_PIPELINE_INTERLEAVED) return m * each + (c->pp - 1) * total / x->stages + once;
    return total + messages + (m - 1) * each + once;
}

static double weights_of(const sn_stage_context *x) {
    double weights = 0;
    for (int i = 0; x->speed && i < x->stages; i++) weights += 1 / x->speed[i];
    return x->speed ? weights / x->candidate->chunks : x->candidate->pp;
}

double sn_price_bound(sn_search *s, const sn_candidate *c, const sn_stage_context *x) {
    bound_sums b = sum_all(x);
    double fastest = 1;
    for (int i = 0; x->speed && i < x->stages; i++) fastest = fmin(fastest, x->speed[i]);
    double bound = bound_with(s, c, x, &b, fmax(b.total / weights_of(x), b.longest * fastest));
    if (s->request.objective != SN_OBJECTIVE_STEP) return bound;
    double work = ranks_at_once(s, c) * (c->microbatches * b.total + c->pp * least_once(s, c, &b));
    return fmax(bound, crowded_seconds(s, work));
}

// The most work (seconds without rematerialisation) that a rank does in `seconds` a micro-batch within its memory: a
// linear program over the shares of blocks of each class and rematerialisation, with two constraints, so its optimum
// mixes two of them at most.
typedef struct rank_column {
    double work, seconds, bytes;
} rank_column;

static double most_work(int n, const rank_column *columns, double seconds, double bytes) {
    double best = 0;
    for (int a = 0; a < n; a++) {
        const rank_column *u = &columns[a];
        best =
            fmax(best, u->work * (u->bytes > 0 ? fmin(seconds / u->seconds, bytes / u->bytes) : seconds / u->seconds));
        for (int b = a + 1; b < n; b++) {
            const rank_column *v = &columns[b];
            double det = u->seconds * v->bytes - v->seconds * u->bytes;
            if (fabs(det) < 1e-30) continue;
            double x = (seconds * v->bytes - v->seconds * bytes) / det;
            double y = (u->seconds * bytes - seconds * u->bytes) / det;
            if (x >= 0 && y >= 0) best = fmax(best, x * u->work + y * v->work);
        }
    }
    return best;
}

static int rank_columns(const sn_stage_context *x, int rank, rank_column *out, double *working) {
    const sn_candidate *c = x->candidate;
    double speed = x->speed ? x->speed[rank] : 1;
    int n = 0;
    *working = INFINITY;
    for (int k = 0; k < x->blocks->n_classes; k++) {
        const sn_block_cost *cost = &x->costs[k];
        if (!x->blocks->classes[k].count) continue;
        double work = cost->forward + cost->backward_input + cost->backward_weight;
        double state = cost->optimizer / (c->zero >= 1 ? c->dp : 1) + cost->gradients / (c->zero >= 2 ? c->dp : 1) +
                       cost->parameters / (c->zero >= 3 ? c->dp : 1);
        double moved = 2 * x->gather * cost->parameters + x->scatter * cost->gradients;
        *working = fmin(*working, cost->working);
        for (int r = 0; r < SN_REMAT_COUNT && work > 0; r++)
            out[n++] = (rank_column){work, (work + cost->again[r]) * speed + moved,
                                     state + sn_candidate_activations(c, rank, &cost->activations[r])};
    }
    return n;
}

double sn_price_tight_bound(sn_search *s, const sn_candidate *c, const sn_stage_context *x) {
    bound_sums b = sum_all(x);
    double work = 0, low = b.total / weights_of(x), high = 4 * low + 8 * b.longest;
    rank_column columns[SN_MOST_CLASSES * SN_REMAT_COUNT];
    if (x->blocks->n_classes > SN_MOST_CLASSES) return c->bound;
    for (int k = 0; k < x->blocks->n_classes; k++)
        work += x->blocks->classes[k].count *
                (x->costs[k].forward + x->costs[k].backward_input + x->costs[k].backward_weight);
    low *= 0.5; // the messages of ZeRO are part of low, but not of work
    for (int round = 0; round < 20 && high - low > 1e-4 * high; round++) {
        double middle = 0.5 * (low + high), done = 0;
        for (int rank = 0; rank < c->pp && done < work; rank++) {
            double working, limit = x->limits ? x->limits[rank] : x->limit;
            int n = rank_columns(x, rank, columns, &working);
            done += most_work(n, columns, middle, fmax(0, limit - working));
        }
        *(done >= work * (1 - 1e-12) ? &high : &low) = middle;
    }
    return fmax(c->bound, bound_with(s, c, x, &b, low));
}
