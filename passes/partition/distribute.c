// Distribution by propagation. Ops are visited in program order; the layouts of their operands are known. For each mesh
// axis the op chooses at most one factor to cut:
//
//     %h = matmul(%x, @w)      %x: {dp,-}  @w: {-,-}      dp cuts the factor of %x's dim 0  ->  %h: {dp,-}
//     %g = matmul(%x', %dy)    both {dp,-} on the summed factor                            ->  %g: {-,-}+dp
//
// Operands that do not follow the choice are moved: a replicated one is cut (free), a cut one is gathered. A partial
// sum travels on through linear ops and is reduced, once per value, where it cannot.
#include "passes/partition/distribute.h"

#include "base/map.h"
#include "ir/build.h"
#include "ir/factors.h"
#include "ir/index_range.h"
#include "passes/pass.h"

#include <inttypes.h>
#include <string.h>

typedef struct moved {
    sn_value *value;
    sn_layout layout; // what `result` has
    sn_value *result;
} moved;

typedef struct distributor {
    sn_module *module;
    const sn_mesh *mesh;
    sn_diags *diags;
    sn_arena scratch;
    SN_VEC(moved) moves; // values that were moved already, so that each collective is made once
} distributor;

static const char *axes_text(distributor *d, sn_axes axes) {
    sn_str text = {0};
    for (int i = 0; i < d->mesh->n_axes; i++)
        if (axes >> i & 1) sn_str_printf(&text, "%s%s", text.length ? "," : "", d->mesh->name[i]);
    char *copy = sn_arena_strdup(&d->module->arena, sn_str_text(&text));
    sn_str_free(&text);
    return copy;
}

// A global serves several functions, but a move lives in one.
static sn_value *find_move(distributor *d, const sn_func *func, const sn_value *value, sn_layout layout) {
    for (size_t i = 0; i < d->moves.count; i++) {
        const moved *m = &d->moves.data[i];
        if (m->value == value && m->result->def->func == func && sn_layout_equal(m->layout, layout)) return m->result;
    }
    return NULL;
}

// The op right after which a value's move stands: moves stay near their producer, so that every later use sees them.
static sn_op *insertion_point(sn_func *func, const sn_value *value) {
    return value->kind == SN_VALUE_RESULT ? value->def->next : func->first;
}

static sn_value *emit(distributor *d, sn_func *func, sn_value *value, sn_op_kind kind, int n_attrs,
                      const sn_attr *attrs, sn_layout layout) {
    sn_value *known = find_move(d, func, value, layout);
    if (known) return known;
    sn_op *op = sn_op_new(func, insertion_point(func, value), kind, 1, &value, n_attrs, attrs, 1, &value->type);
    const sn_origin *origin = value->kind == SN_VALUE_RESULT ? value->def->origin : NULL;
    op->origin = sn_origin_new(d->module, "distribute", origin);
    op->phase = value->kind == SN_VALUE_RESULT ? value->def->phase : SN_PHASE_FORWARD;
    op->results[0]->layout = layout;
    sn_vec_push(&d->moves, (moved){value, layout, op->results[0]});
    return op->results[0];
}

static sn_value *reduce_partial(distributor *d, sn_func *func, sn_value *value, sn_axes axes) {
    static const char *const reductions[] = {
        [SN_PARTIAL_SUM] = "sum", [SN_PARTIAL_MAX] = "max", [SN_PARTIAL_MIN] = "min"};
    axes &= value->layout.partial;
    if (!axes) return value;
    sn_layout layout = value->layout;
    layout.partial &= (sn_axes)~axes;
    sn_attr attrs[] = {sn_attr_string("axes", axes_text(d, axes)),
                       sn_attr_string("reduction", reductions[value->layout.partial_kind])};
    return emit(d, func, value, SN_OP_ALL_REDUCE, 2, attrs, layout);
}

static sn_value *gather_dim(distributor *d, sn_func *func, sn_value *value, int dim) {
    sn_layout layout = value->layout;
    sn_attr attrs[] = {sn_attr_string("axes", axes_text(d, layout.dim[dim])), sn_attr_int("dim", dim)};
    layout.dim[dim] = 0;
    return emit(d, func, value, SN_OP_ALL_GATHER, 2, attrs, layout);
}

static bool is_generator(const sn_value *value) {
    return value->kind == SN_VALUE_RESULT && sn_op_has(value->def->kind, SN_TRAIT_GENERATOR) &&
           value->def->kind != SN_OP_AXIS_INDEX;
}

// A generator needs no cut: its part is made where it is needed.
static sn_value *cut_dim(distributor *d, sn_func *func, sn_value *value, int dim, sn_axes axes) {
    sn_layout layout = value->layout;
    layout.dim[dim] |= axes;
    if (!is_generator(value)) {
        sn_attr attrs[] = {sn_attr_string("axes", axes_text(d, axes)), sn_attr_int("dim", dim)};
        return emit(d, func, value, SN_OP_SHARD, 2, attrs, layout);
    }
    sn_value *known = find_move(d, func, value, layout);
    if (known) return known;
    sn_op *def = value->def;
    sn_op *copy = sn_op_new(func, def->next, def->kind, def->n_operands, def->operands, def->n_attrs, def->attrs, 1,
                            &value->type);
    copy->origin = def->origin;
    copy->phase = def->phase;
    copy->results[0]->layout = layout;
    sn_vec_push(&d->moves, (moved){value, layout, copy->results[0]});
    return copy->results[0];
}

