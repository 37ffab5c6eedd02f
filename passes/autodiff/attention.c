// The gradient of attention.
#include "passes/autodiff/gradient.h"

// Attention whose mask is trained (a bias of relative positions) or whose log-sum-exp is read: attention_grad states
// neither, so the scores are written out. With grouped queries, heads are [G, H/G] and k and v get a dim of size 1.
typedef struct scores {
    sn_value *q, *k, *v, *g, *p, *ds; // [B, G, R, S, *]
} scores;

static sn_value *split_heads(sn_gradient_walk *w, sn_value *x, int64_t groups) {
    sn_type t = x->type;
    int64_t dims[5] = {t.dim[0], groups, t.dim[1] / groups, t.dim[2], t.rank > 3 ? t.dim[3] : 1};
    return sn_build_reshape(w->b, x, 5, dims);
}

static sn_value *additive_mask(sn_gradient_walk *w, sn_op *op, int64_t groups) {
    sn_value *mask = op->operands[3];
    if (mask->type.rank == 4 && mask->type.dim[1] > 1) return split_heads(w, mask, groups);
    int64_t dims[5] = {1, 1, 1, 1, 1};
    for (int i = 0; i < mask->type.rank; i++) {
        int at = 4 - mask->type.rank + i; // among [B, H, S, T]
        dims[at < 1 ? 0 : at + 1] = mask->type.dim[i];
    }
    return sn_build_reshape(w->b, mask, 5, dims);
}

static sn_value *probabilities(sn_gradient_walk *w, sn_op *op, scores *s, int64_t groups) {
    sn_value *x = g_muln(w, sn_build_matmul(w->b, s->q, s->k, false, true), sn_op_float(op, "scale"));
    if (op->n_operands > 3) x = g_add(w, x, additive_mask(w, op, groups));
    sn_dtype dtype = op->results[1]->type.dtype;
    x = sn_build_cast(w->b, x, dtype);
    sn_value *lse = split_heads(w, op->results[1], groups);
    sn_value *p = g_un(w, SN_OP_EXP, g_sub(w, x, lse));
    // A row that sees no key has an lse of -inf, and no probabilities.
    sn_value *sees_none = sn_build_unary(w->b, SN_OP_IS_INF, lse);
    p = sn_build_where(w->b, sees_none, sn_build_number_like(w->b, p, 0), p);
    if (!sn_op_int(op, "causal")) return p;
    sn_type square = sn_type_make(SN_I64, 2, &x->type.dim[3]);
    sn_value *sees =
        sn_build_binary(w->b, SN_OP_LESS_EQUAL, sn_build_iota(w->b, square, 1), sn_build_iota(w->b, square, 0));
    return g_where(w, sees, p);
}

static void attention_in_full(sn_gradient_walk *w, sn_op *op) {
    int64_t groups = op->operands[1]->type.dim[1], last = 4;
    sn_value *g_out = sn_gradient_of(w, op, 0), *g_lse = sn_gradient_of(w, op, 1);
    sn_dtype dtype = op->operands[0]->type.dtype;
    scores s = {.q = split_heads(w, op->operands[0], groups),
                .k = split_heads(w, op->operands[1], groups),
                .v = split_heads(w, op->operands[2], groups)};
    s.p = probabilities(w, op, &s, groups);
    if (g_out) {
        s.g = split_heads(w, g_out, groups);
        sn_value *dp = sn_build_cast(w->b, sn_build_matmul(w->b, s.g, s.v, false, true), s.p->type.dtype);
        s.ds = g_mul(w, s.p, g_sub(w, dp, g_sum(w, g_mul(w, dp, s.p), 1, &last)));
        if (sn_gradient_wanted(w, op, 2)) {
            sn_value *p = sn_build_cast(w->b, s.p, dtype), *dv = sn_build_matmul(w->b, p, s.g, true, false);
            dv = sn_build_sum_to(w->b, dv, s.v->type);
            sn_gradient_send(w, op, 2, g_reshape_as(w, dv, op->operands[2]->type));
        }
    }
    if (g_lse) {
        sn_value *part = g_mul(w, s.p, split_heads(w, g_lse, groups));
        s.ds = s.ds ? g_add(w, s.ds, part) : part;
    }
    if (!s.ds) return;
    sn_value *ds = sn_build_cast(w->b, s.ds, dtype);
    double scale = sn_op_float(op, "scale");
    if (sn_gradient_wanted(w, op, 0)) {
        sn_value *dq = g_muln(w, sn_build_matmul(w->b, ds, s.k, false, false), scale);
        sn_gradient_send(w, op, 0, g_reshape_as(w, dq, op->operands[0]->type));
    }
    if (sn_gradient_wanted(w, op, 1)) {
        sn_value *dk = g_muln(w, sn_build_matmul(w->b, ds, s.q, true, false), scale);
        dk = sn_build_sum_to(w->b, dk, s.k->type);
        sn_gradient_send(w, op, 1, g_reshape_as(w, dk, op->operands[1]->type));
    }
    if (sn_gradient_wanted(w, op, 3)) {
        sn_type heads = op->operands[0]->type;
        heads.dim[3] = op->operands[1]->type.dim[2];
        sn_gradient_send(w, op, 3, g_reshape_as(w, ds, heads));
    }
}

void sn_gradient_attention(sn_gradient_walk *w, sn_op *op) {
    if (sn_gradient_wanted(w, op, 3) || sn_gradient_of(w, op, 1)) {
        attention_in_full(w, op);
        return;
    }
    sn_value *operands[7] = {op->operands[0], op->operands[1], op->operands[2],
                             op->results[0],  op->results[1],  sn_gradient_of(w, op, 0)};
    int n = 6;
    if (op->n_operands > 3) operands[n++] = op->operands[3];
    sn_op *grad = sn_build(w->b, SN_OP_ATTENTION_GRAD, n, operands, op->n_attrs, op->attrs, NULL);
    for (int i = 0; i < 3; i++) sn_gradient_send(w, op, i, grad->results[i]);
}
