#include "passes/partition/evaluate_kept.h"

// What the backward pass needs of the forward pass. Values are taken in program order; views count as what they view.
typedef struct keeper {
    const sn_block *block;
    uint32_t first, count; // ids of the block's results
    bool *needed;          // by a backward op
    bool *required;        // to compute what is needed again from contractions alone
    bool *available;
    bool *held[SN_REMAT_COUNT];
} keeper;

static bool is_local(const keeper *k, const sn_value *value) {
    return value->kind == SN_VALUE_RESULT && value->id >= k->first && value->id < k->first + k->count &&
           value->def->phase == SN_PHASE_FORWARD;
}

static bool is_leaving(const sn_class_table *t, const sn_value *value) {
    for (int f = 0; f < t->n_flows; f++)
        if (t->flows[f].value == value) return t->flows[f].leaves;
    return false;
}

static bool is_read_backward(const sn_value *value) {
    for (size_t u = 0; u < value->uses.count; u++)
        if (value->uses.data[u].op->phase == SN_PHASE_BACKWARD) return true;
    return false;
}

// What has to be there for making an operand again; NULL: nothing that is not there anyway.
static const sn_value *source_of(const keeper *k, const sn_class_table *t, const sn_value *operand) {
    const sn_value *root = sn_value_viewed(operand);
    while (is_local(k, root) && !is_leaving(t, root) && !is_read_backward(root) && !k->needed[root->id - k->first]) {
        if (root->def->kind != SN_OP_CAST) return root;
        root = sn_value_viewed(root->def->operands[0]);
    }
    return NULL;
}

// Where the operands of a pointwise op are smaller than its result, they are kept instead (passes/memory/remat.c).
static void need_smaller(keeper *k, const sn_class_table *t, const sn_op *op) {
    int64_t bytes = 0;
    if (!sn_op_has(op->kind, SN_TRAIT_POINTWISE) || !k->needed[op->results[0]->id - k->first]) return;
    for (int o = 0; o < op->n_operands; o++) {
        const sn_value *source = source_of(k, t, op->operands[o]);
        if (source) bytes += sn_type_bytes(source->type);
    }
    if (!bytes || bytes >= sn_type_bytes(op->results[0]->type)) return;
    for (int o = 0; o < op->n_operands; o++) {
        const sn_value *source = source_of(k, t, op->operands[o]);
        if (source) k->needed[source->id - k->first] = k->required[source->id - k->first] = true;
    }
}

// What leaves the block is the next one's input, which is there whatever is computed again.
static void find_needed(keeper *k, const sn_class_table *t) {
    const sn_block *block = k->block;
    for (int g = block->n_groups - 1; g >= 0; g--)
        for (int i = block->groups[g].n_forward - 1; i >= 0; i--) {
            const sn_op *op = block->groups[g].forward[i];
            for (int r = 0; r < op->n_results; r++) {
                const sn_value *root = sn_value_viewed(op->results[r]);
                if (!is_local(k, root)) continue;
                for (size_t u = 0; u < op->results[r]->uses.count; u++)
                    if (op->results[r]->uses.data[u].op->phase == SN_PHASE_BACKWARD)
                        k->needed[root->id - k->first] = k->required[root->id - k->first] = true;
            }
            need_smaller(k, t, op);
            bool again = false;
            for (int r = 0; r < op->n_results; r++)
                again |= k->required[op->results[r]->id - k->first] && !is_leaving(t, op->results[r]);
            for (int o = 0; again && !sn_block_op_is_heavy(op) && o < op->n_operands; o++) {
                const sn_value *root = sn_value_viewed(op->operands[o]);
                if (is_local(k, root)) k->required[root->id - k->first] = true;
            }
        }
}

static bool are_available(const keeper *k, const sn_op *op) {
    for (int o = 0; o < op->n_operands; o++) {
        const sn_value *root = sn_value_viewed(op->operands[o]);
        if (is_local(k, root) && !k->available[root->id - k->first]) return false;
    }
    return true;
}

// A pointwise result whose operands are there anyway is made again, and one in another order is read in that.
static bool is_made_again(const keeper *k, const sn_op *op) {
    if (!sn_op_has(op->kind, SN_TRAIT_POINTWISE) && op->kind != SN_OP_TRANSPOSE) return !op->n_operands;
    return are_available(k, op);
}

