#include "base/dtype.h"

#include "base/bug.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
    char class;
    int onnx;
    const char *safetensors, *npy;
} table[] = {
#define X(suffix, name, bytes, class, onnx, safetensors, npy)                                                          \
    [SN_##suffix] = {name, bytes, class, onnx, safetensors, npy},
    SN_DTYPES(X)
#undef X
};
_Static_assert(sizeof table / sizeof *table == SN_DTYPE_COUNT, "one row per type");

const char *sn_dtype_name(sn_dtype dtype) {
    return table[dtype].name;
}
size_t sn_dtype_bytes(sn_dtype dtype) {
    return table[dtype].bytes;
}
char sn_dtype_class(sn_dtype dtype) {
    return table[dtype].class;
}
bool sn_dtype_is_float(sn_dtype dtype) {
    return table[dtype].class == 'f';
}
int sn_dtype_onnx(sn_dtype dtype) {
    return table[dtype].onnx;
}
const char *sn_dtype_safetensors(sn_dtype dtype) {
    return table[dtype].safetensors;
}
const char *sn_dtype_npy(sn_dtype dtype) {
    return table[dtype].npy;
}

#define FIND(condition)                                                                                                \
    for (int i = 0; i < SN_DTYPE_COUNT; i++)                                                                           \
        if (condition) return (sn_dtype)i;                                                                             \
    return SN_DTYPE_COUNT

sn_dtype sn_dtype_from_name(const char *name) {
    FIND(!strcmp(table[i].name, name));
}
sn_dtype sn_dtype_from_onnx(int onnx) {
    FIND(table[i].onnx == onnx);
}
sn_dtype sn_dtype_from_safetensors(const char *name) {
    FIND(!strcmp(table[i].safetensors, name));
}
sn_dtype sn_dtype_from_npy(const char *descr) {
    FIND(table[i].npy[0] && !strcmp(table[i].npy, descr));
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

float sn_bf16_to_f32(uint16_t half) {
    return float_of((uint32_t)half << 16);
}

uint16_t sn_bf16_from_f32(float value) {
    uint32_t bits = bits_of(value);
    if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float sn_f16_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) return float_of(sign | bits_of((float)mantissa * 0x1p-24f));
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t sn_f16_from_f32(float value) {
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // rounds beyond the largest half
    if (magnitude < 0x38800000) {                                  // subnormal: let the float unit round
        uint32_t rounded = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
        return (uint16_t)(sign | rounded);
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

// To float towards zero, with the last bit set when that lost something: what rounds it again then rounds as from
// `value` itself (Boldo and Melquiond 2008).
static float round_to_odd(double value) {
    float rounded = (float)value;
    if ((double)rounded == value || isnan(value)) return rounded;
    uint32_t bits = bits_of(rounded);
    if (fabs((double)rounded) > fabs(value)) bits--;
    return float_of(bits | 1);
}

// Elements at any address: tensors inside of a model file lie where protobuf put them.
#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef float any_f32 ANYWHERE;
typedef double any_f64 ANYWHERE;
typedef int16_t any_i16 ANYWHERE;
typedef int32_t any_i32 ANYWHERE;
typedef int64_t any_i64 ANYWHERE;
typedef uint16_t any_u16 ANYWHERE;
typedef uint32_t any_u32 ANYWHERE;
typedef uint64_t any_u64 ANYWHERE;

double sn_load_f64(sn_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case SN_F32:
        return ((const any_f32 *)data)[i];
    case SN_F64:
        return ((const any_f64 *)data)[i];
    case SN_F16:
        return sn_f16_to_f32(((const any_u16 *)data)[i]);
    case SN_BF16:
        return sn_bf16_to_f32(((const any_u16 *)data)[i]);
    case SN_U64:
        return (double)((const any_u64 *)data)[i];
    default:
        return (double)sn_load_i64(dtype, data, i);
    }
}

static int64_t saturate(double value) {
    if (isnan(value)) return 0;
    if (value >= 0x1p63) return INT64_MAX;
    if (value <= -0x1p63) return INT64_MIN;
    return (int64_t)value;
}

static int64_t saturate_to(sn_dtype dtype, double value) { // integers of up to 63 value bits
    bool is_signed = table[dtype].class == 'i';
    int64_t max = (int64_t)(UINT64_MAX >> (64 - 8 * table[dtype].bytes + is_signed)), min = is_signed ? -max - 1 : 0;
    int64_t whole = saturate(value);
    return whole < min ? min : whole > max ? max : whole;
}

int64_t sn_load_i64(sn_dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case SN_I8:
        return ((const int8_t *)data)[i];
    case SN_I16:
        return ((const any_i16 *)data)[i];
    case SN_I32:
        return ((const any_i32 *)data)[i];
    case SN_I64:
        return ((const any_i64 *)data)[i];
    case SN_U8:
        return ((const uint8_t *)data)[i];
    case SN_U16:
        return ((const any_u16 *)data)[i];
    case SN_U32:
        return ((const any_u32 *)data)[i];
    case SN_U64:
        return (int64_t)((const any_u64 *)data)[i];
    case SN_BOOL:
        return ((const uint8_t *)data)[i] != 0;
    default:
        return saturate(sn_load_f64(dtype, data, i));
    }
}

void sn_store_f64(sn_dtype dtype, void *data, int64_t i, double value) {
    switch (dtype) {
    case SN_F32:
        ((float *)data)[i] = (float)value;
        break;
    case SN_F64:
        ((double *)data)[i] = value;
        break;
    case SN_F16:
        ((uint16_t *)data)[i] = sn_f16_from_f32(round_to_odd(value));
        break;
    case SN_BF16:
        ((uint16_t *)data)[i] = sn_bf16_from_f32(round_to_odd(value));
        break;
    case SN_BOOL:
        ((uint8_t *)data)[i] = value != 0;
        break;
    case SN_U64:
        ((uint64_t *)data)[i] = value >= 0x1p63 ? (value >= 0x1p64 ? UINT64_MAX : (uint64_t)value)
                                : value > 0     ? (uint64_t)value
                                                : 0;
        break;
    default:
        sn_store_i64(dtype, data, i, saturate_to(dtype, value));
    }
}

void sn_store_i64(sn_dtype dtype, void *data, int64_t i, int64_t value) {
    switch (dtype) {
    case SN_I8:
        ((int8_t *)data)[i] = (int8_t)value;
        break;
    case SN_I16:
        ((int16_t *)data)[i] = (int16_t)value;
        break;
    case SN_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case SN_I64:
        ((int64_t *)data)[i] = value;
        break;
    case SN_U8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    case SN_U16:
        ((uint16_t *)data)[i] = (uint16_t)value;
        break;
    case SN_U32:
        ((uint32_t *)data)[i] = (uint32_t)value;
        break;
    case SN_U64:
        ((uint64_t *)data)[i] = (uint64_t)value;
        break;
    case SN_BOOL:
        ((uint8_t *)data)[i] = value != 0;
        break;
    default:
        sn_store_f64(dtype, data, i, (double)value);
    }
}
