// What is known when a value is built: constants fold, neutral elements vanish, known ranges decide comparisons.
#include "backend/kernel/build.h"
#include "backend/kernel/scalar.h"

#include <math.h>

static bool is_const(const sn_kir_node *node, double value) {
    if (node->op != SN_KIR_CONST) return false;
    return sn_dtype_is_float(node->dtype) ? node->f64 == value : node->i64 == (int64_t)value;
}

static bool foldable(const sn_kir_node *t) {
    int n = sn_kir_op_operands(t->op);
    if (n == 0 || (t->op >= SN_KIR_EXP && t->op <= SN_KIR_ATAN2) || t->op == SN_KIR_RANDOM_BITS) return false;
    for (int i = 0; i < n; i++)
        if (t->in[i]->op != SN_KIR_CONST) return false;
    return true;
}

static sn_kir_node *constant(sn_kir *k, sn_dtype dtype, sn_kir_scalar value) {
    sn_kir_node template = {.op = SN_KIR_CONST, .dtype = dtype};
    if (sn_dtype_is_float(dtype)) {
        template.f64 = value.f64;
    } else {
        template.i64 = value.i64;
    }
    return sn_kir_intern(k, template);
}

static sn_kir_node *fold(sn_kir *k, const sn_kir_node *t) {
    sn_kir_scalar in[4] = {{0}};
    for (int i = 0; i < sn_kir_op_operands(t->op); i++) {
        if (sn_dtype_is_float(t->in[i]->dtype)) {
            in[i].f64 = t->in[i]->f64;
        } else {
            in[i].i64 = t->in[i]->i64;
        }
    }
    sn_dtype from = t->in[t->op == SN_KIR_SELECT]->dtype;
    return constant(k, t->dtype, sn_kir_scalar_apply(t->op, t->dtype, from, in));
}

static bool commutes(sn_kir_op op) {
    return op == SN_KIR_ADD || op == SN_KIR_MUL || op == SN_KIR_AND || op == SN_KIR_OR || op == SN_KIR_XOR ||
           op == SN_KIR_EQ || op == SN_KIR_NE;
}

static sn_kir_node *divide(sn_kir *k, const sn_kir_node *t) {
    sn_kir_node *a = t->in[0], *b = t->in[1];
    bool modulo = t->op == SN_KIR_REM || t->op == SN_KIR_FLOOR_MOD;
    bool floor = t->op == SN_KIR_FLOOR_DIV || t->op == SN_KIR_FLOOR_MOD;
    if (b->op != SN_KIR_CONST || b->i64 <= 0 || t->dtype != SN_I64) return NULL;
    if (!floor && a->min < 0) return NULL;
    return modulo ? sn_kir_modulo(k, a, b->i64) : sn_kir_divide(k, a, b->i64);
}

static sn_kir_node *simplify_bool(sn_kir *k, const sn_kir_node *t) {
    sn_kir_node *a = t->in[0], *b = t->in[1];
    bool is_and = t->op == SN_KIR_AND;
    if (t->op == SN_KIR_XOR) return is_const(b, 0) ? a : NULL;
    if (a == b) return a;
    if (b->op != SN_KIR_CONST || t->dtype != SN_BOOL) return NULL;
    return (b->i64 != 0) == is_and ? a : sn_kir_int(k, SN_BOOL, !is_and);
}

static sn_kir_node *simplify_minmax(const sn_kir_node *t) {
    sn_kir_node *a = t->in[0], *b = t->in[1];
    if (a == b) return a;
    if (sn_dtype_is_float(t->dtype) || (t->dtype == SN_U64 && (a->min < 0 || b->min < 0))) return NULL;
    bool is_max = t->op == SN_KIR_MAX;
    if (a->max <= b->min) return is_max ? b : a;
    if (b->max <= a->min) return is_max ? a : b;
    return NULL;
}

