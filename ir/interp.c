#include "ir/interp.h"

#include "base/alloc.h"
#include "ir/interp_reference.h"

#include <string.h>

static sn_reference *const references[] = {
    [SN_OP_COPY] = sn_reference_copy,
    [SN_OP_CAST] = sn_reference_cast,
    [SN_OP_NEG] = sn_reference_unary,
    [SN_OP_ABS] = sn_reference_unary,
    [SN_OP_SIGN] = sn_reference_unary,
    [SN_OP_FLOOR] = sn_reference_unary,
    [SN_OP_CEIL] = sn_reference_unary,
    [SN_OP_ROUND] = sn_reference_unary,
    [SN_OP_EXP] = sn_reference_unary,
    [SN_OP_LOG] = sn_reference_unary,
    [SN_OP_SQRT] = sn_reference_unary,
    [SN_OP_RSQRT] = sn_reference_unary,
    [SN_OP_RECIPROCAL] = sn_reference_unary,
    [SN_OP_SIN] = sn_reference_unary,
    [SN_OP_COS] = sn_reference_unary,
    [SN_OP_TAN] = sn_reference_unary,
    [SN_OP_ASIN] = sn_reference_unary,
    [SN_OP_ACOS] = sn_reference_unary,
    [SN_OP_ATAN] = sn_reference_unary,
    [SN_OP_SINH] = sn_reference_unary,
    [SN_OP_COSH] = sn_reference_unary,
    [SN_OP_TANH] = sn_reference_unary,
    [SN_OP_ASINH] = sn_reference_unary,
    [SN_OP_ACOSH] = sn_reference_unary,
    [SN_OP_ATANH] = sn_reference_unary,
    [SN_OP_ERF] = sn_reference_unary,
    [SN_OP_SIGMOID] = sn_reference_unary,
    [SN_OP_RELU] = sn_reference_unary,
    [SN_OP_GELU] = sn_reference_unary,
    [SN_OP_GELU_TANH] = sn_reference_unary,
    [SN_OP_SOFTPLUS] = sn_reference_unary,
    [SN_OP_IS_NAN] = sn_reference_unary,
    [SN_OP_IS_INF] = sn_reference_is_inf,
    [SN_OP_NOT] = sn_reference_unary,
    [SN_OP_BIT_NOT] = sn_reference_unary,
    [SN_OP_ADD] = sn_reference_binary,
    [SN_OP_SUB] = sn_reference_binary,
    [SN_OP_MUL] = sn_reference_binary,
    [SN_OP_DIV] = sn_reference_binary,
    [SN_OP_POW] = sn_reference_binary,
    [SN_OP_MOD] = sn_reference_binary,
    [SN_OP_FMOD] = sn_reference_binary,
    [SN_OP_MIN] = sn_reference_binary,
    [SN_OP_MAX] = sn_reference_binary,
    [SN_OP_AND] = sn_reference_binary,
    [SN_OP_OR] = sn_reference_binary,
    [SN_OP_XOR] = sn_reference_binary,
    [SN_OP_EQUAL] = sn_reference_compare,
    [SN_OP_LESS] = sn_reference_compare,
    [SN_OP_LESS_EQUAL] = sn_reference_compare,
    [SN_OP_GREATER] = sn_reference_compare,
    [SN_OP_GREATER_EQUAL] = sn_reference_compare,
    [SN_OP_BIT_AND] = sn_reference_binary,
    [SN_OP_BIT_OR] = sn_reference_binary,
    [SN_OP_BIT_XOR] = sn_reference_binary,
    [SN_OP_SHIFT_LEFT] = sn_reference_binary,
    [SN_OP_SHIFT_RIGHT] = sn_reference_binary,
    [SN_OP_WHERE] = sn_reference_where,
    [SN_OP_CONSTANT] = sn_reference_constant,
    [SN_OP_IOTA] = sn_reference_iota,
    [SN_OP_RANDOM_UNIFORM] = sn_reference_random,
    [SN_OP_RESHAPE] = sn_reference_copy,
    [SN_OP_TRANSPOSE] = sn_reference_transpose,
    [SN_OP_BROADCAST] = sn_reference_broadcast,
    [SN_OP_SLICE] = sn_reference_slice,
    [SN_OP_PAD] = sn_reference_pad,
    [SN_OP_CONCAT] = sn_reference_concat,
    [SN_OP_GATHER] = sn_reference_gather,
    [SN_OP_GATHER_GRAD] = sn_reference_gather_grad,
    [SN_OP_GATHER_ELEMENTS] = sn_reference_gather_elements,
    [SN_OP_GATHER_ND] = sn_reference_gather_nd,
    [SN_OP_SCATTER_ELEMENTS] = sn_reference_scatter_elements,
    [SN_OP_SCATTER_ND] = sn_reference_scatter_nd,
    [SN_OP_REDUCE_SUM] = sn_reference_reduce,
    [SN_OP_REDUCE_PROD] = sn_reference_reduce,
    [SN_OP_REDUCE_MAX] = sn_reference_reduce,
    [SN_OP_REDUCE_MIN] = sn_reference_reduce,
    [SN_OP_ARG_MAX] = sn_reference_arg,
    [SN_OP_ARG_MIN] = sn_reference_arg,
    [SN_OP_CUM_SUM] = sn_reference_cumulate,
    [SN_OP_CUM_PROD] = sn_reference_cumulate,
    [SN_OP_TOP_K] = sn_reference_top_k,
    [SN_OP_MATMUL] = sn_reference_matmul,
    [SN_OP_CONV] = sn_reference_conv,
    [SN_OP_CONV_INPUT_GRAD] = sn_reference_conv_input_grad,
    [SN_OP_CONV_WEIGHT_GRAD] = sn_reference_conv_weight_grad,
    [SN_OP_MAX_POOL] = sn_reference_max_pool,
    [SN_OP_MAX_POOL_GRAD] = sn_reference_max_pool_grad,
    [SN_OP_AVG_POOL] = sn_reference_avg_pool,
    [SN_OP_AVG_POOL_GRAD] = sn_reference_avg_pool_grad,
    [SN_OP_SOFTMAX] = sn_reference_softmax,
    [SN_OP_LOG_SOFTMAX] = sn_reference_softmax,
    [SN_OP_LAYER_NORM] = sn_reference_layer_norm,
    [SN_OP_RMS_NORM] = sn_reference_rms_norm,
    [SN_OP_CROSS_ENTROPY] = sn_reference_cross_entropy,
    [SN_OP_ATTENTION] = sn_reference_attention,
    [SN_OP_ATTENTION_GRAD] = sn_reference_attention_grad,
    [SN_OP_SGD] = sn_reference_sgd,
    [SN_OP_ADAM] = sn_reference_adam,
    [SN_OP_ASSIGN] = NULL, // changes a global: only a running function can
    [SN_OP_ALL_REDUCE] = sn_reference_copy,
    [SN_OP_ALL_GATHER] = sn_reference_copy,
    [SN_OP_REDUCE_SCATTER] = sn_reference_copy,
    [SN_OP_ALL_TO_ALL] = sn_reference_copy,
    [SN_OP_SHARD] = sn_reference_copy,
    [SN_OP_SEND] = NULL, // only a run of several functions can meet the other side
    [SN_OP_RECV] = NULL,
    [SN_OP_AXIS_INDEX] = sn_reference_axis_index,
    [SN_OP_KERNEL] = sn_reference_kernel,
    [SN_OP_RECORD] = NULL, // orders streams
    [SN_OP_WAIT] = NULL,
};
_Static_assert(sizeof references / sizeof *references == SN_OP_COUNT, "one row per operator");

