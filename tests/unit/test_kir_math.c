// The functions kernel IR computes itself against libm in double precision, and LLVM against the evaluator on all of
// them.
#include "backend/kernel/kir.h"
#include "backend/llvm/llvm.h"
#include "base/alloc.h"
#include "base/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double rsqrt(double x) {
    return 1 / sqrt(x);
}

typedef struct function {
    sn_kir_op op;
    double (*reference)(double);
    double low, high; // where the dense sample lies
    double ulps;      // allowed, of the f32 result
} function;

static const function functions[] = {
    {SN_KIR_EXP, exp, -90, 90, 2},         {SN_KIR_LOG, log, 1e-3, 20, 2},      {SN_KIR_LOG1P, log1p, -0.999, 20, 4},
    {SN_KIR_EXPM1, expm1, -20, 20, 4},     {SN_KIR_TANH, tanh, -10, 10, 3},     {SN_KIR_SIGMOID, sigmoid, -20, 90, 4},
    {SN_KIR_ERF, erf, -5, 5, 3},           {SN_KIR_RSQRT, rsqrt, 1e-6, 1e6, 2}, {SN_KIR_SIN, sin, -30, 30, 2},
    {SN_KIR_COS, cos, -30, 30, 2},         {SN_KIR_TAN, tan, -30, 30, 2},       {SN_KIR_ASIN, asin, -1, 1, 2},
    {SN_KIR_ACOS, acos, -1, 1, 2},         {SN_KIR_ATAN, atan, -30, 30, 2},     {SN_KIR_SINH, sinh, -80, 80, 3},
    {SN_KIR_COSH, cosh, -80, 80, 3},       {SN_KIR_ASINH, asinh, -30, 30, 3},   {SN_KIR_ACOSH, acosh, 1, 30, 3},
    {SN_KIR_ATANH, atanh, -0.99, 0.99, 3},
};
#define N_FUNCTIONS (sizeof functions / sizeof *functions)
#define N_VALUES    40003

static sn_kir *make_kernel(sn_kir_op op, sn_dtype dtype, int64_t n) {
    char name[32];
    snprintf(name, sizeof name, "%s_%s", sn_kir_op_name(op), sn_dtype_name(dtype));
    sn_kir *k = sn_kir_new(name, 1);
    sn_kir_buffer *x = sn_kir_param(k, "x", dtype, n, SN_KIR_READ), *y = sn_kir_param(k, "y", dtype, n, SN_KIR_WRITE);
    sn_kir_node *i = sn_kir_for(k, SN_KIR_LANES, sn_kir_index(k, 0), sn_kir_index(k, n), 1);
    sn_kir_store(k, y, i, sn_kir_unary(k, op, sn_kir_load(k, x, i)));
    sn_kir_end(k);
    assert_null(sn_kir_verify(k));
    return k;
}

static float sample(const function *f, int i) {
    static const float extremes[] = {0,          -0.0f,       INFINITY,    -INFINITY, NAN,    0x1p-126f,  0x1p-130f,
                                     -0x1p-126f, 0x1.fp127f,  -0x1.fp127f, 1,         -1,     0x1p-20f,   -0x1p-20f,
                                     88.722f,    88.73f,      -87.33f,     -87.34f,   -104,   0.625f,     0.921875f,
                                     1.5f,       -0.9999999f, 1.0000001f,  17,        1e-30f, 16777216.0f};
    int n = (int)(sizeof extremes / sizeof *extremes);
    if (i < n) return extremes[i];
    return (float)(f->low + (f->high - f->low) * (i - n) / (N_VALUES - n - 1));
}

static double ulp(double value) { // of an f32 of this size, at least the smallest normal's
    double size = fabs(value) < 0x1p-126 ? 0x1p-126 : fabs(value);
    return ldexp(1, ilogb(size) - 23);
}

static void check_value(const function *f, float x, float got) {
    double want = f->reference(x);
    if (isnan(want)) {
        if (!isnan(got)) fail_msg("%s(%.9g) = %.9g, want NaN", sn_kir_op_name(f->op), x, got);
    } else if (isinf((float)want)) {
        if (got != (float)want) fail_msg("%s(%.9g) = %.9g, want %.9g", sn_kir_op_name(f->op), x, got, want);
    } else if (fabs(want) < 0x1p-126 && fabs(got) <= 0x1p-126) {
        return; // denormal results may be flushed
    } else if (!(fabs(got - want) <= f->ulps * ulp(want))) {
        fail_msg("%s(%.9g) = %.9g, want %.9g: %.1f ulp off", sn_kir_op_name(f->op), x, got, want,
                 fabs(got - want) / ulp(want));
    }
}

static void functions_agree_with_libm(void **state) {
    (void)state;
    sn_kir *kernels[N_FUNCTIONS];
    for (size_t f = 0; f < N_FUNCTIONS; f++) kernels[f] = make_kernel(functions[f].op, SN_F32, N_VALUES);
    sn_llvm_jit *jit;
    assert_null(sn_llvm_jit_open(kernels, N_FUNCTIONS, NULL, &jit));
    float *x = sn_alloc(4 * N_VALUES), *y = sn_alloc(4 * N_VALUES), *z = sn_alloc(4 * N_VALUES);
    for (size_t f = 0; f < N_FUNCTIONS; f++) {
        for (int i = 0; i < N_VALUES; i++) x[i] = sample(&functions[f], i);
        sn_llvm_jit_find(jit, kernels[f]->name)((void *[]){x, y}, 0, 1);
        sn_kir_evaluate(kernels[f], (void *[]){x, z}, 0, 1);
        for (int i = 0; i < N_VALUES; i++) {
            check_value(&functions[f], x[i], y[i]);
            if (!(isnan(y[i]) && isnan(z[i])) && memcmp(&y[i], &z[i], 4))
                fail_msg("%s(%.9g): LLVM %.9g, evaluator %.9g", kernels[f]->name, x[i], y[i], z[i]);
        }
        sn_kir_free(kernels[f]);
    }
    sn_free(x), sn_free(y), sn_free(z);
    sn_llvm_jit_close(jit);
}

