// Sampling of images at computed places: GridSample and AffineGrid; and Col2Im, which adds blocks up to an image.
#include "frontend/handlers.h"

#include <math.h>
#include <string.h>

enum { MOST_CORNERS = 64 };

typedef enum padding { ZEROS, BORDER, REFLECTION } padding;

// One spatial dim of a sampled image, and where along it the samples lie ([N, samples], in pixels).
typedef struct sampled_axis {
    int64_t size;
    sn_value *at;
} sampled_axis;

typedef struct sampler {
    sn_node *n;
    bool align;
    padding padding;
    int taps; // per dim: 1 nearest, 2 linear, 4 cubic
    int rank;
    sampled_axis axis[SN_MAX_RANK];
    sn_value *image; // [N, C, pixels]
    int64_t stride[SN_MAX_RANK];
} sampler;

static sn_value *clamp(sn_node *n, sn_value *x, double low, double high) {
    return sn_emit_number(n, SN_OP_MIN, sn_emit_number(n, SN_OP_MAX, x, low), high);
}

// Folds x into [low, high] as between two mirrors: with t = (x - low) mod 2r, low + r - |t - r|.
static sn_value *reflect(sn_node *n, sn_value *x, double low, double high) {
    double range = high - low;
    if (range <= 0) return sn_emit_splat(n, x->type, low);
    sn_value *t = sn_emit_number(n, SN_OP_MOD, sn_emit_number(n, SN_OP_SUB, x, low), 2 * range);
    sn_value *off = sn_emit_unary(n, SN_OP_ABS, sn_emit_number(n, SN_OP_SUB, t, range));
    return sn_emit_unary(n, SN_OP_NEG, sn_emit_number(n, SN_OP_SUB, off, low + range));
}

// Brings places beyond the image back, as the padding mode asks; zeros are handled where pixels are read.
static sn_value *fold_back(const sampler *s, sn_value *x, int64_t size) {
    if (s->padding == BORDER) return clamp(s->n, x, 0, (double)(size - 1));
    if (s->padding == REFLECTION) return reflect(s->n, x, s->align ? 0 : -0.5, (double)size - (s->align ? 1 : 0.5));
    return x;
}

// Keys' cubic convolution kernel with a = -0.75 (Keys 1981), at distance |t| of tap i from the place.
static sn_value *cubic_weight(sn_node *n, sn_value *fraction, int tap) {
    const double a = -0.75;
    sn_value *d = sn_emit_unary(n, SN_OP_ABS, sn_emit_number(n, SN_OP_SUB, fraction, tap - 1));
    bool near = tap == 1 || tap == 2;
    // near: ((a+2) d - (a+3)) d^2 + 1; far: ((a d - 5a) d + 8a) d - 4a
    double c[4] = {near ? 1 : -4 * a, near ? 0 : 8 * a, near ? -(a + 3) : -5 * a, near ? a + 2 : a};
    sn_value *y = sn_emit_number(n, SN_OP_MUL, d, c[3]);
    for (int i = 2; i > 0; i--) y = sn_emit_binary(n, SN_OP_MUL, sn_emit_number(n, SN_OP_ADD, y, c[i]), d);
    return sn_emit_number(n, SN_OP_ADD, y, c[0]);
}

// Of one tap along one dim: the pixel's coordinate and the weight with which it counts (NULL: 1).
static void tap_of(const sampler *s, const sampled_axis *axis, int tap, sn_value **pixel, sn_value **weight) {
    sn_node *n = s->n;
    if (s->taps == 1) {
        *pixel = fold_back(s, sn_emit_unary(n, SN_OP_ROUND, axis->at), axis->size);
        *weight = NULL;
        return;
    }
    sn_value *floor = sn_emit_unary(n, SN_OP_FLOOR, axis->at),
             *fraction = sn_emit_binary(n, SN_OP_SUB, axis->at, floor);
    *pixel = fold_back(s, sn_emit_number(n, SN_OP_ADD, floor, tap - (s->taps == 4)), axis->size);
    if (s->taps == 4)
        *weight = cubic_weight(n, fraction, tap);
    else
        *weight = tap ? fraction : sn_emit_unary(n, SN_OP_NEG, sn_emit_number(n, SN_OP_SUB, fraction, 1));
}

