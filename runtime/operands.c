#include "runtime/operands.h"

#include "runtime/mesh.h"

#include <string.h>

// Every list of dims is at most SN_OPERAND_DIMS long: batch and matrix, heads and rows, or a copy's.
static void add(sn_operands *out, const char *name, sn_view view, int access, sn_dtype dtype, int rank,
                const int64_t *dims, const int64_t *strides) {
    if (view.buffer < 0) return;
    sn_operand o = {
        .name = name, .view = view, .access = access, .element = (int64_t)sn_dtype_bytes(dtype), .rank = rank};
    SN_CHECK(rank <= SN_OPERAND_DIMS);
    memcpy(o.dims, dims, (size_t)rank * sizeof *dims);
    memcpy(o.strides, strides, (size_t)rank * sizeof *strides);
    sn_vec_push(out, o);
}

static void add_dense(sn_operands *out, const char *name, sn_view view, int access, sn_dtype dtype, int64_t count) {
    add(out, name, view, access, dtype, 1, &count, &(int64_t){1});
}

static void add_kernel(const sn_do_kernel *k, sn_operands *out) {
    for (size_t i = 0; i < k->args.count; i++)
        add_dense(out, "argument", k->args.items[i], (int)k->access.items[i], SN_U8, k->arg_bytes.items[i]);
}

static void add_matrix(sn_operands *out, const sn_do_gemm *g, const char *name, sn_view view, int access, int64_t rows,
                       int64_t columns, int64_t ld, const int64_t *strides) {
    int64_t dims[SN_OPERAND_DIMS], all[SN_OPERAND_DIMS];
    int rank = (int)g->batch_rank;
    for (int i = 0; i < rank; i++) dims[i] = g->batch[i], all[i] = strides[i];
    dims[rank] = rows, all[rank] = ld;
    dims[rank + 1] = columns, all[rank + 1] = 1;
    add(out, name, view, access, g->dtype, rank + 2, dims, all);
}

static void add_gemm(const sn_do_gemm *g, sn_operands *out) {
    bool ta = g->transpose_a, tb = g->transpose_b;
    add_matrix(out, g, "a", g->a, SN_ACCESS_READ, ta ? g->k : g->m, ta ? g->m : g->k, g->lda, g->stride_a);
    add_matrix(out, g, "b", g->b, SN_ACCESS_READ, tb ? g->n : g->k, tb ? g->k : g->n, g->ldb, g->stride_b);
    int access = g->beta != 0 ? SN_ACCESS_READ | SN_ACCESS_WRITE : SN_ACCESS_WRITE;
    add_matrix(out, g, "c", g->c, access, g->m, g->n, g->ldc, g->stride_c);
}

static void add_conv(sn_instr_kind kind, const sn_do_conv *v, sn_operands *out) {
    int64_t x = v->batch * v->in_channels, w = v->out_channels * (v->in_channels / v->groups);
    int64_t y = v->batch * v->out_channels;
    for (int64_t i = 0; i < v->spatial; i++) x *= v->in[i], w *= v->kernel[i], y *= v->out[i];
    int r = SN_ACCESS_READ, o = SN_ACCESS_WRITE;
    add_dense(out, "x", v->x, kind == SN_INSTR_CONV_INPUT_GRAD ? o : r, SN_F32, x);
    add_dense(out, "w", v->w, kind == SN_INSTR_CONV_WEIGHT_GRAD ? o : r, SN_F32, w);
    add_dense(out, "y", v->y, kind == SN_INSTR_CONV ? o : r, SN_F32, y);
}

static void add_heads(sn_operands *out, const sn_do_attention *a, const char *name, sn_view view, int access,
                      int64_t heads, int64_t rows, int64_t width, const int64_t stride[3]) {
    add(out, name, view, access, a->dtype, 4, (const int64_t[]){a->batch, heads, rows, width},
        (const int64_t[]){stride[0], stride[1], stride[2], 1});
}

