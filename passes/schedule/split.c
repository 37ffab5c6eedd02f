// Two-stage reductions. One block would otherwise read everything:
//
//     %s = reduce_sum(%x) <axes=[0,1]> : f32[]            %x: f32[50257,768]
//  -> %r = reshape(%x) : f32[50257,768];  %p = reduce_sum(%r) <axes=[1]> : f32[50257];  %s = reduce_sum(%p) <axes=[0]>
#include "base/alloc.h"
#include "ir/build.h"
#include "passes/schedule/fuse.h"
#include "passes/schedule/op_class.h"

enum { LARGE = 32 << 10, MIN_PARTS = 8, MAX_PARTS = 64 };

// The number of leading elements groups: a product of leading dims, so that pointwise producers keep their shape.
static int64_t parts_of(sn_type type) {
    int64_t count = sn_type_count(type), parts = 1;
    for (int d = 0; d < type.rank && parts < MIN_PARTS; d++) parts *= type.dim[d];
    if (parts >= MIN_PARTS && count / parts >= MIN_PARTS) return parts;
    for (parts = 64; parts >= MIN_PARTS; parts--)
        if (count % parts == 0) return parts;
    return 1;
}

static void split_whole(sn_builder *b, sn_op *op) {
    sn_type type = op->operands[0]->type, result = op->results[0]->type;
    int64_t count = sn_type_count(type), parts = count >= LARGE ? parts_of(type) : 1;
    if (parts == 1) return;
    int64_t shape[] = {parts, count / parts}, inner = 1, outer = 0;
    sn_value *rows = sn_build_reshape(b, op->operands[0], 2, shape);
    sn_value *partial = sn_build_reduce(b, op->kind, rows, 1, &inner, false);
    sn_value *whole = sn_build_reduce(b, op->kind, partial, 1, &outer, false);
    sn_value_replace(op->results[0], sn_build_reshape(b, whole, result.rank, result.dim));
    sn_op_erase(op);
}

// How many leading dims, of the first `n` that a sum runs over, are enough parts; 0 when they are too few or too many.
static int leading_dims(sn_type type, int n) {
    int64_t rows = 1, parts = 1;
    for (int d = 0; d < n; d++) rows *= type.dim[d];
    if (!rows || sn_type_count(type) < LARGE) return 0;
    for (int d = 0; d + 1 < n; d++) {
        parts *= type.dim[d];
        if (parts >= MIN_PARTS) return parts <= MAX_PARTS && rows / parts >= MIN_PARTS ? d + 1 : 0;
    }
    return 0;
}

// The operand as it was before reshapes joined dims in front of its last `kept`, which stay as they are.
static sn_value *before_joins(sn_value *x, int kept) {
    while (x->kind == SN_VALUE_RESULT && x->def->kind == SN_OP_RESHAPE) {
        sn_value *from = x->def->operands[0];
        if (from->type.rank <= kept) return x;
        for (int i = 1; i <= kept; i++)
            if (from->type.dim[from->type.rank - i] != x->type.dim[x->type.rank - i]) return x;
        x = from;
    }
    return x;
}

// Sums over all but the last dims, by a leading dim: the blocks of the first stage read whole rows, and with the batch
// in front those that the same thread has just written. Sums of 16-bit floats would be rounded in between.
static void split_columns(sn_builder *b, sn_op *op) {
    sn_type result = op->results[0]->type;
    int n;
    const int64_t *given = sn_op_ints(op, "axes", &n);
    if (op->kind != SN_OP_REDUCE_SUM || sn_dtype_bytes(result.dtype) < 4) return;
    for (int i = 0; i < n; i++)
        if (given[i] != i) return;
    sn_value *x = before_joins(op->operands[0], op->operands[0]->type.rank - n);
    n = x->type.rank - (op->operands[0]->type.rank - n);
    int leading = leading_dims(x->type, n);
    if (!leading) return;
    int64_t axes[SN_MAX_RANK];
    for (int i = 0; i < n; i++) axes[i] = i;
    sn_value *partial = sn_build_reduce(b, op->kind, x, n - leading, axes + leading, false);
    sn_value *sum = sn_build_reduce(b, op->kind, partial, leading, axes, false);
    sn_value_replace(op->results[0], sn_build_reshape(b, sum, result.rank, result.dim));
    sn_op_erase(op);
}

void sn_split_reductions(sn_func *func) {
    SN_FOR_OPS_SAFE(op, func) {
        if (!sn_op_has(op->kind, SN_TRAIT_REDUCTION)) continue;
        sn_builder b = {func, op, op->origin, op->phase};
        if (sn_type_count(op->results[0]->type) == 1)
            split_whole(&b, op);
        else
            split_columns(&b, op);
    }
}

// Stored values that `value` is put together from; marks say it of the ops before.
static uint32_t cone_of(const sn_value *value) {
    bool inlined = value->kind == SN_VALUE_RESULT && sn_op_class_of(value->def->kind) == SN_CLASS_INDEX;
    return inlined ? value->def->mark : 1;
}

static uint32_t cones_of(int n, sn_value *const *values) {
    uint32_t cones = 0;
    for (int i = 0; i < n; i++) cones += cone_of(values[i]);
    return cones;
}

// concat(v1, ..., v400) -> concat(copy(concat(v1, ..., v128)), ...), until it reads few enough.
static void split_concat(sn_builder *b, sn_op *op) {
    int axis = (int)sn_op_int(op, "axis"), n = op->n_operands;
    sn_value **parts = sn_alloc(sizeof *parts * (size_t)n);
    for (int i = 0; i < n; i++) parts[i] = op->operands[i];
    while (n > 1 && cones_of(n, parts) > SN_MAX_CONE) {
        int fewer = 0;
        for (int first = 0, end; first < n; first = end) {
            uint32_t cones = cone_of(parts[first]);
            for (end = first + 1; end < n && cones + cone_of(parts[end]) <= SN_MAX_CONE; end++)
                cones += cone_of(parts[end]);
            sn_value *part = end - first > 1 ? sn_build_concat(b, end - first, parts + first, axis) : parts[first];
            parts[fewer++] = cones > 1 ? sn_build_unary(b, SN_OP_COPY, part) : part;
        }
        n = fewer;
    }
    sn_value *whole = n > 1 ? sn_build_concat(b, n, parts, axis) : parts[0];
    if (whole->kind == SN_VALUE_RESULT) whole->def->mark = cones_of(n, parts);
    sn_value_replace(op->results[0], whole);
    sn_op_erase(op);
    sn_free(parts);
}

// The norm of all gradients of a deep model reads hundreds of sums. A kernel with so many operands would exceed the 4
// KB that CUDA has for parameters (CUDA C++ Programming Guide, "Function Parameters").
void sn_split_concats(sn_func *func) {
    SN_FOR_OPS_SAFE(op, func) {
        if (sn_op_class_of(op->kind) != SN_CLASS_INDEX) continue;
        op->mark = cones_of(op->n_operands, op->operands);
        sn_builder b = {func, op, op->origin, op->phase};
        if (op->kind == SN_OP_CONCAT && op->mark > SN_MAX_CONE) split_concat(&b, op);
    }
}
