// Contractions and windows: matmul, convolution and its gradients, pooling.
#include "base/alloc.h"
#include "ir/interp_reference.h"

#include <math.h>

// One matrix product c[m,n] += a[m,k] b[k,n] with strided operands, for doubles and wrapping integers.
typedef struct product {
    int64_t m, n, k, a_row, a_column, b_row, b_column;
} product;

#define DEFINE_MULTIPLY(name, number)                                                                                  \
    static void name(const product *p, const number *a, const number *b, number *c) {                                  \
        for (int64_t i = 0; i < p->m; i++)                                                                             \
            for (int64_t l = 0; l < p->k; l++) {                                                                       \
                number x = a[i * p->a_row + l * p->a_column];                                                          \
                for (int64_t j = 0; j < p->n; j++) c[i * p->n + j] += x * b[l * p->b_row + j * p->b_column];           \
            }                                                                                                          \
    }
DEFINE_MULTIPLY(multiply_reals, double)
DEFINE_MULTIPLY(multiply_integers, uint64_t)

// The batch dims of the operands broadcast to those of the result; a step of a batch is a whole matrix.
static sn_walk walk_batches(const sn_tensor *in, const sn_tensor *out) {
    sn_type batch = out->type;
    batch.rank -= 2;
    batch.dim[batch.rank] = batch.dim[batch.rank + 1] = 0;
    sn_walk w = sn_walk_over(batch);
    for (int k = 0; k < 2; k++) {
        sn_type type = in[k].type;
        int64_t stride[SN_MAX_RANK] = {0}, matrix = type.dim[type.rank - 1] * type.dim[type.rank - 2];
        type.rank -= 2;
        type.dim[type.rank] = type.dim[type.rank + 1] = 0;
        sn_broadcast_strides(type, batch, stride);
        for (int d = 0; d < batch.rank; d++) stride[d] *= matrix;
        sn_walk_add(&w, stride);
    }
    return w;
}

const char *sn_reference_matmul(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_type a = in[0].type, b = in[1].type, c = out->type;
    bool ta = sn_op_int(op, "transpose_a"), tb = sn_op_int(op, "transpose_b");
    int64_t a_width = a.dim[a.rank - 1], b_width = b.dim[b.rank - 1];
    product p = {.m = c.dim[c.rank - 2], .n = c.dim[c.rank - 1], .k = a.dim[a.rank - (ta ? 2 : 1)]};
    p.a_row = ta ? 1 : a_width, p.a_column = ta ? a_width : 1;
    p.b_row = tb ? 1 : b_width, p.b_column = tb ? b_width : 1;
    sn_walk w = walk_batches(in, out);
    size_t count = (size_t)(sn_type_count(c) + 1);
    if (sn_tensor_is_float(out)) {
        double *x = sn_tensor_doubles(&in[0]), *y = sn_tensor_doubles(&in[1]), *z = sn_alloc(sizeof *z * count);
        for (; w.left; sn_walk_next(&w)) multiply_reals(&p, x + w.offset[0], y + w.offset[1], z + w.index * p.m * p.n);
        sn_tensor_store_doubles(out, z);
        sn_free(x), sn_free(y), sn_free(z);
    } else {
        uint64_t *x = sn_tensor_integers(&in[0]), *y = sn_tensor_integers(&in[1]), *z = sn_alloc(sizeof *z * count);
        for (; w.left; sn_walk_next(&w))
            multiply_integers(&p, x + w.offset[0], y + w.offset[1], z + w.index * p.m * p.n);
        sn_tensor_store_integers(out, z);
        sn_free(x), sn_free(y), sn_free(z);
    }
    return NULL;
}

typedef struct window {
    int rank;           // spatial dims
    sn_type size, taps; // of the input's and the kernel's spatial dims
    const int64_t *strides, *pads, *dilations;
} window;

static sn_type spatial(sn_type type) {
    return sn_type_make(type.dtype, type.rank - 2, type.dim + 2);
}

static window window_of(const sn_op *op, sn_type x, sn_type taps) {
    return (window){x.rank - 2,
                    spatial(x),
                    taps,
                    sn_op_ints(op, "strides", NULL),
                    sn_op_ints(op, "pads", NULL),
                    sn_op_ints(op, "dilations", NULL)};
}

