// What the import makes of graphs: diagnostics for bad ones, folding, functions, branches.
#include "frontend/onnx.h"
#include "frontend/signature.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/onnx.h"

typedef struct imported {
    sn_str file;
    sn_diags diags;
    sn_onnx_model *model;
    sn_module *module;
} imported;

static imported import(sn_str file, const sn_onnx_options *options) {
    imported i = {.file = file};
    i.model = sn_onnx_open_memory(file.data, file.length, "test", &i.diags);
    assert_non_null(i.model);
    i.module = sn_onnx_import(i.model, options, &i.diags);
    return i;
}

static void release(imported *i) {
    sn_module_free(i->module);
    sn_onnx_close(i->model);
    sn_diags_free(&i->diags);
    sn_str_free(&i->file);
}

static const char *text_of(const imported *i) {
    static char text[4000];
    text[0] = 0;
    for (size_t d = 0; d < i->diags.count; d++) {
        const sn_diag *diag = &i->diags.items[d];
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s %s (%s) %s\n", diag->code, diag->message,
                 diag->subject ? diag->subject : "", diag->help ? diag->help : "");
    }
    return text;
}

static void expect_error(sn_str file, const char *code, const char *words) {
    imported i = import(file, &(sn_onnx_options){0});
    assert_null(i.module);
    const char *text = text_of(&i);
    if (!strstr(text, code) || !strstr(text, words)) fail_msg("expected %s '%s', got: %s", code, words, text);
    release(&i);
}

static void cycle(void **state) {
    (void)state;
    sn_str graph = {0};
    onnx_input(&graph, "x", "2");
    onnx_node(&graph, "Add", "x b", "a", NULL);
    onnx_node(&graph, "Relu", "a", "b", NULL);
    onnx_output(&graph, "b", "2");
    expect_error(onnx_model(&graph, NULL), "E0205", "Add:a -> Relu:b -> Add:a");
}

static void undefined_name(void **state) {
    (void)state;
    sn_str graph = {0};
    onnx_node(&graph, "Relu", "nothing", "y", NULL);
    onnx_output(&graph, "y", "2");
    expect_error(onnx_model(&graph, NULL), "E0203", "'nothing'");
}

static void name_defined_twice(void **state) {
    (void)state;
    sn_str graph = {0};
    onnx_input(&graph, "x", "2");
    onnx_node(&graph, "Relu", "x", "y", NULL);
    onnx_node(&graph, "Neg", "x", "y", NULL);
    onnx_output(&graph, "y", "2");
    expect_error(onnx_model(&graph, NULL), "E0204", "'y' is defined twice");
}

static void output_listed_twice(void **state) {
    (void)state;
    sn_str graph = {0};
    onnx_input(&graph, "x", "2");
    onnx_node(&graph, "Relu", "x", "y", NULL);
    onnx_output(&graph, "y", "2");
    onnx_output(&graph, "y", "2");
    expect_error(onnx_model(&graph, NULL), "E0204", "two outputs have the name 'y'");
}

static void unsupported_operators_are_all_listed(void **state) {
    (void)state;
    sn_str graph = {0};
    onnx_input(&graph, "x", "2");
    onnx_node(&graph, "Sparkle", "x", "a", NULL);
    onnx_node(&graph, "Relu", "a", "b", NULL);
    onnx_node(&graph, "Det", "b", "c", NULL);
    onnx_output(&graph, "c", "2");
    imported i = import(onnx_model(&graph, NULL), &(sn_onnx_options){0});
    assert_null(i.module);
    assert_int_equal(i.diags.errors, 1);
    assert_non_null(strstr(text_of(&i), "Sparkle (opset 20) at 'Sparkle:a'"));
    assert_non_null(strstr(text_of(&i), "Det (opset 20) at 'Det:c'"));
    assert_non_null(strstr(text_of(&i), "opset 13 to 24"));
    release(&i);
}

static void open_dims_are_all_named(void **state) {
    (void)state;
    sn_str graph = {0};
    onnx_input(&graph, "x", "batch seq");
    onnx_node(&graph, "Relu", "x", "y", NULL);
    onnx_output(&graph, "y", "batch seq");
    expect_error(onnx_model(&graph, NULL), "E0206", "--dim batch=…, --dim seq=…");
}

