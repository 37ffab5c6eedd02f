// What the two searches behind sn_stages_solve share. For a bound T on the longest stage, `limit` says how many
// micro-batches a stage can hold and still take at most T; both searches run from the last cut to the first.
#pragma once
#include "base/alloc.h"
#include "base/vec.h"
#include "passes/partition/inter/stages.h"

#include <stddef.h>

typedef struct sn_stage_move {
    int to, kind;
} sn_stage_move;

typedef struct sn_stage_solver {
    const sn_stage_problem *problem;
    int last;          // the last cut
    int in_flight_cap; // no stage holds more
    int depth_max;     // of the stashed depth: stages or replicas, as problem->stash says
    int *order;        // shapes by devices, then data degree
    // The moves from cut i are moves[first_move[i] .. first_move[i + 1]).
    sn_stage_move *moves;
    int *first_move;
    int *kinds; // that occur
    int kind_count;
    // [kinds][shapes] largest number in flight within a bound: of the bound asked for, and of the tightest known bounds
    // on either side of it, between which the search for the next one stays.
    uint16_t *limit, *limit_low, *limit_high;
    double bound, bound_low, bound_high;
    long work;
} sn_stage_solver;

void sn_stage_solver_init(sn_stage_solver *solver, const sn_stage_problem *problem);
void sn_stage_solver_free(sn_stage_solver *solver);
// Fills `limit` for stages of at most `bound` seconds. `narrow` says that later bounds will lie below this one (it was
// reached) or above it (it was not).
void sn_stage_solver_bound(sn_stage_solver *solver, double bound);
void sn_stage_solver_narrow(sn_stage_solver *solver, bool reached);
int sn_stage_weight(const sn_stage_solver *solver, int shape); // what the shape adds to the depth
int sn_stage_in_flight(const sn_stage_solver *solver, int shape, int depth_after);
double sn_stage_time(const sn_stage_solver *solver, int kind, int shape, int in_flight);
// The deepest tail behind a stage that may hold `limit` micro-batches; -1 when it may hold none.
int sn_stage_deepest_tail(const sn_stage_solver *solver, int shape, int limit);

// Fewest devices that cover the units before each cut, [cuts], when nothing is stashed: a lower bound. Devices + 1
// where there is no way.
void sn_stage_devices_before(sn_stage_solver *solver, int *devices);
// Whether some plan keeps every stage within the current bound; becomes `plan` (whose stages are replaced) if so.
bool sn_stage_fit(sn_stage_solver *solver, sn_stage_plan *plan);
// The plan of the least secondary cost (sum of times; number of stages for SN_STAGE_FILLED) within the current bound
// that can beat `best`, when every plan's longest stage takes at least `at_least`; *cost is that cost. False when there
// is none, or when the work budget ran out (sn_stage_exhausted).
bool sn_stage_cheapest(sn_stage_solver *solver, double at_least, double best, sn_stage_plan *plan, double *cost);
bool sn_stage_exhausted(const sn_stage_solver *solver);
// Completes the fields that follow from the stages.
void sn_stage_plan_finish(const sn_stage_solver *solver, sn_stage_plan *plan);
