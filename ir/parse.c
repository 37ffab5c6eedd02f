#include "ir/parse.h"

#include "base/file.h"
#include "ir/build.h"
#include "ir/print.h"
#include "ir/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPERANDS = 1 << 16, MAX_INTS = 1 << 20 };

typedef enum token_kind {
    TOKEN_END,
    TOKEN_WORD,   // an identifier
    TOKEN_NUMBER, // text of an integer or a float
    TOKEN_STRING, // "…", unescaped into `text`
    TOKEN_VALUE,  // %name, %12, %"name"
    TOKEN_SYMBOL, // @name, @"name"
    TOKEN_ARROW,  // <-
    TOKEN_PUNCTUATION,
} token_kind;

typedef struct token {
    token_kind kind;
    char punctuation;
    bool numbered;    // TOKEN_VALUE: %12, which has no name of its own
    const char *text; // NUL-terminated, in the scratch arena
    int line, column;
} token;

// A name that may be defined further down.
typedef struct mention {
    sn_op *op;         // the body of a kernel op, or
    sn_global *global; // the parameter of an optimizer's state
    const char *attr, *name;
    token where;
} mention;

typedef struct parser {
    const char *at, *end, *line_start;
    int line;
    token token; // the one being looked at
    const char *name;
    sn_diags *diags;
    bool failed; // a diagnostic was given; every token is then TOKEN_END, so that all loops end
    sn_arena scratch;
    sn_module *module;
    sn_func *func;
    sn_map values; // of the function: "%name" or "#12" -> sn_value
    SN_VEC(mention) mentions;
} parser;

static void fail_at(parser *p, const token *where, const char *format, ...) SN_PRINTF(3, 4);
static void fail_at(parser *p, const token *where, const char *format, ...) {
    if (p->failed) return;
    sn_str message = {0}, subject = {0};
    va_list args;
    va_start(args, format);
    sn_str_vprintf(&message, format, args);
    va_end(args);
    sn_str_printf(&subject, "%s:%d:%d", p->name, where->line, where->column);
    sn_error(p->diags, "E0801", sn_str_text(&subject), "the grammar is in docs/ir.md", "%s", sn_str_text(&message));
    sn_str_free(&message);
    sn_str_free(&subject);
    p->failed = true;
    p->at = p->end;
    p->token = (token){.kind = TOKEN_END, .text = "", .line = where->line, .column = where->column};
}
#define FAIL(p, ...) fail_at(p, &(token){.line = (p)->token.line, .column = (p)->token.column}, __VA_ARGS__)

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static char peek(const parser *p, size_t ahead) {
    return (size_t)(p->end - p->at) > ahead ? p->at[ahead] : 0;
}

static void skip_blanks(parser *p) {
    while (p->at < p->end) {
        if (*p->at == '\n') {
            p->line++;
            p->line_start = p->at + 1;
        } else if (*p->at == '/' && peek(p, 1) == '/') {
            while (p->at < p->end && *p->at != '\n') p->at++;
            continue;
        } else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r') {
            return;
        }
        p->at++;
    }
}

// Copies [from, at) into the scratch arena.
static const char *text_since(parser *p, const char *from) {
    size_t length = (size_t)(p->at - from);
    char *text = sn_arena_alloc(&p->scratch, length + 1);
    memcpy(text, from, length);
    return text;
}

static const char *scan_word(parser *p) {
    const char *from = p->at;
    while (is_letter(peek(p, 0)) || is_digit(peek(p, 0)) || peek(p, 0) == '.' || peek(p, 0) == '-') p->at++;
    return text_since(p, from);
}

static const char *scan_digits(parser *p) {
    const char *from = p->at;
    while (is_digit(peek(p, 0))) p->at++;
    return text_since(p, from);
}

// -?digits(.digits)?(e[+-]?digits)?
static const char *scan_number(parser *p) {
    const char *from = p->at;
    if (peek(p, 0) == '-') p->at++;
    while (is_digit(peek(p, 0))) p->at++;
    if (peek(p, 0) == '.') p->at++;
    while (is_digit(peek(p, 0))) p->at++;
    size_t sign = peek(p, 1) == '+' || peek(p, 1) == '-';
    if (peek(p, 0) == 'e' && is_digit(peek(p, 1 + sign))) {
        p->at += 1 + sign;
        while (is_digit(peek(p, 0))) p->at++;
    }
    return text_since(p, from);
}

