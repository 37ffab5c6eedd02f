#include "memory_ci.h"

#include "base/alloc.h"
#include "micro.h"
#include "passes/cost/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_suite(const csv_row *row, const char *suite) {
    return strcmp(csv_get(row, "suite"), suite) == 0;
}

// The value of an argument in "name=value;…"; "" when it is not there.
static const char *argument(const csv_row *row, const char *name, char out[64]) {
    const char *at = csv_get(row, "other_args");
    size_t length = strlen(name);
    out[0] = 0;
    while (at && *at) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(out, 64, "%.*s", (int)strcspn(at + length + 1, ";"), at + length + 1);
            return out;
        }
        at = strchr(at, ';');
        at += at != NULL;
    }
    return out;
}

static double argument_number(const csv_row *row, const char *name, double otherwise) {
    char text[64], *end;
    argument(row, name, text);
    double value = strtod(text, &end);
    return end == text ? otherwise : value;
}

static bool argument_is(const csv_row *row, const char *name, const char *value) {
    char text[64];
    return strcmp(argument(row, name, text), value) == 0;
}

static sn_transformer shape_of(const csv_row *row, int64_t tensor) {
    sn_transformer s = {.layers = (int64_t)csv_number(row, "layers", 0),
                        .hidden = (int64_t)csv_number(row, "hidden", 0)};
    s.heads = (int64_t)csv_number(row, "heads", 1);
    s.kv_heads = (int64_t)csv_number(row, "kv_heads", (double)s.heads);
    s.head = (int64_t)argument_number(row, "kv-channels", s.heads ? (double)(s.hidden / s.heads) : 1);
    s.gated = csv_number(row, "swiglu", 0) > 0;
    s.ffn = (int64_t)csv_number(row, "ffn", 4.0 * (double)s.hidden);
    if (s.gated && !csv_number(row, "ffn", 0)) s.ffn = (int64_t)(4.0 * (double)s.hidden * 2 / 3 / 64) * 64;
    s.sequence = (int64_t)csv_number(row, "seq", 0);
    bool bert = is_suite(row, "bert"); // which has a vocabulary of its own
    if (is_suite(row, "t5")) {         // and T5 has BERT's and marks for what is left out
        s.encoder_layers = (int64_t)argument_number(row, "encoder-num-layers", 0);
        s.encoder_sequence = (int64_t)argument_number(row, "encoder-seq-length", 0);
        s.layers = (int64_t)argument_number(row, "decoder-num-layers", 0);
        s.sequence = (int64_t)argument_number(row, "decoder-seq-length", 0);
        bert = true;
    }
    double multiple = argument_number(row, "make-vocab-size-divisible-by", 128) * (double)tensor;
    double words =
        argument_number(row, "vocab-size", bert ? 30522 : 50257) + argument_number(row, "vocab-extra-ids", 0);
    s.vocab = (int64_t)(ceil(words / multiple) * multiple);
    s.experts = (int64_t)csv_number(row, "num_experts", 0);
    s.top_k = (int64_t)csv_number(row, "topk", 2);
    char layers[64]; // "([0]*3+[1]*11)": three without experts, then eleven with
    long dense;
    if (sscanf(argument(row, "moe-layer-freq", layers), "([0]*%ld+", &dense) == 1) s.dense = dense;
    s.expert_ffn = (int64_t)argument_number(row, "moe-ffn-hidden-size", (double)s.ffn);
    s.shared_ffn = (int64_t)argument_number(row, "moe-shared-expert-intermediate-size", 0);
    s.rms_norm = argument_is(row, "normalization", "RMSNorm");
    s.biased = !argument_is(row, "disable-bias-linear", "true");
    s.positions = !argument_is(row, "position-embedding-type", "rope");
    s.tied = csv_number(row, "untie_embeddings", 0) <= 0;
    s.norm_heads = argument_is(row, "qk-layernorm", "true");
    s.causal = !is_suite(row, "bert");
    s.dropout = argument_number(row, "hidden-dropout", 0.1) > 0;
    if (argument_is(row, "multi-latent-attention", "true")) {
        s.query_rank = (int64_t)argument_number(row, "q-lora-rank", 0);
        s.kv_rank = (int64_t)argument_number(row, "kv-lora-rank", 32);
        s.rope = (int64_t)argument_number(row, "qk-pos-emb-head-dim", 64);
        s.head = s.rope + (int64_t)argument_number(row, "qk-head-dim", 128);
        s.value_head = (int64_t)argument_number(row, "v-head-dim", 128);
    }
    return s;
}

