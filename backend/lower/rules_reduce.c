#include "backend/lower/rules.h"

static sn_kir_op reduction_of(sn_op_kind kind, sn_dtype dtype) {
    bool logical = dtype == SN_BOOL;
    switch (kind) {
    case SN_OP_REDUCE_SUM:
        return logical ? SN_KIR_OR : SN_KIR_ADD;
    case SN_OP_REDUCE_PROD:
        return logical ? SN_KIR_AND : SN_KIR_MUL;
    case SN_OP_REDUCE_MAX:
        return logical ? SN_KIR_OR : SN_KIR_MAX;
    case SN_OP_REDUCE_MIN:
        return logical ? SN_KIR_AND : SN_KIR_MIN;
    default:
        SN_BUG("%s is not a reduction", sn_op_name(kind));
    }
}

// Loops over `n` dims of sizes `sizes`, filling `at`; close with close_nest.
static void open_nest(sn_lower *l, int n, const int64_t *sizes, sn_kir_node **at) {
    for (int i = 0; i < n; i++) at[i] = sn_lower_for_count(l, sizes[i]);
}

static sn_kir_node *close_nest(sn_lower *l, int n, sn_kir_op op, sn_kir_node *value) {
    for (int i = 0; i < n; i++) {
        value = sn_kir_reduce(l->k, op, value);
        sn_lower_end(l);
    }
    return value;
}

void sn_rule_reduce(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_type type = op->operands[0]->type;
    int n, at_result = 0, n_loops = 0;
    const int64_t *axes = sn_op_ints(op, "axes", &n);
    bool keep = sn_op_int(op, "keepdims");
    sn_point at = {0};
    for (int d = 0; d < type.rank; d++) {
        bool reduced = false;
        for (int j = 0; j < n; j++) reduced |= axes[j] == d;
        if (!reduced)
            at.at[d] = point->at[at_result++];
        else
            at_result += keep;
    }
    for (int d = 0; d < type.rank; d++)
        if (!at.at[d]) {
            at.at[d] = sn_lower_for_count(l, type.dim[d]);
            n_loops++;
        }
    sn_kir_node *x = sn_lower_element(l, op->operands[0], &at);
    out[0] = sn_lower_round(l, close_nest(l, n_loops, reduction_of(op->kind, type.dtype), x), type.dtype);
}

void sn_rule_arg(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_kir *k = l->k;
    sn_type type = op->operands[0]->type;
    int axis = (int)sn_op_int(op, "axis");
    bool keep = sn_op_int(op, "keepdims"), last = sn_op_int(op, "last"), largest = op->kind == SN_OP_ARG_MAX;
    sn_point at = {0};
    for (int d = 0; d < type.rank; d++) at.at[d] = d < axis || keep ? point->at[d] : d > axis ? point->at[d - 1] : NULL;
    at.at[axis] = sn_kir_index(k, 0);
    sn_kir_node *first = sn_lower_element(l, op->operands[0], &at);
    at.at[axis] = sn_lower_for_count(l, type.dim[axis]);
    sn_kir_node *best = sn_kir_carry(k, first), *where = sn_kir_carry(k, sn_kir_index(k, 0));
    sn_kir_node *x = sn_lower_element(l, op->operands[0], &at);
    sn_kir_node *a = x, *b = best;
    if (type.dtype == SN_BOOL) {
        a = sn_kir_cast(k, x, SN_I32);
        b = sn_kir_cast(k, best, SN_I32);
    }
    sn_kir_op test = largest ? (last ? SN_KIR_GE : SN_KIR_GT) : (last ? SN_KIR_LE : SN_KIR_LT);
    sn_kir_node *better = sn_kir_binary(k, test, a, b);
    sn_kir_set_carry(k, best, sn_kir_select(k, better, x, best));
    sn_kir_set_carry(k, where, sn_kir_select(k, better, at.at[axis], where));
    sn_lower_end(l);
    out[0] = sn_kir_carried(k, where);
}

