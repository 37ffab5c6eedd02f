// How much arithmetic an op does and how many bytes it moves, from its factors (ir/factors.h).
#include "ir/factors.h"
#include "passes/cost/analytic.h"

#include <math.h>

bool sn_op_is_contraction(sn_op_kind kind) {
    static const bool contraction[SN_OP_COUNT] = {
        [SN_OP_MATMUL] = true,           [SN_OP_CONV] = true,      [SN_OP_CONV_INPUT_GRAD] = true,
        [SN_OP_CONV_WEIGHT_GRAD] = true, [SN_OP_ATTENTION] = true, [SN_OP_ATTENTION_GRAD] = true};
    return contraction[kind];
}

// Arithmetic for one point of the iteration space. Polynomials of about ten terms stand for transcendental functions.
static double flops_per_point(sn_op_kind kind) {
    static const double special[SN_OP_COUNT] = {
        [SN_OP_EXP] = 12,  [SN_OP_LOG] = 12,  [SN_OP_TANH] = 16,  [SN_OP_ERF] = 16,       [SN_OP_SIGMOID] = 16,
        [SN_OP_GELU] = 20, [SN_OP_SIN] = 16,  [SN_OP_COS] = 16,   [SN_OP_GELU_TANH] = 24, [SN_OP_POW] = 24,
        [SN_OP_SQRT] = 4,  [SN_OP_RSQRT] = 4, [SN_OP_DIV] = 4,    [SN_OP_SOFTMAX] = 16,   [SN_OP_LOG_SOFTMAX] = 16,
        [SN_OP_ADAM] = 18, [SN_OP_SGD] = 6,   [SN_OP_MATMUL] = 2, [SN_OP_LAYER_NORM] = 8, [SN_OP_RMS_NORM] = 5};
    return special[kind] > 0 ? special[kind] : sn_op_is_contraction(kind) ? 2 : 1;
}

// Two products of S x T x D a head forwards; backwards five, of which one repeats the scores (Dao et al. 2022).
static double attention_flops(const sn_op *op) {
    sn_type q = op->operands[0]->type, v = op->operands[2]->type;
    double points = (double)q.dim[0] * (double)q.dim[1] * (double)q.dim[2] * (double)v.dim[2];
    double products = op->kind == SN_OP_ATTENTION ? 1 : 2.5;
    double seen = sn_op_int(op, "causal") ? 0.5 : 1;
    return 2 * points * ((double)q.dim[3] + (double)v.dim[3]) * products * seen;
}

// Each element of the output is a product with one output channel's weights, and so is its part in the gradients.
static double conv_flops(const sn_op *op) {
    const sn_value *w = op->operands[1], *y = op->results[0];
    if (op->kind == SN_OP_CONV_INPUT_GRAD) y = op->operands[0];
    if (op->kind == SN_OP_CONV_WEIGHT_GRAD) w = op->results[0], y = op->operands[1];
    return 2 * (double)sn_type_count(y->type) * (double)sn_type_count(w->type) / (double)w->type.dim[0];
}

// A matrix product: its whole space. The rest visits each element of its largest value.
static double space_flops(const sn_op *op, sn_arena *scratch) {
    double points = 1;
    if (op->kind == SN_OP_MATMUL) {
        sn_factors factors;
        sn_factors_of(op, scratch, &factors);
        for (int i = 0; i < factors.n; i++) points *= (double)factors.factor[i].size;
    } else {
        for (int i = 0; i < op->n_operands; i++) points = fmax(points, (double)sn_type_count(op->operands[i]->type));
        for (int i = 0; i < op->n_results; i++) points = fmax(points, (double)sn_type_count(op->results[i]->type));
    }
    return points * flops_per_point(op->kind);
}

// Operands read and results written; of a value that is read in part, the part.
static double moved_bytes(const sn_op *op) {
    double bytes = 0;
    bool part = op->kind == SN_OP_GATHER || op->kind == SN_OP_SLICE || op->kind == SN_OP_SHARD;
    for (int i = 0; i < op->n_results; i++) bytes += (double)sn_type_bytes(op->results[i]->type);
    if (part) bytes *= 2;
    for (int i = part; i < op->n_operands; i++) bytes += (double)sn_type_bytes(op->operands[i]->type);
    return bytes;
}

bool sn_op_is_free(sn_op_kind kind) {
    return sn_op_has(kind, SN_TRAIT_VIEW) || kind == SN_OP_CONSTANT ||
           sn_op_has(kind, SN_TRAIT_SCHEDULE | SN_TRAIT_TRANSFER);
}

sn_work sn_op_work(const sn_op *op, sn_arena *scratch) {
    sn_work work = {0};
    if (sn_op_is_free(op->kind)) return work;
    work.bytes = moved_bytes(op);
    if (op->kind == SN_OP_KERNEL) {
        SN_FOR_OPS(inner, sn_op_func(op, "body")) {
            work.flops += sn_op_work(inner, scratch).flops;
        }
    } else if (op->kind == SN_OP_ATTENTION || op->kind == SN_OP_ATTENTION_GRAD) {
        work.flops = attention_flops(op);
    } else if (sn_op_is_contraction(op->kind) && op->kind != SN_OP_MATMUL) {
        work.flops = conv_flops(op);
    } else if (!sn_op_has(op->kind, SN_TRAIT_MOVEMENT) && !sn_op_has(op->kind, SN_TRAIT_COLLECTIVE)) {
        work.flops = space_flops(op, scratch);
    }
    return work;
}
