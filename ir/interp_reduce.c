// Reductions, scans and top_k.
#include "base/alloc.h"
#include "ir/interp_reference.h"

#include <math.h>
#include <stdlib.h>

static double reduce_real(sn_op_kind kind, double x, double y) {
    switch (kind) {
    case SN_OP_REDUCE_SUM:
        return x + y;
    case SN_OP_REDUCE_PROD:
        return x * y;
    case SN_OP_REDUCE_MAX:
        return isnan(x) || x > y ? x : y;
    default:
        return isnan(x) || x < y ? x : y;
    }
}

static double first_real(sn_op_kind kind) {
    switch (kind) {
    case SN_OP_REDUCE_SUM:
        return 0;
    case SN_OP_REDUCE_PROD:
        return 1;
    case SN_OP_REDUCE_MAX:
        return -INFINITY;
    default:
        return INFINITY;
    }
}

static uint64_t reduce_integer(sn_op_kind kind, uint64_t x, uint64_t y, bool is_u64) {
    bool less = is_u64 ? x < y : (int64_t)x < (int64_t)y;
    switch (kind) {
    case SN_OP_REDUCE_SUM:
        return x + y;
    case SN_OP_REDUCE_PROD:
        return x * y;
    case SN_OP_REDUCE_MAX:
        return less ? y : x;
    default:
        return less ? x : y;
    }
}

static uint64_t first_integer(sn_op_kind kind, sn_dtype dtype) {
    if (kind == SN_OP_REDUCE_SUM) return 0;
    if (kind == SN_OP_REDUCE_PROD) return 1;
    bool max = kind == SN_OP_REDUCE_MAX;
    if (dtype == SN_BOOL) return !max;
    int bits = 8 * (int)sn_dtype_bytes(dtype);
    if (sn_dtype_class(dtype) == 'u') return max ? 0 : UINT64_MAX >> (64 - bits);
    uint64_t highest = UINT64_MAX >> (65 - bits);
    return max ? ~highest : highest;
}

// Strides with which the result is addressed at the operand's coordinates: 0 along reduced dims.
static void result_strides(const sn_op *op, sn_type x, int64_t stride[SN_MAX_RANK]) {
    int count;
    const int64_t *axes = sn_op_ints(op, "axes", &count);
    unsigned reduced = 0;
    for (int i = 0; i < count; i++) reduced |= 1u << axes[i];
    int64_t size = 1;
    for (int d = x.rank - 1; d >= 0; d--) {
        stride[d] = reduced >> d & 1 ? 0 : size;
        if (!(reduced >> d & 1)) size *= x.dim[d];
    }
}

const char *sn_reference_reduce(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    int64_t stride[SN_MAX_RANK] = {0}, count = sn_type_count(out->type);
    result_strides(op, in->type, stride);
    sn_walk w = sn_walk_over(in->type);
    sn_walk_add(&w, stride);
    if (sn_tensor_is_float(in)) {
        double *total = sn_alloc(sizeof *total * (size_t)(count + 1));
        for (int64_t i = 0; i < count; i++) total[i] = first_real(op->kind);
        for (; w.left; sn_walk_next(&w))
            total[w.offset[0]] = reduce_real(op->kind, total[w.offset[0]], sn_at_f64(in, w.index));
        sn_tensor_store_doubles(out, total);
        sn_free(total);
        return NULL;
    }
    uint64_t *total = sn_alloc(sizeof *total * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) total[i] = first_integer(op->kind, in->type.dtype);
    for (; w.left; sn_walk_next(&w))
        total[w.offset[0]] =
            reduce_integer(op->kind, total[w.offset[0]], (uint64_t)sn_at_i64(in, w.index), in->type.dtype == SN_U64);
    sn_tensor_store_integers(out, total);
    sn_free(total);
    return NULL;
}

// Whether element i comes strictly before element j in descending order; NaN counts as the largest.
static bool is_larger(const sn_tensor *x, int64_t i, int64_t j) {
    if (sn_tensor_is_float(x)) {
        double a = sn_at_f64(x, i), b = sn_at_f64(x, j);
        return isnan(a) ? !isnan(b) : a > b;
    }
    int64_t a = sn_at_i64(x, i), b = sn_at_i64(x, j);
    return x->type.dtype == SN_U64 ? (uint64_t)a > (uint64_t)b : a > b;
}

const char *sn_reference_arg(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_axis_split x = sn_split_at(in->type, (int)sn_op_int(op, "axis"));
    bool last = sn_op_int(op, "last"), max = op->kind == SN_OP_ARG_MAX;
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t j = 0; j < x.inner; j++) {
            int64_t row = o * x.length * x.inner + j, best = 0;
            for (int64_t i = 1; i < x.length; i++) {
                int64_t at = row + i * x.inner, held = row + best * x.inner;
                bool wins = max ? is_larger(in, at, held) : is_larger(in, held, at);
                bool loses = max ? is_larger(in, held, at) : is_larger(in, at, held);
                if (wins || (last && !loses)) best = i;
            }
            sn_put_i64(out, o * x.inner + j, best);
        }
    return NULL;
}

const char *sn_reference_cumulate(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_axis_split x = sn_split_at(in->type, (int)sn_op_int(op, "axis"));
    bool exclusive = sn_op_int(op, "exclusive"), reverse = sn_op_int(op, "reverse"), real = sn_tensor_is_float(in);
    bool product = op->kind == SN_OP_CUM_PROD;
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t j = 0; j < x.inner; j++) {
            double total = product;
            uint64_t integer = product;
            for (int64_t i = 0; i < x.length; i++) {
                int64_t at = (o * x.length + (reverse ? x.length - 1 - i : i)) * x.inner + j;
                double before = total;
                uint64_t integer_before = integer;
                if (real)
                    total = product ? total * sn_at_f64(in, at) : total + sn_at_f64(in, at);
                else
                    integer = product ? integer * (uint64_t)sn_at_i64(in, at) : integer + (uint64_t)sn_at_i64(in, at);
                if (real)
                    sn_put_f64(out, at, exclusive ? before : total);
                else
                    sn_put_i64(out, at, (int64_t)(exclusive ? integer_before : integer));
            }
        }
    return NULL;
}

typedef struct ranking {
    const sn_tensor *x;
    int64_t row, stride;
    bool largest;
} ranking;

static int compare_ranks(const void *a, const void *b, void *user) {
    const ranking *r = user;
    int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    int64_t x = r->row + i * r->stride, y = r->row + j * r->stride;
    if (r->largest ? is_larger(r->x, x, y) : is_larger(r->x, y, x)) return -1;
    if (r->largest ? is_larger(r->x, y, x) : is_larger(r->x, x, y)) return 1;
    return i < j ? -1 : i > j;
}

const char *sn_reference_top_k(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_axis_split x = sn_split_at(in->type, (int)sn_op_int(op, "axis"));
    int64_t k = sn_op_int(op, "k"), *order = sn_alloc(sizeof *order * (size_t)(x.length + 1));
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t j = 0; j < x.inner; j++) {
            ranking r = {in, o * x.length * x.inner + j, x.inner, sn_op_int(op, "largest")};
            for (int64_t i = 0; i < x.length; i++) order[i] = i;
            qsort_r(order, (size_t)x.length, sizeof *order, compare_ranks, &r);
            for (int64_t i = 0; i < k; i++) {
                int64_t to = (o * k + i) * x.inner + j;
                sn_copy_element(&out[0], to, in, r.row + order[i] * x.inner);
                sn_put_i64(&out[1], to, order[i]);
            }
        }
    sn_free(order);
    return NULL;
}
