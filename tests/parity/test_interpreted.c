// Every sample model through the frontend, the training passes and the interpreter, against PyTorch: output, loss,
// every gradient, 20 steps. Once as imported, once simplified. Writes the table BUILD/parity-interpreted.md.
#include "reference.h"

#include "frontend/onnx.h"
#include "ir/interp.h"
#include "ir/verify.h"
#include "passes/pass.h"
#include "passes/training/training.h"

enum { MOST_ARGS = 16 };

// The default pipeline without what lays a program out on ranks.
static const char simplifying[] = "canonicalize,fold-constants,canonicalize,cse,recompose,canonicalize,cse,dce,"
                                  "training,canonicalize,cse,dce,decompose,canonicalize,cse,dce";

typedef struct session {
    const reference *reference;
    const json_t *file;
    sn_onnx_model *model;
    sn_module *module;
    sn_interp *interp;
    sn_diags diags;
    sn_tensor tensors[256]; // results of the last function that ran
} session;

static void stop(session *s, const char *what) {
    sn_diags_print(&s->diags, 0, false, stderr);
    fail_msg("%s failed", what);
}

static void open_data(const reference *r, const char *input, sn_npy *out) {
    char name[256];
    snprintf(name, sizeof name, "data/%s.npy", input);
    must(sn_npy_open(path_in(r->folder, name), out));
}

// The shape of one batch of an input.
static sn_onnx_shape batch_shape(const reference *r, const char *input) {
    sn_npy npy;
    open_data(r, input, &npy);
    sn_onnx_shape shape = {.input = input, .rank = (int)npy.rank};
    for (size_t i = 0; i < npy.rank; i++) shape.dim[i] = i ? npy.shape[i] : BATCH;
    sn_npy_close(&npy);
    return shape;
}

static void import(session *s, const char *path) {
    s->model = sn_onnx_open(path, &s->diags);
    if (!s->model) stop(s, "opening");
    const sn_onnx_info *info = sn_onnx_info_of(s->model);
    sn_onnx_shape shapes[MOST_ARGS];
    sn_onnx_options options = {.shapes = shapes};
    for (size_t i = 0; i < info->n_inputs; i++)
        shapes[options.n_shapes++] = batch_shape(s->reference, info->inputs[i].name);
    s->module = sn_onnx_import(s->model, &options, &s->diags);
    if (!s->module) stop(s, "import");
}

static sn_optimizer optimizer_of(const reference *r) {
    const json_t *o = json_object_get(r->json, "optimizer");
    sn_optimizer result = sn_optimizer_default(SN_OPTIMIZER_ADAMW);
    result.lr = json_real_value(json_object_get(o, "lr"));
    result.beta1 = json_real_value(json_object_get(o, "beta1"));
    result.beta2 = json_real_value(json_object_get(o, "beta2"));
    result.eps = json_real_value(json_object_get(o, "eps"));
    result.weight_decay = json_real_value(json_object_get(o, "weight_decay"));
    return result;
}

static void verify(session *s) {
    sn_str problems = {0};
    if (!sn_verify(s->module, &problems)) fail_msg("%s", sn_str_text(&problems));
    sn_str_free(&problems);
}

static void build(session *s, bool simplified) {
    verify(s);
    sn_training training = sn_training_default();
    training.loss = loss_spec(s->reference, s->file, sn_module_func(s->module, "main")->result_names.data[0]);
    training.ignore_index = json_integer_value(json_object_get(s->reference->json, "ignore_index"));
    training.optimizer = optimizer_of(s->reference);
    training.with_gradients = true;
    const char *padding = padding_rule(s->reference);
    training.n_paddings = padding != NULL;
    training.paddings = &padding;
    sn_pass_context context = {.diags = &s->diags, .training = &training};
    sn_pipeline_options options = {.pipeline = simplified ? simplifying : "training", .pass_limit = -1};
    if (!sn_passes_run(s->module, &context, &options)) stop(s, "the pipeline");
    verify(s);
    s->interp = sn_interp_new(s->module);
}

