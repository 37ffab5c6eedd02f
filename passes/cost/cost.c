#include "passes/cost/cost.h"

#include "passes/cost/analytic.h"
#include "passes/cost/profile.h"

#include <string.h>

static sennit_type *plugin_types(sn_arena *scratch, int n, sn_value *const *values) {
    sennit_type *types = SN_NEW_N(scratch, sennit_type, n + 1);
    for (int i = 0; i < n; i++) {
        sn_type type = values[i]->type;
        types[i] = (sennit_type){.dtype = sn_dtype_name(type.dtype), .rank = type.rank};
        memcpy(types[i].dim, type.dim, sizeof types[i].dim);
    }
    return types;
}

void sn_cost_ops(const sn_cost_model *model, int n, const sn_op *const *ops, double *seconds, sn_arena *scratch) {
    sennit_cost_query *queries = SN_NEW_N(scratch, sennit_cost_query, n + 1);
    double *answers = SN_NEW_N(scratch, double, n + 1);
    for (int i = 0; i < n; i++) {
        const sn_op *op = ops[i];
        sn_work work = sn_op_work(op, scratch);
        seconds[i] = answers[i] = sn_analytic_op(model->device, op, work);
        double measured;
        if (model->profile && sn_profile_op(model->profile, op, work.flops, work.bytes, &measured))
            seconds[i] = answers[i] = measured;
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
    if (sn_plugins_cost_ops(model->plugins, queries, (size_t)n, answers, model->diags))
        memcpy(seconds, answers, (size_t)n * sizeof *seconds);
}

double sn_cost_collective(const sn_cost_model *model, sn_op_kind kind, double bytes, const sn_group *group) {
    double seconds = sn_analytic_collective(model->device, kind, bytes, group);
    if (model->profile && seconds > 0) sn_profile_collective(model->profile, kind, group->ranks, bytes, &seconds);
    sennit_collective_query query = {.size = sizeof query,
                                     .op = sn_op_name(kind),
                                     .device = model->device->name,
                                     .bytes = bytes,
                                     .ranks = group->ranks};
    double answer = seconds;
    return sn_plugins_cost_collectives(model->plugins, &query, 1, &answer, model->diags) ? answer : seconds;
}

double sn_cost_message(const sn_cost_model *model, double bytes, const sn_group *pair) {
    double seconds = 0;
    sn_message_cost measured;
    if (bytes <= 0 || pair->n_levels == 0) return 0;
    if (model->profile && sn_profile_message(model->profile, bytes, &measured))
        return measured.send + measured.flight + measured.receive;
    for (int i = 0; i < pair->n_levels; i++)
        if (pair->level[i].parties > 1)
            seconds = model->device->curve->library_issue + pair->level[i].alpha + bytes / pair->level[i].beta;
    return seconds;
}
