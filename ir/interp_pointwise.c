#include "ir/interp_reference.h"

#include <math.h>

static double neg(double x) {
    return -x;
}
static double sign(double x) {
    return isnan(x) ? x : (x > 0) - (x < 0);
}
static double rsqrt(double x) {
    return 1 / sqrt(x);
}
static double reciprocal(double x) {
    return 1 / x;
}
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double relu(double x) {
    return x < 0 ? 0 : x;
}
static double gelu(double x) {
    return 0.5 * x * (1 + erf(x * M_SQRT1_2));
}
static double gelu_tanh(double x) {
    return 0.5 * x * (1 + tanh(sqrt(M_2_PI) * (x + 0.044715 * x * x * x)));
}
static double softplus(double x) {
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}
static double is_nan(double x) {
    return isnan(x);
}

static uint64_t same_i(uint64_t x) {
    return x;
}
static uint64_t neg_i(uint64_t x) {
    return -x;
}
static uint64_t abs_i(uint64_t x) {
    return (int64_t)x < 0 ? -x : x;
}
static uint64_t sign_i(uint64_t x) {
    return (uint64_t)(((int64_t)x > 0) - ((int64_t)x < 0));
}
static uint64_t sign_u(uint64_t x) {
    return x > 0;
}
static uint64_t relu_i(uint64_t x) {
    return (int64_t)x < 0 ? 0 : x;
}
static uint64_t zero_i(uint64_t x) {
    (void)x;
    return 0;
}
static uint64_t not_i(uint64_t x) {
    return !x;
}
static uint64_t bit_not_i(uint64_t x) {
    return ~x;
}

// `real` for floats and for integers without a function of their own; `integer` for integers and bools, where
// `natural` replaces it for u64, the only type whose values do not all fit into an int64_t.
static const struct {
    double (*real)(double);
    uint64_t (*integer)(uint64_t), (*natural)(uint64_t);
} unary[SN_OP_COUNT] = {
    [SN_OP_NEG] = {neg, neg_i, NULL},
    [SN_OP_ABS] = {fabs, abs_i, same_i},
    [SN_OP_SIGN] = {sign, sign_i, sign_u},
    [SN_OP_FLOOR] = {floor, same_i, NULL},
    [SN_OP_CEIL] = {ceil, same_i, NULL},
    [SN_OP_ROUND] = {nearbyint, same_i, NULL},
    [SN_OP_EXP] = {exp, NULL, NULL},
    [SN_OP_LOG] = {log, NULL, NULL},
    [SN_OP_SQRT] = {sqrt, NULL, NULL},
    [SN_OP_RSQRT] = {rsqrt, NULL, NULL},
    [SN_OP_RECIPROCAL] = {reciprocal, NULL, NULL},
    [SN_OP_SIN] = {sin, NULL, NULL},
    [SN_OP_COS] = {cos, NULL, NULL},
    [SN_OP_TAN] = {tan, NULL, NULL},
    [SN_OP_ASIN] = {asin, NULL, NULL},
    [SN_OP_ACOS] = {acos, NULL, NULL},
    [SN_OP_ATAN] = {atan, NULL, NULL},
    [SN_OP_SINH] = {sinh, NULL, NULL},
    [SN_OP_COSH] = {cosh, NULL, NULL},
    [SN_OP_TANH] = {tanh, NULL, NULL},
    [SN_OP_ASINH] = {asinh, NULL, NULL},
    [SN_OP_ACOSH] = {acosh, NULL, NULL},
    [SN_OP_ATANH] = {atanh, NULL, NULL},
    [SN_OP_ERF] = {erf, NULL, NULL},
    [SN_OP_SIGMOID] = {sigmoid, NULL, NULL},
    [SN_OP_RELU] = {relu, relu_i, same_i},
    [SN_OP_GELU] = {gelu, NULL, NULL},
    [SN_OP_GELU_TANH] = {gelu_tanh, NULL, NULL},
    [SN_OP_SOFTPLUS] = {softplus, NULL, NULL},
    [SN_OP_IS_NAN] = {is_nan, zero_i, NULL},
    [SN_OP_NOT] = {NULL, not_i, NULL},
    [SN_OP_BIT_NOT] = {NULL, bit_not_i, NULL},
};

