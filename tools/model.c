#include "tools/model.h"

#include "runtime/data/npy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef SN_VEC(sn_onnx_binding) bindings;

static const sn_onnx_binding *find_binding(const bindings *list, const char *symbol) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->data[i].symbol, symbol) == 0) return &list->data[i];
    return NULL;
}

static void bind_symbol(bindings *list, sn_arena *arena, const char *symbol, int64_t size) {
    if (!find_binding(list, symbol)) sn_vec_push(list, (sn_onnx_binding){sn_arena_strdup(arena, symbol), size});
}

// --dim NAME=N, as often as given.
static void bind_given(const sn_options *options, sn_diags *diags, sn_arena *arena, bindings *list) {
    const char *text;
    for (size_t i = 0; (text = sn_options_item(options, "dim", i)); i++) {
        const char *equals = strchr(text, '=');
        char *end = NULL;
        long long size = equals ? strtoll(equals + 1, &end, 10) : 0;
        if (!equals || *end || size < 1) {
            sn_error(diags, "E0211", text, "write --dim NAME=SIZE, as in --dim seq=64", "this binds no dim");
            continue;
        }
        char *name = sn_arena_strdup(arena, text);
        name[equals - text] = 0;
        bind_symbol(list, arena, name, size);
    }
}

static void bind_batch(const sn_onnx_info *info, int64_t batch, sn_arena *arena, bindings *list) {
    for (size_t i = 0; batch && i < info->n_inputs; i++)
        if (info->inputs[i].rank > 0 && info->inputs[i].dim[0].size < 0)
            bind_symbol(list, arena, info->inputs[i].dim[0].symbol, batch);
}

// All but the first dim of DIR/INPUT.npy. Files that are missing or broken are the data loader's to report.
static void bind_data(const sn_onnx_info *info, const char *folder, sn_arena *arena, bindings *list) {
    for (size_t i = 0; i < info->n_inputs; i++) {
        const sn_onnx_port *input = &info->inputs[i];
        sn_npy npy;
        sn_status status = sn_npy_open(sn_arena_printf(arena, "%s/%s.npy", folder, input->name), &npy);
        if (status) {
            sn_status_free(status);
            continue;
        }
        for (int d = 1; d < input->rank && (int)npy.rank == input->rank; d++)
            if (input->dim[d].size < 0) bind_symbol(list, arena, input->dim[d].symbol, npy.shape[d]);
        sn_npy_close(&npy);
    }
}

static bool is_folder(const char *path) {
    struct stat info;
    return path && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

// The batch that the model was exported with, or that its first dim is bound to so far.
static int64_t find_batch(const sn_onnx_info *info, const bindings *list) {
    for (size_t i = 0; i < info->n_inputs; i++) {
        if (info->inputs[i].rank < 1) continue;
        const sn_onnx_dim *dim = &info->inputs[i].dim[0];
        const sn_onnx_binding *bound = dim->size < 0 ? find_binding(list, dim->symbol) : NULL;
        if (dim->size > 0) return dim->size;
        if (bound) return bound->size;
    }
    return 0;
}

static const char *batch_symbol(const sn_onnx_info *info) {
    for (size_t i = 0; i < info->n_inputs; i++)
        if (info->inputs[i].rank > 0) return info->inputs[i].dim[0].size < 0 ? info->inputs[i].dim[0].symbol : NULL;
    return NULL;
}

static void report_batch(sn_model_source *source, const char *path, int parts, int64_t asked, sn_diags *diags) {
    int64_t fixed = source->fixed_batch;
    const char *symbol = batch_symbol(sn_onnx_info_of(source->model));
    if (symbol)
        sn_error(diags, "E0212", "--batch",
                 "leave one of them out; --batch counts all micro-batches of an update, --dim one",
                 "--batch %" PRId64 " and --dim %s=%" PRId64 " contradict each other", asked * parts, symbol, fixed);
    else if (parts > 1)
        sn_error(diags, "E0212", path,
                 sn_arena_printf(&source->arena,
                                 "--batch %" PRId64 " trains with %d of these, or export the model with a symbolic "
                                 "batch dim",
                                 fixed * parts, parts),
                 "--batch %" PRId64 ": the model's batch is fixed at %" PRId64 " for each micro-batch", asked * parts,
                 fixed);
    else
        sn_error(diags, "E0212", path, "leave --batch out, or export the model with a symbolic batch dim",
                 "--batch %" PRId64 ": the model's batch is fixed at %" PRId64, asked, fixed);
}

bool sn_model_source_open(const char *path, const sn_options *options, const char *data, int64_t batch, int parts,
                          sn_onnx_mode mode, sn_diags *diags, sn_model_source *out) {
    *out = (sn_model_source){0};
    size_t errors = diags->errors;
    bool planning = parts == 0;
    out->model = planning ? sn_onnx_open_shapes(path, diags) : sn_onnx_open(path, diags);
    if (!out->model) return false;
    const sn_onnx_info *info = sn_onnx_info_of(out->model);
    bindings list = {0};
    int64_t asked = sn_options_int(options, "batch", 0);
    if (planning) parts = 1;
    asked /= parts;
    bind_given(options, diags, &out->arena, &list);
    out->fixed_batch = find_batch(info, &list);
    bind_batch(info, asked ? asked : batch, &out->arena, &list);
    if (is_folder(data)) bind_data(info, data, &out->arena, &list);
    out->batch = find_batch(info, &list);
    if (asked && out->fixed_batch && out->fixed_batch != asked && !planning)
        report_batch(out, path, parts, asked, diags);
    out->import = (sn_onnx_options){.n_bindings = (int)list.count, .mode = mode};
    out->import.bindings = sn_arena_copy(&out->arena, list.data, list.count * sizeof *list.data);
    sn_vec_free(&list);
    return diags->errors == errors;
}

void sn_model_source_close(sn_model_source *source) {
    sn_onnx_close(source->model);
    sn_arena_free(&source->arena);
    *source = (sn_model_source){0};
}
