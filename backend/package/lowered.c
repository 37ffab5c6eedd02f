#include "backend/package/lowered.h"

#include "backend/package/schedule.h"
#include "passes/memory/share.h"
#include "passes/memory/strided.h"

static bool is_executable(const sn_op *op) {
    return op->kind == SN_OP_KERNEL || op->kind == SN_OP_RECORD || op->kind == SN_OP_WAIT ||
           sn_op_has(op->kind, SN_TRAIT_LIBRARY) || sn_op_has(op->kind, SN_TRAIT_COLLECTIVE) ||
           sn_op_has(op->kind, SN_TRAIT_TRANSFER);
}

static bool has_address(sn_value *value) {
    sn_strided view;
    if (!sn_strided_view(value, &view)) return false;
    const sn_value *storage = sn_owner_of(view.root);
    bool constant = storage->kind == SN_VALUE_RESULT && storage->def->kind == SN_OP_CONSTANT;
    return storage->place.placed || constant;
}

static bool is_ready(const sn_op *op) {
    bool ready = is_executable(op);
    for (int i = 0; i < op->n_operands && ready; i++) ready = has_address(op->operands[i]);
    for (int i = 0; i < op->n_results && ready; i++) ready = has_address(op->results[i]);
    return ready;
}

static bool func_is_lowered(const sn_func *func) {
    for (size_t i = 0; i < func->args.count; i++)
        if (!func->args.data[i]->place.placed) return false;
    SN_FOR_OPS(op, func) {
        if (sn_op_is_instruction(op) && !is_ready(op)) return false;
    }
    for (size_t i = 0; i < func->results.count; i++)
        if (!has_address(func->results.data[i])) return false;
    return true;
}

bool sn_module_is_lowered(const sn_module *module) {
    if (module->form != SN_FORM_SCHED) return false;
    for (size_t i = 0; i < module->funcs.count; i++)
        if (!module->funcs.data[i]->is_body && !func_is_lowered(module->funcs.data[i])) return false;
    return true;
}
