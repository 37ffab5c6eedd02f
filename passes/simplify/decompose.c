// decompose: states composite operators in row reductions and pointwise operators, which `fuse` makes kernels of.
//
//   %y = softmax(%x) <axis=1>   =>   %m = reduce_max(%x); %e = exp(sub(%x, %m)); %s = reduce_sum(%e)
//                                    %y = mul(%e, reciprocal(%s))
//
// Statistics of 16-bit floats are computed in f32.
#include "passes/simplify/decompose.h"

#include "passes/simplify/rewrite.h"

// x with at least the precision of f32.
static sn_value *widened(sn_builder *b, sn_value *x) {
    return sn_dtype_bytes(x->type.dtype) < 4 ? sn_build_cast(b, x, SN_F32) : x;
}

static sn_value *binary(sn_builder *b, sn_op_kind kind, sn_value *x, sn_value *y) {
    return sn_build_binary(b, kind, x, y);
}

static sn_value *scaled(sn_builder *b, sn_value *x, double number) {
    return sn_build_binary_number(b, SN_OP_MUL, x, number);
}

// Replaces all results; NULL where the result is unused.
static void replace(sn_rewriter *r, sn_op *op, sn_value *const *with) {
    for (int i = 0; i < op->n_results; i++)
        if (sn_value_is_used(op->results[i]))
            sn_rewriter_replace(r, op->results[i], sn_build_cast(&r->builder, with[i], op->results[i]->type.dtype));
}

typedef struct shifted {
    sn_value *max, *difference, *exp, *sum; // over `axis`, kept with size 1
} shifted;

static shifted build_shifted(sn_builder *b, sn_value *x, int64_t axis) {
    shifted s = {.max = sn_build_reduce(b, SN_OP_REDUCE_MAX, x, 1, &axis, true)};
    s.difference = binary(b, SN_OP_SUB, x, s.max);
    s.exp = sn_build_unary(b, SN_OP_EXP, s.difference);
    s.sum = sn_build_reduce(b, SN_OP_REDUCE_SUM, s.exp, 1, &axis, true);
    return s;
}

static sn_value *decompose_softmax(sn_rewriter *r, sn_op *op) {
    sn_builder *b = sn_rewriter_at(r, op);
    shifted s = build_shifted(b, widened(b, op->operands[0]), sn_op_int(op, "axis"));
    sn_value *y = op->kind == SN_OP_SOFTMAX ? binary(b, SN_OP_MUL, s.exp, sn_build_unary(b, SN_OP_RECIPROCAL, s.sum))
                                            : binary(b, SN_OP_SUB, s.difference, sn_build_unary(b, SN_OP_LOG, s.sum));
    return sn_build_cast(b, y, op->results[0]->type.dtype);
}

// The mean over dims axis..., kept with size 1.
static sn_value *build_mean(sn_builder *b, sn_value *x, int axis) {
    int64_t axes[SN_MAX_RANK];
    double elements = 1;
    int count = 0;
    for (int i = axis; i < x->type.rank; i++) {
        axes[count++] = i;
        elements *= (double)x->type.dim[i];
    }
    return scaled(b, sn_build_reduce(b, SN_OP_REDUCE_SUM, x, count, axes, true), 1 / elements);
}

static sn_value *decompose_norm(sn_rewriter *r, sn_op *op) {
    sn_builder *b = sn_rewriter_at(r, op);
    int axis = (int)sn_op_int(op, "axis");
    sn_value *x = widened(b, op->operands[0]), *mean = NULL;
    if (op->kind == SN_OP_LAYER_NORM) {
        mean = build_mean(b, x, axis);
        x = binary(b, SN_OP_SUB, x, mean);
    }
    sn_value *variance = build_mean(b, binary(b, SN_OP_MUL, x, x), axis);
    sn_value *rstd =
        sn_build_unary(b, SN_OP_RSQRT, sn_build_binary_number(b, SN_OP_ADD, variance, sn_op_float(op, "eps")));
    sn_value *y = binary(b, SN_OP_MUL, x, rstd);
    if (!sn_is_number(op->operands[1], 1)) y = binary(b, SN_OP_MUL, y, widened(b, op->operands[1]));
    if (op->n_operands > 2) y = binary(b, SN_OP_ADD, y, widened(b, op->operands[2]));
    sn_value *results[] = {y, mean ? mean : rstd, rstd};
    replace(r, op, results);
    return NULL;
}

