// published DIR [--rows] [--file NAME] [--set CURVE.FIELD=VALUE]…: predicts the step time, and the memory where it is
// given, of each published training step in DIR/steps_*.csv and DIR/memory_megatron_ci.csv, and prints the errors, per
// source as text (--table: as a page) and per file as one JSON object on the last line. Scored are the rows of
// completeness A whose plan is complete; --all scores B too. --rows prints each row. --set replaces a constant of the
// cost model, for fitting.
//
// The prediction is sn_transformer_step's. This file knows only how rows are written: what a framework does
// (`frameworks`), which device a name means (`devices`), and the public dimensions that rows leave out (`shapes`).
#include "passes/cost/transformer.h"

#include "memory_ci.h"
#include "micro.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

static const framework frameworks[] = {
    // Megatron-LM of 2021-2022, fp16: kernels for masked softmax, bias+GeLU and bias+dropout+add; fp16 gradients.
    {"vtrain", GPT, {.loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2, .gradient_copy = 4}, 128},
    {"megatron_sc21",
     GPT,
     {.loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2, .gradient_copy = 4},
     128},
    {"korthikanti",
     GPT,
     {.loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2, .gradient_copy = 4},
     128},
    {"mtnlg", GPT, {.loss_bytes = 4, .master = true, .gradient_bytes = 4, .reduce_bytes = 4}, 128},
    {"bigscience_a100",
     GPT,
     {.loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2, .gradient_copy = 4},
     128},
    {"sailor", GPT, {.loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2, .gradient_copy = 4}, 128},
    {"deepspeed_azure",
     GPT,
     {.loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2, .gradient_copy = 4},
     128},
    {"bert",
     {.biased = true, .tied = true, .positions = true, .dropout = true, .labelled = 0.156},
     {.loss_bytes = 4, .master = true, .gradient_bytes = 2, .reduce_bytes = 2},
     8},
    // MPT: flash attention, no biases, no dropout; FSDP keeps f32 shards and moves bf16.
    {"llm_foundry",
     {.causal = true, .tied = true, .positions = true},
     {.loss_bytes = 4, .attention = SN_ATTENTION_EARLY, .gradient_bytes = 2, .reduce_bytes = 2, .shard_layers = true},
     1},
    {"torchtitan",
     LLAMA,
     {.loss_bytes = 4, .attention = SN_ATTENTION_EARLY, .gradient_bytes = 4, .reduce_bytes = 4, .shard_layers = true},
     1},
    {"internevo",
     LLAMA,
     {.loss_bytes = 4, .attention = SN_ATTENTION_EARLY, .master = true, .gradient_bytes = 2, .reduce_bytes = 2},
     1},
    // Megatron-Core with Transformer Engine.
    {"megatron_core_h100",
     {.rms_norm = true, .causal = true},
     {.attention = SN_ATTENTION_TUNED,

      .master = true,
      .gradient_bytes = 4,
      .reduce_bytes = 4,
      .placeholders = true},
     128},
    {"mlperf_gpt3",
     GPT,
     {.attention = SN_ATTENTION_TUNED,

      .master = true,
      .gradient_bytes = 2,
      .reduce_bytes = 2,
      .placeholders = true},
     128},
    {"mlperf_llama31",
     LLAMA,
     {.attention = SN_ATTENTION_TUNED,

      .master = true,
      .gradient_bytes = 2,
      .reduce_bytes = 2,
      .placeholders = true},
     128},
    {"nemo",
     LLAMA,
     {.attention = SN_ATTENTION_TUNED,

      .master = true,
      .gradient_bytes = 2,
      .reduce_bytes = 2,
      .placeholders = true},
     128},
    {"megatron_",
     LLAMA,
     {.attention = SN_ATTENTION_TUNED,

      .master = true,
      .gradient_bytes = 2,
      .reduce_bytes = 2,
      .placeholders = true},
     128},
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
     {.attention = SN_ATTENTION_TUNED,

      .master = true,
      .gradient_bytes = 2,
      .reduce_bytes = 2,
      .shard_layers = true},
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

typedef struct score {
    char source[64];
    int rows, memory_rows, skipped;
    double absolute, bias, worst, memory_absolute, memory_bias, memory_worst, memory_under;
} score;

typedef struct options {
    const char *directory, *file;
    bool rows, all, table;
    int n_set;
    const char *set[64];
} options;

static const framework *framework_of(const char *source) {
    for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++)
        if (strncmp(source, frameworks[i].source, strlen(frameworks[i].source)) == 0) return &frameworks[i];
    return NULL;
}

