#include "frontend/import.h"
#include "frontend/handlers.h"
#include "frontend/signature.h"

#include <string.h>

// Inlining may multiply nodes: functions that call functions twice each, loops in loops.
enum { MOST_NODES = 4 * 1000 * 1000, DEEPEST_CALL = 64 };

sn_scope *sn_scope_new(sn_import *import, sn_scope *parent) {
    sn_scope *scope = SN_NEW(&import->arena, sn_scope);
    sn_vec_push(&import->scopes, scope);
    scope->parent = parent;
    scope->prefix = "";
    if (parent) {
        scope->opsets = parent->opsets;
        scope->n_opsets = parent->n_opsets;
        scope->attributes = parent->attributes;
        scope->depth = parent->depth + 1;
    }
    return scope;
}

void sn_scope_define(sn_import *import, sn_scope *scope, const char *name, sn_value *value,
                     const sn_tensor_sequence *sequence) {
    sn_entry *entry = SN_NEW(&import->arena, sn_entry);
    *entry = (sn_entry){value, sequence};
    sn_map_put(&scope->names, name, entry);
}

sn_entry *sn_scope_find(sn_import *import, sn_scope *scope, const char *name) {
    for (;; scope = scope->parent) {
        sn_entry *entry = sn_map_get(&scope->names, name);
        if (entry) return entry;
        if (!scope->parent) break;
    }
    if (scope->is_function || !sn_map_has(&import->positions, name)) return NULL;
    sn_scope_define(import, scope, name, sn_import_weight(import, name), NULL);
    return sn_map_get(&scope->names, name);
}

sn_value *sn_import_tensor(sn_import *import, const Onnx__TensorProto *proto, const char *name) {
    const char *key = sn_arena_printf(&import->arena, "%p", (const void *)proto);
    sn_value *known = sn_map_get(&import->tensors, key);
    if (known) return known;
    sn_type type;
    sn_source source;
    const char *problem = sn_tensor_proto_type(proto, &import->arena, &type);
    if (problem) {
        sn_error(import->diags, "E0104", name, "export the model again; ONNX's checker says more",
                 "the tensor '%s': %s", name, problem);
        return NULL;
    }
    if (!sn_model_tensor(import->model, proto, type, name, &import->module->arena, import->diags, &source)) return NULL;
    sn_global *global = sn_module_add_global(import->module, name, type, SN_ROLE_CONSTANT, source);
    global->why = "a constant of the graph";
    sn_map_put(&import->tensors, key, global->value);
    return global->value;
}

void sn_import_initializers(sn_import *import, sn_scope *scope, const Onnx__GraphProto *graph) {
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const char *name = graph->initializer[i]->name ? graph->initializer[i]->name : "";
        const char *global = sn_arena_printf(&import->arena, "%s%s", scope->prefix, name);
        sn_scope_define(import, scope, name, sn_import_tensor(import, graph->initializer[i], global), NULL);
    }
}

