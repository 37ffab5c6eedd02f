// Known values. Whatever follows from constants alone is evaluated while the graph is built, so that shape arithmetic
// never reaches the IR. What is left of it in the end becomes constants, each stored once along the dims in which it
// does not change.
#include "frontend/import.h"

#include <math.h>
#include <string.h>

enum {
    LARGEST_RESULT = 64 << 20, // bytes that one evaluation may produce
    MOST_WORK = 1 << 28,       // multiplications of one product: the interpreter is exact, and slow
    DEEPEST_DEMAND = 256,      // ops that the value of one shape may depend on, in depth
};

static const sn_tensor *find(sn_import *import, const sn_value *value) {
    return value->id ? &import->known.data[value->id].tensor : NULL;
}

static void remember(sn_import *import, sn_value *value, sn_tensor tensor) {
    if (!import->known.count) sn_vec_push(&import->known, (sn_known_value){0});
    value->id = (uint32_t)import->known.count;
    sn_vec_push(&import->known, (sn_known_value){.tensor = tensor});
}

static sn_tensor allocate(sn_import *import, sn_type type) {
    size_t bytes = (size_t)sn_type_bytes(type);
    return (sn_tensor){type, sn_arena_alloc(&import->arena, bytes ? bytes : 1)};
}

// Data in a file may lie at any byte; tensors are aligned.
static const sn_tensor *load_global(sn_import *import, sn_value *value) {
    const sn_source *source = &value->global->source;
    if (!source->data || sn_type_bytes(value->type) > LARGEST_RESULT) return NULL;
    bool aligned = (uintptr_t)source->data % sn_dtype_bytes(value->type.dtype) == 0;
    sn_tensor tensor = {value->type, (void *)(uintptr_t)source->data};
    if (!aligned) {
        tensor = allocate(import, value->type);
        memcpy(tensor.data, source->data, (size_t)sn_type_bytes(value->type));
    }
    remember(import, value, tensor);
    return find(import, value);
}

static const sn_tensor *load_argument(sn_import *import, sn_value *value) {
    const sn_onnx_options *options = import->options;
    if (!options->input_value || value == import->seed || value == import->step) return NULL;
    const void *data = options->input_value(options->user, value->name, value->type);
    if (!data) return NULL;
    sn_tensor tensor = allocate(import, value->type);
    memcpy(tensor.data, data, (size_t)sn_type_bytes(value->type));
    remember(import, value, tensor);
    return find(import, value);
}

// A product of m x k and k x n takes mkn = sqrt(mk kn mn) multiplications; with batch dims, or windows, fewer than
// that.
static bool is_long_product(const sn_op *op) {
    if (!sn_op_has(op->kind, SN_TRAIT_LIBRARY) || op->n_operands < 2) return false;
    double counts = (double)sn_type_count(op->results[0]->type);
    for (int i = 0; i < 2; i++) counts *= (double)sn_type_count(op->operands[i]->type);
    return sqrt(counts) > MOST_WORK;
}

static bool can_evaluate(const sn_op *op) {
    if (op->kind == SN_OP_RANDOM_UNIFORM || op->kind == SN_OP_ASSIGN || is_long_product(op)) return false;
    int64_t bytes = 0;
    for (int i = 0; i < op->n_results; i++) bytes += sn_type_bytes(op->results[i]->type);
    return op->n_results > 0 && bytes <= LARGEST_RESULT;
}

static bool evaluate(sn_import *import, sn_op *op) {
    enum { MOST = 8 };
    sn_tensor results[MOST];
    SN_CHECK(op->n_results <= MOST);
    sn_tensor *operands = SN_NEW_N(&import->arena, sn_tensor, op->n_operands + 1);
    for (int i = 0; i < op->n_operands; i++) operands[i] = *find(import, op->operands[i]);
    if (sn_op_has(op->kind, SN_TRAIT_VIEW)) { // the same bytes
        remember(import, op->results[0], (sn_tensor){op->results[0]->type, operands[0].data});
        return true;
    }
    for (int i = 0; i < op->n_results; i++) results[i] = allocate(import, op->results[i]->type);
    const char *problem = sn_evaluate(op, operands, results);
    if (problem) {
        sn_error(import->diags, "E0202", op->origin ? op->origin->name : NULL, sn_import_help(import),
                 "%s of constants: %s", sn_op_name(op->kind), problem);
        return false;
    }
    for (int i = 0; i < op->n_results; i++) remember(import, op->results[i], results[i]);
    return true;
}

