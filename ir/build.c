#include "ir/build.h"

#include <math.h>
#include <string.h>

enum { MOST_RESULTS = 8 };

sn_op *sn_build(sn_builder *b, sn_op_kind kind, int n_operands, sn_value *const *operands, int n_attrs,
                const sn_attr *attrs, const sn_type *typed) {
    int n_results = sn_op_info_of(kind)->results;
    SN_CHECK(n_results >= 0 && n_results <= MOST_RESULTS && (typed || !sn_op_has(kind, SN_TRAIT_TYPED)));
    sn_type types[MOST_RESULTS] = {0};
    if (typed) memcpy(types, typed, sizeof *types * (size_t)n_results);
    const char *wrong = sn_infer(b->func->module, kind, n_operands, operands, n_attrs, attrs, n_results, types);
    if (wrong) SN_BUG("%s: %s (from %s)", sn_op_name(kind), wrong, b->origin ? b->origin->name : "nowhere");
    sn_op *op = sn_op_new(b->func, b->before, kind, n_operands, operands, n_attrs, attrs, n_results, types);
    op->origin = b->origin;
    op->phase = b->phase;
    return op;
}

static sn_value *build_one(sn_builder *b, sn_op_kind kind, int n_operands, sn_value *const *operands, int n_attrs,
                           const sn_attr *attrs, const sn_type *typed) {
    return sn_build(b, kind, n_operands, operands, n_attrs, attrs, typed)->results[0];
}

sn_value *sn_build_unary(sn_builder *b, sn_op_kind kind, sn_value *x) {
    return build_one(b, kind, 1, &x, 0, NULL, NULL);
}

sn_value *sn_build_binary(sn_builder *b, sn_op_kind kind, sn_value *x, sn_value *y) {
    return build_one(b, kind, 2, (sn_value *[]){x, y}, 0, NULL, NULL);
}

sn_value *sn_build_where(sn_builder *b, sn_value *condition, sn_value *x, sn_value *y) {
    return build_one(b, SN_OP_WHERE, 3, (sn_value *[]){condition, x, y}, 0, NULL, NULL);
}

sn_value *sn_build_cast(sn_builder *b, sn_value *x, sn_dtype dtype) {
    if (x->type.dtype == dtype) return x;
    sn_type type = sn_type_with_dtype(x->type, dtype);
    return build_one(b, SN_OP_CAST, 1, &x, 0, NULL, &type);
}

sn_value *sn_build_splat(sn_builder *b, sn_type type, double number) {
    bool is_float = sn_dtype_is_float(type.dtype);
    int64_t bits = 0;
    if (!is_float) sn_store_f64(SN_I64, &bits, 0, number); // saturates
    sn_attr attr = is_float ? sn_attr_float("value", number) : sn_attr_int("bits", bits);
    return build_one(b, SN_OP_CONSTANT, 0, NULL, 1, &attr, &type);
}

sn_value *sn_build_constant(sn_builder *b, sn_dtype dtype, double number) {
    return sn_build_splat(b, sn_type_scalar(dtype), number);
}

sn_value *sn_build_number_like(sn_builder *b, sn_value *like, double number) {
    return sn_build_constant(b, like->type.dtype, number);
}

sn_value *sn_build_binary_number(sn_builder *b, sn_op_kind kind, sn_value *x, double number) {
    return sn_build_binary(b, kind, x, sn_build_number_like(b, x, number));
}

sn_value *sn_build_iota(sn_builder *b, sn_type type, int axis) {
    sn_attr attr = sn_attr_int("axis", axis);
    return build_one(b, SN_OP_IOTA, 0, NULL, 1, &attr, &type);
}

sn_value *sn_build_reshape(sn_builder *b, sn_value *x, int rank, const int64_t *dims) {
    sn_type type = sn_type_make(x->type.dtype, rank, dims);
    if (sn_type_equal(type, x->type)) return x;
    return build_one(b, SN_OP_RESHAPE, 1, &x, 0, NULL, &type);
}

