// All kernels of a module.
#pragma once
#include "backend/lower/lower.h"
#include "backend/package/schedule.h"

typedef struct sn_kernels {
    sn_kir **kirs; // by body, in the module's order
    sn_kernel_entry *entries;
    size_t n;
} sn_kernels;

// Lowers the body of every kernel op. False with diagnostics when an operator has no kernel. Free in either case.
bool sn_kernels_lower(const sn_module *module, sn_diags *diags, sn_kernels *out);
void sn_kernels_free(sn_kernels *kernels);