static keeper keeper_of(const sn_class_table *t, sn_arena *scratch) {
    keeper k = {.block = t->block};
    k.first = sn_block_first_result(t->block, &k.count);
    k.needed = SN_NEW_N(scratch, bool, k.count);
    k.required = SN_NEW_N(scratch, bool, k.count);
    k.available = SN_NEW_N(scratch, bool, k.count);
    for (int remat = 0; remat < SN_REMAT_COUNT; remat++) k.held[remat] = SN_NEW_N(scratch, bool, k.count);
    find_needed(&k, t);
    return k;
}

static bool is_of_weights(const sn_class_table *t, const sn_op *op) {
    for (int g = 0; g < t->block->n_groups; g++)
        for (int i = 0; i < t->block->groups[g].n_backward; i++)
            if (t->block->groups[g].backward[i] == op) return t->weight_only[g][i];
    return false;
}

// Where the gradients of parameters are made in a pass of their own (weight_pass.h), what they read is held until then:
// what the forward pass left, for longer (`late`), and what the pass of the activations' gradients made (`waiting`).
typedef struct waiter {
    const keeper *k;
    const sn_class_table *t;
    const bool *held;                        // by the forward pass, under this rematerialisation
    bool *again;                             // made again for the gradients of activations
    enum { UNKNOWN, LATE, NOT_LATE } * made; // whether the pass makes the value itself
    bool *late;
    bool late_input;
} waiter;

static void make_again(waiter *w, const sn_op *op) {
    const keeper *k = w->k;
    bool again = false;
    for (int r = 0; r < op->n_results; r++) {
        const sn_value *root = sn_value_viewed(op->results[r]);
        if (!is_local(k, root) || is_leaving(w->t, root) || w->held[root->id - k->first]) continue;
        bool *made = &w->again[root->id - k->first];
        *made = *made || w->t->at_once[op->results[r]->id - k->first];
        again |= *made;
    }
    for (int o = 0; again && o < op->n_operands; o++) {
        const sn_value *root = sn_value_viewed(op->operands[o]);
        if (is_local(k, root)) w->again[root->id - k->first] = true;
    }
}

// Whether the pass of the weights' gradients makes the value itself, of what the forward pass left.
static bool is_made_late(waiter *w, const sn_value *value) {
    if (!is_local(w->k, value)) return true;
    uint32_t at = value->id - w->k->first;
    if (w->held[at] || is_leaving(w->t, value)) return true;
    if (w->made[at] == UNKNOWN) {
        bool late = !w->again[at];
        for (int o = 0; late && o < value->def->n_operands; o++)
            late = is_made_late(w, sn_value_viewed(value->def->operands[o]));
        w->made[at] = late ? LATE : NOT_LATE;
    }
    return w->made[at] == LATE;
}

static void find_late(waiter *w, const sn_value *value) {
    if (!is_local(w->k, value)) {
        w->late_input |= value->kind == SN_VALUE_RESULT && value->def->phase == SN_PHASE_FORWARD;
        return;
    }
    uint32_t at = value->id - w->k->first;
    if (w->late[at] || is_leaving(w->t, value)) return;
    w->late[at] = true;
    for (int o = 0; !w->held[at] && o < value->def->n_operands; o++)
        find_late(w, sn_value_viewed(value->def->operands[o]));
}

// Adds what one operand of the pass holds; `bytes` of it.
static double waiting_of(waiter *w, const sn_value *operand, double bytes) {
    const sn_value *root = sn_value_viewed(operand);
    bool backward = root->kind == SN_VALUE_RESULT && root->def->phase == SN_PHASE_BACKWARD;
    if (!backward && is_made_late(w, root)) return find_late(w, root), 0;
    return backward && is_of_weights(w->t, root->def) ? 0 : bytes;
}

static double find_waiting(waiter *w, const sn_group_cut *cuts) {
    SN_VEC(const sn_value *) seen = {0};
    double waiting = 0;
    for (int g = 0; g < w->t->block->n_groups; g++) {
        const sn_op_group *group = &w->t->block->groups[g];
        for (int i = 0; i < group->n_backward; i++)
            for (int o = 0; w->t->weight_only[g][i] && o < group->backward[i]->n_operands; o++) {
                const sn_value *root = sn_value_viewed(group->backward[i]->operands[o]);
                bool is_new = true;
                for (size_t v = 0; v < seen.count; v++) is_new &= seen.data[v] != root;
                if (!is_new) continue;
                sn_vec_push(&seen, root);
                waiting += waiting_of(w, root, sn_group_operand_bytes(group, &cuts[g], i, o));
            }
    }
    sn_vec_free(&seen);
    return waiting;
}

