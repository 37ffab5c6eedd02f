// Reductions: what can be decided, merged or dropped before any search, without losing every optimal choice.
//
//   arc consistency   a value that some neighbour allows nothing beside goes (Mackworth 1977)
//   projection        an edge gives its row and column minima to its nodes; an edge that is zero then is separable and
//   goes merging           when a node's value leaves its neighbour one value, the neighbour is a function of it: one
//   node.
//                     A leaf is one also when, beside each of its neighbour's values, one of its values is best in
//                     cost and memory at once
//   dominance         a value that another beats beside every choice of the neighbours, in cost and memory, goes
//                     (dead-end elimination: Goldstein 1994; soft neighbourhood substitution: Cooper and Schiex 2004)
//   capacity          a value that alone exceeds what a peak has left goes
//   peaks             memory is tested only at the times where a maximal set of intervals is live, and where it can
//                     exceed the limit at all
//
// A compiler's sharding problem shrinks a lot: an element-wise operation shards as its operand does, so long chains are
// one node each. Values are renumbered as they go; `birth` leads back to the original strategies.
#include "base/alloc.h"
#include "base/bug.h"
#include "base/vec.h"
#include "passes/partition/intra/peaks.h"

#include <stdlib.h>
#include <string.h>

typedef struct edge {
    int a, b;       // a < b
    int64_t *table; // row-major, current values of a by those of b
    bool gone;
} edge;

typedef struct term {
    int first, last;
    int64_t *usage; // by current value
} term;

typedef struct node {
    int size, n_strategies;
    int *birth;    // by current value: the strategy
    int64_t *cost; // by current value
    SN_VEC(int) edges;
    SN_VEC(term) terms;
    int parent;   // the node that decides this one; -1: it stands for itself
    int *follows; // by the parent's strategy: the strategy here
    bool queued;
} node;

typedef struct sn_lift {
    int n_nodes;
    int *core_of; // by node: the core's node, or -1
    int *parent;  // by node; -1: none
    int **birth, **follows;
    int *order; // parents before their followers
} sn_lift;

typedef struct reducer {
    node *nodes;
    int n_nodes;
    SN_VEC(edge) edges;
    SN_VEC(int) merged; // in the order of merging
    SN_VEC(int) queue;
    size_t queue_at;
    int64_t *capacity;
    int n_peaks;
    int64_t constant;
    bool infeasible;
    // The edge between two nodes by an open hash table: key a * n_nodes + b, value edge + 1.
    uint64_t *keys;
    int *found;
    size_t hash_size;
} reducer;

static bool forbidden(int64_t cost) {
    return cost >= SN_NETWORK_FORBIDDEN;
}

static int64_t plus(int64_t a, int64_t b) {
    return forbidden(a) || forbidden(b) ? SN_NETWORK_FORBIDDEN : a + b;
}

static void enqueue(reducer *r, int i) {
    if (r->nodes[i].queued || r->nodes[i].parent >= 0) return;
    r->nodes[i].queued = true;
    sn_vec_push(&r->queue, i);
}

static size_t slot_of(const reducer *r, int a, int b) {
    uint64_t key = (uint64_t)a * (uint64_t)r->n_nodes + (uint64_t)b + 1;
    size_t at = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (r->hash_size - 1);
    while (r->keys[at] && r->keys[at] != key) at = (at + 1) & (r->hash_size - 1);
    return at;
}

static int find_edge(const reducer *r, int a, int b) {
    size_t at = a < b ? slot_of(r, a, b) : slot_of(r, b, a);
    if (!r->keys[at] || r->edges.data[r->found[at]].gone) return -1;
    return r->found[at];
}

static void note_edge(reducer *r, int e);

static void rehash(reducer *r) {
    sn_free(r->keys);
    sn_free(r->found);
    r->hash_size *= 2;
    r->keys = sn_alloc(sizeof *r->keys * r->hash_size);
    r->found = sn_alloc(sizeof *r->found * r->hash_size);
    for (size_t e = 0; e < r->edges.count; e++)
        if (!r->edges.data[e].gone) note_edge(r, (int)e);
}

