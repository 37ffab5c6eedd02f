#include "backend/lower/rules.h"

// Spatial geometry of a convolution or pooling: dims 2… of the tensors.
typedef struct window {
    int n; // spatial dims
    const int64_t *strides, *pads, *dilations;
    int64_t kernel[SN_MAX_RANK], in[SN_MAX_RANK], out[SN_MAX_RANK];
} window;

static window window_of(const sn_op *op, sn_type in, sn_type out, const int64_t *kernel) {
    window w = {.n = in.rank - 2,
                .strides = sn_op_ints(op, "strides", NULL),
                .pads = sn_op_ints(op, "pads", NULL),
                .dilations = sn_op_ints(op, "dilations", NULL)};
    for (int i = 0; i < w.n; i++) {
        w.kernel[i] = kernel[i];
        w.in[i] = in.dim[2 + i];
        w.out[i] = out.dim[2 + i];
    }
    return w;
}

static sn_kir_node *both(sn_lower *l, sn_kir_node *a, sn_kir_node *b) {
    return a ? sn_kir_and(l->k, a, b) : b;
}

static sn_kir_node *in_range(sn_lower *l, sn_kir_node *condition, sn_kir_node *at, int64_t low, int64_t high) {
    if (at->min < low) condition = both(l, condition, sn_kir_ge(l->k, at, sn_kir_index(l->k, low)));
    if (at->max >= high) condition = both(l, condition, sn_kir_lt(l->k, at, sn_kir_index(l->k, high)));
    return condition;
}

// in = out * stride + tap * dilation - pad, for each spatial dim; returns whether it is inside (NULL: always).
static sn_kir_node *input_point(sn_lower *l, const window *w, sn_kir_node *const *out, sn_kir_node *const *tap,
                                sn_kir_node **in) {
    sn_kir_node *inside = NULL;
    for (int i = 0; i < w->n; i++) {
        sn_kir_node *start = sn_kir_addi(l->k, sn_kir_muli(l->k, out[i], w->strides[i]), -w->pads[i]);
        in[i] = sn_kir_add(l->k, start, sn_kir_muli(l->k, tap[i], w->dilations[i]));
        inside = in_range(l, inside, in[i], 0, w->in[i]);
    }
    return inside;
}

// The output position whose window has `in` at `tap`; returns whether there is one (NULL: always).
static sn_kir_node *output_point(sn_lower *l, const window *w, sn_kir_node *const *in, sn_kir_node *const *tap,
                                 sn_kir_node **out) {
    sn_kir_node *inside = NULL;
    for (int i = 0; i < w->n; i++) {
        sn_kir_node *scaled =
            sn_kir_sub(l->k, sn_kir_addi(l->k, in[i], w->pads[i]), sn_kir_muli(l->k, tap[i], w->dilations[i]));
        out[i] = sn_kir_divi(l->k, scaled, w->strides[i]);
        if (w->strides[i] > 1)
            inside = both(l, inside, sn_kir_eq(l->k, sn_kir_modi(l->k, scaled, w->strides[i]), sn_kir_index(l->k, 0)));
        inside = in_range(l, inside, out[i], 0, w->out[i]);
    }
    return inside;
}

static void open_loops(sn_lower *l, int n, const int64_t *counts, sn_kir_node **at) {
    for (int i = 0; i < n; i++) at[i] = sn_lower_for_count(l, counts[i]);
}

static sn_kir_node *close_sum(sn_lower *l, int n, sn_kir_node *value) {
    for (int i = 0; i < n; i++) {
        value = sn_kir_reduce(l->k, SN_KIR_ADD, value);
        sn_lower_end(l);
    }
    return value;
}

// The element where `inside` holds (NULL: always), else 0.
static sn_kir_node *guarded(sn_lower *l, const sn_value *x, const sn_point *at, sn_kir_node *inside) {
    if (!inside) return sn_lower_element(l, x, at);
    sn_kir_node *outer = sn_lower_guard(l, inside);
    sn_kir_node *value = sn_lower_element(l, x, at);
    sn_lower_unguard(l, outer);
    return sn_kir_select(l->k, inside, value, sn_lower_zero(l, x->type.dtype));
}

