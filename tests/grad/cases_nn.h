// Cases of tests/grad: contractions, windows, composites.

static int build_matmul(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, sn_build_matmul(b, x[0], x[1], c->a[0] != 0, c->a[1] != 0));
}

static void test_contractions(void **state) {
    (void)state;
    // [m k] [k n] for each pair of flags, with batches on both sides, on one, stretched, and of size 1
    static const char *const shapes[][2][2] = {
        {{"3,5", "5,3"}, {"5,2", "2,5"}},
        {{"2,3,5", "2,5,3"}, {"5,7", "7,5"}},
        {{"4,2,3,5", "4,2,5,3"}, {"1,1,5,2", "1,1,2,5"}},
        {{"3,5", "5,3"}, {"2,5,1", "2,1,5"}},
        {{"2,1,3,4", "2,1,4,3"}, {"3,4,2", "3,2,4"}},
        {{"2,3,4", "2,4,3"}, {"2,4,1", "2,1,4"}},
        {{"1,1", "1,1"}, {"1,1", "1,1"}},
        {{"1,2,3", "1,3,2"}, {"3,2", "2,3"}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int flags = 0; flags < 4; flags++) {
            int ta = flags & 1, tb = flags >> 1;
            grad_case c = {"matmul", build_matmul, {shapes[i][0][ta], shapes[i][1][tb]}, 0, 0, 0, {ta, tb}};
            run_cases(&c, 1);
        }
}

typedef struct window_case {
    const char *name, *x, *w;
    int rank;
    int64_t strides[2], pads[4], dilations[2], groups;
} window_case;

static const window_case convs[] = {
    {"conv", "2,3,5,4", "2,3,3,2", 2, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
    {"conv, strides and uneven pads", "1,2,6,5", "3,2,3,3", 2, {2, 3}, {1, 2, 0, 1}, {1, 1}, 1},
    {"conv, dilations", "1,1,7,6", "2,1,2,3", 2, {1, 2}, {1, 0, 1, 0}, {2, 2}, 1},
    {"conv, groups", "2,4,3,3", "6,2,2,2", 2, {1, 1}, {0, 1, 1, 0}, {1, 1}, 2},
    {"conv, depthwise", "1,3,4,4", "3,1,3,3", 2, {1, 1}, {1, 1, 1, 1}, {1, 1}, 3},
    {"conv, one dim", "2,2,7", "3,2,3", 1, {2}, {1, 1}, {1}, 1},
    {"conv, pointwise", "1,3,2,2", "5,3,1,1", 2, {1, 1}, {0, 0, 0, 0}, {1, 1}, 1},
};

static int conv_attrs(const window_case *w, sn_attr attrs[4]) {
    attrs[0] = sn_attr_ints("strides", w->strides, w->rank);
    attrs[1] = sn_attr_ints("pads", w->pads, 2 * w->rank);
    attrs[2] = sn_attr_ints("dilations", w->dilations, w->rank);
    attrs[3] = sn_attr_int("groups", w->groups);
    return 4;
}

static sn_type conv_type(sn_builder *b, const window_case *w) {
    sn_attr attrs[4];
    sn_type type;
    sn_func scratch = {.module = b->func->module};
    sn_value x = {.type = shape(float_type, w->x)}, k = {.type = shape(float_type, w->w)};
    const char *wrong =
        sn_infer(scratch.module, SN_OP_CONV, 2, (sn_value *[]){&x, &k}, conv_attrs(w, attrs), attrs, 1, &type);
    assert_null(wrong);
    return type;
}

static int build_conv(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_attr attrs[4];
    int n = conv_attrs(&convs[c->a[0]], attrs);
    return one(out, sn_build(b, SN_OP_CONV, 2, x, n, attrs, NULL)->results[0]);
}

// The transposed convolution and the weights' gradient as a model's ops: the output's gradient is conv of a constant.
static int build_conv_input_grad(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    const window_case *w = &convs[c->a[0]];
    sn_attr attrs[4];
    int n = conv_attrs(w, attrs);
    sn_value *grad = sn_build_binary(b, SN_OP_MUL, x[0], random_weights(b, conv_type(b, w), 3));
    sn_type typed = shape(float_type, w->x);
    return one(out, sn_build(b, SN_OP_CONV_INPUT_GRAD, 2, (sn_value *[]){grad, x[1]}, n, attrs, &typed)->results[0]);
}

static int build_conv_weight_grad(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    const window_case *w = &convs[c->a[0]];
    sn_attr attrs[4];
    int n = conv_attrs(w, attrs);
    sn_value *grad = sn_build_binary(b, SN_OP_MUL, x[1], random_weights(b, conv_type(b, w), 3));
    sn_type typed = shape(float_type, w->w);
    return one(out, sn_build(b, SN_OP_CONV_WEIGHT_GRAD, 2, (sn_value *[]){x[0], grad}, n, attrs, &typed)->results[0]);
}

typedef struct pool_case {
    const char *name, *x, *y;
    int rank;
    int64_t kernel[2], strides[2], pads[4], dilations[2], include_pad;
} pool_case;

static const pool_case pools[] = {
    {"2x2", "1,2,4,6", "1,2,2,3", 2, {2, 2}, {2, 2}, {0}, {1, 1}, 0},
    {"overlapping with pads", "2,1,5,4", "2,1,3,3", 2, {3, 2}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 0},
    {"pads that count", "1,1,5,4", "1,1,3,3", 2, {3, 2}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 1},
    {"dilated", "1,2,7,5", "1,2,5,3", 2, {2, 2}, {1, 1}, {0}, {2, 2}, 0},
    {"ceil mode", "1,1,5,7", "1,1,3,4", 2, {2, 2}, {2, 2}, {0}, {1, 1}, 0},
    {"one dim", "2,3,9", "2,3,4", 1, {3}, {2}, {0}, {1}, 0},
};

static int pool_attrs(const pool_case *p, sn_attr attrs[5]) {
    attrs[0] = sn_attr_ints("kernel", p->kernel, p->rank);
    attrs[1] = sn_attr_ints("strides", p->strides, p->rank);
    attrs[2] = sn_attr_ints("pads", p->pads, 2 * p->rank);
    attrs[3] = sn_attr_ints("dilations", p->dilations, p->rank);
    attrs[4] = sn_attr_int("include_pad", p->include_pad);
    return 5;
}

static sn_op *max_pool(sn_builder *b, sn_value *x, const pool_case *p) {
    sn_attr attrs[5];
    sn_type types[2] = {shape(float_type, p->y), shape(SN_I64, p->y)};
    return sn_build(b, SN_OP_MAX_POOL, 1, &x, pool_attrs(p, attrs) - 1, attrs, types);
}

static int build_max_pool(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, max_pool(b, x[0], &pools[c->a[0]])->results[0]);
}

static int build_max_pool_grad(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    const pool_case *p = &pools[c->a[0]];
    sn_attr attrs[5];
    sn_type type = shape(float_type, p->x);
    sn_value *where = max_pool(b, random_weights(b, type, 9), p)->results[1];
    return one(out,
               sn_build(b, SN_OP_MAX_POOL_GRAD, 2, (sn_value *[]){x[0], where}, pool_attrs(p, attrs) - 1, attrs, &type)
                   ->results[0]);
}

static int build_avg_pool(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_attr attrs[5];
    const pool_case *p = &pools[c->a[0]];
    sn_type type = shape(float_type, p->y);
    return one(out, sn_build(b, SN_OP_AVG_POOL, 1, x, pool_attrs(p, attrs), attrs, &type)->results[0]);
}

static int build_avg_pool_grad(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_attr attrs[5];
    const pool_case *p = &pools[c->a[0]];
    sn_type type = shape(float_type, p->x);
    return one(out, sn_build(b, SN_OP_AVG_POOL_GRAD, 1, x, pool_attrs(p, attrs), attrs, &type)->results[0]);
}

static const char *text_of(sn_type type, char *buffer) {
    *buffer = '\0';
    for (int i = 0; i < type.rank; i++) sprintf(buffer + strlen(buffer), "%s%d", i ? "," : "", (int)type.dim[i]);
    return buffer;
}

static void test_windows(void **state) {
    (void)state;
    sn_module *module = sn_module_new("shapes");
    sn_builder b = {.func = sn_module_add_func(module, "f")};
    for (int64_t i = 0; i < (int64_t)(sizeof convs / sizeof *convs); i++) {
        char y[64];
        text_of(conv_type(&b, &convs[i]), y);
        grad_case cases[] = {
            {convs[i].name, build_conv, {convs[i].x, convs[i].w}, 0, 0, 0, {i}},
            {convs[i].name, build_conv_input_grad, {y, convs[i].w}, 0, 0, 0, {i}},
            {convs[i].name, build_conv_weight_grad, {convs[i].x, y}, 0, 0, 0, {i}},
        };
        RUN(cases);
    }
    for (int64_t i = 0; i < (int64_t)(sizeof pools / sizeof *pools); i++) {
        grad_case cases[] = {
            {pools[i].name, build_max_pool, {pools[i].x}, 0, 0, 0, {i}},
            {pools[i].name, build_max_pool_grad, {pools[i].y}, 0, 0, 0, {i}},
            {pools[i].name, build_avg_pool, {pools[i].x}, 0, 0, 0, {i}},
            {pools[i].name, build_avg_pool_grad, {pools[i].y}, 0, 0, 0, {i}},
        };
        RUN(cases);
    }
    sn_module_free(module);
}

static int build_softmax(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_attr axis = sn_attr_int("axis", c->a[0]);
    return one(out, sn_build(b, c->kind, 1, x, 1, &axis, NULL)->results[0]);
}

// Some labels are ignored; a[1]: also read lse.
static int build_cross_entropy(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    int64_t axis = c->a[0], classes = x[0]->type.dim[axis], labels[64];
    sn_type type = {.dtype = SN_I64};
    for (int i = 0; i < x[0]->type.rank; i++)
        if (i != axis) type.dim[type.rank++] = x[0]->type.dim[i];
    for (int64_t i = 0; i < sn_type_count(type); i++) labels[i] = i % 3 == 1 ? 1 : (i * 5) % classes;
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_int("ignore_index", 1)};
    sn_op *op = sn_build(b, SN_OP_CROSS_ENTROPY, 2, (sn_value *[]){x[0], stored(b, type, labels)}, 2, attrs, NULL);
    out[0] = op->results[0];
    out[1] = op->results[1];
    if (c->a[1] == 2) return one(out, op->results[1]);
    return c->a[1] ? 2 : 1;
}