// The code point of \uXXXX, or 0 (which no name may hold either).
static unsigned scan_code_point(parser *p) {
    char digits[5] = {peek(p, 0), peek(p, 1), peek(p, 2), peek(p, 3), 0};
    if (strspn(digits, "0123456789abcdefABCDEF") != 4) return 0;
    p->at += 4;
    return (unsigned)strtoul(digits, NULL, 16);
}

static void put_utf8(sn_str *out, unsigned code) {
    if (code < 0x80) {
        sn_str_putc(out, (char)code);
    } else if (code < 0x800) {
        sn_str_putc(out, (char)(0xc0 | code >> 6));
        sn_str_putc(out, (char)(0x80 | (code & 0x3f)));
    } else {
        sn_str_putc(out, (char)(0xe0 | code >> 12));
        sn_str_putc(out, (char)(0x80 | (code >> 6 & 0x3f)));
        sn_str_putc(out, (char)(0x80 | (code & 0x3f)));
    }
}

// The text between quotes, as sn_str_quote writes it; "" after a failure.
static const char *scan_string(parser *p) {
    sn_str text = {0};
    const char *problem = NULL;
    p->at++;
    while (!problem && peek(p, 0) != '"') {
        char c = peek(p, 0);
        if (c == '\n' || c == 0) {
            problem = "a string has no end on its line";
        } else if (c != '\\') {
            sn_str_putc(&text, c);
            p->at++;
        } else {
            static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
            const char *escape = peek(p, 1) ? strchr(escapes, peek(p, 1)) : NULL;
            bool is_code = peek(p, 1) == 'u';
            p->at += p->end - p->at > 1 ? 2 : 1;
            unsigned code = escape ? (unsigned char)meanings[escape - escapes] : is_code ? scan_code_point(p) : 0;
            if (!code) problem = "no such escape in a string";
            put_utf8(&text, code);
        }
    }
    const char *copy = "";
    if (problem)
        FAIL(p, "%s", problem);
    else
        copy = sn_arena_strdup(&p->scratch, sn_str_text(&text));
    p->at += !problem;
    sn_str_free(&text);
    return copy;
}

// What follows % or @.
static void scan_name(parser *p) {
    p->at++;
    if (peek(p, 0) == '"') {
        p->token.text = scan_string(p);
    } else if (is_letter(peek(p, 0))) {
        p->token.text = scan_word(p);
    } else if (p->token.kind == TOKEN_VALUE && is_digit(peek(p, 0))) {
        p->token.numbered = true;
        p->token.text = scan_digits(p);
    } else {
        FAIL(p, "a name must follow");
    }
    if (!p->failed && !*p->token.text) FAIL(p, "a name is empty");
}

static void next(parser *p) {
    if (p->failed) return;
    skip_blanks(p);
    p->token = (token){.text = "", .line = p->line, .column = (int)(p->at - p->line_start) + 1};
    char c = peek(p, 0);
    if (p->at >= p->end) {
        p->token.kind = TOKEN_END;
    } else if (is_letter(c)) {
        p->token.kind = TOKEN_WORD;
        p->token.text = scan_word(p);
    } else if (is_digit(c) || (c == '-' && is_digit(peek(p, 1)))) {
        p->token.kind = TOKEN_NUMBER;
        p->token.text = scan_number(p);
    } else if (c == '"') {
        p->token.kind = TOKEN_STRING;
        p->token.text = scan_string(p);
    } else if (c == '%' || c == '@') {
        p->token.kind = c == '%' ? TOKEN_VALUE : TOKEN_SYMBOL;
        scan_name(p);
    } else if (c == '<' && peek(p, 1) == '-') {
        p->token.kind = TOKEN_ARROW;
        p->at += 2;
    } else {
        p->token.kind = TOKEN_PUNCTUATION;
        p->token.punctuation = c;
        p->at++;
    }
}

static bool at_punctuation(const parser *p, char c) {
    return p->token.kind == TOKEN_PUNCTUATION && p->token.punctuation == c;
}

static bool at_word(const parser *p, const char *word) {
    return p->token.kind == TOKEN_WORD && strcmp(p->token.text, word) == 0;
}

static bool accept(parser *p, char c) {
    bool there = at_punctuation(p, c);
    if (there) next(p);
    return there;
}

