// Every outline (axis sizes, micro-batch, schedule, chunks, ZeRO, layout between blocks, order of the axes) is priced
// with an even cut of the blocks, unless a bound that no cut can beat shows that it is worse than what is known. The
// outlines are then taken in the order of their bounds and given exact stages until the next bound is no better than
// the best step found: the best candidate is optimal for the cost model, and what was left out says by how much.
#include "passes/partition/search.h"

#include "passes/partition/rescore.h"
#include "passes/partition/search_price.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Outlines whose bound is further from the best are compared by that bound alone.
static const double WORTH_PRICING = 1.12;

// The share of a step that messages take from which on a cut without them is looked at.
static const double NOTABLE_MESSAGES = 0.01;

// Stages looked at by exact searches; deterministic, unlike a limit of seconds.
static const long MOST_WORK = 100000000;

enum {
    MOST_RUNNERS = 6,
    MOST_TRIES = 3,
    MOST_FIRST = 8,
    MOST_SOLVED = 160000,     // blocks, of all outlines that are given exact stages
    MOST_SOLVED_MORE = 32000, // the same where a plan is known, whose bound no one asks for
    MOST_TENSOR = 64,
    MOST_CONTEXT = 16,
    MOST_EXPERTS = 64,
    MOST_MICRO = 64,
    MOST_CHUNKS = 16
};

// What a candidate is compared by: "why not tp=4" names the best candidate with tp=4.
typedef struct property {
    const char *name;
    int (*value)(const sn_candidate *c); // -1: it does not apply
} property;

static int tensor_of(const sn_candidate *c) {
    return c->setting.tp;
}
static int pipeline_of(const sn_candidate *c) {
    return c->pp;
}
static int data_of(const sn_candidate *c) {
    return c->dp;
}
static int context_of(const sn_candidate *c) {
    return c->setting.cp;
}
static int experts_of(const sn_candidate *c) {
    return c->setting.ep;
}
static int zero_of(const sn_candidate *c) {
    return c->zero;
}
static int micro_of(const sn_candidate *c) {
    return (int)c->setting.micro;
}
static int schedule_of(const sn_candidate *c) {
    return (int)c->schedule;
}
static int boundary_of(const sn_candidate *c) {
    return c->setting.tp > 1 ? c->setting.boundary : -1;
}

static const property properties[] = {{"tp", tensor_of},         {"pp", pipeline_of},       {"dp", data_of},
                                      {"cp", context_of},        {"ep", experts_of},        {"zero", zero_of},
                                      {"micro-batch", micro_of}, {"schedule", schedule_of}, {"sequence", boundary_of}};
enum { PROPERTIES = sizeof properties / sizeof *properties };

// The best candidate of each value of a property.
typedef struct noted {
    int value;
    sn_candidate candidate;
} noted;

typedef struct noted_values {
    SN_VEC(noted) list;
    size_t last; // values come in runs
} noted_values;

// What an outline fails at, in the order of the checks: when nothing is left, the furthest that any came to is named.
typedef enum obstacle {
    OBSTACLE_DEVICES,
    OBSTACLE_BLOCKS,
    OBSTACLE_BATCH,
    OBSTACLE_MICROBATCHES,
    OBSTACLE_FIXED_BATCH,
    OBSTACLE_DIMS,
    OBSTACLE_ZERO,
    OBSTACLE_SCHEDULE,
    OBSTACLE_COUNT
} obstacle;

// One run: what was found so far.
typedef struct run {
    sn_search *search;
    const sn_candidate *known; // to be beaten; NULL: none
    double limit_scale, worth;
    double best; // step of the best feasible estimate
    double best_excess;
    sn_candidate closest;      // to fitting
    SN_VEC(sn_candidate) kept; // estimates worth an exact look, and the best of each property
    noted_values noted[PROPERTIES];
    double dropped_bound; // least bound of what was not solved
    long candidates, solved, work;
    obstacle furthest;
    int inner[SN_TENSOR_AXES - 1]; // of the tp that is looked at
} run;

