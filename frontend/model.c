#include "frontend/model.h"

#include "frontend/import.h"

#include "frontend/external.h"
#include "frontend/hazards.h"
#include "frontend/wire.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *arena_allocate(void *arena, size_t bytes) {
    return sn_arena_alloc(arena, bytes ? bytes : 1);
}
static void arena_release(void *arena, void *memory) {
    (void)arena, (void)memory;
}

static const char not_a_model[] = "the file is damaged or not an ONNX model; export or download it again";

// The message of the pre-pass's copy, in the model's arena.
static ProtobufCMessage *unpack(sn_arena *arena, const ProtobufCMessageDescriptor *descriptor, const uint8_t *data,
                                size_t bytes, sn_wire_root root, const char *name, sn_diags *diags) {
    sn_str copy = {0};
    ProtobufCMessage *message = NULL;
    if (sn_wire_skim(data, bytes, root, name, diags, &copy)) {
        ProtobufCAllocator allocator = {arena_allocate, arena_release, arena};
        message = protobuf_c_message_unpack(descriptor, &allocator, copy.length, (const uint8_t *)sn_str_text(&copy));
        if (!message) sn_error(diags, "E0101", name, not_a_model, "the file does not follow ONNX's schema");
    }
    sn_str_free(&copy);
    return message;
}

static const char *text_or(const char *text, const char *otherwise) {
    return text ? text : otherwise;
}

static void describe_shape(sn_onnx_model *model, const Onnx__TensorShapeProto *shape, sn_onnx_port *port) {
    port->rank = -1;
    if (!shape) return;
    if (shape->n_dim > SN_MAX_RANK) {
        port->problem = sn_arena_printf(&model->arena, "rank %zu, where %d is the most", shape->n_dim, SN_MAX_RANK);
        return;
    }
    port->rank = (int)shape->n_dim;
    for (int i = 0; i < port->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[i];
        sn_onnx_dim *out = &port->dim[i];
        out->size = dim->has_dim_value && dim->dim_value >= 0 ? dim->dim_value : -1;
        if (out->size >= 0) continue;
        out->symbol =
            dim->dim_param && *dim->dim_param ? dim->dim_param : sn_arena_printf(&model->arena, "%s.%d", port->name, i);
    }
}

static sn_onnx_port describe_port(sn_onnx_model *model, const Onnx__ValueInfoProto *value) {
    sn_onnx_port port = {.name = text_or(value->name, ""), .dtype = SN_DTYPE_COUNT, .rank = -1};
    const Onnx__TypeProto *type = value->type;
    if (!type) return port;
    if (!type->tensor_type) {
        port.problem = type->sequence_type        ? "a sequence"
                       : type->map_type           ? "a map"
                       : type->sparse_tensor_type ? "a sparse tensor"
                       : type->optional_type      ? "an optional"
                                                  : NULL;
        return port;
    }
    int onnx = type->tensor_type->elem_type;
    port.dtype = sn_dtype_from_onnx(onnx);
    if (port.dtype == SN_DTYPE_COUNT && onnx != 0)
        port.problem = sn_arena_printf(&model->arena, "a tensor of %s", sn_onnx_type_name(onnx));
    describe_shape(model, type->tensor_type->shape, &port);
    return port;
}

static void read_marks(sn_onnx_model *model, size_t count, Onnx__ValueInfoProto **values) {
    static const char key[] = "pkg.torch.export.graph_signature.InputSpec.kind";
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < values[i]->n_metadata_props; j++) {
            const Onnx__StringStringEntryProto *entry = values[i]->metadata_props[j];
            if (values[i]->name && entry->key && entry->value && strcmp(entry->key, key) == 0)
                sn_map_put(&model->marks, values[i]->name, entry->value);
        }
}

static sn_onnx_weight describe_weight(sn_onnx_model *model, const Onnx__TensorProto *proto) {
    sn_onnx_weight weight = {.name = text_or(proto->name, ""), .external = sn_tensor_proto_is_external(proto)};
    weight.problem = sn_tensor_proto_type(proto, &model->arena, &weight.type);
    const char *mark = sn_map_get(&model->marks, weight.name);
    if (mark && strcmp(mark, "PARAMETER") == 0) weight.kind = SN_ONNX_PARAMETER;
    if (mark && strcmp(mark, "BUFFER") == 0) weight.kind = SN_ONNX_BUFFER;
    return weight;
}

