#include "backend/lower/rules.h"

static sn_kir_node *number(sn_lower *l, sn_kir_node *like, double value) {
    return sn_kir_number(l->k, like->dtype, value);
}

// Operators that exist for floats alone in kernel IR take other types through f64.
static sn_kir_node *math(sn_lower *l, sn_kir_op op, sn_kir_node *x) {
    if (sn_dtype_is_float(x->dtype)) return sn_kir_unary(l->k, op, x);
    return sn_kir_cast(l->k, sn_kir_unary(l->k, op, sn_kir_cast(l->k, x, SN_F64)), x->dtype);
}

static sn_kir_node *rounded(sn_lower *l, sn_kir_op op, sn_kir_node *x) {
    return sn_dtype_is_float(x->dtype) ? sn_kir_unary(l->k, op, x) : x;
}

// x/2 (1 + erf(x / sqrt 2))
static sn_kir_node *gelu(sn_lower *l, sn_kir_node *x) {
    sn_kir_node *erf = sn_kir_erf(l->k, sn_kir_mul(l->k, x, number(l, x, 0.70710678118654752440)));
    return sn_kir_mul(l->k, sn_kir_mul(l->k, x, number(l, x, 0.5)), sn_kir_add(l->k, erf, number(l, x, 1)));
}

// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
static sn_kir_node *gelu_tanh(sn_lower *l, sn_kir_node *x) {
    sn_kir *k = l->k;
    sn_kir_node *cube = sn_kir_mul(k, sn_kir_mul(k, x, x), x);
    sn_kir_node *inner = sn_kir_add(k, x, sn_kir_mul(k, cube, number(l, x, 0.044715)));
    sn_kir_node *tanh = sn_kir_tanh(k, sn_kir_mul(k, inner, number(l, x, 0.79788456080286535588)));
    return sn_kir_mul(k, sn_kir_mul(k, x, number(l, x, 0.5)), sn_kir_add(k, tanh, number(l, x, 1)));
}

// max(x, 0) + log1p(e^-|x|): log(1 + e^x) without overflow.
static sn_kir_node *softplus(sn_lower *l, sn_kir_node *x) {
    sn_kir *k = l->k;
    sn_kir_node *tail = sn_kir_unary(k, SN_KIR_LOG1P, sn_kir_exp(k, sn_kir_neg(k, sn_kir_abs(k, x))));
    return sn_kir_add(k, sn_kir_max(k, x, number(l, x, 0)), tail);
}

static sn_kir_node *unary(sn_lower *l, sn_op_kind kind, sn_kir_node *x) {
    sn_kir *k = l->k;
    bool number_like = x->dtype != SN_BOOL, is_unsigned = sn_dtype_class(x->dtype) == 'u';
    switch (kind) {
    case SN_OP_NEG:
        return sn_kir_neg(k, x);
    case SN_OP_ABS:
        return is_unsigned || !number_like ? x : sn_kir_abs(k, x);
    case SN_OP_SIGN:
        return number_like ? sn_kir_unary(k, SN_KIR_SIGN, x) : x;
    case SN_OP_FLOOR:
        return rounded(l, SN_KIR_FLOOR, x);
    case SN_OP_CEIL:
        return rounded(l, SN_KIR_CEIL, x);
    case SN_OP_ROUND:
        return rounded(l, SN_KIR_ROUND, x);
    case SN_OP_EXP:
        return math(l, SN_KIR_EXP, x);
    case SN_OP_LOG:
        return math(l, SN_KIR_LOG, x);
    case SN_OP_SQRT:
        return math(l, SN_KIR_SQRT, x);
    case SN_OP_RSQRT:
        return math(l, SN_KIR_RSQRT, x);
    case SN_OP_RECIPROCAL:
        return sn_kir_div(k, number(l, x, 1), x);
    case SN_OP_SIN:
        return math(l, SN_KIR_SIN, x);
    case SN_OP_COS:
        return math(l, SN_KIR_COS, x);
    case SN_OP_TAN:
        return math(l, SN_KIR_TAN, x);
    case SN_OP_ASIN:
        return math(l, SN_KIR_ASIN, x);
    case SN_OP_ACOS:
        return math(l, SN_KIR_ACOS, x);
    case SN_OP_ATAN:
        return math(l, SN_KIR_ATAN, x);
    case SN_OP_SINH:
        return math(l, SN_KIR_SINH, x);
    case SN_OP_COSH:
        return math(l, SN_KIR_COSH, x);
    case SN_OP_TANH:
        return math(l, SN_KIR_TANH, x);
    case SN_OP_ASINH:
        return math(l, SN_KIR_ASINH, x);
    case SN_OP_ACOSH:
        return math(l, SN_KIR_ACOSH, x);
    case SN_OP_ATANH:
        return math(l, SN_KIR_ATANH, x);
    case SN_OP_ERF:
        return math(l, SN_KIR_ERF, x);
    case SN_OP_SIGMOID:
        return math(l, SN_KIR_SIGMOID, x);
    case SN_OP_RELU:
        return is_unsigned || !number_like ? x : sn_kir_max(k, x, number(l, x, 0));
    case SN_OP_GELU:
        return gelu(l, x);
    case SN_OP_GELU_TANH:
        return gelu_tanh(l, x);
    case SN_OP_SOFTPLUS:
        return softplus(l, x);
    case SN_OP_IS_NAN:
        return sn_dtype_is_float(x->dtype) ? sn_kir_unary(k, SN_KIR_ISNAN, x) : sn_kir_int(k, SN_BOOL, 0);
    case SN_OP_NOT:
    case SN_OP_BIT_NOT:
        return sn_kir_not(k, x);
    default:
        SN_BUG("%s is not a rule of one operand", sn_op_name(kind));
    }
}

