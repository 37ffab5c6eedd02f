#include "backend/lower/rules.h"

void sn_rule_reshape(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_kir_node *flat = sn_lower_flat(l, op->results[0]->type, point);
    sn_point at = sn_lower_unflat(l, op->operands[0]->type, flat);
    out[0] = sn_lower_element(l, op->operands[0], &at);
}

void sn_rule_transpose(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    int rank;
    const int64_t *perm = sn_op_ints(op, "perm", &rank);
    sn_point at = {0};
    for (int i = 0; i < rank; i++) at.at[perm[i]] = point->at[i];
    out[0] = sn_lower_element(l, op->operands[0], &at);
}

void sn_rule_broadcast(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    out[0] = sn_lower_broadcast_element(l, op->operands[0], op->results[0]->type, point);
}

void sn_rule_slice(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    int rank;
    const int64_t *starts = sn_op_ints(op, "starts", &rank), *steps = sn_op_ints(op, "steps", NULL);
    sn_point at = {0};
    for (int i = 0; i < rank; i++) at.at[i] = sn_kir_addi(l->k, sn_kir_muli(l->k, point->at[i], steps[i]), starts[i]);
    out[0] = sn_lower_element(l, op->operands[0], &at);
}

// condition && low <= at < high, leaving out what the range of `at` already says; NULL stands for true.
static sn_kir_node *within(sn_lower *l, sn_kir_node *condition, sn_kir_node *at, int64_t low, int64_t high) {
    sn_kir *k = l->k;
    sn_kir_node *tests[2] = {at->min < low ? sn_kir_ge(k, at, sn_kir_index(k, low)) : NULL,
                             at->max >= high ? sn_kir_lt(k, at, sn_kir_index(k, high)) : NULL};
    for (int i = 0; i < 2; i++)
        if (tests[i]) condition = condition ? sn_kir_and(k, condition, tests[i]) : tests[i];
    return condition;
}

void sn_rule_pad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_type type = op->operands[0]->type;
    const int64_t *low = sn_op_ints(op, "low", NULL);
    sn_kir_node *inside = NULL;
    sn_point at = {0};
    for (int i = 0; i < type.rank; i++) {
        at.at[i] = sn_kir_addi(l->k, point->at[i], -low[i]);
        inside = within(l, inside, at.at[i], 0, type.dim[i]);
    }
    if (!inside) {
        out[0] = sn_lower_element(l, op->operands[0], &at);
        return;
    }
    sn_kir_node *outer = sn_lower_guard(l, inside);
    sn_kir_node *x = sn_lower_element(l, op->operands[0], &at);
    sn_lower_unguard(l, outer);
    out[0] = sn_kir_select(l->k, inside, x, sn_kir_number(l->k, type.dtype, sn_op_float(op, "value")));
}

void sn_rule_concat(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    int axis = (int)sn_op_int(op, "axis");
    int64_t start = 0;
    for (int i = 0; i < op->n_operands; i++) {
        int64_t size = op->operands[i]->type.dim[axis];
        sn_point at = *point;
        at.at[axis] = sn_kir_addi(l->k, point->at[axis], -start);
        sn_kir_node *inside = size ? within(l, NULL, at.at[axis], 0, size) : NULL;
        bool outside = size == 0 || at.at[axis]->min >= size || at.at[axis]->max < 0;
        start += size;
        if (outside) continue;
        if (!inside) {
            out[0] = sn_lower_element(l, op->operands[i], &at);
            return;
        }
        sn_kir_node *outer = sn_lower_guard(l, inside);
        sn_kir_node *part = sn_lower_element(l, op->operands[i], &at);
        sn_lower_unguard(l, outer);
        out[0] = out[0] ? sn_kir_select(l->k, inside, part, out[0]) : part;
    }
    if (!out[0]) out[0] = sn_lower_zero(l, op->results[0]->type.dtype); // no elements at all
}

