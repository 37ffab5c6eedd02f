// Cases of tests/grad: operators that move elements.

static int build_reshape(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, sn_build_reshape(b, x[0], (int)c->a[0], &c->a[1]));
}

static int build_transpose(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, sn_build_transpose(b, x[0], c->a));
}

static int build_broadcast(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, sn_build_broadcast(b, x[0], (int)c->a[0], &c->a[1]));
}

// Starts, steps and sizes of two dims.
static int build_slice(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, sn_build_slice(b, x[0], &c->a[0], &c->a[2], &c->a[4]));
}

static int build_pad(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, sn_build_pad(b, x[0], &c->a[0], &c->a[2], 3.5));
}

static int build_concat(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    int n = 0;
    while (c->shapes[n]) n++;
    return one(out, sn_build_concat(b, n, x, (int)c->a[0]));
}

// Three pieces of one tensor, out of order, each used differently: joined by concat.
static int build_split(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    static const int64_t ones[3] = {1, 1, 1};
    int64_t starts[3] = {0}, sizes[3];
    static const int64_t order[3] = {1, 2, 0};
    memcpy(sizes, x[0]->type.dim, sizeof sizes);
    int64_t part = sizes[c->a[0]] / 3;
    sizes[c->a[0]] = part;
    for (int i = 0; i < 3; i++) {
        starts[c->a[0]] = part * order[i];
        out[i] = sn_build_slice(b, x[0], starts, ones, sizes);
    }
    out[1] = sn_build_unary(b, SN_OP_TANH, out[1]);
    return 3;
}

// Overlapping pieces and the whole.
static int build_overlap(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    (void)c;
    static const int64_t ones[1] = {1}, zero[1] = {0}, two[1] = {2}, four[1] = {4};
    out[0] = sn_build_slice(b, x[0], zero, ones, four);
    out[1] = sn_build_slice(b, x[0], two, ones, four);
    out[2] = sn_build_unary(b, SN_OP_SIN, x[0]);
    return 3;
}

static const char *const index_shapes[] = {"", "3", "2,4", "1"};

static int build_gather(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    int axis = (int)c->a[0];
    return one(out, sn_build_gather(b, x[0], indices(b, index_shapes[c->a[1]], x[0]->type.dim[axis], true), axis));
}

// Into [n, 3] (axis 0) or [2, n] (axis 1) at "3" indices.
static int build_gather_grad(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_type into = shape(float_type, c->a[0] ? "2,5" : "5,3");
    sn_value *operands[] = {indices(b, "3", 5, true), x[0]};
    sn_attr axis = sn_attr_int("axis", c->a[0]);
    return one(out, sn_build(b, SN_OP_GATHER_GRAD, 2, operands, 1, &axis, &into)->results[0]);
}

static int build_gather_elements(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_value *operands[] = {x[0], indices(b, "2,4", x[0]->type.dim[c->a[0]], true)};
    sn_attr axis = sn_attr_int("axis", c->a[0]);
    return one(out, sn_build(b, SN_OP_GATHER_ELEMENTS, 2, operands, 1, &axis, NULL)->results[0]);
}

static int build_gather_nd(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    static const char *const shapes[] = {"4,2", "2,3,1", "3,2,1"};
    sn_value *operands[] = {x[0], indices(b, shapes[c->a[1]], 2, true)};
    sn_attr batch = sn_attr_int("batch_dims", c->a[0]);
    return one(out, sn_build(b, SN_OP_GATHER_ND, 2, operands, 1, &batch, NULL)->results[0]);
}

static const char *const reductions[] = {"none", "add", "mul", "min", "max"};

// With "none", two writes to one place would have no defined order: the indices are distinct.
static sn_value *scatter_indices(sn_builder *b, const char *dims, int64_t n, bool distinct) {
    if (!distinct) return indices(b, dims, n, true);
    sn_type type = shape(SN_I64, dims);
    int64_t data[16];
    for (int64_t i = 0; i < sn_type_count(type); i++) data[i] = (i * 3 + 1) % n;
    return stored(b, type, data);
}

static int build_scatter_elements(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_value *operands[] = {x[0], scatter_indices(b, c->shapes[1], x[0]->type.dim[c->a[0]], c->a[1] == 0), x[1]};
    sn_attr attrs[] = {sn_attr_int("axis", c->a[0]), sn_attr_string("reduction", reductions[c->a[1]])};
    return one(out, sn_build(b, SN_OP_SCATTER_ELEMENTS, 3, operands, 2, attrs, NULL)->results[0]);
}

static int build_scatter_nd(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    static const char *const shapes[] = {"3,1", "2,2,1"};
    sn_value *operands[] = {x[0], scatter_indices(b, shapes[c->a[0]], x[0]->type.dim[0], c->a[1] == 0), x[1]};
    sn_attr attr = sn_attr_string("reduction", reductions[c->a[1]]);
    return one(out, sn_build(b, SN_OP_SCATTER_ND, 3, operands, 1, &attr, NULL)->results[0]);
}

