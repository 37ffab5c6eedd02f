// What a class of blocks moves over the ranks that hold the same parameters (sn_block_tensors). Private to the
// evaluator's files.
#pragma once
#include "passes/partition/evaluate_table.h"

// Whether the backward pass of `micro` reads a parameter: ZeRO-3 gathers it again there.
bool sn_is_read_backward(const sn_func *micro, const sn_value *parameter);
// One more, with those that are like it; the list has room for it.
void sn_tensors_add(sn_block_tensors *tensors, sn_block_tensor tensor);
void sn_tensors_count_sums(sn_block_tensors *tensors, const sn_class_table *table);
