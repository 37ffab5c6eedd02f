// Gather and scatter. Index -n … n-1 is in range of n elements; negative ones count from the end.
#include "base/alloc.h"
#include "ir/interp_reference.h"

#include <math.h>
#include <string.h>

static const char *const out_of_range = "index out of range";

static bool find_index(const sn_tensor *indices, int64_t at, int64_t length, int64_t *out) {
    int64_t index = sn_at_i64(indices, at);
    if (index < 0) index += length;
    *out = index;
    return index >= 0 && index < length;
}

static void copy_elements(sn_tensor *out, int64_t to, const sn_tensor *in, int64_t from, int64_t count) {
    size_t bytes = sn_dtype_bytes(out->type.dtype);
    memcpy((char *)out->data + (size_t)to * bytes, (const char *)in->data + (size_t)from * bytes,
           (size_t)count * bytes);
}

const char *sn_reference_gather(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_axis_split x = sn_split_at(in[0].type, (int)sn_op_int(op, "axis"));
    int64_t n = sn_type_count(in[1].type), index;
    for (int64_t i = 0; i < n; i++)
        if (!find_index(&in[1], i, x.length, &index)) return out_of_range;
    if (sn_type_count(out->type) == 0) return NULL;
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t i = 0; i < n; i++) {
            find_index(&in[1], i, x.length, &index);
            copy_elements(out, (o * n + i) * x.inner, &in[0], (o * x.length + index) * x.inner, x.inner);
        }
    return NULL;
}

const char *sn_reference_gather_grad(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_axis_split x = sn_split_at(out->type, (int)sn_op_int(op, "axis"));
    int64_t n = sn_type_count(in[0].type), index;
    for (int64_t i = 0; i < n; i++)
        if (!find_index(&in[0], i, x.length, &index)) return out_of_range;
    double *sum = sn_alloc(sizeof *sum * (size_t)(sn_type_count(out->type) + 1));
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t i = 0; i < n; i++) {
            find_index(&in[0], i, x.length, &index);
            for (int64_t j = 0; j < x.inner; j++)
                sum[(o * x.length + index) * x.inner + j] += sn_at_f64(&in[1], (o * n + i) * x.inner + j);
        }
    sn_tensor_store_doubles(out, sum);
    sn_free(sum);
    return NULL;
}

// A walk over the indices with the offset in `target` of each coordinate whose place along axis the index takes.
static sn_walk walk_indices(const sn_tensor *indices, const sn_tensor *target, int axis, int64_t *axis_stride) {
    int64_t stride[SN_MAX_RANK] = {0};
    sn_type_strides(target->type, stride);
    *axis_stride = stride[axis];
    stride[axis] = 0;
    sn_walk w = sn_walk_over(indices->type);
    sn_walk_add(&w, stride);
    return w;
}

const char *sn_reference_gather_elements(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    int axis = (int)sn_op_int(op, "axis");
    int64_t stride, index;
    for (sn_walk w = walk_indices(&in[1], &in[0], axis, &stride); w.left; sn_walk_next(&w)) {
        if (!find_index(&in[1], w.index, in[0].type.dim[axis], &index)) return out_of_range;
        sn_copy_element(out, w.index, &in[0], w.offset[0] + index * stride);
    }
    return NULL;
}

// Finds where the slice of index tuple `at` starts: tuples address the dims of `type` from `first` on.
static bool find_slice(const sn_tensor *indices, int64_t at, int64_t tuple, sn_type type, int first, int64_t *out) {
    int64_t stride[SN_MAX_RANK] = {0}, offset = 0, index;
    sn_type_strides(type, stride);
    for (int64_t i = 0; i < tuple; i++) {
        if (!find_index(indices, at * tuple + i, type.dim[first + i], &index)) return false;
        offset += index * stride[first + i];
    }
    *out = offset;
    return true;
}

static int64_t product(sn_type type, int from, int to) {
    int64_t count = 1;
    for (int d = from; d < to; d++) count *= type.dim[d];
    return count;
}

