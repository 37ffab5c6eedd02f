// Which values of a sched-form function have storage of their own, and which take another's.
#pragma once
#include "passes/memory/strided.h"

// The value whose storage holds `value`'s elements: through view ops, results that a kernel writes over an operand
// (attribute inplace), and all-reduces that sn_share_storage made in place.
sn_value *sn_owner_of(sn_value *value);

// Moves each kernel that updates a global in place, and its assigns, behind the global's last other reader.
void sn_order_updates(sn_func *func);
// Moves sums over ranks of what micro-batches added up to where they are first read, so that few of them live at a
// time. All ranks of a group run one function and so keep one order.
void sn_delay_reductions(sn_func *func);

// Numbers the ops (op->mark, from 0) and decides which all-reduces work in place: those whose operand nobody reads
// later. The decision is an attribute of the op.
void sn_share_storage(sn_func *func);

// An assign needs no copy when its value was written over the global's storage.
bool sn_assign_is_in_place(const sn_op *op);
