#include "passes/partition/evaluate_kept.h"

// What the backward pass needs of the forward pass. Values are taken in program order; views count as what they view.
typedef struct keeper {
    const sn_block *block;
    uint32_t first, count; // ids of the block's results
    bool *needed;          // by a backward op
    bool *required;        // to compute what is needed again from contractions alone
    bool *available;
    bool *held; // without rematerialisation
    bool *late; // of these, what the gradients of parameters are made of
    bool late_input;
} keeper;

static const sn_value *root_of(const sn_value *value) {
    while (value->kind == SN_VALUE_RESULT && sn_op_has(value->def->kind, SN_TRAIT_VIEW) &&
           value->def->phase == SN_PHASE_FORWARD)
        value = value->def->operands[0];
    return value;
}

static bool is_local(const keeper *k, const sn_value *value) {
    return value->kind == SN_VALUE_RESULT && value->id >= k->first && value->id < k->first + k->count &&
           value->def->phase == SN_PHASE_FORWARD;
}

static bool is_leaving(const sn_class_table *t, const sn_value *value) {
    for (int f = 0; f < t->n_flows; f++)
        if (t->flows[f].value == value) return t->flows[f].leaves;
    return false;
}

// What leaves the block is the next one's input, which is there whatever is computed again.
static void find_needed(keeper *k, const sn_class_table *t) {
    const sn_block *block = k->block;
    for (int g = block->n_groups - 1; g >= 0; g--)
        for (int i = block->groups[g].n_forward - 1; i >= 0; i--) {
            const sn_op *op = block->groups[g].forward[i];
            for (int r = 0; r < op->n_results; r++) {
                const sn_value *root = root_of(op->results[r]);
                if (!is_local(k, root)) continue;
                for (size_t u = 0; u < op->results[r]->uses.count; u++)
                    if (op->results[r]->uses.data[u].op->phase == SN_PHASE_BACKWARD)
                        k->needed[root->id - k->first] = k->required[root->id - k->first] = true;
            }
            bool again = false;
            for (int r = 0; r < op->n_results; r++)
                again |= k->required[op->results[r]->id - k->first] && !is_leaving(t, op->results[r]);
            for (int o = 0; again && !sn_block_op_is_heavy(op) && o < op->n_operands; o++) {
                const sn_value *root = root_of(op->operands[o]);
                if (is_local(k, root)) k->required[root->id - k->first] = true;
            }
        }
}

// A pointwise result whose operands are there anyway is made again.
static bool is_made_again(const keeper *k, const sn_op *op) {
    if (!sn_op_has(op->kind, SN_TRAIT_POINTWISE)) return !op->n_operands;
    for (int o = 0; o < op->n_operands; o++) {
        const sn_value *root = root_of(op->operands[o]);
        if (is_local(k, root) && !k->available[root->id - k->first]) return false;
    }
    return true;
}

static keeper keeper_of(const sn_class_table *t, sn_arena *scratch) {
    const sn_op_group *last = &t->block->groups[t->block->n_groups - 1];
    const sn_op *final = last->forward[last->n_forward - 1];
    keeper k = {.block = t->block, .first = t->block->groups[0].forward[0]->results[0]->id};
    k.count = final->results[final->n_results - 1]->id - k.first + 1;
    k.needed = SN_NEW_N(scratch, bool, k.count);
    k.required = SN_NEW_N(scratch, bool, k.count);
    k.available = SN_NEW_N(scratch, bool, k.count);
    k.held = SN_NEW_N(scratch, bool, k.count);
    k.late = SN_NEW_N(scratch, bool, k.count);
    find_needed(&k, t);
    return k;
}

static const sn_value *viewed(const sn_value *value) {
    while (value->kind == SN_VALUE_RESULT && sn_op_has(value->def->kind, SN_TRAIT_VIEW))
        value = value->def->operands[0];
    return value;
}

static bool is_of_weights(const sn_class_table *t, const sn_op *op) {
    for (int g = 0; g < t->block->n_groups; g++)
        for (int i = 0; i < t->block->groups[g].n_backward; i++)
            if (t->block->groups[g].backward[i] == op) return t->weight_only[g][i];
    return false;
}

