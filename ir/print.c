#include "ir/print.h"

#include "base/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const form_names[SN_FORM_COUNT] = {
    [SN_FORM_GRAPH] = "graph", [SN_FORM_DIST] = "dist", [SN_FORM_SCHED] = "sched"};
static const char *const phase_names[SN_PHASE_COUNT] = {
    [SN_PHASE_FORWARD] = "forward", [SN_PHASE_BACKWARD] = "backward", [SN_PHASE_UPDATE] = "update"};
static const char *const role_names[SN_ROLE_COUNT] = {
    [SN_ROLE_PARAMETER] = "param",     [SN_ROLE_FROZEN] = "frozen", [SN_ROLE_STATE] = "state",
    [SN_ROLE_OPTIMIZER] = "optimizer", [SN_ROLE_SUM] = "sum",       [SN_ROLE_CONSTANT] = "const"};

const char *sn_form_name(sn_form form) {
    return form_names[form];
}

const char *sn_phase_name(sn_phase phase) {
    return phase_names[phase];
}

const char *sn_role_name(sn_role role) {
    return role_names[role];
}

typedef enum data_mode { DATA_INLINE, DATA_STORE, DATA_LEFT_OUT } data_mode;

typedef struct printer {
    sn_str *out;
    sn_module *module;
    sn_constant_store *store;
    data_mode mode;
} printer;

enum { MAX_INLINE_ELEMENTS = 64 };

// Identifiers are printed bare; the parser's rule is the same.
static bool is_identifier(const char *text) {
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$"
    return *text && strchr(LETTERS, *text) && strspn(text, LETTERS "0123456789.") == strlen(text);
#undef LETTERS
}

static void print_name(sn_str *out, const char *name) {
    if (is_identifier(name))
        sn_str_puts(out, name);
    else
        sn_str_quote(out, name);
}

// Decides how each value of a function is written: by its own name (id 0) where that is taken by no other, else by a
// number (id - 1).
static void number_values(sn_func *func) {
    sn_map taken = {0};
    uint32_t next = 1;
    for (size_t i = 0; i < func->args.count; i++) {
        sn_value *arg = func->args.data[i];
        bool named = arg->name && *arg->name && !sn_map_has(&taken, arg->name);
        arg->id = named ? 0 : next++;
        if (named) sn_map_put(&taken, arg->name, arg);
    }
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_results; i++) {
            sn_value *value = op->results[i];
            bool named = value->name && *value->name && !sn_map_has(&taken, value->name);
            value->id = named ? 0 : next++;
            if (named) sn_map_put(&taken, value->name, value);
        }
    }
    sn_map_free(&taken);
}

static void print_value(sn_str *out, const sn_value *value) {
    sn_str_putc(out, value->kind == SN_VALUE_GLOBAL ? '@' : '%');
    if (value->kind != SN_VALUE_GLOBAL && value->id)
        sn_str_printf(out, "%" PRIu32, value->id - 1);
    else
        print_name(out, value->name);
}

static void print_type(const printer *p, const sn_value *value) {
    sn_type_print(p->out, value->type);
    sn_layout_print(p->out, &p->module->mesh, value->layout, value->type.rank);
    if (value->place.placed) sn_str_printf(p->out, " at %" PRId64, value->place.offset);
    if (value->place.slots > 1) sn_str_printf(p->out, " slots %d", value->place.slots);
    const sn_slot_table *table = value->place.table;
    for (int m = 0; table && m < table->n; m++)
        sn_str_printf(p->out, "%s%d%s", m ? ", " : " [", table->of[m], m + 1 < table->n ? "" : "]");
}