void sn_rule_unary(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_kir_node *x = sn_lower_element(l, op->operands[0], point);
    out[0] = sn_lower_round(l, unary(l, op->kind, x), op->results[0]->type.dtype);
}

void sn_rule_copy(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    out[0] = sn_lower_element(l, op->operands[0], point);
}

void sn_rule_cast(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_kir_node *x = sn_lower_element(l, op->operands[0], point);
    out[0] = sn_lower_convert(l, x, op->operands[0]->type.dtype, op->results[0]->type.dtype);
}

void sn_rule_is_inf(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_kir *k = l->k;
    sn_kir_node *x = sn_lower_element(l, op->operands[0], point);
    bool positive = sn_op_int(op, "positive"), negative = sn_op_int(op, "negative");
    out[0] = sn_kir_int(k, SN_BOOL, 0);
    if (!sn_dtype_is_float(x->dtype) || (!positive && !negative)) return;
    out[0] = sn_kir_unary(k, SN_KIR_ISINF, x);
    if (!negative) out[0] = sn_kir_and(k, out[0], sn_kir_gt(k, x, number(l, x, 0)));
    if (!positive) out[0] = sn_kir_and(k, out[0], sn_kir_lt(k, x, number(l, x, 0)));
}

// x^y of integers by squaring would loop; f64 is exact up to 2^53, which is what the interpreter defines.
static sn_kir_node *power(sn_lower *l, sn_kir_node *x, sn_kir_node *y) {
    sn_kir *k = l->k;
    if (sn_dtype_is_float(x->dtype)) return sn_kir_binary(k, SN_KIR_POW, x, y);
    sn_kir_node *wide = sn_kir_binary(k, SN_KIR_POW, sn_kir_cast(k, x, SN_F64), sn_kir_cast(k, y, SN_F64));
    return sn_kir_cast(k, wide, x->dtype);
}

// The remainder with y's sign: C's remainder, moved by y when the signs differ.
static sn_kir_node *modulo(sn_lower *l, sn_kir_node *x, sn_kir_node *y) {
    sn_kir *k = l->k;
    sn_kir_node *r = sn_kir_rem(k, x, y);
    if (sn_dtype_class(x->dtype) == 'u') return r;
    sn_kir_node *zero = number(l, x, 0);
    sn_kir_node *differ = sn_kir_ne(k, sn_kir_lt(k, r, zero), sn_kir_lt(k, y, zero));
    return sn_kir_select(k, sn_kir_and(k, sn_kir_ne(k, r, zero), differ), sn_kir_add(k, r, y), r);
}

sn_kir_node *sn_rule_combine(sn_lower *l, sn_kir_op op, sn_kir_node *a, sn_kir_node *b) {
    if (a->dtype == SN_BOOL) {
        if (op == SN_KIR_MAX || op == SN_KIR_ADD) op = SN_KIR_OR;
        if (op == SN_KIR_MIN || op == SN_KIR_MUL) op = SN_KIR_AND;
    }
    return sn_kir_binary(l->k, op, a, b);
}

static sn_kir_node *compare(sn_lower *l, sn_kir_op op, sn_kir_node *x, sn_kir_node *y) {
    if (x->dtype == SN_BOOL) {
        x = sn_kir_cast(l->k, x, SN_I32);
        y = sn_kir_cast(l->k, y, SN_I32);
    }
    return sn_kir_binary(l->k, op, x, y);
}

