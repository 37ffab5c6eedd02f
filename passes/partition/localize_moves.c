// A rank's local dim holds the digits of the whole dim's index that no axis takes. To cut it over P parts at a digit,
//
//     [before, P, after]  ->  [P, before, after]     and the first dim is scattered, exchanged or picked from,
//
// and joining is the way back. Where the digit is the first of dim 0 the transpose is none.
#include "passes/partition/localize.h"

#include <string.h>

// The digit of an axis in the local dim of a rank that holds this axis whole: `outer` less what other axes take.
static int64_t local_outer(const sn_mesh *mesh, sn_layout with_axis, int dim, int axis, sn_axes whole) {
    int64_t outers[SN_MAX_AXES], outer;
    SN_CHECK(with_axis.dim[dim] >> axis & 1);
    sn_layout_outers(mesh, with_axis, dim, outers);
    outer = outers[axis];
    for (int a = 0; a < mesh->n_axes; a++) {
        bool taken = (with_axis.dim[dim] >> a & 1) && !(whole >> a & 1) && outers[a] < outers[axis];
        if (taken) outer /= mesh->size[a];
    }
    return outer;
}

// [before, parts, after] around a digit of a dim.
typedef struct digit {
    int64_t before, parts, after;
} digit;

static digit digit_of(sn_type type, int dim, int64_t outer, int64_t parts) {
    digit d = {.before = outer, .parts = parts, .after = type.dim[dim] / (outer * parts)};
    for (int i = 0; i < dim; i++) d.before *= type.dim[i];
    for (int i = dim + 1; i < type.rank; i++) d.after *= type.dim[i];
    return d;
}

// x as [parts, rest], the digit in front.
static sn_value *split_front(sn_builder *b, sn_value *x, digit d) {
    sn_value *pieces = sn_build_reshape(b, x, 3, (int64_t[]){d.before, d.parts, d.after});
    pieces = sn_build_transpose(b, pieces, d.before == 1 ? (int64_t[]){0, 1, 2} : (int64_t[]){1, 0, 2});
    return sn_build_reshape(b, pieces, 2, (int64_t[]){d.parts, d.before * d.after});
}

// The way back, to `type`.
static sn_value *join_front(sn_builder *b, sn_value *x, digit d, sn_type type) {
    if (d.before == 1) return sn_build_reshape(b, x, type.rank, type.dim);
    sn_value *pieces = sn_build_reshape(b, x, 3, (int64_t[]){d.parts, d.before, d.after});
    pieces = sn_build_transpose(b, pieces, (int64_t[]){1, 0, 2});
    return sn_build_reshape(b, pieces, type.rank, type.dim);
}

static sn_value *collective(sn_localizer *l, sn_value *x, int64_t rows, int64_t columns, int n_attrs,
                            const sn_attr *attrs) {
    sn_type type = sn_type_make(x->type.dtype, 2, (int64_t[]){rows, columns});
    sn_op *op = sn_op_new(l->op->func, l->op, l->op->kind, 1, &x, n_attrs, attrs, 1, &type);
    op->origin = l->op->origin;
    op->phase = l->op->phase;
    return op->results[0];
}

static sn_attr axes_attr(const sn_localizer *l) {
    return sn_attr_string("axes", sn_op_string(l->op, "axes"));
}

// Several axes come in the order of the mesh, the last one fastest: they are put in place one after the other.
static void localize_gather(sn_localizer *l, sn_axes axes) {
    sn_value *x = l->op->operands[0], *y = l->op->results[0];
    int dim = (int)sn_op_int(l->op, "dim");
    int64_t parts = sn_mesh_size(l->mesh, axes), count = sn_type_count(x->type);
    sn_attr attrs[] = {axes_attr(l), sn_attr_int("dim", 0)};
    sn_value *all = sn_build_reshape(&l->b, x, 2, (int64_t[]){1, count});
    all = collective(l, all, parts, count, 2, attrs);
    sn_type part = x->type;
    sn_axes joined = 0;
    for (int a = l->mesh->n_axes - 1; a >= 0; a--) {
        if (!(axes >> a & 1)) continue;
        joined |= (sn_axes)(1 << a);
        parts /= l->mesh->size[a];
        part.dim[dim] *= l->mesh->size[a];
        int64_t outer = local_outer(l->mesh, x->layout, dim, a, joined);
        digit d = digit_of(part, dim, outer, l->mesh->size[a]);
        if (parts == 1) {
            all = join_front(&l->b, all, d, part);
            break;
        }
        // [others, P, before, after] -> [others, before, P, after]
        all = sn_build_reshape(&l->b, all, 4, (int64_t[]){parts, d.parts, d.before, d.after});
        all = sn_build_transpose(&l->b, all, (int64_t[]){0, 2, 1, 3});
    }
    sn_local_replace(l, sn_build_reshape(&l->b, all, y->type.rank, y->type.dim));
}

