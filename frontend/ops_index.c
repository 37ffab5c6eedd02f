// Operators that address elements by index.
#include "frontend/handlers.h"

#include <string.h>

static sn_value *indexed(sn_node *n, sn_op_kind kind, sn_value *x, sn_value *indices, sn_attr attr) {
    return sn_emit(n, kind, 2, (sn_value *[]){x, indices}, 1, &attr, NULL)->results[0];
}

// Indices that do not depend on data (positions, which a bound dim counts) are checked here, the others by each run.
static void check_known_indices(sn_node *n, int input, int64_t size) {
    const sn_tensor *known = sn_node_folded(n, sn_node_in(n, input));
    for (int64_t i = 0; known && i < sn_type_count(known->type); i++) {
        int64_t index = sn_load_i64(known->type.dtype, known->data, i);
        if (index < -size || index >= size)
            sn_node_fail(n, NULL, "it looks up entry %lld of %lld", (long long)index, (long long)size);
    }
}

void sn_handle_gather(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", 0), x->type.rank);
    check_known_indices(n, 1, x->type.dim[axis]);
    sn_node_out(n, 0, sn_emit_gather(n, x, sn_node_in(n, 1), axis));
}

void sn_handle_gather_elements(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", 0), x->type.rank);
    sn_node_out(n, 0, indexed(n, SN_OP_GATHER_ELEMENTS, x, sn_node_in(n, 1), sn_attr_int("axis", axis)));
}

void sn_handle_gather_nd(sn_node *n) {
    sn_attr batch = sn_attr_int("batch_dims", sn_node_int(n, "batch_dims", 0));
    sn_node_out(n, 0, indexed(n, SN_OP_GATHER_ND, sn_node_in(n, 0), sn_node_in(n, 1), batch));
}

static const char *scatter_reduction(sn_node *n) {
    const char *reduction = sn_node_string(n, "reduction", "none");
    static const char *const known[] = {"none", "add", "mul", "min", "max"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(reduction, known[i]) == 0) return known[i];
    sn_node_fail(n, NULL, "the reduction '%s' is unknown", reduction);
}

void sn_handle_scatter_elements(sn_node *n) {
    sn_value *operands[] = {sn_node_in(n, 0), sn_node_in(n, 1), sn_node_in(n, 2)};
    int axis = sn_node_axis(n, sn_node_int(n, "axis", 0), operands[0]->type.rank);
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_string("reduction", scatter_reduction(n))};
    sn_node_out(n, 0, sn_emit(n, SN_OP_SCATTER_ELEMENTS, 3, operands, 2, attrs, NULL)->results[0]);
}

void sn_handle_scatter_nd(sn_node *n) {
    sn_value *operands[] = {sn_node_in(n, 0), sn_node_in(n, 1), sn_node_in(n, 2)};
    sn_attr attr = sn_attr_string("reduction", scatter_reduction(n));
    sn_node_out(n, 0, sn_emit(n, SN_OP_SCATTER_ND, 3, operands, 1, &attr, NULL)->results[0]);
}

void sn_handle_arg(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", 0), x->type.rank);
    sn_attr attrs[] = {sn_attr_int("axis", axis), sn_attr_int("keepdims", sn_node_int(n, "keepdims", 1)),
                       sn_attr_int("last", sn_node_int(n, "select_last_index", 0))};
    sn_node_out(n, 0, sn_emit(n, sn_node_kind(n), 1, &x, 3, attrs, NULL)->results[0]);
}

void sn_handle_top_k(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int axis = sn_node_axis(n, sn_node_int(n, "axis", -1), x->type.rank);
    sn_attr attrs[] = {sn_attr_int("k", sn_node_known_int(n, 1, 0)), sn_attr_int("axis", axis),
                       sn_attr_int("largest", sn_node_int(n, "largest", 1))};
    sn_op *op = sn_emit(n, SN_OP_TOP_K, 1, &x, 3, attrs, NULL);
    sn_node_out(n, 0, op->results[0]);
    sn_node_out(n, 1, op->results[1]);
}

