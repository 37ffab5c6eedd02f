// Attention of 16-bit floats: the query heads that share a key/value head are copied to f32, computed as any other
// attention, and rounded on the way back, one key/value head a thread.
#include "base/alloc.h"
#include "runtime/device/cpu/cpu.h"

#include <omp.h>
#include <stdatomic.h>

// The problem of one key/value head in f32, every operand dense, and the floats that its copies take.
typedef struct wide_problem {
    sn_do_attention a;
    int64_t q, k, v, o, mask, copies;
} wide_problem;

static int64_t set_strides(int64_t stride[3], int64_t heads, int64_t rows, int64_t width) {
    stride[0] = heads * rows * width, stride[1] = rows * width, stride[2] = width;
    return stride[0];
}

static wide_problem widen_problem(const sn_do_attention *a) {
    wide_problem w = {.a = *a};
    int64_t group = a->heads / a->kv_heads, mask_dims[3] = {group, a->sq, a->skv};
    w.a.dtype = SN_F32;
    w.a.batch = w.a.kv_heads = 1;
    w.a.heads = group;
    w.q = set_strides(w.a.q_stride, group, a->sq, a->d);
    w.k = set_strides(w.a.k_stride, 1, a->skv, a->d);
    w.v = set_strides(w.a.v_stride, 1, a->skv, a->dv);
    w.o = set_strides(w.a.o_stride, group, a->sq, a->dv);
    (void)set_strides(w.a.grad_q_stride, group, a->sq, a->d);
    (void)set_strides(w.a.grad_k_stride, 1, a->skv, a->d);
    (void)set_strides(w.a.grad_v_stride, 1, a->skv, a->dv);
    (void)set_strides(w.a.grad_o_stride, group, a->sq, a->dv);
    w.mask = a->mask.buffer >= 0;
    for (int d = 2; d >= 0; d--) { // what broadcasts is copied once
        bool broadcasts = a->mask_stride[d + 1] == 0;
        w.a.mask_stride[d + 1] = broadcasts ? 0 : w.mask;
        if (!broadcasts) w.mask *= mask_dims[d];
    }
    w.copies = 2 * (w.q + w.k + w.v + w.o) + w.mask;
    return w;
}

int64_t sn_cpu_attention_half_scratch(const sn_do_attention *a) {
    wide_problem w = widen_problem(a);
    return w.copies + sn_cpu_attention_scratch(&w.a);
}

static const uint16_t *at(const void *base, const int64_t *stride, int64_t batch, int64_t head) {
    return (const uint16_t *)base + batch * stride[0] + head * stride[1];
}

// [heads, rows, width] with the source's strides of heads, rows and columns, to dense.
static void widen(sn_dtype dtype, const uint16_t *from, const int64_t *stride, int64_t step, int64_t heads,
                  int64_t rows, int64_t width, float *to) {
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < width; j++) {
                uint16_t half = from[h * stride[0] + i * stride[1] + j * step];
                *to++ = dtype == SN_BF16 ? sn_bf16_to_f32(half) : sn_f16_to_f32(half);
            }
}

static void narrow(sn_dtype dtype, const float *from, int64_t heads, int64_t rows, int64_t width, const uint16_t *to,
                   const int64_t *stride) {
    uint16_t *halves = (uint16_t *)(uintptr_t)to;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < width; j++, from++)
                halves[h * stride[0] + i * stride[1] + j] =
                    dtype == SN_BF16 ? sn_bf16_from_f32(*from) : sn_f16_from_f32(*from);
}

static void widen_mask(const sn_do_attention *a, const wide_problem *w, const uint16_t *mask, float *to) {
    const int64_t *s = a->mask_stride;
    widen(a->dtype, mask, &s[1], s[3], s[1] ? w->a.heads : 1, s[2] ? a->sq : 1, s[3] ? a->skv : 1, to);
}

// Batch and key/value head `task`; grad: backwards.
static sn_status run_task(const sn_do_attention *a, const sn_attention_operands *x, bool grad, int64_t task,
                          float *scratch) {
    wide_problem w = widen_problem(a);
    int64_t batch = task / a->kv_heads, kv = task % a->kv_heads, group = w.a.heads, head = kv * group;
    float *q = scratch, *k = q + w.q, *v = k + w.k, *o = v + w.v, *grad_q = o + w.o, *grad_k = grad_q + w.q;
    float *grad_v = grad_k + w.k, *grad_o = grad_v + w.v, *mask = grad_o + w.o, *rest = mask + w.mask;
    float *lse = x->lse + (batch * a->heads + head) * a->sq;
    sn_attention_operands wide = {q, k, v, x->mask ? mask : NULL, o, lse, grad_o, grad_q, grad_k, grad_v};
    widen(a->dtype, at(x->q, a->q_stride, batch, head), &a->q_stride[1], 1, group, a->sq, a->d, q);
    widen(a->dtype, at(x->k, a->k_stride, batch, kv), &a->k_stride[1], 1, 1, a->skv, a->d, k);
    widen(a->dtype, at(x->v, a->v_stride, batch, kv), &a->v_stride[1], 1, 1, a->skv, a->dv, v);
    if (x->mask) widen_mask(a, &w, at(x->mask, a->mask_stride, batch, head), mask);
    const uint16_t *out = at(x->o, a->o_stride, batch, head);
    if (!grad) {
        SN_TRY(sn_cpu_attention(&w.a, &wide, 1, rest));
        narrow(a->dtype, o, group, a->sq, a->dv, out, &a->o_stride[1]);
        return SN_OK;
    }
    widen(a->dtype, out, &a->o_stride[1], 1, group, a->sq, a->dv, o);
    widen(a->dtype, at(x->grad_o, a->grad_o_stride, batch, head), &a->grad_o_stride[1], 1, group, a->sq, a->dv, grad_o);
    SN_TRY(sn_cpu_attention_grad(&w.a, &wide, 1, rest));
    narrow(a->dtype, grad_q, group, a->sq, a->d, at(x->grad_q, a->grad_q_stride, batch, head), &a->grad_q_stride[1]);
    narrow(a->dtype, grad_k, 1, a->skv, a->d, at(x->grad_k, a->grad_k_stride, batch, kv), &a->grad_k_stride[1]);
    narrow(a->dtype, grad_v, 1, a->skv, a->dv, at(x->grad_v, a->grad_v_stride, batch, kv), &a->grad_v_stride[1]);
    return SN_OK;
}

sn_status sn_cpu_attention_half(const sn_do_attention *a, const sn_attention_operands *x, bool grad, int threads,
                                float *scratch) {
    _Atomic(sn_status) failed = SN_OK;
    int64_t stride = sn_cpu_attention_half_scratch(a), count = a->batch * a->kv_heads;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (count > 1)
    for (int64_t i = 0; i < count; i++) {
        sn_status status = run_task(a, x, grad, i, scratch + omp_get_thread_num() * stride), none = SN_OK;
        if (status && !atomic_compare_exchange_strong(&failed, &none, status)) sn_status_free(status);
    }
    return failed;
}
