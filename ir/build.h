// Builds ops with inferred result types at a point of a function.
#pragma once
#include "ir/graph.h"

typedef struct sn_builder {
    sn_func *func;
    sn_op *before; // insertion point; NULL: the end
    const sn_origin *origin;
    sn_phase phase;
} sn_builder;

// The result types of an op that is not TYPED (TYPED ops: checks them). Writes up to the operator's number of results.
// Returns NULL, or what is wrong, as a phrase for a diagnostic (static or in the module's arena). ir/infer.c
const char *sn_infer(sn_module *module, sn_op_kind kind, int n_operands, sn_value *const *operands, int n_attrs,
                     const sn_attr *attrs, int n_results, sn_type *result_types);

// The general form. Inference that fails is a bug of the caller's: check users' input first (or call sn_infer).
sn_op *sn_build(sn_builder *b, sn_op_kind kind, int n_operands, sn_value *const *operands, int n_attrs,
                const sn_attr *attrs, const sn_type *typed /* n_results types for TYPED ops, else NULL */);

// Results of the forms below are the op's first result.
sn_value *sn_build_unary(sn_builder *b, sn_op_kind kind, sn_value *x);
sn_value *sn_build_binary(sn_builder *b, sn_op_kind kind, sn_value *x, sn_value *y);
sn_value *sn_build_where(sn_builder *b, sn_value *condition, sn_value *x, sn_value *y);
sn_value *sn_build_cast(sn_builder *b, sn_value *x, sn_dtype dtype);          // x itself when it has the type
sn_value *sn_build_constant(sn_builder *b, sn_dtype dtype, double number);    // a scalar
sn_value *sn_build_splat(sn_builder *b, sn_type type, double number);         // a whole tensor of one number
sn_value *sn_build_number_like(sn_builder *b, sn_value *like, double number); // scalar of like's element type
sn_value *sn_build_binary_number(sn_builder *b, sn_op_kind kind, sn_value *x, double number);
sn_value *sn_build_iota(sn_builder *b, sn_type type, int axis);
sn_value *sn_build_reshape(sn_builder *b, sn_value *x, int rank, const int64_t *dims); // x itself when nothing changes
sn_value *sn_build_transpose(sn_builder *b, sn_value *x, const int64_t *perm);         // x itself for the identity
sn_value *sn_build_broadcast(sn_builder *b, sn_value *x, int rank, const int64_t *dims);
sn_value *sn_build_slice(sn_builder *b, sn_value *x, const int64_t *starts, const int64_t *steps, const int64_t *sizes);
sn_value *sn_build_pad(sn_builder *b, sn_value *x, const int64_t *low, const int64_t *high, double number);
sn_value *sn_build_concat(sn_builder *b, int n, sn_value *const *parts, int axis);
sn_value *sn_build_gather(sn_builder *b, sn_value *x, sn_value *indices, int axis);
sn_value *sn_build_reduce(sn_builder *b, sn_op_kind kind, sn_value *x, int n_axes, const int64_t *axes, bool keepdims);
sn_value *sn_build_matmul(sn_builder *b, sn_value *x, sn_value *y, bool transpose_x, bool transpose_y);
// Sums x over the dims that broadcasting stretched, so that it has the shape of `like` (x itself when it has).
sn_value *sn_build_sum_to(sn_builder *b, sn_value *x, sn_type like);
