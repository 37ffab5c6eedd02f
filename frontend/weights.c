// Initializers become globals when a node first reads them. Which of them are trained is settled here as far as the
// model alone tells; the training build looks at the loss's path and at the user's expressions.
#include "frontend/hazards.h"
#include "frontend/import.h"

#include <string.h>

static const sn_onnx_weight *find_weight(const sn_import *import, const char *name) {
    uintptr_t position = (uintptr_t)sn_map_get(&import->positions, name);
    return position ? &import->model->info.weights[position - 1] : NULL;
}

static sn_role first_role(const sn_import *import, const sn_onnx_weight *weight, const char **why) {
    if (!sn_dtype_is_float(weight->type.dtype)) return *why = "not of a float type", SN_ROLE_CONSTANT;
    if (weight->kind == SN_ONNX_PARAMETER) return *why = "marked as a parameter by the exporter", SN_ROLE_PARAMETER;
    if (weight->kind == SN_ONNX_BUFFER) return *why = "marked as a buffer by the exporter", SN_ROLE_CONSTANT;
    if (weight->type.rank == 0) return *why = "a scalar", SN_ROLE_CONSTANT;
    if (import->model->info.marked) return *why = "computed by the exporter", SN_ROLE_FROZEN;
    bool generated = sn_starts_with(weight->name, "onnx::") || sn_starts_with(weight->name, "val_");
    if (generated && sn_type_count(weight->type) == 1) return *why = "a single number", SN_ROLE_CONSTANT;
    return *why = "a float initializer", SN_ROLE_PARAMETER;
}

// The other name of a tied weight reads the weight itself.
static sn_value *tie(sn_import *import, const sn_tie *tie) {
    sn_value *weight = sn_import_weight(import, tie->of);
    if (!weight) return NULL;
    if (!sn_map_has(&import->noted, tie->copy))
        sn_warning(import->diags, "W0302", tie->copy, "untie them in the model when each is to be trained by itself",
                   "'%s' holds the same numbers as '%s'%s: they are one weight again", tie->copy, tie->of,
                   tie->transposed ? ", transposed" : "");
    sn_map_put(&import->noted, tie->copy, import);
    const sn_origin *origin = sn_origin_new(import->module, tie->copy, NULL);
    sn_builder b = {.func = import->func, .before = import->func->first, .origin = origin};
    return tie->transposed ? sn_build_transpose(&b, weight, (int64_t[]){1, 0}) : weight;
}

sn_value *sn_import_unmerged(sn_import *import, const char *name) {
    const sn_merge *merge = sn_hazards_merge(import->model, name);
    sn_global *known = sn_map_get(&import->sources, name);
    if (known) return known->value;
    sn_value *weight = merge ? sn_import_weight(import, merge->of) : NULL;
    if (!weight || weight->kind != SN_VALUE_GLOBAL || weight->global->role != SN_ROLE_PARAMETER) return NULL;
    sn_global *copy =
        sn_module_add_global(import->module, merge->name, weight->type, SN_ROLE_PARAMETER, weight->global->source);
    copy->why = "merged with an equal parameter by the exporter";
    sn_map_put(&import->sources, merge->name, copy);
    sn_vec_push(&import->unmerged, merge->name);
    return copy->value;
}

sn_value *sn_import_weight(sn_import *import, const char *name) {
    sn_global *known = sn_map_get(&import->sources, name);
    if (known) return known->value;
    const sn_tie *tied = sn_hazards_tie(import->model, name);
    if (tied) return tie(import, tied);
    const sn_onnx_weight *weight = find_weight(import, name);
    if (!weight) return NULL;
    if (weight->problem) {
        sn_error(import->diags, "E0104", name, "export the model again; ONNX's checker says more",
                 "the initializer '%s': %s", name, weight->problem);
        return NULL;
    }
    sn_source source;
    const Onnx__TensorProto *proto = sn_map_get(&import->model->weights, name);
    if (!sn_model_tensor(import->model, proto, weight->type, name, &import->module->arena, import->diags, &source))
        return NULL;
    const char *why;
    sn_role role = first_role(import, weight, &why);
    sn_global *global = sn_module_add_global(import->module, name, weight->type, role, source);
    global->why = why;
    sn_map_put(&import->sources, weight->name, global);
    return global->value;
}

