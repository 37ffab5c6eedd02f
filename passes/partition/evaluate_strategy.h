// How a group can be cut over one mesh axis. A strategy cuts one factor of the group's lead op; the other ops of the
// node, and their gradients, follow. What it asks of operands and leaves in results is read from here, whatever the
// axis's size.
#pragma once
#include "ir/factors.h"
#include "passes/partition/blocks.h"
#include "passes/partition/cuts.h"

// How one axis cuts a value: a dim, and which digit of its index (sn_layout.outer: 1 for contiguous blocks, 3 for the
// inside of a fused q, k, v); or one of the two names.
typedef int32_t sn_cut;
enum { SN_UNCUT = -1, SN_PARTIAL_VALUE = -2 };
static inline sn_cut sn_cut_make(int dim, int64_t outer) {
    return (sn_cut)(dim | outer << 4);
}
static inline int sn_cut_dim(sn_cut cut) {
    return cut & 15;
}
static inline int64_t sn_cut_outer(sn_cut cut) {
    return cut >> 4;
}

typedef struct sn_op_cut {
    sn_cut *operand, *result; // per operand and result
} sn_op_cut;

// A move inside the group, between what an op leaves and what the next one needs.
typedef struct sn_inner_move {
    const sn_value *value;
    sn_cut from, to;
    bool backward;
} sn_inner_move;

typedef struct sn_strategy {
    bool cuts;                     // else every rank does all of it
    sn_op_cut *forward, *backward; // per op of the group
    int n_moves;
    sn_inner_move *moves;
} sn_strategy;

enum { SN_MOST_STRATEGIES = 24 };

typedef struct sn_strategies {
    int n;
    sn_strategy *list;              // list[0] cuts nothing
    sn_factors *forward, *backward; // of the group's ops
} sn_strategies;

sn_strategies sn_strategies_of(const sn_op_group *group, sn_arena *arena);
// Adds the strategy in which the group reads (or, as `result`, leaves) a value cut so, when there is one and it is new.
void sn_strategies_follow(const sn_op_group *group, sn_strategies *strategies, const sn_value *value, sn_cut cut,
                          bool result, sn_arena *arena);
// What the group asks of a value from outside: SN_UNCUT when it does not read it.
sn_cut sn_strategy_need(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value);
// What a result of one of its forward ops has.
sn_cut sn_strategy_leaves(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value);
// The layout of the gradient of a value that has layout `cut` where it is made: a partial sum's is whole.
sn_cut sn_gradient_cut(sn_cut cut);
