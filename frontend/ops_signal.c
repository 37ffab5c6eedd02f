// Fourier transforms and windows. A transform along an axis is a product with a matrix of cosines and one of sines,
// which are constants: right for the lengths of audio frames, and differentiable like any product.
#include "frontend/handlers.h"

#include <math.h>
#include <string.h>

// A complex signal [rows, length]; `imaginary` is NULL for a real one.
typedef struct signal {
    sn_value *real, *imaginary;
} signal;

// [from, to] with element (i, k) = scale * f(2 pi i k / period).
static sn_value *wave(sn_node *n, sn_dtype dtype, int64_t from, int64_t to, int64_t period, double scale,
                      double (*f)(double)) {
    sn_type type = sn_type_make(dtype, 2, (int64_t[]){from, to});
    sn_tensor matrix = {type, sn_node_table(n, type)};
    for (int64_t i = 0; i < from; i++)
        for (int64_t k = 0; k < to; k++) {
            double turn = (double)(i * k % period) / (double)period; // exact for long signals too
            sn_store_f64(dtype, matrix.data, i * to + k, scale * f(2 * M_PI * turn));
        }
    return sn_node_constant(n, type, matrix.data);
}

// X[k] = sum over i of x[i] e^(-2 pi j i k / N), for the first `bins` k; the inverse has + and 1/N.
static signal transform(sn_node *n, signal x, int64_t length, int64_t bins, bool inverse) {
    sn_dtype dtype = x.real->type.dtype;
    int64_t given = x.real->type.dim[1];
    double scale = inverse ? 1 / (double)length : 1;
    sn_value *c = wave(n, dtype, given, bins, length, scale, cos);
    sn_value *s = wave(n, dtype, given, bins, length, inverse ? -scale : scale, sin);
    signal y = {sn_emit_matmul(n, x.real, c, false, false),
                sn_emit_unary(n, SN_OP_NEG, sn_emit_matmul(n, x.real, s, false, false))};
    if (x.imaginary) {
        y.real = sn_emit_binary(n, SN_OP_ADD, y.real, sn_emit_matmul(n, x.imaginary, s, false, false));
        y.imaginary = sn_emit_binary(n, SN_OP_ADD, y.imaginary, sn_emit_matmul(n, x.imaginary, c, false, false));
    }
    return y;
}

// The real signal of which x holds the first half of the spectrum: the other half is its mirrored conjugate, so every
// bin but the first and, for even lengths, the middle one counts twice.
static sn_value *transform_half(sn_node *n, signal x, int64_t length) {
    sn_dtype dtype = x.real->type.dtype;
    int64_t bins = x.real->type.dim[1];
    sn_type type = sn_type_make(dtype, 2, (int64_t[]){1, bins});
    void *weights = sn_node_table(n, type);
    for (int64_t k = 0; k < bins; k++) sn_store_f64(dtype, weights, k, k == 0 || 2 * k == length ? 1 : 2);
    sn_value *weight = sn_node_constant(n, type, weights);
    x.real = sn_emit_binary(n, SN_OP_MUL, x.real, weight);
    if (x.imaginary) x.imaginary = sn_emit_binary(n, SN_OP_MUL, x.imaginary, weight);
    return transform(n, x, length, length, true).real;
}

// Cuts or pads dim `axis` with zeros to `length`.
static sn_value *fit(sn_node *n, sn_value *x, int axis, int64_t length) {
    int64_t size = x->type.dim[axis], low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK] = {0};
    if (size > length) return sn_emit_part(n, x, axis, 0, length);
    if (size == length) return x;
    high[axis] = length - size;
    return sn_emit_pad(n, x, low, high, 0);
}

// The DFT of x [..., 1 or 2] along `axis`, with the real and imaginary parts in the last dim.
static sn_value *dft(sn_node *n, sn_value *x, int axis, int64_t length, bool inverse, bool onesided) {
    int rank = x->type.rank, last = rank - 1;
    if (length < 1 || length > SN_MAX_ELEMENTS)
        sn_node_fail(n, NULL, "the length of the transform is %lld", (long long)length);
    bool half = inverse && onesided; // from a half spectrum to a real signal
    x = fit(n, x, axis, half ? length / 2 + 1 : length);
    int64_t perm[SN_MAX_RANK], back[SN_MAX_RANK], moved[SN_MAX_RANK], parts = x->type.dim[last], rows = 1;
    int k = 0;
    perm[k++] = last;
    for (int d = 0; d < last; d++)
        if (d != axis) perm[k++] = d;
    perm[k] = axis;
    for (int d = 0; d < rank; d++) back[perm[d]] = d;
    x = sn_emit_transpose(n, x, perm); // [parts, ..., axis]
    for (int d = 1; d < last; d++) rows *= x->type.dim[d];
    memcpy(moved, x->type.dim, sizeof moved);
    int64_t size = x->type.dim[last], bins = onesided && !inverse ? length / 2 + 1 : length;
    signal in = {0}, out = {0};
    in.real = sn_emit_reshape(n, sn_emit_part(n, x, 0, 0, 1), 2, (int64_t[]){rows, size});
    if (parts > 1) in.imaginary = sn_emit_reshape(n, sn_emit_part(n, x, 0, 1, 1), 2, (int64_t[]){rows, size});
    if (half)
        out.real = transform_half(n, in, length);
    else
        out = transform(n, in, length, bins, inverse);
    moved[0] = 1, moved[last] = bins;
    sn_value *y = sn_emit_reshape(n, out.real, rank, moved);
    if (!half) y = sn_emit_concat(n, 2, (sn_value *[]){y, sn_emit_reshape(n, out.imaginary, rank, moved)}, 0);
    return sn_emit_transpose(n, y, back);
}

