// A distributed program equals the one-device program: each graph runs in graph form, and in dist form on meshes of
// several ranks, through the interpreter, and its results and updated globals must agree.
#include "base/philox.h"
#include "ir/build.h"
#include "ir/interp.h"
#include "ir/verify.h"
#include "passes/autodiff/differentiate.h"
#include "passes/partition/distribute.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 12, MOST = 16 };

typedef void build_graph(sn_builder *b);

static sn_value *data_arg(sn_builder *b, const char *name, sn_dtype dtype, int rank, const int64_t *dims) {
    return sn_func_add_arg(b->func, name, sn_type_make(dtype, rank, dims));
}
#define DIMS(...)                                                                                                      \
    (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (const int64_t[]) {                                       \
        __VA_ARGS__                                                                                                    \
    }
#define DATA(b, name, dtype, ...) data_arg(b, name, dtype, DIMS(__VA_ARGS__))

static sn_value *weight(sn_builder *b, const char *name, int rank, const int64_t *dims) {
    sn_type type = sn_type_make(SN_F32, rank, dims);
    float *data = sn_arena_alloc(&b->func->module->arena, (size_t)sn_type_bytes(type));
    uint64_t seed = sn_hash_bytes(name, strlen(name), 0);
    for (int64_t i = 0; i < sn_type_count(type); i++) data[i] = sn_random_uniform(seed, 0, 0, (uint64_t)i) - 0.5f;
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = data};
    return sn_module_add_global(b->func->module, name, type, SN_ROLE_PARAMETER, source)->value;
}
#define WEIGHT(b, name, ...) weight(b, name, DIMS(__VA_ARGS__))

// Appends plain gradient descent on every global.
static void descend(sn_builder *b, sn_value *loss) {
    sn_module *module = b->func->module;
    sn_value *wanted[MOST] = {0}, *gradients[MOST] = {0};
    int n = (int)module->globals.count;
    sn_diags diags = {0};
    for (int i = 0; i < n; i++) wanted[i] = module->globals.data[i]->value;
    assert_true(sn_differentiate(b, loss, n, wanted, gradients, &diags));
    for (int i = 0; i < n; i++) {
        sn_value *step = sn_build_binary_number(b, SN_OP_MUL, gradients[i], 0.1);
        sn_value *next = sn_build_binary(b, SN_OP_SUB, wanted[i], step);
        sn_build(b, SN_OP_ASSIGN, 2, (sn_value *[]){wanted[i], next}, 0, NULL, NULL);
    }
    sn_func_add_result(b->func, loss, "loss");
    sn_diags_free(&diags);
}

