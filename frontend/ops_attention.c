// Attention and rotary position embedding.
#include "frontend/handlers.h"

#include <math.h>
#include <string.h>

typedef struct attention {
    sn_value *q, *k, *v; // [B, H, S, D], [B, G, T, D], [B, G, T, E]
    sn_value *bias;      // additive, broadcasts to [B, H, S, T]; NULL for none
    bool causal;         // query i sees keys j <= i, besides the bias
    bool flat;           // inputs were [B, S, H * D]
    double scale, softcap;
} attention;

// [B, S, H * D] -> [B, H, S, D]
static sn_value *split_heads(sn_node *n, sn_value *x, const char *attribute) {
    int64_t heads = sn_node_int(n, attribute, 0);
    sn_type t = x->type;
    if (heads < 1 || t.dim[2] % heads) sn_node_fail(n, NULL, "%s does not divide the hidden size", attribute);
    x = sn_emit_reshape(n, x, 4, (int64_t[]){t.dim[0], t.dim[1], heads, t.dim[2] / heads});
    return sn_emit_transpose(n, x, (int64_t[]){0, 2, 1, 3});
}

static sn_value *merge_heads(sn_node *n, sn_value *y) {
    sn_type t = y->type;
    y = sn_emit_transpose(n, y, (int64_t[]){0, 2, 1, 3});
    return sn_emit_reshape(n, y, 3, (int64_t[]){t.dim[0], t.dim[2], t.dim[1] * t.dim[3]});
}

static sn_value *add_bias(sn_node *n, sn_value *bias, sn_value *more) {
    return bias ? sn_emit_binary(n, SN_OP_ADD, bias, more) : more;
}

// 0 where allowed, -inf elsewhere.
static sn_value *as_bias(sn_node *n, sn_value *allowed, sn_dtype dtype) {
    return sn_emit_where(n, allowed, sn_emit_scalar(n, dtype, 0), sn_emit_scalar(n, dtype, -HUGE_VAL));
}

// The mask input: bools say who may be seen, floats are added. It may be narrower than the keys.
static void read_mask(sn_node *n, attention *a) {
    sn_value *mask = sn_node_optional(n, 3);
    if (!mask) return;
    sn_dtype dtype = a->q->type.dtype;
    mask = mask->type.dtype == SN_BOOL ? as_bias(n, mask, dtype) : sn_emit_cast(n, mask, dtype);
    int last = mask->type.rank - 1;
    int64_t keys = a->k->type.dim[2], low[SN_MAX_RANK] = {0}, high[SN_MAX_RANK] = {0};
    if (last >= 0 && mask->type.dim[last] != 1 && mask->type.dim[last] < keys) {
        high[last] = keys - mask->type.dim[last];
        mask = sn_emit_pad(n, mask, low, high, -HUGE_VAL);
    }
    a->bias = mask;
}

// key - query position, [S, T], or [B, 1, S, T] where each batch row has an offset of its own
static sn_value *distance(sn_node *n, const attention *a, sn_value *offset) {
    sn_type plane = sn_type_make(SN_I64, 2, (int64_t[]){a->q->type.dim[2], a->k->type.dim[2]});
    sn_value *query = sn_emit_binary(n, SN_OP_ADD, sn_emit_iota(n, plane, 0, 0, 1), offset);
    return sn_emit_binary(n, SN_OP_SUB, sn_emit_iota(n, plane, 1, 0, 1), query);
}

static void read_limits(sn_node *n, attention *a, int64_t past) {
    bool causal = sn_node_int(n, "is_causal", 0);
    int64_t left = sn_node_int(n, "left_window_size", -1), right = sn_node_int(n, "right_window_size", -1);
    sn_value *lengths = sn_node_optional(n, 6), *offset = sn_emit_scalar(n, SN_I64, (double)past);
    sn_dtype dtype = a->q->type.dtype;
    if (lengths) {
        if (past) sn_node_fail(n, NULL, "nonpad_kv_seqlen and a past do not go together");
        lengths = sn_emit_aligned(n, sn_emit_cast(n, lengths, SN_I64), 0, 4);
        offset = sn_emit_number(n, SN_OP_SUB, lengths, (double)a->q->type.dim[2]);
        sn_type row = sn_type_make(SN_I64, 1, &a->k->type.dim[2]);
        sn_value *present = sn_emit_binary(n, SN_OP_LESS, sn_emit_iota(n, row, 0, 0, 1), lengths);
        a->bias = add_bias(n, a->bias, as_bias(n, present, dtype));
    }
    a->causal = causal && !past && !lengths;
    if (causal && !a->causal) right = right < 0 ? 0 : right;
    if (right >= 0 && causal) right = 0;
    if (a->causal && left < 0) return;
    if (left < 0 && right < 0) return;
    sn_value *apart = distance(n, a, offset), *allowed = NULL;
    if (right >= 0) allowed = sn_emit_number(n, SN_OP_LESS_EQUAL, apart, (double)right);
    if (left >= 0) {
        sn_value *near = sn_emit_number(n, SN_OP_GREATER_EQUAL, apart, (double)-left);
        allowed = allowed ? sn_emit_binary(n, SN_OP_AND, allowed, near) : near;
    }
    a->bias = add_bias(n, a->bias, as_bias(n, allowed, dtype));
}

