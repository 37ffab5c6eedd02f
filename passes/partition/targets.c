// Layouts that do not follow from an op's operands: of weights and their optimizer state, of gradients, and those that
// the plan states of results.
//
// ZeRO (Rajbhandari et al. 2020) cuts what belongs to a parameter over the ranks that hold it alike, dp and cp, along a
// dim that divides:
//   1  moments: a gradient is reduce-scattered to them, the parameter's new parts are joined
//   2  and accumulators: every micro-batch's gradient is reduce-scattered; else they hold each rank's own sum
//   3  and the parameter, which is joined where it is used
#include "passes/partition/distributor.h"

#include <inttypes.h>
#include <string.h>

static sn_axes data_axes(const sn_distributor *d) {
    static const char *const names[] = {"dp", "cp"};
    sn_axes axes = 0;
    for (int i = 0; i < 2; i++) {
        int axis = sn_mesh_axis(d->mesh, names[i]);
        if (axis >= 0 && d->mesh->size[axis] > 1) axes |= (sn_axes)(1 << axis);
    }
    return axes;
}

static bool is_weight(const sn_global *global) {
    return global->role == SN_ROLE_PARAMETER || global->role == SN_ROLE_FROZEN;
}

sn_global *sn_targets_weight(const sn_module *module, const char *name) {
    sn_global *global = sn_module_global(module, name);
    return global && is_weight(global) ? global : NULL;
}

// Whether a layout fits a type; says so where not.
static bool check_fit(sn_distributor *d, const char *name, int rank, sn_layout layout, sn_type type) {
    if (rank != type.rank) {
        sn_error(d->diags, "E0431", name, "state one entry for each dim",
                 "the plan's layout has %d dims, but it has %d", rank, type.rank);
        return false;
    }
    for (int dim = 0; dim < rank; dim++) {
        if (sn_layout_divides(d->mesh, layout, dim, type.dim[dim])) continue;
        sn_error(d->diags, "E0431", name, "cut another dim, or choose sizes of the mesh that divide it",
                 "the plan cuts dim %d, of size %" PRId64 ", in %" PRId64 " parts", dim, type.dim[dim],
                 sn_mesh_size(d->mesh, layout.dim[dim]));
        return false;
    }
    return true;
}

static bool state_weights(sn_distributor *d) {
    bool good = true;
    for (int i = 0; i < d->plan->n_layouts; i++) {
        const sn_plan_layout *entry = &d->plan->layouts[i];
        sn_global *global = sn_targets_weight(d->module, entry->name);
        if (!global) continue;
        if (!check_fit(d, entry->name, entry->rank, entry->layout, global->value->type))
            good = false;
        else
            global->value->layout = entry->layout;
    }
    return good;
}

// Axes' cuts inside of each part, one inside the other.
static void cut_inside(const sn_mesh *mesh, sn_axes axes, int dim, sn_layout *layout) {
    int64_t outers[SN_MAX_AXES], inside = 1;
    int order[SN_MAX_AXES], n = sn_layout_order(mesh, *layout, dim, order);
    sn_layout_outers(mesh, *layout, dim, outers);
    if (n) inside = outers[order[n - 1]] * mesh->size[order[n - 1]];
    for (int a = 0; a < mesh->n_axes; a++) {
        if (!(axes >> a & 1)) continue;
        sn_layout_add(mesh, layout, dim, a, inside);
        inside *= mesh->size[a];
    }
}

// Along the dim that leaves the longest pieces; false when none divides.
static bool cut_over(const sn_distributor *d, sn_axes axes, sn_type type, sn_layout *layout) {
    int best = -1;
    sn_layout best_layout = {0};
    for (int dim = 0; dim < type.rank; dim++) {
        sn_layout cut = *layout;
        cut_inside(d->mesh, axes, dim, &cut);
        bool better = best < 0 || (layout->dim[best] && !layout->dim[dim]); // the first dim is the outermost
        if (!sn_layout_divides(d->mesh, cut, dim, type.dim[dim]) || !better) continue;
        best = dim;
        best_layout = cut;
    }
    if (best >= 0) *layout = best_layout;
    return best >= 0;
}

// Over all axes that the plan leaves; where they are too many, over one of them.
static bool cut_over_data(const sn_distributor *d, sn_type type, sn_layout *layout) {
    sn_axes left = data_axes(d) & (sn_axes)~sn_layout_axes(*layout);
    if (!left || cut_over(d, left, type, layout)) return true;
    for (int a = 0; a < d->mesh->n_axes; a++)
        if (left >> a & 1 && cut_over(d, (sn_axes)(1 << a), type, layout)) return true;
    return false;
}

static void cut_parameter(sn_distributor *d, sn_global *global) {
    sn_value *value = global->value;
    if (cut_over_data(d, value->type, &value->layout) || d->trial) return;
    sn_remark(d->diags, "R0806", global->name, NULL, "ZeRO leaves it whole: no dim divides over %" PRId64 " ranks",
              sn_mesh_size(d->mesh, data_axes(d)));
}

bool sn_targets_of_globals(sn_distributor *d) {
    size_t n = d->module->globals.count;
    for (size_t i = 0; i < n; i++) d->module->globals.data[i]->value->layout = (sn_layout){0};
    if (!state_weights(d)) return false;
    int zero = data_axes(d) ? d->plan->zero : 0;
    for (size_t i = 0; i < n; i++) {
        sn_global *global = d->module->globals.data[i], *of = global->of;
        if (!of || !sn_shape_equal(global->value->type, of->value->type)) continue;
        sn_layout layout = of->value->layout;
        if (zero >= (global->role == SN_ROLE_SUM ? 2 : 1)) (void)cut_over_data(d, global->value->type, &layout);
        global->value->layout = layout;
    }
    for (size_t i = 0; i < n && zero >= 3; i++)
        if (d->module->globals.data[i]->role == SN_ROLE_PARAMETER) cut_parameter(d, d->module->globals.data[i]);
    return true;
}

