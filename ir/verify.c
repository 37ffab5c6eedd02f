#include "ir/verify.h"

#include "ir/build.h"
#include "ir/print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROBLEMS = 20 };

typedef struct verifier {
    sn_module *module;
    sn_str *out;
    int problems;
    const sn_func *func; // where we are; NULL outside of functions
    sn_op *op;
    bool sound; // links, operands and attributes hold: an op may be printed and its types inferred
} verifier;

static void problem(verifier *v, const char *format, ...) SN_PRINTF(2, 3);
static void problem(verifier *v, const char *format, ...) {
    if (v->problems++ >= MAX_PROBLEMS) return;
    if (v->func) sn_str_printf(v->out, "@%s: ", v->func->name);
    if (v->op) sn_str_printf(v->out, "%s: ", sn_op_name(v->op->kind));
    va_list args;
    va_start(args, format);
    sn_str_vprintf(v->out, format, args);
    va_end(args);
    if (v->op && v->sound) {
        sn_str_puts(v->out, "\n    ");
        sn_print_op(v->out, v->op);
    }
    sn_str_putc(v->out, '\n');
}

#define EXPECT(v, condition, ...)                                                                                      \
    do {                                                                                                               \
        if (!(condition)) problem(v, __VA_ARGS__);                                                                     \
    } while (0)

static bool type_is_legal(sn_type type) {
    const int64_t most = INT64_MAX / 64;
    if ((unsigned)type.dtype >= SN_DTYPE_COUNT || type.rank < 0 || type.rank > SN_MAX_RANK) return false;
    int64_t product = 1;
    for (int i = 0; i < type.rank; i++) {
        if (type.dim[i] < 0 || (type.dim[i] && product > most / type.dim[i])) return false;
        if (type.dim[i]) product *= type.dim[i];
    }
    return true;
}

static void check_layout(verifier *v, const sn_value *value) {
    const sn_mesh *mesh = &v->module->mesh;
    unsigned used = value->layout.partial, all = (1u << mesh->n_axes) - 1;
    bool leaves = value->kind != SN_VALUE_RESULT; // what comes from outside keeps its layout in sched form
    if (v->module->form == SN_FORM_SCHED && !leaves && !sn_layout_is_replicated(value->layout))
        problem(v, "a value has a layout in %s form", sn_form_name(v->module->form));
    if (v->module->form == SN_FORM_GRAPH && value->layout.partial) // layouts there are what the plan states
        problem(v, "a value is a partial sum in %s form", sn_form_name(v->module->form));
    for (int i = 0; i < SN_MAX_RANK; i++) {
        sn_axes axes = value->layout.dim[i];
        if (!axes) continue;
        EXPECT(v, !(used & axes), "a layout uses a mesh axis twice");
        used |= axes;
        if (axes & ~all) continue; // reported below
        if (i >= value->type.rank)
            problem(v, "a layout cuts dim %d of a value of rank %d", i, value->type.rank);
        else if (v->module->form == SN_FORM_DIST)
            EXPECT(v, sn_layout_divides(mesh, value->layout, i, value->type.dim[i]),
                   "a layout cuts dim %d (%" PRId64 ") unevenly", i, value->type.dim[i]);
    }
    EXPECT(v, !(used & ~all), "a layout uses an axis that the mesh lacks");
}

// A view with strides, or the same elements under another shape.
static bool is_strided_view(const sn_value *value) {
    value = sn_value_viewed(value);
    return value->kind == SN_VALUE_RESULT && sn_op_has(value->def->kind, SN_TRAIT_MOVEMENT);
}

static void check_value(verifier *v, sn_value *value) {
    if (!type_is_legal(value->type)) {
        problem(v, "a value has no legal type");
        v->sound = false;
        return;
    }
    check_layout(v, value);
    if (!value->place.placed) return;
    int64_t end = value->place.offset + sn_type_bytes(value->type);
    EXPECT(v, v->module->form == SN_FORM_SCHED, "a value has a place in %s form", sn_form_name(v->module->form));
    // a strided view starts somewhere in its operand's bytes; how far it reaches its type does not say
    if (is_strided_view(value)) end = value->place.offset;
    EXPECT(v, value->place.offset >= 0 && end <= v->module->arena_bytes,
           "a value ends at byte %" PRId64 " of an arena of %" PRId64, end, v->module->arena_bytes);
}

