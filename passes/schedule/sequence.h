// Which functions of a module a rank runs, in which order, for which micro-batch: what the schedule's sequences say,
// and what the memory planner counts slots from.
#pragma once
#include "base/vec.h"
#include "ir/graph.h"
#include "passes/partition/plan.h"

typedef enum sn_sequence_kind {
    SN_SEQUENCE_STEP,
    SN_SEQUENCE_GRADIENTS,
    SN_SEQUENCE_EVAL,
    SN_SEQUENCE_PREDICT,
    SN_SEQUENCE_COUNT
} sn_sequence_kind;

typedef struct sn_func_run {
    const sn_func *func;
    int micro_batch; // -1: of none
} sn_func_run;

typedef SN_VEC(sn_func_run) sn_func_runs;

const char *sn_sequence_name(sn_sequence_kind kind); // "step"
// Appends the runs of pipeline rank `rank` (0 where the module has no stages); functions that the module does not have
// are left out. False when the module has no such sequence at all.
bool sn_sequence_of(const sn_module *module, const sn_plan *plan, int rank, sn_sequence_kind kind, sn_func_runs *out);
// When a micro-batch's value of a name is there: places in a sequence, both ends included; first < 0: never.
typedef struct sn_life {
    int first, last;
} sn_life;

// Of the kept value or input `name`, by micro-batch: from the run that computes it (an input: the micro-batch's first
// run, which loads it) to the last that reads it.
void sn_lives_of(const sn_func_runs *runs, const char *name, int microbatches, sn_life *lives);
// The least number of slots with which no two micro-batches of a step have the kept value or input `name` of this
// pipeline rank in one slot, if micro-batch m takes slot m mod slots.
int sn_slots_of(const sn_module *module, const sn_plan *plan, int rank, const char *name);
