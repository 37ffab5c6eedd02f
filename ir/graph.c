#include "ir/graph.h"

#include <stdlib.h>
#include <string.h>

sn_module *sn_module_new(const char *name) {
    sn_module *module = sn_alloc(sizeof *module);
    module->name = sn_arena_strdup(&module->arena, name);
    return module;
}

bool sn_place_equal(const sn_place *a, const sn_place *b) {
    if (a->placed != b->placed || a->offset != b->offset || a->slots != b->slots) return false;
    if (!a->table || !b->table) return a->table == b->table;
    return a->table->n == b->table->n &&
           memcmp(a->table->of, b->table->of, sizeof *a->table->of * (size_t)a->table->n) == 0;
}

static void free_uses(sn_value *value) {
    sn_vec_free(&value->uses);
}

static void free_func(sn_func *func) {
    for (size_t i = 0; i < func->args.count; i++) free_uses(func->args.data[i]);
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_results; i++) free_uses(op->results[i]);
    }
    sn_vec_free(&func->args);
    sn_vec_free(&func->results);
    sn_vec_free(&func->result_names);
}

void sn_module_free(sn_module *module) {
    if (!module) return;
    for (size_t i = 0; i < module->funcs.count; i++) free_func(module->funcs.data[i]);
    for (size_t i = 0; i < module->globals.count; i++) free_uses(module->globals.data[i]->value);
    sn_vec_free(&module->funcs);
    sn_vec_free(&module->globals);
    sn_map_free(&module->globals_by_name);
    sn_map_free(&module->last_suffixes);
    sn_map_free(&module->funcs_by_name);
    sn_arena_free(&module->arena);
    sn_free(module);
}

sn_func *sn_module_add_func(sn_module *module, const char *name) {
    SN_CHECK(!sn_module_func(module, name));
    sn_func *func = SN_NEW(&module->arena, sn_func);
    func->name = sn_arena_strdup(&module->arena, name);
    func->module = module;
    sn_vec_push(&module->funcs, func);
    sn_map_put(&module->funcs_by_name, func->name, func);
    return func;
}

sn_func *sn_module_func(const sn_module *module, const char *name) {
    return sn_map_get(&module->funcs_by_name, name);
}

void sn_module_remove_func(sn_module *module, sn_func *func) {
    while (func->results.count) func->results.count--;
    for (sn_op *op = func->last, *prev; op; op = prev) {
        prev = op->prev;
        sn_op_erase(op);
    }
    free_func(func);
    size_t kept = 0;
    for (size_t i = 0; i < module->funcs.count; i++)
        if (module->funcs.data[i] != func) module->funcs.data[kept++] = module->funcs.data[i];
    module->funcs.count = kept;
    sn_map_put(&module->funcs_by_name, func->name, NULL);
}

// The name, or the first of name.1, name.2, … that is free. The search goes on where the last one for the name ended:
// unrolled loops ask for thousands.
static const char *free_name(sn_module *module, const char *name) {
    const char *found = sn_arena_strdup(&module->arena, name);
    if (!sn_module_global(module, found)) return found;
    const char *key = found;
    uintptr_t i = (uintptr_t)sn_map_get(&module->last_suffixes, key);
    do found = sn_arena_printf(&module->arena, "%s.%zu", name, (size_t)++i);
    while (sn_module_global(module, found));
    sn_map_put(&module->last_suffixes, key, (void *)i);
    return found;
}

sn_global *sn_module_add_global(sn_module *module, const char *name, sn_type type, sn_role role, sn_source source) {
    sn_global *global = SN_NEW(&module->arena, sn_global);
    global->name = free_name(module, name);
    global->role = role;
    global->source = source;
    sn_value *value = SN_NEW(&module->arena, sn_value);
    value->kind = SN_VALUE_GLOBAL;
    value->type = type;
    value->name = global->name;
    value->global = global;
    global->value = value;
    sn_vec_push(&module->globals, global);
    sn_map_put(&module->globals_by_name, global->name, global);
    return global;
}

sn_global *sn_module_global(const sn_module *module, const char *name) {
    return sn_map_get(&module->globals_by_name, name);
}

void sn_module_remove_global(sn_module *module, sn_global *global) {
    SN_CHECK(global->value->uses.count == 0);
    size_t kept = 0;
    for (size_t i = 0; i < module->globals.count; i++)
        if (module->globals.data[i] != global) module->globals.data[kept++] = module->globals.data[i];
    module->globals.count = kept;
    sn_map_put(&module->globals_by_name, global->name, NULL);
    sn_map_free(&module->last_suffixes); // a name is free again
    free_uses(global->value);
}

sn_value *sn_func_add_arg(sn_func *func, const char *name, sn_type type) {
    sn_value *value = SN_NEW(&func->module->arena, sn_value);
    value->kind = SN_VALUE_ARG;
    value->type = type;
    value->name = sn_arena_strdup(&func->module->arena, name);
    value->func = func;
    value->index = (int)func->args.count;
    sn_vec_push(&func->args, value);
    return value;
}

