// The time of a group's ops for the shapes that one rank holds. Private to the evaluator's files.
#pragma once
#include "passes/partition/evaluate_table.h"

// Tensor parallelism has up to SN_TENSOR_AXES axes, outermost first (sn_cut_setting.inner).
enum { SN_DATA_AXIS, SN_CONTEXT_AXIS, SN_EXPERT_AXIS, SN_TENSOR_AXIS, SN_AXIS_KINDS = SN_TENSOR_AXIS + SN_TENSOR_AXES };

// How the axes cut a group: the strategy over each axis and into how many parts.
typedef struct sn_group_cut {
    const sn_strategy *strategy[SN_AXIS_KINDS];
    int64_t parts[SN_AXIS_KINDS];
} sn_group_cut;

typedef struct sn_group_seconds {
    double forward, backward_input, backward_weight;
    double light[3];  // of these three, what is no contraction
    double temporary; // bytes of what the backward pass of the group reads and writes
} sn_group_seconds;

// False when a dim does not divide.
bool sn_group_local_seconds(const sn_cost_model *model, const sn_op_group *group, const bool *weight_only,
                            const sn_group_cut *cut, sn_arena *scratch, sn_group_seconds *out);
// Over what the light ops of a block take as kernels of their groups, forward and backward, what they take as `fuse`
// will make them: it joins ops across groups, reads transposed operands of library calls in place, and makes cheap
// results again in the backward pass. `cuts` has one entry a group.
void sn_block_fusion(const sn_cost_model *model, const sn_block *block, bool *const *weight_only,
                     const sn_group_cut *cuts, sn_arena *scratch, double share[2]);
// Ops of the update or the accumulation of a parameter that each axis cuts so in its parts.
double sn_parameter_local_seconds(const sn_cost_model *model, const sn_global *parameter, int n, sn_op *const *ops,
                                  const sn_cut cuts[SN_AXIS_KINDS], const int64_t parts[SN_AXIS_KINDS],
                                  sn_arena *scratch);
// The same of a parameter of one element: what the launches alone take.
double sn_parameter_least_seconds(const sn_cost_model *model, int n, sn_op *const *ops, sn_arena *scratch);
// Bytes of a result of a forward op of the group.
double sn_group_local_bytes(const sn_op_group *group, const sn_group_cut *cut, int op, int result);
// Bytes of an operand of a backward op of the group.
double sn_group_operand_bytes(const sn_op_group *group, const sn_group_cut *cut, int op, int operand);
