#include "frontend/import.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

const char *sn_node_name(const sn_node *n) {
    return n->name;
}
int64_t sn_node_opset(const sn_node *n) {
    return n->opset;
}
sn_op_kind sn_node_kind(const sn_node *n) {
    return n->op->kind;
}
sn_builder *sn_node_builder(sn_node *n) {
    return &n->builder;
}
sn_arena *sn_node_arena(sn_node *n) {
    return &n->import->arena;
}
sn_onnx_mode sn_node_mode(const sn_node *n) {
    return n->import->mode;
}

static _Noreturn void leave(sn_node *n) {
    longjmp(n->escape, 1);
}

const char *sn_import_help(sn_import *import) {
    const sn_onnx_options *options = import->options;
    const char *checker = "the model is invalid; onnx.checker.check_model(path, full_check=True) says more";
    sn_str sizes = {0};
    for (int i = 0; i < options->n_bindings; i++)
        sn_str_printf(&sizes, "%s%s=%lld", i ? ", " : "", options->bindings[i].symbol,
                      (long long)options->bindings[i].size);
    const char *help = sn_arena_printf(&import->arena,
                                       "with %s, which --dim, --batch and the data chose, the model does "
                                       "not add up: choose other sizes, those that it was exported with, say",
                                       sn_str_text(&sizes));
    sn_str_free(&sizes);
    return options->n_bindings ? help : checker;
}

void sn_node_fail(sn_node *n, const char *help, const char *format, ...) {
    sn_str text = {0};
    va_list args;
    va_start(args, format);
    sn_str_vprintf(&text, format, args);
    va_end(args);
    if (!help) help = sn_import_help(n->import);
    sn_error(n->import->diags, "E0202", n->name, help, "%s: %s", n->proto->op_type, sn_str_text(&text));
    sn_str_free(&text);
    leave(n);
}

void sn_node_unsupported(sn_node *n, const char *format, ...) {
    sn_str text = {0};
    va_list args;
    va_start(args, format);
    sn_str_vprintf(&text, format, args);
    va_end(args);
    sn_unsupported item = {.node = n->name,
                           .type = n->proto->op_type,
                           .domain = n->op->domain,
                           .opset = n->opset,
                           .reason = sn_arena_strdup(&n->import->arena, sn_str_text(&text))};
    sn_str_free(&text);
    sn_vec_push(&n->import->unsupported, item);
    leave(n);
}

int sn_node_inputs(const sn_node *n) {
    return (int)n->proto->n_input;
}

bool sn_node_has(const sn_node *n, int input) {
    if (input >= (int)n->proto->n_input || !*n->proto->input[input]) return false;
    return sn_scope_find(n->import, n->scope, n->proto->input[input]) != &n->import->absent;
}

static sn_entry *entry_of(sn_node *n, int input) {
    if (!sn_node_has(n, input)) return NULL;
    return sn_scope_find(n->import, n->scope, n->proto->input[input]);
}

sn_value *sn_node_optional(sn_node *n, int input) {
    sn_entry *entry = entry_of(n, input);
    if (!entry) return NULL;
    if (entry->sequence) sn_node_fail(n, NULL, "input %d is a sequence where a tensor is expected", input);
    return entry->value;
}

sn_value *sn_node_in(sn_node *n, int input) {
    sn_value *value = sn_node_optional(n, input);
    if (!value) sn_node_fail(n, NULL, "input %d is missing", input);
    return value;
}

bool sn_node_is_sequence(sn_node *n, int input) {
    sn_entry *entry = entry_of(n, input);
    return entry && entry->sequence;
}

const sn_tensor_sequence *sn_node_sequence(sn_node *n, int input) {
    sn_entry *entry = entry_of(n, input);
    if (!entry || !entry->sequence) sn_node_fail(n, NULL, "input %d is not a sequence", input);
    return entry->sequence;
}

int sn_node_outputs(const sn_node *n) {
    return (int)n->proto->n_output;
}

bool sn_node_wants(const sn_node *n, int output) {
    return output < (int)n->proto->n_output && *n->proto->output[output];
}

