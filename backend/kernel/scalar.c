#include "backend/kernel/scalar.h"

#include <math.h>
#include <string.h>

int64_t sn_kir_wrap(sn_dtype dtype, int64_t value) {
    int64_t wrapped = 0;
    if (dtype == SN_U64) return value;
    sn_store_i64(dtype, &wrapped, 0, value);
    return sn_load_i64(dtype, &wrapped, 0);
}

int64_t sn_kir_type_max(sn_dtype dtype) {
    if (dtype == SN_BOOL) return 1;
    if (sn_dtype_bytes(dtype) == 8) return INT64_MAX;
    int bits = 8 * (int)sn_dtype_bytes(dtype) - sn_kir_is_signed(dtype);
    return (INT64_C(1) << bits) - 1;
}

int64_t sn_kir_type_min(sn_dtype dtype) {
    if (dtype == SN_U64) return INT64_MIN; // as bits
    return sn_kir_is_signed(dtype) ? -sn_kir_type_max(dtype) - 1 : 0;
}

static double float_unary(sn_kir_op op, double x) {
    switch (op) {
    case SN_KIR_NEG:
        return -x;
    case SN_KIR_ABS:
        return fabs(x);
    case SN_KIR_SIGN:
        return x > 0 ? 1 : x < 0 ? -1 : x;
    case SN_KIR_FLOOR:
        return floor(x);
    case SN_KIR_CEIL:
        return ceil(x);
    case SN_KIR_ROUND:
        return nearbyint(x);
    case SN_KIR_TRUNC:
        return trunc(x);
    case SN_KIR_SQRT:
        return sqrt(x);
    default:
        SN_BUG("no value for %s", sn_kir_op_name(op));
    }
}

typedef struct libm {
    float (*f32)(float);
    double (*f64)(double);
} libm;

static const libm functions[SN_KIR_OP_COUNT] = {
    [SN_KIR_EXP] = {expf, exp},       [SN_KIR_LOG] = {logf, log},       [SN_KIR_LOG1P] = {log1pf, log1p},
    [SN_KIR_EXPM1] = {expm1f, expm1}, [SN_KIR_TANH] = {tanhf, tanh},    [SN_KIR_ERF] = {erff, erf},
    [SN_KIR_SIN] = {sinf, sin},       [SN_KIR_COS] = {cosf, cos},       [SN_KIR_TAN] = {tanf, tan},
    [SN_KIR_ASIN] = {asinf, asin},    [SN_KIR_ACOS] = {acosf, acos},    [SN_KIR_ATAN] = {atanf, atan},
    [SN_KIR_SINH] = {sinhf, sinh},    [SN_KIR_COSH] = {coshf, cosh},    [SN_KIR_ASINH] = {asinhf, asinh},
    [SN_KIR_ACOSH] = {acoshf, acosh}, [SN_KIR_ATANH] = {atanhf, atanh},
};

// Addition, multiplication, division and square root of floats computed in double and rounded once more are correctly
// rounded (53 >= 2 * 24 + 2).
static double float_binary(sn_kir_op op, bool single, double a, double b) {
    switch (op) {
    case SN_KIR_ADD:
        return a + b;
    case SN_KIR_SUB:
        return a - b;
    case SN_KIR_MUL:
        return a * b;
    case SN_KIR_DIV:
        return a / b;
    case SN_KIR_REM:
        return fmod(a, b);
    case SN_KIR_MIN:
        return a < b || isnan(a) ? a : b;
    case SN_KIR_MAX:
        return a > b || isnan(a) ? a : b;
    case SN_KIR_POW:
        return single ? (double)powf((float)a, (float)b) : pow(a, b);
    case SN_KIR_ATAN2:
        return single ? (double)atan2f((float)a, (float)b) : atan2(a, b);
    default:
        SN_BUG("no value for %s", sn_kir_op_name(op));
    }
}

static bool compare_float(sn_kir_op op, double a, double b) {
    switch (op) {
    case SN_KIR_EQ:
        return a == b;
    case SN_KIR_NE:
        return a != b;
    case SN_KIR_LT:
        return a < b;
    case SN_KIR_LE:
        return a <= b;
    case SN_KIR_GT:
        return a > b;
    default:
        return a >= b;
    }
}