static bool accept_word(parser *p, const char *word) {
    bool there = at_word(p, word);
    if (there) next(p);
    return there;
}

static void expect(parser *p, char c) {
    if (!accept(p, c)) FAIL(p, "'%c' must follow", c);
}

// The text of a token of a kind, or "" after a failure.
static const char *expect_text(parser *p, token_kind kind, const char *what) {
    if (p->token.kind != kind) {
        FAIL(p, "%s must follow", what);
        return "";
    }
    const char *text = p->token.text;
    next(p);
    return text;
}

static int64_t expect_int(parser *p, int64_t least, const char *what) {
    const char *text = p->token.text;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (p->token.kind != TOKEN_NUMBER || *end || errno || value < least) {
        FAIL(p, "%s must follow: a whole number from %" PRId64 " on", what, least);
        return least;
    }
    next(p);
    return value;
}

static double expect_number(parser *p, bool single) {
    bool minus = accept(p, '-');
    double value = 0;
    if (at_word(p, "inf") || at_word(p, "nan") || (!minus && p->token.kind == TOKEN_NUMBER))
        value = single ? (double)strtof(p->token.text, NULL) : strtod(p->token.text, NULL);
    else
        FAIL(p, "a number must follow");
    next(p);
    return minus ? -value : value;
}

static sn_type parse_type(parser *p) {
    sn_type type = {.dtype = sn_dtype_from_name(p->token.text)};
    if (p->token.kind != TOKEN_WORD || type.dtype == SN_DTYPE_COUNT) {
        FAIL(p, "a type must follow: f32[4,8], say");
        return (sn_type){0};
    }
    next(p);
    expect(p, '[');
    while (!p->failed && !at_punctuation(p, ']')) {
        if (type.rank == SN_MAX_RANK) {
            FAIL(p, "a type has %d dims at most", SN_MAX_RANK);
            break;
        }
        if (type.rank) expect(p, ',');
        int64_t dim = expect_int(p, 0, "a dim");
        if (p->failed) break;
        type.dim[type.rank++] = dim;
        if (!sn_shape_is_valid(type.rank, type.dim)) FAIL(p, "a type has too many elements");
    }
    expect(p, ']');
    return type;
}

// "dp" or "dp.tp"
static sn_axes parse_axes(parser *p) {
    token where = p->token;
    char *names = sn_arena_strdup(&p->scratch, expect_text(p, TOKEN_WORD, "a mesh axis"));
    sn_axes axes = 0;
    for (const char *name; (name = strsep(&names, "."));) {
        int axis = sn_mesh_axis(&p->module->mesh, name);
        if (axis < 0)
            fail_at(p, &where, "the mesh has no axis '%s'", name);
        else
            axes |= (sn_axes)(1u << axis);
    }
    return axes;
}

// "dp.tp", or "dp.tp:1:8" with the `outer` of each axis.
static void parse_cut(parser *p, sn_layout *layout, int dim) {
    const sn_mesh *mesh = &p->module->mesh;
    int64_t outer[SN_MAX_AXES];
    layout->dim[dim] = parse_axes(p);
    if (!at_punctuation(p, ':')) return;
    for (int a = 0; a < mesh->n_axes && !p->failed; a++) {
        if (!(layout->dim[dim] >> a & 1)) continue;
        expect(p, ':');
        outer[a] = expect_int(p, 1, "a number of parts");
        if (outer[a] > INT32_MAX) FAIL(p, "a dim has fewer parts");
    }
    if (!p->failed) sn_layout_set_dim(mesh, layout, dim, layout->dim[dim], outer);
}

static sn_layout parse_layout(parser *p, int rank) {
    sn_layout layout = {0};
    if (accept(p, '{')) {
        for (int i = 0; i < rank && !p->failed; i++) {
            if (i) expect(p, ',');
            if (!accept(p, '-')) parse_cut(p, &layout, i);
        }
        expect(p, '}');
    }
    if (accept(p, '+')) {
        layout.partial = parse_axes(p);
        if (accept(p, ':')) {
            if (accept_word(p, "max"))
                layout.partial_kind = SN_PARTIAL_MAX;
            else if (accept_word(p, "min"))
                layout.partial_kind = SN_PARTIAL_MIN;
            else
                FAIL(p, "max or min must follow");
        }
    }
    return layout;
}

typedef struct stated {
    sn_type type;
    sn_layout layout;
    sn_place place;
} stated;

