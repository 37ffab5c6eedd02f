// Inside of passes/partition: the parts of localize. Values keep their layouts until all ops are local; types become
// local in program order, operands first.
#pragma once
#include "ir/build.h"

typedef struct sn_localizer {
    const sn_mesh *mesh;
    sn_op *op;
    sn_builder b; // before the op
} sn_localizer;

// The rank's coordinate on one axis, i64.
sn_value *sn_local_coordinate(sn_localizer *l, int axis);
// Where the rank's part of a dim starts (element 0 of its part, in the whole dim of `size`), i64; NULL when it is
// whole.
sn_value *sn_local_start(sn_localizer *l, sn_layout layout, int dim, int64_t size);
void sn_local_replace(sn_localizer *l, sn_value *with); // the op by a value of its (local) type

// Collectives on dims of any place become collectives on dim 0 of [parts, elements], with transposes around them.
void sn_localize_move(sn_localizer *l);
// Ops that count elements from the start of a dim that may be cut. `global` has the whole types of the results.
void sn_localize_generator(sn_localizer *l, sn_type global);
void sn_localize_slice(sn_localizer *l);
void sn_localize_pad(sn_localizer *l);
void sn_localize_gather(sn_localizer *l, int64_t rows);      // of the whole table
void sn_localize_gather_grad(sn_localizer *l, int64_t rows); // of the whole result
void sn_localize_attention(sn_localizer *l, int64_t queries);