void sn_func_add_result(sn_func *func, sn_value *value, const char *name) {
    sn_vec_push(&func->results, value);
    sn_vec_push(&func->result_names, sn_arena_strdup(&func->module->arena, name ? name : ""));
}

static void link_before(sn_func *func, sn_op *op, sn_op *before) {
    op->next = before;
    op->prev = before ? before->prev : func->last;
    if (op->prev)
        op->prev->next = op;
    else
        func->first = op;
    if (before)
        before->prev = op;
    else
        func->last = op;
    op->func = func;
    func->n_ops++;
}

static void unlink_op(sn_op *op) {
    sn_func *func = op->func;
    if (op->prev)
        op->prev->next = op->next;
    else
        func->first = op->next;
    if (op->next)
        op->next->prev = op->prev;
    else
        func->last = op->prev;
    op->prev = op->next = NULL;
    op->func = NULL;
    func->n_ops--;
}

static void drop_use(sn_value *value, const sn_op *op, int index) {
    for (size_t i = 0; i < value->uses.count; i++) {
        if (value->uses.data[i].op != op || value->uses.data[i].index != index) continue;
        // keep the order: passes walk uses, and their output must not depend on history
        memmove(&value->uses.data[i], &value->uses.data[i + 1], (value->uses.count - i - 1) * sizeof *value->uses.data);
        value->uses.count--;
        return;
    }
    SN_BUG("operand %d of a %s op is missing from its value's uses", index, sn_op_name(op->kind));
}

static sn_attr copy_attr(sn_arena *arena, sn_attr attr) {
    attr.name = sn_arena_strdup(arena, attr.name);
    if (attr.type == SN_ATTR_STRING) attr.s = sn_arena_strdup(arena, attr.s);
    if (attr.type == SN_ATTR_INTS)
        attr.ints.data = sn_arena_copy(arena, attr.ints.data, sizeof *attr.ints.data * (size_t)attr.ints.count);
    return attr;
}

sn_op *sn_op_new(sn_func *func, sn_op *before, sn_op_kind kind, int n_operands, sn_value *const *operands, int n_attrs,
                 const sn_attr *attrs, int n_results, const sn_type *result_types) {
    sn_arena *arena = &func->module->arena;
    sn_op *op = SN_NEW(arena, sn_op);
    *op = (sn_op){.kind = kind, .n_operands = n_operands, .n_results = n_results};
    op->operands = SN_NEW_N(arena, sn_value *, n_operands);
    for (int i = 0; i < n_operands; i++) {
        SN_CHECK(operands[i]);
        op->operands[i] = operands[i];
        sn_vec_push(&operands[i]->uses, (sn_use){op, i});
    }
    op->results = SN_NEW_N(arena, sn_value *, n_results);
    for (int i = 0; i < n_results; i++) {
        sn_value *value = SN_NEW(arena, sn_value);
        *value = (sn_value){.kind = SN_VALUE_RESULT, .type = result_types[i], .def = op, .index = i};
        op->results[i] = value;
    }
    link_before(func, op, before);
    for (int i = 0; i < n_attrs; i++) sn_op_set_attr(op, attrs[i]);
    return op;
}

void sn_op_erase(sn_op *op) {
    for (int i = 0; i < op->n_results; i++) {
        SN_CHECK(op->results[i]->uses.count == 0);
        free_uses(op->results[i]);
    }
    for (int i = 0; i < op->n_operands; i++) drop_use(op->operands[i], op, i);
    unlink_op(op);
}

void sn_op_move_before(sn_op *op, sn_op *before) {
    if (op == before) return;
    sn_func *func = op->func;
    unlink_op(op);
    link_before(func, op, before);
}

void sn_op_set_operand(sn_op *op, int index, sn_value *value) {
    SN_CHECK(index < op->n_operands && value);
    if (op->operands[index] == value) return;
    drop_use(op->operands[index], op, index);
    op->operands[index] = value;
    sn_vec_push(&value->uses, (sn_use){op, index});
}

static sn_func *func_of(const sn_value *value) {
    return value->kind == SN_VALUE_RESULT ? value->def->func : value->kind == SN_VALUE_ARG ? value->func : NULL;
}

void sn_value_replace(sn_value *old, sn_value *with) {
    if (old == with) return;
    for (size_t i = 0; i < old->uses.count; i++) {
        sn_use use = old->uses.data[i];
        use.op->operands[use.index] = with;
        sn_vec_push(&with->uses, use);
    }
    old->uses.count = 0;
    sn_func *func = func_of(old);
    if (!func) return; // a global as a function's result is replaced by whoever knows the function
    for (size_t i = 0; i < func->results.count; i++)
        if (func->results.data[i] == old) func->results.data[i] = with;
}

bool sn_value_is_used(const sn_value *value) {
    if (value->uses.count) return true;
    const sn_func *func = func_of(value);
    for (size_t i = 0; func && i < func->results.count; i++)
        if (func->results.data[i] == value) return true;
    return false;
}

const sn_value *sn_value_viewed(const sn_value *value) {
    // a module that the verifier has yet to refuse may have a view of nothing
    while (value->kind == SN_VALUE_RESULT && value->def->n_operands && sn_op_has(value->def->kind, SN_TRAIT_VIEW))
        value = value->def->operands[0];
    return value;
}

