// fold-constants: computes ops on constants with the reference interpreter.
//
//   %i = iota() <axis=0>       : i64[4]
//   %m = less(%i, 2)           : bool[4]    =>   const @m : bool[4] = [1, 1, 0, 0]
//
// A result with one number in every element becomes a `constant` op, any other a global in memory; equal ones are one
// global. Expanding broadcasts are left alone: pointwise ops do them for nothing, and the constant would only be large.
#include "base/alloc.h"
#include "ir/interp.h"
#include "passes/simplify/rewrite.h"

#include <string.h>

typedef struct folder {
    sn_module *module;
    sn_pass_context *context;
    int64_t limit; // bytes of a result, and of all operands together
    SN_VEC(sn_global *) made;
} folder;

static bool is_known(const sn_value *value) {
    if (value->kind == SN_VALUE_RESULT) return value->def->kind == SN_OP_CONSTANT || value->def->kind == SN_OP_IOTA;
    return value->kind == SN_VALUE_GLOBAL && value->global->role == SN_ROLE_CONSTANT &&
           (value->global->source.kind == SN_SOURCE_FILL || value->global->source.data);
}

static bool is_foldable(const folder *f, const sn_op *op) {
    const unsigned never =
        SN_TRAIT_GENERATOR | SN_TRAIT_UPDATE | SN_TRAIT_COLLECTIVE | SN_TRAIT_TRANSFER | SN_TRAIT_SCHEDULE;
    if (op->n_results != 1 || op->n_operands == 0 || sn_op_has(op->kind, never) || op->kind == SN_OP_KERNEL)
        return false;
    int64_t bytes = 0, count = sn_type_count(op->results[0]->type);
    for (int i = 0; i < op->n_operands; i++) {
        if (!is_known(op->operands[i])) return false;
        bytes += sn_type_bytes(op->operands[i]->type);
    }
    if (op->kind == SN_OP_BROADCAST && count > sn_type_count(op->operands[0]->type)) return false;
    return count > 0 && bytes <= f->limit && sn_type_bytes(op->results[0]->type) <= f->limit;
}

static void fill(sn_tensor *tensor, const char *element) {
    size_t size = sn_dtype_bytes(tensor->type.dtype);
    int64_t count = sn_type_count(tensor->type);
    for (int64_t i = 0; i < count; i++) memcpy((char *)tensor->data + (size_t)i * size, element, size);
}

// The tensor of a known value; *owned says whether it is to be freed.
static sn_tensor read_known(const sn_value *value, bool *owned) {
    *owned = true;
    if (value->kind == SN_VALUE_GLOBAL && value->global->source.kind != SN_SOURCE_FILL) {
        *owned = false;
        return (sn_tensor){value->type, (void *)value->global->source.data};
    }
    sn_tensor tensor = sn_tensor_new(value->type);
    if (value->kind == SN_VALUE_GLOBAL) {
        char element[8];
        sn_store_f64(value->type.dtype, element, 0, value->global->source.fill);
        fill(&tensor, element);
    } else {
        const char *problem = sn_evaluate(value->def, NULL, &tensor);
        if (problem) SN_BUG("a %s does not evaluate: %s", sn_op_name(value->def->kind), problem);
    }
    return tensor;
}

static bool is_uniform(sn_type type, const char *data) {
    size_t bytes = (size_t)sn_type_bytes(type), size = sn_dtype_bytes(type.dtype);
    // each element equals the one before it
    return bytes >= size && memcmp(data, data + size, bytes - size) == 0;
}

// A `constant` op with the element at `data`; integers keep all their bits.
static sn_value *constant_op(sn_func *func, sn_op *before, sn_type type, const void *data, const sn_origin *origin) {
    sn_attr attr = sn_dtype_is_float(type.dtype) ? sn_attr_float("value", sn_load_f64(type.dtype, data, 0))
                                                 : sn_attr_int("bits", sn_load_i64(type.dtype, data, 0));
    sn_op *op = sn_op_new(func, before, SN_OP_CONSTANT, 0, NULL, 1, &attr, 1, &type);
    op->origin = origin;
    op->phase = before->phase;
    return op->results[0];
}

static sn_value *constant_global(folder *f, const char *name, sn_type type, const void *data) {
    size_t bytes = (size_t)sn_type_bytes(type);
    for (size_t i = 0; i < f->made.count; i++) {
        sn_global *global = f->made.data[i];
        if (sn_type_equal(global->value->type, type) && memcmp(global->source.data, data, bytes) == 0)
            return global->value;
    }
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = sn_arena_copy(&f->module->arena, data, bytes)};
    sn_global *global = sn_module_add_global(f->module, name ? name : "folded", type, SN_ROLE_CONSTANT, source);
    sn_vec_push(&f->made, global);
    return global->value;
}

static void fold(folder *f, sn_op *op) {
    sn_value *old = op->results[0];
    sn_tensor *operands = sn_alloc(sizeof *operands * (size_t)op->n_operands), result = sn_tensor_new(old->type);
    bool *owned = sn_alloc(sizeof *owned * (size_t)op->n_operands);
    for (int i = 0; i < op->n_operands; i++) operands[i] = read_known(op->operands[i], &owned[i]);
    const char *problem = sn_evaluate(op, operands, &result);
    if (problem) {
        sn_pass_remark(f->context, "R0801", op, "%s on constants does not evaluate: %s", sn_op_name(op->kind), problem);
    } else {
        sn_value *with = is_uniform(old->type, result.data) ? constant_op(op->func, op, old->type, result.data,
                                                                          sn_pass_origin(f->module, f->context, op))
                                                            : constant_global(f, old->name, old->type, result.data);
        sn_value_replace(old, with);
        sn_op_erase(op);
    }
    for (int i = 0; i < op->n_operands; i++)
        if (owned[i]) sn_tensor_free(&operands[i]);
    sn_tensor_free(&result);
    sn_free(operands);
    sn_free(owned);
}

// Constants from the model that hold one number become `constant` ops, which the other passes look into.
static void read_uniform_global(sn_global *global) {
    sn_type type = global->value->type;
    if (!is_known(global->value) || sn_type_count(type) == 0) return;
    char element[8] = {0};
    if (global->source.kind == SN_SOURCE_FILL)
        sn_store_f64(type.dtype, element, 0, global->source.fill);
    else if (is_uniform(type, global->source.data))
        memcpy(element, global->source.data, sn_dtype_bytes(type.dtype));
    else
        return;
    while (global->value->uses.count) {
        sn_use use = sn_vec_last(&global->value->uses);
        sn_op_set_operand(use.op, use.index, constant_op(use.op->func, use.op, type, element, use.op->origin));
    }
}

static void run(sn_module *module, sn_pass_context *context) {
    folder f = {.module = module, .context = context};
    f.limit = sn_pass_argument_int(context, "limit", 16 << 20);
    for (size_t i = 0; i < module->globals.count; i++) read_uniform_global(module->globals.data[i]);
    for (size_t i = 0; i < module->funcs.count; i++) {
        SN_FOR_OPS_SAFE(op, module->funcs.data[i]) {
            if (is_foldable(&f, op)) fold(&f, op);
        }
    }
    sn_vec_free(&f.made);
}

const sn_pass sn_pass_fold_constants = {
    .name = "fold-constants",
    .summary = "computes ops on constants",
    .arguments = "limit=BYTES: leave larger operands and results alone; default 16 MiB",
    .forms = 1 << SN_FORM_GRAPH,
    .result = SN_FORM_GRAPH,
    .run = run,
};