// The weighted pixels of one combination of taps: [N, C, samples].
static sn_value *sample_corner(const sampler *s, int corner) {
    sn_node *n = s->n;
    sn_value *index = NULL, *weight = NULL;
    for (int d = 0; d < s->rank; d++, corner /= s->taps) {
        sn_value *pixel, *share;
        int64_t size = s->axis[d].size;
        tap_of(s, &s->axis[d], corner % s->taps, &pixel, &share);
        if (s->padding == ZEROS) {
            sn_value *low = sn_emit_number(n, SN_OP_GREATER_EQUAL, pixel, 0);
            sn_value *high = sn_emit_number(n, SN_OP_LESS_EQUAL, pixel, (double)(size - 1));
            sn_value *inside = sn_emit_cast(n, sn_emit_binary(n, SN_OP_AND, low, high), pixel->type.dtype);
            share = share ? sn_emit_binary(n, SN_OP_MUL, share, inside) : inside;
        }
        pixel = sn_emit_cast(n, clamp(n, pixel, 0, (double)(size - 1)), SN_I64);
        sn_value *step = sn_emit_number(n, SN_OP_MUL, pixel, (double)s->stride[d]);
        index = index ? sn_emit_binary(n, SN_OP_ADD, index, step) : step;
        if (share) weight = weight ? sn_emit_binary(n, SN_OP_MUL, weight, share) : share;
    }
    int64_t batch = s->image->type.dim[0], channels = s->image->type.dim[1], samples = index->type.dim[1];
    int64_t single[] = {batch, 1, samples}, all[] = {batch, channels, samples};
    index = sn_emit_broadcast(n, sn_emit_reshape(n, index, 3, single), 3, all);
    sn_attr axis = sn_attr_int("axis", 2);
    sn_value *y = sn_emit(n, SN_OP_GATHER_ELEMENTS, 2, (sn_value *[]){s->image, index}, 1, &axis, NULL)->results[0];
    if (!weight) return y;
    weight = sn_emit_cast(n, sn_emit_reshape(n, weight, 3, single), y->type.dtype);
    return sn_emit_binary(n, SN_OP_MUL, y, weight);
}

static int taps_of_mode(sn_node *n) {
    const char *mode = sn_node_string(n, "mode", "linear");
    if (strcmp(mode, "nearest") == 0) return 1;
    if (strcmp(mode, "linear") == 0 || strcmp(mode, "bilinear") == 0) return 2;
    if (strcmp(mode, "cubic") == 0 || strcmp(mode, "bicubic") == 0) return 4;
    sn_node_unsupported(n, "mode %s", mode);
}

static padding padding_of(sn_node *n) {
    const char *mode = sn_node_string(n, "padding_mode", "zeros");
    if (strcmp(mode, "zeros") == 0) return ZEROS;
    if (strcmp(mode, "border") == 0) return BORDER;
    if (strcmp(mode, "reflection") == 0) return REFLECTION;
    sn_node_unsupported(n, "padding_mode %s", mode);
}

void sn_handle_grid_sample(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *grid = sn_node_in(n, 1);
    sampler s = {.n = n, .rank = x->type.rank - 2, .align = sn_node_int(n, "align_corners", 0)};
    s.taps = taps_of_mode(n);
    s.padding = padding_of(n);
    if (grid->type.rank != s.rank + 2 || grid->type.dim[s.rank + 1] != s.rank || grid->type.dim[0] != x->type.dim[0])
        sn_node_fail(n, NULL, "the grid does not match the image");
    int64_t samples = 1, pixels = 1, out[SN_MAX_RANK] = {x->type.dim[0], x->type.dim[1]};
    for (int d = s.rank - 1; d >= 0; d--) {
        s.stride[d] = pixels;
        pixels *= x->type.dim[2 + d];
        samples *= grid->type.dim[1 + d];
        out[2 + d] = grid->type.dim[1 + d];
    }
    s.image = sn_emit_reshape(n, x, 3, (int64_t[]){x->type.dim[0], x->type.dim[1], pixels});
    for (int d = 0; d < s.rank; d++) { // the grid's last coordinate belongs to the first dim
        sn_value *at = sn_emit_part(n, grid, s.rank + 1, s.rank - 1 - d, 1);
        double size = (double)x->type.dim[2 + d];
        at = sn_emit_reshape(n, at, 2, (int64_t[]){x->type.dim[0], samples});
        at = sn_emit_number(n, SN_OP_MUL, sn_emit_number(n, SN_OP_ADD, at, 1), (s.align ? size - 1 : size) / 2);
        if (!s.align) at = sn_emit_number(n, SN_OP_SUB, at, 0.5);
        if (s.taps == 1) at = sn_emit_unary(n, SN_OP_ROUND, at);
        s.axis[d] = (sampled_axis){x->type.dim[2 + d], fold_back(&s, at, x->type.dim[2 + d])};
    }
    sn_value *sum = NULL;
    int corners = 1;
    for (int d = 0; d < s.rank; d++) corners *= s.taps;
    if (corners > MOST_CORNERS) sn_node_unsupported(n, "%d pixels for each sample", corners);
    for (int corner = 0; corner < corners; corner++) {
        sn_value *part = sample_corner(&s, corner);
        sum = sum ? sn_emit_binary(n, SN_OP_ADD, sum, part) : part;
    }
    sn_node_out(n, 0, sn_emit_reshape(n, sum, x->type.rank, out));
}

