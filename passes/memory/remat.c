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
// operands are all read by the backward pass already are made again, each by one op; and those that a few ops make of
// smaller values, as what is normalised in f32 from the bf16 that came in. An operand then lives at most as long
// as the result would have. Before that come the blocks for which the plan wants more (passes/memory/remat.h); with
// pipeline stages the pass `stages` has done both, since a value that is kept from one function to another is what they
// save. Run it after the last cse, which would undo it.
#include "passes/memory/remat.h"

#include "passes/memory/remat_structure.h"
#include "passes/partition/stages.h"

enum {
    SMALLEST = 64 << 10, // bytes of a result that is worth an op
    NEAR = 3,            // ops between what is kept and what is made of it
};

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
    if (operand->kind == SN_VALUE_GLOBAL && operand->global->role == SN_ROLE_STATE) return false; // may have changed
    if (operand->kind != SN_VALUE_RESULT || sn_op_has(operand->def->kind, SN_TRAIT_GENERATOR)) return true;
    if (operand->def->phase != SN_PHASE_FORWARD) return false;
    for (size_t i = 0; i < operand->uses.count; i++)
        if (operand->uses.data[i].op->phase != SN_PHASE_FORWARD) return true;
    return false;
}

// Whether the parts of a value that the backward pass reads are together no less than the value.
static bool is_read_in_parts(const sn_value *whole) {
    int64_t bytes = 0;
    for (size_t i = 0; i < whole->uses.count; i++) {
        const sn_op *part = whole->uses.data[i].op;
        bool read =
            part->kind == SN_OP_SLICE && part->phase == SN_PHASE_FORWARD && first_backward_reader(part->results[0]);
        if (read) bytes += sn_type_bytes(part->results[0]->type);
    }
    return bytes >= sn_type_bytes(whole->type);
}

// An activation that is joined over ranks of tensor parallelism is kept in parts, and joined again (Korthikanti et al.,
// "Reducing Activation Recomputation in Large Transformer Models", 2022, section 4.2.2).
static bool joins_an_activation(const sn_op *op) {
    if (op->kind != SN_OP_ALL_GATHER) return false;
    const sn_value *part = op->operands[0];
    if (part->kind != SN_VALUE_RESULT || part->def->phase != SN_PHASE_FORWARD) return false;
    const sn_mesh *mesh = &op->func->module->mesh;
    sn_axes axes = sn_mesh_axes_named(mesh, sn_op_string(op, "axes"));
    for (int axis = 0; axis < mesh->n_axes; axis++)
        if (axes >> axis & 1 && !sn_mesh_is_tensor_axis(mesh, axis)) return false;
    return true;
}

// The same once values are local: a gather puts the parts one after the other, and what follows puts them in order.
static bool orders_a_join(const sn_op *op) {
    if (op->kind != SN_OP_TRANSPOSE) return false;
    const sn_value *value = sn_value_viewed(op->operands[0]);
    return value->kind == SN_VALUE_RESULT && joins_an_activation(value->def);
}

static bool moves_for_free(const sn_op *op) {
    if (op->kind == SN_OP_TRANSPOSE) return true;
    return op->kind == SN_OP_SLICE && (lives_anyway(op->operands[0]) || is_read_in_parts(op->operands[0]));
}

// Bytes that have to be kept for making an operand again, by at most `depth` ops before it, of values smaller than
// `wide`; -1 where that cannot be.
static int64_t bytes_to_keep(const sn_value *operand, int64_t wide, int depth) {
    if (lives_anyway(operand)) return 0;
    if (operand->kind != SN_VALUE_RESULT || operand->def->phase != SN_PHASE_FORWARD) return -1;
    int64_t itself = sn_type_bytes(operand->type), sum = 0;
    const sn_op *op = operand->def;
    if (itself < wide || !depth || !sn_op_has(op->kind, SN_TRAIT_POINTWISE)) return itself;
    for (int i = 0; i < op->n_operands; i++) {
        int64_t bytes = bytes_to_keep(op->operands[i], wide, depth - 1);
        if (bytes < 0) return itself;
        sum += bytes;
    }
    return sum < itself ? sum : itself;
}

static bool is_worth_it(const sn_op *op, const sn_op *reader, int64_t smallest, bool moves) {
    if (op->phase != SN_PHASE_FORWARD || !reader || sn_type_bytes(op->results[0]->type) < smallest) return false;
    if (sn_op_has(op->kind, SN_TRAIT_VIEW)) return true; // costs nothing, and shows who reads what it renames
    if (joins_an_activation(op) || orders_a_join(op)) return true;
    if (moves && moves_for_free(op)) return true;
    if (!sn_op_has(op->kind, SN_TRAIT_POINTWISE)) return false;
    int64_t kept = 0, wide = sn_type_bytes(op->results[0]->type);
    bool live = true;
    for (int i = 0; i < op->n_operands; i++) {
        int64_t bytes = bytes_to_keep(op->operands[i], wide, NEAR);
        if (bytes < 0) return false;
        kept += bytes;
        live &= lives_anyway(op->operands[i]);
    }
    return live || (kept > 0 && kept < wide); // several ops are made for a smaller value
}

static void make_again(sn_op *op, sn_op *reader, const sn_pass_context *context) {
    sn_op *copy = sn_op_new(op->func, reader, op->kind, op->n_operands, op->operands, op->n_attrs, op->attrs, 1,
                            &op->results[0]->type);
    copy->results[0]->layout = op->results[0]->layout;
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

void sn_remat_free(sn_func *func, const sn_pass_context *context, int64_t smallest, bool moves) {
    // Readers before what they read: an operand's verdict then counts the op that was made again for its reader.
    for (sn_op *op = func->last; op; op = op->prev) {
        sn_op *reader = op->n_results == 1 ? first_backward_reader(op->results[0]) : NULL;
        if (is_worth_it(op, reader, smallest, moves)) make_again(op, reader, context);
    }
}

static bool has_backward(const sn_func *func) {
    SN_FOR_OPS(op, func) {
        if (op->phase == SN_PHASE_BACKWARD) return true;
    }
    return false;
}

// The last block's backward pass follows at once: it keeps what it has.
static void remat_as_planned(sn_func *func, sn_pass_context *context, sn_remat mode) {
    int *block = SN_NEW_N(context->scratch, int, func->n_ops + 1), n = sn_remat_find_blocks(func, NULL, block);
    sn_remat *modes = SN_NEW_N(context->scratch, sn_remat, n);
    for (int i = 0; i + 1 < n; i++) modes[i] = mode;
    sn_remat_blocks blocks = {.block = block, .mode = modes};
    if (n > 1)
        sn_remat_planned(func, context, &blocks);
    else
        sn_pass_remark(context, "R0808", NULL, "@%s has no repeated blocks: all of it is kept", func->name);
}

static void run(sn_module *module, sn_pass_context *context) {
    const sn_plan *plan = context->plan;
    sn_remat mode = !plan ? SN_REMAT_NONE : plan->n_stages == 1 ? plan->stages[0].remat : plan->remat;
    bool staged = sn_module_has_stages(module);
    for (size_t f = 0; f < module->funcs.count; f++) {
        sn_func *func = module->funcs.data[f];
        if (mode != SN_REMAT_NONE && !staged && has_backward(func)) remat_as_planned(func, context, mode);
        sn_remat_free(func, context, SMALLEST, false);
    }
}

const sn_pass sn_pass_remat = {
    .name = "remat",
    .summary = "compute pointwise results again in the backward pass where their operands live anyway",
    .forms = 1u << SN_FORM_SCHED,
    .result = SN_FORM_SCHED,
    .run = run,
};
