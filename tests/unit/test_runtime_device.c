// The CPU device against plain loops in double precision: products, convolutions, attention forward and backward,
// copies and fills, at odd sizes and on one to three threads.
#include "base/alloc.h"
#include "base/philox.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { BUFFERS = 16, BUFFER_FLOATS = 1 << 16 };

// A device with BUFFERS f32 buffers full of random numbers in (-1, 1), and a copy of them to compute on.
typedef struct bench {
    sn_device *device;
    sn_buffer buffers[BUFFERS];
    int64_t shape[1];
    sn_instr instr;
    sn_program program;
    sn_schedule schedule;
    float *before; // all buffers
} bench;

static float *host(const bench *b, int buffer) {
    return b->before + buffer * BUFFER_FLOATS;
}
static const float *result(const bench *b, int buffer) {
    return b->device->vtable->address(b->device, b->buffers[buffer].offset);
}

static void must(sn_status status) {
    assert_string_equal(sn_status_message(status), "");
}

static void open_bench(bench *b, int threads) {
    *b = (bench){.shape = {BUFFER_FLOATS}};
    int64_t bytes = (int64_t)BUFFERS * BUFFER_FLOATS * 4;
    for (int i = 0; i < BUFFERS; i++)
        b->buffers[i] =
            (sn_buffer){"b", SN_F32, {b->shape, 1}, (int64_t)i * BUFFER_FLOATS * 4, BUFFER_FLOATS * 4, 1, 0, {0}};
    b->schedule = (sn_schedule){.pipeline_axis = -1,
                                .ranks = 1,
                                .micro_batches = 1,
                                .arena_bytes = bytes,
                                .loss = -1,
                                .eval_loss = -1,
                                .grad_norm = -1,
                                .buffers = {b->buffers, BUFFERS},
                                .programs = {&b->program, 1}};
    b->program = (sn_program){"step", {&b->instr, 1}};
    b->before = sn_alloc((size_t)bytes);
    for (int64_t i = 0; i < bytes / 4; i++) b->before[i] = 2 * sn_random_uniform(7, 0, 0, (uint64_t)i) - 1;
    must(sn_device_cpu_create(threads, &b->device));
    must(b->device->vtable->allocate(b->device, bytes));
}

static void run(bench *b, sn_instr instr) {
    instr.origin = -1;
    b->instr = instr;
    must(sn_schedule_check(&b->schedule));
    must(b->device->vtable->write(b->device, 0, b->before, (size_t)b->schedule.arena_bytes));
    sn_device_op *op;
    must(b->device->vtable->prepare(b->device, &b->schedule, &b->instr, -1, &op));
    must(b->device->vtable->launch(b->device, op));
    b->device->vtable->release(b->device, op);
}

static void close_bench(bench *b) {
    sn_device_destroy(b->device);
    sn_free(b->before);
}

static sn_view at(int buffer) {
    return (sn_view){buffer, 0};
}

static void assert_close(double got, double want, double scale, const char *what, int64_t index) {
    if (!(fabs(got - want) <= 2e-6 * scale))
        fail_msg("%s[%lld]: %.9g, should be %.9g", what, (long long)index, got, want);
}

static void check_gemm(int threads, sn_do_gemm g) {
    bench b;
    open_bench(&b, threads);
    g.dtype = SN_F32, g.a = at(0), g.b = at(1), g.c = at(2);
    run(&b, (sn_instr){.kind = SN_INSTR_GEMM, .gemm = g});
    int64_t count = 1;
    for (int64_t i = 0; i < g.batch_rank; i++) count *= g.batch[i];
    for (int64_t p = 0; p < count; p++) {
        int64_t rest = p, a = 0, w = 0, c = 0;
        for (int64_t i = g.batch_rank - 1; i >= 0; rest /= g.batch[i], i--) {
            int64_t x = rest % g.batch[i];
            a += x * g.stride_a[i], w += x * g.stride_b[i], c += x * g.stride_c[i];
        }
        for (int64_t i = 0; i < g.m * g.n; i++) {
            int64_t row = i / g.n, column = i % g.n, to = c + row * g.ldc + column;
            double sum = 0;
            for (int64_t k = 0; k < g.k; k++)
                sum += (double)host(&b, 0)[a + (g.transpose_a ? k * g.lda + row : row * g.lda + k)] *
                       host(&b, 1)[w + (g.transpose_b ? column * g.ldb + k : k * g.ldb + column)];
            assert_close(result(&b, 2)[to], g.alpha * sum + g.beta * host(&b, 2)[to], 1 + (double)g.k / 8, "c", to);
        }
    }
    close_bench(&b);
}