const char *sn_objective_name(sn_objective objective) {
    static const char *const names[SN_OBJECTIVE_COUNT] = {"step", "steady", "filled"};
    return names[objective];
}

sn_evaluator *sn_search_evaluator(sn_search *search) {
    return search->evaluator;
}

static void read_cluster(sn_search *s) {
    const sn_cluster *cluster = s->request.cluster;
    const sn_device_kind *slowest = cluster->nodes[0].device;
    for (int k = 0; k < cluster->n_kinds; k++)
        if (sn_device_pace(cluster->nodes[k].device) < sn_device_pace(slowest)) slowest = cluster->nodes[k].device;
    s->model = (sn_cost_model){
        .device = slowest, .profile = s->request.profile, .plugins = s->request.plugins, .diags = s->request.diags};
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

sn_search *sn_search_behind(const sn_search *like, const sn_cluster *cluster) {
    sn_search *s = SN_NEW(like->arena, sn_search);
    s->request = like->request;
    s->request.cluster = cluster;
    s->arena = like->arena;
    read_cluster(s);
    s->evaluator = sn_evaluator_behind(like->evaluator, cluster);
    s->before = like->before;
    return s;
}

void sn_search_free(sn_search *search) {
    sn_evaluator_free(search->evaluator);
    sn_vec_free(&search->groups);
    sn_vec_free(&search->sites);
    sn_vec_free(&search->moves);
    sn_vec_free(&search->bounds);
}

static bool same_outline(const sn_candidate *a, const sn_candidate *b) {
    return a->pp == b->pp && a->dp == b->dp && a->setting.tp == b->setting.tp && a->setting.cp == b->setting.cp &&
           a->setting.ep == b->setting.ep && a->setting.micro == b->setting.micro && a->schedule == b->schedule &&
           a->chunks == b->chunks && a->zero == b->zero && a->setting.boundary == b->setting.boundary &&
           a->data_outside == b->data_outside;
}

static bool is_better(const sn_candidate *c, const sn_candidate *old) {
    bool priced = c->n_stages > 0, old_priced = old->n_stages > 0; // else a bound
    if (priced != old_priced) return priced;
    if ((c->excess <= 0) != (old->excess <= 0)) return c->excess <= 0;
    return c->excess > 0 ? c->excess < old->excess : c->step < old->step;
}

static noted *find_value(noted_values *values, int value) {
    if (values->last < values->list.count && values->list.data[values->last].value == value)
        return &values->list.data[values->last];
    for (size_t i = 0; i < values->list.count; i++)
        if (values->list.data[i].value == value) return &values->list.data[values->last = i];
    return NULL;
}

static void note_alternatives(run *r, const sn_candidate *c) {
    for (int p = 0; p < PROPERTIES; p++) {
        int value = properties[p].value(c);
        if (value < 0) continue;
        noted *known = find_value(&r->noted[p], value);
        if (!known)
            sn_vec_push(&r->noted[p].list, (noted){value, *c});
        else if (is_better(c, &known->candidate))
            known->candidate = *c;
    }
}

static int by_value(const void *left, const void *right) {
    const noted *a = left, *b = right;
    return (a->value > b->value) - (a->value < b->value);
}

static const char *value_text(const property *p, int value, sn_arena *arena) {
    if (p->value == schedule_of) return sn_pipeline_name((sn_pipeline)value);
    if (p->value == boundary_of) return value ? "cut" : "whole";
    return sn_arena_printf(arena, "%d", value);
}

static void read_alternatives(run *r, sn_search_result *out) {
    sn_arena *arena = r->search->arena;
    size_t count = 0;
    for (size_t i = 0; i < r->kept.count; i++) note_alternatives(r, &r->kept.data[i]);
    for (int p = 0; p < PROPERTIES; p++) count += r->noted[p].list.count;
    out->alternatives = SN_NEW_N(arena, sn_alternative, count + 1);
    for (int p = 0; p < PROPERTIES; p++) {
        noted *list = r->noted[p].list.data;
        size_t n = r->noted[p].list.count;
        if (n) qsort(list, n, sizeof *list, by_value);
        int own = out->feasible ? properties[p].value(&out->best) : -1;
        for (size_t i = 0; i < n; i++)
            if (list[i].value != own)
                out->alternatives[out->n_alternatives++] = (sn_alternative){
                    properties[p].name, value_text(&properties[p], list[i].value, arena), list[i].candidate};
        sn_vec_free(&r->noted[p].list);
    }
}

// What the candidates of an outline share that differ in schedule and chunks alone; filled when the first of them asks.
typedef struct terms {
    bool known;
    sn_stage_context context;
    sn_price_sums sums;
} terms;

static sn_stage_context *shared_context(run *r, sn_candidate *c, terms *t) {
    if (!t->known) {
        t->context = sn_price_context(r->search, r->limit_scale, c);
        t->sums = sn_price_sums_of(r->search, c, &t->context);
        t->known = true;
    }
    sn_price_set_candidate(&t->context, c);
    return &t->context;
}

static double bound_of(run *r, sn_candidate *c, terms *t) {
    sn_search *s = r->search;
    size_t at = (size_t)r->candidates++;
    if (at < s->bounds.count) return s->bounds.data[at];
    const sn_stage_context *x = shared_context(r, c, t);
    sn_vec_push(&s->bounds, sn_price_bound(s, c, x, &t->sums));
    return sn_vec_last(&s->bounds);
}

// Prices a candidate with an even cut.
static void consider(run *r, sn_candidate *c, terms *t) {
    int stages = c->pp * c->chunks;
    c->bound = bound_of(r, c, t);
    if (c->bound < r->best * r->worth) {
        const sn_stage_context *x = shared_context(r, c, t);
        int *cut = sn_alloc((size_t)(stages + 1) * sizeof *cut);
        sn_stages_even(x, cut);
        sn_price(r->search, c, x, cut, NULL);
        if (c->excess <= 0) {
            r->best = fmin(r->best, c->step);
        } else if (c->excess < r->best_excess) {
            r->best_excess = c->excess;
            r->closest = *c;
        }
        sn_vec_push(&r->kept, *c);
        sn_free(cut);
    } else if (!r->known) {
        c->step = c->bound; // at the least
        note_alternatives(r, c);
    }
}

static bool names(const sn_plan *fixed, unsigned field) {
    return fixed && fixed->named & field;
}

// The size that --mesh gives an axis; 0: it is searched.
static int named_size(const run *r, const char *axis) {
    const sn_plan *fixed = r->search->request.fixed;
    return fixed && sn_mesh_axis(&fixed->mesh, axis) >= 0 ? sn_plan_axis_size(fixed, axis) : 0;
}

static bool is_open(const run *r, const char *axis, int size) {
    int named = named_size(r, axis);
    return !named || named == size;
}

static bool meets(run *r, bool good, obstacle what) {
    if (!good && r->furthest < what) r->furthest = what;
    return good;
}

// Whether this schedule is looked at for an outline. GPipe takes as long as 1F1B and holds more; without a pipeline all
// schedules are one.
static bool is_schedule_open(const run *r, const sn_candidate *c, sn_pipeline schedule, int chunks) {
    const sn_plan *fixed = r->search->request.fixed;
    bool interleaved = schedule == SN_PIPELINE_INTERLEAVED, asked = names(fixed, SN_PLAN_SCHEDULE);
    int blocks = r->search->request.blocks->n_blocks;
    if (interleaved != (chunks > 1) || c->pp * chunks > blocks) return false;
    if (interleaved && c->microbatches % c->pp) return false;
    if (names(fixed, SN_PLAN_CHUNKS) && fixed->chunks != chunks) return false;
    if (interleaved && !names(fixed, SN_PLAN_CHUNKS) && chunks & (chunks - 1) && blocks % (c->pp * chunks) > 4)
        return false;
    if (asked && schedule != SN_PIPELINE_1F1B) // a pipeline is asked for
        return fixed->schedule == schedule && (c->pp > 1 || (named_size(r, "pp") == 1 && !interleaved));
    if (asked) return fixed->schedule == schedule;
    return schedule == SN_PIPELINE_1F1B || (c->pp > 1 && schedule != SN_PIPELINE_GPIPE);
}

static void consider_schedules(run *r, sn_candidate *c) {
    const sn_plan *fixed = r->search->request.fixed;
    int orders = c->pp > 1 && c->dp > 1 && !r->search->uneven ? 2 : 1;
    int blocks = r->search->request.blocks->n_blocks; // more chunks find no block
    int most = names(fixed, SN_PLAN_CHUNKS) ? (int)fmin(fixed->chunks, blocks) : MOST_CHUNKS;
    for (int zero = 0; zero <= 3; zero++) {
        if (names(fixed, SN_PLAN_ZERO) ? zero != fixed->zero : zero > 0 && sn_candidate_shares(c) == 1) continue;
        if (!meets(r, zero == 0 || sn_candidate_shares(c) > 1, OBSTACLE_ZERO)) continue;
        terms by_order[2] = {0};
        for (int schedule = 0; schedule < SN_PIPELINE_COUNT; schedule++)
            for (int chunks = 1; chunks <= most; chunks++) {
                bool open = is_schedule_open(r, c, (sn_pipeline)schedule, chunks);
                if (!meets(r, open, OBSTACLE_SCHEDULE)) continue;
                for (int order = 0; order < orders; order++) {
                    sn_candidate candidate = *c;
                    candidate.zero = zero;
                    candidate.schedule = (sn_pipeline)schedule;
                    candidate.chunks = chunks;
                    candidate.data_outside = order;
                    consider(r, &candidate, &by_order[order]);
                }
            }
        for (int order = 0; order < orders; order++) sn_price_context_free(&by_order[order].context);
    }
}

static void consider_layouts(run *r, sn_candidate *c) {
    int boundaries = c->setting.tp > 1 ? sn_evaluator_boundaries(r->search->evaluator) : 1;
    for (int boundary = 0; boundary < boundaries; boundary++) {
        c->setting.boundary = boundary;
        sn_evaluator *e = r->search->evaluator;
        const sn_block_cost *costs = sn_evaluator_costs(e, c->setting, sn_evaluator_site(e));
        if (meets(r, costs != NULL, OBSTACLE_DIMS)) consider_schedules(r, c);
    }
}

static void consider_degrees(run *r, int tp, int cp, int ep, int pp) {
    const sn_search_request *q = &r->search->request;
    int64_t rest = r->search->devices / ((int64_t)tp * cp * ep), dp = rest / pp;
    if (!meets(r, rest % pp == 0 && is_open(r, "dp", (int)dp), OBSTACLE_DEVICES) ||
        !meets(r, pp <= q->blocks->n_blocks, OBSTACLE_BLOCKS) || !meets(r, q->batch % dp == 0, OBSTACLE_BATCH))
        return;
    bool counted = names(q->fixed, SN_PLAN_MICROBATCHES);
    int64_t share = q->batch / dp, least = 1, most = share < MOST_MICRO ? share : MOST_MICRO;
    if (counted || q->fixed_micro) { // the one that can be right
        least = counted ? share / q->fixed->microbatches : q->fixed_micro / dp;
        least = most = least > 0 ? least : 1;
    }
    for (int64_t micro = least; micro <= most; micro++) {
        if (!meets(r, share % micro == 0 && (!counted || share / micro == q->fixed->microbatches),
                   OBSTACLE_MICROBATCHES) ||
            !meets(r, !q->fixed_micro || micro * dp == q->fixed_micro, OBSTACLE_FIXED_BATCH))
            continue;
        sn_candidate c = {.pp = pp, .dp = (int)dp, .chunks = 1, .microbatches = (int)(share / micro)};
        c.setting = (sn_cut_setting){.tp = tp, .cp = cp, .ep = ep, .micro = micro};
        memcpy(c.setting.inner, r->inner, sizeof r->inner);
        consider_layouts(r, &c);
    }
}

// Where the model has experts, sizes of ep that divide them; one that --mesh names is taken as it is.
static void consider_experts(run *r, int tp, int cp) {
    int64_t rest = r->search->devices / ((int64_t)tp * cp), experts = sn_evaluator_experts(r->search->evaluator);
    int named = named_size(r, "ep"), most = named ? named : (int)fmin(MOST_EXPERTS, fmax(1, (double)experts));
    for (int ep = named ? named : 1; ep <= most; ep++) {
        if (rest % ep || (ep > 1 && !named && experts % ep)) continue;
        for (int pp = 1; pp <= rest / ep; pp++)
            if (is_open(r, "pp", pp)) consider_degrees(r, tp, cp, ep, pp);
    }
}

// The sizes of tp and cp that are looked at: tp within a node, and few sizes of cp; what --mesh names is taken as it
// is.
static void consider_all(run *r) {
    int64_t devices = r->search->devices;
    int node = (int)fmin(MOST_TENSOR, (double)r->search->request.cluster->nodes[0].devices);
    int most_tp = named_size(r, "tp") ? named_size(r, "tp") : node;
    int most_cp = named_size(r, "cp") ? named_size(r, "cp") : MOST_CONTEXT;
    for (int tp = 1; tp <= most_tp; tp++) {
        if (devices % tp || (named_size(r, "tp") ? tp != most_tp : node % tp)) continue;
        sn_evaluator_split(r->search->evaluator, tp, r->inner);
        for (int cp = 1; cp <= most_cp; cp++) {
            if (devices % ((int64_t)tp * cp) || (named_size(r, "cp") ? cp != most_cp : cp & (cp - 1))) continue;
            consider_experts(r, tp, cp);
        }
    }
}

// What --mesh names, as it was written.
static void put_named(const sn_plan *fixed, sn_str *out) {
    const char *comma = "";
    for (int a = 0; a < fixed->mesh.n_axes; a++, comma = ",")
        sn_str_printf(out, "%s%s=%d", comma, fixed->mesh.name[a], fixed->mesh.size[a]);
    if (names(fixed, SN_PLAN_MICROBATCHES))
        sn_str_printf(out, "%smicrobatches=%d", comma, fixed->microbatches), comma = ",";
    if (names(fixed, SN_PLAN_SCHEDULE))
        sn_str_printf(out, "%sschedule=%s", comma, sn_pipeline_name(fixed->schedule)), comma = ",";
    if (names(fixed, SN_PLAN_CHUNKS)) sn_str_printf(out, "%schunks=%d", comma, fixed->chunks), comma = ",";
    if (names(fixed, SN_PLAN_ZERO)) sn_str_printf(out, "%szero=%d", comma, fixed->zero), comma = ",";
    if (!*comma) sn_str_puts(out, "any mesh");
}

// "1, 2, 4, 8": sizes that divide both, up to the limit.
static void put_sizes(sn_str *out, int64_t a, int64_t b, int64_t limit) {
    enum { MOST_SHOWN = 12 };
    int shown = 0;
    for (int64_t size = 1; size <= limit && shown <= MOST_SHOWN; size++)
        if (a % size == 0 && b % size == 0)
            if (shown++ < MOST_SHOWN) sn_str_printf(out, "%s%" PRId64, shown > 1 ? ", " : "", size);
    if (shown > MOST_SHOWN) sn_str_puts(out, ", …");
}

// What limits, in numbers, and the values that are left.
static void put_limits(const run *r, sn_str *out) {
    const sn_search_request *q = &r->search->request;
    int64_t devices = r->search->devices, blocks = q->blocks->n_blocks, dp = named_size(r, "dp");
    switch (r->furthest) {
    case OBSTACLE_DEVICES:
        sn_str_puts(out, "; sizes that divide the devices: ");
        put_sizes(out, devices, devices, devices);
        break;
    case OBSTACLE_BLOCKS:
        sn_str_printf(out, ": the model has %" PRId64 " blocks, so pp may be ", blocks);
        put_sizes(out, devices, devices, blocks);
        break;
    case OBSTACLE_BATCH:
        sn_str_puts(out, "; for this batch and these devices dp may be ");
        put_sizes(out, devices, q->batch, devices);
        break;
    case OBSTACLE_MICROBATCHES:
        dp = dp && q->batch % dp == 0 ? dp : 1;
        sn_str_printf(out, "; with dp=%" PRId64 " microbatches may be ", dp);
        put_sizes(out, q->batch / dp, q->batch / dp, q->batch / dp);
        break;
    case OBSTACLE_SCHEDULE:
        sn_str_printf(out, "; the model has %" PRId64 " blocks", blocks);
        break;
    default:
        break;
    }
}

static void report_obstacle(const run *r) {
    static const struct {
        const char *cause, *help;
    } causes[OBSTACLE_COUNT] = {
        [OBSTACLE_DEVICES] = {"the axes do not multiply to the devices",
                              "change the sizes of --mesh's axes or the cluster"},
        [OBSTACLE_BLOCKS] = {"the model has fewer blocks than the pipeline has ranks", "choose a smaller pp"},
        [OBSTACLE_BATCH] = {"the data-parallel ranks do not divide the batch",
                            "choose a batch that the data-parallel ranks divide, or another number of devices"},
        [OBSTACLE_MICROBATCHES] = {"the micro-batches do not divide a data-parallel rank's share of the batch",
                                   "choose a batch that dp * microbatches divides, or leave microbatches out"},
        [OBSTACLE_FIXED_BATCH] = {"the model fixes the samples of a micro-batch over all data-parallel ranks",
                                  "leave microbatches and dp out, or export the model with a symbolic batch dim"},
        [OBSTACLE_DIMS] = {"the axes tp, cp and ep do not divide the model's dims",
                           "choose other sizes of tp and cp, and an ep that divides the experts and a micro-batch"},
        [OBSTACLE_ZERO] = {"ZeRO needs ranks that hold the same parameters", "choose dp > 1 or cp > 1, or zero=0"},
        [OBSTACLE_SCHEDULE] =
            {"the schedule does not go with the pipeline",
             "schedules beyond 1f1b need pp > 1; interleaved needs chunks of 2 and more, a number of micro-batches "
             "that pp divides, and a block for each of its pp * chunks stages"},
    };
    const sn_search_request *q = &r->search->request;
    sn_str text = {0}, help = {0};
    sn_str_puts(&help, causes[r->furthest].help);
    put_limits(r, &help);
    if (q->fixed) put_named(q->fixed, &text);
    if (q->fixed_micro && r->furthest == OBSTACLE_FIXED_BATCH)
        sn_str_printf(&text, "%sthe model's batch of %" PRId64, text.length ? " and " : "", q->fixed_micro);
    sn_error(q->diags, "E0440", q->fixed ? "--mesh" : NULL, sn_arena_strdup(&q->diags->arena, sn_str_text(&help)),
             "no way to share a batch of %" PRId64 " among %" PRId64 " devices%s%s: %s", q->batch, r->search->devices,
             text.length ? " with " : "", sn_str_text(&text), causes[r->furthest].cause);
    sn_str_free(&help);
    sn_str_free(&text);
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

// For chunks of ranks: sn_price shares a rank's memory out, and no boundary between chunks is more dear than others.
static void lift_limits(sn_stage_context *x, sn_stage_site *sites) {
    x->messages = NULL, x->messages_apart = 0;
    for (int i = 0; i < x->n_sites; i++) sites[i] = x->sites[i], sites[i].limit = INFINITY;
    x->first.limit = INFINITY;
    x->sites = sites;
}

// A cut that the exact search finds; false when nothing fits. It is exact for flushed 1F1B without messages; for the
// other schedules it is a guess.
static bool cut_exactly(run *r, const sn_candidate *c, sn_stage_context cutting, int *cut) {
    bool flushed = c->schedule == SN_PIPELINE_1F1B || c->schedule == SN_PIPELINE_GPIPE;
    double weight = flushed ? c->microbatches - 1 : (double)c->microbatches * c->chunks;
    long work = 0;
    sn_stage_site *unlimited = sn_alloc((size_t)(cutting.n_sites + 1) * sizeof *unlimited);
    if (c->chunks > 1) lift_limits(&cutting, unlimited);
    bool found = sn_stages_exact(&cutting, weight, cut, &work);
    sn_free(unlimited);
    r->work += work;
    return found;
}

// Prices a cut; whether it is better than the best so far, which it replaces then.
static bool keep_better(run *r, sn_candidate *best, sn_stage_context *x, const int *cut, int *best_cut) {
    sn_candidate c = *best;
    x->candidate = &c;
    sn_price(r->search, &c, x, cut, NULL);
    x->candidate = best;
    if (best->n_stages && !is_better(&c, best)) return false;
    *best = c;
    memcpy(best_cut, cut, (size_t)(x->stages + 1) * sizeof *cut);
    return true;
}

// Exact stages for one outline; false when nothing fits. What messages cost depends on what else a micro-batch waits
// for: one cut counts them as work of the stages that receive them, the other leaves them out.
static bool solve(run *r, sn_candidate *c) {
    const sn_search *s = r->search;
    sn_stage_context x = sn_price_context(r->search, r->limit_scale, c);
    size_t cuts = (size_t)x.stages + 1;
    int *cut = sn_alloc(cuts * sizeof *cut), *best_cut = sn_alloc(cuts * sizeof *cut);
    c->n_stages = 0;
    sn_stages_even(&x, cut);
    (void)keep_better(r, c, &x, cut, best_cut);
    c->exact = x.stages == 1;
    if (x.stages > 1 && cut_exactly(r, c, x, cut)) {
        (void)keep_better(r, c, &x, cut, best_cut);
        c->exact = true;
    }
    if (x.stages > 1 && c->chunks == 1 && c->messages > NOTABLE_MESSAGES * c->step) {
        sn_stage_context without = x;
        without.messages = NULL, without.messages_apart = 0, without.message = 0;
        if (cut_exactly(r, c, without, cut)) (void)keep_better(r, c, &x, cut, best_cut);
    }
    sn_price(r->search, c, &x, best_cut, SN_NEW_N(s->arena, sn_stage_report, x.stages));
    r->solved++;
    sn_free(cut);
    sn_free(best_cut);
    sn_price_context_free(&x);
    return c->excess <= 0;
}

static void tighten(run *r, sn_candidate *c) {
    sn_search *s = r->search;
    sn_stage_context x = sn_price_context(s, r->limit_scale, c);
    sn_price_sums sums = sn_price_sums_of(s, c, &x);
    c->bound = sn_price_tight_bound(s, c, &x, &sums);
    sn_price_context_free(&x);
}

// Closed forms of different schedules err in different directions: the best candidates of each go to the replay, if
// they come close.
static void solve_schedules(run *r, sn_candidate *list, size_t count, double best) {
    for (int schedule = 0; schedule < SN_PIPELINE_COUNT; schedule++) {
        int tries = 0;
        for (size_t i = 0; i < count && tries < MOST_TRIES; i++) {
            bool close = list[i].excess <= 0 && list[i].step < SN_WORTH_REPLAYING * best;
            if ((int)list[i].schedule != schedule || !close) continue;
            if (list[i].stages || (tries++, solve(r, &list[i]))) break;
        }
    }
}

// The best of what was solved: by the closed form, or by the replay.
static void choose(run *r, sn_search_result *out) {
    sn_candidate *list = r->kept.data;
    size_t count = r->kept.count, best = 0;
    while (!list[best].stages || list[best].excess > 0) best++; // estimates that the exact search refuted
    out->least_step = list[best].step;
    const sn_search *s = r->search;
    if (s->request.objective == SN_OBJECTIVE_STEP) best = sn_search_rescore(&s->request, s->devices, list, count);
    out->best = list[best];
    if (r->known && r->known->replayed > 0 && out->best.replayed >= r->known->replayed) out->best = *r->known;
    out->runners = SN_NEW_N(s->arena, sn_candidate, MOST_RUNNERS);
    for (size_t i = 0; i < count && out->n_runners < MOST_RUNNERS; i++)
        if (list[i].excess <= 0 && !same_outline(&list[i], &out->best)) out->runners[out->n_runners++] = list[i];
}

// The best estimates get exact stages first; then, in the order of their bounds, what could still be better.
static void solve_promising(run *r, sn_search_result *out) {
    const sn_candidate *known = r->known;
    sn_candidate *list = r->kept.data;
    size_t count = r->kept.count, first = count < MOST_FIRST ? count : MOST_FIRST;
    double best = known ? known->step : INFINITY;
    if (count) qsort(list, count, sizeof *list, by_step); // none: no bound is below the known step
    for (size_t i = 0; i < first; i++)
        if (list[i].bound < best && solve(r, &list[i])) best = fmin(best, list[i].step);
    for (size_t i = first; i < count; i++)
        if (list[i].bound < best) tighten(r, &list[i]);
    if (count > first) qsort(list + first, count - first, sizeof *list, by_bound);
    r->dropped_bound = INFINITY;
    long most = known ? MOST_SOLVED_MORE : MOST_SOLVED;
    for (size_t i = first; i < count && list[i].bound < best; i++) {
        if (r->solved * r->search->request.blocks->n_blocks >= most || r->work > MOST_WORK) {
            r->dropped_bound = list[i].bound; // of all that follow
            break;
        }
        if (solve(r, &list[i])) best = fmin(best, list[i].step);
    }
    if (!known) solve_schedules(r, list, count, best);
    if (count) qsort(list, count, sizeof *list, by_step);
    if (known && best >= known->step) {
        out->best = *known;
        out->feasible = true;
        return;
    }
    out->feasible = isfinite(best);
    if (out->feasible) choose(r, out);
}

bool sn_search_run(sn_search *search, double memory_scale, const sn_candidate *known, sn_search_result *out) {
    *out = (sn_search_result){0};
    run r = {.search = search,
             .known = known,
             .limit_scale = memory_scale,
             .best = known ? known->step : INFINITY,
             .best_excess = INFINITY,
             .worth = known ? 1 : WORTH_PRICING};
    consider_all(&r);
    if (!r.candidates) {
        report_obstacle(&r);
        sn_vec_free(&r.kept);
        return false;
    }
    solve_promising(&r, out);
    if (!known) read_alternatives(&r, out);
    if (!out->feasible) {
        out->best = r.closest;
        (void)solve(&r, &out->best);
    }
    if (!(out->least_step > 0)) out->least_step = out->best.step;
    out->lower_bound = fmin(out->least_step, r.dropped_bound);
    out->candidates = r.candidates;
    out->solved = r.solved;
    sn_vec_free(&r.kept);
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
                    .predicted_step_seconds = c->replayed > 0 ? c->replayed : c->step,
                    .predicted_memory_bytes = c->memory};
    add_axis(&plan.mesh, c->data_outside ? "dp" : "pp", c->data_outside ? c->dp : c->pp);
    add_axis(&plan.mesh, c->data_outside ? "pp" : "dp", c->data_outside ? c->pp : c->dp);
    add_axis(&plan.mesh, "ep", c->setting.ep);
    add_axis(&plan.mesh, "cp", c->setting.cp);
    int inner = c->setting.inner[0] ? c->setting.inner[0] : 1;
    add_axis(&plan.mesh, "tp", c->setting.tp / inner);
    add_axis(&plan.mesh, "tp_q", inner);
    plan.remat = c->stages ? c->stages[0].remat : SN_REMAT_NONE;
    if (c->stages && c->n_stages > 1) {
        plan.n_stages = c->n_stages;
        plan.stages = SN_NEW_N(arena, sn_plan_stage, c->n_stages);
        for (int i = 0; i < c->n_stages; i++) {
            const char *first = q->blocks->blocks[c->stages[i].first].first;
            plan.stages[i] = (sn_plan_stage){i ? sn_arena_strdup(arena, first) : "", c->stages[i].remat};
        }
    }
    if (c->setting.tp > 1 || c->setting.ep > 1)
        plan.layouts = sn_evaluator_layouts(search->evaluator, c->setting, &plan.mesh, arena, &plan.n_layouts);
    for (int i = 0; i < plan.n_layouts; i++) plan.layouts[i].name = sn_arena_strdup(arena, plan.layouts[i].name);
    return plan;
}