static void note_edge(reducer *r, int e) {
    const edge *it = &r->edges.data[e];
    size_t at = slot_of(r, it->a, it->b);
    r->keys[at] = (uint64_t)it->a * (uint64_t)r->n_nodes + (uint64_t)it->b + 1;
    r->found[at] = e;
}

// Adds a table (current values of a by those of b), which becomes the reducer's.
static void add_edge(reducer *r, int a, int b, int64_t *table) {
    size_t rows = (size_t)r->nodes[a].size, columns = (size_t)r->nodes[b].size;
    if (a > b) {
        int64_t *turned = sn_alloc(sizeof *turned * rows * columns);
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < columns; j++) turned[j * rows + i] = table[i * columns + j];
        sn_free(table);
        table = turned;
        int swap = a;
        a = b;
        b = swap;
    }
    int known = find_edge(r, a, b);
    if (known >= 0) {
        int64_t *sum = r->edges.data[known].table;
        for (size_t c = 0; c < rows * columns; c++) sum[c] = plus(sum[c], table[c]);
        sn_free(table);
        return;
    }
    sn_vec_push(&r->edges, (edge){.a = a, .b = b, .table = table});
    int e = (int)r->edges.count - 1;
    sn_vec_push(&r->nodes[a].edges, e);
    sn_vec_push(&r->nodes[b].edges, e);
    if (r->edges.count * 2 > r->hash_size)
        rehash(r);
    else
        note_edge(r, e);
}

static void drop_edge(reducer *r, int e) {
    edge *it = &r->edges.data[e];
    it->gone = true;
    sn_free(it->table);
    it->table = NULL;
    for (int side = 0; side < 2; side++) {
        node *end = &r->nodes[side ? it->b : it->a];
        for (size_t i = 0; i < end->edges.count; i++)
            if (end->edges.data[i] == e) {
                end->edges.data[i] = end->edges.data[--end->edges.count];
                break;
            }
    }
}

static int other_end(const edge *it, int i) {
    return it->a == i ? it->b : it->a;
}

// The cost of value `mine` of node i with value `theirs` of the other end.
static int64_t *cell(const reducer *r, const edge *it, int i, int mine, int theirs) {
    size_t columns = (size_t)r->nodes[it->b].size;
    return &it->table[it->a == i ? (size_t)mine * columns + (size_t)theirs : (size_t)theirs * columns + (size_t)mine];
}

// Keeps the values whose `keep` is set.
static void keep_values(reducer *r, int i, const bool *keep) {
    node *it = &r->nodes[i];
    int left = 0;
    int *kept = sn_alloc(sizeof *kept * (size_t)it->size);
    for (int k = 0; k < it->size; k++)
        if (keep[k]) kept[left++] = k;
    for (size_t n = 0; n < it->edges.count; n++) {
        edge *touched = &r->edges.data[it->edges.data[n]];
        size_t rows = (size_t)r->nodes[touched->a].size, columns = (size_t)r->nodes[touched->b].size, to = 0;
        if (touched->a == i)
            for (int k = 0; k < left; k++) // rows move down
                memmove(touched->table + (size_t)k * columns, touched->table + (size_t)kept[k] * columns,
                        columns * sizeof *touched->table);
        else
            for (size_t row = 0; row < rows; row++)
                for (int k = 0; k < left; k++) touched->table[to++] = touched->table[row * columns + (size_t)kept[k]];
        enqueue(r, other_end(touched, i));
    }
    for (int k = 0; k < left; k++) {
        it->cost[k] = it->cost[kept[k]];
        it->birth[k] = it->birth[kept[k]];
        for (size_t m = 0; m < it->terms.count; m++) it->terms.data[m].usage[k] = it->terms.data[m].usage[kept[k]];
    }
    it->size = left;
    if (!left) r->infeasible = true;
    sn_free(kept);
}