// What an exporter may put between a weight and the operator it is a weight of; experts are gathered by token.
static bool is_passage(sn_op_kind kind) {
    return kind == SN_OP_RESHAPE || kind == SN_OP_TRANSPOSE || kind == SN_OP_CAST || kind == SN_OP_BROADCAST ||
           kind == SN_OP_SLICE || kind == SN_OP_GATHER || kind == SN_OP_GATHER_ND;
}

static const sn_op *beyond_views(const sn_use *use, int *operand) {
    const sn_op *op = use->op;
    *operand = use->index;
    while (is_passage(op->kind) && *operand == 0 && op->results[0]->uses.count == 1) {
        *operand = op->results[0]->uses.data[0].index;
        op = op->results[0]->uses.data[0].op;
    }
    return op;
}

static bool is_product(const sn_value *value) {
    return value->kind == SN_VALUE_RESULT && (value->def->kind == SN_OP_MATMUL || value->def->kind == SN_OP_CONV);
}

// Whether an op uses the value as the weight or the bias of a linear map.
static bool is_linear_use(const sn_value *value, const sn_use *use) {
    int operand;
    const sn_op *op = beyond_views(use, &operand);
    int rank = value->type.rank;
    if (op->kind == SN_OP_CONV) return operand == 1;
    if (op->kind == SN_OP_MATMUL) return rank >= 2 && (operand == 1 || use->op->kind != SN_OP_MATMUL);
    return op->kind == SN_OP_ADD && rank == 1 && is_product(op->operands[1 - operand]);
}

// An exporter that marks parameters and folds stores transposed weights without a mark.
static void settle_unmarked(sn_global *global) {
    sn_value *value = global->value;
    for (size_t i = 0; i < value->uses.count; i++) {
        if (!is_linear_use(value, &value->uses.data[i])) continue;
        global->role = SN_ROLE_PARAMETER;
        global->why = "computed by the exporter, but used as the weight or bias of a linear map";
        return;
    }
}

void sn_import_settle_roles(sn_import *import) {
    for (size_t i = 0; i < import->model->info.n_weights; i++) {
        const sn_onnx_weight *weight = &import->model->info.weights[i];
        sn_global *global = sn_map_get(&import->sources, weight->name);
        if (global && global->role == SN_ROLE_FROZEN && import->model->info.marked && weight->kind == SN_ONNX_UNMARKED)
            settle_unmarked(global);
    }
    sn_module *module = import->module;
    for (size_t i = module->globals.count; i-- > 0;) {
        sn_global *global = module->globals.data[i];
        bool used = global->value->uses.count > 0;
        for (size_t f = 0; f < module->funcs.count && !used; f++)
            for (size_t r = 0; r < module->funcs.data[f]->results.count; r++)
                used = used || module->funcs.data[f]->results.data[r] == global->value;
        if (!used) sn_module_remove_global(module, global);
    }
}

void sn_import_report_unmerged(sn_import *import) {
    enum { MOST_LISTED = 8 };
    if (!import->unmerged.count) return;
    sn_str list = {0};
    for (size_t i = 0; i < import->unmerged.count && i < MOST_LISTED; i++)
        sn_str_printf(&list, "%s'%s'", i ? ", " : "", import->unmerged.data[i]);
    if (import->unmerged.count > MOST_LISTED) sn_str_puts(&list, ", …");
    sn_warning(
        import->diags, "W0301", import->model->info.path,
        "export in training mode (training=TrainingMode.TRAINING) to keep such parameters apart",
        "the exporter merged %zu parameter%s with others that were equal at export; each is a parameter of its own "
        "again: %s",
        import->unmerged.count, import->unmerged.count == 1 ? "" : "s", sn_str_text(&list));
    sn_str_free(&list);
}
