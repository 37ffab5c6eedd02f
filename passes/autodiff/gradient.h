// Inside of passes/autodiff: what gradient rules work with.
#pragma once
#include "passes/autodiff/differentiate.h"

typedef struct sn_gradient_walk {
    sn_builder *b; // its origin is the op at hand's
    sn_diags *diags;
    const bool *active; // by sn_value.id: on a path from a wanted value to the loss
    struct sn_gradient_sum *sums;
    sn_arena scratch;
    size_t n_values;
    uint32_t *readers; // by sn_value.id: operands of ops on the path that were not visited yet
    bool failed;
} sn_gradient_walk;

// A rule sends to each operand that wants it this op's part of its gradient. Reads only this op.
typedef void sn_gradient_rule(sn_gradient_walk *w, sn_op *op);

bool sn_gradient_wanted(const sn_gradient_walk *w, const sn_op *op, int operand);
// The whole gradient of a result; NULL when nothing on a path to the loss reads it.
sn_value *sn_gradient_of(sn_gradient_walk *w, const sn_op *op, int result);
// Adds a part, summed over the dims that the operator broadcast and converted to the operand's element type.
void sn_gradient_send(sn_gradient_walk *w, const sn_op *op, int operand, sn_value *part);
// Adds a part that is zero outside of a slice (as SLICE's attributes give it). Slices that tile the operand are joined
// by one concat instead of being padded and summed.
void sn_gradient_send_slice(sn_gradient_walk *w, const sn_op *op, int operand, sn_value *part, const int64_t *starts,
                            const int64_t *steps);
// A user's error: no gradient with respect to this operand or through this result.
void sn_gradient_missing(sn_gradient_walk *w, const sn_op *op, const char *what);

// The rules' arithmetic, short enough to read as the formula; g_...n take a number.
static inline sn_value *g_un(sn_gradient_walk *w, sn_op_kind kind, sn_value *x) {
    return sn_build_unary(w->b, kind, x);
}
static inline sn_value *g_add(sn_gradient_walk *w, sn_value *x, sn_value *y) {
    return sn_build_binary(w->b, SN_OP_ADD, x, y);
}
static inline sn_value *g_sub(sn_gradient_walk *w, sn_value *x, sn_value *y) {
    return sn_build_binary(w->b, SN_OP_SUB, x, y);
}
static inline sn_value *g_mul(sn_gradient_walk *w, sn_value *x, sn_value *y) {
    return sn_build_binary(w->b, SN_OP_MUL, x, y);
}
static inline sn_value *g_div(sn_gradient_walk *w, sn_value *x, sn_value *y) {
    return sn_build_binary(w->b, SN_OP_DIV, x, y);
}
static inline sn_value *g_muln(sn_gradient_walk *w, sn_value *x, double number) {
    return sn_build_binary_number(w->b, SN_OP_MUL, x, number);
}
static inline sn_value *g_addn(sn_gradient_walk *w, sn_value *x, double number) {
    return sn_build_binary_number(w->b, SN_OP_ADD, x, number);
}
static inline sn_value *g_neg(sn_gradient_walk *w, sn_value *x) {
    return sn_build_unary(w->b, SN_OP_NEG, x);
}
// 0 where the condition fails.
static inline sn_value *g_where(sn_gradient_walk *w, sn_value *condition, sn_value *x) {
    return sn_build_where(w->b, condition, x, sn_build_number_like(w->b, x, 0));
}
static inline sn_value *g_compare(sn_gradient_walk *w, sn_op_kind kind, sn_value *x, double number) {
    return sn_build_binary_number(w->b, kind, x, number);
}
static inline sn_value *g_reshape_as(sn_gradient_walk *w, sn_value *x, sn_type like) {
    return sn_build_reshape(w->b, x, like.rank, like.dim);
}
static inline sn_value *g_sum(sn_gradient_walk *w, sn_value *x, int n_axes, const int64_t *axes) {
    return sn_build_reduce(w->b, SN_OP_REDUCE_SUM, x, n_axes, axes, true);
}

sn_gradient_rule sn_gradient_copy, sn_gradient_cast, sn_gradient_neg, sn_gradient_abs, sn_gradient_exp, sn_gradient_log,
    sn_gradient_sqrt, sn_gradient_rsqrt, sn_gradient_reciprocal, sn_gradient_sin, sn_gradient_cos, sn_gradient_tan,
    sn_gradient_asin, sn_gradient_acos, sn_gradient_atan, sn_gradient_sinh, sn_gradient_cosh, sn_gradient_tanh,
    sn_gradient_asinh, sn_gradient_acosh, sn_gradient_atanh, sn_gradient_erf, sn_gradient_sigmoid, sn_gradient_relu,
    sn_gradient_gelu, sn_gradient_gelu_tanh, sn_gradient_softplus, sn_gradient_add, sn_gradient_sub, sn_gradient_mul,
    sn_gradient_div, sn_gradient_pow, sn_gradient_mod, sn_gradient_min_max, sn_gradient_where; // pointwise.c
sn_gradient_rule sn_gradient_reshape, sn_gradient_transpose, sn_gradient_broadcast, sn_gradient_slice, sn_gradient_pad,
    sn_gradient_concat, sn_gradient_gather, sn_gradient_gather_grad, sn_gradient_gather_elements, sn_gradient_gather_nd,
    sn_gradient_scatter, sn_gradient_top_k; // movement.c
sn_gradient_rule sn_gradient_reduce_sum, sn_gradient_reduce_prod, sn_gradient_reduce_extreme, sn_gradient_cum_sum,
    sn_gradient_cum_prod; // reduction.c
sn_gradient_rule sn_gradient_matmul, sn_gradient_conv, sn_gradient_conv_input_grad, sn_gradient_conv_weight_grad,
    sn_gradient_max_pool, sn_gradient_max_pool_grad, sn_gradient_avg_pool, sn_gradient_avg_pool_grad; // contraction.c
sn_gradient_rule sn_gradient_softmax, sn_gradient_log_softmax, sn_gradient_layer_norm, sn_gradient_rms_norm,
    sn_gradient_cross_entropy; // composite.c
sn_gradient_rule sn_gradient_attention;

extern sn_gradient_rule *const sn_gradient_rules[SN_OP_COUNT];
