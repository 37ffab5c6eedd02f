// A neighbourhood is a set of nodes whose values are free while all others keep theirs: a small network of the same
// kind, and the same machinery solves it (prices, elimination, branch and bound), often to proven optimality. Which
// sets? Sharding decisions travel along edges, so a set grows over edges in random order; and they compete for memory,
// so it grows from up to four seeds whose memory is live at the same, preferably full, moments: one place gives up
// memory for another's use. Sizes from 4 to 1024 nodes are tried; those whose gain was large for their work of late are
// tried more often. (Shaw 1998 for the principle; Hendel 2022 for sizes chosen by reward.)
//
// An answer as good as the known one is taken too if it differs: walking along plateaus opens new neighbourhoods.
#include "passes/partition/intra/improve.h"

#include "base/alloc.h"
#include "passes/partition/intra/branch.h"

#include <stdlib.h>
#include <string.h>

enum {
    MIN_EXPONENT = 2, // neighbourhoods of 2^MIN to 2^MAX nodes
    MAX_EXPONENT = 10,
    MAX_SEEDS = 4,
    BLOCK_CELLS = 4000, // of a table
    BLOCK_STEPS = 30,   // of prices
    BRANCH_STEPS = 2000,
    REPAIR_STEPS = 12,
};

typedef struct arm { // of the bandit that chooses sizes: sums that forget
    double gain, work;
} arm;

