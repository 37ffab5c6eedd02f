// Tensor types: an element type and a static shape. Symbolic dims are bound before a graph is built.
#pragma once
#include "base/dtype.h"
#include "base/str.h"

enum { SN_MAX_RANK = 8 };

typedef struct sn_type {
    sn_dtype dtype;
    int rank;
    int64_t dim[SN_MAX_RANK]; // dims beyond rank are 0
} sn_type;

// The most elements of a tensor, dims of 0 counted as 1. It leaves headroom: no product of some dims of one tensor, its
// bytes, or a sum of a few sizes overflows, and a double holds every count exactly.
#define SN_MAX_ELEMENTS (INT64_C(1) << 48)

// Whether tensors may have this shape: at most SN_MAX_RANK dims, none negative, at most SN_MAX_ELEMENTS elements. What
// users give is checked with it before a type is made of it.
bool sn_shape_is_valid(int64_t rank, const int64_t *dims);
sn_type sn_type_make(sn_dtype dtype, int rank, const int64_t *dims);
sn_type sn_type_scalar(sn_dtype dtype);
sn_type sn_type_with_dtype(sn_type type, sn_dtype dtype);
bool sn_type_equal(sn_type a, sn_type b);
bool sn_shape_equal(sn_type a, sn_type b); // the dims alone
int64_t sn_type_count(sn_type type);       // elements
int64_t sn_type_bytes(sn_type type);
void sn_type_print(sn_str *out, sn_type type); // f32[4,16]; f32[] for a scalar

// The shape numpy broadcasting gives; false when the shapes do not go together. dtype is a's.
bool sn_type_broadcast(sn_type a, sn_type b, sn_type *out);
// Row-major strides in elements of `type`.
void sn_type_strides(sn_type type, int64_t stride[SN_MAX_RANK]);
// Strides with which an operand is read at the result's coordinates (0 along stretched dims).
void sn_broadcast_strides(sn_type operand, sn_type result, int64_t stride[SN_MAX_RANK]);