static sn_degrees degrees_of(const csv_row *row) {
    const char *remat = csv_get(row, "recompute_granularity");
    sn_degrees d = {.tensor = (int64_t)csv_number(row, "tp", 1),
                    .context = (int64_t)csv_number(row, "cp", 1),
                    .expert = (int64_t)csv_number(row, "ep", 1),
                    .pipeline = (int64_t)csv_number(row, "pp", 1),
                    .data = (int64_t)csv_number(row, "dp", 1),
                    .expert_tensor = (int64_t)csv_number(row, "etp", 0),
                    .sequence = csv_number(row, "sp", 0) > 0,
                    .zero = csv_number(row, "dist_optimizer", 0) > 0,
                    .chunks = (int64_t)csv_number(row, "vp", 1),
                    .micro_batch = (int64_t)csv_number(row, "mbs", 1),
                    .microbatches = (int64_t)csv_number(row, "num_microbatches", 1),
                    .shard_groups = (int64_t)argument_number(row, "num-distributed-optimizer-instances", 1),
                    .first_layers = (int64_t)argument_number(row, "decoder-first-pipeline-num-layers", 0),
                    .last_layers = (int64_t)argument_number(row, "decoder-last-pipeline-num-layers", 0)};
    if (argument_is(row, "use-megatron-fsdp", "true")) d.zero = 3;
    d.remat = strcmp(remat, "full") == 0        ? SN_REMAT_FULL
              : strcmp(remat, "selective") == 0 ? SN_REMAT_SELECTIVE
                                                : SN_REMAT_NONE;
    if (d.chunks < 1) d.chunks = 1;
    double ranks = csv_number(row, "gpus", 0) / (double)(d.tensor * d.context * d.pipeline);
    if ((double)d.data < ranks) d.data = (int64_t)ranks;
    // The ranks of a stage hold all experts at least once.
    int64_t holders = d.expert * (d.expert_tensor ? d.expert_tensor : d.tensor), inner = d.tensor * d.context;
    if (d.data * inner < holders) d.data = (holders + inner - 1) / inner;
    d.chunk_group = (int64_t)argument_number(row, "microbatch-group-size-per-virtual-pipeline-stage", 0);
    return d;
}

// Tests that run twice, the second time from the first one's checkpoint, have the second run's figures apart.
static bool is_resumed(const csv_row *row) {
    const char *platform = csv_get(row, "platform");
    size_t n = strlen(platform);
    return n > 4 && strcmp(platform + n - 4, "_2nd") == 0;
}

static bool has_engine(const csv_row *row) {
    return strcmp(csv_get(row, "transformer_impl"), "transformer_engine") == 0;
}

// Megatron-LM's deterministic mode, in which its tests run, refuses flash attention and the fused cross entropy.
static bool is_deterministic(const csv_row *row) {
    return !argument_is(row, "attention-backend", "flash") && !argument_is(row, "cross-entropy-loss-fusion", "true");
}

// Rows say neither the image they ran in nor, often, the attention back end. Transformer Engine takes the best that is
// there and allowed. In deterministic mode below compute capability 9 cuDNN's fused attention is not; what remains is
// FlashAttention from 2.4.1 on, or scores in memory. The images of `dev` follow NVIDIA's newest. Those of `lts` were
// PyTorch 24.01's, whose FlashAttention is older, and 25.09's: equal configurations are there with and without scores
// in memory, so the larger is promised. The resumed runs are all of the newer image.
static sn_attention attention_of(const csv_row *row, bool ampere) {
    char backend[64];
    if (!has_engine(row)) return SN_ATTENTION_PLAIN;
    if (argument_is(row, "use-flash-attn", "true")) return SN_ATTENTION_TUNED;
    if (*argument(row, "attention-backend", backend) && strcmp(backend, "auto") != 0)
        return strcmp(backend, "unfused") == 0 || strcmp(backend, "local") == 0 ? SN_ATTENTION_PLAIN
                                                                                : SN_ATTENTION_TUNED;
    bool maybe_old = strcmp(csv_get(row, "env"), "lts") == 0 && !is_resumed(row);
    return maybe_old && ampere && is_deterministic(row) ? SN_ATTENTION_PLAIN : SN_ATTENTION_TUNED;
}

