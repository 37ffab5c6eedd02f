// What exporters do to parameters is repaired or reported; training mode reaches Dropout and BatchNormalization.
#include "frontend/onnx.h"
#include "ir/interp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/onnx.h"

typedef struct imported {
    sn_str file;
    sn_diags diags;
    sn_onnx_model *model;
    sn_module *module;
} imported;

static imported import(sn_str file, sn_onnx_mode mode) {
    imported i = {.file = file};
    i.model = sn_onnx_open_memory(file.data, file.length, "test", &i.diags);
    assert_non_null(i.model);
    i.module = sn_onnx_import(i.model, &(sn_onnx_options){.mode = mode}, &i.diags);
    if (!i.module) fail_msg("%s", i.diags.items[0].message);
    sn_onnx_check_training(i.model, i.module, mode, &i.diags);
    return i;
}

static void release(imported *i) {
    sn_module_free(i->module);
    sn_onnx_close(i->model);
    sn_diags_free(&i->diags);
    sn_str_free(&i->file);
}

static bool has(const imported *i, const char *code) {
    for (size_t d = 0; d < i->diags.count; d++)
        if (strcmp(i->diags.items[d].code, code) == 0) return true;
    return false;
}

static sn_role role_of(const imported *i, const char *name) {
    const sn_global *global = sn_module_global(i->module, name);
    if (!global) fail_msg("there is no global '%s'", name);
    return global->role;
}

// Marks a value as torch.export does.
static void mark(sn_str *graph, const char *name, const char *kind) {
    sn_str info = {0}, entry = {0};
    pb_text(&info, 1, name);
    pb_text(&entry, 1, "pkg.torch.export.graph_signature.InputSpec.kind");
    pb_text(&entry, 2, kind);
    pb_message(&info, 4, &entry);
    pb_message(graph, 13, &info);
}

enum { ROWS = 8, COLUMNS = 12, COUNT = ROWS * COLUMNS };

static void fill(float *data, bool transposed) {
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) data[transposed ? c * ROWS + r : r * COLUMNS + c] = (float)(r * 17 + c) / 7;
}

static void merged_parameters_are_separate(void **state) {
    (void)state;
    const float ones[2] = {1, 1};
    sn_str graph = {0};
    onnx_input(&graph, "x", "2");
    onnx_node(&graph, "Identity", "norm1.weight", "norm2.weight", NULL);
    onnx_node(&graph, "Mul", "x norm1.weight", "a", NULL);
    onnx_node(&graph, "Mul", "a norm2.weight", "y", NULL);
    onnx_weight(&graph, "norm1.weight", 1, (int64_t[]){2}, ones);
    onnx_output(&graph, "y", "2");
    imported i = import(onnx_model(&graph, NULL), SN_ONNX_AS_EXPORTED);
    assert_true(has(&i, "W0301"));
    assert_int_equal(role_of(&i, "norm1.weight"), SN_ROLE_PARAMETER);
    assert_int_equal(role_of(&i, "norm2.weight"), SN_ROLE_PARAMETER);
    assert_int_equal(i.module->globals.count, 2);
    release(&i);
}

static void untied_weights_are_tied(void **state) {
    (void)state;
    float weight[COUNT], copy[COUNT];
    fill(weight, false);
    fill(copy, true);
    for (int differs = 0; differs < 2; differs++) {
        if (differs) copy[COUNT / 2] += 1;
        sn_str graph = {0};
        onnx_port(&graph, 11, "ids", 7, "3");
        onnx_node(&graph, "Gather", "wte.weight ids", "h", NULL);
        onnx_node(&graph, "MatMul", "h onnx::MatMul_5", "y", NULL);
        onnx_weight(&graph, "wte.weight", 2, (int64_t[]){ROWS, COLUMNS}, weight);
        onnx_weight(&graph, "onnx::MatMul_5", 2, (int64_t[]){COLUMNS, ROWS}, copy);
        onnx_output(&graph, "y", "3 8");
        imported i = import(onnx_model(&graph, NULL), SN_ONNX_AS_EXPORTED);
        assert_int_equal(has(&i, "W0302"), !differs);
        assert_int_equal(i.module->globals.count, 1 + differs);
        release(&i);
    }
}

static const float *weight_of(const imported *i, const char *name) {
    return sn_module_global(i->module, name)->source.data;
}