static bool is_global_of(const sn_module *module, const sn_value *value) {
    return value->global && value->global->value == value &&
           sn_module_global(module, value->global->name) == value->global;
}

// Whether `value` can be read at an op of the function whose position is `at`; ops before it carry smaller marks.
static const char *unreadable(const verifier *v, const sn_value *value, uint32_t at) {
    switch (value->kind) {
    case SN_VALUE_GLOBAL:
        return is_global_of(v->module, value) ? NULL : "a global that is not in the module";
    case SN_VALUE_ARG:
        return value->func == v->func ? NULL : "an argument of another function";
    case SN_VALUE_RESULT:
        if (!value->def || value->def->func != v->func) return "a result of an erased op or of another function";
        if (value->index < 0 || value->index >= value->def->n_results || value->def->results[value->index] != value)
            return "a result that its op does not have";
        return value->def->mark < at ? NULL : "a value that is defined later";
    }
    return "no value";
}

static void check_operands(verifier *v, sn_op *op) {
    const sn_op_info *info = sn_op_info_of(op->kind);
    if (op->n_operands < info->min_operands || (info->max_operands >= 0 && op->n_operands > info->max_operands)) {
        problem(v, "takes %d to %d operands, not %d", info->min_operands, info->max_operands, op->n_operands);
        v->sound = false;
    }
    if (info->results >= 0 && op->n_results != info->results) {
        problem(v, "has %d results, not %d", info->results, op->n_results);
        v->sound = false;
    }
    for (int i = 0; i < op->n_operands; i++) {
        const char *why = op->operands[i] ? unreadable(v, op->operands[i], op->mark) : "no value";
        if (!why) continue;
        problem(v, "operand %d is %s", i, why);
        v->sound = false;
    }
}

static void check_attrs(verifier *v, const sn_op *op) {
    for (int i = 0; i < op->n_attrs; i++) {
        const sn_attr *attr = &op->attrs[i];
        sn_attr_spec spec;
        if (!sn_op_find_attr(op->kind, attr->name, &spec)) {
            problem(v, "there is no attribute %s", attr->name);
        } else if (spec.type != attr->type) {
            problem(v, "the attribute %s has another type", attr->name);
            v->sound = false;
        }
        if (attr->type == SN_ATTR_FUNC && (!attr->func || sn_module_func(v->module, attr->func->name) != attr->func)) {
            problem(v, "the attribute %s names a function that is not in the module", attr->name);
            v->sound = false;
        }
    }
    int count = sn_op_attr_count(op->kind);
    for (int i = 0; i < count; i++) {
        sn_attr_spec spec = sn_op_attr_spec(op->kind, i);
        if (!spec.required || sn_op_attr(op, spec.name)) continue;
        problem(v, "lacks the attribute %s", spec.name);
        v->sound = false;
    }
}

static void check_types(verifier *v, sn_op *op) {
    // in sched form a collective's types are local: its rule is the collective's own, not the operator's
    if (v->module->form == SN_FORM_SCHED && (sn_op_has(op->kind, SN_TRAIT_COLLECTIVE) || op->kind == SN_OP_SHARD))
        return;
    sn_type *types = sn_alloc(sizeof *types * (size_t)(op->n_results + 1));
    for (int i = 0; i < op->n_results; i++) types[i] = op->results[i]->type;
    const char *why =
        sn_infer(v->module, op->kind, op->n_operands, op->operands, op->n_attrs, op->attrs, op->n_results, types);
    if (why) problem(v, "%s", why);
    for (int i = 0; !why && i < op->n_results; i++) {
        if (sn_type_equal(types[i], op->results[i]->type)) continue;
        sn_str text = {0};
        sn_type_print(&text, types[i]);
        problem(v, "result %d should be %s", i, sn_str_text(&text));
        sn_str_free(&text);
    }
    sn_free(types);
}

static void check_axes(verifier *v, const sn_op *op) {
    sn_attr_spec spec;
    if (!sn_op_find_attr(op->kind, "axes", &spec) || spec.type != SN_ATTR_STRING) return;
    char *names = strdup(sn_op_string(op, "axes")), *rest = names;
    for (const char *name; (name = strsep(&rest, ","));)
        EXPECT(v, sn_mesh_axis(&v->module->mesh, name) >= 0, "the mesh has no axis '%s'", name);
    free(names);
}