// The logit of each label as a row sum of which one term counts: it fuses with the row's other sums.
static sn_value *build_picked(sn_builder *b, sn_value *x, sn_value *labels, int64_t axis) {
    sn_type classes = labels->type;
    for (int i = 0; i < classes.rank; i++) classes.dim[i] = i == axis ? x->type.dim[i] : 1;
    sn_value *is_label = binary(b, SN_OP_EQUAL, sn_build_iota(b, classes, (int)axis), labels);
    sn_value *only = sn_build_where(b, is_label, x, sn_build_number_like(b, x, 0));
    return sn_build_reduce(b, SN_OP_REDUCE_SUM, only, 1, &axis, true);
}

static sn_value *decompose_cross_entropy(sn_rewriter *r, sn_op *op) {
    sn_builder *b = sn_rewriter_at(r, op);
    int64_t axis = sn_op_int(op, "axis");
    sn_value *x = widened(b, op->operands[0]);
    sn_type row = x->type, loss = op->results[0]->type;
    row.dim[axis] = 1;
    sn_value *labels = sn_build_reshape(b, op->operands[1], row.rank, row.dim);
    shifted s = build_shifted(b, x, axis);
    sn_value *lse = binary(b, SN_OP_ADD, sn_build_unary(b, SN_OP_LOG, s.sum), s.max);
    sn_value *ignored = sn_build_binary_number(b, SN_OP_EQUAL, labels, (double)sn_op_int(op, "ignore_index"));
    sn_value *y = sn_build_where(b, ignored, sn_build_number_like(b, x, 0),
                                 binary(b, SN_OP_SUB, lse, build_picked(b, x, labels, axis)));
    sn_value *results[] = {sn_build_reshape(b, y, loss.rank, loss.dim), sn_build_reshape(b, lse, loss.rank, loss.dim)};
    replace(r, op, results);
    return NULL;
}

static sn_value *decompose_sgd(sn_rewriter *r, sn_op *op) {
    sn_builder *b = sn_rewriter_at(r, op);
    sn_value *parameter = widened(b, op->operands[0]), *buffer = NULL;
    sn_dtype dtype = parameter->type.dtype;
    sn_value *direction = sn_build_cast(b, op->operands[1], dtype), *rate = sn_build_cast(b, op->operands[2], dtype);
    double decay = sn_op_float(op, "weight_decay"), momentum = sn_op_float(op, "momentum");
    if (decay != 0) direction = binary(b, SN_OP_ADD, direction, scaled(b, parameter, decay));
    if (op->n_operands > 3) {
        buffer = binary(b, SN_OP_ADD, scaled(b, sn_build_cast(b, op->operands[3], dtype), momentum),
                        scaled(b, direction, 1 - sn_op_float(op, "dampening")));
        direction = sn_op_int(op, "nesterov") ? binary(b, SN_OP_ADD, direction, scaled(b, buffer, momentum)) : buffer;
    }
    sn_value *updated = binary(b, SN_OP_SUB, parameter, binary(b, SN_OP_MUL, rate, direction));
    sn_value *results[] = {updated, buffer ? buffer : updated};
    replace(r, op, results);
    return NULL;
}

// 1 - beta^step in f64: with f32, the first steps of beta = 0.999 would lose four digits.
static sn_value *build_correction(sn_builder *b, sn_value *step, double beta) {
    sn_value *power = binary(b, SN_OP_POW, sn_build_constant(b, SN_F64, beta), sn_build_cast(b, step, SN_F64));
    return binary(b, SN_OP_SUB, sn_build_constant(b, SN_F64, 1), power);
}

