// Attention: matmul(weights, v) where weights = softmax(scale * q k^T + masks). Exports differ in
//
//   where the scale is      on the scores, on q, or its root on both q and k
//   how k is transposed     by matmul, by a transpose, before or after scaling
//   how the mask is said    added (0 and a large negative number), or by where(mask, scores, large negative number)
//   a guard                 where(is_nan(weights), 0, weights), for rows that see no key: the operator gives 0 there
//   grouped queries         k and v repeated by a broadcast and a reshape: the operator takes fewer heads
//
// Masks that are constants and hide exactly the keys after the query become `causal`; others stay as the operand, which
// has no gradient: a mask that depends on a parameter (a learned position bias) keeps its pieces.
#include "passes/simplify/recompose.h"

#include <math.h>
#include <string.h>

typedef struct attention {
    sn_rewriter *r;
    sn_op *matmul;
    sn_value *q, *k, *v;
    sn_type scores; // type of q k^T, as four dims
    double scale;
    bool causal;
    sn_value *mask; // the sum of additive masks; NULL for none
} attention;

// Beyond this a masked score has no weight: exp(-10^4) is 0 in f32 and f64 alike, whatever the scores.
static const double hidden = -1e4;
// Adding this to a score gives this: where() and addition are then the same.
static const double absorbing = -1e30;

static void near_miss(const attention *a, const char *why) {
    sn_pass_remark(a->r->context, "R0802", a->matmul, "attention stays in pieces: %s", why);
}

// softmax, or where(is_nan(softmax), 0, softmax); NULL when it is neither, or when the weights have other readers.
static sn_op *match_softmax(const attention *a, sn_value *weights) {
    size_t readers = 1;
    sn_value *value = weights;
    const sn_op *where = sn_defined_by(value, SN_OP_WHERE);
    if (where) {
        const sn_op *is_nan = sn_defined_by(where->operands[0], SN_OP_IS_NAN);
        if (!is_nan || is_nan->operands[0] != where->operands[2] || !sn_is_number(where->operands[1], 0)) return NULL;
        value = where->operands[2];
        readers = 2;
    }
    sn_op *softmax = sn_defined_by(value, SN_OP_SOFTMAX);
    if (!softmax || sn_op_int(softmax, "axis") != value->type.rank - 1) return NULL;
    if (value->uses.count == readers && weights->uses.count == 1) return softmax;
    near_miss(a, "the weights have other readers");
    return NULL;
}

// Whether a value reaches a softmax through a few pointwise ops: dropout, most likely.
static bool hides_softmax(const sn_value *value, int depth) {
    if (value->kind != SN_VALUE_RESULT) return false;
    if (value->def->kind == SN_OP_SOFTMAX) return true;
    if (!depth || !sn_op_has(value->def->kind, SN_TRAIT_POINTWISE)) return false;
    for (int i = 0; i < value->def->n_operands; i++)
        if (hides_softmax(value->def->operands[i], depth - 1)) return true;
    return false;
}

static bool has_gradient(const sn_value *value, sn_map *seen, sn_arena *scratch) {
    if (value->kind == SN_VALUE_GLOBAL) return value->global->role == SN_ROLE_PARAMETER;
    if (value->kind == SN_VALUE_ARG) return false;
    const char *key = sn_arena_printf(scratch, "%p", (const void *)value->def);
    if (sn_map_has(seen, key)) return false;
    sn_map_put(seen, key, (void *)value->def);
    for (int i = 0; i < value->def->n_operands; i++)
        if (has_gradient(value->def->operands[i], seen, scratch)) return true;
    return false;
}

static bool depends_on_parameter(const attention *a, const sn_value *value) {
    sn_map seen = {0};
    bool depends = has_gradient(value, &seen, a->r->context->scratch);
    sn_map_free(&seen);
    return depends;
}