// Where the tap at `tap` of the window at `at` reads the input, as a row-major offset; -1 when in the padding.
static int64_t tap_offset(const window *w, const int64_t *at, const int64_t *tap) {
    int64_t offset = 0;
    for (int d = 0; d < w->rank; d++) {
        int64_t i = at[d] * w->strides[d] - w->pads[d] + tap[d] * w->dilations[d];
        if (i < 0 || i >= w->size.dim[d]) return -1;
        offset = offset * w->size.dim[d] + i;
    }
    return offset;
}

// Calls of one convolution: every (output element, weight, input element) that is multiplied. The gradients exchange
// which of the three is the sum.
typedef enum summed { OUTPUT, INPUT, WEIGHT } summed;

static void convolve(const sn_op *op, summed which, sn_type x, sn_type weight, sn_type y, const double *left,
                     const double *right, double *sum) {
    sn_type positions = spatial(y), taps = spatial(weight);
    window win = window_of(op, x, taps);
    int64_t groups = sn_op_int(op, "groups"), in_group = weight.dim[1], out_group = weight.dim[0] / groups;
    int64_t x_size = sn_type_count(win.size), y_size = sn_type_count(positions), n_taps = sn_type_count(taps);
    for (sn_walk p = sn_walk_over(positions); p.left; sn_walk_next(&p))
        for (sn_walk t = sn_walk_over(taps); t.left; sn_walk_next(&t)) {
            int64_t from = tap_offset(&win, p.at, t.at);
            if (from < 0) continue;
            for (int64_t n = 0; n < y.dim[0]; n++)
                for (int64_t m = 0; m < weight.dim[0]; m++)
                    for (int64_t c = 0; c < in_group; c++) {
                        int64_t yi = (n * weight.dim[0] + m) * y_size + p.index;
                        int64_t wi = (m * in_group + c) * n_taps + t.index;
                        int64_t xi = (n * x.dim[1] + m / out_group * in_group + c) * x_size + from;
                        if (which == OUTPUT) sum[yi] += left[xi] * right[wi];
                        if (which == INPUT) sum[xi] += left[yi] * right[wi];
                        if (which == WEIGHT) sum[wi] += left[xi] * right[yi];
                    }
        }
}

// Integers go through doubles too, exact below 2^53.
static const char *convolve_tensors(const sn_op *op, summed which, const sn_tensor *in, sn_tensor *out) {
    sn_type x = which == INPUT ? out->type : in[0].type, weight = which == WEIGHT ? out->type : in[1].type;
    sn_type y = which == OUTPUT ? out->type : which == INPUT ? in[0].type : in[1].type;
    double *left = sn_tensor_doubles(&in[0]), *right = sn_tensor_doubles(&in[1]);
    double *sum = sn_alloc(sizeof *sum * (size_t)(sn_type_count(out->type) + 1));
    convolve(op, which, x, weight, y, left, right, sum);
    sn_tensor_store_doubles(out, sum);
    sn_free(left), sn_free(right), sn_free(sum);
    return NULL;
}

const char *sn_reference_conv(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    return convolve_tensors(op, OUTPUT, in, out);
}

const char *sn_reference_conv_input_grad(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    return convolve_tensors(op, INPUT, in, out);
}

const char *sn_reference_conv_weight_grad(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    return convolve_tensors(op, WEIGHT, in, out);
}

static sn_type kernel_taps(const sn_op *op) {
    int rank;
    const int64_t *kernel = sn_op_ints(op, "kernel", &rank);
    return sn_type_make(SN_I64, rank, kernel);
}

static bool beats(const sn_tensor *x, int64_t i, int64_t held) {
    if (!sn_tensor_is_float(x)) {
        uint64_t a = (uint64_t)sn_at_i64(x, i), b = (uint64_t)sn_at_i64(x, held);
        return x->type.dtype == SN_U64 ? a > b : (int64_t)a > (int64_t)b;
    }
    double a = sn_at_f64(x, i), b = sn_at_f64(x, held);
    return a > b || (isnan(a) && !isnan(b));
}

// A window that lies in the padding alone has no largest: the type's lowest and index -1.
static void put_lowest(sn_tensor *out, int64_t at) {
    int bits = 8 * (int)sn_dtype_bytes(out->type.dtype);
    if (sn_tensor_is_float(out))
        sn_put_f64(out, at, -INFINITY);
    else
        sn_put_i64(out, at, sn_dtype_class(out->type.dtype) == 'i' ? (int64_t)(UINT64_MAX << (bits - 1)) : 0);
}

