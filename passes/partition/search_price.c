#include "passes/partition/search_price.h"

#include "passes/cost/step.h"

#include <math.h>
#include <string.h>

static double larger(double a, double b) {
    return a > b ? a : b;
}

static double collective(const sn_cost_model *model, sn_op_kind kind, double bytes, const sn_group *group) {
    return group->ranks > 1 ? sn_cost_collective(model, kind, bytes, group) : 0;
}

// A parameter stays whole where no dim divides.
static bool is_shared_out(const sn_block_tensor *tensor, int64_t ranks) {
    for (int d = 0; d < tensor->type.rank; d++)
        if (tensor->type.dim[d] % ranks == 0) return true;
    return false;
}

static void add_tensor(const sn_cost_model *model, const known_moves *m, const sn_block_tensor *tensor,
                       sn_block_moves *out) {
    double n = tensor->count, gradient = m->one_program ? tensor->parameter : tensor->gradient;
    if (tensor->shared) out->once += n * collective(model, SN_OP_ALL_REDUCE, gradient, m->experts);
    if (m->shares->ranks < 2) return;
    bool whole = !is_shared_out(tensor, m->shares->ranks);
    int zero = whole ? 0 : m->zero;
    if (whole) {
        out->whole_parameters += n * tensor->parameter;
        out->whole_gradients += n * tensor->gradient;
        out->whole_optimizer += n * tensor->optimizer;
    }
    sn_zero_seconds step = sn_zero_step(model, zero, gradient, tensor->parameter, m->shares);
    out->once += n * (step.reduce + step.gather);
    if (zero >= 2) out->backward_weight += n * collective(model, SN_OP_REDUCE_SCATTER, gradient, m->shares);
    if (zero < 3) return;
    out->largest = larger(out->largest, tensor->parameter + gradient);
    double gather = n * collective(model, SN_OP_ALL_GATHER, tensor->parameter, m->shares);
    out->forward += gather;
    if (tensor->backward) out->backward_input += gather;
    if (tensor->again) out->again += gather;
}

static void fill_moves(const sn_search *s, int classes, known_moves *m) {
    sn_cost_model model = s->model;
    model.device = m->device;
    for (int k = 0; k < classes; k++) {
        const sn_block_tensors *t = &m->tensors[k];
        for (int i = 0; i < t->n; i++) add_tensor(&model, m, &t->list[i], &m->of[k]);
        if (t->sums)
            m->of[k].forward += t->sums * collective(&model, SN_OP_ALL_REDUCE, t->sum_bytes / t->sums, m->shares);
    }
}

// Single numbers. A program of one micro-batch that is not a stage's or the whole step's has the loss as a result.
static double once_seconds(const sn_search *s, const sn_candidate *c, const sn_search_site *site) {
    sn_cost_model model = s->model;
    model.device = site->at.device;
    double norm = collective(&model, SN_OP_ALL_REDUCE, sizeof(float), site->norm);
    double losses = c->pp == 1 && c->microbatches > 1 ? c->microbatches : 0;
    return norm + losses * collective(&model, SN_OP_ALL_REDUCE, sizeof(float), site->shares);
}

static const sn_block_moves *moves_of(sn_search *s, const sn_candidate *c, const sn_search_site *site) {
    known_moves m = {.tensors = sn_evaluator_tensors(s->evaluator, c->setting),
                     .shares = site->shares,
                     .experts = site->experts,
                     .device = site->at.device,
                     .zero = c->zero,
                     .one_program = sn_candidate_is_one_program(c)};
    for (size_t k = 0; k < s->moves.count; k++) {
        size_t i = (s->next_moves + k) % s->moves.count;
        const known_moves *known = &s->moves.data[i];
        if (known->tensors != m.tensors || known->shares != m.shares || known->experts != m.experts ||
            known->device != m.device || known->zero != m.zero || known->one_program != m.one_program)
            continue;
        s->next_moves = i + 1;
        return known->of;
    }
    int classes = s->request.blocks->n_classes;
    m.of = SN_NEW_N(s->arena, sn_block_moves, classes + 1);
    fill_moves(s, classes, &m);
    sn_vec_push(&s->moves, m);
    return m.of;
}

