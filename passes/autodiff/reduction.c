// Gradients of reductions and scans.
#include "passes/autodiff/gradient.h"

// A reduction's result (or its gradient) with the reduced dims kept, so that it broadcasts against the operand.
static sn_value *keep_dims(sn_gradient_walk *w, const sn_op *op, sn_value *value) {
    sn_type kept = op->operands[0]->type;
    int n_axes;
    const int64_t *axes = sn_op_ints(op, "axes", &n_axes);
    for (int i = 0; i < n_axes; i++) kept.dim[axes[i]] = 1;
    return g_reshape_as(w, value, kept);
}

void sn_gradient_reduce_sum(sn_gradient_walk *w, sn_op *op) {
    sn_type x = op->operands[0]->type;
    sn_value *g = keep_dims(w, op, sn_gradient_of(w, op, 0));
    sn_gradient_send(w, op, 0, sn_build_broadcast(w->b, g, x.rank, x.dim));
}

// Equal extremes share evenly, as PyTorch's amax.
void sn_gradient_reduce_extreme(sn_gradient_walk *w, sn_op *op) {
    sn_value *x = op->operands[0];
    int n_axes;
    const int64_t *axes = sn_op_ints(op, "axes", &n_axes);
    sn_value *is_it = sn_build_binary(w->b, SN_OP_EQUAL, x, keep_dims(w, op, op->results[0]));
    sn_value *count = g_sum(w, sn_build_cast(w->b, is_it, x->type.dtype), n_axes, axes);
    sn_value *share = g_div(w, keep_dims(w, op, sn_gradient_of(w, op, 0)), count);
    sn_gradient_send(w, op, 0, g_where(w, is_it, share));
}

static sn_value *scan(sn_gradient_walk *w, sn_op_kind kind, sn_value *x, int64_t axis, bool exclusive, bool reverse) {
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_int("exclusive", exclusive), sn_attr_int("reverse", reverse)};
    return sn_build(w->b, kind, 1, &x, 3, attrs, NULL)->results[0];
}

// The product of the other elements is that of those before times that of those after: right with zeros among them.
void sn_gradient_reduce_prod(sn_gradient_walk *w, sn_op *op) {
    sn_value *x = op->operands[0];
    int n_axes, rank = x->type.rank, n = 0;
    const int64_t *axes = sn_op_ints(op, "axes", &n_axes);
    int64_t perm[SN_MAX_RANK], inverse[SN_MAX_RANK], rows[2] = {1, 1};
    unsigned reduced = 0;
    for (int i = 0; i < n_axes; i++) reduced |= 1u << axes[i];
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < rank; i++)
            if ((int)(reduced >> i & 1) == pass) perm[n++] = i, rows[pass] *= x->type.dim[i];
    for (int i = 0; i < rank; i++) inverse[perm[i]] = i;
    sn_value *moved = sn_build_transpose(w->b, x, perm), *flat = sn_build_reshape(w->b, moved, 2, rows);
    sn_value *others =
        g_mul(w, scan(w, SN_OP_CUM_PROD, flat, 1, true, false), scan(w, SN_OP_CUM_PROD, flat, 1, true, true));
    others = sn_build_transpose(w->b, g_reshape_as(w, others, moved->type), inverse);
    sn_gradient_send(w, op, 0, g_mul(w, keep_dims(w, op, sn_gradient_of(w, op, 0)), others));
}

void sn_gradient_cum_sum(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    bool exclusive = sn_op_int(op, "exclusive"), reverse = sn_op_int(op, "reverse");
    sn_gradient_send(w, op, 0, scan(w, SN_OP_CUM_SUM, g, sn_op_int(op, "axis"), exclusive, !reverse));
}

// [rows, n] with the scanned axis last and running upwards; the inverse puts it back.
static sn_value *to_rows(sn_gradient_walk *w, sn_value *x, int axis, bool reverse) {
    int rank = x->type.rank;
    int64_t perm[SN_MAX_RANK], n = x->type.dim[axis], dims[2] = {n ? sn_type_count(x->type) / n : 0, n};
    for (int i = 0; i < rank; i++) perm[i] = i == rank - 1 ? axis : i == axis ? rank - 1 : i;
    sn_value *rows = sn_build_reshape(w->b, sn_build_transpose(w->b, x, perm), 2, dims);
    return reverse ? sn_build_slice(w->b, rows, (int64_t[]){0, n - 1}, (int64_t[]){1, -1}, dims) : rows;
}

static sn_value *from_rows(sn_gradient_walk *w, sn_value *rows, sn_type type, int axis, bool reverse) {
    int64_t perm[SN_MAX_RANK], *dims = rows->type.dim;
    if (reverse) rows = sn_build_slice(w->b, rows, (int64_t[]){0, dims[1] - 1}, (int64_t[]){1, -1}, dims);
    sn_type moved = type;
    moved.dim[axis] = type.dim[type.rank - 1];
    moved.dim[type.rank - 1] = type.dim[axis];
    for (int i = 0; i < type.rank; i++) perm[i] = i == type.rank - 1 ? axis : i == axis ? type.rank - 1 : i;
    return sn_build_transpose(w->b, g_reshape_as(w, rows, moved), perm);
}

// y_j is the product of x up to j (before j when exclusive), so dx_i = (product before i) * sum over the j that contain
// i of g_j * (product of what lies between i and y_j's end). The middle products form an n x n matrix per row:
// quadratic, but right with zeros, and the operator is rare.
void sn_gradient_cum_prod(sn_gradient_walk *w, sn_op *op) {
    sn_value *x = op->operands[0];
    int axis = (int)sn_op_int(op, "axis");
    bool reverse = sn_op_int(op, "reverse"), exclusive = sn_op_int(op, "exclusive");
    if (sn_type_count(x->type) == 0) return;
    sn_value *rows = to_rows(w, x, axis, reverse), *g = to_rows(w, sn_gradient_of(w, op, 0), axis, reverse);
    int64_t n = rows->type.dim[1], wide[3] = {rows->type.dim[0], 1, n}, cube[3] = {rows->type.dim[0], n, n};
    sn_type square = sn_type_make(SN_I64, 3, (int64_t[]){1, n, n});
    sn_value *i = sn_build_iota(w->b, square, 1), *j = sn_build_iota(w->b, square, 2);
    sn_value *after = sn_build_binary(w->b, SN_OP_GREATER, j, i);
    sn_value *one = sn_build_constant(w->b, x->type.dtype, 1);
    sn_value *spread = sn_build_broadcast(w->b, sn_build_reshape(w->b, rows, 3, wide), 3, cube);
    sn_value *middle = scan(w, SN_OP_CUM_PROD, sn_build_where(w->b, after, spread, one), 2, exclusive, false);
    sn_value *contains = exclusive ? after : sn_build_binary(w->b, SN_OP_GREATER_EQUAL, j, i);
    sn_value *terms = g_where(w, contains, g_mul(w, middle, sn_build_reshape(w->b, g, 3, wide)));
    sn_value *sums = sn_build_reduce(w->b, SN_OP_REDUCE_SUM, terms, 1, (int64_t[]){2}, false);
    sn_value *before = scan(w, SN_OP_CUM_PROD, rows, 1, true, false);
    sn_gradient_send(w, op, 0, from_rows(w, g_mul(w, before, sums), x->type, axis, reverse));
}
