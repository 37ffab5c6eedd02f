// Pipeline stages. The pass `stages` cuts every function of the dist form in one function per stage and part:
// "stage1.forward", "stage1.backward", "stage0.update". The names are how later passes and the backend know them.
//
// Stage s runs on pipeline rank s mod (size of `pp`). What is not done by stage but once per rank (update, gradients,
// tie) is named after the rank's first stage. Values pass from one function to another
//   - on another rank: by ops `send` and `recv`;
//   - on the same rank: as a result and an argument of the same name, "$keep.N", for one micro-batch.
#pragma once
#include "ir/graph.h"
#include "passes/partition/plan.h"

typedef enum sn_stage_part {
    SN_PART_TIE, // before anything else in a sequence: parameters that another rank owns
    SN_PART_FORWARD,
    SN_PART_BACKWARD,
    SN_PART_BACKWARD_INPUT,  // zero-bubble schedules: what an earlier stage waits for
    SN_PART_BACKWARD_WEIGHT, // and the rest
    SN_PART_UPDATE,
    SN_PART_GRADIENTS,
    SN_PART_EVAL,
    SN_PART_PREDICT,
    SN_PART_COUNT
} sn_stage_part;

const char *sn_stage_part_name(sn_stage_part part); // "backward_input"
sn_phase sn_stage_part_phase(sn_stage_part part);
// What the name of a function says; false for a function that is of no stage.
bool sn_stage_of(const sn_func *func, int *stage, sn_stage_part *part);
const sn_func *sn_stage_func(const sn_module *module, int stage, sn_stage_part part); // NULL when there is none
bool sn_module_has_stages(const sn_module *module);
int sn_pipeline_ranks(const sn_module *module); // size of the mesh axis `pp`; 1 without one
// The pipeline rank that a function runs on; -1 for one that all run: a kernel's body, or any without stages.
int sn_pipeline_rank_of(const sn_func *func);
// Whether an argument or a result is a value kept on its rank from one function to another ("$keep.3").
bool sn_is_kept_name(const char *name);
// The pipeline rank that holds a global of a module with stages: that of the functions that read or write it; 0 when
// none does.
int sn_pipeline_rank_of_global(const sn_global *global);
