#include "passes/cost/cost.h"

#include "ir/factors.h"

#include <math.h>
#include <string.h>

static const sn_device devices[] = {
#define SN_DEVICE(...) {__VA_ARGS__},
#include "passes/cost/devices.def"
#undef SN_DEVICE
};

const sn_device *sn_device_find(const char *name) {
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(devices[i].name, name) == 0) return &devices[i];
    return NULL;
}

static bool is_contraction(sn_op_kind kind) {
    static const bool contraction[SN_OP_COUNT] = {
        [SN_OP_MATMUL] = true,           [SN_OP_CONV] = true,      [SN_OP_CONV_INPUT_GRAD] = true,
        [SN_OP_CONV_WEIGHT_GRAD] = true, [SN_OP_ATTENTION] = true, [SN_OP_ATTENTION_GRAD] = true};
    return contraction[kind];
}

// Arithmetic for one point of the iteration space. Polynomials of about ten terms stand for transcendental functions.
static double flops_per_point(sn_op_kind kind) {
    static const double special[SN_OP_COUNT] = {
        [SN_OP_EXP] = 12,  [SN_OP_LOG] = 12,  [SN_OP_TANH] = 16,  [SN_OP_ERF] = 16,       [SN_OP_SIGMOID] = 16,
        [SN_OP_GELU] = 20, [SN_OP_SIN] = 16,  [SN_OP_COS] = 16,   [SN_OP_GELU_TANH] = 24, [SN_OP_POW] = 24,
        [SN_OP_SQRT] = 4,  [SN_OP_RSQRT] = 4, [SN_OP_DIV] = 4,    [SN_OP_SOFTMAX] = 16,   [SN_OP_LOG_SOFTMAX] = 16,
        [SN_OP_ADAM] = 18, [SN_OP_SGD] = 6,   [SN_OP_MATMUL] = 2, [SN_OP_LAYER_NORM] = 8, [SN_OP_RMS_NORM] = 5};
    return special[kind] > 0 ? special[kind] : is_contraction(kind) ? 2 : 1;
}

// Two products of S x T x D a head forwards; backwards five, of which one repeats the scores (Dao et al. 2022).
static double attention_flops(const sn_op *op) {
    sn_type q = op->operands[0]->type, v = op->operands[2]->type;
    double points = (double)q.dim[0] * (double)q.dim[1] * (double)q.dim[2] * (double)v.dim[2];
    double products = op->kind == SN_OP_ATTENTION ? 1 : 2.5;
    double seen = sn_op_int(op, "causal") ? 0.5 : 1;
    return 2 * points * ((double)q.dim[3] + (double)v.dim[3]) * products * seen;
}

static double space_flops(const sn_op *op, sn_arena *scratch) {
    sn_factors factors;
    sn_factors_of(op, scratch, &factors);
    double points = 1;
    for (int i = 0; i < factors.n; i++) points *= (double)factors.factor[i].size;
    return points * flops_per_point(op->kind);
}

static bool is_free(sn_op_kind kind) {
    return sn_op_has(kind, SN_TRAIT_VIEW) || kind == SN_OP_CONSTANT || sn_op_has(kind, SN_TRAIT_SCHEDULE);
}

sn_work sn_op_work(const sn_op *op, sn_arena *scratch) {
    sn_work work = {0};
    if (is_free(op->kind)) return work;
    for (int i = 0; i < op->n_operands; i++) work.bytes += (double)sn_type_bytes(op->operands[i]->type);
    for (int i = 0; i < op->n_results; i++) work.bytes += (double)sn_type_bytes(op->results[i]->type);
    if (op->kind == SN_OP_KERNEL) {
        SN_FOR_OPS(inner, sn_op_func(op, "body")) {
            work.flops += sn_op_work(inner, scratch).flops;
        }
    } else if (op->kind == SN_OP_ATTENTION || op->kind == SN_OP_ATTENTION_GRAD) {
        work.flops = attention_flops(op);
    } else if (!sn_op_has(op->kind, SN_TRAIT_MOVEMENT) && !sn_op_has(op->kind, SN_TRAIT_COLLECTIVE)) {
        work.flops = space_flops(op, scratch);
    }
    return work;
}

