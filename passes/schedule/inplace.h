// Which results a kernel may write over one of its operands.
#pragma once
#include "passes/schedule/group.h"

// Whether the unit reads `value` only at the flat position that it writes, so that results of its shape may take its
// place. `seen` has a cell per op mark; `stamp` is new in each call.
bool sn_reads_elementwise(const sn_grouping *g, const sn_unit *unit, const sn_value *value, int *seen, int stamp);
