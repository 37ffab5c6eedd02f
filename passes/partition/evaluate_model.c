#include "passes/partition/evaluate_model.h"

#include "passes/partition/heads.h"

// Tokens are integers [samples, sequence], embedded ones floats [samples, sequence, features]; pictures and rows of
// features have no sequence.
bool sn_has_sequence(const sn_func *micro) {
    bool found = false;
    for (size_t i = 0; i < micro->args.count; i++) {
        const sn_value *arg = micro->args.data[i];
        if (arg->name[0] == '$' || arg->type.rank < 2) continue;
        if (arg->type.rank != (sn_dtype_is_float(arg->type.dtype) ? 3 : 2)) return false;
        found = true;
    }
    return found;
}

static bool is_kernel_of_conv(const sn_value *weight) {
    for (size_t u = 0; u < weight->uses.count; u++)
        if (weight->uses.data[u].op->kind == SN_OP_CONV) return true;
    return false;
}

// An expert's weights are one entry of a stack of matrices.
bool sn_is_stack(const sn_value *weight) {
    return weight->kind == SN_VALUE_GLOBAL && weight->global->role == SN_ROLE_PARAMETER && weight->type.rank == 3 &&
           !is_kernel_of_conv(weight);
}

int64_t sn_count_experts(const sn_blocks *blocks) {
    int64_t experts = 0;
    for (int b = 0; b < blocks->n_blocks; b++)
        for (int p = 0; p < blocks->blocks[b].n_parameters; p++) {
            const sn_value *weight = blocks->blocks[b].parameters[p]->value;
            if (sn_is_stack(weight)) experts = sn_heads_common_divisor(experts, weight->type.dim[0]);
        }
    return experts;
}

bool sn_group_reads(const sn_op_group *group, const sn_value *value, bool backward) {
    for (int i = 0; i < (backward ? group->n_backward : group->n_forward); i++) {
        const sn_op *op = backward ? group->backward[i] : group->forward[i];
        for (int o = 0; o < op->n_operands; o++)
            if (op->operands[o] == value) return true;
    }
    return false;
}

sn_cut sn_cut_inside(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value) {
    for (int side = 0; side < 2 && value->kind == SN_VALUE_RESULT; side++)
        for (int i = 0; i < (side ? group->n_backward : group->n_forward); i++)
            if ((side ? group->backward : group->forward)[i] == value->def)
                return (side ? strategy->backward : strategy->forward)[i].result[value->index];
    return SN_UNCUT;
}