static sn_kir_node *binary(sn_lower *l, sn_op_kind kind, sn_kir_node *x, sn_kir_node *y) {
    sn_kir *k = l->k;
    switch (kind) {
    case SN_OP_ADD:
        return sn_rule_combine(l, SN_KIR_ADD, x, y);
    case SN_OP_SUB:
        return sn_kir_sub(k, x, y);
    case SN_OP_MUL:
        return sn_rule_combine(l, SN_KIR_MUL, x, y);
    case SN_OP_DIV:
        return sn_kir_div(k, x, y);
    case SN_OP_POW:
        return power(l, x, y);
    case SN_OP_MOD:
        return modulo(l, x, y);
    case SN_OP_FMOD:
        return sn_kir_rem(k, x, y);
    case SN_OP_MIN:
        return sn_rule_combine(l, SN_KIR_MIN, x, y);
    case SN_OP_MAX:
        return sn_rule_combine(l, SN_KIR_MAX, x, y);
    case SN_OP_AND:
    case SN_OP_BIT_AND:
        return sn_kir_and(k, x, y);
    case SN_OP_OR:
    case SN_OP_BIT_OR:
        return sn_kir_or(k, x, y);
    case SN_OP_XOR:
    case SN_OP_BIT_XOR:
        return sn_kir_binary(k, SN_KIR_XOR, x, y);
    case SN_OP_EQUAL:
        return compare(l, SN_KIR_EQ, x, y);
    case SN_OP_LESS:
        return compare(l, SN_KIR_LT, x, y);
    case SN_OP_LESS_EQUAL:
        return compare(l, SN_KIR_LE, x, y);
    case SN_OP_GREATER:
        return compare(l, SN_KIR_GT, x, y);
    case SN_OP_GREATER_EQUAL:
        return compare(l, SN_KIR_GE, x, y);
    case SN_OP_SHIFT_LEFT:
        return sn_kir_binary(k, SN_KIR_SHL, x, y);
    case SN_OP_SHIFT_RIGHT:
        return sn_kir_binary(k, SN_KIR_SHR, x, y);
    default:
        SN_BUG("%s is not a rule of two operands", sn_op_name(kind));
    }
}

void sn_rule_binary(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_type type = op->results[0]->type;
    sn_kir_node *x = sn_lower_broadcast_element(l, op->operands[0], type, point);
    sn_kir_node *y = sn_lower_broadcast_element(l, op->operands[1], type, point);
    out[0] = sn_lower_round(l, binary(l, op->kind, x, y), type.dtype);
}

void sn_rule_where(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_type type = op->results[0]->type;
    sn_kir_node *condition = sn_lower_broadcast_element(l, op->operands[0], type, point);
    sn_kir_node *x = sn_lower_broadcast_element(l, op->operands[1], type, point);
    sn_kir_node *y = sn_lower_broadcast_element(l, op->operands[2], type, point);
    out[0] = sn_kir_select(l->k, condition, x, y);
}

void sn_rule_constant(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    (void)point;
    sn_dtype dtype = op->results[0]->type.dtype;
    out[0] = sn_dtype_is_float(dtype) ? sn_kir_number(l->k, dtype, sn_op_float(op, "value"))
                                      : sn_kir_int(l->k, dtype, sn_op_int(op, "bits"));
}

void sn_rule_iota(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_kir_node *at = sn_kir_muli(l->k, point->at[sn_op_int(op, "axis")], sn_op_int(op, "step"));
    out[0] = sn_lower_convert(l, sn_kir_addi(l->k, at, sn_op_int(op, "start")), SN_I64, op->results[0]->type.dtype);
}

// Uniform in [0, 1): the upper 24 bits of Philox's word times 2^-24 (base/philox.h), at the global element index.
void sn_rule_random_uniform(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_kir *k = l->k;
    sn_point global = *point;
    sn_type type = op->results[0]->type;
    int rank, n_cut;
    const int64_t *dims = sn_op_ints(op, "global", &rank), *cut = sn_op_ints(op, "dims", &n_cut);
    if (rank == type.rank)
        for (int i = 0; i < rank; i++) type.dim[i] = dims[i];
    sn_point scalar = {0};
    for (int i = 0; i < n_cut; i++)
        global.at[cut[i]] = sn_kir_add(k, global.at[cut[i]], sn_lower_element(l, op->operands[2 + i], &scalar));
    sn_kir_node *seed = sn_kir_cast(k, sn_lower_element(l, op->operands[0], &scalar), SN_U64);
    sn_kir_node *step = sn_kir_cast(k, sn_lower_element(l, op->operands[1], &scalar), SN_U32);
    sn_kir_node *index = sn_kir_cast(k, sn_lower_flat(l, type, &global), SN_U64);
    sn_kir_node *bits = sn_kir_random_bits(k, seed, step, sn_kir_int(k, SN_U32, sn_op_int(op, "id")), index);
    sn_kir_node *upper = sn_kir_binary(k, SN_KIR_SHR, bits, sn_kir_int(k, SN_U32, 8));
    out[0] = sn_kir_mul(k, sn_kir_cast(k, upper, SN_F32), sn_kir_float(k, SN_F32, 0x1p-24));
}