// a: axis, number of results that are read (1, or all)
static int build_norm(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_attr attrs[] = {sn_attr_int("axis", c->a[0]), sn_attr_float("eps", 1e-3)};
    int n = 0;
    while (c->shapes[n]) n++;
    sn_op *op = sn_build(b, c->kind, n, x, 2, attrs, NULL);
    for (int i = 0; i < op->n_results; i++) out[i] = op->results[i];
    return c->a[1] ? op->n_results : 1;
}

static void test_composites(void **state) {
    (void)state;
    static const grad_case cases[] = {
        {"softmax", build_softmax, {"3,5"}, -3, 3, SN_OP_SOFTMAX, {1}},
        {"softmax, axis 0", build_softmax, {"7,2"}, -3, 3, SN_OP_SOFTMAX, {0}},
        {"softmax, middle", build_softmax, {"2,3,2"}, -3, 3, SN_OP_SOFTMAX, {1}},
        {"softmax of one", build_softmax, {"3,1"}, -3, 3, SN_OP_SOFTMAX, {1}},
        {"log_softmax", build_softmax, {"3,5"}, -3, 3, SN_OP_LOG_SOFTMAX, {1}},
        {"log_softmax, axis 0", build_softmax, {"7,2"}, -3, 3, SN_OP_LOG_SOFTMAX, {0}},
        {"cross_entropy", build_cross_entropy, {"5,7"}, -3, 3, 0, {1, 0}},
        {"cross_entropy, sequences", build_cross_entropy, {"2,3,5"}, -3, 3, 0, {2, 0}},
        {"cross_entropy, classes on axis 1", build_cross_entropy, {"2,5,3"}, -3, 3, 0, {1, 0}},
        {"cross_entropy and lse", build_cross_entropy, {"4,3"}, -3, 3, 0, {1, 1}},
        {"lse alone", build_cross_entropy, {"4,3"}, -3, 3, 0, {1, 2}},
        {"layer_norm", build_norm, {"3,5", "5", "5"}, 0, 0, SN_OP_LAYER_NORM, {1, 0}},
        {"layer_norm without bias", build_norm, {"2,3,4", "4"}, 0, 0, SN_OP_LAYER_NORM, {2, 0}},
        {"layer_norm over two dims", build_norm, {"2,3,4", "3,4", "3,4"}, 0, 0, SN_OP_LAYER_NORM, {1, 0}},
        {"layer_norm, scale of one", build_norm, {"2,7", "1", "7"}, 0, 0, SN_OP_LAYER_NORM, {1, 0}},
        {"layer_norm, all results", build_norm, {"3,5", "5", "5"}, 0, 0, SN_OP_LAYER_NORM, {1, 1}},
        {"rms_norm", build_norm, {"3,5", "5"}, 0, 0, SN_OP_RMS_NORM, {1, 0}},
        {"rms_norm over two dims", build_norm, {"2,3,4", "3,4"}, 0, 0, SN_OP_RMS_NORM, {1, 0}},
        {"rms_norm, all results", build_norm, {"2,3,5", "5"}, 0, 0, SN_OP_RMS_NORM, {2, 1}},
    };
    RUN(cases);
}

