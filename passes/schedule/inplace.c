#include "passes/schedule/inplace.h"

static bool leads_into(const sn_grouping *g, const sn_unit *unit, const sn_op *op) {
    if (op->mark == UINT32_MAX) return false;
    if (!sn_is_inlined(g, op)) return sn_unit_of(g, op) == unit;
    for (int r = 0; r < op->n_results; r++)
        for (size_t i = 0; i < op->results[r]->uses.count; i++)
            if (leads_into(g, unit, op->results[r]->uses.data[i].op)) return true;
    return false;
}

static bool keeps_position(const sn_op *op, const sn_value *operand) {
    bool same_place = op->kind == SN_OP_RESHAPE || sn_op_has(op->kind, SN_TRAIT_POINTWISE);
    return same_place && sn_type_count(op->results[0]->type) == sn_type_count(operand->type);
}

static bool flows(const sn_grouping *g, const sn_unit *unit, const sn_value *value, int *seen, int stamp) {
    for (size_t i = 0; i < value->uses.count; i++) {
        const sn_op *user = value->uses.data[i].op;
        if (user->func != g->func) continue; // globals serve all functions
        if (user->mark == UINT32_MAX || seen[user->mark] == stamp || !leads_into(g, unit, user)) continue;
        seen[user->mark] = stamp;
        if (!keeps_position(user, value) || !flows(g, unit, user->results[0], seen, stamp)) return false;
    }
    return true;
}

bool sn_reads_elementwise(const sn_grouping *g, const sn_unit *unit, const sn_value *value, int *seen, int stamp) {
    // Results of one element count but several shapes may be written by loops of their own.
    const sn_op *same = NULL;
    for (size_t i = 0; i < unit->members.count; i++) {
        const sn_op *op = unit->members.data[i];
        if (sn_type_count(op->results[0]->type) != sn_type_count(value->type)) continue;
        if (same && !sn_shape_equal(same->results[0]->type, op->results[0]->type)) return false;
        same = op;
    }
    return flows(g, unit, value, seen, stamp);
}