// The elements of a constant tensor in memory, or NULL.
static const void *constant_data(const sn_value *value) {
    if (value->kind != SN_VALUE_GLOBAL) return NULL;
    sn_role role = value->global->role;
    bool fixed = role == SN_ROLE_CONSTANT || role == SN_ROLE_FROZEN;
    return fixed && value->global->source.kind != SN_SOURCE_FILL ? value->global->source.data : NULL;
}

// Whether a constant mask lets query i see the keys j <= i and no others. A bool is `seen` where it sees; a number is
// 0.
static bool is_causal_mask(const attention *a, const sn_value *mask, bool seen) {
    sn_type type = mask->type;
    const void *data = constant_data(mask);
    if (!data || type.rank < 2) return false;
    int64_t rows = type.dim[type.rank - 2], columns = type.dim[type.rank - 1], count = sn_type_count(type);
    if (rows != columns || rows != a->scores.dim[2] || columns != a->scores.dim[3]) return false;
    for (int64_t i = 0; i < count; i++) {
        bool sees = i % columns <= i / columns % rows;
        double element = sn_load_f64(type.dtype, data, i);
        if (type.dtype == SN_BOOL ? ((element != 0) == seen) != sees : sees ? element != 0 : element > hidden)
            return false;
    }
    return true;
}

// A mask in the shape [?, ?, S, T] of four dims.
static sn_value *with_heads(const attention *a, sn_value *mask) {
    if (mask->type.rank == 4 || a->matmul->results[0]->type.rank == 4) return mask;
    // scores [N, S, T] become [N, 1, S, T]
    int64_t dims[4] = {1, 1, 1, 1};
    for (int i = 0; i < mask->type.rank; i++) {
        int at = 4 - mask->type.rank + i;
        dims[at == 1 ? 0 : at] = mask->type.dim[i];
    }
    return sn_build_reshape(sn_rewriter_at(a->r, a->matmul), mask, 4, dims);
}

static bool add_mask(attention *a, sn_value *mask) {
    if (mask->type.dtype != SN_BOOL && is_causal_mask(a, mask, true)) {
        a->causal = true;
        return true;
    }
    if (depends_on_parameter(a, mask)) {
        near_miss(a, "what is added to the scores depends on a parameter, and a mask has no gradient");
        return false;
    }
    const sn_op *broadcast = sn_defined_by(mask, SN_OP_BROADCAST);
    if (broadcast) mask = broadcast->operands[0]; // the operator broadcasts by itself
    sn_builder *b = sn_rewriter_at(a->r, a->matmul);
    mask = with_heads(a, mask);
    a->mask = a->mask ? sn_build_binary(b, SN_OP_ADD, a->mask, mask) : mask;
    return true;
}

// where(sees, scores, number), or where(hidden, number, scores): the number must hide for sure.
static bool add_where_mask(attention *a, const sn_op *where, double number, bool seen) {
    sn_value *condition = where->operands[0];
    if (number <= hidden && is_causal_mask(a, condition, seen)) {
        a->causal = true;
        return true;
    }
    if (!(number <= absorbing)) {
        near_miss(a, "the number that masks a score is too small to hide it for sure");
        return false;
    }
    sn_builder *b = sn_rewriter_at(a->r, a->matmul);
    sn_value *zero = sn_build_number_like(b, where->operands[1], 0);
    sn_value *low = sn_build_number_like(b, where->operands[1], number);
    return add_mask(a, sn_build_where(b, condition, seen ? zero : low, seen ? low : zero));
}

// Whether a value is a product of matrices times numbers, so that the masks end here.
static bool is_scores(sn_value *value) {
    sn_product p = sn_match_product(value);
    return p.count == 1 && sn_defined_by(p.factor[0], SN_OP_MATMUL);
}

