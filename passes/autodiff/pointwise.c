// Gradients of pointwise operators: x operands, y result, g the result's gradient. Where both do, the formula uses y,
// so that x need not be kept.
#include "passes/autodiff/gradient.h"

#include <math.h>

#define X0(op) ((op)->operands[0])
#define X1(op) ((op)->operands[1])
#define Y(op)  ((op)->results[0])

// A rule for one operand: g times an expression of x and y.
#define UNARY(name, expression)                                                                                        \
    void sn_gradient_##name(sn_gradient_walk *w, sn_op *op) {                                                          \
        sn_value *g = sn_gradient_of(w, op, 0), *x = X0(op), *y = Y(op);                                               \
        (void)x, (void)y;                                                                                              \
        sn_gradient_send(w, op, 0, expression);                                                                        \
    }

static sn_value *square(sn_gradient_walk *w, sn_value *x) {
    return g_mul(w, x, x);
}

// number - x * x
static sn_value *minus_square(sn_gradient_walk *w, double number, sn_value *x) {
    return g_sub(w, sn_build_number_like(w->b, x, number), square(w, x));
}

UNARY(copy, g)
UNARY(cast, g) // sending converts
UNARY(neg, g_neg(w, g))
UNARY(abs, g_mul(w, g, g_un(w, SN_OP_SIGN, x)))
UNARY(exp, g_mul(w, g, y))
UNARY(log, g_div(w, g, x))
UNARY(sqrt, g_div(w, g_muln(w, g, 0.5), y))
UNARY(rsqrt, g_mul(w, g_muln(w, g, -0.5), g_mul(w, square(w, y), y)))
UNARY(reciprocal, g_neg(w, g_mul(w, g, square(w, y))))
UNARY(sin, g_mul(w, g, g_un(w, SN_OP_COS, x)))
UNARY(cos, g_neg(w, g_mul(w, g, g_un(w, SN_OP_SIN, x))))
UNARY(tan, g_mul(w, g, g_addn(w, square(w, y), 1)))
UNARY(asin, g_mul(w, g, g_un(w, SN_OP_RSQRT, minus_square(w, 1, x))))
UNARY(acos, g_neg(w, g_mul(w, g, g_un(w, SN_OP_RSQRT, minus_square(w, 1, x)))))
UNARY(atan, g_div(w, g, g_addn(w, square(w, x), 1)))
UNARY(sinh, g_mul(w, g, g_un(w, SN_OP_COSH, x)))
UNARY(cosh, g_mul(w, g, g_un(w, SN_OP_SINH, x)))
UNARY(tanh, g_mul(w, g, minus_square(w, 1, y)))
UNARY(asinh, g_mul(w, g, g_un(w, SN_OP_RSQRT, g_addn(w, square(w, x), 1))))
UNARY(acosh, g_mul(w, g, g_un(w, SN_OP_RSQRT, g_addn(w, square(w, x), -1))))
UNARY(atanh, g_div(w, g, minus_square(w, 1, x)))
UNARY(sigmoid, g_mul(w, g, g_mul(w, y, g_sub(w, sn_build_number_like(w->b, y, 1), y))))
UNARY(relu, g_where(w, g_compare(w, SN_OP_GREATER, y, 0), g))
UNARY(softplus, g_mul(w, g, g_un(w, SN_OP_SIGMOID, x)))

// erf'(x) = 2/sqrt(pi) e^(-x^2)
static sn_value *erf_slope(sn_gradient_walk *w, sn_value *x) {
    return g_muln(w, g_un(w, SN_OP_EXP, g_neg(w, square(w, x))), M_2_SQRTPI);
}
UNARY(erf, g_mul(w, g, erf_slope(w, x)))

// Phi(x) + x phi(x), with Phi(x) = (1 + erf(x/sqrt 2)) / 2 and phi(x) = e^(-x^2/2) / sqrt(2 pi).
static sn_value *gelu_slope(sn_gradient_walk *w, sn_value *x) {
    sn_value *erf = g_un(w, SN_OP_ERF, g_muln(w, x, M_SQRT1_2));
    sn_value *below = g_muln(w, g_addn(w, erf, 1), 0.5);
    sn_value *density = g_muln(w, g_un(w, SN_OP_EXP, g_muln(w, square(w, x), -0.5)), 0.5 * M_2_SQRTPI * M_SQRT1_2);
    return g_add(w, below, g_mul(w, x, density));
}
UNARY(gelu, g_mul(w, g, gelu_slope(w, x)))

// With u = sqrt(2/pi) (x + 0.044715 x^3) and t = tanh u: (1 + t)/2 + x/2 (1 - t^2) u'.
static sn_value *gelu_tanh_slope(sn_gradient_walk *w, sn_value *x) {
    const double a = M_2_SQRTPI * M_SQRT1_2, c = 0.044715;
    sn_value *xx = square(w, x);
    sn_value *t = g_un(w, SN_OP_TANH, g_mul(w, x, g_addn(w, g_muln(w, xx, a * c), a)));
    sn_value *du = g_addn(w, g_muln(w, xx, 3 * a * c), a);
    sn_value *left = g_muln(w, g_addn(w, t, 1), 0.5);
    sn_value *right = g_muln(w, g_mul(w, x, g_mul(w, minus_square(w, 1, t), du)), 0.5);
    return g_add(w, left, right);
}
UNARY(gelu_tanh, g_mul(w, g, gelu_tanh_slope(w, x)))

