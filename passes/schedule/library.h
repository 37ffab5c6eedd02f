// What library calls take: which ops, and which views of their operands they read without a copy.
#pragma once
#include "passes/memory/strided.h"

// Whether the op runs as a library call; else it is a kernel like any other.
bool sn_library_runs(const sn_op *op);
// Whether the call can read operand `index` through this view.
bool sn_library_takes(const sn_op *op, int index, const sn_strided *view);
