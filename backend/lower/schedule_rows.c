// Rows: reductions that share one domain, with pointwise work before and after them (softmax, norms, losses and their
// gradients). Reductions that need another's result come in a later phase; each phase is one pass over the row, inputs
// are read again from cache rather than kept. Two forms, by where the lanes go:
//   along the row   when the last segment is reduced and long: a block runs rows one after the other, all lanes of a
//                   phase share its loop. Expensive values that several phases need are kept in scratch.
//   across rows     else: each lane has a row of its own and runs its phases as serial loops (column sums, softmax over
//                   channels, short rows).
#include "backend/lower/schedule.h"
#include "passes/schedule/op_class.h"

enum {
    MAX_PHASES = 16,
    MAX_SCRATCH = 8,
    MAX_REDUCTIONS = 64,
    MAX_OPS = 1024,
    MAX_RESULTS = 64,
    SHORT_ROW = 32,
    ROW_BLOCK_ELEMENTS = 8192,
    SCRATCH_BYTES = 64 << 10,
    LANE_ALIGN = 16,
    LONG_TILE = 512, // columns of a block with its sums in scratch
    LANE_TILE = 128, // rows of a block when lanes go across rows
};

typedef struct kept_row {
    const sn_value *value;
    int phase; // that computes it
    sn_kir_buffer *buffer;
} kept_row;

typedef struct rows {
    sn_lowering *lowering;
    sn_domain domain;
    const sn_op *reductions[MAX_REDUCTIONS];
    int phase_of[MAX_REDUCTIONS];
    int n_reductions, n_phases;
    uint8_t phase_of_op[MAX_OPS];   // by mark, plus 1; 0: not known yet
    uint32_t phases_of_op[MAX_OPS]; // by mark: bit p when phase p computes the op's result
    sn_kir_node *at[SN_MAX_RANK];   // the current index in each segment; NULL: not in that loop
    kept_row scratch[MAX_SCRATCH];
    int n_scratch;
} rows;

static int index_of(const rows *r, const sn_value *value) {
    for (int i = 0; i < r->n_reductions; i++)
        if (r->reductions[i] == value->def) return i;
    return -1;
}

// The phase whose loop can compute `value`: one after the last reduction it needs.
static int phase_of_value(rows *r, const sn_value *value) {
    if (value->kind != SN_VALUE_RESULT) return 0;
    int reduction = index_of(r, value), phase = 0;
    if (reduction >= 0) return r->phase_of[reduction] + 1;
    const sn_op *op = value->def;
    if (r->phase_of_op[op->mark]) return r->phase_of_op[op->mark] - 1;
    for (int i = 0; i < op->n_operands; i++) {
        int needed = phase_of_value(r, op->operands[i]);
        if (needed > phase) phase = needed;
    }
    r->phase_of_op[op->mark] = (uint8_t)(phase + 1);
    return phase;
}

// Ops whose results a body needs; a body has no dead ops.
static bool collect(rows *r) {
    const sn_func *body = r->lowering->body;
    uint32_t n_ops = 0;
    if (body->n_ops > MAX_OPS) return false;
    SN_FOR_OPS(op, body) op->mark = n_ops++;
    SN_FOR_OPS(op, body) {
        sn_op_class class = sn_op_class_of(op->kind);
        if (class == SN_CLASS_LOOP) return false;
        if (class != SN_CLASS_REDUCTION) continue;
        sn_domain domain = sn_domain_of_reduction(op);
        if (r->n_reductions == MAX_REDUCTIONS || sn_type_count(op->operands[0]->type) == 0) return false;
        if (!sn_domain_has_reduced(&domain) || (r->n_reductions && !sn_domain_equal(&domain, &r->domain))) return false;
        r->domain = domain;
        r->phase_of[r->n_reductions] = phase_of_value(r, op->operands[0]);
        r->reductions[r->n_reductions++] = op;
        int phases = r->phase_of[r->n_reductions - 1] + 1;
        if (phases > r->n_phases) r->n_phases = phases;
    }
    if (!r->n_reductions || r->n_phases > MAX_PHASES) return false;
    int segments[SN_MAX_RANK];
    for (size_t i = 0; i < body->results.count; i++) {
        sn_type type = body->results.data[i]->type;
        if (!sn_domain_fits_full(&r->domain, type, segments) && !sn_domain_fits_row(&r->domain, type, segments))
            return false;
    }
    return true;
}

