// Greedy, in program order: an op joins the groups of its producers when (a) it reads their members at its own point of
// the shared iteration space, (b) the phase is the same, so that nothing of the forward pass is kept for the backward
// pass that it would not keep anyway, and (c) no path leads out of the group and back. A reduction gives its group a
// domain with reduced segments; everything in it must then split into those segments.
//
// Transfers between pipeline stages keep their order: another stage may wait for what is sent before it sends what is
// received here, and a group with members on both sides would wait for itself.
#include "passes/schedule/group.h"

#include "passes/schedule/fuse.h"

enum {
    MAX_MEMBERS = 96,
    MAX_READS = 3 * SN_MAX_CONE, // what one op reads at most; with results, a GPU's 4 KB of parameters are not filled
    MAX_DEPS = 256,
    MAX_INLINE_COST = 24,
    MAX_INLINE_LEAVES = 3,
    MAX_MASK_COST = 12,
    MUCH_SMALLER = 8
};

bool sn_stays_outside(const sn_op *op) {
    return sn_op_class_of(op->kind) == SN_CLASS_OUTSIDE || sn_library_runs(op) || sn_restores_transposed(op);
}

static int resolve(const sn_grouping *g, int unit) {
    while (g->units[unit].merged_into >= 0) unit = g->units[unit].merged_into;
    return unit;
}

sn_unit *sn_unit_of(const sn_grouping *g, const sn_op *op) {
    int unit = g->unit_of[op->mark];
    return unit < 0 ? NULL : &g->units[resolve(g, unit)];
}

bool sn_is_inlined(const sn_grouping *g, const sn_op *op) {
    return g->unit_of[op->mark] < 0;
}

