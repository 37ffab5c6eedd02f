#include "passes/schedule/body.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_RESULTS = 64 };

// A group while it is copied into a body.
typedef struct copying {
    sn_bodies *bodies;
    const sn_grouping *g;
    const sn_unit *unit;
    sn_func *body;
    SN_VEC(sn_value *) operands; // of the kernel; parallel to the body's arguments
    SN_VEC(sn_value *) results;  // of the members, that others read
} copying;

static bool in_unit(const copying *c, const sn_op *op) {
    return !sn_is_inlined(c->g, op) && sn_unit_of(c->g, op) == c->unit;
}

static sn_value *argument(copying *c, sn_value *value) {
    for (size_t i = 0; i < c->operands.count; i++)
        if (c->operands.data[i] == value) return c->body->args.data[i];
    char name[24];
    snprintf(name, sizeof name, "in%zu", c->operands.count);
    sn_vec_push(&c->operands, value);
    return sn_func_add_arg(c->body, name, value->type);
}

static sn_value *copy(copying *c, sn_value *value) {
    if (value->kind != SN_VALUE_RESULT) return argument(c, value);
    sn_op *op = value->def;
    if (op->mark == UINT32_MAX || (!sn_is_inlined(c->g, op) && !in_unit(c, op))) return argument(c, value);
    if (c->bodies->made_in[op->mark] == c->bodies->n_made)
        return c->bodies->copy_of[op->mark]->def->results[value->index];
    sn_value *operands[64], **many = op->n_operands <= 64 ? operands : sn_alloc(sizeof *many * (size_t)op->n_operands);
    for (int i = 0; i < op->n_operands; i++) many[i] = copy(c, op->operands[i]);
    sn_type types[8];
    for (int i = 0; i < op->n_results; i++) types[i] = op->results[i]->type;
    sn_op *made =
        sn_op_new(c->body, NULL, op->kind, op->n_operands, many, op->n_attrs, op->attrs, op->n_results, types);
    if (many != operands) sn_free(many);
    made->phase = op->phase;
    c->bodies->copy_of[op->mark] = made->results[0];
    c->bodies->made_in[op->mark] = c->bodies->n_made;
    return made->results[value->index];
}

// Whether someone outside the group reads a member's result. Inlined readers count: their consumers may be elsewhere.
static bool leaves(const copying *c, const sn_value *value) {
    for (size_t i = 0; i < value->uses.count; i++) {
        const sn_op *user = value->uses.data[i].op;
        if (user->mark == UINT32_MAX) return true; // a kernel made before
        if (!sn_is_inlined(c->g, user)) {
            if (!in_unit(c, user)) return true;
            continue;
        }
        for (int r = 0; r < user->n_results; r++)
            if (leaves(c, user->results[r])) return true;
    }
    const sn_func *func = c->g->func;
    for (size_t i = 0; i < func->results.count; i++)
        if (func->results.data[i] == value) return true;
    return false;
}

// The body as text without names: equal bodies have equal texts.
static void describe(const sn_func *body, const int64_t *inplace, sn_str *out) {
    uint32_t id = 0;
    for (size_t i = 0; i < body->args.count; i++) {
        body->args.data[i]->id = id++;
        sn_type_print(out, body->args.data[i]->type);
        sn_str_putc(out, ' ');
    }
    SN_FOR_OPS(op, body) {
        sn_str_puts(out, sn_op_name(op->kind));
        for (int i = 0; i < op->n_operands; i++) sn_str_printf(out, " %u", op->operands[i]->id);
        for (int i = 0; i < op->n_attrs; i++) {
            const sn_attr *attr = &op->attrs[i];
            sn_str_printf(out, " %s=", attr->name);
            if (attr->type == SN_ATTR_INT) sn_str_printf(out, "%" PRId64, attr->i);
            if (attr->type == SN_ATTR_FLOAT) sn_str_printf(out, "%a", attr->f);
            if (attr->type == SN_ATTR_STRING) sn_str_puts(out, attr->s);
            for (int j = 0; attr->type == SN_ATTR_INTS && j < attr->ints.count; j++)
                sn_str_printf(out, "%" PRId64 ",", attr->ints.data[j]);
        }
        for (int i = 0; i < op->n_results; i++) {
            op->results[i]->id = id++;
            sn_str_putc(out, ':');
            sn_type_print(out, op->results[i]->type);
        }
        sn_str_putc(out, '\n');
    }
    for (size_t i = 0; i < body->results.count; i++)
        sn_str_printf(out, "%u@%" PRId64 " ", body->results.data[i]->id, inplace[i]);
}

