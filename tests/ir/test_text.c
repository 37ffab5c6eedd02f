// The text of the IR: what is printed parses back to what prints the same; what is wrong is said with its place.
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char *printed(sn_module *module) {
    sn_str text = {0};
    sn_print(&text, module, NULL);
    return text.data;
}

static void expect_round_trip(const char *path) {
    sn_diags diags = {0};
    sn_module *module = sn_parse_file(path, &diags);
    if (!module) sn_diags_print(&diags, 0, true, stderr);
    assert_non_null(module);
    char *once = printed(module);
    sn_module *again = sn_parse(once, strlen(once), "again.sir", &diags);
    if (!again) sn_diags_print(&diags, 0, true, stderr);
    assert_non_null(again);
    char *twice = printed(again);
    assert_string_equal(once, twice);
    sn_free(once);
    sn_free(twice);
    sn_module_free(module);
    sn_module_free(again);
    sn_diags_free(&diags);
}

static void test_round_trip(void **state) {
    (void)state;
    glob_t found;
    assert_int_equal(glob(SENNIT_SOURCE_DIR "/tests/ir/*.sir", 0, NULL, &found), 0);
    assert_true(found.gl_pathc > 5);
    for (size_t i = 0; i < found.gl_pathc; i++) expect_round_trip(found.gl_pathv[i]);
    globfree(&found);
}

// A constant too large for the text goes to a side file and comes back.
static void test_side_file(void **state) {
    (void)state;
    float data[100];
    for (int i = 0; i < 100; i++) data[i] = (float)i / 7;
    sn_module *module = sn_module_new("");
    sn_type type = sn_type_make(SN_F32, 1, (int64_t[]){100});
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = data};
    for (int i = 0; i < 2; i++) sn_module_add_global(module, "table", type, SN_ROLE_CONSTANT, source);
    sn_constant_store store = {.path = SENNIT_BINARY_DIR "/test_text.bin"};
    assert_null(sn_print_file(module, &store, SENNIT_BINARY_DIR "/test_text.sir"));
    assert_int_equal(store.bytes, sizeof data); // equal constants are stored once
    assert_null(sn_constant_store_close(&store));
    sn_diags diags = {0};
    sn_module *back = sn_parse_file(SENNIT_BINARY_DIR "/test_text.sir", &diags);
    assert_non_null(back);
    for (size_t i = 0; i < back->globals.count; i++)
        assert_memory_equal(back->globals.data[i]->source.data, data, sizeof data);
    sn_module_free(back);
    sn_module_free(module);
    sn_diags_free(&diags);
}

static void expect_error(const char *text, const char *place, const char *message) {
    sn_diags diags = {0};
    assert_null(sn_parse(text, strlen(text), "t.sir", &diags));
    assert_int_equal(diags.errors, 1);
    if (!strstr(diags.items[0].message, message)) fail_msg("'%s' lacks '%s'", diags.items[0].message, message);
    assert_string_equal(diags.items[0].subject, place);
    sn_diags_free(&diags);
}

#define HEAD "sennit 1 graph\nfunc @f(%x: f32[4,8]) {\n"

