// Fused attention. The scores of a block of query rows are the only part of the S×S matrix that exists, one block per
// thread; the backward pass computes them again from the row's log-sum-exp (Dao et al., "FlashAttention", 2022, section
// 3.2). A whole row of scores is held, so the softmax needs no rescaling.
//
// Forward tasks are (batch, head, block of rows). Backward tasks are (batch, key/value head): one thread adds up the
// gradients of k and v over all rows of all query heads that share the head, so nobody else writes there.
#include "base/alloc.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

enum { BLOCK = 64 };

typedef struct head { // one query head with what it reads and writes
    const float *q, *k, *v, *mask;
    float *o, *lse;
    const float *grad_o;
    float *grad_q, *grad_k, *grad_v;
} head;

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int64_t sn_cpu_attention_scratch(const sn_do_attention *a) {
    return 3 * BLOCK * a->skv + BLOCK; // scores, their gradients, softcap's slopes; one delta a row
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

// Scores of rows [first, first + rows) over the n columns that the last of them sees: softcap and mask applied, -inf
// beyond each row's own. slopes (optional, with softcap) receives d score / d (scaled product).
static sn_status scores(const sn_do_attention *a, const head *x, int64_t first, int64_t rows, int64_t n, float *s,
                        float *slopes) {
    SN_TRY(sn_cpu_sgemm(false, true, rows, n, a->d, (float)a->scale, x->q + first * a->q_stride[2], a->q_stride[2],
                        x->k, a->k_stride[2], 0, s, n));
    for (int64_t r = 0; r < rows; r++) {
        float *row = s + r * n, cap = (float)a->softcap;
        int64_t own = visible(a, first + r);
        for (int64_t j = 0; cap > 0 && j < own; j++) {
            float t = tanhf(row[j] / cap);
            row[j] = cap * t;
            if (slopes) slopes[r * n + j] = 1 - t * t;
        }
        if (x->mask) {
            const float *mask = x->mask + (first + r) * a->mask_stride[2];
            int64_t step = a->mask_stride[3];
            for (int64_t j = 0; j < own; j++) row[j] += mask[j * step];
        }
        for (int64_t j = own; j < n; j++) row[j] = -INFINITY;
    }
    return SN_OK;
}

static sn_status forward_block(const sn_do_attention *a, const head *x, int64_t first, float *s) {
    int64_t rows = least(BLOCK, a->sq - first), n = visible(a, first + rows - 1);
    float *o = x->o + first * a->o_stride[2], *lse = x->lse + first;
    float sums[BLOCK];
    if (n) SN_TRY(scores(a, x, first, rows, n, s, NULL));
    for (int64_t r = 0; r < rows; r++) {
        float max = sn_cpu_max_row(s + r * n, n);
        bool blind = max == -INFINITY; // the row sees nothing
        sums[r] = sn_cpu_exp_row(s + r * n, n, blind ? 0 : max);
        lse[r] = blind ? -INFINITY : max + logf(sums[r]);
        if (blind) sums[r] = 1;
    }
    if (n) {
        SN_TRY(sn_cpu_sgemm(false, false, rows, a->dv, n, 1, s, n, x->v, a->v_stride[2], 0, o, a->o_stride[2]));
    }
    for (int64_t r = 0; r < rows; r++) {
        if (n) {
            sn_cpu_scale_row(o + r * a->o_stride[2], a->dv, 1 / sums[r]);
        } else {
            memset(o + r * a->o_stride[2], 0, (size_t)a->dv * sizeof *o);
        }
    }
    return SN_OK;
}

// With P = exp(S - lse), δ = rowsum(dO ∘ O): dV += Pᵀ dO, dP = dO Vᵀ, dS = P ∘ (dP - δ), dQ = dS K, dK += dSᵀ Q.
static sn_status backward_block(const sn_do_attention *a, const head *x, int64_t first, float *scratch) {
    int64_t rows = least(BLOCK, a->sq - first), n = visible(a, first + rows - 1);
    int64_t o_row = a->grad_o_stride[2], q_row = a->grad_q_stride[2];
    const float *q = x->q + first * a->q_stride[2], *grad_o = x->grad_o + first * o_row;
    float *grad_q = x->grad_q + first * q_row;
    float *p = scratch, *dp = p + BLOCK * a->skv, *slopes = dp + BLOCK * a->skv;
    if (!n) {
        for (int64_t r = 0; r < rows; r++) memset(grad_q + r * q_row, 0, (size_t)a->d * sizeof *grad_q);
        return SN_OK;
    }
    SN_TRY(scores(a, x, first, rows, n, p, a->softcap > 0 ? slopes : NULL));
    for (int64_t r = 0; r < rows; r++) {
        float lse = x->lse[first + r];
        sn_cpu_exp_row(p + r * n, n, lse == -INFINITY ? 0 : lse);
    }
    SN_TRY(sn_cpu_sgemm(true, false, n, a->dv, rows, 1, p, n, grad_o, o_row, 1, x->grad_v, a->grad_v_stride[2]));
    SN_TRY(sn_cpu_sgemm(false, true, rows, n, a->dv, 1, grad_o, o_row, x->v, a->v_stride[2], 0, dp, n));
    for (int64_t r = 0; r < rows; r++) {
        float delta = sn_cpu_dot_row(grad_o + r * o_row, x->o + (first + r) * a->o_stride[2], a->dv);
        sn_cpu_softmax_grad_row(p + r * n, dp + r * n, dp + r * n, n, delta, (float)a->scale);
        int64_t own = visible(a, first + r);
        for (int64_t j = 0; a->softcap > 0 && j < own; j++) dp[r * n + j] *= slopes[r * n + j];
    }
    SN_TRY(sn_cpu_sgemm(false, false, rows, a->d, n, 1, dp, n, x->k, a->k_stride[2], 0, grad_q, q_row));
    return sn_cpu_sgemm(true, false, n, a->d, rows, 1, dp, n, q, a->q_stride[2], 1, x->grad_k, a->grad_k_stride[2]);
}

static sn_status backward_head(const sn_do_attention *a, const sn_attention_operands *x, int64_t task, float *scratch) {
    int64_t batch = task / a->kv_heads, kv = task % a->kv_heads, group = a->heads / a->kv_heads;
    head first = find_head(a, x, batch, kv * group);
    for (int64_t j = 0; j < a->skv; j++) {
        memset(first.grad_k + j * a->grad_k_stride[2], 0, (size_t)a->d * sizeof(float));
        memset(first.grad_v + j * a->grad_v_stride[2], 0, (size_t)a->dv * sizeof(float));
    }
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        head one = find_head(a, x, batch, h);
        for (int64_t row = 0; row < a->sq; row += BLOCK) SN_TRY(backward_block(a, &one, row, scratch));
    }
    return SN_OK;
}