static void print_attr(const printer *p, const sn_attr *attr) {
    sn_str_printf(p->out, "%s=", attr->name);
    switch (attr->type) {
    case SN_ATTR_INT:
        sn_str_printf(p->out, "%" PRId64, attr->i);
        break;
    case SN_ATTR_FLOAT:
        sn_str_number(p->out, attr->f, false);
        break;
    case SN_ATTR_STRING:
        sn_str_quote(p->out, attr->s);
        break;
    case SN_ATTR_FUNC:
        sn_str_putc(p->out, '@');
        print_name(p->out, attr->func ? attr->func->name : "");
        break;
    case SN_ATTR_INTS:
        sn_str_putc(p->out, '[');
        for (int i = 0; i < attr->ints.count; i++)
            sn_str_printf(p->out, "%s%" PRId64, i ? "," : "", attr->ints.data[i]);
        sn_str_putc(p->out, ']');
        break;
    }
}

static bool is_default(const sn_attr *attr, const sn_attr_spec *spec) {
    if (spec->required) return false;
    switch (attr->type) {
    case SN_ATTR_INT:
        return attr->i == strtoll(spec->default_text, NULL, 10);
    case SN_ATTR_FLOAT:
        return attr->f == strtod(spec->default_text, NULL) && !signbit(attr->f);
    case SN_ATTR_STRING:
        return strcmp(attr->s, spec->default_text) == 0;
    case SN_ATTR_INTS:
        return attr->ints.count == 0;
    case SN_ATTR_FUNC:
        break;
    }
    return false;
}

// Attributes in the order of ops.def and without those that have their default, so that equal ops print equally.
static void print_attrs(const printer *p, const sn_op *op) {
    if (!op->n_attrs) return;
    const char *separator = " <";
    int count = sn_op_attr_count(op->kind);
    for (int i = 0; i < count; i++) {
        sn_attr_spec spec = sn_op_attr_spec(op->kind, i);
        const sn_attr *attr = sn_op_attr(op, spec.name);
        if (!attr || is_default(attr, &spec)) continue;
        sn_str_puts(p->out, separator);
        print_attr(p, attr);
        separator = " ";
    }
    if (separator[1] == 0) sn_str_putc(p->out, '>');
}

static void print_results(const printer *p, const sn_op *op) {
    for (int i = 0; i < op->n_results; i++) {
        if (i) sn_str_puts(p->out, ", ");
        print_value(p->out, op->results[i]);
    }
}

static void print_call(const printer *p, const sn_op *op) {
    sn_str_printf(p->out, "%s(", sn_op_name(op->kind));
    for (int i = 0; i < op->n_operands; i++) {
        if (i) sn_str_puts(p->out, ", ");
        print_value(p->out, op->operands[i]);
    }
    sn_str_putc(p->out, ')');
    print_attrs(p, op);
}

static void print_result_types(const printer *p, const sn_op *op) {
    for (int i = 0; i < op->n_results; i++) {
        sn_str_puts(p->out, i ? ", " : ": ");
        print_type(p, op->results[i]);
    }
}

// What follows the types, each part after two blanks.
static void print_marks(const printer *p, const sn_op *op) {
    if (op->phase != SN_PHASE_FORWARD) sn_str_printf(p->out, "  %s", phase_names[op->phase]);
    if (op->stream) sn_str_printf(p->out, "  stream %d", op->stream);
    if (op->origin) {
        sn_str_puts(p->out, "  !");
        sn_origin_print(p->out, op->origin);
    }
}

void sn_print_op(sn_str *out, sn_op *op) {
    number_values(op->func);
    printer p = {.out = out, .module = op->func->module};
    print_results(&p, op);
    if (op->n_results) sn_str_puts(out, " = ");
    print_call(&p, op);
    if (op->n_results) sn_str_putc(out, ' ');
    print_result_types(&p, op);
}

// The columns of one op's line in a function's text before it is aligned.
typedef struct line {
    size_t start, call, types, end;
} line;

static void pad(sn_str *out, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) sn_str_putc(out, ' ');
}

