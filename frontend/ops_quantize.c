// Quantization: integers that stand for (integer - zero point) * scale. Sums of products are exact in i32.
#include "frontend/handlers.h"

#include <math.h>
#include <string.h>

// A scale or zero point as it broadcasts against x: a scalar, one number per index along `axis`, or one per block of
// `block` elements along it.
static sn_value *spread(sn_node *n, sn_value *q, sn_type x, int axis, int64_t block) {
    if (q->type.rank == 0 || sn_type_count(q->type) == 1) return sn_emit_reshape(n, q, 0, NULL);
    if (block == 0) {
        if (q->type.rank != 1 || q->type.dim[0] != x.dim[axis])
            sn_node_fail(n, NULL, "the scale does not match the dim that `axis` names");
        return sn_emit_aligned(n, q, axis, x.rank);
    }
    if (q->type.rank != x.rank || x.rank == SN_MAX_RANK) sn_node_fail(n, NULL, "blocked scales need the input's rank");
    int64_t single[SN_MAX_RANK], repeated[SN_MAX_RANK], whole[SN_MAX_RANK];
    for (int d = 0, k = 0; d < x.rank; d++) {
        single[k] = repeated[k] = whole[d] = q->type.dim[d];
        k++;
        if (d != axis) continue;
        single[k] = 1, repeated[k] = block;
        whole[d] = sn_node_times(n, whole[d], block);
        k++;
    }
    if (whole[axis] < x.dim[axis]) sn_node_fail(n, NULL, "blocks do not cover the dim that `axis` names");
    q = sn_emit_broadcast(n, sn_emit_reshape(n, q, x.rank + 1, single), x.rank + 1, repeated);
    return sn_emit_part(n, sn_emit_reshape(n, q, x.rank, whole), axis, 0, x.dim[axis]);
}

static int axis_of(sn_node *n, sn_type x) {
    int64_t axis = sn_node_int(n, "axis", 1);
    return x.rank < 2 && !sn_node_attr(n, "axis") ? 0 : sn_node_axis(n, axis, x.rank ? x.rank : 1);
}

// 0 stands for the usual type.
static sn_dtype dtype_attr(sn_node *n, const char *name, sn_dtype otherwise) {
    return sn_node_int(n, name, 0) ? sn_node_dtype(n, name, otherwise) : otherwise;
}

// Rounds floats (that already are multiples of the scale, shifted) to integers that saturate.
static sn_value *saturate(sn_node *n, sn_value *x, sn_dtype dtype) {
    int bits = 8 * (int)sn_dtype_bytes(dtype);
    bool negative = sn_dtype_class(dtype) == 'i';
    double low = negative ? -ldexp(1, bits - 1) : 0, high = ldexp(1, negative ? bits - 1 : bits) - 1;
    x = sn_emit_number(n, SN_OP_MIN, sn_emit_number(n, SN_OP_MAX, x, low), high);
    return sn_emit_cast(n, x, dtype);
}

void sn_handle_quantize_linear(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *scale = sn_node_in(n, 1), *zero = sn_node_optional(n, 2);
    int axis = axis_of(n, x->type);
    int64_t block = sn_node_int(n, "block_size", 0);
    sn_dtype dtype = zero ? zero->type.dtype : dtype_attr(n, "output_dtype", SN_U8);
    sn_dtype precision = dtype_attr(n, "precision", scale->type.dtype);
    if (sn_dtype_is_float(dtype) || sn_dtype_bytes(dtype) > 2) sn_node_unsupported(n, "a result of this element type");
    sn_value *divisor = sn_emit_cast(n, spread(n, scale, x->type, axis, block), precision);
    sn_value *y = sn_emit_binary(n, SN_OP_DIV, sn_emit_cast(n, x, precision), divisor);
    y = sn_emit_cast(n, sn_emit_unary(n, SN_OP_ROUND, y), SN_F32); // a 16-bit zero point is exact in f32 alone
    if (zero) y = sn_emit_binary(n, SN_OP_ADD, y, sn_emit_cast(n, spread(n, zero, x->type, axis, block), SN_F32));
    sn_node_out(n, 0, saturate(n, y, dtype));
}