static void products(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        for (int t = 0; t < 4; t++) {
            bool ta = t & 1, tb = t & 2;
            check_gemm(threads, (sn_do_gemm){.m = 17,
                                             .n = 31,
                                             .k = 23,
                                             .transpose_a = ta,
                                             .transpose_b = tb,
                                             .lda = 40,
                                             .ldb = 37,
                                             .ldc = 33,
                                             .alpha = 0.5,
                                             .beta = t == 3 ? 1.5 : 0});
        }
        // Heads of [b, s, h, d] times heads of [b, s, h, d] transposed: strided in every operand.
        check_gemm(threads, (sn_do_gemm){.m = 7,
                                         .n = 7,
                                         .k = 5,
                                         .transpose_b = true,
                                         .lda = 15,
                                         .ldb = 15,
                                         .ldc = 7,
                                         .batch_rank = 2,
                                         .batch = {2, 3},
                                         .stride_a = {105, 5},
                                         .stride_b = {105, 5},
                                         .stride_c = {147, 49},
                                         .alpha = 1});
        // The ordinary batch: everything dense, a b for each.
        check_gemm(threads, (sn_do_gemm){.m = 3,
                                         .n = 4,
                                         .k = 6,
                                         .lda = 6,
                                         .ldb = 4,
                                         .ldc = 4,
                                         .batch_rank = 1,
                                         .batch = {5},
                                         .stride_a = {18},
                                         .stride_b = {24},
                                         .stride_c = {12},
                                         .alpha = 1});
        // Rows that merge into one product, and a broadcast that must not.
        check_gemm(threads, (sn_do_gemm){.m = 3,
                                         .n = 4,
                                         .k = 6,
                                         .lda = 6,
                                         .ldb = 4,
                                         .ldc = 4,
                                         .batch_rank = 2,
                                         .batch = {4, 5},
                                         .stride_a = {90, 18},
                                         .stride_c = {60, 12},
                                         .alpha = 1});
        check_gemm(threads, (sn_do_gemm){.m = 3,
                                         .n = 4,
                                         .k = 6,
                                         .lda = 6,
                                         .ldb = 4,
                                         .ldc = 4,
                                         .batch_rank = 1,
                                         .batch = {9},
                                         .stride_b = {24},
                                         .stride_c = {12},
                                         .alpha = 2,
                                         .beta = 1});
        check_gemm(threads, (sn_do_gemm){.m = 2, .n = 2, .k = 0, .lda = 1, .ldb = 2, .ldc = 2, .alpha = 1});
        check_gemm(threads, (sn_do_gemm){.m = 1, .n = 1, .k = 300, .lda = 300, .ldb = 1, .ldc = 1, .alpha = 1});
    }
}

// Visits all (x, w, y) index triples of a convolution.
static void each_tap(const sn_do_conv *c, void (*visit)(void *user, int64_t x, int64_t w, int64_t y), void *user) {
    int64_t in = c->in_channels / c->groups, out = c->out_channels / c->groups, xs[3], ks[3], ys[3];
    for (int i = 0; i < 3; i++) {
        bool real = i < c->spatial;
        xs[i] = real ? c->in[i] : 1, ks[i] = real ? c->kernel[i] : 1, ys[i] = real ? c->out[i] : 1;
    }
    int64_t kernel = ks[0] * ks[1] * ks[2], image = ys[0] * ys[1] * ys[2];
    for (int64_t t = 0; t < c->batch * c->out_channels * in * image * kernel; t++) {
        int64_t k = t % kernel, p = t / kernel % image, i = t / kernel / image % in;
        int64_t o = t / kernel / image / in % c->out_channels, n = t / kernel / image / in / c->out_channels;
        int64_t kk[3] = {k / ks[2] / ks[1], k / ks[2] % ks[1], k % ks[2]};
        int64_t pp[3] = {p / ys[2] / ys[1], p / ys[2] % ys[1], p % ys[2]};
        int64_t place = 0;
        bool inside = true;
        for (int d = 0; d < 3; d++) {
            int64_t x = d < c->spatial ? pp[d] * c->stride[d] + kk[d] * c->dilation[d] - c->pad_begin[d] : 0;
            inside = inside && x >= 0 && x < xs[d];
            place = place * xs[d] + x;
        }
        int64_t channel = o / out * in + i;
        if (inside)
            visit(user, (n * c->in_channels + channel) * xs[0] * xs[1] * xs[2] + place, (o * in + i) * kernel + k,
                  (n * c->out_channels + o) * image + p);
    }
}