static void dims_are_bound_by_the_data(void **state) {
    (void)state;
    sn_onnx_shape shape = {"x", 2, {5, 3}};
    imported i = import(onnx_linear_model(), &(sn_onnx_options){.n_shapes = 1, .shapes = &shape});
    assert_non_null(i.module);
    const sn_func *main = sn_module_func(i.module, "main");
    assert_true(sn_type_equal(main->results.data[0]->type, sn_type_make(SN_F32, 2, (int64_t[]){5, 2})));
    assert_string_equal(main->result_names.data[0], "y");
    release(&i);
    shape = (sn_onnx_shape){"x", 2, {5, 4}};
    i = import(onnx_linear_model(), &(sn_onnx_options){.n_shapes = 1, .shapes = &shape});
    assert_null(i.module);
    assert_string_equal(i.diags.items[0].code, "E0207");
    release(&i);
}

static void shapes_that_do_not_fit(void **state) {
    (void)state;
    sn_str graph = {0};
    onnx_input(&graph, "x", "2 3");
    onnx_input(&graph, "z", "4");
    onnx_node(&graph, "Add", "x z", "y", NULL);
    onnx_output(&graph, "y", "2 3");
    expect_error(onnx_model(&graph, NULL), "E0202", "f32[2,3] and f32[4]");
}

static void sizes_that_do_not_fit_are_named(void **state) {
    (void)state;
    sn_onnx_binding bound[] = {{"n", 2}, {"feat", 5}};
    sn_onnx_options options = {.n_bindings = 2, .bindings = bound};
    sn_str graph = {0};
    onnx_input(&graph, "x", "n feat");
    onnx_input(&graph, "z", "4");
    onnx_node(&graph, "Add", "x z", "y", NULL);
    onnx_output(&graph, "y", "");
    imported i = import(onnx_model(&graph, NULL), &options);
    assert_null(i.module);
    assert_string_equal(i.diags.items[0].code, "E0202");
    if (!strstr(i.diags.items[0].help, "with n=2, feat=5, which --dim")) fail_msg("%s", i.diags.items[0].help);
    release(&i);
}

// Reshape(x, Concat(Shape(x)[0:1], [-1])) leaves nothing but the reshape.
static void shape_arithmetic_folds(void **state) {
    (void)state;
    sn_str graph = {0}, end = {0}, value = {0}, minus = {0}, tensor = {0}, axis = {0}, attribute = {0};
    onnx_input(&graph, "x", "2 3 4");
    pb_text(&end, 1, "end");
    pb_int(&end, 3, 1);
    pb_int(&end, 20, 2);
    pb_message(&attribute, 5, &end);
    onnx_node(&graph, "Shape", "x", "rows", &attribute);
    pb_int(&tensor, 1, 1);
    pb_int(&tensor, 2, 7);
    pb_int(&tensor, 7, -1);
    pb_text(&value, 1, "value");
    pb_message(&value, 5, &tensor);
    pb_int(&value, 20, 4);
    pb_message(&minus, 5, &value);
    onnx_node(&graph, "Constant", "", "rest", &minus);
    pb_text(&axis, 1, "axis");
    pb_int(&axis, 3, 0);
    pb_int(&axis, 20, 2);
    sn_str axes = {0};
    pb_message(&axes, 5, &axis);
    onnx_node(&graph, "Concat", "rows rest", "shape", &axes);
    onnx_node(&graph, "Reshape", "x shape", "y", NULL);
    onnx_output(&graph, "y", "2 12");
    imported i = import(onnx_model(&graph, NULL), &(sn_onnx_options){0});
    if (!i.module) fail_msg("%s", text_of(&i));
    const sn_func *main = sn_module_func(i.module, "main");
    assert_int_equal(main->n_ops, 1);
    assert_int_equal(main->first->kind, SN_OP_RESHAPE);
    assert_true(sn_type_equal(main->results.data[0]->type, sn_type_make(SN_F32, 2, (int64_t[]){2, 12})));
    assert_int_equal(i.module->globals.count, 0);
    release(&i);
}

static void add_function(sn_str *functions, const char *name, const char *inner_type, const char *inner_domain) {
    sn_str function = {0}, node = {0}, opset = {0}, local = {0};
    pb_text(&function, 1, name);
    pb_text(&function, 4, "a");
    pb_text(&function, 5, "b");
    pb_text(&node, 1, "a");
    pb_text(&node, 2, "b");
    pb_text(&node, 4, inner_type);
    pb_text(&node, 7, inner_domain);
    pb_message(&function, 7, &node);
    pb_int(&opset, 2, 20);
    pb_message(&function, 9, &opset);
    pb_text(&local, 1, "local");
    pb_int(&local, 2, 1);
    pb_message(&function, 9, &local);
    pb_text(&function, 10, "local");
    pb_message(functions, 25, &function);
}

