// libFuzzer target of the ONNX loader and import: any bytes are refused with a diagnostic, or become a module.
#include "tests/fuzz/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Large dims are legal and slow; they are not what is looked for here (fuzz_node.c has them).
static bool is_large(const sn_onnx_info *info) {
    int64_t count = 1;
    for (size_t i = 0; i < info->n_inputs; i++)
        for (int d = 0; d < info->inputs[i].rank; d++)
            if (info->inputs[i].dim[d].size > 256 || (count *= 2 + info->inputs[i].dim[d].size) > 1 << 16) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_import(data, size, 2, is_large);
    return 0;
}