void sn_node_out(sn_node *n, int output, sn_value *value) {
    if (!sn_node_wants(n, output)) return;
    const char *name = n->proto->output[output];
    if (!value->name) value->name = sn_arena_strdup(&n->import->module->arena, name);
    sn_scope_define(n->import, n->scope, name, value, NULL);
}

void sn_node_out_sequence(sn_node *n, int output, const sn_tensor_sequence *sequence) {
    if (sn_node_wants(n, output)) sn_scope_define(n->import, n->scope, n->proto->output[output], NULL, sequence);
}

const Onnx__AttributeProto *sn_node_attr(const sn_node *n, const char *name) {
    for (size_t i = 0; i < n->proto->n_attribute; i++) {
        const Onnx__AttributeProto *attr = n->proto->attribute[i];
        if (!attr->name || strcmp(attr->name, name) != 0) continue;
        if (attr->ref_attr_name && *attr->ref_attr_name) return sn_map_get(&n->scope->attributes, attr->ref_attr_name);
        return attr;
    }
    return NULL;
}

static void check_type(sn_node *n, const Onnx__AttributeProto *attr, int type, const char *expected) {
    if (attr->type && attr->type != type) sn_node_fail(n, NULL, "the attribute %s is not %s", attr->name, expected);
}

int64_t sn_node_int(sn_node *n, const char *name, int64_t otherwise) {
    const Onnx__AttributeProto *attr = sn_node_attr(n, name);
    if (!attr) return otherwise;
    check_type(n, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, "an integer");
    return attr->i;
}

int64_t sn_node_int_within(sn_node *n, const char *name, int64_t otherwise, int64_t low, int64_t high) {
    int64_t value = sn_node_int(n, name, otherwise);
    if (value < low || value > high)
        sn_node_fail(n, NULL, "the attribute %s is %lld, not in %lld to %lld", name, (long long)value, (long long)low,
                     (long long)high);
    return value;
}

sn_dtype sn_node_dtype(sn_node *n, const char *name, sn_dtype otherwise) {
    if (!sn_node_attr(n, name)) return otherwise;
    int64_t onnx = sn_node_int(n, name, 0);
    sn_dtype dtype = onnx >= 0 && onnx <= INT32_MAX ? sn_dtype_from_onnx((int)onnx) : SN_DTYPE_COUNT;
    if (dtype == SN_DTYPE_COUNT) sn_node_unsupported(n, "%s = ONNX element type %lld", name, (long long)onnx);
    return dtype;
}

double sn_node_float(sn_node *n, const char *name, double otherwise) {
    const Onnx__AttributeProto *attr = sn_node_attr(n, name);
    if (!attr) return otherwise;
    check_type(n, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, "a float");
    return (double)attr->f;
}

static const char *text_of(sn_node *n, ProtobufCBinaryData bytes) {
    char *text = sn_arena_alloc(&n->import->arena, bytes.len + 1);
    if (bytes.len) memcpy(text, bytes.data, bytes.len);
    return text;
}

const char *sn_node_string(sn_node *n, const char *name, const char *otherwise) {
    const Onnx__AttributeProto *attr = sn_node_attr(n, name);
    if (!attr) return otherwise;
    check_type(n, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, "a string");
    return text_of(n, attr->s);
}

bool sn_node_string_is(sn_node *n, const char *name, const char *otherwise, const char *expected) {
    return strcmp(sn_node_string(n, name, otherwise), expected) == 0;
}

const char *sn_node_list_string(sn_node *n, const char *name, int index) {
    const Onnx__AttributeProto *attr = sn_node_attr(n, name);
    if (!attr || index >= (int)attr->n_strings) return NULL;
    return text_of(n, attr->strings[index]);
}

const int64_t *sn_node_ints(sn_node *n, const char *name, int *count) {
    static const int64_t none[1];
    const Onnx__AttributeProto *attr = sn_node_attr(n, name);
    *count = 0;
    if (!attr) return NULL;
    check_type(n, attr, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, "a list of integers");
    *count = (int)attr->n_ints;
    return attr->n_ints ? attr->ints : none;
}

