// Bodies of kernel ops (sched form) to kernel IR.
//
// Every operator has one rule: how an element of its result at a vector of indices is made from elements of its
// operands (backend/lower/rules_*.c). Composing rules gives the whole body as one expression of the index, so movement
// operators cost index arithmetic alone. A schedule (backend/lower/schedule_*.c) picks blocks, loops and what is kept
// in scratch memory; it changes speed, never values.
#pragma once
#include "backend/kernel/kir.h"
#include "base/diag.h"
#include "ir/graph.h"

// Whether the operator can be compiled to a kernel for its types; NULL, or why not (a phrase, static).
const char *sn_lower_refuses(const sn_op *op);

// The kernel of `op`, a kernel op: parameters are its operands, then its results less those that `inplace` ties to an
// operand. `name` becomes the symbol. NULL after adding a diagnostic. Free with sn_kir_free.
sn_kir *sn_lower_kernel(const sn_op *op, const char *name, sn_diags *diags);
