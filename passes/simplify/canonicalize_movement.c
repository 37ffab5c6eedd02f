#include "passes/simplify/canonicalize.h"

#include <string.h>

// The same constant under the result's type.
static sn_value *splat_of(sn_rewriter *r, const sn_op *op) {
    double number;
    if (!sn_value_number(op->operands[0], &number)) return NULL;
    const sn_op *constant = op->operands[0]->def;
    sn_op *copy = sn_op_new(op->func, (sn_op *)op, SN_OP_CONSTANT, 0, NULL, constant->n_attrs, constant->attrs, 1,
                            &op->results[0]->type);
    copy->origin = constant->origin;
    copy->phase = op->phase;
    (void)r;
    return copy->results[0];
}

// Whether `perm` swaps the last two dims and nothing else.
static bool swaps_last_two(sn_type type, const int64_t *perm) {
    if (type.rank < 2) return false;
    for (int i = 0; i < type.rank - 2; i++)
        if (perm[i] != i) return false;
    return perm[type.rank - 2] == type.rank - 1;
}

// reshape(transpose(x)) that keeps the two dims that the transpose swaps: the reshape goes first, where it may meet
// another. Exporters transpose k of rank four as three dims.
static sn_value *reshape_before_swap(sn_rewriter *r, sn_op *op) {
    sn_type type = op->results[0]->type, swapped = op->operands[0]->type;
    sn_op *inner = sn_defined_by(op->operands[0], SN_OP_TRANSPOSE);
    if (!inner || type.rank < 2 || !swaps_last_two(swapped, sn_op_ints(inner, "perm", NULL))) return NULL;
    int64_t rows = type.dim[type.rank - 2], columns = type.dim[type.rank - 1], perm[SN_MAX_RANK];
    if (swapped.dim[swapped.rank - 2] != rows || swapped.dim[swapped.rank - 1] != columns) return NULL;
    for (int i = 0; i < type.rank; i++) perm[i] = i;
    perm[type.rank - 2] = type.rank - 1;
    perm[type.rank - 1] = type.rank - 2;
    type.dim[type.rank - 2] = columns;
    type.dim[type.rank - 1] = rows;
    sn_builder *b = sn_rewriter_at(r, op);
    return sn_build_transpose(b, sn_build_reshape(b, inner->operands[0], type.rank, type.dim), perm);
}

sn_value *sn_canonicalize_reshape(sn_rewriter *r, sn_op *op) {
    sn_value *x = op->operands[0];
    sn_type type = op->results[0]->type;
    if (sn_type_equal(x->type, type)) return x;
    if (sn_value_is_constant(x)) return splat_of(r, op);
    sn_op *inner = sn_defined_by(x, SN_OP_RESHAPE);
    if (inner) return sn_build_reshape(sn_rewriter_at(r, op), inner->operands[0], type.rank, type.dim);
    return reshape_before_swap(r, op);
}

// Whether a transpose moves dims of size 1 alone: then it is a reshape, which is free.
static bool moves_nothing(sn_type type, const int64_t *perm) {
    int64_t last = -1;
    for (int i = 0; i < type.rank; i++) {
        if (type.dim[perm[i]] == 1) continue;
        if (perm[i] < last) return false;
        last = perm[i];
    }
    return true;
}

sn_value *sn_canonicalize_transpose(sn_rewriter *r, sn_op *op) {
    sn_value *x = op->operands[0];
    sn_type type = op->results[0]->type;
    const int64_t *perm = sn_op_ints(op, "perm", NULL);
    if (sn_value_is_constant(x)) return splat_of(r, op);
    if (moves_nothing(x->type, perm)) return sn_build_reshape(sn_rewriter_at(r, op), x, type.rank, type.dim);
    sn_op *inner = sn_defined_by(x, SN_OP_TRANSPOSE);
    if (!inner) return NULL;
    const int64_t *first = sn_op_ints(inner, "perm", NULL);
    int64_t both[SN_MAX_RANK];
    for (int i = 0; i < type.rank; i++) both[i] = first[perm[i]];
    return sn_build_transpose(sn_rewriter_at(r, op), inner->operands[0], both);
}

