#include "passes/partition/evaluate_tensors.h"

// Views, and what is as cheap, are made again from the parameter.
bool sn_is_read_backward(const sn_func *micro, const sn_value *value) {
    for (size_t u = 0; u < value->uses.count; u++) {
        const sn_op *op = value->uses.data[u].op;
        if (op->func != micro) continue;
        if (op->phase == SN_PHASE_BACKWARD) return true;
        bool passes = sn_op_has(op->kind, SN_TRAIT_VIEW) || op->kind == SN_OP_TRANSPOSE || op->kind == SN_OP_CAST;
        if (passes && sn_is_read_backward(micro, op->results[0])) return true;
    }
    return false;
}

static bool tensor_is_like(const sn_block_tensor *a, const sn_block_tensor *b) {
    return a->parameter == b->parameter && a->gradient == b->gradient && a->optimizer == b->optimizer &&
           sn_shape_equal(a->type, b->type) && a->shared == b->shared && a->backward == b->backward &&
           a->again == b->again;
}

void sn_tensors_add(sn_block_tensors *t, sn_block_tensor tensor) {
    for (int i = 0; i < t->n; i++) {
        if (!tensor_is_like(&t->list[i], &tensor)) continue;
        t->list[i].count++;
        return;
    }
    tensor.count = 1;
    t->list[t->n++] = tensor;
}

static void add_sum(sn_block_tensors *t, const sn_value *value) {
    t->sums++;
    t->sum_bytes += (double)sn_type_bytes(value->type);
}

// Partial sums over the data that the forward pass needs whole: inside of a group, and between them.
void sn_tensors_count_sums(sn_block_tensors *out, const sn_class_table *t) {
    for (int g = 0; g < t->block->n_groups; g++) {
        const sn_strategy *strategy = &t->strategies[g].list[t->data[g]];
        for (int m = 0; m < strategy->n_moves; m++) {
            const sn_inner_move *move = &strategy->moves[m];
            if (!move->backward && sn_move_kind(move->from, move->to) == SN_OP_ALL_REDUCE) add_sum(out, move->value);
        }
    }
    for (int f = 0; f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        if (flow->producer < 0 || !flow->n_readers) continue;
        const sn_strategy *strategy = &t->strategies[flow->producer].list[t->data[flow->producer]];
        if (sn_strategy_leaves(&t->block->groups[flow->producer], strategy, flow->value) == SN_PARTIAL_VALUE)
            add_sum(out, flow->value);
    }
}
