#include "passes/simplify/canonicalize.h"

#include <math.h>

// x where `op` does nothing to its operand x but stretch it.
static sn_value *identity(sn_rewriter *r, const sn_op *op, sn_value *x) {
    sn_type type = op->results[0]->type;
    return sn_type_equal(x->type, type) ? x : sn_build_broadcast(sn_rewriter_at(r, op), x, type.rank, type.dim);
}

static bool is_commutative(sn_op_kind kind) {
    static const bool commutative[SN_OP_COUNT] = {
        [SN_OP_ADD] = true,     [SN_OP_MUL] = true,    [SN_OP_MIN] = true,    [SN_OP_MAX] = true,
        [SN_OP_AND] = true,     [SN_OP_OR] = true,     [SN_OP_XOR] = true,    [SN_OP_EQUAL] = true,
        [SN_OP_BIT_AND] = true, [SN_OP_BIT_OR] = true, [SN_OP_BIT_XOR] = true};
    return commutative[kind];
}

static void swap_operands(sn_rewriter *r, sn_op *op) {
    sn_value *x = op->operands[0], *y = op->operands[1];
    sn_op_set_operand(op, 0, y);
    sn_op_set_operand(op, 1, x);
    r->changed = true;
}

// Pointwise ops broadcast by themselves: an operand that is a broadcast, or a constant of more than one element, is
// read as it was before where the other operands still give the result's shape.
static bool narrow_operand(sn_rewriter *r, sn_op *op, int index) {
    sn_value *operand = op->operands[index];
    sn_op *broadcast = sn_defined_by(operand, SN_OP_BROADCAST);
    bool splat = sn_value_is_constant(operand) && operand->type.rank > 0;
    if (!broadcast && !splat) return false;
    sn_type narrow = broadcast ? broadcast->operands[0]->type : sn_type_scalar(operand->type.dtype), shape = narrow;
    for (int i = 0; i < op->n_operands; i++)
        if (i != index && !sn_type_broadcast(shape, op->operands[i]->type, &shape)) return false;
    if (!sn_shape_equal(shape, op->results[0]->type)) return false;
    double number = 0;
    if (splat) SN_CHECK(sn_value_number(operand, &number));
    sn_op_set_operand(
        op, index, broadcast ? broadcast->operands[0] : sn_build_number_like(sn_rewriter_at(r, op), operand, number));
    r->changed = true;
    return true;
}

static bool is_scalar_constant(const sn_value *value) {
    return sn_value_is_constant(value) && sn_type_count(value->type) == 1;
}

// A pointwise op of one broadcast value (and numbers) is computed before the broadcast, on fewer elements.
static sn_value *narrow_op(sn_rewriter *r, sn_op *op) {
    sn_op *broadcast = NULL;
    for (int i = 0; i < op->n_operands; i++) {
        sn_op *found = sn_defined_by(op->operands[i], SN_OP_BROADCAST);
        if (!found && !is_scalar_constant(op->operands[i])) return NULL;
        if (found && broadcast && found->operands[0] != broadcast->operands[0]) return NULL;
        if (found) broadcast = found;
    }
    if (!broadcast || !sn_shape_equal(broadcast->results[0]->type, op->results[0]->type)) return NULL;
    sn_value *operands[3];
    for (int i = 0; i < op->n_operands; i++)
        operands[i] = is_scalar_constant(op->operands[i]) ? op->operands[i] : broadcast->operands[0];
    sn_type wide = op->results[0]->type, narrow = sn_type_with_dtype(broadcast->operands[0]->type, wide.dtype);
    for (int i = 0; i < op->n_operands; i++)
        if (!sn_broadcasts_to(narrow, operands[i]->type, narrow)) return NULL; // a number of more dims
    sn_builder *b = sn_rewriter_at(r, op);
    sn_op *first = sn_build(b, op->kind, op->n_operands, operands, op->n_attrs, op->attrs, &narrow);
    return sn_build_broadcast(b, first->results[0], wide.rank, wide.dim);
}