void sn_handle_dft(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int rank = x->type.rank;
    bool inverse = sn_node_int(n, "inverse", 0), onesided = sn_node_int(n, "onesided", 0);
    int64_t axis = sn_node_opset(n) < 20 ? sn_node_int(n, "axis", 1) : sn_node_known_int(n, 2, -2);
    int at = sn_node_axis(n, axis, rank);
    if (at == rank - 1) sn_node_fail(n, NULL, "the last dim holds the parts of complex numbers");
    int64_t size = x->type.dim[at], otherwise = inverse && onesided ? 2 * (size - 1) : size;
    int64_t length = sn_node_known_int(n, 1, otherwise);
    sn_node_out(n, 0, dft(n, x, at, length, inverse, onesided));
}

void sn_handle_stft(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *window = sn_node_optional(n, 2);
    int64_t step = sn_node_known_int(n, 1, 1), size = x->type.dim[1];
    int64_t length = sn_node_known_int(n, 3, window ? window->type.dim[0] : size);
    if (step <= 0 || length <= 0 || length > size) sn_node_fail(n, NULL, "frames do not fit into the signal");
    int64_t frames = 1 + (size - length) / step;
    int64_t *at = sn_node_table(n, sn_type_make(SN_I64, 2, (int64_t[]){frames, length}));
    for (int64_t i = 0; i < frames * length; i++) at[i] = i / length * step + i % length;
    sn_value *indices = sn_node_constant_ints(n, 2, (int64_t[]){frames, length}, at);
    sn_value *framed = sn_emit_gather(n, x, indices, 1); // [batch, frames, length, parts]
    if (window) framed = sn_emit_binary(n, SN_OP_MUL, framed, sn_emit_reshape(n, window, 2, (int64_t[]){length, 1}));
    sn_node_out(n, 0, dft(n, framed, 2, length, false, sn_node_int(n, "onesided", 1)));
}

// A window sum over j of coefficient[j] cos(2 pi j i / N), with N one less when it is symmetric.
static void window(sn_node *n, const double coefficients[3]) {
    int64_t size = sn_node_known_int(n, 0, 0);
    sn_dtype dtype = sn_node_dtype(n, "output_datatype", SN_F32);
    if (size < 0) sn_node_fail(n, NULL, "the size is negative");
    double period = (double)(sn_node_int(n, "periodic", 1) ? size : size - 1);
    sn_type type = sn_type_make(dtype, 1, &size);
    void *data = sn_node_table(n, type);
    for (int64_t i = 0; i < size; i++) {
        double sum = 0;
        for (int j = 0; j < 3; j++) sum += coefficients[j] * cos(2 * M_PI * j * (double)i / period);
        sn_store_f64(dtype, data, i, sum);
    }
    sn_node_out(n, 0, sn_node_constant(n, type, data));
}

void sn_handle_hann_window(sn_node *n) {
    window(n, (double[]){0.5, -0.5, 0});
}

void sn_handle_hamming_window(sn_node *n) {
    window(n, (double[]){25.0 / 46, -21.0 / 46, 0});
}

void sn_handle_blackman_window(sn_node *n) {
    window(n, (double[]){0.42, -0.5, 0.08});
}

static double to_mel(double hertz) {
    return 2595 * log10(1 + hertz / 700);
}

static double from_mel(double mel) {
    return 700 * (pow(10, mel / 2595) - 1);
}

// Triangles whose corners are equally spaced on the mel scale.
void sn_handle_mel_weight_matrix(sn_node *n) {
    int64_t bands = sn_node_known_int(n, 0, 0), length = sn_node_known_int(n, 1, 0);
    double rate = sn_node_known_number(n, 2, 0);
    double low = to_mel(sn_node_known_number(n, 3, 0)), high = to_mel(sn_node_known_number(n, 4, 0));
    sn_dtype dtype = sn_node_dtype(n, "output_datatype", SN_F32);
    if (bands <= 0 || length < 0 || rate <= 0) sn_node_fail(n, NULL, "no such bands");
    int64_t bins = length / 2 + 1, corner[3];
    sn_type type = sn_type_make(dtype, 2, (int64_t[]){bins, bands});
    void *data = sn_node_table(n, type);
    for (int64_t b = 0; b < bands; b++) {
        for (int i = 0; i < 3; i++) {
            double hertz = from_mel(low + (double)(b + i) * (high - low) / (double)(bands + 2));
            double bin = floor(((double)length + 1) * hertz / rate);
            if (!(bin >= 0 && bin <= (double)bins)) sn_node_fail(n, NULL, "a band lies beyond the spectrum");
            corner[i] = (int64_t)bin;
        }
        double rise = (double)(corner[1] - corner[0]), fall = (double)(corner[2] - corner[1]);
        for (int64_t j = corner[0]; rise > 0 && j <= corner[1] && j < bins; j++)
            sn_store_f64(dtype, data, j * bands + b, (double)(j - corner[0]) / rise);
        if (rise == 0 && corner[1] < bins) sn_store_f64(dtype, data, corner[1] * bands + b, 1);
        for (int64_t j = corner[1]; fall > 0 && j < corner[2]; j++)
            sn_store_f64(dtype, data, j * bands + b, (double)(corner[2] - j) / fall);
    }
    sn_node_out(n, 0, sn_node_constant(n, type, data));
}