// Lines up the "=" and the ":" of a function's ops. Lines that are much longer than the rest do not push the others.
static void print_aligned(sn_str *out, const char *text, const line *lines, size_t n_lines) {
    enum { MAX_NAMES = 16, MAX_CALL = 64 };
    size_t names = 0, calls = 0;
    for (size_t i = 0; i < n_lines; i++) {
        size_t name = lines[i].call - lines[i].start, call = lines[i].types - lines[i].call;
        if (name > names && name <= MAX_NAMES) names = name;
        if (call > calls && call <= MAX_CALL) calls = call;
    }
    for (size_t i = 0; i < n_lines; i++) {
        size_t name = lines[i].call - lines[i].start, call = lines[i].types - lines[i].call;
        size_t rest = lines[i].end - lines[i].types;
        sn_str_puts(out, "  ");
        sn_str_append(out, text + lines[i].start, name);
        if (name) {
            pad(out, name, names);
            sn_str_puts(out, " = ");
        }
        sn_str_append(out, text + lines[i].call, call);
        if (rest && text[lines[i].types] == ':') {
            pad(out, call, calls);
            sn_str_putc(out, ' ');
        }
        sn_str_append(out, text + lines[i].types, rest);
        sn_str_putc(out, '\n');
    }
}

static void print_ops(const printer *p, const sn_func *func) {
    sn_str text = {0};
    SN_VEC(line) lines = {0};
    printer inner = *p;
    inner.out = &text;
    SN_FOR_OPS(op, func) {
        line l = {.start = text.length};
        print_results(&inner, op);
        l.call = text.length;
        print_call(&inner, op);
        l.types = text.length;
        print_result_types(&inner, op);
        print_marks(&inner, op);
        l.end = text.length;
        sn_vec_push(&lines, l);
    }
    print_aligned(p->out, sn_str_text(&text), lines.data, lines.count);
    sn_vec_free(&lines);
    sn_str_free(&text);
}

static void print_func(const printer *p, sn_func *func) {
    number_values(func);
    sn_str_printf(p->out, "\n%s @", func->is_body ? "body" : "func");
    print_name(p->out, func->name);
    sn_str_putc(p->out, '(');
    for (size_t i = 0; i < func->args.count; i++) {
        if (i) sn_str_puts(p->out, ", ");
        print_value(p->out, func->args.data[i]);
        sn_str_puts(p->out, ": ");
        print_type(p, func->args.data[i]);
    }
    sn_str_puts(p->out, ") {\n");
    print_ops(p, func);
    for (size_t i = 0; i < func->results.count; i++) {
        sn_str_puts(p->out, i ? ", " : "  return ");
        print_value(p->out, func->results.data[i]);
        if (!*func->result_names.data[i]) continue;
        sn_str_putc(p->out, ' ');
        sn_str_quote(p->out, func->result_names.data[i]);
    }
    if (func->results.count) sn_str_putc(p->out, '\n');
    sn_str_puts(p->out, "}\n");
}

static void print_elements(sn_str *out, sn_type type, const void *data) {
    int64_t count = sn_type_count(type);
    char class = sn_dtype_class(type.dtype);
    sn_str_puts(out, " = [");
    for (int64_t i = 0; i < count; i++) {
        if (i) sn_str_puts(out, ", ");
        if (class == 'f')
            sn_str_number(out, sn_load_f64(type.dtype, data, i), type.dtype != SN_F64);
        else if (class == 'u')
            sn_str_printf(out, "%" PRIu64, (uint64_t)sn_load_i64(type.dtype, data, i));
        else
            sn_str_printf(out, "%" PRId64, sn_load_i64(type.dtype, data, i));
    }
    sn_str_putc(out, ']');
}

