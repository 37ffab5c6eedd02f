// Inside of the CPU device: what its files share.
#pragma once
#include "runtime/device/device.h"

#include <dnnl.h>

// Addresses of an attention's operands; NULL where there is none.
typedef struct sn_attention_operands {
    const float *q, *k, *v, *mask;
    float *o, *lse;
    const float *grad_o;
    float *grad_q, *grad_k, *grad_v;
} sn_attention_operands;

// Floats of scratch that one thread needs for either direction.
int64_t sn_cpu_attention_scratch(const sn_do_attention *attention);
// `scratch` holds threads * sn_cpu_attention_scratch floats.
SN_MUST_USE sn_status sn_cpu_attention(const sn_do_attention *attention, const sn_attention_operands *at, int threads,
                                       float *scratch);
SN_MUST_USE sn_status sn_cpu_attention_grad(const sn_do_attention *attention, const sn_attention_operands *at,
                                            int threads, float *scratch);

// p[j] = exp(p[j] - shift) for a row of n; returns the sum. Below exp(-87.3), about the least normal number, and of
// -inf the result is exactly 0; the rest is within 2 ulp. p[j] - shift must not exceed 88.
float sn_cpu_exp_row(float *p, int64_t n, float shift);
float sn_cpu_max_row(const float *p, int64_t n); // -inf when n = 0
void sn_cpu_scale_row(float *p, int64_t n, float factor);
float sn_cpu_dot_row(const float *a, const float *b, int64_t n);
// ds[j] = p[j] (dp[j] - delta) scale
void sn_cpu_softmax_grad_row(const float *p, const float *dp, float *ds, int64_t n, float delta, float scale);

// Matrix products, through the provider (oneDNN).
SN_MUST_USE sn_status sn_cpu_gemm(const sn_do_gemm *gemm, const float *a, const float *b, float *c, int threads);
// One product of row-major matrices on the threads of the calling context.
SN_MUST_USE sn_status sn_cpu_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha,
                                   const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                                   int64_t ldc);

// Convolutions: a oneDNN primitive with its memory descriptors, created once.
typedef struct sn_cpu_conv sn_cpu_conv;
SN_MUST_USE sn_status sn_cpu_conv_create(dnnl_engine_t engine, sn_instr_kind kind, const sn_do_conv *conv,
                                         sn_cpu_conv **out);
void sn_cpu_conv_destroy(sn_cpu_conv *conv);
int64_t sn_cpu_conv_scratch(const sn_cpu_conv *conv); // bytes that run needs, 64-byte aligned
SN_MUST_USE sn_status sn_cpu_conv_run(const sn_cpu_conv *conv, dnnl_stream_t stream, float *x, float *w, float *y,
                                      void *scratch);

void sn_cpu_copy(const sn_do_copy *copy, const void *from, void *to, int threads);
void sn_cpu_fill(const sn_do_fill *fill, void *to, int threads);

SN_MUST_USE sn_status sn_cpu_library_status(dnnl_status_t status, const char *what);