struct sn_improver {
    const sn_core *core;
    uint64_t random;
    int *values;
    int64_t *usage, cost, excess, total_excess; // the largest over the peaks, and the sum
    double *price_sum;                          // prices summed up to a peak
    int *block, n_block, *stamp, stamp_now;
    int *before, *after; // values of the block
    arm arms[MAX_EXPONENT + 1];
};

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
static uint64_t next_random(sn_improver *m) {
    uint64_t z = m->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static int pick(sn_improver *m, int count) {
    return (int)(next_random(m) % (uint64_t)count);
}

static void measure(sn_improver *m) {
    sn_core_usage(m->core, m->values, m->usage);
    m->cost = sn_core_cost(m->core, m->values);
    m->excess = m->total_excess = 0;
    for (int t = 0; t < m->core->n_peaks; t++) {
        int64_t over = m->usage[t] - m->core->capacity[t];
        if (over <= 0) continue;
        m->total_excess = over > INT64_MAX - m->total_excess ? INT64_MAX : m->total_excess + over;
        if (over > m->excess) m->excess = over;
    }
}

sn_improver *sn_improver_new(const sn_core *core, const int *values, uint64_t seed) {
    sn_improver *m = sn_alloc(sizeof *m);
    size_t bytes = sizeof(int) * (size_t)(core->n_nodes + 1), peaks = (size_t)core->n_peaks + 1;
    *m = (sn_improver){.core = core,
                       .random = seed,
                       .values = sn_alloc(bytes),
                       .block = sn_alloc(bytes),
                       .stamp = sn_alloc(bytes),
                       .before = sn_alloc(bytes),
                       .after = sn_alloc(bytes),
                       .price_sum = sn_alloc(sizeof(double) * peaks),
                       .usage = sn_alloc(sizeof(int64_t) * peaks)};
    memcpy(m->values, values, sizeof(int) * (size_t)core->n_nodes);
    measure(m);
    return m;
}

void sn_improver_free(sn_improver *m) {
    sn_free(m->values);
    sn_free(m->block);
    sn_free(m->stamp);
    sn_free(m->before);
    sn_free(m->after);
    sn_free(m->price_sum);
    sn_free(m->usage);
    sn_free(m);
}

void sn_improver_set_prices(sn_improver *m, const double *price) {
    for (int t = 0; t < m->core->n_peaks; t++) m->price_sum[t + 1] = m->price_sum[t] + price[t];
}

static void add(sn_improver *m, int node) {
    if (m->stamp[node] == m->stamp_now) return;
    m->stamp[node] = m->stamp_now;
    m->block[m->n_block++] = node;
}

static bool is_live(const sn_core_node *node, int peak) {
    for (int m = 0; m < node->n_terms; m++)
        if (node->terms[m].first <= peak && peak < node->terms[m].last) return true;
    return false;
}

// A random node that uses memory at the fullest of a few peaks where `node` does; any node when none is found.
static int find_rival(sn_improver *m, int node) {
    const sn_core_node *it = &m->core->nodes[node];
    if (!it->n_terms) return pick(m, m->core->n_nodes);
    const sn_core_term *term = &it->terms[pick(m, it->n_terms)];
    int peak = term->first;
    int64_t least = INT64_MAX;
    for (int n = 0; n < 8; n++) {
        int t = term->first + pick(m, term->last - term->first);
        int64_t room = m->core->capacity[t] - m->usage[t];
        if (room >= least) continue;
        least = room;
        peak = t;
    }
    int rival = node;
    for (int tries = 0; tries < 200; tries++) {
        rival = pick(m, m->core->n_nodes);
        if (rival != node && is_live(&m->core->nodes[rival], peak)) break;
    }
    return rival;
}

// Where to begin: anywhere, or while memory is exceeded at a node that is live where it is most.
static int find_seed(sn_improver *m) {
    int worst = 0, seed = pick(m, m->core->n_nodes);
    if (!m->excess) return seed;
    for (int t = 1; t < m->core->n_peaks; t++)
        if (m->usage[t] - m->core->capacity[t] > m->usage[worst] - m->core->capacity[worst]) worst = t;
    for (int tries = 0; tries < 1000 && !is_live(&m->core->nodes[seed], worst); tries++)
        seed = pick(m, m->core->n_nodes);
    return seed;
}

static void choose_block(sn_improver *m, int wanted) {
    m->stamp_now++;
    m->n_block = 0;
    int seeds = 1 + pick(m, MAX_SEEDS), seed = find_seed(m);
    for (int s = 0; s < seeds && m->n_block < wanted; s++) {
        int part = m->n_block, until = (s + 1) * wanted / seeds;
        add(m, seed);
        for (int idle = 0; m->n_block < until && idle < 4 * wanted && part < m->n_block;) {
            const sn_core_node *from = &m->core->nodes[m->block[part + pick(m, m->n_block - part)]];
            int had = m->n_block;
            if (from->n_links) add(m, from->links[pick(m, from->n_links)].other);
            idle = had == m->n_block ? idle + 1 : 0;
        }
        seed = find_rival(m, m->block[pick(m, m->n_block)]);
    }
}

// Keeps the relaxation's choice when it is within the limits and costs less than *cost, or the same and is another.
static bool keep_choice(sn_improver *m, const sn_relaxation *r, int64_t *cost, bool changed) {
    size_t bytes = sizeof(int) * (size_t)r->core->n_nodes;
    if (r->excess) return changed;
    int64_t found = sn_core_cost(r->core, r->values);
    if (found > *cost || (found == *cost && (changed || !memcmp(r->values, m->before, bytes)))) return changed;
    *cost = found;
    memcpy(m->after, r->values, bytes);
    return true;
}

static void set_prices(const sn_improver *m, sn_relaxation *r) {
    for (int t = 0; t < r->core->n_peaks; t++)
        r->price[t] = m->price_sum[r->core->origin[t + 1]] - m->price_sum[r->core->origin[t]];
}

static bool lower_cost(sn_improver *m, sn_relaxation *r) {
    int64_t cost = sn_core_cost(r->core, m->before);
    bool changed = false, moves = true;
    set_prices(m, r);
    for (int i = 0; i < BLOCK_STEPS && moves && r->lower_bound < cost; i++) {
        // Messages are cheap and see costs that split tables do not; elimination's choices are others.
        sn_relaxation_evaluate(r, r->messages && i % 4 < 3 ? SN_RELAXATION_MESSAGES : SN_RELAXATION_ELIMINATION);
        changed = keep_choice(m, r, &cost, changed);
        moves = sn_relaxation_move(r, (double)cost);
    }
    if (r->lower_bound >= cost) return changed;
    int64_t found = cost;
    sn_relaxation_return(r);
    sn_branch(r, &found, m->after, BRANCH_STEPS);
    return changed || found < cost;
}

// Adds `level` to the prices of the peaks that are exceeded, and returns by how much they are in all.
static double raise_prices(sn_relaxation *r, double level) {
    double over = 0;
    for (int t = 0; t < r->core->n_peaks; t++) {
        if (r->usage[t] <= r->core->capacity[t]) continue;
        over += (double)(r->usage[t] - r->core->capacity[t]);
        r->price[t] += level;
    }
    return over;
}

// While memory is exceeded, prices rise at the peaks where it stays so, from where they hardly matter to where nothing
// else does. The first choice with the least excess is kept: a low price for giving up memory finds a cheap one.
static bool lower_excess(sn_improver *m, sn_relaxation *r) {
    const sn_core *core = r->core;
    size_t bytes = sizeof(int) * (size_t)core->n_nodes;
    double unit = 1;
    for (int t = 0; t < core->n_peaks; t++)
        if ((double)core->capacity[t] > unit) unit = (double)core->capacity[t];
    double level = ((double)llabs(m->cost) + 1) / unit / (core->n_peaks + 1.0);
    set_prices(m, r);
    sn_core_usage(core, m->before, r->usage);
    double best = raise_prices(r, level);
    for (int i = 0; i < REPAIR_STEPS && best > 0; i++, level *= 4) {
        sn_relaxation_evaluate(r, SN_RELAXATION_ELIMINATION);
        double over = raise_prices(r, level);
        if (over >= best || sn_core_cost(core, r->values) >= SN_NETWORK_FORBIDDEN) continue;
        memcpy(m->after, r->values, bytes);
        best = over;
    }
    return memcmp(m->after, m->before, bytes) != 0;
}

static void set_values(sn_improver *m, const int *values) {
    for (int i = 0; i < m->n_block; i++) m->values[m->block[i]] = values[i];
    measure(m);
}

// The size that gained most for its work of late; one time in four any.
static int choose_exponent(sn_improver *m) {
    int best = MIN_EXPONENT + pick(m, MAX_EXPONENT - MIN_EXPONENT + 1);
    if (pick(m, 4) == 0) return best;
    for (int e = MIN_EXPONENT; e <= MAX_EXPONENT; e++)
        if (m->arms[e].gain * m->arms[best].work > m->arms[best].gain * m->arms[e].work) best = e;
    return best;
}

static void reward(arm *it, int64_t gain, uint64_t work) {
    it->gain = 0.9 * it->gain + (double)gain;
    it->work = 0.9 * it->work + (double)work;
}

uint64_t sn_improver_step(sn_improver *m) {
    int exponent = choose_exponent(m), wanted = 1 << exponent;
    choose_block(m, wanted < m->core->n_nodes ? wanted : m->core->n_nodes);
    for (int i = 0; i < m->n_block; i++) m->before[i] = m->after[i] = m->values[m->block[i]];
    sn_core *part = sn_core_restrict(m->core, m->block, m->n_block, m->values, m->usage);
    sn_relaxation *r = sn_relaxation_new(part, BLOCK_CELLS);
    if (!sn_elimination_is_exact(r->elimination)) r->messages = sn_messages_new(part);
    int64_t cost = m->cost, excess = m->excess, total_excess = m->total_excess;
    if (total_excess ? lower_excess(m, r) : lower_cost(m, r)) set_values(m, m->after);
    if (m->total_excess > total_excess || (m->total_excess == total_excess && m->cost > cost)) set_values(m, m->before);
    // Restriction reads the network and its peaks once; preparing the elimination costs a few hundred cells a node.
    uint64_t work = r->work + (uint64_t)(m->core->n_nodes + m->core->n_peaks) + 300 * (uint64_t)m->n_block;
    reward(&m->arms[exponent], total_excess ? excess - m->excess : cost - m->cost, work);
    sn_relaxation_free(r);
    sn_core_free(part);
    return work;
}

const int *sn_improver_values(const sn_improver *m) {
    return m->values;
}

int64_t sn_improver_cost(const sn_improver *m) {
    return m->cost;
}

int64_t sn_improver_excess(const sn_improver *m) {
    return m->excess;
}
