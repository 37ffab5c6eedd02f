// Writes a model with other weights. Everything but the initializers is copied byte for byte from the source, so what
// this compiler does not know (metadata, doc strings, unknown fields) survives.
#include "frontend/hazards.h"

#include <string.h>

enum {
    SMALLEST_EXTERNAL = 1024,   // bytes; smaller tensors stay in the model file
    LARGEST_MODEL = 2000000000, // bytes; protobuf's limit is 2^31 - 1
    ALIGNMENT = 4096,           // of tensors in the data file, so that they can be mapped
};

enum { MODEL_GRAPH = 7, GRAPH_NODE = 1, GRAPH_INITIALIZER = 5 };

typedef struct piece {
    const void *data;
    uint64_t bytes;
} piece;

typedef struct message {
    SN_VEC(piece) pieces;
    uint64_t bytes;
} message;

typedef struct writer {
    sn_onnx_model *model;
    int n;
    const sn_onnx_replacement *replacements;
    sn_arena arena;
    bool external;
    const char *data_name; // of the data file, beside the model
    SN_VEC(piece) data;    // what goes into it, padded
    uint64_t data_bytes;
    message graph, whole;
} writer;

static void add_bytes(message *m, const void *data, uint64_t bytes) {
    if (!bytes) return;
    piece *last = m->pieces.count ? &sn_vec_last(&m->pieces) : NULL;
    if (last && (const char *)last->data + last->bytes == data)
        last->bytes += bytes;
    else
        sn_vec_push(&m->pieces, (piece){data, bytes});
    m->bytes += bytes;
}

static void add_varint(writer *w, message *m, uint64_t value) {
    uint8_t *out = sn_arena_alloc(&w->arena, 10);
    int count = 0;
    for (; value >= 0x80; value >>= 7) out[count++] = (uint8_t)(value | 0x80);
    out[count++] = (uint8_t)value;
    add_bytes(m, out, (uint64_t)count);
}

static void add_header(writer *w, message *m, unsigned field, uint64_t bytes) {
    add_varint(w, m, (uint64_t)field << 3 | 2);
    add_varint(w, m, bytes);
}

static void add_message(writer *w, message *m, unsigned field, message *inner) {
    add_header(w, m, field, inner->bytes);
    for (size_t i = 0; i < inner->pieces.count; i++)
        add_bytes(m, inner->pieces.data[i].data, inner->pieces.data[i].bytes);
    sn_vec_free(&inner->pieces);
}

static void add_text(writer *w, message *m, unsigned field, const char *text) {
    add_header(w, m, field, strlen(text));
    add_bytes(m, sn_arena_strdup(&w->arena, text), strlen(text));
}

// A field of the source; the pre-pass has checked that it is well-formed.
typedef struct cursor {
    const uint8_t *at, *end;
    const uint8_t *start, *body; // of the field, of its payload
    unsigned number;
} cursor;

static uint64_t read_varint(cursor *c) {
    uint64_t value = 0;
    for (int shift = 0; c->at < c->end; shift += 7) {
        uint8_t byte = *c->at++;
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (!(byte & 0x80)) break;
    }
    return value;
}

static bool next_field(cursor *c) {
    if (c->at >= c->end) return false;
    c->start = c->at;
    uint64_t tag = read_varint(c), bytes;
    c->number = (unsigned)(tag >> 3);
    c->body = c->at;
    switch (tag & 7) {
    case 0:
        read_varint(c);
        return true;
    case 1:
        bytes = 8;
        break;
    case 5:
        bytes = 4;
        break;
    default:
        bytes = read_varint(c);
        c->body = c->at;
    }
    SN_CHECK(bytes <= (uint64_t)(c->end - c->at));
    c->at += bytes;
    return true;
}

static bool holds_data(unsigned field) {
    return (field >= 4 && field <= 7) || (field >= 9 && field <= 11) || field == 13 || field == 14;
}

