#include "micro.h"

#include "ir/build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double csv_number(const csv_row *row, const char *column, double otherwise) {
    const char *text = csv_get(row, column);
    char *end;
    double value = strtod(text, &end);
    return end == text ? otherwise : value;
}

// The preset whose nodes the row's device is in; names are as the sources write them.
static bool start_case(const char *name, micro_case *out) {
    static const struct {
        const char *prefix, *preset;
    } known[] = {{"V100", "dgx-v100"},       {"A100-PCIe", "a100-pcie"}, {"A100-SXM4-40GB", "dgx-a100-40"},
                 {"A100-40", "dgx-a100-40"}, {"A100", "dgx-a100"},       {"H100", "dgx-h100"},
                 {"H200", "dgx-h200"},       {"B200", "dgx-b200"},       {"GB200", "gb200"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(name, known[i].prefix, strlen(known[i].prefix)) != 0) continue;
        if (!sn_cluster_preset(known[i].preset, 4, &out->cluster)) return false;
        out->device = *out->cluster.nodes[0].device;
        out->curve = *out->device.curve;
        out->device.curve = &out->curve;
        return true;
    }
    return false;
}

// "…, seq_len=4096, head_num=64, …"
static int64_t noted(const char *notes, const char *name) {
    char key[32];
    snprintf(key, sizeof key, "%s=", name);
    const char *at = strstr(notes, key);
    return at ? strtoll(at + strlen(key), NULL, 10) : 0;
}

// Fused attention is causal; the tables count the whole square of scores, 2 or 2.5 x 2 products.
static bool attention_seconds(const csv_row *row, const sn_cost_model *model, double *predicted, double *flops) {
    const char *notes = csv_get(row, "notes");
    int64_t batch = noted(notes, "batch"), length = noted(notes, "seq_len"), heads = noted(notes, "head_num");
    int64_t kv_heads = noted(notes, "kv_head_num"), head = noted(notes, "qk_head_dim"),
            value = noted(notes, "v_head_dim");
    if (!batch || !length || !heads || !kv_heads || !head || !value) return false;
    sn_module *module = sn_module_new("attention");
    sn_builder b = {.func = sn_module_add_func(module, "f")};
    int64_t q[] = {batch, heads, length, head}, k[] = {batch, kv_heads, length, head},
            v[] = {batch, kv_heads, length, value};
    sn_value *operands[6] = {sn_func_add_arg(b.func, "q", sn_type_make(SN_BF16, 4, q)),
                             sn_func_add_arg(b.func, "k", sn_type_make(SN_BF16, 4, k)),
                             sn_func_add_arg(b.func, "v", sn_type_make(SN_BF16, 4, v))};
    sn_attr attrs[] = {sn_attr_float("scale", 1), sn_attr_int("causal", 1)};
    const sn_op *op = sn_build(&b, SN_OP_ATTENTION, 3, operands, 2, attrs, NULL);
    bool backward = strcmp(csv_get(row, "op"), "sdp_bwd") == 0;
    operands[3] = operands[5] = op->results[0];
    operands[4] = op->results[1];
    if (backward) op = sn_build(&b, SN_OP_ATTENTION_GRAD, 6, operands, 2, attrs, NULL);
    sn_arena scratch = {0};
    sn_cost_ops(model, 1, &op, predicted, &scratch);
    *flops = 2 * sn_op_work(op, &scratch).flops;
    sn_arena_free(&scratch);
    sn_module_free(module);
    return true;
}

bool micro_gemm(const csv_row *row, micro_adjust adjust, void *user, double *predicted, double *measured) {
    micro_case c;
    const char *op = csv_get(row, "op"), *dtype = csv_get(row, "dtype");
    double rate = csv_number(row, "tflops", 0) * 1e12;
    if (rate <= 0 || !start_case(csv_get(row, "device"), &c)) return false;
    if (adjust) adjust(user, &c.device, &c.curve, &c.cluster);
    sn_cost_model model = {.device = &c.device};
    double flops;
    if (strncmp(op, "sdp", 3) == 0) {
        if (!attention_seconds(row, &model, predicted, &flops)) return false;
    } else if (strcmp(op, "mm") == 0 || strcmp(op, "bmm") == 0 || strcmp(op, "matmul") == 0) {
        double m = csv_number(row, "m", 0), n = csv_number(row, "n", 0), k = csv_number(row, "k", 0),
               b = csv_number(row, "b", 1);
        if (m < 1 || n < 1 || k < 1) return false;
        sn_dtype type = strncmp(dtype, "fp8", 3) == 0 ? SN_I8 : SN_BF16;
        *predicted = sn_cost_matmul(&c.device, type, (int64_t)b, (int64_t)m, (int64_t)n, (int64_t)k);
        flops = 2 * b * m * n * k;
    } else {
        return false;
    }
    *measured = flops / rate;
    return true;
}

bool micro_collective(const csv_row *row, micro_adjust adjust, void *user, double *predicted, double *measured) {
    static const struct {
        const char *name;
        sn_op_kind kind;
    } kinds[] = {{"all_reduce", SN_OP_ALL_REDUCE},
                 {"all_gather", SN_OP_ALL_GATHER},
                 {"reduce_scatter", SN_OP_REDUCE_SCATTER},
                 {"all_to_all", SN_OP_ALL_TO_ALL}};
    micro_case c;
    int64_t ranks = (int64_t)csv_number(row, "ranks", 0), nodes = (int64_t)csv_number(row, "nodes", 1);
    double bytes = csv_number(row, "bytes", 0);
    *measured = csv_number(row, "time_us", 0) * 1e-6;
    if (*measured <= 0 || ranks < 2 || nodes < 1 || !start_case(csv_get(row, "device"), &c)) return false;
    const char *fabric = csv_get(row, "fabric");
    if (nodes > 1 && strstr(fabric, "400Gb/s per node")) c.cluster.level[1].beta = 0.88 * 50e9 / 8;
    if (adjust) adjust(user, &c.device, &c.curve, &c.cluster);
    sn_cost_model model = {.device = &c.device};
    sn_group group = sn_cluster_group(&c.cluster, 0, ranks, 1);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(csv_get(row, "collective"), kinds[i].name) == 0) {
            *predicted = sn_cost_collective(&model, kinds[i].kind, bytes, &group);
            return true;
        }
    return false;
}
