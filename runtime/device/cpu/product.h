// Products of small matrices, where a library's set-up and copies of its operands cost more than the arithmetic.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// Whether this machine runs sn_cpu_small_product (AVX-512).
bool sn_cpu_has_small_product(void);

// c = alpha op(a) b + beta c on one thread: op(a) is m by k (a is k by m when transposed), b is k by n, c is m by n,
// all row-major with leading dimensions lda, ldb, ldc. beta = 0 overwrites c. Sums run over k in order.
void sn_cpu_small_product(bool transpose_a, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
