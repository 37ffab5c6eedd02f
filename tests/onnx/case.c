#include "tests/onnx/case.h"

#include "base/alloc.h"
#include "base/file.h"
#include "frontend/onnx.h"
#include "onnx.pb-c.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

// As ONNX's runner compares when a test states nothing else.
static const double relative_tolerance = 1e-3, absolute_tolerance = 1e-7;

void case_subject(const char *folder, sn_str *out) {
    sn_str path = {0};
    sn_mapped_file file;
    sn_str_printf(&path, "%s/model.onnx", folder);
    sn_status status = sn_file_map(sn_str_text(&path), &file);
    sn_str_free(&path);
    if (status) {
        sn_status_free(status);
        return;
    }
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, file.bytes, file.data);
    if (model && model->graph && model->graph->n_node == 1)
        sn_str_puts(out, model->graph->node[0]->op_type);
    else
        sn_str_puts(out, "graphs of several nodes");
    if (model) onnx__model_proto__free_unpacked(model, NULL);
    sn_file_unmap(&file);
}

typedef struct data_set {
    sn_arena *arena;
    const sn_onnx_info *info;
    size_t n_inputs;
    sn_tensor *inputs; // in the order of info->inputs
} data_set;

// The first error in one line: of a list of unsupported nodes, the list alone.
static verdict from_diagnostics(const sn_diags *diags, sn_str *reason) {
    for (size_t i = 0; i < diags->count; i++) {
        const sn_diag *d = &diags->items[i];
        if (d->severity != SN_ERROR) continue;
        const char *list = strchr(d->message, '\n'), *text = list ? list : d->message;
        sn_str_printf(reason, "%s", d->code);
        bool blank = true;
        for (; *text; text++) {
            if (!isspace((unsigned char)*text) && blank) sn_str_putc(reason, ' ');
            blank = isspace((unsigned char)*text);
            if (!blank) sn_str_putc(reason, *text);
        }
        break;
    }
    return UNSUPPORTED;
}

static const void *input_value(void *user, const char *input, sn_type type) {
    const data_set *set = user;
    for (size_t i = 0; i < set->n_inputs; i++)
        if (strcmp(set->info->inputs[i].name, input) == 0 && sn_type_equal(set->inputs[i].type, type))
            return set->inputs[i].data;
    return NULL;
}

// Before onnx 1.13 the tests stored bf16 tensors as u16.
static void read_as(sn_tensor *tensor, sn_dtype wanted) {
    if (wanted == SN_BF16 && tensor->type.dtype == SN_U16) tensor->type.dtype = SN_BF16;
}

static bool load_inputs(data_set *set, const char *folder, sn_diags *diags) {
    set->inputs = SN_NEW_N(set->arena, sn_tensor, set->info->n_inputs + 1);
    for (size_t i = 0; i < set->info->n_inputs; i++) {
        const char *path = sn_arena_printf(set->arena, "%s/input_%zu.pb", folder, i);
        sn_tensor *input = &set->inputs[i];
        if (!sn_onnx_load_tensor(path, set->arena, &input->type, &input->data, diags)) return false;
        read_as(input, set->info->inputs[i].dtype);
        set->n_inputs = i + 1;
    }
    return true;
}

static sn_module *import(sn_onnx_model *model, data_set *set, sn_diags *diags) {
    sn_onnx_shape *shapes = SN_NEW_N(set->arena, sn_onnx_shape, set->n_inputs + 1);
    for (size_t i = 0; i < set->n_inputs; i++) {
        shapes[i] = (sn_onnx_shape){.input = set->info->inputs[i].name, .rank = set->inputs[i].type.rank};
        memcpy(shapes[i].dim, set->inputs[i].type.dim, sizeof shapes[i].dim);
    }
    sn_onnx_options options = {
        .n_shapes = (int)set->n_inputs, .shapes = shapes, .input_value = input_value, .user = set};
    return sn_onnx_import(model, &options, diags);
}

// The function's arguments, by name; "$seed" and "$step" are 1. NULL when one has no value.
static sn_tensor *bind_args(const data_set *set, const sn_func *func, sn_str *reason) {
    static const int64_t one = 1;
    sn_tensor *args = SN_NEW_N(set->arena, sn_tensor, func->args.count + 1);
    for (size_t a = 0; a < func->args.count; a++) {
        const sn_value *arg = func->args.data[a];
        if (arg->name[0] == '$') args[a] = (sn_tensor){arg->type, (void *)(uintptr_t)&one};
        for (size_t i = 0; i < set->n_inputs; i++)
            if (strcmp(set->info->inputs[i].name, arg->name) == 0) args[a] = set->inputs[i];
        if (!args[a].data || !sn_type_equal(args[a].type, arg->type)) {
            sn_str_printf(reason, "argument %s has no input of its type", arg->name);
            return NULL;
        }
    }
    return args;
}

