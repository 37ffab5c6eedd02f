// Symbolic dims: bound by name (`--dim`), else by the shapes of the data.
#include "frontend/model.h"

#include <string.h>

typedef struct bound {
    int64_t size;
    const char *by; // what bound it, for a contradiction
} bound;

typedef struct binding {
    const sn_onnx_model *model;
    sn_diags *diags;
    sn_arena arena;
    sn_map symbols; // -> bound; NULL while open
} binding;

static void collect_symbols(binding *b) {
    const sn_onnx_info *info = &b->model->info;
    for (size_t i = 0; i < info->n_inputs; i++)
        for (int d = 0; d < info->inputs[i].rank; d++)
            if (info->inputs[i].dim[d].symbol && !sn_map_has(&b->symbols, info->inputs[i].dim[d].symbol))
                sn_map_put(&b->symbols, info->inputs[i].dim[d].symbol, NULL);
}

static const char *list_symbols(binding *b, bool open_only, const char *before, const char *after) {
    sn_str list = {0};
    for (size_t i = 0; i < b->symbols.count; i++) {
        if (open_only && b->symbols.entries[i].value) continue;
        sn_str_printf(&list, "%s%s%s%s", list.length ? ", " : "", before, b->symbols.entries[i].key, after);
    }
    const char *text = sn_arena_strdup(&b->arena, sn_str_text(&list));
    sn_str_free(&list);
    return text;
}

static void bind(binding *b, const char *symbol, int64_t size, const char *by) {
    if (size < 0) {
        sn_error(b->diags, "E0207", symbol, "a dim is a positive integer", "the dim '%s' cannot be %lld", symbol,
                 (long long)size);
        return;
    }
    bound *known = sn_map_get(&b->symbols, symbol);
    if (known && known->size != size)
        sn_error(b->diags, "E0207", symbol, "the data of all inputs, and --dim, must agree",
                 "the dim '%s' is %lld by %s and %lld by %s", symbol, (long long)known->size, known->by,
                 (long long)size, by);
    if (known) return;
    bound *entry = SN_NEW(&b->arena, bound);
    *entry = (bound){size, by};
    sn_map_put(&b->symbols, symbol, entry);
}

static void bind_names(binding *b, const sn_onnx_options *options) {
    for (int i = 0; i < options->n_bindings; i++) {
        const char *symbol = options->bindings[i].symbol;
        if (sn_map_has(&b->symbols, symbol)) {
            bind(b, symbol, options->bindings[i].size, "--dim");
            continue;
        }
        sn_error(b->diags, "E0208", symbol,
                 b->symbols.count ? sn_arena_printf(&b->arena, "it has: %s", list_symbols(b, false, "", ""))
                                  : "its inputs have fixed shapes",
                 "the model has no symbolic dim '%s'", symbol);
    }
}

static const sn_onnx_shape *find_shape(const sn_onnx_options *options, const char *input) {
    for (int i = 0; i < options->n_shapes; i++)
        if (strcmp(options->shapes[i].input, input) == 0) return &options->shapes[i];
    return NULL;
}

static void bind_shape(binding *b, const sn_onnx_port *port, const sn_onnx_shape *shape) {
    if (port->rank >= 0 && port->rank != shape->rank) {
        sn_error(b->diags, "E0207", port->name, "give data of the rank that `sennit info` shows",
                 "the input '%s' has rank %d, its data has rank %d", port->name, port->rank, shape->rank);
        return;
    }
    const char *by = sn_arena_printf(&b->arena, "the data of '%s'", port->name);
    for (int d = 0; d < port->rank; d++) {
        if (port->dim[d].symbol) {
            bind(b, port->dim[d].symbol, shape->dim[d], by);
        } else if (port->dim[d].size != shape->dim[d]) {
            sn_error(b->diags, "E0207", port->name,
                     "export the model with this dim symbolic (dynamic_shapes=…), or give data of that size",
                     "dim %d of the input '%s' is fixed to %lld in the model, the data has %lld", d, port->name,
                     (long long)port->dim[d].size, (long long)shape->dim[d]);
        }
    }
}

static sn_type bound_type(binding *b, const sn_onnx_port *port, const sn_onnx_shape *shape) {
    int64_t dims[SN_MAX_RANK] = {0};
    int rank = port->rank;
    if (port->problem)
        sn_error(b->diags, "E0209", port->name, "make it a tensor, or remove the input before the export",
                 "the input '%s' is %s, which is not supported", port->name, port->problem);
    else if (port->dtype == SN_DTYPE_COUNT)
        sn_error(b->diags, "E0209", port->name, "export again with types: ONNX's checker says more",
                 "the model does not state the type of the input '%s'", port->name);
    if (rank < 0) {
        if (!shape) {
            sn_error(b->diags, "E0206", port->name, "give data for it, or export the model with shapes",
                     "the model does not state the shape of the input '%s'", port->name);
            return sn_type_scalar(SN_F32);
        }
        return sn_type_make(port->dtype, shape->rank, shape->dim);
    }
    for (int d = 0; d < rank; d++) {
        const bound *known = port->dim[d].symbol ? sn_map_get(&b->symbols, port->dim[d].symbol) : NULL;
        dims[d] = known ? known->size : port->dim[d].size;
    }
    return sn_type_make(port->dtype < SN_DTYPE_COUNT ? port->dtype : SN_F32, rank, dims);
}

static void report_open(binding *b) {
    const char *names = list_symbols(b, true, "'", "'");
    if (!*names) return;
    bool batch = false; // whether a first dim is among them, which data does not settle
    for (size_t i = 0; i < b->model->info.n_inputs; i++) {
        const sn_onnx_port *port = &b->model->info.inputs[i];
        batch |= port->rank > 0 && port->dim[0].symbol && !sn_map_get(&b->symbols, port->dim[0].symbol);
    }
    sn_error(b->diags, "E0206", b->model->info.path,
             sn_arena_printf(&b->arena, "%s%s",
                             batch ? "--batch N binds the first dim, data or --dim the others: "
                                   : "give data with these dims, or ",
                             list_symbols(b, true, "--dim ", "=…")),
             "symbolic dims are not bound: %s", names);
}

bool sn_onnx_bind(const sn_onnx_model *model, const sn_onnx_options *options, sn_type *out, sn_diags *diags) {
    size_t errors = diags->errors;
    const sn_onnx_info *info = &model->info;
    binding b = {.model = model, .diags = diags};
    collect_symbols(&b);
    bind_names(&b, options);
    for (size_t i = 0; i < info->n_inputs; i++) {
        const sn_onnx_shape *shape = find_shape(options, info->inputs[i].name);
        if (shape) bind_shape(&b, &info->inputs[i], shape);
    }
    for (size_t i = 0; i < info->n_inputs; i++)
        out[i] = bound_type(&b, &info->inputs[i], find_shape(options, info->inputs[i].name));
    if (diags->errors == errors) report_open(&b);
    bool settled = diags->errors == errors;
    for (size_t i = 0; i < info->n_inputs && settled; i++)
        if (!sn_shape_is_valid(out[i].rank, out[i].dim))
            sn_error(diags, "E0207", info->inputs[i].name, "bind its dims to smaller sizes",
                     "the input '%s' would have more than 2^48 elements", info->inputs[i].name);
    sn_map_free(&b.symbols);
    sn_arena_free(&b.arena);
    return diags->errors == errors;
}
