// Propagation inside a group. The lead op's factor is chosen; ops that feed it are cut as it needs its operands, ops
// behind it as their operands arrive, and backward ops by the layouts of the forward values and gradients they read:
// the gradient of a value cut along a dim is cut along it, the gradient of a partial sum is whole.
#include "passes/partition/evaluate_strategy.h"

#include <string.h>

typedef struct draft {
    const sn_op_group *group;
    const sn_factors *forward, *backward; // per op
    sn_strategy *s;
    bool *chosen; // per forward op
    SN_VEC(sn_inner_move) moves;
} draft;

sn_cut sn_gradient_cut(sn_cut cut) {
    return cut == SN_PARTIAL_VALUE ? SN_UNCUT : cut;
}

static sn_cut cut_of_dims(const sn_factors *factors, const sn_dim_factors *dims, int rank, sn_factor_cut c,
                          sn_cut otherwise) {
    int dim;
    int64_t outer;
    return sn_factor_cut_dim(factors, dims, rank, c, &dim, &outer) ? sn_cut_make(dim, outer) : otherwise;
}

static void cut_op(const sn_op *op, const sn_factors *factors, sn_factor_cut c, sn_op_cut *out) {
    sn_cut joined = factors->factor[c.factor].kind == SN_FACTOR_PARALLEL ? SN_UNCUT : SN_PARTIAL_VALUE;
    for (int i = 0; i < op->n_operands; i++)
        out->operand[i] = cut_of_dims(factors, factors->operand[i], op->operands[i]->type.rank, c, out->operand[i]);
    for (int i = 0; i < op->n_results; i++)
        out->result[i] = cut_of_dims(factors, factors->result[i], op->results[i]->type.rank, c, joined);
}

static int forward_index(const sn_op_group *group, const sn_value *value) {
    if (value->kind != SN_VALUE_RESULT) return -1;
    for (int i = 0; i < group->n_forward; i++)
        if (group->forward[i] == value->def) return i;
    return -1;
}

sn_cut sn_strategy_leaves(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value) {
    int i = forward_index(group, value);
    return i < 0 ? SN_UNCUT : strategy->forward[i].result[value->index];
}

sn_cut sn_strategy_need(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value) {
    for (int i = 0; i < group->n_forward; i++)
        for (int o = 0; o < group->forward[i]->n_operands; o++)
            if (group->forward[i]->operands[o] == value) return strategy->forward[i].operand[o];
    return SN_UNCUT;
}

// The factor that a cut of an operand (or result) means; none when the op cannot follow.
static sn_factor_cut factor_at(const sn_factors *factors, bool result, int which, sn_cut cut) {
    const sn_factor_cut none = {.factor = -1};
    if (cut < 0) return none;
    const sn_dim_factors *dims = result ? factors->result[which] : factors->operand[which];
    sn_factor_cut c = sn_factor_cut_at(factors, &dims[sn_cut_dim(cut)], sn_cut_outer(cut), 1);
    return c.factor < 0 || factors->factor[c.factor].kind == SN_FACTOR_WHOLE ? none : c;
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
                sn_factor_cut c = factor_at(&d->forward[i], true, r, d->s->forward[j].operand[use->index]);
                if (c.factor < 0) continue;
                cut_op(op, &d->forward[i], c, &d->s->forward[i]);
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
            sn_cut cut = from < 0 ? SN_UNCUT : d->s->forward[from].result[op->operands[o]->index];
            sn_factor_cut c = factor_at(&d->forward[i], false, o, cut);
            if (c.factor >= 0) {
                cut_op(op, &d->forward[i], c, &d->s->forward[i]);
                d->chosen[i] = true;
            } else if (cut == SN_PARTIAL_VALUE && sn_op_linearity(op, o) == SN_LINEAR) {
                d->s->forward[i].operand[o] = d->s->forward[i].result[0] = SN_PARTIAL_VALUE;
                d->chosen[i] = true;
            }
        }
    }
}

// Ops beside: what they read as chosen ops do (the parts of a split), they read cut as those do.
static void follow_siblings(draft *d) {
    const sn_op_group *group = d->group;
    for (int i = 0; i < group->n_forward; i++) {
        const sn_op *op = group->forward[i];
        for (int j = 0; j < group->n_forward; j++)
            for (int o = 0; d->chosen[j] && o < group->forward[j]->n_operands; o++)
                for (int k = 0; k < op->n_operands && !d->chosen[i]; k++) {
                    if (op->operands[k] != group->forward[j]->operands[o]) continue;
                    sn_factor_cut c = factor_at(&d->forward[i], false, k, d->s->forward[j].operand[o]);
                    if (c.factor < 0) continue;
                    cut_op(op, &d->forward[i], c, &d->s->forward[i]);
                    d->chosen[i] = true;
                }
    }
}

static void note_move(draft *d, const sn_value *value, sn_cut from, sn_cut to, bool backward) {
    if (from == to || from == SN_UNCUT) return; // cutting what is whole is free
    sn_vec_push(&d->moves, (sn_inner_move){value, from, to, backward});
}