static const sn_tensor *demand(sn_import *import, sn_value *value, int depth) {
    if (value->id) return find(import, value);
    switch (value->kind) {
    case SN_VALUE_GLOBAL:
        return load_global(import, value);
    case SN_VALUE_ARG:
        return load_argument(import, value);
    case SN_VALUE_RESULT:
        break;
    }
    if (depth > DEEPEST_DEMAND || !can_evaluate(value->def)) return NULL;
    for (int i = 0; i < value->def->n_operands; i++)
        if (!demand(import, value->def->operands[i], depth + 1)) return NULL;
    return evaluate(import, value->def) ? find(import, value) : NULL;
}

// Whether a value is a constant whoever asks: parameters are known too, but they change.
static bool is_constant(const sn_value *value) {
    if (value->kind == SN_VALUE_GLOBAL) return value->global->role == SN_ROLE_CONSTANT;
    if (value->kind == SN_VALUE_ARG) return value->id != 0;
    return value->id != 0 || value->def->kind == SN_OP_CONSTANT || value->def->kind == SN_OP_IOTA;
}

const sn_tensor *sn_fold_known(sn_import *import, const sn_value *value, bool wanted) {
    if (!wanted && !is_constant(value)) return NULL;
    return demand(import, (sn_value *)(uintptr_t)value, 0);
}

void sn_fold_op(sn_import *import, sn_op *op) {
    if (!op->n_operands || !can_evaluate(op)) return;
    for (int i = 0; i < op->n_operands; i++)
        if (!is_constant(op->operands[i])) return;
    for (int i = 0; i < op->n_operands; i++)
        if (!demand(import, op->operands[i], 0)) return;
    evaluate(import, op);
}

// Whether all slices along `axis` are equal.
static bool repeats(const sn_tensor *tensor, int axis) {
    sn_type type = tensor->type;
    size_t inner = sn_dtype_bytes(type.dtype), outer = 1, size = (size_t)type.dim[axis];
    for (int i = axis + 1; i < type.rank; i++) inner *= (size_t)type.dim[i];
    for (int i = 0; i < axis; i++) outer *= (size_t)type.dim[i];
    const char *data = tensor->data;
    for (size_t o = 0; o < outer; o++, data += size * inner)
        for (size_t i = 1; i < size; i++)
            if (memcmp(data, data + i * inner, inner) != 0) return false;
    return true;
}

static sn_tensor first_slice(sn_import *import, const sn_tensor *tensor, int axis) {
    sn_type type = tensor->type;
    type.dim[axis] = 1;
    sn_tensor out = allocate(import, type);
    size_t inner = sn_dtype_bytes(type.dtype), outer = 1;
    for (int i = axis + 1; i < type.rank; i++) inner *= (size_t)type.dim[i];
    for (int i = 0; i < axis; i++) outer *= (size_t)type.dim[i];
    for (size_t o = 0; o < outer; o++)
        memcpy((char *)out.data + o * inner, (char *)tensor->data + o * inner * (size_t)tensor->type.dim[axis], inner);
    return out;
}

// start + step * i along `axis`, the only dim that is not 1. Positions and ranges are of this kind.
static bool is_progression(const sn_tensor *tensor, int *axis, int64_t *start, int64_t *step) {
    sn_type type = tensor->type;
    int64_t count = sn_type_count(type);
    if ((type.dtype != SN_I64 && type.dtype != SN_I32) || count < 3) return false;
    for (int i = 0; i < type.rank; i++)
        if (type.dim[i] == count) *axis = i;
    if (type.dim[*axis] != count) return false;
    uint64_t first = (uint64_t)sn_load_i64(type.dtype, tensor->data, 0); // modulo 2^64, as iota counts
    uint64_t apart = (uint64_t)sn_load_i64(type.dtype, tensor->data, 1) - first;
    for (int64_t i = 2; i < count; i++)
        if ((uint64_t)sn_load_i64(type.dtype, tensor->data, i) != first + (uint64_t)i * apart) return false;
    *start = (int64_t)first;
    *step = (int64_t)apart;
    return true;
}

// One number in every element.
static sn_value *build_number(sn_builder *b, sn_type type, const sn_tensor *tensor) {
    if (sn_dtype_is_float(type.dtype)) return sn_build_splat(b, type, sn_load_f64(type.dtype, tensor->data, 0));
    sn_attr attr = sn_attr_int("bits", sn_load_i64(type.dtype, tensor->data, 0));
    return sn_build(b, SN_OP_CONSTANT, 0, NULL, 1, &attr, &type)->results[0];
}

