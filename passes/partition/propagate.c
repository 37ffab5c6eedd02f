// One op at a time. Each mesh axis may cut one factor of the op: one that an operand is cut along already, or that the
// wanted layout of the result asks for. Taken is the one that sends the fewest bytes: moves of operands, plus the sum
// of a result that it leaves partial.
#include "base/alloc.h"
#include "ir/build.h"

#include "passes/partition/distributor.h"
#include <string.h>

// A weight that would have to be joined for a use is joined again in the backward pass, and its gradient is cut or
// summed: rather than that, activations move.
static const double weight_penalty = 8;
// Between choices that send the same, the one that leaves less to hold; and work that all ranks do is not free: a
// device does about this much arithmetic in the time in which a link moves a byte.
static const double local_share = 1e-3, work_of_byte = 1000;

typedef struct query {
    sn_distributor *d;
    sn_op *op;
    sn_factors factors;
    const sn_layout *target; // of the first result, or NULL
    sn_layout *now;          // of the operands
    sn_cuts cuts;
} query;

static bool is_zero(const sn_value *value) {
    double number;
    return sn_value_number(value, &number) && number == 0;
}

// Whether an operand may become a partial sum, or one over more axes, by zeros on all ranks but the first: few numbers
// side by side, partial over different axes (sums of squares of differently cut gradients), so that one sum does for
// all; a bias that is added to a partial sum, which then travels on to where it may be scattered; and an addend that is
// summed anyway (gradients through keys that some ranks share and through queries that they do not).
static bool may_pad(const sn_op *op, int operand, sn_layout now) {
    enum { FEW = 1 << 16, SMALL = 16 };
    int64_t bytes = sn_type_bytes(op->operands[operand]->type), whole = sn_type_bytes(op->results[0]->type);
    if (now.partial && now.partial_kind != SN_PARTIAL_SUM) return false;
    return (op->kind == SN_OP_CONCAT && whole <= FEW) ||
           (op->kind == SN_OP_ADD && (bytes * SMALL <= whole || now.partial));
}

