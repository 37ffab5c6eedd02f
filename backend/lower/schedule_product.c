// A product c = aᵀ b with work on each element of c, which is never stored (passes/schedule/product.h).
//
// A tile of c is in registers while the loop over the depth k runs: each step multiplies a column of a with a vector or
// three of b. This is the micro-kernel of Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication" (2008), without its outermost loop: k is shallow, so a tile is done in one go.
//
// The work on a tile reads and writes memory, the product does not: while a tile is multiplied, what the work will read
// of the next one is prefetched, a vector every few steps.
//
// A block has GROUP rows of c. Its part of a is copied first into panels, one for the rows of each tile, that are read
// from front to end: the rows of a lie a power of two apart as often as not and would share a few sets of the cache.
// Tiles go along the rows, so that a panel stays in the first-level cache and each operand of the work is read as a few
// long streams, in runs of strips whose part of b stays in the second-level cache.
//
// Where rows are added to c (gather_grad), a block first sorts the indices that fall into its rows: few rows have any,
// and their work finds what to add without a search.
#include "backend/lower/rules.h"
#include "backend/lower/schedule.h"
#include "passes/schedule/product.h"

enum {
    LANES = SN_PRODUCT_LANES,
    ACCUMULATORS = 24, // vectors of a tile: with the operands of a step they fill the 32 registers
    GROUP = 96,        // a multiple of all heights of a tile
    RUN_BYTES = 1 << 19,
    UNROLL = 8, // steps of k for each vector that is prefetched
    MAX_SUMS = 4,
    MAX_RESULTS = 16,
    MAX_STREAMS = 16,
};

typedef struct tiling {
    sn_lowering *lowering;
    sn_product p;
    int height, vectors;   // of a tile
    int64_t run;           // strips
    sn_kir_node *first;    // row of the block
    sn_kir_buffer *panels; // [GROUP / height, k, height], the block's part of a
    const sn_op *sums[MAX_SUMS];
    sn_kir_buffer *sum_rows[MAX_SUMS];   // [GROUP, LANES]
    sn_kir_buffer *streams[MAX_STREAMS]; // operands of c's shape
    sn_kir_buffer *starts, *sorted;      // those that add to row r are sorted[starts[r]] up to sorted[starts[r + 1]]
    int n_sums, n_streams;
} tiling;

typedef struct tile {
    sn_kir_node *row; // within the block
    sn_kir_node *strip;
} tile;

static int64_t vectors_of(const tiling *t) {
    return (int64_t)t->height * t->vectors;
}

// Runs, then rows, then the strips of a run.
static tile tile_of(tiling *t, sn_kir_node *index) {
    sn_kir *k = t->lowering->l.k;
    int64_t in_run = GROUP / t->height * t->run;
    sn_kir_node *rest = sn_kir_modi(k, index, in_run);
    sn_kir_node *run = sn_kir_muli(k, sn_kir_divi(k, index, in_run), t->run);
    return (tile){.row = sn_kir_muli(k, sn_kir_divi(k, rest, t->run), t->height),
                  .strip = sn_kir_add(k, run, sn_kir_modi(k, rest, t->run))};
}

static bool is_ragged(const tiling *t) {
    return t->p.m % GROUP != 0;
}

// Rows beyond the last of c are of no use, but stay inside.
static sn_kir_node *row_of_c(tiling *t, sn_kir_node *row) {
    sn_kir *k = t->lowering->l.k;
    return sn_kir_at_most(k, sn_kir_add(k, t->first, row), t->p.m - 1);
}

static bool is_sum(const sn_value *value) {
    return value->kind == SN_VALUE_RESULT && value->def->kind == SN_OP_REDUCE_SUM;
}

// The results at one element of c: first all values, then all stores, since results may be tied to operands.
static void store_element(tiling *t, const sn_point *point) {
    const sn_func *body = t->lowering->body;
    sn_kir_node *values[MAX_RESULTS];
    for (size_t i = 0; i < body->results.count; i++)
        if (!is_sum(body->results.data[i])) values[i] = sn_lower_element(&t->lowering->l, body->results.data[i], point);
    for (size_t i = 0; i < body->results.count; i++)
        if (!is_sum(body->results.data[i])) sn_lowering_store(t->lowering, i, point, values[i]);
}

