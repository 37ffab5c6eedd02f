// TensorProto: its type, and its data from wherever the format keeps it.
#pragma once
#include "base/diag.h"
#include "frontend/onnx.h"

#include <onnx.pb-c.h>

typedef struct sn_tensor_file {
    const uint8_t *data; // tickets count from here
    size_t bytes;
    const char *path; // NULL for a model in memory
} sn_tensor_file;

// NULL, or why the tensor cannot be used (text in `arena`).
const char *sn_tensor_proto_type(const Onnx__TensorProto *proto, sn_arena *arena, sn_type *out);
// Whether the data lies in another file.
bool sn_tensor_proto_is_external(const Onnx__TensorProto *proto);
const char *sn_onnx_type_name(int onnx); // "float8e5m2" for 19
// Where the data of an inline tensor is: in the file where its bytes are the elements, else decoded into `arena`. The
// data may be unaligned. NULL, or what is wrong.
const char *sn_tensor_proto_data(const Onnx__TensorProto *proto, sn_type type, const sn_tensor_file *file,
                                 sn_arena *arena, sn_source *out);