// [0, 1, 0]
static const sn_slot_table *parse_slot_table(parser *p, int slots) {
    SN_VEC(int) of = {0};
    do {
        int64_t slot = expect_int(p, 0, "a slot");
        if (slot >= slots) FAIL(p, "there are %d slots", slots);
        sn_vec_push(&of, (int)slot);
    } while (accept(p, ',') && !p->failed);
    expect(p, ']');
    sn_slot_table *table = sn_arena_alloc(&p->module->arena, sizeof *table + of.count * sizeof *table->of);
    table->n = (int)of.count;
    memcpy(table->of, of.data, of.count * sizeof *table->of);
    sn_vec_free(&of);
    return table;
}

static stated parse_stated(parser *p) {
    stated s = {.type = parse_type(p)};
    s.layout = parse_layout(p, s.type.rank);
    if (accept_word(p, "at")) s.place = (sn_place){.placed = true, .offset = expect_int(p, 0, "an offset")};
    if (s.place.placed && accept_word(p, "slots")) {
        s.place.slots = (int)expect_int(p, 1, "a number of slots");
        if (accept(p, '[')) s.place.table = parse_slot_table(p, s.place.slots);
    }
    return s;
}

static void set_stated(sn_value *value, const stated *s) {
    value->type = s->type;
    value->layout = s->layout;
    value->place = s->place;
}

static const char *key_of(parser *p, const token *name) {
    return sn_arena_printf(&p->scratch, "%c%s", name->numbered ? '#' : '%', name->text);
}

static void define(parser *p, const token *name, sn_value *value) {
    const char *key = key_of(p, name);
    if (sn_map_has(&p->values, key)) fail_at(p, name, "%%%s is defined twice", name->text);
    sn_map_put(&p->values, key, value);
    value->name = name->numbered ? NULL : sn_arena_strdup(&p->module->arena, name->text);
}

// NULL after a failure.
static sn_value *parse_value(parser *p) {
    token name = p->token;
    sn_value *value = NULL;
    if (name.kind == TOKEN_SYMBOL) {
        const sn_global *global = sn_module_global(p->module, name.text);
        value = global ? global->value : NULL;
        if (!value) FAIL(p, "there is no global @%s", name.text);
    } else if (name.kind == TOKEN_VALUE) {
        value = sn_map_get(&p->values, key_of(p, &name));
        if (!value) FAIL(p, "%%%s is not defined before its use", name.text);
    } else {
        FAIL(p, "a value must follow");
    }
    next(p);
    return value;
}

typedef struct call {
    token where;
    sn_op_kind kind;
    SN_VEC(token) results;
    SN_VEC(sn_value *) operands;
    SN_VEC(sn_attr) attrs;
    SN_VEC(stated) types;
    const char *body; // of the function attribute
} call;

static void free_call(call *c) {
    sn_vec_free(&c->results);
    sn_vec_free(&c->operands);
    sn_vec_free(&c->attrs);
    sn_vec_free(&c->types);
}

static sn_attr parse_ints(parser *p, const char *name) {
    SN_VEC(int64_t) ints = {0};
    expect(p, '[');
    while (!p->failed && !at_punctuation(p, ']')) {
        if (ints.count) expect(p, ',');
        sn_vec_push(&ints, expect_int(p, INT64_MIN, "an integer"));
        if (ints.count > MAX_INTS) FAIL(p, "a list is too long");
    }
    expect(p, ']');
    static const int64_t none[1];
    const int64_t *data = ints.count ? sn_arena_copy(&p->scratch, ints.data, ints.count * sizeof *ints.data) : none;
    sn_attr attr = sn_attr_ints(name, data, (int)ints.count);
    sn_vec_free(&ints);
    return attr;
}

