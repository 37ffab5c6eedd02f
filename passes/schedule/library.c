#include "passes/schedule/library.h"

// Attention takes floats of 16 bits as well, and then its log-sum-exp in f32.
static bool takes_type(const sn_op *op, int operand) {
    sn_dtype dtype = op->operands[operand]->type.dtype;
    bool attends = op->kind == SN_OP_ATTENTION || op->kind == SN_OP_ATTENTION_GRAD;
    bool sums = op->kind == SN_OP_ATTENTION_GRAD && operand == 4;
    if (!attends || sums) return dtype == SN_F32;
    bool known = dtype == SN_F32 || dtype == SN_F16 || dtype == SN_BF16;
    return known && dtype == op->operands[0]->type.dtype;
}

bool sn_library_runs(const sn_op *op) {
    if (!sn_op_has(op->kind, SN_TRAIT_LIBRARY) || sn_type_count(op->results[0]->type) == 0) return false;
    for (int i = 0; i < op->n_operands; i++)
        if (!takes_type(op, i) || sn_type_count(op->operands[i]->type) == 0) return false;
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