static bool compare_integer(sn_kir_op op, bool is_signed, int64_t a, int64_t b) {
    bool less = is_signed ? a < b : (uint64_t)a < (uint64_t)b;
    switch (op) {
    case SN_KIR_EQ:
        return a == b;
    case SN_KIR_NE:
        return a != b;
    case SN_KIR_LT:
        return less;
    case SN_KIR_LE:
        return less || a == b;
    case SN_KIR_GT:
        return !less && a != b;
    default:
        return !less;
    }
}

static int64_t divide(sn_kir_op op, bool is_signed, int64_t a, int64_t b) {
    bool quotient = op == SN_KIR_DIV || op == SN_KIR_FLOOR_DIV;
    if (b == 0) return 0;
    if (!is_signed) return (int64_t)(quotient ? (uint64_t)a / (uint64_t)b : (uint64_t)a % (uint64_t)b);
    if (b == -1) return quotient ? (int64_t)(0 - (uint64_t)a) : 0;
    int64_t q = a / b, r = a % b;
    bool down = (op == SN_KIR_FLOOR_DIV || op == SN_KIR_FLOOR_MOD) && r != 0 && (r < 0) != (b < 0);
    return quotient ? q - down : r + (down ? b : 0);
}

static int64_t shift(sn_kir_op op, sn_dtype dtype, int64_t a, int64_t b) {
    int bits = 8 * (int)sn_dtype_bytes(dtype);
    bool out = b < 0 || b >= bits;
    if (op == SN_KIR_SHL) return out ? 0 : (int64_t)((uint64_t)a << b);
    if (!sn_kir_is_signed(dtype)) return out ? 0 : (int64_t)((uint64_t)a >> b);
    return out ? (a < 0 ? -1 : 0) : a >> b;
}

static int64_t integer_binary(sn_kir_op op, sn_dtype dtype, int64_t a, int64_t b) {
    bool is_signed = sn_kir_is_signed(dtype);
    switch (op) {
    case SN_KIR_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case SN_KIR_SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case SN_KIR_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case SN_KIR_MUL_HIGH:
        return (int64_t)((uint64_t)a * (uint64_t)b >> 32);
    case SN_KIR_DIV:
    case SN_KIR_REM:
    case SN_KIR_FLOOR_DIV:
    case SN_KIR_FLOOR_MOD:
        return divide(op, is_signed, a, b);
    case SN_KIR_MIN:
        return compare_integer(SN_KIR_LT, is_signed, a, b) ? a : b;
    case SN_KIR_MAX:
        return compare_integer(SN_KIR_LT, is_signed, a, b) ? b : a;
    case SN_KIR_AND:
        return a & b;
    case SN_KIR_OR:
        return a | b;
    case SN_KIR_XOR:
        return a ^ b;
    case SN_KIR_SHL:
    case SN_KIR_SHR:
        return shift(op, dtype, a, b);
    default:
        SN_BUG("no integer value for %s", sn_kir_op_name(op));
    }
}

static int64_t integer_unary(sn_kir_op op, sn_dtype dtype, int64_t a) {
    bool negative = sn_kir_is_signed(dtype) && a < 0;
    switch (op) {
    case SN_KIR_NEG:
        return (int64_t)(0 - (uint64_t)a);
    case SN_KIR_ABS:
        return negative ? (int64_t)(0 - (uint64_t)a) : a;
    case SN_KIR_SIGN:
        return negative ? -1 : a != 0;
    case SN_KIR_NOT:
        return dtype == SN_BOOL ? !a : ~a;
    default:
        SN_BUG("no integer value for %s", sn_kir_op_name(op));
    }
}

static sn_kir_scalar cast(sn_dtype to, sn_dtype from, sn_kir_scalar x) {
    uint64_t memory = 0;
    if (sn_dtype_is_float(from)) {
        sn_store_f64(to, &memory, 0, x.f64);
    } else if (from == SN_U64 && sn_dtype_is_float(to)) {
        return (sn_kir_scalar){.f64 = to == SN_F32 ? (double)(float)(uint64_t)x.i64 : (double)(uint64_t)x.i64};
    } else if (to == SN_F32) {
        return (sn_kir_scalar){.f64 = (float)x.i64}; // not through double, which would round twice
    } else {
        sn_store_i64(to, &memory, 0, x.i64);
    }
    if (sn_dtype_is_float(to)) return (sn_kir_scalar){.f64 = sn_load_f64(to, &memory, 0)};
    return (sn_kir_scalar){.i64 = sn_load_i64(to, &memory, 0)};
}