static void set_messages(const sn_search *s, const sn_candidate *c, const sn_known_sites *sites, sn_stage_context *x) {
    int n = x->blocks->n_classes, rows = sites->one_message ? 1 : c->pp;
    double *messages = sn_alloc((size_t)(rows * n) * sizeof *messages);
    x->message = INFINITY;
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < n; k++) {
            bool same = i && sites->before[i] == sites->before[i - 1];
            double bytes = x->first.costs[k].received;
            messages[i * n + k] =
                same ? messages[(i - 1) * n + k] : sn_cost_message(&s->model, bytes, sites->before[i]);
            if (bytes > 0) x->message = fmin(x->message, messages[i * n + k]);
        }
    if (!isfinite(x->message)) x->message = 0;
    x->messages = messages;
    x->messages_apart = sites->one_message ? 0 : n;
}

static sn_stage_site site_of(sn_search *s, double limit_scale, const sn_candidate *c, const sn_search_site *site) {
    return (sn_stage_site){.costs = sn_evaluator_costs(s->evaluator, c->setting, site->at),
                           .moves = moves_of(s, c, site),
                           .once = once_seconds(s, c, site),
                           .limit = SN_DEVICE_SHARE * site->memory * limit_scale,
                           .pace = 1};
}

static double moved_seconds(const sn_stage_site *site, int k) {
    return site->moves ? site->moves[k].forward + site->moves[k].backward_input + site->moves[k].backward_weight : 0;
}

static double class_seconds(const sn_stage_site *site, int k) {
    const sn_block_cost *c = &site->costs[k];
    return c->forward + c->backward_input + c->backward_weight + moved_seconds(site, k);
}

static double pace_of(const sn_stage_context *x, const sn_stage_site *site) {
    double pace = INFINITY;
    for (int k = 0; k < x->blocks->n_classes; k++) {
        double at_first = class_seconds(&x->first, k);
        if (at_first > 0) pace = fmin(pace, class_seconds(site, k) / at_first);
    }
    return isfinite(pace) && pace > 0 ? pace : 1;
}

sn_stage_context sn_price_context(sn_search *s, double limit_scale, sn_candidate *c) {
    sn_stage_context x = {.blocks = s->request.blocks, .before = s->before};
    const sn_known_sites *sites = sn_sites_of(s, c);
    x.remat_is_fixed = s->request.fixed && s->request.fixed->named & SN_PLAN_REMAT;
    if (x.remat_is_fixed) x.remat = s->request.fixed->remat;
    x.messages_are_work = s->request.profile != NULL;
    x.first = site_of(s, limit_scale, c, &sites->sites[0]);
    if (sites->n > 1) {
        sn_stage_site *list = sn_alloc((size_t)sites->n * sizeof *list);
        for (int i = 0; i < sites->n; i++) {
            list[i] = site_of(s, limit_scale, c, &sites->sites[i]);
            list[i].pace = pace_of(&x, &list[i]);
        }
        x.sites = list, x.n_sites = sites->n, x.site_of = sites->of;
    }
    sn_price_set_candidate(&x, c);
    if (c->pp > 1) set_messages(s, c, sites, &x);
    return x;
}

void sn_price_set_candidate(sn_stage_context *x, sn_candidate *c) {
    x->candidate = c;
    x->stages = c->pp * c->chunks;
}

void sn_price_context_free(sn_stage_context *x) {
    sn_free((void *)x->sites);
    sn_free((void *)x->messages);
    *x = (sn_stage_context){0};
}

// What a pipeline rank does once a step, over all its chunks.
typedef struct rank_sums {
    double seconds;          // of a micro-batch
    double lasting, working; // bytes: what all chunks hold; the most that a chunk at work takes
    double update, clear, accumulate, least_update, least_clear, sync, optimizer, whole;
    double moved; // seconds of a micro-batch that move parameters and gradients: ZeRO-2 and ZeRO-3
} rank_sums;

