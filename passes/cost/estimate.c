// estimate: says what the cost model expects of each function, as remarks. It changes nothing.
//
//   remark[R0803]: @step: 1.83 ms on cpu: 0.21 GFLOP, 41.2 MB, of it collectives 0.10 ms; matmul 1.20 ms, …
#include "passes/cost/cost.h"

#include <stdlib.h>
#include <string.h>

typedef struct total {
    double seconds, collectives, flops, bytes;
    double by_kind[SN_OP_COUNT];
} total;

static int64_t ranks_of(const sn_module *module, const sn_op *op) {
    char *names = strdup(sn_op_string(op, "axes")), *rest = names;
    int64_t ranks = 1;
    for (const char *name; (name = strsep(&rest, ","));) {
        int axis = sn_mesh_axis(&module->mesh, name);
        if (axis >= 0) ranks *= module->mesh.size[axis];
    }
    free(names);
    return ranks;
}

static void add_collective(const sn_cost_model *model, const sn_module *module, const sn_op *op, total *t) {
    int64_t operand = sn_type_bytes(op->operands[0]->type), result = sn_type_bytes(op->results[0]->type);
    double bytes = (double)(operand > result ? operand : result);
    sn_cluster cluster;
    int64_t ranks = ranks_of(module, op);
    SN_CHECK(sn_cluster_preset("local", ranks, &cluster));
    sn_group group = sn_cluster_group(&cluster, 0, ranks, 1);
    double seconds = sn_cost_collective(model, op->kind, bytes, &group);
    t->seconds += seconds;
    t->collectives += seconds;
    t->by_kind[op->kind] += seconds;
}

static total add_up(const sn_cost_model *model, const sn_func *func, sn_arena *scratch) {
    total t = {0};
    int n = 0;
    const sn_op **ops = SN_NEW_N(scratch, const sn_op *, func->n_ops + 1);
    SN_FOR_OPS(op, func) {
        if (sn_op_has(op->kind, SN_TRAIT_COLLECTIVE))
            add_collective(model, func->module, op, &t);
        else
            ops[n++] = op;
    }
    double *seconds = SN_NEW_N(scratch, double, n + 1);
    sn_cost_ops(model, n, ops, seconds, scratch);
    for (int i = 0; i < n; i++) {
        sn_work work = sn_op_work(ops[i], scratch);
        t.seconds += seconds[i];
        t.by_kind[ops[i]->kind] += seconds[i];
        t.flops += work.flops;
        t.bytes += work.bytes;
    }
    return t;
}

// ", of it matmul 1.2 ms, exp 0.3 ms": the three most expensive operators.
static void print_largest(sn_str *out, total t) {
    const char *separator = "; ";
    for (int rank = 0; rank < 3; rank++) {
        int largest = 0;
        for (int kind = 1; kind < SN_OP_COUNT; kind++)
            if (t.by_kind[kind] > t.by_kind[largest]) largest = kind;
        if (t.by_kind[largest] <= 0) return;
        sn_str_printf(out, "%s%s %.3g ms", separator, sn_op_name((sn_op_kind)largest), 1e3 * t.by_kind[largest]);
        separator = ", ";
        t.by_kind[largest] = 0;
    }
}

static void run(sn_module *module, sn_pass_context *context) {
    sn_cost_model model = {.device = sn_device_kind_find("cpu"), .plugins = context->plugins, .diags = context->diags};
    for (size_t i = 0; i < module->funcs.count; i++) {
        const sn_func *func = module->funcs.data[i];
        if (func->is_body) continue;
        total t = add_up(&model, func, context->scratch);
        sn_str text = {0};
        sn_str_printf(&text, "%.3g ms on %s: %.3g GFLOP, %.3g MB, collectives %.3g ms", 1e3 * t.seconds,
                      model.device->name, 1e-9 * t.flops, 1e-6 * t.bytes, 1e3 * t.collectives);
        print_largest(&text, t);
        sn_remark(context->diags, "R0803", NULL, NULL, "@%s: %s", func->name, sn_str_text(&text));
        sn_str_free(&text);
    }
}

const sn_pass sn_pass_estimate = {
    .name = "estimate",
    .summary = "says, as remarks, what the cost model expects of each function",
    .forms = 1 << SN_FORM_GRAPH | 1 << SN_FORM_DIST | 1 << SN_FORM_SCHED,
    .run = run,
};
