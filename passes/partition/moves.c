// Moves stand where they are first needed. Sums serve all phases, joins and cuts only the phase of their user: what the
// forward pass joined is not kept for the backward pass, which joins it again (as ZeRO-3 and sequence parallelism do).
#include "base/alloc.h"
#include "passes/partition/distributor.h"

#include <string.h>

static const char *axes_text(const sn_distributor *d, sn_axes axes) {
    sn_str text = {0};
    for (int i = 0; i < d->mesh->n_axes; i++)
        if (axes >> i & 1) sn_str_printf(&text, "%s%s", text.length ? "," : "", d->mesh->name[i]);
    char *copy = sn_arena_strdup(&d->module->arena, sn_str_text(&text));
    sn_str_free(&text);
    return copy;
}

static sn_phase phase_of(const sn_op *user) {
    return user ? user->phase : SN_PHASE_FORWARD;
}

// A global serves several functions, but a move lives in one.
static const sn_moved *find(const sn_distributor *d, const sn_func *func, const sn_op *user, const sn_value *value,
                            sn_layout to, bool any_phase) {
    for (uint32_t at = value->id; at; at = d->moves.data[at - 1].next) {
        const sn_moved *m = &d->moves.data[at - 1];
        bool here = !m->result || m->result->def->func == func;
        if (here && (any_phase || m->phase == phase_of(user)) && sn_layout_equal(m->layout, to)) return m;
    }
    return NULL;
}

static void remember(sn_distributor *d, const sn_op *user, sn_value *value, sn_layout to, sn_value *result) {
    sn_vec_push(&d->moves, (sn_moved){to, phase_of(user), result, value->id});
    value->id = (uint32_t)d->moves.count;
}

static bool sums(const sn_move *move) {
    return move->kind == SN_OP_ALL_REDUCE || move->kind == SN_OP_REDUCE_SCATTER;
}

static int list_attrs(const sn_distributor *d, const sn_value *value, const sn_move *move, sn_attr *attrs) {
    static const char *const reductions[] = {
        [SN_PARTIAL_SUM] = "sum", [SN_PARTIAL_MAX] = "max", [SN_PARTIAL_MIN] = "min"};
    attrs[0] = sn_attr_string("axes", axes_text(d, move->axes));
    if (move->kind == SN_OP_ALL_REDUCE) {
        attrs[1] = sn_attr_string("reduction", reductions[value->layout.partial_kind]);
    } else if (move->kind == SN_OP_ALL_TO_ALL) {
        attrs[1] = sn_attr_int("from", move->dim);
        attrs[2] = sn_attr_int("to", move->to);
        return 3;
    } else {
        attrs[1] = sn_attr_int("dim", move->dim);
    }
    return 2;
}

static sn_value *emit(sn_distributor *d, sn_func *func, sn_op *user, sn_value *value, const sn_move *move) {
    sn_attr attrs[3];
    int n = list_attrs(d, value, move, attrs);
    const sn_op *def = value->kind == SN_VALUE_RESULT ? value->def : NULL;
    sn_op *op = sn_op_new(func, user, move->kind, 1, &value, n, attrs, 1, &value->type);
    const sn_op *from = def ? def : user;
    op->origin = sn_origin_new(d->module, "distribute", from ? from->origin : NULL);
    op->phase = sums(move) && def ? def->phase : phase_of(user);
    op->results[0]->layout = move->layout;
    op->mark = (uint32_t)SN_MARK_PLACED;
    return op->results[0];
}

