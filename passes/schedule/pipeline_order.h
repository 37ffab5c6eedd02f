// In which order a pipeline rank runs the forward and backward passes of its micro-batches. The schedule builder and
// the simulator ask the same function.
#pragma once
#include "base/vec.h"
#include "passes/partition/plan.h"

typedef enum sn_run_kind {
    SN_RUN_FORWARD,
    SN_RUN_BACKWARD,        // all of it
    SN_RUN_BACKWARD_INPUT,  // what the stage before waits for
    SN_RUN_BACKWARD_WEIGHT, // what only the gradients of parameters need
    SN_RUN_KIND_COUNT
} sn_run_kind;

typedef struct sn_pipeline_run {
    sn_run_kind kind;
    int micro_batch, chunk; // chunk c of rank r is stage c * ranks + r
} sn_pipeline_run;

typedef SN_VEC(sn_pipeline_run) sn_pipeline_order;

// The runs of pipeline rank `rank` of `ranks` in one step of `microbatches`, appended to `out` (free it with
// sn_vec_free). Each chunk sees its micro-batches in order, forward and backward. `chunks` > 1 only with
// SN_PIPELINE_INTERLEAVED, which is at its best with a multiple of `ranks` micro-batches.
void sn_pipeline_order_of(sn_pipeline schedule, int ranks, int chunks, int microbatches, int rank,
                          sn_pipeline_order *out);
// The most micro-batches that have begun forward on the rank and not ended backward at one time, in this order; with
// chunks, their parts on a chunk count as a share of the rank. `group` is how many micro-batches run one chunk in a
// row: `ranks` in the orders of this file, frameworks may take others. A bound where chunks meet a last group that is
// not full.
double sn_pipeline_in_flight(sn_pipeline schedule, int ranks, int chunks, int group, int microbatches, int rank);
// The most micro-batches at one time that are between their two backward passes, or in one of them.
double sn_pipeline_waiting(sn_pipeline schedule, int microbatches, int rank);
