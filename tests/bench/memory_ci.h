// Megatron-LM's CI: the most bytes that the last rank had allocated, against the memory classes of its stage.
#pragma once
#include "csv.h"

// The bytes predicted for a row of memory_megatron_ci.csv; false for models that are no stack of transformer blocks of
// one kind.
bool memory_ci_row(const csv_row *row, double *bytes);