static int64_t count_indices(const tiling *t) {
    return sn_type_count(t->p.rows->operands[0]->type);
}

// Sums, per vector of a row of a tile, of what is added to the row; `column` is that of the first vector.
static void sum_added(tiling *t, sn_kir_node *row, sn_kir_node *column, sn_kir_node **sums) {
    sn_lower *l = &t->lowering->l;
    sn_kir *k = l->k;
    const sn_value *added = t->p.rows->operands[1];
    int64_t last = count_indices(t) - 1;
    sn_kir_node *low = sn_kir_load(k, t->starts, row), *high = sn_kir_load(k, t->starts, sn_kir_addi(k, row, 1));
    sn_kir_node *at = sn_kir_clamp(k, sn_lower_for(l, SN_KIR_SERIAL, low, high, 1), 0, last);
    sn_kir_node *from = sn_kir_muli(k, sn_kir_clamp(k, sn_kir_load(k, t->sorted, at), 0, last), t->p.n);
    sn_kir_node *carry[ACCUMULATORS];
    for (int v = 0; v < t->vectors; v++) {
        carry[v] = sn_kir_carry(k, sn_kir_float(k, SN_F32, 0));
        sn_kir_node *place = sn_kir_add(k, from, sn_kir_addi(k, column, v * LANES));
        sn_point point = sn_lower_unflat(l, added->type, place);
        sn_kir_set_carry(k, carry[v], sn_kir_add(k, carry[v], sn_lower_element(l, added, &point)));
    }
    sn_lower_end(l);
    for (int v = 0; v < t->vectors; v++) sums[v] = sn_kir_carried(k, carry[v]);
}

// The work on the tile whose elements are `c`.
static void work(tiling *t, const tile *at, sn_kir_node *lane, sn_kir_node **c) {
    sn_lower *l = &t->lowering->l;
    sn_kir *k = l->k;
    for (int i = 0; i < t->height; i++) {
        sn_kir_node *row = sn_kir_addi(k, at->row, i), *terms[MAX_SUMS] = {NULL}, *added[ACCUMULATORS];
        size_t known = l->known.count;
        if (is_ragged(t)) sn_kir_if(k, sn_kir_lt(k, sn_kir_add(k, t->first, row), sn_kir_index(k, t->p.m)));
        sn_kir_node *column = sn_kir_add(k, sn_kir_muli(k, at->strip, t->p.strip), lane);
        if (t->p.rows) sum_added(t, row, column, added);
        for (int v = 0; v < t->vectors; v++) {
            sn_point point = {.at = {row_of_c(t, row), sn_kir_addi(k, column, v * LANES)}};
            sn_lower_remember(l, t->p.matmul->results[0], &point, c[i * t->vectors + v]);
            if (t->p.rows) sn_lower_remember(l, t->p.rows->results[0], &point, added[v]);
            for (int s = 0; s < t->n_sums; s++) {
                sn_kir_node *term = sn_lower_element(l, t->sums[s]->operands[0], &point);
                terms[s] = v ? sn_kir_add(k, terms[s], term) : term;
            }
            store_element(t, &point);
        }
        sn_kir_node *place = sn_kir_add(k, sn_kir_muli(k, row, LANES), lane);
        for (int s = 0; s < t->n_sums; s++)
            sn_kir_store(k, t->sum_rows[s], place, sn_kir_add(k, sn_kir_load(k, t->sum_rows[s], place), terms[s]));
        if (is_ragged(t)) sn_kir_end(k);
        l->known.count = known;
    }
}

