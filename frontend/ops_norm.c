// Normalisations and dropout. Statistics are computed in f32 at least, in f64 for f64.
#include "frontend/handlers.h"

#include "frontend/import.h"

#include <string.h>

static sn_dtype statistics_type(sn_dtype dtype) {
    return dtype == SN_F64 ? SN_F64 : SN_F32;
}

static sn_value *rsqrt_of(sn_node *n, sn_value *variance, double eps) {
    return sn_emit_unary(n, SN_OP_RSQRT, sn_emit_number(n, SN_OP_ADD, variance, eps));
}

// (x - mean) * rstd over axes.
static sn_value *normalise(sn_node *n, sn_value *x, int n_axes, const int64_t *axes, double eps) {
    sn_value *centred = sn_emit_binary(n, SN_OP_SUB, x, sn_emit_mean(n, x, n_axes, axes));
    sn_value *variance = sn_emit_mean(n, sn_emit_binary(n, SN_OP_MUL, centred, centred), n_axes, axes);
    return sn_emit_binary(n, SN_OP_MUL, centred, rsqrt_of(n, variance, eps));
}

static sn_value *scale_and_shift(sn_node *n, sn_value *x, sn_value *scale, sn_value *bias) {
    sn_value *y = sn_emit_binary(n, SN_OP_MUL, x, scale);
    return bias ? sn_emit_binary(n, SN_OP_ADD, y, bias) : y;
}

// Scale and bias may have fewer dims than the normalised ones, or dims of size 1; the op wants them whole.
static sn_value *whole(sn_node *n, sn_value *value, sn_type x, int axis) {
    return value ? sn_emit_broadcast(n, value, x.rank - axis, x.dim + axis) : NULL;
}

// Scale and bias that reach beyond the normalised dims are applied outside.
static bool fits(const sn_value *value, sn_type x, int axis) {
    sn_type inner = sn_type_make(x.dtype, x.rank - axis, x.dim + axis), both;
    return !value || (sn_type_broadcast(inner, value->type, &both) && sn_shape_equal(inner, both));
}

void sn_handle_layer_normalization(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *scale = sn_node_in(n, 1), *bias = sn_node_optional(n, 2);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", -1), x->type.rank);
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_float("eps", sn_node_float(n, "epsilon", (double)1e-5f))};
    bool inside = fits(scale, x->type, axis) && fits(bias, x->type, axis);
    sn_type inner = sn_type_make(x->type.dtype, x->type.rank - axis, x->type.dim + axis);
    sn_value *operands[] = {x, inside ? whole(n, scale, x->type, axis) : sn_emit_splat(n, inner, 1),
                            inside ? whole(n, bias, x->type, axis) : NULL};
    sn_op *op = sn_emit(n, SN_OP_LAYER_NORM, operands[2] ? 3 : 2, operands, 2, attrs, NULL);
    sn_node_out(n, 0, inside ? op->results[0] : scale_and_shift(n, op->results[0], scale, bias));
    int64_t dims[SN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) dims[i] = i < axis ? x->type.dim[i] : 1;
    for (int i = 1; i < 3; i++)
        if (sn_node_wants(n, i)) sn_node_out(n, i, sn_emit_reshape(n, op->results[i], x->type.rank, dims));
}

void sn_handle_rms_normalization(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *scale = sn_node_in(n, 1);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", -1), x->type.rank);
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_float("eps", sn_node_float(n, "epsilon", (double)1e-5f))};
    bool inside = fits(scale, x->type, axis);
    sn_type inner = sn_type_make(x->type.dtype, x->type.rank - axis, x->type.dim + axis);
    sn_value *operands[] = {x, inside ? whole(n, scale, x->type, axis) : sn_emit_splat(n, inner, 1)};
    sn_value *y = sn_emit(n, SN_OP_RMS_NORM, 2, operands, 2, attrs, NULL)->results[0];
    sn_node_out(n, 0, inside ? y : sn_emit_binary(n, SN_OP_MUL, y, scale));
}