static sn_value *build_progression(sn_builder *b, sn_type type, int axis, int64_t start, int64_t step) {
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_int("start", start), sn_attr_int("step", step)};
    return sn_build(b, SN_OP_IOTA, 0, NULL, 3, attrs, &type)->results[0];
}

// Every layer computes the same mask and the same tables: equal constants are one.
static sn_value *store(sn_import *import, const sn_value *value, const sn_tensor *tensor) {
    size_t bytes = (size_t)sn_type_bytes(tensor->type);
    for (size_t i = 0; i < import->stored.count; i++) {
        const sn_global *known = import->stored.data[i];
        if (sn_type_equal(known->value->type, tensor->type) && memcmp(known->source.data, tensor->data, bytes) == 0)
            return known->value;
    }
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = sn_arena_copy(&import->module->arena, tensor->data, bytes)};
    const char *name = value->kind == SN_VALUE_GLOBAL ? value->global->name : value->name ? value->name : "constant";
    sn_global *global = sn_module_add_global(import->module, name, tensor->type, SN_ROLE_CONSTANT, source);
    global->why = "computed from constants";
    sn_vec_push(&import->stored, global);
    return global->value;
}

// What stands for a known value in the end, ahead of everything.
static sn_value *build_known(sn_import *import, sn_func *func, sn_value *value) {
    sn_tensor tensor = *find(import, value);
    sn_builder b = {.func = func, .before = func->first};
    if (value->kind == SN_VALUE_RESULT) b.origin = value->def->origin;
    if (value->kind == SN_VALUE_GLOBAL) b.origin = sn_origin_new(import->module, value->global->name, NULL);
    int64_t count = sn_type_count(tensor.type);
    for (int axis = 0; axis < tensor.type.rank && count > 1; axis++)
        if (tensor.type.dim[axis] > 1 && repeats(&tensor, axis)) tensor = first_slice(import, &tensor, axis);
    if (sn_type_count(tensor.type) == 1) return build_number(&b, value->type, &tensor);
    int axis = 0;
    int64_t start, step;
    if (is_progression(&tensor, &axis, &start, &step)) return build_progression(&b, value->type, axis, start, step);
    if (sn_type_equal(tensor.type, value->type) && value->kind == SN_VALUE_GLOBAL) return value;
    sn_value *stored = store(import, value, &tensor);
    if (sn_type_equal(tensor.type, value->type)) return stored;
    return sn_build_broadcast(&b, stored, value->type.rank, value->type.dim);
}

static bool is_generator(const sn_value *value) {
    return value->kind == SN_VALUE_RESULT && sn_op_has(value->def->kind, SN_TRAIT_GENERATOR);
}

static sn_value *settle_value(sn_import *import, sn_func *func, sn_value *value) {
    if (value->kind == SN_VALUE_ARG || is_generator(value) || !is_constant(value)) return value;
    if (value->kind == SN_VALUE_GLOBAL && !demand(import, value, 0)) return value;
    sn_known_value *known = &import->known.data[value->id];
    if (!known->settled || known->func != func) {
        sn_value *settled = build_known(import, func, value);
        known = &import->known.data[value->id];
        known->settled = settled;
        known->func = func;
    }
    return known->settled;
}

static bool is_folded(const sn_op *op) {
    return op->n_results && op->results[0]->id && op->n_operands;
}

static void remove_dead(sn_func *func) {
    for (sn_op *op = func->last, *prev; op; op = prev) {
        prev = op->prev;
        bool used = op->kind == SN_OP_ASSIGN;
        for (int i = 0; i < op->n_results; i++) used = used || sn_value_is_used(op->results[i]);
        if (!used) sn_op_erase(op);
    }
}

void sn_fold_settle(sn_import *import, sn_func *func) {
    SN_FOR_OPS(op, func) {
        if (is_folded(op)) continue;
        for (int i = 0; i < op->n_operands; i++) {
            sn_value *settled = settle_value(import, func, op->operands[i]);
            if (settled != op->operands[i]) sn_op_set_operand(op, i, settled);
        }
    }
    for (size_t i = 0; i < func->results.count; i++)
        func->results.data[i] = settle_value(import, func, func->results.data[i]);
    remove_dead(func);
}
