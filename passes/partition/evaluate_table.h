// What an evaluator knows of each class before any degree is chosen. Private to the evaluator's files.
#pragma once
#include "passes/partition/evaluate.h"
#include "passes/partition/evaluate_strategy.h"

enum { SN_MOST_CUTS = 14 };

// A value that crosses groups. The groups that read it agree on one layout for it.
typedef struct sn_flow {
    const sn_value *value;
    int producer; // group; -1 when it comes from outside the block
    int n_readers;
    int *readers;
    bool leaves;          // a later block, or the function's result, reads it
    bool follows;         // lies between blocks: has their layout
    bool differentiable;  // its gradient flows back
    sn_cut data, context; // by the axes dp and cp
    sn_cut boundary;      // of what lies between blocks: along the sequence
    int n_cuts;
    sn_cut cuts[SN_MOST_CUTS]; // that its producer or a reader may have
} sn_flow;

typedef struct sn_parameter_ops {
    const sn_global *parameter;
    double gradient_bytes, optimizer_bytes;
    double least_update, least_clear; // seconds; negative: not asked for yet
    int n_update, n_clear, n_accumulate;
    sn_op **update, **clear, **accumulate; // clear: of the gradients' sums, after the update
} sn_parameter_ops;

typedef struct sn_class_table {
    const sn_block *block;
    sn_strategies *strategies; // per group
    int *data, *context;       // per group: the strategy over dp, and over cp
    bool **weight_only;        // per group and backward op: it is of the pass of the weights' gradients
    bool *at_once; // per result of the block, from its first: a backward op that is not of that pass reads it
    int n_flows;
    sn_flow *flows;
    sn_parameter_ops *parameters; // of the block's parameters
} sn_class_table;

sn_class_table *sn_class_tables(const sn_blocks *blocks);
// The move of a tensor between two layouts of one axis: the collective, or SN_OP_COUNT when it takes none.
sn_op_kind sn_move_kind(sn_cut from, sn_cut to);

// How an axis cuts what flows between blocks.
typedef enum sn_boundary {
    SN_BOUNDARY_WHOLE,
    SN_BOUNDARY_SEQUENCE,
    SN_BOUNDARY_SAMPLES, // as dp does
} sn_boundary;

// A tensor axis outside of the one at hand: what has been chosen over it.
typedef struct sn_outer_axis {
    const int *choice, *label; // per group, per flow
    int64_t parts;
} sn_outer_axis;

// evaluate_layout.c: the strategy over one axis of each group of a class. seconds[g][s] is what group g costs under s;
// bytes[f] what flow f has on a rank before the axis cuts it. Where the axes outside of it do the same with a value,
// one collective does for all, and what it costs more is what counts. False when nothing is possible.
typedef struct sn_layout_problem {
    const sn_class_table *table;
    const sn_cost_model *model;
    const sn_group *ranks; // of the axis
    int n_outside;
    sn_outer_axis outside[SN_TENSOR_AXES - 1];
    const sn_group
        *together; // [1 << n_outside]: the ranks of a set of those axes, by bit, and of the axis; NULL for none
    const sn_group *without; // the same without the axis
    sn_boundary boundary;
    double **seconds;
    const double *bytes;
} sn_layout_problem;
// evaluate_matrices.c: strategies that leave whole a matrix of parameters that the axis can cut take for ever.
void sn_forbid_whole_matrices(const sn_layout_problem *problem);
// The cut of what lies between blocks; SN_UNCUT where it does not divide.
sn_cut sn_layout_between(const sn_layout_problem *problem, int f);
// *seconds: of all groups and moves.
bool sn_layout_solve(const sn_layout_problem *problem, int *choice, int *flow_label, double *seconds);
// Of a collective on a tensor of `bytes` before any of the axes cuts it, that the axes outside of it in `joined` do as
// well: what one over all of them takes more than theirs, or less where more links of a node serve it.
double sn_move_kind_seconds(const sn_layout_problem *problem, sn_op_kind kind, double bytes, unsigned joined);

// A label of a flow: how its value and its gradient lie while it is read.
typedef struct sn_flow_label {
    sn_cut value, gradient;
} sn_flow_label;
// 0: whole, 1: whole with a partial gradient, 2 + i: cuts[i].
sn_flow_label sn_flow_label_at(const sn_flow *flow, int label);
// Seconds of the moves of flow `f`: {forward, backward}. `reader` is a group; -1: between the producer and the label.
typedef struct sn_move_seconds {
    double forward, backward;
} sn_move_seconds;
sn_move_seconds sn_flow_moves(const sn_layout_problem *problem, int f, int reader, const sn_strategy *strategy,
                              sn_flow_label label);