// Several axes cut one inside the other, in the order of the mesh: their digits are one.
static void localize_reduce_scatter(sn_localizer *l, sn_axes axes) {
    sn_value *x = l->op->operands[0], *y = l->op->results[0];
    int dim = (int)sn_op_int(l->op, "dim");
    int64_t outer = local_outer(l->mesh, y->layout, dim, __builtin_ctz(axes), axes);
    digit d = digit_of(x->type, dim, outer, sn_mesh_size(l->mesh, axes));
    sn_attr attrs[] = {axes_attr(l), sn_attr_int("dim", 0)};
    sn_value *part = collective(l, split_front(&l->b, x, d), 1, d.before * d.after, 2, attrs);
    sn_local_replace(l, sn_build_reshape(&l->b, part, y->type.rank, y->type.dim));
}

static void localize_all_to_all(sn_localizer *l, int axis) {
    sn_value *x = l->op->operands[0], *y = l->op->results[0];
    int from = (int)sn_op_int(l->op, "from"), to = (int)sn_op_int(l->op, "to");
    int64_t parts = l->mesh->size[axis];
    sn_axes whole = (sn_axes)(1 << axis);
    digit cut = digit_of(x->type, to, local_outer(l->mesh, y->layout, to, axis, whole), parts);
    digit join = digit_of(y->type, from, local_outer(l->mesh, x->layout, from, axis, whole), parts);
    sn_attr attrs[] = {axes_attr(l), sn_attr_int("from", 1), sn_attr_int("to", 0)};
    int64_t count = sn_type_count(x->type);
    sn_value *exchanged = collective(l, split_front(&l->b, x, cut), 1, count, 3, attrs);
    sn_local_replace(l, join_front(&l->b, exchanged, join, y->type));
}

// A rank's part starts where only the rank knows: a gather of one row of parts.
static void localize_shard(sn_localizer *l, int axis) {
    sn_value *x = l->op->operands[0], *y = l->op->results[0];
    int dim = (int)sn_op_int(l->op, "dim");
    int64_t outer = local_outer(l->mesh, y->layout, dim, axis, (sn_axes)(1 << axis));
    digit d = digit_of(x->type, dim, outer, l->mesh->size[axis]);
    sn_value *pieces = sn_build_reshape(&l->b, x, 3, (int64_t[]){d.before, d.parts, d.after});
    sn_value *part = sn_build_gather(&l->b, pieces, sn_local_coordinate(l, axis), 1);
    sn_local_replace(l, sn_build_reshape(&l->b, part, y->type.rank, y->type.dim));
}

// Communicators know sums and maxima: the smallest is the largest of the negative.
static void localize_all_reduce(sn_localizer *l) {
    if (strcmp(sn_op_string(l->op, "reduction"), "min") != 0) return;
    sn_value *x = sn_build_unary(&l->b, SN_OP_NEG, l->op->operands[0]);
    sn_attr attrs[] = {axes_attr(l), sn_attr_string("reduction", "max")};
    sn_op *op = sn_op_new(l->op->func, l->op, SN_OP_ALL_REDUCE, 1, &x, 2, attrs, 1, &x->type);
    op->origin = l->op->origin;
    op->phase = l->op->phase;
    sn_local_replace(l, sn_build_unary(&l->b, SN_OP_NEG, op->results[0]));
}

void sn_localize_move(sn_localizer *l) {
    sn_axes axes = sn_mesh_axes_named(l->mesh, sn_op_string(l->op, "axes"));
    int axis = __builtin_ctz(axes);
    if (sn_mesh_size(l->mesh, axes) == 1) {
        sn_local_replace(l, l->op->operands[0]);
        return;
    }
    switch (l->op->kind) {
    case SN_OP_ALL_GATHER:
        localize_gather(l, axes);
        break;
    case SN_OP_REDUCE_SCATTER:
        localize_reduce_scatter(l, axes);
        break;
    case SN_OP_ALL_TO_ALL:
        localize_all_to_all(l, axis);
        break;
    case SN_OP_SHARD:
        localize_shard(l, axis);
        break;
    default:
        localize_all_reduce(l);
        break;
    }
}
