// Every sample model on a set of meshes, ZeRO stages and micro-batches.
#include "tests/dist/mesh.h"

static const double tolerance = 1e-7;

int main(int argc, char **argv) {
    const char *only = argc > 1 ? argv[1] : NULL;
    static const char *const models[] = {"mlp",   "gpt2",    "lenet", "moe", "bert",
                                         "llama", "mixtral", "t5",    "vit", "resnet"};
    const char *outline = argc > 2 ? argv[2] : "dp=2,tp=2";
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        if (only && strcmp(only, "all") && strcmp(only, models[m])) continue;
        sample s;
        if (!sample_find(models[m], argc > 3 ? argv[3] : "dynamo-20-raw", &s)) continue;
        sample_open(&s, 4);
        sn_plan plan;
        if (!sn_plan_from_outline(outline, &s.diags, &plan)) return 2;
        outcome one = sample_run(&s, NULL, plan.microbatches, 4), many = sample_run(&s, &plan, plan.microbatches, 4);
        const char *where;
        double worst = outcome_difference(&many, &one, &where);
        printf("%s %s: %.2g (%s)\n", models[m], outline, worst, where);
        if (worst > tolerance) printf("  DIFFERENT\n");
        outcome_free(&one);
        outcome_free(&many);
        sample_close(&s);
    }
    return 0;
}
