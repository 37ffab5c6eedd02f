// Memory is what tensor parallelism is for as well: a matrix of parameters that an axis can cut is cut, even where it
// would be faster to cut the samples or the sequence alone, as dp and cp do. Only a small one may stay whole, no larger
// than a rank's part of the block's largest, and only where cutting it takes joins: where what it is multiplied with
// does not come cut as the product needs it, or something that reads the product cannot go on with it as it is cut.
// Keys and values of fewer heads than there are ranks are so: whether ranks hold the same matrix is left to the
// network.
//
// The cuts that values can come in, and be read in, are greatest fixed points over the flows of the block.
#include "passes/partition/evaluate_table.h"

#include <math.h>

typedef struct reach {
    const sn_layout_problem *p;
    bool *comes, *goes; // [flow * SN_MOST_CUTS + index of the cut]
} reach;

static int cut_index(const sn_flow *flow, sn_cut cut) {
    for (int i = 0; i < flow->n_cuts; i++)
        if (flow->cuts[i] == cut) return i;
    return -1;
}

static bool holds(const bool *table, const sn_flow *flow, int f, sn_cut cut) {
    int i = cut_index(flow, cut);
    return i >= 0 && table[f * SN_MOST_CUTS + i];
}

static bool reads(const sn_flow *flow, int g) {
    for (int r = 0; r < flow->n_readers; r++)
        if (flow->readers[r] == g) return true;
    return false;
}

static bool needs_come(const reach *x, int g, const sn_strategy *s) {
    const sn_class_table *t = x->p->table;
    for (int f = 0; f < t->n_flows; f++) {
        if (!reads(&t->flows[f], g)) continue;
        sn_cut need = sn_strategy_need(&t->block->groups[g], s, t->flows[f].value);
        if (need >= 0 && !holds(x->comes, &t->flows[f], f, need)) return false;
    }
    return true;
}

static bool results_go(const reach *x, int g, const sn_strategy *s) {
    const sn_class_table *t = x->p->table;
    for (int f = 0; f < t->n_flows; f++) {
        if (t->flows[f].producer != g) continue;
        sn_cut leaves = sn_strategy_leaves(&t->block->groups[g], s, t->flows[f].value);
        if (leaves >= 0 && !holds(x->goes, &t->flows[f], f, leaves)) return false;
    }
    return true;
}

// Whether the group goes on with the cut by itself: a strategy that joins a value inside does not.
static bool is_good(const reach *x, int g, int s) {
    const sn_strategy *strategy = &x->p->table->strategies[g].list[s];
    for (int m = 0; m < strategy->n_moves; m++)
        if (strategy->moves[m].from >= 0) return false;
    return isfinite(x->p->seconds[g][s]);
}

static bool can_come(const reach *x, int f, sn_cut cut) {
    const sn_class_table *t = x->p->table;
    const sn_flow *flow = &t->flows[f];
    int g = flow->producer;
    if (g < 0) return !flow->follows || sn_layout_between(x->p, f) == cut; // what is no activation is cut for free
    for (int s = 0; s < t->strategies[g].n; s++) {
        const sn_strategy *strategy = &t->strategies[g].list[s];
        if (isfinite(x->p->seconds[g][s]) && sn_strategy_leaves(&t->block->groups[g], strategy, flow->value) == cut &&
            needs_come(x, g, strategy))
            return true;
    }
    return false;
}

static bool can_be_read(const reach *x, const sn_flow *flow, int g, sn_cut cut) {
    const sn_class_table *t = x->p->table;
    for (int s = 0; s < t->strategies[g].n; s++) {
        const sn_strategy *strategy = &t->strategies[g].list[s];
        if (isfinite(x->p->seconds[g][s]) && sn_strategy_need(&t->block->groups[g], strategy, flow->value) == cut &&
            results_go(x, g, strategy))
            return true;
    }
    return false;
}

static bool can_go(const reach *x, int f, sn_cut cut) {
    const sn_flow *flow = &x->p->table->flows[f];
    if (flow->leaves && sn_layout_between(x->p, f) != cut) return false;
    for (int r = 0; r < flow->n_readers; r++)
        if (!can_be_read(x, flow, flow->readers[r], cut)) return false;
    return true;
}

static bool shrink(const reach *x) {
    bool changed = false;
    for (int f = 0; f < x->p->table->n_flows; f++)
        for (int i = 0; i < x->p->table->flows[f].n_cuts; i++) {
            bool *comes = &x->comes[f * SN_MOST_CUTS + i], *goes = &x->goes[f * SN_MOST_CUTS + i];
            sn_cut cut = x->p->table->flows[f].cuts[i];
            bool lost = *comes && !can_come(x, f, cut), stuck = *goes && !can_go(x, f, cut);
            if (lost) *comes = false;
            if (stuck) *goes = false;
            changed |= lost || stuck;
        }
    return changed;
}

static bool is_matrix(const sn_value *value) {
    return value->kind == SN_VALUE_GLOBAL && value->global->role == SN_ROLE_PARAMETER && value->type.rank >= 2;
}

// Bytes of matrices that a strategy leaves whole, as the axes outside of it cut them.
static double whole_bytes(const sn_layout_problem *p, int g, int s) {
    const sn_op_group *group = &p->table->block->groups[g];
    double whole = 0;
    for (int i = 0; i < group->n_forward; i++)
        for (int o = 0; o < group->forward[i]->n_operands; o++) {
            const sn_value *value = group->forward[i]->operands[o];
            const sn_strategies *strategies = &p->table->strategies[g];
            if (!is_matrix(value) || strategies->list[s].forward[i].operand[o] >= 0) continue;
            double bytes = (double)sn_type_bytes(value->type);
            for (int a = 0; a < p->n_outside; a++)
                if (strategies->list[p->outside[a].choice[g]].forward[i].operand[o] >= 0)
                    bytes /= (double)p->outside[a].parts;
            whole += bytes;
        }
    return whole;
}

static double largest_part(const sn_layout_problem *p) {
    double largest = 0;
    for (int i = 0; i < p->table->block->n_parameters; i++) {
        const sn_value *value = p->table->block->parameters[i]->value;
        if (is_matrix(value)) largest = fmax(largest, (double)sn_type_bytes(value->type));
    }
    for (int a = 0; a < p->n_outside; a++) largest /= (double)p->outside[a].parts;
    return largest / (double)p->ranks->ranks;
}

static void forbid_in_group(const reach *x, int g, double small) {
    const sn_layout_problem *p = x->p;
    const sn_strategies *strategies = &p->table->strategies[g];
    bool can = false, flows = false;
    for (int s = 0; s < strategies->n; s++) {
        if (!isfinite(p->seconds[g][s]) || whole_bytes(p, g, s) > 0) continue;
        can = true;
        flows |= is_good(x, g, s) && needs_come(x, g, &strategies->list[s]) && results_go(x, g, &strategies->list[s]);
    }
    for (int s = 0; s < strategies->n && can; s++)
        if (whole_bytes(p, g, s) > (flows ? 0 : small)) p->seconds[g][s] = INFINITY;
}

void sn_forbid_whole_matrices(const sn_layout_problem *p) {
    size_t n = (size_t)(p->table->n_flows + 1) * SN_MOST_CUTS;
    reach x = {p, sn_alloc(n), sn_alloc(n)};
    double small = largest_part(p);
    for (size_t i = 0; i < n; i++) x.comes[i] = x.goes[i] = true;
    while (shrink(&x)) continue;
    for (int g = 0; g < p->table->block->n_groups; g++) forbid_in_group(&x, g, small);
    sn_free(x.comes);
    sn_free(x.goes);
}