// Adam's moments, and x - rate / c1 * m / (sqrt(v) / c2 + eps) with the corrections c1 = 1 - beta1^step and
// c2 = sqrt(1 - beta2^step) (Kingma and Ba 2015, algorithm 1). What is the same for all elements is a scalar of its
// own, which cse shares between parameters.
static sn_value *decompose_adam(sn_rewriter *r, sn_op *op) {
    sn_builder *b = sn_rewriter_at(r, op);
    double beta1 = sn_op_float(op, "beta1"), beta2 = sn_op_float(op, "beta2"), decay = sn_op_float(op, "weight_decay");
    sn_value *parameter = widened(b, op->operands[0]), *step = op->operands[5];
    sn_dtype dtype = parameter->type.dtype;
    sn_value *gradient = sn_build_cast(b, op->operands[1], dtype);
    sn_value *m = sn_build_cast(b, op->operands[2], dtype), *v = sn_build_cast(b, op->operands[3], dtype);
    sn_value *rate = sn_build_cast(b, op->operands[4], dtype);
    sn_value *c1 = build_correction(b, step, beta1);
    sn_value *c2 = sn_build_unary(b, SN_OP_RSQRT, build_correction(b, step, beta2));
    sn_value *pace = binary(b, SN_OP_DIV, sn_build_cast(b, op->operands[4], SN_F64), c1);
    pace = sn_build_cast(b, pace, dtype);
    c2 = sn_build_cast(b, c2, dtype);

    if (decay != 0 && sn_op_int(op, "decoupled")) {
        sn_value *kept = binary(b, SN_OP_SUB, sn_build_number_like(b, rate, 1), scaled(b, rate, decay));
        parameter = binary(b, SN_OP_MUL, parameter, kept);
    } else if (decay != 0) {
        gradient = binary(b, SN_OP_ADD, gradient, scaled(b, parameter, decay));
    }
    m = binary(b, SN_OP_ADD, scaled(b, m, beta1), scaled(b, gradient, 1 - beta1));
    sn_value *square = binary(b, SN_OP_MUL, gradient, gradient);
    v = binary(b, SN_OP_ADD, scaled(b, v, beta2), scaled(b, square, 1 - beta2));
    sn_value *root = binary(b, SN_OP_MUL, sn_build_unary(b, SN_OP_SQRT, v), c2);
    sn_value *divisor = sn_build_binary_number(b, SN_OP_ADD, root, sn_op_float(op, "eps"));
    sn_value *change = binary(b, SN_OP_DIV, binary(b, SN_OP_MUL, m, pace), divisor);
    sn_value *results[] = {binary(b, SN_OP_SUB, parameter, change), m, v};
    replace(r, op, results);
    return NULL;
}

// The library call takes operands of one type, which a mask of its own need not have: then all is computed in f32.
static sn_value *widen_attention(sn_rewriter *r, sn_op *op) {
    sn_dtype dtype = op->operands[0]->type.dtype;
    int mask = op->kind == SN_OP_ATTENTION ? 3 : 6;
    if (sn_dtype_bytes(dtype) != 2 || op->n_operands <= mask || op->operands[mask]->type.dtype == dtype) return NULL;
    sn_builder *b = sn_rewriter_at(r, op);
    sn_value *operands[8], *results[3];
    SN_CHECK(op->n_operands <= 8 && op->n_results <= 3);
    for (int i = 0; i < op->n_operands; i++) operands[i] = sn_build_cast(b, op->operands[i], SN_F32);
    sn_op *wide = sn_build(b, op->kind, op->n_operands, operands, op->n_attrs, op->attrs, NULL);
    for (int i = 0; i < op->n_results; i++) results[i] = sn_build_cast(b, wide->results[i], op->results[i]->type.dtype);
    replace(r, op, results);
    return NULL;
}

void sn_decompose_cross_entropy(sn_module *module, sn_pass_context *context) {
    static const sn_rule rules[SN_OP_COUNT] = {[SN_OP_CROSS_ENTROPY] = decompose_cross_entropy};
    sn_rewrite(module, context, rules);
    for (size_t i = 0; i < module->funcs.count; i++) {
        SN_FOR_OPS_SAFE(op, module->funcs.data[i]) {
            bool replaced = op->kind == SN_OP_CROSS_ENTROPY && !sn_value_is_used(op->results[0]);
            if (replaced && !sn_value_is_used(op->results[1])) sn_op_erase(op);
        }
    }
}

static void run(sn_module *module, sn_pass_context *context) {
    static const sn_rule rules[SN_OP_COUNT] = {
        [SN_OP_ATTENTION] = widen_attention,
        [SN_OP_ATTENTION_GRAD] = widen_attention,
        [SN_OP_SOFTMAX] = decompose_softmax,
        [SN_OP_LOG_SOFTMAX] = decompose_softmax,
        [SN_OP_LAYER_NORM] = decompose_norm,
        [SN_OP_RMS_NORM] = decompose_norm,
        [SN_OP_CROSS_ENTROPY] = decompose_cross_entropy,
        [SN_OP_SGD] = decompose_sgd,
        [SN_OP_ADAM] = decompose_adam,
    };
    sn_rewrite(module, context, rules);
}

const sn_pass sn_pass_decompose = {
    .name = "decompose",
    .summary = "states composite operators in reductions and pointwise operators",
    .forms = 1 << SN_FORM_GRAPH | 1 << SN_FORM_SCHED, // values of dist form would lose their layouts
    .run = run,
};
