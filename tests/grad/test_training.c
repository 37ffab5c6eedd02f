// The training step: optimizers against PyTorch's formulas in double, clipping, accumulation against the whole batch,
// the choice of loss and parameters, and what goes where.
#include "base/philox.h"
#include "ir/build.h"
#include "ir/interp.h"
#include "ir/verify.h"
#include "passes/training/training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { INPUT = 3, HIDDEN = 5, CLASSES = 4, MOST_ARGS = 8, MOST_PARAMETERS = 8 };

static sn_value *weight(sn_builder *b, const char *name, int rank, const int64_t *dims, sn_role role) {
    sn_type type = sn_type_make(SN_F32, rank, dims);
    float *data = sn_arena_alloc(&b->func->module->arena, (size_t)sn_type_bytes(type) + 1);
    uint64_t seed = sn_hash_bytes(name, strlen(name), 0);
    for (int64_t i = 0; i < sn_type_count(type); i++) data[i] = sn_random_uniform(seed, 0, 0, (uint64_t)i) - 0.5f;
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = data};
    return sn_module_add_global(b->func->module, name, type, role, source)->value;
}
#define WEIGHT(b, name, ...)                                                                                           \
    weight(b, name, (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__},           \
           SN_ROLE_PARAMETER)

// @main(%x) -> "logits" [batch, CLASSES]
static sn_module *model(int64_t batch) {
    sn_module *module = sn_module_new("mlp");
    sn_builder b = {.func = sn_module_add_func(module, "main")};
    sn_value *x = sn_func_add_arg(b.func, "x", sn_type_make(SN_F32, 2, (int64_t[]){batch, INPUT}));
    sn_value *h = sn_build_matmul(&b, x, WEIGHT(&b, "w1", INPUT, HIDDEN), false, false);
    h = sn_build_unary(&b, SN_OP_TANH, sn_build_binary(&b, SN_OP_ADD, h, WEIGHT(&b, "b1", HIDDEN)));
    sn_value *logits = sn_build_matmul(&b, h, WEIGHT(&b, "w2", CLASSES, HIDDEN), false, true);
    sn_func_add_result(b.func, logits, "logits");
    return module;
}

static const char cross_entropy[] = "softmax_cross_entropy:logits,labels";

static void build(sn_module *module, const sn_training *training) {
    sn_diags diags = {0};
    bool fine = sn_training_build(module, training, &diags);
    if (!fine) sn_diags_print(&diags, 0, false, stderr);
    assert_true(fine);
    sn_diags_free(&diags);
    sn_str problems = {0};
    if (!sn_verify(module, &problems)) fail_msg("%s", sn_str_text(&problems));
    sn_str_free(&problems);
}

// What a run of a function needs; names that it does not take are left out.
typedef struct run {
    sn_interp *interp;
    const sn_module *module;
    double lr;
    int64_t step, first, batch; // rows of the data: first, ..., first + batch - 1
    bool all_labels;            // none is ignored
} run;

static void fill(const run *r, const char *name, sn_tensor *tensor) {
    for (int64_t i = 0; i < sn_type_count(tensor->type); i++) {
        uint64_t at = (uint64_t)(i + r->first * (tensor->type.rank > 1 ? tensor->type.dim[1] : 1));
        float random = sn_random_uniform(42, 0, 0, at);
        if (strcmp(name, "$lr") == 0)
            sn_store_f64(tensor->type.dtype, tensor->data, i, r->lr);
        else if (name[0] == '$')
            sn_store_i64(tensor->type.dtype, tensor->data, i, r->step);
        else if (sn_dtype_is_float(tensor->type.dtype))
            sn_store_f64(tensor->type.dtype, tensor->data, i, random - 0.5);
        else // every third of the first rows is ignored: parts of a batch do not count alike
            sn_store_i64(tensor->type.dtype, tensor->data, i,
                         !r->all_labels && (at == 0 || at == 1 || at == 4) ? -100 : (int64_t)(random * CLASSES));
    }
}