typedef struct taps {
    const bench *b;
    double *sum;
    int written; // 0 x, 1 w, 2 y
} taps;

static void add_tap(void *user, int64_t x, int64_t w, int64_t y) {
    taps *t = user;
    double fx = host(t->b, 0)[x], fw = host(t->b, 1)[w], fy = host(t->b, 2)[y];
    if (t->written == 0) t->sum[x] += fw * fy;
    if (t->written == 1) t->sum[w] += fx * fy;
    if (t->written == 2) t->sum[y] += fx * fw;
}

static int64_t product(const int64_t *sizes, int64_t count) {
    int64_t result = 1;
    for (int64_t i = 0; i < count; i++) result *= sizes[i];
    return result;
}

static void check_conv(int threads, sn_do_conv c) {
    for (int64_t i = 0; i < c.spatial; i++)
        c.out[i] = (c.in[i] + c.pad_begin[i] + c.pad_end[i] - (c.kernel[i] - 1) * c.dilation[i] - 1) / c.stride[i] + 1;
    static const sn_instr_kind kinds[] = {SN_INSTR_CONV_INPUT_GRAD, SN_INSTR_CONV_WEIGHT_GRAD, SN_INSTR_CONV};
    c.x = at(0), c.w = at(1), c.y = at(2);
    int64_t sizes[] = {c.batch * c.in_channels * product(c.in, c.spatial),
                       c.out_channels * c.in_channels / c.groups * product(c.kernel, c.spatial),
                       c.batch * c.out_channels * product(c.out, c.spatial)};
    for (int written = 0; written < 3; written++) {
        bench b;
        open_bench(&b, threads);
        run(&b, (sn_instr){.kind = kinds[written], .conv = c});
        taps t = {&b, sn_alloc((size_t)sizes[written] * sizeof(double)), written};
        each_tap(&c, add_tap, &t);
        for (int64_t i = 0; i < sizes[written]; i++)
            assert_close(result(&b, written)[i], t.sum[i], 16, sn_instr_name(kinds[written]), i);
        sn_free(t.sum);
        close_bench(&b);
    }
}

static void convolutions(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        check_conv(threads, (sn_do_conv){.spatial = 1,
                                         .batch = 2,
                                         .in_channels = 3,
                                         .out_channels = 5,
                                         .groups = 1,
                                         .in = {13},
                                         .kernel = {4},
                                         .stride = {3},
                                         .dilation = {2},
                                         .pad_begin = {2},
                                         .pad_end = {1}});
        check_conv(threads, (sn_do_conv){.spatial = 2,
                                         .batch = 3,
                                         .in_channels = 4,
                                         .out_channels = 6,
                                         .groups = 2,
                                         .in = {9, 7},
                                         .kernel = {3, 2},
                                         .stride = {2, 1},
                                         .dilation = {1, 2},
                                         .pad_begin = {1, 0},
                                         .pad_end = {0, 1}});
        check_conv(threads, (sn_do_conv){.spatial = 2,
                                         .batch = 1,
                                         .in_channels = 16,
                                         .out_channels = 16,
                                         .groups = 16,
                                         .in = {8, 8},
                                         .kernel = {3, 3},
                                         .stride = {1, 1},
                                         .dilation = {1, 1},
                                         .pad_begin = {1, 1},
                                         .pad_end = {1, 1}});
        check_conv(threads, (sn_do_conv){.spatial = 3,
                                         .batch = 1,
                                         .in_channels = 2,
                                         .out_channels = 3,
                                         .groups = 1,
                                         .in = {5, 4, 6},
                                         .kernel = {2, 3, 1},
                                         .stride = {1, 1, 2},
                                         .dilation = {1, 1, 1},
                                         .pad_end = {0, 2, 0},
                                         .pad_begin = {1, 0, 0}});
    }
}

