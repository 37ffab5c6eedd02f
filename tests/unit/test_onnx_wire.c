// Damaged model files end in a diagnostic, whatever the damage.
#include "frontend/onnx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/onnx.h"

// Opens and imports a model from an exact heap copy, so that a read beyond its end is seen by a sanitizer. Returns
// whether it succeeded; a failure must come with an error.
static bool survives(const char *data, size_t bytes) {
    char *copy = malloc(bytes + !bytes);
    if (bytes) memcpy(copy, data, bytes);
    sn_diags diags = {0};
    sn_module *module = NULL;
    sn_onnx_binding batch = {"batch", 2};
    sn_onnx_options options = {.n_bindings = 1, .bindings = &batch};
    sn_onnx_model *model = sn_onnx_open_memory(copy, bytes, "test", &diags);
    if (model) module = sn_onnx_import(model, &options, &diags);
    bool fine = module != NULL;
    assert_true(fine == (diags.errors == 0));
    sn_module_free(module);
    sn_onnx_close(model);
    sn_diags_free(&diags);
    free(copy);
    return fine;
}

static void whole_model_imports(void **state) {
    (void)state;
    sn_str model = onnx_linear_model();
    assert_true(survives(model.data, model.length));
    sn_str_free(&model);
}

static void truncated_at_every_byte(void **state) {
    (void)state;
    sn_str model = onnx_linear_model();
    size_t refused = 0;
    for (size_t i = 0; i < model.length; i++) refused += !survives(model.data, i);
    assert_true(refused > model.length / 2);
    sn_str_free(&model);
}

static void every_bit_flipped(void **state) {
    (void)state;
    sn_str model = onnx_linear_model();
    size_t refused = 0;
    for (size_t bit = 0; bit < 8 * model.length; bit++) {
        model.data[bit / 8] ^= (char)(1 << bit % 8);
        refused += !survives(model.data, model.length);
        model.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_true(refused > 0);
    sn_str_free(&model);
}

// A graph in an attribute of a node of a graph …
static void nesting_bomb(void **state) {
    (void)state;
    sn_str graph = {0};
    for (int i = 0; i < 3000; i++) {
        sn_str attribute = {0}, node = {0}, outer = {0};
        pb_message(&attribute, 6, &graph);
        pb_message(&node, 5, &attribute);
        pb_message(&outer, 1, &node);
        graph = outer;
    }
    sn_str model = onnx_model(&graph, NULL);
    sn_diags diags = {0};
    assert_null(sn_onnx_open_memory(model.data, model.length, "bomb", &diags));
    assert_int_equal(diags.errors, 1);
    assert_string_equal(diags.items[0].code, "E0102");
    sn_diags_free(&diags);
    sn_str_free(&model);
}

// The weights of a model are read where the file has them.
static void weights_stay_in_the_file(void **state) {
    (void)state;
    sn_str file = onnx_linear_model();
    sn_diags diags = {0};
    sn_onnx_model *model = sn_onnx_open_memory(file.data, file.length, "test", &diags);
    sn_onnx_binding batch = {"batch", 2};
    sn_module *module = sn_onnx_import(model, &(sn_onnx_options){.n_bindings = 1, .bindings = &batch}, &diags);
    assert_non_null(module);
    const char *data = sn_module_global(module, "w")->source.data;
    assert_true(data > file.data && data < file.data + file.length);
    sn_module_free(module);
    sn_onnx_close(model);
    sn_diags_free(&diags);
    sn_str_free(&file);
}

// Data that does not fill the shape is found before anything reads it.
static void short_data(void **state) {
    (void)state;
    sn_str graph = {0}, tensor = {0};
    pb_int(&tensor, 1, 1000000);
    pb_int(&tensor, 2, 1);
    pb_text(&tensor, 8, "w");
    pb_bytes(&tensor, 9, "1234", 4);
    pb_message(&graph, 5, &tensor);
    onnx_node(&graph, "Relu", "w", "y", NULL);
    onnx_output(&graph, "y", "1000000");
    sn_str file = onnx_model(&graph, NULL);
    sn_diags diags = {0};
    sn_onnx_model *model = sn_onnx_open_memory(file.data, file.length, "test", &diags);
    assert_non_null(model);
    assert_null(sn_onnx_import(model, &(sn_onnx_options){0}, &diags));
    assert_string_equal(diags.items[0].code, "E0104");
    sn_onnx_close(model);
    sn_diags_free(&diags);
    sn_str_free(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_model_imports),      cmocka_unit_test(truncated_at_every_byte),
        cmocka_unit_test(every_bit_flipped),        cmocka_unit_test(nesting_bomb),
        cmocka_unit_test(weights_stay_in_the_file), cmocka_unit_test(short_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
