// The exact cut into stages. For a bound T on the longest stage, f[s][i] is the least sum of times of s stages that
// cover the blocks before cut i, each at most T: one dynamic program, asked by the search over T that all stage
// problems share (inter/bottleneck.h). Unlike inter/stages.h, where a stage picks a shape and its memory follows from
// how many stages come behind it, here a stage's place is known: its devices, their pace and memory, and what the
// schedule makes it hold, which need not fall from stage to stage.
//
// The program is run for some tens of bounds, and a chain of repeated blocks has few stages that differ. So what a
// stage takes is computed once: a row has the stages of one place in the pipeline that begin at one cut, by their
// lengths, and cuts from which the chain goes on alike share their rows as far as it does.
#include "passes/partition/search_cuts.h"

#include "passes/partition/inter/bottleneck.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MOST_ROOTS = 8 };

static double block_seconds(const sn_stage_context *x, int block) {
    const sn_block_cost *c = &x->first.costs[x->blocks->blocks[block].kind];
    return c->forward + c->backward_input + c->backward_weight;
}

void sn_stages_even(const sn_stage_context *x, int *cut) {
    int n = x->blocks->n_blocks;
    double total = 0, done = 0, weights = 0, given = 0;
    for (int b = 0; b < n; b++) total += block_seconds(x, b);
    for (int s = 0; s < x->stages; s++) weights += 1 / sn_stage_site_at(x, s)->pace;
    cut[0] = 0;
    for (int s = 0, b = 0; s < x->stages; s++) {
        given += 1 / sn_stage_site_at(x, s)->pace;
        double goal = total * given / weights;
        int least = cut[s] + 1, most = n - (x->stages - 1 - s);
        while (b < most && (b < least || done + block_seconds(x, b) / 2 <= goal)) done += block_seconds(x, b++);
        cut[s + 1] = s == x->stages - 1 ? n : b;
    }
}

typedef struct row {
    sn_stage_sums sums; // of the longest stage that is known
    int known;
    double *seconds; // [known + 1], by the number of blocks
} row;

typedef struct solver {
    const sn_stage_context *x;
    sn_arena arena;
    int n, stages;
    int *like, *alike; // [n]: a cut, this one or an earlier one, from which the chain goes on alike for so many blocks
    bool same_places;  // all but the first: devices and what they hold are no matter
    sn_stage_place *places;
    row **rows;  // [stages][n]; NULL: none was asked for
    double *sum; // [stages + 1][n + 1]
    int *from;
    int *length; // [stages]: of the stage under the last bound, where the next one is looked for
    double bound, weight;
    int *trial, *cut; // [stages + 1]: of the plan found last; of the best
    long *work;
} solver;

// match[b]: how many blocks from b on are of the kinds from `root` on (Gusfield 1997, section 1.4).
static void match_from(const sn_blocks *blocks, int root, int *match) {
    int n = blocks->n_blocks;
    const sn_block *list = blocks->blocks;
    match[root] = n - root;
    for (int b = root + 1, left = root, right = root; b < n; b++) {
        int known = b < right ? match[root + b - left] : 0, reach = b + known < right ? b + known
                                                                    : b < right       ? right
                                                                                      : b;
        while (reach < n && list[reach].kind == list[root + reach - b].kind) reach++;
        match[b] = reach - b;
        if (reach > right) left = b, right = reach;
    }
}

// A cut that goes on like none before it for half of its way begins rows of its own.
static void find_alike(solver *v) {
    int roots = 0, *match = SN_NEW_N(&v->arena, int, v->n);
    for (int b = 0; b < v->n; b++) v->like[b] = b;
    for (int b = 0; b < v->n; b++) {
        if (2 * v->alike[b] >= v->n - b || roots == MOST_ROOTS) continue;
        match_from(v->x->blocks, b, match);
        roots++;
        for (int k = b; k < v->n; k++)
            if (match[k] > v->alike[k]) v->alike[k] = match[k], v->like[k] = b;
    }
}

static row *new_row(solver *v, row **at, int place, int first) {
    row *r = *at = SN_NEW(&v->arena, row);
    r->sums = sn_stage_sums_begin(v->x, place, first);
    r->seconds = SN_NEW_N(&v->arena, double, v->n - first + 1);
    return r;
}

static void lengthen(solver *v, row *r, int place, int first) {
    sn_remat remat;
    sn_stage_sums_add(v->x, place, v->x->blocks->blocks[first + r->known].kind, 1, &r->sums);
    r->seconds[++r->known] = sn_stage_seconds(v->x, &v->places[place], &r->sums, &remat);
}

// What a stage takes; not less than a part of it.
static double seconds_of(solver *v, int index, int first, int end) {
    int length = end - first, place = v->same_places && index ? 1 : index;
    if (length <= v->alike[first]) first = v->like[first];
    row **at = &v->rows[place * v->n + first], *r = *at ? *at : new_row(v, at, place, first);
    while (r->known < length) lengthen(v, r, place, first);
    ++*v->work;
    return r->seconds[length];
}