static void add_once(const sn_search *s, const sn_stage_site *site, int first, int end, rank_sums *rank) {
    int n = s->request.blocks->n_classes;
    const sn_block_cost *costs = site->costs;
    for (int k = 0; k < n; k++) {
        int count = s->before[end * n + k] - s->before[first * n + k];
        if (!count) continue;
        rank->update += count * costs[k].update;
        rank->clear += count * costs[k].clear;
        rank->accumulate += count * costs[k].accumulate;
        rank->least_update += count * costs[k].least_update;
        rank->least_clear += count * costs[k].least_clear;
        rank->moved += count * moved_seconds(site, k);
        rank->optimizer += count * costs[k].optimizer;
        rank->whole += site->moves ? count * site->moves[k].whole_optimizer : 0;
        rank->sync += count * (costs[k].reduce + (site->moves ? site->moves[k].once : 0));
    }
}

// The states of the optimizer are shared out from ZeRO-1 on, the gradients from ZeRO-2 on; launches are not.
static double update_seconds(const sn_candidate *c, const rank_sums *rank) {
    double whole = rank->optimizer > 0 ? rank->whole / rank->optimizer : 0;
    double share = sn_shared_out(1, whole, sn_candidate_shares(c)), update = rank->update, clear = rank->clear;
    if (c->zero >= 1) update = rank->least_update + larger(0, update - rank->least_update) * share;
    if (c->zero >= 2) clear = rank->least_clear + larger(0, clear - rank->least_clear) * share;
    return sn_candidate_is_one_program(c) ? larger(0, update - rank->accumulate) : update + clear;
}

static double pipeline_seconds(const sn_search *s, const sn_candidate *c, const sn_pipeline_times *times) {
    if (s->request.objective == SN_OBJECTIVE_STEADY) return times->longest_rank;
    if (s->request.objective == SN_OBJECTIVE_FILLED)
        return (c->microbatches - 1 + c->pp * c->chunks) * times->longest_rank;
    return sn_pipeline_seconds(c->schedule, c->pp, c->microbatches, times);
}

static double message_seconds(const sn_search *s, const sn_candidate *c, sn_pipeline_times times) {
    double with = pipeline_seconds(s, c, &times);
    times.messages = times.turn = 0;
    return with - pipeline_seconds(s, c, &times);
}

// What is known of a stage before its rematerialisation is chosen.
typedef struct stage_choice {
    sn_stage_place place;
    sn_stage_sums sums;
    double lasting[SN_REMAT_COUNT], working[SN_REMAT_COUNT], again[SN_REMAT_COUNT];
    sn_remat now;
} stage_choice;

static void read_option(const sn_stage_context *x, stage_choice *choice, sn_remat remat) {
    sn_memory memory = sn_stage_memory(x, &choice->place, &choice->sums, remat);
    choice->lasting[remat] = sn_memory_total(&memory) - memory.working;
    choice->working[remat] = memory.working;
    choice->again[remat] = choice->sums.again[remat];
}

static void read_stage(const sn_stage_context *x, const int *cut, int index, stage_choice *out) {
    out->place = sn_stage_place_of(x, index);
    out->sums = sn_stage_sums_of(x, index, cut[index], cut[index + 1]);
    out->now = x->remat;
    if (x->candidate->chunks == 1) {
        (void)sn_stage_seconds(x, &out->place, &out->sums, &out->now);
        read_option(x, out, out->now);
    } else {
        for (int r = 0; r < SN_REMAT_COUNT; r++) read_option(x, out, (sn_remat)r);
    }
}

// Chunks of a rank. A rank runs one chunk at a time: of working memory the chunk with the most counts, everything else
// adds up.
typedef struct rank_use {
    double lasting, working, second; // second: the most that a chunk but `fullest` takes
    int fullest;
} rank_use;

static rank_use use_of(const stage_choice *chunks, int n) {
    rank_use use = {.fullest = -1};
    for (int c = 0; c < n; c++) {
        double working = chunks[c].working[chunks[c].now];
        use.lasting += chunks[c].lasting[chunks[c].now];
        if (working > use.working) {
            use.second = use.working;
            use.working = working;
            use.fullest = c;
        } else {
            use.second = larger(use.second, working);
        }
    }
    return use;
}