enum { MASK_NONE, MASK_CONSTANT, MASK_INPUT };

// a: causal, mask, whether lse is read
static int build_attention(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_attr attrs[] = {sn_attr_float("scale", 0.7), sn_attr_int("causal", c->a[0])};
    sn_value *operands[] = {x[0], x[1], x[2], NULL};
    sn_type mask = {.dtype = float_type, .rank = 2, .dim = {x[0]->type.dim[2], x[1]->type.dim[2]}};
    if (c->a[1] == MASK_CONSTANT) operands[3] = random_weights(b, mask, 21);
    if (c->a[1] == MASK_INPUT) operands[3] = x[3];
    sn_op *op = sn_build(b, SN_OP_ATTENTION, operands[3] ? 4 : 3, operands, 2, attrs, NULL);
    out[0] = op->results[0];
    out[1] = op->results[1];
    return c->a[2] ? 2 : 1;
}

static void test_attention(void **state) {
    (void)state;
    static const grad_case cases[] = {
        {"attention", build_attention, {"1,2,3,4", "1,2,5,4", "1,2,5,3"}, 0, 0, 0, {0, MASK_NONE, 0}},
        {"attention, causal", build_attention, {"2,1,5,3", "2,1,5,3", "2,1,5,3"}, 0, 0, 0, {1, MASK_NONE, 0}},
        {"attention, grouped", build_attention, {"1,4,3,2", "1,2,3,2", "1,2,3,2"}, 0, 0, 0, {1, MASK_NONE, 0}},
        {"attention, masked", build_attention, {"1,2,3,2", "1,2,4,2", "1,2,4,2"}, 0, 0, 0, {0, MASK_CONSTANT, 0}},
        {"attention of one", build_attention, {"1,1,1,1", "1,1,1,1", "1,1,1,1"}, 0, 0, 0, {0, MASK_NONE, 0}},
        {"mask [S,T]", build_attention, {"2,2,3,2", "2,2,4,2", "2,2,4,2", "3,4"}, 0, 0, 0, {0, MASK_INPUT, 0}},
        {"mask [H,S,T]", build_attention, {"2,2,3,2", "2,1,3,2", "2,1,3,2", "2,3,3"}, 0, 0, 0, {1, MASK_INPUT, 0}},
        {"mask [B,1,1,T]", build_attention, {"2,2,3,2", "2,2,4,2", "2,2,4,2", "2,1,1,4"}, 0, 0, 0, {0, MASK_INPUT, 0}},
        {"mask, grouped", build_attention, {"1,4,3,2", "1,2,3,2", "1,2,3,2", "1,4,3,3"}, 0, 0, 0, {0, MASK_INPUT, 0}},
        {"attention and lse", build_attention, {"1,4,3,2", "1,2,3,2", "1,2,3,2"}, 0, 0, 0, {1, MASK_NONE, 1}},
    };
    RUN(cases);
}
