#include "frontend/wire.h"

// How a field is treated.
typedef enum field_kind {
    NUMBER,  // varint or fixed: copied
    NUMBERS, // repeated numbers, packed or not: copied
    BYTES,   // string or bytes: copied
    MESSAGE, // walked
    DATA,    // tensor data: replaced by a ticket
} field_kind;

typedef enum message_kind {
    MODEL,
    GRAPH,
    NODE,
    ATTRIBUTE,
    TENSOR,
    SPARSE_TENSOR,
    VALUE_INFO,
    TYPE,
    TYPE_TENSOR,
    TYPE_ELEMENT, // sequence or optional
    TYPE_MAP,
    SHAPE,
    DIMENSION,
    FUNCTION,
    TRAINING_INFO,
    OPSET,
    ENTRY,
    MESSAGE_KIND_COUNT
} message_kind;

typedef struct field {
    uint32_t number;
    field_kind kind;
    bool repeated;
    message_kind message; // of MESSAGE fields
} field;

enum { MAX_FIELDS = 18 };

#define ONE(number, message)                                                                                           \
    { number, MESSAGE, false, message }
#define MANY(number, message)                                                                                          \
    { number, MESSAGE, true, message }
#define PLAIN(number, kind)                                                                                            \
    { number, kind, true, MODEL }

static const struct {
    const char *name;
    field fields[MAX_FIELDS];
} schema[MESSAGE_KIND_COUNT] = {
    [MODEL] = {"ModelProto",
               {PLAIN(1, NUMBER), PLAIN(2, BYTES), PLAIN(3, BYTES), PLAIN(4, BYTES), PLAIN(5, NUMBER), ONE(7, GRAPH),
                MANY(8, OPSET), MANY(14, ENTRY), MANY(20, TRAINING_INFO), MANY(25, FUNCTION)}},
    [GRAPH] = {"GraphProto",
               {MANY(1, NODE), PLAIN(2, BYTES), MANY(5, TENSOR), MANY(11, VALUE_INFO), MANY(12, VALUE_INFO),
                MANY(13, VALUE_INFO), MANY(15, SPARSE_TENSOR)}},
    [NODE] = {"NodeProto",
              {PLAIN(1, BYTES), PLAIN(2, BYTES), PLAIN(3, BYTES), PLAIN(4, BYTES), MANY(5, ATTRIBUTE), PLAIN(7, BYTES),
               PLAIN(8, BYTES), MANY(9, ENTRY)}},
    [ATTRIBUTE] = {"AttributeProto",
                   {PLAIN(1, BYTES), PLAIN(2, NUMBER), PLAIN(3, NUMBER), PLAIN(4, BYTES), ONE(5, TENSOR), ONE(6, GRAPH),
                    PLAIN(7, NUMBERS), PLAIN(8, NUMBERS), PLAIN(9, BYTES), MANY(10, TENSOR), MANY(11, GRAPH),
                    ONE(14, TYPE), MANY(15, TYPE), PLAIN(20, NUMBER), PLAIN(21, BYTES), ONE(22, SPARSE_TENSOR),
                    MANY(23, SPARSE_TENSOR)}},
    [TENSOR] = {"TensorProto",
                {PLAIN(1, NUMBERS), PLAIN(2, NUMBER), PLAIN(4, DATA), PLAIN(5, DATA), PLAIN(6, DATA), PLAIN(7, DATA),
                 PLAIN(8, BYTES), PLAIN(9, DATA), PLAIN(10, DATA), PLAIN(11, DATA), MANY(13, ENTRY),
                 PLAIN(14, NUMBER)}},
    [SPARSE_TENSOR] = {"SparseTensorProto", {ONE(1, TENSOR), ONE(2, TENSOR), PLAIN(3, NUMBERS)}},
    [VALUE_INFO] = {"ValueInfoProto", {PLAIN(1, BYTES), ONE(2, TYPE), MANY(4, ENTRY)}},
    [TYPE] = {"TypeProto",
              {ONE(1, TYPE_TENSOR), ONE(4, TYPE_ELEMENT), ONE(5, TYPE_MAP), PLAIN(6, BYTES), ONE(8, TYPE_TENSOR),
               ONE(9, TYPE_ELEMENT)}},
    [TYPE_TENSOR] = {"TypeProto.Tensor", {PLAIN(1, NUMBER), ONE(2, SHAPE)}},
    [TYPE_ELEMENT] = {"TypeProto.Sequence", {ONE(1, TYPE)}},
    [TYPE_MAP] = {"TypeProto.Map", {PLAIN(1, NUMBER), ONE(2, TYPE)}},
    [SHAPE] = {"TensorShapeProto", {MANY(1, DIMENSION)}},
    [DIMENSION] = {"TensorShapeProto.Dimension", {PLAIN(1, NUMBER), PLAIN(2, BYTES)}},
    [FUNCTION] = {"FunctionProto",
                  {PLAIN(1, BYTES), PLAIN(4, BYTES), PLAIN(5, BYTES), PLAIN(6, BYTES), MANY(7, NODE), MANY(9, OPSET),
                   PLAIN(10, BYTES), MANY(11, ATTRIBUTE), PLAIN(13, BYTES)}},
    [TRAINING_INFO] = {"TrainingInfoProto", {ONE(1, GRAPH), ONE(2, GRAPH), MANY(3, ENTRY), MANY(4, ENTRY)}},
    [OPSET] = {"OperatorSetIdProto", {PLAIN(1, BYTES), PLAIN(2, NUMBER)}},
    [ENTRY] = {"StringStringEntryProto", {PLAIN(1, BYTES), PLAIN(2, BYTES)}},
};

