// How rows are written: what a framework does (`frameworks`), which device a name means (`devices`), and the public
// dimensions that rows leave out (`shapes`). None of it is a number that was fitted.
#include "steps.h"

#include <math.h>
#include <string.h>

typedef struct named_device {
    const char *gpu, *device, *preset;
} named_device;

static const named_device devices[] = {
    {"V100-SXM2-16GB", "v100-sxm-16", "p3"},       {"V100-SXM2-32GB", "v100-sxm-32", "dgx-v100"},
    {"V100-SXM3-32GB", "v100-sxm-32", "dgx-v100"}, {"A100-SXM4-40GB", "a100-sxm-40", "dgx-a100-40"},
    {"A100-SXM4-80GB", "a100-sxm-80", "dgx-a100"}, {"A100-PCIe-80GB", "a100-pcie-80", "a100-pcie"},
    {"H100-SXM5-80GB", "h100-sxm", "dgx-h100"},    {"H100-HBM2e-96GB-500W", "h100-hbm2e-96", "dgx-h100"},
    {"H200-SXM-141GB", "h200-sxm", "dgx-h200"},    {"GH200-96GB", "gh200", "dgx-h200"},
    {"B200-SXM-180GB", "b200-sxm", "dgx-b200"},    {"GB200-186GB", "gb200", "gb200"},
    {"B300-288GB", "b300-sxm", "dgx-b200"},        {"GB300-288GB", "gb300", "gb200"},
};

// What the software of a source does (its papers, repositories and configuration files say so).
typedef struct framework {
    const char *source;
    sn_transformer shape; // the flags alone
    sn_runtime runtime;   // what does not depend on the row
    int vocabulary_multiple;
} framework;

// GPT-2 as Megatron-LM has it, and Llama's block.
#define GPT                                                                                                            \
    { .biased = true, .causal = true, .tied = true, .positions = true, .dropout = true }
#define LLAMA                                                                                                          \
    { .gated = true, .rms_norm = true, .causal = true }

// Megatron-LM of 2021-2022, fp16: kernels for masked softmax, bias+GeLU and bias+dropout+add; fp16 gradients.
#define MEGATRON_2021                                                                                                  \
    { .loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2, .gradient_copy = 4 }
// Megatron-Core with Transformer Engine.
#define MEGATRON_CORE                                                                                                  \
    { .attention = SN_ATTENTION_TUNED, .master = true, .gradient_bytes = 2, .reduce_bytes = 2, .placeholders = true }

static const framework frameworks[] = {
    {"vtrain", GPT, MEGATRON_2021, 128},
    {"megatron_sc21",
     GPT,
     {.loss_bytes = 4,
      .master = true,
      .gradient_bytes = 2,
      .reduce_bytes = 2,
      .gradient_copy = 4,
      .copies_parts = true},
     128},
    {"korthikanti", GPT, MEGATRON_2021, 128},
    {"mtnlg", GPT, {.loss_bytes = 4, .master = true, .gradient_bytes = 4, .reduce_bytes = 4}, 128},
    // Memory is what nvidia-smi shows: with 1.5 GB of context, as the source says, and DeepSpeed's two buckets of 5e8.
    {"bigscience_a100",
     GPT,
     {.loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2, .gradient_copy = 4, .workspace = 3.6e9},
     128},
    {"sailor", GPT, MEGATRON_2021, 128},
    // DeepSpeed 0.6 gathers into flat buffers.
    {"deepspeed_azure", GPT, MEGATRON_2021, 128},
    {"bert",
     {.biased = true, .tied = true, .positions = true, .dropout = true, .labelled = 0.156},
     {.loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2},
     8},
    // MPT: flash attention, no biases, no dropout; FSDP keeps f32 shards and moves bf16.
    {"llm_foundry",
     {.causal = true, .tied = true, .positions = true},
     {.loss_bytes = 4, .attention = SN_ATTENTION_EARLY, .gradient_bytes = 2, .reduce_bytes = 2, .shard_layers = true},
     1},
    // PyTorch's loss in f32: the logits, their softmax and its gradient.
    {"torchtitan",
     LLAMA,
     {.loss_bytes = 12,
      .attention = SN_ATTENTION_EARLY,
      .gradient_bytes = 4,
      .reduce_bytes = 4,
      .keeps_products = true,
      .shard_layers = true},
     1},
    {"internevo",
     LLAMA,
     {.loss_bytes = 4, .attention = SN_ATTENTION_EARLY, .master = true, .gradient_bytes = 2, .reduce_bytes = 2},
     1},
    {"megatron_core_h100",
     {.rms_norm = true, .causal = true},
     {.attention = SN_ATTENTION_TUNED, .master = true, .gradient_bytes = 4, .reduce_bytes = 4, .placeholders = true},
     128},
    {"mlperf_gpt3", GPT, MEGATRON_CORE, 128},
    {"mlperf_llama31", LLAMA, MEGATRON_CORE, 128},
    {"nemo", LLAMA, MEGATRON_CORE, 128},
    {"megatron_", LLAMA, MEGATRON_CORE, 128},
    {"simumax",
     LLAMA,
     {.loss_bytes = 4,
      .attention = SN_ATTENTION_TUNED,
      .master = true,
      .gradient_bytes = 4,
      .reduce_bytes = 4,
      .placeholders = true},
     128},
    {"alpa",
     {.biased = true, .causal = true, .tied = true, .positions = true},
     {.loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2},
     1},
    {"stas",
     LLAMA,
     {.attention = SN_ATTENTION_TUNED, .master = true, .gradient_bytes = 2, .reduce_bytes = 2, .shard_layers = true},
     1},
};

