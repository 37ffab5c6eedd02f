// `sennit info`: what a model takes, gives and holds, and which of its weights would be trained, and why.
#include "frontend/onnx.h"
#include "passes/training/training.h"
#include "tools/model.h"
#include "tools/passes.h"
#include "tools/training.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const role_names[SN_ROLE_COUNT] = {
    [SN_ROLE_PARAMETER] = "trained",   [SN_ROLE_FROZEN] = "frozen", [SN_ROLE_STATE] = "state",
    [SN_ROLE_OPTIMIZER] = "optimizer", [SN_ROLE_SUM] = "sum",       [SN_ROLE_CONSTANT] = "constant"};

static void print_dims(sn_str *out, const sn_onnx_port *port) {
    sn_str_puts(out, port->dtype == SN_DTYPE_COUNT ? "?" : sn_dtype_name(port->dtype));
    sn_str_putc(out, '[');
    if (port->rank < 0) sn_str_puts(out, "...");
    for (int d = 0; d < port->rank; d++) {
        if (d) sn_str_putc(out, ',');
        if (port->dim[d].size < 0)
            sn_str_puts(out, port->dim[d].symbol);
        else
            sn_str_printf(out, "%" PRId64, port->dim[d].size);
    }
    sn_str_putc(out, ']');
}

static json_t *ports_to_json(const sn_onnx_port *ports, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *port = json_object(), *shape = json_array();
        json_object_set_new(port, "name", json_string(ports[i].name));
        json_object_set_new(
            port, "dtype", ports[i].dtype == SN_DTYPE_COUNT ? json_null() : json_string(sn_dtype_name(ports[i].dtype)));
        for (int d = 0; d < ports[i].rank; d++)
            json_array_append_new(shape, ports[i].dim[d].size < 0 ? json_string(ports[i].dim[d].symbol)
                                                                  : json_integer(ports[i].dim[d].size));
        json_object_set_new(port, "shape", shape);
        json_array_append_new(list, port);
    }
    return list;
}

static json_t *operators_to_json(const sn_onnx_info *info) {
    json_t *list = json_array();
    for (size_t i = 0; i < info->n_operators; i++) {
        const sn_onnx_operator *op = &info->operators[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:b}", "type", op->type, "domain", op->domain, "nodes",
                                              (json_int_t)op->nodes, "supported", op->supported));
    }
    return list;
}

static void print_operators(const sn_onnx_info *info) {
    puts("operators");
    for (size_t i = 0; i < info->n_operators; i++) {
        const sn_onnx_operator *op = &info->operators[i];
        printf("  %5zu  %s%s%s%s\n", op->nodes, op->domain, op->domain[0] ? "." : "", op->type,
               op->supported ? "" : "   (not supported)");
    }
}

// The verdict needs the loss; without one what the importer thinks stands.
static sn_module *decide_roles(const sn_options *options, sn_model_source *source, sn_diags *notes) {
    sn_module *module = sn_onnx_import(source->model, &source->import, notes);
    if (!module) return NULL;
    sn_onnx_check_training(source->model, module, source->import.mode, notes);
    sn_training training = sn_training_default();
    training.loss = sn_options_text(options, "loss", NULL);
    sn_train_rules(options, &notes->arena, &training.parameters);
    sn_training_build(module, &training, notes);
    return module;
}

static int64_t count_elements(const sn_module *module, sn_role role) {
    int64_t count = 0;
    for (size_t i = 0; i < module->globals.count; i++)
        if (module->globals.data[i]->role == role) count += sn_type_count(module->globals.data[i]->value->type);
    return count;
}

static json_t *weights_to_json(const sn_module *module) {
    json_t *list = json_array();
    for (size_t i = 0; module && i < module->globals.count; i++) {
        const sn_global *global = module->globals.data[i];
        if (global->role == SN_ROLE_OPTIMIZER || global->role == SN_ROLE_SUM) continue;
        json_t *weight = json_object(), *shape = json_array();
        json_object_set_new(weight, "name", json_string(global->name));
        json_object_set_new(weight, "dtype", json_string(sn_dtype_name(global->value->type.dtype)));
        for (int d = 0; d < global->value->type.rank; d++)
            json_array_append_new(shape, json_integer(global->value->type.dim[d]));
        json_object_set_new(weight, "shape", shape);
        json_object_set_new(weight, "role", json_string(role_names[global->role]));
        json_object_set_new(weight, "why", json_string(global->why ? global->why : ""));
        json_array_append_new(list, weight);
    }
    return list;
}

