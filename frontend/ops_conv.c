// Convolutions and pooling over [N, C, d1, ...].
#include "frontend/handlers.h"

#include <math.h>
#include <string.h>

typedef struct window {
    int rank; // spatial dims
    int64_t kernel[SN_MAX_RANK], strides[SN_MAX_RANK], dilations[SN_MAX_RANK], pads[2 * SN_MAX_RANK];
    int64_t out[SN_MAX_RANK];
} window;

// The kernel of `rank` spatial dims, strides and dilations: all below 2^31, so that what follows from them fits.
static window begin_window(sn_node *n, int rank, const int64_t *kernel) {
    window w = {.rank = rank};
    for (int i = 0; i < rank; i++) {
        if (kernel[i] < 1 || kernel[i] > INT32_MAX)
            sn_node_fail(n, NULL, "dim %d of the kernel is %lld", i, (long long)kernel[i]);
        w.kernel[i] = kernel[i];
    }
    sn_node_list(n, "strides", rank, 1, 1, w.strides);
    sn_node_list(n, "dilations", rank, 1, 1, w.dilations);
    return w;
}

static bool is_same(sn_node *n, bool *upper) {
    const char *pad = sn_node_string(n, "auto_pad", "NOTSET");
    *upper = strcmp(pad, "SAME_UPPER") == 0;
    bool same = *upper || strcmp(pad, "SAME_LOWER") == 0;
    if (!same && strcmp(pad, "NOTSET") != 0 && strcmp(pad, "VALID") != 0 && *pad)
        sn_node_fail(n, NULL, "auto_pad '%s' is unknown", pad);
    return same;
}

// Strides, dilations and pads as given or by auto_pad, and the number of windows. kernel is already set.
static window read_window(sn_node *n, sn_type x, const int64_t *kernel, bool ceil_mode) {
    window w = begin_window(n, x.rank - 2, kernel);
    bool upper, same = is_same(n, &upper);
    if (!same && !sn_node_string_is(n, "auto_pad", "NOTSET", "VALID"))
        sn_node_list(n, "pads", 2 * w.rank, 0, 0, w.pads);
    for (int i = 0; i < w.rank; i++) {
        int64_t size = x.dim[2 + i], reach = (w.kernel[i] - 1) * w.dilations[i] + 1;
        if (same) {
            int64_t out = (size + w.strides[i] - 1) / w.strides[i];
            int64_t total = (out - 1) * w.strides[i] + reach - size;
            total = total < 0 ? 0 : total;
            w.pads[i] = upper ? total / 2 : total - total / 2;
            w.pads[w.rank + i] = total - w.pads[i];
        }
        int64_t padded = size + w.pads[i] + w.pads[w.rank + i] - reach;
        if (padded < 0) sn_node_fail(n, NULL, "the window is larger than the padded input in dim %d", i);
        w.out[i] = (ceil_mode ? padded + w.strides[i] - 1 : padded) / w.strides[i] + 1;
        // The last window must begin inside the input or the padding before it.
        if (ceil_mode && (w.out[i] - 1) * w.strides[i] >= size + w.pads[i]) w.out[i]--;
    }
    return w;
}

static int window_attrs(const window *w, bool kernel, sn_attr *attrs) {
    int count = 0;
    if (kernel) attrs[count++] = sn_attr_ints("kernel", w->kernel, w->rank);
    attrs[count++] = sn_attr_ints("strides", w->strides, w->rank);
    attrs[count++] = sn_attr_ints("pads", w->pads, 2 * w->rank);
    attrs[count++] = sn_attr_ints("dilations", w->dilations, w->rank);
    return count;
}

static void check_kernel_shape(sn_node *n, const sn_value *weights) {
    int count;
    const int64_t *stated = sn_node_ints(n, "kernel_shape", &count);
    for (int i = 0; stated && count && i + 2 < weights->type.rank; i++)
        if (count != weights->type.rank - 2 || stated[i] != weights->type.dim[2 + i])
            sn_node_fail(n, NULL, "kernel_shape does not match the weights");
}

static sn_value *add_bias(sn_node *n, sn_value *y) {
    sn_value *bias = sn_node_optional(n, 2);
    if (!bias) return y;
    return sn_emit_binary(n, SN_OP_ADD, y, sn_emit_aligned(n, bias, 1, y->type.rank));
}

void sn_handle_conv(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *weights = sn_node_in(n, 1);
    if (weights->type.rank != x->type.rank) sn_node_fail(n, NULL, "input and weights have different ranks");
    check_kernel_shape(n, weights);
    window w = read_window(n, x->type, weights->type.dim + 2, false);
    sn_attr attrs[4];
    int count = window_attrs(&w, false, attrs);
    attrs[count++] = sn_attr_int("groups", sn_node_int(n, "group", 1));
    sn_op *op = sn_emit(n, SN_OP_CONV, 2, (sn_value *[]){x, weights}, count, attrs, NULL);
    sn_node_out(n, 0, add_bias(n, op->results[0]));
}

