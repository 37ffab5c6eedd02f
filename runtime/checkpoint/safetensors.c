#include "runtime/checkpoint/safetensors.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100 << 20, MAX_RANK = 32 };

static uint64_t load_u64(const uint8_t *p) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | p[i];
    return value;
}

static const char *read_notes(const json_t *json, sn_safetensors *out) {
    if (!json_is_object(json)) return "__metadata__ is not an object";
    out->notes.items = SN_NEW_N(&out->arena, sn_tensor_note, json_object_size(json) + 1);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        if (!json_is_string(value)) return "__metadata__ holds something else than text";
        out->notes.items[out->notes.count++] =
            (sn_tensor_note){sn_arena_strdup(&out->arena, key), sn_arena_strdup(&out->arena, json_string_value(value))};
    }
    return NULL;
}

static const char *read_shape(const json_t *json, sn_arena *arena, sn_dims *out, int64_t *elements) {
    if (!json_is_array(json) || json_array_size(json) > MAX_RANK) return "a shape is malformed";
    out->count = json_array_size(json);
    out->items = SN_NEW_N(arena, int64_t, out->count + 1);
    *elements = 1;
    for (size_t i = 0; i < out->count; i++) {
        const json_t *size = json_array_get(json, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) return "a shape is malformed";
        out->items[i] = json_integer_value(size);
        if (__builtin_mul_overflow(*elements, out->items[i], elements)) return "a tensor is impossibly large";
    }
    return NULL;
}

