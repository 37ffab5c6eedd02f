// Groups of ops that become one kernel, while `fuse` forms them. A unit is such a group, or one op that stays outside
// kernels; units form an acyclic graph.
#pragma once
#include "passes/schedule/domain.h"
#include "passes/schedule/library.h"
#include "passes/schedule/op_class.h"

typedef struct sn_unit {
    SN_VEC(sn_op *) members; // in program order as long as nothing was merged
    bool outside;            // one op that is no kernel
    bool closed;             // takes no more members
    sn_domain domain;
    sn_phase phase;
    int reads;           // operands of its kernel, at most: one read by several members counts for each
    uint64_t *ancestors; // bit set of units
    int merged_into;     // -1: none
} sn_unit;

typedef struct sn_grouping {
    sn_func *func;
    sn_arena *arena;
    sn_unit *units;
    int n_units, words;
    int *unit_of; // by op mark; -1: computed again in each consumer
    int transfer; // the unit of the last transfer so far; -1: none
} sn_grouping;

// Whether the op is none of a kernel: a library call, a collective, an assign, a view that only restores an order.
bool sn_stays_outside(const sn_op *op);
// Partitions the ops of `func`. Operands of outside ops and results of the function must be stored values or views
// that their reader takes (see fuse.c). Sets op marks.
void sn_group_ops(sn_func *func, sn_arena *arena, sn_grouping *out);
// The unit that `op` is in, or NULL when consumers compute it again.
sn_unit *sn_unit_of(const sn_grouping *g, const sn_op *op);
// Whether consumers compute the op again rather than read its result.
bool sn_is_inlined(const sn_grouping *g, const sn_op *op);
