// The elimination's tables bound every partial choice at the cost of looking up what decoding would: the search follows
// decoding's order, takes a node's values from the most promising on, and leaves a branch when its bound reaches the
// best known cost or when memory is exceeded whatever the remaining nodes do (they add at least nothing: the least of
// every term is taken off the capacities). With exact tables and prices that close the gap it never turns back.
// The same scheme as AND/OR branch and bound with mini-bucket heuristics (Kask and Dechter 2001; Marinescu and Dechter
// 2009), without the AND nodes: the networks that come here are small.
#include "passes/partition/intra/branch.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

typedef struct branching {
    const sn_core *core;
    const sn_elimination *elimination;
    int64_t *usage, *cost;
    double offset; // bound of the whole: root + increases + offset
    int *current, *values;
    double *increase; // a row of n_max for each depth
    int *rank;        // by depth and place: a value, the most promising first
    int n_max;
    uint64_t steps, max_steps;
} branching;

static bool take(branching *b, int i, int k, int sign) {
    bool fits = true;
    const sn_core_node *node = &b->core->nodes[i];
    for (int m = 0; m < node->n_terms; m++) {
        const sn_core_term *term = &node->terms[m];
        int64_t usage = sign * term->usage[k];
        if (!usage) continue;
        b->steps += (uint64_t)(term->last - term->first) / 16 + 1;
        for (int t = term->first; t < term->last; t++) {
            b->usage[t] += usage;
            fits &= b->usage[t] <= b->core->capacity[t];
        }
    }
    return fits;
}

static void sort_values(const double *increase, int *rank, int size) {
    for (int k = 0; k < size; k++) {
        int at = k;
        for (; at && increase[rank[at - 1]] > increase[k]; at--) rank[at] = rank[at - 1];
        rank[at] = k;
    }
}

// True when the branch below `depth` was searched whole.
static bool descend(branching *b, int depth, double bound) {
    if (depth == b->core->n_nodes) {
        int64_t cost = sn_core_cost(b->core, b->current);
        b->steps += (uint64_t)b->core->n_nodes / 2;
        if (cost < *b->cost) {
            *b->cost = cost;
            memcpy(b->values, b->current, sizeof *b->values * (size_t)b->core->n_nodes);
        }
        return true;
    }
    int node = sn_elimination_node(b->elimination, depth), size = b->core->nodes[node].size;
    double *increase = b->increase + (size_t)depth * (size_t)b->n_max;
    int *rank = b->rank + (size_t)depth * (size_t)b->n_max;
    sn_elimination_increase(b->elimination, depth, b->current, increase);
    sort_values(increase, rank, size);
    for (int n = 0; n < size; n++) {
        double below = bound + increase[rank[n]];
        if (below - 1e-9 * fabs(below) + b->offset > (double)*b->cost - 0.5) return true;
        if (++b->steps >= b->max_steps) return false;
        b->current[node] = rank[n];
        bool whole = !take(b, node, rank[n], 1) || descend(b, depth + 1, below);
        take(b, node, rank[n], -1);
        if (!whole) return false;
    }
    return true;
}

bool sn_branch(sn_relaxation *r, int64_t *cost, int *values, uint64_t max_steps) {
    const sn_core *core = r->core;
    branching b = {.core = core, .elimination = r->elimination, .cost = cost, .values = values, .max_steps = max_steps};
    for (int i = 0; i < core->n_nodes; i++)
        if (core->nodes[i].size > b.n_max) b.n_max = core->nodes[i].size;
    size_t rows = (size_t)core->n_nodes + 1;
    b.usage = sn_alloc(sizeof *b.usage * (size_t)(core->n_peaks + 1));
    b.current = sn_alloc(sizeof *b.current * rows);
    b.increase = sn_alloc(sizeof *b.increase * rows * (size_t)(b.n_max + 1));
    b.rank = sn_alloc(sizeof *b.rank * rows * (size_t)(b.n_max + 1));
    double allowed = 0;
    for (int t = 0; t < core->n_peaks; t++) allowed += r->price[t] * (double)core->capacity[t];
    b.offset = -1e-9 * fabs(allowed) - 1e-3;
    bool whole = descend(&b, 0, r->bound);
    r->work += b.steps * 16;
    sn_free(b.usage);
    sn_free(b.current);
    sn_free(b.increase);
    sn_free(b.rank);
    return whole;
}
