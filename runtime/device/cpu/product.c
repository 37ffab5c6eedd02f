// A tile of c, 12 rows by 2 vectors, stays in registers while k runs: a step loads two vectors of b and broadcasts 12
// elements of a for 24 multiply-adds, more than the processor's two units need to stay busy. Nothing is copied, so
// panels of b (k by 32) should fit the first-level cache, as those of an attention head do.
#include "runtime/device/cpu/product.h"

#ifdef __x86_64__
#include <immintrin.h>

enum { LANES = 16, ROWS = 12, VECTORS = 2 };

#define AVX512 __attribute__((target("avx512f")))
#define INLINE static inline __attribute__((always_inline, target("avx512f")))

typedef struct tile {
    int64_t depth;
    const float *a, *b;
    int64_t a_row, a_step, ldb; // from row to row of op(a), and from step to step
    float *c;
    int64_t ldc;
    float alpha, beta;
    __mmask16 last; // columns of the last vector
} tile;

INLINE __m512 load(const tile *t, const float *from, bool last) {
    return last ? _mm512_maskz_loadu_ps(t->last, from) : _mm512_loadu_ps(from);
}

INLINE void store_sum(const tile *t, float *to, bool last, __m512 sum) {
    sum = _mm512_mul_ps(sum, _mm512_set1_ps(t->alpha));
    if (t->beta != 0) sum = _mm512_fmadd_ps(_mm512_set1_ps(t->beta), load(t, to, last), sum);
    _mm512_mask_storeu_ps(to, last ? t->last : 0xffff, sum);
}

// `rows`, `vectors` and `transposed` are constants where this is inlined, so `sum` lives in registers.
INLINE void multiply(const tile *t, int rows, int vectors, bool transposed) {
    __m512 sum[ROWS][VECTORS];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) sum[i][v] = _mm512_setzero_ps();
    }
    int64_t row = transposed ? 1 : t->a_row, step = transposed ? t->a_step : 1;
    const float *b = t->b, *a[ROWS / 3]; // a pointer for every third row: the others are at one or two strides
#pragma GCC unroll 4
    for (int i = 0; i < ROWS / 3; i++) a[i] = t->a + 3 * i * row;
#pragma GCC unroll 2
    for (int64_t p = 0; p < t->depth; p++) {
        __m512 x[VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) x[v] = load(t, b + v * LANES, v == vectors - 1);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            __m512 y = _mm512_set1_ps(a[i / 3][i % 3 * row]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[i][v] = _mm512_fmadd_ps(y, x[v], sum[i][v]);
        }
        b += t->ldb;
#pragma GCC unroll 4
        for (int i = 0; i < ROWS / 3; i++) a[i] += step;
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) store_sum(t, t->c + i * t->ldc + v * LANES, v == vectors - 1, sum[i][v]);
    }
}

#define TILE(rows, vectors, transposed)                                                                                \
    AVX512 static void tile_##rows##_##vectors##_##transposed(const tile *t) {                                         \
        multiply(t, rows, vectors, transposed);                                                                        \
    }
#define TILES(rows)                                                                                                    \
    TILE(rows, 1, 0)                                                                                                   \
    TILE(rows, 2, 0)                                                                                                   \
    TILE(rows, 1, 1)                                                                                                   \
    TILE(rows, 2, 1)
TILES(1)
TILES(2)
TILES(4)
TILES(8)
TILES(12)

#define NAMES(rows) tile_##rows##_1_0, tile_##rows##_2_0, tile_##rows##_1_1, tile_##rows##_2_1
typedef void (*multiply_tile)(const tile *t);
static const multiply_tile tiles[] = {NAMES(1), NAMES(2), NAMES(4), NAMES(8), NAMES(12)};
static const int tile_rows[] = {1, 2, 4, 8, 12};
enum { TILE_SIZES = sizeof tile_rows / sizeof *tile_rows };

bool sn_cpu_has_small_product(void) {
    return __builtin_cpu_supports("avx512f");
}

void sn_cpu_small_product(bool transpose_a, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    for (int64_t j = 0; j < n; j += VECTORS * LANES) {
        int64_t columns = n - j < VECTORS * LANES ? n - j : VECTORS * LANES;
        int64_t vectors = (columns + LANES - 1) / LANES, rest = columns - (vectors - 1) * LANES;
        tile t = {.depth = k,
                  .b = b + j,
                  .a_row = lda,
                  .a_step = lda,
                  .ldb = ldb,
                  .ldc = ldc,
                  .alpha = alpha,
                  .beta = beta,
                  .last = (__mmask16)((1U << rest) - 1)};
        for (int64_t i = 0, size = TILE_SIZES - 1; i < m; i += tile_rows[size]) {
            while (tile_rows[size] > m - i) size--;
            t.a = a + (transpose_a ? i : i * lda);
            t.c = c + i * ldc + j;
            tiles[(size * 2 + transpose_a) * VECTORS + vectors - 1](&t);
        }
    }
}

#else

bool sn_cpu_has_small_product(void) {
    return false;
}

void sn_cpu_small_product(bool transpose_a, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    (void)transpose_a, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta;
    (void)c, (void)ldc;
}

#endif
