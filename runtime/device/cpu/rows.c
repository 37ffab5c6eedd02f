// Operations of the fused attention on rows, on 16 lanes at a time: the same order of additions on every machine, and
// AVX-512 where the machine has it.
#include "runtime/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t ilanes __attribute__((vector_size(LANES * sizeof(int32_t))));

#define WIDEST __attribute__((target_clones("default", "avx512f")))
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#undef WIDEST // the resolver of the clones would run before the sanitizer is set up
#define WIDEST
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE void load(lanes *out, const float *p) {
    memcpy(out, p, sizeof *out);
}
INLINE void store(float *p, const lanes *v) {
    memcpy(p, v, sizeof *v);
}

// The first n of 16 from p, `rest` elsewhere.
INLINE void load_some(lanes *out, const float *p, int64_t n, float rest) {
    if (n >= LANES) {
        load(out, p);
        return;
    }
    *out = (lanes){0} + rest;
    memcpy(out, p, (size_t)n * sizeof *p);
}
INLINE void store_some(float *p, const lanes *v, int64_t n) {
    if (n >= LANES) {
        store(p, v);
    } else {
        memcpy(p, v, (size_t)n * sizeof *p);
    }
}

// Lane i and lane i + width, of which the lower `width` count.
#define UPPER(v, width)                                                                                                \
    __builtin_shufflevector(v, v, 0 + width, 1 + width, 2 + width, 3 + width, 4 + width, 5 + width, 6 + width,         \
                            7 + width, 8 + width, 9 + width, 10 + width, 11 + width, 12 + width, 13 + width,           \
                            14 + width, 15 + width)

// In a fixed order: halves, quarters, …
INLINE float sum_lanes(const lanes *v) {
    lanes s = *v + UPPER(*v, 8);
    s += UPPER(s, 4);
    s += UPPER(s, 2);
    s += UPPER(s, 1);
    return s[0];
}

INLINE void keep_larger(lanes *max, const lanes *x) {
    ilanes more = *x > *max;
    *max = (lanes)(((ilanes)*x & more) | ((ilanes)*max & ~more));
}

// exp by range reduction x = n ln 2 + r and the polynomial of Cephes' expf for r in [-ln 2 / 2, ln 2 / 2] (S. L.
// Moshier). Below -87.3 (the least normal result) the result is 0; there is no overflow here as x <= 0 up to rounding.
INLINE void exp_lanes(lanes *v) {
    const float round = 0x1.8p23f; // adding it rounds to an integer
    lanes x = *v;
    ilanes tiny = x < -87.3f;
    x = (lanes)((ilanes)x & ~tiny);
    ilanes large = x > 88.0f;
    x = (lanes)(((ilanes)x & ~large) | ((ilanes)((lanes){0} + 88.0f) & large));
    lanes n = (x * 1.44269504088896341f + round) - round;
    lanes r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    lanes y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    ilanes power = (__builtin_convertvector(n, ilanes) + 127) << 23;
    y = y * (lanes)power;
    *v = (lanes)((ilanes)y & ~tiny);
}

// The 16 from p, of which `room` are there; -inf from the n-th on.
INLINE void load_seen(lanes *out, const float *p, int64_t n, int64_t room) {
    load_some(out, p, room, 0);
    if (n >= LANES) return;
    ilanes at = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    ilanes seen = at < (int32_t)n;
    *out = (lanes)(((ilanes)*out & seen) | ((ilanes)((lanes){0} - INFINITY) & ~seen));
}

// p[j] = exp(p[j] - shift) for j < seen, 0 up to n; returns the sum.
INLINE float exp_row(float *p, int64_t n, int64_t seen, float shift) {
    lanes sum = {0}, x;
    int64_t j = 0;
    for (; j < seen; j += LANES) {
        load_seen(&x, p + j, seen - j, n - j);
        x -= shift;
        exp_lanes(&x);
        store_some(p + j, &x, n - j);
        sum += x;
    }
    for (; j < n; j += LANES) {
        x = (lanes){0};
        store_some(p + j, &x, n - j);
    }
    return sum_lanes(&sum);
}

