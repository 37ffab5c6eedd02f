// How a group can be cut over one mesh axis. A strategy cuts one factor of the group's lead op; the other ops of the
// node, and their gradients, follow. What it asks of operands and leaves in results is read from here, whatever the
// axis's size.
#pragma once
#include "ir/factors.h"
#include "passes/partition/blocks.h"

// Of a value over one axis: the dim that it cuts, or one of these.
enum { SN_UNCUT = -1, SN_PARTIAL_VALUE = -2 };

typedef struct sn_op_cut {
    int8_t *operand, *result; // per operand and result
} sn_op_cut;

// A move inside the group, between what an op leaves and what the next one needs.
typedef struct sn_inner_move {
    const sn_value *value;
    int8_t from, to;
    bool backward;
} sn_inner_move;

typedef struct sn_strategy {
    int factor; // of the lead op; -1: every rank does all of it
    bool masked;
    sn_op_cut *forward, *backward; // per op of the group
    int n_moves;
    sn_inner_move *moves;
} sn_strategy;

typedef struct sn_strategies {
    int n;
    sn_strategy *list; // list[0] cuts nothing
} sn_strategies;

sn_strategies sn_strategies_of(const sn_op_group *group, sn_arena *arena);
// What the group asks of a value from outside: SN_UNCUT when it does not read it.
int sn_strategy_need(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value);
// What a result of one of its forward ops has.
int sn_strategy_leaves(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value);
// The layout of the gradient of a value that has layout `cut` where it is made: a partial sum's is whole.
int sn_gradient_cut(int cut);