enum { Q, K, V, MASK, O, LSE, GRAD_O, GRAD_Q, GRAD_K, GRAD_V };

typedef struct attention_case {
    sn_do_attention a;
    bool mask;
} attention_case;

// Probabilities of one row in doubles, and d(capped score)/d(score); returns false when it sees nothing.
static bool row_of(const bench *b, const attention_case *t, int64_t n, int64_t h, int64_t i, double *p, double *slope,
                   double *lse) {
    const sn_do_attention *a = &t->a;
    int64_t kv = h / (a->heads / a->kv_heads);
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->skv; j++) {
        double s = 0;
        for (int64_t c = 0; c < a->d; c++)
            s += (double)host(b, Q)[n * a->q_stride[0] + h * a->q_stride[1] + i * a->q_stride[2] + c] *
                 host(b, K)[n * a->k_stride[0] + kv * a->k_stride[1] + j * a->k_stride[2] + c];
        s *= a->scale, slope[j] = 1;
        if (a->softcap > 0) {
            double th = tanh(s / a->softcap);
            s = a->softcap * th, slope[j] = 1 - th * th;
        }
        if (t->mask) {
            const int64_t *m = a->mask_stride;
            s += host(b, MASK)[n * m[0] + h * m[1] + i * m[2] + j * m[3]];
        }
        if (a->causal && j > i + a->causal_offset) s = -INFINITY;
        p[j] = s, max = fmax(max, s);
    }
    for (int64_t j = 0; j < a->skv; j++) sum += p[j] = max == -INFINITY ? 0 : exp(p[j] - max);
    for (int64_t j = 0; j < a->skv && sum > 0; j++) p[j] /= sum;
    *lse = max + log(sum);
    return sum > 0;
}

// [b, s, h, d] everywhere except o, which is [b, h, s, d] with a gap.
static void lay_out(sn_do_attention *a, bool mask) {
    a->q = at(Q), a->k = at(K), a->v = at(V), a->mask = mask ? at(MASK) : SN_NO_VIEW, a->o = at(O), a->lse = at(LSE);
    a->grad_o = at(GRAD_O), a->grad_q = at(GRAD_Q), a->grad_k = at(GRAD_K), a->grad_v = at(GRAD_V);
    int64_t q[3] = {a->sq * a->heads * a->d, a->d, a->heads * a->d};
    int64_t k[3] = {a->skv * a->kv_heads * a->d, a->d, a->kv_heads * a->d};
    int64_t v[3] = {a->skv * a->kv_heads * a->dv, a->dv, a->kv_heads * a->dv};
    int64_t o[3] = {a->heads * a->sq * (a->dv + 3), a->sq * (a->dv + 3), a->dv + 3};
    memcpy(a->q_stride, q, sizeof q), memcpy(a->grad_q_stride, q, sizeof q);
    memcpy(a->k_stride, k, sizeof k), memcpy(a->grad_k_stride, k, sizeof k);
    memcpy(a->v_stride, v, sizeof v), memcpy(a->grad_v_stride, v, sizeof v);
    memcpy(a->o_stride, o, sizeof o), memcpy(a->grad_o_stride, o, sizeof o);
}