// A running statistic that is an initializer is state of the training; PyTorch keeps the unbiased variance
// (n / (n - 1)), ONNX's output is the population's, so the state and the output differ by that factor. The forward pass
// assigns it, micro-batch by micro-batch.
static void update_state(sn_node *n, int input, sn_value *old, sn_value *batch, double momentum, double unbiased) {
    sn_value *state = sn_node_in(n, input);
    if (state->kind != SN_VALUE_GLOBAL) return;
    state->global->role = SN_ROLE_STATE;
    state->global->why = "running statistics of BatchNormalization";
    sn_value *kept = sn_emit_number(n, SN_OP_MUL, old, momentum);
    sn_value *added = sn_emit_number(n, SN_OP_MUL, batch, (1 - momentum) * unbiased);
    sn_value *next = sn_emit_cast(n, sn_emit_binary(n, SN_OP_ADD, kept, added), state->type.dtype);
    sn_emit(n, SN_OP_ASSIGN, 2, (sn_value *[]){state, next}, 0, NULL, NULL);
}

static sn_value *mix(sn_node *n, sn_value *old, sn_value *batch, double momentum) {
    return sn_emit_binary(n, SN_OP_ADD, sn_emit_number(n, SN_OP_MUL, old, momentum),
                          sn_emit_number(n, SN_OP_MUL, batch, 1 - momentum));
}

static sn_value *normalise_batch(sn_node *n, sn_value *x, sn_value *mean, sn_value *variance, double eps) {
    int rank = x->type.rank;
    sn_value *centred = sn_emit_binary(n, SN_OP_SUB, x, sn_emit_aligned(n, mean, 1, rank));
    sn_value *rstd = sn_emit_aligned(n, rsqrt_of(n, variance, eps), 1, rank);
    return sn_emit_binary(n, SN_OP_MUL, centred, rstd);
}

// Means over the batch are sums divided by global counts, so they do not depend on how the batch is split.
static sn_value *train_batch(sn_node *n, sn_value *x, sn_dtype wide, double eps) {
    double momentum = sn_node_float(n, "momentum", (double)0.9f), count = 1;
    int64_t axes[SN_MAX_RANK], channels = x->type.dim[1];
    int n_axes = 0;
    for (int i = 0; i < x->type.rank; i++) {
        if (i == 1) continue;
        axes[n_axes++] = i;
        count *= (double)x->type.dim[i];
    }
    sn_value *mean = sn_emit_mean(n, x, n_axes, axes), *centred = sn_emit_binary(n, SN_OP_SUB, x, mean);
    sn_value *variance = sn_emit_mean(n, sn_emit_binary(n, SN_OP_MUL, centred, centred), n_axes, axes);
    sn_value *y = sn_emit_binary(n, SN_OP_MUL, centred, rsqrt_of(n, variance, eps));
    mean = sn_emit_reshape(n, mean, 1, &channels);
    variance = sn_emit_reshape(n, variance, 1, &channels);
    sn_value *old_mean = sn_emit_cast(n, sn_node_in(n, 3), wide),
             *old_variance = sn_emit_cast(n, sn_node_in(n, 4), wide);
    update_state(n, 3, old_mean, mean, momentum, 1);
    update_state(n, 4, old_variance, variance, momentum, count > 1 ? count / (count - 1) : 1);
    sn_dtype stored = sn_node_in(n, 3)->type.dtype;
    if (sn_node_wants(n, 1)) sn_node_out(n, 1, sn_emit_cast(n, mix(n, old_mean, mean, momentum), stored));
    if (sn_node_wants(n, 2)) sn_node_out(n, 2, sn_emit_cast(n, mix(n, old_variance, variance, momentum), stored));
    n->import->has_training = true;
    return y;
}

static void freeze(sn_value *value) {
    if (value->kind != SN_VALUE_GLOBAL || value->global->role == SN_ROLE_STATE) return;
    value->global->role = SN_ROLE_FROZEN;
    value->global->why = "running statistics of BatchNormalization in inference mode";
}

static bool in_training(sn_node *n, bool exported) {
    sn_onnx_mode mode = sn_node_mode(n);
    return mode == SN_ONNX_AS_EXPORTED ? exported : mode == SN_ONNX_TRAINING;
}

