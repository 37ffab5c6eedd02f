// What the fuzzers of the frontend do with a model: load it, import it, and look at what came out.
#pragma once
#include "frontend/onnx.h"
#include "ir/verify.h"

#include <stdlib.h>
#include <string.h>

static inline void fuzz_import_model(sn_onnx_model *model, int64_t symbols, sn_diags *diags) {
    enum { MOST_BINDINGS = 16 };
    const sn_onnx_info *info = sn_onnx_info_of(model);
    sn_onnx_binding bindings[MOST_BINDINGS];
    int count = 0;
    for (size_t i = 0; i < info->n_inputs; i++)
        for (int d = 0; d < info->inputs[i].rank && count < MOST_BINDINGS; d++)
            if (info->inputs[i].dim[d].symbol)
                bindings[count++] = (sn_onnx_binding){info->inputs[i].dim[d].symbol, symbols};
    sn_onnx_options options = {.n_bindings = count, .bindings = bindings, .mode = SN_ONNX_TRAINING};
    sn_module *module = sn_onnx_import(model, &options, diags);
    if (!module && !diags->errors) SN_BUG("a model was refused without a diagnostic");
    if (module) {
        sn_str problems = {0};
        if (!sn_verify(module, &problems)) SN_BUG("the import made an invalid module:\n%s", sn_str_text(&problems));
        sn_str_free(&problems);
        sn_onnx_check_training(model, module, options.mode, diags);
    }
    sn_module_free(module);
}

// Of an input that failed: SENNIT_FUZZ_WRITE names a file for its model (which tests/fuzz/onnx then keeps: fuzz_node's
// own bytes change their meaning with the table of operators), SENNIT_FUZZ_PRINT shows the diagnostics.
static inline void fuzz_write(const void *data, size_t size) {
    const char *path = getenv("SENNIT_FUZZ_WRITE");
    FILE *out = path ? fopen(path, "wb") : NULL;
    if (!out) return;
    fwrite(data, 1, size, out);
    fclose(out);
}

// A model of any bytes is refused with a diagnostic, or becomes a valid module. Each symbolic dim is bound to
// `symbols`; a model that `skip` (may be NULL) answers is not imported.
static inline void fuzz_import(const void *data, size_t size, int64_t symbols, bool (*skip)(const sn_onnx_info *info)) {
    // an exact copy on the heap, so that a read behind the end is seen
    char *copy = malloc(size + !size);
    if (size) memcpy(copy, data, size);
    fuzz_write(data, size);
    sn_diags diags = {0};
    sn_onnx_model *model = sn_onnx_open_memory(copy, size, "fuzz", &diags);
    if (model && !(skip && skip(sn_onnx_info_of(model))))
        fuzz_import_model(model, symbols, &diags);
    else if (!model && !diags.errors)
        SN_BUG("a file was refused without a diagnostic");
    if (getenv("SENNIT_FUZZ_PRINT")) sn_diags_print(&diags, 0, true, stderr);
    sn_onnx_close(model);
    sn_diags_free(&diags);
    free(copy);
}