void sn_node_list(sn_node *n, const char *name, int count, int64_t otherwise, int64_t low, int64_t *out) {
    int given;
    const int64_t *list = sn_node_ints(n, name, &given);
    if (list && given && given != count)
        sn_node_fail(n, NULL, "the attribute %s has %d numbers where %d are expected", name, given, count);
    for (int i = 0; i < count; i++) {
        out[i] = list && given ? list[i] : otherwise;
        if (out[i] < low || out[i] > INT32_MAX)
            sn_node_fail(n, NULL, "the attribute %s has the number %lld, which is not in %lld to %d", name,
                         (long long)out[i], (long long)low, INT32_MAX);
    }
}

const sn_tensor *sn_node_known(sn_node *n, const sn_value *value) {
    size_t errors = n->import->diags->errors;
    const sn_tensor *tensor = sn_fold_known(n->import, value, true);
    if (n->import->diags->errors != errors) leave(n);
    return tensor;
}

const sn_tensor *sn_node_folded(sn_node *n, const sn_value *value) {
    size_t errors = n->import->diags->errors;
    const sn_tensor *tensor = sn_fold_known(n->import, value, false);
    if (n->import->diags->errors != errors) leave(n);
    return tensor;
}

static _Noreturn void fail_unknown(sn_node *n, int input) {
    sn_node_fail(n, "shapes must not depend on data; export the model with this value fixed",
                 "the value of its input '%s' must be known at compile time, but depends on data",
                 n->proto->input[input]);
}

const int64_t *sn_node_known_ints(sn_node *n, int input, int *count) {
    sn_value *value = sn_node_in(n, input);
    const sn_tensor *tensor = sn_node_known(n, value);
    if (!tensor) fail_unknown(n, input);
    int64_t size = sn_type_count(tensor->type);
    if (size > INT32_MAX) sn_node_fail(n, NULL, "input %d is too long", input);
    int64_t *ints = SN_NEW_N(&n->import->arena, int64_t, size + 1);
    for (int64_t i = 0; i < size; i++) ints[i] = sn_load_i64(tensor->type.dtype, tensor->data, i);
    *count = (int)size;
    return ints;
}

// NULL when there is no number.
static const sn_tensor *known_single(sn_node *n, int input) {
    sn_value *value = sn_node_optional(n, input);
    if (!value) return NULL;
    const sn_tensor *tensor = sn_node_known(n, value);
    if (!tensor) fail_unknown(n, input);
    return sn_type_count(tensor->type) < 1 ? NULL : tensor;
}

double sn_node_known_number(sn_node *n, int input, double otherwise) {
    const sn_tensor *tensor = known_single(n, input);
    return tensor ? sn_load_f64(tensor->type.dtype, tensor->data, 0) : otherwise;
}

int64_t sn_node_known_int(sn_node *n, int input, int64_t otherwise) {
    const sn_tensor *tensor = known_single(n, input);
    if (!tensor) return otherwise;
    if (!sn_dtype_is_float(tensor->type.dtype)) return sn_load_i64(tensor->type.dtype, tensor->data, 0);
    double number = sn_load_f64(tensor->type.dtype, tensor->data, 0);
    if (!(fabs(number) < 0x1p63) || number != trunc(number))
        sn_node_fail(n, NULL, "input %d is %g, where an integer is expected", input, number);
    return (int64_t)number;
}

const int64_t *sn_node_ints_or_input(sn_node *n, const char *name, int input, int *count) {
    const int64_t *list = sn_node_ints(n, name, count);
    if (list || !sn_node_has(n, input)) return list;
    return sn_node_known_ints(n, input, count);
}

sn_type sn_node_type(sn_node *n, sn_dtype dtype, int64_t rank, const int64_t *dims) {
    if (rank > SN_MAX_RANK)
        sn_node_unsupported(n, "a tensor of rank %lld, where %d is the most", (long long)rank, SN_MAX_RANK);
    if (!sn_shape_is_valid(rank, dims)) sn_node_fail(n, NULL, "a shape has a negative dim, or more than 2^48 elements");
    return sn_type_make(dtype, (int)rank, dims);
}

