// What of a model decides which axes can cut it. Private to the evaluator's files.
#pragma once
#include "passes/partition/blocks.h"

// Whether the data has a dim that context parallelism may cut.
bool sn_has_sequence(const sn_func *micro);
// Whether the weight is a stack of experts' matrices.
bool sn_is_stack(const sn_value *weight);
// What a size of ep must divide: common to all stacks; 0 without any.
int64_t sn_count_experts(const sn_blocks *blocks);