void sn_handle_batch_normalization(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    sn_dtype dtype = x->type.dtype, wide = statistics_type(dtype);
    int rank = x->type.rank;
    double eps = sn_node_float(n, "epsilon", (double)1e-5f);
    // Before opset 14 the number of outputs says in which mode it is.
    bool exported = sn_node_opset(n) < 14 ? sn_node_wants(n, 1) : sn_node_int(n, "training_mode", 0);
    sn_value *wide_x = sn_emit_cast(n, x, wide), *y;
    if (in_training(n, exported)) {
        y = train_batch(n, wide_x, wide, eps);
    } else {
        sn_value *mean = sn_node_in(n, 3), *variance = sn_node_in(n, 4);
        freeze(mean);
        freeze(variance);
        y = normalise_batch(n, wide_x, sn_emit_cast(n, mean, wide), sn_emit_cast(n, variance, wide), eps);
        if (sn_node_wants(n, 1)) sn_node_out(n, 1, mean);
        if (sn_node_wants(n, 2)) sn_node_out(n, 2, variance);
    }
    sn_value *scale = sn_emit_aligned(n, sn_emit_cast(n, sn_node_in(n, 1), wide), 1, rank);
    sn_value *bias = sn_emit_aligned(n, sn_emit_cast(n, sn_node_in(n, 2), wide), 1, rank);
    sn_node_out(n, 0, sn_emit_cast(n, scale_and_shift(n, y, scale, bias), dtype));
}

void sn_handle_instance_normalization(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    sn_dtype dtype = x->type.dtype, wide = statistics_type(dtype);
    int64_t axes[SN_MAX_RANK];
    int rank = x->type.rank;
    for (int i = 2; i < rank; i++) axes[i - 2] = i;
    double eps = sn_node_float(n, "epsilon", (double)1e-5f);
    sn_value *y = normalise(n, sn_emit_cast(n, x, wide), rank - 2, axes, eps);
    sn_value *scale = sn_emit_aligned(n, sn_emit_cast(n, sn_node_in(n, 1), wide), 1, rank);
    sn_value *bias = sn_emit_aligned(n, sn_emit_cast(n, sn_node_in(n, 2), wide), 1, rank);
    sn_node_out(n, 0, sn_emit_cast(n, scale_and_shift(n, y, scale, bias), dtype));
}

// Scale and bias are one per group before opset 21, one per channel from there on.
void sn_handle_group_normalization(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *scale = sn_node_in(n, 1), *bias = sn_node_in(n, 2);
    sn_type type = x->type;
    sn_dtype wide = statistics_type(type.dtype);
    int64_t groups = sn_node_int(n, "num_groups", 0), rest = 1;
    if (groups < 1 || type.dim[1] % groups) sn_node_fail(n, NULL, "the channels do not divide by num_groups");
    for (int i = 2; i < type.rank; i++) rest *= type.dim[i];
    int64_t per = type.dim[1] / groups, shape[] = {type.dim[0], groups, per * rest};
    sn_value *y = sn_emit_reshape(n, sn_emit_cast(n, x, wide), 3, shape);
    y = normalise(n, y, 1, (int64_t[]){2}, sn_node_float(n, "epsilon", (double)1e-5f));
    scale = sn_emit_cast(n, scale, wide);
    bias = sn_emit_cast(n, bias, wide);
    if (sn_node_opset(n) < 21 && scale->type.dim[0] == groups) {
        y = scale_and_shift(n, y, sn_emit_aligned(n, scale, 1, 3), sn_emit_aligned(n, bias, 1, 3));
        y = sn_emit_reshape(n, y, type.rank, type.dim);
    } else {
        y = sn_emit_reshape(n, y, type.rank, type.dim);
        y = scale_and_shift(n, y, sn_emit_aligned(n, scale, 1, type.rank), sn_emit_aligned(n, bias, 1, type.rank));
    }
    sn_node_out(n, 0, sn_emit_cast(n, y, type.dtype));
}

void sn_handle_lp_normalization(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", -1), x->type.rank);
    int64_t p = sn_node_int(n, "p", 2);
    if (p != 1 && p != 2) sn_node_fail(n, NULL, "p is %lld, neither 1 nor 2", (long long)p);
    sn_value *sizes = p == 1 ? sn_emit_unary(n, SN_OP_ABS, x) : sn_emit_binary(n, SN_OP_MUL, x, x);
    sn_value *norm = sn_emit_reduce_axis(n, SN_OP_REDUCE_SUM, sizes, axis, true);
    if (p == 2) norm = sn_emit_unary(n, SN_OP_SQRT, norm);
    sn_value *zero = sn_emit_number(n, SN_OP_EQUAL, norm, 0); // a row of zeros stays one
    norm = sn_emit_where(n, zero, sn_emit_scalar(n, norm->type.dtype, 1), norm);
    sn_node_out(n, 0, sn_emit_binary(n, SN_OP_DIV, x, norm));
}