static double roofline(const sn_device *device, const sn_op *op, sn_work work) {
    if (is_free(op->kind)) return 0;
    double rate = is_contraction(op->kind) ? device->contraction_flops : device->other_flops;
    return fmax(work.flops / rate, work.bytes / device->memory_bytes) + device->start_seconds;
}

static sennit_type *plugin_types(sn_arena *scratch, int n, sn_value *const *values) {
    sennit_type *types = SN_NEW_N(scratch, sennit_type, n + 1);
    for (int i = 0; i < n; i++) {
        sn_type type = values[i]->type;
        types[i] = (sennit_type){.dtype = sn_dtype_name(type.dtype), .rank = type.rank};
        memcpy(types[i].dim, type.dim, sizeof types[i].dim);
    }
    return types;
}

// Takes a plug-in's answers; what is no time is an error, and the built-in answer stays.
static void take_answers(const sn_cost_model *model, const char *name, int n, const double *answers, double *seconds) {
    for (int i = 0; i < n; i++) {
        if (isfinite(answers[i]) && answers[i] >= 0) {
            seconds[i] = answers[i];
            continue;
        }
        sn_error(model->diags, "E0827", name, NULL, "the plug-in's cost model answered %g seconds", answers[i]);
        return; // one is enough
    }
}

static const char *model_name(const sennit_cost_model *costs) {
    return costs->name ? costs->name : "cost model";
}

void sn_cost_ops(const sn_cost_model *model, int n, const sn_op *const *ops, double *seconds, sn_arena *scratch) {
    sennit_cost_query *queries = SN_NEW_N(scratch, sennit_cost_query, n + 1);
    double *answers = SN_NEW_N(scratch, double, n + 1);
    for (int i = 0; i < n; i++) {
        const sn_op *op = ops[i];
        sn_work work = sn_op_work(op, scratch);
        seconds[i] = answers[i] = roofline(model->device, op, work);
        queries[i] = (sennit_cost_query){.size = sizeof(sennit_cost_query),
                                         .op = sn_op_name(op->kind),
                                         .device = model->device->name,
                                         .n_operands = (size_t)op->n_operands,
                                         .n_results = (size_t)op->n_results,
                                         .operands = plugin_types(scratch, op->n_operands, op->operands),
                                         .results = plugin_types(scratch, op->n_results, op->results),
                                         .flops = work.flops,
                                         .bytes = work.bytes};
    }
    const sennit_cost_model *costs = model->plugins ? sn_plugins_cost_model(model->plugins) : NULL;
    if (!costs || !costs->ops) return;
    costs->ops(queries, (size_t)n, answers);
    take_answers(model, model_name(costs), n, answers, seconds);
}

// Ring algorithms: (ranks - 1) messages of 1/ranks of the tensor each; an all-reduce is two of them (Thakur et al.
// 2005).
double sn_cost_collective(const sn_cost_model *model, sn_op_kind kind, double bytes, int64_t ranks) {
    const sn_device *device = model->device;
    double rounds = (double)(ranks - 1) * (kind == SN_OP_ALL_REDUCE ? 2 : 1);
    double seconds = ranks > 1 ? rounds * (device->message_seconds + bytes / (double)ranks / device->link_bytes) : 0;
    const sennit_cost_model *costs = model->plugins ? sn_plugins_cost_model(model->plugins) : NULL;
    if (!costs || !costs->collectives) return seconds;
    sennit_collective_query query = {
        .size = sizeof query, .op = sn_op_name(kind), .device = device->name, .bytes = bytes, .ranks = ranks};
    double answer = seconds;
    costs->collectives(&query, 1, &answer);
    take_answers(model, model_name(costs), 1, &answer, &seconds);
    return seconds;
}