static bool draws_random_numbers(const sn_func *func) {
    for (size_t i = 0; i < func->args.count; i++)
        if (strcmp(func->args.data[i]->name, "$seed") == 0) return true;
    return false;
}

static bool close_enough(const sn_tensor *actual, const sn_tensor *expected, int64_t i) {
    if (!sn_dtype_is_float(expected->type.dtype))
        return sn_load_i64(actual->type.dtype, actual->data, i) == sn_load_i64(expected->type.dtype, expected->data, i);
    double a = sn_load_f64(actual->type.dtype, actual->data, i);
    double b = sn_load_f64(expected->type.dtype, expected->data, i);
    if (isnan(b)) return isnan(a);
    if (isinf(b)) return a == b;
    return fabs(a - b) <= absolute_tolerance + relative_tolerance * fabs(b);
}

static verdict compare(size_t index, const sn_tensor *actual, const sn_tensor *expected, sn_str *reason) {
    if (!sn_type_equal(actual->type, expected->type)) {
        sn_str_printf(reason, "output %zu is ", index);
        sn_type_print(reason, actual->type);
        sn_str_puts(reason, ", not ");
        sn_type_print(reason, expected->type);
        return WRONG;
    }
    int64_t count = sn_type_count(expected->type);
    for (int64_t i = 0; i < count; i++)
        if (!close_enough(actual, expected, i)) {
            sn_str_printf(reason, "output %zu at %" PRId64 " is %.9g, not %.9g", index, i,
                          sn_load_f64(actual->type.dtype, actual->data, i),
                          sn_load_f64(expected->type.dtype, expected->data, i));
            return WRONG;
        }
    return PASS;
}

static verdict compare_all(const data_set *set, const char *folder, size_t n, const sn_tensor *results, sn_diags *diags,
                           sn_str *reason) {
    for (size_t i = 0; i < n; i++) {
        sn_tensor expected;
        const char *path = sn_arena_printf(set->arena, "%s/output_%zu.pb", folder, i);
        if (!sn_onnx_load_tensor(path, set->arena, &expected.type, &expected.data, diags))
            return from_diagnostics(diags, reason);
        read_as(&expected, results[i].type.dtype);
        verdict found = compare(i, &results[i], &expected, reason);
        if (found != PASS) return found;
    }
    return PASS;
}

static verdict run_module(const data_set *set, sn_module *module, const char *folder, executor *execute,
                          sn_diags *diags, sn_str *reason) {
    const sn_func *func = sn_module_func(module, "main");
    if (draws_random_numbers(func)) {
        sn_str_puts(reason, "draws random numbers: nothing to compare with");
        return UNSUPPORTED;
    }
    sn_tensor *args = bind_args(set, func, reason);
    if (!args) return WRONG;
    size_t n = func->results.count;
    sn_tensor *results = SN_NEW_N(set->arena, sn_tensor, n + 1);
    verdict found = execute(module, func, args, results, reason);
    if (found == PASS) found = compare_all(set, folder, n, results, diags, reason);
    for (size_t i = 0; i < n; i++) sn_tensor_free(&results[i]);
    return found;
}

static verdict run_data_set(sn_onnx_model *model, const char *folder, executor *execute, sn_str *reason) {
    sn_arena arena = {0};
    sn_diags diags = {0};
    data_set set = {.arena = &arena, .info = sn_onnx_info_of(model)};
    verdict found;
    sn_module *module = NULL;
    if (load_inputs(&set, folder, &diags)) module = import(model, &set, &diags);
    if (module) {
        found = run_module(&set, module, folder, execute, &diags, reason);
        sn_module_free(module);
    } else {
        found = from_diagnostics(&diags, reason);
    }
    sn_diags_free(&diags);
    sn_arena_free(&arena);
    return found;
}

verdict run_case(const char *folder, executor *execute, sn_str *reason) {
    sn_str path = {0};
    sn_diags diags = {0};
    verdict found = UNSUPPORTED;
    sn_str_printf(&path, "%s/model.onnx", folder);
    sn_onnx_model *model = sn_onnx_open(sn_str_text(&path), &diags);
    if (!model) from_diagnostics(&diags, reason);
    for (int i = 0; model; i++) {
        sn_str_clear(&path);
        sn_str_printf(&path, "%s/test_data_set_%d", folder, i);
        if (access(sn_str_text(&path), F_OK) != 0) break;
        found = run_data_set(model, sn_str_text(&path), execute, reason);
        if (found != PASS) break;
    }
    if (model) sn_onnx_close(model);
    sn_diags_free(&diags);
    sn_str_free(&path);
    return found;
}

verdict run_interpreted(sn_module *module, const sn_func *func, const sn_tensor *args, sn_tensor *results,
                        sn_str *reason) {
    sn_interp *interp = sn_interp_new(module);
    const char *problem = sn_interp_run(interp, func, args, results);
    if (problem) sn_str_puts(reason, problem);
    sn_interp_free(interp);
    return problem ? WRONG : PASS;
}