// The transpose of a convolution from the result's shape to the input's. Pads follow from output_shape when given;
// output_padding adds what no window of that convolution covers.
void sn_handle_conv_transpose(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *weights = sn_node_in(n, 1);
    int rank = x->type.rank - 2, count;
    int64_t groups = sn_node_int(n, "group", 1), extra[SN_MAX_RANK], pads[2 * SN_MAX_RANK];
    if (weights->type.rank != x->type.rank || groups < 1) sn_node_fail(n, NULL, "input and weights do not go together");
    check_kernel_shape(n, weights);
    window w = begin_window(n, rank, weights->type.dim + 2);
    sn_node_list(n, "output_padding", rank, 0, 0, extra);
    sn_node_list(n, "pads", 2 * rank, 0, -INT32_MAX, pads);
    const int64_t *shape = sn_node_ints(n, "output_shape", &count);
    if (shape && count != rank) sn_node_fail(n, NULL, "output_shape has %d numbers for %d dims", count, rank);
    bool upper, same = is_same(n, &upper);
    sn_type out = x->type;
    out.dim[1] = sn_node_times(n, weights->type.dim[1], groups);
    for (int i = 0; i < rank; i++) {
        int64_t spread = sn_node_times(n, x->type.dim[2 + i], w.strides[i]);
        int64_t full = spread - w.strides[i] + extra[i] + (w.kernel[i] - 1) * w.dilations[i] + 1;
        int64_t wanted = shape ? shape[i] : same ? spread : full - pads[i] - pads[rank + i];
        if (wanted < 1 || wanted > SN_MAX_ELEMENTS) sn_node_fail(n, NULL, "the result has no elements in dim %d", i);
        int64_t total = full - wanted;
        w.pads[i] = shape || same ? (upper ? total / 2 : total - total / 2) : pads[i];
        w.pads[rank + i] = shape || same ? total - w.pads[i] : pads[rank + i];
        out.dim[2 + i] = wanted;
    }
    for (int i = 0; i < 2 * rank; i++)
        if (w.pads[i] < 0 || w.pads[i] > INT32_MAX) sn_node_unsupported(n, "a negative or huge pad");
    sn_attr attrs[4];
    int n_attrs = window_attrs(&w, false, attrs);
    attrs[n_attrs++] = sn_attr_int("groups", groups);
    sn_value *operands[] = {x, weights};
    sn_node_out(n, 0, add_bias(n, sn_emit(n, SN_OP_CONV_INPUT_GRAD, 2, operands, n_attrs, attrs, &out)->results[0]));
}

static window pool_window(sn_node *n, sn_type x) {
    int64_t kernel[SN_MAX_RANK];
    if (!sn_node_attr(n, "kernel_shape")) sn_node_fail(n, NULL, "kernel_shape is missing");
    sn_node_list(n, "kernel_shape", x.rank - 2, 1, 1, kernel);
    return read_window(n, x, kernel, sn_node_int(n, "ceil_mode", 0));
}

static sn_type pooled_type(const window *w, sn_type x) {
    for (int i = 0; i < w->rank; i++) x.dim[2 + i] = w->out[i];
    return x;
}

static sn_value *average(sn_node *n, sn_value *x, const window *w, bool include_pad) {
    sn_attr attrs[5];
    int count = window_attrs(w, true, attrs);
    attrs[count++] = sn_attr_int("include_pad", include_pad);
    sn_type type = pooled_type(w, x->type);
    return sn_emit(n, SN_OP_AVG_POOL, 1, &x, count, attrs, &type)->results[0];
}

void sn_handle_average_pool(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    window w = pool_window(n, x->type);
    sn_node_out(n, 0, average(n, x, &w, sn_node_int(n, "count_include_pad", 0)));
}

// The op counts positions in the whole operand; storage_order 1 counts the spatial dims column by column.
static sn_value *column_major(sn_node *n, sn_value *index, sn_type x) {
    int64_t spatial = 1, weight = 1;
    for (int i = 2; i < x.rank; i++) spatial *= x.dim[i];
    if (spatial == 0) return index;
    sn_value *rest = sn_emit_number(n, SN_OP_MOD, index, (double)spatial);
    sn_value *out = sn_emit_binary(n, SN_OP_SUB, index, rest);
    int64_t below = spatial;
    for (int i = 2; i < x.rank; i++) {
        below /= x.dim[i];
        sn_value *at = sn_emit_number(n, SN_OP_DIV, rest, (double)below);
        rest = sn_emit_number(n, SN_OP_MOD, rest, (double)below);
        out = sn_emit_binary(n, SN_OP_ADD, out, sn_emit_number(n, SN_OP_MUL, at, (double)weight));
        weight *= x.dim[i];
    }
    return out;
}

void sn_handle_max_pool(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    window w = pool_window(n, x->type);
    sn_attr attrs[4];
    int count = window_attrs(&w, true, attrs);
    sn_type type = pooled_type(&w, x->type), types[] = {type, sn_type_with_dtype(type, SN_I64)};
    sn_op *op = sn_emit(n, SN_OP_MAX_POOL, 1, &x, count, attrs, types);
    sn_node_out(n, 0, op->results[0]);
    if (!sn_node_wants(n, 1)) return;
    bool columns = sn_node_int(n, "storage_order", 0);
    sn_node_out(n, 1, columns ? column_major(n, op->results[1], x->type) : op->results[1]);
}

