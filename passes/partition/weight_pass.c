#include "passes/partition/weight_pass.h"

#include "base/alloc.h"

typedef enum part { OTHER, READ, MADE } part; // of the pass in a value, by id

static void take(const sn_op *op, part *parts) {
    for (int i = 0; i < op->n_operands; i++) {
        const sn_value *root = sn_value_viewed(op->operands[i]);
        if (root->kind == SN_VALUE_RESULT && parts[root->id] == OTHER) parts[root->id] = READ;
    }
    for (int i = 0; i < op->n_results; i++) parts[op->results[i]->id] = MADE;
}

static bool follows(const sn_op *op, const part *parts) {
    for (int i = 0; i < op->n_operands; i++) {
        const sn_value *root = sn_value_viewed(op->operands[i]);
        if (root->kind == SN_VALUE_RESULT && parts[root->id] == MADE) return true;
    }
    return false;
}

static bool reads_nothing_else(const sn_op *op, const part *parts) {
    bool any = false;
    for (int i = 0; i < op->n_operands; i++) {
        const sn_value *root = sn_value_viewed(op->operands[i]);
        if (root->kind != SN_VALUE_RESULT) continue;
        if (parts[root->id] == OTHER) return false;
        any = true;
    }
    return any;
}

// Whether all that read a value, seen through views, are of the pass.
static bool is_read_late_alone(const sn_value *value, const part *parts) {
    for (size_t u = 0; u < value->uses.count; u++) {
        const sn_op *user = value->uses.data[u].op;
        if (!user->n_results) return false;
        bool late = sn_op_has(user->kind, SN_TRAIT_VIEW) ? is_read_late_alone(user->results[0], parts)
                                                         : parts[user->results[0]->id] == MADE;
        if (!late) return false;
    }
    return value->uses.count > 0;
}

// What a product reads and rematerialisation makes again: what it is made from waits in its place.
static bool is_made_for_it(const sn_op *op, const part *parts) {
    for (int i = 0; i < op->n_operands; i++) {
        const sn_value *root = sn_value_viewed(op->operands[i]);
        if (root->kind == SN_VALUE_RESULT && root->def->phase != SN_PHASE_FORWARD) return false;
    }
    for (int i = 0; i < op->n_results; i++)
        if (!is_read_late_alone(op->results[i], parts)) return false;
    return op->n_results > 0;
}

static bool is_view(const sn_op *op) { // each pass makes its own
    return sn_op_has(op->kind, SN_TRAIT_VIEW);
}

// A product, or a collective, which the stage before would otherwise wait for.
static bool is_slow(const sn_op *op) {
    return sn_op_has(op->kind, SN_TRAIT_LIBRARY | SN_TRAIT_COLLECTIVE);
}

// Whether an op reads a sum over micro-batches that the pass assigns. One pass does both: the next micro-batch's first
// pass may come before this one's second, and would read the sum without what this one adds.
static bool reads_late_sum(const sn_op *op, sn_op *const *ops, size_t n, const bool *late) {
    for (int o = op->kind == SN_OP_ASSIGN; o < op->n_operands; o++) {
        const sn_value *value = sn_value_viewed(op->operands[o]);
        if (value->kind != SN_VALUE_GLOBAL || value->global->role != SN_ROLE_SUM) continue;
        for (size_t i = 0; i < n; i++)
            if (late[i] && ops[i]->kind == SN_OP_ASSIGN && ops[i]->operands[0] == value) return true;
    }
    return false;
}

static void take_sums(sn_op *const *ops, size_t n, part *parts, bool *late) {
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            if (late[i] || is_view(ops[i]) || !(follows(ops[i], parts) || reads_late_sum(ops[i], ops, n, late)))
                continue;
            late[i] = more = true;
            take(ops[i], parts);
        }
    }
}

static void take_made_for_it(sn_op *const *ops, size_t n, part *parts, bool *late) {
    for (size_t i = n; i-- > 0;) {
        if (late[i] || is_view(ops[i]) || !is_made_for_it(ops[i], parts)) continue;
        late[i] = true;
        take(ops[i], parts);
    }
}

void sn_weight_pass_find(sn_op *const *ops, size_t n, size_t n_values, bool *late) {
    part *parts = sn_alloc(sizeof *parts * (n_values + 1));
    for (size_t i = 0; i < n; i++) {
        late[i] = !is_view(ops[i]) && (is_slow(ops[i]) || follows(ops[i], parts));
        if (late[i]) take(ops[i], parts);
    }
    take_made_for_it(ops, n, parts, late);
    for (size_t i = 0; i < n; i++) {
        if (late[i] || is_view(ops[i])) continue;
        late[i] = follows(ops[i], parts) || reads_nothing_else(ops[i], parts);
        if (late[i]) take(ops[i], parts);
    }
    take_sums(ops, n, parts, late);
    sn_free(parts);
}