const char *sn_evaluate(const sn_op *op, const sn_tensor *operands, sn_tensor *results) {
    sn_reference *reference = references[op->kind];
    if (reference) return reference(op, operands, results);
    return op->n_results ? "this operator has no value of its own" : NULL;
}

sn_tensor sn_tensor_new(sn_type type) {
    int64_t bytes = sn_type_bytes(type);
    return (sn_tensor){type, sn_alloc(bytes > 0 ? (size_t)bytes : 1)};
}

void sn_tensor_free(sn_tensor *tensor) {
    sn_free(tensor->data);
    tensor->data = NULL;
}

sn_walk sn_walk_over(sn_type type) {
    sn_walk walk = {.rank = type.rank, .left = sn_type_count(type)};
    memcpy(walk.dim, type.dim, sizeof walk.dim);
    return walk;
}

void sn_walk_add(sn_walk *walk, const int64_t stride[SN_MAX_RANK]) {
    SN_CHECK(walk->n_strides < SN_WALK_STRIDES);
    memcpy(walk->stride[walk->n_strides++], stride, sizeof *walk->stride);
}

void sn_walk_add_broadcast(sn_walk *walk, sn_type operand) {
    int64_t stride[SN_MAX_RANK] = {0};
    sn_type walked = {.dtype = operand.dtype, .rank = walk->rank};
    memcpy(walked.dim, walk->dim, sizeof walked.dim);
    sn_broadcast_strides(operand, walked, stride);
    sn_walk_add(walk, stride);
}

void sn_walk_next(sn_walk *walk) {
    walk->left--;
    walk->index++;
    for (int d = walk->rank - 1; d >= 0; d--) {
        bool wraps = ++walk->at[d] == walk->dim[d];
        for (int k = 0; k < walk->n_strides; k++)
            walk->offset[k] += wraps ? -walk->stride[k][d] * (walk->dim[d] - 1) : walk->stride[k][d];
        if (!wraps) return;
        walk->at[d] = 0;
    }
}

sn_axis_split sn_split_at(sn_type type, int axis) {
    sn_axis_split split = {1, type.dim[axis], 1};
    for (int d = 0; d < axis; d++) split.outer *= type.dim[d];
    for (int d = axis + 1; d < type.rank; d++) split.inner *= type.dim[d];
    return split;
}

double *sn_tensor_doubles(const sn_tensor *tensor) {
    int64_t count = sn_type_count(tensor->type);
    double *values = sn_alloc(sizeof *values * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) values[i] = sn_at_f64(tensor, i);
    return values;
}

uint64_t *sn_tensor_integers(const sn_tensor *tensor) {
    int64_t count = sn_type_count(tensor->type);
    uint64_t *values = sn_alloc(sizeof *values * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) values[i] = (uint64_t)sn_at_i64(tensor, i);
    return values;
}

void sn_tensor_store_doubles(sn_tensor *tensor, const double *values) {
    int64_t count = sn_type_count(tensor->type);
    for (int64_t i = 0; i < count; i++) sn_put_f64(tensor, i, values[i]);
}

void sn_tensor_store_integers(sn_tensor *tensor, const uint64_t *values) {
    int64_t count = sn_type_count(tensor->type);
    for (int64_t i = 0; i < count; i++) sn_put_i64(tensor, i, (int64_t)values[i]);
}
