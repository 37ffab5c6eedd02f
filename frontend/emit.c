#include "frontend/import.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RESULTS = 8 };

static void describe_operands(sn_str *out, int n_operands, sn_value *const *operands) {
    for (int i = 0; i < n_operands; i++) {
        if (i) sn_str_puts(out, i + 1 == n_operands ? " and " : ", ");
        sn_type_print(out, operands[i]->type);
    }
}

sn_op *sn_emit(sn_node *n, sn_op_kind kind, int n_operands, sn_value *const *operands, int n_attrs,
               const sn_attr *attrs, const sn_type *typed) {
    sn_type types[MOST_RESULTS] = {0};
    int n_results = sn_op_info_of(kind)->results;
    SN_CHECK(n_results <= MOST_RESULTS);
    if (typed) memcpy(types, typed, sizeof *types * (size_t)n_results);
    const char *wrong = sn_infer(n->import->module, kind, n_operands, operands, n_attrs, attrs, n_results, types);
    if (wrong) {
        sn_str text = {0};
        describe_operands(&text, n_operands, operands);
        const char *copy = sn_arena_strdup(&n->import->arena, sn_str_text(&text));
        sn_str_free(&text);
        sn_node_fail(n, NULL, "%s (%s of %s)", wrong, sn_op_name(kind), copy);
    }
    sn_op *op = sn_build(&n->builder, kind, n_operands, operands, n_attrs, attrs, typed);
    sn_fold_op(n->import, op);
    return op;
}

static sn_value *emit_one(sn_node *n, sn_op_kind kind, int n_operands, sn_value *const *operands, int n_attrs,
                          const sn_attr *attrs, const sn_type *typed) {
    return sn_emit(n, kind, n_operands, operands, n_attrs, attrs, typed)->results[0];
}

sn_value *sn_emit_unary(sn_node *n, sn_op_kind kind, sn_value *x) {
    return emit_one(n, kind, 1, &x, 0, NULL, NULL);
}

sn_value *sn_emit_binary(sn_node *n, sn_op_kind kind, sn_value *x, sn_value *y) {
    return emit_one(n, kind, 2, (sn_value *[]){x, y}, 0, NULL, NULL);
}

sn_value *sn_emit_number(sn_node *n, sn_op_kind kind, sn_value *x, double number) {
    return sn_emit_binary(n, kind, x, sn_emit_scalar(n, x->type.dtype, number));
}

sn_value *sn_emit_where(sn_node *n, sn_value *condition, sn_value *x, sn_value *y) {
    return emit_one(n, SN_OP_WHERE, 3, (sn_value *[]){condition, x, y}, 0, NULL, NULL);
}

sn_value *sn_emit_cast(sn_node *n, sn_value *x, sn_dtype dtype) {
    if (x->type.dtype == dtype) return x;
    sn_type type = sn_type_with_dtype(x->type, dtype);
    return emit_one(n, SN_OP_CAST, 1, &x, 0, NULL, &type);
}

sn_value *sn_emit_splat(sn_node *n, sn_type type, double number) {
    return sn_build_splat(&n->builder, sn_node_type(n, type.dtype, type.rank, type.dim), number);
}

sn_value *sn_emit_scalar(sn_node *n, sn_dtype dtype, double number) {
    return sn_build_constant(&n->builder, dtype, number);
}

sn_value *sn_emit_iota(sn_node *n, sn_type type, int axis, int64_t start, int64_t step) {
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_int("start", start), sn_attr_int("step", step)};
    return emit_one(n, SN_OP_IOTA, 0, NULL, 3, attrs, &type);
}

sn_value *sn_emit_reshape(sn_node *n, sn_value *x, int rank, const int64_t *dims) {
    sn_type type = sn_node_type(n, x->type.dtype, rank, dims);
    if (sn_type_equal(type, x->type)) return x;
    return emit_one(n, SN_OP_RESHAPE, 1, &x, 0, NULL, &type);
}

sn_value *sn_emit_transpose(sn_node *n, sn_value *x, const int64_t *perm) {
    bool identity = true;
    for (int i = 0; i < x->type.rank; i++) identity = identity && perm[i] == i;
    if (identity) return x;
    sn_attr attr = sn_attr_ints("perm", perm, x->type.rank);
    return emit_one(n, SN_OP_TRANSPOSE, 1, &x, 1, &attr, NULL);
}

sn_value *sn_emit_broadcast(sn_node *n, sn_value *x, int rank, const int64_t *dims) {
    sn_type type = sn_node_type(n, x->type.dtype, rank, dims);
    if (sn_type_equal(type, x->type)) return x;
    return emit_one(n, SN_OP_BROADCAST, 1, &x, 0, NULL, &type);
}