static void test_errors(void **state) {
    (void)state;
    expect_error("", "t.sir:1:1", "a module starts with");
    expect_error("sennit 2 graph", "t.sir:1:10", "version 1");
    expect_error("sennit 1 tree", "t.sir:1:10", "graph, dist or sched");
    expect_error(HEAD "  %y = expo(%x) : f32[4,8]\n}\n", "t.sir:3:8", "no operator 'expo'");
    expect_error(HEAD "  %y = exp(%z) : f32[4,8]\n}\n", "t.sir:3:12", "%z is not defined");
    expect_error(HEAD "  %y = exp(%x) : f32[4,9]\n}\n", "t.sir:3:8", "result 0 of exp is f32[4,8]");
    expect_error(HEAD "  %y = exp(%x) <k=3> : f32[4,8]\n}\n", "t.sir:3:17", "exp has no attribute k");
    expect_error(HEAD "  %y = softmax(%x) : f32[4,8]\n}\n", "t.sir:3:8", "axis is missing");
    expect_error(HEAD "  %y = add(%x) : f32[4,8]\n}\n", "t.sir:3:8", "operands");
    expect_error(HEAD "  %x = exp(%x) : f32[4,8]\n}\n", "t.sir:3:3", "%x is defined twice");
    expect_error(HEAD "  %y = exp(%x) : f32[4,8]\n", "t.sir:4:1", "an operator must follow");
    expect_error(HEAD "  return @w\n}\n", "t.sir:3:10", "there is no global @w");
    expect_error(HEAD "  return %x \"a\nb\"\n}\n", "t.sir:3:13", "no end on its line");
    expect_error(HEAD "}\nfunc @f() {\n}\n", "t.sir:4:6", "two functions @f");
    expect_error("sennit 1 graph\nparam @w : f32[4] = [1, 2]\n", "t.sir:2:26", "',' must follow");
    expect_error("sennit 1 graph\nparam @w : f32[4] = [...]\n", "t.sir:2:22", "a number must follow");
    expect_error("sennit 1 graph\nparam @w : f32[9223372036854775807,2] fill 0\n", "t.sir:2:35", "too many elements");
    expect_error("sennit 1 graph\nparam @w : f32[1,1,1,1,1,1,1,1,1] fill 0\n", "t.sir:2:31", "8 dims at most");
    expect_error("sennit 1 dist\nmesh [dp=2, dp=2]\n", "t.sir:2:13", "two mesh axes");
    expect_error("sennit 1 dist\nmesh [dp=2]\nparam @w : f32[4]{tp} fill 0\n", "t.sir:3:19", "no axis 'tp'");
}

static void test_malformed(void **state) {
    (void)state;
    expect_error("sennit 1 dist\nmesh [dp=2]\nparam @w : f32[3]{dp} fill 0\n", "t.sir", "unevenly");
    expect_error("sennit 1 dist\nmesh [dp=2]\nparam @w : f32[4,4]{dp,dp} fill 0\n", "t.sir", "axis twice");
    expect_error(HEAD "  %y = all_reduce(%x) <axes=\"dp\"> : f32[4,8]\n}\n", "t.sir", "does not belong in graph form");
    expect_error(HEAD "  %y = exp(%x) : f32[4,8] stream 1\n}\n", "t.sir", "has a stream in graph form");
    expect_error("sennit 1 graph\nconst @c : f32[] fill 0\nfunc @f(%x: f32[]) {\n  assign(@c, %x)\n}\n", "t.sir",
                 "@c may not change");
    expect_error("sennit 1 sched\narena 64\nfunc @f(%x: f32[4,8] at 0) {\n}\n", "t.sir", "ends at byte 128");
    expect_error("sennit 1 sched\nfunc @g(%x: f32[]) {\n}\nfunc @f(%x: f32[]) {\n  kernel(%x) <body=@g>\n}\n", "t.sir",
                 "@g is no kernel body");
}

// What only a pass can break: the verifier must see it.
static void test_verify(void **state) {
    (void)state;
    sn_module *module = sn_module_new("");
    sn_func *func = sn_module_add_func(module, "f");
    sn_type type = sn_type_make(SN_F32, 1, (int64_t[]){4});
    sn_value *x = sn_func_add_arg(func, "x", type);
    sn_op *a = sn_op_new(func, NULL, SN_OP_EXP, 1, &x, 0, NULL, 1, &type);
    sn_op *b = sn_op_new(func, NULL, SN_OP_NEG, 1, &a->results[0], 0, NULL, 1, &type);
    sn_str problems = {0};
    assert_true(sn_verify(module, &problems));

    sn_op_move_before(b, a);
    assert_false(sn_verify(module, &problems));
    assert_non_null(strstr(problems.data, "defined later"));
    sn_op_move_before(a, b);

    a->operands[0] = b->results[0]; // behind the use lists' back
    sn_str_clear(&problems);
    assert_false(sn_verify(module, &problems));
    a->operands[0] = x;

    x->uses.count = 0;
    sn_str_clear(&problems);
    assert_false(sn_verify(module, &problems));
    assert_non_null(strstr(problems.data, "counts 0 uses but has 1"));
    x->uses.count = 1;

    a->results[0]->type.dim[0] = 5;
    sn_str_clear(&problems);
    assert_false(sn_verify(module, &problems));
    assert_non_null(strstr(problems.data, "should be f32[4]"));
    a->results[0]->type.dim[0] = 4;
    assert_true(sn_verify(module, &problems));
    sn_str_free(&problems);
    sn_module_free(module);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_side_file), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_malformed),  cmocka_unit_test(test_verify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
