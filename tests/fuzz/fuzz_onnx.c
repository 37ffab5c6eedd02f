// libFuzzer target of the ONNX loader and import: any bytes are refused with a diagnostic, or become a module.
#include "frontend/onnx.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Large dims are legal and slow; they are not what is looked for here.
static bool is_small(const sn_onnx_info *info) {
    int64_t count = 1;
    for (size_t i = 0; i < info->n_inputs; i++)
        for (int d = 0; d < info->inputs[i].rank; d++)
            if (info->inputs[i].dim[d].size > 256 || (count *= 2 + info->inputs[i].dim[d].size) > 1 << 16) return false;
    return true;
}

static void import(sn_onnx_model *model, sn_diags *diags) {
    const sn_onnx_info *info = sn_onnx_info_of(model);
    if (!is_small(info)) return;
    sn_onnx_binding bindings[8];
    int count = 0;
    for (size_t i = 0; i < info->n_inputs; i++)
        for (int d = 0; d < info->inputs[i].rank && count < 8; d++)
            if (info->inputs[i].dim[d].symbol) bindings[count++] = (sn_onnx_binding){info->inputs[i].dim[d].symbol, 2};
    sn_onnx_options options = {.n_bindings = count, .bindings = bindings, .mode = SN_ONNX_TRAINING};
    sn_module *module = sn_onnx_import(model, &options, diags);
    if (!module && !diags->errors) SN_BUG("a model was refused without a diagnostic");
    if (module) sn_onnx_check_training(model, module, options.mode, diags);
    sn_module_free(module);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    // an exact copy on the heap, so that a read behind the end is seen
    char *copy = malloc(size + !size);
    if (size) memcpy(copy, data, size);
    sn_diags diags = {0};
    sn_onnx_model *model = sn_onnx_open_memory(copy, size, "fuzz", &diags);
    if (model)
        import(model, &diags);
    else if (!diags.errors)
        SN_BUG("a file was refused without a diagnostic");
    sn_onnx_close(model);
    sn_diags_free(&diags);
    free(copy);
    return 0;
}
