// The JSON form of the schedule. One table per struct serves the writer and the reader, so that they cannot disagree;
// an instruction's table is chosen by its kind.
#include "runtime/schedule.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

typedef enum field_type {
    INT,     // int64_t
    REAL,    // double
    FLAG,    // bool
    TEXT,    // const char *, null when NULL
    WORD,    // an enum, by name
    VIEW,    // sn_view as [buffer, offset] or null
    ARRAY,   // int64_t[n], written up to the last entry that is not zero
    DIMS,    // sn_dims
    TEXTS,   // sn_texts
    VIEWS,   // sn_views
    RECORD,  // a struct
    RECORDS, // a list of structs
} field_type;

typedef struct field {
    const char *name;
    field_type type;
    size_t offset;
    size_t n;                  // ARRAY: entries; WORD: words
    const char *const *words;  // WORD
    const struct table *table; // RECORD, RECORDS
} field;

typedef struct table {
    const field *fields;
    size_t count, bytes; // bytes of the struct
    bool instr;          // followed by the fields of the instruction's kind
} table;

#define F(owner, member, kind_)                                                                                        \
    { .name = #member, .type = kind_, .offset = offsetof(owner, member) }
#define F_WORD(owner, member, list)                                                                                    \
    {                                                                                                                  \
        .name = #member, .type = WORD, .offset = offsetof(owner, member), .n = sizeof(list) / sizeof *(list),          \
        .words = list                                                                                                  \
    }
#define F_ARRAY(owner, member)                                                                                         \
    {                                                                                                                  \
        .name = #member, .type = ARRAY, .offset = offsetof(owner, member),                                             \
        .n = sizeof((owner *)0)->member / sizeof(int64_t)                                                              \
    }
#define F_OF(owner, member, kind_, table_)                                                                             \
    { .name = #member, .type = kind_, .offset = offsetof(owner, member), .table = &(table_) }
#define TABLE(name, type)                                                                                              \
    static const table name = {                                                                                        \
        .fields = name##_fields, .count = sizeof name##_fields / sizeof(field), .bytes = sizeof(type)}

static const char *const role_words[] = {"parameter", "state", "moment", "constant", "sum"};
static const char *const source_words[] = {"file", "payload", "fill"};
static const char *const special_words[] = {"step", "seed", "lr", "coordinate"};
static const char *const stream_words[] = {"compute", "comm"};
static const char *const phase_words[] = {"forward", "backward", "update"};
static const char *const reduce_words[] = {"sum", "max"};
static const char *const dtype_words[] = {
#define X(suffix, name, ...) name,
    SN_DTYPES(X)
#undef X
};
static const char *const instr_words[] = {
#define X(suffix, name, ...) name,
    SN_INSTRUCTIONS(X)
#undef X
};
_Static_assert(sizeof role_words / sizeof *role_words == SN_RESIDENT_ROLE_COUNT, "a word per role");
_Static_assert(sizeof source_words / sizeof *source_words == SN_INITIAL_COUNT, "a word per source");
_Static_assert(sizeof special_words / sizeof *special_words == SN_SPECIAL_COUNT, "a word per special");
_Static_assert(sizeof stream_words / sizeof *stream_words == SN_STREAM_COUNT, "a word per stream");
_Static_assert(sizeof phase_words / sizeof *phase_words == SN_PHASE_COUNT, "a word per phase");
_Static_assert(sizeof reduce_words / sizeof *reduce_words == SN_REDUCE_COUNT, "a word per reduction");

static const field axis_fields[] = {F(sn_schedule_axis, name, TEXT), F(sn_schedule_axis, size, INT)};
TABLE(axis, sn_schedule_axis);

static const field setting_fields[] = {F(sn_setting, name, TEXT), F(sn_setting, value, TEXT)};
TABLE(setting, sn_setting);

static const field buffer_fields[] = {
    F(sn_buffer, name, TEXT),      F_WORD(sn_buffer, dtype, dtype_words),
    F(sn_buffer, shape, DIMS),     F(sn_buffer, offset, INT),
    F(sn_buffer, bytes, INT),      F(sn_buffer, slots, INT),
    F(sn_buffer, slot_bytes, INT), F(sn_buffer, slot_of, DIMS),
};
TABLE(buffer, sn_buffer);

static const field source_fields[] = {
    F_WORD(sn_initial, kind, source_words),
    F(sn_initial, path, TEXT),
    F(sn_initial, offset, INT),
    F(sn_initial, bytes, INT),
    F_WORD(sn_initial, dtype, dtype_words),
    F(sn_initial, value, REAL),
};
TABLE(source, sn_initial);

static const field global_fields[] = {
    F(sn_resident, name, TEXT),     F_WORD(sn_resident, role, role_words),
    F(sn_resident, of, TEXT),       F(sn_resident, buffer, INT),
    F(sn_resident, shape, DIMS),    F(sn_resident, pieces, DIMS),
    F(sn_resident, sharding, DIMS), F_OF(sn_resident, source, RECORD, source),
};
TABLE(global, sn_resident);

static const field input_fields[] = {
    F(sn_data_input, name, TEXT),       F(sn_data_input, buffer, INT),       F(sn_data_input, shape, DIMS),
    F(sn_data_input, batch_dim, INT),   F(sn_data_input, sharding, DIMS),    F(sn_data_input, is_label, FLAG),
    F(sn_data_input, has_range, FLAG),  F(sn_data_input, lo, INT),           F(sn_data_input, hi, INT),
    F(sn_data_input, has_ignore, FLAG), F(sn_data_input, ignore_index, INT),
};
TABLE(input, sn_data_input);

static const field special_fields[] = {F_WORD(sn_special, kind, special_words), F(sn_special, buffer, INT),
                                       F(sn_special, axis, INT)};
TABLE(special, sn_special);

static const field output_fields[] = {F(sn_output, name, TEXT), F(sn_output, buffer, INT), F(sn_output, shape, DIMS),
                                      F(sn_output, pieces, DIMS), F(sn_output, sharding, DIMS)};
TABLE(output, sn_output);

static const field instr_fields[] = {F_WORD(sn_instr, kind, instr_words), F_WORD(sn_instr, stream, stream_words),
                                     F_WORD(sn_instr, phase, phase_words), F(sn_instr, origin, INT)};
static const table instr = {
    .fields = instr_fields, .count = sizeof instr_fields / sizeof(field), .bytes = sizeof(sn_instr), .instr = true};

static const field program_fields[] = {F(sn_program, name, TEXT), F_OF(sn_program, instrs, RECORDS, instr)};
TABLE(program, sn_program);

static const field run_fields[] = {F(sn_sequence_run, program, INT), F(sn_sequence_run, micro_batch, INT),
                                   F(sn_sequence_run, load, FLAG)};
TABLE(run, sn_sequence_run);

static const field sequence_fields[] = {F(sn_sequence, name, TEXT), F_OF(sn_sequence, runs, RECORDS, run)};
TABLE(sequence, sn_sequence);

static const field kernel_fields[] = {F(sn_do_kernel, symbol, INT),      F(sn_do_kernel, grid, INT),
                                      F(sn_do_kernel, one_thread, FLAG), F(sn_do_kernel, args, VIEWS),
                                      F(sn_do_kernel, arg_bytes, DIMS),  F(sn_do_kernel, access, DIMS)};
TABLE(kernel, sn_do_kernel);

static const field gemm_fields[] = {
    F_WORD(sn_do_gemm, dtype, dtype_words),
    F(sn_do_gemm, m, INT),
    F(sn_do_gemm, n, INT),
    F(sn_do_gemm, k, INT),
    F(sn_do_gemm, transpose_a, FLAG),
    F(sn_do_gemm, transpose_b, FLAG),
    F(sn_do_gemm, lda, INT),
    F(sn_do_gemm, ldb, INT),
    F(sn_do_gemm, ldc, INT),
    F(sn_do_gemm, batch_rank, INT),
    F_ARRAY(sn_do_gemm, batch),
    F_ARRAY(sn_do_gemm, stride_a),
    F_ARRAY(sn_do_gemm, stride_b),
    F_ARRAY(sn_do_gemm, stride_c),
    F(sn_do_gemm, alpha, REAL),
    F(sn_do_gemm, beta, REAL),
    F(sn_do_gemm, a, VIEW),
    F(sn_do_gemm, b, VIEW),
    F(sn_do_gemm, c, VIEW),
};
TABLE(gemm, sn_do_gemm);

static const field conv_fields[] = {
    F(sn_do_conv, spatial, INT),      F(sn_do_conv, batch, INT),      F(sn_do_conv, in_channels, INT),
    F(sn_do_conv, out_channels, INT), F(sn_do_conv, groups, INT),     F_ARRAY(sn_do_conv, in),
    F_ARRAY(sn_do_conv, kernel),      F_ARRAY(sn_do_conv, out),       F_ARRAY(sn_do_conv, stride),
    F_ARRAY(sn_do_conv, dilation),    F_ARRAY(sn_do_conv, pad_begin), F_ARRAY(sn_do_conv, pad_end),
    F(sn_do_conv, x, VIEW),           F(sn_do_conv, w, VIEW),         F(sn_do_conv, y, VIEW),
};
TABLE(conv, sn_do_conv);

static const field attention_fields[] = {
    F_WORD(sn_do_attention, dtype, dtype_words),
    F(sn_do_attention, batch, INT),
    F(sn_do_attention, heads, INT),
    F(sn_do_attention, kv_heads, INT),
    F(sn_do_attention, sq, INT),
    F(sn_do_attention, skv, INT),
    F(sn_do_attention, d, INT),
    F(sn_do_attention, dv, INT),
    F(sn_do_attention, scale, REAL),
    F(sn_do_attention, softcap, REAL),
    F(sn_do_attention, causal, FLAG),
    F(sn_do_attention, causal_offset, INT),
    F(sn_do_attention, q, VIEW),
    F(sn_do_attention, k, VIEW),
    F(sn_do_attention, v, VIEW),
    F(sn_do_attention, mask, VIEW),
    F(sn_do_attention, o, VIEW),
    F(sn_do_attention, lse, VIEW),
    F(sn_do_attention, grad_o, VIEW),
    F(sn_do_attention, grad_q, VIEW),
    F(sn_do_attention, grad_k, VIEW),
    F(sn_do_attention, grad_v, VIEW),
    F_ARRAY(sn_do_attention, q_stride),
    F_ARRAY(sn_do_attention, k_stride),
    F_ARRAY(sn_do_attention, v_stride),
    F_ARRAY(sn_do_attention, o_stride),
    F_ARRAY(sn_do_attention, mask_stride),
    F_ARRAY(sn_do_attention, grad_o_stride),
    F_ARRAY(sn_do_attention, grad_q_stride),
    F_ARRAY(sn_do_attention, grad_k_stride),
    F_ARRAY(sn_do_attention, grad_v_stride),
};
TABLE(attention, sn_do_attention);

static const field collective_fields[] = {
    F_WORD(sn_do_collective, dtype, dtype_words),
    F_WORD(sn_do_collective, reduce, reduce_words),
    F(sn_do_collective, axes, INT),
    F(sn_do_collective, count, INT),
    F(sn_do_collective, from, VIEW),
    F(sn_do_collective, to, VIEW),
};
TABLE(collective, sn_do_collective);

static const field transfer_fields[] = {
    F_WORD(sn_do_transfer, dtype, dtype_words),
    F(sn_do_transfer, peer, INT),
    F(sn_do_transfer, channel, INT),
    F(sn_do_transfer, count, INT),
    F(sn_do_transfer, view, VIEW),
};
TABLE(transfer, sn_do_transfer);

static const field copy_fields[] = {
    F_WORD(sn_do_copy, dtype, dtype_words),
    F(sn_do_copy, rank, INT),
    F_ARRAY(sn_do_copy, dims),
    F_ARRAY(sn_do_copy, from_stride),
    F_ARRAY(sn_do_copy, to_stride),
    F(sn_do_copy, from, VIEW),
    F(sn_do_copy, to, VIEW),
};
TABLE(copy, sn_do_copy);

static const field fill_fields[] = {F_WORD(sn_do_fill, dtype, dtype_words), F(sn_do_fill, count, INT),
                                    F(sn_do_fill, value, REAL), F(sn_do_fill, to, VIEW)};
TABLE(fill, sn_do_fill);

static const field event_fields[] = {F(sn_do_event, event, INT)};
TABLE(event, sn_do_event);

static const struct {
    const table *table;
    size_t offset;
} bodies[] = {
#define X(suffix, name, member, type) [SN_INSTR_##suffix] = {&member, offsetof(sn_instr, member)},
    SN_INSTRUCTIONS(X)
#undef X
};

static const field schedule_fields[] = {
    F(sn_schedule, model_path, TEXT),
    F(sn_schedule, model_bytes, INT),
    F(sn_schedule, model_hash, TEXT),
    F(sn_schedule, plan_hash, TEXT),
    F_OF(sn_schedule, mesh, RECORDS, axis),
    F(sn_schedule, pipeline_axis, INT),
    F(sn_schedule, ranks, INT),
    F(sn_schedule, threads, INT),
    F(sn_schedule, arena_bytes, INT),
    F(sn_schedule, micro_batches, INT),
    F(sn_schedule, step_samples, INT),
    F(sn_schedule, lr, REAL),
    F(sn_schedule, kernels, TEXTS),
    F(sn_schedule, origins, TEXTS),
    F_OF(sn_schedule, settings, RECORDS, setting),
    F_OF(sn_schedule, buffers, RECORDS, buffer),
    F_OF(sn_schedule, globals, RECORDS, global),
    F_OF(sn_schedule, inputs, RECORDS, input),
    F_OF(sn_schedule, specials, RECORDS, special),
    F(sn_schedule, loss, INT),
    F(sn_schedule, eval_loss, INT),
    F(sn_schedule, grad_norm, INT),
    F_OF(sn_schedule, gradients, RECORDS, output),
    F_OF(sn_schedule, predictions, RECORDS, output),
    F_OF(sn_schedule, programs, RECORDS, program),
    F_OF(sn_schedule, sequences, RECORDS, sequence),
};
TABLE(schedule, sn_schedule);

static const field schedules_fields[] = {F(sn_schedules, version, INT), F_OF(sn_schedules, classes, RECORDS, schedule)};
TABLE(schedules, sn_schedules);

// Any list: they all have this layout.
typedef struct list {
    void *items;
    size_t count;
} list;

static list list_at(const void *at) {
    list l;
    memcpy(&l, at, sizeof l);
    return l;
}

static void write_real(double value, sn_str *out) {
    bool plain = value - value == 0; // neither infinite nor NaN
    if (!plain) sn_str_putc(out, '"');
    sn_str_number(out, value, false);
    if (!plain) sn_str_putc(out, '"');
}

static void write_ints(const int64_t *values, size_t count, sn_str *out) {
    sn_str_putc(out, '[');
    for (size_t i = 0; i < count; i++) sn_str_printf(out, "%s%" PRId64, i ? "," : "", values[i]);
    sn_str_putc(out, ']');
}

static void write_text(const char *text, sn_str *out) {
    if (text) {
        sn_str_quote(out, text);
    } else {
        sn_str_puts(out, "null");
    }
}

static void write_view(const sn_view *view, sn_str *out) {
    if (view->buffer < 0) {
        sn_str_puts(out, "null");
    } else {
        write_ints((const int64_t[]){view->buffer, view->offset}, 2, out);
    }
}

static void write_record(const table *of, const void *record, int indent, sn_str *out);

static void write_records(const table *of, list records, int indent, sn_str *out) {
    sn_str_putc(out, '[');
    for (size_t i = 0; i < records.count; i++) {
        sn_str_printf(out, "%s\n%*s", i ? "," : "", indent, "");
        write_record(of, (const char *)records.items + i * of->bytes, indent + 1, out);
    }
    sn_str_putc(out, ']');
}

static void write_word(const field *f, const void *at, sn_str *out) {
    unsigned word;
    memcpy(&word, at, sizeof word);
    SN_CHECK(word < f->n);
    sn_str_quote(out, f->words[word]);
}

// Zeros at the end are left out.
static void write_array(const field *f, const int64_t *items, sn_str *out) {
    size_t count = f->n;
    while (count && items[count - 1] == 0) count--;
    write_ints(items, count, out);
}

static void write_texts(list texts, sn_str *out) {
    sn_str_putc(out, '[');
    for (size_t i = 0; i < texts.count; i++) {
        sn_str_puts(out, i ? ",\n  " : "\n  ");
        write_text(((const char *const *)texts.items)[i], out);
    }
    sn_str_putc(out, ']');
}

static void write_views(list views, sn_str *out) {
    sn_str_putc(out, '[');
    for (size_t i = 0; i < views.count; i++) {
        if (i) sn_str_putc(out, ',');
        write_view((const sn_view *)views.items + i, out);
    }
    sn_str_putc(out, ']');
}

static void write_field(const field *f, const void *at, int indent, sn_str *out) {
    switch (f->type) {
    case INT:
        sn_str_printf(out, "%" PRId64, *(const int64_t *)at);
        break;
    case REAL:
        write_real(*(const double *)at, out);
        break;
    case FLAG:
        sn_str_puts(out, *(const bool *)at ? "true" : "false");
        break;
    case TEXT:
        write_text(*(const char *const *)at, out);
        break;
    case WORD:
        write_word(f, at, out);
        break;
    case VIEW:
        write_view(at, out);
        break;
    case ARRAY:
        write_array(f, at, out);
        break;
    case DIMS:
        write_ints(list_at(at).items, list_at(at).count, out);
        break;
    case TEXTS:
        write_texts(list_at(at), out);
        break;
    case VIEWS:
        write_views(list_at(at), out);
        break;
    case RECORD:
        write_record(f->table, at, indent, out);
        break;
    case RECORDS:
        write_records(f->table, list_at(at), indent + 1, out);
        break;
    }
}

static void write_fields(const table *of, const void *record, int indent, sn_str *out) {
    for (size_t i = 0; i < of->count; i++) {
        const field *f = &of->fields[i];
        if (i) sn_str_puts(out, of == &schedule ? ",\n" : ", ");
        sn_str_quote(out, f->name);
        sn_str_puts(out, ": ");
        write_field(f, (const char *)record + f->offset, indent, out);
    }
}

static void write_record(const table *of, const void *record, int indent, sn_str *out) {
    sn_str_putc(out, '{');
    write_fields(of, record, indent, out);
    if (of->instr) {
        sn_instr_kind kind = ((const sn_instr *)record)->kind;
        sn_str_puts(out, ", ");
        write_fields(bodies[kind].table, (const char *)record + bodies[kind].offset, indent, out);
    }
    sn_str_putc(out, '}');
}

void sn_schedules_write(const sn_schedules *s, sn_str *out) {
    write_record(&schedules, s, 1, out);
    sn_str_putc(out, '\n');
}

static sn_status wrong(const field *f, const char *wanted) {
    return sn_status_make("schedule: '%s' is not %s", f->name, wanted);
}

static sn_status read_real(const field *f, const json_t *json, double *out) {
    static const struct {
        const char *text;
        double value;
    } special[] = {{"inf", __builtin_inf()}, {"-inf", -__builtin_inf()}, {"nan", __builtin_nan("")}};
    for (size_t i = 0; json_is_string(json) && i < 3; i++) {
        if (!strcmp(json_string_value(json), special[i].text)) return *out = special[i].value, SN_OK;
    }
    if (!json_is_number(json)) return wrong(f, "a number");
    *out = json_number_value(json);
    return SN_OK;
}

static sn_status read_text(const field *f, const json_t *json, sn_arena *arena, const char **out) {
    if (!json_is_string(json) && !json_is_null(json)) return wrong(f, "a text");
    *out = json_is_string(json) ? sn_arena_strdup(arena, json_string_value(json)) : NULL;
    return SN_OK;
}

static sn_status read_word(const field *f, const json_t *json, void *out) {
    for (unsigned word = 0; json_is_string(json) && word < f->n; word++) {
        if (strcmp(json_string_value(json), f->words[word]) != 0) continue;
        memcpy(out, &word, sizeof word);
        return SN_OK;
    }
    return wrong(f, "one of its words");
}

static sn_status read_ints(const field *f, const json_t *json, size_t count, int64_t *out) {
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(json, i);
        if (!json_is_integer(item)) return wrong(f, "a list of integers");
        out[i] = json_integer_value(item);
    }
    return SN_OK;
}

static sn_status read_view(const field *f, const json_t *json, sn_view *out) {
    *out = SN_NO_VIEW;
    if (json_is_null(json)) return SN_OK;
    int64_t pair[2] = {0};
    if (!json_is_array(json) || json_array_size(json) != 2) return wrong(f, "[buffer, offset]");
    SN_TRY(read_ints(f, json, 2, pair));
    *out = (sn_view){pair[0], pair[1]};
    return SN_OK;
}

static sn_status read_record(const table *of, const char *what, const json_t *json, sn_arena *arena, void *out);

static sn_status read_items(const field *f, const json_t *json, sn_arena *arena, size_t bytes, void *items) {
    for (size_t i = 0; i < json_array_size(json); i++) {
        const json_t *item = json_array_get(json, i);
        void *to = (char *)items + i * bytes;
        switch (f->type) {
        case TEXTS:
            SN_TRY(read_text(f, item, arena, to));
            break;
        case VIEWS:
            SN_TRY(read_view(f, item, to));
            break;
        default:
            SN_TRY(read_record(f->table, f->name, item, arena, to));
            break;
        }
    }
    return SN_OK;
}

static sn_status read_list(const field *f, const json_t *json, sn_arena *arena, void *out) {
    if (!json_is_array(json)) return wrong(f, "a list");
    size_t bytes = f->type == DIMS    ? sizeof(int64_t)
                   : f->type == TEXTS ? sizeof(char *)
                   : f->type == VIEWS ? sizeof(sn_view)
                                      : f->table->bytes;
    list l = {.count = json_array_size(json)};
    l.items = l.count ? sn_arena_alloc(arena, l.count * bytes) : NULL;
    SN_TRY(f->type == DIMS ? read_ints(f, json, l.count, l.items) : read_items(f, json, arena, bytes, l.items));
    memcpy(out, &l, sizeof l);
    return SN_OK;
}

static sn_status read_field(const field *f, const json_t *json, sn_arena *arena, void *out) {
    switch (f->type) {
    case INT:
        if (!json_is_integer(json)) return wrong(f, "an integer");
        *(int64_t *)out = json_integer_value(json);
        return SN_OK;
    case REAL:
        return read_real(f, json, out);
    case FLAG:
        if (!json_is_boolean(json)) return wrong(f, "true or false");
        *(bool *)out = json_is_true(json);
        return SN_OK;
    case TEXT:
        return read_text(f, json, arena, out);
    case WORD:
        return read_word(f, json, out);
    case VIEW:
        return read_view(f, json, out);
    case ARRAY:
        if (!json_is_array(json) || json_array_size(json) > f->n) return wrong(f, "a short list of integers");
        return read_ints(f, json, json_array_size(json), out);
    case RECORD:
        return read_record(f->table, f->name, json, arena, out);
    case DIMS:
    case TEXTS:
    case VIEWS:
    case RECORDS:
        return read_list(f, json, arena, out);
    }
    SN_BUG("field type");
}

static sn_status read_fields(const table *of, const char *what, const json_t *json, sn_arena *arena, void *out) {
    for (size_t i = 0; i < of->count; i++) {
        const field *f = &of->fields[i];
        const json_t *value = json_object_get(json, f->name);
        if (!value) return sn_status_make("schedule: '%s' is missing in an item of '%s'", f->name, what);
        SN_TRY(read_field(f, value, arena, (char *)out + f->offset));
    }
    return SN_OK;
}

static sn_status read_record(const table *of, const char *what, const json_t *json, sn_arena *arena, void *out) {
    if (!json_is_object(json)) return sn_status_make("schedule: an item of '%s' is not an object", what);
    SN_TRY(read_fields(of, what, json, arena, out));
    if (!of->instr) return SN_OK;
    sn_instr_kind kind = ((sn_instr *)out)->kind;
    return read_fields(bodies[kind].table, sn_instr_name(kind), json, arena, (char *)out + bodies[kind].offset);
}

sn_status sn_schedules_read(const char *text, size_t length, sn_arena *arena, sn_schedules *out) {
    json_error_t error;
    json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!json) return sn_status_make("schedule: line %d: %s", error.line, error.text);
    sn_schedules read = {0};
    sn_status status = SN_OK;
    const json_t *version = json_object_get(json, "version");
    if (!json_is_integer(version) || json_integer_value(version) != SN_SCHEDULE_VERSION) {
        status = sn_status_make("schedule: not of version %d, which this runtime reads", SN_SCHEDULE_VERSION);
    } else {
        status = read_record(&schedules, "schedules", json, arena, &read);
    }
    json_decref(json);
    if (!status) status = sn_schedules_check(&read);
    if (!status) *out = read;
    return status;
}
