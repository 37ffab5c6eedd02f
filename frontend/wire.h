// The pre-pass over an ONNX file's wire format. protobuf-c copies every bytes field (so every weight) and recurses
// without a limit; the pre-pass checks the whole file first and writes a small copy of it in which tensor data is
// replaced by tickets (TensorProto.data_* in frontend/onnx.proto) that say where the data lies in the file.
#pragma once
#include "base/diag.h"
#include "base/str.h"

#include <stdint.h>

typedef enum sn_wire_root { SN_WIRE_MODEL, SN_WIRE_TENSOR } sn_wire_root;

enum {
    SN_WIRE_MAX_DEPTH = 64,                // messages inside messages
    SN_WIRE_MAX_ITEMS = 8 * 1000 * 1000,   // messages, strings and repeated numbers kept in memory
    SN_WIRE_MAX_BYTES = 512 * 1024 * 1024, // of the small copy
};

// Appends the small copy of `data` to `out`. Fields that frontend/onnx.proto does not have are dropped. Returns false,
// with a diagnostic about `file` that names the message and the byte, when the data is not a well-formed message of
// this kind or exceeds a limit.
bool sn_wire_skim(const uint8_t *data, size_t bytes, sn_wire_root root, const char *file, sn_diags *diags, sn_str *out);
