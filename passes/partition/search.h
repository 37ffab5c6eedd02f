// The outer search of hybrid parallelism: over the sizes of the axes pp, dp, ep, cp and tp and their order on the
// links, the micro-batch, the pipeline schedule and its chunks, ZeRO, the layout between blocks, the boundaries of
// uneven stages and what each stage computes again. The cost of a candidate is the time of one step; what does not fit
// in memory is no candidate.
#pragma once
#include "passes/cost/memory.h"
#include "passes/partition/evaluate.h"

typedef enum sn_objective {
    SN_OBJECTIVE_STEP,   // sum of the stages + (M - 1) longest, or what the schedule makes of it, and the update
    SN_OBJECTIVE_STEADY, // the longest stage: a pipeline that never drains (Piper)
    SN_OBJECTIVE_FILLED, // (M - 1 + stages) longest
    SN_OBJECTIVE_COUNT
} sn_objective;
const char *sn_objective_name(sn_objective objective);

typedef struct sn_stage_report {
    int first, end; // blocks
    sn_remat remat;
    double forward, backward_input, backward_weight; // seconds of a micro-batch, with recomputation
    double communication, again;                     // of these: over tp and cp; recomputed
    double message; // seconds of what it receives from the stage before, one way, beside its passes
    double once;    // seconds of its rank once a step, after its passes; of the rank's first stage alone
    double in_flight;
    double saved;      // bytes that computing again saves on each device
    double could_save; // bytes that computing more again would save
    sn_memory memory;  // of one of its devices (interleaved: this chunk's; see sn_price)
} sn_stage_report;

typedef struct sn_candidate {
    int pp, dp, chunks, zero, microbatches;
    sn_cut_setting setting; // tp, cp, ep, the layout between blocks, the micro-batch
    sn_pipeline schedule;
    bool data_outside;             // dp is the outermost axis and pp lies inside; else pp is outermost
    double step;                   // seconds; what the objective says for others than SN_OBJECTIVE_STEP
    double pipeline, sync, update; // seconds of the step's parts
    double messages;               // of the pipeline's seconds, those that wait for messages between stages
    double moved;                  // of the pipeline's seconds, those that move parameters and gradients over dp
    double crowded;                // seconds that the ranks' work takes on the cores that they share; 0: none are
    double replayed;               // seconds of the step, its pipeline replayed (rescore.h); 0 when it was not
    double bound;                  // no cut into stages makes this candidate faster
    double memory;                 // bytes of the fullest device
    double memory_limit;           // bytes that it has
    double excess;                 // bytes over the limit, > 0: not feasible
    int n_stages;
    sn_stage_report *stages; // NULL for alternatives that were only estimated
    int binding, fullest;    // stages
    bool exact;              // stages by the exact search, not an even cut
} sn_candidate;

// Ranks that hold the same parameters, which ZeRO shares out: those of dp and cp.
static inline int sn_candidate_shares(const sn_candidate *candidate) {
    return candidate->dp * candidate->setting.cp;
}

// One program does the whole step: nothing is summed over micro-batches, and gradients keep their parameter's type.
static inline bool sn_candidate_is_one_program(const sn_candidate *candidate) {
    return candidate->pp == 1 && candidate->microbatches == 1;
}

// The best candidate that has a property which the best of all has not: what the plan is compared with.
typedef struct sn_alternative {
    const char *axis; // "tp", "pp", "ep", "zero", "remat", "schedule", "micro-batch", …
    const char *value;
    sn_candidate candidate;
} sn_alternative;

typedef struct sn_search_request {
    const sn_blocks *blocks;
    const sn_cluster *cluster;
    const sn_plugins *plugins;        // may be NULL
    const struct sn_profile *profile; // what was measured of the devices; may be NULL
    sn_diags *diags;
    int64_t batch;       // samples of a step
    int64_t fixed_micro; // samples of a micro-batch over all data-parallel ranks, when the model fixes it; else 0
    sn_objective objective;
    const sn_plan *fixed; // what it names (axes, schedule, …) is kept (--mesh), all else open; NULL: all is open
    double memory_scale, link_scale; // 1; others ask what more would buy
    double cores, sharing; // of one host that all ranks share, and the share of their speed that is left when ranks
                           // take turns on them; 0 cores: each rank has a device of its own
} sn_search_request;

typedef struct sn_search_result {
    bool feasible;
    sn_candidate best;       // the one that misses the limit by least when nothing is feasible
    double lower_bound;      // of the step over all candidates
    double least_step;       // of a candidate that fits, by the closed form: the best's, unless its replay is faster
    long candidates, solved; // looked at, and given exact stages
    int n_runners;
    sn_candidate *runners; // in rising order of the closed form, each of another outline than the best
    int n_alternatives;
    sn_alternative *alternatives;
} sn_search_result;

typedef struct sn_search sn_search;
sn_search *sn_search_new(const sn_search_request *request, sn_arena *arena);
// The same request for a cluster that differs in its links alone; `like` must outlive it.
sn_search *sn_search_behind(const sn_search *like, const sn_cluster *cluster);
void sn_search_free(sn_search *search);
// Errors (E0440 nothing can be priced, with what is in the way) go to the request's diags; false then. `memory` scales
// each device's limit. `known` (may be NULL) is a candidate that is feasible here: only better ones are looked for, and
// it is the best when there are none; alternatives are not collected then.
bool sn_search_run(sn_search *search, double memory_scale, const sn_candidate *known, sn_search_result *out);
// The plan of a candidate; names and lists are in the arena.
sn_plan sn_search_plan(sn_search *search, const sn_candidate *candidate, sn_arena *arena);
sn_evaluator *sn_search_evaluator(sn_search *search);
