// Row operations of the fused attention, on 16 lanes at a time: the same order of additions on every machine, and
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
    *out = (lanes){0} + rest;
    memcpy(out, p, (size_t)n * sizeof *p);
}

// In a fixed order: halves, quarters, …
INLINE float sum_lanes(const lanes *v) {
    float s[LANES];
    memcpy(s, v, sizeof s);
    for (int width = LANES / 2; width; width /= 2) {
        for (int i = 0; i < width; i++) s[i] += s[i + width];
    }
    return s[0];
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

WIDEST float sn_cpu_exp_row(float *p, int64_t n, float shift) {
    lanes sum = {0}, x;
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        load(&x, p + j);
        x -= shift;
        exp_lanes(&x);
        store(p + j, &x);
        sum += x;
    }
    if (j < n) {
        load_some(&x, p + j, n - j, -INFINITY);
        x -= shift;
        exp_lanes(&x);
        memcpy(p + j, &x, (size_t)(n - j) * sizeof *p);
        sum += x;
    }
    return sum_lanes(&sum);
}

WIDEST float sn_cpu_max_row(const float *p, int64_t n) {
    lanes max = (lanes){0} - INFINITY, x;
    int64_t j = 0;
    for (; j < n; j += LANES) {
        if (j + LANES <= n) {
            load(&x, p + j);
        } else {
            load_some(&x, p + j, n - j, -INFINITY);
        }
        ilanes more = x > max;
        max = (lanes)(((ilanes)x & more) | ((ilanes)max & ~more));
    }
    float result = max[0];
    for (int i = 1; i < LANES; i++) result = max[i] > result ? max[i] : result;
    return result;
}

WIDEST void sn_cpu_scale_row(float *p, int64_t n, float factor) {
    lanes x;
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        load(&x, p + j);
        x *= factor;
        store(p + j, &x);
    }
    for (; j < n; j++) p[j] *= factor;
}

WIDEST float sn_cpu_dot_row(const float *a, const float *b, int64_t n) {
    lanes sum = {0}, x, y;
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        load(&x, a + j), load(&y, b + j);
        sum += x * y;
    }
    if (j < n) {
        load_some(&x, a + j, n - j, 0), load_some(&y, b + j, n - j, 0);
        sum += x * y;
    }
    return sum_lanes(&sum);
}

WIDEST void sn_cpu_softmax_grad_row(const float *p, const float *dp, float *ds, int64_t n, float delta, float scale) {
    lanes x, y;
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        load(&x, p + j), load(&y, dp + j);
        y = x * (y - delta) * scale;
        store(ds + j, &y);
    }
    for (; j < n; j++) ds[j] = p[j] * (dp[j] - delta) * scale;
}