sn_kir_node *sn_rule_wrap_index(sn_lower *l, sn_kir_node *index, int64_t size) {
    sn_kir *k = l->k;
    if (index->dtype != SN_I64) index = sn_kir_cast(k, index, SN_I64);
    if (index->min >= 0 && index->max < size) return index;
    if (index->min < 0)
        index = sn_kir_select(k, sn_kir_lt(k, index, sn_kir_index(k, 0)), sn_kir_addi(k, index, size), index);
    return sn_kir_maxi(k, sn_kir_mini(k, index, size - 1), 0);
}

void sn_rule_gather(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *x = op->operands[0], *indices = op->operands[1];
    int axis = (int)sn_op_int(op, "axis"), n = indices->type.rank;
    sn_point where = {0}, at = {0};
    for (int i = 0; i < n; i++) where.at[i] = point->at[axis + i];
    for (int i = 0; i < axis; i++) at.at[i] = point->at[i];
    for (int i = axis + 1; i < x->type.rank; i++) at.at[i] = point->at[i - 1 + n];
    at.at[axis] = sn_rule_wrap_index(l, sn_lower_element(l, indices, &where), x->type.dim[axis]);
    out[0] = sn_lower_element(l, x, &at);
}

void sn_rule_gather_elements(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *x = op->operands[0];
    int axis = (int)sn_op_int(op, "axis");
    sn_point at = *point;
    at.at[axis] = sn_rule_wrap_index(l, sn_lower_element(l, op->operands[1], point), x->type.dim[axis]);
    out[0] = sn_lower_element(l, x, &at);
}

// The tuple of `indices` at `where` (whose last coordinate is filled in here) as coordinates `first`… of a point of x.
static void index_tuple(sn_lower *l, const sn_value *indices, sn_point *where, const sn_value *x, int first,
                        sn_point *at) {
    int last = indices->type.rank - 1;
    for (int j = 0; j < indices->type.dim[last]; j++) {
        where->at[last] = sn_kir_index(l->k, j);
        at->at[first + j] = sn_rule_wrap_index(l, sn_lower_element(l, indices, where), x->type.dim[first + j]);
    }
}

void sn_rule_gather_nd(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *x = op->operands[0], *indices = op->operands[1];
    int batch = (int)sn_op_int(op, "batch_dims"), last = indices->type.rank - 1;
    int tuple = (int)indices->type.dim[last];
    sn_point where = *point, at = {0};
    for (int i = 0; i < batch; i++) at.at[i] = point->at[i];
    index_tuple(l, indices, &where, x, batch, &at);
    for (int i = batch + tuple; i < x->type.rank; i++) at.at[i] = point->at[last + i - batch - tuple];
    out[0] = sn_lower_element(l, x, &at);
}

// The gathering form of a scatter: an element looks at all indices. schedule_scatter.c has the fast form for kernels
// that are nothing else; this one serves inside fused kernels and small tensors.
void sn_rule_gather_grad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *indices = op->operands[0], *gradient = op->operands[1];
    sn_type type = op->results[0]->type;
    int axis = (int)sn_op_int(op, "axis"), n = indices->type.rank;
    sn_kir_node *i = sn_lower_for_count(l, sn_type_count(indices->type));
    sn_point where = sn_lower_unflat(l, indices->type, i), at = {0};
    for (int d = 0; d < axis; d++) at.at[d] = point->at[d];
    for (int d = 0; d < n; d++) at.at[axis + d] = where.at[d];
    for (int d = axis + 1; d < type.rank; d++) at.at[n - 1 + d] = point->at[d];
    sn_kir_node *index = sn_rule_wrap_index(l, sn_lower_element(l, indices, &where), type.dim[axis]);
    sn_kir_node *hit = sn_kir_eq(l->k, index, point->at[axis]), *g = sn_lower_element(l, gradient, &at);
    sn_kir_node *sum = sn_kir_reduce(l->k, SN_KIR_ADD, sn_kir_select(l->k, hit, g, sn_lower_zero(l, type.dtype)));
    sn_lower_end(l);
    out[0] = sn_lower_round(l, sum, type.dtype);
}