// Wire types of protocol buffers.
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_LENGTH = 2, WIRE_FIXED32 = 5 };

typedef struct walk {
    const uint8_t *data;
    size_t at;
    size_t items;
    message_kind message; // being walked, for messages
    const char *file;
    sn_diags *diags;
    sn_str *out;
} walk;

static bool malformed(walk *w, const char *what) {
    sn_error(w->diags, "E0101", w->file, "the file is damaged or not an ONNX model; export or download it again",
             "malformed %s at byte %zu: %s", schema[w->message].name, w->at, what);
    return false;
}

static bool too_large(walk *w, const char *what) {
    sn_error(w->diags, "E0102", w->file,
             "a model that needs more than this is not supported; is the file what it claims to be?",
             "the model exceeds a limit at byte %zu of the file: %s", w->at, what);
    return false;
}

static bool read_varint(walk *w, size_t end, uint64_t *out) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (w->at >= end) return malformed(w, "a number is cut off");
        uint8_t byte = w->data[w->at++];
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (!(byte & 0x80)) {
            *out = value;
            return true;
        }
    }
    return malformed(w, "a number is longer than 10 bytes");
}

static void write_varint(sn_str *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) sn_str_putc(out, (char)(value | 0x80));
    sn_str_putc(out, (char)value);
}

// A length whose value is filled in later: always five bytes, which a reader takes as well as the shortest form.
static size_t reserve_length(sn_str *out) {
    sn_str_append(out, "\x80\x80\x80\x80\x00", 5);
    return out->length;
}

static void fill_length(sn_str *out, size_t start) {
    size_t length = out->length - start;
    for (int i = 0; i < 5; i++) {
        uint8_t byte = (uint8_t)((length >> (7 * i)) & 0x7f);
        out->data[start - 5 + (size_t)i] = (char)(i < 4 ? byte | 0x80 : byte);
    }
}

static const field *find_field(message_kind message, uint64_t number) {
    for (const field *f = schema[message].fields; f < schema[message].fields + MAX_FIELDS && f->number; f++)
        if (f->number == number) return f;
    return NULL;
}

// The extent of a field's payload, whose tag has been read; w->at moves behind it.
static bool payload(walk *w, size_t end, unsigned wire, size_t *start, size_t *length) {
    uint64_t value;
    *start = w->at;
    switch (wire) {
    case WIRE_VARINT:
        if (!read_varint(w, end, &value)) return false;
        *length = w->at - *start;
        return true;
    case WIRE_FIXED64:
    case WIRE_FIXED32:
        *length = wire == WIRE_FIXED64 ? 8 : 4;
        break;
    case WIRE_LENGTH:
        if (!read_varint(w, end, &value)) return false;
        *start = w->at;
        if (value > end - w->at) return malformed(w, "a field reaches beyond its message");
        *length = (size_t)value;
        break;
    default:
        return malformed(w, "unknown wire type");
    }
    if (*length > end - w->at) return malformed(w, "a field is cut off");
    w->at += *length;
    return true;
}