static sn_value *mean_of(sn_builder *b, sn_value *x) {
    int64_t axes[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    sn_value *sum = sn_build_reduce(b, SN_OP_REDUCE_SUM, x, x->type.rank, axes, false);
    return sn_build_binary_number(b, SN_OP_DIV, sum, (double)sn_type_count(x->type));
}

static void build_mlp(sn_builder *b) {
    sn_value *x = DATA(b, "x", SN_F32, BATCH, 5), *labels = DATA(b, "labels", SN_I64, BATCH);
    sn_value *h = sn_build_matmul(b, x, WEIGHT(b, "w1", 5, 7), false, false);
    h = sn_build_unary(b, SN_OP_TANH, sn_build_binary(b, SN_OP_ADD, h, WEIGHT(b, "b1", 7)));
    sn_value *logits = sn_build_matmul(b, h, WEIGHT(b, "w2", 3, 7), false, true);
    sn_attr axis = sn_attr_int("axis", 1);
    sn_value *losses = sn_build(b, SN_OP_CROSS_ENTROPY, 2, (sn_value *[]){logits, labels}, 1, &axis, NULL)->results[0];
    // the mean over labels that count: a sum over a count, both partial
    sn_value *counts = sn_build_binary_number(b, SN_OP_GREATER_EQUAL, labels, 0);
    int64_t all = 0;
    sn_value *count = sn_build_reduce(b, SN_OP_REDUCE_SUM, sn_build_cast(b, counts, SN_F32), 1, &all, false);
    sn_value *sum = sn_build_reduce(b, SN_OP_REDUCE_SUM, losses, 1, &all, false);
    descend(b, sn_build_binary(b, SN_OP_DIV, sum, count));
}

// Batch statistics are over the whole batch, whatever the ranks.
static void build_batch_norm(sn_builder *b) {
    sn_value *x = DATA(b, "x", SN_F32, BATCH, 4, 3);
    int64_t axes[] = {0, 2};
    sn_value *mean = sn_build_reduce(b, SN_OP_REDUCE_SUM, x, 2, axes, true);
    mean = sn_build_binary_number(b, SN_OP_DIV, mean, BATCH * 3);
    sn_value *centred = sn_build_binary(b, SN_OP_SUB, x, mean);
    sn_value *square = sn_build_binary(b, SN_OP_MUL, centred, centred);
    sn_value *var = sn_build_reduce(b, SN_OP_REDUCE_SUM, square, 2, axes, true);
    var = sn_build_binary_number(b, SN_OP_ADD, sn_build_binary_number(b, SN_OP_DIV, var, BATCH * 3), 1e-5);
    sn_value *y = sn_build_binary(b, SN_OP_MUL, centred, sn_build_unary(b, SN_OP_RSQRT, var));
    y = sn_build_binary(b, SN_OP_MUL, y, WEIGHT(b, "scale", 4, 1));
    descend(b, mean_of(b, sn_build_binary(b, SN_OP_MUL, y, sn_build_unary(b, SN_OP_SIGMOID, y))));
}

// Embedding, attention over merged and split dims, a position table and a mask built from iota.
static void build_attention(sn_builder *b) {
    enum { SEQ = 4, HEADS = 2, SIZE = 3, WIDE = HEADS * SIZE };
    sn_value *ids = DATA(b, "ids", SN_I64, BATCH, SEQ);
    sn_value *x = sn_build_gather(b, WEIGHT(b, "wte", 11, WIDE), ids, 0);
    x = sn_build_binary(b, SN_OP_ADD, x, WEIGHT(b, "wpe", SEQ, WIDE));
    sn_value *flat = sn_build_reshape(b, x, DIMS(BATCH * SEQ, WIDE));
    sn_value *qkv = sn_build_matmul(b, flat, WEIGHT(b, "qkv", WIDE, 3 * WIDE), false, false);
    qkv = sn_build_reshape(b, qkv, DIMS(BATCH, SEQ, 3, HEADS, SIZE));
    sn_value *part[3];
    for (int i = 0; i < 3; i++) {
        int64_t starts[] = {0, 0, i, 0, 0}, steps[] = {1, 1, 1, 1, 1}, sizes[] = {BATCH, SEQ, 1, HEADS, SIZE};
        part[i] = sn_build_reshape(b, sn_build_slice(b, qkv, starts, steps, sizes), DIMS(BATCH, SEQ, HEADS, SIZE));
        part[i] = sn_build_transpose(b, part[i], (int64_t[]){0, 2, 1, 3});
    }
    sn_attr attrs[] = {sn_attr_float("scale", 0.5), sn_attr_int("causal", 1)};
    sn_value *o = sn_build(b, SN_OP_ATTENTION, 3, part, 2, attrs, NULL)->results[0];
    o = sn_build_reshape(b, sn_build_transpose(b, o, (int64_t[]){0, 2, 1, 3}), DIMS(BATCH, SEQ, WIDE));
    sn_value *logits = sn_build_matmul(b, o, sn_module_global(b->func->module, "wte")->value, false, true);
    sn_value *rows = sn_build_iota(b, sn_type_make(SN_F32, DIMS(BATCH, 1, 1)), 0); // cut where it is used
    logits = sn_build_binary(b, SN_OP_MUL, logits, sn_build_binary_number(b, SN_OP_ADD, rows, 1));
    sn_attr axis = sn_attr_int("axis", 2);
    sn_value *losses = sn_build(b, SN_OP_CROSS_ENTROPY, 2, (sn_value *[]){logits, ids}, 1, &axis, NULL)->results[0];
    descend(b, mean_of(b, losses));
}

// Masks depend on the global index alone.
static void build_dropout(sn_builder *b) {
    sn_value *x = DATA(b, "x", SN_F32, BATCH, 5);
    sn_value *seed = sn_func_add_arg(b->func, "$seed", sn_type_scalar(SN_I64));
    sn_value *step = sn_func_add_arg(b->func, "$step", sn_type_scalar(SN_I64));
    sn_attr id = sn_attr_int("id", 3);
    sn_value *h = sn_build_matmul(b, x, WEIGHT(b, "w", 5, 7), false, false);
    sn_value *u = sn_build(b, SN_OP_RANDOM_UNIFORM, 2, (sn_value *[]){seed, step}, 1, &id, &h->type)->results[0];
    sn_value *keep = sn_build_binary_number(b, SN_OP_GREATER_EQUAL, u, 0.5);
    h = sn_build_where(b, keep, sn_build_binary_number(b, SN_OP_MUL, h, 2), sn_build_number_like(b, h, 0));
    descend(b, mean_of(b, sn_build_binary(b, SN_OP_MUL, h, h)));
}

// What no factor lets through is gathered: a softmax and a cumulative sum over the batch (the sum as dim 1 of the
// transpose), and a reversed batch.
static void build_whole(sn_builder *b) {
    sn_value *x = DATA(b, "x", SN_F32, BATCH, 5);
    sn_value *h = sn_build_binary(b, SN_OP_MUL, x, WEIGHT(b, "w", 5));
    sn_attr axis = sn_attr_int("axis", 0);
    sn_value *s = sn_build(b, SN_OP_SOFTMAX, 1, &h, 1, &axis, NULL)->results[0];
    sn_attr columns = sn_attr_int("axis", 1);
    sn_value *c = sn_build_transpose(b, h, (int64_t[]){1, 0});
    c = sn_build(b, SN_OP_CUM_SUM, 1, &c, 1, &columns, NULL)->results[0];
    c = sn_build_transpose(b, c, (int64_t[]){1, 0});
    sn_value *r = sn_build_slice(b, h, (int64_t[]){BATCH - 1, 0}, (int64_t[]){-1, 1}, (int64_t[]){BATCH, 5});
    sn_value *sum = sn_build_binary(b, SN_OP_ADD, sn_build_binary(b, SN_OP_MUL, s, c), r);
    int64_t first = 0;
    sn_value *top = sn_build_reduce(b, SN_OP_REDUCE_MAX, h, 1, &first, false);
    sum = sn_build_binary(b, SN_OP_MUL, sum, top);
    descend(b, mean_of(b, sn_build_binary(b, SN_OP_MUL, sum, sum)));
}

// Sequence first, as recurrent and older attention modules work: where the batch is no major dim, it is gathered.
static void build_sequence_first(sn_builder *b) {
    enum { SEQ = 7 };
    sn_value *x = sn_build_transpose(b, DATA(b, "x", SN_F32, BATCH, SEQ, 5), (int64_t[]){1, 0, 2});
    sn_value *h = sn_build_reshape(b, x, DIMS(SEQ * BATCH, 5));
    h = sn_build_unary(b, SN_OP_TANH, sn_build_matmul(b, h, WEIGHT(b, "w", 5, 6), false, false));
    h = sn_build_transpose(b, sn_build_reshape(b, h, DIMS(SEQ, BATCH, 6)), (int64_t[]){1, 0, 2});
    h = sn_build_binary(b, SN_OP_MUL, h, WEIGHT(b, "scale", SEQ, 6));
    descend(b, mean_of(b, sn_build_binary(b, SN_OP_MUL, h, h)));
}

static sn_tensor argument(const sn_value *arg) {
    sn_type global = arg->type;
    sn_tensor tensor = sn_tensor_new(global);
    for (int64_t i = 0; i < sn_type_count(global); i++) {
        if (arg->name[0] == '$')
            sn_store_i64(global.dtype, tensor.data, i, 5);
        else if (sn_dtype_is_float(global.dtype))
            ((float *)tensor.data)[i] = sn_random_uniform(1, 0, 0, (uint64_t)i) * 2 - 1;
        else
            sn_store_i64(global.dtype, tensor.data, i,
                         strcmp(arg->name, "labels") ? i * 7 % 11
                         : i % 4 == 3                ? -100
                                                     : i % 3);
    }
    return tensor;
}

typedef struct outcome {
    double loss;
    sn_tensor weights[MOST];
    size_t n_weights;
} outcome;

static outcome run_on(build_graph *build, int ranks) {
    sn_module *module = sn_module_new("test");
    sn_builder b = {.func = sn_module_add_func(module, "step")};
    build(&b);
    sn_diags diags = {0};
    if (ranks > 1) {
        sn_plan plan = sn_plan_data_parallel(ranks, 1);
        assert_true(sn_distribute(module, &plan, &diags));
    }
    sn_tensor args[MOST], result;
    for (size_t i = 0; i < b.func->args.count; i++) args[i] = argument(b.func->args.data[i]);
    sn_interp *interp = sn_interp_new(module);
    const char *wrong = sn_interp_run(interp, b.func, args, &result);
    if (wrong) fail_msg("%s", wrong);
    outcome out = {.loss = sn_load_f64(SN_F32, result.data, 0), .n_weights = module->globals.count};
    for (size_t i = 0; i < module->globals.count; i++) {
        sn_tensor *now = sn_interp_global(interp, module->globals.data[i], &wrong);
        out.weights[i] = sn_tensor_new(now->type);
        memcpy(out.weights[i].data, now->data, (size_t)sn_type_bytes(now->type));
    }
    for (size_t i = 0; i < b.func->args.count; i++) sn_tensor_free(&args[i]);
    sn_tensor_free(&result);
    sn_interp_free(interp);
    sn_module_free(module);
    sn_diags_free(&diags);
    return out;
}

static void forget(outcome *out) {
    for (size_t i = 0; i < out->n_weights; i++) sn_tensor_free(&out->weights[i]);
}

static void compare(build_graph *build) {
    outcome alone = run_on(build, 1);
    assert_true(isfinite(alone.loss) && alone.loss != 0);
    for (int ranks = 2; ranks <= 4; ranks++) {
        outcome many = run_on(build, ranks);
        assert_true(fabs(many.loss - alone.loss) <= 1e-6 * fabs(alone.loss));
        for (size_t i = 0; i < alone.n_weights; i++) {
            const float *a = alone.weights[i].data, *m = many.weights[i].data;
            for (int64_t k = 0; k < sn_type_count(alone.weights[i].type); k++)
                if (!(fabsf(a[k] - m[k]) <= 2e-6f))
                    fail_msg("%d ranks, weight %zu [%d]: %g, not %g", ranks, i, (int)k, m[k], a[k]);
        }
        forget(&many);
    }
    forget(&alone);
}

#define TEST(name)                                                                                                     \
    static void test_##name(void **state) {                                                                            \
        (void)state;                                                                                                   \
        compare(build_##name);                                                                                         \
    }
TEST(mlp)
TEST(batch_norm)
TEST(attention)
TEST(dropout)
TEST(whole)
TEST(sequence_first)

// Parts lie one behind the other in memory: collectives of what a rank runs join or cut first dims alone.
static void test_first_dims(void **state) {
    (void)state;
    sn_module *module = sn_module_new("test");
    sn_builder b = {.func = sn_module_add_func(module, "step")};
    build_whole(&b);
    sn_diags diags = {0};
    sn_plan plan = sn_plan_data_parallel(4, 1);
    assert_true(sn_distribute(module, &plan, &diags));
    sn_localize(module);
    sn_str problems = {0};
    if (!sn_verify(module, &problems)) fail_msg("%s", sn_str_text(&problems));
    int gathers = 0;
    SN_FOR_OPS(op, b.func) {
        if (op->kind != SN_OP_ALL_GATHER) continue;
        gathers++;
        assert_int_equal(sn_op_int(op, "dim"), 0);
        assert_int_equal(op->results[0]->type.dim[0], 4 * op->operands[0]->type.dim[0]);
        for (int i = 1; i < op->results[0]->type.rank; i++)
            assert_int_equal(op->results[0]->type.dim[i], op->operands[0]->type.dim[i]);
    }
    assert_true(gathers > 0);
    sn_str_free(&problems);
    sn_diags_free(&diags);
    sn_module_free(module);
}

static void test_batch_must_divide(void **state) {
    (void)state;
    sn_module *module = sn_module_new("test");
    sn_builder b = {.func = sn_module_add_func(module, "step")};
    build_mlp(&b);
    sn_diags diags = {0};
    sn_plan plan = sn_plan_data_parallel(5, 1);
    assert_false(sn_distribute(module, &plan, &diags));
    assert_int_equal(diags.errors, 1);
    assert_string_equal(diags.items[0].code, "E0404");
    sn_diags_free(&diags);
    sn_module_free(module);
}

// What a plan says wrongly of the multi-layer perceptron, and the code of the error about it.
static void expect_error(const char *name, int rank, int64_t dp, sn_layout layout, const char *code) {
    sn_module *module = sn_module_new("test");
    sn_builder b = {.func = sn_module_add_func(module, "step")};
    build_mlp(&b);
    sn_diags diags = {0};
    sn_plan plan = sn_plan_data_parallel((int)dp, 1);
    plan.mesh.n_axes = 2;
    strcpy(plan.mesh.name[1], "tp");
    plan.mesh.size[1] = 2;
    sn_plan_layout entry = {name, rank, layout};
    plan.layouts = &entry, plan.n_layouts = 1;
    assert_false(sn_distribute(module, &plan, &diags));
    assert_int_equal(diags.errors, 1);
    assert_string_equal(diags.items[0].code, code);
    assert_string_equal(diags.items[0].subject, name);
    assert_non_null(diags.items[0].help);
    sn_diags_free(&diags);
    sn_module_free(module);
}

static void test_layouts_that_do_not_fit(void **state) {
    (void)state;
    sn_layout rows = {.dim = {1 << 1}}, columns = {.dim = {0, 1 << 1}};
    expect_error("nobody", 2, 2, rows, "E0430");
    expect_error("w1", 2, 2, rows, "E0431");    // 5 rows in two parts
    expect_error("w1", 1, 2, rows, "E0431");    // of a matrix
    expect_error("w2", 2, 2, columns, "E0431"); // 7 columns
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_sequence_first),
        cmocka_unit_test(test_first_dims),
        cmocka_unit_test(test_batch_must_divide),
        cmocka_unit_test(test_layouts_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