static void print_json(const sn_onnx_info *info, const sn_module *module) {
    json_t *json = json_object();
    json_object_set_new(json, "path", json_string(info->path));
    json_object_set_new(json, "producer", json_string(info->producer ? info->producer : ""));
    json_object_set_new(json, "ir_version", json_integer(info->ir_version));
    json_object_set_new(json, "opset", json_integer(info->opset));
    json_object_set_new(json, "nodes", json_integer((json_int_t)info->n_nodes));
    json_object_set_new(json, "functions", json_integer((json_int_t)info->n_functions));
    json_object_set_new(json, "inputs", ports_to_json(info->inputs, info->n_inputs));
    json_object_set_new(json, "outputs", ports_to_json(info->outputs, info->n_outputs));
    json_object_set_new(json, "operators", operators_to_json(info));
    if (module) json_object_set_new(json, "parameters", json_integer(count_elements(module, SN_ROLE_PARAMETER)));
    json_object_set_new(json, "weights", weights_to_json(module));
    json_dumpf(json, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(json);
}

static void print_ports(const char *title, const sn_onnx_port *ports, size_t count) {
    puts(title);
    for (size_t i = 0; i < count; i++) {
        sn_str dims = {0};
        print_dims(&dims, &ports[i]);
        printf("  %-32s %s\n", ports[i].name, sn_str_text(&dims));
        sn_str_free(&dims);
    }
}

static void print_weights(const sn_module *module) {
    puts("weights");
    for (size_t i = 0; i < module->globals.count; i++) {
        const sn_global *global = module->globals.data[i];
        if (global->role == SN_ROLE_OPTIMIZER || global->role == SN_ROLE_SUM) continue;
        sn_str type = {0};
        sn_type_print(&type, global->value->type);
        printf("  %-9s %-44s %-20s %s\n", role_names[global->role], global->name, sn_str_text(&type),
               global->why ? global->why : "");
        sn_str_free(&type);
    }
    printf("  %" PRId64 " parameters are trained, %" PRId64 " frozen\n", count_elements(module, SN_ROLE_PARAMETER),
           count_elements(module, SN_ROLE_FROZEN));
}

// Before its dims are bound a model says no more of its weights than what they are.
static void print_plain_weights(const sn_onnx_info *info) {
    puts("weights (bind the dims to see which are trained)");
    for (size_t i = 0; i < info->n_weights; i++) {
        sn_str type = {0};
        sn_type_print(&type, info->weights[i].type);
        printf("  %-44s %s\n", info->weights[i].name, sn_str_text(&type));
        sn_str_free(&type);
    }
}

static void print_text(const sn_onnx_info *info, const sn_module *module) {
    printf("%s: opset %" PRId64 ", ONNX IR %" PRId64 ", %zu nodes, %zu weights%s%s%s%s\n", info->path, info->opset,
           info->ir_version, info->n_nodes, info->n_weights, info->producer ? ", from " : "",
           info->producer ? info->producer : "", info->producer ? " " : "",
           info->producer && info->producer_version ? info->producer_version : "");
    print_ports("inputs", info->inputs, info->n_inputs);
    print_ports("outputs", info->outputs, info->n_outputs);
    print_operators(info);
    if (module)
        print_weights(module);
    else
        print_plain_weights(info);
}

// What keeps the model from training is news here, not a failure.
static void report_obstacles(const sn_diags *notes, sn_diags *diags) {
    for (size_t i = 0; i < notes->count; i++) {
        const sn_diag *note = &notes->items[i];
        if (note->severity == SN_ERROR)
            sn_diags_add(diags, SN_WARNING, "W0708", note->subject, note->help, "training would end with %s: %s",
                         note->code, note->message);
        else
            sn_diags_add(diags, note->severity, note->code, note->subject, note->help, "%s", note->message);
    }
}

static void show(const sn_options *options, sn_diags *diags) {
    sn_model_source source;
    sn_diags notes = {0};
    if (sn_model_source_open(options->arguments.data[0], options, NULL, 1, 1, SN_ONNX_AS_EXPORTED, diags, &source)) {
        sn_module *module = decide_roles(options, &source, &notes);
        if (sn_options_has(options, "json"))
            print_json(sn_onnx_info_of(source.model), module);
        else
            print_text(sn_onnx_info_of(source.model), module);
        report_obstacles(&notes, diags);
        sn_module_free(module);
    }
    sn_model_source_close(&source);
    sn_diags_free(&notes);
}

int sn_cmd_info(const sn_options *options, sn_diags *diags) {
    show(options, diags);
    return 0;
}
