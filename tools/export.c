// `sennit export`: the weights of a checkpoint, back in the ONNX model that was trained.
#include "frontend/onnx.h"
#include "runtime/checkpoint/safetensors.h"
#include "tools/options.h"
#include "tools/passes.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The checkpoint's file: itself, or the newest one of a folder.
static sn_status find_checkpoint(const char *given, sn_arena *arena, const char **out) {
    struct stat info;
    *out = given;
    if (stat(given, &info) != 0) return sn_status_errno("cannot open '%s'", given);
    if (!S_ISDIR(info.st_mode)) return SN_OK;
    sn_mapped_file latest = {0};
    SN_TRY(sn_file_map(sn_arena_printf(arena, "%s/latest", given), &latest));
    const char *name = sn_arena_printf(arena, "%.*s", (int)strcspn((const char *)latest.data, "\n"), latest.data);
    sn_file_unmap(&latest);
    if (strchr(name, '/')) return sn_status_make("'%s/latest' does not name a checkpoint", given);
    *out = sn_arena_printf(arena, "%s/%s", given, name);
    return SN_OK;
}

static bool matches(const sn_tensor_entry *entry, sn_type type) {
    if (entry->dtype != type.dtype || (int)entry->shape.count != type.rank) return false;
    for (int i = 0; i < type.rank; i++)
        if (entry->shape.items[i] != type.dim[i]) return false;
    return true;
}

// One replacement per tensor of the checkpoint; those of initializers must have their type.
static sn_onnx_replacement *replacements(const sn_onnx_info *info, const sn_safetensors *checkpoint, sn_diags *diags) {
    sn_onnx_replacement *list = SN_NEW_N(&diags->arena, sn_onnx_replacement, checkpoint->tensors.count + 1);
    size_t found = 0;
    for (size_t i = 0; i < checkpoint->tensors.count; i++) {
        const sn_tensor_entry *entry = &checkpoint->tensors.items[i];
        list[i] = (sn_onnx_replacement){entry->name, entry->data};
    }
    for (size_t i = 0; i < info->n_weights; i++) {
        const sn_tensor_entry *entry = sn_safetensors_find(checkpoint, info->weights[i].name);
        if (!entry) continue;
        found++;
        if (!matches(entry, info->weights[i].type))
            sn_error(diags, "E0711", entry->name, "is this the model that was trained?",
                     "'%s' has another type or shape in the checkpoint than in the model", entry->name);
    }
    if (!found)
        sn_error(diags, "E0711", info->path, "--model names the model that was trained",
                 "the checkpoint has no tensor of the model '%s'", info->path);
    return list;
}

static void fail(sn_diags *diags, const char *subject, const char *help, sn_status status) {
    sn_error(diags, "E0710", subject, help, "%s", sn_status_message(status));
    sn_status_free(status);
}

static void export_open(const sn_options *options, const sn_safetensors *checkpoint, const char *output,
                        sn_diags *diags) {
    const char *note = sn_safetensors_note(checkpoint, "model");
    const char *path = sn_options_text(options, "model", note && *note ? note : NULL);
    if (!path) {
        sn_error(diags, "E0711", NULL, "--model MODEL.onnx", "the checkpoint does not say which model it belongs to");
        return;
    }
    if (!sn_options_has(options, "model") && access(path, R_OK) != 0) {
        sn_error(diags, "E0711", path, "--model MODEL.onnx says where it is now",
                 "the model that was trained is not where it was");
        return;
    }
    sn_onnx_model *model = sn_onnx_open(path, diags);
    if (!model) return;
    size_t errors = diags->errors;
    sn_onnx_replacement *list = replacements(sn_onnx_info_of(model), checkpoint, diags);
    sn_status status = SN_OK;
    if (diags->errors == errors) status = sn_onnx_export(model, (int)checkpoint->tensors.count, list, output);
    if (status) fail(diags, output, "check the path, its permissions and the free space", status);
    sn_onnx_close(model);
}

static void export_checkpoint(const sn_options *options, sn_diags *diags) {
    const char *output = sn_options_text(options, "output", NULL), *path;
    if (!output) {
        sn_error(diags, "E0704", "--output", "sennit export CHECKPOINT -o trained.onnx",
                 "the file to write is missing");
        return;
    }
    sn_safetensors checkpoint = {0};
    sn_status status = find_checkpoint(options->arguments.data[0], &diags->arena, &path);
    if (!status) status = sn_safetensors_open(path, &checkpoint);
    if (status) {
        fail(diags, options->arguments.data[0],
             "give the folder that --checkpoint of a run wrote, or one of the checkpoints in it", status);
        return;
    }
    export_open(options, &checkpoint, output, diags);
    sn_safetensors_close(&checkpoint);
}

int sn_cmd_export(const sn_options *options, sn_diags *diags) {
    export_checkpoint(options, diags);
    return 0;
}