static void parse_attr(parser *p, call *c) {
    token name = p->token;
    sn_attr_spec spec;
    expect_text(p, TOKEN_WORD, "an attribute");
    if (!p->failed && !sn_op_find_attr(c->kind, name.text, &spec))
        fail_at(p, &name, "%s has no attribute %s", sn_op_name(c->kind), name.text);
    for (size_t i = 0; i < c->attrs.count; i++)
        if (strcmp(c->attrs.data[i].name, name.text) == 0) fail_at(p, &name, "%s is given twice", name.text);
    expect(p, '=');
    if (p->failed) return;
    sn_attr attr = {0};
    switch (spec.type) {
    case SN_ATTR_INT:
        attr = sn_attr_int(name.text, expect_int(p, INT64_MIN, "an integer"));
        break;
    case SN_ATTR_FLOAT:
        attr = sn_attr_float(name.text, expect_number(p, false));
        break;
    case SN_ATTR_STRING:
        attr = sn_attr_string(name.text, expect_text(p, TOKEN_STRING, "a string"));
        break;
    case SN_ATTR_INTS:
        attr = parse_ints(p, name.text);
        break;
    case SN_ATTR_FUNC:
        c->body = expect_text(p, TOKEN_SYMBOL, "a function");
        attr = sn_attr_func(name.text, NULL);
        break;
    }
    sn_vec_push(&c->attrs, attr);
}

static void parse_call(parser *p, call *c) {
    c->where = p->token;
    const char *name = expect_text(p, TOKEN_WORD, "an operator");
    c->kind = sn_op_from_name(name);
    if (!p->failed && c->kind == SN_OP_COUNT) fail_at(p, &c->where, "there is no operator '%s'", name);
    expect(p, '(');
    while (!p->failed && !at_punctuation(p, ')')) {
        if (c->operands.count) expect(p, ',');
        sn_vec_push(&c->operands, parse_value(p));
        if (c->operands.count > MAX_OPERANDS) FAIL(p, "too many operands");
    }
    expect(p, ')');
    if (!accept(p, '<')) return;
    while (!p->failed && !at_punctuation(p, '>')) parse_attr(p, c);
    expect(p, '>');
}

// Says what is wrong with the call at its line; sn_verify would say it without one.
static void check_call(parser *p, call *c, sn_type *types) {
    // local types of collectives, and bodies that are not parsed yet, are the verifier's
    if (p->failed || c->body || (p->module->form == SN_FORM_SCHED && sn_op_has(c->kind, SN_TRAIT_COLLECTIVE))) return;
    if (p->module->form == SN_FORM_SCHED && c->kind == SN_OP_SHARD) return;
    const char *why = sn_infer(p->module, c->kind, (int)c->operands.count, c->operands.data, (int)c->attrs.count,
                               c->attrs.data, (int)c->types.count, types);
    if (why) fail_at(p, &c->where, "%s: %s", sn_op_name(c->kind), why);
    for (size_t i = 0; !p->failed && i < c->types.count; i++) {
        if (sn_type_equal(types[i], c->types.data[i].type)) continue;
        sn_str text = {0};
        sn_type_print(&text, types[i]);
        fail_at(p, &c->where, "result %zu of %s is %s", i, sn_op_name(c->kind), sn_str_text(&text));
        sn_str_free(&text);
    }
}

static sn_op *make_op(parser *p, call *c) {
    const sn_op_info *info = sn_op_info_of(c->kind);
    if (c->types.count != c->results.count) fail_at(p, &c->where, "results and types differ in number");
    if (info->results >= 0 && (size_t)info->results != c->results.count)
        fail_at(p, &c->where, "%s has %d results", info->mnemonic, info->results);
    sn_type *types = SN_NEW_N(&p->scratch, sn_type, c->types.count + 1);
    for (size_t i = 0; i < c->types.count; i++) types[i] = c->types.data[i].type;
    check_call(p, c, types);
    if (p->failed) return NULL;
    sn_op *op = sn_op_new(p->func, NULL, c->kind, (int)c->operands.count, c->operands.data, (int)c->attrs.count,
                          c->attrs.data, (int)c->results.count, types);
    for (size_t i = 0; i < c->results.count; i++) {
        set_stated(op->results[i], &c->types.data[i]);
        define(p, &c->results.data[i], op->results[i]);
    }
    for (size_t i = 0; i < c->attrs.count; i++) {
        if (c->attrs.data[i].type != SN_ATTR_FUNC) continue;
        mention m = {.op = op, .attr = c->attrs.data[i].name, .name = c->body, .where = c->where};
        sn_vec_push(&p->mentions, m);
    }
    return op;
}

static const sn_origin *parse_origin(parser *p) {
    const sn_origin *origin = sn_origin_new(p->module, expect_text(p, TOKEN_STRING, "an origin's name"), NULL);
    while (p->token.kind == TOKEN_ARROW) {
        next(p);
        origin = sn_origin_new(p->module, expect_text(p, TOKEN_WORD, "a pass"), origin);
    }
    return origin;
}