static const char *read_entry(const char *name, const json_t *json, sn_safetensors *out, const uint8_t *data,
                              uint64_t data_bytes) {
    const json_t *dtype = json_object_get(json, "dtype"), *offsets = json_object_get(json, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    sn_tensor_entry e = {.name = sn_arena_strdup(&out->arena, name)};
    if (!json_is_string(dtype)) return "a tensor has no type";
    e.dtype = sn_dtype_from_safetensors(json_string_value(dtype));
    if (e.dtype == SN_DTYPE_COUNT) return "a tensor has an unknown type";
    int64_t elements;
    const char *wrong = read_shape(json_object_get(json, "shape"), &out->arena, &e.shape, &elements);
    if (wrong) return wrong;
    if (!json_is_integer(first) || !json_is_integer(end) || json_array_size(offsets) != 2)
        return "a tensor has no byte range";
    int64_t begin = json_integer_value(first), stop = json_integer_value(end), bytes;
    if (__builtin_mul_overflow(elements, (int64_t)sn_dtype_bytes(e.dtype), &bytes))
        return "a tensor is impossibly large";
    if (begin < 0 || stop < begin || (uint64_t)stop > data_bytes) return "a tensor lies outside the file";
    if (stop - begin != bytes) return "a byte range does not have its tensor's size";
    e.data = data + begin, e.bytes = (size_t)bytes;
    out->tensors.items[out->tensors.count++] = e;
    return NULL;
}

static int by_address(const void *a, const void *b) {
    const sn_tensor_entry *x = a, *y = b;
    return x->data != y->data ? (x->data < y->data ? -1 : 1) : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

// The format wants the data covered without holes or overlaps.
static const char *check_cover(const sn_safetensors *f, const uint8_t *data, uint64_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < f->tensors.count; i++) {
        if (f->tensors.items[i].data != at) return "tensors overlap or leave holes";
        at += f->tensors.items[i].bytes;
    }
    return at == data + bytes ? NULL : "holds bytes that belong to no tensor";
}

static const char *parse(sn_safetensors *out) {
    const uint8_t *d = out->file.data;
    if (out->file.bytes < 8) return "is too short";
    uint64_t length = load_u64(d);
    if (length > MAX_HEADER || length > out->file.bytes - 8) return "has a header longer than the file";
    json_error_t error;
    json_t *json = json_loadb((const char *)d + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(json)) {
        json_decref(json);
        return "has a malformed header";
    }
    out->tensors.items = SN_NEW_N(&out->arena, sn_tensor_entry, json_object_size(json) + 1);
    const char *key, *wrong = NULL;
    json_t *value;
    json_object_foreach(json, key, value) {
        wrong = !strcmp(key, "__metadata__")
                    ? read_notes(value, out)
                    : read_entry(key, value, out, d + 8 + length, out->file.bytes - 8 - length);
        if (wrong) break;
    }
    json_decref(json);
    if (wrong) return wrong;
    if (out->tensors.count) qsort(out->tensors.items, out->tensors.count, sizeof *out->tensors.items, by_address);
    return check_cover(out, d + 8 + length, out->file.bytes - 8 - length);
}

sn_status sn_safetensors_open(const char *path, sn_safetensors *out) {
    sn_safetensors file = {0};
    SN_TRY(sn_file_map(path, &file.file));
    const char *wrong = parse(&file);
    if (wrong) {
        sn_safetensors_close(&file);
        return sn_status_make("'%s' is not a safetensors file: %s", path, wrong);
    }
    *out = file;
    return SN_OK;
}

void sn_safetensors_close(sn_safetensors *file) {
    sn_file_unmap(&file->file);
    sn_arena_free(&file->arena);
    *file = (sn_safetensors){0};
}

const sn_tensor_entry *sn_safetensors_find(const sn_safetensors *file, const char *name) {
    for (size_t i = 0; i < file->tensors.count; i++) {
        if (!strcmp(file->tensors.items[i].name, name)) return &file->tensors.items[i];
    }
    return NULL;
}

const char *sn_safetensors_note(const sn_safetensors *file, const char *key) {
    for (size_t i = 0; i < file->notes.count; i++) {
        if (!strcmp(file->notes.items[i].key, key)) return file->notes.items[i].value;
    }
    return NULL;
}

static void write_header(const sn_tensor_entry *entries, size_t count, const sn_tensor_note *notes, size_t n_notes,
                         sn_str *out, uint64_t *data_bytes) {
    sn_str_putc(out, '{');
    for (size_t i = 0; i < n_notes; i++) {
        sn_str_puts(out, i ? "," : "\"__metadata__\":{");
        sn_str_quote(out, notes[i].key);
        sn_str_putc(out, ':');
        sn_str_quote(out, notes[i].value);
    }
    if (n_notes) sn_str_putc(out, '}');
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = sn_dtype_bytes(entries[i].dtype);
        if (i || n_notes) sn_str_putc(out, ',');
        sn_str_quote(out, entries[i].name);
        sn_str_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", sn_dtype_safetensors(entries[i].dtype));
        for (size_t k = 0; k < entries[i].shape.count; k++) {
            sn_str_printf(out, "%s%" PRId64, k ? "," : "", entries[i].shape.items[k]);
            bytes *= (uint64_t)entries[i].shape.items[k];
        }
        sn_str_printf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + bytes);
        at += bytes;
    }
    sn_str_putc(out, '}');
    while ((out->length + 8) % 64) sn_str_putc(out, ' '); // so that readers find aligned data
    *data_bytes = at;
}

sn_status sn_safetensors_create(const char *path, const sn_tensor_entry *entries, size_t count,
                                const sn_tensor_note *notes, size_t n_notes, sn_safetensors_writer *out) {
    sn_safetensors_writer writer = {0};
    SN_TRY(sn_atomic_open(path, &writer.file));
    sn_str header = {0};
    write_header(entries, count, notes, n_notes, &header, &writer.missing);
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)header.length >> 8 * i);
    fwrite(length, 1, sizeof length, writer.file.stream); // errors stay with the stream until the commit
    fwrite(header.data, 1, header.length, writer.file.stream);
    sn_str_free(&header);
    *out = writer;
    return SN_OK;
}

void sn_safetensors_append(void *user, const void *data, size_t bytes) {
    sn_safetensors_writer *writer = user;
    SN_CHECK(bytes <= writer->missing);
    if (bytes) fwrite(data, 1, bytes, writer->file.stream);
    writer->missing -= bytes;
}

sn_status sn_safetensors_commit(sn_safetensors_writer *writer) {
    SN_CHECK(writer->missing == 0);
    return sn_atomic_commit(&writer->file);
}

void sn_safetensors_discard(sn_safetensors_writer *writer) {
    sn_atomic_discard(&writer->file);
}