// Whether every value of `from` is a value of `to`.
static bool is_lossless(sn_dtype from, sn_dtype to) {
    // bits of the significand, or of an integer without its sign
    static const int digits[SN_DTYPE_COUNT] = {
        [SN_F32] = 24, [SN_F64] = 53, [SN_F16] = 11, [SN_BF16] = 8, [SN_I8] = 7,   [SN_I16] = 15, [SN_I32] = 31,
        [SN_I64] = 63, [SN_U8] = 8,   [SN_U16] = 16, [SN_U32] = 32, [SN_U64] = 64, [SN_BOOL] = 1};
    char a = sn_dtype_class(from), b = sn_dtype_class(to);
    if (from == to || a == 'b') return true;
    if (b == 'b' || (a == 'f' && b != 'f') || (a == 'i' && b == 'u')) return false;
    if (a != 'f' && b == 'f') return digits[from] <= digits[to];
    return digits[from] <= digits[to] && !(from == SN_F16 && to == SN_BF16) && !(from == SN_BF16 && to == SN_F16);
}

// cast(cast(x)) is one cast where the first keeps every value. Integers reach integers by wrapping, but from floats by
// saturating, so a detour through floats stays.
static sn_value *fold_cast(sn_rewriter *r, sn_op *op) {
    sn_value *x = op->operands[0];
    sn_dtype to = op->results[0]->type.dtype;
    if (x->type.dtype == to) return x;
    sn_op *inner = sn_defined_by(x, SN_OP_CAST);
    if (!inner) return NULL;
    sn_dtype from = inner->operands[0]->type.dtype;
    if (!is_lossless(from, x->type.dtype)) return NULL;
    if (from == to) return inner->operands[0];
    if (sn_dtype_is_float(x->type.dtype) && !sn_dtype_is_float(from) && !sn_dtype_is_float(to)) return NULL;
    return sn_build_cast(sn_rewriter_at(r, op), inner->operands[0], to);
}

static sn_value *fold_unary(sn_rewriter *r, sn_op *op) {
    sn_value *x = op->operands[0];
    sn_op *inner = sn_defined_by(x, op->kind);
    switch (op->kind) {
    case SN_OP_COPY:
        return x;
    case SN_OP_CAST:
        return fold_cast(r, op);
    case SN_OP_NEG:
    case SN_OP_NOT:
    case SN_OP_BIT_NOT:
        return inner ? inner->operands[0] : NULL;
    case SN_OP_ABS:
    case SN_OP_RELU:
    case SN_OP_FLOOR:
    case SN_OP_CEIL:
    case SN_OP_ROUND:
    case SN_OP_SIGN:
        return inner ? x : NULL;
    case SN_OP_RECIPROCAL:
        if ((inner = sn_defined_by(x, SN_OP_SQRT)))
            return sn_build_unary(sn_rewriter_at(r, op), SN_OP_RSQRT, inner->operands[0]);
        return NULL;
    default:
        return NULL;
    }
}

// x / c is x * (1/c) exactly where c and 1/c are powers of two.
static sn_value *divide_by_power_of_two(sn_rewriter *r, sn_op *op, double c) {
    int exponent;
    if (!sn_dtype_is_float(op->results[0]->type.dtype) || c == 0 || !isfinite(c)) return NULL;
    if (fabs(frexp(c, &exponent)) != 0.5 || exponent < -13 || exponent > 14) return NULL;
    return sn_build_binary_number(sn_rewriter_at(r, op), SN_OP_MUL, identity(r, op, op->operands[0]), 1 / c);
}

static sn_value *fold_power(sn_rewriter *r, sn_op *op, double exponent) {
    sn_value *x = op->operands[0];
    if (!sn_type_equal(x->type, op->results[0]->type)) return NULL;
    if (exponent == 1) return x;
    if (exponent == 2) return sn_build_binary(sn_rewriter_at(r, op), SN_OP_MUL, x, x);
    if (exponent == -1 && sn_dtype_is_float(x->type.dtype))
        return sn_build_unary(sn_rewriter_at(r, op), SN_OP_RECIPROCAL, x);
    return NULL;
}

