// Recurrent layers, unrolled over the sequence. Gates of all steps that depend on the input alone are one product.
#include "frontend/handlers.h"

#include <string.h>

enum { MOST_STEPS = 4096 };

typedef struct layer {
    sn_value *x; // [S, B, I]
    int64_t steps, batch, hidden;
    int directions, gates;
    sn_value *lengths; // [B, 1], NULL when all sequences are whole
    double clip;       // 0: none
    int per_direction; // activations
} layer;

typedef struct direction {
    int index;
    bool reverse;
    sn_value *inputs;       // [S, B, gates * H]: the input's part of the gates, with its bias
    sn_value *weights;      // [gates * H, H]
    sn_value *bias;         // [gates * H] of the recurrent part, NULL for none
    sn_value *h, *c;        // [B, H]
    sn_value *peepholes[3]; // [H], NULL for none
} direction;

static sn_value *drop_first(sn_node *n, sn_value *x) {
    return sn_emit_reshape(n, x, x->type.rank - 1, x->type.dim + 1);
}

// Part `index` of the first dim, without that dim.
static sn_value *part(sn_node *n, sn_value *x, int64_t index) {
    return drop_first(n, sn_emit_part(n, x, 0, index, 1));
}

static sn_value *activate(sn_node *n, const layer *l, const direction *d, int index, const char *usual, sn_value *x) {
    const char *name = sn_node_list_string(n, "activations", d->index * l->per_direction + index);
    if (l->clip > 0) x = sn_emit_number(n, SN_OP_MIN, sn_emit_number(n, SN_OP_MAX, x, -l->clip), l->clip);
    static const struct {
        const char *name;
        sn_op_kind kind;
    } known[] = {{"Sigmoid", SN_OP_SIGMOID}, {"Tanh", SN_OP_TANH}, {"Relu", SN_OP_RELU}, {"Softplus", SN_OP_SOFTPLUS}};
    if (!name) name = usual;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i].name) == 0) return sn_emit_unary(n, known[i].kind, x);
    sn_node_unsupported(n, "the activation %s", name);
}

static sn_value *gate(sn_node *n, const layer *l, sn_value *all, int index) {
    return sn_emit_part(n, all, 1, index * l->hidden, l->hidden);
}

static sn_value *add(sn_node *n, sn_value *a, sn_value *b) {
    return b ? sn_emit_binary(n, SN_OP_ADD, a, b) : a;
}
static sn_value *mul(sn_node *n, sn_value *a, sn_value *b) {
    return sn_emit_binary(n, SN_OP_MUL, a, b);
}

static sn_value *peep(sn_node *n, sn_value *x, sn_value *weights, sn_value *c) {
    return weights ? add(n, x, mul(n, weights, c)) : x;
}

// Gates in the order i, o, f, c: c' = f c + i g, h' = o tanh(c') (Hochreiter and Schmidhuber 1997)
static void lstm_step(sn_node *n, const layer *l, direction *d, sn_value *inputs) {
    sn_value *all = add(n, add(n, inputs, sn_emit_matmul(n, d->h, d->weights, false, true)), d->bias);
    sn_value *i = activate(n, l, d, 0, "Sigmoid", peep(n, gate(n, l, all, 0), d->peepholes[0], d->c));
    sn_value *f = activate(n, l, d, 0, "Sigmoid", peep(n, gate(n, l, all, 2), d->peepholes[2], d->c));
    sn_value *g = activate(n, l, d, 1, "Tanh", gate(n, l, all, 3));
    if (sn_node_int(n, "input_forget", 0)) f = sn_emit_binary(n, SN_OP_SUB, sn_emit_scalar(n, i->type.dtype, 1), i);
    d->c = add(n, mul(n, f, d->c), mul(n, i, g));
    sn_value *o = activate(n, l, d, 0, "Sigmoid", peep(n, gate(n, l, all, 1), d->peepholes[1], d->c));
    d->h = mul(n, o, activate(n, l, d, 2, "Tanh", d->c));
}

