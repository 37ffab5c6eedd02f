// Ops whose meaning depends on where in the whole a rank's part lies.
#include "passes/partition/localize.h"

#include <math.h>
#include <string.h>

// All dims in pieces; returns their number, or -1 when they are too many for one value. first[d] is the first piece of
// dim d.
static int split_all(const sn_mesh *mesh, sn_layout layout, sn_type global, sn_piece *pieces, int *first) {
    int n = 0;
    for (int d = 0; d < global.rank; d++) {
        sn_piece of_dim[SN_MAX_AXES + 1];
        int k = sn_layout_pieces(mesh, layout, d, global.dim[d], of_dim);
        if (n + k > SN_MAX_RANK) return -1;
        first[d] = n;
        memcpy(&pieces[n], of_dim, sizeof *pieces * (size_t)k);
        n += k;
    }
    first[global.rank] = n;
    return n;
}

static sn_value *piece_start(sn_localizer *l, const sn_piece *piece) {
    return sn_local_start(l, (sn_layout){.dim = {piece->axes}}, 0, piece->size);
}

static sn_type piece_type(sn_dtype dtype, int n, const sn_piece *pieces, bool local) {
    sn_type type = {.dtype = dtype, .rank = n};
    for (int i = 0; i < n; i++) type.dim[i] = local ? pieces[i].local : pieces[i].size;
    return type;
}

// The index in the whole of each of the rank's elements along pieces [from, to) of a value: a sum over the pieces.
static sn_value *whole_index(sn_localizer *l, int n, const sn_piece *pieces, int from, int to) {
    sn_type type = piece_type(SN_I64, n, pieces, true);
    sn_value *index = NULL;
    for (int i = from; i < to; i++) {
        sn_value *term = sn_build_iota(&l->b, type, i), *start = piece_start(l, &pieces[i]);
        if (start) term = sn_build_binary(&l->b, SN_OP_ADD, term, start);
        if (pieces[i].after > 1) term = sn_build_binary_number(&l->b, SN_OP_MUL, term, (double)pieces[i].after);
        index = index ? sn_build_binary(&l->b, SN_OP_ADD, index, term) : term;
    }
    return index ? index : sn_build_splat(&l->b, type, 0);
}

// start + step * (index along axis)
static sn_value *local_iota(sn_localizer *l, int n, const sn_piece *pieces, int from, int to) {
    sn_type local = l->op->results[0]->type;
    sn_value *index = whole_index(l, n, pieces, from, to);
    int64_t step = sn_op_int(l->op, "step"), start = sn_op_int(l->op, "start");
    if (step != 1) index = sn_build_binary_number(&l->b, SN_OP_MUL, index, (double)step);
    if (start != 0) index = sn_build_binary_number(&l->b, SN_OP_ADD, index, (double)start);
    return sn_build_reshape(&l->b, sn_build_cast(&l->b, index, local.dtype), local.rank, local.dim);
}

static sn_value *local_random(sn_localizer *l, int n, const sn_piece *pieces) {
    sn_type local = l->op->results[0]->type, type = piece_type(local.dtype, n, pieces, true);
    sn_type whole = piece_type(local.dtype, n, pieces, false);
    sn_value *operands[2 + SN_MAX_RANK] = {l->op->operands[0], l->op->operands[1]};
    int64_t dims[SN_MAX_RANK];
    int cut = 0;
    for (int i = 0; i < n; i++) {
        sn_value *start = piece_start(l, &pieces[i]);
        if (!start) continue;
        operands[2 + cut] = start;
        dims[cut++] = i;
    }
    sn_attr attrs[] = {sn_attr_int("id", sn_op_int(l->op, "id")), sn_attr_ints("global", whole.dim, n),
                       sn_attr_ints("dims", dims, cut)};
    sn_value *part = sn_build(&l->b, SN_OP_RANDOM_UNIFORM, 2 + cut, operands, 3, attrs, &type)->results[0];
    return sn_build_reshape(&l->b, part, local.rank, local.dim);
}

void sn_localize_generator(sn_localizer *l, sn_type global) {
    const sn_value *value = l->op->results[0];
    sn_piece pieces[SN_MAX_RANK];
    int first[SN_MAX_RANK + 1], axis = l->op->kind == SN_OP_IOTA ? (int)sn_op_int(l->op, "axis") : -1;
    bool moves = axis >= 0 ? value->layout.dim[axis] : sn_layout_axes(value->layout);
    if (!moves) return;
    int n = split_all(l->mesh, value->layout, global, pieces, first);
    if (n < 0) SN_BUG("a generator is cut in more than %d pieces", SN_MAX_RANK);
    sn_local_replace(l,
                     axis >= 0 ? local_iota(l, n, pieces, first[axis], first[axis + 1]) : local_random(l, n, pieces));
}

// A cut dim of a slice or a pad is made of whole blocks (ir/factors.c), each cut alike: offsets shrink with the blocks.
static void scale_offsets(sn_localizer *l, const char *name) {
    const sn_value *y = l->op->results[0];
    int n;
    const int64_t *old = sn_op_ints(l->op, name, &n);
    int64_t scaled[SN_MAX_RANK];
    for (int d = 0; d < n; d++) scaled[d] = old[d] / sn_mesh_size(l->mesh, y->layout.dim[d]);
    sn_op_set_attr(l->op, sn_attr_ints(name, scaled, n));
}

