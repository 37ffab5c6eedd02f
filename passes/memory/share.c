#include "passes/memory/share.h"

sn_value *sn_owner_of(sn_value *value) {
    while (value->kind == SN_VALUE_RESULT) {
        const sn_op *op = value->def;
        if (sn_is_view_op(op)) {
            value = op->operands[0];
        } else if (op->kind == SN_OP_ALL_REDUCE && sn_op_int(op, "inplace")) {
            value = op->operands[0];
        } else if (op->kind == SN_OP_KERNEL) {
            int n;
            const int64_t *inplace = sn_op_ints(op, "inplace", &n);
            if (value->index >= n || inplace[value->index] < 0) return value;
            value = op->operands[inplace[value->index]];
        } else {
            return value;
        }
    }
    return value;
}

bool sn_assign_is_in_place(const sn_op *op) {
    const sn_value *global = op->operands[0], *storage = sn_owner_of(op->operands[1]);
    // A global has at least one slot, what lives within a function none: equal places are one only if both are alike.
    // In a stage without resident values a function's own may begin where a global of another stage does.
    bool shared = storage->kind == SN_VALUE_RESULT && storage->place.placed && global->place.placed;
    return storage == global || (shared && sn_place_equal(&storage->place, &global->place) && global->place.slots > 0);
}

static bool writes_global(const sn_op *op, const sn_value *global) {
    for (int i = 0; i < op->n_results; i++)
        if (sn_owner_of(op->results[i]) == global) return true;
    return false;
}

// The last op after `op` that reads the storage of `global` by its old name.
static sn_op *last_reader_after(const sn_op *op, const sn_value *global) {
    sn_op *last = NULL;
    for (sn_op *at = op->next; at; at = at->next) {
        if (at->kind == SN_OP_ASSIGN) continue;
        for (int i = 0; i < at->n_operands; i++) {
            sn_value *value = at->operands[i];
            while (value->kind == SN_VALUE_RESULT && sn_is_view_op(value->def)) value = value->def->operands[0];
            if (value == global) last = at;
        }
    }
    return last;
}

static bool writes_over_operand(const sn_op *op) {
    for (int i = 0; i < op->n_results; i++)
        if (sn_owner_of(op->results[i]) != op->results[i]) return true;
    return false;
}

// Whether a value is storage of the whole run, or made of such alone for one reader.
static bool is_made_of_globals(sn_value *value) {
    const sn_value *storage = sn_owner_of(value);
    if (storage->kind != SN_VALUE_RESULT) return true;
    const sn_op *def = storage->def;
    if (def->kind != SN_OP_KERNEL || def->n_results != 1 || storage->uses.count != 1 || writes_over_operand(def))
        return false;
    for (int i = 0; i < def->n_operands; i++)
        if (!is_made_of_globals(def->operands[i])) return false;
    return true;
}

static bool may_wait(const sn_op *op) {
    if (op->phase != SN_PHASE_UPDATE || op->n_results != 1) return false;
    if (sn_is_view_op(op)) return true;
    bool reduces = op->kind == SN_OP_REDUCE_SCATTER || op->kind == SN_OP_ALL_REDUCE;
    if (reduces) return is_made_of_globals(op->operands[0]);
    const sn_value *result = op->results[0];
    const sn_op *reader = result->uses.count == 1 ? result->uses.data[0].op : NULL;
    while (reader && sn_is_view_op(reader))
        reader = reader->results[0]->uses.count == 1 ? reader->results[0]->uses.data[0].op : NULL;
    bool for_sum = reader && (reader->kind == SN_OP_REDUCE_SCATTER || reader->kind == SN_OP_ALL_REDUCE);
    return for_sum && op->kind == SN_OP_KERNEL && is_made_of_globals(op->results[0]);
}

static sn_op *first_reader(const sn_op *op) {
    for (sn_op *at = op->next; at; at = at->next)
        for (int i = 0; i < at->n_operands; i++)
            if (at->operands[i] == op->results[0]) return at;
    return NULL;
}

static bool is_overwritten_before(const sn_op *op, const sn_op *end) {
    for (const sn_op *at = op->next; at && at != end; at = at->next)
        for (int i = 0; i < op->n_operands; i++) {
            const sn_value *storage = sn_owner_of(op->operands[i]);
            if (storage->kind == SN_VALUE_GLOBAL && writes_global(at, storage)) return true;
        }
    return false;
}

void sn_delay_reductions(sn_func *func) {
    for (sn_op *op = func->last, *previous; op; op = previous) {
        previous = op->prev;
        sn_op *reader = may_wait(op) ? first_reader(op) : NULL;
        if (reader && reader != op->next && !is_overwritten_before(op, reader)) sn_op_move_before(op, reader);
    }
}

static void move_behind(sn_op *op, sn_op *last) {
    sn_op *before = last->next;
    for (int i = 0; i < op->n_results; i++) {
        for (size_t u = 0; u < op->results[i]->uses.count; u++) {
            sn_op *reader = op->results[i]->uses.data[u].op;
            if (reader->kind != SN_OP_ASSIGN) SN_BUG("an updated parameter is read in the step that updates it");
        }
    }
    sn_op_move_before(op, before);
    for (int i = 0; i < op->n_results; i++)
        for (size_t u = 0; u < op->results[i]->uses.count; u++)
            sn_op_move_before(op->results[i]->uses.data[u].op, before);
}

void sn_order_updates(sn_func *func) {
    for (sn_op *op = func->first, *next; op; op = next) {
        next = op->next;
        if (op->kind != SN_OP_KERNEL) continue;
        sn_op *last = NULL, *reader;
        for (int i = 0; i < op->n_operands; i++) {
            const sn_value *global = op->operands[i];
            if (global->kind != SN_VALUE_GLOBAL || !writes_global(op, global)) continue;
            reader = last_reader_after(op, global);
            bool later = false;
            for (const sn_op *at = last; reader && at && !later; at = at->next) later = at == reader;
            if (reader && (!last || later)) last = reader;
        }
        if (last) move_behind(op, last);
    }
}

static bool is_returned(const sn_func *func, const sn_value *storage) {
    for (size_t i = 0; i < func->results.count; i++)
        if (sn_owner_of(func->results.data[i]) == storage) return true;
    return false;
}

static bool is_read_after(const sn_op *op, const sn_value *storage) {
    for (const sn_op *at = op->next; at; at = at->next)
        for (int i = 0; i < at->n_operands; i++)
            if (sn_owner_of(at->operands[i]) == storage) return true;
    return false;
}

void sn_share_storage(sn_func *func) {
    uint32_t position = 0;
    SN_FOR_OPS(op, func) {
        op->mark = position++;
        if (op->kind != SN_OP_ALL_REDUCE) continue;
        sn_op_set_attr(op, sn_attr_int("inplace", 0));
        const sn_value *storage = sn_owner_of(op->operands[0]);
        sn_strided view;
        bool whole = sn_strided_view(op->operands[0], &view) && sn_strided_is_dense(&view) && view.root == storage;
        if (whole && storage->kind == SN_VALUE_RESULT && !is_returned(func, storage) && !is_read_after(op, storage))
            sn_op_set_attr(op, sn_attr_int("inplace", 1));
    }
}
