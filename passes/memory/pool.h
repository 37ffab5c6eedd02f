// Slots that kept values of different chunks share.
//
// A pipeline rank with several chunks keeps activations of one chunk while it has given away those of another: the
// values of a chunk are at their most at different times. With slots of its own each takes its own most, together far
// more than what ever lives at once (12 chunks of 8 ranks and 16 micro-batches: 1.4 times). So values of equal size
// take slots from a pool. A life is an interval of the step's runs, and intervals that are given slots in the order of
// their beginnings, each the lowest free one, need no more than live at once (interval graphs are perfect; Cormen et
// al., "Introduction to Algorithms", exercise 16.1-4).
#pragma once
#include "base/map.h"
#include "ir/graph.h"
#include "passes/partition/plan.h"

typedef struct sn_pool {
    int64_t bytes; // of a slot, before alignment
    int slots;
    int64_t offset; // where the first slot lies, once one of its values is placed; before that -1
} sn_pool;

typedef struct sn_pooled {
    sn_pool *pool;
    const sn_slot_table *table;
} sn_pooled;

// Adds name -> sn_pooled for the kept values of this pipeline rank that take less room together than alone. Names are
// the module's; all else goes to `arena`, tables to the module's.
void sn_pool_kept(sn_module *module, const sn_plan *plan, int rank, sn_arena *arena, sn_map *out);
