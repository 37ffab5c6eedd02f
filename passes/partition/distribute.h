// Lowers graph form to dist form: one SPMD program in which every value has a layout on the plan's mesh.
#pragma once
#include "base/diag.h"
#include "ir/graph.h"
#include "passes/partition/plan.h"

// Data arguments (those whose names do not begin with '$') are cut along dim 0 over the axis `dp`; globals are
// replicated. Layouts follow the factors of each op; where two operands disagree, or a partial sum meets an op that is
// not linear, a collective is inserted. Function results and assigned globals end up replicated.
// Returns false with diagnostics when a batch does not divide.
bool sn_distribute(sn_module *module, const sn_plan *plan, sn_diags *diags);

// Turns dist form into sched form: types become local, layouts vanish, generators that are cut along a dim read the
// rank's coordinate (axis_index). With `module->mesh` of one rank collectives are dropped.
void sn_localize(sn_module *module);
