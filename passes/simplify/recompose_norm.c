#include "passes/simplify/recompose.h"

// mean(d * d) + eps over the last dims: gives d, the axis and eps.
static bool match_mean_square(sn_value *value, sn_value **d, int *axis, double *eps) {
    sn_value *mean, *square;
    if (!sn_match_add_number(value, &mean, eps) || !sn_match_mean(mean, &square, axis)) return false;
    const sn_op *product = sn_defined_by(square, SN_OP_MUL);
    if (!product || product->operands[0] != product->operands[1]) return false;
    *d = product->operands[0];
    return true;
}

static sn_value *build_norm(sn_rewriter *r, const sn_op *op, sn_op_kind kind, int n, sn_value **operands, int axis,
                            double eps) {
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_float("eps", eps)};
    return sn_build(sn_rewriter_at(r, op), kind, n, operands, 2, attrs, NULL)->results[0];
}

// x - mean(x) over the same dims: gives x.
static sn_value *match_centred(const sn_value *d, int axis) {
    const sn_op *sub = sn_defined_by(d, SN_OP_SUB);
    sn_value *x;
    int mean_axis;
    if (!sub || !sn_match_mean(sub->operands[1], &x, &mean_axis)) return NULL;
    return x == sub->operands[0] && mean_axis == axis ? x : NULL;
}

// d / sqrt(mean(d^2) + eps): a layer norm where d = x - mean(x), else an RMS norm; with scale 1 for now.
sn_value *sn_recompose_norm(sn_rewriter *r, sn_op *op) {
    sn_value *d, *variance, *squared;
    int axis;
    double eps;
    if (!sn_match_over_sqrt(op, &d, &variance) || !match_mean_square(variance, &squared, &axis, &eps)) return NULL;
    if (d != squared || !sn_type_equal(d->type, op->results[0]->type)) return NULL;
    sn_value *x = match_centred(d, axis);
    sn_value *operands[2] = {x ? x : d, sn_build_number_like(sn_rewriter_at(r, op), d, 1)};
    return build_norm(r, op, x ? SN_OP_LAYER_NORM : SN_OP_RMS_NORM, 2, operands, axis, eps);
}

// The norm that defines a value that nothing else reads, so that it may take the next op in.
static sn_op *lone_norm(sn_value *value) {
    sn_op *norm = sn_defined_by(value, SN_OP_LAYER_NORM);
    if (!norm) norm = sn_defined_by(value, SN_OP_RMS_NORM);
    if (!norm || value->index != 0 || value->uses.count != 1) return NULL;
    for (int i = 1; i < norm->n_results; i++)
        if (sn_value_is_used(norm->results[i])) return NULL;
    return norm;
}

// A scale or bias has no more dims than the norm works on: what is more is another broadcast, which stays outside.
static bool is_per_feature(const sn_op *norm, const sn_value *value) {
    sn_type type = norm->results[0]->type;
    int axis = (int)sn_op_int(norm, "axis");
    for (int i = 0; i < value->type.rank - (type.rank - axis); i++)
        if (value->type.dim[i] != 1) return false;
    return sn_broadcasts_to(type, value->type, type);
}

sn_value *sn_recompose_norm_scale(sn_rewriter *r, sn_op *mul) {
    for (int i = 0; i < 2; i++) {
        sn_op *norm = lone_norm(mul->operands[i]);
        sn_value *scale = mul->operands[1 - i];
        if (!norm || norm->n_operands != 2 || !sn_is_number(norm->operands[1], 1)) continue;
        if (!is_per_feature(norm, scale)) continue;
        return build_norm(r, mul, norm->kind, 2, (sn_value *[]){norm->operands[0], scale}, (int)sn_op_int(norm, "axis"),
                          sn_op_float(norm, "eps"));
    }
    return NULL;
}

sn_value *sn_recompose_norm_bias(sn_rewriter *r, sn_op *add) {
    for (int i = 0; i < 2; i++) {
        sn_op *norm = lone_norm(add->operands[i]);
        sn_value *bias = add->operands[1 - i];
        if (!norm || norm->kind != SN_OP_LAYER_NORM || norm->n_operands != 2 || !is_per_feature(norm, bias)) continue;
        if (bias->kind != SN_VALUE_GLOBAL) continue; // a residual of one sample has the same shape
        return build_norm(r, add, norm->kind, 3, (sn_value *[]){norm->operands[0], norm->operands[1], bias},
                          (int)sn_op_int(norm, "axis"), sn_op_float(norm, "eps"));
    }
    return NULL;
}
