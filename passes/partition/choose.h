// Layouts of weights where a plan has mesh axes beyond dp and pp and states none: a step of `partition`.
#pragma once
#include "ir/graph.h"
#include "passes/partition/plan.h"

// Sets layouts of `out`, a copy of `plan`, in the module's arena. The module is in graph form, with `mesh` set.
// Evaluates the functions of a training step (or of the forward pass) by trial distributions, which leave layouts on
// all values.
void sn_choose_layouts(sn_module *module, const sn_plan *plan, sn_plan *out);