static attention read_attention(sn_node *n) {
    attention a = {.q = sn_node_in(n, 0), .k = sn_node_in(n, 1), .v = sn_node_in(n, 2)};
    a.flat = a.q->type.rank == 3;
    if (a.flat && a.k->type.rank == 3 && a.v->type.rank == 3) {
        a.q = split_heads(n, a.q, "q_num_heads");
        a.k = split_heads(n, a.k, "kv_num_heads");
        a.v = split_heads(n, a.v, "kv_num_heads");
    }
    if (a.q->type.rank != 4 || a.k->type.rank != 4 || a.v->type.rank != 4)
        sn_node_fail(n, NULL, "some of q, k and v have 3 dims, some 4");
    int64_t past = 0;
    if (sn_node_has(n, 4) != sn_node_has(n, 5)) sn_node_fail(n, NULL, "past_key and past_value come together");
    if (sn_node_has(n, 4)) {
        sn_value *key = sn_node_in(n, 4), *value = sn_node_in(n, 5);
        past = key->type.dim[2];
        a.k = sn_emit_concat(n, 2, (sn_value *[]){key, a.k}, 2);
        a.v = sn_emit_concat(n, 2, (sn_value *[]){value, a.v}, 2);
    }
    a.scale = sn_node_float(n, "scale", 0);
    if (!sn_node_attr(n, "scale")) a.scale = 1 / sqrt((double)a.q->type.dim[3]);
    a.softcap = sn_node_float(n, "softcap", 0);
    read_mask(n, &a);
    read_limits(n, &a, past);
    return a;
}

// Each key head once per query head of its group.
static sn_value *repeat_heads(sn_node *n, sn_value *x, int64_t heads) {
    sn_type t = x->type;
    if (t.dim[1] == heads) return x;
    if (t.dim[1] < 1 || heads % t.dim[1]) sn_node_fail(n, NULL, "the heads do not divide into groups");
    int64_t group = heads / t.dim[1];
    x = sn_emit_reshape(n, x, 5, (int64_t[]){t.dim[0], t.dim[1], 1, t.dim[2], t.dim[3]});
    x = sn_emit_broadcast(n, x, 5, (int64_t[]){t.dim[0], t.dim[1], group, t.dim[2], t.dim[3]});
    return sn_emit_reshape(n, x, 4, (int64_t[]){t.dim[0], heads, t.dim[2], t.dim[3]});
}

// Step by step, for what the fused operator does not have: a cap, or a look at the scores.
static sn_value *decomposed(sn_node *n, const attention *a) {
    int64_t heads = a->q->type.dim[1], mode = sn_node_int(n, "qk_matmul_output_mode", 0);
    sn_dtype dtype = a->q->type.dtype;
    sn_value *scores[4], *k = repeat_heads(n, a->k, heads), *v = repeat_heads(n, a->v, heads);
    sn_value *scaled = sn_emit_number(n, SN_OP_MUL, a->q, a->scale);
    sn_value *bias = a->bias;
    if (a->causal) {
        sn_value *apart = distance(n, a, sn_emit_scalar(n, SN_I64, 0));
        bias = add_bias(n, bias, as_bias(n, sn_emit_number(n, SN_OP_LESS_EQUAL, apart, 0), dtype));
    }
    scores[0] = scores[1] = sn_emit_matmul(n, scaled, k, false, true);
    if (a->softcap > 0) {
        sn_value *bent = sn_emit_unary(n, SN_OP_TANH, sn_emit_number(n, SN_OP_DIV, scores[0], a->softcap));
        scores[1] = sn_emit_number(n, SN_OP_MUL, bent, a->softcap);
    }
    scores[2] = bias ? sn_emit_binary(n, SN_OP_ADD, scores[1], bias) : scores[1];
    sn_value *wide = sn_dtype_bytes(dtype) < 4 ? sn_emit_cast(n, scores[2], SN_F32) : scores[2];
    scores[3] = sn_emit_cast(n, sn_emit_along(n, SN_OP_SOFTMAX, wide, 3), dtype);
    if (bias) { // a query that may see no key gets 0
        int last = bias->type.rank - 1;
        sn_value *top = sn_emit_reduce_axis(n, SN_OP_REDUCE_MAX, bias, last, true);
        sn_value *blind = sn_emit_number(n, SN_OP_EQUAL, top, -HUGE_VAL);
        scores[3] = sn_emit_where(n, blind, sn_emit_scalar(n, dtype, 0), scores[3]);
    }
    if (mode < 0 || mode > 3) sn_node_fail(n, NULL, "qk_matmul_output_mode is %lld", (long long)mode);
    sn_node_out(n, 3, scores[mode]);
    return sn_emit_matmul(n, scores[3], v, false, false);
}

