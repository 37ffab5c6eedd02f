// How much arithmetic the cost model counts.
#include "ir/parse.h"
#include "passes/cost/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char text[] =
    "sennit 1 graph\n"
    "func @f(%x: f32[2,6,9,10], %w: f32[8,3,3,5], %y: f32[2,8,5,4], %a: f32[4,5,6], %b: f32[6,7]) {\n"
    "  %c = conv(%x, %w) <strides=[2,2] pads=[1,1,1,0] dilations=[1,1] groups=2> : f32[2,8,5,4]\n"
    "  %d = conv_input_grad(%y, %w) <strides=[2,2] pads=[1,1,1,0] dilations=[1,1] groups=2> : f32[2,6,9,10]\n"
    "  %e = conv_weight_grad(%x, %y) <strides=[2,2] pads=[1,1,1,0] dilations=[1,1] groups=2> : f32[8,3,3,5]\n"
    "  %m = matmul(%a, %b) : f32[4,5,7]\n"
    "  return %c \"c\", %d \"d\", %e \"e\", %m \"m\"\n"
    "}\n";

static void test_contractions(void **state) {
    (void)state;
    sn_diags diags = {0};
    sn_module *module = sn_parse(text, sizeof text - 1, "test", &diags);
    if (!module) fail_msg("%s", diags.items[0].message);
    sn_arena scratch = {0};
    // a convolution and its gradients: samples, channels out, places, channels in of a group, kernel
    const double conv = 2.0 * 2 * 8 * (5 * 4) * 3 * (3 * 5), expected[] = {conv, conv, conv, 2.0 * 4 * 5 * 6 * 7};
    int i = 0;
    SN_FOR_OPS(op, sn_module_func(module, "f")) assert_true(sn_op_work(op, &scratch).flops == expected[i++]);
    assert_int_equal(i, 4);
    sn_arena_free(&scratch);
    sn_module_free(module);
    sn_diags_free(&diags);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_contractions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