int64_t sn_node_times(sn_node *n, int64_t x, int64_t y) {
    int64_t product;
    if (x < 0 || y < 0 || __builtin_mul_overflow(x, y, &product) || product > SN_MAX_ELEMENTS)
        sn_node_fail(n, NULL, "a size would be %lld x %lld, which no tensor has", (long long)x, (long long)y);
    return product;
}

void *sn_node_table(sn_node *n, sn_type type) {
    int64_t bytes = sn_type_bytes(sn_node_type(n, type.dtype, type.rank, type.dim));
    if (bytes > SN_LARGEST_TABLE) sn_node_unsupported(n, "a table of %lld bytes", (long long)bytes);
    return sn_arena_alloc(&n->import->arena, (size_t)bytes + 1);
}

sn_value *sn_node_constant(sn_node *n, sn_type type, const void *data) {
    sn_module *module = n->import->module;
    size_t bytes = (size_t)sn_type_bytes(type);
    void *copy = sn_arena_alloc(&module->arena, bytes ? bytes : 1);
    if (bytes) memcpy(copy, data, bytes);
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = copy};
    sn_global *global = sn_module_add_global(module, n->name, type, SN_ROLE_CONSTANT, source);
    global->why = "a constant of the graph";
    return global->value;
}

sn_value *sn_node_constant_ints(sn_node *n, int rank, const int64_t *dims, const int64_t *data) {
    return sn_node_constant(n, sn_node_type(n, SN_I64, rank, dims), data);
}

int sn_node_axis(sn_node *n, int64_t axis, int rank) {
    if (axis < -rank || axis >= rank)
        sn_node_fail(n, NULL, "axis %lld is out of range for rank %d", (long long)axis, rank);
    return (int)(axis < 0 ? axis + rank : axis);
}

const Onnx__GraphProto *sn_node_graph(sn_node *n, const char *name) {
    const Onnx__AttributeProto *attr = sn_node_attr(n, name);
    if (!attr || !attr->g) sn_node_fail(n, NULL, "the subgraph %s is missing", name);
    return attr->g;
}

void sn_node_inline(sn_node *n, const Onnx__GraphProto *graph, int n_inputs, sn_value *const *inputs,
                    sn_value **outputs) {
    sn_import *import = n->import;
    sn_scope *scope = sn_scope_new(import, n->scope);
    if (scope->depth > 64) sn_node_fail(n, NULL, "subgraphs are nested more than 64 deep");
    if (n_inputs > (int)graph->n_input) sn_node_fail(n, NULL, "a subgraph takes fewer inputs than it is given");
    scope->prefix = sn_arena_printf(&import->arena, "%s/", n->name);
    for (int i = 0; i < n_inputs; i++)
        if (graph->input[i]->name) sn_scope_define(import, scope, graph->input[i]->name, inputs[i], NULL);
    sn_import_initializers(import, scope, graph);
    sn_import_nodes(import, scope, graph->n_node, graph->node);
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *name = graph->output[i]->name ? graph->output[i]->name : "";
        sn_entry *entry = sn_scope_find(import, scope, name);
        if (!entry) sn_node_fail(n, NULL, "nothing defines the output '%s' of a subgraph", name);
        if (entry->sequence) sn_node_unsupported(n, "a subgraph whose output is a sequence");
        if (!entry->value) leave(n); // already diagnosed
        outputs[i] = entry->value;
    }
}

void sn_node_random(sn_node *n, sn_value **seed, sn_value **step, int64_t *id) {
    sn_import *import = n->import;
    if (!import->seed) import->seed = sn_func_add_arg(import->func, "$seed", sn_type_scalar(SN_I64));
    if (!import->step) import->step = sn_func_add_arg(import->func, "$step", sn_type_scalar(SN_I64));
    *seed = import->seed;
    *step = import->step;
    *id = import->n_random++;
}
