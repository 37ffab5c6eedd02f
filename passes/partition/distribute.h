// Lowers graph form to dist form: one SPMD program in which every value has a layout on the plan's mesh.
#pragma once
#include "base/diag.h"
#include "ir/graph.h"
#include "passes/partition/plan.h"

// Data arguments (those whose names do not begin with '$') are cut along dim 0 over `dp`, and over `ep` where that
// divides; inside the program `cp` cuts their dim 1. Weights and results of ONNX nodes get the layouts that the plan
// states (sn_partition completes it). Optimizer state, accumulators and weights are cut over `dp` as plan->zero says.
// All else follows from the factors of each op; where operands disagree, or a partial sum meets an op that is not
// linear, a collective is inserted. Function results end up whole, assigned globals as they are stored. `pp` cuts
// nothing. Warnings W0430, W0431 name what has no effect. Returns false with E0404 (the batch does not divide), E0430
// or E0431 (a stated layout is of nothing, or does not fit).
bool sn_distribute(sn_module *module, const sn_plan *plan, sn_diags *diags);

// Turns dist form into sched form: types become local; globals and arguments keep their layouts, which say how the
// whole is cut. Moves become collectives on dim 0 of parts, generators and ops that count from the start of a cut dim
// read the rank's coordinate (axis_index). Along axes of one rank nothing moves.
void sn_localize(sn_module *module);
