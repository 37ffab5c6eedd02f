// What a block keeps for its backward pass, and what it computes again instead. Private to the evaluator's files.
#pragma once
#include "passes/partition/evaluate_local.h"

// Adds to out->activations, beside out->input: bytes by rematerialisation. `cuts` has one entry a group.
void sn_block_kept(const sn_class_table *table, const sn_group_cut *cuts, sn_arena *scratch, sn_block_cost *out);
// Full rematerialisation begins at the block's input: the groups that lead to something that the backward pass needs
// run again. What leads to the next block's input alone does not, which is kept.
void sn_block_again_groups(const sn_class_table *table, sn_arena *scratch, bool *made_again); // [groups]
