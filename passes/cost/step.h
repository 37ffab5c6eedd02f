// A training step under a plan: seconds, and bytes by class, from what each pipeline stage costs. Whoever knows the
// stages (transformer.h, from a shape) fills sn_step_stage; this file knows schedules and what may hide behind what.
// Closed forms: they are what the simulator gives for equal micro-batches.
#pragma once
#include "passes/cost/cost.h"
#include "passes/cost/memory.h"
#include "passes/partition/plan.h"

// One pipeline stage, of one rank.
typedef struct sn_step_stage {
    double forward, backward; // seconds of a micro-batch, with what the stage's own collectives expose
    double reduce;            // seconds of the gradients' reduction over data-parallel ranks
    double gather;            // seconds of gathering updated parameters (ZeRO-1, 2)
    double update;            // seconds of the optimizer
    double message;           // seconds of one message to the next stage
    sn_memory memory;
} sn_step_stage;

// What the closed form of a schedule needs of the stages: seconds of a micro-batch. A rank with several chunks has
// several stages.
typedef struct sn_pipeline_times {
    double sum, longest_stage, longest_rank;
    double fill;                             // of all stages but the last: forward + backward of inputs - of weights
    double without_weights, longest_without; // forward + backward of inputs
    double least_weights;
    double messages; // of one micro-batch to the last stage and back, beside the passes
    double turn;     // seconds in which no rank takes in more than one micro-batch, for it holds only so many at once
    int stages;
} sn_pipeline_times;
void sn_pipeline_times_add(sn_pipeline_times *times, double forward, double backward_input, double backward_weight,
                           bool last);
double sn_pipeline_seconds(sn_pipeline schedule, int ranks, int64_t microbatches, const sn_pipeline_times *times);

// Seconds, once a step, of the ranks that hold the same parameters under a ZeRO stage (Rajbhandari et al. 2020): the
// gradients' reduction, which from stage 2 on happens for each micro-batch instead, and the updated parameters' way
// back, which at stage 3 is a part of the passes.
typedef struct sn_zero_seconds {
    double reduce, gather;
} sn_zero_seconds;
sn_zero_seconds sn_zero_step(const sn_cost_model *model, int zero, double gradient_bytes, double parameter_bytes,
                             const sn_group *group);

typedef struct sn_pipeline_shape {
    int stages, chunks; // chunks: model chunks of a stage, interleaved 1F1B when above 1
    int64_t microbatches;
    bool overlap_messages; // messages hide behind computation in the steady state
    bool overlap_reduce;   // gradients are reduced while the last micro-batch's backward runs
    bool overlap_gather;   // updated parameters are gathered while the next step's first forward runs
} sn_pipeline_shape;

typedef struct sn_step {
    double seconds;
    double compute, bubble, messages, reduce, update; // what the seconds are made of, on the slowest stage
    sn_memory memory;                                 // of the stage that needs the most
    int fullest;                                      // that stage
} sn_step;
sn_step sn_step_of(const sn_pipeline_shape *pipeline, const sn_step_stage *stages);