// One step from `value` (of the scores' shape) towards the scores, past a mask; NULL when there is none to pass.
static sn_value *peel_mask(attention *a, sn_value *value) {
    const sn_op *add = sn_defined_by(value, SN_OP_ADD), *where = sn_defined_by(value, SN_OP_WHERE);
    double number;
    for (int side = 0; add && side < 2; side++) {
        // the side that leads to the scores has their shape; of two, the one that is not the scores is the mask
        sn_value *rest = add->operands[side], *mask = add->operands[1 - side];
        if (!sn_shape_equal(rest->type, value->type) || (is_scores(mask) && !is_scores(rest))) continue;
        return add_mask(a, mask) ? rest : NULL;
    }
    for (int side = 1; where && side < 3; side++) {
        sn_value *rest = where->operands[side];
        if (!sn_shape_equal(rest->type, value->type) || !sn_value_number(where->operands[3 - side], &number)) continue;
        return add_where_mask(a, where, number, side == 1) ? rest : NULL;
    }
    return NULL;
}

static sn_value *match_masks(attention *a, sn_value *value) {
    enum { MAX_MASKS = 4 };
    for (int depth = 0; depth < MAX_MASKS && value && !is_scores(value); depth++) value = peel_mask(a, value);
    return value && is_scores(value) ? value : NULL;
}

// The matrix with its last two dims swapped.
static sn_value *swap_last_two(const attention *a, sn_value *value) {
    int64_t perm[SN_MAX_RANK];
    int rank = value->type.rank;
    for (int i = 0; i < rank; i++) perm[i] = i;
    perm[rank - 1] = rank - 2;
    perm[rank - 2] = rank - 1;
    const sn_op *swap = sn_defined_by(value, SN_OP_TRANSPOSE);
    if (swap && memcmp(sn_op_ints(swap, "perm", NULL), perm, sizeof *perm * (size_t)rank) == 0)
        return swap->operands[0];
    return sn_build_transpose(sn_rewriter_at(a->r, a->matmul), value, perm);
}

// Takes the numbers out of a factor of the scores.
static sn_value *unscaled(attention *a, sn_value *value) {
    sn_product p = sn_match_product(value);
    if (p.count != 1) return value;
    a->scale *= p.scale;
    return p.factor[0];
}

static sn_value *four_dims(const attention *a, sn_value *value) {
    sn_type t = value->type;
    if (t.rank == 4) return value;
    return sn_build_reshape(sn_rewriter_at(a->r, a->matmul), value, 4, (int64_t[]){t.dim[0], 1, t.dim[1], t.dim[2]});
}

// k or v [B, G*n, T, D] that is [B, G, T, D] with each head n times: gives the latter, else NULL.
static sn_value *ungrouped(const attention *a, const sn_value *value) {
    const sn_op *reshape = sn_defined_by(value, SN_OP_RESHAPE);
    const sn_op *broadcast = reshape ? sn_defined_by(reshape->operands[0], SN_OP_BROADCAST) : NULL;
    if (!broadcast || broadcast->results[0]->type.rank != 5) return NULL;
    sn_value *few = broadcast->operands[0];
    const int64_t *from = few->type.dim, *to = broadcast->results[0]->type.dim, *end = value->type.dim;
    if (few->type.rank != 5 || from[2] != 1 || to[0] != end[0] || to[1] * to[2] != end[1]) return NULL;
    for (int i = 0; i < 5; i++)
        if (i != 2 && from[i] != to[i]) return NULL;
    if (to[3] != end[2] || to[4] != end[3]) return NULL;
    int64_t dims[4] = {from[0], from[1], from[3], from[4]};
    return sn_build_reshape(sn_rewriter_at(a->r, a->matmul), few, 4, dims);
}

static bool match_scores(attention *a, sn_value *scores) {
    sn_product p = sn_match_product(scores);
    const sn_op *product = sn_defined_by(p.factor[0], SN_OP_MATMUL);
    a->scale = p.scale;
    if (sn_op_int(product, "transpose_a")) return false;
    a->q = unscaled(a, product->operands[0]);
    a->k = unscaled(a, product->operands[1]);
    if (!sn_op_int(product, "transpose_b")) a->k = swap_last_two(a, a->k);
    return true;
}