// A curve's field by name; the order is sn_curve's.
static bool set_field(sn_curve *curve, const char *field, double value) {
    static const char *const names[] = {
        "tile_efficiency",    "eight_bit",       "tile_ramp",      "small_tile",   "misaligned", "attention_forward",
        "attention_backward", "attention_early", "attention_ramp", "stream",       "ramp_bytes", "start",
        "host_issue",         "host_jitter",     "library_issue",  "library_ramp", "workspace"};
    double *fields = &curve->tile_efficiency;
    _Static_assert(sizeof(sn_curve) == sizeof(char *) + sizeof names / sizeof *names * sizeof(double),
                   "one name per field");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], field) == 0) {
            fields[i] = value;
            return true;
        }
    return false;
}

// The device with the constants that --set replaces, and a link's by "link.FIELD".
static void apply_settings(const options *o, sn_device *device, sn_curve *curve, sn_cluster *cluster) {
    *curve = *device->curve;
    device->curve = curve;
    for (int i = 0; i < o->n_set; i++) {
        char name[64], field[64];
        double v;
        if (sscanf(o->set[i], "%63[^.].%63[^=]=%lf", name, field, &v) != 3) continue;
        if (strcmp(name, curve->name) == 0) set_field(curve, field, v);
        for (int l = 0; l < cluster->n_levels; l++)
            if (strcmp(name, cluster->level[l].name) == 0) {
                if (strcmp(field, "alpha") == 0) cluster->level[l].alpha = v;
                if (strcmp(field, "beta") == 0) cluster->level[l].beta *= v;
            }
    }
}

