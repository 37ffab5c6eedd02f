// Operators over whole rows: softmax, normalisation, cross-entropy and attention.
#include "base/alloc.h"
#include "ir/interp_reference.h"

#include <math.h>
#include <string.h>

// log(sum(e^x)) of `length` numbers `stride` apart; -inf when all are -inf.
static double log_sum_exp(const double *x, int64_t length, int64_t stride) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < length; i++) max = isnan(max) || max > x[i * stride] ? max : x[i * stride];
    if (isinf(max)) return max;
    for (int64_t i = 0; i < length; i++) sum += exp(x[i * stride] - max);
    return max + log(sum);
}

const char *sn_reference_softmax(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_axis_split s = sn_split_at(in->type, (int)sn_op_int(op, "axis"));
    bool logarithm = op->kind == SN_OP_LOG_SOFTMAX;
    double *x = sn_tensor_doubles(in);
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t j = 0; j < s.inner; j++) {
            double *row = x + o * s.length * s.inner + j, lse = log_sum_exp(row, s.length, s.inner);
            for (int64_t i = 0; i < s.length; i++) {
                double shifted = row[i * s.inner] - lse;
                row[i * s.inner] = logarithm ? shifted : exp(shifted);
            }
        }
    sn_tensor_store_doubles(out, x);
    sn_free(x);
    return NULL;
}

// Operands that scale and shift a row broadcast against the normalised tensor.
typedef struct affine {
    double *scale, *bias;
    sn_walk walk;
} affine;

static affine affine_begin(const sn_op *op, const sn_tensor *in) {
    affine a = {.walk = sn_walk_over(in[0].type), .scale = sn_tensor_doubles(&in[1])};
    sn_walk_add_broadcast(&a.walk, in[1].type);
    if (op->n_operands > 2) {
        a.bias = sn_tensor_doubles(&in[2]);
        sn_walk_add_broadcast(&a.walk, in[2].type);
    }
    return a;
}

static double affine_apply(affine *a, double normal) {
    double y = normal * a->scale[a->walk.offset[0]] + (a->bias ? a->bias[a->walk.offset[1]] : 0);
    sn_walk_next(&a->walk);
    return y;
}

static void affine_end(affine *a) {
    sn_free(a->scale);
    sn_free(a->bias);
}

static int64_t row_length(const sn_op *op, sn_type x) {
    int64_t length = 1;
    for (int d = (int)sn_op_int(op, "axis"); d < x.rank; d++) length *= x.dim[d];
    return length;
}

const char *sn_reference_layer_norm(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    int64_t length = row_length(op, in->type), rows = length ? sn_type_count(in->type) / length : 0;
    double eps = sn_op_float(op, "eps"), *x = sn_tensor_doubles(in);
    affine a = affine_begin(op, in);
    for (int64_t r = 0; r < rows; r++) {
        double *row = x + r * length, mean = 0, variance = 0;
        for (int64_t i = 0; i < length; i++) mean += row[i] / (double)length;
        for (int64_t i = 0; i < length; i++) variance += (row[i] - mean) * (row[i] - mean) / (double)length;
        double rstd = 1 / sqrt(variance + eps);
        for (int64_t i = 0; i < length; i++)
            sn_put_f64(&out[0], r * length + i, affine_apply(&a, (row[i] - mean) * rstd));
        sn_put_f64(&out[1], r, mean);
        sn_put_f64(&out[2], r, rstd);
    }
    affine_end(&a);
    sn_free(x);
    return NULL;
}

const char *sn_reference_rms_norm(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    int64_t length = row_length(op, in->type), rows = length ? sn_type_count(in->type) / length : 0;
    double eps = sn_op_float(op, "eps"), *x = sn_tensor_doubles(in);
    affine a = affine_begin(op, in);
    for (int64_t r = 0; r < rows; r++) {
        double *row = x + r * length, mean = 0;
        for (int64_t i = 0; i < length; i++) mean += row[i] * row[i] / (double)length;
        double rstd = 1 / sqrt(mean + eps);
        for (int64_t i = 0; i < length; i++) sn_put_f64(&out[0], r * length + i, affine_apply(&a, row[i] * rstd));
        sn_put_f64(&out[1], r, rstd);
    }
    affine_end(&a);
    sn_free(x);
    return NULL;
}

const char *sn_reference_cross_entropy(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_axis_split s = sn_split_at(in->type, (int)sn_op_int(op, "axis"));
    int64_t ignored = sn_op_int(op, "ignore_index");
    double *x = sn_tensor_doubles(in);
    const char *problem = NULL;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t j = 0; j < s.inner; j++) {
            double *row = x + o * s.length * s.inner + j, lse = log_sum_exp(row, s.length, s.inner);
            int64_t at = o * s.inner + j, label = sn_at_i64(&in[1], at);
            bool counts = label != ignored, inside = label >= 0 && label < s.length;
            if (counts && !inside) problem = "label out of range";
            sn_put_f64(&out[0], at, counts && inside ? lse - row[label * s.inner] : 0);
            sn_put_f64(&out[1], at, lse);
        }
    sn_free(x);
    return problem;
}

// The operands of attention as doubles, with their sizes.
typedef struct attention {
    int64_t B, H, G, S, T, D, E;
    double scale, *q, *k, *v, *mask;
    bool causal;
    int64_t mask_stride[SN_MAX_RANK];
} attention;

