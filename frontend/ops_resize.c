// Resize: one axis after the other. Nearest is a gather, the others are products with a matrix [out, in] of weights
// that the import computes (ONNX's operator description has the formulas).
#include "frontend/handlers.h"

#include <math.h>
#include <string.h>

#define LARGEST_DIM 1e9

typedef struct resize {
    const char *mode, *coordinates, *nearest;
    bool antialias, exclude_outside;
    double cubic_a, extrapolation;
    double roi_start[SN_MAX_RANK], roi_end[SN_MAX_RANK];
} resize;

typedef struct axis_plan {
    int64_t in, out;
    double scale, start, end;
} axis_plan;

// Where output element i lies among the input's.
static double source_of(sn_node *n, const resize *r, const axis_plan *a, int64_t i) {
    const char *c = r->coordinates;
    double x = (double)i, in = (double)a->in, out = a->scale * in;
    if (strcmp(c, "half_pixel") == 0) return (x + 0.5) / a->scale - 0.5;
    if (strcmp(c, "asymmetric") == 0) return x / a->scale;
    if (strcmp(c, "align_corners") == 0) return out <= 1 || a->out == 1 ? 0 : x * (in - 1) / (out - 1);
    if (strcmp(c, "pytorch_half_pixel") == 0) return a->out > 1 ? (x + 0.5) / a->scale - 0.5 : -0.5;
    if (strcmp(c, "tf_half_pixel_for_nn") == 0) return (x + 0.5) / a->scale;
    if (strcmp(c, "half_pixel_symmetric") == 0) return in / 2 * (1 - (double)a->out / out) + (x + 0.5) / a->scale - 0.5;
    if (strcmp(c, "tf_crop_and_resize") != 0) sn_node_fail(n, NULL, "the coordinates '%s' are unknown", c);
    if (a->out == 1) return (a->end - a->start) * (in - 1) / 2;
    return a->start * (in - 1) + x * (a->end - a->start) * (in - 1) / (double)(a->out - 1);
}

static int64_t clamp(int64_t value, int64_t size) {
    return value < 0 ? 0 : value >= size ? size - 1 : value;
}

// The index of the element at x, not yet clamped. A region may lie anywhere: far outside is as good as just outside.
static int64_t nearest_of(sn_node *n, const resize *r, double x, int64_t size) {
    x = fmin(fmax(x, -1), (double)size);
    if (strcmp(r->nearest, "round_prefer_floor") == 0) return (int64_t)ceil(x - 0.5);
    if (strcmp(r->nearest, "round_prefer_ceil") == 0) return (int64_t)floor(x + 0.5);
    if (strcmp(r->nearest, "floor") == 0) return (int64_t)floor(x);
    if (strcmp(r->nearest, "ceil") == 0) return (int64_t)ceil(x);
    sn_node_fail(n, NULL, "the rounding '%s' is unknown", r->nearest);
}

static double triangle(double d) {
    return fabs(d) < 1 ? 1 - fabs(d) : 0;
}

