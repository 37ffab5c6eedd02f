// agree SHAPE CLUSTER PLAN.json STEP MEMORY: holds the step that the search predicts for a plan of a transformer that
// it read as a graph against the one that the closed forms (passes/cost/step.h) predict from the model's shape. SHAPE
// is "gpt" or "llama" and numbers: layers, hidden, heads, key-value heads, ffn, vocabulary, sequence. STEP and MEMORY
// are the most that they may differ, in per cent.
#include "passes/cost/transformer.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_shape(const char *text, sn_transformer *out) {
    char family[16];
    long n[7];
    if (sscanf(text, "%15[^,],%ld,%ld,%ld,%ld,%ld,%ld,%ld", family, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6]) !=
        8)
        return false;
    bool llama = strcmp(family, "llama") == 0;
    *out = (sn_transformer){.layers = n[0],
                            .hidden = n[1],
                            .heads = n[2],
                            .kv_heads = n[3],
                            .ffn = n[4],
                            .vocab = n[5],
                            .sequence = n[6],
                            .head = n[1] / n[2],
                            .gated = llama,
                            .rms_norm = llama,
                            .biased = !llama,
                            .positions = !llama,
                            .causal = true};
    return true;
}

static int64_t axis(const json_t *plan, const char *name) {
    const json_t *size = json_object_get(json_object_get(plan, "mesh"), name);
    return size ? json_integer_value(size) : 1;
}

static const char *text(const json_t *object, const char *key) {
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

static sn_degrees read_degrees(const json_t *plan) {
    const json_t *explanation = json_object_get(plan, "explanation");
    const json_t *stage = json_array_get(json_object_get(explanation, "stages"), 0);
    const char *remat = text(stage, "remat");
    sn_degrees d = {.tensor = axis(plan, "tp"),
                    .context = axis(plan, "cp"),
                    .expert = 1,
                    .data = axis(plan, "dp"),
                    .pipeline = axis(plan, "pp"),
                    .sequence = strstr(text(explanation, "outline"), "sequence cut") != NULL,
                    .zero = (int)json_integer_value(json_object_get(plan, "zero")),
                    .chunks = json_integer_value(json_object_get(plan, "chunks")),
                    .microbatches = json_integer_value(json_object_get(plan, "microbatches"))};
    d.remat = strcmp(remat, "full") == 0        ? SN_REMAT_FULL
              : strcmp(remat, "selective") == 0 ? SN_REMAT_SELECTIVE
                                                : SN_REMAT_NONE;
    d.micro_batch = json_integer_value(json_object_get(plan, "batch")) / (d.data * d.microbatches);
    return d;
}

// What the search assumes: nothing hides behind anything, the host issues nothing, gradients, moments and the loss in
// f32.
static sn_runtime assumed(void) {
    return (sn_runtime){.dtype = SN_BF16,
                        .attention = SN_ATTENTION_TUNED,
                        .loss_bytes = 4,
                        .gradient_bytes = 4,
                        .reduce_bytes = 4,
                        .workspace = 1,
                        .gathers = 1,
                        .captured = true};
}

static bool read_cluster(const char *name, sn_cluster *out) {
    char preset[64];
    long nodes;
    return sscanf(name, "%63[^:]:%ld", preset, &nodes) == 2 && sn_cluster_preset(preset, nodes, out);
}

int main(int argc, char **argv) {
    sn_transformer shape;
    sn_cluster cluster;
    json_t *plan = argc == 6 ? json_load_file(argv[3], 0, NULL) : NULL;
    if (!plan || !read_shape(argv[1], &shape) || !read_cluster(argv[2], &cluster)) {
        fprintf(stderr, "usage: agree SHAPE CLUSTER PLAN.json STEP MEMORY\n");
        return 2;
    }
    const json_t *explanation = json_object_get(plan, "explanation");
    double searched = json_real_value(json_object_get(explanation, "step_seconds"));
    double held = json_number_value(json_object_get(explanation, "memory_bytes"));
    sn_degrees degrees = read_degrees(plan);
    sn_runtime runtime = assumed();
    sn_cost_model model = {.device = cluster.nodes[0].device};
    sn_step step = sn_transformer_step(&model, &cluster, &shape, &degrees, &runtime);
    double bytes = sn_memory_total(&step.memory);
    double off = 100 * (step.seconds / searched - 1), memory_off = 100 * (bytes / held - 1);
    printf("%-70s step %8.3f %8.3f s %+6.1f %%   memory %6.2f %6.2f GiB %+6.1f %%\n", text(explanation, "outline"),
           searched, step.seconds, off, held / 1073741824., bytes / 1073741824., memory_off);
    json_decref(plan);
    return fabs(off) <= strtod(argv[4], NULL) && fabs(memory_off) <= strtod(argv[5], NULL) ? 0 : 1;
}