static void write_fixed64(sn_str *out, uint32_t number, uint64_t value) {
    write_varint(out, (uint64_t)number << 3 | WIRE_FIXED64);
    for (int i = 0; i < 8; i++) sn_str_putc(out, (char)(value >> (8 * i)));
}

static void write_ticket(sn_str *out, uint32_t number, size_t start, size_t length) {
    write_varint(out, 5001u << 3 | WIRE_VARINT);
    write_varint(out, number);
    write_fixed64(out, 5002, start);
    write_fixed64(out, 5003, length);
}

static size_t count_varints(const uint8_t *data, size_t length) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += !(data[i] & 0x80);
    return count;
}

// Whether the wire type is one that the field can have.
static bool fits(const field *f, unsigned wire) {
    if (f->kind == BYTES || f->kind == MESSAGE) return wire == WIRE_LENGTH;
    if (f->kind == NUMBER) return wire != WIRE_LENGTH;
    return true;
}

static bool walk_message(walk *w, message_kind message, size_t end, int depth);

static bool walk_field(walk *w, const field *f, unsigned wire, uint32_t *seen, message_kind message, size_t end,
                       int depth) {
    size_t start, length;
    if (f->kind == MESSAGE) {
        uint32_t bit = 1u << (f - schema[message].fields);
        if (!f->repeated && (*seen & bit)) return malformed(w, "a field that may occur once occurs twice");
        *seen |= bit;
        if (!payload(w, end, wire, &start, &length)) return false;
        w->at = start;
        write_varint(w->out, (uint64_t)f->number << 3 | WIRE_LENGTH);
        size_t filled = reserve_length(w->out);
        if (!walk_message(w, f->message, start + length, depth + 1)) return false;
        w->message = message;
        fill_length(w->out, filled);
        return true;
    }
    if (!payload(w, end, wire, &start, &length)) return false;
    if (f->kind == DATA) {
        write_ticket(w->out, f->number, start, length);
        return true;
    }
    if (f->kind == NUMBERS && wire == WIRE_LENGTH) w->items += count_varints(w->data + start, length);
    write_varint(w->out, (uint64_t)f->number << 3 | wire);
    if (wire == WIRE_LENGTH) write_varint(w->out, length);
    sn_str_append(w->out, (const char *)w->data + start, length);
    return true;
}

static bool walk_message(walk *w, message_kind message, size_t end, int depth) {
    w->message = message;
    if (depth > SN_WIRE_MAX_DEPTH) return too_large(w, "messages are nested more than 64 deep");
    uint32_t seen = 0;
    while (w->at < end) {
        uint64_t tag;
        if (!read_varint(w, end, &tag)) return false;
        unsigned wire = tag & 7;
        if (tag >> 3 == 0 || tag >> 32) return malformed(w, "a field number is out of range");
        const field *f = find_field(message, tag >> 3);
        if (!f) {
            size_t start, length;
            if (!payload(w, end, wire, &start, &length)) return false;
            continue;
        }
        if (!fits(f, wire)) return malformed(w, "a field has the wrong wire type");
        if (++w->items > SN_WIRE_MAX_ITEMS) return too_large(w, "more than 8 million items");
        if (!walk_field(w, f, wire, &seen, message, end, depth)) return false;
        if (w->out->length > SN_WIRE_MAX_BYTES) return too_large(w, "more than 512 MiB besides tensor data");
    }
    return true;
}

bool sn_wire_skim(const uint8_t *data, size_t bytes, sn_wire_root root, const char *file, sn_diags *diags,
                  sn_str *out) {
    walk w = {.data = data, .file = file, .diags = diags, .out = out};
    return walk_message(&w, root == SN_WIRE_MODEL ? MODEL : TENSOR, bytes, 1);
}