static void set_target(sn_distributor *d, sn_value *value, sn_layout layout) {
    if (value->kind != SN_VALUE_RESULT || value->index != 0) return;
    sn_vec_push(&d->targets, layout);
    value->def->mark = (uint32_t)d->targets.count;
}

const sn_layout *sn_target_of(const sn_distributor *d, const sn_op *op) {
    return op->mark && op->mark <= d->targets.count ? &d->targets.data[op->mark - 1] : NULL;
}

// The addends of a gradient are cut as it is, and may stay partial: rows of a table's gradient are summed where they
// are kept.
static void state_addends(sn_distributor *d, const sn_op *sum, sn_layout layout) {
    if (sum->kind != SN_OP_ADD) return;
    layout.partial = 0xff;
    for (int i = 0; i < 2; i++) {
        sn_value *addend = sum->operands[i];
        if (addend->kind != SN_VALUE_RESULT || addend->uses.count != 1) continue;
        set_target(d, addend, layout);
        state_addends(d, addend->def, layout);
    }
}

// The gradient that an update reads, and what it was scaled from, are moved to where the moments are.
static void state_gradient(sn_distributor *d, sn_op *update) {
    sn_value *gradient = update->operands[1];
    sn_layout layout = update->operands[0]->layout;
    for (int i = 2; i < update->n_operands; i++) {
        const sn_value *moment = update->operands[i];
        if (moment->kind == SN_VALUE_GLOBAL && sn_shape_equal(moment->type, gradient->type)) layout = moment->layout;
    }
    for (;;) {
        set_target(d, gradient, layout);
        sn_op *def = gradient->kind == SN_VALUE_RESULT ? gradient->def : NULL;
        bool scales = def && def->kind == SN_OP_MUL && sn_type_count(def->operands[1]->type) == 1;
        if (def) state_addends(d, def, layout);
        if (!def || !(scales || def->kind == SN_OP_CAST)) return;
        gradient = def->operands[0];
    }
}

static void find_nodes(sn_distributor *d, sn_func *func) {
    if (d->nodes_of == func) return;
    sn_map_free(&d->nodes);
    d->nodes = (sn_map){0};
    d->nodes_of = func;
    SN_FOR_OPS(op, func) {
        const char *node = sn_origin_node(op->origin);
        if (node && op->phase == SN_PHASE_FORWARD && op->n_results) sn_map_put(&d->nodes, node, op);
    }
}

// Gradients arrive from the ops of other nodes; their shape tells them from what the node computes in between.
const sn_value *sn_value_of_gradient(const sn_distributor *d, const sn_op *op, int operand) {
    const sn_value *gradient = op->operands[operand];
    const char *node = op->phase == SN_PHASE_BACKWARD ? sn_origin_node(op->origin) : NULL;
    const sn_op *forward = node ? sn_map_get(&d->nodes, node) : NULL;
    if (!forward || gradient->kind != SN_VALUE_RESULT || gradient->def->phase != SN_PHASE_BACKWARD) return NULL;
    for (int i = 0; i < forward->n_results; i++)
        if (sn_shape_equal(forward->results[i]->type, gradient->type)) return forward->results[i];
    return NULL;
}

static bool state_nodes(sn_distributor *d) {
    bool good = true;
    for (int i = 0; i < d->plan->n_layouts && good; i++) {
        const sn_plan_layout *entry = &d->plan->layouts[i];
        if (sn_targets_weight(d->module, entry->name)) continue;
        sn_op *op = sn_map_get(&d->nodes, entry->name);
        if (!op) continue;
        good = check_fit(d, entry->name, entry->rank, entry->layout, op->results[0]->type);
        if (good) set_target(d, op->results[0], entry->layout);
    }
    return good;
}

bool sn_targets_of_results(sn_distributor *d, sn_func *func) {
    d->targets.count = 0;
    SN_FOR_OPS(op, func) {
        op->mark = 0;
    }
    SN_FOR_OPS(op, func) {
        if (sn_op_has(op->kind, SN_TRAIT_UPDATE) && op->kind != SN_OP_ASSIGN) state_gradient(d, op);
    }
    find_nodes(d, func);
    return state_nodes(d);
}

sn_layout sn_layout_in_use(const sn_distributor *d, const sn_op *op, const sn_value *value) {
    sn_layout layout = value->layout;
    if (value->kind == SN_VALUE_GLOBAL && is_weight(value->global) && !sn_op_has(op->kind, SN_TRAIT_UPDATE))
        sn_layout_remove(d->mesh, &layout, data_axes(d));
    return layout;
}

bool sn_is_accumulation(const sn_op *op) {
    const sn_value *to = op->n_operands ? op->operands[0] : NULL;
    return op->kind == SN_OP_ADD && to->kind == SN_VALUE_GLOBAL && to->global->role == SN_ROLE_SUM && to->global->of;
}

sn_layout sn_accumulator_layout(const sn_op *op) {
    sn_layout layout = op->operands[0]->layout, gradient = op->operands[1]->layout;
    if (gradient.partial_kind == SN_PARTIAL_SUM) layout.partial = gradient.partial & (sn_axes)~sn_layout_axes(layout);
    return layout;
}