// Sets late and waiting of one rematerialisation, under which the forward pass holds `held`.
static void add_waiting(const keeper *k, const sn_class_table *t, const sn_group_cut *cuts, const bool *held,
                        sn_arena *scratch, sn_block_cost *out, sn_remat remat) {
    waiter w = {.k = k, .t = t, .held = held};
    w.again = SN_NEW_N(scratch, bool, k->count);
    w.made = sn_arena_alloc(scratch, sizeof *w.made * k->count);
    w.late = SN_NEW_N(scratch, bool, k->count);
    for (int g = t->block->n_groups - 1; g >= 0; g--)
        for (int i = t->block->groups[g].n_forward - 1; i >= 0; i--) make_again(&w, t->block->groups[g].forward[i]);
    out->activations[remat].waiting = find_waiting(&w, cuts);
    for (int g = 0; g < t->block->n_groups; g++)
        for (int i = 0; i < t->block->groups[g].n_forward; i++) {
            const sn_op *op = t->block->groups[g].forward[i];
            for (int r = 0; r < op->n_results; r++) {
                uint32_t at = op->results[r]->id - k->first;
                if (w.late[at] && held[at])
                    out->activations[remat].late += sn_group_local_bytes(&t->block->groups[g], &cuts[g], i, r);
            }
        }
    if (w.late_input) out->activations[remat].late += out->input;
}

void sn_block_kept(const sn_class_table *t, const sn_group_cut *cuts, sn_arena *scratch, sn_block_cost *out) {
    keeper k = keeper_of(t, scratch);
    for (int g = 0; g < t->block->n_groups; g++) {
        for (int i = 0; i < t->block->groups[g].n_forward; i++) {
            const sn_op *op = t->block->groups[g].forward[i];
            for (int r = 0; r < op->n_results; r++) {
                uint32_t at = op->results[r]->id - k.first;
                if (is_leaving(t, op->results[r])) k.available[at] = true;
                if (k.available[at] || sn_op_has(op->kind, SN_TRAIT_VIEW)) continue;
                double bytes = sn_group_local_bytes(&t->block->groups[g], &cuts[g], i, r);
                k.held[SN_REMAT_SELECTIVE][at] = k.required[at] && sn_block_op_is_heavy(op);
                k.held[SN_REMAT_NONE][at] = k.needed[at] && !is_made_again(&k, op);
                k.available[at] = k.needed[at] || (op->kind == SN_OP_CAST && are_available(&k, op));
                for (int remat = 0; remat < SN_REMAT_COUNT; remat++)
                    if (k.held[remat][at])
                        out->activations[remat].kept += bytes;
                    else if (k.held[SN_REMAT_NONE][at])
                        out->activations[remat].again += bytes;
            }
        }
    }
    for (int remat = 0; remat < SN_REMAT_COUNT; remat++) {
        out->activations[remat].kept += out->input;
        add_waiting(&k, t, cuts, k.held[remat], scratch, out, (sn_remat)remat);
    }
}

void sn_block_again_groups(const sn_class_table *t, sn_arena *scratch, bool *made_again) {
    keeper k = keeper_of(t, scratch);
    for (int g = t->block->n_groups - 1; g >= 0; g--) {
        made_again[g] = false;
        for (int i = t->block->groups[g].n_forward - 1; i >= 0; i--) {
            const sn_op *op = t->block->groups[g].forward[i];
            bool again = false;
            for (int r = 0; r < op->n_results; r++) {
                const sn_value *root = sn_value_viewed(op->results[r]);
                if (is_local(&k, root)) again |= k.needed[root->id - k.first] && !is_leaving(t, op->results[r]);
            }
            made_again[g] |= again;
            for (int o = 0; again && o < op->n_operands; o++) {
                const sn_value *root = sn_value_viewed(op->operands[o]);
                if (is_local(&k, root)) k.needed[root->id - k.first] = true;
            }
        }
    }
}