// The point of a full or row value at the current indices.
static sn_point point_of(rows *r, sn_type type, bool row) {
    int segment_of[SN_MAX_RANK];
    SN_CHECK(row ? sn_domain_fits_row(&r->domain, type, segment_of)
                 : sn_domain_fits_full(&r->domain, type, segment_of));
    sn_point point = {0};
    for (int d = 0; d < type.rank;) {
        if (segment_of[d] < 0) {
            point.at[d++] = sn_kir_index(r->lowering->l.k, 0);
            continue;
        }
        sn_type part = {.dtype = type.dtype};
        int segment = segment_of[d], dims[SN_MAX_RANK];
        for (; d < type.rank && (segment_of[d] == segment || segment_of[d] < 0); d++) {
            if (segment_of[d] < 0)
                point.at[d] = sn_kir_index(r->lowering->l.k, 0);
            else {
                dims[part.rank] = d;
                part.dim[part.rank++] = type.dim[d];
            }
        }
        sn_point inner = {0};
        if (r->at[segment]) inner = sn_lower_unflat(&r->lowering->l, part, r->at[segment]);
        for (int i = 0; i < part.rank; i++) point.at[dims[i]] = inner.at[i];
    }
    return point;
}

// Marks what `value` needs within one phase, up to reductions.
static void mark_phase(rows *r, const sn_value *value, int phase) {
    if (value->kind != SN_VALUE_RESULT || index_of(r, value) >= 0) return;
    uint32_t *phases = &r->phases_of_op[value->def->mark];
    if (*phases >> phase & 1) return;
    *phases |= 1u << phase;
    for (int i = 0; i < value->def->n_operands; i++) mark_phase(r, value->def->operands[i], phase);
}

static bool is_row_result(const rows *r, sn_type type) {
    int segments[SN_MAX_RANK];
    return sn_domain_count(&r->domain, true) > 1 ? !sn_domain_fits_full(&r->domain, type, segments)
                                                 : sn_domain_fits_row(&r->domain, type, segments);
}

// Whether all passes over the row are one: nothing full waits for a reduction.
static bool is_one_pass(rows *r) {
    const sn_func *body = r->lowering->body;
    for (size_t i = 0; i < body->results.count; i++) {
        const sn_value *value = body->results.data[i];
        if (!is_row_result(r, value->type) && phase_of_value(r, value) > 0) return false;
    }
    return r->n_phases == 1;
}

// The phase in whose loop a full result is stored: the one that can compute it; a result that is written over an
// operand waits for the end while later phases may read the operand.
static int store_phase(rows *r, size_t result) {
    const sn_func *body = r->lowering->body;
    int n, phase = phase_of_value(r, body->results.data[result]);
    const int64_t *inplace = sn_op_ints(r->lowering->op, "inplace", &n);
    bool tied = (int)result < n && inplace[result] >= 0;
    return (tied && !is_one_pass(r)) || phase >= r->n_phases ? r->n_phases : phase;
}