// (x - mean) / (sqrt(E[x^2] - mean^2) + 1e-9), as the operator's function body has it
void sn_handle_mean_variance_normalization(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    static const int64_t usual[] = {0, 2, 3};
    int count;
    const int64_t *given = sn_node_ints(n, "axes", &count);
    int64_t axes[SN_MAX_RANK];
    if (!given) count = 3;
    if (count > x->type.rank) sn_node_fail(n, NULL, "it has %d axes for rank %d", count, x->type.rank);
    for (int i = 0; i < count; i++) axes[i] = sn_node_axis(n, given ? given[i] : usual[i], x->type.rank);
    sn_value *centred = sn_emit_binary(n, SN_OP_SUB, x, sn_emit_mean(n, x, count, axes));
    sn_value *variance = sn_emit_mean(n, sn_emit_binary(n, SN_OP_MUL, centred, centred), count, axes);
    sn_value *deviation = sn_emit_number(n, SN_OP_ADD, sn_emit_unary(n, SN_OP_SQRT, variance), 1e-9);
    sn_node_out(n, 0, sn_emit_binary(n, SN_OP_DIV, centred, deviation));
}

// x / (bias + alpha / size * sum of squares over `size` neighbouring channels)^beta (Krizhevsky et al. 2012)
void sn_handle_lrn(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *sum = NULL;
    int64_t size = sn_node_int_within(n, "size", 0, 1, 4096), low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK] = {0};
    double alpha = sn_node_float(n, "alpha", (double)0.0001f), beta = sn_node_float(n, "beta", 0.75);
    low[1] = (size - 1) / 2;
    high[1] = size - 1 - low[1];
    sn_value *squares = sn_emit_pad(n, sn_emit_binary(n, SN_OP_MUL, x, x), low, high, 0);
    for (int64_t i = 0; i < size; i++) {
        sn_value *shifted = sn_emit_part(n, squares, 1, i, x->type.dim[1]);
        sum = sum ? sn_emit_binary(n, SN_OP_ADD, sum, shifted) : shifted;
    }
    sn_value *base = sn_emit_number(n, SN_OP_MUL, sum, alpha / (double)size);
    base = sn_emit_number(n, SN_OP_ADD, base, sn_node_float(n, "bias", 1));
    sn_node_out(n, 0, sn_emit_binary(n, SN_OP_DIV, x, sn_emit_number(n, SN_OP_POW, base, beta)));
}

// Keeps an element with probability 1 - ratio and scales it by the inverse (Srivastava et al. 2014).
void sn_handle_dropout(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    // The ratio was an attribute before opset 12, and training a matter of another graph.
    double ratio = sn_node_known_number(n, 1, sn_node_float(n, "ratio", 0.5));
    bool exported = sn_node_known_number(n, 2, 0) != 0;
    bool training = in_training(n, exported);
    if (!(ratio >= 0 && ratio < 1)) sn_node_fail(n, NULL, "its ratio %g is not in [0, 1)", ratio);
    if (!training || ratio == 0) {
        sn_node_out(n, 0, x);
        if (sn_node_wants(n, 1)) sn_node_out(n, 1, sn_emit_splat(n, sn_type_with_dtype(x->type, SN_BOOL), 1));
        return;
    }
    n->import->has_training = true;
    sn_value *seed, *step;
    int64_t id;
    sn_node_random(n, &seed, &step, &id);
    sn_attr attrs[] = {sn_attr_int("id", id), sn_attr_ints("global", x->type.dim, x->type.rank)};
    sn_type type = sn_type_with_dtype(x->type, SN_F32);
    sn_value *uniform = sn_emit(n, SN_OP_RANDOM_UNIFORM, 2, (sn_value *[]){seed, step}, 2, attrs, &type)->results[0];
    sn_value *mask = sn_emit_number(n, SN_OP_GREATER_EQUAL, uniform, ratio);
    sn_value *scaled = sn_emit_number(n, SN_OP_MUL, x, 1 / (1 - ratio));
    sn_node_out(n, 0, sn_emit_where(n, mask, scaled, sn_emit_scalar(n, x->type.dtype, 0)));
    sn_node_out(n, 1, mask);
}