// The places of the pixels of [N, C, sizes...] in [-1, 1], last dim first, with a 1 at the end; moved by theta.
void sn_handle_affine_grid(sn_node *n) {
    sn_value *theta = sn_node_in(n, 0);
    int count;
    const int64_t *size = sn_node_known_ints(n, 1, &count);
    int rank = count - 2;
    bool align = sn_node_int(n, "align_corners", 0);
    if (rank < 1 || theta->type.dim[1] != rank || theta->type.dim[2] != rank + 1)
        sn_node_fail(n, NULL, "theta does not match the size");
    sn_type image = sn_node_type(n, theta->type.dtype, count, size);
    int64_t pixels = 1, out[SN_MAX_RANK] = {theta->type.dim[0]};
    for (int d = 0; d < rank; d++) pixels *= out[1 + d] = image.dim[2 + d];
    sn_type type = sn_type_make(theta->type.dtype, 2, (int64_t[]){pixels, rank + 1});
    void *data = sn_node_table(n, type);
    for (int64_t p = 0; p < pixels; p++) {
        int64_t rest = p;
        for (int d = rank - 1; d >= 0; rest /= size[2 + d], d--) {
            double i = (double)(rest % size[2 + d]), length = (double)size[2 + d];
            double at = align ? (length > 1 ? 2 * i / (length - 1) - 1 : -1) : (2 * i + 1) / length - 1;
            sn_store_f64(type.dtype, data, p * (rank + 1) + rank - 1 - d, at);
        }
        sn_store_f64(type.dtype, data, p * (rank + 1) + rank, 1);
    }
    sn_value *moved = sn_emit_matmul(n, sn_node_constant(n, type, data), theta, false, true);
    out[rank + 1] = rank;
    sn_node_out(n, 0, sn_emit_reshape(n, moved, rank + 2, out));
}

// Col2Im sums overlapping blocks into an image: the gradient of a convolution whose weights copy each tap of a block to
// a channel of its own.
void sn_handle_col2im(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int rank, kernel_rank;
    const int64_t *image = sn_node_known_ints(n, 1, &rank), *block = sn_node_known_ints(n, 2, &kernel_rank);
    if (rank != kernel_rank || rank + 2 > SN_MAX_RANK)
        sn_node_fail(n, NULL, "image, block and input do not go together");
    int64_t strides[SN_MAX_RANK], dilations[SN_MAX_RANK], pads[2 * SN_MAX_RANK];
    sn_node_list(n, "strides", rank, 1, 1, strides);
    sn_node_list(n, "dilations", rank, 1, 1, dilations);
    sn_node_list(n, "pads", 2 * rank, 0, 0, pads);
    int64_t taps = sn_type_count(sn_node_type(n, x->type.dtype, rank, block));
    sn_node_type(n, x->type.dtype, rank, image);
    if (taps < 1 || taps > INT32_MAX || x->type.dim[1] % taps)
        sn_node_fail(n, NULL, "dim 1 of its input does not divide into blocks of %lld", (long long)taps);
    int64_t batch = x->type.dim[0], channels = x->type.dim[1] / taps;
    int64_t dims[SN_MAX_RANK] = {batch * channels, taps}, weights[SN_MAX_RANK] = {taps, 1};
    int64_t out[SN_MAX_RANK] = {batch * channels, 1}, whole[SN_MAX_RANK] = {batch, channels};
    for (int d = 0; d < rank; d++) {
        int64_t reach = dilations[d] * (block[d] - 1) + 1, room = image[d] + pads[d] + pads[rank + d] - reach;
        if (room < 0) sn_node_fail(n, NULL, "a block is larger than the image");
        dims[2 + d] = room / strides[d] + 1;
        weights[2 + d] = block[d];
        out[2 + d] = whole[2 + d] = image[d];
    }
    sn_type weight = sn_type_make(x->type.dtype, rank + 2, weights),
            result = sn_type_make(x->type.dtype, rank + 2, out);
    void *identity = sn_node_table(n, weight);
    for (int64_t t = 0; t < taps; t++) sn_store_f64(weight.dtype, identity, t * taps + t, 1);
    sn_attr attrs[] = {sn_attr_ints("strides", strides, rank), sn_attr_ints("pads", pads, 2 * rank),
                       sn_attr_ints("dilations", dilations, rank)};
    sn_value *operands[] = {sn_emit_reshape(n, x, rank + 2, dims), sn_node_constant(n, weight, identity)};
    sn_value *y = sn_emit(n, SN_OP_CONV_INPUT_GRAD, 2, operands, 3, attrs, &result)->results[0];
    sn_node_out(n, 0, sn_emit_reshape(n, y, rank + 2, whole));
}