static sn_status forward_task(const sn_do_attention *a, const sn_attention_operands *x, int64_t task, float *scratch) {
    int64_t blocks = (a->sq + BLOCK - 1) / BLOCK, h = task / blocks;
    head one = find_head(a, x, h / a->heads, h % a->heads);
    return forward_block(a, &one, (task % blocks) * BLOCK, scratch);
}

// Runs tasks [0, count) on the threads; the first error wins.
static sn_status
run_tasks(const sn_do_attention *a, const sn_attention_operands *x, int threads, float *scratch, int64_t count,
          sn_status (*task)(const sn_do_attention *, const sn_attention_operands *, int64_t, float *)) {
    _Atomic(sn_status) failed = SN_OK;
    int64_t stride = sn_cpu_attention_scratch(a);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (count > 1)
    for (int64_t i = 0; i < count; i++) {
        sn_status status = task(a, x, i, scratch + omp_get_thread_num() * stride), none = SN_OK;
        if (status && !atomic_compare_exchange_strong(&failed, &none, status)) sn_status_free(status);
    }
    return failed;
}

sn_status sn_cpu_attention(const sn_do_attention *a, const sn_attention_operands *x, int threads, float *scratch) {
    int64_t blocks = (a->sq + BLOCK - 1) / BLOCK;
    return run_tasks(a, x, threads, scratch, a->batch * a->heads * blocks, forward_task);
}

sn_status sn_cpu_attention_grad(const sn_do_attention *a, const sn_attention_operands *x, int threads, float *scratch) {
    return run_tasks(a, x, threads, scratch, a->batch * a->kv_heads, backward_head);
}
