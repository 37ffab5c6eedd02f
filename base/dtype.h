// Element types. One table serves the IR, the runtime, safetensors and .npy files.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// enum suffix, IR name, bytes, class (f float, i signed, u unsigned, b bool), ONNX TensorProto.DataType, safetensors
// name, .npy descr ("" when numpy has none)
#define SN_DTYPES(X)                                                                                                   \
    X(F32, "f32", 4, 'f', 1, "F32", "<f4")                                                                             \
    X(F64, "f64", 8, 'f', 11, "F64", "<f8")                                                                            \
    X(F16, "f16", 2, 'f', 10, "F16", "<f2")                                                                            \
    X(BF16, "bf16", 2, 'f', 16, "BF16", "")                                                                            \
    X(I8, "i8", 1, 'i', 3, "I8", "|i1")                                                                                \
    X(I16, "i16", 2, 'i', 5, "I16", "<i2")                                                                             \
    X(I32, "i32", 4, 'i', 6, "I32", "<i4")                                                                             \
    X(I64, "i64", 8, 'i', 7, "I64", "<i8")                                                                             \
    X(U8, "u8", 1, 'u', 2, "U8", "|u1")                                                                                \
    X(U16, "u16", 2, 'u', 4, "U16", "<u2")                                                                             \
    X(U32, "u32", 4, 'u', 12, "U32", "<u4")                                                                            \
    X(U64, "u64", 8, 'u', 13, "U64", "<u8")                                                                            \
    X(BOOL, "bool", 1, 'b', 9, "BOOL", "|b1")

typedef enum sn_dtype {
#define X(suffix, ...) SN_##suffix,
    SN_DTYPES(X)
#undef X
        SN_DTYPE_COUNT
} sn_dtype;

const char *sn_dtype_name(sn_dtype dtype);
size_t sn_dtype_bytes(sn_dtype dtype);
char sn_dtype_class(sn_dtype dtype); // 'f', 'i', 'u' or 'b'
bool sn_dtype_is_float(sn_dtype dtype);
int sn_dtype_onnx(sn_dtype dtype);
const char *sn_dtype_safetensors(sn_dtype dtype);
const char *sn_dtype_npy(sn_dtype dtype);
// Each returns SN_DTYPE_COUNT when there is no such type.
sn_dtype sn_dtype_from_name(const char *name);
sn_dtype sn_dtype_from_onnx(int onnx);
sn_dtype sn_dtype_from_safetensors(const char *name);
sn_dtype sn_dtype_from_npy(const char *descr);

// One element as a double or a 64-bit integer, with the rounding (to nearest even) and wrapping of a C cast.
// Floats out of an integer's range saturate; NaN becomes 0.
double sn_load_f64(sn_dtype dtype, const void *data, int64_t index);
int64_t sn_load_i64(sn_dtype dtype, const void *data, int64_t index);
void sn_store_f64(sn_dtype dtype, void *data, int64_t index, double value);
void sn_store_i64(sn_dtype dtype, void *data, int64_t index, int64_t value);

float sn_f16_to_f32(uint16_t half);
uint16_t sn_f16_from_f32(float value); // to nearest even
float sn_bf16_to_f32(uint16_t half);
uint16_t sn_bf16_from_f32(float value); // to nearest even