const char *sn_reference_unary(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    double (*real)(double) = unary[op->kind].real;
    uint64_t (*integer)(uint64_t) = unary[op->kind].integer;
    if (in->type.dtype == SN_U64 && unary[op->kind].natural) integer = unary[op->kind].natural;
    bool as_real = sn_tensor_is_float(in) || !integer;
    if (as_real && !real) return "the operator does not take floats";
    int64_t count = sn_type_count(out->type);
    if (as_real)
        for (int64_t i = 0; i < count; i++) sn_put_f64(out, i, real(sn_at_f64(in, i)));
    else
        for (int64_t i = 0; i < count; i++) sn_put_i64(out, i, (int64_t)integer((uint64_t)sn_at_i64(in, i)));
    return NULL;
}

static double add(double x, double y) {
    return x + y;
}
static double sub(double x, double y) {
    return x - y;
}
static double mul(double x, double y) {
    return x * y;
}
static double quotient(double x, double y) {
    return x / y;
}
static double mod(double x, double y) {
    double remainder = fmod(x, y);
    return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
}
static double smaller(double x, double y) {
    return isnan(x) || x < y ? x : y;
}
static double larger(double x, double y) {
    return isnan(x) || x > y ? x : y;
}

static uint64_t add_i(uint64_t x, uint64_t y) {
    return x + y;
}
static uint64_t sub_i(uint64_t x, uint64_t y) {
    return x - y;
}
static uint64_t mul_i(uint64_t x, uint64_t y) {
    return x * y;
}
// -1 is apart because INT64_MIN / -1 overflows.
static uint64_t div_i(uint64_t x, uint64_t y) {
    if (y == UINT64_MAX) return -x;
    return y ? (uint64_t)((int64_t)x / (int64_t)y) : 0;
}
static uint64_t div_u(uint64_t x, uint64_t y) {
    return y ? x / y : 0;
}
static uint64_t fmod_i(uint64_t x, uint64_t y) {
    if (y == UINT64_MAX) return 0;
    return y ? (uint64_t)((int64_t)x % (int64_t)y) : 0;
}
static uint64_t mod_i(uint64_t x, uint64_t y) {
    int64_t remainder = (int64_t)fmod_i(x, y);
    return remainder && (remainder < 0) != ((int64_t)y < 0) ? (uint64_t)remainder + y : (uint64_t)remainder;
}
static uint64_t mod_u(uint64_t x, uint64_t y) {
    return y ? x % y : 0;
}
static uint64_t pow_u(uint64_t x, uint64_t y) {
    uint64_t power = 1;
    for (; y; y >>= 1, x *= x)
        if (y & 1) power *= x;
    return power;
}
// x^-n truncates to 0 unless |x| is 1.
static uint64_t pow_i(uint64_t x, uint64_t y) {
    if ((int64_t)y >= 0) return pow_u(x, y);
    if (x == 1) return 1;
    if (x == UINT64_MAX) return y & 1 ? x : 1;
    return 0;
}
static uint64_t min_i(uint64_t x, uint64_t y) {
    return (int64_t)x < (int64_t)y ? x : y;
}
static uint64_t min_u(uint64_t x, uint64_t y) {
    return x < y ? x : y;
}
static uint64_t max_i(uint64_t x, uint64_t y) {
    return (int64_t)x > (int64_t)y ? x : y;
}
static uint64_t max_u(uint64_t x, uint64_t y) {
    return x > y ? x : y;
}
static uint64_t and_i(uint64_t x, uint64_t y) {
    return x & y;
}
static uint64_t or_i(uint64_t x, uint64_t y) {
    return x | y;
}
static uint64_t xor_i(uint64_t x, uint64_t y) {
    return x ^ y;
}
static uint64_t shift_left_i(uint64_t x, uint64_t y) {
    return y < 64 ? x << y : 0;
}
static uint64_t shift_right_i(uint64_t x, uint64_t y) {
    return y < 64 ? x >> y : 0;
}