// The right operand is the number c in every element.
static sn_value *fold_right_number(sn_rewriter *r, sn_op *op, double c) {
    sn_value *x = op->operands[0];
    switch (op->kind) {
    case SN_OP_ADD:
    case SN_OP_SUB:
    case SN_OP_OR:
    case SN_OP_XOR:
    case SN_OP_BIT_OR:
    case SN_OP_BIT_XOR:
    case SN_OP_SHIFT_LEFT:
    case SN_OP_SHIFT_RIGHT:
        return c == 0 ? identity(r, op, x) : NULL;
    case SN_OP_MUL:
        return c == 1 ? identity(r, op, x) : NULL;
    case SN_OP_AND:
        return c == 1 ? identity(r, op, x) : NULL;
    case SN_OP_DIV:
        return c == 1 ? identity(r, op, x) : divide_by_power_of_two(r, op, c);
    case SN_OP_POW:
        return fold_power(r, op, c);
    default:
        return NULL;
    }
}

// 1 / x, 1 / sqrt(x)
static sn_value *fold_left_number(sn_rewriter *r, sn_op *op, double c) {
    sn_value *x = op->operands[1];
    if (op->kind == SN_OP_DIV && c == 1 && sn_dtype_is_float(x->type.dtype))
        return sn_build_unary(sn_rewriter_at(r, op), SN_OP_RECIPROCAL, identity(r, op, x));
    if (op->kind == SN_OP_SUB && c == 0) return sn_build_unary(sn_rewriter_at(r, op), SN_OP_NEG, identity(r, op, x));
    return NULL;
}

static sn_value *fold_binary(sn_rewriter *r, sn_op *op) {
    double c;
    sn_op *negated;
    if (is_commutative(op->kind) && sn_value_is_constant(op->operands[0]) && !sn_value_is_constant(op->operands[1]))
        swap_operands(r, op);
    if (sn_value_number(op->operands[1], &c)) {
        sn_value *folded = fold_right_number(r, op, c);
        if (folded) return folded;
    }
    if (sn_value_number(op->operands[0], &c)) return fold_left_number(r, op, c);
    if ((op->kind == SN_OP_ADD || op->kind == SN_OP_SUB) && (negated = sn_defined_by(op->operands[1], SN_OP_NEG)))
        return sn_build_binary(sn_rewriter_at(r, op), op->kind == SN_OP_ADD ? SN_OP_SUB : SN_OP_ADD, op->operands[0],
                               negated->operands[0]);
    if ((op->kind == SN_OP_AND || op->kind == SN_OP_OR || op->kind == SN_OP_MIN || op->kind == SN_OP_MAX) &&
        op->operands[0] == op->operands[1])
        return op->operands[0];
    return NULL;
}

static sn_value *fold_where(sn_rewriter *r, sn_op *op) {
    double condition;
    sn_value *chosen = op->operands[1];
    if (sn_value_number(op->operands[0], &condition))
        chosen = op->operands[condition != 0 ? 1 : 2];
    else if (op->operands[1] != op->operands[2])
        return NULL;
    return sn_build_broadcast(sn_rewriter_at(r, op), chosen, op->results[0]->type.rank, op->results[0]->type.dim);
}

sn_value *sn_canonicalize_pointwise(sn_rewriter *r, sn_op *op) {
    static sn_value *(*const fold[])(sn_rewriter *, sn_op *) = {NULL, fold_unary, fold_binary, fold_where};
    for (int i = 0; op->n_operands > 1 && i < op->n_operands; i++) narrow_operand(r, op, i);
    sn_value *folded = fold[op->n_operands](r, op);
    return folded ? folded : narrow_op(r, op);
}