static bool describe_weights(sn_onnx_model *model, const Onnx__GraphProto *graph, sn_diags *diags) {
    size_t errors = diags->errors;
    sn_onnx_weight *weights = SN_NEW_N(&model->arena, sn_onnx_weight, graph->n_initializer + 1);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        weights[i] = describe_weight(model, graph->initializer[i]);
        if (sn_map_has(&model->weights, weights[i].name))
            sn_error(diags, "E0103", weights[i].name, "the model is invalid; ONNX's checker says more",
                     "two initializers have the name '%s'", weights[i].name);
        sn_map_put(&model->weights, weights[i].name, graph->initializer[i]);
        model->info.marked |= weights[i].kind != SN_ONNX_UNMARKED;
    }
    model->info.weights = weights;
    model->info.n_weights = graph->n_initializer;
    return diags->errors == errors;
}

static void describe_ports(sn_onnx_model *model, const Onnx__GraphProto *graph) {
    sn_onnx_port *inputs = SN_NEW_N(&model->arena, sn_onnx_port, graph->n_input + 1);
    sn_onnx_port *outputs = SN_NEW_N(&model->arena, sn_onnx_port, graph->n_output + 1);
    for (size_t i = 0; i < graph->n_input; i++)
        if (!sn_map_has(&model->weights, text_or(graph->input[i]->name, "")))
            inputs[model->info.n_inputs++] = describe_port(model, graph->input[i]);
    for (size_t i = 0; i < graph->n_output; i++)
        outputs[model->info.n_outputs++] = describe_port(model, graph->output[i]);
    model->info.inputs = inputs;
    model->info.outputs = outputs;
}

static int by_type(const void *a, const void *b) {
    const sn_onnx_operator *x = a, *y = b;
    int order = strcmp(x->type, y->type);
    return order ? order : strcmp(x->domain, y->domain);
}

static bool has_function(const Onnx__ModelProto *proto, const char *type, const char *domain) {
    for (size_t i = 0; i < proto->n_functions; i++) {
        const Onnx__FunctionProto *function = proto->functions[i];
        if (function->name && strcmp(function->name, type) == 0 &&
            strcmp(function->domain ? function->domain : "", domain) == 0)
            return true;
    }
    return false;
}

static void describe_operators(sn_onnx_model *model) {
    const Onnx__GraphProto *graph = model->proto->graph;
    sn_onnx_operator *operators = SN_NEW_N(&model->arena, sn_onnx_operator, graph->n_node + 1);
    size_t n = 0;
    for (size_t i = 0; i < graph->n_node; i++) {
        const char *type = graph->node[i]->op_type, *domain = graph->node[i]->domain;
        operators[i] = (sn_onnx_operator){.type = type ? type : "", .domain = domain ? domain : "", .nodes = 1};
        if (strcmp(operators[i].domain, "ai.onnx") == 0) operators[i].domain = "";
    }
    qsort(operators, graph->n_node, sizeof *operators, by_type);
    for (size_t i = 0; i < graph->n_node; i++) {
        if (n && by_type(&operators[n - 1], &operators[i]) == 0)
            operators[n - 1].nodes++;
        else
            operators[n++] = operators[i];
    }
    for (size_t i = 0; i < n; i++)
        operators[i].supported = sn_onnx_find_op(operators[i].type, operators[i].domain) ||
                                 has_function(model->proto, operators[i].type, operators[i].domain);
    model->info.operators = operators;
    model->info.n_operators = n;
}

static bool describe(sn_onnx_model *model, sn_diags *diags) {
    const Onnx__ModelProto *proto = model->proto;
    const Onnx__GraphProto *graph = proto->graph;
    sn_onnx_info *info = &model->info;
    if (!graph) {
        sn_error(diags, "E0101", info->path, not_a_model, "the file has no graph");
        return false;
    }
    info->graph_name = text_or(graph->name, "");
    info->producer = text_or(proto->producer_name, "");
    info->producer_version = text_or(proto->producer_version, "");
    info->ir_version = proto->ir_version;
    for (size_t i = 0; i < proto->n_opset_import; i++) {
        const char *domain = text_or(proto->opset_import[i]->domain, "");
        if (!*domain || strcmp(domain, "ai.onnx") == 0) info->opset = proto->opset_import[i]->version;
    }
    info->n_nodes = graph->n_node;
    describe_operators(model);
    info->n_functions = proto->n_functions;
    read_marks(model, graph->n_input, graph->input);
    read_marks(model, graph->n_output, graph->output);
    read_marks(model, graph->n_value_info, graph->value_info);
    bool fine = describe_weights(model, graph, diags);
    describe_ports(model, graph);
    return fine;
}

