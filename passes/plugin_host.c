#include "passes/plugin_host.h"

#include "ir/build.h"

#include <stdlib.h>
#include <string.h>

// Handles are our own pointers under names that a plug-in cannot look into.
sennit_module *sn_plugin_module(sn_module *module) {
    return (sennit_module *)module;
}

static sn_op *op_of(const sennit_op *op) {
    return (sn_op *)op;
}

static sn_value *value_of(const sennit_value *value) {
    return (sn_value *)value;
}

static sn_pass_context *context_of(const sennit_host *host) {
    return host->reserved;
}

static void complain(const sennit_host *host, const sn_op *op, const char *what, const char *why) {
    sn_pass_context *context = context_of(host);
    const char *node = op ? sn_origin_node(op->origin) : NULL;
    sn_error(context->diags, "E0825", node, "report it to the plug-in's author, or leave the pass out of --passes",
             "plug-in pass %s: %s: %s", context->pass->name, what, why);
}

static uint32_t form(const sennit_module *module) {
    return 1u << ((const sn_module *)module)->form;
}

static size_t func_count(const sennit_module *module) {
    return ((const sn_module *)module)->funcs.count;
}

static sennit_func *func(sennit_module *module, size_t index) {
    return (sennit_func *)((sn_module *)module)->funcs.data[index];
}

static const char *func_name(const sennit_func *func) {
    return ((const sn_func *)func)->name;
}

static sennit_op *first_op(sennit_func *func) {
    return (sennit_op *)((sn_func *)func)->first;
}

static sennit_op *next_op(sennit_op *op) {
    return (sennit_op *)op_of(op)->next;
}

static const char *op_name(const sennit_op *op) {
    return sn_op_name(op_of(op)->kind);
}

static const char *op_origin(const sennit_op *op) {
    const char *node = sn_origin_node(op_of(op)->origin);
    return node ? node : "";
}

static size_t operand_count(const sennit_op *op) {
    return (size_t)op_of(op)->n_operands;
}

static sennit_value *operand(sennit_op *op, size_t index) {
    return (sennit_value *)op_of(op)->operands[index];
}

static size_t result_count(const sennit_op *op) {
    return (size_t)op_of(op)->n_results;
}

static sennit_value *result(sennit_op *op, size_t index) {
    return (sennit_value *)op_of(op)->results[index];
}

static sennit_type value_type(const sennit_value *value) {
    sn_type type = value_of(value)->type;
    sennit_type out = {.dtype = sn_dtype_name(type.dtype), .rank = type.rank};
    memcpy(out.dim, type.dim, sizeof out.dim);
    return out;
}
_Static_assert(SENNIT_MAX_RANK == SN_MAX_RANK, "types are copied as a whole");

static const char *value_name(const sennit_value *value) {
    const char *name = value_of(value)->name;
    return name ? name : "";
}

static sennit_op *value_op(sennit_value *value) {
    return value_of(value)->kind == SN_VALUE_RESULT ? (sennit_op *)value_of(value)->def : NULL;
}

static size_t use_count(const sennit_value *handle) {
    const sn_value *value = value_of(handle);
    size_t count = value->uses.count;
    const sn_func *owner = value->kind == SN_VALUE_RESULT ? value->def->func
                           : value->kind == SN_VALUE_ARG  ? value->func
                                                          : NULL;
    for (size_t i = 0; owner && i < owner->results.count; i++) count += owner->results.data[i] == value;
    return count;
}

static int value_number(const sennit_value *value, double *number) {
    return sn_value_number(value_of(value), number);
}

static int get_attr(const sennit_op *handle, const char *name, sennit_attr *out) {
    const sn_op *op = op_of(handle);
    sn_attr_spec spec;
    if (!sn_op_find_attr(op->kind, name, &spec) || spec.type == SN_ATTR_FUNC) return 0;
    if (spec.required && !sn_op_attr(op, name)) return 0;
    *out = (sennit_attr){.name = name};
    if (spec.type == SN_ATTR_INT) {
        out->kind = SENNIT_ATTR_INT;
        out->i = sn_op_int(op, name);
    } else if (spec.type == SN_ATTR_FLOAT) {
        out->kind = SENNIT_ATTR_FLOAT;
        out->f = sn_op_float(op, name);
    } else if (spec.type == SN_ATTR_STRING) {
        out->kind = SENNIT_ATTR_STRING;
        out->s = sn_op_string(op, name);
    } else {
        int count;
        out->kind = SENNIT_ATTR_INTS;
        out->ints = sn_op_ints(op, name, &count);
        out->count = (size_t)count;
    }
    return 1;
}

static sn_attr attr_of(const sennit_attr *attr) {
    switch (attr->kind) {
    case SENNIT_ATTR_INT:
        return sn_attr_int(attr->name, attr->i);
    case SENNIT_ATTR_FLOAT:
        return sn_attr_float(attr->name, attr->f);
    case SENNIT_ATTR_STRING:
        return sn_attr_string(attr->name, attr->s);
    case SENNIT_ATTR_INTS:
        break;
    }
    return sn_attr_ints(attr->name, attr->ints, (int)attr->count);
}