// Dimensions that rows leave out, as the published configuration files of these models have them.
typedef struct known_shape {
    const char *model;
    int64_t head, value_head, experts, top_k, expert_ffn, shared_ffn, dense, query_rank, kv_rank, rope;
} known_shape;

static const known_shape shapes[] = {
    {"deepseek-v2", 192, 128, 160, 6, 1536, 3072, 1, 1536, 512, 64},
    {"deepseek-v3-l4", 192, 128, 256, 8, 2048, 2048, 1, 1536, 512, 64},
};

static const framework *framework_of(const char *source) {
    for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++)
        if (strncmp(source, frameworks[i].source, strlen(frameworks[i].source)) == 0) return &frameworks[i];
    return NULL;
}

static sn_transformer shape_of(const csv_row *row, const framework *f, double tensor) {
    sn_transformer s = f->shape;
    s.layers = (int64_t)csv_number(row, "layers", 0);
    s.hidden = (int64_t)csv_number(row, "hidden", 0);
    s.heads = (int64_t)csv_number(row, "heads", s.hidden >= 64 ? (double)s.hidden / 128 : 1);
    s.ffn = (int64_t)csv_number(row, "ffn", 4.0 * (double)s.hidden);
    s.kv_heads = (int64_t)csv_number(row, "kv_heads", (double)s.heads);
    s.head = s.heads ? s.hidden / s.heads : 0;
    s.sequence = (int64_t)csv_number(row, "seq", 0);
    double multiple = f->vocabulary_multiple * (f->vocabulary_multiple > 8 ? tensor : 1);
    s.vocab = (int64_t)(ceil(csv_number(row, "vocab", 50257) / multiple) * multiple);
    s.causal &= strcmp(csv_get(row, "family"), "bert") != 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const known_shape *k = &shapes[i];
        if (strncmp(csv_get(row, "model"), k->model, strlen(k->model)) != 0) continue;
        s.head = k->head, s.value_head = k->value_head, s.query_rank = k->query_rank, s.kv_rank = k->kv_rank,
        s.rope = k->rope;
        s.experts = k->experts, s.top_k = k->top_k, s.expert_ffn = k->expert_ffn, s.shared_ffn = k->shared_ffn,
        s.dense = k->dense;
    }
    return s;
}

static bool has(const char *text, const char *word) {
    return strstr(text, word) != NULL;
}

static sn_degrees degrees_of(const csv_row *row) {
    const char *remat = csv_get(row, "recompute");
    sn_degrees d = {.tensor = (int64_t)csv_number(row, "tp", 1),
                    .context = (int64_t)csv_number(row, "cp", 1),
                    .expert = (int64_t)csv_number(row, "ep", 1),
                    .pipeline = (int64_t)csv_number(row, "pp", 1),
                    .data = (int64_t)csv_number(row, "dp", 0),
                    .sequence = csv_number(row, "sp", 0) > 0,
                    .zero = (int)csv_number(row, "zero", 0),
                    .chunks = (int64_t)csv_number(row, "vp", 1),
                    .remat = has(remat, "full")        ? SN_REMAT_FULL
                             : has(remat, "selective") ? SN_REMAT_SELECTIVE
                                                       : SN_REMAT_NONE};
    if (d.data == 0) d.data = (int64_t)(csv_number(row, "gpus", 1) / (double)(d.tensor * d.context * d.pipeline));
    if (d.chunks < 1) d.chunks = 1;
    double batch = csv_number(row, "gbs", 0), micro = csv_number(row, "mbs", 0),
           n = csv_number(row, "num_microbatches", 0);
    if (micro <= 0 && n > 0) micro = batch / ((double)d.data * n);
    if (n <= 0 && micro > 0) n = batch / ((double)d.data * micro);
    d.micro_batch = (int64_t)micro;
    d.microbatches = (int64_t)llround(n);
    return d;
}