// Each element runs over the whole axis: quadratic, for use inside fused kernels; schedule_scan.c has the linear form.
void sn_rule_cumulate(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_kir *k = l->k;
    int axis = (int)sn_op_int(op, "axis");
    bool exclusive = sn_op_int(op, "exclusive"), reverse = sn_op_int(op, "reverse");
    sn_dtype dtype = op->results[0]->type.dtype;
    sn_kir_op combine = op->kind == SN_OP_CUM_SUM ? SN_KIR_ADD : SN_KIR_MUL;
    sn_kir_node *identity = sn_dtype_is_float(dtype) ? sn_kir_number(k, dtype, op->kind == SN_OP_CUM_PROD)
                                                     : sn_kir_int(k, dtype, op->kind == SN_OP_CUM_PROD);
    sn_point at = *point;
    at.at[axis] = sn_lower_for_count(l, op->results[0]->type.dim[axis]);
    sn_kir_op test = reverse ? (exclusive ? SN_KIR_GT : SN_KIR_GE) : (exclusive ? SN_KIR_LT : SN_KIR_LE);
    sn_kir_node *counts = sn_kir_binary(k, test, at.at[axis], point->at[axis]);
    sn_kir_node *x = sn_lower_element(l, op->operands[0], &at);
    sn_kir_node *total = sn_kir_reduce(k, combine, sn_kir_select(k, counts, x, identity));
    sn_lower_end(l);
    out[0] = sn_lower_round(l, total, dtype);
}

// The r-th result is the element that r others precede; equal ones are in index order.
void sn_rule_top_k(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_kir *k = l->k;
    const sn_value *x = op->operands[0];
    int axis = (int)sn_op_int(op, "axis");
    int64_t n = x->type.dim[axis];
    sn_kir_op before = sn_op_int(op, "largest") ? SN_KIR_GT : SN_KIR_LT;
    sn_point at = *point, other = *point;
    at.at[axis] = sn_lower_for_count(l, n);
    sn_kir_node *found = sn_kir_carry(k, sn_kir_index(k, 0));
    sn_kir_node *mine = sn_lower_element(l, x, &at);
    other.at[axis] = sn_lower_for_count(l, n);
    sn_kir_node *its = sn_lower_element(l, x, &other);
    sn_kir_node *a = its, *b = mine;
    if (x->type.dtype == SN_BOOL) {
        a = sn_kir_cast(k, its, SN_I32);
        b = sn_kir_cast(k, mine, SN_I32);
    }
    sn_kir_node *earlier = sn_kir_and(k, sn_kir_eq(k, a, b), sn_kir_lt(k, other.at[axis], at.at[axis]));
    sn_kir_node *precedes = sn_kir_or(k, sn_kir_binary(k, before, a, b), earlier);
    sn_kir_node *rank =
        sn_kir_reduce(k, SN_KIR_ADD, sn_kir_select(k, precedes, sn_kir_index(k, 1), sn_kir_index(k, 0)));
    sn_lower_end(l);
    sn_kir_set_carry(k, found, sn_kir_select(k, sn_kir_eq(k, rank, point->at[axis]), at.at[axis], found));
    sn_lower_end(l);
    out[1] = sn_kir_carried(k, found);
    at.at[axis] = sn_rule_wrap_index(l, out[1], n);
    out[0] = sn_lower_element(l, x, &at);
}

// Dims of a matmul operand in front of the last two broadcast like numpy's.
static void batch_point(const sn_value *x, sn_type result, const sn_point *point, sn_lower *l, sn_point *at) {
    int skip = result.rank - x->type.rank;
    for (int d = 0; d < x->type.rank - 2; d++)
        at->at[d] = x->type.dim[d] == 1 ? sn_kir_index(l->k, 0) : point->at[skip + d];
}

void sn_rule_matmul(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *x = op->operands[0], *y = op->operands[1];
    sn_type type = op->results[0]->type;
    bool ta = sn_op_int(op, "transpose_a"), tb = sn_op_int(op, "transpose_b");
    int rx = x->type.rank, ry = y->type.rank;
    sn_kir_node *i = point->at[type.rank - 2], *j = point->at[type.rank - 1];
    int64_t depth = x->type.dim[ta ? rx - 2 : rx - 1];
    sn_kir_node *at_k;
    open_nest(l, 1, &depth, &at_k);
    sn_point a = {0}, b = {0};
    batch_point(x, type, point, l, &a);
    batch_point(y, type, point, l, &b);
    a.at[rx - 2] = ta ? at_k : i;
    a.at[rx - 1] = ta ? i : at_k;
    b.at[ry - 2] = tb ? j : at_k;
    b.at[ry - 1] = tb ? at_k : j;
    sn_kir_node *product = sn_rule_combine(l, SN_KIR_MUL, sn_lower_element(l, x, &a), sn_lower_element(l, y, &b));
    sn_kir_op sum = type.dtype == SN_BOOL ? SN_KIR_OR : SN_KIR_ADD;
    out[0] = sn_lower_round(l, close_nest(l, 1, sum, product), type.dtype);
}