sn_value *sn_canonicalize_broadcast(sn_rewriter *r, sn_op *op) {
    sn_value *x = op->operands[0];
    sn_type type = op->results[0]->type;
    if (sn_type_equal(x->type, type)) return x;
    if (sn_value_is_constant(x)) return splat_of(r, op);
    if (sn_type_count(x->type) == sn_type_count(type))
        return sn_build_reshape(sn_rewriter_at(r, op), x, type.rank, type.dim);
    sn_op *inner = sn_defined_by(x, SN_OP_BROADCAST);
    return inner ? sn_build_broadcast(sn_rewriter_at(r, op), inner->operands[0], type.rank, type.dim) : NULL;
}

sn_value *sn_canonicalize_slice(sn_rewriter *r, sn_op *op) {
    sn_value *x = op->operands[0];
    sn_type type = op->results[0]->type;
    const int64_t *starts = sn_op_ints(op, "starts", NULL), *steps = sn_op_ints(op, "steps", NULL);
    if (sn_value_is_constant(x)) return splat_of(r, op);
    bool whole = sn_type_equal(x->type, type);
    for (int i = 0; i < type.rank; i++) whole = whole && (type.dim[i] <= 1 || (starts[i] == 0 && steps[i] == 1));
    if (whole) return x;
    sn_op *inner = sn_defined_by(x, SN_OP_SLICE);
    if (!inner) return NULL;
    const int64_t *first = sn_op_ints(inner, "starts", NULL), *stride = sn_op_ints(inner, "steps", NULL);
    int64_t start[SN_MAX_RANK], step[SN_MAX_RANK];
    for (int i = 0; i < type.rank; i++) {
        start[i] = first[i] + starts[i] * stride[i];
        step[i] = steps[i] * stride[i];
    }
    return sn_build_slice(sn_rewriter_at(r, op), inner->operands[0], start, step, type.dim);
}

sn_value *sn_canonicalize_pad(sn_rewriter *r, sn_op *op) {
    (void)r;
    return sn_type_equal(op->operands[0]->type, op->results[0]->type) ? op->operands[0] : NULL;
}

// The slice that operand `index` is, when the operands up to it are adjacent slices of one value along `axis`.
static bool continues(const sn_op *concat, int index, int axis, int64_t at, const sn_value *source) {
    const sn_op *slice = sn_defined_by(concat->operands[index], SN_OP_SLICE);
    if (!slice || slice->operands[0] != source) return false;
    const int64_t *starts = sn_op_ints(slice, "starts", NULL), *steps = sn_op_ints(slice, "steps", NULL);
    for (int i = 0; i < source->type.rank; i++) {
        if (starts[i] != (i == axis ? at : 0)) return false;
        if (steps[i] != 1 && slice->results[0]->type.dim[i] > 1) return false;
    }
    return true;
}

// A value that was cut into slices and is joined again: q, k and v of some exports.
static sn_value *rejoined(const sn_op *op) {
    const sn_op *first = sn_defined_by(op->operands[0], SN_OP_SLICE);
    if (!first || !sn_type_equal(first->operands[0]->type, op->results[0]->type)) return NULL;
    int axis = (int)sn_op_int(op, "axis");
    int64_t at = 0;
    for (int i = 0; i < op->n_operands; i++) {
        if (!continues(op, i, axis, at, first->operands[0])) return NULL;
        at += op->operands[i]->type.dim[axis];
    }
    return first->operands[0];
}

