// Depth-first branch and bound in the order of an elimination.
#pragma once
#include "passes/partition/intra/relax.h"

// Looks for the cheapest choice within the limits that costs less than *cost; replaces *cost and `values` when it finds
// one. Stops after `max_steps` nodes of the tree. True when the tree was searched whole: what *cost says then is
// optimal (or, when nothing was found, nothing cheaper exists). The relaxation's tables must be those of its prices.
bool sn_branch(sn_relaxation *relaxation, int64_t *cost, int *values, uint64_t max_steps);