static sn_kir_node *simplify_arithmetic(sn_kir *k, const sn_kir_node *t) {
    sn_kir_node *a = t->in[0], *b = t->in[1];
    bool integer = !sn_dtype_is_float(t->dtype);
    switch (t->op) {
    case SN_KIR_ADD:
    case SN_KIR_SUB:
        if (integer && is_const(b, 0)) return a;
        if (t->op == SN_KIR_SUB && integer && a == b) return sn_kir_int(k, t->dtype, 0);
        break;
    case SN_KIR_MUL:
        if (is_const(b, 1)) return a;
        if (integer && is_const(b, 0)) return b;
        break;
    case SN_KIR_DIV:
        if (is_const(b, 1)) return a;
        break;
    case SN_KIR_AND:
    case SN_KIR_OR:
    case SN_KIR_XOR:
        return simplify_bool(k, t);
    case SN_KIR_MIN:
    case SN_KIR_MAX:
        return simplify_minmax(t);
    default:
        break;
    }
    if (!integer) return NULL;
    if (t->op == SN_KIR_DIV || t->op == SN_KIR_REM || t->op == SN_KIR_FLOOR_DIV || t->op == SN_KIR_FLOOR_MOD)
        return divide(k, t);
    return t->dtype == SN_I64 ? sn_kir_linear(k, t) : NULL;
}

static sn_kir_node *simplify_compare(sn_kir *k, const sn_kir_node *t) {
    const sn_kir_node *a = t->in[0], *b = t->in[1];
    if (sn_dtype_is_float(a->dtype) || (a->dtype == SN_U64 && (a->min < 0 || b->min < 0))) return NULL;
    bool below = a->max<b->min, above = a->min> b->max, at_most = a->max <= b->min, at_least = a->min >= b->max;
    int known = -1;
    switch (t->op) {
    case SN_KIR_LT:
        known = below ? 1 : at_least ? 0 : -1;
        break;
    case SN_KIR_LE:
        known = at_most ? 1 : above ? 0 : -1;
        break;
    case SN_KIR_GT:
        known = above ? 1 : at_most ? 0 : -1;
        break;
    case SN_KIR_GE:
        known = at_least ? 1 : below ? 0 : -1;
        break;
    default:
        if (below || above) known = t->op == SN_KIR_NE;
        if (a == b) known = t->op == SN_KIR_EQ;
    }
    return known < 0 ? NULL : sn_kir_int(k, SN_BOOL, known);
}

static sn_kir_node *simplify_unary(sn_kir *k, const sn_kir_node *t) {
    sn_kir_node *a = t->in[0];
    switch (t->op) {
    case SN_KIR_NEG:
        if (a->op == SN_KIR_NEG) return a->in[0];
        return t->dtype == SN_I64 ? sn_kir_linear(k, t) : NULL;
    case SN_KIR_NOT:
        return a->op == SN_KIR_NOT ? a->in[0] : NULL;
    case SN_KIR_ABS:
        return !sn_dtype_is_float(t->dtype) && t->dtype != SN_U64 && a->min >= 0 ? a : NULL;
    default:
        return NULL;
    }
}

sn_kir_node *sn_kir_simplify(sn_kir *k, sn_kir_node t) {
    if (foldable(&t)) return fold(k, &t);
    if (commutes(t.op) && (t.in[0]->op == SN_KIR_CONST || (t.in[1]->op != SN_KIR_CONST && t.in[0]->id > t.in[1]->id))) {
        sn_kir_node *first = t.in[0];
        t.in[0] = t.in[1];
        t.in[1] = first;
    }
    sn_kir_node *simpler = NULL;
    if (t.op == SN_KIR_SELECT) {
        if (t.in[0]->op == SN_KIR_CONST) return t.in[0]->i64 ? t.in[1] : t.in[2];
        if (t.in[1] == t.in[2]) return t.in[1];
    } else if (t.op >= SN_KIR_EQ && t.op <= SN_KIR_GE) {
        simpler = simplify_compare(k, &t);
    } else if (sn_kir_op_operands(t.op) == 2) {
        simpler = simplify_arithmetic(k, &t);
    } else if (sn_kir_op_operands(t.op) == 1) {
        simpler = simplify_unary(k, &t);
    }
    return simpler ? simpler : sn_kir_intern(k, t);
}