static bool has_bit(const uint64_t *set, int bit) {
    return set[bit / 64] >> (bit % 64) & 1;
}
static void set_bit(uint64_t *set, int bit) {
    set[bit / 64] |= UINT64_C(1) << (bit % 64);
}
static void clear_bit(uint64_t *set, int bit) {
    set[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
}

static void unite(const sn_grouping *g, uint64_t *set, const uint64_t *with) {
    for (int i = 0; i < g->words; i++) set[i] |= with[i];
}

// Units whose results `value` needs, through inlined ops.
typedef struct deps {
    int unit[MAX_DEPS];
    int n;
    bool overflow;
} deps;

static void add_deps(const sn_grouping *g, const sn_value *value, deps *d) {
    if (value->kind != SN_VALUE_RESULT) return;
    if (sn_is_inlined(g, value->def)) {
        for (int i = 0; i < value->def->n_operands; i++) add_deps(g, value->def->operands[i], d);
        return;
    }
    int unit = resolve(g, g->unit_of[value->def->mark]);
    for (int i = 0; i < d->n; i++)
        if (d->unit[i] == unit) return;
    if (d->n == MAX_DEPS)
        d->overflow = true;
    else
        d->unit[d->n++] = unit;
}

// Stored values outside `unit` that `value` is made from.
static int reads_of_value(const sn_grouping *g, int unit, const sn_value *value) {
    if (value->kind != SN_VALUE_RESULT) return 1;
    if (!sn_is_inlined(g, value->def)) return resolve(g, g->unit_of[value->def->mark]) != unit;
    int reads = 0;
    for (int i = 0; i < value->def->n_operands; i++) reads += reads_of_value(g, unit, value->def->operands[i]);
    return reads;
}

static int reads_of(const sn_grouping *g, int unit, const sn_op *op) {
    int reads = 0;
    for (int i = 0; i < op->n_operands; i++) reads += reads_of_value(g, unit, op->operands[i]);
    return reads;
}

// How an element of a value is addressed from the coordinates of the op that reads it (dims of `space`).
typedef struct access {
    sn_type space;
    bool flat;            // at the same row-major position
    int dim[SN_MAX_RANK]; // else, for each dim of the value, the dim of `space`; -1: index 0; -2: anything else
} access;

static access stretched(const access *of, sn_type result, sn_type operand) {
    access a = {.space = of->space, .flat = of->flat && sn_type_count(operand) == sn_type_count(result)};
    int skip = result.rank - operand.rank;
    for (int d = 0; d < operand.rank; d++) a.dim[d] = operand.dim[d] == 1 ? -1 : of->dim[skip + d];
    return a;
}

static access reshaped(const access *of, sn_type result, sn_type operand) {
    access a = {.space = of->space, .flat = of->flat};
    int at = 0;
    for (int d = 0; d < operand.rank; d++) {
        a.dim[d] = -1;
        if (operand.dim[d] == 1) continue;
        while (at < result.rank && result.dim[at] == 1) at++;
        a.dim[d] = at < result.rank && result.dim[at] == operand.dim[d] ? of->dim[at] : -2;
        at++;
    }
    return a;
}

static access transposed(const access *of, const sn_op *op) {
    access a = {.space = of->space};
    int rank;
    const int64_t *perm = sn_op_ints(op, "perm", &rank);
    for (int d = 0; d < rank; d++) a.dim[perm[d]] = of->dim[d];
    return a;
}

static access anywhere(const access *of) {
    access a = {.space = of->space};
    for (int d = 0; d < SN_MAX_RANK; d++) a.dim[d] = -2;
    return a;
}

// Whether the dims in the access are exactly those of `space` for which `wanted`, in order.
static bool covers(const access *a, sn_type value, const bool *wanted) {
    int at = 0;
    for (int d = 0; d < value.rank; d++) {
        if (a->dim[d] == -2) return false;
        if (a->dim[d] < 0) continue;
        while (at < a->space.rank && !wanted[at]) at++;
        if (at == a->space.rank || a->dim[d] != at++) return false;
    }
    while (at < a->space.rank && !wanted[at]) at++;
    return at == a->space.rank;
}

// Whether a member's value is read at the reader's point of the domain, or at its row.
static bool reads_in_place(const sn_domain *domain, const access *a, sn_type value) {
    int segment[SN_MAX_RANK];
    bool all[SN_MAX_RANK], kept[SN_MAX_RANK];
    bool full = sn_domain_fits_full(domain, a->space, segment);
    for (int d = 0; d < a->space.rank; d++) {
        all[d] = a->space.dim[d] != 1;
        kept[d] = all[d] && full && !domain->reduced[segment[d]];
    }
    if ((a->flat && sn_type_count(value) == sn_type_count(a->space)) || covers(a, value, all)) return true;
    return full && sn_domain_has_reduced(domain) && covers(a, value, kept);
}

typedef enum touch { TOUCH_NONE, TOUCH_FINE, TOUCH_BAD } touch;

static touch worse(touch a, touch b) {
    return a > b ? a : b;
}

// How the reader of `value` meets members of unit `unit`, whose domain would be `domain`.
static touch touches(const sn_grouping *g, int unit, const sn_domain *domain, const sn_value *value, const access *a) {
    if (value->kind != SN_VALUE_RESULT) return TOUCH_NONE;
    const sn_op *op = value->def;
    if (!sn_is_inlined(g, op)) {
        if (resolve(g, g->unit_of[op->mark]) != unit) return TOUCH_NONE;
        return reads_in_place(domain, a, value->type) ? TOUCH_FINE : TOUCH_BAD;
    }
    touch worst = TOUCH_NONE;
    for (int i = 0; i < op->n_operands; i++) {
        sn_type operand = op->operands[i]->type;
        access next;
        if (op->kind == SN_OP_RESHAPE)
            next = reshaped(a, value->type, operand);
        else if (op->kind == SN_OP_TRANSPOSE)
            next = transposed(a, op);
        else if (op->kind == SN_OP_BROADCAST || sn_op_has(op->kind, SN_TRAIT_POINTWISE))
            next = stretched(a, value->type, operand);
        else if (op->kind == SN_OP_GATHER_ELEMENTS && i == 1)
            next = *a;
        else
            next = anywhere(a);
        worst = worse(worst, touches(g, unit, domain, op->operands[i], &next));
    }
    return worst;
}

static touch op_touches(const sn_grouping *g, int unit, const sn_domain *domain, const sn_op *op) {
    bool reduction = sn_op_class_of(op->kind) == SN_CLASS_REDUCTION;
    access own = {.space = reduction ? op->operands[0]->type : op->results[0]->type, .flat = true};
    for (int d = 0; d < own.space.rank; d++) own.dim[d] = own.space.dim[d] == 1 ? -1 : d;
    touch worst = TOUCH_NONE;
    for (int i = 0; i < op->n_operands; i++) {
        access a = reduction ? own : stretched(&own, own.space, op->operands[i]->type);
        worst = worse(worst, touches(g, unit, domain, op->operands[i], &a));
    }
    return worst;
}

static bool member_fits(const sn_domain *domain, const sn_op *op) {
    if (sn_op_class_of(op->kind) == SN_CLASS_REDUCTION) {
        sn_domain own = sn_domain_of_reduction(op);
        return sn_domain_equal(&own, domain);
    }
    int segment[SN_MAX_RANK];
    sn_type type = op->results[0]->type;
    if (sn_domain_fits_full(domain, type, segment)) return true;
    return sn_domain_has_reduced(domain) && sn_domain_fits_row(domain, type, segment);
}

static bool unit_fits(const sn_unit *unit, const sn_domain *domain) {
    if (sn_domain_has_reduced(&unit->domain)) return sn_domain_equal(&unit->domain, domain);
    for (size_t i = 0; i < unit->members.count; i++)
        if (!member_fits(domain, unit->members.data[i])) return false;
    return true;
}

// The domain that `unit` has once `op` is in it; false when they do not go together.
static bool joint_domain(const sn_unit *unit, const sn_op *op, sn_domain *out) {
    if (sn_op_class_of(op->kind) == SN_CLASS_REDUCTION) {
        *out = sn_domain_of_reduction(op);
        return sn_domain_has_reduced(out) && unit_fits(unit, out);
    }
    *out = unit->domain;
    return member_fits(out, op);
}

static bool may_join(const sn_grouping *g, int unit, const sn_op *op, const deps *d, sn_domain *domain) {
    const sn_unit *u = &g->units[unit];
    if (u->outside || u->closed || u->phase != op->phase || u->members.count >= MAX_MEMBERS) return false;
    if (u->reads + reads_of(g, unit, op) > MAX_READS) return false;
    if (!joint_domain(u, op, domain) || op_touches(g, unit, domain, op) == TOUCH_BAD) return false;
    for (int i = 0; i < d->n; i++)
        if (d->unit[i] != unit && has_bit(g->units[d->unit[i]].ancestors, unit)) return false;
    return true;
}

static void pass_on_ancestors(sn_grouping *g, int unit) {
    for (int v = 0; v < g->n_units; v++)
        if (v != unit && has_bit(g->units[v].ancestors, unit))
            unite(g, g->units[v].ancestors, g->units[unit].ancestors);
}

static void join(sn_grouping *g, int unit, sn_op *op, const deps *d) {
    sn_unit *u = &g->units[unit];
    u->reads += reads_of(g, unit, op);
    sn_vec_push(&u->members, op);
    g->unit_of[op->mark] = unit;
    for (int i = 0; i < d->n; i++) {
        if (d->unit[i] == unit) continue;
        set_bit(u->ancestors, d->unit[i]);
        unite(g, u->ancestors, g->units[d->unit[i]].ancestors);
    }
    pass_on_ancestors(g, unit);
}

// Makes one unit of two, unless a path leads from one to the other through a third.
static bool merge(sn_grouping *g, int into, int from) {
    sn_unit *a = &g->units[into], *b = &g->units[from];
    const sn_domain *domain = sn_domain_has_reduced(&b->domain) ? &b->domain : &a->domain;
    if (b->outside || b->closed || a->phase != b->phase || a->members.count + b->members.count > MAX_MEMBERS ||
        a->reads + b->reads > MAX_READS || !unit_fits(a, domain) || !unit_fits(b, domain))
        return false;
    for (int v = 0; v < g->n_units; v++) {
        if (v == into || v == from || g->units[v].merged_into >= 0) continue;
        const uint64_t *of = g->units[v].ancestors;
        if ((has_bit(of, into) && has_bit(b->ancestors, v)) || (has_bit(of, from) && has_bit(a->ancestors, v)))
            return false;
    }
    a->domain = *domain;
    for (size_t i = 0; i < b->members.count; i++) sn_vec_push(&a->members, b->members.data[i]);
    a->reads += b->reads;
    unite(g, a->ancestors, b->ancestors);
    clear_bit(a->ancestors, into);
    clear_bit(a->ancestors, from);
    b->merged_into = into;
    for (int v = 0; v < g->n_units; v++)
        if (has_bit(g->units[v].ancestors, from)) set_bit(g->units[v].ancestors, into);
    pass_on_ancestors(g, into);
    return true;
}

static int new_unit(sn_grouping *g, sn_op *op, const deps *d) {
    sn_unit *u = &g->units[g->n_units];
    *u = (sn_unit){.phase = op->phase, .merged_into = -1};
    u->ancestors = SN_NEW_N(g->arena, uint64_t, g->words);
    join(g, g->n_units, op, d);
    return g->n_units++;
}

// A unit with reduced segments that reads a stored value which `op`, a reduction over the same domain, reads too: both
// passes over the value become one.
static int sibling(const sn_grouping *g, const sn_op *op, const deps *d, sn_domain *domain) {
    const sn_value *source = op->operands[0];
    while (source->kind == SN_VALUE_RESULT && source->def->n_operands && sn_is_inlined(g, source->def))
        source = source->def->operands[0];
    for (size_t i = 0; i < source->uses.count; i++) {
        const sn_op *user = source->uses.data[i].op;
        if (user->func != g->func || user->mark >= op->mark || sn_is_inlined(g, user)) continue;
        int unit = resolve(g, g->unit_of[user->mark]);
        if (g->units[unit].outside || has_bit(g->units[unit].ancestors, g->n_units)) continue;
        bool cyclic = false;
        for (int j = 0; j < d->n; j++) cyclic |= d->unit[j] == unit;
        if (!cyclic && sn_domain_count(&g->units[unit].domain, false) > 0 && may_join(g, unit, op, d, domain))
            return unit;
    }
    return -1;
}

// The unit of a scatter that nobody but `op`, an addition of its own shape, reads: the sum is scattered into the other
// operand.
static int scatter_to_add(const sn_grouping *g, const sn_op *op, const deps *d) {
    if (op->kind != SN_OP_ADD) return -1;
    for (int i = 0; i < 2; i++) {
        const sn_value *value = op->operands[i], *other = op->operands[1 - i];
        if (value->kind != SN_VALUE_RESULT || value->def->kind != SN_OP_GATHER_GRAD || value->uses.count != 1) continue;
        if (!sn_type_equal(value->type, op->results[0]->type) || !sn_type_equal(other->type, value->type)) continue;
        int unit = resolve(g, g->unit_of[value->def->mark]);
        bool cyclic = g->units[unit].phase != op->phase;
        for (int j = 0; j < d->n; j++) cyclic |= d->unit[j] != unit && has_bit(g->units[d->unit[j]].ancestors, unit);
        if (!cyclic) return unit;
    }
    return -1;
}

static void place(sn_grouping *g, sn_op *op) {
    deps d = {.n = 0};
    for (int i = 0; i < op->n_operands; i++) add_deps(g, op->operands[i], &d);
    if (sn_op_has(op->kind, SN_TRAIT_TRANSFER)) {
        if (g->transfer >= 0 && d.n < MAX_DEPS) d.unit[d.n++] = g->transfer;
        g->transfer = g->n_units; // a unit of its own
    }
    sn_op_class class = sn_op_class_of(op->kind);
    int home = -1;
    sn_domain domain;
    int scatter = scatter_to_add(g, op, &d);
    if (scatter >= 0) {
        join(g, scatter, op, &d);
        return;
    }
    bool grouped = (class == SN_CLASS_POINTWISE || class == SN_CLASS_REDUCTION) && !d.overflow;
    for (int i = d.n - 1; grouped && home < 0 && i >= 0; i--)
        if (may_join(g, d.unit[i], op, &d, &domain)) home = d.unit[i];
    if (grouped && home < 0 && class == SN_CLASS_REDUCTION) home = sibling(g, op, &d, &domain);
    if (home < 0) {
        home = new_unit(g, op, &d);
        sn_unit *u = &g->units[home];
        u->outside = sn_stays_outside(op);
        u->closed = !grouped;
        sn_type type = op->n_results ? op->results[0]->type : op->operands[op->n_operands - 1]->type; // an assign
        u->domain = class == SN_CLASS_REDUCTION ? sn_domain_of_reduction(op) : sn_domain_of_type(type);
        return;
    }
    join(g, home, op, &d);
    g->units[home].domain = domain;
    for (int i = 0; i < d.n; i++) {
        int other = resolve(g, d.unit[i]);
        if (other == home || op_touches(g, other, &domain, op) == TOUCH_BAD) continue;
        merge(g, home, other);
    }
}

// Inlined ops and leaves below a scalar, to keep what consumers compute again small.
static void cone(const sn_grouping *g, const sn_value *value, int *ops, int *leaves) {
    bool inlined = value->kind == SN_VALUE_RESULT && sn_is_inlined(g, value->def);
    if (!inlined || *ops > MAX_INLINE_COST) {
        ++*leaves;
        return;
    }
    ++*ops;
    for (int i = 0; i < value->def->n_operands; i++) cone(g, value->def->operands[i], ops, leaves);
}

// Whether an inlined value of about `count` elements reads no stored value of that size.
static bool is_made_of_less(const sn_grouping *g, const sn_value *value, int64_t count) {
    if (value->kind != SN_VALUE_RESULT || !sn_is_inlined(g, value->def))
        return sn_type_count(value->type) <= count / MUCH_SMALLER;
    for (int i = 0; i < value->def->n_operands; i++)
        if (!is_made_of_less(g, value->def->operands[i], count)) return false;
    return true;
}

// Whether an outside op or the function's caller reads the value, perhaps as a view.
static bool is_read_outside(const sn_grouping *g, const sn_value *value) {
    for (size_t i = 0; i < value->uses.count; i++) {
        const sn_op *user = value->uses.data[i].op;
        if (sn_stays_outside(user)) return true;
        if (sn_op_class_of(user->kind) == SN_CLASS_INDEX && is_read_outside(g, user->results[0])) return true;
    }
    for (size_t i = 0; i < g->func->results.count; i++)
        if (g->func->results.data[i] == value) return true;
    return false;
}

// Scalars, and what cheap arithmetic makes of generators and much smaller values (masks, one-hot rows): reading them
// back would cost more than making them again.
static bool computed_again(const sn_grouping *g, const sn_op *op) {
    sn_op_class class = sn_op_class_of(op->kind);
    if (class == SN_CLASS_INDEX) return !sn_stays_outside(op);
    if (class != SN_CLASS_POINTWISE || op->kind == SN_OP_COPY || is_read_outside(g, op->results[0])) return false;
    int64_t count = sn_type_count(op->results[0]->type);
    if (count != 1 && sn_op_is_expensive(op->kind)) return false;
    int ops = 1, leaves = 0;
    for (int i = 0; i < op->n_operands; i++) {
        const sn_value *operand = op->operands[i];
        bool inlined = operand->kind == SN_VALUE_RESULT && sn_is_inlined(g, operand->def);
        if (count != 1 && !inlined && sn_type_count(operand->type) > count / MUCH_SMALLER) return false;
        if (count != 1 && inlined && !is_made_of_less(g, operand, count)) return false;
        cone(g, operand, &ops, &leaves);
    }
    return ops <= (count == 1 ? MAX_INLINE_COST : MAX_MASK_COST) && leaves <= MAX_INLINE_LEAVES;
}

void sn_group_ops(sn_func *func, sn_arena *arena, sn_grouping *out) {
    int n = (int)func->n_ops;
    *out = (sn_grouping){.func = func, .arena = arena, .words = n / 64 + 1, .transfer = -1};
    out->units = SN_NEW_N(arena, sn_unit, n + 1);
    out->unit_of = SN_NEW_N(arena, int, n + 1);
    uint32_t mark = 0;
    SN_FOR_OPS(op, func) op->mark = mark++;
    for (int i = 0; i < n; i++) out->unit_of[i] = -1;
    SN_FOR_OPS(op, func) if (!computed_again(out, op)) place(out, op);
}
