#include "frontend/hazards.h"

#include <string.h>

enum { SMALLEST_TIE = 64 }; // elements; smaller tensors are equal by chance

static const char recipe[] = "export for training: torch.onnx.export(…, dynamo=True, optimize=False), or the "
                             "TorchScript exporter with training=TrainingMode.TRAINING, do_constant_folding=False";

// Names that exporters invent, in contrast to keys of a state_dict.
static bool is_generated(const char *name) {
    return sn_starts_with(name, "onnx::") || sn_starts_with(name, "val_") || !strchr(name, '.') || strchr(name, '/');
}

typedef struct matrix {
    const char *name, *data;
    sn_type type;
    size_t size; // of an element
    bool generated;
} matrix;

static bool load_matrix(sn_onnx_model *model, const sn_onnx_weight *weight, matrix *out) {
    if (weight->problem || weight->type.rank != 2 || !sn_dtype_is_float(weight->type.dtype) ||
        sn_type_count(weight->type) < SMALLEST_TIE)
        return false;
    sn_diags ignored = {0}; // the import reports what is wrong with the data
    sn_source source = {0};
    const Onnx__TensorProto *proto = sn_map_get(&model->weights, weight->name);
    bool plain = sn_tensor_proto_is_external(proto) || weight->type.dtype == SN_F32 || weight->type.dtype == SN_F64 ||
                 (proto->n_data_field == 1 && proto->data_field[0] == 9);
    bool fine = plain && sn_model_tensor(model, proto, weight->type, weight->name, &model->arena, &ignored, &source);
    sn_diags_free(&ignored);
    bool generated = is_generated(weight->name) && weight->kind == SN_ONNX_UNMARKED;
    *out = (matrix){weight->name, source.data, weight->type, sn_dtype_bytes(weight->type.dtype), generated};
    return fine && source.data;
}

static bool equal_at(const matrix *a, const matrix *b, bool transposed, int64_t row, int64_t column) {
    int64_t at = row * a->type.dim[1] + column, other = transposed ? column * b->type.dim[1] + row : at;
    return memcmp(a->data + (size_t)at * a->size, b->data + (size_t)other * b->size, a->size) == 0;
}

// A few samples tell most pairs apart, so that unrelated weights are not read.
static bool look_equal(const matrix *a, const matrix *b, bool transposed) {
    int64_t rows = a->type.dim[0], columns = a->type.dim[1];
    for (int i = 0; i < 16; i++)
        if (!equal_at(a, b, transposed, (rows - 1) * i / 15, (columns - 1) * ((i * 7) % 16) / 15)) return false;
    return true;
}

// A piece of a row of one matrix against the same piece of a column of the other, `step` bytes apart.
static bool equal_piece(const char *row, const char *column, size_t step, int64_t count, size_t size) {
    uint32_t different = 0;
    for (int64_t i = 0; i < count && size != 4; i++)
        different |= memcmp(row + size * (size_t)i, column + (size_t)i * step, size) != 0;
    for (int64_t i = 0; i < count && size == 4; i++) {
        uint32_t x, y;
        memcpy(&x, row + 4 * i, 4);
        memcpy(&y, column + (size_t)i * step, 4);
        different |= x ^ y;
    }
    return !different;
}

// In tiles, so that the strided side stays in the cache: these are the largest tensors of a model.
static bool equal_transposed(const matrix *a, const matrix *b) {
    enum { TILE = 32 };
    int64_t rows = a->type.dim[0], columns = a->type.dim[1];
    for (int64_t tile = 0; tile < rows; tile += TILE)
        for (int64_t c = 0; c < columns; c += TILE)
            for (int64_t r = tile; r < tile + TILE && r < rows; r++) {
                const char *row = a->data + (size_t)(r * columns + c) * a->size;
                const char *column = b->data + (size_t)(c * rows + r) * a->size;
                int64_t count = columns - c < TILE ? columns - c : TILE;
                if (!equal_piece(row, column, (size_t)rows * a->size, count, a->size)) return false;
            }
    return true;
}

static bool are_equal(const matrix *a, const matrix *b, bool transposed) {
    return transposed ? equal_transposed(a, b) : memcmp(a->data, b->data, (size_t)sn_type_bytes(a->type)) == 0;
}

static bool is_uniform(const matrix *a) {
    return memcmp(a->data, a->data + a->size, (size_t)sn_type_bytes(a->type) - a->size) == 0;
}