INLINE float max_row(const float *p, int64_t n, int64_t seen) {
    lanes max = (lanes){0} - INFINITY, x;
    for (int64_t j = 0; j < seen; j += LANES) {
        load_seen(&x, p + j, seen - j, n - j);
        keep_larger(&max, &x);
    }
    x = UPPER(max, 8), keep_larger(&max, &x);
    x = UPPER(max, 4), keep_larger(&max, &x);
    x = UPPER(max, 2), keep_larger(&max, &x);
    x = UPPER(max, 1), keep_larger(&max, &x);
    return max[0];
}

WIDEST void sn_cpu_softmax_rows(float *p, int64_t rows, int64_t n, const int64_t *seen, float *lse, float *sums) {
    for (int64_t r = 0; r < rows; r++) {
        float max = max_row(p + r * n, n, seen[r]);
        bool blind = max == -INFINITY;
        sums[r] = exp_row(p + r * n, n, seen[r], blind ? 0 : max);
        lse[r] = blind ? -INFINITY : max + logf(sums[r]);
        if (blind) sums[r] = 1;
    }
}

WIDEST void sn_cpu_exp_rows(float *p, int64_t rows, int64_t n, const int64_t *seen, const float *lse) {
    for (int64_t r = 0; r < rows; r++) exp_row(p + r * n, n, seen[r], lse[r] == -INFINITY ? 0 : lse[r]);
}

WIDEST void sn_cpu_divide_rows(float *p, int64_t rows, int64_t n, int64_t ld, const float *by) {
    lanes x;
    for (int64_t r = 0; r < rows; r++, p += ld) {
        float factor = 1 / by[r];
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES) {
            load(&x, p + j);
            x *= factor;
            store(p + j, &x);
        }
        for (; j < n; j++) p[j] *= factor;
    }
}

INLINE float dot(const float *a, const float *b, int64_t n) {
    lanes sum = {0}, x, y;
    for (int64_t j = 0; j < n; j += LANES) {
        load_some(&x, a + j, n - j, 0), load_some(&y, b + j, n - j, 0);
        sum += x * y;
    }
    return sum_lanes(&sum);
}

WIDEST void sn_cpu_dot_rows(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t rows, int64_t n,
                            float *out) {
    for (int64_t r = 0; r < rows; r++) out[r] = dot(a + r * lda, b + r * ldb, n);
}

WIDEST void sn_cpu_softmax_grad_rows(const float *p, float *dp, int64_t rows, int64_t n, const float *delta,
                                     float scale) {
    lanes x, y;
    for (int64_t r = 0; r < rows; r++, p += n, dp += n) {
        int64_t j = 0;
        for (; j + LANES <= n; j += LANES) {
            load(&x, p + j), load(&y, dp + j);
            y = x * (y - delta[r]) * scale;
            store(dp + j, &y);
        }
        for (; j < n; j++) dp[j] = p[j] * (dp[j] - delta[r]) * scale;
    }
}

#define EVEN_LANES(x)          x, 16 + x, x + 1, 17 + x, x + 2, 18 + x, x + 3, 19 + x
#define INTERLEAVE(a, b, from) __builtin_shufflevector(a, b, EVEN_LANES(from), EVEN_LANES(from + 4))

// 16 rows become 16 columns: each of four rounds interleaves row i with row i + 8.
INLINE void transpose_tile(const float *from, int64_t ld_from, float *to, int64_t ld_to) {
    lanes x[LANES], y[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) load(&x[i], from + i * ld_from);
#pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            y[2 * i] = INTERLEAVE(x[i], x[i + 8], 0);
            y[2 * i + 1] = INTERLEAVE(x[i], x[i + 8], 8);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) x[i] = y[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) store(to + i * ld_to, &x[i]);
}

WIDEST void sn_cpu_transpose(int64_t rows, int64_t columns, const float *from, int64_t ld_from, float *to,
                             int64_t ld_to) {
    int64_t whole = columns - columns % LANES, i = 0;
    for (; i + LANES <= rows; i += LANES) {
        for (int64_t j = 0; j < whole; j += LANES)
            transpose_tile(from + i * ld_from + j, ld_from, to + j * ld_to + i, ld_to);
        for (int64_t j = whole; j < columns; j++)
            for (int64_t r = i; r < i + LANES; r++) to[j * ld_to + r] = from[r * ld_from + j];
    }
    for (; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) to[j * ld_to + i] = from[i * ld_from + j];
}