static void adjust(void *user, sn_device *device, sn_curve *curve, sn_cluster *cluster) {
    apply_settings(user, device, curve, cluster);
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
static bool cluster_of(const csv_row *row, sn_cluster *out, sn_device *device) {
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
    *device = *sn_device_find(found->device);
    return true;
}

static bool predict(const options *o, const csv_row *row, const framework *f, sn_step *out) {
    sn_cluster cluster;
    sn_device device;
    sn_curve curve;
    if (!f || !cluster_of(row, &cluster, &device)) return false;
    apply_settings(o, &device, &curve, &cluster);
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

static void count_row(score *s, double error, double memory_error) {
    if (isfinite(error)) {
        s->rows++;
        s->absolute += fabs(error);
        s->bias += error;
        if (fabs(error) > fabs(s->worst)) s->worst = error;
    }
    if (isfinite(memory_error)) {
        s->memory_rows++;
        s->memory_absolute += fabs(memory_error);
        s->memory_bias += memory_error;
        if (fabs(memory_error) > fabs(s->memory_worst)) s->memory_worst = memory_error;
        s->memory_under = fmin(s->memory_under, memory_error);
    }
}

static json_t *score_json(const score *s) {
    json_t *json = json_pack("{s:i}", "rows", s->rows);
    if (s->rows) {
        json_object_set_new(json, "mape", json_real(100 * s->absolute / s->rows));
        json_object_set_new(json, "bias", json_real(100 * s->bias / s->rows));
        json_object_set_new(json, "worst", json_real(100 * s->worst));
    }
    if (s->memory_rows) {
        json_object_set_new(json, "memory_rows", json_integer(s->memory_rows));
        json_object_set_new(json, "memory_mape", json_real(100 * s->memory_absolute / s->memory_rows));
        json_object_set_new(json, "memory_bias", json_real(100 * s->memory_bias / s->memory_rows));
        json_object_set_new(json, "memory_worst", json_real(100 * s->memory_worst));
        json_object_set_new(json, "memory_under", json_real(100 * s->memory_under));
    }
    return json;
}

static void print_row(const char *file, const csv_row *row, const sn_step *p, double error, double memory_error) {
    printf("%s,%s,%s,%.6g,%.6g,%+.4f,%.4g,%+.4f,%.4g,%.4g,%.4g,%.4g,%.4g\n", file, csv_get(row, "row_id"),
           csv_get(row, "source_id"), csv_number(row, "step_time_s", NAN), p->seconds, error,
           sn_memory_total(&p->memory) / 1073741824., memory_error, p->compute, p->bubble, p->messages, p->reduce,
           p->update);
}

static score *score_of(score *scores, int *n, const char *source) {
    for (int i = 0; i < *n; i++)
        if (strcmp(scores[i].source, source) == 0) return &scores[i];
    score *s = &scores[(*n)++];
    snprintf(s->source, sizeof s->source, "%s", source);
    return s;
}

// One row of a file: errors of time and memory (NAN where there is none to compare), false when it cannot be predicted.
static bool score_row(const options *o, const char *name, const csv_row *row, double *error, double *memory_error) {
    *memory_error = NAN;
    if (strncmp(name, "micro", 5) == 0) {
        double predicted, measured;
        bool gemm = strcmp(name, "micro_gemm.csv") == 0, known;
        known = (gemm ? micro_gemm : micro_collective)(row, adjust, (void *)(uintptr_t)o, &predicted, &measured);
        *error = known ? predicted / measured - 1 : NAN;
        if (known && o->rows)
            printf("%s,%s,%s,%.6g,%.6g,%+.4f\n", name, csv_get(row, "row_id"), csv_get(row, "source_id"), measured,
                   predicted, *error);
        return known;
    }
    if (strcmp(name, "memory_megatron_ci.csv") == 0) {
        double predicted, reached = csv_number(row, "mem_max_alloc_bytes", NAN);
        *error = NAN;
        if (!memory_ci_row(row, &predicted)) return false;
        *memory_error = predicted / reached - 1;
        if (o->rows)
            printf("%s,%s,%s,%.6g,%.6g,%+.4f\n", name, csv_get(row, "row_id"), csv_get(row, "source_id"), reached,
                   predicted, *memory_error);
        return isfinite(*memory_error);
    }
    sn_step p;
    double measured = csv_number(row, "step_time_s", NAN), memory = csv_number(row, "mem_gib", NAN);
    if (!predict(o, row, framework_of(csv_get(row, "source_id")), &p)) return false;
    *error = p.seconds / measured - 1;
    *memory_error = sn_memory_total(&p.memory) / 1073741824. / memory - 1;
    if (o->rows) print_row(name, row, &p, *error, *memory_error);
    return true;
}

// Whether a row is scored: complete, and something was measured.
static bool is_scored(const options *o, const char *name, const csv_row *row) {
    if (strncmp(name, "micro", 5) == 0) return true;
    char grade = csv_get(row, "completeness")[0];
    bool measured = isfinite(csv_number(row, "step_time_s", NAN)) ||
                    isfinite(csv_number(row, "mem_max_alloc_bytes", NAN)) || isfinite(csv_number(row, "mem_gib", NAN));
    return measured && (grade == 'A' || (o->all && grade == 'B'));
}

static void print_percent(double sum, int rows) {
    if (rows)
        printf(" %.1f |", 100 * sum / rows);
    else
        printf(" |");
}

static void print_table_row(const char *name, const score *s) {
    printf("| %s | %s | %d |", name, s->source, s->rows);
    print_percent(s->absolute, s->rows);
    print_percent(s->bias, s->rows);
    print_percent(s->rows ? s->worst * s->rows : 0, s->rows);
    printf(" %d |", s->memory_rows);
    print_percent(s->memory_absolute, s->memory_rows);
    print_percent(s->memory_bias, s->memory_rows);
    print_percent(s->memory_under * s->memory_rows, s->memory_rows);
    puts("");
}

static void print_sources(const options *o, const char *name, const score *sources, int n, const score *total) {
    for (int i = 0; i < n; i++) {
        if (o->table) {
            print_table_row(name, &sources[i]);
            continue;
        }
        json_t *json = score_json(&sources[i]);
        char *text = json_dumps(json, JSON_REAL_PRECISION(4));
        printf("%s %s %s\n", name, sources[i].source, text);
        free(text);
        json_decref(json);
    }
    if (total->skipped && !o->table) printf("%s: %d rows leave out what a plan needs\n", name, total->skipped);
}

static bool read_file(const options *o, const char *name, json_t *report) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", o->directory, name);
    csv_table table;
    if (!csv_read(path, &table)) return false;
    score total = {0}, sources[32] = {0};
    int n = 0;
    for (int i = 0; i < table.n_rows; i++) {
        const csv_row row = {&table, i};
        double error, memory_error;
        if (!is_scored(o, name, &row)) continue;
        if (n == 32 || !score_row(o, name, &row, &error, &memory_error)) {
            total.skipped++;
            continue;
        }
        count_row(&total, error, memory_error);
        count_row(score_of(sources, &n, csv_get(&row, "source_id")), error, memory_error);
    }
    csv_free(&table);
    print_sources(o, name, sources, n, &total);
    if (total.rows || total.memory_rows) json_object_set_new(report, name, score_json(&total));
    return true;
}

static bool read_options(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rows") == 0)
            o->rows = true;
        else if (strcmp(argv[i], "--table") == 0)
            o->table = true;
        else if (strcmp(argv[i], "--all") == 0)
            o->all = true;
        else if (strcmp(argv[i], "--file") == 0 && i + 1 < argc)
            o->file = argv[++i];
        else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc && o->n_set < 64)
            o->set[o->n_set++] = argv[++i];
        else if (argv[i][0] != '-' && !o->directory)
            o->directory = argv[i];
        else
            return false;
    }
    return o->directory != NULL;
}

