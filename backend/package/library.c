#include "backend/package/library.h"

#include "base/bug.h"

#include <string.h>

// A matrix inside a strided operand: rows and columns of the last two dims, swapped first when the op says so.
typedef struct matrix {
    int64_t rows, columns, row_stride, column_stride;
} matrix;

static matrix matrix_of(const sn_strided *s, bool transpose) {
    int r = s->rank - 2 + transpose, c = s->rank - 1 - transpose;
    return (matrix){s->dim[r], s->dim[c], s->stride[r], s->stride[c]};
}

// How BLAS sees it: *transposed when the columns are the ones that lie apart. False when neither stride is 1.
static bool leading_dim(matrix m, bool *transposed, int64_t *ld) {
    if ((m.columns == 1 || m.column_stride == 1) && (m.rows == 1 || m.row_stride >= m.columns)) {
        *transposed = false;
        *ld = m.rows == 1 ? m.columns : m.row_stride;
        return true;
    }
    if ((m.rows == 1 || m.row_stride == 1) && (m.columns == 1 || m.column_stride >= m.rows)) {
        *transposed = true;
        *ld = m.columns == 1 ? m.rows : m.column_stride;
        return true;
    }
    return false;
}

// Stride of an operand along dim `d` of the result, of which the operand's dims are the last ones.
static int64_t broadcast_stride(const sn_strided *s, int result_rank, int d) {
    int at = d - (result_rank - s->rank);
    return at < 0 || s->dim[at] == 1 ? 0 : s->stride[at];
}

// Rows of a that lie one batch after the other, against one b, are one larger product.
static void fold_batches(sn_do_gemm *g) {
    while (g->batch_rank > 0) {
        int64_t last = g->batch_rank - 1;
        if (g->batch[last] != 1 && (g->stride_b[last] != 0 || g->transpose_a || g->stride_a[last] != g->m * g->lda ||
                                    g->stride_c[last] != g->m * g->ldc))
            return;
        g->m *= g->batch[last];
        g->batch_rank--;
    }
}

static void call_matmul(const sn_op *op, const sn_library_operands *o, sn_do_gemm *out) {
    const sn_strided *a = &o->in[0], *b = &o->in[1], *c = &o->out[0];
    matrix ma = matrix_of(a, sn_op_int(op, "transpose_a") != 0), mb = matrix_of(b, sn_op_int(op, "transpose_b") != 0);
    matrix mc = matrix_of(c, false);
    sn_do_gemm g = {.dtype = SN_F32, .m = mc.rows, .n = mc.columns, .k = ma.columns, .alpha = 1};
    bool transposed;
    if (!leading_dim(ma, &g.transpose_a, &g.lda) || !leading_dim(mb, &g.transpose_b, &g.ldb) ||
        !leading_dim(mc, &transposed, &g.ldc) || transposed)
        SN_BUG("a matmul that no library takes reached the backend");
    for (int d = 0; d < c->rank - 2; d++) {
        if (c->dim[d] == 1) continue;
        g.batch[g.batch_rank] = c->dim[d];
        g.stride_a[g.batch_rank] = broadcast_stride(a, c->rank, d);
        g.stride_b[g.batch_rank] = broadcast_stride(b, c->rank, d);
        g.stride_c[g.batch_rank++] = c->stride[d];
    }
    fold_batches(&g);
    g.a = o->in_view[0], g.b = o->in_view[1], g.c = o->out_view[0];
    *out = g;
}

