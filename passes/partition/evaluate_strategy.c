// Propagation inside a group. The lead op's factor is chosen; ops that feed it are cut as it needs its operands, ops
// behind it as their operands arrive, and backward ops by the layouts of the forward values and gradients they read:
// the gradient of a value cut along a dim is cut along it, the gradient of a partial sum is whole.
#include "passes/partition/evaluate_strategy.h"

#include <string.h>

typedef struct draft {
    const sn_op_group *group;
    sn_arena *arena;
    sn_factors *forward, *backward; // per op
    sn_strategy *s;
    bool *chosen; // per forward op
    SN_VEC(sn_inner_move) moves;
} draft;

int sn_gradient_cut(int cut) {
    return cut == SN_PARTIAL_VALUE ? SN_UNCUT : cut;
}

static int major(const sn_dim_factors *dim) {
    return dim->n ? dim->factor[0] : -1;
}

// Whether f is the major factor of each dim that has it: only then does a cut of f cut dims evenly.
static bool may_cut(const sn_op *op, const sn_factors *factors, int f) {
    if (f < 0 || factors->factor[f].kind == SN_FACTOR_WHOLE) return false;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < (side ? op->n_results : op->n_operands); i++) {
            const sn_dim_factors *dims = side ? factors->result[i] : factors->operand[i];
            int rank = side ? op->results[i]->type.rank : op->operands[i]->type.rank;
            for (int d = 0; d < rank; d++)
                for (int at = 1; at < dims[d].n; at++)
                    if (dims[d].factor[at] == f) return false;
        }
    return true;
}

static void cut_op(const sn_op *op, const sn_factors *factors, int f, sn_op_cut *out) {
    for (int i = 0; i < op->n_operands; i++)
        for (int d = 0; d < op->operands[i]->type.rank; d++)
            if (major(&factors->operand[i][d]) == f) out->operand[i] = (int8_t)d;
    for (int i = 0; i < op->n_results; i++) {
        if (factors->factor[f].kind != SN_FACTOR_PARALLEL) out->result[i] = SN_PARTIAL_VALUE;
        for (int d = 0; d < op->results[i]->type.rank; d++)
            if (major(&factors->result[i][d]) == f) out->result[i] = (int8_t)d;
    }
}

static int forward_index(const sn_op_group *group, const sn_value *value) {
    if (value->kind != SN_VALUE_RESULT) return -1;
    for (int i = 0; i < group->n_forward; i++)
        if (group->forward[i] == value->def) return i;
    return -1;
}

int sn_strategy_leaves(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value) {
    int i = forward_index(group, value);
    return i < 0 ? SN_UNCUT : strategy->forward[i].result[value->index];
}

int sn_strategy_need(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value) {
    for (int i = 0; i < group->n_forward; i++)
        for (int o = 0; o < group->forward[i]->n_operands; o++)
            if (group->forward[i]->operands[o] == value) return strategy->forward[i].operand[o];
    return SN_UNCUT;
}

// The factor that a cut of dim `cut` of an operand (or result) means; -1 when the op cannot follow.
static int factor_at(const sn_op *op, const sn_factors *factors, bool result, int which, int cut) {
    if (cut < 0) return -1;
    int f = major(result ? &factors->result[which][cut] : &factors->operand[which][cut]);
    return may_cut(op, factors, f) ? f : -1;
}

// Ops before the lead: cut as some chosen op needs their result.
static void follow_needs(draft *d) {
    const sn_op_group *group = d->group;
    for (int i = group->n_forward - 1; i >= 0; i--) {
        const sn_op *op = group->forward[i];
        for (int r = 0; r < op->n_results && !d->chosen[i]; r++)
            for (size_t u = 0; u < op->results[r]->uses.count && !d->chosen[i]; u++) {
                const sn_use *use = &op->results[r]->uses.data[u];
                int j = forward_index(group, use->op->n_results ? use->op->results[0] : op->results[r]);
                if (j < 0 || !d->chosen[j] || group->forward[j] != use->op) continue;
                int f = factor_at(op, &d->forward[i], true, r, d->s->forward[j].operand[use->index]);
                if (f < 0) continue;
                cut_op(op, &d->forward[i], f, &d->s->forward[i]);
                d->chosen[i] = true;
            }
    }
}

// Ops behind: cut as their operands arrive; a partial sum passes through what is linear.
static void follow_results(draft *d) {
    const sn_op_group *group = d->group;
    for (int i = 0; i < group->n_forward; i++) {
        const sn_op *op = group->forward[i];
        for (int o = 0; o < op->n_operands && !d->chosen[i]; o++) {
            int from = forward_index(group, op->operands[o]);
            int cut = from < 0 ? SN_UNCUT : d->s->forward[from].result[op->operands[o]->index];
            int f = factor_at(op, &d->forward[i], false, o, cut);
            if (f >= 0) {
                cut_op(op, &d->forward[i], f, &d->s->forward[i]);
                d->chosen[i] = true;
            } else if (cut == SN_PARTIAL_VALUE && sn_op_linearity(op, o) == SN_LINEAR) {
                d->s->forward[i].operand[o] = d->s->forward[i].result[0] = SN_PARTIAL_VALUE;
                d->chosen[i] = true;
            }
        }
    }
}

static void note_move(draft *d, const sn_value *value, int from, int to, bool backward) {
    if (from == to || from == SN_UNCUT) return; // cutting what is whole is free
    sn_vec_push(&d->moves, (sn_inner_move){value, (int8_t)from, (int8_t)to, backward});
}

static void note_forward_moves(draft *d) {
    for (int i = 0; i < d->group->n_forward; i++) {
        const sn_op *op = d->group->forward[i];
        for (int o = 0; o < op->n_operands; o++) {
            int from = forward_index(d->group, op->operands[o]);
            if (from < 0) continue;
            int cut = d->s->forward[from].result[op->operands[o]->index];
            note_move(d, op->operands[o], cut, d->s->forward[i].operand[o], false);
        }
    }
}

