// The training step that a plan.json stands for, lowered again to the schedules that `compile` would make.
//
// plan.json says what it was made from ("made_from": the model and the options that `sennit plan` was given); a command
// line may say otherwise.
#pragma once
#include "backend/lower/kernels.h"
#include "passes/cost/cluster.h"
#include "tools/training.h"

typedef struct sn_plan_step {
    sn_arena arena;
    json_t *plan;
    sn_options own;          // the same as a command line of `compile`
    const sn_options *build; // with what is recorded; in the arena of the diags
    sn_train_step step;
    sn_cluster cluster;
    sn_kernels kernels;
    sn_schedules schedules;
    sn_str constants;
} sn_plan_step;

// `model` stands in for the recorded one where it is not NULL; options of the command line that `compile` takes come
// with the recorded ones (sn_plan_options). False when diags got errors; free it in either case.
bool sn_plan_step_make(const char *path, const char *model, const sn_options *options, sn_diags *diags,
                       sn_plan_step *out);
void sn_plan_step_free(sn_plan_step *step);
