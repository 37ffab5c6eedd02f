// Element by element: each result is computed at every index, blocks take consecutive runs. Where all operands are read
// at the result's own flat position the loop is flat; otherwise rows of trailing dims are the lanes, so that index
// arithmetic is done once a row.
#include "backend/lower/schedule.h"
#include "passes/schedule/op_class.h"

enum { BLOCK_ELEMENTS = 8192, HEAVY_BLOCK_ELEMENTS = 512, NARROW = 16 };

// How results are traversed: dims [0, split) are the rows, dims [split, rank) one flat lanes loop.
typedef struct traversal {
    int split;
    int64_t rows, columns;
    int64_t row_block, column_block; // per block
    int64_t grid;
} traversal;

static bool is_loop(sn_op_kind kind) {
    sn_op_class class = sn_op_class_of(kind);
    return class == SN_CLASS_REDUCTION || class == SN_CLASS_LOOP;
}

// The first dim from which on `type`'s dims may be one flat loop, given that an operand of `operand`'s shape is
// broadcast to it: there the operand must be stretched in all dims or in none.
static int flat_from(sn_type type, sn_type operand) {
    int skip = type.rank - operand.rank, split = type.rank;
    bool any_stretched = false, any_same = false;
    while (split > 0) {
        int d = split - 1;
        int64_t size = d < skip ? 1 : operand.dim[d - skip];
        if (type.dim[d] != 1) {
            if (size == 1)
                any_stretched = true;
            else
                any_same = true;
        }
        if (any_stretched && any_same) break;
        split--;
    }
    return split;
}

// `split` such that flat positions in dims [split, rank) of `type` need no division to reach the op's operands.
static int split_of_op(const sn_op *op, sn_type type) {
    sn_type result = op->results[0]->type;
    bool pointwise = sn_op_has(op->kind, SN_TRAIT_POINTWISE) || op->kind == SN_OP_BROADCAST;
    if (op->kind == SN_OP_CONSTANT) return 0;
    if (sn_type_count(result) == 1) return is_loop(op->kind) ? type.rank : 0;
    if (op->kind == SN_OP_RESHAPE && sn_type_count(result) == sn_type_count(type)) return 0;
    if (!pointwise) return type.rank - 1;
    int split = 0;
    for (int i = 0; i < op->n_operands; i++) {
        int from = flat_from(result, op->operands[i]->type) + type.rank - result.rank;
        if (from > split) split = from;
    }
    bool same_dims = sn_type_count(result) == sn_type_count(type) || split == 0;
    return same_dims && sn_shape_equal(result, type) ? split : split ? type.rank - 1 : 0;
}

static traversal traverse(const sn_func *body, sn_type type) {
    traversal t = {.rows = 1, .columns = 1, .grid = 1};
    if (sn_type_count(type) == 0) return t;
    bool heavy = false;
    SN_FOR_OPS(op, body) {
        int split = split_of_op(op, type);
        if (split > t.split) t.split = split;
        heavy |= is_loop(op->kind);
    }
    if (t.split >= type.rank) t.split = type.rank ? type.rank - 1 : 0;
    for (int d = t.split; d < type.rank; d++) t.columns *= type.dim[d];
    while (t.columns < NARROW && t.split > 0) t.columns *= type.dim[--t.split];
    for (int d = 0; d < t.split; d++) t.rows *= type.dim[d];
    int64_t elements = heavy ? HEAVY_BLOCK_ELEMENTS : BLOCK_ELEMENTS;
    t.column_block = t.columns < elements ? t.columns : elements;
    t.row_block = t.column_block == t.columns && t.columns > 0 ? elements / t.columns : 1;
    if (t.row_block < 1) t.row_block = 1;
    if (t.row_block > t.rows) t.row_block = t.rows;
    int64_t column_tiles = (t.columns + t.column_block - 1) / t.column_block;
    t.grid = (t.rows + t.row_block - 1) / t.row_block * column_tiles;
    return t;
}

static sn_point point_of(sn_lower *l, sn_type type, int split, sn_kir_node *row, sn_kir_node *column) {
    sn_type outer = type, inner = type;
    outer.rank = split;
    inner.rank = type.rank - split;
    for (int d = split; d < type.rank; d++) inner.dim[d - split] = type.dim[d];
    sn_point point = sn_lower_unflat(l, outer, row), tail = sn_lower_unflat(l, inner, column);
    for (int d = split; d < type.rank; d++) point.at[d] = tail.at[d - split];
    return point;
}

// Results [first, n) of the shape of `first` that are in `chosen`, at one element; all are computed before any is
// stored, since a result may share memory with an operand.
static void emit_element(sn_lowering *lowering, const bool *chosen, const sn_point *point) {
    const sn_func *body = lowering->body;
    sn_kir_node *values[64];
    SN_CHECK(body->results.count <= 64);
    for (size_t i = 0; i < body->results.count; i++)
        if (chosen[i]) values[i] = sn_lower_element(&lowering->l, body->results.data[i], point);
    for (size_t i = 0; i < body->results.count; i++)
        if (chosen[i]) sn_lowering_store(lowering, i, point, values[i]);
}

static void emit_group(sn_lowering *lowering, const bool *chosen, sn_type type, const traversal *t) {
    sn_lower *l = &lowering->l;
    sn_kir *k = l->k;
    int64_t tiles = (t->columns + t->column_block - 1) / t->column_block;
    sn_kir_node *block = sn_kir_block(k);
    if (k->grid > t->grid) {
        sn_kir_if(k, sn_kir_lt(k, block, sn_kir_index(k, t->grid)));
        block = sn_kir_clamp(k, block, 0, t->grid - 1);
    }
    sn_kir_node *first = sn_kir_muli(k, sn_kir_divi(k, block, tiles), t->row_block);
    sn_kir_node *low = sn_kir_muli(k, sn_kir_modi(k, block, tiles), t->column_block);
    sn_kir_node *high = sn_kir_at_most(k, sn_kir_addi(k, low, t->column_block), t->columns);
    sn_kir_node *row = first;
    if (t->row_block > 1)
        row = sn_lower_for(l, SN_KIR_SERIAL, first, sn_kir_at_most(k, sn_kir_addi(k, first, t->row_block), t->rows), 1);
    sn_kir_node *column = sn_lower_for(l, SN_KIR_LANES, low, high, 1);
    sn_point point = point_of(l, type, t->split, row, column);
    emit_element(lowering, chosen, &point);
    sn_lower_end(l);
    if (t->row_block > 1) sn_lower_end(l);
    if (k->grid > t->grid) sn_kir_end(k);
}

void sn_schedule_map(sn_lowering *lowering) {
    const sn_func *body = lowering->body;
    traversal of[64];
    bool done[64] = {false};
    int64_t grid = 1;
    SN_CHECK(body->results.count <= 64);
    for (size_t i = 0; i < body->results.count; i++) {
        if (sn_type_count(body->results.data[i]->type) == 0) continue;
        of[i] = traverse(body, body->results.data[i]->type);
        if (of[i].grid > grid) grid = of[i].grid;
    }
    sn_lowering_begin(lowering, grid);
    for (size_t i = 0; i < body->results.count; i++) {
        sn_type type = body->results.data[i]->type;
        if (done[i] || sn_type_count(type) == 0) continue;
        bool chosen[64] = {false};
        for (size_t j = i; j < body->results.count; j++)
            if (sn_shape_equal(body->results.data[j]->type, type)) chosen[j] = done[j] = true;
        emit_group(lowering, chosen, type, &of[i]);
    }
}