static void call_conv(const sn_op *op, const sn_library_operands *o, sn_do_conv *out) {
    // which operand (or the result, -1) is the input, the weights, the output
    int x = 0, w = 1, y = -1;
    if (op->kind == SN_OP_CONV_INPUT_GRAD) x = -1, y = 0;
    if (op->kind == SN_OP_CONV_WEIGHT_GRAD) w = -1, y = 1;
#define TENSOR(i) ((i) < 0 ? &o->out[0] : &o->in[i])
#define VIEW(i)   ((i) < 0 ? o->out_view[0] : o->in_view[i])
    const sn_strided *tx = TENSOR(x), *tw = TENSOR(w), *ty = TENSOR(y);
    const int64_t *strides = sn_op_ints(op, "strides", NULL), *pads = sn_op_ints(op, "pads", NULL),
                  *dilations = sn_op_ints(op, "dilations", NULL);
    *out = (sn_do_conv){.spatial = tx->rank - 2,
                        .batch = tx->dim[0],
                        .in_channels = tx->dim[1],
                        .out_channels = ty->dim[1],
                        .groups = sn_op_int(op, "groups"),
                        .x = VIEW(x),
                        .w = VIEW(w),
                        .y = VIEW(y)};
    for (int i = 0; i < tx->rank - 2; i++) {
        out->in[i] = tx->dim[2 + i];
        out->kernel[i] = tw->dim[2 + i];
        out->out[i] = ty->dim[2 + i];
        out->stride[i] = strides[i];
        out->dilation[i] = dilations[i];
        out->pad_begin[i] = pads[i];
        out->pad_end[i] = pads[tx->rank - 2 + i];
    }
#undef TENSOR
#undef VIEW
}

static void batch_head_row(const sn_strided *s, int64_t stride[3]) {
    for (int i = 0; i < 3; i++) stride[i] = s->stride[i];
}

static void call_attention(const sn_op *op, const sn_library_operands *o, sn_do_attention *out) {
    bool grad = op->kind == SN_OP_ATTENTION_GRAD;
    const sn_strided *q = &o->in[0], *k = &o->in[1], *v = &o->in[2];
    int mask = grad ? 6 : 3;
    sn_do_attention a = {.dtype = op->operands[0]->type.dtype,
                         .batch = q->dim[0],
                         .heads = q->dim[1],
                         .kv_heads = k->dim[1],
                         .sq = q->dim[2],
                         .skv = k->dim[2],
                         .d = q->dim[3],
                         .dv = v->dim[3],
                         .scale = sn_op_float(op, "scale"),
                         .causal = sn_op_int(op, "causal") != 0,
                         .q = o->in_view[0],
                         .k = o->in_view[1],
                         .v = o->in_view[2],
                         .mask = SN_NO_VIEW,
                         .grad_o = SN_NO_VIEW,
                         .grad_q = SN_NO_VIEW,
                         .grad_k = SN_NO_VIEW,
                         .grad_v = SN_NO_VIEW};
    batch_head_row(q, a.q_stride);
    batch_head_row(k, a.k_stride);
    batch_head_row(v, a.v_stride);
    if (op->n_operands > mask) {
        a.mask = o->in_view[mask];
        for (int d = 0; d < 4; d++) a.mask_stride[d] = broadcast_stride(&o->in[mask], 4, d);
    }
    const sn_strided *result = grad ? &o->in[3] : &o->out[0];
    a.o = grad ? o->in_view[3] : o->out_view[0];
    a.lse = grad ? o->in_view[4] : o->out_view[1];
    batch_head_row(result, a.o_stride);
    if (grad) {
        a.grad_o = o->in_view[5];
        a.grad_q = o->out_view[0], a.grad_k = o->out_view[1], a.grad_v = o->out_view[2];
        batch_head_row(&o->in[5], a.grad_o_stride);
        batch_head_row(&o->out[0], a.grad_q_stride);
        batch_head_row(&o->out[1], a.grad_k_stride);
        batch_head_row(&o->out[2], a.grad_v_stride);
    }
    *out = a;
}

void sn_library_call(const sn_op *op, const sn_library_operands *operands, sn_instr *out) {
    switch (op->kind) {
    case SN_OP_MATMUL:
        call_matmul(op, operands, &out->gemm);
        break;
    case SN_OP_CONV:
    case SN_OP_CONV_INPUT_GRAD:
    case SN_OP_CONV_WEIGHT_GRAD:
        call_conv(op, operands, &out->conv);
        break;
    case SN_OP_ATTENTION:
    case SN_OP_ATTENTION_GRAD:
        call_attention(op, operands, &out->attention);
        break;
    default:
        SN_BUG("%s is no library call", sn_op_name(op->kind));
    }
}
