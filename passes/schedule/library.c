#include "passes/schedule/library.h"

bool sn_library_runs(const sn_op *op) {
    if (!sn_op_has(op->kind, SN_TRAIT_LIBRARY) || sn_type_count(op->results[0]->type) == 0) return false;
    for (int i = 0; i < op->n_operands; i++) {
        sn_type type = op->operands[i]->type;
        if (type.dtype != SN_F32 || sn_type_count(type) == 0) return false;
    }
    bool contraction = op->kind == SN_OP_MATMUL || op->kind == SN_OP_ATTENTION || op->kind == SN_OP_ATTENTION_GRAD;
    int spatial = op->operands[0]->type.rank - 2;
    return contraction || (spatial >= 1 && spatial <= 3);
}

// One of the last two strides is 1, the other spans at least that dim, and nothing runs backwards.
static bool takes_matrix(const sn_strided *v) {
    int64_t rows = v->dim[v->rank - 2], columns = v->dim[v->rank - 1];
    int64_t row = v->stride[v->rank - 2], column = v->stride[v->rank - 1];
    bool plain = (columns == 1 || column == 1) && (rows == 1 || row >= columns);
    bool transposed = (rows == 1 || row == 1) && (columns == 1 || column >= rows);
    for (int d = 0; d < v->rank - 2; d++)
        if (v->stride[d] < 0) return false;
    return plain || transposed;
}

static bool takes_heads(const sn_strided *v) {
    for (int d = 0; d < v->rank; d++)
        if (v->stride[d] < 0) return false;
    return v->dim[v->rank - 1] == 1 || v->stride[v->rank - 1] == 1;
}

bool sn_library_takes(const sn_op *op, int index, const sn_strided *view) {
    switch (op->kind) {
    case SN_OP_MATMUL:
        return takes_matrix(view);
    case SN_OP_ATTENTION: // q, k, v, mask
        return index == 3 || takes_heads(view);
    case SN_OP_ATTENTION_GRAD: // q, k, v, o, lse, grad_o, mask
        return index == 4 ? sn_strided_is_dense(view) : index == 6 || takes_heads(view);
    default:
        return sn_strided_is_dense(view);
    }
}