static void doubles_agree_with_libm(void **state) {
    (void)state;
    enum { N = 203 };
    sn_kir *kernels[N_FUNCTIONS];
    for (size_t f = 0; f < N_FUNCTIONS; f++) kernels[f] = make_kernel(functions[f].op, SN_F64, N);
    sn_llvm_jit *jit;
    assert_null(sn_llvm_jit_open(kernels, N_FUNCTIONS, NULL, &jit));
    for (size_t f = 0; f < N_FUNCTIONS; f++) {
        double x[N], y[N];
        for (int i = 0; i < N; i++) x[i] = sample(&functions[f], i * 197);
        sn_llvm_jit_find(jit, kernels[f]->name)((void *[]){x, y}, 0, 1);
        for (int i = 0; i < N; i++) {
            double want = functions[f].reference(x[i]);
            assert_true(isnan(want) ? isnan(y[i]) : want == y[i] || fabs(y[i] - want) <= 1e-15 * fabs(want));
        }
        sn_kir_free(kernels[f]);
    }
    sn_llvm_jit_close(jit);
}

static void two_operands(void **state) {
    (void)state;
    enum { N = 101 };
    sn_kir *k = sn_kir_new("two", 1);
    sn_kir_buffer *a = sn_kir_param(k, "a", SN_F32, N, SN_KIR_READ), *b = sn_kir_param(k, "b", SN_F32, N, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_F32, 3 * N, SN_KIR_WRITE);
    sn_kir_node *i = sn_kir_for(k, SN_KIR_LANES, sn_kir_index(k, 0), sn_kir_index(k, N), 1);
    static const sn_kir_op ops[] = {SN_KIR_POW, SN_KIR_ATAN2, SN_KIR_REM};
    for (int o = 0; o < 3; o++)
        sn_kir_store(k, y, sn_kir_addi(k, i, o * N),
                     sn_kir_binary(k, ops[o], sn_kir_load(k, a, i), sn_kir_load(k, b, i)));
    sn_kir_end(k);
    assert_null(sn_kir_verify(k));
    sn_llvm_jit *jit;
    assert_null(sn_llvm_jit_open(&k, 1, NULL, &jit));
    float p[N], q[N], out[3 * N];
    for (int j = 0; j < N; j++) {
        p[j] = (float)(j % 11) - 5.25f;
        q[j] = (float)(j % 7) - 3;
    }
    sn_llvm_jit_find(jit, "two")((void *[]){p, q, out}, 0, 1);
    for (int j = 0; j < N; j++) {
        float want[] = {powf(p[j], q[j]), atan2f(p[j], q[j]), fmodf(p[j], q[j])};
        for (int o = 0; o < 3; o++) assert_true(out[o * N + j] == want[o] || (isnan(want[o]) && isnan(out[o * N + j])));
    }
    sn_llvm_jit_close(jit);
    sn_kir_free(k);
}

static void random_bits_are_philox(void **state) {
    (void)state;
    enum { N = 77 };
    const int64_t first = (INT64_C(1) << 33) + 3; // beyond 32 bits, and not at a multiple of four
    sn_kir *k = sn_kir_new("bits", 1);
    sn_kir_buffer *key = sn_kir_param(k, "key", SN_U64, 1, SN_KIR_READ);
    sn_kir_buffer *step = sn_kir_param(k, "step", SN_U32, 1, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_U32, N, SN_KIR_WRITE);
    sn_kir_node *seed = sn_kir_load(k, key, sn_kir_index(k, 0)), *at = sn_kir_load(k, step, sn_kir_index(k, 0));
    sn_kir_node *i = sn_kir_for(k, SN_KIR_LANES, sn_kir_index(k, 0), sn_kir_index(k, N), 1);
    sn_kir_store(k, y, i, sn_kir_random_bits(k, seed, at, sn_kir_int(k, SN_U32, 9), sn_kir_addi(k, i, first)));
    sn_kir_end(k);
    assert_null(sn_kir_verify(k));
    sn_llvm_jit *jit;
    assert_null(sn_llvm_jit_open(&k, 1, NULL, &jit));
    uint64_t seed_value = 0xfedcba9876543210u;
    uint32_t step_value = 0x80000001u, llvm[N], reference[N];
    sn_llvm_jit_find(jit, "bits")((void *[]){&seed_value, &step_value, llvm}, 0, 1);
    sn_kir_evaluate(k, (void *[]){&seed_value, &step_value, reference}, 0, 1);
    for (int j = 0; j < N; j++) {
        uint32_t want = sn_random_bits(seed_value, step_value, 9, (uint64_t)(first + j));
        assert_int_equal(llvm[j], want);
        assert_int_equal(reference[j], want);
    }
    sn_llvm_jit_close(jit);
    sn_kir_free(k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_agree_with_libm),
        cmocka_unit_test(doubles_agree_with_libm),
        cmocka_unit_test(two_operands),
        cmocka_unit_test(random_bits_are_philox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
