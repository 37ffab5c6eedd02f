// Optimizers of ai.onnx.preview.training as operators of a graph. Inputs: rate, count of updates, then the lists of
// tensors, gradients and states; outputs: the lists of new tensors and states. (What `sennit train` uses is its own.)
#include "frontend/handlers.h"

#include <string.h>

typedef struct update {
    sn_node *n;
    sn_value *rate, *count; // scalars; the count as the tensor's float type
    sn_value *x, *gradient;
    sn_value *state[2], *new_x, *new_state[2];
} update;

static sn_value *times(sn_node *n, sn_value *x, double factor) {
    return sn_emit_number(n, SN_OP_MUL, x, factor);
}

static sn_value *sum(sn_node *n, sn_value *x, sn_value *y) {
    return sn_emit_binary(n, SN_OP_ADD, x, y);
}

static sn_value *product(sn_node *n, sn_value *x, sn_value *y) {
    return sn_emit_binary(n, SN_OP_MUL, x, y);
}

// gradient + norm_coefficient * x
static sn_value *regularized(const update *u) {
    return sum(u->n, times(u->n, u->x, sn_node_float(u->n, "norm_coefficient", 0)), u->gradient);
}

static void each(sn_node *n, int states, void (*apply)(update *u)) {
    int lists = 2 + states, count = (sn_node_inputs(n) - 2) / lists;
    if (count < 1 || sn_node_inputs(n) != 2 + count * lists) sn_node_fail(n, NULL, "inputs do not form whole lists");
    for (int i = 0; i < count; i++) {
        update u = {.n = n, .x = sn_node_in(n, 2 + i), .gradient = sn_node_in(n, 2 + count + i)};
        sn_dtype dtype = u.x->type.dtype;
        u.rate = sn_emit_cast(n, sn_emit_reshape(n, sn_node_in(n, 0), 0, NULL), dtype);
        u.count = sn_emit_cast(n, sn_emit_reshape(n, sn_node_in(n, 1), 0, NULL), dtype);
        for (int s = 0; s < states; s++) u.state[s] = sn_node_in(n, 2 + (2 + s) * count + i);
        apply(&u);
        sn_node_out(n, i, u.new_x);
        for (int s = 0; s < states; s++) sn_node_out(n, (1 + s) * count + i, u.new_state[s]);
    }
}

// h += g^2; x -= rate / (1 + count * decay) * g / (sqrt(h) + eps)
static void adagrad(update *u) {
    sn_node *n = u->n;
    sn_value *g = regularized(u), *decay = times(n, u->count, sn_node_float(n, "decay_factor", 0));
    sn_value *rate = sn_emit_binary(n, SN_OP_DIV, u->rate, sn_emit_number(n, SN_OP_ADD, decay, 1));
    u->new_state[0] = sum(n, u->state[0], product(n, g, g));
    sn_value *root = sn_emit_unary(n, SN_OP_SQRT, u->new_state[0]);
    root = sn_emit_number(n, SN_OP_ADD, root, sn_node_float(n, "epsilon", 1e-6));
    sn_value *step = sn_emit_binary(n, SN_OP_DIV, product(n, rate, g), root);
    u->new_x = sn_emit_binary(n, SN_OP_SUB, u->x, step);
}

void sn_handle_adagrad(sn_node *n) {
    each(n, 1, adagrad);
}

// 1 - base^count
static sn_value *correction(const update *u, double base) {
    sn_node *n = u->n;
    sn_value *power = sn_emit_binary(n, SN_OP_POW, sn_emit_scalar(n, u->count->type.dtype, base), u->count);
    return sn_emit_number(n, SN_OP_ADD, sn_emit_unary(n, SN_OP_NEG, power), 1);
}

// v = a v + (1-a) g; h = b h + (1-b) g^2; x -= rate * sqrt(1-b^t) / (1-a^t) * v / (sqrt(h) + eps), uncorrected at t = 0
static void adam(update *u) {
    sn_node *n = u->n;
    double alpha = sn_node_float(n, "alpha", 0.9), beta = sn_node_float(n, "beta", 0.999);
    sn_value *g = regularized(u);
    u->new_state[0] = sum(n, times(n, u->state[0], alpha), times(n, g, 1 - alpha));
    u->new_state[1] = sum(n, times(n, u->state[1], beta), times(n, product(n, g, g), 1 - beta));
    sn_value *root = sn_emit_unary(n, SN_OP_SQRT, u->new_state[1]);
    root = sn_emit_number(n, SN_OP_ADD, root, sn_node_float(n, "epsilon", 1e-6));
    sn_value *corrected = product(n, u->rate, sn_emit_unary(n, SN_OP_SQRT, correction(u, beta)));
    corrected = sn_emit_binary(n, SN_OP_DIV, corrected, correction(u, alpha));
    sn_value *started = sn_emit_number(n, SN_OP_GREATER, u->count, 0);
    sn_value *rate = sn_emit_where(n, started, corrected, u->rate);
    sn_value *step = product(n, rate, sn_emit_binary(n, SN_OP_DIV, u->new_state[0], root));
    u->new_x = times(n, sn_emit_binary(n, SN_OP_SUB, u->x, step), 1 - sn_node_float(n, "norm_coefficient_post", 0));
}

void sn_handle_adam(sn_node *n) {
    each(n, 2, adam);
}

// v = alpha v + beta g, with 1 for beta at the first update; x -= rate v, or rate (g + alpha v) for Nesterov's.
static void momentum(update *u) {
    sn_node *n = u->n;
    double alpha = sn_node_float(n, "alpha", 0), beta = sn_node_float(n, "beta", 0);
    bool nesterov = sn_node_string_is(n, "mode", "standard", "nesterov");
    sn_value *g = regularized(u), *started = sn_emit_number(n, SN_OP_GREATER, u->count, 0);
    sn_value *weighted = sn_emit_where(n, started, times(n, g, beta), g);
    u->new_state[0] = sum(n, times(n, u->state[0], alpha), weighted);
    sn_value *step = nesterov ? sum(n, g, times(n, u->new_state[0], alpha)) : u->new_state[0];
    u->new_x = sn_emit_binary(n, SN_OP_SUB, u->x, product(n, u->rate, step));
}

void sn_handle_momentum(sn_node *n) {
    each(n, 1, momentum);
}