// Where the gradients of parameters are a pass of their own, what they are made of waits for it: gradients of results,
// and what the pass before it computed again.
static void add_waiting(const sn_class_table *t, const keeper *k, const sn_value *value, double bytes,
                        sn_block_cost *out) {
    bool backward = value->kind == SN_VALUE_RESULT && value->def->phase == SN_PHASE_BACKWARD;
    if (backward && is_of_weights(t, value->def)) return;
    if (!backward && (!is_local(k, value) || is_leaving(t, value))) return;
    bool product = !backward && sn_block_op_is_heavy(value->def);
    if (backward) out->activations[SN_REMAT_NONE].waiting += bytes;
    if (backward || (k->held[value->id - k->first] && !product)) out->activations[SN_REMAT_SELECTIVE].waiting += bytes;
    out->activations[SN_REMAT_FULL].waiting += bytes;
}

// What is held of a value that the pass of the weights' gradients reads: itself, or what it is made again from.
static void find_late(keeper *k, const sn_class_table *t, const sn_value *value) {
    value = root_of(value);
    if (!is_local(k, value)) {
        k->late_input |= value->kind == SN_VALUE_RESULT && value->def->phase == SN_PHASE_FORWARD;
        return;
    }
    bool *late = &k->late[value->id - k->first];
    if (*late || is_leaving(t, value)) return;
    *late = true;
    for (int o = 0; !k->held[value->id - k->first] && o < value->def->n_operands; o++)
        find_late(k, t, value->def->operands[o]);
}

static void find_waiting(const sn_class_table *t, const sn_group_cut *cuts, keeper *k, sn_block_cost *out) {
    SN_VEC(const sn_value *) seen = {0};
    for (int g = 0; g < t->block->n_groups; g++) {
        const sn_op_group *group = &t->block->groups[g];
        for (int i = 0; i < group->n_backward; i++)
            for (int o = 0; t->weight_only[g][i] && o < group->backward[i]->n_operands; o++) {
                const sn_value *root = viewed(group->backward[i]->operands[o]);
                bool is_new = true;
                for (size_t v = 0; v < seen.count; v++) is_new &= seen.data[v] != root;
                if (!is_new) continue;
                sn_vec_push(&seen, root);
                find_late(k, t, root);
                add_waiting(t, k, root, sn_group_operand_bytes(group, &cuts[g], i, o), out);
            }
    }
    sn_vec_free(&seen);
}

static void add_late(const sn_class_table *t, const sn_group_cut *cuts, const keeper *k, sn_block_cost *out) {
    for (int g = 0; g < t->block->n_groups; g++) {
        for (int i = 0; i < t->block->groups[g].n_forward; i++) {
            const sn_op *op = t->block->groups[g].forward[i];
            for (int r = 0; r < op->n_results; r++) {
                uint32_t at = op->results[r]->id - k->first;
                if (!k->late[at]) continue;
                double bytes = sn_group_local_bytes(&t->block->groups[g], &cuts[g], i, r);
                if (k->held[at]) out->activations[SN_REMAT_NONE].late += bytes;
                if (k->required[at] && sn_block_op_is_heavy(op)) out->activations[SN_REMAT_SELECTIVE].late += bytes;
            }
        }
    }
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
                if (k.required[at] && sn_block_op_is_heavy(op)) out->activations[SN_REMAT_SELECTIVE].kept += bytes;
                if (!k.needed[at]) continue;
                k.available[at] = true;
                k.held[at] = !is_made_again(&k, op);
                if (k.held[at]) out->activations[SN_REMAT_NONE].kept += bytes;
            }
        }
    }
    find_waiting(t, cuts, &k, out);
    add_late(t, cuts, &k, out);
    for (int remat = 0; remat < SN_REMAT_COUNT; remat++) {
        out->activations[remat].kept += out->input;
        if (k.late_input) out->activations[remat].late += out->input;
    }
}

double sn_block_again_seconds(const sn_class_table *t, const double *group_seconds, sn_arena *scratch) {
    keeper k = keeper_of(t, scratch);
    double seconds = 0;
    for (int g = t->block->n_groups - 1; g >= 0; g--) {
        bool any = false;
        for (int i = t->block->groups[g].n_forward - 1; i >= 0; i--) {
            const sn_op *op = t->block->groups[g].forward[i];
            bool again = false;
            for (int r = 0; r < op->n_results; r++) {
                const sn_value *root = root_of(op->results[r]);
                if (is_local(&k, root)) again |= k.needed[root->id - k.first] && !is_leaving(t, op->results[r]);
            }
            any |= again;
            for (int o = 0; again && o < op->n_operands; o++) {
                const sn_value *root = root_of(op->operands[o]);
                if (is_local(&k, root)) k.needed[root->id - k.first] = true;
            }
        }
        if (any) seconds += group_seconds[g];
    }
    return seconds;
}