// Values that are forbidden, or that some neighbour allows nothing beside. True when some went.
static bool make_arc_consistent(reducer *r, int i) {
    node *it = &r->nodes[i];
    bool *keep = sn_alloc((size_t)it->size);
    bool changed = false;
    for (int k = 0; k < it->size; k++) {
        keep[k] = !forbidden(it->cost[k]);
        for (size_t n = 0; n < it->edges.count && keep[k]; n++) {
            const edge *e = &r->edges.data[it->edges.data[n]];
            int other = other_end(e, i);
            bool support = false;
            for (int j = 0; j < r->nodes[other].size && !support; j++) support = !forbidden(*cell(r, e, i, k, j));
            keep[k] = support;
        }
        changed |= !keep[k];
    }
    if (changed) keep_values(r, i, keep);
    sn_free(keep);
    return changed;
}

// Moves the least of each row (values of `side`'s node) of an edge to that node.
static void project(reducer *r, edge *e, int i) {
    node *it = &r->nodes[i];
    int other = other_end(e, i);
    for (int k = 0; k < it->size; k++) {
        int64_t least = SN_NETWORK_FORBIDDEN;
        for (int j = 0; j < r->nodes[other].size; j++) {
            int64_t cost = *cell(r, e, i, k, j);
            if (cost < least) least = cost;
        }
        if (!least || forbidden(least)) continue;
        it->cost[k] = plus(it->cost[k], least);
        for (int j = 0; j < r->nodes[other].size; j++) {
            int64_t *cost = cell(r, e, i, k, j);
            if (!forbidden(*cost)) *cost -= least;
        }
    }
}

static void project_edges(reducer *r, int i) {
    for (size_t n = r->nodes[i].edges.count; n-- > 0;) {
        int index = r->nodes[i].edges.data[n];
        edge *e = &r->edges.data[index];
        int other = other_end(e, i);
        project(r, e, i);
        project(r, e, other);
        size_t cells = (size_t)r->nodes[e->a].size * (size_t)r->nodes[e->b].size, c = 0;
        while (c < cells && e->table[c] == 0) c++;
        if (c == cells) {
            drop_edge(r, index);
            enqueue(r, other);
        }
    }
}

// f[k]: the value of j that value k of i decides. Fails when some value of i leaves a choice.
static bool decides(const reducer *r, const edge *e, int i, int *f) {
    int j = other_end(e, i);
    for (int k = 0; k < r->nodes[i].size; k++) {
        f[k] = -1;
        for (int y = 0; y < r->nodes[j].size; y++) {
            if (forbidden(*cell(r, e, i, k, y))) continue;
            if (f[k] >= 0) return false;
            f[k] = y;
        }
        if (f[k] < 0) return false; // not arc consistent yet
    }
    return true;
}

static bool uses_no_more(const node *it, int better, int worse) {
    for (size_t m = 0; m < it->terms.count; m++)
        if (it->terms.data[m].usage[better] > it->terms.data[m].usage[worse]) return false;
    return true;
}

// A leaf j of i: f[k] is the value of j that is best in cost and memory beside k, if there is one for every k.
static bool decides_leaf(const reducer *r, const edge *e, int i, int *f) {
    int j = other_end(e, i);
    const node *leaf = &r->nodes[j];
    if (leaf->edges.count != 1) return false;
    for (int k = 0; k < r->nodes[i].size; k++) {
        int best = -1;
        int64_t least = SN_NETWORK_FORBIDDEN;
        for (int y = 0; y < leaf->size; y++) {
            int64_t cost = plus(*cell(r, e, i, k, y), leaf->cost[y]);
            if (cost < least || (cost == least && best >= 0 && uses_no_more(leaf, y, best))) {
                best = y;
                least = cost;
            }
        }
        if (best < 0) return false;
        for (int y = 0; y < leaf->size; y++)
            if (!forbidden(*cell(r, e, i, k, y)) && !uses_no_more(leaf, best, y)) return false;
        f[k] = best;
    }
    return true;
}