static const char *normal_domain(const char *domain) {
    return !domain || strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

static int64_t opset_of(const sn_scope *scope, const char *domain) {
    for (size_t i = 0; i < scope->n_opsets; i++)
        if (strcmp(normal_domain(scope->opsets[i]->domain), domain) == 0) return scope->opsets[i]->version;
    return 0;
}

static const char *function_key(sn_import *import, const char *domain, const char *name, const char *overload) {
    return sn_arena_printf(&import->arena, "%s:%s:%s", normal_domain(domain), name ? name : "",
                           overload ? overload : "");
}

static void poison_outputs(sn_import *import, sn_scope *scope, const Onnx__NodeProto *proto) {
    for (size_t i = 0; i < proto->n_output; i++)
        if (*proto->output[i] && !sn_map_has(&scope->names, proto->output[i]))
            sn_scope_define(import, scope, proto->output[i], NULL, NULL);
}

static bool reads_poison(sn_import *import, sn_scope *scope, const Onnx__NodeProto *proto) {
    for (size_t i = 0; i < proto->n_input; i++) {
        if (!*proto->input[i]) continue;
        sn_entry *entry = sn_scope_find(import, scope, proto->input[i]);
        if (!entry || (entry != &import->absent && !entry->value && !entry->sequence)) return true;
    }
    return false;
}

static void bind_attributes(sn_node *call, const Onnx__FunctionProto *function, sn_scope *scope) {
    for (size_t i = 0; i < function->n_attribute_proto; i++)
        if (function->attribute_proto[i]->name)
            sn_map_put(&scope->attributes, function->attribute_proto[i]->name, function->attribute_proto[i]);
    for (size_t i = 0; i < call->proto->n_attribute; i++) {
        const char *name = call->proto->attribute[i]->name;
        const Onnx__AttributeProto *attr = name ? sn_node_attr(call, name) : NULL;
        if (attr) sn_map_put(&scope->attributes, name, (void *)(uintptr_t)attr);
    }
}

// A call of a model-local function: its nodes in a scope of their own.
static void inline_function(sn_node *call, const Onnx__FunctionProto *function) {
    sn_import *import = call->import;
    sn_scope *scope = sn_scope_new(import, NULL);
    scope->is_function = true;
    scope->depth = call->scope->depth + 1;
    scope->opsets = (const Onnx__OperatorSetIdProto *const *)function->opset_import;
    scope->n_opsets = function->n_opset_import;
    scope->prefix = sn_arena_printf(&import->arena, "%s/", call->name);
    if (scope->depth > DEEPEST_CALL) {
        sn_error(import->diags, "E0210", call->name, "export with the functions inlined (onnx.inliner)",
                 "functions call each other more than %d deep; is '%s' recursive?", DEEPEST_CALL, call->proto->op_type);
        return;
    }
    bind_attributes(call, function, scope);
    for (size_t i = 0; i < function->n_input; i++) {
        sn_entry *entry = sn_node_has(call, (int)i) ? sn_scope_find(import, call->scope, call->proto->input[i]) : NULL;
        if (entry) sn_scope_define(import, scope, function->input[i], entry->value, entry->sequence);
        // Inside the function an input that is not given reads as an absent one.
        if (!entry) sn_map_put(&scope->names, function->input[i], &import->absent);
    }
    sn_import_nodes(import, scope, function->n_node, function->node);
    for (size_t i = 0; i < function->n_output && i < call->proto->n_output; i++) {
        sn_entry *entry = sn_scope_find(import, scope, function->output[i]);
        if (!entry)
            sn_error(import->diags, "E0203", call->name, "the model is invalid; ONNX's checker says more",
                     "nothing defines the output '%s' of the function '%s'", function->output[i],
                     function->name ? function->name : "");
        else if (*call->proto->output[i])
            sn_scope_define(import, call->scope, call->proto->output[i], entry->value, entry->sequence);
    }
}

const sn_onnx_op *sn_onnx_find_op(const char *type, const char *domain) {
    static const sn_onnx_op ops[] = {
#define SN_ONNX_OP(type, domain, since, until, handler, kind, inputs)                                                  \
    {#type, domain, since, until, sn_handle_##handler, SN_OP_##kind, inputs},
#include "frontend/opset.def"
#undef SN_ONNX_OP
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(ops[i].type, type) == 0 && strcmp(ops[i].domain, domain) == 0) return &ops[i];
    return NULL;
}

static bool run_handler(sn_node *n) {
    if (setjmp(n->escape)) return false;
    sn_node_check_inputs(n);
    n->op->handler(n);
    return true;
}

static void record_unknown(sn_node *n, const char *domain) {
    sn_unsupported item = {.node = n->name, .type = n->proto->op_type, .domain = domain, .opset = n->opset};
    if (n->op && n->opset < n->op->since)
        item.reason = sn_arena_printf(&n->import->arena, "supported from opset %d on", n->op->since);
    else if (n->op)
        item.reason = sn_arena_printf(&n->import->arena, "supported up to opset %d", n->op->until);
    sn_vec_push(&n->import->unsupported, item);
}

static void import_node(sn_import *import, sn_scope *scope, const Onnx__NodeProto *proto) {
    const char *domain = normal_domain(proto->domain), *type = proto->op_type ? proto->op_type : "";
    sn_node node = {.import = import, .scope = scope, .proto = proto};
    const char *base = proto->name && *proto->name ? proto->name
                       : proto->n_output           ? sn_arena_printf(&import->arena, "%s:%s", type, proto->output[0])
                                                   : type;
    node.name = sn_arena_printf(&import->arena, "%s%s", scope->prefix, base);
    node.opset = opset_of(scope, domain);
    if (++import->n_nodes > MOST_NODES) {
        if (import->n_nodes == MOST_NODES + 1)
            sn_error(import->diags, "E0210", node.name, "shorten the loops, or export a part of the model",
                     "functions and loops expand to more than %d nodes", MOST_NODES);
        poison_outputs(import, scope, proto);
        return;
    }
    const Onnx__FunctionProto *function =
        sn_map_get(&import->functions, function_key(import, domain, type, proto->overload));
    if (!function) {
        node.op = sn_onnx_find_op(type, domain);
        if (!node.op || node.opset < node.op->since || node.opset > node.op->until) {
            record_unknown(&node, domain);
            poison_outputs(import, scope, proto);
            return;
        }
    }
    if (function) {
        inline_function(&node, function);
    } else if (!reads_poison(import, scope, proto)) {
        node.builder = (sn_builder){.func = import->func, .origin = sn_origin_new(import->module, node.name, NULL)};
        run_handler(&node);
    }
    poison_outputs(import, scope, proto);
}

void sn_import_nodes(sn_import *import, sn_scope *scope, size_t n_nodes, Onnx__NodeProto *const *nodes) {
    size_t *order = SN_NEW_N(&import->arena, size_t, n_nodes + 1);
    if (!sn_import_order(import, scope, n_nodes, nodes, order)) {
        for (size_t i = 0; i < n_nodes; i++) poison_outputs(import, scope, nodes[i]);
        return;
    }
    for (size_t i = 0; i < n_nodes; i++) import_node(import, scope, nodes[order[i]]);
}

static void add_results(sn_import *import) {
    const sn_onnx_info *info = &import->model->info;
    sn_map listed = {0};
    for (size_t i = 0; i < info->n_outputs; i++) {
        const char *name = info->outputs[i].name;
        sn_entry *entry = sn_scope_find(import, import->root, name);
        if (sn_map_has(&listed, name))
            sn_error(import->diags, "E0204", name, "the model is invalid; ONNX's checker says more",
                     "two outputs have the name '%s'", name);
        else if (!entry)
            sn_error(import->diags, "E0203", name, "the model is invalid; ONNX's checker says more",
                     "nothing defines the model's output '%s'", name);
        else if (entry->sequence)
            sn_error(import->diags, "E0209", name, "end the graph in tensors",
                     "the output '%s' is a sequence, which is not supported", name);
        else if (entry->value)
            sn_func_add_result(import->func, entry->value, name);
        sn_map_put(&listed, name, entry);
    }
    sn_map_free(&listed);
}

static void import_function(sn_import *import, const char *name, sn_onnx_mode mode, const sn_type *inputs) {
    const Onnx__ModelProto *proto = import->model->proto;
    import->func = sn_module_add_func(import->module, name);
    import->mode = mode;
    import->seed = import->step = NULL;
    import->n_random = 0;
    import->root = sn_scope_new(import, NULL);
    import->root->opsets = (const Onnx__OperatorSetIdProto *const *)proto->opset_import;
    import->root->n_opsets = proto->n_opset_import;
    for (size_t i = 0; i < import->model->info.n_inputs; i++) {
        const char *input = import->model->info.inputs[i].name;
        if (sn_map_has(&import->root->names, input))
            sn_error(import->diags, "E0204", input, "the model is invalid; ONNX's checker says more",
                     "two inputs have the name '%s'", input);
        sn_scope_define(import, import->root, input, sn_func_add_arg(import->func, input, inputs[i]), NULL);
    }
    sn_import_nodes(import, import->root, proto->graph->n_node, proto->graph->node);
    add_results(import);
}

static void remove_unused_args(sn_func *func) {
    size_t kept = 0;
    for (size_t i = 0; i < func->args.count; i++) {
        sn_value *arg = func->args.data[i];
        if (!sn_value_is_used(arg)) {
            sn_vec_free(&arg->uses); // the module frees those of the arguments that it has
            continue;
        }
        arg->index = (int)kept;
        func->args.data[kept++] = arg;
    }
    func->args.count = kept;
}

static void report_unsupported(sn_import *import) {
    enum { MOST_LISTED = 100 };
    if (!import->unsupported.count) return;
    sn_str list = {0};
    for (size_t i = 0; i < import->unsupported.count && i < MOST_LISTED; i++) {
        const sn_unsupported *u = &import->unsupported.data[i];
        sn_str_printf(&list, "\n    %s%s%s (opset %lld) at '%s'", *u->domain ? u->domain : "", *u->domain ? "." : "",
                      u->type ? u->type : "", (long long)u->opset, u->node);
        if (u->reason) sn_str_printf(&list, ": %s", u->reason);
    }
    if (import->unsupported.count > MOST_LISTED) sn_str_puts(&list, "\n    …");
    sn_error(import->diags, "E0201", import->model->info.path,
             "export with another opset_version, or express these operators by others",
             "%zu node%s not supported (operators of opset %d to %d are):%s", import->unsupported.count,
             import->unsupported.count == 1 ? " is" : "s are", SN_ONNX_MIN_OPSET, SN_ONNX_MAX_OPSET,
             sn_str_text(&list));
    sn_str_free(&list);
}

static void collect_functions(sn_import *import) {
    const Onnx__ModelProto *proto = import->model->proto;
    for (size_t i = 0; i < proto->n_functions; i++) {
        const Onnx__FunctionProto *function = proto->functions[i];
        sn_map_put(&import->functions, function_key(import, function->domain, function->name, function->overload),
                   proto->functions[i]);
    }
    const sn_onnx_info *info = &import->model->info;
    for (size_t i = 0; i < info->n_weights; i++)
        sn_map_put(&import->positions, info->weights[i].name, (void *)(uintptr_t)(i + 1));
}

static void free_import(sn_import *import) {
    for (size_t i = 0; i < import->scopes.count; i++) {
        sn_scope *scope = import->scopes.data[i];
        sn_map_free(&scope->names);
        if (scope->is_function) sn_map_free(&scope->attributes); // a subgraph shares its parent's
    }
    sn_vec_free(&import->scopes);
    sn_vec_free(&import->known);
    sn_vec_free(&import->unmerged);
    sn_vec_free(&import->stored);
    sn_vec_free(&import->unsupported);
    sn_map_free(&import->functions);
    sn_map_free(&import->positions);
    sn_map_free(&import->sources);
    sn_map_free(&import->noted);
    sn_map_free(&import->tensors);
    sn_arena_free(&import->arena);
}

static void settle(sn_import *import) {
    sn_module *module = import->module;
    for (size_t i = 0; i < module->funcs.count; i++) {
        sn_fold_settle(import, module->funcs.data[i]);
        remove_unused_args(module->funcs.data[i]);
    }
    sn_import_settle_roles(import);
    for (size_t f = 0; f < module->funcs.count; f++) {
        SN_FOR_OPS(op, module->funcs.data[f]) {
            for (int i = 0; i < op->n_results; i++) op->results[i]->id = 0;
        }
        for (size_t i = 0; i < module->funcs.data[f]->args.count; i++) module->funcs.data[f]->args.data[i]->id = 0;
    }
    for (size_t i = 0; i < module->globals.count; i++) module->globals.data[i]->value->id = 0;
}

sn_module *sn_onnx_import(sn_onnx_model *model, const sn_onnx_options *options, sn_diags *diags) {
    size_t errors = diags->errors;
    sn_import import = {.model = model, .options = options, .diags = diags};
    sn_type *inputs = SN_NEW_N(&import.arena, sn_type, model->info.n_inputs + 1);
    if (!sn_onnx_bind(model, options, inputs, diags)) {
        free_import(&import);
        return NULL;
    }
    import.module = sn_module_new(model->info.graph_name);
    collect_functions(&import);
    import_function(&import, "main", options->mode, inputs);
    report_unsupported(&import);
    sn_import_report_unmerged(&import);
    if (diags->errors == errors && import.has_training) import_function(&import, "infer", SN_ONNX_INFERENCE, inputs);
    if (diags->errors == errors) settle(&import);
    free_import(&import);
    if (diags->errors == errors) return import.module;
    sn_module_free(import.module);
    return NULL;
}
