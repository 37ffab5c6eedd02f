// What the files of the interpreter share.
#pragma once
#include "ir/interp.h"

// The meaning of one operator; types are those of the tensors, which may differ from the op's (f64 mode, local shapes).
typedef const char *sn_reference(const sn_op *op, const sn_tensor *in, sn_tensor *out);

// interp_pointwise.c
sn_reference sn_reference_unary, sn_reference_binary, sn_reference_compare, sn_reference_copy, sn_reference_cast,
    sn_reference_is_inf, sn_reference_where;
// interp_movement.c
sn_reference sn_reference_constant, sn_reference_axis_index, sn_reference_iota, sn_reference_random,
    sn_reference_transpose, sn_reference_broadcast, sn_reference_slice, sn_reference_pad, sn_reference_concat;
// interp_index.c
sn_reference sn_reference_gather, sn_reference_gather_grad, sn_reference_gather_elements, sn_reference_gather_nd,
    sn_reference_scatter_elements, sn_reference_scatter_nd;
// interp_reduce.c
sn_reference sn_reference_reduce, sn_reference_arg, sn_reference_cumulate, sn_reference_top_k;
// interp_window.c
sn_reference sn_reference_matmul, sn_reference_conv, sn_reference_conv_input_grad, sn_reference_conv_weight_grad,
    sn_reference_max_pool, sn_reference_max_pool_grad, sn_reference_avg_pool, sn_reference_avg_pool_grad;
// interp_nn.c
sn_reference sn_reference_softmax, sn_reference_layer_norm, sn_reference_rms_norm, sn_reference_cross_entropy,
    sn_reference_attention, sn_reference_attention_grad;
// interp_training.c
sn_reference sn_reference_sgd, sn_reference_adam;
// interp_run.c
sn_reference sn_reference_kernel;

// Row-major coordinates of a shape, with the offset of each in further strided arrays:
//   for (sn_walk w = sn_walk_over(type); w.left; sn_walk_next(&w)) … w.index, w.at[dim], w.offset[k] …
enum { SN_WALK_STRIDES = 3 };
typedef struct sn_walk {
    int rank, n_strides;
    int64_t left, index;
    int64_t dim[SN_MAX_RANK], at[SN_MAX_RANK];
    int64_t stride[SN_WALK_STRIDES][SN_MAX_RANK], offset[SN_WALK_STRIDES];
} sn_walk;
sn_walk sn_walk_over(sn_type type);
void sn_walk_add(sn_walk *walk, const int64_t stride[SN_MAX_RANK]); // before the first step
void sn_walk_add_broadcast(sn_walk *walk, sn_type operand);         // an operand that broadcasts to the walked shape
void sn_walk_next(sn_walk *walk);

// A tensor around one axis is [outer][length][inner].
typedef struct sn_axis_split {
    int64_t outer, length, inner;
} sn_axis_split;
sn_axis_split sn_split_at(sn_type type, int axis);

// New arrays of all elements as doubles or (wrapping) integers; and back, with one rounding.
double *sn_tensor_doubles(const sn_tensor *tensor);
uint64_t *sn_tensor_integers(const sn_tensor *tensor);
void sn_tensor_store_doubles(sn_tensor *tensor, const double *values);
void sn_tensor_store_integers(sn_tensor *tensor, const uint64_t *values);

static inline bool sn_tensor_is_float(const sn_tensor *tensor) {
    return sn_dtype_is_float(tensor->type.dtype);
}
static inline double sn_at_f64(const sn_tensor *tensor, int64_t index) {
    return sn_load_f64(tensor->type.dtype, tensor->data, index);
}
static inline int64_t sn_at_i64(const sn_tensor *tensor, int64_t index) {
    return sn_load_i64(tensor->type.dtype, tensor->data, index);
}
static inline void sn_put_f64(sn_tensor *tensor, int64_t index, double value) {
    sn_store_f64(tensor->type.dtype, tensor->data, index, value);
}
static inline void sn_put_i64(sn_tensor *tensor, int64_t index, int64_t value) {
    sn_store_i64(tensor->type.dtype, tensor->data, index, value);
}
// Moves element `from` of one tensor to element `to` of another of the same element type.
static inline void sn_copy_element(sn_tensor *out, int64_t to, const sn_tensor *in, int64_t from) {
    size_t bytes = sn_dtype_bytes(out->type.dtype);
    __builtin_memcpy((char *)out->data + (size_t)to * bytes, (const char *)in->data + (size_t)from * bytes, bytes);
}