static void add_attention(sn_instr_kind kind, const sn_do_attention *a, sn_operands *out) {
    bool grad = kind == SN_INSTR_ATTENTION_GRAD;
    int r = SN_ACCESS_READ, w = SN_ACCESS_WRITE, forward = grad ? r : w;
    add_heads(out, a, "q", a->q, r, a->heads, a->sq, a->d, a->q_stride);
    add_heads(out, a, "k", a->k, r, a->kv_heads, a->skv, a->d, a->k_stride);
    add_heads(out, a, "v", a->v, r, a->kv_heads, a->skv, a->dv, a->v_stride);
    add(out, "mask", a->mask, r, a->dtype, 4, (const int64_t[]){a->batch, a->heads, a->sq, a->skv}, a->mask_stride);
    add_heads(out, a, "o", a->o, forward, a->heads, a->sq, a->dv, a->o_stride);
    add_dense(out, "lse", a->lse, forward, SN_F32, a->batch * a->heads * a->sq);
    if (!grad) return;
    add_heads(out, a, "grad_o", a->grad_o, r, a->heads, a->sq, a->dv, a->grad_o_stride);
    add_heads(out, a, "grad_q", a->grad_q, w, a->heads, a->sq, a->d, a->grad_q_stride);
    add_heads(out, a, "grad_k", a->grad_k, w, a->kv_heads, a->skv, a->d, a->grad_k_stride);
    add_heads(out, a, "grad_v", a->grad_v, w, a->kv_heads, a->skv, a->dv, a->grad_v_stride);
}

static void add_collective(const sn_schedule *s, sn_instr_kind kind, const sn_do_collective *c, sn_operands *out) {
    int64_t group = sn_schedule_group_size(s, c->axes);
    bool wide_from = kind == SN_INSTR_REDUCE_SCATTER || kind == SN_INSTR_ALL_TO_ALL;
    bool wide_to = kind == SN_INSTR_ALL_GATHER || kind == SN_INSTR_ALL_TO_ALL;
    add_dense(out, "from", c->from, SN_ACCESS_READ, c->dtype, c->count * (wide_from ? group : 1));
    add_dense(out, "to", c->to, SN_ACCESS_WRITE, c->dtype, c->count * (wide_to ? group : 1));
}

void sn_instr_operands(const sn_schedule *s, const sn_instr *in, sn_operands *out) {
    switch (in->kind) {
    case SN_INSTR_KERNEL:
        add_kernel(&in->kernel, out);
        break;
    case SN_INSTR_GEMM:
        add_gemm(&in->gemm, out);
        break;
    case SN_INSTR_CONV:
    case SN_INSTR_CONV_INPUT_GRAD:
    case SN_INSTR_CONV_WEIGHT_GRAD:
        add_conv(in->kind, &in->conv, out);
        break;
    case SN_INSTR_ATTENTION:
    case SN_INSTR_ATTENTION_GRAD:
        add_attention(in->kind, &in->attention, out);
        break;
    case SN_INSTR_ALL_REDUCE:
    case SN_INSTR_ALL_GATHER:
    case SN_INSTR_REDUCE_SCATTER:
    case SN_INSTR_ALL_TO_ALL:
    case SN_INSTR_BROADCAST:
        add_collective(s, in->kind, &in->collective, out);
        break;
    case SN_INSTR_SEND:
    case SN_INSTR_RECV:
        add_dense(out, "view", in->transfer.view, in->kind == SN_INSTR_SEND ? SN_ACCESS_READ : SN_ACCESS_WRITE,
                  in->transfer.dtype, in->transfer.count);
        break;
    case SN_INSTR_COPY: {
        const sn_do_copy *c = &in->copy;
        add(out, "from", c->from, SN_ACCESS_READ, c->dtype, (int)c->rank, c->dims, c->from_stride);
        add(out, "to", c->to, SN_ACCESS_WRITE, c->dtype, (int)c->rank, c->dims, c->to_stride);
        break;
    }
    case SN_INSTR_FILL:
        add_dense(out, "to", in->fill.to, SN_ACCESS_WRITE, in->fill.dtype, in->fill.count);
        break;
    case SN_INSTR_RECORD:
    case SN_INSTR_WAIT:
    case SN_INSTR_COUNT:
        break;
    }
}

int64_t sn_operand_extent(const sn_operand *o) {
    int64_t last = 0;
    for (int i = 0; i < o->rank; i++) {
        if (o->dims[i] == 0) return 0;
        last += (o->dims[i] - 1) * o->strides[i];
    }
    return (last + 1) * o->element;
}