static bool match(const matrix *copy, const matrix *of, bool *transposed) {
    if (copy->type.dtype != of->type.dtype) return false;
    for (int t = 0; t < 2; t++) {
        bool fits = copy->type.dim[0] == of->type.dim[t] && copy->type.dim[1] == of->type.dim[1 - t];
        if (!fits || !look_equal(copy, of, t) || is_uniform(copy) || !are_equal(copy, of, t)) continue;
        *transposed = t;
        return true;
    }
    return false;
}

static void find_ties(sn_onnx_model *model) {
    matrix *all = SN_NEW_N(&model->arena, matrix, model->info.n_weights + 1);
    size_t count = 0;
    for (size_t i = 0; i < model->info.n_weights; i++)
        count += load_matrix(model, &model->info.weights[i], &all[count]);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count && all[i].generated; j++) {
            bool transposed;
            if (all[j].generated || !match(&all[i], &all[j], &transposed)) continue;
            sn_tie *tie = SN_NEW(&model->arena, sn_tie);
            *tie = (sn_tie){all[i].name, all[j].name, transposed};
            sn_map_put(&model->ties, tie->copy, tie);
            break;
        }
}

static bool is_output(const sn_onnx_model *model, const char *name) {
    for (size_t i = 0; i < model->info.n_outputs; i++)
        if (strcmp(model->info.outputs[i].name, name) == 0) return true;
    return false;
}

// PyTorch names parameters of the outermost module without a dot; other names that it invents are paths or numbers.
static bool is_parameter_name(const sn_onnx_model *model, const char *name) {
    if (strcmp(model->info.producer, "pytorch") != 0) return !is_generated(name);
    return !strchr(name, '/') && !strstr(name, "::") && (*name < '0' || *name > '9');
}

static void find_merges(sn_onnx_model *model) {
    const Onnx__GraphProto *graph = model->proto->graph;
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        if (!node->op_type || strcmp(node->op_type, "Identity") != 0 || node->n_input != 1 || node->n_output != 1)
            continue;
        const Onnx__TensorProto *proto = sn_map_get(&model->weights, node->input[0]);
        if (!proto || model->info.marked || is_output(model, node->output[0])) continue;
        if (!is_parameter_name(model, node->output[0]) || !is_parameter_name(model, node->input[0])) continue;
        sn_dtype dtype = sn_dtype_from_onnx(proto->data_type);
        if (dtype == SN_DTYPE_COUNT || !sn_dtype_is_float(dtype)) continue;
        sn_merge *merge = SN_NEW(&model->arena, sn_merge);
        *merge = (sn_merge){node->output[0], node->input[0]};
        sn_map_put(&model->merges, merge->name, merge);
    }
}

void sn_hazards_find(sn_onnx_model *model) {
    find_ties(model);
    find_merges(model);
}

const sn_tie *sn_hazards_tie(const sn_onnx_model *model, const char *copy) {
    return sn_map_get(&model->ties, copy);
}

const sn_merge *sn_hazards_merge(const sn_onnx_model *model, const char *name) {
    return sn_map_get(&model->merges, name);
}

static void list_name(sn_str *list, const char *name, int count) {
    enum { MOST_LISTED = 8 };
    if (count < MOST_LISTED) sn_str_printf(list, "%s'%s'", count ? ", " : "", name);
    if (count == MOST_LISTED) sn_str_puts(list, ", …");
}

// Whether no more than one dim is larger than 1: the shape of a gain or a bias, alone or made ready to be broadcast.
static bool is_vector(sn_type type) {
    int large = 0;
    for (int i = 0; i < type.rank; i++) large += type.dim[i] > 1;
    return large == 1;
}

// A mask or a constant fill: nothing but 0, 1 and numbers that stand for minus infinity. Of parameters only fresh gains
// and biases look like this.
static bool is_mask(const sn_global *global) {
    sn_type type = global->value->type;
    int64_t count = is_vector(type) ? 0 : sn_type_count(type);
    for (int64_t i = 0; global->source.data && i < count; i++) {
        double x = sn_load_f64(type.dtype, global->source.data, i);
        if (x != 0 && x != 1 && x > -1e4) return false;
    }
    return count && global->source.data;
}

