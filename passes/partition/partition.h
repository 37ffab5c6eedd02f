// Completes a plan: layouts where it has axes for weights and states none.
#pragma once
#include "base/diag.h"
#include "ir/graph.h"
#include "passes/partition/plan.h"

// `out` is a copy of `plan` with what was open filled in; lists are in the module's arena. The module stays in graph
// form: it gets the plan's mesh, and what the plan states of weights and results is written on them, for people and
// dumps. Where axes cut more than the data, cross-entropy is taken apart, so that classes can be cut as the vocabulary
// is.
void sn_partition(sn_module *module, const sn_plan *plan, sn_diags *diags, sn_plan *out);