static void check_kernel(verifier *v, const sn_op *op) {
    const sn_func *body = sn_op_func(op, "body");
    EXPECT(v, body->is_body, "@%s is no kernel body", body->name);
    if ((int)body->args.count != op->n_operands || (int)body->results.count != op->n_results) {
        problem(v, "@%s has %zu arguments and %zu results", body->name, body->args.count, body->results.count);
        return;
    }
    for (int i = 0; i < op->n_operands; i++)
        EXPECT(v, sn_type_equal(op->operands[i]->type, body->args.data[i]->type),
               "operand %d has another type than the argument of @%s", i, body->name);
    for (int i = 0; i < op->n_results; i++)
        EXPECT(v, sn_type_equal(op->results[i]->type, body->results.data[i]->type),
               "result %d has another type than that of @%s", i, body->name);
}

static void check_assign(verifier *v, const sn_op *op) {
    const sn_value *to = op->operands[0];
    if (to->kind != SN_VALUE_GLOBAL) {
        problem(v, "operand 0 is no global");
        return;
    }
    EXPECT(v, to->global->role != SN_ROLE_CONSTANT && to->global->role != SN_ROLE_FROZEN, "@%s may not change",
           to->name);
    EXPECT(v, sn_type_equal(to->type, op->operands[1]->type), "the value has another type than @%s", to->name);
    EXPECT(v, v->module->form != SN_FORM_DIST || sn_layout_equal(to->layout, op->operands[1]->layout),
           "the value has another layout than @%s", to->name);
}

static void check_form(verifier *v, const sn_op *op) {
    sn_form form = v->module->form;
    bool communicates = sn_op_has(op->kind, SN_TRAIT_COLLECTIVE | SN_TRAIT_TRANSFER) || op->kind == SN_OP_SHARD ||
                        op->kind == SN_OP_AXIS_INDEX;
    bool scheduled = sn_op_has(op->kind, SN_TRAIT_SCHEDULE) || op->kind == SN_OP_KERNEL;
    if ((communicates && form == SN_FORM_GRAPH) || (scheduled && form != SN_FORM_SCHED))
        problem(v, "does not belong in %s form", sn_form_name(form));
    EXPECT(v, form == SN_FORM_SCHED || op->stream == 0, "has a stream in %s form", sn_form_name(form));
    EXPECT(v, (unsigned)op->phase < SN_PHASE_COUNT, "has no legal phase");
}

static void check_op(verifier *v, sn_op *op) {
    v->op = op;
    bool module_sound = v->sound;
    check_operands(v, op);
    check_attrs(v, op);
    check_form(v, op);
    if (v->sound) {
        check_types(v, op);
        check_axes(v, op);
        if (op->kind == SN_OP_KERNEL) check_kernel(v, op);
        if (op->kind == SN_OP_ASSIGN) check_assign(v, op);
    }
    v->sound = v->sound && module_sound;
    v->op = NULL;
}

// Links between ops, and the numbers in `mark` that give their order. False: walking the list is not safe.
static bool check_links(verifier *v, const sn_func *func) {
    size_t count = 0;
    uint32_t at = 0;
    const sn_op *prev = NULL;
    for (sn_op *op = func->first; op; prev = op, op = op->next) {
        if (op->prev != prev || op->func != func || ++count > func->n_ops || (unsigned)op->kind >= SN_OP_COUNT) {
            problem(v, "the list of ops is broken at op %zu of %zu", count, func->n_ops);
            return false;
        }
        op->mark = at++;
    }
    EXPECT(v, count == func->n_ops && func->last == prev, "the function counts %zu ops but holds %zu", func->n_ops,
           count);
    return true;
}

static void check_signature(verifier *v, const sn_func *func) {
    sn_map names = {0};
    for (size_t i = 0; i < func->args.count; i++) {
        const sn_value *arg = func->args.data[i];
        if (!arg->name || !*arg->name || sn_map_has(&names, arg->name))
            problem(v, "argument %zu has no name of its own", i);
        else
            sn_map_put(&names, arg->name, (void *)arg);
        EXPECT(v, arg->kind == SN_VALUE_ARG && arg->func == func && arg->index == (int)i, "argument %zu is misplaced",
               i);
    }
    sn_map_free(&names);
    if (func->results.count != func->result_names.count) {
        problem(v, "results and their names differ in number");
        return;
    }
    for (size_t i = 0; i < func->results.count; i++) {
        const char *name = func->result_names.data[i], *why = unreadable(v, func->results.data[i], UINT32_MAX);
        if (why) problem(v, "result %zu is %s", i, why);
        EXPECT(v, !*name || !sn_map_has(&names, name), "two results are named %s", name);
        sn_map_put(&names, name, v);
    }
    sn_map_free(&names);
    EXPECT(v, !func->is_body || v->module->form == SN_FORM_SCHED, "a kernel body in %s form",
           sn_form_name(v->module->form));
}