static void warn_of_computed(const sn_onnx_model *model, const sn_module *module, sn_diags *diags) {
    sn_str list = {0};
    int count = 0;
    for (size_t i = 0; i < module->globals.count; i++) {
        const sn_global *global = module->globals.data[i];
        if (global->role != SN_ROLE_FROZEN || !global->why || strcmp(global->why, "computed by the exporter") != 0)
            continue;
        if (!is_mask(global)) list_name(&list, global->name, count++);
    }
    if (count)
        sn_warning(diags, "W0303", model->info.path, recipe,
                   "%d tensor%s computed by the exporter and will not be trained (%s): a parameter may be lost in %s",
                   count, count == 1 ? " was" : "s were", sn_str_text(&list), count == 1 ? "it" : "them");
    sn_str_free(&list);
}

// The module that a node belongs to, by what torch.onnx says of it: the last but one of "['', 'h.0', 'h.0.ln', 'add']".
// NULL when it says nothing.
static const char *module_of(const Onnx__NodeProto *node, sn_arena *arena) {
    static const char key[] = "pkg.torch.onnx.name_scopes";
    for (size_t i = 0; i < node->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = node->metadata_props[i];
        if (!entry->key || !entry->value || strcmp(entry->key, key) != 0) continue;
        const char *last = strrchr(entry->value, ','), *at = last, *end = NULL;
        while (at && at > entry->value && *at != '\'') at--;
        for (end = at; at && at > entry->value && at[-1] != '\'';) at--;
        return at && at < end ? sn_arena_printf(arena, "%.*s", (int)(end - at), at) : NULL;
    }
    return NULL;
}

// Whether a module path is, or lies inside, that of `outer`.
static bool lies_inside(const char *path, const char *outer, size_t length) {
    return strncmp(path, outer, length) == 0 && (!length || !path[length] || path[length] == '.');
}

// Whether a module may well read a parameter: its own, one that a module around it hands down, or one of a module in
// it.
static bool is_of_module(const char *parameter, const char *module) {
    const char *dot = strrchr(parameter, '.');
    return lies_inside(module, parameter, dot ? (size_t)(dot - parameter) : 0) ||
           lies_inside(parameter, module, strlen(module));
}

// One number everywhere, as parameters are before their first step.
static bool is_uniform_weight(sn_onnx_model *model, const sn_onnx_weight *weight, double *number) {
    const Onnx__TensorProto *proto = sn_map_get(&model->weights, weight->name);
    sn_source source = {0};
    sn_diags ignored = {0};
    int64_t count = weight->problem || !sn_dtype_is_float(weight->type.dtype) ? 0 : sn_type_count(weight->type);
    bool uniform = count &&
                   sn_model_tensor(model, proto, weight->type, weight->name, &model->arena, &ignored, &source) &&
                   source.data;
    for (int64_t i = 0; i < count && uniform; i++) {
        double x = sn_load_f64(weight->type.dtype, source.data, i);
        if (i && x != *number) uniform = false;
        *number = x;
    }
    sn_diags_free(&ignored);
    return uniform;
}

// Whether another parameter has the same numbers: then the exporter has not merged equal ones.
static bool has_equal(sn_onnx_model *model, const sn_onnx_weight *weight, double number) {
    for (size_t i = 0; i < model->info.n_weights; i++) {
        const sn_onnx_weight *other = &model->info.weights[i];
        double x;
        if (other != weight && other->kind == weight->kind && sn_type_equal(other->type, weight->type) &&
            is_uniform_weight(model, other, &x) && x == number)
            return true;
    }
    return false;
}

// Weights that stand for a parameter of another module as well, and for which. Nothing in the file tells merged
// parameters from shared ones for sure, so this is reported, not repaired.
static void find_second_owners(const sn_onnx_model *model, sn_arena *arena, sn_map *owners) {
    const Onnx__GraphProto *graph = model->proto->graph;
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        bool renames = node->op_type && strcmp(node->op_type, "Identity") == 0 && node->n_output == 1;
        for (size_t j = 0; j < node->n_input; j++) {
            const char *name = node->input[j], *mark = sn_map_get(&model->marks, name);
            if (!sn_map_has(&model->weights, name) || sn_map_has(owners, name)) continue;
            const char *other = mark && strcmp(mark, "PARAMETER") == 0 ? module_of(node, arena) : NULL;
            if (other && is_of_module(name, other)) other = NULL;
            bool folded = renames && (strstr(name, "::") || strstr(node->output[0], "::"));
            if (!model->info.marked && folded) other = node->output[0];
            if (other) sn_map_put(owners, name, (void *)(uintptr_t)other);
        }
    }
}

