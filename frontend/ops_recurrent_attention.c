// Attention by recurrences and with scores that a subgraph changes: LinearAttention, CausalConvWithState,
// FlexAttention.
#include "frontend/handlers.h"

#include <math.h>
#include <string.h>

enum { MOST_STEPS = 4096 };

// [B, T, heads * D] as [B, heads, T, D].
static sn_value *split_heads(sn_node *n, sn_value *x, int64_t heads) {
    if (heads <= 0 || x->type.dim[2] % heads != 0)
        sn_node_fail(n, NULL, "the last dim does not divide into %lld heads", (long long)heads);
    int64_t dims[] = {x->type.dim[0], x->type.dim[1], heads, x->type.dim[2] / heads};
    return sn_emit_transpose(n, sn_emit_reshape(n, x, 4, dims), (int64_t[]){0, 2, 1, 3});
}

// Each head `times` times in a row: grouped queries share keys and values.
static sn_value *repeat_heads(sn_node *n, sn_value *x, int64_t times) {
    if (times == 1) return x;
    const int64_t *d = x->type.dim;
    int64_t apart[] = {d[0], d[1], 1, d[2], d[3]}, stretched[] = {d[0], d[1], times, d[2], d[3]};
    int64_t joined[] = {d[0], sn_node_times(n, d[1], times), d[2], d[3]};
    x = sn_emit_broadcast(n, sn_emit_reshape(n, x, 5, apart), 5, stretched);
    return sn_emit_reshape(n, x, 4, joined);
}

typedef struct recurrence {
    sn_value *query, *key, *value, *decay, *beta; // [B, heads, T, .]
    int64_t group;
    double scale;
    bool gated, delta;
} recurrence;

// One step: S = e^decay S; v = beta (v - S^T k) when delta; S = S + k v^T; the output is scale q^T S.
static sn_value *advance(sn_node *n, const recurrence *r, int64_t step, sn_value **state) {
    sn_value *q = sn_emit_part(n, r->query, 2, step, 1), *k = sn_emit_part(n, r->key, 2, step, 1); // [B, heads, 1, Dk]
    sn_value *v = sn_emit_part(n, r->value, 2, step, 1);
    if (r->gated) {
        sn_value *decay = sn_emit_unary(n, SN_OP_EXP, sn_emit_part(n, r->decay, 2, step, 1));
        decay = sn_emit_transpose(n, decay, (int64_t[]){0, 1, 3, 2});
        *state = sn_emit_binary(n, SN_OP_MUL, *state, decay);
    }
    if (r->delta) {
        sn_value *held = sn_emit_matmul(n, k, *state, false, false), *beta = sn_emit_part(n, r->beta, 2, step, 1);
        v = sn_emit_binary(n, SN_OP_MUL, beta, sn_emit_binary(n, SN_OP_SUB, v, held));
    }
    *state = sn_emit_binary(n, SN_OP_ADD, *state, sn_emit_matmul(n, k, v, true, false));
    sn_value *read = repeat_heads(n, *state, r->group);
    return sn_emit_number(n, SN_OP_MUL, sn_emit_matmul(n, q, read, false, false), r->scale);
}

static sn_value *in_f32(sn_node *n, int input) {
    return sn_emit_cast(n, sn_node_in(n, input), SN_F32);
}

void sn_handle_linear_attention(sn_node *n) {
    int64_t q_heads = sn_node_int(n, "q_num_heads", 0), kv_heads = sn_node_int(n, "kv_num_heads", 0);
    const char *rule = sn_node_string(n, "update_rule", "gated_delta");
    if (q_heads <= 0 || kv_heads <= 0 || q_heads % kv_heads != 0) sn_node_fail(n, NULL, "heads do not divide");
    recurrence r = {.group = q_heads / kv_heads};
    r.gated = strcmp(rule, "gated") == 0 || strcmp(rule, "gated_delta") == 0;
    r.delta = strcmp(rule, "delta") == 0 || strcmp(rule, "gated_delta") == 0;
    if (!r.gated && !r.delta && strcmp(rule, "linear") != 0) sn_node_unsupported(n, "update_rule %s", rule);
    r.query = split_heads(n, in_f32(n, 0), q_heads);
    r.key = split_heads(n, in_f32(n, 1), kv_heads);
    r.value = split_heads(n, in_f32(n, 2), kv_heads);
    if (r.gated) r.decay = split_heads(n, in_f32(n, 4), kv_heads); // a number per head is one of size 1
    if (r.delta) {
        sn_value *beta = in_f32(n, 5);
        r.beta = split_heads(n, beta, beta->type.dim[2]);
    }
    int64_t batch = r.key->type.dim[0], steps = r.key->type.dim[2], d_k = r.key->type.dim[3],
            d_v = r.value->type.dim[3];
    r.scale = sn_node_float(n, "scale", 0);
    if (r.scale == 0) r.scale = 1 / sqrt((double)d_k);
    sn_dtype dtype = sn_node_in(n, 0)->type.dtype, state_dtype = dtype;
    sn_value *state;
    if (sn_node_has(n, 3)) {
        state_dtype = sn_node_in(n, 3)->type.dtype;
        state = in_f32(n, 3);
    } else {
        state = sn_emit_splat(n, sn_type_make(SN_F32, 4, (int64_t[]){batch, kv_heads, d_k, d_v}), 0);
    }
    if (steps < 1 || steps > MOST_STEPS) sn_node_unsupported(n, "a sequence of %lld steps", (long long)steps);
    sn_value **outputs = SN_NEW_N(sn_node_arena(n), sn_value *, steps + 1);
    for (int64_t t = 0; t < steps; t++) outputs[t] = advance(n, &r, t, &state);
    sn_value *y = sn_emit_concat(n, (int)steps, outputs, 2); // [B, Hq, T, Dv]
    y = sn_emit_transpose(n, y, (int64_t[]){0, 2, 1, 3});
    y = sn_emit_reshape(n, y, 3, (int64_t[]){batch, steps, sn_node_times(n, q_heads, d_v)});
    sn_node_out(n, 0, sn_emit_cast(n, y, dtype));
    sn_node_out(n, 1, sn_emit_cast(n, state, state_dtype));
}

