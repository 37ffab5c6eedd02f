// Library calls of the sched form: matmul, conv and attention ops as instructions with strides.
#pragma once
#include "passes/memory/strided.h"
#include "runtime/schedule.h"

typedef struct sn_library_operands {
    const sn_module *module;
    sn_strided in[8], out[4]; // of the op's operands and results
    sn_view in_view[8], out_view[4];
} sn_library_operands;

// Fills in the instruction (kind and origin are the caller's).
void sn_library_call(const sn_op *op, const sn_library_operands *operands, sn_instr *out);
