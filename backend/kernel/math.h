// Functions that kernel IR computes itself, as short sequences of its own operators: they vectorise, and have the same
// bits on every target (each step is one correctly rounded operation; contraction is explicit, as fma).
#pragma once
#include "backend/kernel/kir.h"

typedef struct sn_kir_function {
    sn_kir *body; // a block of values: no loops, no memory
    sn_kir_node *args[4];
    int n_args;
    sn_kir_node *result;
} sn_kir_function;

// Expansions made so far. Zero-initialise; one per thread.
typedef struct sn_kir_math {
    sn_kir_function functions[SN_KIR_OP_COUNT][2];
} sn_kir_math;

// The expansion of a MATH operator, or NULL when it is a call of libm. `dtype` is that of the operands (RANDOM_BITS:
// any).
const sn_kir_function *sn_kir_math_get(sn_kir_math *math, sn_kir_op op, sn_dtype dtype);
void sn_kir_math_free(sn_kir_math *math);
