// Questions that the graph answers about its values.
#include "ir/graph.h"
#include "ir/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char text[] = "sennit 1 graph\n"
                           "param @w : f32[6,4] fill 1\n"
                           "func @f(%x: f32[4,6]) {\n"
                           "  %x1 = reshape(%x) : f32[24]\n"
                           "  %x2 = reshape(%x1) : f32[2,12]\n"
                           "  %w1 = reshape(@w) : f32[24]\n"
                           "  %e  = exp(%w1) : f32[24]\n"
                           "  %e1 = reshape(%e) : f32[4,6]\n"
                           "  %t  = transpose(%e1) <perm=[1,0]> : f32[6,4]\n"
                           "  return %x2 \"x\", %w1 \"w\", %e1 \"e\", %t \"t\"\n"
                           "}\n";

// A view of views leads to an argument, a parameter or a result; what moves elements is no view.
static void test_viewed(void **state) {
    (void)state;
    sn_diags diags = {0};
    sn_module *module = sn_parse(text, strlen(text), "views.sir", &diags);
    if (!module) sn_diags_print(&diags, 0, true, stderr);
    assert_non_null(module);
    const sn_func *f = sn_module_func(module, "f");
    sn_value *const *results = f->results.data;
    const sn_value *e = results[2]->def->operands[0];
    assert_int_equal(e->def->kind, SN_OP_EXP);
    assert_ptr_equal(sn_value_viewed(results[0]), f->args.data[0]);
    assert_ptr_equal(sn_value_viewed(results[1]), sn_module_global(module, "w")->value);
    assert_ptr_equal(sn_value_viewed(results[2]), e);
    assert_ptr_equal(sn_value_viewed(e), e);
    assert_ptr_equal(sn_value_viewed(results[3]), results[3]);
    sn_module_free(module);
    sn_diags_free(&diags);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_viewed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