// Gates in the order z, r, h: h' = (1 - z) g + z h (Cho et al. 2014)
static void gru_step(sn_node *n, const layer *l, direction *d, sn_value *inputs) {
    bool after = sn_node_int(n, "linear_before_reset", 0);
    sn_value *state = add(n, sn_emit_matmul(n, d->h, d->weights, false, true), d->bias);
    sn_value *z = activate(n, l, d, 0, "Sigmoid", add(n, gate(n, l, inputs, 0), gate(n, l, state, 0)));
    sn_value *r = activate(n, l, d, 0, "Sigmoid", add(n, gate(n, l, inputs, 1), gate(n, l, state, 1)));
    sn_value *inner;
    if (after) {
        inner = mul(n, r, gate(n, l, state, 2));
    } else {
        sn_value *weights = sn_emit_part(n, d->weights, 0, 2 * l->hidden, l->hidden);
        sn_value *bias = d->bias ? sn_emit_part(n, d->bias, 0, 2 * l->hidden, l->hidden) : NULL;
        inner = add(n, sn_emit_matmul(n, mul(n, r, d->h), weights, false, true), bias);
    }
    sn_value *g = activate(n, l, d, 1, "Tanh", add(n, gate(n, l, inputs, 2), inner));
    sn_value *rest = sn_emit_binary(n, SN_OP_SUB, sn_emit_scalar(n, z->type.dtype, 1), z);
    d->h = add(n, mul(n, rest, g), mul(n, z, d->h));
}

static void rnn_step(sn_node *n, const layer *l, direction *d, sn_value *inputs) {
    sn_value *state = add(n, sn_emit_matmul(n, d->h, d->weights, false, true), d->bias);
    d->h = activate(n, l, d, 0, "Tanh", add(n, inputs, state));
}

typedef void (*step_function)(sn_node *n, const layer *l, direction *d, sn_value *inputs);

static bool lengths_are_whole(sn_node *n, sn_value *lengths, int64_t steps) {
    const sn_tensor *known = sn_node_known(n, lengths);
    for (int64_t i = 0; known && i < sn_type_count(known->type); i++)
        if (sn_load_i64(known->type.dtype, known->data, i) != steps) return false;
    return known != NULL;
}

static layer read_layer(sn_node *n, int gates, int per_direction) {
    layer l = {.x = sn_node_in(n, 0), .gates = gates, .per_direction = per_direction};
    sn_value *w = sn_node_in(n, 1), *r = sn_node_in(n, 2);
    if (sn_node_int(n, "layout", 0)) l.x = sn_emit_transpose(n, l.x, (int64_t[]){1, 0, 2});
    const char *direction = sn_node_string(n, "direction", "forward");
    l.directions = strcmp(direction, "bidirectional") == 0 ? 2 : 1;
    l.steps = l.x->type.dim[0];
    l.batch = l.x->type.dim[1];
    l.hidden = r->type.dim[2];
    l.clip = sn_node_float(n, "clip", 0);
    if (w->type.dim[0] != l.directions || r->type.dim[0] != l.directions || w->type.dim[1] != gates * l.hidden ||
        r->type.dim[1] != gates * l.hidden || l.hidden < 1)
        sn_node_fail(n, NULL, "the weights do not fit the directions and the hidden size");
    if (l.steps < 1 || l.steps > MOST_STEPS) sn_node_unsupported(n, "a sequence of %lld steps", (long long)l.steps);
    sn_value *lengths = sn_node_optional(n, 4);
    if (lengths && !lengths_are_whole(n, lengths, l.steps)) {
        if (strcmp(direction, "forward") != 0) sn_node_unsupported(n, "sequences of different lengths in reverse");
        l.lengths = sn_emit_aligned(n, sn_emit_cast(n, lengths, SN_I64), 0, 2);
    }
    return l;
}

// [directions, B, H], or [B, directions, H] in the batch-first layout; zeros when not given.
static sn_value *initial_state(sn_node *n, const layer *l, int input, int index) {
    sn_value *state = sn_node_optional(n, input);
    if (!state) return sn_emit_splat(n, sn_type_make(l->x->type.dtype, 2, (int64_t[]){l->batch, l->hidden}), 0);
    if (sn_node_int(n, "layout", 0)) state = sn_emit_transpose(n, state, (int64_t[]){1, 0, 2});
    return part(n, state, index);
}

