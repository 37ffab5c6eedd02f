// Distribution by propagation. Ops are visited in program order; the layouts of their operands are known. For each mesh
// axis the op chooses at most one factor to cut:
//
//     %h = matmul(%x, @w)      %x: {dp,-}  @w: {-,tp}     dp cuts the factor of %x's dim 0, tp that of @w's dim 1
//                                                         ->  %h: {dp,tp}
//     %g = matmul(%x', %dy)    both {dp,-} on the summed factor                            ->  %g: {-,-}+dp
//
// Operands that do not follow the choice are moved: a replicated one is cut (free), a cut one is joined. A partial sum
// travels on through linear ops and is reduced, once per value, where it cannot (propagate.c, moves.c). What does not
// follow from operands - weights, gradients, what the plan states - are targets (targets.c).
#include "passes/partition/distribute.h"

#include "base/map.h"
#include "ir/build.h"
#include "ir/index_range.h"
#include "passes/partition/distributor.h"
#include "passes/partition/heads.h"
#include "passes/pass.h"

#include <inttypes.h>
#include <string.h>

// Later passes dissolve the ops that say which numbers an argument may hold.
static void note_ranges(sn_module *module, sn_func *func) {
    for (size_t i = 0; i < func->args.count; i++) {
        sn_index_range range = sn_index_range_of(func->args.data[i]);
        if (range.known) func->args.data[i]->range = sn_arena_copy(&module->arena, &range, sizeof range);
    }
}

static bool is_data(const sn_value *arg) {
    return arg->name[0] != '$';
}

// Ranks that keep different experts may as well see different data: what they send each other is the experts' tokens.
static void cut_batch_over_experts(sn_distributor *d, sn_func *func) {
    int ep = sn_mesh_axis(d->mesh, "ep");
    bool divides = ep >= 0;
    for (size_t i = 0; i < func->args.count && divides; i++) {
        const sn_value *arg = func->args.data[i];
        sn_layout cut = arg->layout;
        cut.dim[0] |= (sn_axes)(1 << ep);
        divides = !is_data(arg) || (arg->type.rank && sn_layout_divides(d->mesh, cut, 0, arg->type.dim[0]));
    }
    for (size_t i = 0; i < func->args.count && divides; i++)
        if (is_data(func->args.data[i])) func->args.data[i]->layout.dim[0] |= (sn_axes)(1 << ep);
}

static bool distribute_args(sn_distributor *d, sn_func *func) {
    int dp = sn_mesh_axis(d->mesh, "dp");
    int64_t ranks = dp < 0 ? 1 : d->mesh->size[dp];
    for (size_t i = 0; i < func->args.count; i++) {
        sn_value *arg = func->args.data[i];
        arg->layout = (sn_layout){0};
        if (!is_data(arg) || ranks == 1) continue;
        if (arg->type.rank == 0 || arg->type.dim[0] % ranks) {
            sn_error(d->diags, "E0404", arg->name, "choose a batch that the number of data-parallel ranks divides",
                     "a batch of %" PRId64 " does not divide over %" PRId64 " ranks",
                     arg->type.rank ? arg->type.dim[0] : 1, ranks);
            return false;
        }
        arg->layout.dim[0] = (sn_axes)(1 << dp);
    }
    cut_batch_over_experts(d, func);
    return true;
}

// Context parallelism cuts the data along dim 1, the sequence. The data itself is read whole: a rank takes its part.
static void cut_sequence(sn_distributor *d, sn_func *func) {
    int cp = sn_mesh_axis(d->mesh, "cp");
    if (cp < 0 || d->mesh->size[cp] == 1) return;
    for (size_t i = 0; i < func->args.count; i++) {
        sn_value *arg = func->args.data[i];
        if (!is_data(arg) || arg->type.rank < 2 || arg->type.dim[1] % d->mesh->size[cp]) continue;
        sn_layout cut = arg->layout;
        sn_layout_add(d->mesh, &cut, 1, cp, 1);
        if (d->trial) {
            arg->layout = cut;
            continue;
        }
        size_t n = arg->uses.count;
        sn_use *uses = sn_arena_copy(&d->scratch, arg->uses.data, n * sizeof *uses);
        sn_value *part = sn_distribute_move(d, func, func->first, arg, arg->layout, cut);
        for (size_t k = 0; k < n; k++)
            if (uses[k].op->func == func) sn_op_set_operand(uses[k].op, uses[k].index, part);
    }
}