static void check_attention(int threads, attention_case t) {
    bench b;
    open_bench(&b, threads);
    sn_do_attention *a = &t.a;
    lay_out(a, t.mask);
    const int64_t *q = a->q_stride, *k = a->k_stride, *v = a->v_stride, *o = a->o_stride;
    if (t.mask) {
        for (int64_t j = 0; j < a->skv; j += 3) host(&b, MASK)[j] = -INFINITY; // in the first row, and where it repeats
    }
    run(&b, (sn_instr){.kind = SN_INSTR_ATTENTION, .attention = t.a});
    memcpy(host(&b, O), result(&b, O), BUFFER_FLOATS * 4);
    memcpy(host(&b, LSE), result(&b, LSE), BUFFER_FLOATS * 4);

    size_t all = BUFFER_FLOATS * sizeof(double);
    double *dq = sn_alloc(all), *dk = sn_alloc(all), *dv = sn_alloc(all);
    double *p = sn_alloc((size_t)a->skv * sizeof *p), *slope = sn_alloc((size_t)a->skv * sizeof *slope), lse;
    for (int64_t row = 0; row < a->batch * a->heads * a->sq; row++) {
        int64_t n = row / a->sq / a->heads, h = row / a->sq % a->heads, i = row % a->sq,
                kv = h / (a->heads / a->kv_heads);
        bool sees = row_of(&b, &t, n, h, i, p, slope, &lse);
        if (sees) assert_close(host(&b, LSE)[row], lse, 2, "lse", row);
        if (!sees) assert_true(host(&b, LSE)[row] == -INFINITY);
        const float *go = host(&b, GRAD_O) + n * o[0] + h * o[1] + i * o[2];
        double delta = 0;
        for (int64_t c = 0; c < a->dv; c++) {
            double sum = 0;
            for (int64_t j = 0; j < a->skv; j++) sum += p[j] * host(&b, V)[n * v[0] + kv * v[1] + j * v[2] + c];
            assert_close(host(&b, O)[n * o[0] + h * o[1] + i * o[2] + c], sum, 1, "o", row * a->dv + c);
            delta += sum * go[c];
        }
        for (int64_t j = 0; j < a->skv; j++) {
            double dp = 0;
            for (int64_t c = 0; c < a->dv; c++) {
                int64_t place = n * v[0] + kv * v[1] + j * v[2] + c;
                dp += (double)go[c] * host(&b, V)[place];
                dv[place] += p[j] * go[c];
            }
            double ds = p[j] * (dp - delta) * a->scale * slope[j];
            for (int64_t c = 0; c < a->d; c++) {
                int64_t from = n * q[0] + h * q[1] + i * q[2] + c, to = n * k[0] + kv * k[1] + j * k[2] + c;
                dq[from] += ds * host(&b, K)[to];
                dk[to] += ds * host(&b, Q)[from];
            }
        }
    }
    run(&b, (sn_instr){.kind = SN_INSTR_ATTENTION_GRAD, .attention = t.a});
    for (int64_t i = 0; i < a->batch * q[0]; i++) assert_close(result(&b, GRAD_Q)[i], dq[i], 4, "grad_q", i);
    for (int64_t i = 0; i < a->batch * k[0]; i++) assert_close(result(&b, GRAD_K)[i], dk[i], 8, "grad_k", i);
    for (int64_t i = 0; i < a->batch * v[0]; i++) assert_close(result(&b, GRAD_V)[i], dv[i], 8, "grad_v", i);
    sn_free(dq), sn_free(dk), sn_free(dv), sn_free(p), sn_free(slope);
    close_bench(&b);
}

static float round_to(sn_dtype dtype, float value) {
    return dtype == SN_BF16 ? sn_bf16_to_f32(sn_bf16_from_f32(value)) : sn_f16_to_f32(sn_f16_from_f32(value));
}

static void pack(const bench *b, sn_dtype dtype, int buffer) {
    uint16_t *halves = (uint16_t *)host(b, buffer);
    for (int64_t i = 0; i < BUFFER_FLOATS; i++) {
        float value = host(b, buffer)[i];
        halves[i] = dtype == SN_BF16 ? sn_bf16_from_f32(value) : sn_f16_from_f32(value);
    }
}

static void compare_packed(const bench *wide, const bench *narrow, sn_dtype dtype, int buffer, int64_t count) {
    const uint16_t *halves = (const uint16_t *)result(narrow, buffer);
    for (int64_t i = 0; i < count; i++) {
        float got = dtype == SN_BF16 ? sn_bf16_to_f32(halves[i]) : sn_f16_to_f32(halves[i]);
        float want = round_to(dtype, result(wide, buffer)[i]);
        if (memcmp(&got, &want, sizeof got))
            fail_msg("buffer %d [%lld]: %.9g, should be %.9g", buffer, (long long)i, (double)got, (double)want);
    }
}

