// plan-memory: values that live at the same time never share bytes, and what is declared in place is.
#include "base/philox.h"
#include "ir/build.h"
#include "passes/memory/share.h"
#include "passes/pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

extern const sn_pass sn_pass_plan_memory;

static sn_module *new_module(void) {
    sn_module *module = sn_module_new("test");
    module->form = SN_FORM_SCHED;
    sn_func *body = sn_module_add_func(module, "k");
    body->is_body = true;
    return module;
}

static sn_type vector(int64_t n) {
    return sn_type_make(SN_F32, 1, &n);
}

// A kernel with one result of n elements, written over operand `inplace` unless that is -1.
static sn_value *kernel(sn_func *func, int n_operands, sn_value *const *operands, int64_t n, int64_t inplace) {
    sn_attr attrs[] = {sn_attr_func("body", sn_module_func(func->module, "k")), sn_attr_ints("inplace", &inplace, 1)};
    sn_type type = vector(n);
    return sn_op_new(func, NULL, SN_OP_KERNEL, n_operands, operands, 2, attrs, 1, &type)->results[0];
}

static void plan(sn_module *module) {
    sn_diags diags = {0};
    sn_arena scratch = {0};
    sn_pass_context context = {.diags = &diags, .arguments = "", .scratch = &scratch};
    sn_pass_plan_memory.run(module, &context);
    sn_arena_free(&scratch);
    sn_diags_free(&diags);
}

// Ops as numbers, and the last reader of each value, found without the pass's help.
static int position(const sn_func *func, const sn_op *op) {
    int at = 0;
    SN_FOR_OPS(other, func) {
        if (other == op) return at;
        at++;
    }
    return -1;
}

static int last_use(const sn_func *func, const sn_value *value) {
    int last = position(func, value->def);
    for (size_t i = 0; i < value->uses.count; i++) {
        int at = position(func, value->uses.data[i].op);
        if (at > last) last = at;
    }
    for (size_t i = 0; i < func->results.count; i++)
        if (func->results.data[i] == value) last = (int)func->n_ops;
    return last;
}

static bool overlap(const sn_value *a, const sn_value *b) {
    int64_t end_a = a->place.offset + sn_type_bytes(a->type), end_b = b->place.offset + sn_type_bytes(b->type);
    return a->place.offset < end_b && b->place.offset < end_a;
}

static void check_no_overlap(const sn_module *module, const sn_func *func) {
    SN_FOR_OPS(op, func) {
        sn_value *a = op->results[0];
        assert_true(a->place.placed && a->place.offset % 64 == 0);
        assert_true(a->place.offset + sn_type_bytes(a->type) <= module->arena_bytes);
        for (sn_op *other = op->next; other; other = other->next)
            if (position(func, other) <= last_use(func, a)) assert_false(overlap(a, other->results[0]));
        for (size_t g = 0; g < module->globals.count; g++) assert_false(overlap(a, module->globals.data[g]->value));
        for (size_t i = 0; i < func->args.count; i++) assert_false(overlap(a, func->args.data[i]));
    }
}

static void test_random_programs(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        sn_module *module = new_module();
        sn_func *func = sn_module_add_func(module, "step");
        sn_module_add_global(module, "w", vector(1000), SN_ROLE_PARAMETER, (sn_source){0});
        sn_value *values[64] = {sn_func_add_arg(func, "x", vector(100))};
        int64_t total = 0;
        for (int i = 1; i < 64; i++) {
            uint32_t bits = sn_random_bits(seed, 0, 0, (uint64_t)i);
            sn_value *operands[] = {values[bits % (uint32_t)i], values[(bits >> 8) % (uint32_t)i]};
            if (i > 8 && i % 3) operands[0] = values[i - 1], operands[1] = values[i - 2]; // some die early
            values[i] = kernel(func, 2, operands, 1 + (bits >> 16) % 5000, -1);
            total += sn_type_bytes(values[i]->type);
        }
        sn_func_add_result(func, values[63], "y");
        plan(module);
        check_no_overlap(module, func);
        assert_true(module->arena_bytes < total); // something was shared
        sn_module_free(module);
    }
}