static void add_external(writer *w, message *tensor, const void *data, uint64_t bytes) {
    static const char zeros[ALIGNMENT];
    uint64_t gap = (ALIGNMENT - w->data_bytes % ALIGNMENT) % ALIGNMENT;
    if (gap) sn_vec_push(&w->data, (piece){zeros, gap});
    uint64_t offset = w->data_bytes + gap;
    sn_vec_push(&w->data, (piece){data, bytes});
    w->data_bytes = offset + bytes;
    const char *entries[][2] = {{"location", w->data_name},
                                {"offset", sn_arena_printf(&w->arena, "%llu", (unsigned long long)offset)},
                                {"length", sn_arena_printf(&w->arena, "%llu", (unsigned long long)bytes)}};
    for (int i = 0; i < 3; i++) {
        message entry = {0};
        add_text(w, &entry, 1, entries[i][0]);
        add_text(w, &entry, 2, entries[i][1]);
        add_message(w, tensor, 13, &entry);
    }
    add_varint(w, tensor, 14 << 3);
    add_varint(w, tensor, 1);
}

static void add_data(writer *w, message *tensor, const void *data, uint64_t bytes) {
    if (w->external && bytes >= SMALLEST_EXTERNAL) {
        add_external(w, tensor, data, bytes);
        return;
    }
    add_header(w, tensor, 9, bytes);
    add_bytes(tensor, data, bytes);
}

static const void *find_replacement(const writer *w, const char *name) {
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->replacements[i].name, name) == 0) return w->replacements[i].data;
    return NULL;
}

static const void *transpose(writer *w, const char *data, sn_type type) {
    size_t size = sn_dtype_bytes(type.dtype);
    char *out = sn_arena_alloc(&w->arena, (size_t)sn_type_bytes(type));
    for (int64_t r = 0; r < type.dim[0]; r++)
        for (int64_t c = 0; c < type.dim[1]; c++)
            memcpy(out + (size_t)(r * type.dim[1] + c) * size, data + (size_t)(c * type.dim[0] + r) * size, size);
    return out;
}

// New data of an initializer; NULL when it stays as it is.
static const void *new_data(writer *w, const sn_onnx_weight *weight) {
    const void *data = find_replacement(w, weight->name);
    const sn_tie *tie = sn_hazards_tie(w->model, weight->name);
    if (data || !tie) return data;
    data = find_replacement(w, tie->of);
    return data && tie->transposed ? transpose(w, data, weight->type) : data;
}

static sn_status source_data(writer *w, const Onnx__TensorProto *proto, const sn_onnx_weight *weight,
                             const void **out) {
    sn_diags diags = {0};
    sn_source source;
    sn_status status = SN_OK;
    if (weight->problem)
        status = sn_status_make("the initializer '%s': %s", weight->name, weight->problem);
    else if (!sn_model_tensor(w->model, proto, weight->type, weight->name, &w->arena, &diags, &source))
        status = sn_status_make("%s", diags.items[0].message);
    else
        *out = source.data;
    sn_diags_free(&diags);
    return status;
}

static sn_status add_initializer(writer *w, size_t index, const cursor *field) {
    const Onnx__TensorProto *proto = w->model->proto->graph->initializer[index];
    const sn_onnx_weight *weight = &w->model->info.weights[index];
    const void *data = weight->problem ? NULL : new_data(w, weight);
    bool moves = w->external && !weight->problem && sn_type_bytes(weight->type) >= SMALLEST_EXTERNAL;
    if (!data && !weight->external && !moves) {
        add_bytes(&w->graph, field->start, (uint64_t)(field->at - field->start));
        return SN_OK;
    }
    if (!data) SN_TRY(source_data(w, proto, weight, &data));
    message tensor = {0};
    cursor inner = {.at = field->body, .end = field->at};
    while (next_field(&inner))
        if (!holds_data(inner.number)) add_bytes(&tensor, inner.start, (uint64_t)(inner.at - inner.start));
    add_data(w, &tensor, data, (uint64_t)sn_type_bytes(weight->type));
    add_message(w, &w->graph, GRAPH_INITIALIZER, &tensor);
    return SN_OK;
}

// The merge that an Identity node stands for, when its parameter has got values of its own.
static const sn_merge *merge_of(writer *w, const Onnx__NodeProto *node) {
    if (node->n_output != 1) return NULL;
    const sn_merge *merge = sn_hazards_merge(w->model, node->output[0]);
    return merge && find_replacement(w, merge->name) ? merge : NULL;
}

