#include "frontend/tensor.h"

#include <string.h>

// Field numbers of TensorProto that hold data.
enum {
    FLOAT_DATA = 4,
    INT32_DATA = 5,
    STRING_DATA = 6,
    INT64_DATA = 7,
    RAW_DATA = 9,
    DOUBLE_DATA = 10,
    UINT64_DATA = 11
};

enum { EXTERNAL = 1 }; // TensorProto.DataLocation

static const struct {
    uint8_t field; // where elements are when there is no raw_data
    bool plain;    // its payload bytes are the elements
} home[SN_DTYPE_COUNT] = {
    [SN_F32] = {FLOAT_DATA, true},   [SN_F64] = {DOUBLE_DATA, true},  [SN_F16] = {INT32_DATA, false},
    [SN_BF16] = {INT32_DATA, false}, [SN_I8] = {INT32_DATA, false},   [SN_I16] = {INT32_DATA, false},
    [SN_I32] = {INT32_DATA, false},  [SN_I64] = {INT64_DATA, false},  [SN_U8] = {INT32_DATA, false},
    [SN_U16] = {INT32_DATA, false},  [SN_U32] = {UINT64_DATA, false}, [SN_U64] = {UINT64_DATA, false},
    [SN_BOOL] = {INT32_DATA, false},
};

static const char *const onnx_names[] = {
    "undefined", "float",      "uint8",      "int8",         "uint16",         "int16",      "int32",
    "int64",     "string",     "bool",       "float16",      "double",         "uint32",     "uint64",
    "complex64", "complex128", "bfloat16",   "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
    "uint4",     "int4",       "float4e2m1", "float8e8m0",   "uint2",          "int2",
};

const char *sn_onnx_type_name(int onnx) {
    size_t count = sizeof onnx_names / sizeof *onnx_names;
    return onnx >= 0 && (size_t)onnx < count ? onnx_names[onnx] : "unknown";
}

const char *sn_tensor_proto_type(const Onnx__TensorProto *proto, sn_arena *arena, sn_type *out) {
    sn_dtype dtype = sn_dtype_from_onnx(proto->data_type);
    if (dtype == SN_DTYPE_COUNT)
        return sn_arena_printf(arena, "element type %s (%d) is not supported", sn_onnx_type_name(proto->data_type),
                               proto->data_type);
    if (proto->n_dims > SN_MAX_RANK)
        return sn_arena_printf(arena, "rank %zu is more than the supported %d", proto->n_dims, SN_MAX_RANK);
    for (size_t i = 0; i < proto->n_dims; i++)
        if (proto->dims[i] < 0) return "a dim is negative";
    if (!sn_shape_is_valid((int64_t)proto->n_dims, proto->dims)) return "it has more than 2^48 elements";
    *out = sn_type_make(dtype, (int)proto->n_dims, proto->dims);
    return NULL;
}

bool sn_tensor_proto_is_external(const Onnx__TensorProto *proto) {
    return proto->data_location == EXTERNAL;
}

// The pieces that came from one field.
static int pieces_of(const Onnx__TensorProto *proto, uint32_t field, size_t *first, uint64_t *bytes) {
    int count = 0;
    *bytes = 0;
    for (size_t i = 0; i < proto->n_data_field; i++) {
        if (proto->data_field[i] != field) continue;
        if (!count++) *first = i;
        *bytes += proto->data_length[i];
    }
    return count;
}

// Elements that the file stores as they are, possibly in several pieces.
static const char *plain_data(const Onnx__TensorProto *proto, uint32_t field, sn_type type, const sn_tensor_file *file,
                              sn_arena *arena, sn_source *out) {
    size_t first = 0;
    uint64_t bytes, wanted = (uint64_t)sn_type_bytes(type);
    int pieces = pieces_of(proto, field, &first, &bytes);
    if (bytes != wanted)
        return sn_arena_printf(arena, "its data has %llu bytes where its shape needs %llu", (unsigned long long)bytes,
                               (unsigned long long)wanted);
    if (pieces == 1) {
        uint64_t offset = proto->data_offset[first];
        *out = (sn_source){.kind = file->path ? SN_SOURCE_FILE : SN_SOURCE_MEMORY,
                           .path = file->path,
                           .offset = (int64_t)offset,
                           .data = file->data + offset};
        return NULL;
    }
    uint8_t *copy = sn_arena_alloc(arena, wanted ? wanted : 1), *at = copy;
    for (size_t i = 0; i < proto->n_data_field; i++) {
        if (proto->data_field[i] != field) continue;
        memcpy(at, file->data + proto->data_offset[i], proto->data_length[i]);
        at += proto->data_length[i];
    }
    *out = (sn_source){.kind = SN_SOURCE_MEMORY, .data = copy};
    return NULL;
}

// The pre-pass checks lengths, not what is inside a packed field.
static bool next_varint(const uint8_t **at, const uint8_t *end, uint64_t *out) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (!(byte & 0x80)) {
            *out = value;
            return true;
        }
    }
    return false;
}

static void store_varint(sn_dtype dtype, void *data, int64_t index, uint64_t value) {
    if (dtype == SN_F16 || dtype == SN_BF16) {
        ((uint16_t *)data)[index] = (uint16_t)value; // int32_data holds the bits
    } else {
        sn_store_i64(dtype, data, index, (int64_t)value);
    }
}

static const char *varint_data(const Onnx__TensorProto *proto, uint32_t field, sn_type type, const sn_tensor_file *file,
                               sn_arena *arena, sn_source *out) {
    size_t first = 0;
    uint64_t bytes;
    int64_t count = sn_type_count(type), done = 0;
    pieces_of(proto, field, &first, &bytes);
    if ((uint64_t)count > bytes) return "it has fewer elements than its shape needs";
    void *data = sn_arena_alloc(arena, count ? (size_t)sn_type_bytes(type) : 1);
    for (size_t i = 0; i < proto->n_data_field; i++) {
        if (proto->data_field[i] != field) continue;
        const uint8_t *at = file->data + proto->data_offset[i], *end = at + proto->data_length[i];
        uint64_t value;
        while (at < end) {
            if (!next_varint(&at, end, &value)) return "an element is cut off";
            if (done == count) return "it has more elements than its shape holds";
            store_varint(type.dtype, data, done++, value);
        }
    }
    if (done != count) return "it has fewer elements than its shape needs";
    *out = (sn_source){.kind = SN_SOURCE_MEMORY, .data = data};
    return NULL;
}

const char *sn_tensor_proto_data(const Onnx__TensorProto *proto, sn_type type, const sn_tensor_file *file,
                                 sn_arena *arena, sn_source *out) {
    uint32_t field = RAW_DATA;
    bool raw = false;
    for (size_t i = 0; i < proto->n_data_field; i++) raw = raw || proto->data_field[i] == RAW_DATA;
    if (!raw && sn_type_count(type) > 0) field = home[type.dtype].field;
    if (field == RAW_DATA || home[type.dtype].plain) return plain_data(proto, field, type, file, arena, out);
    return varint_data(proto, field, type, file, arena, out);
}