// Scatters the values to the places that MaxPool's indices name, zeros elsewhere.
void sn_handle_max_unpool(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *index = sn_node_in(n, 1);
    int rank = x->type.rank, count = 0, spatial = rank - 2;
    int64_t kernel[SN_MAX_RANK], strides[SN_MAX_RANK], pads[2 * SN_MAX_RANK];
    sn_node_list(n, "kernel_shape", spatial, 1, 1, kernel);
    sn_node_list(n, "strides", spatial, 1, 1, strides);
    sn_node_list(n, "pads", 2 * spatial, 0, 0, pads);
    sn_type inner = x->type;
    for (int i = 0; i < spatial; i++)
        inner.dim[2 + i] =
            sn_node_times(n, x->type.dim[2 + i], strides[i]) - strides[i] + kernel[i] - pads[i] - pads[spatial + i];
    inner = sn_node_type(n, inner.dtype, rank, inner.dim);
    const int64_t *shape = sn_node_has(n, 2) ? sn_node_known_ints(n, 2, &count) : inner.dim;
    if (shape != inner.dim && count != rank) sn_node_fail(n, NULL, "output_shape has not one number per dim");
    sn_type out = sn_node_type(n, inner.dtype, rank, shape);
    for (int i = 0; i < rank; i++)
        if (out.dim[i] < inner.dim[i]) sn_node_fail(n, NULL, "output_shape is smaller than the windows");
    int64_t size = sn_type_count(inner), n_values = sn_type_count(x->type);
    sn_value *zeros = sn_emit_splat(n, sn_type_make(x->type.dtype, 1, &size), 0);
    sn_value *operands[] = {zeros, sn_emit_reshape(n, index, 1, &n_values), sn_emit_reshape(n, x, 1, &n_values)};
    sn_attr axis = sn_attr_int("axis", 0);
    sn_value *flat = sn_emit(n, SN_OP_SCATTER_ELEMENTS, 3, operands, 1, &axis, NULL)->results[0];
    int64_t low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK];
    for (int i = 0; i < rank; i++) high[i] = out.dim[i] - inner.dim[i];
    sn_node_out(n, 0, sn_emit_pad(n, sn_emit_reshape(n, flat, rank, inner.dim), low, high, 0));
}

static int spatial_axes(sn_type x, int64_t *axes) {
    for (int i = 2; i < x.rank; i++) axes[i - 2] = i;
    return x.rank - 2;
}

void sn_handle_global_average_pool(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int64_t axes[SN_MAX_RANK];
    int count = spatial_axes(x->type, axes);
    sn_node_out(n, 0, sn_emit_mean(n, x, count, axes));
}

void sn_handle_global_max_pool(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int64_t axes[SN_MAX_RANK];
    int count = spatial_axes(x->type, axes);
    sn_node_out(n, 0, sn_emit_reduce(n, SN_OP_REDUCE_MAX, x, count, axes, true));
}

static sn_value *root(sn_node *n, sn_value *sum, int64_t p) {
    if (p == 1) return sum;
    return p == 2 ? sn_emit_unary(n, SN_OP_SQRT, sum) : sn_emit_number(n, SN_OP_POW, sum, 1.0 / (double)p);
}

static sn_value *powers(sn_node *n, sn_value *x, int64_t p) {
    if (p == 2) return sn_emit_binary(n, SN_OP_MUL, x, x);
    sn_value *size = sn_emit_unary(n, SN_OP_ABS, x);
    return p == 1 ? size : sn_emit_number(n, SN_OP_POW, size, (double)p);
}

void sn_handle_global_lp_pool(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int64_t axes[SN_MAX_RANK], p = sn_node_int(n, "p", 2);
    int count = spatial_axes(x->type, axes);
    sn_node_out(n, 0, root(n, sn_emit_reduce(n, SN_OP_REDUCE_SUM, powers(n, x, p), count, axes, true), p));
}

// The sum over a window is its mean, padding counted, times the window's size. A last window that reaches beyond the
// padding (ceil_mode) has fewer elements in its mean; explicit zeros make it whole.
void sn_handle_lp_pool(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int64_t p = sn_node_int(n, "p", 2), low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK] = {0};
    window w = pool_window(n, x->type);
    double size = 1;
    for (int i = 0; i < w.rank; i++) {
        int64_t reach = (w.out[i] - 1) * w.strides[i] + (w.kernel[i] - 1) * w.dilations[i] + 1;
        int64_t padded = x->type.dim[2 + i] + w.pads[i] + w.pads[w.rank + i];
        low[2 + i] = w.pads[i];
        high[2 + i] = w.pads[w.rank + i] + (reach > padded ? reach - padded : 0);
        w.pads[i] = w.pads[w.rank + i] = 0;
        size *= (double)w.kernel[i];
    }
    sn_value *sum = average(n, sn_emit_pad(n, powers(n, x, p), low, high, 0), &w, true);
    sn_node_out(n, 0, root(n, sn_emit_number(n, SN_OP_MUL, sum, size), p));
}