static void prefetch(tiling *t, const tile *at, sn_kir_node *index) {
    sn_kir *k = t->lowering->l.k;
    sn_kir_node *row = row_of_c(t, sn_kir_add(k, at->row, sn_kir_divi(k, index, t->vectors)));
    sn_kir_node *vector = sn_kir_muli(k, sn_kir_modi(k, index, t->vectors), LANES);
    sn_kir_node *column = sn_kir_add(k, sn_kir_muli(k, at->strip, t->p.strip), vector);
    for (int s = 0; s < t->n_streams; s++)
        sn_kir_prefetch(k, t->streams[s], sn_kir_add(k, sn_kir_muli(k, row, t->p.n), column));
}

// c += the outer product of row `depth` of a's and b's parts.
static void multiply(tiling *t, const tile *at, sn_kir_node *depth, sn_kir_node *lane, sn_kir_node **c) {
    sn_kir *k = t->lowering->l.k;
    sn_kir_node *b[ACCUMULATORS];
    sn_kir_node *line = sn_kir_muli(k, sn_kir_add(k, sn_kir_muli(k, at->strip, t->p.k), depth), t->p.strip);
    for (int v = 0; v < t->vectors; v++) {
        sn_kir_node *place = sn_kir_add(k, sn_kir_addi(k, line, v * LANES), lane);
        b[v] = sn_kir_load(k, t->lowering->l.buffers[t->p.b->index], place);
    }
    sn_kir_node *panel = sn_kir_add(k, sn_kir_muli(k, at->row, t->p.k), sn_kir_muli(k, depth, t->height));
    for (int i = 0; i < t->height; i++) {
        sn_kir_node *a = sn_kir_load(k, t->panels, sn_kir_addi(k, panel, i));
        for (int v = 0; v < t->vectors; v++) c[i * t->vectors + v] = sn_kir_fma(k, a, b[v], c[i * t->vectors + v]);
    }
}

// One tile and the work on it, for which the tile before had the operands prefetched.
static void emit_tile(tiling *t, sn_kir_node *index, int64_t tiles) {
    sn_lower *l = &t->lowering->l;
    sn_kir *k = l->k;
    int64_t n = vectors_of(t), unroll = t->p.k % UNROLL ? 1 : UNROLL, steps = t->p.k / unroll;
    int64_t each = (n + steps - 1) / steps;
    tile at = tile_of(t, index), next = tile_of(t, sn_kir_at_most(k, sn_kir_addi(k, index, 1), tiles - 1));
    sn_kir_node *lane = sn_lower_for(l, SN_KIR_LANES, sn_kir_index(k, 0), sn_kir_index(k, LANES), 1);
    sn_kir_node *step = sn_lower_for_count(l, steps), *c[ACCUMULATORS], *carry[ACCUMULATORS];
    for (int64_t i = 0; i < n; i++) c[i] = carry[i] = sn_kir_carry(k, sn_kir_float(k, SN_F32, 0));
    for (int64_t i = 0; i < each; i++)
        prefetch(t, &next, sn_kir_at_most(k, sn_kir_addi(k, sn_kir_muli(k, step, each), i), n - 1));
    for (int64_t u = 0; u < unroll; u++) multiply(t, &at, sn_kir_addi(k, sn_kir_muli(k, step, unroll), u), lane, c);
    for (int64_t i = 0; i < n; i++) sn_kir_set_carry(k, carry[i], c[i]);
    sn_lower_end(l);
    for (int64_t i = 0; i < n; i++) c[i] = sn_kir_carried(k, carry[i]);
    work(t, &at, lane, c);
    sn_lower_end(l);
}

// The row of the block that index i falls into, inside an `if` that it does.
static sn_kir_node *open_row(tiling *t, sn_kir_node *i) {
    sn_lower *l = &t->lowering->l;
    sn_kir *k = l->k;
    const sn_value *indices = t->p.rows->operands[0];
    sn_point where = sn_lower_unflat(l, indices->type, i);
    sn_kir_node *row = sn_rule_wrap_index(l, sn_lower_element(l, indices, &where), t->p.m);
    row = sn_kir_sub(k, row, t->first);
    sn_kir_node *zero = sn_kir_index(k, 0), *high = sn_kir_index(k, GROUP);
    sn_kir_if(k, sn_kir_and(k, sn_kir_ge(k, row, zero), sn_kir_lt(k, row, high)));
    return row;
}

