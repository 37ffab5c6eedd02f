// How the mesh cuts one op: each axis cuts at most one of its factors, at a digit of the factor's index (as an axis
// cuts a dim: ir/layout.h). Layouts of operands and results follow.
#pragma once
#include "ir/factors.h"

typedef struct sn_factor_cut {
    int factor;    // -1: the axis does not cut the op
    int64_t outer; // values of the factor's index in front of the axis's digit
} sn_factor_cut;

// The factor that a digit of a dim's index lies in: the digit has `outer` values of the dim in front of it and at least
// `parts` of its own (1 when its size is open). .factor is -1 where it lies across two factors.
sn_factor_cut sn_factor_cut_at(const sn_factors *factors, const sn_dim_factors *dim, int64_t outer, int64_t parts);
// Where that digit lies among the dims of an operand or a result; false where they do not have the factor.
bool sn_factor_cut_dim(const sn_factors *factors, const sn_dim_factors *dims, int rank, sn_factor_cut cut, int *dim,
                       int64_t *outer);

typedef struct sn_cuts {
    const sn_mesh *mesh;
    const sn_factors *factors;
    sn_factor_cut axis[SN_MAX_AXES];
} sn_cuts;

sn_cuts sn_cuts_none(const sn_mesh *mesh, const sn_factors *factors);
// The cut by which the axis would cut the op as it cuts a dim with these factors under `layout`; .factor is -1 where it
// does not cut the dim, or where its digit lies across two factors.
sn_factor_cut sn_cut_of_dim(const sn_cuts *cuts, sn_layout layout, int dim, const sn_dim_factors *factors, int axis);
// Whether an axis may cut a factor so, beside the cuts that are there.
bool sn_cut_is_legal(const sn_cuts *cuts, int axis, sn_factor_cut cut);
// The layout of an operand or a result with these factors of its dims; not partial.
sn_layout sn_cuts_layout(const sn_cuts *cuts, const sn_dim_factors *dims, int rank);
// The axes over which a result with these dims is partial because a cut factor is summed (or joined by max, min: *kind)
// and the result does not have it.
sn_axes sn_cuts_partial(const sn_cuts *cuts, const sn_dim_factors *dims, int rank, sn_partial *kind);
sn_axes sn_cuts_axes(const sn_cuts *cuts); // that cut anything