static void test_in_place_update_follows_the_last_reader(void **state) {
    (void)state;
    sn_module *module = new_module();
    sn_func *func = sn_module_add_func(module, "step");
    sn_value *w = sn_module_add_global(module, "w", vector(64), SN_ROLE_PARAMETER, (sn_source){0})->value;
    sn_value *x = sn_func_add_arg(func, "x", vector(64));
    sn_value *updated = kernel(func, 2, (sn_value *[]){w, x}, 64, 0);
    sn_op_new(func, NULL, SN_OP_ASSIGN, 2, (sn_value *[]){w, updated}, 0, NULL, 0, NULL);
    sn_value *reader = kernel(func, 2, (sn_value *[]){w, x}, 64, -1);
    sn_func_add_result(func, reader, "y");
    plan(module);
    assert_ptr_equal(func->first, reader->def);
    assert_ptr_equal(func->first->next, updated->def);
    assert_int_equal(updated->place.offset, w->place.offset);
    assert_true(sn_assign_is_in_place(func->last));
    sn_module_free(module);
}

static sn_value *all_reduce(sn_func *func, sn_value *x) {
    sn_attr axes = sn_attr_string("axes", "dp");
    return sn_op_new(func, NULL, SN_OP_ALL_REDUCE, 1, &x, 1, &axes, 1, &x->type)->results[0];
}

static void test_all_reduce_shares_what_dies(void **state) {
    (void)state;
    sn_module *module = new_module();
    sn_func *func = sn_module_add_func(module, "step");
    sn_value *x = sn_func_add_arg(func, "x", vector(64));
    sn_value *a = kernel(func, 1, &x, 64, -1), *b = kernel(func, 1, &x, 64, -1);
    sn_value *ra = all_reduce(func, a), *rb = all_reduce(func, b);
    sn_value *y = kernel(func, 3, (sn_value *[]){ra, rb, b}, 64, -1); // b is read again
    sn_func_add_result(func, y, "y");
    plan(module);
    assert_int_equal(ra->place.offset, a->place.offset);
    assert_false(overlap(rb, b));
    sn_module_free(module);
}

static void test_functions_share_the_transient_part(void **state) {
    (void)state;
    sn_module *module = new_module();
    int64_t bytes[2];
    for (int f = 0; f < 2; f++) {
        sn_func *func = sn_module_add_func(module, f ? "eval" : "step");
        sn_value *x = sn_func_add_arg(func, "x", vector(16));
        sn_value *y = kernel(func, 1, &x, 4096, -1);
        sn_func_add_result(func, y, "y");
        bytes[f] = sn_type_bytes(y->type);
    }
    plan(module);
    const sn_value *first = sn_module_func(module, "step")->args.data[0];
    const sn_value *second = sn_module_func(module, "eval")->args.data[0];
    assert_int_equal(first->place.offset, second->place.offset); // one argument of that name
    assert_true(module->arena_bytes < bytes[0] + bytes[1]);
    sn_module_free(module);
}

// [4,6] read as the second half of its transposed rows.
static void test_strided_views(void **state) {
    (void)state;
    sn_module *module = new_module();
    sn_builder b = {.func = sn_module_add_func(module, "step")};
    sn_value *x = sn_func_add_arg(b.func, "x", sn_type_make(SN_F32, 2, (int64_t[]){4, 6}));
    sn_value *t = sn_build_transpose(&b, x, (int64_t[]){1, 0});
    sn_value *s = sn_build_slice(&b, t, (int64_t[]){3, 0}, (int64_t[]){1, 1}, (int64_t[]){3, 4});
    sn_strided view;
    assert_true(sn_strided_view(s, &view));
    assert_ptr_equal(view.root, x);
    assert_int_equal(view.offset, 3);
    assert_int_equal(view.stride[0], 1);
    assert_int_equal(view.stride[1], 6);
    assert_false(sn_strided_is_dense(&view));
    assert_false(sn_strided_view(sn_build_reshape(&b, s, 1, (int64_t[]){12}), &view)); // needs a copy
    sn_value *split = sn_build_reshape(&b, x, 3, (int64_t[]){4, 2, 3});
    assert_true(sn_strided_view(split, &view));
    assert_true(sn_strided_is_dense(&view));
    sn_module_free(module);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_in_place_update_follows_the_last_reader),
        cmocka_unit_test(test_all_reduce_shares_what_dies),
        cmocka_unit_test(test_functions_share_the_transient_part),
        cmocka_unit_test(test_strided_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