// Bytes of a logit that the loss keeps beside the logits. Transformer Engine's fusion works in place; BERT's loss is
// given an f32 copy and makes one of its own. Megatron-LM's fusion needs two, and PyTorch's compiler writes what was
// meant to be changed in place to new tensors, up to two more (megatron/core/fusions/fused_cross_entropy.py says when).
static double loss_bytes_of(const csv_row *row) {
    if (is_suite(row, "bert")) return 8;
    if (!argument_is(row, "cross-entropy-loss-fusion", "true")) return 4;
    return argument_is(row, "cross-entropy-fusion-impl", "te") ? 0 : 16;
}

// What libraries keep: cuBLAS one workspace for each stream that multiplies (the tests' CUBLAS_WORKSPACE_CONFIG for
// determinism is 32 MiB, the default before Hopper 8.125), Transformer Engine one of its own (4 MiB before Hopper) and
// four for grouped products, one per stream. The batch and its mask are about 20 MB.
static double workspace_of(const csv_row *row, bool ampere) {
    const double mib = 1 << 20;
    double blas = ampere && !is_deterministic(row) ? 8.125 * mib : 32 * mib, engine = ampere ? 4 * mib : 32 * mib;
    double bytes = 2 * blas + 20e6;
    if (argument_is(row, "overlap-moe-expert-parallel-comm", "true")) bytes += 2 * blas;
    if (is_suite(row, "t5")) bytes += blas; // its runs keep one more
    bool grouped = has_engine(row) && argument_is(row, "moe-grouped-gemm", "true");
    return bytes + engine * (grouped ? 5 : 1);
}

// Megatron-LM keeps f32 gradients for bf16; for fp16 the optimizer copies them to f32.
static sn_runtime runtime_of(const csv_row *row, bool ampere) {
    bool bf16 = csv_number(row, "bf16", 0) > 0;
    sn_runtime r = {.dtype = SN_BF16,
                    .attention = attention_of(row, ampere),
                    .loss_bytes = loss_bytes_of(row),
                    .master = true,
                    .gradient_bytes = bf16 ? 4 : 2,
                    .reduce_bytes = bf16 ? 4 : 2,
                    .gradient_copy = bf16 ? 0 : 4,
                    // The fused softmax comes with Transformer Engine; PyTorch's keeps its f32 result.
                    .softmax_bytes = strstr(csv_get(row, "test"), "uninstall_te") ? 4 : 0,
                    .workspace = workspace_of(row, ampere),
                    .left_behind = is_resumed(row) ? 8 : 0, // the two moments that were loaded
                    .placeholders = has_engine(row)};
    r.gather_tokens = !argument_is(row, "moe-token-dispatcher-type", "alltoall"); // the default gathers
    r.pairs_blocks = argument_is(row, "overlap-moe-expert-parallel-comm", "true");
    return r;
}

// Features that neither the shape nor the degrees can say.
static bool is_out_of_scope(const csv_row *row) {
    static const char *const features[] = {"mtp-num-layers", "hybrid-layer-pattern", "pipeline-model-parallel-layout",
                                           "cuda-graph"};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (strstr(csv_get(row, "other_args"), features[i])) return true;
    return false;
}

// The table has the first 600 characters of the arguments: of such a row they are not all known.
static bool is_cut(const csv_row *row) {
    return strlen(csv_get(row, "other_args")) >= 600;
}

bool memory_ci_row(const csv_row *row, double *bytes) {
    static const char *const suites[] = {"gpt", "moe", "mixtral", "bert", "t5"};
    const char *gpu = csv_get(row, "gpu");
    bool known = false;
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++) known |= is_suite(row, suites[i]);
    if (!known) return false;
    if (is_out_of_scope(row) || is_cut(row)) return false;
    sn_cluster cluster;
    const char *preset = strncmp(gpu, "A100", 4) == 0   ? "dgx-a100"
                         : strncmp(gpu, "H100", 4) == 0 ? "dgx-h100"
                                                        : "gb200";
    if (!sn_cluster_preset(preset, 8, &cluster)) return false;
    sn_degrees d = degrees_of(row);
    sn_transformer shape = shape_of(row, d.tensor);
    sn_runtime runtime = runtime_of(row, strncmp(gpu, "A100", 4) == 0);
    if (shape.layers < 1 || shape.hidden < 1 || shape.sequence < 1 || d.pipeline < 1 || d.data < 1) return false;
    if (d.microbatches < 1) return false; // nor is the batch stated
    sn_cost_model model = {.device = cluster.nodes[0].device};
    sn_step_stage *stages = sn_alloc(sizeof *stages * (size_t)d.pipeline);
    sn_transformer_stages(&model, &cluster, &shape, &d, &runtime, stages);
    *bytes = sn_memory_total(&stages[d.pipeline - 1].memory);
    sn_free(stages);
    return true;
}