// What was merged comes back as initializers of their own, and the copy of a tied weight follows it.
static void export_keeps_repairs(void **state) {
    (void)state;
    float weight[COUNT], copy[COUNT], trained[COUNT];
    const float ones[COLUMNS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, twos[COLUMNS] = {2, 3};
    fill(weight, false);
    fill(copy, true);
    for (int k = 0; k < COUNT; k++) trained[k] = (float)k;
    sn_str graph = {0};
    onnx_port(&graph, 11, "ids", 7, "3");
    onnx_node(&graph, "Identity", "a.weight", "b.weight", NULL);
    onnx_node(&graph, "Gather", "wte.weight ids", "h", NULL);
    onnx_node(&graph, "Mul", "h a.weight", "s", NULL);
    onnx_node(&graph, "Mul", "s b.weight", "t", NULL);
    onnx_node(&graph, "MatMul", "t onnx::MatMul_5", "y", NULL);
    onnx_weight(&graph, "wte.weight", 2, (int64_t[]){ROWS, COLUMNS}, weight);
    onnx_weight(&graph, "a.weight", 1, (int64_t[]){COLUMNS}, ones);
    onnx_weight(&graph, "onnx::MatMul_5", 2, (int64_t[]){COLUMNS, ROWS}, copy);
    onnx_output(&graph, "y", "3 8");
    imported before = import(onnx_model(&graph, NULL), SN_ONNX_AS_EXPORTED);
    assert_int_equal(before.module->globals.count, 3);
    char path[] = "/tmp/sennit-hazards-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    const sn_onnx_replacement trained_weights[] = {{"wte.weight", trained}, {"b.weight", twos}};
    assert_null(sn_onnx_export(before.model, 2, trained_weights, path));
    release(&before);

    imported after = {0};
    after.model = sn_onnx_open(path, &after.diags);
    assert_int_equal(sn_onnx_info_of(after.model)->n_nodes, 4); // the Identity is gone
    assert_int_equal(sn_onnx_info_of(after.model)->n_weights, 4);
    after.module = sn_onnx_import(after.model, &(sn_onnx_options){0}, &after.diags);
    assert_true(has(&after, "W0302")); // still tied, so the copy followed
    assert_false(has(&after, "W0301"));
    assert_memory_equal(weight_of(&after, "wte.weight"), trained, sizeof trained);
    assert_memory_equal(weight_of(&after, "a.weight"), ones, sizeof ones);
    assert_memory_equal(weight_of(&after, "b.weight"), twos, sizeof twos);
    release(&after);
    unlink(path);
}

static void marks_decide_roles(void **state) {
    (void)state;
    float weight[COUNT], table[2 * ROWS];
    fill(weight, false);
    for (int i = 0; i < 2 * ROWS; i++) table[i] = (float)i;
    sn_str graph = {0};
    onnx_input(&graph, "x", "2 8");
    onnx_node(&graph, "Mul", "x scale", "a", NULL);
    onnx_node(&graph, "Add", "a table", "b", NULL);
    onnx_node(&graph, "Add", "b statistics", "c", NULL);
    onnx_node(&graph, "MatMul", "c val_3", "y", NULL);
    onnx_weight(&graph, "scale", 1, (int64_t[]){ROWS}, weight);
    onnx_weight(&graph, "statistics", 1, (int64_t[]){ROWS}, weight + 8);
    onnx_weight(&graph, "table", 2, (int64_t[]){2, ROWS}, table);
    onnx_weight(&graph, "val_3", 2, (int64_t[]){ROWS, COLUMNS}, weight);
    mark(&graph, "scale", "PARAMETER");
    mark(&graph, "statistics", "BUFFER");
    onnx_output(&graph, "y", "2 12");
    imported i = import(onnx_model(&graph, NULL), SN_ONNX_AS_EXPORTED);
    assert_int_equal(role_of(&i, "scale"), SN_ROLE_PARAMETER);
    assert_int_equal(role_of(&i, "statistics"), SN_ROLE_CONSTANT);
    assert_int_equal(role_of(&i, "table"), SN_ROLE_FROZEN);
    assert_int_equal(role_of(&i, "val_3"), SN_ROLE_PARAMETER); // a transposed weight
    assert_true(has(&i, "W0303"));
    release(&i);
}

// A node of a module, as torch.onnx writes it.
static void node_of(sn_str *graph, const char *inputs, const char *output, const char *scopes) {
    sn_str entry = {0}, field = {0};
    pb_text(&entry, 1, "pkg.torch.onnx.name_scopes");
    pb_text(&entry, 2, scopes);
    pb_message(&field, 9, &entry);
    onnx_node(graph, "Mul", inputs, output, &field);
}

// A gain that nodes of two modules read is reported where the exporter has merged it: when it is uniform, no other
// parameter equals it, and neither module lies within the other.
static void merged_marked_parameters_are_reported(void **state) {
    (void)state;
    static const struct {
        const char *name, *first, *second;
        float last, bias;
        bool reported;
    } cases[] = {
        {"h.0.norm.weight", "['', 'h.0', 'h.0.norm', 'mul']", "['', 'h.1', 'h.1.norm', 'mul_1']", 1, 0, true},
        {"norm.weight", "['', 'norm', 'mul']", "['', 'norms', 'mul_1']", 1, 0, true},
        {"h.0.norm.weight", "['', 'h.0', 'h.0.norm', 'mul']", "['', 'h.1', 'h.1.norm', 'mul_1']", 2, 0, false},
        {"h.0.norm.weight", "['', 'h.0', 'h.0.norm', 'mul']", "['', 'h.1', 'h.1.norm', 'mul_1']", 1, 1, false},
        {"h.0.norm.weight", "['', 'h.0', 'h.0.norm', 'mul']", "['', 'h.0', 'mul_1']", 1, 0, false},
        {"h.0.gain", "['', 'h.0', 'mul']", "['', 'h.0', 'h.0.norm', 'mul_1']", 1, 0, false},
        {"gain", "['', 'mul']", "['', 'h.0', 'mul_1']", 1, 0, false},
        {"h.0.gain", "", "mul_1", 1, 0, false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const float gain[2] = {1, cases[c].last}, bias[2] = {cases[c].bias, cases[c].bias};
        sn_str graph = {0}, inputs = {0};
        onnx_input(&graph, "x", "2");
        sn_str_printf(&inputs, "x %s", cases[c].name);
        node_of(&graph, sn_str_text(&inputs), "a", cases[c].first);
        inputs.length = 0;
        sn_str_printf(&inputs, "a %s", cases[c].name);
        node_of(&graph, sn_str_text(&inputs), "b", cases[c].second);
        onnx_node(&graph, "Add", "b bias", "y", NULL);
        onnx_weight(&graph, cases[c].name, 1, (int64_t[]){2}, gain);
        onnx_weight(&graph, "bias", 1, (int64_t[]){2}, bias);
        mark(&graph, cases[c].name, "PARAMETER");
        mark(&graph, "bias", "PARAMETER");
        onnx_output(&graph, "y", "2");
        imported i = import(onnx_model(&graph, NULL), SN_ONNX_AS_EXPORTED);
        assert_int_equal(has(&i, "W0308"), cases[c].reported);
        release(&i);
        sn_str_free(&inputs);
    }
}

// TorchScript leaves an Identity, of whose names folding may have left nothing that tells a parameter.
static void merged_folded_parameters_are_reported(void **state) {
    (void)state;
    static const struct {
        const char *name;
        float last;
        bool reported;
    } cases[] = {{"onnx::Mul_5", 1, true}, {"onnx::Mul_5", 2, false}, {"norm.weight", 1, true}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const float gain[2] = {1, cases[c].last};
        sn_str graph = {0}, inputs = {0};
        onnx_input(&graph, "x", "2 4");
        sn_str_printf(&inputs, "x %s", cases[c].name);
        onnx_node(&graph, "Identity", cases[c].name, "onnx::Mul_9", NULL);
        onnx_node(&graph, "Mul", sn_str_text(&inputs), "a", NULL);
        onnx_node(&graph, "Mul", "a onnx::Mul_9", "y", NULL);
        onnx_weight(&graph, cases[c].name, 2, (int64_t[]){2, 1}, gain);
        onnx_output(&graph, "y", "2 4");
        imported i = import(onnx_model(&graph, NULL), SN_ONNX_AS_EXPORTED);
        assert_int_equal(has(&i, "W0308"), cases[c].reported);
        release(&i);
        sn_str_free(&inputs);
    }
}

// A gain that was made ready to be broadcast is a lost parameter though it is all ones; a mask of ones is none.
static void folded_gains_are_reported(void **state) {
    (void)state;
    const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (int mask = 0; mask < 2; mask++) {
        sn_str graph = {0};
        onnx_input(&graph, "x", "2 4");
        onnx_node(&graph, "Mul", "x unsqueeze", "a", NULL);
        onnx_node(&graph, "Mul", "a weight", "y", NULL);
        onnx_weight(&graph, "unsqueeze", 2, (int64_t[]){2, mask ? 4 : 1}, ones);
        onnx_weight(&graph, "weight", 1, (int64_t[]){4}, ones);
        mark(&graph, "weight", "PARAMETER");
        onnx_output(&graph, "y", "2 4");
        imported i = import(onnx_model(&graph, NULL), SN_ONNX_AS_EXPORTED);
        assert_int_equal(has(&i, "W0303"), !mask);
        release(&i);
    }
}

static sn_str dropout_model(void) {
    sn_str graph = {0};
    const float ratio = 0.5f;
    onnx_input(&graph, "x", "1000");
    onnx_node(&graph, "Dropout", "x ratio", "y", NULL);
    onnx_weight(&graph, "ratio", 0, NULL, &ratio);
    onnx_output(&graph, "y", "1000");
    return onnx_model(&graph, NULL);
}

static void dropout_by_mode(void **state) {
    (void)state;
    imported i = import(dropout_model(), SN_ONNX_AS_EXPORTED);
    assert_true(has(&i, "W0306"));
    assert_int_equal(sn_module_func(i.module, "main")->n_ops, 0);
    assert_null(sn_module_func(i.module, "infer"));
    release(&i);

    i = import(dropout_model(), SN_ONNX_TRAINING);
    assert_false(has(&i, "W0306"));
    const sn_func *main = sn_module_func(i.module, "main");
    assert_int_equal(sn_module_func(i.module, "infer")->n_ops, 0);
    assert_int_equal(main->args.count, 3);
    float *x = calloc(1000, sizeof *x);
    for (int k = 0; k < 1000; k++) x[k] = 1;
    int64_t seed = 7, step = 1;
    sn_tensor args[3], y;
    for (size_t a = 0; a < 3; a++) {
        const char *name = main->args.data[a]->name;
        void *data = strcmp(name, "x") == 0 ? (void *)x : strcmp(name, "$seed") == 0 ? (void *)&seed : (void *)&step;
        args[a] = (sn_tensor){main->args.data[a]->type, data};
    }
    sn_interp *interp = sn_interp_new(i.module);
    assert_null(sn_interp_run(interp, main, args, &y));
    int kept = 0;
    for (int k = 0; k < 1000; k++) {
        float value = ((float *)y.data)[k];
        assert_true(value == 0 || value == 2);
        kept += value == 2;
    }
    assert_in_range(kept, 420, 580); // 5 standard deviations of a binomial
    sn_tensor_free(&y);
    sn_interp_free(interp);
    free(x);
    release(&i);
}

static void add_weight(sn_str *graph, const char *name, float number) {
    onnx_weight(graph, name, 1, (int64_t[]){1}, &number);
}

// x = 1, 2, 3, 6 in one channel: mean 3, population variance 3.5, unbiased 14/3.
static void batch_norm_updates_its_state(void **state) {
    (void)state;
    sn_str graph = {0};
    onnx_input(&graph, "x", "4 1");
    onnx_node(&graph, "BatchNormalization", "x bn.weight bn.bias bn.mean bn.var", "y", NULL);
    add_weight(&graph, "bn.weight", 1);
    add_weight(&graph, "bn.bias", 0);
    add_weight(&graph, "bn.mean", 10);
    add_weight(&graph, "bn.var", 1);
    onnx_output(&graph, "y", "4 1");
    imported i = import(onnx_model(&graph, NULL), SN_ONNX_TRAINING);
    assert_int_equal(role_of(&i, "bn.weight"), SN_ROLE_PARAMETER);
    assert_int_equal(role_of(&i, "bn.mean"), SN_ROLE_STATE);
    assert_int_equal(role_of(&i, "bn.var"), SN_ROLE_STATE);
    float x[4] = {1, 2, 3, 6};
    const sn_func *main = sn_module_func(i.module, "main");
    SN_FOR_OPS(op, main) assert_int_equal(op->phase, SN_PHASE_FORWARD); // collectives for its statistics are, too
    sn_tensor arg = {main->args.data[0]->type, x}, y;
    sn_interp *interp = sn_interp_new(i.module);
    const char *problem;
    assert_null(sn_interp_run(interp, main, &arg, &y));
    assert_float_equal(((float *)y.data)[3], 3 / 1.8708287f, 1e-4);
    const sn_tensor *mean = sn_interp_global(interp, sn_module_global(i.module, "bn.mean"), &problem);
    const sn_tensor *var = sn_interp_global(interp, sn_module_global(i.module, "bn.var"), &problem);
    assert_float_equal(*(float *)mean->data, 0.9f * 10 + 0.1f * 3, 1e-5);
    assert_float_equal(*(float *)var->data, 0.9f + 0.1f * 14 / 3, 1e-5);
    sn_tensor_free(&y);
    sn_interp_free(interp);
    release(&i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_parameters_are_separate),
        cmocka_unit_test(untied_weights_are_tied),
        cmocka_unit_test(export_keeps_repairs),
        cmocka_unit_test(marks_decide_roles),
        cmocka_unit_test(merged_marked_parameters_are_reported),
        cmocka_unit_test(merged_folded_parameters_are_reported),
        cmocka_unit_test(folded_gains_are_reported),
        cmocka_unit_test(dropout_by_mode),
        cmocka_unit_test(batch_norm_updates_its_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