// Writes data to the store unless equal data is there; returns its offset. A failure is kept for close.
static int64_t put_constant(sn_constant_store *store, const void *data, int64_t bytes) {
    enum { ALIGNMENT = 64 };
    static const char zeros[ALIGNMENT];
    uint64_t hash = sn_hash_bytes(data, (size_t)bytes, (uint64_t)bytes);
    for (size_t i = 0; i < store->stored.count; i++)
        if (store->stored.data[i].hash == hash && store->stored.data[i].bytes == bytes)
            return store->stored.data[i].offset;
    if (!store->file.stream && !store->failure) store->failure = sn_atomic_open(store->path, &store->file);
    if (!store->file.stream) return 0;
    size_t gap = (size_t)(-store->bytes & (ALIGNMENT - 1));
    sn_stored_constant stored = {hash, store->bytes + (int64_t)gap, bytes};
    fwrite(zeros, 1, gap, store->file.stream); // an error stays with the stream until the commit
    fwrite(data, 1, (size_t)bytes, store->file.stream);
    store->bytes = stored.offset + bytes;
    sn_vec_push(&store->stored, stored);
    return stored.offset;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void print_source(const printer *p, const sn_global *global) {
    const sn_source *source = &global->source;
    sn_type type = global->value->type;
    const char *path = source->path;
    int64_t offset = source->offset;
    switch (source->kind) {
    case SN_SOURCE_FILL:
        sn_str_puts(p->out, " fill ");
        sn_str_number(p->out, source->fill, false);
        return;
    case SN_SOURCE_MEMORY:
        if (p->mode == DATA_INLINE || sn_type_count(type) <= MAX_INLINE_ELEMENTS) {
            print_elements(p->out, type, source->data);
            return;
        }
        if (p->mode == DATA_LEFT_OUT) {
            sn_str_puts(p->out, " = [...]");
            return;
        }
        path = base_name(p->store->path);
        offset = put_constant(p->store, source->data, sn_type_bytes(type));
        break;
    case SN_SOURCE_FILE:
        break;
    }
    sn_str_puts(p->out, " from ");
    sn_str_quote(p->out, path);
    sn_str_printf(p->out, " at %" PRId64, offset);
}

static void print_global(const printer *p, const sn_global *global) {
    sn_str_printf(p->out, "%s @", role_names[global->role]);
    print_name(p->out, global->name);
    sn_str_puts(p->out, " : ");
    print_type(p, global->value);
    if (global->of) {
        sn_str_puts(p->out, " of @");
        print_name(p->out, global->of->name);
    }
    print_source(p, global);
    if (global->why) {
        sn_str_puts(p->out, " because ");
        sn_str_quote(p->out, global->why);
    }
    sn_str_putc(p->out, '\n');
}

static void print_module(const printer *p) {
    const sn_module *module = p->module;
    const sn_mesh *mesh = &module->mesh;
    sn_str_printf(p->out, "sennit 1 %s", form_names[module->form]);
    if (module->name && *module->name) {
        sn_str_putc(p->out, ' ');
        sn_str_quote(p->out, module->name);
    }
    sn_str_putc(p->out, '\n');
    if (mesh->n_axes) {
        sn_str_puts(p->out, "mesh [");
        for (int i = 0; i < mesh->n_axes; i++)
            sn_str_printf(p->out, "%s%s=%d", i ? ", " : "", mesh->name[i], mesh->size[i]);
        sn_str_puts(p->out, "]\n");
    }
    if (module->arena_bytes) sn_str_printf(p->out, "arena %" PRId64 "\n", module->arena_bytes);
    for (size_t i = 0; i < module->globals.count; i++) print_global(p, module->globals.data[i]);
    for (size_t i = 0; i < module->funcs.count; i++) print_func(p, module->funcs.data[i]);
}

void sn_print(sn_str *out, sn_module *module, sn_constant_store *store) {
    print_module(&(printer){out, module, store, store ? DATA_STORE : DATA_INLINE});
}

sn_status sn_print_file(sn_module *module, sn_constant_store *store, const char *path) {
    sn_str text = {0};
    sn_print(&text, module, store);
    sn_status status = sn_file_write(path, sn_str_text(&text), text.length);
    sn_str_free(&text);
    return status;
}

void sn_print_stderr(sn_module *module) {
    sn_str text = {0};
    print_module(&(printer){&text, module, NULL, DATA_LEFT_OUT});
    fputs(sn_str_text(&text), stderr);
    sn_str_free(&text);
}

sn_status sn_constant_store_close(sn_constant_store *store) {
    sn_status status = store->failure;
    store->failure = SN_OK;
    if (store->file.stream) status = sn_atomic_commit(&store->file);
    sn_vec_free(&store->stored);
    return status;
}
