// The polynomials for f32: exp, log and tanh are those of Cephes (S. Moshier, single precision expf.c, logf.c,
// tanhf.c), erf is a minimax fit in two pieces (N. Juffa). Errors are below 2 ulp; results that would be denormal are
// 0.
#include "backend/kernel/math.h"

#include "backend/kernel/build.h"

#include <math.h>
#include <string.h>

typedef sn_kir_node *expr;

static expr constant(sn_kir *k, double value) {
    return sn_kir_float(k, SN_F32, value);
}

static expr horner(sn_kir *k, expr x, const double *c, int n) {
    expr value = constant(k, c[0]);
    for (int i = 1; i < n; i++) value = sn_kir_fma(k, value, x, constant(k, c[i]));
    return value;
}
#define HORNER(k, x, ...)                                                                                              \
    horner(k, x, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

static expr copysign_of(sn_kir *k, expr magnitude, expr sign) {
    expr mask = sn_kir_int(k, SN_U32, 0x80000000), bits = sn_kir_and(k, sn_kir_bitcast(k, sign, SN_U32), mask);
    return sn_kir_bitcast(k, sn_kir_or(k, sn_kir_bitcast(k, magnitude, SN_U32), bits), SN_F32);
}

// x = n * ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves n, rounded, in the low bits of the sum.
typedef struct reduced {
    expr r;
    expr shifted; // bits of the sum
    expr poly;    // (exp(r) - 1 - r) / r^2
} reduced;

static reduced reduce_exp(sn_kir *k, expr x) {
    expr magic = constant(k, 12582912.0), sum = sn_kir_fma(k, x, constant(k, M_LOG2E), magic);
    expr n = sn_kir_sub(k, sum, magic);
    expr r = sn_kir_fma(k, n, constant(k, -0.693359375), x);
    r = sn_kir_fma(k, n, constant(k, 2.12194440e-4), r);
    expr poly = HORNER(k, r, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
                       5.0000001201e-1);
    return (reduced){r, sn_kir_bitcast(k, sum, SN_I32), poly};
}

// exp for x in [-87.3, 88.7]. 2^n is applied to the exponent bits, which also works for n = 128 while the product is
// finite.
static expr exp_inside(sn_kir *k, expr x) {
    reduced e = reduce_exp(k, x);
    expr value = sn_kir_add(k, sn_kir_fma(k, sn_kir_mul(k, e.r, e.r), e.poly, e.r), constant(k, 1));
    expr exponent = sn_kir_binary(k, SN_KIR_SHL, e.shifted, sn_kir_int(k, SN_I32, 23));
    return sn_kir_bitcast(k, sn_kir_add(k, sn_kir_bitcast(k, value, SN_I32), exponent), SN_F32);
}

static expr expand_exp(sn_kir *k, expr *in) {
    expr x = in[0], value = exp_inside(k, x), beyond = sn_kir_mul(k, x, constant(k, INFINITY)); // NaN stays NaN
    value = sn_kir_select(k, sn_kir_lt(k, x, constant(k, -87.33654475)), constant(k, 0), value);
    return sn_kir_select(k, sn_kir_not(k, sn_kir_le(k, x, constant(k, 88.72283905))), beyond, value);
}

// min(x, high) and max(x, low) with one comparison; NaN becomes the bound.
static expr at_most(sn_kir *k, expr x, double high) {
    return sn_kir_select(k, sn_kir_lt(k, x, constant(k, high)), x, constant(k, high));
}
static expr at_least(sn_kir *k, expr x, double low) {
    return sn_kir_select(k, sn_kir_gt(k, x, constant(k, low)), x, constant(k, low));
}

// 2^n (exp(r) - 1) + (2^n - 1)
static expr expand_expm1(sn_kir *k, expr *in) {
    expr x = in[0], low = sn_kir_max(k, x, constant(k, -30)); // expm1(-30) is -1
    reduced e = reduce_exp(k, low);
    expr small = sn_kir_fma(k, sn_kir_mul(k, e.r, e.r), e.poly, e.r);
    expr one = constant(k, 1);
    expr exponent = sn_kir_binary(k, SN_KIR_SHL, e.shifted, sn_kir_int(k, SN_I32, 23));
    expr scale = sn_kir_bitcast(k, sn_kir_add(k, sn_kir_bitcast(k, one, SN_I32), exponent), SN_F32);
    expr value = sn_kir_fma(k, small, scale, sn_kir_sub(k, scale, one));
    value = sn_kir_select(k, sn_kir_gt(k, x, constant(k, 60)), sn_kir_exp(k, x), value);
    return sn_kir_select(k, sn_kir_eq(k, x, constant(k, 0)), x, value); // keeps -0
}

// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
static expr expand_log(sn_kir *k, expr *in) {
    expr x = in[0], tiny = sn_kir_lt(k, x, constant(k, 0x1p-126));
    expr scaled = sn_kir_select(k, tiny, sn_kir_mul(k, x, constant(k, 0x1p23)), x);
    expr bits = sn_kir_bitcast(k, scaled, SN_I32);
    expr e = sn_kir_binary(k, SN_KIR_SHR, sn_kir_addi(k, bits, -0x3f3504f3), sn_kir_int(k, SN_I32, 23));
    expr mantissa = sn_kir_sub(k, bits, sn_kir_binary(k, SN_KIR_SHL, e, sn_kir_int(k, SN_I32, 23)));
    expr f = sn_kir_sub(k, sn_kir_bitcast(k, mantissa, SN_F32), constant(k, 1));
    expr exponent = sn_kir_add(k, sn_kir_cast(k, e, SN_F32), sn_kir_select(k, tiny, constant(k, -23), constant(k, 0)));
    expr square = sn_kir_mul(k, f, f);
    expr poly = HORNER(k, f, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                       -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1);
    expr y = sn_kir_mul(k, sn_kir_mul(k, poly, f), square);
    y = sn_kir_fma(k, exponent, constant(k, -2.12194440e-4), y);
    y = sn_kir_fma(k, square, constant(k, -0.5), y);
    expr value = sn_kir_fma(k, exponent, constant(k, 0.693359375), sn_kir_add(k, f, y));
    value = sn_kir_select(k, sn_kir_gt(k, x, constant(k, 0)), value, constant(k, NAN));
    value = sn_kir_select(k, sn_kir_eq(k, x, constant(k, 0)), constant(k, -INFINITY), value);
    return sn_kir_select(k, sn_kir_eq(k, x, constant(k, INFINITY)), x, value);
}

// log(u) x / (u - 1) with u = 1 + x rounded: the rounding errors of both factors cancel (W. Kahan).
static expr expand_log1p(sn_kir *k, expr *in) {
    expr x = in[0], one = constant(k, 1), u = sn_kir_add(k, x, one);
    expr value = sn_kir_div(k, sn_kir_mul(k, sn_kir_log(k, u), x), sn_kir_sub(k, u, one));
    value = sn_kir_select(k, sn_kir_gt(k, x, constant(k, 0x1p24)), sn_kir_log(k, u), value);
    return sn_kir_select(k, sn_kir_eq(k, u, one), x, value);
}

static expr expand_sigmoid(sn_kir *k, expr *in) {
    expr one = sn_kir_float(k, in[0]->dtype, 1);
    return sn_kir_div(k, one, sn_kir_add(k, one, sn_kir_exp(k, sn_kir_neg(k, in[0]))));
}

static expr expand_rsqrt(sn_kir *k, expr *in) {
    return sn_kir_div(k, sn_kir_float(k, in[0]->dtype, 1), sn_kir_sqrt(k, in[0]));
}

static expr expand_tanh(sn_kir *k, expr *in) {
    expr x = in[0], one = constant(k, 1), magnitude = sn_kir_abs(k, x), z = sn_kir_mul(k, x, x);
    expr poly =
        HORNER(k, z, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1);
    expr small = sn_kir_fma(k, sn_kir_mul(k, poly, z), x, x);
    expr power = exp_inside(k, at_most(k, sn_kir_add(k, magnitude, magnitude), 20)); // tanh(10) is 1
    expr large = sn_kir_sub(k, one, sn_kir_div(k, constant(k, 2), sn_kir_add(k, power, one)));
    expr far = sn_kir_gt(k, magnitude, constant(k, 0.625)); // not so for NaN, which the polynomial keeps
    return sn_kir_select(k, far, copysign_of(k, large, x), small);
}

static expr expand_erf(sn_kir *k, expr *in) {
    expr x = in[0], t = sn_kir_abs(k, x), s = sn_kir_mul(k, x, x);
    expr near =
        HORNER(k, s, -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1);
    near = sn_kir_fma(k, near, x, x);
    expr even = HORNER(k, t, -1.72853470e-5, 3.83197126e-4), odd = HORNER(k, t, -3.88396438e-3, 2.42546219e-2);
    expr far = sn_kir_fma(k, even, s, odd);
    far = sn_kir_fma(k, far, t, constant(k, -1.06777877e-1));
    far = sn_kir_fma(k, far, t, constant(k, -6.34846687e-1));
    far = sn_kir_fma(k, far, t, constant(k, -1.28717512e-1));
    far = exp_inside(k, at_least(k, sn_kir_fma(k, far, t, sn_kir_neg(k, t)), -87));
    far = copysign_of(k, sn_kir_sub(k, constant(k, 1), far), x);
    return sn_kir_select(k, sn_kir_gt(k, t, constant(k, 0.921875)), far, near);
}

static expr low_word(sn_kir *k, expr wide) {
    return sn_kir_cast(k, wide, SN_U32);
}

// Philox4x32-10 (base/philox.h) of the block index / 4, of which word index % 4 is returned.
static expr expand_random_bits(sn_kir *k, expr *in) {
    expr w32 = sn_kir_int(k, SN_U64, 32), block = sn_kir_binary(k, SN_KIR_SHR, in[3], sn_kir_int(k, SN_U64, 2));
    expr key[2] = {low_word(k, in[0]), low_word(k, sn_kir_binary(k, SN_KIR_SHR, in[0], w32))};
    expr c[4] = {low_word(k, block), low_word(k, sn_kir_binary(k, SN_KIR_SHR, block, w32)), in[2], in[1]};
    for (int round = 0; round < 10; round++) {
        expr by_a = sn_kir_int(k, SN_U32, 0xD2511F53), by_b = sn_kir_int(k, SN_U32, 0xCD9E8D57);
        expr high_a = sn_kir_binary(k, SN_KIR_MUL_HIGH, c[0], by_a), low_a = sn_kir_mul(k, c[0], by_a);
        expr high_b = sn_kir_binary(k, SN_KIR_MUL_HIGH, c[2], by_b), low_b = sn_kir_mul(k, c[2], by_b);
        c[0] = sn_kir_binary(k, SN_KIR_XOR, sn_kir_binary(k, SN_KIR_XOR, high_b, c[1]), key[0]);
        c[2] = sn_kir_binary(k, SN_KIR_XOR, sn_kir_binary(k, SN_KIR_XOR, high_a, c[3]), key[1]);
        c[1] = low_b;
        c[3] = low_a;
        key[0] = sn_kir_addi(k, key[0], 0x9E3779B9);
        key[1] = sn_kir_addi(k, key[1], 0xBB67AE85);
    }
    expr word = low_word(k, sn_kir_and(k, in[3], sn_kir_int(k, SN_U64, 3)));
    expr low = sn_kir_select(k, sn_kir_eq(k, word, sn_kir_int(k, SN_U32, 0)), c[0], c[1]);
    expr high = sn_kir_select(k, sn_kir_eq(k, word, sn_kir_int(k, SN_U32, 2)), c[2], c[3]);
    return sn_kir_select(k, sn_kir_lt(k, word, sn_kir_int(k, SN_U32, 2)), low, high);
}

static expr (*const expansions[SN_KIR_OP_COUNT])(sn_kir *, expr *) = {
    [SN_KIR_EXP] = expand_exp,         [SN_KIR_EXPM1] = expand_expm1, [SN_KIR_LOG] = expand_log,
    [SN_KIR_LOG1P] = expand_log1p,     [SN_KIR_TANH] = expand_tanh,   [SN_KIR_ERF] = expand_erf,
    [SN_KIR_SIGMOID] = expand_sigmoid, [SN_KIR_RSQRT] = expand_rsqrt, [SN_KIR_RANDOM_BITS] = expand_random_bits,
};

static void define(sn_kir_function *f, sn_kir_op op, sn_dtype dtype) {
    static const sn_dtype random_args[] = {SN_U64, SN_U32, SN_U32, SN_U64};
    f->body = sn_kir_new(sn_kir_op_name(op), 1);
    f->n_args = sn_kir_op_operands(op);
    for (int i = 0; i < f->n_args; i++) {
        f->args[i] = sn_kir_node_new(f->body, SN_KIR_ARG, op == SN_KIR_RANDOM_BITS ? random_args[i] : dtype);
        f->args[i]->i64 = i;
    }
    f->result = expansions[op](f->body, f->args);
}

const sn_kir_function *sn_kir_math_get(sn_kir_math *math, sn_kir_op op, sn_dtype dtype) {
    bool any_type = op == SN_KIR_SIGMOID || op == SN_KIR_RSQRT || op == SN_KIR_RANDOM_BITS;
    if (!expansions[op] || (dtype != SN_F32 && !any_type)) return NULL;
    sn_kir_function *f = &math->functions[op][dtype == SN_F64];
    if (!f->body) define(f, op, dtype);
    return f;
}

void sn_kir_math_free(sn_kir_math *math) {
    for (int i = 0; i < SN_KIR_OP_COUNT; i++)
        for (int j = 0; j < 2; j++) sn_kir_free(math->functions[i][j].body);
    memset(math, 0, sizeof *math);
}
