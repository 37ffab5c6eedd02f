// A cost-function network under live-memory limits: the problem of intra-operator parallelism.
//
// Every node (an operation, or a group that is sharded as one) takes exactly one of its strategies. A choice costs what
// its nodes cost plus what its edges cost (an edge is a matrix over the strategies of two nodes: time to re-lay out
// what flows between them), and a node's strategy uses memory while the node lives:
//
//     minimise   sum_i c_i(x_i) + sum_ij c_ij(x_i, x_j)
//     such that  sum over terms (i, [b, e), u) with b <= t < e of u(x_i)  <=  limit      for every time t
//
// This is the problem of Google's ASPLOS 2025 contest on intra-operator parallelism (Moffitt and Fegade), with any
// number of memory terms per node. Costs and usages are integers: scale seconds to picoseconds or the like. Sums of
// costs must stay below 10^18 and sums of usages below 2^61; beyond 2^53 "optimal" means up to rounding.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A cost from here on forbids the strategy or the pair. Real costs lie in (-10^18, 10^18).
#define SN_NETWORK_FORBIDDEN INT64_C(1000000000000000000)

typedef struct sn_network_node {
    int n_strategies;
    size_t costs; // offset of n_strategies costs in sn_network.cells
} sn_network_node;

typedef struct sn_network_edge {
    int a, b;     // two different nodes; parallel edges add up
    size_t costs; // offset of the matrix: row-major, strategies of a by strategies of b
} sn_network_edge;

// Memory that a node uses while begin <= t < end.
typedef struct sn_network_term {
    int node;
    int64_t begin, end;
    size_t usages; // offset of n_strategies usages in bytes
} sn_network_term;

typedef struct sn_network {
    sn_network_node *nodes;
    sn_network_edge *edges;
    sn_network_term *terms;
    int64_t *cells; // all numbers
    size_t n_nodes, n_edges, n_terms, n_cells;
    size_t node_capacity, edge_capacity, term_capacity, cell_capacity;
    int64_t limit; // bytes; INT64_MAX: none
} sn_network;

// An empty network without a limit is {.limit = INT64_MAX}. The numbers are copied.
int sn_network_add_node(sn_network *network, int n_strategies, const int64_t *costs); // its index
void sn_network_add_edge(sn_network *network, int a, int b, const int64_t *costs);
// An empty interval is allowed and never counts. Usages are >= 0.
void sn_network_add_term(sn_network *network, int node, int64_t begin, int64_t end, const int64_t *usages);
void sn_network_free(sn_network *network);

// What a complete choice costs and its highest memory use. A forbidden choice costs >= SN_NETWORK_FORBIDDEN.
int64_t sn_network_cost(const sn_network *network, const int *choice);
int64_t sn_network_peak(const sn_network *network, const int *choice);

typedef enum sn_network_result {
    SN_NETWORK_OPTIMAL,    // choice is optimal
    SN_NETWORK_FEASIBLE,   // choice keeps every limit; lower_bound says how far it may be from optimal
    SN_NETWORK_UNKNOWN,    // nothing feasible was found within the budget, and nothing proves that there is nothing
    SN_NETWORK_INFEASIBLE, // proven: no choice is allowed
} sn_network_result;

typedef struct sn_network_budget {
    double seconds; // stops the search; 0: no limit
    uint64_t work;  // table cells to touch, about 10^9 a second; 0: no limit. The same work gives the same answer.
    uint64_t seed;  // of the neighbourhoods' random order
} sn_network_budget;

typedef struct sn_network_answer {
    sn_network_result result;
    int *choice; // one strategy per node, also when UNKNOWN (the one with the least excess); the caller's to sn_free
    int64_t cost, peak;
    int64_t lower_bound; // no allowed choice costs less
    uint64_t work;
    double seconds;
} sn_network_answer;

// One of the two budgets must be given. Small or tree-like networks are solved to optimality and return early.
sn_network_answer sn_network_solve(const sn_network *network, const sn_network_budget *budget);
