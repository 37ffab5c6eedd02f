// Blocks of a model: the parts between which rematerialisation keeps values. A model of repeated layers has one block
// per layer, found by structure; what comes before the first and after the last are blocks, too.
#pragma once
#include "ir/graph.h"

// Numbers the blocks of the forward ops of `func` from 0, by op mark (the op's place, which this sets); -1 for other
// ops. Ops that `skip` marks (may be NULL) do not count in the structure. Returns the number of blocks: 1 where nothing
// repeats.
int sn_remat_find_blocks(sn_func *func, const bool *skip, int *block);