void sn_handle_dequantize_linear(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *scale = sn_node_in(n, 1), *zero = sn_node_optional(n, 2);
    int axis = axis_of(n, x->type);
    int64_t block = sn_node_int(n, "block_size", 0);
    sn_dtype dtype = dtype_attr(n, "output_dtype", scale->type.dtype);
    sn_value *y = sn_emit_cast(n, x, SN_I32);
    if (zero) y = sn_emit_binary(n, SN_OP_SUB, y, sn_emit_cast(n, spread(n, zero, x->type, axis, block), SN_I32));
    sn_value *factor = sn_emit_cast(n, spread(n, scale, x->type, axis, block), SN_F32);
    sn_node_out(n, 0, sn_emit_cast(n, sn_emit_binary(n, SN_OP_MUL, sn_emit_cast(n, y, SN_F32), factor), dtype));
}

// scale = (max(x, 0) - min(x, 0)) / 255, and the zero point that makes 0 exact.
void sn_handle_dynamic_quantize_linear(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int64_t axes[SN_MAX_RANK];
    for (int d = 0; d < x->type.rank; d++) axes[d] = d;
    sn_value *high = sn_emit_number(n, SN_OP_MAX, sn_emit_reduce(n, SN_OP_REDUCE_MAX, x, x->type.rank, axes, false), 0);
    sn_value *low = sn_emit_number(n, SN_OP_MIN, sn_emit_reduce(n, SN_OP_REDUCE_MIN, x, x->type.rank, axes, false), 0);
    sn_value *scale = sn_emit_number(n, SN_OP_DIV, sn_emit_binary(n, SN_OP_SUB, high, low), 255);
    sn_value *zero = sn_emit_unary(n, SN_OP_NEG, sn_emit_binary(n, SN_OP_DIV, low, scale));
    zero = saturate(n, sn_emit_unary(n, SN_OP_ROUND, zero), SN_U8);
    sn_value *y = sn_emit_unary(n, SN_OP_ROUND, sn_emit_binary(n, SN_OP_DIV, x, scale));
    y = sn_emit_binary(n, SN_OP_ADD, y, sn_emit_cast(n, zero, SN_F32));
    sn_node_out(n, 0, saturate(n, y, SN_U8));
    sn_node_out(n, 1, scale);
    sn_node_out(n, 2, zero);
}

// A matrix operand as i32 less its zero point: a scalar, or one per row of the left and per column of the right.
static sn_value *centred(sn_node *n, sn_value *x, sn_value *zero, bool left) {
    x = sn_emit_cast(n, x, SN_I32);
    if (!zero) return x;
    zero = sn_emit_cast(n, zero, SN_I32);
    if (zero->type.rank == 1 && zero->type.dim[0] == 1) zero = sn_emit_reshape(n, zero, 0, NULL);
    if (zero->type.rank == 1 && left) zero = sn_emit_reshape(n, zero, 2, (int64_t[]){zero->type.dim[0], 1});
    return sn_emit_binary(n, SN_OP_SUB, x, zero);
}

static sn_value *product(sn_node *n, sn_value *a, sn_value *a_zero, sn_value *b, sn_value *b_zero) {
    if (a->type.rank < 2 || b->type.rank < 2) sn_node_unsupported(n, "vectors"); // QLinearMatMul's may have any rank
    return sn_emit_matmul(n, centred(n, a, a_zero, true), centred(n, b, b_zero, false), false, false);
}

void sn_handle_matmul_integer(sn_node *n) {
    sn_node_out(n, 0, product(n, sn_node_in(n, 0), sn_node_optional(n, 2), sn_node_in(n, 1), sn_node_optional(n, 3)));
}

void sn_handle_qlinear_matmul(sn_node *n) {
    sn_value *sum = product(n, sn_node_in(n, 0), sn_node_in(n, 2), sn_node_in(n, 3), sn_node_in(n, 5));
    sn_value *a = sn_emit_cast(n, sn_node_in(n, 1), SN_F32), *b = sn_emit_cast(n, sn_node_in(n, 4), SN_F32);
    sn_value *zero = sn_node_in(n, 7);
    if (a->type.rank == 1 && a->type.dim[0] > 1) a = sn_emit_reshape(n, a, 2, (int64_t[]){a->type.dim[0], 1});
    sn_value *scale = sn_emit_binary(n, SN_OP_MUL, a, b);
    scale = sn_emit_binary(n, SN_OP_DIV, scale, sn_emit_cast(n, sn_node_in(n, 6), SN_F32));
    sn_value *y = sn_emit_binary(n, SN_OP_MUL, sn_emit_cast(n, sum, SN_F32), scale);
    y = sn_emit_unary(n, SN_OP_ROUND, sn_emit_binary(n, SN_OP_ADD, y, sn_emit_cast(n, zero, SN_F32)));
    sn_node_out(n, 0, saturate(n, y, zero->type.dtype));
}
