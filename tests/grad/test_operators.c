// Every differentiable operator against central differences, at odd shapes; the last test fails when an operator of
// ops.def has neither a case here nor a stated reason to have no gradient.
#include "check.h"

static bool covered[SN_OP_COUNT];

static void note_coverage(const grad_case *c) {
    sn_module *module = sn_module_new("coverage");
    sn_func *func = sn_module_add_func(module, "f");
    sn_builder b = {.func = func};
    sn_value *x[MOST_INPUTS], *out[MOST_OUTPUTS];
    for (int i = 0; i < MOST_INPUTS && c->shapes[i]; i++)
        x[i] = sn_func_add_arg(func, "x", shape(SN_F64, c->shapes[i]));
    c->build(&b, x, c, out);
    SN_FOR_OPS(op, func) {
        covered[op->kind] = true;
    }
    sn_module_free(module);
}

static void run_cases(const grad_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        note_coverage(&cases[i]);
        check_case(&cases[i]);
    }
}
#define RUN(cases) run_cases(cases, sizeof(cases) / sizeof *(cases))

static int one(sn_value **out, sn_value *y) {
    out[0] = y;
    return 1;
}

static int build_unary(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, sn_build_unary(b, c->kind, x[0]));
}

static void test_unary(void **state) {
    (void)state;
    static const struct {
        sn_op_kind kind;
        double low, high; // where it is smooth
    } operators[] = {
        {SN_OP_COPY, 0, 0},       {SN_OP_NEG, 0, 0},          {SN_OP_ABS, 0.1, 2},   {SN_OP_ABS, -2, -0.1},
        {SN_OP_EXP, 0, 0},        {SN_OP_LOG, 0.2, 3},        {SN_OP_SQRT, 0.2, 3},  {SN_OP_RSQRT, 0.3, 3},
        {SN_OP_RECIPROCAL, 1, 3}, {SN_OP_RECIPROCAL, -3, -1}, {SN_OP_SIN, 0, 0},     {SN_OP_COS, 0, 0},
        {SN_OP_TAN, -1, 1},       {SN_OP_ASIN, -.8, .8},      {SN_OP_ACOS, -.8, .8}, {SN_OP_ATAN, 0, 0},
        {SN_OP_SINH, 0, 0},       {SN_OP_COSH, 0, 0},         {SN_OP_TANH, 0, 0},    {SN_OP_ASINH, 0, 0},
        {SN_OP_ACOSH, 1.3, 4},    {SN_OP_ATANH, -.8, .8},     {SN_OP_ERF, 0, 0},     {SN_OP_SIGMOID, -5, 5},
        {SN_OP_RELU, -2, -0.1},   {SN_OP_RELU, 0.1, 2},       {SN_OP_GELU, -4, 4},   {SN_OP_GELU_TANH, -4, 4},
        {SN_OP_SOFTPLUS, -5, 5},
    };
    static const char *const shapes[] = {"1", "7", "2,3,5", ""};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        for (int s = 0; s < 4; s++) {
            grad_case c = {sn_op_name(operators[i].kind),
                           build_unary,
                           {shapes[s]},
                           operators[i].low,
                           operators[i].high,
                           operators[i].kind,
                           {0}};
            run_cases(&c, 1);
        }
}

static int build_binary(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, sn_build_binary(b, c->kind, x[0], x[1]));
}

static void test_binary(void **state) {
    (void)state;
    static const struct {
        sn_op_kind kind;
        double low, high;
    } operators[] = {
        {SN_OP_ADD, 0, 0},     {SN_OP_SUB, 0, 0},     {SN_OP_MUL, 0, 0}, {SN_OP_DIV, 0.7, 3},
        {SN_OP_DIV, -3, -0.7}, {SN_OP_POW, 0.5, 2.5}, {SN_OP_MIN, 0, 0}, {SN_OP_MAX, 0, 0},
    };
    static const char *const shapes[][2] = {{"2,3", "2,3"}, {"3,1,5", "4,1"}, {"", "2,2"},
                                            {"7", "3,7"},   {"1", "1"},       {"2,1", "1,5"}};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        for (int s = 0; s < 6; s++) {
            grad_case c = {sn_op_name(operators[i].kind),
                           build_binary,
                           {shapes[s][0], shapes[s][1]},
                           operators[i].low,
                           operators[i].high,
                           operators[i].kind,
                           {0}};
            run_cases(&c, 1);
        }
}

// A number as the second operand, where the rules take short cuts.
static int build_with_number(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, sn_build_binary_number(b, c->kind, x[0], (double)c->a[0] / 4));
}