static void add_unmerged(writer *w, const sn_merge *merge) {
    const Onnx__TensorProto *of = sn_map_get(&w->model->weights, merge->of);
    message tensor = {0};
    sn_type type;
    if (sn_tensor_proto_type(of, &w->arena, &type)) return;
    for (int i = 0; i < type.rank; i++) {
        add_varint(w, &tensor, 1 << 3);
        add_varint(w, &tensor, (uint64_t)type.dim[i]);
    }
    add_varint(w, &tensor, 2 << 3);
    add_varint(w, &tensor, (uint64_t)of->data_type);
    add_text(w, &tensor, 8, merge->name);
    add_data(w, &tensor, find_replacement(w, merge->name), (uint64_t)sn_type_bytes(type));
    add_message(w, &w->graph, GRAPH_INITIALIZER, &tensor);
}

static sn_status build_graph(writer *w, const cursor *graph) {
    cursor c = {.at = graph->body, .end = graph->at};
    size_t n_nodes = 0, n_initializers = 0;
    while (next_field(&c)) {
        if (c.number == GRAPH_INITIALIZER) {
            SN_TRY(add_initializer(w, n_initializers++, &c));
            continue;
        }
        const sn_merge *merge = NULL;
        if (c.number == GRAPH_NODE) merge = merge_of(w, w->model->proto->graph->node[n_nodes++]);
        if (merge)
            add_unmerged(w, merge);
        else
            add_bytes(&w->graph, c.start, (uint64_t)(c.at - c.start));
    }
    return SN_OK;
}

static sn_status build(writer *w) {
    cursor c = {.at = w->model->file.data, .end = w->model->file.data + w->model->file.bytes};
    while (next_field(&c)) {
        if (c.number != MODEL_GRAPH) {
            add_bytes(&w->whole, c.start, (uint64_t)(c.at - c.start));
            continue;
        }
        SN_TRY(build_graph(w, &c));
        add_message(w, &w->whole, MODEL_GRAPH, &w->graph);
    }
    return SN_OK;
}

static void write_pieces(FILE *stream, const piece *pieces, size_t count) {
    for (size_t i = 0; i < count; i++) // an error stays with the stream until the commit
        if (fwrite(pieces[i].data, 1, pieces[i].bytes, stream) != pieces[i].bytes) return;
}

static sn_status write_data(writer *w, const char *path) {
    sn_atomic_file data;
    SN_TRY(sn_atomic_open(path, &data));
    write_pieces(data.stream, w->data.data, w->data.count);
    return sn_atomic_commit(&data);
}

// The data takes its place once there was room for the model too.
static sn_status write_files(writer *w, const char *path, const char *data_path) {
    sn_atomic_file model;
    SN_TRY(sn_atomic_open(path, &model));
    write_pieces(model.stream, w->whole.pieces.data, w->whole.pieces.count);
    sn_status status = SN_OK;
    if (fflush(model.stream) == 0 && w->data.count) status = write_data(w, data_path);
    if (!status) return sn_atomic_commit(&model);
    sn_atomic_discard(&model);
    return status;
}

static bool needs_data_file(const sn_onnx_model *model) {
    for (size_t i = 0; i < model->info.n_weights; i++)
        if (model->info.weights[i].external) return true;
    return model->file.bytes > LARGEST_MODEL;
}

sn_status sn_onnx_export(const sn_onnx_model *model, int n, const sn_onnx_replacement *replacements, const char *path) {
    writer w = {.model = (sn_onnx_model *)(uintptr_t)model, .n = n, .replacements = replacements};
    const char *slash = strrchr(path, '/'), *data_path = sn_arena_printf(&w.arena, "%s.data", path);
    w.data_name = sn_arena_printf(&w.arena, "%s.data", slash ? slash + 1 : path);
    w.external = needs_data_file(model);
    sn_status status = build(&w);
    if (!status) status = write_files(&w, path, data_path);
    sn_vec_free(&w.data);
    sn_vec_free(&w.graph.pieces);
    sn_vec_free(&w.whole.pieces);
    sn_arena_free(&w.arena);
    return status;
}
