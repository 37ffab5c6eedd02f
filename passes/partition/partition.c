// What `sennit plan` and people leave open is decided here, before the first value is moved: later passes read the plan
// and decide nothing. Stages that a plan does not name are cut where the distributed program is (stages.h): what
// crosses a cut is known there.
#include "passes/partition/partition.h"

#include "base/map.h"
#include "passes/partition/choose.h"
#include "passes/partition/distributor.h"
#include "passes/partition/heads.h"
#include "passes/pass.h"
#include "passes/simplify/decompose.h"

#include <string.h>

extern const sn_pass sn_pass_partition; // at the end

static bool has_inner_axes(const sn_mesh *mesh) {
    for (int a = 0; a < mesh->n_axes; a++)
        if (mesh->size[a] > 1 && strcmp(mesh->name[a], "dp") != 0 && strcmp(mesh->name[a], "pp") != 0) return true;
    return false;
}

static void forget_layouts(sn_module *module) {
    for (size_t i = 0; i < module->globals.count; i++) module->globals.data[i]->value->layout = (sn_layout){0};
    for (size_t f = 0; f < module->funcs.count; f++) {
        sn_func *func = module->funcs.data[f];
        for (size_t i = 0; i < func->args.count; i++) func->args.data[i]->layout = (sn_layout){0};
        SN_FOR_OPS(op, func) {
            for (int i = 0; i < op->n_results; i++) op->results[i]->layout = (sn_layout){0};
        }
    }
}

// A layout that does not fit is an error of `distribute`.
static void show_layout(const sn_mesh *mesh, const sn_plan_layout *entry, sn_value *value) {
    bool fits = entry->rank == value->type.rank;
    for (int dim = 0; dim < entry->rank && fits; dim++)
        fits = sn_layout_divides(mesh, entry->layout, dim, value->type.dim[dim]);
    if (fits) value->layout = entry->layout;
}

static void show_nodes(sn_func *func, const sn_plan *plan) {
    sn_map last = {0};
    SN_FOR_OPS(op, func) {
        const char *node = sn_origin_node(op->origin);
        if (node && op->phase == SN_PHASE_FORWARD && op->n_results) sn_map_put(&last, node, op);
    }
    for (int i = 0; i < plan->n_layouts; i++) {
        const sn_op *op = sn_map_get(&last, plan->layouts[i].name);
        if (op) show_layout(&plan->mesh, &plan->layouts[i], op->results[0]);
    }
    sn_map_free(&last);
}

static void show(sn_module *module, const sn_plan *plan) {
    for (size_t f = 0; f < module->funcs.count && plan->n_layouts; f++) show_nodes(module->funcs.data[f], plan);
    for (int i = 0; i < plan->n_layouts; i++) {
        const sn_global *global = sn_targets_weight(module, plan->layouts[i].name);
        if (global) show_layout(&plan->mesh, &plan->layouts[i], global->value);
    }
}

void sn_partition(sn_module *module, const sn_plan *plan, sn_diags *diags, sn_plan *out) {
    SN_CHECK(module->form == SN_FORM_GRAPH);
    sn_plan complete = *plan;
    module->mesh = plan->mesh;
    if (has_inner_axes(&plan->mesh)) {
        sn_pass_context context = {.diags = diags, .pass = &sn_pass_partition};
        sn_decompose_cross_entropy(module, &context);
        if (plan->n_layouts == 0) {
            sn_heads_split_axis(module, &complete.mesh);
            module->mesh = complete.mesh;
            sn_choose_layouts(module, &complete, &complete);
        }
    }
    forget_layouts(module); // of trials
    show(module, &complete);
    *out = complete;
}

static void run(sn_module *module, sn_pass_context *context) {
    sn_plan plan = sn_plan_data_parallel(1, 1);
    if (context->plan)
        plan = *context->plan;
    else if (*context->arguments && !sn_plan_from_outline(context->arguments, context->diags, &plan))
        return;
    sn_plan *complete = SN_NEW(&module->arena, sn_plan);
    sn_partition(module, &plan, context->diags, complete);
    context->plan = complete;
}

const sn_pass sn_pass_partition = {
    .name = "partition",
    .summary = "completes the plan: layouts of weights and results where it states none",
    .arguments = "dp=N,tp=N,zero=N,…: the outline of a plan, as --mesh takes it, where none is given",
    .forms = 1 << SN_FORM_GRAPH,
    .result = SN_FORM_GRAPH,
    .run = run,
};