sn_value *sn_emit_slice(sn_node *n, sn_value *x, const int64_t *starts, const int64_t *steps, const int64_t *sizes) {
    int rank = x->type.rank;
    sn_type type = sn_node_type(n, x->type.dtype, rank, sizes);
    bool whole = sn_type_equal(type, x->type);
    for (int i = 0; i < rank; i++) whole = whole && starts[i] == 0 && steps[i] == 1;
    if (whole) return x;
    sn_attr attrs[] = {sn_attr_ints("starts", starts, rank), sn_attr_ints("steps", steps, rank)};
    return emit_one(n, SN_OP_SLICE, 1, &x, 2, attrs, &type);
}

sn_value *sn_emit_part(sn_node *n, sn_value *x, int axis, int64_t start, int64_t size) {
    int64_t starts[SN_MAX_RANK] = {0}, steps[SN_MAX_RANK], sizes[SN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        steps[i] = 1;
        sizes[i] = x->type.dim[i];
    }
    starts[axis] = start;
    sizes[axis] = size;
    return sn_emit_slice(n, x, starts, steps, sizes);
}

sn_value *sn_emit_pad(sn_node *n, sn_value *x, const int64_t *low, const int64_t *high, double number) {
    bool none = true;
    for (int i = 0; i < x->type.rank; i++) none = none && low[i] == 0 && high[i] == 0;
    if (none) return x;
    sn_attr attrs[] = {sn_attr_ints("low", low, x->type.rank), sn_attr_ints("high", high, x->type.rank),
                       sn_attr_float("value", number)};
    return emit_one(n, SN_OP_PAD, 1, &x, 3, attrs, NULL);
}

sn_value *sn_emit_along(sn_node *n, sn_op_kind kind, sn_value *x, int axis) {
    sn_attr attr = sn_attr_int("axis", axis);
    return emit_one(n, kind, 1, &x, 1, &attr, NULL);
}

sn_value *sn_emit_concat(sn_node *n, int count, sn_value *const *parts, int axis) {
    if (count == 1) return parts[0];
    sn_attr attr = sn_attr_int("axis", axis);
    return emit_one(n, SN_OP_CONCAT, count, parts, 1, &attr, NULL);
}

sn_value *sn_emit_gather(sn_node *n, sn_value *x, sn_value *indices, int axis) {
    sn_attr attr = sn_attr_int("axis", axis);
    return emit_one(n, SN_OP_GATHER, 2, (sn_value *[]){x, indices}, 1, &attr, NULL);
}

sn_value *sn_emit_reduce(sn_node *n, sn_op_kind kind, sn_value *x, int n_axes, const int64_t *axes, bool keepdims) {
    if (!n_axes) return x;
    sn_attr attrs[] = {sn_attr_ints("axes", axes, n_axes), sn_attr_int("keepdims", keepdims)};
    return emit_one(n, kind, 1, &x, 2, attrs, NULL);
}

sn_value *sn_emit_reduce_axis(sn_node *n, sn_op_kind kind, sn_value *x, int axis, bool keepdims) {
    return sn_emit_reduce(n, kind, x, 1, &(int64_t){axis}, keepdims);
}

sn_value *sn_emit_mean(sn_node *n, sn_value *x, int n_axes, const int64_t *axes) {
    double count = 1;
    for (int i = 0; i < n_axes; i++) count *= (double)x->type.dim[axes[i]];
    sn_value *sum = sn_emit_reduce(n, SN_OP_REDUCE_SUM, x, n_axes, axes, true);
    return sn_emit_number(n, SN_OP_DIV, sum, count);
}

sn_value *sn_emit_matmul(sn_node *n, sn_value *x, sn_value *y, bool transpose_x, bool transpose_y) {
    sn_attr attrs[] = {sn_attr_int("transpose_a", transpose_x), sn_attr_int("transpose_b", transpose_y)};
    return emit_one(n, SN_OP_MATMUL, 2, (sn_value *[]){x, y}, 2, attrs, NULL);
}

sn_value *sn_emit_aligned(sn_node *n, sn_value *x, int at, int rank) {
    int64_t dims[SN_MAX_RANK];
    if (at < 0 || rank > SN_MAX_RANK || at + x->type.rank > rank)
        sn_node_fail(n, NULL, "an operand of rank %d does not fit into rank %d from dim %d on", x->type.rank, rank, at);
    for (int i = 0; i < rank; i++) {
        int from = i - at;
        dims[i] = from >= 0 && from < x->type.rank ? x->type.dim[from] : 1;
    }
    return sn_emit_reshape(n, x, rank, dims);
}