// Expensive full values that more than one phase needs get a scratch row, while there is room.
static void choose_scratch(rows *r) {
    const sn_func *body = r->lowering->body;
    sn_kir *k = r->lowering->l.k;
    int64_t row = sn_domain_count(&r->domain, true), bytes = 0;
    for (int i = 0; i < r->n_reductions; i++) mark_phase(r, r->reductions[i]->operands[0], r->phase_of[i]);
    for (size_t i = 0; i < body->results.count; i++)
        if (!is_row_result(r, body->results.data[i]->type)) mark_phase(r, body->results.data[i], store_phase(r, i));
    SN_FOR_OPS(op, body) {
        uint32_t phases = r->phases_of_op[op->mark];
        int segments[SN_MAX_RANK];
        bool once = !(phases & (phases - 1));
        if (once || !sn_op_is_expensive(op->kind) || r->n_scratch == MAX_SCRATCH) continue;
        if (!sn_domain_fits_full(&r->domain, op->results[0]->type, segments)) continue;
        sn_dtype dtype = sn_lower_compute_type(op->results[0]->type.dtype);
        if (bytes + row * (int64_t)sn_dtype_bytes(dtype) > SCRATCH_BYTES) continue;
        bytes += row * (int64_t)sn_dtype_bytes(dtype);
        int first = 0;
        while (!(phases >> first & 1)) first++;
        sn_kir_buffer *buffer = sn_kir_scratch(k, sn_arena_printf(&k->arena, "row%d", r->n_scratch), dtype, row);
        r->scratch[r->n_scratch++] = (kept_row){op->results[0], first, buffer};
    }
}

static sn_kir_op combine_of(const sn_op *op) {
    bool logical = op->results[0]->type.dtype == SN_BOOL;
    switch (op->kind) {
    case SN_OP_REDUCE_SUM:
        return logical ? SN_KIR_OR : SN_KIR_ADD;
    case SN_OP_REDUCE_PROD:
        return logical ? SN_KIR_AND : SN_KIR_MUL;
    case SN_OP_REDUCE_MAX:
        return logical ? SN_KIR_OR : SN_KIR_MAX;
    default:
        return logical ? SN_KIR_AND : SN_KIR_MIN;
    }
}

// Loops over the reduced segments; `lanes` for the last one. Returns how many.
static int open_row(rows *r, bool lanes) {
    sn_lower *l = &r->lowering->l;
    int n = 0, last = -1;
    for (int s = 0; s < r->domain.n; s++)
        if (r->domain.reduced[s]) last = s;
    for (int s = 0; s < r->domain.n; s++) {
        if (!r->domain.reduced[s]) continue;
        sn_kir_mapping mapping = lanes && s == last ? SN_KIR_LANES : SN_KIR_SERIAL;
        r->at[s] = sn_lower_for(l, mapping, sn_kir_index(l->k, 0), sn_kir_index(l->k, r->domain.size[s]), 1);
        n++;
    }
    return n;
}

static void forget_row(rows *r) {
    for (int s = 0; s < r->domain.n; s++)
        if (r->domain.reduced[s]) r->at[s] = NULL;
}

// Position within the row, over the reduced segments.
static sn_kir_node *row_position(rows *r) {
    sn_kir *k = r->lowering->l.k;
    sn_kir_node *at = sn_kir_index(k, 0);
    for (int s = 0; s < r->domain.n; s++)
        if (r->domain.reduced[s]) at = sn_kir_add(k, sn_kir_muli(k, at, r->domain.size[s]), r->at[s]);
    return at;
}

static void keep_scratch(rows *r, int phase) {
    sn_lower *l = &r->lowering->l;
    for (int i = 0; i < r->n_scratch; i++) {
        if (r->scratch[i].phase != phase) continue;
        const sn_value *value = r->scratch[i].value;
        sn_point point = point_of(r, value->type, false);
        sn_kir_store(l->k, r->scratch[i].buffer, row_position(r), sn_lower_element(l, value, &point));
    }
}

static void announce_scratch(rows *r, int phase) {
    sn_lower *l = &r->lowering->l;
    bool any = false;
    for (int i = 0; i < r->n_scratch; i++) {
        if (r->scratch[i].phase != phase) continue;
        sn_point kept = point_of(r, r->scratch[i].value->type, false);
        for (int d = 0; d < r->scratch[i].value->type.rank; d++)
            if (r->scratch[i].value->type.dim[d] == 1) kept.at[d] = sn_kir_index(l->k, 0);
        sn_lower_remember_row(l, r->scratch[i].value, &kept, r->scratch[i].buffer);
        any = true;
    }
    if (any) sn_kir_barrier(l->k);
}