static bool type_of(const sennit_type *type, sn_type *out) {
    sn_dtype dtype = type->dtype ? sn_dtype_from_name(type->dtype) : SN_DTYPE_COUNT;
    if (dtype == SN_DTYPE_COUNT || type->rank < 0 || type->rank > SN_MAX_RANK) return false;
    for (int i = 0; i < type->rank; i++)
        if (type->dim[i] < 0) return false;
    *out = sn_type_make(dtype, type->rank, type->dim);
    return true;
}

static sennit_op *insert(const sennit_host *host, sennit_op *before, const char *name, size_t n_operands,
                         sennit_value *const *operands, size_t n_attrs, const sennit_attr *attrs,
                         const sennit_type *types) {
    enum { MOST = 64, MOST_RESULTS = 8 };
    sn_op *at = op_of(before);
    sn_op_kind kind = sn_op_from_name(name);
    if (kind == SN_OP_COUNT || sn_op_info_of(kind)->results < 0) {
        complain(host, at, name, "there is no such operator to insert");
        return NULL;
    }
    int n_results = sn_op_info_of(kind)->results;
    sn_attr copies[MOST];
    sn_type result_types[MOST_RESULTS] = {0};
    if (n_attrs > MOST || n_operands > MOST || n_results > MOST_RESULTS) {
        complain(host, at, name, "too many operands or attributes");
        return NULL;
    }
    for (size_t i = 0; i < n_attrs; i++) copies[i] = attr_of(&attrs[i]);
    bool legal = types || !sn_op_has(kind, SN_TRAIT_TYPED);
    for (int i = 0; types && legal && i < n_results; i++) legal = type_of(&types[i], &result_types[i]);
    if (!legal) {
        complain(host, at, name, "its result types must be stated, and be legal");
        return NULL;
    }
    sn_value **values = (sn_value **)operands;
    sn_module *module = at->func->module;
    const char *wrong = sn_infer(module, kind, (int)n_operands, values, (int)n_attrs, copies, n_results, result_types);
    if (wrong) {
        complain(host, at, name, wrong);
        return NULL;
    }
    sn_op *op = sn_op_new(at->func, at, kind, (int)n_operands, values, (int)n_attrs, copies, n_results, result_types);
    op->origin = sn_pass_origin(module, context_of(host), at);
    op->phase = at->phase;
    op->stream = at->stream;
    return (sennit_op *)op;
}

static int replace(const sennit_host *host, sennit_value *old, sennit_value *with) {
    sn_value *a = value_of(old), *b = value_of(with);
    if (!sn_type_equal(a->type, b->type) || a->kind == SN_VALUE_GLOBAL) {
        complain(host, a->kind == SN_VALUE_RESULT ? a->def : NULL, "replace",
                 "the value is a global, or the new one has another type");
        return 0;
    }
    if (!sn_layout_is_replicated(a->layout) && b->kind == SN_VALUE_RESULT && sn_layout_is_replicated(b->layout))
        b->layout = a->layout;
    sn_value_replace(a, b);
    return 1;
}

static int erase(const sennit_host *host, sennit_op *handle) {
    sn_op *op = op_of(handle);
    for (int i = 0; i < op->n_results; i++) {
        if (!sn_value_is_used(op->results[i])) continue;
        complain(host, op, "erase", "the op's results are still read");
        return 0;
    }
    sn_op_erase(op);
    return 1;
}

static void report(const sennit_host *host, sennit_severity severity, const sennit_op *op, const char *text) {
    static const sn_severity severities[] = {
        [SENNIT_REMARK] = SN_REMARK, [SENNIT_WARNING] = SN_WARNING, [SENNIT_ERROR] = SN_ERROR};
    static const char *const codes[] = {
        [SENNIT_REMARK] = "R0804", [SENNIT_WARNING] = "W0804", [SENNIT_ERROR] = "E0826"};
    sn_pass_context *context = context_of(host);
    unsigned which = (unsigned)severity <= SENNIT_ERROR ? severity : SENNIT_ERROR;
    const char *node = op ? sn_origin_node(op_of(op)->origin) : NULL;
    sn_diags_add(context->diags, severities[which], codes[which], node, NULL, "%s: %s", context->pass->name, text);
}

sennit_host sn_plugin_host(sn_pass_context *context) {
    return (sennit_host){.size = sizeof(sennit_host),
                         .abi = SENNIT_PLUGIN_ABI,
                         .form = form,
                         .func_count = func_count,
                         .func = func,
                         .func_name = func_name,
                         .first_op = first_op,
                         .next_op = next_op,
                         .op_name = op_name,
                         .op_origin = op_origin,
                         .operand_count = operand_count,
                         .operand = operand,
                         .result_count = result_count,
                         .result = result,
                         .value_type = value_type,
                         .value_name = value_name,
                         .value_op = value_op,
                         .use_count = use_count,
                         .value_number = value_number,
                         .get_attr = get_attr,
                         .insert = insert,
                         .replace = replace,
                         .erase = erase,
                         .report = report,
                         .reserved = context};
}
