// Random tensors. They come from (seed, step, number of the op, element), so they do not depend on the plan; the `seed`
// attribute, which would make every step draw the same numbers, is not used.
#include "frontend/handlers.h"

#include <math.h>

static sn_value *uniform(sn_node *n, sn_type shape) {
    sn_value *seed, *step;
    int64_t id;
    sn_node_random(n, &seed, &step, &id);
    sn_attr attrs[] = {sn_attr_int("id", id), sn_attr_ints("global", shape.dim, shape.rank)};
    sn_type type = sn_type_with_dtype(shape, SN_F32);
    return sn_emit(n, SN_OP_RANDOM_UNIFORM, 2, (sn_value *[]){seed, step}, 2, attrs, &type)->results[0];
}

// sqrt(-2 ln(1 - u)) cos(2 pi v) of two uniform numbers (Box and Muller 1958)
static sn_value *normal(sn_node *n, sn_type shape) {
    sn_value *rest = sn_emit_binary(n, SN_OP_SUB, sn_emit_scalar(n, SN_F32, 1), uniform(n, shape));
    sn_value *radius =
        sn_emit_unary(n, SN_OP_SQRT, sn_emit_number(n, SN_OP_MUL, sn_emit_unary(n, SN_OP_LOG, rest), -2));
    sn_value *angle = sn_emit_number(n, SN_OP_MUL, uniform(n, shape), 2 * M_PI);
    return sn_emit_binary(n, SN_OP_MUL, radius, sn_emit_unary(n, SN_OP_COS, angle));
}

static void finish(sn_node *n, sn_value *value, double scale, double offset, sn_dtype otherwise) {
    sn_dtype dtype = sn_node_dtype(n, "dtype", otherwise);
    value = sn_emit_number(n, SN_OP_ADD, sn_emit_number(n, SN_OP_MUL, value, scale), offset);
    sn_node_out(n, 0, sn_emit_cast(n, value, dtype));
}

static sn_type stated_shape(sn_node *n) {
    int rank;
    const int64_t *dims = sn_node_ints(n, "shape", &rank);
    if (!dims) sn_node_fail(n, NULL, "its shape is missing");
    return sn_node_type(n, SN_F32, rank, dims);
}

// A float type as it is; anything else draws f32.
static sn_dtype drawn_type(const sn_value *like) {
    return sn_dtype_is_float(like->type.dtype) ? like->type.dtype : SN_F32;
}

static void draw_uniform(sn_node *n, sn_type shape, sn_dtype dtype) {
    double low = sn_node_float(n, "low", 0), high = sn_node_float(n, "high", 1);
    finish(n, uniform(n, shape), high - low, low, dtype);
}

static void draw_normal(sn_node *n, sn_type shape, sn_dtype dtype) {
    finish(n, normal(n, shape), sn_node_float(n, "scale", 1), sn_node_float(n, "mean", 0), dtype);
}

void sn_handle_random_uniform(sn_node *n) {
    draw_uniform(n, stated_shape(n), SN_F32);
}
void sn_handle_random_normal(sn_node *n) {
    draw_normal(n, stated_shape(n), SN_F32);
}

void sn_handle_random_uniform_like(sn_node *n) {
    sn_value *like = sn_node_in(n, 0);
    draw_uniform(n, like->type, drawn_type(like));
}

void sn_handle_random_normal_like(sn_node *n) {
    sn_value *like = sn_node_in(n, 0);
    draw_normal(n, like->type, drawn_type(like));
}

// 1 with the probability that the input gives.
void sn_handle_bernoulli(sn_node *n) {
    sn_value *p = sn_node_in(n, 0);
    sn_dtype dtype = sn_node_dtype(n, "dtype", p->type.dtype);
    sn_value *drawn = sn_emit_binary(n, SN_OP_LESS, uniform(n, p->type), sn_emit_cast(n, p, SN_F32));
    sn_node_out(n, 0, sn_emit_cast(n, drawn, dtype));
}