static sn_str model_that_calls(const char *name, sn_str *functions) {
    sn_str graph = {0}, domain = {0};
    onnx_input(&graph, "x", "2");
    pb_text(&domain, 7, "local");
    onnx_node(&graph, name, "x", "y", &domain);
    onnx_output(&graph, "y", "2");
    return onnx_model(&graph, functions);
}

static void functions_are_inlined(void **state) {
    (void)state;
    sn_str functions = {0};
    add_function(&functions, "Outer", "Inner", "local");
    add_function(&functions, "Inner", "Tanh", "");
    imported i = import(model_that_calls("Outer", &functions), &(sn_onnx_options){0});
    if (!i.module) fail_msg("%s", text_of(&i));
    const sn_func *main = sn_module_func(i.module, "main");
    assert_int_equal(main->n_ops, 1);
    assert_int_equal(main->first->kind, SN_OP_TANH);
    assert_string_equal(main->first->origin->name, "Outer:y/Inner:b/Tanh:b");
    release(&i);
}

static void recursive_function(void **state) {
    (void)state;
    sn_str functions = {0};
    add_function(&functions, "Again", "Again", "local");
    expect_error(model_that_calls("Again", &functions), "E0210", "recursive");
}

static void unsorted_nodes_are_sorted(void **state) {
    (void)state;
    sn_str graph = {0};
    onnx_node(&graph, "Neg", "b", "y", NULL);
    onnx_node(&graph, "Exp", "a", "b", NULL);
    onnx_node(&graph, "Tanh", "x", "a", NULL);
    onnx_input(&graph, "x", "2");
    onnx_output(&graph, "y", "2");
    imported i = import(onnx_model(&graph, NULL), &(sn_onnx_options){0});
    if (!i.module) fail_msg("%s", text_of(&i));
    const sn_op *op = sn_module_func(i.module, "main")->first;
    assert_int_equal(op->kind, SN_OP_TANH);
    assert_int_equal(op->next->kind, SN_OP_EXP);
    assert_int_equal(op->next->next->kind, SN_OP_NEG);
    release(&i);
}

static void operators_are_listed_once(void **state) {
    (void)state;
    static const struct {
        const char *type, *domain;
        int since, until;
    } ops[] = {
#define SN_ONNX_OP(type, domain, since, until, handler, kind, inputs) {#type, domain, since, until},
#include "frontend/opset.def"
#undef SN_ONNX_OP
    };
    size_t count = sizeof ops / sizeof *ops;
    for (size_t i = 0; i < count; i++) {
        assert_true(ops[i].since <= ops[i].until && ops[i].until <= 28);
        for (size_t j = 0; j < i; j++)
            assert_false(strcmp(ops[i].type, ops[j].type) == 0 && strcmp(ops[i].domain, ops[j].domain) == 0);
    }
}

// Every row's inputs are spelled as frontend/signature.h reads them, to the end.
static void signatures_are_well_formed(void **state) {
    (void)state;
    static const char *const rows[] = {
#define SN_ONNX_OP(type, domain, since, until, handler, kind, inputs) inputs,
#include "frontend/opset.def"
#undef SN_ONNX_OP
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = rows[i];
        sn_input_spec spec;
        bool variadic = false;
        while (sn_signature_next(&text, &spec)) {
            assert_true(spec.name_length > 0 && strchr("finbasx", spec.class));
            assert_true(spec.min_rank <= spec.max_rank && spec.max_rank <= SN_MAX_RANK);
            assert_false(variadic);
            variadic = spec.variadic;
            assert_true(*text == ' ' || !*text);
        }
        assert_int_equal(*text, 0);
    }
}

// One node of `type` over inputs a, b, … of the shapes given: numbers separated by blanks, a shape starting with 'i' is
// of integers.
static sn_str model_of_node(const char *type, const char *inputs, int n_shapes, const char *const *shapes) {
    sn_str graph = {0};
    for (int i = 0; i < n_shapes; i++) {
        bool integers = *shapes[i] == 'i';
        onnx_port(&graph, 11, (char[]){(char)('a' + i), 0}, integers ? 7 : 1, shapes[i] + integers);
    }
    onnx_node(&graph, type, inputs, "y", NULL);
    onnx_output(&graph, "y", "");
    return onnx_model(&graph, NULL);
}

