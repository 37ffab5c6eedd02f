// Values of the sched form as strided views of storage: reshapes, transposes, slices and broadcasts that no kernel
// computes cost nothing when their reader takes strides (library calls do).
#pragma once
#include "ir/graph.h"

typedef struct sn_strided {
    sn_value *root; // what holds the elements: a kernel's or library call's result, an argument, a global
    int64_t offset; // elements from the root's first
    int rank;
    int64_t dim[SN_MAX_RANK], stride[SN_MAX_RANK]; // in elements; 0 along broadcast dims
} sn_strided;

// Whether the op only renames its operand's storage (reshape, transpose, slice, broadcast).
bool sn_is_view_op(const sn_op *op);
// `value` as a view of the nearest value that is not made by a view op. False when a reshape on the way splits or joins
// dims that do not lie next to each other in storage: the view then has to be copied.
bool sn_strided_view(sn_value *value, sn_strided *out);
bool sn_strided_is_dense(const sn_strided *view); // row-major without gaps

// [B,H,S,D] results of attention are stored as [B,S,H,D] when everything that reads them transposes them so, or takes
// strides: the output projection then reads them where they are.
bool sn_is_stored_transposed(const sn_value *value);
// Whether `op` transposes such a result back, so that its own result is dense.
bool sn_restores_transposed(const sn_op *op);
