// A chain of operators, each partitioned in one of several ways: the ways that take the least time, moving values
// between them included, within a memory bound. Memory is not one sum, so one number per operator does not decide it:
//
//     sum(resident) + max(sum(activations), sum(optimizer)) + the two largest buffers <= bound
#pragma once
#include <stdbool.h>

typedef struct sn_chain_way {
    double time;
    double resident, activations, optimizer, buffer;
    const double *move; // [ways of the operator before] time to move its result here; NULL for the first operator
} sn_chain_way;

typedef struct sn_chain_problem {
    int operators;
    const int *first_way; // [operators + 1]
    const sn_chain_way *ways;
    double bound;
} sn_chain_problem;

typedef struct sn_chain_plan {
    bool feasible;
    int *way; // [operators] counted from first_way; owned
    double time;
    double lower_bound;
} sn_chain_plan;

sn_chain_plan sn_chain_solve(const sn_chain_problem *problem);
void sn_chain_plan_free(sn_chain_plan *plan);