sn_value *sn_build_transpose(sn_builder *b, sn_value *x, const int64_t *perm) {
    bool identity = true;
    for (int i = 0; i < x->type.rank; i++) identity &= perm[i] == i;
    if (identity) return x;
    sn_attr attr = sn_attr_ints("perm", perm, x->type.rank);
    return build_one(b, SN_OP_TRANSPOSE, 1, &x, 1, &attr, NULL);
}

sn_value *sn_build_broadcast(sn_builder *b, sn_value *x, int rank, const int64_t *dims) {
    sn_type type = sn_type_make(x->type.dtype, rank, dims);
    if (sn_type_equal(type, x->type)) return x;
    return build_one(b, SN_OP_BROADCAST, 1, &x, 0, NULL, &type);
}

sn_value *sn_build_slice(sn_builder *b, sn_value *x, const int64_t *starts, const int64_t *steps,
                         const int64_t *sizes) {
    int rank = x->type.rank;
    sn_type type = sn_type_make(x->type.dtype, rank, sizes);
    bool whole = sn_type_equal(type, x->type);
    for (int i = 0; i < rank; i++) whole &= type.dim[i] <= 1 || steps[i] == 1;
    if (whole) return x;
    sn_attr attrs[] = {sn_attr_ints("starts", starts, rank), sn_attr_ints("steps", steps, rank)};
    return build_one(b, SN_OP_SLICE, 1, &x, 2, attrs, &type);
}

sn_value *sn_build_pad(sn_builder *b, sn_value *x, const int64_t *low, const int64_t *high, double number) {
    int rank = x->type.rank;
    bool none = true;
    for (int i = 0; i < rank; i++) none &= low[i] == 0 && high[i] == 0;
    if (none) return x;
    sn_attr attrs[] = {sn_attr_ints("low", low, rank), sn_attr_ints("high", high, rank),
                       sn_attr_float("value", number)};
    return build_one(b, SN_OP_PAD, 1, &x, 3, attrs, NULL);
}

sn_value *sn_build_concat(sn_builder *b, int n, sn_value *const *parts, int axis) {
    if (n == 1) return parts[0];
    sn_attr attr = sn_attr_int("axis", axis);
    return build_one(b, SN_OP_CONCAT, n, parts, 1, &attr, NULL);
}

sn_value *sn_build_gather(sn_builder *b, sn_value *x, sn_value *indices, int axis) {
    sn_attr attr = sn_attr_int("axis", axis);
    return build_one(b, SN_OP_GATHER, 2, (sn_value *[]){x, indices}, 1, &attr, NULL);
}

sn_value *sn_build_reduce(sn_builder *b, sn_op_kind kind, sn_value *x, int n_axes, const int64_t *axes, bool keepdims) {
    if (n_axes == 0) return x;
    sn_attr attrs[] = {sn_attr_ints("axes", axes, n_axes), sn_attr_int("keepdims", keepdims)};
    return build_one(b, kind, 1, &x, 2, attrs, NULL);
}

sn_value *sn_build_matmul(sn_builder *b, sn_value *x, sn_value *y, bool transpose_x, bool transpose_y) {
    sn_attr attrs[2];
    int n = 0;
    if (transpose_x) attrs[n++] = sn_attr_int("transpose_a", 1);
    if (transpose_y) attrs[n++] = sn_attr_int("transpose_b", 1);
    return build_one(b, SN_OP_MATMUL, 2, (sn_value *[]){x, y}, n, attrs, NULL);
}

sn_value *sn_build_sum_to(sn_builder *b, sn_value *x, sn_type like) {
    int64_t axes[SN_MAX_RANK];
    int n = 0, lead = x->type.rank - like.rank;
    SN_CHECK(lead >= 0);
    for (int i = 0; i < x->type.rank; i++) {
        int64_t wanted = i < lead ? 1 : like.dim[i - lead];
        if (i < lead || (wanted == 1 && x->type.dim[i] != 1)) axes[n++] = i;
    }
    sn_value *sum = sn_build_reduce(b, SN_OP_REDUCE_SUM, x, n, axes, false);
    return sn_build_reshape(b, sum, like.rank, like.dim);
}