static sn_tensor argument(session *s, const sn_value *arg, int step) {
    sn_tensor tensor = sn_tensor_new(arg->type);
    int64_t count = sn_type_count(arg->type);
    if (strcmp(arg->name, "$lr") == 0) {
        sn_store_f64(arg->type.dtype, tensor.data, 0, optimizer_of(s->reference).lr);
    } else if (arg->name[0] == '$') {
        sn_store_i64(arg->type.dtype, tensor.data, 0, step + 1);
    } else {
        sn_npy npy;
        open_data(s->reference, arg->name, &npy);
        bool is_float = sn_dtype_is_float(npy.dtype);
        for (int64_t i = 0; i < count; i++)
            if (is_float)
                sn_store_f64(arg->type.dtype, tensor.data, i, sn_load_f64(npy.dtype, npy.data, step * count + i));
            else
                sn_store_i64(arg->type.dtype, tensor.data, i, sn_load_i64(npy.dtype, npy.data, step * count + i));
        sn_npy_close(&npy);
    }
    return tensor;
}

// Runs a function on the batch of a step into s->tensors; returns its first result's first number.
static double run(session *s, const char *name, int step) {
    const sn_func *func = sn_module_func(s->module, name);
    sn_tensor args[MOST_ARGS];
    assert_true(func->results.count <= sizeof s->tensors / sizeof *s->tensors);
    for (size_t i = 0; i < func->args.count; i++) args[i] = argument(s, func->args.data[i], step);
    const char *problem = sn_interp_run(s->interp, func, args, s->tensors);
    if (problem) fail_msg("@%s: %s", name, problem);
    for (size_t i = 0; i < func->args.count; i++) sn_tensor_free(&args[i]);
    return sn_load_f64(s->tensors[0].type.dtype, s->tensors[0].data, 0);
}

static void drop_results(session *s, const char *name) {
    const sn_func *func = sn_module_func(s->module, name);
    for (size_t i = 0; i < func->results.count; i++) sn_tensor_free(&s->tensors[i]);
}

static double *find_gradient(void *user, const char *initializer, int64_t count) {
    session *s = user;
    const sn_func *func = sn_module_func(s->module, "gradients");
    for (size_t i = 1; i < func->results.count; i++) {
        if (strcmp(func->result_names.data[i] + strlen("grad:"), initializer) != 0) continue;
        const sn_tensor *tensor = &s->tensors[i];
        if (sn_type_count(tensor->type) != count) fail_msg("%s has another size than its parameter", initializer);
        double *data = sn_alloc(sizeof *data * (size_t)(count + 1));
        for (int64_t k = 0; k < count; k++) data[k] = sn_load_f64(tensor->type.dtype, tensor->data, k);
        return data;
    }
    return NULL;
}

static double output_error(session *s) {
    run(s, "predict", 0);
    sn_type type = s->tensors[0].type;
    int64_t count = sn_type_count(type);
    double *data = sn_alloc(sizeof *data * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) data[i] = sn_load_f64(type.dtype, s->tensors[0].data, i);
    double error = compare_output(s->reference, s->file, data, count);
    sn_free(data);
    drop_results(s, "predict");
    return error;
}

static double curve_error(session *s) {
    double worst = 0;
    for (int step = 0; step < STEPS; step++) {
        double error = relative(run(s, "step", step), wanted_loss(s->reference, s->file, step));
        drop_results(s, "step");
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

static outcome check(session *s, bool simplified) {
    outcome out = {.output = -1, .curve = -1, .gradient = -1};
    build(s, simplified);
    out.loss = relative(run(s, "gradients", 0), wanted_loss(s->reference, s->file, 0));
    bool folded = json_is_true(json_object_get(s->file, "batch_norm_folded"));
    bool one_each = !folded && compare_gradients(s->reference, s->file, find_gradient, s, &out);
    drop_results(s, "gradients");
    bool in_training = strcmp(text(s->file, "mode"), "train") == 0; // @predict is in inference mode
    if (!in_training && !json_is_true(json_object_get(s->file, "loss_in_graph"))) out.output = output_error(s);
    describe(s->file, one_each, &out);
    if (one_each && simplified) out.curve = curve_error(s);
    return out;
}

static int check_both(const reference *r, const char *model, const char *name, const json_t *file, FILE *table) {
    int failures = 0;
    for (int simplified = 0; simplified < 2; simplified++) {
        session s = {.reference = r, .file = file};
        import(&s, path_in(r->folder, name));
        outcome out = check(&s, simplified);
        char label[256];
        snprintf(label, sizeof label, "%s%s", name, simplified ? "" : ", as imported");
        failures += report(table, model, label, &out);
        sn_interp_free(s.interp);
        sn_module_free(s.module);
        sn_onnx_close(s.model);
        sn_diags_free(&s.diags);
    }
    return failures;
}

int main(int argc, char **argv) {
    return run_models(argc, argv, "Relative errors against PyTorch, through the interpreter",
                      SENNIT_BINARY_DIR "/parity-interpreted.md", check_both);
}