void sn_gradient_add(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    sn_gradient_send(w, op, 0, g);
    sn_gradient_send(w, op, 1, g);
}

void sn_gradient_sub(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    sn_gradient_send(w, op, 0, g);
    if (sn_gradient_wanted(w, op, 1)) sn_gradient_send(w, op, 1, g_neg(w, g));
}

void sn_gradient_mul(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    if (sn_gradient_wanted(w, op, 0)) sn_gradient_send(w, op, 0, g_mul(w, g, X1(op)));
    if (sn_gradient_wanted(w, op, 1)) sn_gradient_send(w, op, 1, g_mul(w, g, X0(op)));
}

void sn_gradient_div(sn_gradient_walk *w, sn_op *op) {
    sn_value *quotient = g_div(w, sn_gradient_of(w, op, 0), X1(op));
    sn_gradient_send(w, op, 0, quotient);
    if (sn_gradient_wanted(w, op, 1)) sn_gradient_send(w, op, 1, g_neg(w, g_mul(w, quotient, Y(op))));
}

// d/dx = e x^(e-1), 0 for e = 0 (where x^(e-1) may be infinite).
static sn_value *power_slope(sn_gradient_walk *w, sn_value *x, sn_value *exponent) {
    double e;
    if (sn_value_number(exponent, &e)) {
        if (e == 0) return sn_build_splat(w->b, x->type, 0);
        if (e == 2) return g_muln(w, x, 2);
        if (e == 3) return g_muln(w, square(w, x), 3);
        return g_muln(w, sn_build_binary_number(w->b, SN_OP_POW, x, e - 1), e);
    }
    sn_value *slope = g_mul(w, exponent, sn_build_binary(w->b, SN_OP_POW, x, g_addn(w, exponent, -1)));
    sn_value *is_zero = g_compare(w, SN_OP_EQUAL, exponent, 0);
    return sn_build_where(w->b, is_zero, sn_build_number_like(w->b, x, 0), slope);
}

void sn_gradient_pow(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0), *x = X0(op), *e = X1(op);
    double number;
    if (sn_value_number(e, &number) && number == 1)
        sn_gradient_send(w, op, 0, g);
    else if (sn_gradient_wanted(w, op, 0))
        sn_gradient_send(w, op, 0, g_mul(w, g, power_slope(w, x, e)));
    if (!sn_gradient_wanted(w, op, 1)) return;
    // y log x, 0 where x = 0 and e >= 0
    sn_value *flat =
        sn_build_binary(w->b, SN_OP_AND, g_compare(w, SN_OP_EQUAL, x, 0), g_compare(w, SN_OP_GREATER_EQUAL, e, 0));
    sn_value *slope = g_mul(w, Y(op), g_un(w, SN_OP_LOG, x));
    slope = sn_build_where(w->b, flat, sn_build_number_like(w->b, slope, 0), slope);
    sn_gradient_send(w, op, 1, g_mul(w, g, slope));
}

// Both remainders are x - q y with a whole q: floor(x / y) for mod, the quotient cut towards zero for fmod.
void sn_gradient_mod(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    sn_gradient_send(w, op, 0, g);
    if (!sn_gradient_wanted(w, op, 1)) return;
    sn_value *q = g_div(w, X0(op), X1(op));
    if (op->kind == SN_OP_MOD)
        q = g_un(w, SN_OP_FLOOR, q);
    else
        q = g_mul(w, g_un(w, SN_OP_SIGN, q), g_un(w, SN_OP_FLOOR, g_un(w, SN_OP_ABS, q)));
    sn_gradient_send(w, op, 1, g_neg(w, g_mul(w, g, q)));
}

// The winner takes all. A tie of two tensors is halved, as PyTorch's maximum does; against a number the value takes it
// all, as PyTorch's clamp does.
void sn_gradient_min_max(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0);
    bool max = op->kind == SN_OP_MAX;
    for (int i = 0; i < 2; i++) {
        if (!sn_gradient_wanted(w, op, i)) continue;
        sn_value *mine = op->operands[i], *other = op->operands[1 - i];
        if (sn_value_is_constant(other)) {
            sn_op_kind wins = max ? SN_OP_GREATER_EQUAL : SN_OP_LESS_EQUAL;
            sn_gradient_send(w, op, i, g_where(w, sn_build_binary(w->b, wins, mine, other), g));
            continue;
        }
        sn_value *tie = sn_build_binary(w->b, SN_OP_EQUAL, mine, other);
        sn_value *win = sn_build_binary(w->b, max ? SN_OP_GREATER : SN_OP_LESS, mine, other);
        sn_value *share = sn_build_where(w->b, tie, g_muln(w, g, 0.5), g);
        sn_gradient_send(w, op, i, g_where(w, sn_build_binary(w->b, SN_OP_OR, tie, win), share));
    }
}

void sn_gradient_where(sn_gradient_walk *w, sn_op *op) {
    sn_value *g = sn_gradient_of(w, op, 0), *zero = sn_build_number_like(w->b, g, 0);
    if (sn_gradient_wanted(w, op, 1)) sn_gradient_send(w, op, 1, sn_build_where(w->b, X0(op), g, zero));
    if (sn_gradient_wanted(w, op, 2)) sn_gradient_send(w, op, 2, sn_build_where(w->b, X0(op), zero, g));
}
