// remat: computes pointwise results again in the backward pass where that costs no other value a longer life.
//
//   %a = add(%x, @b)                              %a = add(%x, @b)
//   %g = gelu(%a)                                 %g = gelu(%a)
//   ... forward reads %g ...                 =>   ... forward reads %g, its last reader ...
//   %d = ...(%a)           backward               %d = ...(%a)           backward
//   %w = matmul(%g, %dy)   backward               %h = gelu(%a)          backward
//                                                 %w = matmul(%h, %dy)   backward
//
// %a lives until the backward pass anyway, so %g need not: half of what the pair kept alive is free. Only results whose
// operands are all read by the backward pass already are made again, each by one op; an operand then lives at most as
// long as the result would have. Run it after the last cse, which would undo it.
#include "passes/pass.h"

enum { SMALLEST = 64 << 10 }; // bytes of a result that is worth an op

static sn_op *first_backward_reader(const sn_value *value) {
    for (sn_op *op = value->def->next; op; op = op->next) {
        if (op->phase == SN_PHASE_FORWARD) continue;
        for (int i = 0; i < op->n_operands; i++)
            if (op->operands[i] == value) return op;
    }
    return NULL;
}

// Kept alive into the backward pass by someone else, or for the whole run.
static bool lives_anyway(const sn_value *operand) {
    if (operand->kind != SN_VALUE_RESULT || sn_op_has(operand->def->kind, SN_TRAIT_GENERATOR)) return true;
    if (operand->def->phase != SN_PHASE_FORWARD) return false;
    for (size_t i = 0; i < operand->uses.count; i++)
        if (operand->uses.data[i].op->phase != SN_PHASE_FORWARD) return true;
    return false;
}

static bool is_worth_it(const sn_op *op, const sn_op *reader) {
    if (op->phase != SN_PHASE_FORWARD || !reader || sn_type_bytes(op->results[0]->type) < SMALLEST) return false;
    if (sn_op_has(op->kind, SN_TRAIT_VIEW)) return true; // costs nothing, and shows who reads what it renames
    if (!sn_op_has(op->kind, SN_TRAIT_POINTWISE)) return false;
    for (int i = 0; i < op->n_operands; i++)
        if (!lives_anyway(op->operands[i])) return false;
    return true;
}

static void make_again(sn_op *op, sn_op *reader, sn_pass_context *context) {
    sn_op *copy = sn_op_new(op->func, reader, op->kind, op->n_operands, op->operands, op->n_attrs, op->attrs, 1,
                            &op->results[0]->type);
    copy->phase = reader->phase;
    copy->origin = sn_pass_origin(op->func->module, context, op);
    for (size_t i = 0; i < op->results[0]->uses.count;) {
        sn_use use = op->results[0]->uses.data[i];
        if (use.op->phase == SN_PHASE_FORWARD)
            i++;
        else
            sn_op_set_operand(use.op, use.index, copy->results[0]);
    }
}

static void run(sn_module *module, sn_pass_context *context) {
    for (size_t f = 0; f < module->funcs.count; f++) {
        // Readers before what they read: an operand's verdict then counts the op that was made again for its reader.
        for (sn_op *op = module->funcs.data[f]->last; op; op = op->prev) {
            sn_op *reader = op->n_results == 1 ? first_backward_reader(op->results[0]) : NULL;
            if (is_worth_it(op, reader)) make_again(op, reader, context);
        }
    }
}

const sn_pass sn_pass_remat = {
    .name = "remat",
    .summary = "compute pointwise results again in the backward pass where their operands live anyway",
    .forms = 1u << SN_FORM_SCHED,
    .result = SN_FORM_SCHED,
    .run = run,
};
