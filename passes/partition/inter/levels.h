// Pipelines of replicated stages on a hierarchy of machines, as PipeDream's optimizer states it (Narayanan et al., SOSP
// 2019): a level joins `machines` groups of the level below by links of one bandwidth; a stage of a level runs on some
// of its groups, data-parallel between them and, inside each, as a pipeline of the level below on the whole group.
#pragma once
#include <stdbool.h>

typedef struct sn_level {
    int machines;
    double bandwidth; // bytes a second
} sn_level;

typedef struct sn_level_problem {
    int states;           // states of progress through the model, in topological order; the last one is all of it
    const bool *precedes; // [states * states] whether the units of one are among those of the other, and fewer
    const double *time, *parameters, *activations; // [states] sums over the units so far: seconds, bytes, bytes
    const double *output;                          // [states] bytes that cross when a stage ends here
    int level_count;
    const sn_level *levels; // innermost first
    double memory;          // of a device; INFINITY: not looked at
    double transfer_weight; // 0: transfers between stages are free; 1: they count in full
} sn_level_problem;

typedef struct sn_level_stage {
    int level, from, to; // units of state `to` without those of `from`; from -1: from the start
    int machines;        // groups of the level below
} sn_level_stage;

typedef struct sn_level_plan {
    bool feasible;
    double objective;       // seconds of the slowest stage
    sn_level_stage *stages; // a stage is followed by the pipeline it runs inside each of its groups, if any; owned
    int stage_count;
} sn_level_plan;

sn_level_plan sn_levels_solve(const sn_level_problem *problem);
void sn_level_plan_free(sn_level_plan *plan);