// What costs less to compute in parts than to cut: generators, and values larger than all they are made of (a mask of
// iota and labels, the broadcast gradient of a mean).
static bool is_made_in_parts(const sn_value *value, int depth) {
    enum { MOST_OPS = 8 }; // in a row: masks are made of a few
    if (value->kind != SN_VALUE_RESULT || value->def->n_results != 1 || depth == MOST_OPS) return false;
    const sn_op *op = value->def;
    if (op->kind == SN_OP_AXIS_INDEX) return false;
    if (sn_op_has(op->kind, SN_TRAIT_GENERATOR)) return true;
    if (op->kind != SN_OP_BROADCAST && !sn_op_has(op->kind, SN_TRAIT_POINTWISE)) return false;
    int64_t read = 0;
    for (int i = 0; i < op->n_operands; i++) {
        bool generated = is_made_in_parts(op->operands[i], depth + 1);
        read += generated ? 0 : sn_type_bytes(op->operands[i]->type);
    }
    return read < sn_type_bytes(value->type);
}

static sn_value *make_part(sn_distributor *d, sn_func *func, sn_op *user, sn_value *value, sn_layout to) {
    sn_op *def = value->def;
    sn_value **operands = sn_alloc(sizeof(sn_value *) * (size_t)(def->n_operands + 1));
    for (int i = 0; i < def->n_operands; i++) {
        operands[i] = def->operands[i];
        if (sn_op_has(def->kind, SN_TRAIT_GENERATOR)) continue;
        sn_type type = operands[i]->type;
        sn_layout part = operands[i]->layout;
        for (int a = 0; a < d->mesh->n_axes; a++) { // operands are aligned with the result at the right
            int dim = sn_layout_dim_of(to, a), at = dim - (value->type.rank - type.rank);
            int64_t outers[SN_MAX_AXES];
            if (dim < 0 || at < 0 || type.dim[at] == 1 || sn_layout_dim_of(part, a) >= 0) continue;
            sn_layout_outers(d->mesh, to, dim, outers);
            sn_layout_add(d->mesh, &part, at, a, outers[a]);
        }
        operands[i] = sn_distribute_move(d, func, user, operands[i], operands[i]->layout, part);
    }
    sn_op *copy =
        sn_op_new(func, user, def->kind, def->n_operands, operands, def->n_attrs, def->attrs, 1, &value->type);
    copy->origin = def->origin;
    copy->phase = phase_of(user);
    copy->results[0]->layout = to;
    copy->mark = (uint32_t)SN_MARK_PLACED;
    sn_free(operands);
    return copy->results[0];
}

static sn_value *make_move(sn_distributor *d, sn_func *func, sn_op *user, sn_value *value, const sn_move *move) {
    bool in_parts = move->kind == SN_OP_SHARD && !value->layout.partial && is_made_in_parts(value, 0);
    return in_parts ? make_part(d, func, user, value, move->layout) : emit(d, func, user, value, move);
}

sn_value *sn_distribute_move(sn_distributor *d, sn_func *func, sn_op *user, sn_value *value, sn_layout from,
                             sn_layout to) {
    sn_move moves[SN_MAX_MOVES];
    int n = sn_relayout(d->mesh, value->type, from, to, moves);
    if (d->trial) {
        if (!n || find(d, func, user, value, to, sums(&moves[n - 1]))) return value;
        d->sent += sn_relayout_bytes(d->mesh, value->type, from, to);
        for (int i = 0; i < n; i++) d->messages += moves[i].kind != SN_OP_SHARD;
        remember(d, user, value, to, NULL);
        return value;
    }
    for (int i = 0; i < n; i++) {
        const sn_moved *known = find(d, func, user, value, moves[i].layout, sums(&moves[i]));
        sn_value *result = known ? known->result : make_move(d, func, user, value, &moves[i]);
        if (!known) remember(d, user, value, moves[i].layout, result);
        value = result;
    }
    return value;
}

double sn_distribute_move_bytes(const sn_distributor *d, const sn_op *user, const sn_value *value, sn_layout from,
                                sn_layout to) {
    sn_move moves[SN_MAX_MOVES];
    int n = sn_relayout(d->mesh, value->type, from, to, moves);
    if (!n || find(d, user->func, user, value, to, sums(&moves[n - 1]))) return 0;
    return sn_relayout_bytes(d->mesh, value->type, from, to);
}
