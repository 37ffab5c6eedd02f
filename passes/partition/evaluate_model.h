// What of a model decides how axes can cut it. Private to the evaluator's files.
#pragma once
#include "passes/partition/evaluate_strategy.h"

// Whether the data has a dim that context parallelism may cut.
bool sn_has_sequence(const sn_func *micro);
// Whether the weight is a stack of experts' matrices.
bool sn_is_stack(const sn_value *weight);
// What a size of ep must divide: common to all stacks; 0 without any.
int64_t sn_count_experts(const sn_blocks *blocks);
// Whether an op of the group's forward or backward part reads the value.
bool sn_group_reads(const sn_op_group *group, const sn_value *value, bool backward);
// How a strategy cuts what an op of the group makes; SN_UNCUT of anything else.
sn_cut sn_cut_inside(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value);
