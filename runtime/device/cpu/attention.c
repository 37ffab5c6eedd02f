// Fused attention. The scores of a block of query rows are the only part of the S×S matrix that exists, one block per
// thread; the backward pass computes them again from the row's log-sum-exp (Dao et al., "FlashAttention", 2022, section
// 3.2). A whole row of scores is held, so the softmax needs no rescaling.
//
// Forward tasks are heads, or (head, block of rows) when there are few heads. Backward tasks are (batch, key/value
// head): one thread adds up the gradients of k and v over all rows of all query heads that share the head, so nobody
// else writes there.
#include "base/alloc.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

enum { BLOCK = 24 }; // two register tiles: with a causal mask, short blocks compute little that nobody sees

typedef struct head { // one query head with what it reads and writes
    const float *q, *k, *v, *mask;
    float *o, *lse;
    const float *grad_o;
    float *grad_q, *grad_k, *grad_v;
    float *kt, *vt; // k and v transposed, skv apart
} head;

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int64_t sn_cpu_attention_scratch(const sn_do_attention *a) {
    if (a->dtype != SN_F32) return sn_cpu_attention_half_scratch(a);
    return (3 * BLOCK + a->d + a->dv) * a->skv; // scores, their gradients, softcap's slopes; k and v transposed
}

static float *at(const float *base, const int64_t stride[3], int64_t batch, int64_t index) {
    return base ? (float *)(uintptr_t)(base + batch * stride[0] + index * stride[1]) : NULL;
}

static head find_head(const sn_do_attention *a, const sn_attention_operands *x, int64_t batch, int64_t h) {
    int64_t kv = h / (a->heads / a->kv_heads);
    return (head){
        .q = at(x->q, a->q_stride, batch, h),
        .k = at(x->k, a->k_stride, batch, kv),
        .v = at(x->v, a->v_stride, batch, kv),
        .mask = at(x->mask, a->mask_stride, batch, h),
        .o = at(x->o, a->o_stride, batch, h),
        .lse = x->lse + (batch * a->heads + h) * a->sq,
        .grad_o = at(x->grad_o, a->grad_o_stride, batch, h),
        .grad_q = at(x->grad_q, a->grad_q_stride, batch, h),
        .grad_k = at(x->grad_k, a->grad_k_stride, batch, kv),
        .grad_v = at(x->grad_v, a->grad_v_stride, batch, kv),
    };
}

// How many columns row i sees.
static int64_t visible(const sn_do_attention *a, int64_t i) {
    if (!a->causal) return a->skv;
    int64_t n = i + a->causal_offset + 1;
    return n < 0 ? 0 : least(n, a->skv);
}

typedef struct block { // of rows of scores
    int64_t first, rows;
    int64_t n; // columns that the last row sees, up to a multiple of the vector length
    int64_t seen[BLOCK];
} block;

static block find_block(const sn_do_attention *a, int64_t first) {
    enum { VECTOR = 16 };
    block b = {.first = first, .rows = least(BLOCK, a->sq - first)};
    for (int64_t r = 0; r < b.rows; r++) b.seen[r] = visible(a, first + r);
    b.n = least((b.seen[b.rows - 1] + VECTOR - 1) / VECTOR * VECTOR, a->skv);
    return b;
}

// Scores of a block, with softcap and mask applied. slopes (optional, with softcap) receives d score / d (scaled
// product).
static sn_status scores(const sn_do_attention *a, const head *x, const block *b, float *s, float *slopes) {
    const float *q = x->q + b->first * a->q_stride[2];
    SN_TRY(
        sn_cpu_sgemm(false, false, b->rows, b->n, a->d, (float)a->scale, q, a->q_stride[2], x->kt, a->skv, 0, s, b->n));
    if (a->softcap <= 0 && !x->mask) return SN_OK;
    for (int64_t r = 0; r < b->rows; r++) {
        float *row = s + r * b->n, cap = (float)a->softcap;
        for (int64_t j = 0; cap > 0 && j < b->seen[r]; j++) {
            float t = tanhf(row[j] / cap);
            row[j] = cap * t;
            if (slopes) slopes[r * b->n + j] = 1 - t * t;
        }
        if (!x->mask) continue;
        const float *mask = x->mask + (b->first + r) * a->mask_stride[2];
        int64_t step = a->mask_stride[3];
        for (int64_t j = 0; j < b->seen[r]; j++) row[j] += mask[j * step];
    }
    return SN_OK;
}

static sn_status forward_block(const sn_do_attention *a, const head *x, int64_t first, float *s) {
    block b = find_block(a, first);
    float *o = x->o + first * a->o_stride[2], sums[BLOCK];
    if (b.n) SN_TRY(scores(a, x, &b, s, NULL));
    sn_cpu_softmax_rows(s, b.rows, b.n, b.seen, x->lse + first, sums);
    if (!b.n) {
        for (int64_t r = 0; r < b.rows; r++) memset(o + r * a->o_stride[2], 0, (size_t)a->dv * sizeof *o);
        return SN_OK;
    }
    SN_TRY(sn_cpu_sgemm(false, false, b.rows, a->dv, b.n, 1, s, b.n, x->v, a->v_stride[2], 0, o, a->o_stride[2]));
    sn_cpu_divide_rows(o, b.rows, a->dv, a->o_stride[2], sums);
    return SN_OK;
}