const char *sn_reference_max_pool(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    sn_type positions = spatial(out->type), taps = kernel_taps(op);
    window win = window_of(op, in->type, taps);
    int64_t planes = in->type.dim[0] * in->type.dim[1], x_size = sn_type_count(win.size);
    int64_t y_size = sn_type_count(positions);
    for (int64_t plane = 0; plane < planes; plane++)
        for (sn_walk p = sn_walk_over(positions); p.left; sn_walk_next(&p)) {
            int64_t best = -1, to = plane * y_size + p.index;
            for (sn_walk t = sn_walk_over(taps); t.left; sn_walk_next(&t)) {
                int64_t from = tap_offset(&win, p.at, t.at);
                if (from < 0) continue;
                from += plane * x_size;
                if (best < 0 || beats(in, from, best)) best = from;
            }
            if (best < 0)
                put_lowest(&out[0], to);
            else
                sn_copy_element(&out[0], to, in, best);
            sn_put_i64(&out[1], to, best);
        }
    return NULL;
}

const char *sn_reference_max_pool_grad(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    (void)op;
    int64_t count = sn_type_count(out->type), n = sn_type_count(in->type);
    double *sum = sn_alloc(sizeof *sum * (size_t)(count + 1));
    bool inside = true;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = sn_at_i64(&in[1], i);
        if (at < count && at >= 0) sum[at] += sn_at_f64(&in[0], i);
        if (at >= count) inside = false;
    }
    sn_tensor_store_doubles(out, sum);
    sn_free(sum);
    return inside ? NULL : "index out of range";
}

// How many taps of a window count for its mean: those on the input, or those on the padding as well.
static int64_t count_taps(const window *w, const int64_t *at, bool include_pad) {
    int64_t count = 1;
    for (int d = 0; d < w->rank; d++) {
        int64_t low = include_pad ? -w->pads[d] : 0;
        int64_t high = w->size.dim[d] + (include_pad ? w->pads[w->rank + d] : 0), hits = 0;
        for (int64_t tap = 0; tap < w->taps.dim[d]; tap++) {
            int64_t i = at[d] * w->strides[d] - w->pads[d] + tap * w->dilations[d];
            hits += i >= low && i < high;
        }
        count *= hits;
    }
    return count;
}

static const char *average(const sn_op *op, sn_type x, sn_type y, const double *from, double *to, bool grad) {
    sn_type positions = spatial(y), taps = kernel_taps(op);
    window win = window_of(op, x, taps);
    bool include_pad = sn_op_int(op, "include_pad");
    int64_t x_size = sn_type_count(win.size), y_size = sn_type_count(positions), planes = x.dim[0] * x.dim[1];
    for (int64_t plane = 0; plane < planes; plane++)
        for (sn_walk p = sn_walk_over(positions); p.left; sn_walk_next(&p)) {
            double share = 1 / (double)count_taps(&win, p.at, include_pad), sum = 0;
            int64_t yi = plane * y_size + p.index;
            for (sn_walk t = sn_walk_over(taps); t.left; sn_walk_next(&t)) {
                int64_t offset = tap_offset(&win, p.at, t.at);
                if (offset < 0) continue;
                if (grad)
                    to[plane * x_size + offset] += from[yi] * share;
                else
                    sum += from[plane * x_size + offset];
            }
            if (!grad) to[yi] = sum * share;
        }
    return NULL;
}

static const char *average_tensors(const sn_op *op, const sn_tensor *in, sn_tensor *out, bool grad) {
    double *from = sn_tensor_doubles(in), *to = sn_alloc(sizeof *to * (size_t)(sn_type_count(out->type) + 1));
    const char *problem =
        grad ? average(op, out->type, in->type, from, to, true) : average(op, in->type, out->type, from, to, false);
    sn_tensor_store_doubles(out, to);
    sn_free(from), sn_free(to);
    return problem;
}

const char *sn_reference_avg_pool(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    return average_tensors(op, in, out, false);
}

const char *sn_reference_avg_pool_grad(const sn_op *op, const sn_tensor *in, sn_tensor *out) {
    return average_tensors(op, in, out, true);
}
