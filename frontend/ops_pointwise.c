// Elementwise operators and activations.
#include "frontend/handlers.h"
#include "frontend/import.h"

#include <math.h>
#include <string.h>

void sn_handle_unary(sn_node *n) {
    sn_node_out(n, 0, sn_emit_unary(n, sn_node_kind(n), sn_node_in(n, 0)));
}

void sn_handle_binary(sn_node *n) {
    sn_node_out(n, 0, sn_emit_binary(n, sn_node_kind(n), sn_node_in(n, 0), sn_node_in(n, 1)));
}

static sn_value *fold_inputs(sn_node *n, sn_op_kind kind) {
    sn_value *value = sn_node_in(n, 0);
    for (int i = 1; i < sn_node_inputs(n); i++) value = sn_emit_binary(n, kind, value, sn_node_in(n, i));
    return value;
}

void sn_handle_variadic(sn_node *n) {
    sn_node_out(n, 0, fold_inputs(n, sn_node_kind(n)));
}

void sn_handle_mean(sn_node *n) {
    sn_node_out(n, 0, sn_emit_number(n, SN_OP_DIV, fold_inputs(n, SN_OP_ADD), sn_node_inputs(n)));
}

void sn_handle_bit_shift(sn_node *n) {
    const char *direction = sn_node_string(n, "direction", "");
    bool left = strcmp(direction, "LEFT") == 0;
    if (!left && strcmp(direction, "RIGHT") != 0) sn_node_fail(n, NULL, "the direction '%s' is unknown", direction);
    sn_op_kind kind = left ? SN_OP_SHIFT_LEFT : SN_OP_SHIFT_RIGHT;
    sn_node_out(n, 0, sn_emit_binary(n, kind, sn_node_in(n, 0), sn_node_in(n, 1)));
}

void sn_handle_cast(sn_node *n) {
    sn_dtype dtype = sn_node_dtype(n, "to", SN_DTYPE_COUNT);
    if (dtype == SN_DTYPE_COUNT) sn_node_fail(n, NULL, "the attribute to is missing");
    sn_node_out(n, 0, sn_emit_cast(n, sn_node_in(n, 0), dtype));
}

void sn_handle_cast_like(sn_node *n) {
    sn_node_out(n, 0, sn_emit_cast(n, sn_node_in(n, 0), sn_node_in(n, 1)->type.dtype));
}

void sn_handle_where(sn_node *n) {
    sn_node_out(n, 0, sn_emit_where(n, sn_node_in(n, 0), sn_node_in(n, 1), sn_node_in(n, 2)));
}

void sn_handle_is_inf(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    sn_attr attrs[] = {sn_attr_int("negative", sn_node_int(n, "detect_negative", 1)),
                       sn_attr_int("positive", sn_node_int(n, "detect_positive", 1))};
    sn_node_out(n, 0, sn_emit(n, SN_OP_IS_INF, 1, &x, 2, attrs, NULL)->results[0]);
}

void sn_handle_mod(sn_node *n) {
    sn_op_kind kind = sn_node_int(n, "fmod", 0) ? SN_OP_FMOD : SN_OP_MOD;
    sn_node_out(n, 0, sn_emit_binary(n, kind, sn_node_in(n, 0), sn_node_in(n, 1)));
}

// The exponent may be of another type; the result has the base's. Integers to a float power go through floats.
void sn_handle_power(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *y = sn_node_in(n, 1);
    sn_dtype dtype = x->type.dtype, common = dtype;
    if (!sn_dtype_is_float(dtype) && sn_dtype_is_float(y->type.dtype)) common = SN_F64;
    sn_value *power = sn_emit_binary(n, SN_OP_POW, sn_emit_cast(n, x, common), sn_emit_cast(n, y, common));
    sn_node_out(n, 0, sn_emit_cast(n, power, dtype));
}

static bool is_zero(sn_node *n, sn_value *value) {
    const sn_tensor *known = sn_fold_known(n->import, value, false); // a trained bound does not stay what it is
    return known && sn_type_count(known->type) == 1 && sn_load_f64(known->type.dtype, known->data, 0) == 0;
}

// Bounds are inputs from opset 11 on, attributes before. PyTorch's ReLU6 arrives as a Clip; its gradient at exactly 0,
// which a convolution of zeros gives whole channels of, is 0 as relu's is, while that of max is not.
void sn_handle_clip(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *low = sn_node_optional(n, 1), *high = sn_node_optional(n, 2);
    if (!low && sn_node_attr(n, "min")) low = sn_emit_scalar(n, x->type.dtype, sn_node_float(n, "min", 0));
    if (!high && sn_node_attr(n, "max")) high = sn_emit_scalar(n, x->type.dtype, sn_node_float(n, "max", 0));
    if (low && sn_dtype_is_float(x->type.dtype) && is_zero(n, low))
        x = sn_emit_unary(n, SN_OP_RELU, x);
    else if (low)
        x = sn_emit_binary(n, SN_OP_MAX, x, low);
    if (high) x = sn_emit_binary(n, SN_OP_MIN, x, high);
    sn_node_out(n, 0, x);
}

// where(x > 0, x, negative)
static sn_value *keep_positive(sn_node *n, sn_value *x, sn_value *negative) {
    return sn_emit_where(n, sn_emit_number(n, SN_OP_GREATER, x, 0), x, negative);
}