static direction read_direction(sn_node *n, const layer *l, int index) {
    const char *name = sn_node_string(n, "direction", "forward");
    direction d = {.index = index, .reverse = index == 1 || strcmp(name, "reverse") == 0};
    int64_t width = l->gates * l->hidden;
    d.inputs = sn_emit_matmul(n, l->x, part(n, sn_node_in(n, 1), index), false, true);
    d.weights = part(n, sn_node_in(n, 2), index);
    if (sn_node_has(n, 3)) {
        sn_value *bias = part(n, sn_node_in(n, 3), index);
        d.inputs = add(n, d.inputs, sn_emit_part(n, bias, 0, 0, width));
        d.bias = sn_emit_part(n, bias, 0, width, width);
    }
    d.h = initial_state(n, l, 5, index);
    if (l->gates != 4) return d;
    d.c = initial_state(n, l, 6, index);
    sn_value *peepholes = sn_node_optional(n, 7);
    for (int i = 0; i < 3 && peepholes; i++)
        d.peepholes[i] = sn_emit_part(n, part(n, peepholes, index), 0, i * l->hidden, l->hidden);
    return d;
}

// Beyond its end a sequence keeps its state and its outputs are 0.
static sn_value *mask_step(sn_node *n, const layer *l, direction *d, int64_t t, sn_value *h, sn_value *c) {
    if (!l->lengths) return d->h;
    sn_value *inside = sn_emit_number(n, SN_OP_GREATER, l->lengths, (double)t);
    sn_value *y = sn_emit_where(n, inside, d->h, sn_emit_scalar(n, d->h->type.dtype, 0));
    d->h = sn_emit_where(n, inside, d->h, h);
    if (d->c) d->c = sn_emit_where(n, inside, d->c, c);
    return y;
}

static sn_value *joined(sn_node *n, int count, sn_value **items, const int64_t *dims, int rank, int axis) {
    for (int i = 0; i < count; i++) items[i] = sn_emit_reshape(n, items[i], rank, dims);
    return sn_emit_concat(n, count, items, axis);
}

static void run_layer(sn_node *n, layer l, step_function step) {
    bool batch_first = sn_node_int(n, "layout", 0);
    sn_value *last_h[2], *last_c[2], *sequences[2];
    int64_t state[] = {1, l.batch, l.hidden}, item[] = {1, 1, l.batch, l.hidden};
    for (int i = 0; i < l.directions; i++) {
        direction d = read_direction(n, &l, i);
        sn_value **ys = SN_NEW_N(sn_node_arena(n), sn_value *, l.steps);
        for (int64_t s = 0; s < l.steps; s++) {
            int64_t t = d.reverse ? l.steps - 1 - s : s;
            sn_value *h = d.h, *c = d.c;
            step(n, &l, &d, part(n, d.inputs, t));
            ys[t] = mask_step(n, &l, &d, t, h, c);
        }
        sequences[i] = joined(n, (int)l.steps, ys, item, 4, 0);
        last_h[i] = d.h;
        last_c[i] = d.c;
    }
    sn_value *y = sn_emit_concat(n, l.directions, sequences, 1);
    sn_value *h = joined(n, l.directions, last_h, state, 3, 0);
    sn_value *c = l.gates == 4 ? joined(n, l.directions, last_c, state, 3, 0) : NULL;
    if (batch_first) {
        y = sn_emit_transpose(n, y, (int64_t[]){2, 0, 1, 3});
        h = sn_emit_transpose(n, h, (int64_t[]){1, 0, 2});
        if (c) c = sn_emit_transpose(n, c, (int64_t[]){1, 0, 2});
    }
    sn_node_out(n, 0, y);
    sn_node_out(n, 1, h);
    if (c) sn_node_out(n, 2, c);
}

void sn_handle_lstm(sn_node *n) {
    run_layer(n, read_layer(n, 4, 3), lstm_step);
}
void sn_handle_gru(sn_node *n) {
    run_layer(n, read_layer(n, 3, 2), gru_step);
}
void sn_handle_rnn(sn_node *n) {
    run_layer(n, read_layer(n, 1, 1), rnn_step);
}