// Node j follows node i: value k of i means value f[k] of j.
static void merge(reducer *r, int i, int j, const int *f) {
    node *it = &r->nodes[i], *follower = &r->nodes[j];
    size_t size = (size_t)it->size;
    int known = find_edge(r, i, j);
    const edge *between = &r->edges.data[known];
    follower->parent = i;
    follower->follows = sn_alloc(sizeof(int) * (size_t)it->n_strategies);
    for (size_t k = 0; k < size; k++) {
        it->cost[k] = plus(it->cost[k], plus(follower->cost[f[k]], *cell(r, between, i, (int)k, f[k])));
        follower->follows[it->birth[k]] = follower->birth[f[k]];
    }
    drop_edge(r, known);
    while (follower->edges.count) {
        int e = sn_vec_last(&follower->edges), x = other_end(&r->edges.data[e], j);
        size_t columns = (size_t)r->nodes[x].size;
        int64_t *table = sn_alloc(sizeof *table * size * columns);
        for (size_t k = 0; k < size; k++)
            for (size_t y = 0; y < columns; y++) table[k * columns + y] = *cell(r, &r->edges.data[e], j, f[k], (int)y);
        drop_edge(r, e);
        add_edge(r, i, x, table);
        enqueue(r, x);
    }
    for (size_t m = 0; m < follower->terms.count; m++) {
        term *moved = &follower->terms.data[m];
        int64_t *usage = sn_alloc(sizeof *usage * size);
        for (size_t k = 0; k < size; k++) usage[k] = moved->usage[f[k]];
        sn_free(moved->usage);
        sn_vec_push(&it->terms, (term){moved->first, moved->last, usage});
    }
    sn_vec_free(&follower->terms);
    sn_vec_push(&r->merged, j);
    enqueue(r, i);
}

// Merges a neighbour that i decides, or i into one that decides it. The node with fewer edges goes where both can.
static bool merge_one(reducer *r, int i) {
    node *it = &r->nodes[i];
    for (size_t n = 0; n < it->edges.count; n++) {
        const edge *e = &r->edges.data[it->edges.data[n]];
        int j = other_end(e, i);
        int *f = sn_alloc(sizeof *f * (size_t)it->size), *g = sn_alloc(sizeof *g * (size_t)r->nodes[j].size);
        bool forth = decides(r, e, i, f) || decides_leaf(r, e, i, f);
        bool back = decides(r, e, j, g) || decides_leaf(r, e, j, g);
        if (forth && back && r->nodes[j].edges.count > it->edges.count) forth = false;
        if (forth)
            merge(r, i, j, f);
        else if (back)
            merge(r, j, i, g);
        sn_free(f);
        sn_free(g);
        if (forth || back) return true;
    }
    return false;
}

// What `worse` costs more than `better` at least, whatever the neighbours do; negative as soon as that is certain.
static bool costs_no_more(const reducer *r, int i, int better, int worse) {
    const node *it = &r->nodes[i];
    int64_t gain = it->cost[worse] - it->cost[better];
    for (size_t n = 0; n < it->edges.count && gain >= 0; n++) {
        const edge *e = &r->edges.data[it->edges.data[n]];
        int other = other_end(e, i);
        int64_t least = INT64_MAX;
        for (int y = 0; y < r->nodes[other].size; y++) {
            int64_t bad = *cell(r, e, i, worse, y), good = *cell(r, e, i, better, y);
            if (forbidden(bad)) continue;
            if (forbidden(good)) return false;
            if (bad - good < least) least = bad - good;
        }
        if (least < INT64_MAX) gain += least;
    }
    return gain >= 0;
}

static bool drop_dominated(reducer *r, int i) {
    node *it = &r->nodes[i];
    bool *keep = sn_alloc((size_t)it->size), changed = false;
    memset(keep, true, (size_t)it->size);
    for (int worse = 0; worse < it->size; worse++)
        for (int better = 0; better < it->size && keep[worse]; better++) {
            if (better == worse || !keep[better] || it->cost[better] > it->cost[worse]) continue;
            if (!uses_no_more(it, better, worse) || !costs_no_more(r, i, better, worse)) continue;
            keep[worse] = false;
            changed = true;
        }
    if (changed) keep_values(r, i, keep);
    sn_free(keep);
    return changed;
}

