// From sched form to the schedule that the runtime executes.
#pragma once
#include "base/diag.h"
#include "ir/graph.h"
#include "passes/partition/plan.h"
#include "runtime/schedule.h"

// What the schedule says that the module does not know.
typedef struct sn_schedule_request {
    const char *model_path; // absolute
    int64_t model_bytes;
    const char *model_hash, *plan_hash;
    const sn_plan *plan;
    int microbatches;
    int threads;
    double lr;
    const sn_texts *labels;     // names of the arguments that are targets of the loss
    const sn_setting *settings; // run options fixed at compile time
    size_t n_settings;
} sn_schedule_request;

// A kernel of the module by its body function, with what the schedule needs to launch it.
typedef struct sn_kernel_entry {
    const sn_func *body;
    const char *symbol;
    int64_t grid;
    bool one_thread;
} sn_kernel_entry;

// Builds the schedule of one rank class (by pipeline rank; 0 without stages) of a module that has its addresses.
// Everything the result points at is in `arena`; values of
// constants in memory are appended to `constants`, the payload.
void sn_schedule_build(sn_module *module, const sn_schedule_request *request, int rank, const sn_kernel_entry *kernels,
                       size_t n_kernels, sn_arena *arena, sn_str *constants, sn_schedule *out);

// All rank classes of a module.
void sn_schedules_build(sn_module *module, const sn_schedule_request *request, const sn_kernel_entry *kernels,
                        size_t n_kernels, sn_arena *arena, sn_str *constants, sn_schedules *out);

// Whether an op leaves an instruction: not a view, not an axis index (the runtime writes it), not an assign. The
// instructions of a program are in the order of these ops of its function; copies that belong to none follow.
bool sn_op_is_instruction(const sn_op *op);