static void parse_marks(parser *p, sn_op *op) {
    for (int phase = 0; phase < SN_PHASE_COUNT; phase++)
        if (accept_word(p, sn_phase_name(phase))) op->phase = (sn_phase)phase;
    if (accept_word(p, "stream")) {
        int64_t stream = expect_int(p, 0, "a stream");
        if (stream > 15) FAIL(p, "there is no stream %" PRId64, stream);
        op->stream = (int)stream;
    }
    if (accept(p, '!')) op->origin = parse_origin(p);
}

static void parse_op(parser *p) {
    call c = {0};
    while (p->token.kind == TOKEN_VALUE) {
        sn_vec_push(&c.results, p->token);
        next(p);
        if (!accept(p, ',')) break;
    }
    if (c.results.count) expect(p, '=');
    parse_call(p, &c);
    if (c.results.count) {
        expect(p, ':');
        do sn_vec_push(&c.types, parse_stated(p));
        while (accept(p, ','));
    }
    sn_op *op = p->failed ? NULL : make_op(p, &c);
    if (op) parse_marks(p, op);
    free_call(&c);
}

static void parse_args(parser *p) {
    expect(p, '(');
    while (!p->failed && !at_punctuation(p, ')')) {
        if (p->func->args.count) expect(p, ',');
        token name = p->token;
        expect_text(p, TOKEN_VALUE, "an argument");
        if (name.numbered) fail_at(p, &name, "an argument needs a name");
        expect(p, ':');
        stated s = parse_stated(p);
        if (p->failed) return;
        sn_value *value = sn_func_add_arg(p->func, name.text, s.type);
        set_stated(value, &s);
        define(p, &name, value);
    }
    expect(p, ')');
}

static void parse_return(parser *p) {
    do {
        sn_value *value = parse_value(p);
        if (p->failed) return;
        const char *name = p->token.kind == TOKEN_STRING ? expect_text(p, TOKEN_STRING, "a name") : "";
        sn_func_add_result(p->func, value, name);
    } while (accept(p, ','));
}

static void parse_func(parser *p, bool is_body) {
    token name = p->token;
    expect_text(p, TOKEN_SYMBOL, "a function's name");
    if (!p->failed && sn_module_func(p->module, name.text)) fail_at(p, &name, "there are two functions @%s", name.text);
    if (p->failed) return;
    p->func = sn_module_add_func(p->module, name.text);
    p->func->is_body = is_body;
    sn_map_free(&p->values);
    parse_args(p);
    expect(p, '{');
    while (!p->failed && !at_punctuation(p, '}') && !at_word(p, "return")) parse_op(p);
    if (accept_word(p, "return")) parse_return(p);
    expect(p, '}');
}

static void parse_elements(parser *p, sn_type type, sn_source *source) {
    expect(p, '[');
    int64_t count = sn_type_count(type);
    // each element takes a character at least: what is not there is not allocated
    if (count > p->end - p->at + 1) FAIL(p, "there are fewer than %" PRId64 " elements", count);
    if (p->failed) return;
    char *data = sn_arena_alloc(&p->module->arena, (size_t)sn_type_bytes(type) + 1);
    char class = sn_dtype_class(type.dtype);
    for (int64_t i = 0; i < count && !p->failed; i++) {
        if (i) expect(p, ',');
        if (class == 'f') {
            sn_store_f64(type.dtype, data, i, expect_number(p, type.dtype != SN_F64));
        } else if (class == 'u') {
            errno = 0;
            unsigned long long element = strtoull(p->token.text, NULL, 10);
            if (errno || *p->token.text == '-') FAIL(p, "an element is out of range");
            expect_text(p, TOKEN_NUMBER, "an element");
            sn_store_i64(type.dtype, data, i, (int64_t)element);
        } else {
            sn_store_i64(type.dtype, data, i, expect_int(p, INT64_MIN, "an element"));
        }
    }
    expect(p, ']');
    *source = (sn_source){.kind = SN_SOURCE_MEMORY, .data = data};
}