// On numbers that floats of 16 bits hold, attention of them is that of f32, rounded.
static void check_narrow_attention(int threads, sn_dtype dtype, attention_case t) {
    static const int inputs[] = {Q, K, V, MASK, GRAD_O};
    bench wide, narrow;
    lay_out(&t.a, t.mask);
    sn_do_attention a = t.a;
    a.dtype = dtype;
    open_bench(&wide, threads);
    open_bench(&narrow, threads);
    for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++) {
        for (int64_t i = 0; i < BUFFER_FLOATS; i++)
            host(&wide, inputs[k])[i] = round_to(dtype, host(&wide, inputs[k])[i]);
        pack(&narrow, dtype, inputs[k]);
    }
    run(&wide, (sn_instr){.kind = SN_INSTR_ATTENTION, .attention = t.a});
    run(&narrow, (sn_instr){.kind = SN_INSTR_ATTENTION, .attention = a});
    for (int64_t n = 0; n < a.batch * a.heads * a.sq; n++) {
        int64_t row = n / a.sq * a.o_stride[1] + n % a.sq * a.o_stride[2];
        for (int64_t c = 0; c < a.dv; c++) host(&wide, O)[row + c] = round_to(dtype, result(&wide, O)[row + c]);
    }
    memcpy(host(&narrow, O), result(&narrow, O), BUFFER_FLOATS * 4);
    memcpy(host(&narrow, LSE), result(&narrow, LSE), BUFFER_FLOATS * 4);
    memcpy(host(&wide, LSE), result(&wide, LSE), BUFFER_FLOATS * 4);
    run(&wide, (sn_instr){.kind = SN_INSTR_ATTENTION_GRAD, .attention = t.a});
    run(&narrow, (sn_instr){.kind = SN_INSTR_ATTENTION_GRAD, .attention = a});
    compare_packed(&wide, &narrow, dtype, GRAD_Q, a.batch * a.q_stride[0]);
    compare_packed(&wide, &narrow, dtype, GRAD_K, a.batch * a.k_stride[0]);
    compare_packed(&wide, &narrow, dtype, GRAD_V, a.batch * a.v_stride[0]);
    close_bench(&wide);
    close_bench(&narrow);
}

// One unit in the last place of the correctly rounded result is 2^-23 of it at most.
static void exponentials(void **state) {
    (void)state;
    float row[1000];
    for (int block = 0; block < 88; block++) {
        double sum = 0;
        for (int i = 1; i < 1000; i++) row[i] = -(float)block - (float)i / 1000;
        row[0] = 0; // the largest, so that the softmax shifts nothing
        row[7] = -INFINITY;
        int n = 1000 - block; // all remainders
        int64_t seen = n - block % 7;
        float lse, total;
        sn_cpu_softmax_rows(row, 1, n, &seen, &lse, &total);
        for (int i = 0; i < n; i++) {
            if (i >= seen) assert_true(row[i] == 0);
            double want = exp(i ? -(double)(float)((float)block + (float)i / 1000) : 0);
            if (i == 7 || i >= seen) want = 0;
            if (want <= exp(-87.3) && row[i] == 0) continue; // where it gives 0
            if (fabs(row[i] - want) > 2.5 * 0x1p-23 * want) fail_msg("exp(-%d.%03d) = %g", block, i, (double)row[i]);
            sum += row[i];
        }
        assert_true(fabs(lse - log(sum)) <= 1e-5);
        assert_true(fabs(total - sum) <= 1e-5 * sum);
    }
}

