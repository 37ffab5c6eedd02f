// Reductions, scans and softmax.
#include "frontend/handlers.h"

#include <math.h>

typedef struct reduction {
    sn_value *x;
    int count;
    int64_t axes[SN_MAX_RANK];
    bool keepdims;
} reduction;

// Axes are an input in newer opsets; none means all, or nothing at all when the node says so.
static reduction read_reduction(sn_node *n) {
    reduction r = {.x = sn_node_in(n, 0), .keepdims = sn_node_int(n, "keepdims", 1)};
    int count, rank = r.x->type.rank;
    const int64_t *axes = sn_node_ints_or_input(n, "axes", 1, &count);
    bool chosen[SN_MAX_RANK] = {0};
    for (int i = 0; i < count; i++) chosen[sn_node_axis(n, axes[i], rank)] = true;
    bool all = count == 0 && !sn_node_int(n, "noop_with_empty_axes", 0);
    for (int i = 0; i < rank; i++)
        if (chosen[i] || all) r.axes[r.count++] = i;
    return r;
}

static sn_value *run(sn_node *n, const reduction *r, sn_op_kind kind, sn_value *x) {
    return sn_emit_reduce(n, kind, x, r->count, r->axes, r->keepdims);
}

void sn_handle_reduce(sn_node *n) {
    reduction r = read_reduction(n);
    sn_dtype dtype = r.x->type.dtype;
    sn_value *x = dtype == SN_BOOL ? sn_emit_cast(n, r.x, SN_U8) : r.x; // max and min of bools
    sn_node_out(n, 0, sn_emit_cast(n, run(n, &r, sn_node_kind(n), x), dtype));
}

void sn_handle_reduce_mean(sn_node *n) {
    reduction r = read_reduction(n);
    double count = 1;
    for (int i = 0; i < r.count; i++) count *= (double)r.x->type.dim[r.axes[i]];
    sn_node_out(n, 0, sn_emit_number(n, SN_OP_DIV, run(n, &r, SN_OP_REDUCE_SUM, r.x), count));
}

static sn_value *square(sn_node *n, sn_value *x) {
    return sn_emit_binary(n, SN_OP_MUL, x, x);
}

void sn_handle_reduce_sum_square(sn_node *n) {
    reduction r = read_reduction(n);
    sn_node_out(n, 0, run(n, &r, SN_OP_REDUCE_SUM, square(n, r.x)));
}

void sn_handle_reduce_l1(sn_node *n) {
    reduction r = read_reduction(n);
    sn_node_out(n, 0, run(n, &r, SN_OP_REDUCE_SUM, sn_emit_unary(n, SN_OP_ABS, r.x)));
}

static sn_value *float_unary(sn_node *n, sn_op_kind kind, sn_value *x) {
    sn_dtype dtype = x->type.dtype;
    sn_value *wide = sn_emit_cast(n, x, sn_dtype_is_float(dtype) ? dtype : SN_F64);
    return sn_emit_cast(n, sn_emit_unary(n, kind, wide), dtype);
}

void sn_handle_reduce_l2(sn_node *n) {
    reduction r = read_reduction(n);
    sn_node_out(n, 0, float_unary(n, SN_OP_SQRT, run(n, &r, SN_OP_REDUCE_SUM, square(n, r.x))));
}

void sn_handle_reduce_log_sum(sn_node *n) {
    reduction r = read_reduction(n);
    sn_node_out(n, 0, float_unary(n, SN_OP_LOG, run(n, &r, SN_OP_REDUCE_SUM, r.x)));
}

// max + log(sum(e^(x - max))); the maximum of nothing, and an infinite one, count as 0.
void sn_handle_reduce_log_sum_exp(sn_node *n) {
    reduction r = read_reduction(n);
    sn_dtype dtype = r.x->type.dtype;
    sn_value *x = sn_emit_cast(n, r.x, sn_dtype_is_float(dtype) ? dtype : SN_F64);
    sn_value *zero = sn_emit_scalar(n, x->type.dtype, 0);
    sn_value *top = sn_emit_reduce(n, SN_OP_REDUCE_MAX, x, r.count, r.axes, true);
    sn_value *finite = sn_emit_number(n, SN_OP_LESS, sn_emit_unary(n, SN_OP_ABS, top), HUGE_VAL);
    top = sn_emit_where(n, finite, top, zero);
    for (int i = 0; i < r.count; i++)
        if (x->type.dim[r.axes[i]] == 0) top = sn_emit_splat(n, top->type, 0);
    sn_value *powers = sn_emit_unary(n, SN_OP_EXP, sn_emit_binary(n, SN_OP_SUB, x, top));
    sn_value *sum = sn_emit_unary(n, SN_OP_LOG, run(n, &r, SN_OP_REDUCE_SUM, powers));
    sn_value *shift = sn_emit_reshape(n, top, sum->type.rank, sum->type.dim);
    sn_node_out(n, 0, sn_emit_cast(n, sn_emit_binary(n, SN_OP_ADD, sum, shift), dtype));
}

void sn_handle_cumulate(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int axis = sn_node_axis(n, sn_node_known_int(n, 1, 0), x->type.rank);
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_int("exclusive", sn_node_int(n, "exclusive", 0)),
                       sn_attr_int("reverse", sn_node_int(n, "reverse", 0))};
    sn_node_out(n, 0, sn_emit(n, sn_node_kind(n), 1, &x, 3, attrs, NULL)->results[0]);
}

void sn_handle_softmax(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", -1), x->type.rank);
    sn_node_out(n, 0, sn_emit_along(n, sn_node_kind(n), x, axis));
}

// 1 at the first largest element along the axis.
void sn_handle_hardmax(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", -1), x->type.rank);
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_int("keepdims", 1)};
    sn_value *first = sn_emit(n, SN_OP_ARG_MAX, 1, &x, 2, attrs, NULL)->results[0];
    sn_value *index = sn_emit_iota(n, sn_type_with_dtype(x->type, SN_I64), axis, 0, 1);
    sn_node_out(n, 0, sn_emit_cast(n, sn_emit_binary(n, SN_OP_EQUAL, index, first), x->type.dtype));
}