static sn_source parse_source(parser *p, sn_type type) {
    sn_source source = {0};
    if (accept(p, '=')) {
        parse_elements(p, type, &source);
    } else if (accept_word(p, "fill")) {
        source = (sn_source){.kind = SN_SOURCE_FILL, .fill = expect_number(p, false)};
    } else if (accept_word(p, "from")) {
        source.kind = SN_SOURCE_FILE;
        source.path = sn_arena_strdup(&p->module->arena, expect_text(p, TOKEN_STRING, "a path"));
        if (!accept_word(p, "at")) FAIL(p, "'at' and an offset must follow");
        source.offset = expect_int(p, 0, "an offset");
    } else {
        FAIL(p, "'= [', 'fill' or 'from' must follow");
    }
    return source;
}

static void parse_global(parser *p, sn_role role) {
    token name = p->token;
    expect_text(p, TOKEN_SYMBOL, "a global's name");
    if (!p->failed && sn_module_global(p->module, name.text)) fail_at(p, &name, "there are two globals @%s", name.text);
    expect(p, ':');
    stated s = parse_stated(p);
    mention of = {.where = p->token};
    if (accept_word(p, "of")) of.name = expect_text(p, TOKEN_SYMBOL, "a global");
    sn_source source = parse_source(p, s.type);
    if (p->failed) return;
    of.global = sn_module_add_global(p->module, name.text, s.type, role, source);
    set_stated(of.global->value, &s);
    if (of.name) sn_vec_push(&p->mentions, of);
    if (accept_word(p, "because"))
        of.global->why = sn_arena_strdup(&p->module->arena, expect_text(p, TOKEN_STRING, "a reason"));
}

static void parse_mesh(parser *p) {
    sn_mesh *mesh = &p->module->mesh;
    if (mesh->n_axes || p->module->globals.count || p->module->funcs.count)
        FAIL(p, "the mesh must come first, and once");
    expect(p, '[');
    while (!p->failed && !at_punctuation(p, ']')) {
        if (mesh->n_axes) expect(p, ',');
        token name = p->token;
        expect_text(p, TOKEN_WORD, "a mesh axis");
        expect(p, '=');
        int64_t size = expect_int(p, 1, "a size");
        if (mesh->n_axes == SN_MAX_AXES) fail_at(p, &name, "a mesh has %d axes at most", SN_MAX_AXES);
        if (strlen(name.text) >= sizeof mesh->name[0] || strpbrk(name.text, ".-"))
            fail_at(p, &name, "'%s' cannot be a mesh axis", name.text);
        if (!p->failed && sn_mesh_axis(mesh, name.text) >= 0)
            fail_at(p, &name, "two mesh axes are named %s", name.text);
        if (size > 1 << 20 || sn_mesh_ranks(mesh) * size > 1 << 24) fail_at(p, &name, "the mesh is too large");
        if (p->failed) return;
        strcpy(mesh->name[mesh->n_axes], name.text);
        mesh->size[mesh->n_axes++] = (int)size;
    }
    expect(p, ']');
}

static void parse_header(parser *p) {
    if (!accept_word(p, "sennit"))
        FAIL(p, "a module starts with 'sennit 1 graph', 'sennit 1 dist' or 'sennit 1 sched'");
    if (expect_int(p, 0, "the version of the format") != 1) FAIL(p, "this sennit reads version 1 of the format");
    int form = 0;
    while (form < SN_FORM_COUNT && !at_word(p, sn_form_name(form))) form++;
    if (form == SN_FORM_COUNT) FAIL(p, "graph, dist or sched must follow");
    next(p);
    p->module->form = (sn_form)form;
    if (p->token.kind == TOKEN_STRING)
        p->module->name = sn_arena_strdup(&p->module->arena, expect_text(p, TOKEN_STRING, "a name"));
}

static void parse_item(parser *p) {
    if (accept_word(p, "mesh")) {
        parse_mesh(p);
    } else if (accept_word(p, "arena")) {
        p->module->arena_bytes = expect_int(p, 0, "a size in bytes");
    } else if (at_word(p, "func") || at_word(p, "body")) {
        bool is_body = at_word(p, "body");
        next(p);
        parse_func(p, is_body);
    } else {
        for (int role = 0; role < SN_ROLE_COUNT; role++) {
            if (!accept_word(p, sn_role_name(role))) continue;
            parse_global(p, (sn_role)role);
            return;
        }
        FAIL(p, "a global or a function must follow");
    }
}

