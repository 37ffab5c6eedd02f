// Inside of the CPU device: what its files share.
#pragma once
#include "runtime/device/device.h"

#include <dnnl.h>

// Addresses of an attention's operands; NULL where there is none.
typedef struct sn_attention_operands {
    const void *q, *k, *v, *mask;
    void *o;
    float *lse;
    const void *grad_o;
    void *grad_q, *grad_k, *grad_v;
} sn_attention_operands;

// Floats of scratch that one thread needs for either direction.
int64_t sn_cpu_attention_scratch(const sn_do_attention *attention);
// `scratch` holds threads * sn_cpu_attention_scratch floats.
SN_MUST_USE sn_status sn_cpu_attention(const sn_do_attention *attention, const sn_attention_operands *at, int threads,
                                       float *scratch);
SN_MUST_USE sn_status sn_cpu_attention_grad(const sn_do_attention *attention, const sn_attention_operands *at,
                                            int threads, float *scratch);
int64_t sn_cpu_attention_half_scratch(const sn_do_attention *attention);
SN_MUST_USE sn_status sn_cpu_attention_half(const sn_do_attention *attention, const sn_attention_operands *at,
                                            bool grad, int threads, float *scratch);

// Rows of attention scores, n apart, of which row r sees the first seen[r]. Softmax without its division: p = exp(p -
// max of the row), its sum (1 when the row sees nothing but -inf) and log-sum-exp; 0 where the row does not see. Below
// exp(-87.3), about the least normal number, and of -inf the result is exactly 0; the rest is within 2 ulp.
void sn_cpu_softmax_rows(float *p, int64_t rows, int64_t n, const int64_t *seen, float *lse, float *sums);
// p = exp(p - lse of the row), 0 where the row does not see. The exponents must not exceed 88.
void sn_cpu_exp_rows(float *p, int64_t rows, int64_t n, const int64_t *seen, const float *lse);
void sn_cpu_divide_rows(float *p, int64_t rows, int64_t n, int64_t ld, const float *by);
void sn_cpu_dot_rows(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t rows, int64_t n, float *out);
// dp = p (dp - delta of the row) scale
void sn_cpu_softmax_grad_rows(const float *p, float *dp, int64_t rows, int64_t n, const float *delta, float scale);
// to[j][i] = from[i][j] for rows × columns elements.
void sn_cpu_transpose(int64_t rows, int64_t columns, const float *from, int64_t ld_from, float *to, int64_t ld_to);

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