// The axes over which the results may stay partial sums because the op is linear: of the operands that are partial,
// one (SN_LINEAR), or all data operands alike (SN_ADDITIVE; a zero is a sum of zeros).
static sn_axes linear_axes(const query *q) {
    sn_axes additive = 0xff, linear = 0, any = 0;
    bool has_additive = false;
    for (int i = 0; i < q->op->n_operands; i++) {
        const sn_layout *layout = &q->now[i];
        sn_axes partial = layout->partial_kind == SN_PARTIAL_SUM ? layout->partial : 0;
        switch (sn_op_linearity(q->op, i)) {
        case SN_ADDITIVE:
            if (is_zero(q->op->operands[i])) break;
            has_additive = true;
            additive &= may_pad(q->op, i, *layout) ? 0xff : partial;
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

// A sum passes where that makes it smaller, however often its operand is read: the operand is summed once for all who
// do not let it pass, and where one has, that is free for the rest.
static bool is_worth_passing(const query *q, sn_axes axes) {
    int64_t results = 0, operands = 0;
    for (int i = 0; i < q->op->n_results; i++) results += sn_type_bytes(q->op->results[i]->type);
    for (int i = 0; i < q->op->n_operands; i++) {
        const sn_value *value = q->op->operands[i];
        sn_layout summed = q->now[i];
        if (!(summed.partial & axes)) continue;
        summed.partial &= (sn_axes)~axes;
        if (sn_distribute_move_bytes(q->d, q->op, value, q->now[i], summed) == 0) return false;
        operands += sn_type_bytes(value->type) / (int64_t)value->uses.count;
    }
    return results <= operands;
}

// What micro-batches add up to is summed over ranks once, after the last of them; a gradient of another type is
// converted on its way there.
static bool leads_to_accumulation(const sn_op *op) {
    if (sn_is_accumulation(op)) return true;
    return op->kind == SN_OP_CAST && op->results[0]->uses.count == 1 &&
           sn_is_accumulation(op->results[0]->uses.data[0].op);
}

// Of those, the axes that pass through the op: not those that cut it, and not where the result is larger.
static sn_axes passing_axes(const query *q) {
    sn_axes passing = linear_axes(q) & (sn_axes)~sn_cuts_axes(&q->cuts);
    for (int a = 0; a < q->d->mesh->n_axes; a++) {
        int f = q->cuts.axis[a].factor;
        sn_factor_kind kind = f >= 0 ? q->factors.factor[f].kind : SN_FACTOR_PARALLEL;
        if (kind == SN_FACTOR_MAX || kind == SN_FACTOR_MIN) return 0;
    }
    if (leads_to_accumulation(q->op)) return passing; // of a layout that says so
    bool few = q->op->kind == SN_OP_CONCAT && q->op->n_operands && may_pad(q->op, 0, (sn_layout){0});
    return !passing || few || is_worth_passing(q, passing) ? passing : 0;
}

static sn_layout operand_layout(const query *q, int i, sn_axes passing) {
    sn_layout layout = sn_cuts_layout(&q->cuts, q->factors.operand[i], q->op->operands[i]->type.rank);
    if (sn_op_linearity(q->op, i) == SN_NOT_LINEAR || q->now[i].partial_kind != SN_PARTIAL_SUM) return layout;
    layout.partial = q->now[i].partial & passing;
    return layout;
}

static sn_layout result_layout(const query *q, int i, sn_axes passing) {
    int rank = q->op->results[i]->type.rank;
    sn_layout layout = sn_cuts_layout(&q->cuts, q->factors.result[i], rank);
    layout.partial = passing;
    layout.partial |= sn_cuts_partial(&q->cuts, q->factors.result[i], rank, &layout.partial_kind);
    return layout;
}

static double local_bytes(const query *q, const sn_value *value, sn_layout layout) {
    return (double)sn_type_bytes(value->type) / (double)sn_mesh_size(q->d->mesh, sn_layout_axes(layout));
}

// Axes that cut the data cut all that follows from it, whether a target speaks of them or not: what it says is of a
// rank's part of the batch. Inside of that, in nested blocks, or beside it.
static sn_layout keep_data_axes(const sn_mesh *mesh, sn_layout target, sn_layout result, sn_type type) {
    static const char *const names[] = {"dp", "cp", "ep"};
    for (int i = 0; i < 3; i++) {
        int64_t outers[SN_MAX_AXES];
        int axis = sn_mesh_axis(mesh, names[i]), dim = axis < 0 ? -1 : sn_layout_dim_of(result, axis);
        if (dim < 0 || sn_layout_dim_of(target, axis) >= 0) continue;
        sn_layout_outers(mesh, result, dim, outers);
        sn_layout nested = target, beside = target;
        nested.dim[dim] |= (sn_axes)(1 << axis);
        sn_layout_add(mesh, &beside, dim, axis, outers[axis]);
        bool blocks = !result.outer[axis]; // of all axes that would then cut the dim
        for (int a = 0; a < mesh->n_axes; a++) blocks &= !(target.dim[dim] >> a & 1) || !target.outer[a];
        if (blocks && sn_layout_divides(mesh, nested, dim, type.dim[dim]))
            target = nested;
        else if (sn_layout_divides(mesh, beside, dim, type.dim[dim]))
            target = beside;
    }
    return target;
}

// The target of an activation, or of a gradient, with what it leaves partial of a result.
static sn_layout target_of(const query *q, sn_layout result) {
    const sn_value *value = q->op->results[0];
    sn_layout target = *q->target;
    if (value->def->phase == SN_PHASE_FORWARD) target = keep_data_axes(q->d->mesh, target, result, value->type);
    target.partial &= result.partial & (sn_axes)~sn_layout_axes(target);
    target.partial_kind = result.partial_kind;
    return target;
}

// Multiplications and additions of a contraction on one rank: the points of its iteration space.
static double local_work(const query *q) {
    if (!sn_op_has(q->op->kind, SN_TRAIT_LIBRARY)) return 0;
    double points = 2;
    for (int f = 0; f < q->factors.n; f++) points *= (double)q->factors.factor[f].size;
    return points / (double)sn_mesh_size(q->d->mesh, sn_cuts_axes(&q->cuts));
}

static const sn_op *only_addition(const sn_value *value) {
    if (value->kind != SN_VALUE_RESULT || value->uses.count != 1) return NULL;
    const sn_op *user = value->uses.data[0].op;
    return user->kind == SN_OP_ADD && user->phase == value->def->phase ? user : NULL;
}

static int count_addends(const sn_value *value) {
    if (value->kind != SN_VALUE_RESULT || value->def->kind != SN_OP_ADD) return 1;
    int n = 0;
    for (int i = 0; i < 2; i++)
        n += only_addition(value->def->operands[i]) ? count_addends(value->def->operands[i]) : 1;
    return n;
}

// Values that are added up are summed over ranks once, together: gradients of what queries, keys and values are made
// of.
static double sum_share(const sn_value *value) {
    const sn_op *addition = only_addition(value), *last = addition;
    while (addition) last = addition, addition = only_addition(addition->results[0]);
    return last ? 1.0 / count_addends(last->results[0]) : 1;
}

static double cost_of(const query *q) {
    sn_axes passing = passing_axes(q);
    double bytes = local_work(q) / work_of_byte;
    for (int i = 0; i < q->op->n_operands; i++) {
        const sn_value *value = q->op->operands[i];
        sn_layout wanted = operand_layout(q, i, passing);
        double moved = sn_distribute_move_bytes(q->d, q->op, value, q->now[i], wanted);
        bytes += value->kind == SN_VALUE_GLOBAL ? weight_penalty * moved : moved;
        bytes += local_share * local_bytes(q, value, wanted);
    }
    for (int i = 0; i < q->op->n_results; i++) {
        const sn_value *value = q->op->results[i];
        sn_layout layout = result_layout(q, i, passing), summed = layout;
        summed.partial = 0;
        if (i == 0 && q->target) summed = target_of(q, layout);
        double share = layout.partial ? sum_share(value) : 1;
        bytes += share * sn_relayout_bytes(q->d->mesh, value->type, layout, summed);
        bytes += local_share * local_bytes(q, value, layout);
    }
    return bytes;
}

static void try_cut(query *q, int axis, sn_factor_cut cut, sn_factor_cut *best, double *least) {
    if (cut.factor >= 0 && !sn_cut_is_legal(&q->cuts, axis, cut)) return;
    sn_factor_cut before = q->cuts.axis[axis];
    q->cuts.axis[axis] = cut;
    double cost = cost_of(q);
    q->cuts.axis[axis] = before;
    if (*least >= 0 && cost >= *least) return;
    *least = cost;
    *best = cut;
}

// Where `ep` finds experts, tokens move to them or the experts' parts of all tokens are summed, by cost.
static bool cuts_data(const sn_mesh *mesh, int axis, int n_choices) {
    const char *name = mesh->name[axis];
    return strcmp(name, "dp") == 0 || strcmp(name, "cp") == 0 || (strcmp(name, "ep") == 0 && n_choices == 1);
}

// The indices of a max_pool count the elements of a rank's part: they stay where they were made, and who reads them is
// cut as they are. Read as anything but that, they must count the whole.
static const sn_value *pinned_by(const sn_op *op, int *operand) {
    for (*operand = 0; *operand < op->n_operands; ++*operand) {
        const sn_value *value = op->operands[*operand];
        bool indices = value->kind == SN_VALUE_RESULT && value->def->kind == SN_OP_MAX_POOL && value->index == 1;
        if (op->kind == SN_OP_MAX_POOL_GRAD && indices) return value;
    }
    return NULL;
}

static bool counts_the_whole(const sn_op *op) {
    if (op->kind != SN_OP_MAX_POOL) return false;
    const sn_value *indices = op->results[1];
    for (size_t i = 0; i < indices->uses.count; i++)
        if (indices->uses.data[i].op->kind != SN_OP_MAX_POOL_GRAD) return true;
    return indices->uses.count == 0 && sn_value_is_used(indices); // a result of the function
}

// Whether the plan speaks of the value and an axis for weights does not cut it where it is made.
static bool is_planned_whole(const sn_distributor *d, const sn_value *value, int axis) {
    bool planned = value->kind == SN_VALUE_RESULT && sn_target_of(d, value->def);
    return planned && sn_mesh_is_tensor_axis(d->mesh, axis) && sn_layout_dim_of(value->layout, axis) < 0;
}

// A gradient that arrives as a sum which the op cannot pass on is needed no more than as its value is cut: a part of
// the sum is less than all of it. One that arrives cut where its value was made whole is joined, as the plan counts
// on: what later ops made of the parts would have to be joined more often.
static sn_layout wanted_of_gradient(const query *q, int operand, int axis) {
    const sn_layout *now = &q->now[operand];
    bool sum = now->partial >> axis & 1 && now->partial_kind == SN_PARTIAL_SUM && !(passing_axes(q) >> axis & 1);
    if (!sum && sn_layout_dim_of(*now, axis) < 0) return *now;
    const sn_value *value = sn_value_of_gradient(q->d, q->op, operand);
    if (value && sum) return value->layout;
    return value && is_planned_whole(q->d, value, axis) ? (sn_layout){0} : *now;
}

// A weight's gradient had better be made as its accumulator is cut.
static const sn_layout *layout_of_accumulator(const sn_op *op) {
    for (int casts = 0; casts < 2 && op->n_results == 1 && op->results[0]->uses.count == 1; casts++) {
        const sn_op *user = op->results[0]->uses.data[0].op;
        if (sn_is_accumulation(user)) return &user->operands[0]->layout;
        if (user->kind != SN_OP_CAST) return NULL;
        op = user;
    }
    return NULL;
}

static void choose_cut(query *q, int axis) {
    int pin;
    const sn_value *pinned = pinned_by(q->op, &pin);
    if (pinned && sn_layout_dim_of(q->now[pin], axis) >= 0) {
        int dim = sn_layout_dim_of(q->now[pin], axis);
        q->cuts.axis[axis] = sn_cut_of_dim(&q->cuts, q->now[pin], dim, &q->factors.operand[pin][dim], axis);
    }
    if (pinned || counts_the_whole(q->op)) return;
    sn_factor_cut best = {.factor = -1}, tried[SN_MAX_FACTORS];
    double least = -1;
    int n = 0;
    const sn_op *op = q->op;
    bool data = cuts_data(q->d->mesh, axis, 1);
    const sn_layout *wish = q->target || data ? q->target : layout_of_accumulator(op);
    for (int i = 0; i <= op->n_operands; i++) {
        bool result = i == op->n_operands; // the target asks for a cut as an operand does
        if (result && !wish) break;
        sn_layout layout = result ? *wish : wanted_of_gradient(q, i, axis);
        int dim = sn_layout_dim_of(layout, axis);
        if (dim < 0) continue;
        const sn_dim_factors *dims = result ? q->factors.result[0] : q->factors.operand[i];
        sn_factor_cut cut = sn_cut_of_dim(&q->cuts, layout, dim, &dims[dim], axis);
        bool known = cut.factor < 0;
        for (int k = 0; k < n && !known; k++) known = tried[k].factor == cut.factor && tried[k].outer == cut.outer;
        if (known) continue;
        if (n < SN_MAX_FACTORS) tried[n++] = cut;
        try_cut(q, axis, cut, &best, &least);
    }
    if (n == 0) return;
    // data that is cut stays so wherever it can, and so do the rows of tables: that is what their axes are there for
    bool stays = best.factor >= 0 && (cuts_data(q->d->mesh, axis, n) || q->factors.factor[best.factor].masked);
    if (!stays) try_cut(q, axis, (sn_factor_cut){.factor = -1}, &best, &least);
    q->cuts.axis[axis] = best;
}

// A weight that is stored cut over dp is joined for the op (ZeRO-3).
static void join_weights(query *q) {
    for (int i = 0; i < q->op->n_operands; i++) {
        sn_value *value = q->op->operands[i];
        sn_layout used = sn_layout_in_use(q->d, q->op, value);
        q->now[i] = used;
        if (sn_layout_equal(used, value->layout)) continue;
        sn_value *joined = sn_distribute_move(q->d, q->op->func, q->op, value, value->layout, used);
        if (!q->d->trial) sn_op_set_operand(q->op, i, joined);
    }
}

// A result in another layout, for all that reads it.
static void move_result(const query *q, int index, sn_layout target) {
    sn_distributor *d = q->d;
    sn_op *op = q->op;
    sn_value *value = op->results[index];
    if (sn_layout_equal(value->layout, target)) return;
    if (d->trial) {
        sn_distribute_move(d, op->func, op, value, value->layout, target);
        value->layout = target;
        return;
    }
    size_t n = value->uses.count;
    sn_use *uses = sn_arena_copy(&d->scratch, value->uses.data, n * sizeof *uses);
    sn_op *next = op->next ? op->next : NULL;
    sn_phase phase = next ? next->phase : op->phase;
    if (next) next->phase = op->phase; // the move belongs to the op, not to what follows it
    sn_value *moved = sn_distribute_move(d, op->func, next, value, value->layout, target);
    if (next) next->phase = phase;
    for (size_t i = 0; i < n; i++) sn_op_set_operand(uses[i].op, uses[i].index, moved);
    for (size_t i = 0; i < op->func->results.count; i++)
        if (op->func->results.data[i] == value) op->func->results.data[i] = moved;
}

// Keys and values that were cut (along the sequence) are joined for attention: their gradients, of which each rank has
// a sum's part, are scattered as they were cut.
static void scatter_gradients(const query *q) {
    const sn_mesh *mesh = q->d->mesh;
    for (int i = 1; i < 3; i++) {
        sn_layout layout = q->op->results[i]->layout, cut = layout;
        for (int a = 0; a < mesh->n_axes; a++) {
            int64_t outers[SN_MAX_AXES];
            int dim = sn_layout_dim_of(q->now[i], a);
            if (dim < 0 || !(layout.partial >> a & 1)) continue;
            sn_layout_outers(mesh, q->now[i], dim, outers);
            cut.partial &= (sn_axes) ~(1 << a);
            sn_layout_add(mesh, &cut, dim, a, outers[a]);
            if (!sn_layout_divides(mesh, cut, dim, q->op->results[i]->type.dim[dim])) cut = layout;
        }
        move_result(q, i, cut);
    }
}

static sn_value *placed(sn_op *op, sn_layout layout) {
    op->mark = (uint32_t)SN_MARK_PLACED;
    op->results[0]->layout = layout;
    return op->results[0];
}

static sn_value *is_first(sn_distributor *d, sn_builder *b, int axis) {
    if (d->is_first[axis]) return d->is_first[axis];
    sn_attr attr = sn_attr_string("axes", d->mesh->name[axis]);
    sn_type scalar = sn_type_scalar(SN_I64);
    sn_layout whole = {0};
    sn_value *place = placed(sn_build(b, SN_OP_AXIS_INDEX, 0, NULL, 1, &attr, &scalar), whole);
    sn_value *zero = placed(sn_build_number_like(b, place, 0)->def, whole);
    return d->is_first[axis] = placed(sn_build_binary(b, SN_OP_EQUAL, place, zero)->def, whole);
}

// What all ranks hold as a sum over axes: the first rank's, and zeros.
static sn_value *pad_partial(sn_distributor *d, sn_op *user, sn_value *value, sn_axes axes) {
    sn_builder b = {.func = user->func, .before = user, .phase = user->phase};
    b.origin = sn_origin_new(d->module, "distribute", user->origin);
    for (int a = 0; a < d->mesh->n_axes; a++) {
        if (!(axes >> a & 1)) continue;
        sn_layout layout = value->layout;
        layout.partial |= (sn_axes)(1 << a);
        sn_value *zero = placed(sn_build_number_like(&b, value, 0)->def, (sn_layout){0});
        value = placed(sn_build_where(&b, is_first(d, &b, a), value, zero)->def, layout);
    }
    return value;
}

void sn_distribute_op(sn_distributor *d, sn_op *op) {
    query q = {.d = d, .op = op, .target = sn_target_of(d, op)};
    q.now = sn_arena_alloc(&d->scratch, sizeof *q.now * (size_t)(op->n_operands + 1));
    join_weights(&q);
    if (sn_is_accumulation(op)) {
        op->operands[0]->layout = q.now[0] = sn_accumulator_layout(op);
        q.target = &q.now[0];
    }
    sn_factors_of(op, &d->scratch, &q.factors);
    q.cuts = sn_cuts_none(d->mesh, &q.factors);
    for (int axis = 0; axis < d->mesh->n_axes; axis++)
        if (d->mesh->size[axis] > 1) choose_cut(&q, axis);
    sn_axes passing = passing_axes(&q);
    for (int i = 0; i < op->n_operands; i++) {
        sn_layout wanted = operand_layout(&q, i, passing);
        sn_value *moved = sn_distribute_move(d, op->func, op, op->operands[i], q.now[i], wanted);
        if (may_pad(op, i, q.now[i]) && !d->trial)
            moved = pad_partial(d, op, moved, passing & (sn_axes)~wanted.partial);
        if (!d->trial) sn_op_set_operand(op, i, moved);
        d->touched += local_bytes(&q, op->operands[i], wanted);
        if (d->trial && q.now[i].partial & ~wanted.partial) sn_vec_push(&d->sums, (const sn_op *)op);
    }
    for (int i = 0; i < op->n_results; i++) {
        op->results[i]->layout = result_layout(&q, i, passing);
        d->touched += local_bytes(&q, op->results[i], op->results[i]->layout);
    }
    if (q.target) move_result(&q, 0, target_of(&q, op->results[0]->layout));
    if (op->kind == SN_OP_ATTENTION_GRAD) scatter_gradients(&q);
}