// Keys' kernel (1981) with parameter a.
static double cubic(double d, double a) {
    d = fabs(d);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

// The weights of the input's elements for one output element, into row (zeroed).
static void fill_row(const resize *r, const axis_plan *a, double x, double *row) {
    bool is_cubic = strcmp(r->mode, "cubic") == 0;
    double shrink = r->antialias && a->scale < 1 ? a->scale : 1, reach = (is_cubic ? 2 : 1) / shrink, sum = 0;
    x = fmin(fmax(x, -reach - 1), (double)a->in + reach); // far outside is as good as just outside
    int64_t first = (int64_t)floor(x - reach) + 1, last = (int64_t)ceil(x + reach) - 1;
    for (int64_t j = first; j <= last; j++) {
        double d = ((double)j - x) * shrink, weight = is_cubic ? cubic(d, r->cubic_a) : triangle(d);
        if (r->exclude_outside && (j < 0 || j >= a->in)) continue;
        row[clamp(j, a->in)] += weight;
        sum += weight;
    }
    if (r->exclude_outside || shrink < 1)
        for (int64_t j = 0; j < a->in && sum != 0; j++) row[j] /= sum;
}

static sn_value *multiply(sn_node *n, sn_value *x, int axis, sn_value *matrix) {
    int rank = x->type.rank;
    if (axis == rank - 1 && rank > 1) return sn_emit_matmul(n, x, matrix, false, true);
    if (axis == rank - 2) return sn_emit_matmul(n, matrix, x, false, false);
    if (rank == 1) {
        sn_value *row = sn_emit_matmul(n, sn_emit_aligned(n, x, 1, 2), matrix, false, true);
        return sn_emit_reshape(n, row, 1, &matrix->type.dim[0]);
    }
    int64_t perm[SN_MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i;
    perm[axis] = rank - 1;
    perm[rank - 1] = axis;
    sn_value *moved = sn_emit_matmul(n, sn_emit_transpose(n, x, perm), matrix, false, true);
    return sn_emit_transpose(n, moved, perm);
}

static sn_value *interpolate(sn_node *n, const resize *r, const axis_plan *a, sn_value *x, int axis) {
    sn_type type = sn_type_make(x->type.dtype, 2, (int64_t[]){a->out, a->in});
    void *data = sn_node_table(n, type);
    double *row = sn_node_table(n, sn_type_make(SN_F64, 1, &a->in));
    for (int64_t i = 0; i < a->out; i++) {
        memset(row, 0, sizeof *row * (size_t)a->in);
        fill_row(r, a, source_of(n, r, a, i), row);
        for (int64_t j = 0; j < a->in; j++) sn_store_f64(type.dtype, data, i * a->in + j, row[j]);
    }
    return multiply(n, x, axis, sn_node_constant(n, type, data));
}

static sn_value *pick_nearest(sn_node *n, const resize *r, const axis_plan *a, sn_value *x, int axis) {
    int64_t *index = sn_node_table(n, sn_type_make(SN_I64, 1, &a->out));
    for (int64_t i = 0; i < a->out; i++) index[i] = clamp(nearest_of(n, r, source_of(n, r, a, i), a->in), a->in);
    return sn_emit_gather(n, x, sn_node_constant_ints(n, 1, &a->out, index), axis);
}

// Elements that tf_crop_and_resize takes from outside the image.
static sn_value *extrapolate(sn_node *n, const resize *r, const axis_plan *a, sn_value *y, int axis) {
    uint8_t *outside = sn_node_table(n, sn_type_make(SN_BOOL, 1, &a->out));
    for (int64_t i = 0; i < a->out; i++) {
        double x = source_of(n, r, a, i);
        outside[i] = x < 0 || x > (double)(a->in - 1);
    }
    sn_value *mask = sn_node_constant(n, sn_type_make(SN_BOOL, 1, &a->out), outside);
    sn_value *value = sn_emit_scalar(n, y->type.dtype, r->extrapolation);
    return sn_emit_where(n, sn_emit_aligned(n, mask, axis, y->type.rank), value, y);
}

static const double *known_numbers(sn_node *n, int input, int *count) {
    *count = 0;
    if (!sn_node_has(n, input)) return NULL;
    const sn_tensor *tensor = sn_node_known(n, sn_node_in(n, input));
    if (!tensor) sn_node_fail(n, "export the model with fixed scales", "input %d must be known at compile time", input);
    *count = (int)sn_type_count(tensor->type);
    double *out = SN_NEW_N(sn_node_arena(n), double, *count + 1);
    for (int i = 0; i < *count; i++) out[i] = sn_load_f64(tensor->type.dtype, tensor->data, i);
    return *count ? out : NULL;
}

// Sizes that keep the aspect ratio use one scale for all axes.
static void keep_ratio(sn_node *n, int count, axis_plan *plans) {
    const char *policy = sn_node_string(n, "keep_aspect_ratio_policy", "stretch");
    bool larger = strcmp(policy, "not_smaller") == 0;
    if (!larger && strcmp(policy, "not_larger") != 0) return;
    double scale = plans[0].scale;
    for (int i = 1; i < count; i++)
        if (larger ? plans[i].scale > scale : plans[i].scale < scale) scale = plans[i].scale;
    for (int i = 0; i < count; i++) {
        double size = floor(scale * (double)plans[i].in + 0.5);
        if (!(size >= 1 && size < LARGEST_DIM)) sn_node_fail(n, NULL, "a dim cannot be resized to %g", size);
        plans[i].out = (int64_t)size;
        plans[i].scale = scale;
    }
}

static void plan_axes(sn_node *n, const sn_value *x, int scales_input, int count, const int *axes, axis_plan *plans) {
    int n_scales, n_sizes;
    const double *scales = known_numbers(n, scales_input, &n_scales);
    const double *sizes = known_numbers(n, scales_input + 1, &n_sizes);
    if ((scales != NULL) == (sizes != NULL) || (scales ? n_scales : n_sizes) != count)
        sn_node_fail(n, NULL, "it needs one scale, or one size, per axis");
    for (int i = 0; i < count; i++) {
        axis_plan *a = &plans[i];
        a->in = x->type.dim[axes[i]];
        double size = scales ? floor((double)a->in * scales[i]) : sizes[i];
        if (a->in < 1 || !(size >= 1 && size < LARGEST_DIM))
            sn_node_fail(n, NULL, "dim %d cannot be resized to %g", axes[i], size);
        a->out = (int64_t)size;
        a->scale = scales ? scales[i] : size / (double)a->in;
    }
    if (sizes) keep_ratio(n, count, plans);
}

static void run(sn_node *n, const resize *r, int count, const int *axes, const axis_plan *plans) {
    sn_value *x = sn_node_in(n, 0);
    bool nearest = strcmp(r->mode, "nearest") == 0, crop = strcmp(r->coordinates, "tf_crop_and_resize") == 0;
    if (!nearest && strcmp(r->mode, "linear") != 0 && strcmp(r->mode, "cubic") != 0)
        sn_node_fail(n, NULL, "the mode '%s' is unknown", r->mode);
    if (!nearest && !sn_dtype_is_float(x->type.dtype)) sn_node_unsupported(n, "interpolation of integers");
    for (int i = 0; i < count; i++) {
        const axis_plan *a = &plans[i];
        if (a->in == a->out && a->scale == 1 && !crop) continue;
        x = nearest ? pick_nearest(n, r, a, x, axes[i]) : interpolate(n, r, a, x, axes[i]);
    }
    for (int i = 0; i < count && crop; i++) x = extrapolate(n, r, &plans[i], x, axes[i]);
    sn_node_out(n, 0, x);
}

void sn_handle_resize(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    bool old = sn_node_opset(n) < 11; // asymmetric, floor, and no region
    int count, n_roi, rank = x->type.rank, axes[SN_MAX_RANK];
    const int64_t *given = sn_node_ints(n, "axes", &count);
    if (!given) count = rank;
    if (count > rank) sn_node_fail(n, NULL, "it has more axes than dims");
    for (int i = 0; i < count; i++) axes[i] = given ? sn_node_axis(n, given[i], rank) : i;
    resize r = {.mode = sn_node_string(n, "mode", "nearest"),
                .coordinates = sn_node_string(n, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"),
                .nearest = sn_node_string(n, "nearest_mode", old ? "floor" : "round_prefer_floor"),
                .antialias = sn_node_int(n, "antialias", 0),
                .exclude_outside = sn_node_int(n, "exclude_outside", 0),
                .cubic_a = sn_node_float(n, "cubic_coeff_a", -0.75),
                .extrapolation = sn_node_float(n, "extrapolation_value", 0)};
    axis_plan plans[SN_MAX_RANK] = {0};
    plan_axes(n, x, old ? 1 : 2, count, axes, plans);
    const double *roi = old ? NULL : known_numbers(n, 1, &n_roi);
    bool crop = strcmp(r.coordinates, "tf_crop_and_resize") == 0;
    if (crop && (!roi || n_roi != 2 * count)) sn_node_fail(n, NULL, "the region has not two numbers per axis");
    for (int i = 0; i < count && crop; i++) {
        plans[i].start = roi[i];
        plans[i].end = roi[count + i];
    }
    run(n, &r, count, axes, plans);
}

void sn_handle_upsample(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    resize r = {.mode = sn_node_string(n, "mode", "nearest"), .coordinates = "asymmetric", .nearest = "floor"};
    axis_plan plans[SN_MAX_RANK] = {0};
    int axes[SN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) axes[i] = i;
    plan_axes(n, x, 1, x->type.rank, axes, plans);
    run(n, &r, x->type.rank, axes, plans);
}