// x and y + 4: the quotient's floor does not change within a step.
static int build_remainder(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_value *dividend = sn_build_binary_number(b, SN_OP_MUL, x[0], (double)c->a[0]);
    sn_value *divisor = sn_build_binary_number(b, SN_OP_ADD, x[1], (double)c->a[1]);
    return one(out, sn_build_binary(b, c->kind, dividend, divisor));
}

static int build_where(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    (void)c;
    bool which[] = {true, false, false};
    sn_value *condition = stored(b, shape(SN_BOOL, "3,1"), which);
    return one(out, sn_build_where(b, condition, x[0], x[1]));
}

static int build_cast(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    (void)c;
    sn_type type = sn_type_with_dtype(x[0]->type, SN_F64);
    return one(out, sn_build(b, SN_OP_CAST, 1, x, 0, NULL, &type)->results[0]);
}

// A value read several times, also by the same op.
static int build_shared(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    (void)c;
    sn_value *square = sn_build_binary(b, SN_OP_MUL, x[0], x[0]);
    sn_value *cube = sn_build_binary(b, SN_OP_MUL, square, x[0]);
    return one(out, sn_build_binary(b, SN_OP_ADD, cube, sn_build_binary(b, SN_OP_DIV, square, cube)));
}

static void test_pointwise(void **state) {
    (void)state;
    static const grad_case cases[] = {
        {"x^0", build_with_number, {"5"}, 0, 0, SN_OP_POW, {0}},
        {"x^1", build_with_number, {"5"}, 0, 0, SN_OP_POW, {4}},
        {"x^2", build_with_number, {"5"}, 0, 0, SN_OP_POW, {8}},
        {"x^3", build_with_number, {"5"}, 0, 0, SN_OP_POW, {12}},
        {"x^0.5", build_with_number, {"5"}, 0.5, 2, SN_OP_POW, {2}},
        {"x^-0.75", build_with_number, {"5"}, 0.5, 2, SN_OP_POW, {-3}},
        {"max(x, 0.25)", build_with_number, {"11"}, 0, 0, SN_OP_MAX, {1}},
        {"min(x, 0.25)", build_with_number, {"11"}, 0, 0, SN_OP_MIN, {1}},
        {"mod", build_remainder, {"3,2", "2"}, 0, 0, SN_OP_MOD, {5, 3}},
        {"mod of negatives", build_remainder, {"3,2", "2"}, 0, 0, SN_OP_MOD, {-7, -3}},
        {"fmod", build_remainder, {"3,2", "2"}, 0, 0, SN_OP_FMOD, {5, 3}},
        {"fmod of negatives", build_remainder, {"3,2", "2"}, 0, 0, SN_OP_FMOD, {-7, 3}},
        {"where", build_where, {"3,2", "2"}, 0, 0, SN_OP_WHERE, {0}},
        {"where, scalar", build_where, {"", "5,3,1"}, 0, 0, SN_OP_WHERE, {0}},
        {"cast", build_cast, {"2,3"}, 0, 0, SN_OP_CAST, {0}},
        {"shared", build_shared, {"2,3"}, 0.5, 2, SN_OP_MUL, {0}},
    };
    RUN(cases);
}

#include "cases_movement.h"
#include "cases_nn.h"
#include "cases_reduction.h"

// Operators of training, distribution and schedules: no model holds them when it is differentiated.
static bool has_no_gradient(sn_op_kind kind) {
    static const unsigned traits = SN_TRAIT_UPDATE | SN_TRAIT_COLLECTIVE | SN_TRAIT_SCHEDULE;
    return (sn_op_info_of(kind)->traits & traits) || kind == SN_OP_KERNEL || kind == SN_OP_SHARD ||
           kind == SN_OP_ATTENTION_GRAD;
}

static void test_every_operator_is_covered(void **state) {
    (void)state;
    int missing = 0;
    for (int kind = 0; kind < SN_OP_COUNT; kind++) {
        sn_gradient_kind has = sn_gradient_kind_of(kind);
        if (has == SN_GRADIENT_RULE && !covered[kind]) {
            print_error("%s has a rule but no case\n", sn_op_name(kind));
            missing++;
        }
        if ((has == SN_GRADIENT_NONE) != has_no_gradient(kind)) {
            print_error("%s: neither a rule nor a reason for none\n", sn_op_name(kind));
            missing++;
        }
    }
    assert_int_equal(missing, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_movement),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_contractions),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_composites),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_every_operator_is_covered), // reads what the others covered
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