static sn_onnx_model *open_model(sn_onnx_model *model, sn_diags *diags) {
    model->proto = (Onnx__ModelProto *)unpack(&model->arena, &onnx__model_proto__descriptor, model->file.data,
                                              model->file.bytes, SN_WIRE_MODEL, model->info.path, diags);
    if (model->proto && describe(model, diags)) {
        sn_hazards_find(model);
        return model;
    }
    sn_onnx_close(model);
    return NULL;
}

static sn_onnx_model *open_file(const char *path, bool shapes_only, sn_diags *diags) {
    sn_mapped_file mapped = {0};
    sn_status status = sn_file_map(path, &mapped);
    if (status) {
        sn_error(diags, "E0100", path, "is the path right?", "%s", sn_status_message(status));
        sn_status_free(status);
        return NULL;
    }
    sn_onnx_model *model = sn_alloc(sizeof *model);
    model->mapped = mapped;
    model->shapes_only = shapes_only;
    model->info.path = sn_arena_strdup(&model->arena, path);
    model->file = (sn_tensor_file){mapped.data, mapped.bytes, model->info.path};
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) : 0;
    const char *folder = slash ? (length ? sn_arena_printf(&model->arena, "%.*s", length, path) : "/") : ".";
    model->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return open_model(model, diags);
}

sn_onnx_model *sn_onnx_open(const char *path, sn_diags *diags) {
    return open_file(path, false, diags);
}

sn_onnx_model *sn_onnx_open_shapes(const char *path, sn_diags *diags) {
    return open_file(path, true, diags);
}

sn_onnx_model *sn_onnx_open_memory(const void *data, size_t bytes, const char *name, sn_diags *diags) {
    sn_onnx_model *model = sn_alloc(sizeof *model);
    model->info.path = sn_arena_strdup(&model->arena, name);
    model->file = (sn_tensor_file){data, bytes, NULL};
    model->folder = -1;
    return open_model(model, diags);
}

void sn_onnx_close(sn_onnx_model *model) {
    if (!model) return;
    for (size_t i = 0; i < model->external.count; i++) {
        sn_tensor_file *file = model->external.entries[i].value;
        sn_external_unmap(file);
    }
    if (model->folder >= 0) close(model->folder);
    sn_file_unmap(&model->mapped);
    sn_map_free(&model->external);
    sn_map_free(&model->weights);
    sn_map_free(&model->marks);
    sn_map_free(&model->ties);
    sn_map_free(&model->merges);
    sn_arena_free(&model->arena);
    sn_free(model);
}

const sn_onnx_info *sn_onnx_info_of(const sn_onnx_model *model) {
    return &model->info;
}

bool sn_model_tensor(sn_onnx_model *model, const Onnx__TensorProto *proto, sn_type type, const char *subject,
                     sn_arena *arena, sn_diags *diags, sn_source *out) {
    if (sn_tensor_proto_is_external(proto)) return sn_external_data(model, proto, type, subject, diags, out);
    const char *problem = sn_tensor_proto_data(proto, type, &model->file, arena, out);
    if (problem) sn_error(diags, "E0104", subject, not_a_model, "the tensor '%s': %s", subject, problem);
    return !problem;
}

bool sn_onnx_load_tensor(const char *path, sn_arena *arena, sn_type *type, void **data, sn_diags *diags) {
    sn_mapped_file mapped = {0};
    sn_status status = sn_file_map(path, &mapped);
    if (status) {
        sn_error(diags, "E0100", path, "check the path and its permissions", "%s", sn_status_message(status));
        sn_status_free(status);
        return false;
    }
    sn_tensor_file file = {mapped.data, mapped.bytes, path};
    const char *problem = NULL;
    Onnx__TensorProto *proto = (Onnx__TensorProto *)unpack(arena, &onnx__tensor_proto__descriptor, mapped.data,
                                                           mapped.bytes, SN_WIRE_TENSOR, path, diags);
    if (proto) {
        sn_source source;
        problem = sn_tensor_proto_type(proto, arena, type);
        if (!problem && sn_tensor_proto_is_external(proto)) problem = "external data";
        if (!problem) problem = sn_tensor_proto_data(proto, *type, &file, arena, &source);
        if (!problem) {
            size_t bytes = (size_t)sn_type_bytes(*type);
            *data = sn_arena_alloc(arena, bytes ? bytes : 1);
            if (bytes) memcpy(*data, source.data, bytes);
        } else {
            sn_error(diags, "E0104", path, "save the tensor again, as onnx.numpy_helper writes it", "the tensor: %s",
                     problem);
        }
    }
    sn_file_unmap(&mapped);
    return proto && !problem;
}