// With P = exp(S - lse), δ = rowsum(dO ∘ O): dV += Pᵀ dO, dP = dO Vᵀ, dS = P ∘ (dP - δ), dQ = dS K, dK += dSᵀ Q.
static sn_status backward_block(const sn_do_attention *a, const head *x, int64_t first, float *scratch) {
    block b = find_block(a, first);
    int64_t rows = b.rows, n = b.n, o_row = a->grad_o_stride[2], q_row = a->grad_q_stride[2];
    const float *q = x->q + first * a->q_stride[2], *o = x->o + first * a->o_stride[2];
    const float *grad_o = x->grad_o + first * o_row;
    float *grad_q = x->grad_q + first * q_row, delta[BLOCK];
    float *p = scratch, *dp = p + BLOCK * a->skv, *slopes = dp + BLOCK * a->skv;
    if (!n) {
        for (int64_t r = 0; r < rows; r++) memset(grad_q + r * q_row, 0, (size_t)a->d * sizeof *grad_q);
        return SN_OK;
    }
    SN_TRY(scores(a, x, &b, p, a->softcap > 0 ? slopes : NULL));
    sn_cpu_exp_rows(p, rows, n, b.seen, x->lse + first);
    SN_TRY(sn_cpu_sgemm(true, false, n, a->dv, rows, 1, p, n, grad_o, o_row, 1, x->grad_v, a->grad_v_stride[2]));
    SN_TRY(sn_cpu_sgemm(false, false, rows, n, a->dv, 1, grad_o, o_row, x->vt, a->skv, 0, dp, n));
    sn_cpu_dot_rows(grad_o, o_row, o, a->o_stride[2], rows, a->dv, delta);
    sn_cpu_softmax_grad_rows(p, dp, rows, n, delta, (float)a->scale);
    for (int64_t r = 0; r < rows && a->softcap > 0; r++) {
        for (int64_t j = 0; j < b.seen[r]; j++) dp[r * n + j] *= slopes[r * n + j];
    }
    SN_TRY(sn_cpu_sgemm(false, false, rows, a->d, n, 1, dp, n, x->k, a->k_stride[2], 0, grad_q, q_row));
    return sn_cpu_sgemm(true, false, n, a->d, rows, 1, dp, n, q, a->q_stride[2], 1, x->grad_k, a->grad_k_stride[2]);
}

typedef struct attention {
    const sn_do_attention *a;
    const sn_attention_operands *at;
    int64_t blocks_per_task;
} attention;

static sn_status backward_head(const attention *job, int64_t task, float *scratch) {
    const sn_do_attention *a = job->a;
    int64_t batch = task / a->kv_heads, kv = task % a->kv_heads, group = a->heads / a->kv_heads;
    float *kt = scratch, *vt = kt + a->d * a->skv;
    head first = find_head(a, job->at, batch, kv * group);
    for (int64_t j = 0; j < a->skv; j++) {
        memset(first.grad_k + j * a->grad_k_stride[2], 0, (size_t)a->d * sizeof(float));
        memset(first.grad_v + j * a->grad_v_stride[2], 0, (size_t)a->dv * sizeof(float));
    }
    sn_cpu_transpose(a->skv, a->d, first.k, a->k_stride[2], kt, a->skv);
    sn_cpu_transpose(a->skv, a->dv, first.v, a->v_stride[2], vt, a->skv);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        head one = find_head(a, job->at, batch, h);
        one.kt = kt, one.vt = vt;
        for (int64_t row = 0; row < a->sq; row += BLOCK) SN_TRY(backward_block(a, &one, row, vt + a->dv * a->skv));
    }
    return SN_OK;
}

static int64_t count_blocks(const sn_do_attention *a) {
    return (a->sq + BLOCK - 1) / BLOCK;
}

static sn_status forward_task(const attention *job, int64_t task, float *scratch) {
    const sn_do_attention *a = job->a;
    int64_t blocks = count_blocks(a), parts = (blocks + job->blocks_per_task - 1) / job->blocks_per_task;
    int64_t h = task / parts, begin = task % parts * job->blocks_per_task;
    head one = find_head(a, job->at, h / a->heads, h % a->heads);
    one.kt = scratch;
    sn_cpu_transpose(a->skv, a->d, one.k, a->k_stride[2], one.kt, a->skv);
    for (int64_t i = begin; i < least(begin + job->blocks_per_task, blocks); i++)
        SN_TRY(forward_block(a, &one, i * BLOCK, scratch + a->d * a->skv));
    return SN_OK;
}

// Runs tasks [0, count) on the threads; the first error wins.
static sn_status run_tasks(const attention *job, int threads, float *scratch, int64_t count,
                           sn_status (*task)(const attention *, int64_t, float *)) {
    _Atomic(sn_status) failed = SN_OK;
    int64_t stride = sn_cpu_attention_scratch(job->a);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (count > 1)
    for (int64_t i = 0; i < count; i++) {
        sn_status status = task(job, i, scratch + omp_get_thread_num() * stride), none = SN_OK;
        if (status && !atomic_compare_exchange_strong(&failed, &none, status)) sn_status_free(status);
    }
    return failed;
}

sn_status sn_cpu_attention(const sn_do_attention *a, const sn_attention_operands *x, int threads, float *scratch) {
    if (a->dtype != SN_F32) return sn_cpu_attention_half(a, x, false, threads, scratch);
    int64_t blocks = count_blocks(a), heads = a->batch * a->heads;
    attention job = {a, x, heads >= 4 * threads ? blocks : 1};
    return run_tasks(&job, threads, scratch, heads * (heads >= 4 * threads ? 1 : blocks), forward_task);
}

sn_status sn_cpu_attention_grad(const sn_do_attention *a, const sn_attention_operands *x, int threads, float *scratch) {
    if (a->dtype != SN_F32) return sn_cpu_attention_half(a, x, true, threads, scratch);
    attention job = {a, x, 0};
    return run_tasks(&job, threads, scratch, a->batch * a->kv_heads, backward_head);
}