// A number in every element is a sum of such numbers only if it is 0: then any part of it is known.
static sn_value *zero_in(sn_func *func, sn_op *user, const sn_value *zero, sn_layout layout) {
    const sn_op *def = zero->def;
    sn_op *copy = sn_op_new(func, user, def->kind, 0, NULL, def->n_attrs, def->attrs, 1, &zero->type);
    copy->origin = def->origin;
    copy->phase = user->phase;
    copy->results[0]->layout = layout;
    copy->mark = (uint32_t)SN_MARK_PLACED;
    return copy->results[0];
}

static void distribute_assign(sn_distributor *d, sn_op *op) {
    sn_layout to = op->operands[0]->layout;
    sn_value *value = op->operands[1];
    double number;
    if (to.partial & ~value->layout.partial) {
        SN_CHECK(sn_value_number(value, &number) && number == 0);
        if (!d->trial) sn_op_set_operand(op, 1, zero_in(op->func, op, value, to));
        return;
    }
    value = sn_distribute_move(d, op->func, op, value, value->layout, to);
    if (!d->trial) sn_op_set_operand(op, 1, value);
}

static void forget_moves(sn_distributor *d, sn_func *func) {
    for (size_t i = 0; i < d->module->globals.count; i++) d->module->globals.data[i]->value->id = 0;
    for (size_t i = 0; i < func->args.count; i++) func->args.data[i]->id = 0;
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_results; i++) op->results[i]->id = 0;
    }
    d->moves.count = 0;
    memset(d->is_first, 0, sizeof d->is_first);
}

bool sn_distribute_func(sn_distributor *d, sn_func *func) {
    forget_moves(d, func);
    if (!distribute_args(d, func) || !sn_targets_of_results(d, func)) return false;
    cut_sequence(d, func);
    for (sn_op *op = func->first, *next; op; op = next) {
        next = op->next;
        if (op->mark == (uint32_t)SN_MARK_PLACED) continue;
        if (op->kind == SN_OP_ASSIGN)
            distribute_assign(d, op);
        else if (sn_op_has(op->kind, SN_TRAIT_GENERATOR)) // whole until someone needs a part
            op->results[0]->layout = (sn_layout){0};
        else
            sn_distribute_op(d, op);
        next = d->trial ? next : op->next;
        sn_arena_free(&d->scratch);
    }
    for (size_t i = 0; i < func->results.count; i++) {
        sn_value *value = func->results.data[i];
        value = sn_distribute_move(d, func, NULL, value, value->layout, (sn_layout){0});
        if (!d->trial) func->results.data[i] = value;
    }
    return true;
}

// Names that neither a global nor an op answers to.
static bool check_names(sn_distributor *d) {
    sn_map nodes = {0};
    bool good = true;
    for (size_t f = 0; f < d->module->funcs.count && d->plan->n_layouts; f++) SN_FOR_OPS(op, d->module->funcs.data[f]) {
            const char *node = sn_origin_node(op->origin);
            if (node) sn_map_put(&nodes, node, op);
        }
    for (int i = 0; i < d->plan->n_layouts; i++) {
        const char *name = d->plan->layouts[i].name;
        if (sn_targets_weight(d->module, name) || sn_map_has(&nodes, name)) continue;
        sn_error(d->diags, "E0430", name, "`sennit info` lists the weights; dumps show the nodes of all ops",
                 "the plan states a layout of what is no weight and no ONNX node of the model");
        good = false;
    }
    sn_map_free(&nodes);
    return good;
}

static bool distribute_all(sn_distributor *d) {
    if (!check_names(d) || !sn_targets_of_globals(d)) return false;
    bool good = true;
    for (size_t i = 0; i < d->module->funcs.count && good; i++) good = sn_distribute_func(d, d->module->funcs.data[i]);
    return good;
}

static sn_axes axes_of_func(const sn_func *func) {
    sn_axes used = 0;
    for (size_t i = 0; i < func->args.count; i++) used |= sn_layout_axes(func->args.data[i]->layout);
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_results; i++)
            used |= sn_layout_axes(op->results[i]->layout) | op->results[i]->layout.partial;
    }
    return used;
}