static sn_value *replicate(distributor *d, sn_func *func, sn_value *value) {
    value = reduce_partial(d, func, value, value->layout.partial);
    for (int i = 0; i < value->type.rank; i++)
        if (value->layout.dim[i]) value = gather_dim(d, func, value, i);
    return value;
}

static int major_factor(const sn_dim_factors *dim) {
    return dim->n ? dim->factor[0] : -1;
}

// Whether factor f, when it stands anywhere, is the major one of each dim that has it.
static bool is_major_everywhere(const sn_op *op, const sn_factors *factors, int f) {
    for (int side = 0; side < 2; side++) {
        int n = side ? op->n_results : op->n_operands;
        for (int i = 0; i < n; i++) {
            sn_type type = side ? op->results[i]->type : op->operands[i]->type;
            const sn_dim_factors *dims = side ? factors->result[i] : factors->operand[i];
            for (int dim = 0; dim < type.rank; dim++)
                for (int at = 1; at < dims[dim].n; at++)
                    if (dims[dim].factor[at] == f) return false;
        }
    }
    return true;
}

static bool may_cut(const distributor *d, const sn_op *op, const sn_factors *factors, int f, int axis, sn_axes taken) {
    const sn_factor *factor = &factors->factor[f];
    return factor->kind != SN_FACTOR_WHOLE && !factor->masked && is_major_everywhere(op, factors, f) &&
           factor->size % (sn_mesh_size(d->mesh, taken) * d->mesh->size[axis]) == 0;
}

// The factor that the most bytes of operands are cut along over `axis`; -1 when none is or may be.
static int choose_factor(const distributor *d, const sn_op *op, const sn_factors *factors, int axis,
                         const sn_axes *cuts) {
    int64_t votes[SN_MAX_FACTORS] = {0};
    int best = -1;
    for (int i = 0; i < op->n_operands; i++) {
        const sn_value *operand = op->operands[i];
        for (int dim = 0; dim < operand->type.rank; dim++) {
            int f = major_factor(&factors->operand[i][dim]);
            if (!(operand->layout.dim[dim] >> axis & 1) || f < 0 || !may_cut(d, op, factors, f, axis, cuts[f]))
                continue;
            votes[f] += sn_type_bytes(operand->type) + 1;
            if (best < 0 || votes[f] > votes[best]) best = f;
        }
    }
    return best;
}

// Brings an operand to the layout that the cuts ask for, axis by axis.
static sn_value *conform(distributor *d, sn_func *func, sn_value *value, const sn_dim_factors *dims,
                         const sn_axes *cuts) {
    sn_axes wanted[SN_MAX_RANK];
    for (int dim = 0; dim < value->type.rank; dim++) {
        int f = major_factor(&dims[dim]);
        wanted[dim] = f >= 0 ? cuts[f] : 0;
        if (value->layout.dim[dim] & ~wanted[dim]) value = gather_dim(d, func, value, dim);
    }
    for (int dim = 0; dim < value->type.rank; dim++) {
        sn_axes missing = (sn_axes)(wanted[dim] & ~value->layout.dim[dim]);
        if (missing) value = cut_dim(d, func, value, dim, missing);
    }
    return value;
}

// The axes over which the result may stay a partial sum because the op is linear: of the operands that are partial,
// one (SN_LINEAR), or all data operands alike (SN_ADDITIVE).
static sn_axes passing_partial(const sn_op *op) {
    sn_axes additive = 0xff, linear = 0, any = 0;
    bool has_additive = false;
    for (int i = 0; i < op->n_operands; i++) {
        const sn_layout *layout = &op->operands[i]->layout;
        sn_axes partial = layout->partial_kind == SN_PARTIAL_SUM ? layout->partial : 0;
        switch (sn_op_linearity(op, i)) {
        case SN_ADDITIVE:
            has_additive = true;
            additive &= partial;
            any |= layout->partial;
            break;
        case SN_LINEAR:
            if (linear & partial) return 0; // a product of two sums is not a sum of products
            linear |= partial;
            any |= layout->partial;
            break;
        case SN_NOT_LINEAR:
            break;
        }
    }
    return has_additive ? additive & any : linear;
}

