#include "passes/training/clone.h"

// The copy of a value; globals serve all functions. Originals are numbered through sn_value.id.
static sn_value *mapped(sn_value *const *copies, sn_value *value) {
    return value->kind == SN_VALUE_GLOBAL ? value : copies[value->id];
}

static void clone_op(sn_func *func, const sn_op *op, sn_value **copies, uint32_t *n) {
    sn_arena scratch = {0};
    sn_value **operands = SN_NEW_N(&scratch, sn_value *, op->n_operands);
    sn_type *types = SN_NEW_N(&scratch, sn_type, op->n_results);
    for (int i = 0; i < op->n_operands; i++) operands[i] = mapped(copies, op->operands[i]);
    for (int i = 0; i < op->n_results; i++) types[i] = op->results[i]->type;
    sn_op *copy =
        sn_op_new(func, NULL, op->kind, op->n_operands, operands, op->n_attrs, op->attrs, op->n_results, types);
    copy->origin = op->origin;
    copy->phase = op->phase;
    for (int i = 0; i < op->n_results; i++) {
        copy->results[i]->name = op->results[i]->name;
        op->results[i]->id = *n;
        copies[(*n)++] = copy->results[i];
    }
    sn_arena_free(&scratch);
}

sn_func *sn_func_clone(sn_module *module, const sn_func *from, const char *name, bool effects) {
    size_t n_values = from->args.count;
    SN_FOR_OPS(op, from) {
        n_values += (size_t)op->n_results;
    }
    sn_value **copies = sn_alloc(sizeof *copies * (n_values + 1));
    uint32_t n = 0;
    sn_func *func = sn_module_add_func(module, name);
    for (size_t i = 0; i < from->args.count; i++) {
        sn_value *arg = from->args.data[i];
        arg->id = n;
        copies[n++] = sn_func_add_arg(func, arg->name, arg->type);
    }
    SN_FOR_OPS(op, from) {
        if (op->kind != SN_OP_ASSIGN || effects) clone_op(func, op, copies, &n);
    }
    for (size_t i = 0; i < from->results.count; i++)
        sn_func_add_result(func, mapped(copies, from->results.data[i]), from->result_names.data[i]);
    sn_free(copies);
    return func;
}

// Keeps the arguments that are read: data first, then those of the run ("$lr").
static void drop_arguments(sn_func *func) {
    sn_value **all = func->args.data;
    size_t n = func->args.count, kept = 0;
    sn_value **order = sn_alloc(sizeof *order * (n + 1));
    for (int of_run = 0; of_run < 2; of_run++)
        for (size_t i = 0; i < n; i++)
            if ((all[i]->name[0] == '$') == of_run && sn_value_is_used(all[i])) order[kept++] = all[i];
    for (size_t i = 0; i < n; i++)
        if (!sn_value_is_used(all[i])) sn_vec_free(&all[i]->uses);
    for (size_t i = 0; i < kept; i++) {
        order[i]->index = (int)i;
        all[i] = order[i];
    }
    func->args.count = kept;
    sn_free(order);
}

void sn_func_prune(sn_func *func) {
    for (sn_op *op = func->last, *prev; op; op = prev) {
        prev = op->prev;
        bool used = op->n_results == 0;
        for (int i = 0; i < op->n_results; i++) used |= sn_value_is_used(op->results[i]);
        if (!used) sn_op_erase(op);
    }
    drop_arguments(func);
}
