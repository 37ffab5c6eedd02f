#include "passes/simplify/match.h"

#include <math.h>

bool sn_is_close(double a, double b) {
    return fabs(a - b) <= 1e-3 * fabs(b);
}

static void take_apart(sn_value *value, sn_product *p, int depth) {
    double number;
    if (sn_value_number(value, &number)) {
        p->scale *= number;
        return;
    }
    const sn_op *op = value->kind == SN_VALUE_RESULT && depth > 0 ? value->def : NULL;
    if (op && op->kind == SN_OP_MUL) {
        take_apart(op->operands[0], p, depth - 1);
        take_apart(op->operands[1], p, depth - 1);
    } else if (op && op->kind == SN_OP_NEG) {
        p->scale = -p->scale;
        take_apart(op->operands[0], p, depth - 1);
    } else if (op && op->kind == SN_OP_DIV && sn_value_number(op->operands[1], &number)) {
        p->scale /= number;
        take_apart(op->operands[0], p, depth - 1);
    } else if (op && op->kind == SN_OP_POW && sn_value_number(op->operands[1], &number) &&
               (number == 2 || number == 3)) {
        for (int i = 0; i < (int)number; i++) take_apart(op->operands[0], p, 0);
    } else if (p->count < SN_PRODUCT_FACTORS) {
        p->factor[p->count++] = value;
    } else {
        p->count = SN_PRODUCT_FACTORS + 1; // too many: no pattern has them
    }
}

sn_product sn_match_product(sn_value *value) {
    enum { DEPTH = 4 };
    sn_product p = {.scale = 1};
    take_apart(value, &p, DEPTH);
    if (p.count > SN_PRODUCT_FACTORS) p = (sn_product){.scale = 1, .count = 1, .factor = {value}};
    return p;
}

bool sn_product_take(sn_product *p, const sn_value *factor) {
    for (int i = 0; i < p->count; i++) {
        if (p->factor[i] != factor) continue;
        for (int j = i + 1; j < p->count; j++) p->factor[j - 1] = p->factor[j];
        p->count--;
        return true;
    }
    return false;
}

bool sn_match_add_number(sn_value *value, sn_value **x, double *number) {
    const sn_op *add = sn_defined_by(value, SN_OP_ADD);
    if (!add) return false;
    for (int i = 0; i < 2; i++) {
        if (!sn_value_number(add->operands[i], number)) continue;
        *x = add->operands[1 - i];
        return true;
    }
    return false;
}

bool sn_match_mean(sn_value *value, sn_value **x, int *axis) {
    sn_product p = sn_match_product(value);
    const sn_op *sum = p.count == 1 ? sn_defined_by(p.factor[0], SN_OP_REDUCE_SUM) : NULL;
    if (!sum || !sn_op_int(sum, "keepdims")) return false;
    int count;
    const int64_t *axes = sn_op_ints(sum, "axes", &count);
    sn_type type = sum->operands[0]->type;
    double elements = 1;
    for (int i = 0; i < count; i++) {
        if (axes[i] != type.rank - count + i) return false;
        elements *= (double)type.dim[axes[i]];
    }
    if (!count || !sn_is_close(p.scale, 1 / elements)) return false;
    *x = sum->operands[0];
    *axis = type.rank - count;
    return true;
}

bool sn_match_over_sqrt(const sn_op *op, sn_value **x, sn_value **y) {
    const sn_op *root;
    if (op->kind == SN_OP_DIV && (root = sn_defined_by(op->operands[1], SN_OP_SQRT))) {
        *x = op->operands[0];
        *y = root->operands[0];
        return true;
    }
    for (int i = 0; op->kind == SN_OP_MUL && i < 2; i++) {
        if (!(root = sn_defined_by(op->operands[i], SN_OP_RSQRT))) continue;
        *x = op->operands[1 - i];
        *y = root->operands[0];
        return true;
    }
    return false;
}