// k_ the first few operators _ the shape of the first result: k_exp_sub_reduce_sum_256x768
static const char *name_body(sn_module *module, const sn_func *body) {
    sn_str name = {0};
    sn_str_puts(&name, "k");
    int n = 0;
    const char *last = "";
    SN_FOR_OPS(op, body) {
        sn_op_class class = sn_op_class_of(op->kind);
        const char *text = sn_op_name(op->kind);
        if ((class == SN_CLASS_INDEX && body->n_ops > 1) || strcmp(text, last) == 0 || n == 5) continue;
        sn_str_printf(&name, "_%s", text);
        last = text;
        n++;
    }
    sn_str_putc(&name, '_');
    sn_type type = body->results.data[0]->type;
    for (int d = 0; d < type.rank; d++) sn_str_printf(&name, "%s%" PRId64, d ? "x" : "", type.dim[d]);
    const char *unique = sn_arena_strdup(&module->arena, sn_str_text(&name));
    for (int i = 2; sn_module_func(module, unique); i++)
        unique = sn_arena_printf(&module->arena, "%s_v%d", sn_str_text(&name), i);
    sn_str_free(&name);
    return unique;
}

static sn_func *share_body(sn_bodies *bodies, sn_func *body, const int64_t *inplace) {
    sn_str text = {0};
    describe(body, inplace, &text);
    sn_func *known = sn_map_get(&bodies->by_text, sn_str_text(&text));
    if (known) {
        sn_module_remove_func(bodies->module, body);
        sn_str_free(&text);
        return known;
    }
    sn_map_put(&bodies->module->funcs_by_name, body->name, NULL);
    body->name = name_body(bodies->module, body);
    sn_map_put(&bodies->module->funcs_by_name, body->name, body);
    sn_map_put(&bodies->by_text, sn_arena_strdup(&bodies->module->arena, sn_str_text(&text)), body);
    sn_str_free(&text);
    return body;
}

static void fill_body(copying *c) {
    for (size_t i = 0; i < c->unit->members.count; i++) {
        sn_op *op = c->unit->members.data[i];
        for (int r = 0; r < op->n_results; r++) {
            if (!leaves(c, op->results[r])) continue;
            SN_CHECK(c->results.count < MAX_RESULTS);
            sn_func_add_result(c->body, copy(c, op->results[r]), "");
            sn_vec_push(&c->results, op->results[r]);
        }
    }
}

static void tie_results(const copying *c, sn_tie tie, void *user, int64_t *inplace) {
    for (size_t i = 0; i < c->results.count; i++) {
        inplace[i] = -1;
        const sn_value *over = tie(user, c->unit, c->results.data[i]);
        for (size_t j = 0; over && j < c->operands.count; j++)
            if (c->operands.data[j] == over) inplace[i] = (int64_t)j;
        for (size_t j = 0; j < i; j++)
            if (inplace[j] == inplace[i]) inplace[i] = -1;
    }
}

sn_op *sn_body_make_kernel(sn_bodies *bodies, sn_unit *unit, sn_op *before, const sn_origin *origin, sn_tie tie,
                           void *user) {
    sn_module *module = bodies->module;
    copying c = {bodies, bodies->grouping, unit, .body = sn_module_add_func(module, "k_new")};
    c.body->is_body = true;
    bodies->n_made++;
    fill_body(&c);
    if (!c.results.count) {
        sn_module_remove_func(module, c.body);
        sn_vec_free(&c.operands);
        return NULL;
    }
    int64_t inplace[MAX_RESULTS];
    tie_results(&c, tie, user, inplace);
    sn_func *body = share_body(bodies, c.body, inplace);
    sn_type types[MAX_RESULTS];
    for (size_t i = 0; i < c.results.count; i++) types[i] = c.results.data[i]->type;
    sn_attr attrs[] = {sn_attr_func("body", body), sn_attr_ints("inplace", inplace, (int)c.results.count)};
    sn_op *kernel = sn_op_new(c.g->func, before, SN_OP_KERNEL, (int)c.operands.count, c.operands.data, 2, attrs,
                              (int)c.results.count, types);
    kernel->phase = unit->phase;
    kernel->origin = origin;
    kernel->mark = UINT32_MAX;
    for (size_t i = 0; i < c.results.count; i++) {
        kernel->results[i]->name = c.results.data[i]->name;
        sn_value_replace(c.results.data[i], kernel->results[i]);
    }
    sn_vec_free(&c.operands);
    sn_vec_free(&c.results);
    return kernel;
}