static void distribute_op(distributor *d, sn_op *op) {
    sn_func *func = op->func;
    sn_factors factors;
    sn_factors_of(op, &d->scratch, &factors);
    sn_axes cuts[SN_MAX_FACTORS] = {0}, passing = passing_partial(op), cut_axes = 0;
    for (int axis = 0; axis < d->mesh->n_axes; axis++) {
        if (d->mesh->size[axis] == 1) continue;
        int f = choose_factor(d, op, &factors, axis, cuts);
        if (f < 0) continue;
        cuts[f] |= (sn_axes)(1 << axis);
        cut_axes |= (sn_axes)(1 << axis);
    }
    passing &= (sn_axes)~cut_axes; // a sum over an axis that also cuts the op has to be done first
    for (int f = 0; f < factors.n; f++)
        if (cuts[f] && (factors.factor[f].kind == SN_FACTOR_MAX || factors.factor[f].kind == SN_FACTOR_MIN))
            passing = 0;
    for (int i = 0; i < op->n_operands; i++) {
        sn_value *value = op->operands[i];
        sn_axes keep = sn_op_linearity(op, i) == SN_NOT_LINEAR ? 0 : passing;
        value = reduce_partial(d, func, value, value->layout.partial & (sn_axes)~keep);
        value = conform(d, func, value, factors.operand[i], cuts);
        sn_op_set_operand(op, i, value);
    }
    static const sn_partial kinds[] = {
        [SN_FACTOR_SUM] = SN_PARTIAL_SUM, [SN_FACTOR_MAX] = SN_PARTIAL_MAX, [SN_FACTOR_MIN] = SN_PARTIAL_MIN};
    for (int i = 0; i < op->n_results; i++) {
        sn_layout layout = {.partial = passing};
        for (int dim = 0; dim < op->results[i]->type.rank; dim++) {
            int f = major_factor(&factors.result[i][dim]);
            if (f >= 0) layout.dim[dim] = cuts[f];
        }
        for (int f = 0; f < factors.n; f++) {
            if (!cuts[f] || factors.factor[f].kind == SN_FACTOR_PARALLEL) continue;
            layout.partial |= cuts[f];
            layout.partial_kind = kinds[factors.factor[f].kind];
        }
        op->results[i]->layout = layout;
    }
}

// Later passes dissolve the ops that say which numbers an argument may hold.
static void note_ranges(sn_module *module, sn_func *func) {
    for (size_t i = 0; i < func->args.count; i++) {
        sn_index_range range = sn_index_range_of(func->args.data[i]);
        if (range.known) func->args.data[i]->range = sn_arena_copy(&module->arena, &range, sizeof range);
    }
}

static bool distribute_args(distributor *d, sn_func *func) {
    int dp = sn_mesh_axis(d->mesh, "dp");
    if (dp < 0) return true;
    int64_t ranks = d->mesh->size[dp];
    for (size_t i = 0; i < func->args.count; i++) {
        sn_value *arg = func->args.data[i];
        if (arg->name[0] == '$' || ranks == 1) continue;
        if (arg->type.rank == 0 || arg->type.dim[0] % ranks) {
            sn_error(d->diags, "E0404", arg->name, "choose a batch that the number of data-parallel ranks divides",
                     "a batch of %" PRId64 " does not divide over %" PRId64 " ranks",
                     arg->type.rank ? arg->type.dim[0] : 1, ranks);
            return false;
        }
        arg->layout.dim[0] = (sn_axes)(1 << dp);
    }
    return true;
}

static void distribute_func(distributor *d, sn_func *func) {
    for (sn_op *op = func->first, *next; op; op = next) {
        next = op->next;
        if (op->kind == SN_OP_ASSIGN) {
            sn_op_set_operand(op, 1, replicate(d, func, op->operands[1]));
            continue;
        }
        if (sn_op_has(op->kind, SN_TRAIT_GENERATOR)) continue; // replicated until someone needs a part
        distribute_op(d, op);
        sn_arena_free(&d->scratch);
    }
    for (size_t i = 0; i < func->results.count; i++) func->results.data[i] = replicate(d, func, func->results.data[i]);
}

bool sn_distribute(sn_module *module, const sn_plan *plan, sn_diags *diags) {
    SN_CHECK(module->form == SN_FORM_GRAPH);
    module->mesh = plan->mesh;
    module->form = SN_FORM_DIST;
    distributor d = {.module = module, .mesh = &module->mesh, .diags = diags};
    bool good = true;
    for (size_t i = 0; i < module->funcs.count && good; i++) {
        note_ranges(module, module->funcs.data[i]);
        good = distribute_args(&d, module->funcs.data[i]);
        if (good) distribute_func(&d, module->funcs.data[i]);
    }
    sn_vec_free(&d.moves);
    sn_arena_free(&d.scratch);
    return good;
}

static void run(sn_module *module, sn_pass_context *context) {
    sn_plan alone = sn_plan_data_parallel((int)sn_pass_argument_int(context, "dp", 1), 1);
    (void)sn_distribute(module, context->plan ? context->plan : &alone, context->diags);
}

const sn_pass sn_pass_distribute = {
    .name = "distribute",
    .summary = "gives every value a layout on the plan's mesh and inserts the collectives",
    .arguments = "dp=N: data parallelism over N ranks, where no plan is given",
    .forms = 1 << SN_FORM_GRAPH,
    .result = SN_FORM_DIST,
    .run = run,
};