static void attentions(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        check_attention(threads, (attention_case){{.batch = 2,
                                                   .heads = 3,
                                                   .kv_heads = 3,
                                                   .sq = 67,
                                                   .skv = 67,
                                                   .d = 8,
                                                   .dv = 8,
                                                   .scale = 0.35,
                                                   .causal = true},
                                                  false});
        // Grouped queries, other sizes of keys and values, an additive mask that all batches and heads share.
        check_attention(threads, (attention_case){{.batch = 2,
                                                   .heads = 4,
                                                   .kv_heads = 2,
                                                   .sq = 5,
                                                   .skv = 33,
                                                   .d = 7,
                                                   .dv = 11,
                                                   .scale = 1,
                                                   .mask_stride = {0, 0, 33, 1}},
                                                  true});
        // A mask over columns alone, by batch.
        check_attention(threads, (attention_case){{.batch = 3,
                                                   .heads = 2,
                                                   .kv_heads = 1,
                                                   .sq = 17,
                                                   .skv = 19,
                                                   .d = 4,
                                                   .dv = 4,
                                                   .scale = 2,
                                                   .mask_stride = {19, 0, 0, 1}},
                                                  true});
        // The last rows of a longer sequence, and rows that see nothing; softcap.
        check_attention(threads, (attention_case){{.batch = 1,
                                                   .heads = 2,
                                                   .kv_heads = 2,
                                                   .sq = 6,
                                                   .skv = 130,
                                                   .d = 16,
                                                   .dv = 16,
                                                   .scale = 0.25,
                                                   .causal = true,
                                                   .causal_offset = 124},
                                                  false});
        check_attention(threads, (attention_case){{.batch = 1,
                                                   .heads = 2,
                                                   .kv_heads = 1,
                                                   .sq = 70,
                                                   .skv = 3,
                                                   .d = 3,
                                                   .dv = 2,
                                                   .scale = 1,
                                                   .causal = true,
                                                   .causal_offset = -66},
                                                  false});
        check_attention(
            threads,
            (attention_case){
                {.batch = 1, .heads = 1, .kv_heads = 1, .sq = 1, .skv = 1, .d = 1, .dv = 1, .scale = 3, .softcap = 0.7},
                false});
        check_attention(threads, (attention_case){{.batch = 1,
                                                   .heads = 2,
                                                   .kv_heads = 2,
                                                   .sq = 65,
                                                   .skv = 31,
                                                   .d = 5,
                                                   .dv = 5,
                                                   .scale = 3,
                                                   .softcap = 1.5},
                                                  false});
    }
}

static void narrow_attentions(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++)
        for (int half = 0; half < 2; half++) {
            sn_dtype dtype = half ? SN_F16 : SN_BF16;
            sn_do_attention causal = {.batch = 2,
                                      .heads = 2,
                                      .kv_heads = 2,
                                      .sq = 67,
                                      .skv = 67,
                                      .d = 8,
                                      .dv = 8,
                                      .scale = 0.35,
                                      .causal = true};
            sn_do_attention masked = {.batch = 2,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .sq = 5,
                                      .skv = 33,
                                      .d = 7,
                                      .dv = 11,
                                      .scale = 1,
                                      .mask_stride = {0, 0, 33, 1}};
            check_narrow_attention(threads, dtype, (attention_case){causal, false});
            check_narrow_attention(threads, dtype, (attention_case){masked, true});
        }
}

static void copies_and_fills(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        bench b;
        open_bench(&b, threads);
        run(&b, (sn_instr){.kind = SN_INSTR_COPY,
                           .copy = {.dtype = SN_F32,
                                    .rank = 4,
                                    .dims = {5, 1, 7, 33},
                                    .from_stride = {33, 9, 165, 1},
                                    .to_stride = {231, 1, 1, 7},
                                    .from = at(0),
                                    .to = at(1)}});
        for (int64_t i = 0; i < 5 * 7 * 33; i++) {
            int64_t x = i / 231, y = i / 33 % 7, z = i % 33;
            assert_true(result(&b, 1)[x * 231 + y + z * 7] == host(&b, 0)[x * 33 + y * 165 + z]);
        }
        int64_t n = 50001;
        run(&b, (sn_instr){.kind = SN_INSTR_COPY,
                           .copy = {.dtype = SN_F32,
                                    .rank = 1,
                                    .dims = {n},
                                    .from_stride = {1},
                                    .to_stride = {1},
                                    .from = at(2),
                                    .to = {3, 4}}});
        assert_memory_equal(result(&b, 3) + 1, host(&b, 2), (size_t)n * 4);
        assert_true(result(&b, 3)[0] == host(&b, 3)[0] && result(&b, 3)[n + 1] == host(&b, 3)[n + 1]);
        run(&b, (sn_instr){.kind = SN_INSTR_FILL, .fill = {.dtype = SN_F32, .count = n, .value = -2.5, .to = at(4)}});
        for (int64_t i = 0; i < n; i++) assert_true(result(&b, 4)[i] == -2.5f);
        assert_true(result(&b, 4)[n] == host(&b, 4)[n]);
        close_bench(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),   cmocka_unit_test(convolutions),      cmocka_unit_test(exponentials),
        cmocka_unit_test(attentions), cmocka_unit_test(narrow_attentions), cmocka_unit_test(copies_and_fills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