// Resets the counts; called for every function before any op is looked at.
static bool prepare_func(verifier *v, sn_func *func) {
    v->func = func;
    bool walkable = check_links(v, func);
    for (size_t i = 0; i < func->args.count; i++) check_value(v, func->args.data[i]);
    for (sn_op *op = walkable ? func->first : NULL; op; op = op->next)
        for (int i = 0; i < op->n_results; i++) check_value(v, op->results[i]);
    v->func = NULL;
    return walkable;
}

static void check_func(verifier *v, sn_func *func) {
    v->func = func;
    check_signature(v, func);
    SN_FOR_OPS(op, func) check_op(v, op);
    v->func = NULL;
}

// Counts into `id` how often each value is an operand.
static void count_uses(const sn_module *module) {
    for (size_t i = 0; i < module->globals.count; i++) module->globals.data[i]->value->id = 0;
    for (size_t f = 0; f < module->funcs.count; f++) {
        const sn_func *func = module->funcs.data[f];
        for (size_t i = 0; i < func->args.count; i++) func->args.data[i]->id = 0;
        SN_FOR_OPS(op, func) {
            for (int i = 0; i < op->n_results; i++) op->results[i]->id = 0;
            for (int i = 0; i < op->n_operands; i++) op->operands[i]->id++;
        }
    }
}

static void check_uses(verifier *v, const sn_value *value) {
    EXPECT(v, value->uses.count == value->id, "a value counts %zu uses but has %" PRIu32, value->uses.count, value->id);
    for (size_t i = 0; i < value->uses.count; i++) {
        sn_use use = value->uses.data[i];
        EXPECT(v, use.op->func && use.index < use.op->n_operands && use.op->operands[use.index] == value,
               "a use of a value is stale");
    }
}

static void check_all_uses(verifier *v) {
    const sn_module *module = v->module;
    count_uses(module);
    for (size_t i = 0; i < module->globals.count; i++) check_uses(v, module->globals.data[i]->value);
    for (size_t f = 0; f < module->funcs.count; f++) {
        const sn_func *func = module->funcs.data[f];
        v->func = func;
        for (size_t i = 0; i < func->args.count; i++) check_uses(v, func->args.data[i]);
        SN_FOR_OPS(op, func) {
            for (int i = 0; i < op->n_results; i++) check_uses(v, op->results[i]);
        }
        v->func = NULL;
    }
}

static void check_global(verifier *v, const sn_global *global) {
    check_value(v, global->value);
    EXPECT(v, is_global_of(v->module, global->value), "the global @%s is not found by its name", global->name);
    EXPECT(v, (unsigned)global->role < SN_ROLE_COUNT, "the global @%s has no legal role", global->name);
    EXPECT(v, !global->of || sn_module_global(v->module, global->of->name) == global->of,
           "the global @%s belongs to one that is not in the module", global->name);
    EXPECT(v, global->source.kind != SN_SOURCE_FILE || global->source.path, "the global @%s has no path", global->name);
    EXPECT(v, global->source.kind != SN_SOURCE_MEMORY || global->source.data || sn_type_count(global->value->type) == 0,
           "the global @%s has no data", global->name);
}

bool sn_verify(const sn_module *module, sn_str *problems) {
    verifier v = {.module = (sn_module *)module, .out = problems, .sound = true};
    bool walkable = true;
    for (int i = 0; i < module->mesh.n_axes; i++)
        EXPECT(&v, module->mesh.size[i] >= 1, "the mesh axis %s has size %d", module->mesh.name[i],
               module->mesh.size[i]);
    for (size_t i = 0; i < module->globals.count; i++) check_global(&v, module->globals.data[i]);
    for (size_t i = 0; i < module->funcs.count; i++) walkable &= prepare_func(&v, module->funcs.data[i]);
    if (walkable) {
        for (size_t i = 0; i < module->funcs.count; i++) check_func(&v, module->funcs.data[i]);
        if (v.sound) check_all_uses(&v);
    }
    if (v.problems > MAX_PROBLEMS) sn_str_printf(problems, "and %d more\n", v.problems - MAX_PROBLEMS);
    return v.problems == 0;
}
