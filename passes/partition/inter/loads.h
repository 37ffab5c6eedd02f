// Placement by load: cut a graph into contiguous sets, each on its own accelerator or host, so that the busiest device
// is as idle as can be. An accelerator's load is its units' time plus the transfers it takes part in: a net (a value:
// the unit that makes it and those that use it) costs once for each accelerator that holds some of it, but not all. A
// host pays for time alone. This is the objective of Tarnawski et al., "Efficient algorithms for device placement of
// DNN graph operators", NeurIPS 2020.
#pragma once
#include "passes/partition/inter/ideals.h"

typedef struct sn_load_problem {
    int units;
    const sn_unit_edge *edges; // precedence
    int edge_count;
    const double *accelerator_time, *host_time; // [units]; INFINITY: does not run there
    const double *size;                         // [units]
    double capacity;                            // of an accelerator
    int accelerators, hosts;
    int net_count;
    const int *net_first; // [net_count + 1]
    const int *net_unit;  // the units of net i are net_unit[net_first[i] .. net_first[i + 1])
    const double *net_cost;
    int ideals_limit; // with more downsets than this, only those of one order of the units are cuts
} sn_load_problem;

typedef struct sn_load_plan {
    bool feasible;
    int *device; // [units] the stage that holds a unit; owned
    int stages;
    bool *on_host;      // [stages]; owned
    double objective;   // the largest load
    double lower_bound; // over all contiguous placements
    int ideals;         // downsets looked at
} sn_load_plan;

// False, with nothing allocated, when the precedence has a cycle.
bool sn_loads_solve(const sn_load_problem *problem, sn_load_plan *out);
void sn_load_plan_free(sn_load_plan *plan);
