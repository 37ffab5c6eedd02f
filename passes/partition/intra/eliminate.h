// Variable elimination over a set of nodes of a reduced network, with a bound on the tables.
#pragma once
#include "passes/partition/intra/core.h"

typedef struct sn_elimination sn_elimination;

// Prepares the elimination of `nodes` (indices in core) and the edges among them; edges to other nodes are left out.
// No table gets more than max_cells cells, unless one edge alone needs it. The core must outlive the result.
sn_elimination *sn_elimination_new(const sn_core *core, const int *nodes, int n_nodes, size_t max_cells);
void sn_elimination_free(sn_elimination *elimination);

// Costs of the values of each of `nodes`, for the caller to fill before a run.
double *const *sn_elimination_costs(sn_elimination *elimination);
// True when no bucket was split: a run returns the minimum and decode a choice that attains it.
bool sn_elimination_is_exact(const sn_elimination *elimination);
size_t sn_elimination_cells(const sn_elimination *elimination); // touched by a run: its work

// The minimum of the sum of node and edge costs, or a lower bound of it. Repeated runs tighten the bound.
double sn_elimination_run(sn_elimination *elimination);
// After a run: a choice for the nodes, values[i] for the i-th.
void sn_elimination_decode(const sn_elimination *elimination, int *values);

// After a run: the order in which decode chooses, which a search can follow too. The bound of all choices that begin
// with the same values for the first `depth` nodes is that of the run plus the `increase` of each value taken.
int sn_elimination_node(const sn_elimination *elimination, int depth);
// increase[k]: for value k of the node at `depth`; the values of those before it are in `values`, indexed by node.
void sn_elimination_increase(const sn_elimination *elimination, int depth, const int *values, double *increase);
