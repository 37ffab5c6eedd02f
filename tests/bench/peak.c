// What the machine can do: prints, as one JSON object, the best GFLOP/s of oneDNN's f32 matrix product over a few
// shapes, the GFLOP/s of multiply-adds that stay in registers (which no product can exceed), and the best GB/s of
// reading two arrays and writing one. OMP_NUM_THREADS chooses the threads.
#include <dnnl.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 12, STREAM_FLOATS = 1 << 25 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// An array whose pages are present; leaves the program when there is no memory for it.
static float *floats(size_t count, float value) {
    float *p = malloc(count * sizeof *p);
    if (!p) exit(1);
    for (size_t i = 0; i < count; ++i) p[i] = value;
    return p;
}

// C[m,n] = A[m,k] B[k,n]: GFLOP/s of the fastest repetition.
static double sgemm_rate(dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k) {
    float *a = floats((size_t)(m * k), 0.5f);
    float *b = floats((size_t)(k * n), 0.25f);
    float *c = floats((size_t)(m * n), 0);
    double best = 1e30;
    for (int i = 0; i < REPEATS; ++i) {
        double start = seconds();
        if (dnnl_sgemm('N', 'N', m, n, k, 1, a, k, b, n, 0, c, n) != dnnl_success) exit(1);
        double took = seconds() - start;
        if (took < best) best = took;
    }
    free(a);
    free(b);
    free(c);
    return 2e-9 * (double)m * (double)n * (double)k / best;
}

// Chains of multiply-adds, as many as hide their latency with the registers there are: GFLOP/s of the fastest
// repetition.
#ifdef __x86_64__
__attribute__((target_clones("avx512f", "avx2,fma", "default")))
#endif
static float
multiply_add(int64_t steps) {
    enum { LANES = 16, CHAINS = 12 };
    typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
    lanes x[CHAINS], factor = (lanes){0} + 1.0001f, term = (lanes){0} + 0.999f;
    for (int i = 0; i < CHAINS; ++i) x[i] = (lanes){0} + (float)i;
    for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; ++i) x[i] = x[i] * factor + term;
    }
    for (int i = 1; i < CHAINS; ++i) x[0] += x[i];
    return x[0][0];
}

static double multiply_add_rate(void) {
    enum { STEPS = 1 << 22, FLOPS = 2 * 16 * 12 };
    double best = 1e30;
    volatile float sink;
    int threads = 1;
    for (int i = 0; i < REPEATS; ++i) {
        double start = seconds();
#pragma omp parallel
        {
            sink = multiply_add(STEPS);
#pragma omp single
            threads = omp_get_num_threads();
        }
        double took = seconds() - start;
        if (took < best) best = took;
    }
    (void)sink;
    return 1e-9 * FLOPS * STEPS * threads / best;
}

// a = b + s c: GB/s of the fastest repetition, counting the reads and the write.
static double stream_rate(void) {
    float *a = floats(STREAM_FLOATS, 0);
    float *b = floats(STREAM_FLOATS, 1);
    float *c = floats(STREAM_FLOATS, 2);
    double best = 1e30;
    for (int i = 0; i < REPEATS; ++i) {
        double start = seconds();
#pragma omp parallel for schedule(static)
        for (int j = 0; j < STREAM_FLOATS; ++j) a[j] = b[j] + 0.5f * c[j];
        double took = seconds() - start;
        if (took < best) best = took;
    }
    free(a);
    free(b);
    free(c);
    return 3e-9 * STREAM_FLOATS * sizeof(float) / best;
}

int main(void) {
    static const dnnl_dim_t shapes[][3] = {{1024, 1024, 1024}, {2048, 2048, 2048}, {512, 768, 768}, {256, 3072, 768}};
    double best = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        double rate = sgemm_rate(shapes[i][0], shapes[i][1], shapes[i][2]);
        fprintf(stderr, "sgemm %ld x %ld x %ld: %.1f GFLOP/s\n", (long)shapes[i][0], (long)shapes[i][1],
                (long)shapes[i][2], rate);
        if (rate > best) best = rate;
    }
    printf("{\"gflops\": %.1f, \"fma_gflops\": %.1f, \"gb_per_s\": %.1f}\n", best, multiply_add_rate(), stream_rate());
    return 0;
}