static void inputs_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *type, *inputs, *shapes[3], *words;
    } cases[] = {
        {"ReverseSequence", "a b", {"2 3", "i2 1"}, "input 1 (sequence_lens) has rank 2, where 1 is expected"},
        {"ReverseSequence", "a b", {"2", "i2"}, "input 0 (input) has rank 1, where 2 or more is expected"},
        {"Gemm", "a b c", {"2 2", "2 2", "1 2 2"}, "input 2 (C) has rank 3, where 0 to 2 is expected"},
        {"Conv", "a", {"1 1 4"}, "input 1 (W) is missing"},
        {"Relu", "a b", {"2", "2"}, "it has an input 1, which the operator does not take"},
        {"Sin", "a", {"i2"}, "input 0 (input) is i64, where floats are expected"},
        {"SequenceLength", "a", {"2"}, "input 0 (input_sequence) is a tensor where a sequence is expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = 0;
        while (n < 3 && cases[i].shapes[n]) n++;
        expect_error(model_of_node(cases[i].type, cases[i].inputs, n, cases[i].shapes), "E0202", cases[i].words);
    }
    const char *shapes[] = {"2 3", "i2 1"}; // the node, the rule and the way out
    expect_error(model_of_node("ReverseSequence", "a b", 2, shapes), "E0202",
                 "(ReverseSequence:y) the model is invalid; onnx.checker");
}

// 2^36 multiplications of constants are left to the compiled program.
static void long_products_are_not_folded(void **state) {
    (void)state;
    sn_str graph = {0}, shape = {0};
    int64_t dims[] = {4096, 4096};
    pb_int(&shape, 1, 2);
    pb_int(&shape, 2, 7);
    pb_text(&shape, 8, "shape");
    pb_bytes(&shape, 9, dims, sizeof dims);
    pb_message(&graph, 5, &shape);
    onnx_node(&graph, "ConstantOfShape", "shape", "c", NULL);
    onnx_node(&graph, "Exp", "c", "e", NULL);
    onnx_node(&graph, "MatMul", "e e", "y", NULL);
    onnx_output(&graph, "y", "");
    imported i = import(onnx_model(&graph, NULL), &(sn_onnx_options){0});
    if (!i.module) fail_msg("%s", text_of(&i));
    bool found = false;
    SN_FOR_OPS(op, sn_module_func(i.module, "main")) found = found || op->kind == SN_OP_MATMUL;
    assert_true(found);
    release(&i);
}

// Sizes whose product overflows are an error of whoever bound them.
static void huge_dims_are_refused(void **state) {
    (void)state;
    sn_onnx_binding dims[] = {{"batch", INT64_C(1) << 40}, {"seq", INT64_C(1) << 40}};
    for (int zero = 0; zero < 2; zero++) {
        sn_str graph = {0};
        onnx_input(&graph, "x", zero ? "0 batch seq" : "batch seq");
        onnx_node(&graph, "Relu", "x", "y", NULL);
        onnx_output(&graph, "y", "");
        imported i = import(onnx_model(&graph, NULL), &(sn_onnx_options){.n_bindings = 2, .bindings = dims});
        assert_null(i.module);
        if (!strstr(text_of(&i), "E0207 the input 'x' would have more than 2^48 elements")) fail_msg("%s", text_of(&i));
        release(&i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cycle),
        cmocka_unit_test(undefined_name),
        cmocka_unit_test(name_defined_twice),
        cmocka_unit_test(output_listed_twice),
        cmocka_unit_test(unsupported_operators_are_all_listed),
        cmocka_unit_test(open_dims_are_all_named),
        cmocka_unit_test(dims_are_bound_by_the_data),
        cmocka_unit_test(shapes_that_do_not_fit),
        cmocka_unit_test(sizes_that_do_not_fit_are_named),
        cmocka_unit_test(shape_arithmetic_folds),
        cmocka_unit_test(functions_are_inlined),
        cmocka_unit_test(recursive_function),
        cmocka_unit_test(unsorted_nodes_are_sorted),
        cmocka_unit_test(operators_are_listed_once),
        cmocka_unit_test(signatures_are_well_formed),
        cmocka_unit_test(inputs_are_checked),
        cmocka_unit_test(long_products_are_not_folded),
        cmocka_unit_test(huge_dims_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
