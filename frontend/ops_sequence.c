// Sequences exist during the import only: lists of values whose length is known.
#include "frontend/handlers.h"

#include <string.h>

enum { MOST_ITEMS = 1 << 20 };

static sn_tensor_sequence *new_sequence(sn_node *n, int count) {
    sn_tensor_sequence *s = SN_NEW(sn_node_arena(n), sn_tensor_sequence);
    s->count = count;
    s->items = SN_NEW_N(sn_node_arena(n), sn_value *, count + 1);
    return s;
}

// A position of `count` items, or the one behind the last when `end`; negative ones count from there.
static int position(sn_node *n, int input, int64_t otherwise, int count, bool end) {
    int64_t at = sn_node_known_int(n, input, otherwise);
    if (at < 0) at += count;
    if (at < 0 || at >= count + end) sn_node_fail(n, NULL, "position %lld is outside the sequence", (long long)at);
    return (int)at;
}

// Chunks of one size (the last may be smaller), or sizes as given; without sizes, slices of 1 whose dim may go away.
void sn_handle_split_to_sequence(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", 0), x->type.rank), count = 0;
    int64_t size = x->type.dim[axis], start = 0, chunk = 1;
    const int64_t *sizes = sn_node_has(n, 1) ? sn_node_known_ints(n, 1, &count) : NULL;
    bool scalar = sizes && sn_node_in(n, 1)->type.rank == 0;
    bool keepdims = sizes || sn_node_int(n, "keepdims", 1);
    if (scalar) chunk = sizes[0];
    if (chunk < 1) sn_node_fail(n, NULL, "it splits into chunks of %lld", (long long)chunk);
    int64_t chunks = size / chunk + (size % chunk != 0);
    if (chunks > MOST_ITEMS) sn_node_unsupported(n, "a sequence of %lld items", (long long)chunks);
    int parts = sizes && !scalar ? count : (int)chunks;
    sn_tensor_sequence *s = new_sequence(n, parts);
    for (int i = 0; i < parts; i++) {
        int64_t part = sizes && !scalar ? sizes[i] : chunk < size - start ? chunk : size - start;
        if (part < 0 || part > size - start) sn_node_fail(n, NULL, "the parts do not sum to the dim's size");
        sn_value *item = sn_emit_part(n, x, axis, start, part);
        int64_t dims[SN_MAX_RANK];
        int rank = 0;
        for (int d = 0; d < item->type.rank; d++)
            if (keepdims || d != axis) dims[rank++] = item->type.dim[d];
        s->items[i] = sn_emit_reshape(n, item, rank, dims);
        start += part;
    }
    if (start != size) sn_node_fail(n, NULL, "the parts do not sum to the dim's size");
    sn_node_out_sequence(n, 0, s);
}

void sn_handle_sequence_at(sn_node *n) {
    const sn_tensor_sequence *s = sn_node_sequence(n, 0);
    sn_node_out(n, 0, s->items[position(n, 1, 0, s->count, false)]);
}

void sn_handle_sequence_construct(sn_node *n) {
    sn_tensor_sequence *s = new_sequence(n, sn_node_inputs(n));
    for (int i = 0; i < s->count; i++) s->items[i] = sn_node_in(n, i);
    sn_node_out_sequence(n, 0, s);
}

void sn_handle_sequence_empty(sn_node *n) {
    sn_node_out_sequence(n, 0, new_sequence(n, 0));
}

void sn_handle_sequence_length(sn_node *n) {
    int64_t count = sn_node_sequence(n, 0)->count;
    sn_node_out(n, 0, sn_node_constant_ints(n, 0, NULL, &count));
}

void sn_handle_sequence_insert(sn_node *n) {
    const sn_tensor_sequence *s = sn_node_sequence(n, 0);
    int at = position(n, 2, s->count, s->count, true);
    sn_tensor_sequence *out = new_sequence(n, s->count + 1);
    for (int i = 0; i < out->count; i++) out->items[i] = i == at ? sn_node_in(n, 1) : s->items[i > at ? i - 1 : i];
    sn_node_out_sequence(n, 0, out);
}

void sn_handle_sequence_erase(sn_node *n) {
    const sn_tensor_sequence *s = sn_node_sequence(n, 0);
    int at = position(n, 1, -1, s->count, false);
    sn_tensor_sequence *out = new_sequence(n, s->count - 1);
    for (int i = 0; i < out->count; i++) out->items[i] = s->items[i >= at ? i + 1 : i];
    sn_node_out_sequence(n, 0, out);
}

void sn_handle_concat_from_sequence(sn_node *n) {
    const sn_tensor_sequence *s = sn_node_sequence(n, 0);
    bool stack = sn_node_int(n, "new_axis", 0);
    if (s->count < 1) sn_node_fail(n, NULL, "the sequence is empty");
    int rank = s->items[0]->type.rank + stack;
    if (rank > SN_MAX_RANK) sn_node_unsupported(n, "rank %d", rank);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", 0), rank);
    sn_value **parts = SN_NEW_N(sn_node_arena(n), sn_value *, s->count);
    for (int i = 0; i < s->count; i++) {
        int64_t dims[SN_MAX_RANK];
        if (s->items[i]->type.rank + stack != rank) sn_node_fail(n, NULL, "its items have different ranks");
        for (int d = 0, from = 0; d < rank; d++) dims[d] = stack && d == axis ? 1 : s->items[i]->type.dim[from++];
        parts[i] = sn_emit_reshape(n, s->items[i], rank, dims);
    }
    sn_node_out(n, 0, sn_emit_concat(n, s->count, parts, axis));
}

// An optional tensor is the tensor, or an absent input.
void sn_handle_optional(sn_node *n) {
    if (!sn_node_has(n, 0)) sn_node_unsupported(n, "an empty optional");
    sn_handle_identity(n);
}

void sn_handle_optional_has_element(sn_node *n) {
    bool has = sn_node_has(n, 0);
    sn_node_out(n, 0, sn_node_constant(n, sn_type_scalar(SN_BOOL), &has));
}