bool sn_value_is_constant(const sn_value *value) {
    return value->kind == SN_VALUE_RESULT && value->def->kind == SN_OP_CONSTANT;
}

bool sn_value_number(const sn_value *value, double *out) {
    if (!sn_value_is_constant(value)) return false;
    bool is_float = sn_dtype_is_float(value->type.dtype);
    *out = is_float ? sn_op_float(value->def, "value") : (double)sn_op_int(value->def, "bits");
    return true;
}

const sn_attr *sn_op_attr(const sn_op *op, const char *name) {
    for (int i = 0; i < op->n_attrs; i++)
        if (strcmp(op->attrs[i].name, name) == 0) return &op->attrs[i];
    return NULL;
}

static sn_attr_spec spec_of(const sn_op *op, const char *name, sn_attr_type type) {
    sn_attr_spec spec;
    if (!sn_op_find_attr(op->kind, name, &spec)) SN_BUG("%s has no attribute %s", sn_op_name(op->kind), name);
    if (spec.type != type) SN_BUG("attribute %s of %s has another type", name, sn_op_name(op->kind));
    if (spec.required && !sn_op_attr(op, name)) SN_BUG("a %s op lacks its %s", sn_op_name(op->kind), name);
    return spec;
}

int64_t sn_op_int(const sn_op *op, const char *name) {
    const sn_attr *attr = sn_op_attr(op, name);
    if (attr && attr->type == SN_ATTR_INT) return attr->i;
    return strtoll(spec_of(op, name, SN_ATTR_INT).default_text, NULL, 10);
}

double sn_op_float(const sn_op *op, const char *name) {
    const sn_attr *attr = sn_op_attr(op, name);
    if (attr && attr->type == SN_ATTR_FLOAT) return attr->f;
    return strtod(spec_of(op, name, SN_ATTR_FLOAT).default_text, NULL);
}

const char *sn_op_string(const sn_op *op, const char *name) {
    const sn_attr *attr = sn_op_attr(op, name);
    if (attr && attr->type == SN_ATTR_STRING) return attr->s;
    sn_attr_spec spec = spec_of(op, name, SN_ATTR_STRING);
    return sn_arena_strdup(&op->func->module->arena, spec.default_text);
}

const int64_t *sn_op_ints(const sn_op *op, const char *name, int *count) {
    static const int64_t none[1];
    const sn_attr *attr = sn_op_attr(op, name);
    if (!attr) (void)spec_of(op, name, SN_ATTR_INTS); // a default is the empty list
    if (count) *count = attr ? attr->ints.count : 0;
    return attr ? attr->ints.data : none;
}

sn_func *sn_op_func(const sn_op *op, const char *name) {
    const sn_attr *attr = sn_op_attr(op, name);
    if (!attr) (void)spec_of(op, name, SN_ATTR_FUNC);
    return attr ? attr->func : NULL;
}

void sn_op_set_attr(sn_op *op, sn_attr attr) {
    sn_arena *arena = &op->func->module->arena;
    sn_attr copy = copy_attr(arena, attr);
    for (int i = 0; i < op->n_attrs; i++) {
        if (strcmp(op->attrs[i].name, attr.name) != 0) continue;
        op->attrs[i] = copy;
        return;
    }
    sn_attr *attrs = SN_NEW_N(arena, sn_attr, op->n_attrs + 1);
    if (op->n_attrs) memcpy(attrs, op->attrs, sizeof *attrs * (size_t)op->n_attrs);
    attrs[op->n_attrs++] = copy;
    op->attrs = attrs;
}

sn_attr sn_attr_int(const char *name, int64_t value) {
    return (sn_attr){.name = name, .type = SN_ATTR_INT, .i = value};
}

sn_attr sn_attr_float(const char *name, double value) {
    return (sn_attr){.name = name, .type = SN_ATTR_FLOAT, .f = value};
}

sn_attr sn_attr_string(const char *name, const char *value) {
    return (sn_attr){.name = name, .type = SN_ATTR_STRING, .s = value};
}

sn_attr sn_attr_ints(const char *name, const int64_t *data, int count) {
    return (sn_attr){.name = name, .type = SN_ATTR_INTS, .ints = {data, count}};
}

sn_attr sn_attr_func(const char *name, sn_func *func) {
    return (sn_attr){.name = name, .type = SN_ATTR_FUNC, .func = func};
}

const sn_origin *sn_origin_new(sn_module *module, const char *name, const sn_origin *parent) {
    sn_origin *origin = SN_NEW(&module->arena, sn_origin);
    origin->name = sn_arena_strdup(&module->arena, name);
    origin->parent = parent;
    return origin;
}

void sn_origin_print(sn_str *out, const sn_origin *origin) {
    if (!origin) return;
    if (origin->parent) {
        sn_origin_print(out, origin->parent);
        sn_str_printf(out, " <- %s", origin->name);
    } else {
        sn_str_quote(out, origin->name);
    }
}

const char *sn_origin_node(const sn_origin *origin) {
    while (origin && origin->parent) origin = origin->parent;
    return origin ? origin->name : NULL;
}
