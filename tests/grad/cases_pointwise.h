// Cases of tests/grad: pointwise operators.

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