void sn_handle_attention(sn_node *n) {
    attention a = read_attention(n);
    sn_value *y;
    if (a.softcap > 0 || sn_node_wants(n, 3)) {
        y = decomposed(n, &a);
    } else {
        sn_value *operands[] = {a.q, a.k, a.v, a.bias};
        sn_attr attrs[] = {sn_attr_float("scale", a.scale), sn_attr_int("causal", a.causal)};
        y = sn_emit(n, SN_OP_ATTENTION, a.bias ? 4 : 3, operands, 2, attrs, NULL)->results[0];
    }
    sn_node_out(n, 0, a.flat ? merge_heads(n, y) : y);
    sn_node_out(n, 1, a.k);
    sn_node_out(n, 2, a.v);
}

// The cache [positions, R/2] looked up, or [B, S, R/2] as it is, aligned with [B, H, S, R/2].
static sn_value *rotation_table(sn_node *n, int input, int64_t half) {
    sn_value *table = sn_node_in(n, input);
    if (sn_node_has(n, 3)) table = sn_emit_gather(n, table, sn_node_in(n, 3), 0);
    sn_type t = table->type;
    if (t.rank != 3 || t.dim[2] != half) sn_node_fail(n, NULL, "the caches do not have half the rotated size");
    return sn_emit_reshape(n, table, 4, (int64_t[]){t.dim[0], 1, t.dim[1], half});
}

static sn_value *every_second(sn_node *n, sn_value *x, int64_t from, int64_t half) {
    int64_t starts[] = {0, 0, 0, from}, steps[] = {1, 1, 1, 2}, sizes[4];
    memcpy(sizes, x->type.dim, sizeof sizes);
    sizes[3] = half;
    return sn_emit_slice(n, x, starts, steps, sizes);
}

// (x1, x2) -> (cos x1 - sin x2, sin x1 + cos x2) (Su et al. 2021)
void sn_handle_rotary_embedding(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    bool flat = x->type.rank == 3, interleaved = sn_node_int(n, "interleaved", 0);
    if (flat) x = split_heads(n, x, "num_heads");
    int64_t size = x->type.dim[3], rotated = sn_node_int(n, "rotary_embedding_dim", 0);
    if (rotated == 0) rotated = size;
    if (rotated < 0 || rotated > size || rotated % 2) sn_node_fail(n, NULL, "rotary_embedding_dim does not fit");
    int64_t half = rotated / 2;
    sn_value *cos = rotation_table(n, 1, half), *sin = rotation_table(n, 2, half);
    sn_value *head = sn_emit_part(n, x, 3, 0, rotated);
    sn_value *x1 = interleaved ? every_second(n, head, 0, half) : sn_emit_part(n, head, 3, 0, half);
    sn_value *x2 = interleaved ? every_second(n, head, 1, half) : sn_emit_part(n, head, 3, half, half);
    sn_value *real =
        sn_emit_binary(n, SN_OP_SUB, sn_emit_binary(n, SN_OP_MUL, cos, x1), sn_emit_binary(n, SN_OP_MUL, sin, x2));
    sn_value *imaginary =
        sn_emit_binary(n, SN_OP_ADD, sn_emit_binary(n, SN_OP_MUL, sin, x1), sn_emit_binary(n, SN_OP_MUL, cos, x2));
    sn_type t = x->type;
    if (interleaved) {
        int64_t split[] = {t.dim[0], t.dim[1], t.dim[2], half, 1}, joined[] = {t.dim[0], t.dim[1], t.dim[2], rotated};
        sn_value *parts[] = {sn_emit_reshape(n, real, 5, split), sn_emit_reshape(n, imaginary, 5, split)};
        head = sn_emit_reshape(n, sn_emit_concat(n, 2, parts, 4), 4, joined);
    } else {
        head = sn_emit_concat(n, 2, (sn_value *[]){real, imaginary}, 3);
    }
    if (rotated < size)
        head = sn_emit_concat(n, 2, (sn_value *[]){head, sn_emit_part(n, x, 3, rotated, size - rotated)}, 3);
    sn_node_out(n, 0, flat ? merge_heads(n, head) : head);
}