static double run_func(const run *r, const char *name, sn_tensor *results) {
    const sn_func *func = sn_module_func(r->module, name);
    assert_non_null(func);
    sn_tensor args[MOST_ARGS];
    for (size_t i = 0; i < func->args.count; i++) {
        args[i] = sn_tensor_new(func->args.data[i]->type);
        fill(r, func->args.data[i]->name, &args[i]);
    }
    const char *problem = sn_interp_run(r->interp, func, args, results);
    if (problem) fail_msg("%s: %s", name, problem);
    for (size_t i = 0; i < func->args.count; i++) sn_tensor_free(&args[i]);
    return sn_load_f64(results[0].type.dtype, results[0].data, 0);
}

static void free_results(const run *r, const char *name, sn_tensor *results) {
    for (size_t i = 0; i < sn_module_func(r->module, name)->results.count; i++) sn_tensor_free(&results[i]);
}

// Runs @step or @update and returns the loss; *norm may be NULL.
static double step(const run *r, const char *name, double *norm) {
    sn_tensor results[2];
    double loss = run_func(r, name, results);
    if (norm) *norm = sn_load_f64(results[1].type.dtype, results[1].data, 0);
    free_results(r, name, results);
    return loss;
}

static run start(sn_module *module, int64_t batch) {
    run r = {.interp = sn_interp_new(module), .module = module, .lr = 0.125, .step = 1, .batch = batch};
    sn_interp_set_f64(r.interp, true);
    return r;
}

static double *global(const run *r, const char *name) {
    const sn_global *g = sn_module_global(r->module, name);
    if (!g) fail_msg("there is no global %s", name);
    const char *problem = NULL;
    sn_tensor *tensor = sn_interp_global(r->interp, g, &problem);
    assert_null(problem);
    assert_int_equal(tensor->type.dtype, SN_F64);
    return tensor->data;
}

static void assert_close(double got, double wanted) {
    if (!(fabs(got - wanted) <= 1e-10 * (1 + fabs(wanted)))) fail_msg("%.15g instead of %.15g", got, wanted);
}

// One element's update as torch.optim documents it (SGD, Adam, AdamW), in double.
typedef struct element {
    double p, m, v;
} element;

static element expected(const sn_optimizer *o, element e, double g, double lr, double t) {
    bool is_adam = o->kind == SN_OPTIMIZER_ADAM || o->kind == SN_OPTIMIZER_ADAMW;
    if (o->kind == SN_OPTIMIZER_ADAMW)
        e.p -= lr * o->weight_decay * e.p;
    else
        g += o->weight_decay * e.p;
    if (is_adam) {
        e.m = o->beta1 * e.m + (1 - o->beta1) * g;
        e.v = o->beta2 * e.v + (1 - o->beta2) * g * g;
        double m_hat = e.m / (1 - pow(o->beta1, t)), v_hat = e.v / (1 - pow(o->beta2, t));
        e.p -= lr * m_hat / (sqrt(v_hat) + o->eps);
    } else if (o->kind == SN_OPTIMIZER_MOMENTUM) {
        e.m = o->momentum * e.m + (1 - o->dampening) * g;
        e.p -= lr * (o->nesterov ? g + o->momentum * e.m : e.m);
    } else {
        e.p -= lr * g;
    }
    return e;
}

typedef struct snapshot {
    int n;
    const sn_global *parameters[MOST_PARAMETERS];
    double *p[MOST_PARAMETERS], *m[MOST_PARAMETERS], *v[MOST_PARAMETERS], *g[MOST_PARAMETERS];
} snapshot;

static double *copy_of(const double *data, int64_t count) {
    double *copy = sn_alloc(sizeof *copy * (size_t)count);
    if (data) memcpy(copy, data, sizeof *copy * (size_t)count);
    return copy;
}

static const char *state_name(const sn_optimizer *o, const char *parameter, bool second, char *buffer) {
    const char *suffix = o->kind == SN_OPTIMIZER_MOMENTUM ? "momentum" : second ? "v" : "m";
    sprintf(buffer, "%s.%s", parameter, suffix);
    return buffer;
}

