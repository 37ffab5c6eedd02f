// Which ops the pass of the weights' gradients has, where a schedule gives it a pass of its own, after that of the
// activations' gradients (Qi et al., "Zero bubble pipeline parallelism", 2023, section 2.1).
//
// What it reads is held until then, for several micro-batches. So it has the products, which are most of the work, the
// collectives of gradients, what follows from them, and what reads nothing but what they read: the sum for a bias of
// the gradient that its weight's product reads. The gradients of a normalisation's scale and shift would hold values
// for themselves alone: they are made at once, from where ZeRO's ranks add them up later.
#pragma once
#include "ir/graph.h"

// `ops`, in program order, are those that lead to gradients of parameters alone; ids of values are below n_values. Sets
// late[i] where ops[i] is of the pass.
void sn_weight_pass_find(sn_op *const *ops, size_t n, size_t n_values, bool *late);