// Equal leading dims: a product that broadcasts over heads is none that the operator knows.
static bool match_shapes(const attention *a) {
    int rank = a->q->type.rank;
    if ((rank != 3 && rank != 4) || a->k->type.rank != rank || a->v->type.rank != rank) return false;
    for (int i = 0; i < rank - 2; i++)
        if (a->q->type.dim[i] != a->k->type.dim[i] || a->q->type.dim[i] != a->v->type.dim[i]) return false;
    return a->k->type.dim[rank - 2] == a->v->type.dim[rank - 2];
}

static sn_op *build_attention_op(attention *a) {
    sn_value *q = four_dims(a, a->q), *k = four_dims(a, a->k), *v = four_dims(a, a->v);
    sn_value *few_k = ungrouped(a, k), *few_v = ungrouped(a, v);
    if (few_k && few_v && few_k->type.dim[1] == few_v->type.dim[1]) {
        k = few_k;
        v = few_v;
    }
    sn_builder *b = sn_rewriter_at(a->r, a->matmul);
    sn_attr attrs[] = {sn_attr_float("scale", a->scale), sn_attr_int("causal", a->causal)};
    return sn_build(b, SN_OP_ATTENTION, a->mask ? 4 : 3, (sn_value *[]){q, k, v, a->mask}, 2, attrs, NULL);
}

sn_value *sn_recompose_attention(sn_rewriter *r, sn_op *matmul) {
    attention a = {.r = r, .matmul = matmul, .v = matmul->operands[1]};
    sn_op *softmax = match_softmax(&a, matmul->operands[0]);
    if (!softmax) {
        if (hides_softmax(matmul->operands[0], 3)) near_miss(&a, "there is dropout or more between softmax and v");
        return NULL;
    }
    sn_type weights = softmax->results[0]->type;
    a.scores = weights.rank == 3
                   ? sn_type_make(weights.dtype, 4, (int64_t[]){weights.dim[0], 1, weights.dim[1], weights.dim[2]})
                   : weights;
    if (a.scores.rank != 4 || sn_op_int(matmul, "transpose_a")) return NULL;
    sn_value *scores = match_masks(&a, softmax->operands[0]);
    if (!scores || !match_scores(&a, scores)) return NULL;
    if (sn_op_int(matmul, "transpose_b")) a.v = swap_last_two(&a, a.v);
    if (!match_shapes(&a)) {
        near_miss(&a, "q, k and v differ in their leading dims");
        return NULL;
    }
    sn_type type = matmul->results[0]->type;
    sn_op *op = build_attention_op(&a);
    return sn_build_reshape(sn_rewriter_at(r, matmul), op->results[0], type.rank, type.dim);
}

// An attention operator of the model itself: a constant mask that is causal becomes the attribute, repeated heads of k
// and v become fewer.
sn_value *sn_recompose_attention_itself(sn_rewriter *r, sn_op *op) {
    attention a = {.r = r, .matmul = op, .q = op->operands[0], .k = op->operands[1], .v = op->operands[2]};
    a.scores = op->operands[0]->type;
    a.scores.dim[3] = op->operands[1]->type.dim[2];
    a.scale = sn_op_float(op, "scale");
    a.causal = sn_op_int(op, "causal");
    a.mask = op->n_operands > 3 ? op->operands[3] : NULL;
    bool hides = a.mask && is_causal_mask(&a, a.mask, true);
    const sn_value *few_k = ungrouped(&a, a.k), *few_v = ungrouped(&a, a.v);
    bool grouped = few_k && few_v && few_k->type.dim[1] == few_v->type.dim[1];
    if (!hides && !grouped) return NULL;
    if (hides) {
        a.causal = true;
        a.mask = NULL;
    }
    sn_op *better = build_attention_op(&a);
    if (sn_value_is_used(op->results[1])) sn_rewriter_replace(r, op->results[1], better->results[1]);
    return better->results[0];
}