static sn_runtime runtime_of(const csv_row *row, const framework *f, const sn_degrees *d) {
    const char *overlap = csv_get(row, "overlap"), *precision = csv_get(row, "precision");
    sn_runtime r = f->runtime;
    r.dtype = strncmp(precision, "fp32", 4) == 0 || has(precision, "tf32") ? SN_F32 : SN_BF16;
    r.eight_bit = has(precision, "fp8") || has(precision, "FP8");
    r.gathers = 4;
    r.host_optimizer = has(csv_get(row, "offload"), "optimizer");
    if (has(precision, "bf16 (fp32 grad accum)")) r.gradient_copy = 0;
    if (has(precision, "fp32 grad accum")) r.gradient_bytes = 4;
    if (d->context > 1) r.loss_bytes = 0; // who cuts the sequence does not keep f32 logits of it
    r.scatter_messages = has(csv_get(row, "framework"), "Megatron-LM");
    r.overlap_tensor = has(overlap, "tp-comm");
    r.overlap_messages = has(overlap, "pp") || has(overlap, "p2p-overlap") || has(overlap, "userbuffers");
    r.overlap_reduce = has(overlap, "grad-reduce") || d->zero >= 3;
    r.overlap_gather = has(overlap, "param") || d->zero >= 3;
    return r;
}

// The nodes of a row: those of the device's preset, with the network that the row states.
static bool cluster_of(const csv_row *row, sn_cluster *out, sn_device_kind *device) {
    const char *gpu = csv_get(row, "gpu");
    const named_device *found = NULL;
    for (size_t i = 0; i < sizeof devices / sizeof *devices && !found; i++)
        if (strcmp(gpu, devices[i].gpu) == 0) found = &devices[i];
    double gpus = csv_number(row, "gpus", 0);
    if (!found || gpus < 1) return false;
    sn_cluster probe;
    if (!sn_cluster_preset(found->preset, 2, &probe)) return false;
    int64_t node = (int64_t)csv_number(row, "gpus_per_node", (double)probe.nodes[0].devices);
    if (node > (int64_t)gpus) node = (int64_t)gpus;
    if (!sn_cluster_preset(found->preset, (int64_t)ceil(gpus / (double)node), out)) return false;
    out->nodes[0].devices = node;
    double nominal = csv_number(row, "inter_node_GBps_per_node", 0) * 1e9;
    if (nominal > 0 && out->n_levels > 1) out->level[1].beta = 0.88 * nominal / (double)node;
    *device = *sn_device_kind_find(found->device);
    return true;
}

bool steps_predict(const csv_row *row, micro_adjust adjust, void *user, sn_step *out) {
    const framework *f = framework_of(csv_get(row, "source_id"));
    sn_cluster cluster;
    sn_device_kind device;
    sn_curve curve;
    if (has(csv_get(row, "precision"), "FP4")) return false; // no rate is known for it
    if (!f || !cluster_of(row, &cluster, &device)) return false;
    curve = *device.curve;
    device.curve = &curve;
    if (adjust) adjust(user, &device, &curve, &cluster);
    sn_degrees d = degrees_of(row);
    sn_transformer shape = shape_of(row, f, (double)d.tensor);
    if (d.micro_batch < 1 || d.microbatches < 1 || shape.layers < 1 || shape.hidden < 1 || shape.sequence < 1 ||
        d.data < 1)
        return false;
    if (d.tensor * d.context * d.pipeline * d.data > sn_cluster_devices(&cluster)) return false;
    sn_runtime runtime = runtime_of(row, f, &d);
    if (has(csv_get(row, "precision"), "tf32")) device.flops[SN_RATE_F32] = device.flops[SN_RATE_TF32];
    sn_cost_model model = {.device = &device};
    *out = sn_transformer_step(&model, &cluster, &shape, &d, &runtime);
    return true;
}