// y[n, m, o…] = sum over c, taps of x[n, group(m) * C/g + c, in…] w[m, c, tap…]
void sn_rule_conv(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *x = op->operands[0], *weights = op->operands[1];
    window w = window_of(op, x->type, op->results[0]->type, &weights->type.dim[2]);
    int64_t groups = sn_op_int(op, "groups"), depth = weights->type.dim[1];
    sn_kir_node *c = sn_lower_for_count(l, depth);
    sn_point tap = {.at = {point->at[1], c}}, in = {0};
    open_loops(l, w.n, w.kernel, &tap.at[2]);
    sn_kir_node *inside = input_point(l, &w, &point->at[2], &tap.at[2], &in.at[2]);
    sn_kir_node *group = sn_kir_divi(l->k, point->at[1], weights->type.dim[0] / groups);
    in.at[0] = point->at[0];
    in.at[1] = sn_kir_add(l->k, sn_kir_muli(l->k, group, depth), c);
    sn_kir_node *product = sn_kir_mul(l->k, guarded(l, x, &in, inside), sn_lower_element(l, weights, &tap));
    out[0] = sn_lower_round(l, close_sum(l, w.n + 1, product), x->type.dtype);
}

// x's gradient: every (m, tap) whose window reaches the input position.
void sn_rule_conv_input_grad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *y = op->operands[0], *weights = op->operands[1];
    window w = window_of(op, op->results[0]->type, y->type, &weights->type.dim[2]);
    int64_t per_group = weights->type.dim[0] / sn_op_int(op, "groups"), depth = weights->type.dim[1];
    sn_kir_node *group = sn_kir_divi(l->k, point->at[1], depth);
    sn_kir_node *m = sn_lower_for_count(l, per_group);
    m = sn_kir_add(l->k, sn_kir_muli(l->k, group, per_group), m);
    sn_point tap = {.at = {m, sn_kir_modi(l->k, point->at[1], depth)}}, at = {.at = {point->at[0], m}};
    open_loops(l, w.n, w.kernel, &tap.at[2]);
    sn_kir_node *inside = output_point(l, &w, &point->at[2], &tap.at[2], &at.at[2]);
    sn_kir_node *product = sn_kir_mul(l->k, guarded(l, y, &at, inside), sn_lower_element(l, weights, &tap));
    out[0] = sn_lower_round(l, close_sum(l, w.n + 1, product), y->type.dtype);
}

void sn_rule_conv_weight_grad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *x = op->operands[0], *y = op->operands[1];
    sn_type weights = op->results[0]->type;
    window w = window_of(op, x->type, y->type, &weights.dim[2]);
    int64_t per_group = weights.dim[0] / sn_op_int(op, "groups");
    sn_kir_node *group = sn_kir_divi(l->k, point->at[0], per_group);
    sn_point at = {.at = {NULL, point->at[0]}}, in = {0};
    at.at[0] = in.at[0] = sn_lower_for_count(l, x->type.dim[0]);
    in.at[1] = sn_kir_add(l->k, sn_kir_muli(l->k, group, weights.dim[1]), point->at[1]);
    open_loops(l, w.n, w.out, &at.at[2]);
    sn_kir_node *inside = input_point(l, &w, &at.at[2], &point->at[2], &in.at[2]);
    sn_kir_node *product = sn_kir_mul(l->k, guarded(l, x, &in, inside), sn_lower_element(l, y, &at));
    out[0] = sn_lower_round(l, close_sum(l, w.n + 1, product), weights.dtype);
}

// Whether a pooling tap that falls into the tensor wins over what was found (index < 0: nothing yet).
void sn_rule_max_pool(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    sn_kir *k = l->k;
    const sn_value *x = op->operands[0];
    window w = window_of(op, x->type, op->results[0]->type, sn_op_ints(op, "kernel", NULL));
    int64_t taps = 1;
    for (int i = 0; i < w.n; i++) taps *= w.kernel[i];
    sn_type kernel = sn_type_make(SN_I64, w.n, w.kernel);
    sn_kir_node *t = sn_lower_for_count(l, taps);
    sn_kir_node *best = sn_kir_carry(k, sn_lower_zero(l, x->type.dtype)), *where = sn_kir_carry(k, sn_kir_index(k, -1));
    sn_point tap = sn_lower_unflat(l, kernel, t), in = {.at = {point->at[0], point->at[1]}};
    sn_kir_node *inside = input_point(l, &w, &point->at[2], tap.at, &in.at[2]);
    sn_kir_node *value = guarded(l, x, &in, inside);
    sn_kir_node *wins = sn_kir_or(k, sn_kir_lt(k, where, sn_kir_index(k, 0)), sn_kir_gt(k, value, best));
    if (inside) wins = sn_kir_and(k, inside, wins);
    sn_kir_set_carry(k, best, sn_kir_select(k, wins, value, best));
    sn_kir_set_carry(k, where, sn_kir_select(k, wins, sn_lower_flat(l, x->type, &in), where));
    sn_lower_end(l);
    out[0] = sn_kir_carried(k, best);
    out[1] = sn_kir_carried(k, where);
}