static sn_kir_scalar bitcast(sn_dtype to, sn_dtype from, sn_kir_scalar x) {
    uint64_t memory = 0;
    if (sn_dtype_is_float(from)) {
        sn_store_f64(from, &memory, 0, x.f64);
    } else {
        sn_store_i64(from, &memory, 0, x.i64);
    }
    if (sn_dtype_is_float(to)) return (sn_kir_scalar){.f64 = sn_load_f64(to, &memory, 0)};
    return (sn_kir_scalar){.i64 = sn_load_i64(to, &memory, 0)};
}

static sn_kir_scalar apply_float(sn_kir_op op, sn_dtype dtype, const sn_kir_scalar in[4]) {
    bool single = dtype == SN_F32;
    double a = in[0].f64, value;
    if (op == SN_KIR_FMA) {
        value = single ? (double)fmaf((float)a, (float)in[1].f64, (float)in[2].f64) : fma(a, in[1].f64, in[2].f64);
    } else if (functions[op].f32) {
        value = single ? (double)functions[op].f32((float)a) : functions[op].f64(a);
    } else if (op == SN_KIR_ROUND_F16) {
        value = sn_f16_to_f32(sn_f16_from_f32((float)a));
    } else if (op == SN_KIR_ROUND_BF16) {
        value = sn_bf16_to_f32(sn_bf16_from_f32((float)a));
    } else {
        value = sn_kir_op_operands(op) == 2 ? float_binary(op, single, a, in[1].f64) : float_unary(op, a);
    }
    return (sn_kir_scalar){.f64 = single ? (double)(float)value : value};
}

sn_kir_scalar sn_kir_scalar_apply(sn_kir_op op, sn_dtype to, sn_dtype from, const sn_kir_scalar in[4]) {
    bool is_float = sn_dtype_is_float(from);
    switch (op) {
    case SN_KIR_CAST:
        return cast(to, from, in[0]);
    case SN_KIR_BITCAST:
        return bitcast(to, from, in[0]);
    case SN_KIR_SELECT:
        return in[0].i64 ? in[1] : in[2];
    case SN_KIR_ISNAN:
        return (sn_kir_scalar){.i64 = is_float && isnan(in[0].f64)};
    case SN_KIR_ISINF:
        return (sn_kir_scalar){.i64 = is_float && isinf(in[0].f64)};
    case SN_KIR_EQ:
    case SN_KIR_NE:
    case SN_KIR_LT:
    case SN_KIR_LE:
    case SN_KIR_GT:
    case SN_KIR_GE:
        return (sn_kir_scalar){.i64 = is_float ? compare_float(op, in[0].f64, in[1].f64)
                                               : compare_integer(op, sn_kir_is_signed(from), in[0].i64, in[1].i64)};
    default:
        break;
    }
    if (is_float) return apply_float(op, to, in);
    int64_t value;
    if (op == SN_KIR_FMA) {
        value = (int64_t)((uint64_t)in[0].i64 * (uint64_t)in[1].i64 + (uint64_t)in[2].i64);
    } else {
        value = sn_kir_op_operands(op) == 2 ? integer_binary(op, to, in[0].i64, in[1].i64)
                                            : integer_unary(op, to, in[0].i64);
    }
    return (sn_kir_scalar){.i64 = sn_kir_wrap(to, value)};
}

sn_kir_scalar sn_kir_scalar_identity(sn_kir_op reduce, sn_dtype dtype) {
    bool is_float = sn_dtype_is_float(dtype);
    switch (reduce) {
    case SN_KIR_MUL:
        return is_float ? (sn_kir_scalar){.f64 = 1} : (sn_kir_scalar){.i64 = 1};
    case SN_KIR_MIN:
        if (dtype == SN_U64) return (sn_kir_scalar){.i64 = -1};
        return is_float ? (sn_kir_scalar){.f64 = INFINITY} : (sn_kir_scalar){.i64 = sn_kir_type_max(dtype)};
    case SN_KIR_MAX:
        if (dtype == SN_U64) return (sn_kir_scalar){.i64 = 0};
        return is_float ? (sn_kir_scalar){.f64 = -INFINITY} : (sn_kir_scalar){.i64 = sn_kir_type_min(dtype)};
    case SN_KIR_AND:
        return (sn_kir_scalar){.i64 = sn_kir_wrap(dtype, -1)};
    default:
        return is_float ? (sn_kir_scalar){.f64 = 0} : (sn_kir_scalar){.i64 = 0};
    }
}