static snapshot take(const run *r, const sn_optimizer *o) {
    snapshot s = {0};
    sn_tensor results[1 + MOST_PARAMETERS];
    run_func(r, "gradients", results);
    int n_states = sn_optimizer_states(o);
    for (size_t i = 0; i < r->module->globals.count; i++) {
        const sn_global *g = r->module->globals.data[i];
        if (g->role != SN_ROLE_PARAMETER) continue;
        char name[64];
        int64_t count = sn_type_count(g->value->type);
        s.parameters[s.n] = g;
        s.p[s.n] = copy_of(global(r, g->name), count);
        s.m[s.n] = copy_of(n_states > 0 ? global(r, state_name(o, g->name, false, name)) : NULL, count);
        s.v[s.n] = copy_of(n_states > 1 ? global(r, state_name(o, g->name, true, name)) : NULL, count);
        s.g[s.n] = copy_of(results[1 + s.n].data, count);
        s.n++;
    }
    free_results(r, "gradients", results);
    return s;
}

static void drop(snapshot *s) {
    for (int i = 0; i < s->n; i++) {
        sn_free(s->p[i]);
        sn_free(s->m[i]);
        sn_free(s->v[i]);
        sn_free(s->g[i]);
    }
}

static double norm_of(const snapshot *s) {
    double sum = 0;
    for (int i = 0; i < s->n; i++)
        for (int64_t k = 0; k < sn_type_count(s->parameters[i]->value->type); k++) sum += s->g[i][k] * s->g[i][k];
    return sqrt(sum);
}

static void check_step(const run *r, const sn_training *training, double expected_scale) {
    const sn_optimizer *o = &training->optimizer;
    snapshot s = take(r, o);
    double norm, wanted_norm = norm_of(&s), scale = 1;
    step(r, "step", &norm);
    assert_close(norm, wanted_norm);
    if (training->clip > 0) scale = fmin(1, training->clip / (wanted_norm + 1e-6));
    if (expected_scale > 0) assert_true((scale < 1) == (expected_scale < 1));
    int n_states = sn_optimizer_states(o);
    for (int i = 0; i < s.n; i++) {
        char name[64];
        const char *parameter = s.parameters[i]->name;
        const double *p = global(r, parameter);
        const double *m = n_states > 0 ? global(r, state_name(o, parameter, false, name)) : NULL;
        const double *v = n_states > 1 ? global(r, state_name(o, parameter, true, name)) : NULL;
        for (int64_t k = 0; k < sn_type_count(s.parameters[i]->value->type); k++) {
            element e = {s.p[i][k], s.m[i][k], s.v[i][k]};
            e = expected(o, e, s.g[i][k] * scale, r->lr, (double)r->step);
            assert_close(p[k], e.p);
            if (m) assert_close(m[k], e.m);
            if (v) assert_close(v[k], e.v);
        }
    }
    drop(&s);
}

static void check_optimizer(const char *text, double clip, double expected_scale) {
    sn_diags diags = {0};
    sn_training training = sn_training_default();
    training.loss = cross_entropy;
    training.with_gradients = true;
    training.clip = clip;
    assert_true(sn_optimizer_parse(text, &diags, &training.optimizer));
    sn_module *module = model(6);
    build(module, &training);
    run r = start(module, 6);
    for (; r.step <= 3; r.step++, r.lr *= 0.5) check_step(&r, &training, expected_scale);
    sn_interp_free(r.interp);
    sn_module_free(module);
    sn_diags_free(&diags);
}

