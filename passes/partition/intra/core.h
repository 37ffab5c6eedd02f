// The reduced network that is searched: fewer nodes, fewer strategies, and only the times at which memory can run out.
#pragma once
#include "base/arena.h"
#include "passes/partition/intra/network.h"

// Memory above the least that the node needs anyway, at the peaks first <= t < last.
typedef struct sn_core_term {
    int first, last;
    int64_t *usage; // by value
} sn_core_term;

typedef struct sn_core_link {
    int other, edge; // the neighbour, and the edge's index
    double *table;   // [value of other][value of this node]: this node's values are contiguous
} sn_core_link;

typedef struct sn_core_node {
    int size; // values left, >= 1
    int64_t *cost;
    int n_links, n_terms;
    sn_core_link *links;
    sn_core_term *terms;
} sn_core_node;

typedef struct sn_core {
    sn_arena arena; // of everything below, but the tables of a restricted network are its parent's
    sn_core_node *nodes;
    int n_nodes, n_edges;
    int n_peaks;
    int64_t *capacity;    // by peak: the limit less what every choice needs; >= 0 unless infeasible
    int *origin;          // of a restricted network: by peak, the first of the parent's peaks that it stands for
    int64_t constant;     // cost of what is decided
    bool infeasible;      // proven while reducing
    struct sn_lift *lift; // how a choice of the reduced network becomes one of the original
} sn_core;

// In a table of a link a forbidden pair is SN_CORE_FORBIDDEN; sums of a few of them still compare as forbidden.
#define SN_CORE_FORBIDDEN 1e18

sn_core *sn_core_new(const sn_network *network);
// The network of some of the nodes with the values of the others fixed: what these cost and use is taken off. Peaks
// that the nodes' terms cannot tell apart are one. Edges keep their tables, which stay the parent's.
sn_core *sn_core_restrict(const sn_core *core, const int *nodes, int n_nodes, const int *values, const int64_t *usage);
void sn_core_free(sn_core *core);

// Memory in use at each peak, beyond what every choice needs. `usage` has room for n_peaks + 1.
void sn_core_usage(const sn_core *core, const int *values, int64_t *usage);
// The largest excess over a capacity, 0 when every one is kept.
int64_t sn_core_excess(const sn_core *core, const int64_t *usage);
// >= SN_NETWORK_FORBIDDEN for a forbidden choice. The constant is included.
int64_t sn_core_cost(const sn_core *core, const int *values);

// Of a network that was not restricted: fills the strategies of the original nodes from the values of the reduced ones.
void sn_core_lift(const sn_core *core, const int *values, int *choice);