// The change that saves most bytes a second; false when none saves any.
static bool take_cheapest(stage_choice *chunks, int n, const rank_use *use) {
    int chunk = -1, kind = 0;
    double best = 0, total = use->lasting + use->working;
    for (int c = 0; c < n; c++) {
        const stage_choice *choice = &chunks[c];
        int now = (int)choice->now;
        double others = c == use->fullest ? use->second : use->working;
        for (int k = now + 1; k < SN_REMAT_COUNT; k++) {
            double after = use->lasting - choice->lasting[now] + choice->lasting[k];
            double saved = total - after - larger(others, choice->working[k]);
            double rate = saved / (choice->again[k] - choice->again[now] + 1e-12);
            if (saved > 0 && rate > best) best = rate, chunk = c, kind = k;
        }
    }
    if (chunk >= 0) chunks[chunk].now = (sn_remat)kind;
    return chunk >= 0;
}

// One rank of an interleaved pipeline: what its chunks compute again is chosen together. From nothing, the cheapest
// second for each byte is taken until the rank fits.
static void choose_rank(const sn_stage_context *x, stage_choice *chunks, int n) {
    if (x->remat_is_fixed) return;
    double limit = chunks[0].place.limit;
    rank_use use = use_of(chunks, n);
    for (int c = 0; c < n; c++) chunks[c].now = SN_REMAT_NONE;
    while (use.lasting + use.working > limit && take_cheapest(chunks, n, &use)) use = use_of(chunks, n);
    double total = use.lasting + use.working;
    if (total <= limit) return;
    // The first chunk to compute again brings its working memory, so one alone may save nothing where all do.
    sn_remat *kept = sn_alloc((size_t)n * sizeof *kept);
    for (int c = 0; c < n; c++) kept[c] = chunks[c].now, chunks[c].now = SN_REMAT_FULL;
    use = use_of(chunks, n);
    for (int c = 0; c < n && use.lasting + use.working >= total; c++) chunks[c].now = kept[c];
    sn_free(kept);
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

static stage_choice *choose_stages(const sn_stage_context *x, const int *cut) {
    int chunks = x->candidate->chunks, pp = x->candidate->pp;
    stage_choice *choices = sn_alloc((size_t)x->stages * sizeof *choices); // chunks of a rank side by side
    for (int rank = 0; rank < pp; rank++) {
        for (int k = 0; k < chunks; k++) read_stage(x, cut, k * pp + rank, &choices[rank * chunks + k]);
        if (chunks > 1) choose_rank(x, &choices[rank * chunks], chunks);
    }
    return choices;
}

static void add_stage(const sn_stage_context *x, const stage_choice *choice, sn_pipeline_times *times,
                      rank_sums *rank) {
    sn_stage_passes passes = sn_stage_passes_of(&choice->sums, choice->now);
    sn_pipeline_times_add(times, passes.forward, passes.backward_input, passes.backward_weight,
                          choice->place.index == x->stages - 1);
    rank->seconds += passes.forward + passes.backward_input + passes.backward_weight;
    rank->lasting += choice->lasting[choice->now];
    rank->working = larger(rank->working, choice->working[choice->now]);
}

// By Little's law (Little 1961) a rank that holds n micro-batches, each from its forward pass to the end of its
// backward pass, takes in one every (time held / n) seconds. With equal stages and without messages that is its own
// work. The link of a rank carries its messages one after the other.
static void add_messages(const sn_stage_context *x, const stage_choice *choices, sn_pipeline_times *times) {
    const sn_candidate *c = x->candidate;
    bool split = c->schedule == SN_PIPELINE_ZERO_BUBBLE;
    double loop = 0, next = 0; // from the stage on and back; the message to the next stage
    double *held = sn_alloc((size_t)c->pp * sizeof *held), *link = sn_alloc((size_t)c->pp * sizeof *link);
    for (int i = x->stages - 1; i >= 0; i--) {
        const stage_choice *choice = &choices[i % c->pp * c->chunks + i / c->pp];
        sn_stage_passes passes = sn_stage_passes_of(&choice->sums, choice->now);
        loop += passes.forward + passes.backward_input + (split ? 0 : passes.backward_weight) + 2 * next;
        held[i % c->pp] += loop / c->chunks;
        link[i % c->pp] += next + choice->sums.message;
        next = choice->sums.message;
        times->messages += 2 * next;
    }
    for (int rank = 0; rank < c->pp && times->messages > 0; rank++) {
        const sn_stage_place *place = &choices[rank * c->chunks].place;
        double in_flight = split ? place->early : place->in_flight;
        times->turn = fmax(times->turn, fmax(held[rank] / in_flight, link[rank]));
    }
    sn_free(held);
    sn_free(link);
}

static double add_ranks(sn_search *s, sn_candidate *c, const sn_stage_context *x, const rank_sums *ranks,
                        sn_stage_report *stages, double *work) {
    double longest = 0;
    for (int i = 0; i < c->pp; i++) {
        const sn_stage_site *site = sn_stage_site_at(x, i);
        double limit = site->limit;
        double bytes = ranks[i].lasting + ranks[i].working;
        if (bytes > c->memory) c->memory = bytes, c->memory_limit = limit / SN_DEVICE_SHARE, c->fullest = i;
        c->excess = fmax(c->excess, bytes - limit);
        double update = update_seconds(c, &ranks[i]), sync = ranks[i].sync + site->once, seconds = sync + update;
        c->sync = fmax(c->sync, sync);
        c->update = fmax(c->update, update);
        c->moved = fmax(c->moved, c->microbatches * ranks[i].moved);
        longest = fmax(longest, seconds);
        if (stages) stages[i].once = seconds;
        *work += ranks_at_once(s, c) * (c->microbatches * ranks[i].seconds + seconds);
    }
    return longest;
}

void sn_price(sn_search *s, sn_candidate *c, const sn_stage_context *x, const int *cut, sn_stage_report *stages) {
    sn_pipeline_times times = {0};
    rank_sums *ranks = sn_alloc((size_t)c->pp * sizeof *ranks);
    stage_choice *choices = choose_stages(x, cut);
    double work = 0;
    c->memory = c->excess = c->sync = c->update = c->moved = 0;
    for (int i = 0; i < x->stages; i++) {
        const stage_choice *choice = &choices[i % c->pp * c->chunks + i / c->pp];
        rank_sums *rank = &ranks[i % c->pp];
        add_stage(x, choice, &times, rank);
        add_once(s, sn_stage_site_at(x, i), cut[i], cut[i + 1], rank);
        if (i == 0 || rank->seconds > times.longest_rank) c->binding = i;
        times.longest_rank = fmax(times.longest_rank, rank->seconds);
        if (!stages) continue;
        sn_stage_report_of(x, &choice->place, &choice->sums, choice->now, &stages[i]);
        stages[i].first = cut[i], stages[i].end = cut[i + 1];
    }
    add_messages(x, choices, &times);
    double once = add_ranks(s, c, x, ranks, stages, &work);
    c->pipeline = pipeline_seconds(s, c, &times);
    c->messages = message_seconds(s, c, times);
    c->crowded = crowded_seconds(s, work);
    c->step = s->request.objective == SN_OBJECTIVE_STEP ? fmax(c->pipeline + once, c->crowded) : c->pipeline;
    c->n_stages = x->stages;
    c->stages = stages;
    sn_free(ranks);
    sn_free(choices);
}

static sn_block_moves moves_at(const sn_stage_site *site, int k) {
    return site->moves ? site->moves[k] : (sn_block_moves){0};
}

// Of one block at one site: what the sums have of it.
static sn_price_sums block_sums(const sn_stage_site *site, int k) {
    const sn_block_cost *cost = &site->costs[k];
    sn_block_moves moves = moves_at(site, k);
    double without = cost->forward + cost->backward_input + moves.forward + moves.backward_input;
    double weight = cost->backward_weight + moves.backward_weight;
    return (sn_price_sums){.least = class_seconds(site, k), .fill = without - weight, .without = without};
}

static void add_class(const sn_stage_context *x, int k, sn_price_sums *sums) {
    const sn_block_cost *cost = &x->first.costs[k];
    sn_price_sums least = block_sums(&x->first, k);
    int count = x->blocks->classes[k].count;
    if (!count) return;
    for (int i = 0; i < x->n_sites; i++) {
        sn_price_sums here = block_sums(&x->sites[i], k);
        least.least = fmin(least.least, here.least);
        least.fill = fmin(least.fill, here.fill);
        least.without = fmin(least.without, here.without);
    }
    sums->work += count * (cost->forward + cost->backward_input + cost->backward_weight);
    sums->total += count * class_seconds(&x->first, k);
    sums->least += count * least.least;
    sums->fill += count * least.fill;
    sums->without += count * least.without;
    sums->longest = fmax(sums->longest, least.least);
}

static double once_at(const sn_search *s, const sn_candidate *c, const sn_stage_context *x, const sn_stage_site *site) {
    rank_sums all = {0};
    add_once(s, site, 0, x->blocks->n_blocks, &all);
    return (all.sync + update_seconds(c, &all)) / c->pp + site->once;
}

sn_price_sums sn_price_sums_of(sn_search *s, const sn_candidate *c, const sn_stage_context *x) {
    sn_price_sums sums = {0};
    for (int k = 0; k < x->blocks->n_classes; k++) add_class(x, k, &sums);
    sums.once = once_at(s, c, x, &x->first);
    for (int i = 0; i < x->n_sites; i++) sums.once = fmin(sums.once, once_at(s, c, x, &x->sites[i]));
    return sums;
}

// The closed form with every rank at `each` seconds a micro-batch, or at the average where that is more.
static double bound_with(const sn_search *s, const sn_candidate *c, const sn_stage_context *x, const sn_price_sums *b,
                         double each) {
    double m = c->microbatches, messages = 2 * x->message * (x->stages - 1);
    if (s->request.objective == SN_OBJECTIVE_STEADY) return each;
    if (s->request.objective == SN_OBJECTIVE_FILLED) return (m - 1 + x->stages) * each;
    // Of the fill the last stage's part is missing, which is no longer than the longest stage.
    if (c->schedule == SN_PIPELINE_ZERO_BUBBLE) {
        double fill = (m - 1) * each + b->fill, through = b->without * (1 + (m - 1) / x->stages);
        return fmax(fmax(m * each, fill), through) + b->once;
    }
    if (c->schedule == SN_PIPELINE_INTERLEAVED) return m * each + (c->pp - 1) * b->least / x->stages + b->once;
    return b->least + messages + (m - 1) * each + b->once;
}

// Ranks at the first site that would do as much as all do.
static double ranks_of_first(const sn_stage_context *x) {
    double ranks = 0;
    for (int i = 0; i < x->candidate->pp; i++) ranks += 1 / sn_stage_site_at(x, i)->pace;
    return ranks;
}

double sn_price_bound(const sn_search *s, const sn_candidate *c, const sn_stage_context *x, const sn_price_sums *b) {
    double bound = bound_with(s, c, x, b, fmax(b->total / ranks_of_first(x), b->longest));
    if (s->request.objective != SN_OBJECTIVE_STEP) return bound;
    double work = ranks_at_once(s, c) * (c->microbatches * b->least + c->pp * b->once);
    return fmax(bound, crowded_seconds(s, work));
}

// The most work (seconds without rematerialisation) that a rank does in some seconds a micro-batch within its memory: a
// linear program over the shares of blocks of each class and rematerialisation, with two constraints, so its optimum
// mixes two of them at most. Of the points (seconds, bytes) for a unit of work those on the lower left of the convex
// hull are left, seconds rising and bytes falling: which two are mixed follows from the seconds there are for a byte.
typedef struct rank_column {
    double work, seconds, bytes;
} rank_column;

typedef struct rank_program {
    double bytes; // that the rank has for blocks
    int n;
    rank_column *columns;
} rank_program;

static double most_work(const rank_program *p, double seconds) {
    const rank_column *v = p->columns, *end = v + p->n, *u = NULL;
    while (v < end && seconds * v->bytes > p->bytes * v->seconds) u = v++;
    if (v == end) return u ? u->work * (p->bytes / u->bytes) : 0;
    if (!u) return v->work * (seconds / v->seconds);
    double det = u->seconds * v->bytes - v->seconds * u->bytes;
    double x = (seconds * v->bytes - v->seconds * p->bytes) / det;
    double y = (u->seconds * p->bytes - seconds * u->bytes) / det;
    return x * u->work + y * v->work;
}

// Whether a mix of `a` and `c` does as much as `b`, which lies between them, in no more seconds and bytes.
static bool is_mixed(const rank_column *a, const rank_column *b, const rank_column *c) {
    double as = a->seconds / a->work, bs = b->seconds / b->work, cs = c->seconds / c->work;
    double ab = a->bytes / a->work, bb = b->bytes / b->work, cb = c->bytes / c->work;
    return (bs - as) * (cb - ab) - (bb - ab) * (cs - as) <= 0;
}

static void add_column(rank_program *p, rank_column column) {
    double seconds = column.seconds / column.work, bytes = column.bytes / column.work;
    rank_column *list = p->columns;
    int at = 0, next;
    while (at < p->n && list[at].seconds / list[at].work < seconds) at++;
    if (at > 0 && list[at - 1].bytes / list[at - 1].work <= bytes) return;
    if (at < p->n && list[at].seconds / list[at].work == seconds && list[at].bytes / list[at].work <= bytes) return;
    for (next = at; next < p->n && list[next].bytes / list[next].work >= bytes;) next++; // no better in either
    if (at > 0 && next < p->n && is_mixed(&list[at - 1], &column, &list[next])) return;
    while (at > 1 && is_mixed(&list[at - 2], &list[at - 1], &column)) at--;
    while (next + 1 < p->n && is_mixed(&column, &list[next], &list[next + 1])) next++;
    memmove(&list[at + 1], &list[next], (size_t)(p->n - next) * sizeof *list);
    list[at] = column;
    p->n += at + 1 - next;
}

static void fill_program(const sn_stage_context *x, int rank, rank_program *out) {
    const sn_candidate *c = x->candidate;
    const sn_stage_site *site = sn_stage_site_at(x, rank);
    sn_stage_place place = sn_stage_place_of(x, rank);
    double working = INFINITY, shares = sn_candidate_shares(c);
    for (int k = 0; k < x->blocks->n_classes; k++) {
        const sn_block_cost *cost = &site->costs[k], *at_first = &x->first.costs[k];
        if (!x->blocks->classes[k].count) continue;
        double work = at_first->forward + at_first->backward_input + at_first->backward_weight;
        sn_stage_sums one = {0};
        sn_stage_sums_add(x, rank, k, 1, &one);
        sn_block_moves moves = moves_at(site, k);
        double state = sn_shared_out(cost->optimizer, moves.whole_optimizer, c->zero >= 1 ? shares : 1) +
                       (sn_candidate_is_one_program(c) // they take the place of activations
                            ? 0
                            : sn_shared_out(cost->gradients, moves.whole_gradients, c->zero >= 2 ? shares : 1)) +
                       sn_shared_out(cost->parameters, moves.whole_parameters, c->zero >= 3 ? shares : 1);
        double seconds = class_seconds(site, k);
        working = fmin(working, cost->working);
        for (int r = 0; r < SN_REMAT_COUNT && work > 0; r++)
            add_column(out, (rank_column){work, seconds + one.again[r],
                                          state + one.last + sn_stage_activations(x, &place, &one.activations[r])});
    }
    out->bytes = fmax(0, place.limit - working);
}

// The least seconds a micro-batch in which all ranks together do all work.
static double least_each(const sn_candidate *c, const rank_program *programs, double work, double low, double high) {
    for (int round = 0; round < 20 && high - low > 1e-4 * high; round++) {
        double middle = 0.5 * (low + high), done = 0;
        for (int rank = 0; rank < c->pp && done < work; rank++) done += most_work(&programs[rank], middle);
        *(done >= work * (1 - 1e-12) ? &high : &low) = middle;
    }
    return low;
}

double sn_price_tight_bound(const sn_search *s, const sn_candidate *c, const sn_stage_context *x,
                            const sn_price_sums *b) {
    double low = b->total / ranks_of_first(x), high = 4 * low + 8 * b->longest;
    size_t most = (size_t)x->blocks->n_classes * SN_REMAT_COUNT + 1;
    rank_program *programs = sn_alloc((size_t)c->pp * sizeof *programs);
    rank_column *columns = sn_alloc((size_t)c->pp * most * sizeof *columns);
    for (int rank = 0; rank < c->pp; rank++) {
        programs[rank].columns = columns + (size_t)rank * most;
        fill_program(x, rank, &programs[rank]);
    }
    // The messages of ZeRO are part of low, but not of work.
    double each = least_each(c, programs, b->work, 0.5 * low, high);
    sn_free(columns);
    sn_free(programs);
    return fmax(c->bound, bound_with(s, c, x, b, each));
}