static const struct {
    double (*real)(double, double);
    uint64_t (*integer)(uint64_t, uint64_t), (*natural)(uint64_t, uint64_t);
} binary[SN_OP_COUNT] = {
    [SN_OP_ADD] = {add, add_i, NULL},
    [SN_OP_SUB] = {sub, sub_i, NULL},
    [SN_OP_MUL] = {mul, mul_i, NULL},
    [SN_OP_DIV] = {quotient, div_i, div_u},
    [SN_OP_POW] = {pow, pow_i, pow_u},
    [SN_OP_MOD] = {mod, mod_i, mod_u},
    [SN_OP_FMOD] = {fmod, fmod_i, mod_u},
    [SN_OP_MIN] = {smaller, min_i, min_u},
    [SN_OP_MAX] = {larger, max_i, max_u},
    [SN_OP_AND] = {NULL, and_i, NULL},
    [SN_OP_OR] = {NULL, or_i, NULL},
    [SN_OP_XOR] = {NULL, xor_i, NULL},
    [SN_OP_BIT_AND] = {NULL, and_i, NULL},
    [SN_OP_BIT_OR] = {NULL, or_i, NULL},
    [SN_OP_BIT_XOR] = {NULL, xor_i, NULL},
    [SN_OP_SHIFT_LEFT] = {NULL, shift_left_i, NULL},
    [SN_OP_SHIFT_RIGHT] = {NULL, shift_right_i, NULL},
};

static sn_walk walk_pair(const sn_tensor *in, const sn_tensor *out) {
    sn_walk walk = sn_walk_over(out->type);
    sn_walk_add_broadcast(&walk, in[0].type);
    sn_walk_add_broadcast(&walk, in[1].type);
    return walk;
}

const char *sn_reference_binary(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    double (*real)(double, double) = binary[op->kind].real;
    uint64_t (*integer)(uint64_t, uint64_t) = binary[op->kind].integer;
    if (in->type.dtype == SN_U64 && binary[op->kind].natural) integer = binary[op->kind].natural;
    sn_walk w = walk_pair(in, out);
    if (sn_tensor_is_float(in)) {
        if (!real) return "the operator does not take floats";
        for (; w.left; sn_walk_next(&w))
            sn_put_f64(out, w.index, real(sn_at_f64(&in[0], w.offset[0]), sn_at_f64(&in[1], w.offset[1])));
    } else {
        for (; w.left; sn_walk_next(&w)) {
            uint64_t x = (uint64_t)sn_at_i64(&in[0], w.offset[0]), y = (uint64_t)sn_at_i64(&in[1], w.offset[1]);
            sn_put_i64(out, w.index, (int64_t)integer(x, y));
        }
    }
    return NULL;
}

// How two numbers compare; a comparison names the orders that it accepts, and NaN gives none.
enum { BELOW = 1, SAME = 2, ABOVE = 4 };
static const int accepted[SN_OP_COUNT] = {
    [SN_OP_EQUAL] = SAME,
    [SN_OP_LESS] = BELOW,
    [SN_OP_GREATER] = ABOVE,
    [SN_OP_LESS_EQUAL] = BELOW | SAME,
    [SN_OP_GREATER_EQUAL] = ABOVE | SAME,
};
#define ORDER(x, y) ((x) < (y) ? BELOW : (x) == (y) ? SAME : (x) > (y) ? ABOVE : 0)

