// Every sample model on meshes of named axes, ZeRO stages and micro-batches, against one device.
//
//     dist_test_meshes                    the set below
//     dist_test_meshes MODEL MESH|PLAN.json [FILE]  one of them, or another, with what differs most
#include "tests/dist/mesh.h"

static const double tolerance = 1e-8; // in f64: sums in another order; a wrong element is at 1e-3

// What each outline adds to those before it. Batches are of 4: dp and microbatches divide it.
static const char *const outlines[] = {
    "dp=2,tp=2",                  // columns and rows, heads, vocabulary
    "tp=4",                       // as many ranks as heads
    "tp=3",                       // dims that 3 divides are cut, others stay whole
    "dp=4,zero=1",                // moments
    "dp=2,zero=2,microbatches=2", // accumulators
    "dp=2,tp=2,zero=3,microbatches=2",
    "dp=2,microbatches=2", // accumulators that hold each rank's own sum
    "cp=2,zero=1",         // sequence of the data, causal rows
    "cp=2,tp=2",
    "dp=2,cp=2,zero=1", // shares over both
    "dp=2,cp=2,zero=2,microbatches=2",
    "dp=2,cp=2,tp=2,zero=3,microbatches=2",
    "cp=2,dp=2,zero=3", // the other way round
    "ep=2,dp=2,zero=3", // experts
    "x=2,y=2",          // two axes for weights
};
static const char *const bundled[] = {"mlp", "gpt2", "lenet", "moe"};
static const char *const others[] = {"bert", "llama", "mixtral", "t5", "vit", "resnet"};

static double compare(sample *s, const char *outline, const char **where) {
    sn_plan plan;
    json_t *json = strstr(outline, ".json") ? json_load_file(outline, 0, NULL) : NULL;
    bool good = json ? sn_plan_from_json(json, outline, &s->diags, &s->diags.arena, &plan)
                     : sn_plan_from_outline(outline, &s->diags, &plan);
    json_decref(json);
    if (!good) fail_msg("%s is no plan", outline);
    int64_t batch = 4 / plan.microbatches;
    batch = batch < sn_plan_axis_size(&plan, "dp") ? sn_plan_axis_size(&plan, "dp") : batch;
    if (!strstr(s->path, "-dyn")) batch = 4; // baked in: that of a micro-batch
    outcome one = sample_run(s, NULL, plan.microbatches, batch), many = sample_run(s, &plan, plan.microbatches, batch);
    static char name[256];
    double worst = outcome_difference(&many, &one, where);
    snprintf(name, sizeof name, "%s", *where);
    *where = name;
    outcome_free(&one);
    outcome_free(&many);
    return worst;
}

static void compare_all(const char *const *models, size_t n_models, size_t n_outlines) {
    for (size_t m = 0; m < n_models; m++) {
        sample s;
        if (!sample_find(models[m], "dynamo-20-raw", &s)) {
            print_message("%s is not there\n", models[m]);
            continue;
        }
        sample_open(&s, 4);
        for (size_t i = 0; i < n_outlines; i++) {
            const char *where;
            double worst = compare(&s, outlines[i], &where);
            if (!(worst <= tolerance)) fail_msg("%s on %s: %s differs by %.2g", models[m], outlines[i], where, worst);
        }
        sample_close(&s);
    }
}

static void test_bundled(void **state) {
    (void)state;
    compare_all(bundled, sizeof bundled / sizeof *bundled, sizeof outlines / sizeof *outlines);
}

static void test_others(void **state) {
    (void)state;
    sample s;
    if (!sample_find(others[0], "dynamo-20-raw", &s)) { // models that are not in the tree
        print_message("skipped: the sample models are not here; SENNIT_MODELS says where they are\n");
        skip();
    }
    compare_all(others, sizeof others / sizeof *others, 2);
}

// Sequence parallelism as a plan states it: sums are scattered along the sequence, and what all ranks hold of the
// residual stream is a part.
static void test_sequence_parallel(void **state) {
    (void)state;
    static const char *const stream[] = {"node_add_1", "node_add_4", "node_add_7", "node_add_8", "node_add_11"};
    sample s;
    sn_plan plan;
    assert_true(sample_find("gpt2", "dynamo-20-raw", &s));
    sample_open(&s, 4);
    outcome one = sample_run(&s, NULL, 1, 4);
    assert_true(sn_plan_from_outline("dp=2,tp=2", &s.diags, &plan));
    sn_plan_layout layouts[32];
    plan.layouts = layouts;
    for (int i = 0; i < 5; i++)
        layouts[plan.n_layouts++] = (sn_plan_layout){stream[i], 3, {.dim = {i % 2, 2}}}; // dp may be left out
    for (size_t i = 0; i < one.module->globals.count; i++) {
        const sn_global *global = one.module->globals.data[i];
        const char *name = global->name;
        sn_layout layout = {0};
        if (global->role != SN_ROLE_PARAMETER || global->value->type.rank != 2) continue;
        if (strstr(name, "c_fc"))
            layout.dim[1] = 2;
        else if (strstr(name, "c_attn"))
            sn_layout_add(&plan.mesh, &layout, 1, 1, 3);
        else if (strstr(name, "c_proj") || strstr(name, "lm_head"))
            layout.dim[0] = 2;
        layouts[plan.n_layouts++] = (sn_plan_layout){name, 2, layout};
    }
    outcome many = sample_run(&s, &plan, 1, 4);
    const char *where;
    double worst = outcome_difference(&many, &one, &where);
    if (!(worst <= tolerance)) fail_msg("%s differs by %.2g", where, worst);
    int scattered = 0;
    SN_FOR_OPS(op, sn_module_func(many.module, "step")) {
        bool forward = op->phase == SN_PHASE_FORWARD, over_tp = false;
        if (sn_op_has(op->kind, SN_TRAIT_COLLECTIVE)) over_tp = strcmp(sn_op_string(op, "axes"), "tp") == 0;
        if (!over_tp || !forward) continue;
        scattered += op->kind == SN_OP_REDUCE_SCATTER;
        if (op->kind == SN_OP_ALL_REDUCE) // of the loss: one number a token
            assert_in_range(sn_type_count(op->results[0]->type), 0, 2 * 16);
    }
    assert_int_equal(scattered, 5);
    outcome_free(&one);
    outcome_free(&many);
    sample_close(&s);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        sample s;
        const char *where;
        if (!sample_find(argv[1], argc > 3 ? argv[3] : "dynamo-20-raw", &s)) return 77;
        sample_open(&s, 4);
        double worst = compare(&s, argv[2], &where);
        printf("%s on %s: %.2g (%s)\n", argv[1], argv[2], worst, where);
        sample_close(&s);
        return !(worst <= tolerance);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bundled), cmocka_unit_test(test_sequence_parallel),
                                       cmocka_unit_test(test_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