const char *sn_reference_gather_nd(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_type x = in[0].type, indices = in[1].type;
    int batch_dims = (int)sn_op_int(op, "batch_dims");
    int64_t tuple = indices.dim[indices.rank - 1], start;
    int64_t slice = product(x, batch_dims + (int)tuple, x.rank), batch_elements = product(x, batch_dims, x.rank);
    int64_t tuples = product(indices, 0, indices.rank - 1), per_batch = product(indices, batch_dims, indices.rank - 1);
    for (int64_t i = 0; i < tuples; i++) {
        if (!find_slice(&in[1], i, tuple, x, batch_dims, &start)) return out_of_range;
        copy_elements(out, i * slice, &in[0], i / per_batch * batch_elements + start, slice);
    }
    return NULL;
}

typedef enum reduction { NONE, ADD, MUL, MIN, MAX } reduction;
static const char *const reduction_names[] = {"none", "add", "mul", "min", "max"};

// Scatters go through arrays of doubles or integers, so that sums are rounded once.
typedef struct scatter {
    sn_tensor *out;
    const sn_tensor *updates;
    reduction how;
    double *reals;
    uint64_t *integers;
} scatter;

static const char *scatter_begin(scatter *s, const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    const char *name = sn_op_string(op, "reduction");
    *s = (scatter){.out = out, .updates = &in[2]};
    while (strcmp(name, reduction_names[s->how]) != 0)
        if (++s->how > MAX) return "there is no such reduction";
    if (sn_tensor_is_float(out))
        s->reals = sn_tensor_doubles(&in[0]);
    else
        s->integers = sn_tensor_integers(&in[0]);
    return NULL;
}

static double combine_reals(reduction how, double x, double y) {
    switch (how) {
    case ADD:
        return x + y;
    case MUL:
        return x * y;
    case MIN:
        return isnan(x) || x < y ? x : y;
    case MAX:
        return isnan(x) || x > y ? x : y;
    default:
        return y;
    }
}

static uint64_t combine_integers(reduction how, uint64_t x, uint64_t y, bool is_u64) {
    bool less = is_u64 ? x < y : (int64_t)x < (int64_t)y;
    switch (how) {
    case ADD:
        return x + y;
    case MUL:
        return x * y;
    case MIN:
        return less ? x : y;
    case MAX:
        return less ? y : x;
    default:
        return y;
    }
}

static void scatter_put(scatter *s, int64_t to, int64_t from) {
    if (s->reals)
        s->reals[to] = combine_reals(s->how, s->reals[to], sn_at_f64(s->updates, from));
    else
        s->integers[to] = combine_integers(s->how, s->integers[to], (uint64_t)sn_at_i64(s->updates, from),
                                           s->out->type.dtype == SN_U64);
}

static const char *scatter_end(scatter *s, const char *problem) {
    if (!problem && s->reals) sn_tensor_store_doubles(s->out, s->reals);
    if (!problem && s->integers) sn_tensor_store_integers(s->out, s->integers);
    sn_free(s->reals);
    sn_free(s->integers);
    return problem;
}

const char *sn_reference_scatter_elements(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    scatter s;
    const char *problem = scatter_begin(&s, op, in, out);
    if (problem) return problem;
    int axis = (int)sn_op_int(op, "axis");
    int64_t stride, index;
    for (int d = 0; d < out->type.rank; d++)
        if (d != axis && in[1].type.dim[d] > out->type.dim[d]) return scatter_end(&s, out_of_range);
    for (sn_walk w = walk_indices(&in[1], out, axis, &stride); w.left; sn_walk_next(&w)) {
        if (!find_index(&in[1], w.index, out->type.dim[axis], &index)) return scatter_end(&s, out_of_range);
        scatter_put(&s, w.offset[0] + index * stride, w.index);
    }
    return scatter_end(&s, NULL);
}

const char *sn_reference_scatter_nd(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    scatter s;
    const char *problem = scatter_begin(&s, op, in, out);
    if (problem) return problem;
    sn_type indices = in[1].type;
    int64_t tuple = indices.dim[indices.rank - 1], start;
    int64_t tuples = product(indices, 0, indices.rank - 1), slice = product(out->type, (int)tuple, out->type.rank);
    for (int64_t i = 0; i < tuples; i++) {
        if (!find_slice(&in[1], i, tuple, out->type, 0, &start)) return scatter_end(&s, out_of_range);
        for (int64_t j = 0; j < slice; j++) scatter_put(&s, start + j, i * slice + j);
    }
    return scatter_end(&s, NULL);
}