int main(int argc, char **argv) {
    static const char *const files[] = {"micro_gemm.csv",
                                        "micro_collectives.csv",
                                        "steps_vtrain_single.csv",
                                        "steps_vtrain_multi.csv",
                                        "steps_llm_foundry_fsdp.csv",
                                        "steps_mlperf.csv",
                                        "steps_megatron_papers.csv",
                                        "steps_simumax.csv",
                                        "steps_bigscience.csv",
                                        "steps_internevo.csv",
                                        "steps_torchtitan.csv",
                                        "steps_bert_dp.csv",
                                        "steps_nemo_megatron_bridge.csv",
                                        "steps_zero_offload.csv",
                                        "steps_sailor.csv",
                                        "memory_megatron_ci.csv"};
    options o = {0};
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr, "usage: published DIR [--rows] [--all] [--table] [--file NAME] [--set CURVE.FIELD=VALUE]…\n");
        return 2;
    }
    if (o.table)
        puts(
            "<!-- Generated: published DIR --table. -->\n"
            "# Errors of the cost model\n\n"
            "Against published measurements (rows with a complete configuration), in per cent; positive: predicted too "
            "long or too large.\nOne set of constants per device kind. `worst under`: the most that memory was "
            "predicted too small.\n\n"
            "| file | source | rows | mean abs. | bias | worst | memory rows | mean abs. | bias | worst under |\n"
            "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    json_t *report = json_object();
    int found = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!o.file || strcmp(o.file, files[i]) == 0) found += read_file(&o, files[i], report);
    if (!found) {
        fprintf(stderr, "published: %s has no steps_*.csv\n", o.directory);
        return 1;
    }
    char *text = json_dumps(report, JSON_REAL_PRECISION(4));
    if (!o.table) puts(text);
    free(text);
    json_decref(report);
    return 0;
}