sn_value *sn_canonicalize_concat(sn_rewriter *r, sn_op *op) {
    if (op->n_operands == 1) return op->operands[0];
    int axis = (int)sn_op_int(op, "axis");
    SN_VEC(sn_value *) parts = {0};
    for (int i = 0; i < op->n_operands; i++)
        if (op->operands[i]->type.dim[axis] > 0) sn_vec_push(&parts, op->operands[i]);
    sn_value *result = NULL;
    if (parts.count > 0 && (int)parts.count < op->n_operands)
        result = sn_build_concat(sn_rewriter_at(r, op), (int)parts.count, parts.data, axis);
    sn_vec_free(&parts);
    return result ? result : rejoined(op);
}

// gather(x, 2) is a slice and a reshape, which fuse.
sn_value *sn_canonicalize_gather(sn_rewriter *r, sn_op *op) {
    sn_value *x = op->operands[0];
    sn_type type = op->results[0]->type, slice = x->type;
    int axis = (int)sn_op_int(op, "axis");
    double number;
    if (op->operands[1]->type.rank != 0 || !sn_value_number(op->operands[1], &number)) return NULL;
    int64_t index = (int64_t)number, starts[SN_MAX_RANK] = {0}, steps[SN_MAX_RANK];
    if (index < 0) index += x->type.dim[axis];
    if (index < 0 || index >= x->type.dim[axis]) return NULL; // the error belongs to the run
    for (int i = 0; i < slice.rank; i++) steps[i] = 1;
    starts[axis] = index;
    slice.dim[axis] = 1;
    sn_builder *b = sn_rewriter_at(r, op);
    return sn_build_reshape(b, sn_build_slice(b, x, starts, steps, slice.dim), type.rank, type.dim);
}

// Tuples of one index select rows: a gather, whose rows may be cut.
sn_value *sn_canonicalize_gather_nd(sn_rewriter *r, sn_op *op) {
    sn_value *indices = op->operands[1];
    sn_type tuples = indices->type;
    if (sn_op_int(op, "batch_dims") != 0 || tuples.dim[tuples.rank - 1] != 1) return NULL;
    sn_builder *b = sn_rewriter_at(r, op);
    indices = sn_build_reshape(b, indices, tuples.rank - 1, tuples.dim);
    return sn_build_gather(b, op->operands[0], indices, 0);
}

// Over dims of size 1 there is nothing to reduce; mean(mean(x)) and its like stay.
sn_value *sn_canonicalize_reduction(sn_rewriter *r, sn_op *op) {
    sn_type type = op->results[0]->type;
    int count;
    const int64_t *axes = sn_op_ints(op, "axes", &count);
    for (int i = 0; i < count; i++)
        if (op->operands[0]->type.dim[axes[i]] != 1) return NULL;
    return sn_build_reshape(sn_rewriter_at(r, op), op->operands[0], type.rank, type.dim);
}

sn_value *sn_canonicalize_matmul(sn_rewriter *r, sn_op *op) {
    sn_value *operands[2] = {op->operands[0], op->operands[1]};
    bool swapped[2] = {sn_op_int(op, "transpose_a") != 0, sn_op_int(op, "transpose_b") != 0}, found = false;
    for (int i = 0; i < 2; i++) {
        sn_op *inner = sn_defined_by(operands[i], SN_OP_TRANSPOSE);
        if (!inner || !swaps_last_two(operands[i]->type, sn_op_ints(inner, "perm", NULL))) continue;
        operands[i] = inner->operands[0];
        swapped[i] = !swapped[i];
        found = true;
    }
    return found ? sn_build_matmul(sn_rewriter_at(r, op), operands[0], operands[1], swapped[0], swapped[1]) : NULL;
}

// The mask broadcasts by itself.
sn_value *sn_canonicalize_attention(sn_rewriter *r, sn_op *op) {
    const sn_op *broadcast = op->n_operands > 3 ? sn_defined_by(op->operands[3], SN_OP_BROADCAST) : NULL;
    if (!broadcast) return NULL;
    sn_op_set_operand(op, 3, broadcast->operands[0]);
    r->changed = true;
    return NULL;
}