// The result's size depends on the condition, which must be known.
void sn_handle_compress(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    int count;
    const int64_t *condition = sn_node_known_ints(n, 1, &count);
    int axis = 0;
    if (sn_node_attr(n, "axis")) {
        axis = sn_node_axis(n, sn_node_int(n, "axis", 0), x->type.rank);
    } else {
        int64_t size = sn_type_count(x->type);
        x = sn_emit_reshape(n, x, 1, &size);
    }
    int64_t *index = SN_NEW_N(sn_node_arena(n), int64_t, count + 1), kept = 0;
    if (count > x->type.dim[axis]) sn_node_fail(n, NULL, "the condition is longer than dim %d of its input", axis);
    for (int i = 0; i < count; i++)
        if (condition[i]) index[kept++] = i;
    sn_node_out(n, 0, sn_emit_gather(n, x, sn_node_constant_ints(n, 1, &kept, index), axis));
}

void sn_handle_non_zero(sn_node *n) {
    sn_value *x = sn_node_in(n, 0);
    const sn_tensor *known = sn_node_known(n, x);
    if (!known) sn_node_unsupported(n, "the size of its result depends on data");
    int64_t count = sn_type_count(x->type), found = 0, rank = x->type.rank ? x->type.rank : 1;
    int64_t *places = SN_NEW_N(sn_node_arena(n), int64_t, count + 1);
    for (int64_t i = 0; i < count; i++)
        if (sn_load_f64(x->type.dtype, known->data, i) != 0) places[found++] = i;
    int64_t *out = SN_NEW_N(sn_node_arena(n), int64_t, found * rank + 1);
    for (int64_t f = 0; f < found; f++)
        for (int64_t d = x->type.rank - 1, rest = places[f]; d >= 0; d--) {
            out[d * found + f] = rest % x->type.dim[d];
            rest /= x->type.dim[d];
        }
    sn_node_out(n, 0, sn_node_constant_ints(n, 2, (int64_t[]){rank, found}, out));
}

// Position t of a batch row of length l comes from l - 1 - t when t < l, else from t.
void sn_handle_reverse_sequence(sn_node *n) {
    sn_value *x = sn_node_in(n, 0), *lengths = sn_emit_cast(n, sn_node_in(n, 1), SN_I64);
    int batch = (int)sn_node_int_within(n, "batch_axis", 1, 0, 1);
    int time = (int)sn_node_int_within(n, "time_axis", 0, 0, 1), rank = x->type.rank;
    if (batch == time) sn_node_fail(n, NULL, "batch_axis and time_axis are the same");
    sn_type type = sn_type_with_dtype(x->type, SN_I64);
    sn_value *t = sn_emit_iota(n, type, time, 0, 1), *l = sn_emit_aligned(n, lengths, batch, rank);
    sn_value *turned = sn_emit_binary(n, SN_OP_SUB, sn_emit_number(n, SN_OP_SUB, l, 1), t);
    sn_value *from = sn_emit_where(n, sn_emit_binary(n, SN_OP_LESS, t, l), turned, t);
    sn_node_out(n, 0, indexed(n, SN_OP_GATHER_ELEMENTS, x, from, sn_attr_int("axis", time)));
}

// Writes `update` into a cache [B, ..., S, ...] along axis from a position per batch row on.
void sn_handle_tensor_scatter(sn_node *n) {
    sn_value *cache = sn_node_in(n, 0), *update = sn_node_in(n, 1), *start = sn_node_optional(n, 2);
    int rank = cache->type.rank, axis = sn_node_axis(n, sn_node_int(n, "axis", -2), rank);
    bool circular = sn_node_string_is(n, "mode", "linear", "circular");
    if (axis == 0 || update->type.rank != rank) sn_node_fail(n, NULL, "the update does not fit the cache");
    sn_value *at = sn_emit_iota(n, sn_type_with_dtype(update->type, SN_I64), axis, 0, 1);
    if (start) at = sn_emit_binary(n, SN_OP_ADD, at, sn_emit_aligned(n, sn_emit_cast(n, start, SN_I64), 0, rank));
    if (circular) at = sn_emit_number(n, SN_OP_MOD, at, (double)cache->type.dim[axis]);
    sn_attr attr = sn_attr_int("axis", axis);
    sn_value *operands[] = {cache, at, update};
    sn_node_out(n, 0, sn_emit(n, SN_OP_SCATTER_ELEMENTS, 3, operands, 1, &attr, NULL)->results[0]);
}