static bool stores_in(rows *r, int phase) {
    const sn_func *body = r->lowering->body;
    for (size_t i = 0; i < body->results.count; i++)
        if (!is_row_result(r, body->results.data[i]->type) && store_phase(r, i) == phase) return true;
    return false;
}

// First all values, then all stores: results may be tied to operands.
static void store_full_results(rows *r, int phase) {
    sn_lowering *lowering = r->lowering;
    const sn_func *body = lowering->body;
    sn_kir_node *values[MAX_RESULTS] = {0};
    SN_CHECK(body->results.count <= MAX_RESULTS);
    for (int store = 0; store < 2; store++) {
        for (size_t i = 0; i < body->results.count; i++) {
            const sn_value *value = body->results.data[i];
            if (is_row_result(r, value->type) || store_phase(r, i) != phase) continue;
            sn_point point = point_of(r, value->type, false);
            if (store)
                sn_lowering_store(lowering, i, &point, values[i]);
            else
                values[i] = sn_lower_element(&lowering->l, value, &point);
        }
    }
}

static void emit_phase(rows *r, int phase, bool lanes) {
    sn_lower *l = &r->lowering->l;
    sn_kir_node *values[MAX_REDUCTIONS] = {0};
    int loops = open_row(r, lanes);
    for (int i = 0; i < r->n_reductions; i++) {
        if (r->phase_of[i] != phase) continue;
        sn_point point = point_of(r, r->reductions[i]->operands[0]->type, false);
        values[i] = sn_lower_element(l, r->reductions[i]->operands[0], &point);
    }
    keep_scratch(r, phase);
    store_full_results(r, phase);
    for (; loops > 0; loops--) {
        for (int i = 0; i < r->n_reductions; i++)
            if (values[i]) values[i] = sn_kir_reduce(l->k, combine_of(r->reductions[i]), values[i]);
        sn_lower_end(l);
    }
    forget_row(r);
    announce_scratch(r, phase);
    for (int i = 0; i < r->n_reductions; i++) {
        if (!values[i]) continue;
        const sn_value *result = r->reductions[i]->results[0];
        sn_point point = point_of(r, result->type, true);
        sn_lower_remember(l, result, &point, sn_lower_round(l, values[i], result->type.dtype));
    }
}

// Whether a full result of a row with reductions goes over an operand, which the lanes of an earlier loop have read.
static bool overwrites_operand(rows *r) {
    const sn_func *body = r->lowering->body;
    int n;
    const int64_t *inplace = sn_op_ints(r->lowering->op, "inplace", &n);
    for (size_t i = 0; i < body->results.count && (int)i < n; i++)
        if (inplace[i] >= 0 && !is_row_result(r, body->results.data[i]->type)) return true;
    return false;
}

static void emit_results(rows *r, bool lanes) {
    sn_lowering *lowering = r->lowering;
    sn_lower *l = &lowering->l;
    const sn_func *body = lowering->body;
    if (stores_in(r, r->n_phases)) {
        if (lanes && overwrites_operand(r)) sn_kir_barrier(l->k);
        int loops = open_row(r, lanes);
        store_full_results(r, r->n_phases);
        for (; loops > 0; loops--) sn_lower_end(l);
        forget_row(r);
    }
    for (size_t i = 0; i < body->results.count; i++) {
        const sn_value *value = body->results.data[i];
        if (!is_row_result(r, value->type)) continue;
        sn_point point = point_of(r, value->type, true);
        sn_lowering_store(lowering, i, &point, sn_lower_element(l, value, &point));
    }
}