// What an axis is there to cut.
static const char *help_for_axis(const char *name) {
    if (strcmp(name, "dp") == 0) return "dp cuts the samples of a micro-batch";
    if (strcmp(name, "cp") == 0) return "cp cuts the sequence, the dim after the batch";
    if (strcmp(name, "ep") == 0) return "ep cuts the experts, of a model that has some";
    return "a tensor axis cuts weights, by heads, columns or rows";
}

// An axis that cuts nothing is more ranks that do the same.
static void warn_of_idle_axes(sn_distributor *d) {
    sn_axes used = 0;
    for (size_t i = 0; i < d->module->funcs.count; i++) used |= axes_of_func(d->module->funcs.data[i]);
    for (int a = 0; a < d->mesh->n_axes; a++) {
        if (used >> a & 1 || d->mesh->size[a] == 1 || strcmp(d->mesh->name[a], "pp") == 0) continue;
        sn_warning(d->diags, "W0430", d->mesh->name[a],
                   sn_arena_printf(&d->diags->arena,
                                   "leave %s out, or choose a size that divides dims of the model: %s",
                                   d->mesh->name[a], help_for_axis(d->mesh->name[a])),
                   "%s=%d splits nothing of this model: its %d ranks all hold and compute the same, in the time of one",
                   d->mesh->name[a], d->mesh->size[a], d->mesh->size[a]);
    }
}

static void warn_of_idle_zero(const sn_plan *plan, sn_diags *diags) {
    if (plan->zero && sn_plan_axis_size(plan, "dp") == 1 && sn_plan_axis_size(plan, "cp") == 1)
        sn_warning(diags, "W0431", "zero", "add dp=N to the mesh, or leave zero out",
                   "ZeRO cuts over dp and cp, which have one rank: zero=%d changes nothing", plan->zero);
}

bool sn_distribute(sn_module *module, const sn_plan *plan, sn_diags *diags) {
    SN_CHECK(module->form == SN_FORM_GRAPH);
    module->mesh = plan->mesh;
    module->form = SN_FORM_DIST;
    sn_distributor d = {.module = module, .mesh = &module->mesh, .plan = plan, .diags = diags};
    for (size_t i = 0; i < module->funcs.count; i++) note_ranges(module, module->funcs.data[i]);
    bool good = distribute_all(&d);
    if (good) warn_of_idle_axes(&d);
    if (good) sn_heads_check(module, diags);
    if (good) warn_of_idle_zero(plan, diags);
    sn_vec_free(&d.moves);
    sn_vec_free(&d.targets);
    sn_map_free(&d.nodes);
    sn_arena_free(&d.scratch);
    return good;
}

// What `partition` wrote on the module: a dump of it says how to go on.
static sn_plan written_plan(sn_module *module) {
    sn_plan plan = sn_plan_data_parallel(1, 1);
    SN_VEC(sn_plan_layout) layouts = {0};
    for (size_t i = 0; i < module->globals.count; i++) {
        const sn_value *value = module->globals.data[i]->value;
        if (sn_layout_axes(value->layout))
            sn_vec_push(&layouts, (sn_plan_layout){module->globals.data[i]->name, value->type.rank, value->layout});
    }
    for (size_t f = 0; f < module->funcs.count; f++) SN_FOR_OPS(op, module->funcs.data[f]) {
            const char *node = sn_origin_node(op->origin);
            if (!node || !op->n_results || !sn_layout_axes(op->results[0]->layout)) continue;
            sn_vec_push(&layouts, (sn_plan_layout){node, op->results[0]->type.rank, op->results[0]->layout});
        }
    plan.mesh = module->mesh;
    plan.n_layouts = (int)layouts.count;
    plan.layouts = sn_arena_copy(&module->arena, layouts.data, layouts.count * sizeof *layouts.data);
    sn_vec_free(&layouts);
    return plan;
}

static void run(sn_module *module, sn_pass_context *context) {
    sn_plan plan = written_plan(module);
    if (context->plan)
        plan = *context->plan;
    else if (*context->arguments && !sn_plan_from_outline(context->arguments, context->diags, &plan))
        return;
    (void)sn_distribute(module, &plan, context->diags);
}

const sn_pass sn_pass_distribute = {
    .name = "distribute",
    .summary = "gives every value a layout on the plan's mesh and inserts the collectives",
    .arguments = "dp=N,tp=N,zero=N,…: the outline of a plan, as --mesh takes it, where none is given; else the layouts "
                 "that are written on the module",
    .forms = 1 << SN_FORM_GRAPH,
    .result = SN_FORM_DIST,
    .run = run,
};