// buffer[at] += value; returns what it was.
static sn_kir_node *increase(tiling *t, sn_kir_buffer *buffer, sn_kir_node *at, sn_kir_node *value) {
    sn_kir *k = t->lowering->l.k;
    sn_kir_node *old = sn_kir_load(k, buffer, at);
    sn_kir_store(k, buffer, at, sn_kir_add(k, old, value));
    return old;
}

// A counting sort. While it runs, row r counts at r + 2, and its next place is at r + 1.
static void sort_indices(tiling *t) {
    sn_lower *l = &t->lowering->l;
    sn_kir *k = l->k;
    sn_kir_node *one = sn_kir_index(k, 1);
    sn_kir_store(k, t->starts, sn_lower_for_count(l, GROUP + 2), sn_kir_index(k, 0));
    sn_lower_end(l);
    sn_kir_barrier(k);
    sn_kir_node *row = open_row(t, sn_lower_for_count(l, count_indices(t)));
    increase(t, t->starts, sn_kir_addi(k, row, 2), one);
    sn_kir_end(k);
    sn_lower_end(l);
    sn_kir_barrier(k);
    row = sn_lower_for_count(l, GROUP);
    increase(t, t->starts, sn_kir_addi(k, row, 2), sn_kir_load(k, t->starts, sn_kir_addi(k, row, 1)));
    sn_lower_end(l);
    sn_kir_barrier(k);
    sn_kir_node *i = sn_lower_for_count(l, count_indices(t));
    row = open_row(t, i);
    sn_kir_store(k, t->sorted, increase(t, t->starts, sn_kir_addi(k, row, 1), one), i);
    sn_kir_end(k);
    sn_lower_end(l);
}

// The block's part of a, and its sums at zero.
static void begin_block(tiling *t) {
    sn_lower *l = &t->lowering->l;
    sn_kir *k = l->k;
    sn_kir_buffer *a = l->buffers[t->p.a->index];
    sn_kir_node *of_tile = sn_kir_muli(k, sn_lower_for_count(l, GROUP / t->height), t->height);
    sn_kir_node *depth = sn_lower_for_count(l, t->p.k), *zero = sn_kir_float(k, SN_F32, 0);
    sn_kir_node *row = sn_lower_for(l, SN_KIR_LANES, sn_kir_index(k, 0), sn_kir_index(k, t->height), 1);
    sn_kir_node *of_c = sn_kir_add(k, sn_kir_add(k, t->first, of_tile), row);
    sn_kir_node *index = sn_kir_add(k, sn_kir_muli(k, depth, t->p.m), of_c);
    sn_kir_node *inside = sn_kir_lt(k, of_c, sn_kir_index(k, t->p.m));
    sn_kir_node *value = is_ragged(t) ? sn_kir_load_if(k, a, index, inside, zero) : sn_kir_load(k, a, index);
    sn_kir_node *panel = sn_kir_add(k, sn_kir_muli(k, of_tile, t->p.k), sn_kir_muli(k, depth, t->height));
    sn_kir_store(k, t->panels, sn_kir_add(k, panel, row), value);
    sn_lower_end(l);
    sn_lower_end(l);
    sn_lower_end(l);
    sn_kir_node *place = sn_lower_for(l, SN_KIR_LANES, sn_kir_index(k, 0), sn_kir_index(k, GROUP * LANES), 1);
    for (int s = 0; s < t->n_sums; s++) sn_kir_store(k, t->sum_rows[s], place, zero);
    sn_lower_end(l);
    if (t->p.rows) sort_indices(t);
    sn_kir_barrier(k);
}

