// Scatters that are a kernel of their own: the result starts as zeros or as the base operand, then the updates are
// added one after the other, in order.
//
//   gather_grad [, add to a gradient of the same shape]   blocks own tiles of columns (the dims behind the axis), all
//                                                         lanes of a block work on one index at a time
//   scatter_elements, scatter_nd                          one block
#include "backend/lower/rules.h"
#include "backend/lower/schedule.h"

enum { COLUMN_TILE = 128 };

static int64_t product(sn_type type, int from, int to) {
    int64_t count = 1;
    for (int d = from; d < to; d++) count *= type.dim[d];
    return count;
}

static bool is_tied(const sn_lowering *lowering) {
    int n;
    const int64_t *inplace = sn_op_ints(lowering->op, "inplace", &n);
    return n > 0 && inplace[0] >= 0;
}

// What the result is before the updates: `base` (NULL: zeros) in columns [low, high) of each row.
static void fill_rows(sn_lowering *lowering, const sn_value *base, int64_t rows, int64_t columns, sn_kir_node *low,
                      sn_kir_node *high) {
    sn_lower *l = &lowering->l;
    sn_type type = lowering->body->results.data[0]->type;
    sn_kir_node *row = sn_lower_for_count(l, rows);
    sn_kir_node *column = sn_lower_for(l, SN_KIR_LANES, low, high, 1);
    sn_kir_node *flat = sn_kir_add(l->k, sn_kir_muli(l->k, row, columns), column);
    sn_point point = sn_lower_unflat(l, type, flat);
    sn_kir_store(l->k, lowering->results[0], flat,
                 base ? sn_lower_element(l, base, &point) : sn_lower_zero(l, type.dtype));
    sn_lower_end(l);
    sn_lower_end(l);
    sn_kir_barrier(l->k);
}

// out[o, index[i], c] += gradient[o, i, c] for the block's columns.
static void add_rows(sn_lowering *lowering, const sn_op *op, int64_t columns, sn_kir_node *low, sn_kir_node *high) {
    sn_lower *l = &lowering->l;
    sn_kir *k = l->k;
    const sn_value *indices = op->operands[0], *gradient = op->operands[1];
    sn_type type = op->results[0]->type;
    int axis = (int)sn_op_int(op, "axis");
    int64_t n = sn_type_count(indices->type);
    sn_kir_node *outer = sn_lower_for_count(l, product(type, 0, axis));
    sn_kir_node *i = sn_lower_for_count(l, n);
    sn_point where = sn_lower_unflat(l, indices->type, i);
    sn_kir_node *index = sn_rule_wrap_index(l, sn_lower_element(l, indices, &where), type.dim[axis]);
    sn_kir_node *row = sn_kir_add(k, sn_kir_muli(k, outer, type.dim[axis]), index);
    sn_kir_node *column = sn_lower_for(l, SN_KIR_LANES, low, high, 1);
    sn_kir_node *from = sn_kir_add(k, sn_kir_muli(k, outer, n), i);
    from = sn_kir_add(k, sn_kir_muli(k, from, columns), column);
    sn_point at = sn_lower_unflat(l, gradient->type, from);
    sn_kir_node *to = sn_kir_add(k, sn_kir_muli(k, row, columns), column);
    sn_kir_node *sum = sn_kir_add(k, sn_kir_load(k, lowering->results[0], to), sn_lower_element(l, gradient, &at));
    sn_kir_store(k, lowering->results[0], to, sum);
    for (int loops = 0; loops < 3; loops++) sn_lower_end(l);
}

static void emit_gather_grad(sn_lowering *lowering, const sn_op *op, const sn_value *base) {
    sn_lower *l = &lowering->l;
    sn_type type = op->results[0]->type;
    int axis = (int)sn_op_int(op, "axis");
    int64_t columns = product(type, axis + 1, type.rank), tile = columns < COLUMN_TILE ? columns : COLUMN_TILE;
    sn_lowering_begin(lowering, (columns + tile - 1) / tile);
    sn_kir_node *low = sn_kir_muli(l->k, sn_kir_block(l->k), tile);
    sn_kir_node *high = sn_kir_at_most(l->k, sn_kir_addi(l->k, low, tile), columns);
    if (!base || !is_tied(lowering)) fill_rows(lowering, base, product(type, 0, axis + 1), columns, low, high);
    add_rows(lowering, op, columns, low, high);
}

static void emit_scatter(sn_lowering *lowering, const sn_op *op) {
    sn_lower *l = &lowering->l;
    sn_kir *k;
    sn_type type = op->results[0]->type;
    const sn_value *indices = op->operands[1], *updates = op->operands[2];
    sn_lowering_begin(lowering, 1);
    k = l->k;
    int64_t count = sn_type_count(type);
    if (!is_tied(lowering)) fill_rows(lowering, op->operands[0], 1, count, sn_kir_index(k, 0), sn_kir_index(k, count));
    // Outside lanes loops one thread stores, and sees what it stored before.
    sn_kir_node *i = sn_lower_for_count(l, sn_type_count(updates->type));
    sn_point from = sn_lower_unflat(l, updates->type, i), at = from;
    if (op->kind == SN_OP_SCATTER_ELEMENTS) {
        int axis = (int)sn_op_int(op, "axis");
        at.at[axis] = sn_rule_wrap_index(l, sn_lower_element(l, indices, &from), type.dim[axis]);
    } else {
        sn_rule_scatter_target(l, op, &from, &at);
    }
    sn_kir_node *to = sn_lower_flat(l, type, &at), *update = sn_lower_element(l, updates, &from);
    sn_kir_node *old = sn_kir_load(k, lowering->results[0], to);
    sn_kir_node *now = sn_rule_scattered(l, op, old, update);
    sn_kir_store(k, lowering->results[0], to, now);
    sn_lower_end(l);
}

// The operand of an add of `op`'s result with something else, when that is all the body does with it.
static const sn_value *added_to(const sn_func *body, const sn_op *op) {
    const sn_value *sum = body->results.data[0];
    if (sum->kind != SN_VALUE_RESULT || sum->def->kind != SN_OP_ADD || op->results[0]->uses.count != 1) return NULL;
    const sn_op *add = sum->def;
    for (int i = 0; i < 2; i++)
        if (add->operands[i] == op->results[0] && sn_type_equal(add->operands[1 - i]->type, sum->type))
            return add->operands[1 - i];
    return NULL;
}

bool sn_schedule_scatter(sn_lowering *lowering) {
    const sn_func *body = lowering->body;
    const sn_op *scatter = NULL;
    if (body->results.count != 1 || sn_type_count(body->results.data[0]->type) == 0) return false;
    SN_FOR_OPS(op, body) {
        if (op->kind != SN_OP_GATHER_GRAD && op->kind != SN_OP_SCATTER_ELEMENTS && op->kind != SN_OP_SCATTER_ND)
            continue;
        if (scatter) return false;
        scatter = op;
    }
    if (!scatter) return false;
    bool whole = body->results.data[0] == scatter->results[0];
    bool rounds = sn_lower_compute_type(scatter->results[0]->type.dtype) != scatter->results[0]->type.dtype;
    if (scatter->kind == SN_OP_GATHER_GRAD) {
        const sn_value *base = whole ? NULL : added_to(body, scatter);
        if ((!whole && !base) || rounds) return false; // 16-bit sums are kept in f32 by the rule
        emit_gather_grad(lowering, scatter, base);
        return true;
    }
    if (!whole) return false;
    emit_scatter(lowering, scatter);
    return true;
}
