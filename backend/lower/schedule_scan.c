// Running sums and products that are a kernel of their own: each lane runs along the axis of a row of its own.
#include "backend/lower/rules.h"
#include "backend/lower/schedule.h"

enum { ROW_TILE = 256 };

// Loops over the axis with the running value; stores it before or behind the element, as asked.
static void emit_row(sn_lowering *lowering, const sn_op *op, sn_point *at) {
    sn_lower *l = &lowering->l;
    sn_kir *k = l->k;
    sn_type type = op->results[0]->type;
    int axis = (int)sn_op_int(op, "axis");
    bool sum = op->kind == SN_OP_CUM_SUM;
    sn_kir_node *start =
        sn_dtype_is_float(type.dtype) ? sn_kir_number(k, type.dtype, !sum) : sn_kir_int(k, type.dtype, !sum);
    sn_kir_node *i = sn_lower_for_count(l, type.dim[axis]);
    sn_kir_node *running = sn_kir_carry(k, start);
    at->at[axis] = sn_op_int(op, "reverse") ? sn_kir_sub(k, sn_kir_index(k, type.dim[axis] - 1), i) : i;
    sn_kir_node *x = sn_lower_element(l, op->operands[0], at);
    sn_kir_node *next = sn_rule_combine(l, sum ? SN_KIR_ADD : SN_KIR_MUL, running, x);
    sn_kir_set_carry(k, running, next);
    sn_lowering_store(lowering, 0, at, sn_op_int(op, "exclusive") ? running : next);
    sn_lower_end(l);
}

bool sn_schedule_scan(sn_lowering *lowering) {
    const sn_func *body = lowering->body;
    const sn_value *result = body->results.data[0];
    if (body->results.count != 1 || result->kind != SN_VALUE_RESULT || sn_type_count(result->type) == 0) return false;
    const sn_op *op = result->def;
    if (op->kind != SN_OP_CUM_SUM && op->kind != SN_OP_CUM_PROD) return false;
    sn_type rows = op->results[0]->type;
    rows.dim[sn_op_int(op, "axis")] = 1;
    int64_t n = sn_type_count(rows), tile = n < ROW_TILE ? n : ROW_TILE;
    sn_lowering_begin(lowering, (n + tile - 1) / tile);
    sn_lower *l = &lowering->l;
    sn_kir_node *low = sn_kir_muli(l->k, sn_kir_block(l->k), tile);
    sn_kir_node *row = sn_lower_for(l, SN_KIR_LANES, low, sn_kir_at_most(l->k, sn_kir_addi(l->k, low, tile), n), 1);
    sn_point at = sn_lower_unflat(l, rows, row);
    emit_row(lowering, op, &at);
    sn_lower_end(l);
    return true;
}
