// dce: removes ops whose results no one reads, and globals that no function reads.
//
//   %a = exp(%x)                 =>
//   %b = neg(%x)                       %b = neg(%x)
//   return %b                          return %b
//
// Parameters and states stay: they are the user's, read or not.
#include "passes/pass.h"

static bool is_dead(const sn_op *op) {
    // done for their effect: assign, record, wait, and recv, whose send would find no one
    if (op->n_results == 0 || sn_op_has(op->kind, SN_TRAIT_TRANSFER)) return false;
    for (int i = 0; i < op->n_results; i++)
        if (sn_value_is_used(op->results[i])) return false;
    return true;
}

static void remove_dead_constants(sn_module *module) {
    SN_VEC(sn_global *) dead = {0};
    for (size_t i = 0; i < module->globals.count; i++) {
        sn_global *global = module->globals.data[i];
        if (global->role == SN_ROLE_CONSTANT && global->value->uses.count == 0) sn_vec_push(&dead, global);
    }
    for (size_t i = 0; i < dead.count; i++) {
        bool returned = false;
        for (size_t f = 0; f < module->funcs.count; f++) {
            const sn_func *func = module->funcs.data[f];
            for (size_t r = 0; r < func->results.count; r++) returned |= func->results.data[r] == dead.data[i]->value;
        }
        if (!returned) sn_module_remove_global(module, dead.data[i]);
    }
    sn_vec_free(&dead);
}

static void run(sn_module *module, sn_pass_context *context) {
    (void)context;
    for (size_t f = 0; f < module->funcs.count; f++) {
        // backwards, so that an op that only dead ops read goes in the same walk
        for (sn_op *op = module->funcs.data[f]->last, *prev; op; op = prev) {
            prev = op->prev;
            if (is_dead(op)) sn_op_erase(op);
        }
    }
    remove_dead_constants(module);
}

const sn_pass sn_pass_dce = {
    .name = "dce",
    .summary = "removes ops and constants that no one reads",
    .forms = 1 << SN_FORM_GRAPH | 1 << SN_FORM_DIST | 1 << SN_FORM_SCHED,
    .run = run,
};
