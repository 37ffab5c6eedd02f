// What of an instruction decides how long it takes, as text: equal for equal work, whatever the buffers. A profile
// knows instructions by it (passes/cost/profile.h).
#pragma once
#include "backend/lower/kernels.h"
#include "base/str.h"

// By kernel of the schedules: a hash of its code.
const char **sn_kernel_signatures(const sn_kernels *kernels, sn_arena *arena);
// Of device work: no collectives, transfers or events.
void sn_instr_signature(const sn_instr *instr, const char *const *kernels, sn_str *out);
