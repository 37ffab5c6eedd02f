// The inter-operator problem: cut a model into pipeline stages, give each stage a shape (data x tensor) of devices, and
// minimise the step. The model is seen through its cuts: cut 0 lies before every unit, the last cut after every unit,
// and a stage is what lies between two cuts. A chain of n units has n+1 cuts; a graph has one cut per downset (see
// ideals.h). The answer is exact: the plan comes with a lower bound, and both are equal unless the work budget ran out.
#pragma once
#include "passes/partition/inter/bottleneck.h"

#include <stdint.h>

typedef struct sn_stage_shape {
    int data, tensor; // degrees; the stage takes data * tensor devices
} sn_stage_shape;

// How many micro-batches a stage holds at once, from the stages that follow it (itself included).
typedef enum sn_stage_stash {
    SN_STAGE_STASH_STAGES,   // as many as there are such stages: 1F1B with micro-batches of one size
    SN_STAGE_STASH_REPLICAS, // ceil(sum of their data degrees / its own): micro-batches dealt to replicas in turn
                             // (Piper)
    SN_STAGE_STASH_COUNT
} sn_stage_stash;

enum { SN_STAGE_MAX_DEVICES = 32767 };

typedef struct sn_stage_problem {
    int cuts; // >= 2
    // kind[from * cuts + to] names what lies between two cuts, -1 where `to` does not follow `from`. Stages of one kind
    // cost the same (repeated blocks: "3 blocks", "embedding and 2 blocks"), so their times are asked for once. Cuts
    // are in topological order: kind is -1 unless from < to. NULL: a chain, where pair (from, to) is its own kind from
    // * cuts + to.
    const int *kind;
    int kinds;
    const sn_stage_shape *shapes;
    int shape_count;
    int devices;      // at most SN_STAGE_MAX_DEVICES; count nodes instead of devices beyond that
    int max_depth;    // bound on what `stash` counts: the stages, or the sum of their data degrees; 0: none
    int microbatches; // M; also bounds what a stage holds. 0: unbounded (only for SN_STAGE_STEADY)
    sn_stage_objective objective;
    sn_stage_stash stash;
    // Seconds per micro-batch of a stage that holds `in_flight` micro-batches, INFINITY when its memory does not
    // suffice. Must not decrease with in_flight (more rematerialisation when memory is short). *same_until, set to
    // in_flight before the call, may be raised to the largest count in flight with the same answer (INT_MAX when memory
    // is no concern).
    double (*time)(void *context, int kind, int shape, int in_flight, int *same_until);
    void *context;
    long
        work_limit; // label expansions before the search stops with a gap; 0: none (deterministic, unlike a time limit)
} sn_stage_problem;

typedef struct sn_stage {
    int from, to; // cuts
    int shape;
    int in_flight;
    double time;
} sn_stage;

typedef struct sn_stage_plan {
    bool feasible;
    sn_stage *stages; // in the order of the model; owned
    int stage_count;
    int devices, replicas; // in use
    double bottleneck;     // longest stage
    double objective;
    double lower_bound; // of the objective over all plans
    long work;          // label expansions
} sn_stage_plan;

// Never fails; `feasible` is false when no plan fits (lower_bound is then INFINITY, unless the budget ran out).
sn_stage_plan sn_stages_solve(const sn_stage_problem *problem);
void sn_stage_plan_free(sn_stage_plan *plan);
// The objective of stages with these times, for `microbatches` micro-batches.
double sn_stage_objective_value(sn_stage_objective objective, int stages, double sum, double longest, int microbatches);