// A depthwise convolution over the past and the present; the last kernel - 1 positions are the next past.
void sn_handle_causal_conv_with_state(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *weight = sn_node_in(n, 1), *bias = sn_node_optional(n, 2);
    const char *activation = sn_node_string(n, "activation", "none");
    if (weight->type.dim[1] != 1) sn_node_fail(n, NULL, "the weights need one channel");
    int64_t batch = x->type.dim[0], channels = x->type.dim[1], past = weight->type.dim[2] - 1, one = 1;
    sn_value *state = sn_node_optional(n, 3);
    if (!state) state = sn_emit_splat(n, sn_type_make(x->type.dtype, 3, (int64_t[]){batch, channels, past}), 0);
    sn_value *whole = sn_emit_concat(n, 2, (sn_value *[]){state, x}, 2);
    sn_attr attrs[] = {sn_attr_ints("strides", &one, 1), sn_attr_ints("pads", (int64_t[]){0, 0}, 2),
                       sn_attr_ints("dilations", &one, 1), sn_attr_int("groups", channels)};
    sn_value *y = sn_emit(n, SN_OP_CONV, 2, (sn_value *[]){whole, weight}, 4, attrs, NULL)->results[0];
    if (bias) y = sn_emit_binary(n, SN_OP_ADD, y, sn_emit_aligned(n, bias, 1, 3));
    if (strcmp(activation, "silu") == 0 || strcmp(activation, "swish") == 0)
        y = sn_emit_binary(n, SN_OP_MUL, y, sn_emit_unary(n, SN_OP_SIGMOID, y));
    else if (strcmp(activation, "none") != 0)
        sn_node_unsupported(n, "activation %s", activation);
    sn_node_out(n, 0, y);
    sn_node_out(n, 1, sn_emit_part(n, whole, 2, whole->type.dim[2] - past, past));
}

// The subgraph of an attribute applied to one tensor, when there is one.
static sn_value *modified(sn_node *n, const char *name, sn_value *x) {
    sn_value *y = x;
    if (sn_node_attr(n, name)) sn_node_inline(n, sn_node_graph(n, name), 1, &x, &y);
    return y;
}

void sn_handle_flex_attention(sn_node *n) {
    sn_value *q = sn_node_in(n, 0), *k = sn_node_in(n, 1), *v = sn_node_in(n, 2);
    if (k->type.dim[1] == 0 || q->type.dim[1] % k->type.dim[1] != 0)
        sn_node_fail(n, NULL, "the heads of query and key do not divide");
    int64_t group = q->type.dim[1] / k->type.dim[1];
    k = repeat_heads(n, k, group);
    v = repeat_heads(n, v, group);
    double scale = sn_node_attr(n, "scale") ? sn_node_float(n, "scale", 0) : 1 / sqrt((double)q->type.dim[3]);
    sn_dtype dtype = q->type.dtype, compute = sn_dtype_bytes(dtype) < 4 ? SN_F32 : dtype;
    if (sn_node_int(n, "softmax_precision", 0)) compute = sn_node_dtype(n, "softmax_precision", compute);
    if (!sn_dtype_is_float(compute)) sn_node_unsupported(n, "this softmax_precision");
    q = sn_emit_number(n, SN_OP_MUL, q, sqrt(scale));
    k = sn_emit_number(n, SN_OP_MUL, k, sqrt(scale));
    sn_value *scores = sn_emit_cast(n, sn_emit_matmul(n, q, k, false, true), compute);
    scores = modified(n, "score_mod", scores);
    sn_value *shares = modified(n, "prob_mod", sn_emit_along(n, SN_OP_SOFTMAX, scores, 3));
    sn_value *y = sn_emit_matmul(n, shares, sn_emit_cast(n, v, compute), false, false);
    sn_node_out(n, 0, sn_emit_cast(n, y, v->type.dtype));
}
