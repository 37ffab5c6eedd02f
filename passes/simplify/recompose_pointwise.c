#include "passes/simplify/recompose.h"

#include <math.h>

// Whether `value` is c * x.
static bool is_scaled(sn_value *value, const sn_value *x, double c) {
    sn_product p = sn_match_product(value);
    return sn_product_take(&p, x) && p.count == 0 && sn_is_close(p.scale, c);
}

// Whether `value` is 1 + erf(x / sqrt 2).
static bool is_erf_gate(sn_value *value, const sn_value *x) {
    sn_value *erf;
    double one;
    if (!sn_match_add_number(value, &erf, &one) || one != 1) return false;
    const sn_op *op = sn_defined_by(erf, SN_OP_ERF);
    return op && is_scaled(op->operands[0], x, sqrt(0.5));
}

// Whether `value` is x + 0.044715 x^3.
static bool is_cubic(sn_value *value, const sn_value *x) {
    const sn_op *add = sn_defined_by(value, SN_OP_ADD);
    for (int i = 0; add && i < 2; i++) {
        if (add->operands[i] != x) continue;
        sn_product p = sn_match_product(add->operands[1 - i]);
        return sn_product_take(&p, x) && sn_product_take(&p, x) && sn_product_take(&p, x) && p.count == 0 &&
               sn_is_close(p.scale, 0.044715);
    }
    return false;
}

// Whether `value` is 1 + 0.044715 x^2.
static bool is_cubic_over_x(sn_value *value, const sn_value *x) {
    sn_value *square;
    double one;
    if (!sn_match_add_number(value, &square, &one) || one != 1) return false;
    sn_product p = sn_match_product(square);
    return sn_product_take(&p, x) && sn_product_take(&p, x) && p.count == 0 && sn_is_close(p.scale, 0.044715);
}

// Whether `value` is 1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)), with x possibly taken out of the sum.
static bool is_tanh_gate(sn_value *value, const sn_value *x) {
    sn_value *tanh_value;
    double one;
    if (!sn_match_add_number(value, &tanh_value, &one) || one != 1) return false;
    const sn_op *op = sn_defined_by(tanh_value, SN_OP_TANH);
    if (!op) return false;
    sn_product p = sn_match_product(op->operands[0]);
    if (!sn_is_close(p.scale, sqrt(2 / M_PI))) return false;
    if (p.count == 1) return is_cubic(p.factor[0], x);
    return sn_product_take(&p, x) && p.count == 1 && is_cubic_over_x(p.factor[0], x);
}

// 0.5 * x * gate, in any order and grouping.
sn_value *sn_recompose_gelu(sn_rewriter *r, sn_op *mul) {
    sn_product p = sn_match_product(mul->results[0]);
    if (p.count != 2 || !sn_is_close(p.scale, 0.5)) return NULL;
    for (int i = 0; i < 2; i++) {
        sn_value *x = p.factor[i], *gate = p.factor[1 - i];
        if (!sn_type_equal(x->type, mul->results[0]->type)) continue;
        if (is_erf_gate(gate, x)) return sn_build_unary(sn_rewriter_at(r, mul), SN_OP_GELU, x);
        if (is_tanh_gate(gate, x)) return sn_build_unary(sn_rewriter_at(r, mul), SN_OP_GELU_TANH, x);
    }
    return NULL;
}

// The axis of a reduction over one axis that keeps it, or -1.
static int kept_axis(const sn_op *reduction) {
    int count;
    const int64_t *axes = sn_op_ints(reduction, "axes", &count);
    return count == 1 && sn_op_int(reduction, "keepdims") ? (int)axes[0] : -1;
}

// x - max(x) along *axis: gives x.
static sn_value *match_shifted(const sn_value *value, int *axis) {
    const sn_op *sub = sn_defined_by(value, SN_OP_SUB);
    const sn_op *max = sub ? sn_defined_by(sub->operands[1], SN_OP_REDUCE_MAX) : NULL;
    if (!max || max->operands[0] != sub->operands[0]) return NULL;
    *axis = kept_axis(max);
    return *axis >= 0 ? sub->operands[0] : NULL;
}

static sn_value *build_softmax(sn_rewriter *r, sn_op *op, sn_op_kind kind, sn_value *x, int axis) {
    sn_attr attr = sn_attr_int("axis", axis);
    return sn_build(sn_rewriter_at(r, op), kind, 1, &x, 1, &attr, NULL)->results[0];
}

// exp(x - max(x)) / sum(exp(x - max(x)))
sn_value *sn_recompose_softmax(sn_rewriter *r, sn_op *div) {
    const sn_op *sum = sn_defined_by(div->operands[1], SN_OP_REDUCE_SUM), *exp;
    if (!sum || sum->operands[0] != div->operands[0]) return NULL;
    if (!(exp = sn_defined_by(div->operands[0], SN_OP_EXP))) return NULL;
    int axis;
    sn_value *x = match_shifted(exp->operands[0], &axis);
    return x && kept_axis(sum) == axis ? build_softmax(r, div, SN_OP_SOFTMAX, x, axis) : NULL;
}

// log(softmax(x)), or (x - max(x)) - log(sum(exp(x - max(x))))
sn_value *sn_recompose_log_softmax(sn_rewriter *r, sn_op *op) {
    if (op->kind == SN_OP_LOG) {
        const sn_op *softmax = sn_defined_by(op->operands[0], SN_OP_SOFTMAX);
        if (!softmax) return NULL;
        return build_softmax(r, op, SN_OP_LOG_SOFTMAX, softmax->operands[0], (int)sn_op_int(softmax, "axis"));
    }
    const sn_op *log = sn_defined_by(op->operands[1], SN_OP_LOG);
    const sn_op *sum = log ? sn_defined_by(log->operands[0], SN_OP_REDUCE_SUM) : NULL;
    const sn_op *exp = sum ? sn_defined_by(sum->operands[0], SN_OP_EXP) : NULL;
    if (!exp || exp->operands[0] != op->operands[0]) return NULL;
    int axis;
    sn_value *x = match_shifted(op->operands[0], &axis);
    return x && kept_axis(sum) == axis ? build_softmax(r, op, SN_OP_LOG_SOFTMAX, x, axis) : NULL;
}
