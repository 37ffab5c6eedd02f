// The kernels of a module in sched form: lowered once per body, compiled, and printed.
#pragma once
#include "backend/kernel/kir.h"
#include "backend/package/schedule.h"
#include "base/diag.h"

typedef struct sn_kernels {
    sn_kernel_entry *entries; // in order of first use
    sn_kir **kirs;            // parallel to entries
    size_t count;
    sn_arena arena;
} sn_kernels;

// False with diagnostics for bodies that cannot be lowered.
bool sn_kernels_lower(const sn_module *module, sn_diags *diags, sn_kernels *out);
// A shared object with all of them, in memory (sn_free `*data`). Empty when there are none.
SN_MUST_USE sn_status sn_kernels_link(const sn_kernels *kernels, int threads, void **data, size_t *bytes);
void sn_kernels_free(sn_kernels *kernels);