static attention attention_begin(const sn_op *op, const sn_tensor *in, const sn_tensor *mask) {
    sn_type q = in[0].type, k = in[1].type, v = in[2].type;
    attention a = {.B = q.dim[0],
                   .H = q.dim[1],
                   .G = k.dim[1],
                   .S = q.dim[2],
                   .T = k.dim[2],
                   .D = q.dim[3],
                   .E = v.dim[3],
                   .scale = sn_op_float(op, "scale"),
                   .causal = sn_op_int(op, "causal")};
    a.q = sn_tensor_doubles(&in[0]);
    a.k = sn_tensor_doubles(&in[1]);
    a.v = sn_tensor_doubles(&in[2]);
    if (mask) {
        sn_type scores = q;
        scores.dim[3] = a.T;
        sn_broadcast_strides(mask->type, scores, a.mask_stride);
        a.mask = sn_tensor_doubles(mask);
    }
    return a;
}

static void attention_end(attention *a) {
    sn_free(a->q), sn_free(a->k), sn_free(a->v), sn_free(a->mask);
}

// The key and value head that query head h of batch entry b uses.
static int64_t group_of(const attention *a, int64_t b, int64_t h) {
    return b * a->G + h / (a->H / a->G);
}

static double dot(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

// The scores of one query, masked: scale q k^T + mask.
static void score_row(const attention *a, int64_t b, int64_t h, int64_t i, double *scores) {
    const double *q = a->q + ((b * a->H + h) * a->S + i) * a->D, *k = a->k + group_of(a, b, h) * a->T * a->D;
    const int64_t *m = a->mask_stride;
    for (int64_t j = 0; j < a->T; j++) {
        scores[j] = a->scale * dot(q, k + j * a->D, a->D);
        if (a->mask) scores[j] += a->mask[b * m[0] + h * m[1] + i * m[2] + j * m[3]];
        if (a->causal && j > i) scores[j] = -INFINITY;
    }
}

// Probabilities from scores; all 0 for a query that sees no key.
static void to_probabilities(double *scores, int64_t count, double lse) {
    for (int64_t j = 0; j < count; j++) scores[j] = lse == -INFINITY ? 0 : exp(scores[j] - lse);
}

const char *sn_reference_attention(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    attention a = attention_begin(op, in, op->n_operands > 3 ? &in[3] : NULL);
    double *scores = sn_alloc(sizeof *scores * (size_t)(a.T + 1));
    for (int64_t row = 0; row < a.B * a.H * a.S; row++) {
        int64_t b = row / (a.H * a.S), h = row / a.S % a.H;
        const double *v = a.v + group_of(&a, b, h) * a.T * a.E;
        score_row(&a, b, h, row % a.S, scores);
        double lse = log_sum_exp(scores, a.T, 1);
        to_probabilities(scores, a.T, lse);
        for (int64_t e = 0; e < a.E; e++) {
            double sum = 0;
            for (int64_t j = 0; j < a.T; j++) sum += scores[j] * v[j * a.E + e];
            sn_put_f64(&out[0], row * a.E + e, sum);
        }
        sn_put_f64(&out[1], row, lse);
    }
    sn_free(scores);
    attention_end(&a);
    return NULL;
}

// With P the probabilities and dP = dO v^T: dv = P^T dO, dS = P (dP - rowsum(dO O)), dq = scale dS k, dk = scale dS^T
// q.
static void attention_row_grad(const attention *a, int64_t row, const double *output, const double *grad, double lse,
                               double *scores, double *dq, double *dk, double *dv) {
    int64_t b = row / (a->H * a->S), h = row / a->S % a->H, group = group_of(a, b, h);
    const double *q = a->q + row * a->D, *k = a->k + group * a->T * a->D, *v = a->v + group * a->T * a->E;
    dq += row * a->D, dk += group * a->T * a->D, dv += group * a->T * a->E;
    score_row(a, b, h, row % a->S, scores);
    to_probabilities(scores, a->T, lse);
    double shared = dot(grad, output, a->E);
    for (int64_t j = 0; j < a->T; j++) {
        double ds = scores[j] * (dot(grad, v + j * a->E, a->E) - shared);
        for (int64_t e = 0; e < a->E; e++) dv[j * a->E + e] += scores[j] * grad[e];
        for (int64_t d = 0; d < a->D; d++) {
            dq[d] += a->scale * ds * k[j * a->D + d];
            dk[j * a->D + d] += a->scale * ds * q[d];
        }
    }
}

const char *sn_reference_attention_grad(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    attention a = attention_begin(op, in, op->n_operands > 6 ? &in[6] : NULL);
    double *scores = sn_alloc(sizeof *scores * (size_t)(a.T + 1)), *grads[3];
    double *output = sn_tensor_doubles(&in[3]), *lse = sn_tensor_doubles(&in[4]), *grad = sn_tensor_doubles(&in[5]);
    for (int i = 0; i < 3; i++) grads[i] = sn_alloc(sizeof(double) * (size_t)(sn_type_count(out[i].type) + 1));
    for (int64_t row = 0; row < a.B * a.H * a.S; row++)
        attention_row_grad(&a, row, output + row * a.E, grad + row * a.E, lse[row], scores, grads[0], grads[1],
                           grads[2]);
    for (int i = 0; i < 3; i++) {
        sn_tensor_store_doubles(&out[i], grads[i]);
        sn_free(grads[i]);
    }
    sn_free(scores), sn_free(output), sn_free(lse), sn_free(grad);
    attention_end(&a);
    return NULL;
}
