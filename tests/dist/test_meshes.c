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
    if (!sample_find(others[0], "dynamo-20-raw", &s)) skip(); // SENNIT_MODELS says where they are
    compare_all(others, sizeof others / sizeof *others, 2);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bundled), cmocka_unit_test(test_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
