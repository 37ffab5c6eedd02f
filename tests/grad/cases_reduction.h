// Cases of tests/grad: reductions and scans.

// a: keepdims, number of axes, axes
static int build_reduce(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    return one(out, sn_build_reduce(b, c->kind, x[0], (int)c->a[1], &c->a[2], c->a[0] != 0));
}

static int build_scan(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    sn_attr attrs[] = {sn_attr_int("axis", c->a[0]), sn_attr_int("exclusive", c->a[1]),
                       sn_attr_int("reverse", c->a[2])};
    return one(out, sn_build(b, c->kind, 1, x, 3, attrs, NULL)->results[0]);
}

// One factor is exactly 0: dividing the product by it would not do.
static int build_with_zero(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out) {
    double kept[] = {1, 0, 1, 1, 1};
    sn_value *masked = sn_build_binary(b, SN_OP_MUL, x[0], numbers(b, shape(float_type, "5"), kept));
    if (c->kind == SN_OP_CUM_PROD) return build_scan(b, &masked, c, out);
    return build_reduce(b, &masked, c, out);
}

static void test_reductions(void **state) {
    (void)state;
    static const sn_op_kind kinds[] = {SN_OP_REDUCE_SUM, SN_OP_REDUCE_PROD, SN_OP_REDUCE_MAX, SN_OP_REDUCE_MIN};
    for (int i = 0; i < 4; i++) {
        const char *name = sn_op_name(kinds[i]);
        grad_case cases[] = {
            {name, build_reduce, {"2,3,5"}, 0, 0, kinds[i], {0, 1, 1}},
            {name, build_reduce, {"2,3,5"}, 0, 0, kinds[i], {1, 1, 2}},
            {name, build_reduce, {"2,3,5"}, 0, 0, kinds[i], {1, 2, 0, 2}},
            {name, build_reduce, {"2,3"}, 0, 0, kinds[i], {0, 2, 0, 1}},
            {name, build_reduce, {"1"}, 0, 0, kinds[i], {0, 1, 0}},
            {name, build_reduce, {"7,1"}, 0, 0, kinds[i], {0, 1, 1}},
        };
        RUN(cases);
    }
    for (int flags = 0; flags < 8; flags++) {
        int64_t axis = flags & 1, exclusive = flags >> 1 & 1, reverse = flags >> 2;
        grad_case cases[] = {
            {"cum_sum", build_scan, {"3,4"}, 0, 0, SN_OP_CUM_SUM, {axis, exclusive, reverse}},
            {"cum_prod", build_scan, {"3,4"}, 0, 0, SN_OP_CUM_PROD, {axis, exclusive, reverse}},
            {"cum_prod, three dims", build_scan, {"2,5,3"}, 0, 0, SN_OP_CUM_PROD, {1, exclusive, reverse}},
            {"cum_prod with a zero", build_with_zero, {"5"}, 0, 0, SN_OP_CUM_PROD, {0, exclusive, reverse}},
        };
        RUN(cases);
    }
    static const grad_case zero = {"prod with a zero", build_with_zero, {"5"}, 0, 0, SN_OP_REDUCE_PROD, {0, 1, 0}};
    run_cases(&zero, 1);
}