static void warn_of_merged(sn_onnx_model *model, sn_diags *diags) {
    sn_arena scratch = {0};
    sn_map owners = {0};
    sn_str list = {0};
    int count = 0;
    find_second_owners(model, &scratch, &owners);
    for (size_t i = 0; i < model->info.n_weights; i++) {
        const sn_onnx_weight *weight = &model->info.weights[i];
        const char *other = sn_map_get(&owners, weight->name);
        double number;
        if (!other || !is_uniform_weight(model, weight, &number) || has_equal(model, weight, number)) continue;
        list_name(&list, sn_arena_printf(&scratch, "%s' for '%s", weight->name, other), count++);
    }
    if (count)
        sn_warning(diags, "W0308", model->info.path, recipe,
                   "the exporter merged parameters that were equal at export, and they train as one (%s); it is "
                   "right where the model shares them",
                   sn_str_text(&list));
    sn_str_free(&list);
    sn_map_free(&owners);
    sn_arena_free(&scratch);
}

// A folded BatchNorm leaves a convolution whose weight an exporter that marks parameters did not mark, or that the
// TorchScript exporter renamed.
static void warn_of_folded_norms(const sn_onnx_model *model, sn_diags *diags) {
    const Onnx__GraphProto *graph = model->proto->graph;
    sn_str list = {0};
    int count = 0;
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        if (!node->op_type || strcmp(node->op_type, "Conv") != 0 || node->n_input < 3) continue;
        if (!sn_map_has(&model->weights, node->input[1]) || !sn_map_has(&model->weights, node->input[2])) continue;
        bool renamed = sn_starts_with(node->input[1], "onnx::");
        bool unmarked = model->info.marked && !sn_map_has(&model->marks, node->input[1]);
        if (renamed || unmarked) list_name(&list, node->name ? node->name : node->output[0], count++);
    }
    if (count)
        sn_warning(diags, "W0304", model->info.path, recipe,
                   "the exporter folded normalisations into %d convolution%s (%s): they train without BatchNorm", count,
                   count == 1 ? "" : "s", sn_str_text(&list));
    sn_str_free(&list);
}

static bool is_in_training(const Onnx__NodeProto *node, int64_t opset) {
    if (opset < 14) return node->n_output > 1;
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->name && strcmp(node->attribute[i]->name, "training_mode") == 0)
            return node->attribute[i]->i;
    return false;
}

// Whether the node's training_mode input is absent; its value, where present, is seen by the import.
static bool is_inference_dropout(const Onnx__NodeProto *node) {
    return node->n_input < 3 || !*node->input[2];
}

static void warn_of_inference_modes(const sn_onnx_model *model, sn_onnx_mode mode, sn_diags *diags) {
    const Onnx__GraphProto *graph = model->proto->graph;
    int norms = 0, dropouts = 0;
    for (size_t i = 0; i < graph->n_node && mode == SN_ONNX_AS_EXPORTED; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        const char *type = node->op_type ? node->op_type : "";
        norms += strcmp(type, "BatchNormalization") == 0 && !is_in_training(node, model->info.opset);
        dropouts += strcmp(type, "Dropout") == 0 && is_inference_dropout(node);
    }
    static const char help[] = "--train-mode all puts every Dropout and BatchNormalization into training mode";
    if (norms)
        sn_warning(diags, "W0305", model->info.path, help,
                   "%d BatchNormalization node%s exported in inference mode: statistics stay as they are", norms,
                   norms == 1 ? " was" : "s were");
    if (dropouts)
        sn_warning(diags, "W0306", model->info.path, help,
                   "%d Dropout node%s exported in inference mode: nothing is dropped", dropouts,
                   dropouts == 1 ? " was" : "s were");
}

void sn_onnx_check_training(const sn_onnx_model *model, const sn_module *module, sn_onnx_mode mode, sn_diags *diags) {
    warn_of_computed(model, module, diags);
    warn_of_merged((sn_onnx_model *)(uintptr_t)model, diags);
    warn_of_folded_norms(model, diags);
    warn_of_inference_modes(model, mode, diags);
}