void sn_localize_slice(sn_localizer *l) {
    scale_offsets(l, "starts");
}

void sn_localize_pad(sn_localizer *l) {
    scale_offsets(l, "low");
    scale_offsets(l, "high");
}

// Indices into the rank's rows of a table (0 for those of other ranks), and whether they are the rank's. Negative ones
// count from the end of the whole table.
typedef struct own_rows {
    sn_value *indices, *own;
} own_rows;

static own_rows find_own(sn_localizer *l, sn_value *indices, sn_layout layout, int dim, int64_t rows) {
    sn_builder *b = &l->b;
    sn_dtype dtype = indices->type.dtype;
    sn_value *negative = sn_build_binary_number(b, SN_OP_LESS, indices, 0);
    indices = sn_build_where(b, negative, sn_build_binary_number(b, SN_OP_ADD, indices, (double)rows), indices);
    sn_value *start = sn_build_cast(b, sn_local_start(l, layout, dim, rows), dtype);
    sn_value *local = sn_build_binary(b, SN_OP_SUB, indices, start);
    double count = (double)(rows / sn_mesh_size(l->mesh, layout.dim[dim]));
    sn_value *own = sn_build_binary(b, SN_OP_AND, sn_build_binary_number(b, SN_OP_GREATER_EQUAL, local, 0),
                                    sn_build_binary_number(b, SN_OP_LESS, local, count));
    return (own_rows){sn_build_where(b, own, local, sn_build_number_like(b, local, 0)), own};
}

// What others' indices select is 0. `own` has the dims of the indices, which stand at `axis` of `rows`.
static sn_value *mask_rows(sn_builder *b, sn_value *rows, sn_value *own, int axis) {
    int64_t dims[SN_MAX_RANK];
    for (int d = 0; d < rows->type.rank; d++) {
        bool index = d >= axis && d < axis + own->type.rank;
        dims[d] = index ? own->type.dim[d - axis] : 1;
    }
    own = sn_build_reshape(b, own, rows->type.rank, dims);
    return sn_build_where(b, own, rows, sn_build_number_like(b, rows, 0));
}

void sn_localize_gather(sn_localizer *l, int64_t rows) {
    sn_value *table = l->op->operands[0];
    int axis = (int)sn_op_int(l->op, "axis");
    if (!table->layout.dim[axis]) return;
    own_rows own = find_own(l, l->op->operands[1], table->layout, axis, rows);
    sn_value *part = sn_build_gather(&l->b, table, own.indices, axis);
    sn_local_replace(l, mask_rows(&l->b, part, own.own, axis));
}

void sn_localize_gather_grad(sn_localizer *l, int64_t rows) {
    const sn_value *table = l->op->results[0];
    int axis = (int)sn_op_int(l->op, "axis");
    if (!table->layout.dim[axis]) return;
    own_rows own = find_own(l, l->op->operands[0], table->layout, axis, rows);
    sn_op_set_operand(l->op, 0, own.indices);
    sn_op_set_operand(l->op, 1, mask_rows(&l->b, l->op->operands[1], own.own, axis));
}

// A rank with a part of the queries sees keys up to its own place: the causal mask is written out for its rows.
void sn_localize_attention(sn_localizer *l, int64_t queries) {
    sn_op *op = l->op;
    const sn_value *q = op->operands[0], *k = op->operands[1];
    int at = op->kind == SN_OP_ATTENTION ? 3 : 6;
    if (!sn_op_int(op, "causal") || !q->layout.dim[2]) return;
    sn_builder *b = &l->b;
    sn_type scores = sn_type_make(SN_I64, 2, (int64_t[]){q->type.dim[2], k->type.dim[2]});
    sn_piece pieces[SN_MAX_AXES + 1];
    int n = sn_layout_pieces(l->mesh, q->layout, 2, queries, pieces);
    sn_value *row = sn_build_reshape(b, whole_index(l, n, pieces, 0, n), 2, (int64_t[]){q->type.dim[2], 1});
    sn_value *sees = sn_build_binary(b, SN_OP_LESS_EQUAL, sn_build_iota(b, scores, 1), row);
    sn_dtype dtype = q->type.dtype;
    sn_value *mask = sn_build_where(b, sees, sn_build_constant(b, dtype, 0), sn_build_constant(b, dtype, -INFINITY));
    if (op->n_operands > at) mask = sn_build_binary(b, SN_OP_ADD, op->operands[at], mask);
    sn_op *masked;
    sn_value *operands[7];
    for (int i = 0; i < at; i++) operands[i] = op->operands[i];
    operands[at] = mask;
    sn_attr attrs[] = {sn_attr_float("scale", sn_op_float(op, "scale")), sn_attr_int("causal", 0)};
    masked = sn_build(b, op->kind, at + 1, operands, 2, attrs, NULL);
    for (int i = 0; i < op->n_results; i++) {
        masked->results[i]->layout = op->results[i]->layout; // for moves of it
        sn_value_replace(op->results[i], masked->results[i]);
    }
    sn_op_erase(op);
}
