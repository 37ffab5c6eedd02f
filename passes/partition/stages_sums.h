// Inside of passes/partition: sums over values of several stages, done by stage first.
#pragma once
#include "passes/partition/stages.h"

// The gradient of a tied parameter has a part in each stage that uses it. Each stage on another rank than the owner's
// gets an accumulator of its own ("NAME.grad.1"), which `owner` then knows, so that the parts meet once per update
// and not once per micro-batch. `stage` is by op mark, as sn_stages_assign gives it; ops are added and removed, so that
// it does not hold afterwards.
void sn_stages_split_accumulators(sn_func *micro, int ranks, const int *stage, sn_map *owner);

// A concatenation of which only the sum is read (the squares of all gradients) is summed on each rank first. `home` is
// the rank of each op, by mark; it does not hold afterwards.
void sn_stages_sum_by_rank(sn_func *func, int ranks, const int *home);
