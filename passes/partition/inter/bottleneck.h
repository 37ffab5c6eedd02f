// The search over the longest stage that every cut into stages shares: stages.h, where stages have shapes and a graph
// its cuts, and passes/partition/search_stages.h, where each stage of a candidate has its devices. For a bound on the
// longest stage either problem is a dynamic program over sums; that is its owner's part and stands behind
// sn_bottleneck. Which bounds to ask for is this file's.
#pragma once
#include <stdbool.h>

typedef enum sn_stage_objective {
    SN_STAGE_STEADY,      // max                        seconds between micro-batches of a pipeline that never drains
    SN_STAGE_FILLED,      // (M - 1 + S) max            M micro-batches through S stages that all take the longest time
    SN_STAGE_SYNCHRONOUS, // sum + (M - 1) max          what a flushed 1F1B schedule takes
    SN_STAGE_OBJECTIVE_COUNT
} sn_stage_objective;

// The objective of a plan of this cost: the number of its stages for SN_STAGE_FILLED, else the sum of their times.
// `weight` is M - 1.
double sn_stage_objective_of(sn_stage_objective objective, double weight, double cost, double longest);

typedef struct sn_bottleneck_plan {
    double longest, cost, objective;
} sn_bottleneck_plan;

// A problem, seen through bounds on the longest stage.
typedef struct sn_bottleneck {
    void *problem;
    sn_stage_objective objective;
    double weight;
    double least, least_cost; // no plan's longest stage, or cost, is less; 0: nothing is known
    // Whether some plan keeps every stage within the bound (INFINITY: any time that is finite). The problem holds on to
    // the plan until the next question.
    bool (*fit)(void *problem, double bound, sn_bottleneck_plan *out);
    // The plan of the least cost within the bound. When no plan's longest stage is below `at_least`, those that cannot
    // beat `best` may be left out.
    bool (*cheapest)(void *problem, double bound, double at_least, double best, sn_bottleneck_plan *out);
    void (*keep)(void *problem); // the plan that was found last is the answer so far
    // `fit` will be asked for bounds below this one (it was reached) or above it (it was not). May be NULL.
    void (*narrow)(void *problem, bool reached);
    bool (*exhausted)(const void *problem); // `cheapest` found nothing because its budget ran out. May be NULL
} sn_bottleneck;

typedef struct sn_bottleneck_answer {
    bool feasible;
    sn_bottleneck_plan plan; // the one kept last
    double lower_bound;      // of the objective over all plans; equal to the plan's unless the budget ran out
} sn_bottleneck_answer;

// The plan of the least objective; exact.
sn_bottleneck_answer sn_bottleneck_solve(const sn_bottleneck *problem);