sn_kir_node *sn_rule_scattered(sn_lower *l, const sn_op *op, sn_kir_node *old, sn_kir_node *update) {
    const char *reduction = sn_op_string(op, "reduction");
    sn_dtype dtype = op->results[0]->type.dtype;
    switch (reduction[1]) {
    case 'o':
        return update; // none
    case 'd':
        return sn_lower_round(l, sn_rule_combine(l, SN_KIR_ADD, old, update), dtype); // add
    case 'u':
        return sn_lower_round(l, sn_rule_combine(l, SN_KIR_MUL, old, update), dtype); // mul
    case 'i':
        return sn_rule_combine(l, SN_KIR_MIN, old, update);
    case 'a':
        return sn_rule_combine(l, SN_KIR_MAX, old, update);
    default:
        SN_BUG("scatter reduction \"%s\"", reduction);
    }
}

void sn_rule_scatter_elements(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *indices = op->operands[1];
    sn_type type = op->results[0]->type;
    int axis = (int)sn_op_int(op, "axis");
    sn_kir_node *old = sn_lower_element(l, op->operands[0], point), *inside = NULL;
    sn_point where = *point;
    for (int d = 0; d < type.rank; d++)
        if (d != axis) inside = within(l, inside, point->at[d], 0, indices->type.dim[d]);
    sn_kir_node *outer = l->predicate;
    if (inside) sn_lower_guard(l, inside);
    where.at[axis] = sn_lower_for_count(l, indices->type.dim[axis]);
    sn_kir_node *now = sn_kir_carry(l->k, old);
    sn_kir_node *index = sn_rule_wrap_index(l, sn_lower_element(l, indices, &where), type.dim[axis]);
    sn_kir_node *hit = sn_kir_eq(l->k, index, point->at[axis]);
    if (inside) hit = sn_kir_and(l->k, hit, inside);
    sn_kir_node *update = sn_lower_element(l, op->operands[2], &where);
    sn_kir_set_carry(l->k, now, sn_kir_select(l->k, hit, sn_rule_scattered(l, op, now, update), now));
    sn_lower_end(l);
    sn_lower_unguard(l, outer);
    out[0] = sn_kir_carried(l->k, now);
}

void sn_rule_scatter_target(sn_lower *l, const sn_op *op, const sn_point *from, sn_point *at) {
    const sn_value *indices = op->operands[1];
    int last = indices->type.rank - 1, tuple = (int)indices->type.dim[last];
    sn_point where = *from;
    index_tuple(l, indices, &where, op->operands[0], 0, at);
    for (int d = tuple; d < op->results[0]->type.rank; d++) at->at[d] = from->at[last + d - tuple];
}

void sn_rule_scatter_nd(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *indices = op->operands[1];
    sn_type type = op->results[0]->type, tuples = indices->type;
    int last = tuples.rank - 1, tuple = (int)tuples.dim[last];
    tuples.rank = last;
    sn_kir_node *old = sn_lower_element(l, op->operands[0], point);
    sn_kir_node *i = sn_lower_for_count(l, sn_type_count(tuples));
    sn_kir_node *now = sn_kir_carry(l->k, old), *hit = sn_kir_int(l->k, SN_BOOL, 1);
    sn_point where = sn_lower_unflat(l, tuples, i), from = where, at = {0};
    index_tuple(l, indices, &where, op->operands[0], 0, &at);
    for (int j = 0; j < tuple; j++) hit = sn_kir_and(l->k, hit, sn_kir_eq(l->k, at.at[j], point->at[j]));
    for (int d = tuple; d < type.rank; d++) from.at[last + d - tuple] = point->at[d];
    sn_kir_node *update = sn_lower_element(l, op->operands[2], &from);
    sn_kir_set_carry(l->k, now, sn_kir_select(l->k, hit, sn_rule_scattered(l, op, now, update), now));
    sn_lower_end(l);
    out[0] = sn_kir_carried(l->k, now);
}
