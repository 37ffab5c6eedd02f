#include "passes/memory/strided.h"

#include <string.h>

bool sn_is_view_op(const sn_op *op) {
    return op->kind == SN_OP_RESHAPE || op->kind == SN_OP_TRANSPOSE || op->kind == SN_OP_SLICE ||
           op->kind == SN_OP_BROADCAST;
}

static bool swaps_heads(const sn_op *op) {
    if (op->kind != SN_OP_TRANSPOSE) return false;
    int rank;
    const int64_t *perm = sn_op_ints(op, "perm", &rank);
    return rank == 4 && perm[0] == 0 && perm[1] == 2 && perm[2] == 1 && perm[3] == 3;
}

bool sn_is_stored_transposed(const sn_value *value) {
    if (value->kind != SN_VALUE_RESULT || value->type.rank != 4 || !value->uses.count) return false;
    bool attention = value->def->kind == SN_OP_ATTENTION && value->index == 0;
    if (!attention && value->def->kind != SN_OP_ATTENTION_GRAD) return false;
    for (size_t i = 0; i < value->uses.count; i++) {
        const sn_op *user = value->uses.data[i].op;
        if (!swaps_heads(user) && user->kind != SN_OP_ATTENTION_GRAD) return false;
    }
    const sn_func *func = value->def->func;
    for (size_t i = 0; i < func->results.count; i++)
        if (func->results.data[i] == value) return false;
    return true;
}

bool sn_restores_transposed(const sn_op *op) {
    return swaps_heads(op) && sn_is_stored_transposed(op->operands[0]);
}

// The strides of a value that is not made by a view op.
static void root_strides(const sn_value *value, int64_t stride[SN_MAX_RANK]) {
    sn_type_strides(value->type, stride);
    if (!sn_is_stored_transposed(value)) return;
    const int64_t *dim = value->type.dim; // [B,H,S,D] lying as [B,S,H,D]
    stride[1] = dim[3];
    stride[2] = dim[1] * dim[3];
}

static void transpose_view(const sn_op *op, sn_strided *v) {
    sn_strided from = *v;
    const int64_t *perm = sn_op_ints(op, "perm", NULL);
    for (int d = 0; d < v->rank; d++) {
        v->dim[d] = from.dim[perm[d]];
        v->stride[d] = from.stride[perm[d]];
    }
}

static void slice_view(const sn_op *op, sn_strided *v) {
    const int64_t *starts = sn_op_ints(op, "starts", NULL), *steps = sn_op_ints(op, "steps", NULL);
    for (int d = 0; d < v->rank; d++) {
        v->dim[d] = op->results[0]->type.dim[d];
        if (v->dim[d] > 0) v->offset += starts[d] * v->stride[d];
        v->stride[d] *= steps[d];
    }
}

static void broadcast_view(const sn_op *op, sn_strided *v) {
    sn_strided from = *v;
    sn_type to = op->results[0]->type;
    v->rank = to.rank;
    for (int d = 0; d < to.rank; d++) {
        int at = d - (to.rank - from.rank);
        v->dim[d] = to.dim[d];
        v->stride[d] = at < 0 || from.dim[at] != to.dim[d] ? 0 : from.stride[at];
    }
}

// Splits and joins dims as numpy's reshape does without a copy: runs of old dims whose strides nest are matched with
// runs of new dims of the same product.
static bool reshape_view(const sn_op *op, sn_strided *v) {
    sn_strided from = {.rank = 0};
    for (int d = 0; d < v->rank; d++) { // dims of size 1 have no say
        if (v->dim[d] == 1) continue;
        from.dim[from.rank] = v->dim[d];
        from.stride[from.rank++] = v->stride[d];
    }
    sn_type to = op->results[0]->type;
    int64_t stride[SN_MAX_RANK] = {0};
    int i = 0, j = 0;
    while (i < from.rank && j < to.rank) {
        if (to.dim[j] == 1) {
            j++;
            continue;
        }
        int first_new = j;
        int64_t a = from.dim[i++], b = to.dim[j++];
        while (a != b) {
            if (a < b) {
                if (from.stride[i - 1] != from.stride[i] * from.dim[i]) return false;
                a *= from.dim[i++];
            } else {
                b *= to.dim[j++];
            }
        }
        int64_t step = from.stride[i - 1];
        for (int d = j - 1; d >= first_new; d--) {
            stride[d] = step;
            step *= to.dim[d];
        }
    }
    v->rank = to.rank;
    memcpy(v->dim, to.dim, sizeof v->dim);
    memcpy(v->stride, stride, sizeof v->stride);
    return true;
}

bool sn_strided_view(sn_value *value, sn_strided *out) {
    const sn_op *chain[64];
    int n = 0;
    while (value->kind == SN_VALUE_RESULT && sn_is_view_op(value->def)) {
        if (n == 64) return false;
        chain[n++] = value->def;
        value = value->def->operands[0];
    }
    sn_strided v = {.root = value, .rank = value->type.rank};
    memcpy(v.dim, value->type.dim, sizeof v.dim);
    root_strides(value, v.stride);
    if (sn_type_count(value->type) == 0 && n > 0) return false;
    while (n-- > 0) {
        switch (chain[n]->kind) {
        case SN_OP_TRANSPOSE:
            transpose_view(chain[n], &v);
            break;
        case SN_OP_SLICE:
            slice_view(chain[n], &v);
            break;
        case SN_OP_BROADCAST:
            broadcast_view(chain[n], &v);
            break;
        default:
            if (!reshape_view(chain[n], &v)) return false;
        }
    }
    *out = v;
    return true;
}

bool sn_strided_is_dense(const sn_strided *view) {
    int64_t step = 1;
    for (int d = view->rank - 1; d >= 0; d--) {
        if (view->dim[d] != 1 && view->stride[d] != step) return false;
        step *= view->dim[d];
    }
    return true;
}