static int build_top_k(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_attr attrs[] = {sn_attr_int("k", c->a[0]), sn_attr_int("axis", c->a[1]), sn_attr_int("largest", c->a[2])};
    return one(out, sn_build(b, SN_OP_TOP_K, 1, x, 3, attrs, NULL)->results[0]);
}

static void test_movement(void **state) {
    (void)state;
    static const grad_case cases[] = {
        {"reshape", build_reshape, {"2,3,5"}, 0, 0, 0, {2, 5, 6}},
        {"reshape to a scalar", build_reshape, {"1,1"}, 0, 0, 0, {0}},
        {"transpose", build_transpose, {"2,3,5"}, 0, 0, 0, {2, 0, 1}},
        {"transpose, four dims", build_transpose, {"2,1,3,2"}, 0, 0, 0, {3, 1, 0, 2}},
        {"broadcast", build_broadcast, {"3,1"}, 0, 0, 0, {3, 2, 3, 4}},
        {"broadcast a scalar", build_broadcast, {""}, 0, 0, 0, {2, 3, 7}},
        {"slice", build_slice, {"4,5"}, 0, 0, 0, {1, 2, 1, 1, 2, 3}},
        {"slice, steps", build_slice, {"7,5"}, 0, 0, 0, {1, 0, 3, 2, 2, 3}},
        {"slice, negative steps", build_slice, {"7,5"}, 0, 0, 0, {6, 4, -2, -1, 3, 5}},
        {"slice, negative steps that leave a rest", build_slice, {"7,5"}, 0, 0, 0, {5, 3, -3, -2, 2, 2}},
        {"slice of one", build_slice, {"3,3"}, 0, 0, 0, {2, 1, -1, 5, 1, 1}},
        {"pad", build_pad, {"2,3"}, 0, 0, 0, {1, 0, 2, 3}},
        {"concat", build_concat, {"2,3", "1,3", "4,3"}, 0, 0, 0, {0}},
        {"concat, last axis", build_concat, {"2,1", "2,5"}, 0, 0, 0, {1}},
        {"split, first axis", build_split, {"6,2,1"}, 0, 0, 0, {0}},
        {"split, last axis", build_split, {"2,1,9"}, 0, 0, 0, {2}},
        {"overlapping slices", build_overlap, {"6"}, 0, 0, 0, {0}},
        {"gather a row", build_gather, {"5,3"}, 0, 0, 0, {0, 0}},
        {"gather rows", build_gather, {"5,3"}, 0, 0, 0, {0, 2}},
        {"gather in the middle", build_gather, {"2,5,3"}, 0, 0, 0, {1, 1}},
        {"gather the last axis", build_gather, {"2,7"}, 0, 0, 0, {1, 3}},
        {"gather_grad", build_gather_grad, {"3,3"}, 0, 0, 0, {0}},
        {"gather_grad, axis 1", build_gather_grad, {"2,3"}, 0, 0, 0, {1}},
        {"gather_elements", build_gather_elements, {"3,4"}, 0, 0, 0, {0}},
        {"gather_elements, axis 1", build_gather_elements, {"2,5"}, 0, 0, 0, {1}},
        {"gather_nd", build_gather_nd, {"2,3,2"}, 0, 0, 0, {0, 0}},
        {"gather_nd, one batch dim", build_gather_nd, {"2,3,2"}, 0, 0, 0, {1, 1}},
        {"gather_nd, two batch dims", build_gather_nd, {"3,2,2,2"}, 0, 0, 0, {2, 2}},
        {"scatter_elements none", build_scatter_elements, {"5,2", "3,2"}, 0, 0, 0, {0, 0}},
        {"scatter_elements add", build_scatter_elements, {"3,4", "3,2"}, 0, 0, 0, {1, 1}},
        {"scatter_elements mul", build_scatter_elements, {"3,4", "2,2"}, 0.5, 2, 0, {1, 2}},
        {"scatter_elements min", build_scatter_elements, {"3,2", "5,2"}, 0, 0, 0, {0, 3}},
        {"scatter_elements max", build_scatter_elements, {"3,2", "5,2"}, 0, 0, 0, {0, 4}},
        {"scatter_nd none", build_scatter_nd, {"7,2", "3,2"}, 0, 0, 0, {0, 0}},
        {"scatter_nd add", build_scatter_nd, {"3,2", "2,2,2"}, 0, 0, 0, {1, 1}},
        {"scatter_nd mul", build_scatter_nd, {"3,2", "3,2"}, 0.5, 2, 0, {0, 2}},
        {"scatter_nd min", build_scatter_nd, {"3,2", "2,2,2"}, 0, 0, 0, {1, 3}},
        {"scatter_nd max", build_scatter_nd, {"3,2", "3,2"}, 0, 0, 0, {0, 4}},
        {"top_k", build_top_k, {"3,5"}, 0, 0, 0, {2, 1, 1}},
        {"top_k, smallest, axis 0", build_top_k, {"7,2"}, 0, 0, 0, {3, 0, 0}},
    };
    RUN(cases);
}
