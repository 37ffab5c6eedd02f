// The interpreter on a mesh: how whole tensors are cut into the parts of ranks, joined again, and moved by collectives.
// Rank numbers count the mesh's coordinates in row-major order, axis 0 outermost.
#pragma once
#include "ir/interp.h"

// The part of a whole tensor that a rank holds under a layout; a new tensor. `local` is its type.
sn_tensor sn_mesh_cut(const sn_mesh *mesh, sn_layout layout, int64_t rank, const sn_tensor *whole, sn_type local);
// The whole tensor, from the parts of all ranks. NULL, or a phrase when copies that should agree do not.
const char *sn_mesh_join(const sn_mesh *mesh, sn_layout layout, const sn_tensor *parts, sn_type whole, sn_tensor *out);

// Computes a collective (or shard) of dist form from the layouts of its operand and result.
void sn_mesh_relayout(const sn_mesh *mesh, const sn_op *op, const sn_tensor *in, sn_tensor *out);
// Computes a collective (or shard) for all ranks: `in` and `out` have one tensor per rank, `out` allocated.
void sn_mesh_collective(const sn_mesh *mesh, const sn_op *op, const sn_tensor *in, sn_tensor *out);
