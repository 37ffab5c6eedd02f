// Inside of passes/partition: what the steps of a distribution share.
#pragma once
#include "base/diag.h"
#include "base/map.h"
#include "passes/partition/cuts.h"
#include "passes/partition/plan.h"
#include "passes/partition/relayout.h"

enum { SN_MARK_PLACED = -1 }; // op->mark of what a distribution inserted: it has its layout

typedef struct sn_moved {
    sn_layout layout;
    sn_phase phase;
    sn_value *result; // NULL in a trial
    uint32_t next;    // the next one of the same value, plus one
} sn_moved;

// A distribution of a module, or the trial of one: a trial sets layouts and counts bytes, and changes no op.
typedef struct sn_distributor {
    sn_module *module;
    const sn_mesh *mesh;
    const sn_plan *plan;
    sn_diags *diags;
    bool trial;
    double sent, touched;       // bytes that a rank sends, and that its ops read and write
    int messages;               // collectives
    SN_VEC(const sn_op *) sums; // of a trial: ops with an operand that is summed for them
    sn_arena scratch;           // emptied after each op
    SN_VEC(sn_moved) moves;     // made already, in lists that start at value->id: each collective is made once
    // op->mark is the index, plus one, of the layout that the op's first result gets; `partial` are the axes over which
    // it may stay a partial sum.
    SN_VEC(sn_layout) targets;
    sn_map nodes; // of `nodes_of`: the last forward op of each ONNX node, whose result is the node's
    const sn_func *nodes_of;
    sn_value *is_first[SN_MAX_AXES]; // whether the rank is the first along an axis, once a function has asked for it
} sn_distributor;

// moves.c: the value in another layout, for `user` (NULL: the function's results) and what comes after it. In a trial
// the value itself.
sn_value *sn_distribute_move(sn_distributor *d, sn_func *func, sn_op *user, sn_value *value, sn_layout from,
                             sn_layout to);
// Bytes that a rank would send for it: 0 where it has been moved so already.
double sn_distribute_move_bytes(const sn_distributor *d, const sn_op *user, const sn_value *value, sn_layout from,
                                sn_layout to);

// propagate.c: chooses the cuts of an op, moves its operands and sets the layouts of its results.
void sn_distribute_op(sn_distributor *d, sn_op *op);

// distribute.c: a function from its arguments to its results.
bool sn_distribute_func(sn_distributor *d, sn_func *func);

// targets.c: how globals are stored, from the plan's layouts and ZeRO. False with E0430, E0431.
bool sn_targets_of_globals(sn_distributor *d);
// What results must get: the plan's layouts of ONNX nodes, and those of gradients.
bool sn_targets_of_results(sn_distributor *d, sn_func *func);
const sn_layout *sn_target_of(const sn_distributor *d, const sn_op *op); // NULL: nothing is wanted
// Of an operand of a backward op that is the gradient of the op's ONNX node's result, that result; else NULL.
const sn_value *sn_value_of_gradient(const sn_distributor *d, const sn_op *op, int operand);
// How an op sees a global: weights that are stored cut over `dp` are joined wherever they are used (ZeRO-3).
// The weight that the name of a layout in a plan stands for; NULL when it is that of a node, as constants may be
// called.
sn_global *sn_targets_weight(const sn_module *module, const char *name);
sn_layout sn_layout_in_use(const sn_distributor *d, const sn_op *op, const sn_value *value);
// Gradient accumulators get their layout where they are first added to: the gradient's.
bool sn_is_accumulation(const sn_op *op);
sn_layout sn_accumulator_layout(const sn_op *op);
