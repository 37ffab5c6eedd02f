// Block by block, after Chen et al. 2016, "Training deep nets with sublinear memory cost", and Korthikanti et al. 2022,
// "Reducing activation recomputation in large transformer models", section 5.
//
// The backward pass is walked in order. Where it reads a forward value that its block does not keep, the ops that
// compute the value are made again right there, down to values that are kept; each once.
#include "passes/memory/remat.h"

#include <stdlib.h>

typedef struct remaker {
    const sn_pass_context *context;
    const sn_remat_blocks *blocks;
    sn_op **copy; // by mark
    uint32_t n;   // ops that have marks; copies are beyond
    int made;
} remaker;

static bool reads_changing_global(const sn_op *op) {
    for (int i = 0; i < op->n_operands; i++) {
        if (op->operands[i]->kind != SN_VALUE_GLOBAL) continue;
        sn_role role = op->operands[i]->global->role;
        if (role != SN_ROLE_PARAMETER && role != SN_ROLE_FROZEN && role != SN_ROLE_CONSTANT) return true;
    }
    return false;
}

static bool is_read_by_other_block(const remaker *m, const sn_op *op) {
    for (int r = 0; r < op->n_results; r++) {
        for (size_t u = 0; u < op->results[r]->uses.count; u++) {
            const sn_op *user = op->results[r]->uses.data[u].op;
            bool forward = user->phase == SN_PHASE_FORWARD && user->kind != SN_OP_ASSIGN;
            if (forward && m->blocks->block[user->mark] != m->blocks->block[op->mark]) return true;
        }
    }
    return false;
}

// Whether the op is made again for a reader in the backward pass.
static bool is_made_again(const remaker *m, const sn_op *op) {
    if (op->mark >= m->n || op->phase != SN_PHASE_FORWARD || op->kind == SN_OP_ASSIGN) return false;
    if (op->kind == SN_OP_CONSTANT || op->kind == SN_OP_IOTA || reads_changing_global(op)) return false;
    sn_remat mode = m->blocks->mode[m->blocks->block[op->mark]];
    if (mode == SN_REMAT_NONE) return false;
    if (m->blocks->anywhere && m->blocks->anywhere[op->mark]) return true;
    if (mode == SN_REMAT_SELECTIVE && sn_op_has(op->kind, SN_TRAIT_LIBRARY | SN_TRAIT_COLLECTIVE)) return false;
    return !is_read_by_other_block(m, op);
}

// Made right before `reader`; deep chains recurse as deep as a block is.
static sn_op *make_again(remaker *m, sn_op *op, sn_op *reader) {
    if (m->copy[op->mark]) return m->copy[op->mark];
    sn_value **operands = sn_alloc(sizeof *operands * (size_t)(op->n_operands + 1));
    sn_type *types = sn_alloc(sizeof *types * (size_t)(op->n_results + 1));
    for (int i = 0; i < op->n_operands; i++) {
        sn_value *value = op->operands[i];
        bool again = value->kind == SN_VALUE_RESULT && is_made_again(m, value->def);
        operands[i] = again ? make_again(m, value->def, reader)->results[value->index] : value;
    }
    for (int i = 0; i < op->n_results; i++) types[i] = op->results[i]->type;
    sn_op *copy =
        sn_op_new(op->func, reader, op->kind, op->n_operands, operands, op->n_attrs, op->attrs, op->n_results, types);
    for (int i = 0; i < op->n_results; i++) copy->results[i]->layout = op->results[i]->layout;
    copy->phase = reader->phase;
    copy->origin = sn_pass_origin(op->func->module, m->context, op);
    copy->mark = UINT32_MAX;
    m->copy[op->mark] = copy;
    m->made++;
    sn_free(operands);
    sn_free(types);
    return copy;
}

// Bytes of forward values, but those that are made anywhere, that the backward pass reads.
static double kept_bytes(const remaker *m, const sn_func *func) {
    double bytes = 0;
    SN_FOR_OPS(op, func) {
        if (op->mark >= m->n || op->phase != SN_PHASE_FORWARD) continue;
        if (m->blocks->anywhere && m->blocks->anywhere[op->mark]) continue;
        for (int r = 0; r < op->n_results; r++) {
            bool kept = false;
            for (size_t u = 0; u < op->results[r]->uses.count; u++)
                kept |= op->results[r]->uses.data[u].op->phase != SN_PHASE_FORWARD;
            if (kept) bytes += (double)sn_type_bytes(op->results[r]->type);
        }
    }
    return bytes;
}

void sn_remat_planned(sn_func *func, sn_pass_context *context, const sn_remat_blocks *blocks) {
    remaker m = {.context = context, .blocks = blocks, .n = (uint32_t)func->n_ops};
    m.copy = sn_alloc(sizeof *m.copy * (func->n_ops + 1));
    double before = kept_bytes(&m, func);
    SN_FOR_OPS(op, func) {
        if (op->phase == SN_PHASE_FORWARD || op->mark >= m.n) continue;
        for (int i = op->kind == SN_OP_ASSIGN; i < op->n_operands; i++) {
            sn_value *value = op->operands[i];
            if (value->kind != SN_VALUE_RESULT || !is_made_again(&m, value->def)) continue;
            sn_op_set_operand(op, i, make_again(&m, value->def, op)->results[value->index]);
        }
    }
    if (m.made)
        sn_pass_remark(context, "R0807", NULL,
                       "@%s keeps %.1f MiB of activations for the backward pass, not %.1f: %d ops are computed again",
                       func->name, kept_bytes(&m, func) / 0x1p20, before / 0x1p20, m.made);
    sn_free(m.copy);
}