static void note_forward_moves(draft *d) {
    for (int i = 0; i < d->group->n_forward; i++) {
        const sn_op *op = d->group->forward[i];
        for (int o = 0; o < op->n_operands; o++) {
            int from = forward_index(d->group, op->operands[o]);
            if (from < 0) continue;
            sn_cut cut = d->s->forward[from].result[op->operands[o]->index];
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
static sn_cut arriving_cut(const draft *d, const sn_value *value) {
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

static sn_cut known_cut(const draft *d, const sn_value *value, int before) {
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
        sn_factor_cut best = {-1, 0};
        int partial = -1;
        for (int o = 0; o < op->n_operands; o++) {
            sn_cut cut = known_cut(d, op->operands[o], i);
            sn_factor_cut c = factor_at(&d->backward[i], false, o, cut);
            if (cut == SN_PARTIAL_VALUE && sn_op_linearity(op, o) != SN_NOT_LINEAR) partial = o;
            if (c.factor < 0) continue;
            votes[c.factor] += sn_type_bytes(op->operands[o]->type) + 1;
            if (best.factor < 0 || votes[c.factor] > votes[best.factor]) best = c;
        }
        if (best.factor >= 0)
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
        int values = ops[i]->n_operands + ops[i]->n_results;
        cuts[i].operand = SN_NEW_N(arena, sn_cut, values + 1);
        cuts[i].result = cuts[i].operand + ops[i]->n_operands;
        for (int v = 0; v < values; v++) cuts[i].operand[v] = SN_UNCUT;
    }
    return cuts;
}

static sn_factors *factors_of(sn_arena *arena, int n, sn_op *const *ops) {
    sn_factors *factors = SN_NEW_N(arena, sn_factors, n + 1);
    for (int i = 0; i < n; i++) sn_factors_of(ops[i], arena, &factors[i]);
    return factors;
}

static bool is_known(const sn_op_group *group, const sn_strategies *strategies, const sn_strategy *candidate) {
    for (int s = 0; s < strategies->n; s++) {
        bool equal = true;
        for (int i = 0; i < group->n_forward && equal; i++) {
            size_t values = (size_t)(group->forward[i]->n_operands + group->forward[i]->n_results);
            equal = memcmp(strategies->list[s].forward[i].operand, candidate->forward[i].operand,
                           values * sizeof(sn_cut)) == 0;
        }
        if (equal) return true;
    }
    return false;
}

// From one op's factor (none: nothing is cut) to the whole group; kept when it is new.
static void add_strategy(const sn_op_group *group, sn_strategies *strategies, int seed, sn_factor_cut c,
                         sn_arena *arena) {
    if (strategies->n == SN_MOST_STRATEGIES) return;
    sn_strategy strategy = {.cuts = c.factor >= 0,
                            .forward = uncut(arena, group->n_forward, group->forward),
                            .backward = uncut(arena, group->n_backward, group->backward)};
    draft d = {.group = group, .forward = strategies->forward, .backward = strategies->backward, .s = &strategy};
    if (strategy.cuts) {
        d.chosen = SN_NEW_N(arena, bool, group->n_forward + 1);
        cut_op(group->forward[seed], &d.forward[seed], c, &strategy.forward[seed]);
        d.chosen[seed] = true;
        for (int round = 0; round < 2; round++) {
            follow_needs(&d);
            follow_results(&d);
            follow_siblings(&d);
        }
        note_forward_moves(&d);
        follow_backward(&d);
        strategy.n_moves = (int)d.moves.count;
        strategy.moves = sn_arena_copy(arena, d.moves.data, d.moves.count * sizeof *d.moves.data);
        sn_vec_free(&d.moves);
        if (is_known(group, strategies, &strategy)) return;
    }
    strategies->list[strategies->n++] = strategy;
}

sn_strategies sn_strategies_of(const sn_op_group *group, sn_arena *arena) {
    sn_strategies out = {.list = SN_NEW_N(arena, sn_strategy, SN_MOST_STRATEGIES)};
    out.forward = factors_of(arena, group->n_forward, group->forward);
    out.backward = factors_of(arena, group->n_backward, group->backward);
    add_strategy(group, &out, 0, (sn_factor_cut){-1, 0}, arena);
    if (group->lead < 0) return out;
    const sn_factors *factors = &out.forward[group->lead];
    for (int f = 0; f < factors->n; f++)
        if (factors->factor[f].kind != SN_FACTOR_WHOLE && factors->factor[f].size > 1)
            add_strategy(group, &out, group->lead, (sn_factor_cut){f, 1}, arena);
    return out;
}

void sn_strategies_follow(const sn_op_group *group, sn_strategies *strategies, const sn_value *value, sn_cut cut,
                          bool result, sn_arena *arena) {
    for (int s = 0; s < strategies->n; s++) {
        const sn_strategy *known = &strategies->list[s];
        sn_cut has = result ? sn_strategy_leaves(group, known, value) : sn_strategy_need(group, known, value);
        if (has == cut) return;
    }
    for (int i = 0; i < group->n_forward; i++) {
        const sn_op *op = group->forward[i];
        for (int v = 0; v < (result ? op->n_results : op->n_operands); v++) {
            if ((result ? op->results[v] : op->operands[v]) != value) continue;
            sn_factor_cut c = factor_at(&strategies->forward[i], result, v, cut);
            if (c.factor >= 0) add_strategy(group, strategies, i, c, arena);
            return;
        }
    }
}