// Each input position asks the windows that reach it whether it was their largest.
void sn_rule_max_pool_grad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *y = op->operands[0], *indices = op->operands[1];
    sn_type type = op->results[0]->type;
    window w = window_of(op, type, y->type, sn_op_ints(op, "kernel", NULL));
    sn_kir_node *mine = sn_lower_flat(l, type, point), *tap[SN_MAX_RANK] = {0};
    sn_point at = {.at = {point->at[0], point->at[1]}};
    open_loops(l, w.n, w.kernel, tap);
    sn_kir_node *inside = output_point(l, &w, &point->at[2], tap, &at.at[2]);
    sn_kir_node *g = guarded(l, y, &at, inside), *index = guarded(l, indices, &at, inside);
    sn_kir_node *hit = both(l, inside, sn_kir_eq(l->k, index, mine));
    sn_kir_node *sum = close_sum(l, w.n, sn_kir_select(l->k, hit, g, sn_lower_zero(l, type.dtype)));
    out[0] = sn_lower_round(l, sum, type.dtype);
}

// How many taps the mean at `at` divides by.
static sn_kir_node *taps_counted(sn_lower *l, const sn_op *op, const window *w, sn_kir_node *const *at) {
    bool pad = sn_op_int(op, "include_pad");
    sn_kir_node *count = sn_kir_index(l->k, 1);
    for (int i = 0; i < w->n; i++) {
        int64_t low = pad ? -w->pads[i] : 0, high = w->in[i] + (pad ? w->pads[w->n + i] : 0);
        int64_t first = -w->pads[i],
                last = (w->out[i] - 1) * w->strides[i] + (w->kernel[i] - 1) * w->dilations[i] + first;
        if (first >= low && last < high) { // every window lies inside
            count = sn_kir_muli(l->k, count, w->kernel[i]);
            continue;
        }
        sn_kir_node *tap = sn_lower_for_count(l, w->kernel[i]);
        sn_kir_node *in = sn_kir_add(l->k, sn_kir_addi(l->k, sn_kir_muli(l->k, at[i], w->strides[i]), -w->pads[i]),
                                     sn_kir_muli(l->k, tap, w->dilations[i]));
        sn_kir_node *inside = in_range(l, NULL, in, low, high);
        sn_kir_node *one = sn_kir_index(l->k, 1);
        sn_kir_node *in_dim = close_sum(l, 1, inside ? sn_kir_select(l->k, inside, one, sn_kir_index(l->k, 0)) : one);
        count = sn_kir_mul(l->k, count, in_dim);
    }
    return count;
}

void sn_rule_avg_pool(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *x = op->operands[0];
    sn_type type = op->results[0]->type;
    window w = window_of(op, x->type, type, sn_op_ints(op, "kernel", NULL));
    sn_kir_node *count = taps_counted(l, op, &w, &point->at[2]), *tap[SN_MAX_RANK] = {0};
    sn_point in = {.at = {point->at[0], point->at[1]}};
    open_loops(l, w.n, w.kernel, tap);
    sn_kir_node *inside = input_point(l, &w, &point->at[2], tap, &in.at[2]);
    sn_kir_node *sum = close_sum(l, w.n, guarded(l, x, &in, inside));
    out[0] = sn_lower_round(l, sn_kir_div(l->k, sum, sn_kir_cast(l->k, count, sum->dtype)), type.dtype);
}

void sn_rule_avg_pool_grad(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out) {
    const sn_value *y = op->operands[0];
    sn_type type = op->results[0]->type;
    window w = window_of(op, type, y->type, sn_op_ints(op, "kernel", NULL));
    sn_point at = {.at = {point->at[0], point->at[1]}};
    sn_kir_node *tap[SN_MAX_RANK] = {0};
    open_loops(l, w.n, w.kernel, tap);
    sn_kir_node *inside = output_point(l, &w, &point->at[2], tap, &at.at[2]);
    sn_kir_node *g = guarded(l, y, &at, inside);
    sn_kir_node *count = sn_kir_maxi(l->k, taps_counted(l, op, &w, &at.at[2]), 1);
    sn_kir_node *sum = close_sum(l, w.n, sn_kir_div(l->k, g, sn_kir_cast(l->k, count, g->dtype)));
    out[0] = sn_lower_round(l, sum, type.dtype);
}