// Sets the index of each kept segment from a flat index over all of them (or those before `end`).
static void set_kept(rows *r, sn_kir_node *flat, int end) {
    sn_type kept = {0};
    int segments[SN_MAX_RANK];
    for (int s = 0; s < end; s++)
        if (!r->domain.reduced[s]) {
            segments[kept.rank] = s;
            kept.dim[kept.rank++] = r->domain.size[s];
        }
    sn_point point = sn_lower_unflat(&r->lowering->l, kept, flat);
    for (int i = 0; i < kept.rank; i++) r->at[segments[i]] = point.at[i];
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static void emit_along(rows *r) {
    int64_t n_rows = sn_domain_count(&r->domain, false), length = sn_domain_count(&r->domain, true);
    int64_t block = length >= ROW_BLOCK_ELEMENTS ? 1 : ROW_BLOCK_ELEMENTS / length;
    if (block > n_rows / 16) block = n_rows / 16 > 0 ? n_rows / 16 : 1;
    sn_lowering_begin(r->lowering, ceil_div(n_rows, block));
    sn_lower *l = &r->lowering->l;
    choose_scratch(r);
    sn_kir_node *row = sn_kir_block(l->k);
    if (block > 1) {
        sn_kir_node *low = sn_kir_muli(l->k, row, block);
        row = sn_lower_for(l, SN_KIR_SERIAL, low, sn_kir_at_most(l->k, sn_kir_addi(l->k, low, block), n_rows), 1);
    }
    set_kept(r, row, r->domain.n);
    for (int phase = 0; phase < r->n_phases; phase++) emit_phase(r, phase, true);
    emit_results(r, true);
    if (block > 1) {
        if (r->n_scratch) sn_kir_barrier(l->k);
        sn_lower_end(l);
    }
}

static void emit_across(rows *r) {
    int last = -1;
    for (int s = 0; s < r->domain.n; s++)
        if (!r->domain.reduced[s]) last = s;
    int64_t n_rows = sn_domain_count(&r->domain, false);
    bool flat = last < 0 || r->domain.size[last] < SHORT_ROW; // else lanes over the last kept segment alone
    int64_t columns = flat ? n_rows : r->domain.size[last];
    int64_t tile = columns < LANE_TILE ? columns : LANE_TILE, tiles = ceil_div(columns, tile);
    sn_lowering_begin(r->lowering, n_rows / columns * tiles);
    sn_lower *l = &r->lowering->l;
    sn_kir_node *block = sn_kir_block(l->k);
    sn_kir_node *low = sn_kir_muli(l->k, sn_kir_modi(l->k, block, tiles), tile);
    sn_kir_node *high = sn_kir_at_most(l->k, sn_kir_addi(l->k, low, tile), columns);
    sn_kir_node *column = sn_lower_for(l, SN_KIR_LANES, low, high, 1);
    if (flat) {
        set_kept(r, column, r->domain.n);
    } else {
        set_kept(r, sn_kir_divi(l->k, block, tiles), last);
        r->at[last] = column;
    }
    for (int phase = 0; phase < r->n_phases; phase++) emit_phase(r, phase, false);
    emit_results(r, false);
    sn_lower_end(l);
}

// Sums over the leading dims, or over those between a leading and the last, in one pass: rows outside, lanes over a
// tile of columns that has its sums in scratch, so that memory is read in long runs.
static bool is_column_sum(rows *r) {
    const sn_domain *d = &r->domain;
    bool shape = (d->n == 2 && d->reduced[0]) || (d->n == 3 && d->reduced[1]);
    shape = shape && d->size[d->n - 1] >= SHORT_ROW && is_one_pass(r);
    for (int i = 0; i < r->n_reductions; i++)
        shape &= r->reductions[i]->kind == SN_OP_REDUCE_SUM && r->reductions[i]->results[0]->type.dtype != SN_BOOL;
    return shape && r->n_reductions <= MAX_SCRATCH;
}

// The whole row where a leading dim makes the blocks, else about an eighth of the columns; one that divides them where
// there is one, as index ranges are then simpler.
static int64_t column_tile(const sn_domain *d) {
    int64_t columns = d->size[d->n - 1], blocks = d->n == 3 ? 1 : 8;
    int64_t most = ceil_div(columns, blocks * LANE_ALIGN) * LANE_ALIGN;
    if (most > LONG_TILE) most = LONG_TILE;
    for (int64_t tile = most; tile >= LANE_ALIGN; tile -= LANE_ALIGN)
        if (columns % tile == 0) return tile;
    return most;
}

static sn_kir_node *column_of(rows *r, sn_kir_node *low, sn_kir_node *lane) {
    sn_kir *k = r->lowering->l.k;
    sn_kir_node *column = sn_kir_add(k, low, lane);
    int64_t columns = r->domain.size[r->domain.n - 1];
    return column->max < columns ? column : sn_kir_clamp(k, column, 0, columns - 1);
}

static void emit_column_rows(rows *r, sn_kir_buffer **sums, sn_kir_node *low, sn_kir_node *width) {
    sn_lower *l = &r->lowering->l;
    sn_kir *k = l->k;
    int last = r->domain.n - 1;
    r->at[last - 1] = sn_lower_for_count(l, r->domain.size[last - 1]);
    sn_kir_node *lane = sn_lower_for(l, SN_KIR_LANES, sn_kir_index(k, 0), width, 1);
    r->at[last] = column_of(r, low, lane);
    sn_kir_node *values[MAX_SCRATCH];
    for (int i = 0; i < r->n_reductions; i++) {
        sn_point point = point_of(r, r->reductions[i]->operands[0]->type, false);
        values[i] = sn_lower_element(l, r->reductions[i]->operands[0], &point);
    }
    store_full_results(r, 0);
    for (int i = 0; i < r->n_reductions; i++)
        sn_kir_store(k, sums[i], lane, sn_kir_add(k, sn_kir_load(k, sums[i], lane), values[i]));
    sn_lower_end(l);
    sn_lower_end(l);
    r->at[last - 1] = NULL;
}

static void emit_columns(rows *r) {
    int last = r->domain.n - 1;
    int64_t columns = r->domain.size[last], tile = column_tile(&r->domain), tiles = ceil_div(columns, tile);
    sn_lowering_begin(r->lowering, (last == 2 ? r->domain.size[0] : 1) * tiles);
    sn_lower *l = &r->lowering->l;
    sn_kir *k = l->k;
    sn_kir_buffer *sums[MAX_SCRATCH];
    sn_kir_node *low = sn_kir_muli(k, sn_kir_modi(k, sn_kir_block(k), tiles), tile), *zero = sn_kir_index(k, 0);
    if (last == 2) r->at[0] = sn_kir_divi(k, sn_kir_block(k), tiles);
    sn_kir_node *width = sn_kir_at_most(k, sn_kir_sub(k, sn_kir_index(k, columns), low), tile);
    sn_kir_node *lane = sn_lower_for(l, SN_KIR_LANES, zero, width, 1);
    for (int i = 0; i < r->n_reductions; i++) {
        sn_dtype dtype = sn_lower_compute_type(r->reductions[i]->results[0]->type.dtype);
        sums[i] = sn_kir_scratch(k, sn_arena_printf(&k->arena, "sum%d", i), dtype, tile);
        sn_kir_store(k, sums[i], lane, sn_lower_zero(l, dtype));
    }
    sn_lower_end(l);
    sn_kir_barrier(k);
    emit_column_rows(r, sums, low, width);
    sn_kir_barrier(k);
    lane = sn_lower_for(l, SN_KIR_LANES, zero, width, 1);
    r->at[last] = column_of(r, low, lane);
    for (int i = 0; i < r->n_reductions; i++) {
        const sn_value *result = r->reductions[i]->results[0];
        sn_point point = point_of(r, result->type, true);
        sn_kir_node *sum = sn_lower_round(l, sn_kir_load(k, sums[i], lane), result->type.dtype);
        sn_lower_remember(l, result, &point, sum);
    }
    emit_results(r, false);
    sn_lower_end(l);
}

bool sn_schedule_rows(sn_lowering *lowering) {
    rows r = {.lowering = lowering};
    if (!collect(&r)) return false;
    int last = r.domain.n - 1;
    int64_t n_rows = sn_domain_count(&r.domain, false);
    bool along = r.domain.reduced[last] && (r.domain.size[last] >= SHORT_ROW || n_rows < SHORT_ROW);
    if (along)
        emit_along(&r);
    else if (is_column_sum(&r))
        emit_columns(&r);
    else
        emit_across(&r);
    return true;
}
