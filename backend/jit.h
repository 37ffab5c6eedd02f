// Compiles a module in process and runs its functions, for tests and for looking at one function. The product's path
// is the executable (backend/package); both execute the same schedule with the same kernels.
#pragma once
#include "backend/lower/kernels.h"
#include "ir/interp.h"
#include "passes/pass.h"

typedef struct sn_jit sn_jit;

// Library calls are the runtime's: whoever runs a jit brings them.
typedef struct sn_jit_host {
    void *user;
    // Memory of schedule->arena_bytes, zeroed.
    sn_status (*allocate)(void *user, const sn_schedule *schedule, void **arena);
    sn_status (*library)(void *user, const sn_schedule *schedule, const sn_instr *instr);
} sn_jit_host;

// Runs the passes that are missing to sched form with addresses on a graph- or dist-form module (one rank), lowers and
// compiles. The module is changed and must outlive the jit. NULL after adding diagnostics.
sn_jit *sn_jit_compile(sn_module *module, sn_diags *diags);
const sn_kernels *sn_jit_kernels(const sn_jit *jit);
// Gives memory and globals their first values. Before the first run; again for a fresh start.
SN_MUST_USE sn_status sn_jit_start(sn_jit *jit, const sn_jit_host *host);
// One run of a function on whole tensors, as sn_interp_run. Globals keep what `assign` gives them.
SN_MUST_USE sn_status sn_jit_run(sn_jit *jit, const char *func, const sn_tensor *args, sn_tensor *results);
// A global's current value, in the arena; NULL when it has none of that name.
void *sn_jit_global(sn_jit *jit, const char *name);
void sn_jit_free(sn_jit *jit);