static void test_optimizers(void **state) {
    (void)state;
    static const char *const texts[] = {"sgd",
                                        "sgd,weight_decay=0.1",
                                        "momentum",
                                        "momentum,momentum=0.8,dampening=0.25,weight_decay=0.1",
                                        "momentum,nesterov=1",
                                        "adam",
                                        "adam,beta1=0.5,beta2=0.75,eps=1e-4,weight_decay=0.1",
                                        "adamw",
                                        "adamw,lr=1e-4,beta1=0.8,weight_decay=0.3"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check_optimizer(texts[i], 0, 0);
}

static void test_clipping(void **state) {
    (void)state;
    check_optimizer("sgd", 0.01, 0.5); // far below the norm
    check_optimizer("adamw", 1e3, 1);  // far above it
}

static void test_optimizer_text(void **state) {
    (void)state;
    sn_diags diags = {0};
    sn_optimizer o;
    assert_true(sn_optimizer_parse("adamw,lr=1e-4,beta1=0.8", &diags, &o));
    assert_int_equal(o.kind, SN_OPTIMIZER_ADAMW);
    assert_close(o.lr, 1e-4);
    assert_close(o.beta1, 0.8);
    assert_close(o.beta2, 0.999);
    static const char *const wrong[] = {
        "",           "adagrad",       "adamw,lr",         "adamw,lr=",
        "adamw,lr=x", "adamw,lr=-1",   "adamw,beta1=1",    "sgd,momentum=0.9",
        "adam,lr=1x", "sgd,lr=1e-3,,", "momentum,beta1=0", "momentum,momentum=0,nesterov=1",
        "sgd,lr=nan", "sgd,l=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t before = diags.errors;
        if (sn_optimizer_parse(wrong[i], &diags, &o)) fail_msg("\"%s\" was accepted", wrong[i]);
        assert_true(diags.errors > before);
        assert_string_equal(diags.items[diags.count - 1].code, "E0305");
    }
    sn_diags_free(&diags);
}

// K parts of a batch with different numbers of counted labels must give what the whole batch gives.
static void check_accumulation(const char *optimizer, double clip, int64_t parts) {
    enum { BATCH = 6 };
    sn_diags diags = {0};
    sn_training training = sn_training_default();
    training.loss = cross_entropy;
    training.clip = clip;
    assert_true(sn_optimizer_parse(optimizer, &diags, &training.optimizer));
    sn_module *whole_module = model(BATCH), *parts_module = model(BATCH / parts);
    build(whole_module, &training);
    training.accumulate = (int)parts;
    build(parts_module, &training);
    assert_null(sn_module_func(parts_module, "step"));
    assert_null(sn_module_func(whole_module, "micro"));
    run whole = start(whole_module, BATCH), part = start(parts_module, BATCH / parts);
    for (int64_t i = 1; i <= 3; i++) {
        double whole_norm, part_norm;
        whole.step = part.step = i;
        double whole_loss = step(&whole, "step", &whole_norm);
        for (int64_t k = 0; k < parts; k++) {
            part.first = k * part.batch;
            step(&part, "micro", NULL);
        }
        assert_close(step(&part, "update", &part_norm), whole_loss);
        assert_close(part_norm, whole_norm);
        static const char *const names[] = {"w1", "b1", "w2"};
        static const int counts[] = {INPUT * HIDDEN, HIDDEN, CLASSES * HIDDEN};
        for (int n = 0; n < 3; n++)
            for (int k = 0; k < counts[n]; k++) assert_close(global(&part, names[n])[k], global(&whole, names[n])[k]);
        assert_close(global(&part, "w1.grad")[0], 0);
        assert_close(global(&part, "loss.count")[0], 0);
    }
    sn_interp_free(whole.interp);
    sn_interp_free(part.interp);
    sn_module_free(whole_module);
    sn_module_free(parts_module);
    sn_diags_free(&diags);
}

static void test_accumulation(void **state) {
    (void)state;
    check_accumulation("sgd", 0, 2);
    check_accumulation("adamw", 0, 3);
    check_accumulation("momentum", 0.05, 6);
}

// A model whose output is the loss: a mean written as sum / count is taken apart, any other is averaged.
static sn_module *model_with_loss(int64_t batch, bool as_mean, const char *second_output) {
    sn_module *module = model(batch);
    sn_builder b = {.func = sn_module_func(module, "main")};
    sn_value *logits = b.func->results.data[0];
    b.func->results.count = b.func->result_names.count = 0;
    sn_value *squares = sn_build_binary(&b, SN_OP_MUL, logits, logits);
    sn_value *sum = sn_build_reduce(&b, SN_OP_REDUCE_SUM, squares, 2, (int64_t[]){0, 1}, false);
    double count = (double)sn_type_count(logits->type);
    sn_value *loss = sn_build_binary_number(&b, as_mean ? SN_OP_DIV : SN_OP_MUL, sum, as_mean ? count : 1 / count);
    sn_func_add_result(b.func, sn_build_reshape(&b, loss, 1, (int64_t[]){1}), "loss");
    if (second_output) sn_func_add_result(b.func, sn_build_unary(&b, SN_OP_EXP, loss), second_output);
    return module;
}

static void test_own_loss(void **state) {
    (void)state;
    for (int as_mean = 0; as_mean < 2; as_mean++) {
        sn_training training = sn_training_default();
        sn_module *whole_module = model_with_loss(6, as_mean, NULL), *parts_module = model_with_loss(2, as_mean, NULL);
        build(whole_module, &training);
        training.accumulate = 3;
        build(parts_module, &training);
        run whole = start(whole_module, 6), part = start(parts_module, 2);
        double wanted = step(&whole, "step", NULL);
        for (part.first = 0; part.first < 6; part.first += 2) step(&part, "micro", NULL);
        assert_close(step(&part, "update", NULL), wanted);
        assert_close(global(&part, "loss.sum")[0], 0);
        assert_close(global(&part, "w1")[3], global(&whole, "w1")[3]);
        sn_interp_free(whole.interp);
        sn_interp_free(part.interp);
        sn_module_free(whole_module);
        sn_module_free(parts_module);
    }
}

static void test_mse(void **state) {
    (void)state;
    sn_training training = sn_training_default();
    training.loss = "mse:logits,target";
    sn_module *module = model(2);
    build(module, &training);
    run r = start(module, 2);
    sn_tensor results[1], output[1];
    double loss = run_func(&r, "eval", results);
    run_func(&r, "predict", output);
    double sum = 0;
    for (int i = 0; i < 2 * CLASSES; i++) {
        double target = sn_random_uniform(42, 0, 0, (uint64_t)i) - 0.5, got = ((double *)output[0].data)[i];
        sum += (got - target) * (got - target);
    }
    assert_close(loss, sum / (2 * CLASSES));
    free_results(&r, "eval", results);
    free_results(&r, "predict", output);
    sn_interp_free(r.interp);
    sn_module_free(module);
}

static void expect_error(sn_module *module, const sn_training *training, const char *code) {
    sn_diags diags = {0};
    assert_false(sn_training_build(module, training, &diags));
    assert_int_equal(diags.errors, 1);
    assert_string_equal(diags.items[diags.count - 1].code, code);
    sn_diags_free(&diags);
    sn_module_free(module);
}

static void test_wrong_losses(void **state) {
    (void)state;
    sn_training training = sn_training_default();
    expect_error(model(2), &training, "E0301");
    expect_error(model_with_loss(2, true, "other"), &training, "E0302");
    static const struct {
        const char *loss, *code;
    } wrong[] = {
        {"softmax_cross_entropy:logit,labels", "E0303"},
        {"softmax_cross_entropy:logits", "E0303"},
        {"mse:logits,", "E0303"},
        {"hinge:logits,labels", "E0303"},
        {"logits", "E0304"},
        {"softmax_cross_entropy:logits,x", "E0304"},
        {"mse:logits,x", "E0304"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        training.loss = wrong[i].loss;
        expect_error(model(2), &training, wrong[i].code);
    }
}

static void test_named_output_is_the_loss(void **state) {
    (void)state;
    sn_training training = sn_training_default();
    training.loss = "loss";
    sn_module *module = model_with_loss(2, true, "other");
    build(module, &training);
    sn_module_free(module);
}

static const sn_global *find(const sn_module *module, const char *name) {
    const sn_global *global = sn_module_global(module, name);
    assert_non_null(global);
    return global;
}

static void test_parameters(void **state) {
    (void)state;
    sn_module *module = model(2);
    sn_builder b = {.func = sn_module_func(module, "main")};
    sn_value *logits = b.func->results.data[0];
    b.func->results.count = b.func->result_names.count = 0;
    static const float mask[2 * CLASSES] = {0, -INFINITY, 0, -INFINITY, 0, 0, 0, 0};
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = mask};
    sn_global *m = sn_module_add_global(module, "mask", logits->type, SN_ROLE_PARAMETER, source);
    sn_value *scale = weight(&b, "scale", 0, NULL, SN_ROLE_PARAMETER);
    sn_value *offset = weight(&b, "offset", 1, (int64_t[]){CLASSES}, SN_ROLE_FROZEN);
    weight(&b, "unread", 1, (int64_t[]){3}, SN_ROLE_PARAMETER);
    logits = sn_build_binary(&b, SN_OP_MUL, logits, scale);
    logits = sn_build_binary(&b, SN_OP_ADD, sn_build_binary(&b, SN_OP_ADD, logits, m->value), offset);
    sn_func_add_result(b.func, logits, "logits");

    sn_training training = sn_training_default();
    training.loss = cross_entropy;
    const char *frozen[] = {"^b1$"}, *trainable[] = {"off"};
    training.parameters = (sn_parameter_rules){1, 1, frozen, trainable};
    sn_diags diags = {0};
    assert_true(sn_training_build(module, &training, &diags));
    assert_int_equal(diags.count, 1);
    assert_string_equal(diags.items[0].code, "W0307");
    assert_non_null(strstr(diags.items[0].message, "unread"));
    static const struct {
        const char *name;
        sn_role role;
    } roles[] = {{"w1", SN_ROLE_PARAMETER}, {"w2", SN_ROLE_PARAMETER}, {"b1", SN_ROLE_FROZEN},
                 {"mask", SN_ROLE_FROZEN},  {"scale", SN_ROLE_FROZEN}, {"offset", SN_ROLE_PARAMETER},
                 {"unread", SN_ROLE_FROZEN}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const sn_global *global = find(module, roles[i].name);
        if (global->role != roles[i].role || !global->why) fail_msg("wrong role of %s", roles[i].name);
    }
    assert_non_null(sn_module_global(module, "offset.m"));
    assert_null(sn_module_global(module, "b1.m"));
    assert_ptr_equal(find(module, "w1.v")->of, find(module, "w1"));
    sn_diags_free(&diags);
    sn_module_free(module);
}

static void test_wrong_parameters(void **state) {
    (void)state;
    sn_training training = sn_training_default();
    training.loss = cross_entropy;
    const char *broken[] = {"w("}, *nothing[] = {"xyz"}, *all[] = {"."};
    training.parameters = (sn_parameter_rules){.n_frozen = 1, .frozen = broken};
    expect_error(model(2), &training, "E0306");
    training.parameters = (sn_parameter_rules){.n_trainable = 1, .trainable = nothing};
    expect_error(model(2), &training, "E0306");
    training.parameters = (sn_parameter_rules){.n_frozen = 1, .frozen = all};
    expect_error(model(2), &training, "E0307");
}

static int count_ops(const sn_func *func, sn_op_kind kind) {
    int n = 0;
    SN_FOR_OPS(op, func) {
        n += op->kind == kind;
    }
    return n;
}

// Without clipping the last layer is updated while the first one's gradient is still to come.
static void test_updates_come_early(void **state) {
    (void)state;
    sn_training training = sn_training_default();
    training.loss = cross_entropy;
    sn_module *module = model(2);
    build(module, &training);
    const sn_func *func = sn_module_func(module, "step");
    const sn_op *first_update = NULL, *last_matmul = NULL;
    int n = 0, update_at = 0, matmul_at = 0;
    SN_FOR_OPS(op, func) {
        n++;
        if (op->kind == SN_OP_ADAM && !first_update) first_update = op, update_at = n;
        if (op->kind == SN_OP_MATMUL) last_matmul = op, matmul_at = n;
    }
    assert_true(first_update && last_matmul && update_at < matmul_at);
    assert_string_equal(first_update->operands[0]->name, "w2");
    assert_int_equal(count_ops(func, SN_OP_ADAM), 3);
    assert_int_equal(count_ops(func, SN_OP_ASSIGN), 9);
    sn_module_free(module);
}

// A running mean of the input, as batch norm's: a state that only the step may change.
static void test_states_and_arguments(void **state) {
    (void)state;
    sn_module *module = model(2);
    sn_func *main = sn_module_func(module, "main");
    sn_builder b = {.func = main, .phase = SN_PHASE_UPDATE};
    sn_value *running = weight(&b, "running", 2, (int64_t[]){2, INPUT}, SN_ROLE_STATE);
    sn_value *next = sn_build_binary(&b, SN_OP_ADD, running, main->args.data[0]);
    sn_build(&b, SN_OP_ASSIGN, 2, (sn_value *[]){running, next}, 0, NULL, NULL);
    sn_training training = sn_training_default();
    training.loss = cross_entropy;
    build(module, &training);
    assert_null(sn_module_func(module, "main"));
    assert_int_equal(count_ops(sn_module_func(module, "step"), SN_OP_ASSIGN), 10);
    assert_int_equal(count_ops(sn_module_func(module, "eval"), SN_OP_ASSIGN), 0);
    assert_int_equal(count_ops(sn_module_func(module, "predict"), SN_OP_ASSIGN), 0);
    static const char *const wanted[] = {"x", "labels", "$step", "$lr"};
    const sn_func *func = sn_module_func(module, "step");
    assert_int_equal(func->args.count, 4);
    for (int i = 0; i < 4; i++) assert_string_equal(func->args.data[i]->name, wanted[i]);
    assert_int_equal(sn_module_func(module, "eval")->args.count, 2);
    assert_int_equal(sn_module_func(module, "predict")->args.count, 1);
    assert_string_equal(func->result_names.data[0], "loss");
    assert_string_equal(func->result_names.data[1], "grad_norm");
    sn_module_free(module);
}

// @main(%ids) -> "logits" through a table that is also the output layer's weight
static sn_module *tied_model(void) {
    sn_module *module = sn_module_new("tied");
    sn_builder b = {.func = sn_module_add_func(module, "main")};
    sn_value *ids = sn_func_add_arg(b.func, "ids", sn_type_make(SN_I64, 2, (int64_t[]){2, 3}));
    sn_value *table = WEIGHT(&b, "table", CLASSES, HIDDEN);
    sn_value *h = sn_build_unary(&b, SN_OP_TANH, sn_build_gather(&b, table, ids, 0));
    sn_func_add_result(b.func, sn_build_matmul(&b, h, table, false, true), "logits");
    return module;
}

static double *table_gradient(sn_module *module, const sn_training *training) {
    build(module, training);
    run r = start(module, 6);
    r.all_labels = true;
    sn_tensor results[2];
    run_func(&r, "gradients", results);
    double *gradient = copy_of(results[1].data, CLASSES * HIDDEN);
    free_results(&r, "gradients", results);
    sn_interp_free(r.interp);
    sn_module_free(module);
    return gradient;
}

static double distance(const double *a, const double *b, int row) {
    double sum = 0;
    for (int i = 0; i < HIDDEN; i++) sum += fabs(a[row * HIDDEN + i] - b[row * HIDDEN + i]);
    return sum;
}

// The padding row keeps the gradient that it has as a part of the output layer, and loses the other part.
static void test_padding(void **state) {
    (void)state;
    sn_training training = sn_training_default();
    training.loss = cross_entropy;
    training.with_gradients = true;
    double *all = table_gradient(tied_model(), &training);
    const char *rules[] = {"^tab=2"};
    training.n_paddings = 1;
    training.paddings = rules;
    double *padded = table_gradient(tied_model(), &training);
    for (int row = 0; row < CLASSES; row++) assert_true((distance(all, padded, row) > 1e-3) == (row == 2));
    double left = 0;
    for (int i = 0; i < HIDDEN; i++) left += fabs(padded[2 * HIDDEN + i]);
    assert_true(left > 1e-3);
    sn_free(all);
    sn_free(padded);
    static const char *const wrong[] = {"table", "table=", "table=x", "table=4", "table=-1", "=1", "w=1", "(=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rules[0] = wrong[i];
        expect_error(tied_model(), &training, "E0308");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_optimizer_text),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_own_loss),
        cmocka_unit_test(test_mse),
        cmocka_unit_test(test_wrong_losses),
        cmocka_unit_test(test_named_output_is_the_loss),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_wrong_parameters),
        cmocka_unit_test(test_updates_come_early),
        cmocka_unit_test(test_states_and_arguments),
        cmocka_unit_test(test_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