typedef struct moment {
    int64_t time;
    bool begins;
} moment;

static int by_time(const void *left, const void *right) {
    const moment *a = left, *b = right;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    return (int)a->begins - (int)b->begins;
}

static int first_at_or_after(const int64_t *times, int count, int64_t time) {
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (times[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// The beginnings after which an end comes before the next beginning: every live set is a subset of one of theirs.
static int64_t *find_peaks(const sn_network *network, int *n_peaks) {
    moment *moments = sn_alloc(sizeof *moments * (2 * network->n_terms + 1));
    size_t count = 0;
    for (size_t m = 0; m < network->n_terms; m++) {
        const sn_network_term *it = &network->terms[m];
        if (it->begin >= it->end) continue;
        moments[count++] = (moment){it->begin, true};
        moments[count++] = (moment){it->end, false};
    }
    qsort(moments, count, sizeof *moments, by_time);
    int64_t *times = sn_alloc(sizeof *times * (count + 1));
    *n_peaks = 0;
    for (size_t i = 0; i + 1 < count; i++)
        if (moments[i].begins && !moments[i + 1].begins) times[(*n_peaks)++] = moments[i].time;
    sn_free(moments);
    return times;
}

static void read_terms(reducer *r, const sn_network *network) {
    int64_t *times = find_peaks(network, &r->n_peaks);
    r->capacity = sn_alloc(sizeof *r->capacity * (size_t)(r->n_peaks + 1));
    for (int t = 0; t < r->n_peaks; t++) r->capacity[t] = network->limit;
    for (size_t m = 0; m < network->n_terms; m++) {
        const sn_network_term *it = &network->terms[m];
        int first = first_at_or_after(times, r->n_peaks, it->begin),
            last = first_at_or_after(times, r->n_peaks, it->end);
        if (it->begin >= it->end || first == last) continue;
        size_t bytes = sizeof(int64_t) * (size_t)r->nodes[it->node].size;
        int64_t *usage = sn_alloc(bytes);
        memcpy(usage, network->cells + it->usages, bytes);
        sn_vec_push(&r->nodes[it->node].terms, (term){first, last, usage});
    }
    sn_free(times);
}

// The least of each term is used in any case: it leaves the terms for `base` (differences over the peaks).
static void split_least(node *it, int64_t *base, int64_t *most) {
    size_t left = 0;
    for (size_t m = 0; m < it->terms.count; m++) {
        term *t = &it->terms.data[m];
        int64_t least = t->usage[0], greatest = 0;
        for (int k = 1; k < it->size; k++)
            if (t->usage[k] < least) least = t->usage[k];
        for (int k = 0; k < it->size; k++) {
            t->usage[k] -= least;
            if (t->usage[k] > greatest) greatest = t->usage[k];
        }
        base[t->first] += least;
        base[t->last] -= least;
        most[t->first] += greatest;
        most[t->last] -= greatest;
        if (greatest)
            it->terms.data[left++] = *t;
        else
            sn_free(t->usage);
    }
    it->terms.count = left;
}

// Takes what is used in any case off the capacities and drops the peaks that cannot bind any more. True when terms or
// peaks went.
static bool tighten_peaks(reducer *r) {
    size_t count = (size_t)r->n_peaks + 1;
    int64_t *base = sn_alloc(sizeof *base * count), *most = sn_alloc(sizeof *most * count);
    for (int i = 0; i < r->n_nodes; i++)
        if (r->nodes[i].parent < 0) split_least(&r->nodes[i], base, most);
    int *moved = sn_alloc(sizeof *moved * count), left = 0;
    int64_t used = 0, possible = 0;
    for (int t = 0; t < r->n_peaks; t++) {
        used += base[t];
        possible += most[t];
        moved[t] = left;
        int64_t capacity = r->capacity[t] - used;
        if (capacity < 0) r->infeasible = true;
        if (possible > capacity) r->capacity[left++] = capacity;
    }
    moved[r->n_peaks] = left;
    bool changed = left < r->n_peaks;
    r->n_peaks = left;
    for (int i = 0; changed && i < r->n_nodes; i++) {
        node *it = &r->nodes[i];
        size_t kept = 0;
        for (size_t m = 0; m < it->terms.count; m++) {
            term t = it->terms.data[m];
            t.first = moved[t.first];
            t.last = moved[t.last];
            if (t.first < t.last)
                it->terms.data[kept++] = t;
            else
                sn_free(t.usage);
        }
        it->terms.count = kept;
    }
    sn_free(moved);
    sn_free(base);
    sn_free(most);
    return changed;
}

// The least capacity over ranges of peaks: least[level][t] is that of 2^level peaks from t.
typedef struct range_least {
    int64_t *least[32];
    int levels;
} range_least;

static range_least range_least_new(const int64_t *capacity, int count) {
    range_least r = {.levels = 1};
    r.least[0] = sn_alloc(sizeof *capacity * (size_t)(count + 1));
    memcpy(r.least[0], capacity, sizeof *capacity * (size_t)count);
    for (; 1 << r.levels <= count; r.levels++) {
        int half = 1 << (r.levels - 1);
        int64_t *to = r.least[r.levels] = sn_alloc(sizeof *to * (size_t)count), *from = r.least[r.levels - 1];
        for (int t = 0; t + 2 * half <= count; t++) to[t] = from[t] < from[t + half] ? from[t] : from[t + half];
    }
    return r;
}

static int64_t least_of(const range_least *r, int first, int last) {
    int level = 31 - __builtin_clz((unsigned)(last - first));
    int64_t left = r->least[level][first], right = r->least[level][last - (1 << level)];
    return left < right ? left : right;
}

// Forbids the values that alone exceed what is left. True when there were some.
static bool forbid_excess(reducer *r) {
    range_least least = range_least_new(r->capacity, r->n_peaks);
    bool changed = false;
    for (int i = 0; i < r->n_nodes; i++) {
        node *it = &r->nodes[i];
        for (size_t m = 0; m < it->terms.count; m++) {
            int64_t most = least_of(&least, it->terms.data[m].first, it->terms.data[m].last);
            for (int k = 0; k < it->size; k++) {
                if (it->terms.data[m].usage[k] <= most || forbidden(it->cost[k])) continue;
                it->cost[k] = SN_NETWORK_FORBIDDEN;
                changed = true;
            }
        }
    }
    for (int level = 0; level < least.levels; level++) sn_free(least.least[level]);
    return changed;
}

static int by_interval(const void *left, const void *right) {
    const term *a = left, *b = right;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return (a->last > b->last) - (a->last < b->last);
}

// Terms of one node over the same peaks are one term.
static void join_terms(node *it) {
    if (!it->terms.count) return;
    qsort(it->terms.data, it->terms.count, sizeof *it->terms.data, by_interval);
    size_t left = 1;
    for (size_t m = 1; m < it->terms.count; m++) {
        term *last = &it->terms.data[left - 1], *next = &it->terms.data[m];
        if (by_interval(last, next) != 0) {
            it->terms.data[left++] = *next;
            continue;
        }
        for (int k = 0; k < it->size; k++) last->usage[k] += next->usage[k];
        sn_free(next->usage);
    }
    it->terms.count = left;
}

static void reduce_queue(reducer *r) {
    while (r->queue_at < r->queue.count && !r->infeasible) {
        int i = r->queue.data[r->queue_at++];
        node *it = &r->nodes[i];
        it->queued = false;
        if (it->parent >= 0) continue;
        if (make_arc_consistent(r, i) && r->infeasible) return;
        project_edges(r, i);
        if (merge_one(r, i)) {
            if (it->parent < 0) enqueue(r, i);
            continue;
        }
        if (drop_dominated(r, i)) enqueue(r, i);
    }
    r->queue.count = r->queue_at = 0;
}

static void read_network(reducer *r, const sn_network *network) {
    r->n_nodes = (int)network->n_nodes;
    r->nodes = sn_alloc(sizeof *r->nodes * (network->n_nodes + 1));
    for (r->hash_size = 16; r->hash_size < 4 * network->n_edges; r->hash_size *= 2) {
    }
    r->keys = sn_alloc(sizeof *r->keys * r->hash_size);
    r->found = sn_alloc(sizeof *r->found * r->hash_size);
    for (int i = 0; i < r->n_nodes; i++) {
        node *it = &r->nodes[i];
        it->parent = -1;
        it->size = it->n_strategies = network->nodes[i].n_strategies;
        it->cost = sn_alloc(sizeof *it->cost * (size_t)it->size);
        it->birth = sn_alloc(sizeof *it->birth * (size_t)it->size);
        memcpy(it->cost, network->cells + network->nodes[i].costs, sizeof *it->cost * (size_t)it->size);
        for (int k = 0; k < it->size; k++) it->birth[k] = k;
    }
    for (size_t e = 0; e < network->n_edges; e++) {
        const sn_network_edge *it = &network->edges[e];
        size_t bytes = sizeof(int64_t) * (size_t)r->nodes[it->a].size * (size_t)r->nodes[it->b].size;
        int64_t *table = sn_alloc(bytes);
        memcpy(table, network->cells + it->costs, bytes);
        add_edge(r, it->a, it->b, table);
    }
    read_terms(r, network);
}

static double *link_table(const reducer *r, sn_arena *arena, const edge *e, int i) {
    int other = other_end(e, i);
    size_t mine = (size_t)r->nodes[i].size, theirs = (size_t)r->nodes[other].size;
    double *table = SN_NEW_N(arena, double, mine *theirs);
    for (size_t y = 0; y < theirs; y++)
        for (size_t k = 0; k < mine; k++) {
            int64_t cost = *cell(r, e, i, (int)k, (int)y);
            table[y * mine + k] = forbidden(cost) ? SN_CORE_FORBIDDEN : (double)cost;
        }
    return table;
}

// A node without edges or memory is decided; the others become the core's.
static bool is_decided(const node *it) {
    return it->size == 1 && !it->edges.count && !it->terms.count;
}

static void write_node(const reducer *r, sn_core *core, const int *core_of, int i) {
    sn_arena *arena = &core->arena;
    const node *from = &r->nodes[i];
    sn_core_node *to = &core->nodes[core_of[i]];
    to->size = from->size;
    to->cost = sn_arena_copy(arena, from->cost, sizeof *to->cost * (size_t)from->size);
    to->n_links = (int)from->edges.count;
    to->links = SN_NEW_N(arena, sn_core_link, from->edges.count + 1);
    for (int n = 0; n < to->n_links; n++) {
        int e = from->edges.data[n];
        const edge *it = &r->edges.data[e];
        to->links[n] = (sn_core_link){core_of[other_end(it, i)], e, link_table(r, arena, it, i)};
    }
    to->n_terms = (int)from->terms.count;
    to->terms = SN_NEW_N(arena, sn_core_term, from->terms.count + 1);
    for (int m = 0; m < to->n_terms; m++) {
        const term *it = &from->terms.data[m];
        int64_t *usage = sn_arena_copy(arena, it->usage, sizeof *usage * (size_t)from->size);
        to->terms[m] = (sn_core_term){it->first, it->last, usage};
    }
}

static sn_lift *write_lift(reducer *r) {
    sn_lift *lift = sn_alloc(sizeof *lift);
    size_t n = (size_t)r->n_nodes + 1;
    *lift = (sn_lift){.n_nodes = r->n_nodes,
                      .core_of = sn_alloc(sizeof(int) * n),
                      .parent = sn_alloc(sizeof(int) * n),
                      .birth = sn_alloc(sizeof(int *) * n),
                      .follows = sn_alloc(sizeof(int *) * n),
                      .order = sn_alloc(sizeof(int) * n)};
    int count = 0;
    for (int i = 0; i < r->n_nodes; i++) {
        lift->parent[i] = r->nodes[i].parent;
        lift->birth[i] = r->nodes[i].birth;
        lift->follows[i] = r->nodes[i].follows;
        lift->core_of[i] = -1;
        r->nodes[i].birth = r->nodes[i].follows = NULL;
        if (lift->parent[i] < 0) lift->order[count++] = i;
    }
    for (size_t m = r->merged.count; m-- > 0;) lift->order[count++] = r->merged.data[m];
    return lift;
}

static void write_core(reducer *r, sn_core *core) {
    sn_lift *lift = core->lift = write_lift(r);
    core->infeasible = r->infeasible;
    if (r->infeasible) return;
    core->constant = r->constant;
    for (int i = 0; i < r->n_nodes; i++) {
        if (r->nodes[i].parent >= 0) continue;
        if (is_decided(&r->nodes[i]))
            core->constant += r->nodes[i].cost[0];
        else
            lift->core_of[i] = core->n_nodes++;
    }
    core->nodes = SN_NEW_N(&core->arena, sn_core_node, core->n_nodes + 1);
    for (int i = 0; i < r->n_nodes; i++)
        if (lift->core_of[i] >= 0) write_node(r, core, lift->core_of, i);
    core->n_edges = (int)r->edges.count;
    core->n_peaks = r->n_peaks;
    core->capacity = sn_arena_copy(&core->arena, r->capacity, sizeof *r->capacity * (size_t)(r->n_peaks + 1));
}

static void reducer_free(reducer *r) {
    for (int i = 0; i < r->n_nodes; i++) {
        node *it = &r->nodes[i];
        for (size_t m = 0; m < it->terms.count; m++) sn_free(it->terms.data[m].usage);
        sn_vec_free(&it->terms);
        sn_vec_free(&it->edges);
        sn_free(it->cost);
        sn_free(it->birth);
        sn_free(it->follows);
    }
    for (size_t e = 0; e < r->edges.count; e++) sn_free(r->edges.data[e].table);
    sn_vec_free(&r->edges);
    sn_vec_free(&r->merged);
    sn_vec_free(&r->queue);
    sn_free(r->nodes);
    sn_free(r->keys);
    sn_free(r->found);
    sn_free(r->capacity);
}

sn_core *sn_core_new(const sn_network *network) {
    reducer r = {0};
    read_network(&r, network);
    tighten_peaks(&r);
    if (!r.infeasible) forbid_excess(&r);
    bool again;
    do {
        for (int i = 0; i < r.n_nodes; i++) {
            if (r.nodes[i].parent >= 0) continue;
            join_terms(&r.nodes[i]);
            enqueue(&r, i);
        }
        if (!r.infeasible) reduce_queue(&r);
        again = !r.infeasible && tighten_peaks(&r);
        again |= !r.infeasible && forbid_excess(&r);
    } while (again);
    for (int i = 0; i < r.n_nodes; i++) join_terms(&r.nodes[i]);
    sn_core *core = sn_alloc(sizeof *core);
    write_core(&r, core);
    reducer_free(&r);
    if (!core->infeasible) sn_core_drop_peaks(core);
    return core;
}

void sn_core_lift(const sn_core *core, const int *values, int *choice) {
    const sn_lift *lift = core->lift;
    for (int n = 0; n < lift->n_nodes; n++) {
        int i = lift->order[n];
        if (lift->parent[i] >= 0)
            choice[i] = lift->follows[i][choice[lift->parent[i]]];
        else
            choice[i] = lift->birth[i][lift->core_of[i] >= 0 ? values[lift->core_of[i]] : 0];
    }
}

static void lift_free(sn_lift *lift) {
    for (int i = 0; i < lift->n_nodes; i++) {
        sn_free(lift->birth[i]);
        sn_free(lift->follows[i]);
    }
    sn_free(lift->core_of);
    sn_free(lift->parent);
    sn_free(lift->birth);
    sn_free(lift->follows);
    sn_free(lift->order);
    sn_free(lift);
}

void sn_core_free(sn_core *core) {
    if (core->lift) lift_free(core->lift);
    sn_arena_free(&core->arena);
    sn_free(core);
}