static void store_sums(tiling *t) {
    sn_lower *l = &t->lowering->l;
    sn_kir *k = l->k;
    const sn_func *body = t->lowering->body;
    sn_kir_node *high = sn_kir_at_most(k, sn_kir_sub(k, sn_kir_index(k, t->p.m), t->first), GROUP);
    sn_kir_barrier(k);
    sn_kir_node *row = sn_lower_for(l, SN_KIR_SERIAL, sn_kir_index(k, 0), high, 1);
    sn_point point = {.at = {row_of_c(t, row), sn_kir_index(k, 0)}};
    for (int s = 0; s < t->n_sums; s++) {
        sn_kir_node *lane = sn_lower_for(l, SN_KIR_LANES, sn_kir_index(k, 0), sn_kir_index(k, LANES), 1);
        sn_kir_node *part = sn_kir_load(k, t->sum_rows[s], sn_kir_add(k, sn_kir_muli(k, row, LANES), lane));
        sn_kir_node *sum = sn_kir_reduce(k, SN_KIR_ADD, part);
        sn_lower_end(l);
        for (size_t i = 0; i < body->results.count; i++)
            if (body->results.data[i] == t->sums[s]->results[0]) sn_lowering_store(t->lowering, i, &point, sum);
    }
    sn_lower_end(l);
}

static bool analyse(sn_lowering *lowering, tiling *t) {
    const sn_func *body = lowering->body;
    if (!sn_product_of_body(body, &t->p) || body->results.count > MAX_RESULTS) return false;
    SN_FOR_OPS(op, body) {
        if (op->kind != SN_OP_REDUCE_SUM) continue;
        if (t->n_sums == MAX_SUMS) return false;
        t->sums[t->n_sums++] = op;
    }
    t->vectors = (int)(t->p.strip / LANES);
    t->height = ACCUMULATORS / t->vectors;
    int64_t strips = t->p.n / t->p.strip, bytes = t->p.k * t->p.strip * (int64_t)sizeof(float);
    t->run = RUN_BYTES / bytes < strips ? RUN_BYTES / bytes : strips;
    while (t->run > 1 && strips % t->run) t->run--;
    if (t->run < 1) t->run = 1;
    return true;
}

static void make_buffers(tiling *t) {
    sn_lowering *lowering = t->lowering;
    sn_kir *k = lowering->l.k;
    t->panels = sn_kir_scratch(k, "panels", SN_F32, t->p.k * GROUP);
    for (int s = 0; s < t->n_sums; s++)
        t->sum_rows[s] = sn_kir_scratch(k, sn_arena_printf(&k->arena, "sum%d", s), SN_F32, GROUP * LANES);
    if (t->p.rows) {
        t->starts = sn_kir_scratch(k, "starts", SN_I64, GROUP + 2);
        t->sorted = sn_kir_scratch(k, "sorted", SN_I64, count_indices(t));
    }
    for (size_t i = 0; i < lowering->body->args.count; i++) {
        const sn_value *arg = lowering->body->args.data[i];
        if (sn_type_equal(arg->type, t->p.matmul->results[0]->type) && t->n_streams < MAX_STREAMS)
            t->streams[t->n_streams++] = lowering->l.buffers[i];
    }
}

// What the work needs of scalars alone (a schedule, corrections of bias) is made in front of all loops: out of an `if`,
// kernel IR moves nothing.
static void make_scalars(sn_lowering *lowering) {
    sn_point origin;
    for (int d = 0; d < SN_MAX_RANK; d++) origin.at[d] = sn_kir_index(lowering->l.k, 0);
    SN_FOR_OPS(op, lowering->body) {
        if (sn_type_count(op->results[0]->type) == 1) sn_lower_element(&lowering->l, op->results[0], &origin);
    }
}

bool sn_schedule_product(sn_lowering *lowering) {
    tiling t = {.lowering = lowering};
    if (!analyse(lowering, &t)) return false;
    sn_lowering_begin(lowering, (t.p.m + GROUP - 1) / GROUP);
    make_scalars(lowering);
    make_buffers(&t);
    t.first = sn_kir_muli(lowering->l.k, sn_kir_block(lowering->l.k), GROUP);
    int64_t tiles = GROUP / t.height * (t.p.n / t.p.strip);
    begin_block(&t);
    emit_tile(&t, sn_lower_for_count(&lowering->l, tiles), tiles);
    sn_lower_end(&lowering->l);
    if (t.n_sums) store_sums(&t);
    return true;
}
