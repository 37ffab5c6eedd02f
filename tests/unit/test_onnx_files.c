// Models on disk: external data stays inside the model's folder, and exports are whole.
#include "frontend/onnx.h"

#include "base/file.h"
#include "ir/interp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/onnx.h"

static char folder[64], path[128];

static const char *inside(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/sennit-onnx-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void write_file(const char *name, const void *data, size_t bytes) {
    sn_status status = sn_file_write(inside(name), data, bytes);
    assert_null(status);
}

static void write_external(const char *location, const char *offset) {
    sn_str graph = {0}, tensor = {0};
    const char *entries[][2] = {{"location", location}, {"offset", offset}, {"length", "8"}};
    pb_int(&tensor, 1, 2);
    pb_int(&tensor, 2, 1);
    pb_text(&tensor, 8, "w");
    for (int i = 0; i < 3; i++) {
        sn_str entry = {0};
        pb_text(&entry, 1, entries[i][0]);
        pb_text(&entry, 2, entries[i][1]);
        pb_message(&tensor, 13, &entry);
    }
    pb_int(&tensor, 14, 1);
    pb_message(&graph, 5, &tensor);
    onnx_input(&graph, "x", "2");
    onnx_node(&graph, "Add", "x w", "y", NULL);
    onnx_output(&graph, "y", "2");
    sn_str model = onnx_model(&graph, NULL);
    write_file("model.onnx", model.data, model.length);
    sn_str_free(&model);
}

// The code of the first error of opening and importing model.onnx, or "" with the weight's values in `values`.
static const char *load(float *values) {
    static char code[16];
    sn_diags diags = {0};
    sn_module *module = NULL;
    sn_onnx_model *model = sn_onnx_open(inside("model.onnx"), &diags);
    if (model) module = sn_onnx_import(model, &(sn_onnx_options){0}, &diags);
    snprintf(code, sizeof code, "%s", diags.errors ? diags.items[0].code : "");
    if (module) memcpy(values, sn_module_global(module, "w")->source.data, 8);
    sn_module_free(module);
    sn_onnx_close(model);
    sn_diags_free(&diags);
    return code;
}

static void external_data(void **state) {
    (void)state;
    const float data[3] = {7, 1.5f, -2};
    float values[2];
    write_file("weights.bin", data, sizeof data);
    write_external("weights.bin", "4");
    assert_string_equal(load(values), "");
    assert_true(values[0] == 1.5f && values[1] == -2);
    write_external("weights.bin", "8"); // reaches beyond the file
    assert_string_equal(load(values), "E0108");
    write_external("weights.bin", "minus one");
    assert_string_equal(load(values), "E0105");
    write_external("absent.bin", "0");
    assert_string_equal(load(values), "E0107");
}

static void external_data_outside(void **state) {
    (void)state;
    float values[2];
    write_external("/etc/passwd", "0");
    assert_string_equal(load(values), "E0106");
    write_external("../weights.bin", "0");
    assert_string_equal(load(values), "E0106");
    write_external("a/../../weights.bin", "0");
    assert_string_equal(load(values), "E0106");
    assert_int_equal(symlink("/etc/passwd", inside("link.bin")), 0);
    write_external("link.bin", "0");
    assert_string_equal(load(values), "E0106");
    assert_int_equal(symlink("/etc", inside("etc")), 0);
    write_external("etc/passwd", "0");
    assert_string_equal(load(values), "E0106");
}

static float run_linear(const char *name) {
    sn_diags diags = {0};
    sn_onnx_model *model = sn_onnx_open(inside(name), &diags);
    sn_onnx_binding batch = {"batch", 1};
    sn_module *module = sn_onnx_import(model, &(sn_onnx_options){.n_bindings = 1, .bindings = &batch}, &diags);
    assert_non_null(module);
    float x[3] = {1, 1, 1};
    const sn_func *main = sn_module_func(module, "main");
    sn_interp *interp = sn_interp_new(module);
    sn_tensor arg = {main->args.data[0]->type, x}, result;
    assert_null(sn_interp_run(interp, main, &arg, &result));
    float y = ((float *)result.data)[1];
    sn_tensor_free(&result);
    sn_interp_free(interp);
    sn_module_free(module);
    sn_onnx_close(model);
    sn_diags_free(&diags);
    return y;
}

static void export_replaces_weights(void **state) {
    (void)state;
    sn_str file = onnx_linear_model();
    write_file("model.onnx", file.data, file.length);
    sn_str_free(&file);
    sn_diags diags = {0};
    sn_onnx_model *model = sn_onnx_open(inside("model.onnx"), &diags);
    const float b[2] = {0, 100};
    sn_onnx_replacement replacement = {"b", b};
    assert_null(sn_onnx_export(model, 1, &replacement, inside("trained.onnx")));
    sn_status status = sn_onnx_export(model, 1, &replacement, "/nonexistent/trained.onnx");
    assert_non_null(status);
    sn_status_free(status);
    sn_onnx_close(model);
    sn_diags_free(&diags);
    assert_true(run_linear("model.onnx") == 12.5f);
    assert_true(run_linear("trained.onnx") == 112);
}

static void export_moves_external_data(void **state) {
    (void)state;
    enum { COUNT = 400 };
    float data[COUNT] = {0}, fresh[COUNT];
    for (int i = 0; i < COUNT; i++) fresh[i] = (float)i;
    sn_str graph = {0}, tensor = {0}, entry = {0};
    pb_int(&tensor, 1, COUNT);
    pb_int(&tensor, 2, 1);
    pb_text(&tensor, 8, "w");
    pb_text(&entry, 1, "location");
    pb_text(&entry, 2, "big.bin");
    pb_message(&tensor, 13, &entry);
    pb_int(&tensor, 14, 1);
    pb_message(&graph, 5, &tensor);
    onnx_node(&graph, "Relu", "w", "y", NULL);
    onnx_output(&graph, "y", "400");
    sn_str file = onnx_model(&graph, NULL);
    write_file("big.bin", data, sizeof data);
    write_file("big.onnx", file.data, file.length);
    sn_str_free(&file);
    sn_diags diags = {0};
    sn_onnx_model *model = sn_onnx_open(inside("big.onnx"), &diags);
    assert_null(sn_onnx_export(model, 1, &(sn_onnx_replacement){"w", fresh}, inside("out.onnx")));
    sn_onnx_close(model);
    model = sn_onnx_open(inside("out.onnx"), &diags);
    assert_true(sn_onnx_info_of(model)->weights[0].external);
    sn_module *module = sn_onnx_import(model, &(sn_onnx_options){0}, &diags);
    const sn_source *source = &sn_module_global(module, "w")->source;
    assert_memory_equal(source->data, fresh, sizeof fresh);
    assert_true(sn_ends_with(source->path, "out.onnx.data"));
    sn_module_free(module);
    sn_onnx_close(model);
    sn_diags_free(&diags);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(external_data),
        cmocka_unit_test(external_data_outside),
        cmocka_unit_test(export_replaces_weights),
        cmocka_unit_test(export_moves_external_data),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