static void resolve_mentions(parser *p) {
    for (size_t i = 0; i < p->mentions.count && !p->failed; i++) {
        mention *m = &p->mentions.data[i];
        if (m->op) {
            sn_func *func = sn_module_func(p->module, m->name);
            if (!func) fail_at(p, &m->where, "there is no function @%s", m->name);
            if (func) sn_op_set_attr(m->op, sn_attr_func(m->attr, func));
        } else {
            m->global->of = sn_module_global(p->module, m->name);
            if (!m->global->of) fail_at(p, &m->where, "there is no global @%s", m->name);
        }
    }
}

static void verify(parser *p) {
    sn_str problems = {0};
    if (!p->failed && !sn_verify(p->module, &problems)) {
        sn_error(p->diags, "E0802", p->name,
                 "the rules are in docs/ir.md; `--dump-ir=after-all` shows text that keeps them",
                 "the module is malformed:\n%s", sn_str_text(&problems));
        p->failed = true;
    }
    sn_str_free(&problems);
}

sn_module *sn_parse(const char *text, size_t length, const char *name, sn_diags *diags) {
    parser p = {.at = text, .end = text + length, .line_start = text, .line = 1, .name = name, .diags = diags};
    p.module = sn_module_new("");
    next(&p);
    parse_header(&p);
    while (!p.failed && p.token.kind != TOKEN_END) parse_item(&p);
    resolve_mentions(&p);
    verify(&p);
    sn_map_free(&p.values);
    sn_vec_free(&p.mentions);
    sn_arena_free(&p.scratch);
    if (!p.failed) return p.module;
    sn_module_free(p.module);
    return NULL;
}

// Maps the file that a global names; data stays NULL, with a warning, when it cannot. Passes that need the values of a
// constant leave it alone then.
static bool map_source(sn_map *files, const char *folder, const char *path, sn_mapped_file *out) {
    sn_mapped_file *known = sn_map_get(files, path);
    if (known) {
        *out = *known;
        return true;
    }
    sn_str beside = {0};
    sn_str_printf(&beside, "%s/%s", folder, path);
    sn_status status = path[0] == '/' ? sn_file_map(path, out) : sn_file_map(sn_str_text(&beside), out);
    sn_str_free(&beside);
    if (status) {
        sn_status_free(status);
        status = sn_file_map(path, out);
    }
    if (status) {
        sn_status_free(status);
        return false;
    }
    known = sn_alloc(sizeof *known);
    *known = *out;
    sn_map_put(files, path, known);
    return true;
}

static void load_sources(sn_module *module, const char *path, sn_diags *diags) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    sn_map files = {0}, missing = {0};
    for (size_t i = 0; i < module->globals.count; i++) {
        sn_global *global = module->globals.data[i];
        sn_mapped_file file;
        if (global->source.kind != SN_SOURCE_FILE) continue;
        int64_t bytes = sn_type_bytes(global->value->type), offset = global->source.offset;
        if (!map_source(&files, folder, global->source.path, &file)) {
            if (sn_map_has(&missing, global->source.path)) continue;
            sn_map_put(&missing, global->source.path, global);
            sn_warning(diags, "W0801", global->source.path, "passes treat its values as unknown",
                       "the file of @%s cannot be read", global->name);
        } else if (offset > (int64_t)file.bytes || bytes > (int64_t)file.bytes - offset) {
            sn_error(diags, "E0803", global->source.path,
                     "give the file that belongs to this text, or change its offset or shape",
                     "@%s ends behind the end of its file", global->name);
        } else if (offset % (int64_t)sn_dtype_bytes(global->value->type.dtype)) {
            global->source.data = sn_arena_copy(&module->arena, file.data + offset, (size_t)bytes);
        } else {
            global->source.data = file.data + offset;
        }
    }
    for (size_t i = 0; i < files.count; i++) sn_free(files.entries[i].value);
    sn_map_free(&files);
    sn_map_free(&missing);
    free(folder);
}

sn_module *sn_parse_file(const char *path, sn_diags *diags) {
    sn_mapped_file file;
    sn_status status = sn_file_map(path, &file);
    if (status) {
        sn_error(diags, "E0801", path, "is the path right? `--dump-ir after-all` writes such files", "%s",
                 sn_status_message(status));
        sn_status_free(status);
        return NULL;
    }
    size_t errors = diags->errors;
    sn_module *module = sn_parse((const char *)file.data, file.bytes, path, diags);
    sn_file_unmap(&file);
    if (!module) return NULL;
    load_sources(module, path, diags);
    if (diags->errors == errors) return module;
    sn_module_free(module);
    return NULL;
}