// scale * (e^x - 1), with x cut at 0 so that the unused side of a `where` stays finite for its gradient
static sn_value *exponential_side(sn_node *n, sn_value *x, double scale) {
    sn_value *power = sn_emit_unary(n, SN_OP_EXP, sn_emit_number(n, SN_OP_MIN, x, 0));
    return sn_emit_number(n, SN_OP_MUL, sn_emit_number(n, SN_OP_SUB, power, 1), scale);
}

void sn_handle_elu(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    sn_node_out(n, 0, keep_positive(n, x, exponential_side(n, x, sn_node_float(n, "alpha", 1))));
}

// max(0, x) + min(0, alpha (e^(x/alpha) - 1)) (Barron 2017)
void sn_handle_celu(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    double alpha = sn_node_float(n, "alpha", 1);
    sn_value *scaled = sn_emit_number(n, SN_OP_DIV, x, alpha);
    sn_node_out(n, 0, keep_positive(n, x, exponential_side(n, scaled, alpha)));
}

void sn_handle_selu(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    double alpha = sn_node_float(n, "alpha", 1.67326319217681884765625);
    double gamma = sn_node_float(n, "gamma", 1.05070102214813232421875);
    sn_value *value = keep_positive(n, x, exponential_side(n, x, alpha));
    sn_node_out(n, 0, sn_emit_number(n, SN_OP_MUL, value, gamma));
}

void sn_handle_leaky_relu(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    sn_node_out(n, 0, keep_positive(n, x, sn_emit_number(n, SN_OP_MUL, x, sn_node_float(n, "alpha", (double)0.01f))));
}

void sn_handle_prelu(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    sn_node_out(n, 0, keep_positive(n, x, sn_emit_binary(n, SN_OP_MUL, x, sn_node_in(n, 1))));
}

void sn_handle_thresholded_relu(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    sn_value *above = sn_emit_number(n, SN_OP_GREATER, x, sn_node_float(n, "alpha", 1));
    sn_node_out(n, 0, sn_emit_where(n, above, x, sn_emit_scalar(n, x->type.dtype, 0)));
}

static sn_value *hard_sigmoid(sn_node *n, sn_value *x, double alpha, double beta) {
    sn_value *line = sn_emit_number(n, SN_OP_ADD, sn_emit_number(n, SN_OP_MUL, x, alpha), beta);
    return sn_emit_number(n, SN_OP_MIN, sn_emit_number(n, SN_OP_MAX, line, 0), 1);
}

void sn_handle_hard_sigmoid(sn_node *n) {
    double alpha = sn_node_float(n, "alpha", (double)0.2f), beta = sn_node_float(n, "beta", 0.5);
    sn_node_out(n, 0, hard_sigmoid(n, sn_node_in(n, 0), alpha, beta));
}

void sn_handle_hard_swish(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    sn_node_out(n, 0, sn_emit_binary(n, SN_OP_MUL, x, hard_sigmoid(n, x, 1.0 / 6, 0.5)));
}

static sn_value *swish(sn_node *n, sn_value *x, double alpha) {
    sn_value *scaled = alpha == 1 ? x : sn_emit_number(n, SN_OP_MUL, x, alpha);
    return sn_emit_binary(n, SN_OP_MUL, x, sn_emit_unary(n, SN_OP_SIGMOID, scaled));
}

void sn_handle_swish(sn_node *n) {
    sn_node_out(n, 0, swish(n, sn_node_in(n, 0), sn_node_float(n, "alpha", 1)));
}

// x tanh(log(1 + e^x)) (Misra 2019)
void sn_handle_mish(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    sn_value *gate = sn_emit_unary(n, SN_OP_TANH, sn_emit_unary(n, SN_OP_SOFTPLUS, x));
    sn_node_out(n, 0, sn_emit_binary(n, SN_OP_MUL, x, gate));
}

void sn_handle_gelu(sn_node *n) {
    const char *approximate = sn_node_string(n, "approximate", "none");
    bool tanh = strcmp(approximate, "tanh") == 0;
    if (!tanh && strcmp(approximate, "none") != 0)
        sn_node_fail(n, NULL, "the approximation '%s' is unknown", approximate);
    sn_node_out(n, 0, sn_emit_unary(n, tanh ? SN_OP_GELU_TANH : SN_OP_GELU, sn_node_in(n, 0)));
}

void sn_handle_softsign(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    sn_value *below = sn_emit_number(n, SN_OP_ADD, sn_emit_unary(n, SN_OP_ABS, x), 1);
    sn_node_out(n, 0, sn_emit_binary(n, SN_OP_DIV, x, below));
}

// x + bias below -lambd, x - bias above lambd, 0 between
void sn_handle_shrink(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    double lambd = sn_node_float(n, "lambd", 0.5), bias = sn_node_float(n, "bias", 0);
    sn_value *inner = sn_emit_where(n, sn_emit_number(n, SN_OP_GREATER, x, lambd),
                                    sn_emit_number(n, SN_OP_SUB, x, bias), sn_emit_scalar(n, x->type.dtype, 0));
    sn_value *low = sn_emit_number(n, SN_OP_LESS, x, -lambd);
    sn_node_out(n, 0, sn_emit_where(n, low, sn_emit_number(n, SN_OP_ADD, x, bias), inner));
}

void sn_handle_identity(sn_node *n) {
    if (sn_node_is_sequence(n, 0)) {
        sn_node_out_sequence(n, 0, sn_node_sequence(n, 0));
        return;
    }
    bool outer = !n->scope->parent && !n->scope->is_function && sn_node_wants(n, 0);
    sn_value *own = outer ? sn_import_unmerged(n->import, n->proto->output[0]) : NULL;
    sn_node_out(n, 0, own ? own : sn_node_in(n, 0));
}
