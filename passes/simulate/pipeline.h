// The replay of one step of a pipeline from the times of its stages, in the orders of passes/schedule/pipeline_order.h.
#pragma once
#include "passes/partition/plan.h"

// Seconds of one stage for one micro-batch.
typedef struct sn_stage_times {
    double forward;
    double backward_input, backward_weight; // their sum is the backward pass where the schedule does not split it
    double to_next, to_previous;            // of the message with a pass's result to that stage
} sn_stage_times;

typedef struct sn_pipeline_case {
    sn_pipeline schedule;
    int ranks, chunks, microbatches;
    const sn_stage_times *stages; // [ranks * chunks]; stage s runs on rank s mod ranks
    const double *after;          // [ranks]: what a rank does when its passes have ended; NULL: nothing
    double cores, sharing;        // that the ranks share, and as in sn_sim_host; 0 cores: each has its own
} sn_pipeline_case;

typedef struct sn_pipeline_replay {
    double seconds;
    double busy;   // of the busiest rank
    double bubble; // seconds that the busiest rank waits
    int busiest;
} sn_pipeline_replay;

// Messages of a rank leave one after the other, beside its passes. As sn_pipeline_order_of requires: chunks > 1 with
// interleaving alone, and then a multiple of `ranks` micro-batches.
sn_pipeline_replay sn_pipeline_simulate(const sn_pipeline_case *pipeline);