static int backward_index(const sn_op_group *group, const sn_value *value, int before) {
    for (int i = before - 1; i >= 0 && value->kind == SN_VALUE_RESULT; i--)
        if (group->backward[i] == value->def) return i;
    return -1;
}

// The gradient that arrives from later groups has the shape of the result that it belongs to.
static int arriving_cut(const draft *d, const sn_value *value) {
    for (int i = d->group->n_forward - 1; i >= 0; i--) {
        const sn_op *op = d->group->forward[i];
        for (int r = 0; r < op->n_results; r++)
            if (sn_shape_equal(op->results[r]->type, value->type)) return sn_gradient_cut(d->s->forward[i].result[r]);
    }
    return SN_UNCUT;
}

static bool is_read_forward(const sn_op_group *group, const sn_value *value) {
    for (size_t u = 0; u < value->uses.count; u++)
        for (int i = 0; i < group->n_forward; i++)
            if (group->forward[i] == value->uses.data[u].op) return true;
    return false;
}

static int known_cut(const draft *d, const sn_value *value, int before) {
    int i = backward_index(d->group, value, before);
    if (i >= 0) return d->s->backward[i].result[value->index];
    if (forward_index(d->group, value) >= 0) return sn_strategy_leaves(d->group, d->s, value);
    if (is_read_forward(d->group, value)) return sn_strategy_need(d->group, d->s, value);
    bool backward = value->kind == SN_VALUE_RESULT && value->def->phase == SN_PHASE_BACKWARD;
    return backward ? arriving_cut(d, value) : SN_UNCUT;
}

static void follow_backward(draft *d) {
    for (int i = 0; i < d->group->n_backward; i++) {
        const sn_op *op = d->group->backward[i];
        int64_t votes[SN_MAX_FACTORS] = {0};
        int best = -1, partial = -1;
        for (int o = 0; o < op->n_operands; o++) {
            int cut = known_cut(d, op->operands[o], i);
            int f = factor_at(op, &d->backward[i], false, o, cut);
            if (cut == SN_PARTIAL_VALUE && sn_op_linearity(op, o) != SN_NOT_LINEAR) partial = o;
            if (f < 0) continue;
            votes[f] += sn_type_bytes(op->operands[o]->type) + 1;
            if (best < 0 || votes[f] > votes[best]) best = f;
        }
        if (best >= 0)
            cut_op(op, &d->backward[i], best, &d->s->backward[i]);
        else if (partial >= 0)
            d->s->backward[i].operand[partial] = d->s->backward[i].result[0] = SN_PARTIAL_VALUE;
        for (int o = 0; o < op->n_operands; o++)
            note_move(d, op->operands[o], known_cut(d, op->operands[o], i), d->s->backward[i].operand[o], true);
    }
}

static sn_op_cut *uncut(sn_arena *arena, int n, sn_op *const *ops) {
    sn_op_cut *cuts = SN_NEW_N(arena, sn_op_cut, n + 1);
    for (int i = 0; i < n; i++) {
        cuts[i].operand = sn_arena_alloc(arena, (size_t)(ops[i]->n_operands + ops[i]->n_results + 1));
        cuts[i].result = cuts[i].operand + ops[i]->n_operands;
        memset(cuts[i].operand, SN_UNCUT, (size_t)(ops[i]->n_operands + ops[i]->n_results));
    }
    return cuts;
}

static sn_factors *factors_of(sn_arena *arena, int n, sn_op *const *ops) {
    sn_factors *factors = SN_NEW_N(arena, sn_factors, n + 1);
    for (int i = 0; i < n; i++) sn_factors_of(ops[i], arena, &factors[i]);
    return factors;
}

static void draft_strategy(draft *d, int f) {
    const sn_op_group *group = d->group;
    d->s->factor = f;
    d->s->forward = uncut(d->arena, group->n_forward, group->forward);
    d->s->backward = uncut(d->arena, group->n_backward, group->backward);
    if (f < 0) return;
    d->s->masked = d->forward[group->lead].factor[f].masked;
    memset(d->chosen, 0, (size_t)group->n_forward * sizeof *d->chosen);
    d->moves.count = 0;
    cut_op(group->forward[group->lead], &d->forward[group->lead], f, &d->s->forward[group->lead]);
    d->chosen[group->lead] = true;
    for (int round = 0; round < 2; round++) {
        follow_needs(d);
        follow_results(d);
    }
    note_forward_moves(d);
    follow_backward(d);
    d->s->n_moves = (int)d->moves.count;
    d->s->moves = sn_arena_copy(d->arena, d->moves.data, d->moves.count * sizeof *d->moves.data);
}

sn_strategies sn_strategies_of(const sn_op_group *group, sn_arena *arena) {
    sn_strategies out = {.list = SN_NEW_N(arena, sn_strategy, SN_MAX_FACTORS + 1)};
    draft d = {.group = group, .arena = arena};
    d.forward = factors_of(arena, group->n_forward, group->forward);
    d.backward = factors_of(arena, group->n_backward, group->backward);
    d.chosen = SN_NEW_N(arena, bool, group->n_forward + 1);
    d.s = &out.list[out.n++];
    draft_strategy(&d, -1);
    for (int f = 0; group->lead >= 0 && f < d.forward[group->lead].n; f++) {
        if (!may_cut(group->forward[group->lead], &d.forward[group->lead], f) ||
            d.forward[group->lead].factor[f].size < 2)
            continue;
        d.s = &out.list[out.n++];
        draft_strategy(&d, f);
    }
    sn_vec_free(&d.moves);
    return out;
}
