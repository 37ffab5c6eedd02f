// Matrix products through oneDNN's sgemm, small ones through our own.
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/product.h"

#include <omp.h>
#include <stdatomic.h>

// Up to here the library's set-up and copies cost more than they save: over the products of attention heads, ours took
// 0.6 to 0.8 of its time.
static const double small_product = 0x1p18;

sn_status sn_cpu_library_status(dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return SN_OK;
    static const char *const names[] = {
        [dnnl_out_of_memory] = "out of memory",
        [dnnl_invalid_arguments] = "invalid arguments",
        [dnnl_unimplemented] = "not implemented",
        [dnnl_runtime_error] = "runtime error",
    };
    const char *name = status < sizeof names / sizeof *names && names[status] ? names[status] : "failed";
    return sn_status_make("oneDNN: %s: %s", what, name);
}

sn_status sn_cpu_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                       int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    if (!transpose_b && (double)m * (double)n * (double)k <= small_product && sn_cpu_has_small_product()) {
        sn_cpu_small_product(transpose_a, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
        return SN_OK;
    }
    return sn_cpu_library_status(
        dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc),
        "matrix product");
}

static void scale_matrix(const sn_do_gemm *g, float *c) {
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) c[i * g->ldc + j] = g->beta == 0 ? 0 : (float)g->beta * c[i * g->ldc + j];
    }
}

static sn_status one(const sn_do_gemm *g, const float *a, const float *b, float *c) {
    if (g->k == 0) return scale_matrix(g, c), SN_OK;
    return sn_cpu_sgemm(g->transpose_a, g->transpose_b, g->m, g->n, g->k, (float)g->alpha, a, g->lda, b, g->ldb,
                        (float)g->beta, c, g->ldc);
}

// Part `t` of `threads` of a product: a band of c along its longer side, at a multiple of the register tile.
static sn_status band(const sn_do_gemm *g, const float *a, const float *b, float *c, int64_t t, int64_t threads) {
    enum { TILE = 16 };
    sn_do_gemm part = *g;
    bool rows = g->m > g->n;
    int64_t size = rows ? g->m : g->n, tiles = (size + TILE - 1) / TILE;
    int64_t low = tiles * t / threads * TILE, high = tiles * (t + 1) / threads * TILE;
    if (high > size) high = size;
    if (low >= high) return SN_OK;
    if (rows) {
        part.m = high - low;
        return one(&part, a + (g->transpose_a ? low : low * g->lda), b, c + low * g->ldc);
    }
    part.n = high - low;
    return one(&part, a, b + (g->transpose_b ? low * g->ldb : low), c + low);
}

// All threads on one product. Bands of our own: the library's split of products of a few hundred rows reached 208 to
// 340 GFLOP/s on two cores over GPT-2's shapes, bands 270 to 330.
static sn_status spread_one(const sn_do_gemm *g, const float *a, const float *b, float *c, int threads) {
    bool large = (double)g->m * (double)g->n * (double)g->k >= 0x1p18;
    if (threads == 1 || !large) return one(g, a, b, c);
    _Atomic(sn_status) failed = SN_OK;
#pragma omp parallel num_threads(threads)
    {
        sn_status status = band(g, a, b, c, omp_get_thread_num(), omp_get_num_threads()), none = SN_OK;
        if (status && !atomic_compare_exchange_strong(&failed, &none, status)) sn_status_free(status);
    }
    return failed;
}

// Rows of the innermost batch dimensions that share b and follow each other are rows of one larger product.
static void merge_rows(sn_do_gemm *g) {
    while (g->batch_rank) {
        int64_t i = g->batch_rank - 1;
        bool rows = !g->transpose_a && g->stride_a[i] == g->m * g->lda && g->stride_c[i] == g->m * g->ldc;
        if (g->batch[i] != 1 && !(rows && g->stride_b[i] == 0)) break;
        g->m *= g->batch[i];
        g->batch_rank = i;
    }
}

typedef struct place {
    int64_t a, b, c;
} place;

static place find_place(const sn_do_gemm *g, int64_t index) {
    place at = {0, 0, 0};
    for (int64_t i = g->batch_rank - 1; i >= 0; i--) {
        int64_t x = index % g->batch[i];
        index /= g->batch[i];
        at.a += x * g->stride_a[i], at.b += x * g->stride_b[i], at.c += x * g->stride_c[i];
    }
    return at;
}

sn_status sn_cpu_gemm(const sn_do_gemm *gemm, const float *a, const float *b, float *c, int threads) {
    sn_do_gemm g = *gemm;
    merge_rows(&g);
    int64_t count = 1;
    for (int64_t i = 0; i < g.batch_rank; i++) count *= g.batch[i];
    if (g.m == 0 || g.n == 0 || count == 0) return SN_OK;
    if (count == 1) return spread_one(&g, a, b, c, threads);

    // Many products: one thread each; a few large ones are split instead.
    bool spread = count >= 4 * threads || (count >= threads && (double)g.m * (double)g.n * (double)g.k < 0x1p24);
    _Atomic(sn_status) failed = SN_OK;
#pragma omp parallel for num_threads(threads) if (spread && threads > 1)
    for (int64_t i = 0; i < count; i++) {
        place at = find_place(&g, i);
        int team = spread ? 1 : threads;
        sn_status status = spread_one(&g, a + at.a, b + at.b, c + at.c, team), none = SN_OK;
        if (status && !atomic_compare_exchange_strong(&failed, &none, status)) sn_status_free(status);
    }
    return failed;
}
