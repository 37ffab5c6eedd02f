// Gradients of contractions and windows.
#include "passes/autodiff/gradient.h"

// The dims before the last two in one: [B, S, D] -> [B*S, D].
static sn_value *fold_batch(sn_gradient_walk *w, sn_value *x) {
    int rank = x->type.rank;
    int64_t cols = x->type.dim[rank - 1], dims[2] = {cols ? sn_type_count(x->type) / cols : 0, cols};
    return sn_build_reshape(w->b, x, 2, dims);
}

static bool is_shared(sn_type weights) { // one matrix for the whole batch
    for (int i = 0; i < weights.rank - 2; i++)
        if (weights.dim[i] != 1) return false;
    return true;
}

// y = A' B', where a flag says that the primed matrix is the transpose: dA' = g B'^T and dB' = A'^T g, and a transposed
// operand gets the transpose of that, by swapping the product's operands. No transpose is materialised. When one
// matrix B serves a batch of A, the batch is part of the sum: one 2-D product instead of a batch of partial ones.
void sn_gradient_matmul(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0), *a = op->operands[0], *b = op->operands[1];
    bool ta = sn_op_int(op, "transpose_a"), tb = sn_op_int(op, "transpose_b");
    if (sn_gradient_wanted(w, op, 0)) {
        sn_value *part = ta ? sn_build_matmul(w->b, b, g, tb, true) : sn_build_matmul(w->b, g, b, false, !tb);
        sn_gradient_send(w, op, 0, part);
    }
    if (!sn_gradient_wanted(w, op, 1)) return;
    if (!ta && is_shared(b->type) && !is_shared(a->type)) {
        sn_value *rows = fold_batch(w, a), *g_rows = fold_batch(w, g);
        sn_value *part =
            tb ? sn_build_matmul(w->b, g_rows, rows, true, false) : sn_build_matmul(w->b, rows, g_rows, true, false);
        sn_gradient_send(w, op, 1, g_reshape_as(w, part, b->type));
        return;
    }
    sn_value *part = tb ? sn_build_matmul(w->b, g, a, true, ta) : sn_build_matmul(w->b, a, g, !ta, false);
    sn_gradient_send(w, op, 1, part);
}

// The window operators carry the same attributes from a convolution to its gradients.
static sn_value *same_attrs(sn_gradient_walk *w, const sn_op *op, sn_op_kind kind, sn_value *x, sn_value *y,
                            sn_type type) {
    sn_value *operands[] = {x, y};
    const sn_type *typed = sn_op_has(kind, SN_TRAIT_TYPED) ? &type : NULL;
    return sn_build(w->b, kind, y ? 2 : 1, operands, op->n_attrs, op->attrs, typed)->results[0];
}

// conv, conv_input_grad and conv_weight_grad are the three ways to contract one trilinear form of (input, weights,
// output), so each one's gradients are the other two.
void sn_gradient_conv(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0), *x = op->operands[0], *k = op->operands[1];
    if (sn_gradient_wanted(w, op, 0))
        sn_gradient_send(w, op, 0, same_attrs(w, op, SN_OP_CONV_INPUT_GRAD, g, k, x->type));
    if (sn_gradient_wanted(w, op, 1))
        sn_gradient_send(w, op, 1, same_attrs(w, op, SN_OP_CONV_WEIGHT_GRAD, x, g, k->type));
}

void sn_gradient_conv_input_grad(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0), *x = op->operands[0], *k = op->operands[1];
    if (sn_gradient_wanted(w, op, 0)) sn_gradient_send(w, op, 0, same_attrs(w, op, SN_OP_CONV, g, k, x->type));
    if (sn_gradient_wanted(w, op, 1))
        sn_gradient_send(w, op, 1, same_attrs(w, op, SN_OP_CONV_WEIGHT_GRAD, g, x, k->type));
}

void sn_gradient_conv_weight_grad(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0), *x = op->operands[0], *y = op->operands[1];
    if (sn_gradient_wanted(w, op, 0))
        sn_gradient_send(w, op, 0, same_attrs(w, op, SN_OP_CONV_INPUT_GRAD, y, g, x->type));
    if (sn_gradient_wanted(w, op, 1)) sn_gradient_send(w, op, 1, same_attrs(w, op, SN_OP_CONV, x, g, y->type));
}

void sn_gradient_max_pool(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    if (!g) return;
    sn_gradient_send(w, op, 0, same_attrs(w, op, SN_OP_MAX_POOL_GRAD, g, op->results[1], op->operands[0]->type));
}

void sn_gradient_max_pool_grad(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    int64_t count = sn_type_count(g->type);
    sn_gradient_send(w, op, 0, sn_build_gather(w->b, sn_build_reshape(w->b, g, 1, &count), op->operands[1], 0));
}

void sn_gradient_avg_pool(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    sn_gradient_send(w, op, 0, same_attrs(w, op, SN_OP_AVG_POOL_GRAD, g, NULL, op->operands[0]->type));
}

void sn_gradient_avg_pool_grad(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    sn_gradient_send(w, op, 0, same_attrs(w, op, SN_OP_AVG_POOL, g, NULL, op->operands[0]->type));
}