// Stages `index` that begin at cut `first`; whether there is one. Times grow with the stage's end, so the loop ends
// with the first stage that is too long. What does not fit in memory is too long as well: more blocks take no less.
static bool extend(solver *v, int index, int first) {
    int width = v->n + 1, most = v->n - (v->stages - 1 - index);
    double before = v->sum[index * width + first];
    bool any = false, last = index == v->stages - 1;
    for (int end = first + 1; end <= most; end++) {
        double seconds = seconds_of(v, index, first, end);
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

// The plan of the least sum within the bound.
static bool within(void *problem, double bound, sn_bottleneck_plan *out) {
    solver *v = problem;
    int *cut = v->trial;
    v->bound = fmin(bound, DBL_MAX); // no bound lets an infinite time pass
    if (!solve_bound(v)) return false;
    double longest = 0, sum = v->sum[v->stages * (v->n + 1) + v->n];
    cut[v->stages] = v->n;
    for (int s = v->stages; s > 0; s--) cut[s - 1] = v->from[s * (v->n + 1) + cut[s]];
    for (int s = 0; s < v->stages; s++) longest = fmax(longest, seconds_of(v, s, cut[s], cut[s + 1]));
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

// No stage runs on faster devices than those that take 1 / `fastest` of a block's seconds.
static double least_bound(const solver *v, double fastest) {
    double total = 0, longest = 0;
    for (int b = 0; b < v->n; b++) {
        double seconds = block_seconds(v->x, b);
        total += seconds;
        longest = fmax(longest, seconds);
    }
    return fmax(longest, total / v->stages) / fastest;
}

// Without a limit of memory nothing is computed again, and on equal devices, with equal messages, the sum is what it
// is: stages as long as a bound allows, one after the other, and bisection on the bound. False when the bound does not
// suffice.
static bool fill_stages(solver *v, double bound) {
    int *cut = v->cut;
    cut[0] = 0;
    for (int s = 0; s < v->stages; s++) {
        int most = v->n - (v->stages - 1 - s), end = cut[s] + v->length[s];
        if (end > most) end = most;
        while (end > cut[s] && seconds_of(v, s, cut[s], end) > bound) end--;
        while (end < most && seconds_of(v, s, cut[s], end + 1) <= bound) end++;
        if (end == cut[s]) return false;
        v->length[s] = end - cut[s];
        cut[s + 1] = end;
    }
    return cut[v->stages] == v->n;
}

static bool balance(solver *v, double low) {
    double high = fmax(2 * low, 1e-12); // blocks that take no time give 0, which doubling does not leave
    v->length = SN_NEW_N(&v->arena, int, v->stages);
    while (!fill_stages(v, high)) {
        low = high;
        if (!isfinite(high *= 2)) return false;
    }
    for (int round = 0; round < 50 && high - low > 1e-9 * high; round++) {
        double middle = 0.5 * (low + high);
        *(fill_stages(v, middle) ? &high : &low) = middle;
    }
    return fill_stages(v, high);
}

static bool solve_limited(solver *v, double least, double fastest) {
    size_t cells = (size_t)(v->stages + 1) * (size_t)(v->n + 1);
    v->sum = SN_NEW_N(&v->arena, double, cells);
    v->from = SN_NEW_N(&v->arena, int, cells);
    v->trial = SN_NEW_N(&v->arena, int, v->stages + 1);
    double least_sum = 0;
    for (int b = 0; b < v->n; b++) least_sum += block_seconds(v->x, b) / fastest;
    return sn_bottleneck_solve(&(sn_bottleneck){.problem = v,
                                                .objective = SN_STAGE_SYNCHRONOUS,
                                                .weight = v->weight,
                                                .least = least,
                                                .least_cost = least_sum,
                                                .fit = within,
                                                .cheapest = cheapest_within,
                                                .keep = keep_trial})
        .feasible;
}

bool sn_stages_exact(const sn_stage_context *x, double weight, int *cut, long *work) {
    solver v = {.x = x, .n = x->blocks->n_blocks, .stages = x->stages, .weight = weight, .cut = cut, .work = work};
    double fastest = 1 + 1e-9;
    if (v.stages > v.n) return false;
    for (int i = 0; i < x->n_sites; i++) fastest = fmax(fastest, (1 + 1e-9) / x->sites[i].pace);
    v.like = SN_NEW_N(&v.arena, int, v.n);
    v.alike = SN_NEW_N(&v.arena, int, v.n);
    find_alike(&v);
    v.places = SN_NEW_N(&v.arena, sn_stage_place, v.stages);
    for (int i = 0; i < v.stages; i++) v.places[i] = sn_stage_place_of(x, i);
    v.rows = SN_NEW_N(&v.arena, row *, (size_t)v.stages * (size_t)v.n);
    bool balances = !isfinite(x->first.limit) && !x->site_of && !x->messages;
    v.same_places = balances;
    double least = least_bound(&v, fastest);
    bool found = balances ? balance(&v, least) : solve_limited(&v, least, fastest);
    sn_arena_free(&v.arena);
    return found;
}