static int order_of(const sn_tensor *x, int64_t i, const sn_tensor *y, int64_t j) {
    if (sn_tensor_is_float(x)) return ORDER(sn_at_f64(x, i), sn_at_f64(y, j));
    if (x->type.dtype == SN_U64) return ORDER((uint64_t)sn_at_i64(x, i), (uint64_t)sn_at_i64(y, j));
    return ORDER(sn_at_i64(x, i), sn_at_i64(y, j));
}

const char *sn_reference_compare(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    for (sn_walk w = walk_pair(in, out); w.left; sn_walk_next(&w)) {
        int order = order_of(&in[0], w.offset[0], &in[1], w.offset[1]);
        sn_put_i64(out, w.index, (order & accepted[op->kind]) != 0);
    }
    return NULL;
}

const char *sn_reference_copy(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    (void)op;
    int64_t bytes = sn_type_bytes(out->type);
    if (sn_type_bytes(in->type) != bytes) return "the operand does not have as many elements as the result";
    if (bytes) __builtin_memcpy(out->data, in->data, (size_t)bytes);
    return NULL;
}

// The range of an integer type, as doubles: the upper end is the first number that is too large.
static void integer_range(sn_dtype dtype, double *low, double *too_high) {
    int bits = 8 * (int)sn_dtype_bytes(dtype);
    bool is_signed = sn_dtype_class(dtype) == 'i';
    *low = is_signed ? -ldexp(1, bits - 1) : 0;
    *too_high = ldexp(1, is_signed ? bits - 1 : bits);
}

static void cast_to_integer(const sn_tensor *in, sn_tensor *out) {
    double low, too_high;
    integer_range(out->type.dtype, &low, &too_high);
    int64_t count = sn_type_count(out->type);
    uint64_t lowest = (uint64_t)(int64_t)low, highest = sn_dtype_class(out->type.dtype) == 'u' ? UINT64_MAX : ~lowest;
    for (int64_t i = 0; i < count; i++) {
        double x = trunc(sn_at_f64(in, i));
        uint64_t value = isnan(x)        ? 0
                         : x < low       ? lowest
                         : x >= too_high ? highest
                         : x < 0         ? (uint64_t)(int64_t)x
                                         : (uint64_t)x;
        sn_put_i64(out, i, (int64_t)value);
    }
}

const char *sn_reference_cast(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    (void)op;
    int64_t count = sn_type_count(out->type);
    char to = sn_dtype_class(out->type.dtype);
    if (sn_tensor_is_float(in) && to == 'b')
        for (int64_t i = 0; i < count; i++) sn_put_i64(out, i, sn_at_f64(in, i) != 0);
    else if (sn_tensor_is_float(in) && to != 'f')
        cast_to_integer(in, out);
    else if (to == 'f' && in->type.dtype == SN_I64 && out->type.dtype == SN_F32) // through double would round twice
        for (int64_t i = 0; i < count; i++) ((float *)out->data)[i] = (float)((const int64_t *)in->data)[i];
    else if (to == 'f')
        for (int64_t i = 0; i < count; i++) sn_put_f64(out, i, sn_at_f64(in, i));
    else
        for (int64_t i = 0; i < count; i++) sn_put_i64(out, i, sn_at_i64(in, i));
    return NULL;
}

const char *sn_reference_is_inf(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    bool negative = sn_op_int(op, "negative"), positive = sn_op_int(op, "positive");
    int64_t count = sn_type_count(out->type);
    for (int64_t i = 0; i < count; i++) {
        double x = sn_at_f64(in, i);
        sn_put_i64(out, i, isinf(x) && (x < 0 ? negative : positive));
    }
    return NULL;
}

const char *sn_reference_where(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    (void)op;
    sn_walk w = sn_walk_over(out->type);
    for (int k = 0; k < 3; k++) sn_walk_add_broadcast(&w, in[k].type);
    for (; w.left; sn_walk_next(&w)) {
        int chosen = sn_at_i64(&in[0], w.offset[0]) ? 1 : 2;
        sn_copy_element(out, w.index, &in[chosen], w.offset[chosen]);
    }
    return NULL;
}
