#include "passes/partition/evaluate_table.h"

#include "base/alloc.h"
#include "passes/partition/weight_pass.h"

#include <string.h>

typedef struct builder {
    const sn_blocks *blocks;
    sn_arena *arena;
    sn_map parameters; // name -> sn_parameter_ops
} builder;

static sn_parameter_ops *parameter_of(builder *b, const char *name) {
    return name ? sn_map_get(&b->parameters, name) : NULL;
}

static bool is_accumulation(const sn_op *op) {
    return op->phase == SN_PHASE_BACKWARD && op->mark == 0;
}

static bool sets_sum(const sn_op *op) {
    return op->kind == SN_OP_ASSIGN && op->operands[0]->kind == SN_VALUE_GLOBAL &&
           op->operands[0]->global->role == SN_ROLE_SUM;
}

// Sets the sum of gradients to zero, or makes the zeros.
static bool clears(const sn_op *op) {
    bool makes = op->n_results == 1 && op->results[0]->uses.count == 1;
    return sets_sum(op) || (makes && sets_sum(op->results[0]->uses.data[0].op));
}

static void count_parameter_ops(builder *b) {
    SN_FOR_OPS(op, b->blocks->micro) {
        sn_parameter_ops *p = is_accumulation(op) ? parameter_of(b, sn_origin_node(op->origin)) : NULL;
        if (p) p->n_accumulate++;
    }
    SN_FOR_OPS(op, b->blocks->update) {
        sn_parameter_ops *p = parameter_of(b, sn_origin_node(op->origin));
        if (p) ++*(clears(op) ? &p->n_clear : &p->n_update);
    }
    for (size_t i = 0; i < b->parameters.count; i++) {
        sn_parameter_ops *p = b->parameters.entries[i].value;
        p->update = SN_NEW_N(b->arena, sn_op *, p->n_update + 1);
        p->clear = SN_NEW_N(b->arena, sn_op *, p->n_clear + 1);
        p->accumulate = SN_NEW_N(b->arena, sn_op *, p->n_accumulate + 1);
        p->n_update = p->n_clear = p->n_accumulate = 0;
    }
}

static void index_parameters(builder *b) {
    const sn_module *module = b->blocks->micro->module;
    for (size_t i = 0; i < module->globals.count; i++) {
        const sn_global *global = module->globals.data[i];
        if (global->role != SN_ROLE_PARAMETER) continue;
        sn_parameter_ops *p = SN_NEW(b->arena, sn_parameter_ops);
        p->parameter = global;
        sn_map_put(&b->parameters, global->name, p);
    }
    for (size_t i = 0; i < module->globals.count; i++) {
        const sn_global *global = module->globals.data[i];
        sn_parameter_ops *p = global->of ? parameter_of(b, global->of->name) : NULL;
        if (!p) continue;
        double *bytes = sn_ends_with(global->name, ".grad") ? &p->gradient_bytes : &p->optimizer_bytes;
        *bytes += (double)sn_type_bytes(global->value->type);
    }
    count_parameter_ops(b);
    SN_FOR_OPS(op, b->blocks->micro) {
        sn_parameter_ops *p = is_accumulation(op) ? parameter_of(b, sn_origin_node(op->origin)) : NULL;
        if (p) p->accumulate[p->n_accumulate++] = op;
    }
    SN_FOR_OPS(op, b->blocks->update) {
        sn_parameter_ops *p = parameter_of(b, sn_origin_node(op->origin));
        if (p && clears(op))
            p->clear[p->n_clear++] = op;
        else if (p)
            p->update[p->n_update++] = op;
    }
}

static int group_of(const sn_block *block, const sn_op *op) {
    for (int g = 0; g < block->n_groups; g++)
        for (int i = 0; i < block->groups[g].n_forward; i++)
            if (block->groups[g].forward[i] == op) return g;
    return -1;
}

// The dims of a value that the axes of the data cut: dim 0 holds the samples, dim 1 of three or of an argument the
// sequence.
static void cut_of_data(const sn_blocks *blocks, sn_flow *flow) {
    const sn_value *value = flow->value;
    bool arg = value->kind == SN_VALUE_ARG;
    flow->data = flow->context = SN_UNCUT;
    if (!arg && !flow->follows) return;
    if (value->type.rank && value->type.dim[0] % blocks->batch == 0 && value->name && value->name[0] == '$') return;
    if (value->type.rank && value->type.dim[0] % blocks->batch == 0) flow->data = sn_cut_make(0, 1);
    bool merged = !arg && value->type.rank == 2 && value->type.dim[0] > blocks->batch;
    if (flow->data >= 0 && merged) flow->context = sn_cut_make(0, blocks->batch);
    if (value->type.rank >= (arg ? 2 : 3)) flow->context = sn_cut_make(1, 1);
}

static sn_flow *add_flow(builder *b, sn_class_table *t, const sn_value *value) {
    for (int i = 0; i < t->n_flows; i++)
        if (t->flows[i].value == value) return &t->flows[i];
    sn_flow *flow = &t->flows[t->n_flows++];
    *flow = (sn_flow){.value = value, .producer = -1, .data = SN_UNCUT, .context = SN_UNCUT, .boundary = SN_UNCUT};
    flow->readers = SN_NEW_N(b->arena, int, t->block->n_groups);
    if (value->kind == SN_VALUE_RESULT) flow->producer = group_of(t->block, value->def);
    return flow;
}

// Whether the value comes from data through an earlier block: position tables and the like do not.
static bool crosses_blocks(const sn_value *value) {
    if (value->kind != SN_VALUE_RESULT || !sn_dtype_is_float(value->type.dtype)) return false;
    for (size_t u = 0; u < value->uses.count; u++)
        if (value->uses.data[u].op->phase == SN_PHASE_BACKWARD) return true;
    return value->def->phase == SN_PHASE_FORWARD && value->type.rank >= 2;
}

static bool is_result(const sn_func *func, const sn_value *value) {
    for (size_t i = 0; i < func->results.count; i++)
        if (func->results.data[i] == value) return true;
    return false;
}

static void note_leaving(const builder *b, sn_class_table *t, sn_flow *flow) {
    if (flow->producer < 0) {
        flow->follows = crosses_blocks(flow->value);
        return;
    }
    flow->leaves = is_result(b->blocks->micro, flow->value);
    for (size_t u = 0; u < flow->value->uses.count; u++) {
        const sn_op *op = flow->value->uses.data[u].op;
        if (op->phase == SN_PHASE_FORWARD && group_of(t->block, op) < 0 && op->mark) flow->leaves = true;
    }
    flow->follows = flow->leaves && crosses_blocks(flow->value);
}

static void collect_flows(builder *b, sn_class_table *t) {
    int most = 0;
    for (int g = 0; g < t->block->n_groups; g++)
        for (int i = 0; i < t->block->groups[g].n_forward; i++)
            most += t->block->groups[g].forward[i]->n_operands + t->block->groups[g].forward[i]->n_results;
    t->flows = SN_NEW_N(b->arena, sn_flow, most + 1);
    for (int g = 0; g < t->block->n_groups; g++)
        for (int i = 0; i < t->block->groups[g].n_forward; i++) {
            const sn_op *op = t->block->groups[g].forward[i];
            for (int o = 0; o < op->n_operands; o++) {
                const sn_value *value = op->operands[o];
                bool own = value->kind == SN_VALUE_RESULT && group_of(t->block, value->def) == g;
                if (own || value->kind == SN_VALUE_GLOBAL) continue;
                sn_flow *flow = add_flow(b, t, value);
                bool known = flow->n_readers && flow->readers[flow->n_readers - 1] == g;
                if (!known) flow->readers[flow->n_readers++] = g;
                flow->differentiable |= t->block->groups[g].n_backward && sn_dtype_is_float(value->type.dtype);
            }
        }
    // Results that only later blocks read are flows too.
    for (int g = 0; g < t->block->n_groups; g++)
        for (int i = 0; i < t->block->groups[g].n_forward; i++)
            for (int r = 0; r < t->block->groups[g].forward[i]->n_results; r++) {
                const sn_value *value = t->block->groups[g].forward[i]->results[r];
                bool out = is_result(b->blocks->micro, value);
                for (size_t u = 0; u < value->uses.count; u++) {
                    const sn_op *op = value->uses.data[u].op;
                    out |= op->phase == SN_PHASE_FORWARD && op->mark && op->mark != value->def->mark;
                }
                if (out) add_flow(b, t, value)->differentiable = sn_dtype_is_float(value->type.dtype);
            }
    for (int f = 0; f < t->n_flows; f++) {
        note_leaving(b, t, &t->flows[f]);
        if (t->flows[f].producer < 0) cut_of_data(b->blocks, &t->flows[f]);
    }
}

sn_op_kind sn_move_kind(sn_cut from, sn_cut to) {
    if (from == to || from == SN_UNCUT) return SN_OP_COUNT;
    if (from == SN_PARTIAL_VALUE) return to == SN_UNCUT ? SN_OP_ALL_REDUCE : SN_OP_REDUCE_SCATTER;
    return to >= 0 ? SN_OP_ALL_TO_ALL : SN_OP_ALL_GATHER;
}

// Over dp and cp a group takes the strategy that moves the fewest bytes, in program order; a partial sum counts as
// moved.
static void choose_data_axis(const sn_class_table *t, bool context, int *choice) {
    for (int g = 0; g < t->block->n_groups; g++) {
        const sn_op_group *group = &t->block->groups[g];
        double best = -1;
        for (int s = 0; s < t->strategies[g].n; s++) {
            const sn_strategy *strategy = &t->strategies[g].list[s];
            double moved = 0;
            for (int f = 0; f < t->n_flows; f++) {
                const sn_flow *flow = &t->flows[f];
                double bytes = (double)sn_type_bytes(flow->value->type) + 1;
                bool reads = false;
                for (int r = 0; r < flow->n_readers; r++) reads |= flow->readers[r] == g;
                sn_cut have = context ? flow->context : flow->data;
                if (reads && have >= 0 && sn_strategy_need(group, strategy, flow->value) != have) moved += bytes;
                bool makes = flow->producer == g;
                if (makes && sn_strategy_leaves(group, strategy, flow->value) == SN_PARTIAL_VALUE) moved += bytes;
            }
            if (best < 0 || moved < best) best = moved, choice[g] = s;
        }
        for (int f = 0; f < t->n_flows; f++) {
            if (t->flows[f].producer != g) continue;
            sn_cut cut = sn_strategy_leaves(group, &t->strategies[g].list[choice[g]], t->flows[f].value);
            *(context ? &t->flows[f].context : &t->flows[f].data) = cut >= 0 ? cut : SN_UNCUT;
        }
    }
}

static bool is_in(const sn_op_group *group, const sn_op *op, int *index) {
    for (int i = 0; i < group->n_backward; i++)
        if (group->backward[i] == op) return *index = i, true;
    return false;
}

static bool *lead_to_weights(builder *b, const sn_op_group *group) {
    bool *weight = SN_NEW_N(b->arena, bool, group->n_backward + 1);
    for (int i = group->n_backward - 1; i >= 0; i--) {
        const sn_op *op = group->backward[i];
        weight[i] = true;
        for (int r = 0; r < op->n_results; r++)
            for (size_t u = 0; u < op->results[r]->uses.count; u++) {
                const sn_op *use = op->results[r]->uses.data[u].op;
                int at = -1;
                bool inside = is_in(group, use, &at);
                if (inside ? !weight[at] : use->mark != 0) weight[i] = false;
            }
    }
    return weight;
}

static void find_weight_only(builder *b, sn_class_table *t) {
    const sn_block *block = t->block;
    SN_VEC(sn_op *) ops = {0};
    SN_VEC(bool *) entries = {0};
    for (int g = block->n_groups - 1; g >= 0; g--) {
        t->weight_only[g] = lead_to_weights(b, &block->groups[g]);
        for (int i = 0; i < block->groups[g].n_backward; i++) {
            if (!t->weight_only[g][i]) continue;
            sn_vec_push(&ops, block->groups[g].backward[i]);
            sn_vec_push(&entries, &t->weight_only[g][i]);
        }
    }
    bool *late = sn_alloc(ops.count + 1);
    sn_weight_pass_find(ops.data, ops.count, b->blocks->value_count, late);
    for (size_t i = 0; i < ops.count; i++) *entries.data[i] = late[i];
    sn_free(late);
    sn_vec_free(&ops);
    sn_vec_free(&entries);
}

static void find_at_once(builder *b, sn_class_table *t) {
    uint32_t count, first = sn_block_first_result(t->block, &count);
    t->at_once = SN_NEW_N(b->arena, bool, count);
    for (int g = 0; g < t->block->n_groups; g++)
        for (int i = 0; i < t->block->groups[g].n_backward; i++) {
            const sn_op *op = t->block->groups[g].backward[i];
            for (int o = 0; !t->weight_only[g][i] && o < op->n_operands; o++) {
                const sn_value *value = op->operands[o];
                if (value->kind == SN_VALUE_RESULT && value->id - first < count) t->at_once[value->id - first] = true;
            }
        }
}

// Cuts that one side of a flow may have and the other does not know yet: digits of fused and of merged dims.
static void exchange_cuts(builder *b, sn_class_table *t, const sn_flow *flow) {
    const sn_op_group *groups = t->block->groups;
    sn_strategies *producer = flow->producer >= 0 ? &t->strategies[flow->producer] : NULL;
    for (int r = 0; r < flow->n_readers; r++) {
        int g = flow->readers[r];
        sn_strategies *reader = &t->strategies[g];
        for (int s = 0; producer && s < producer->n; s++) {
            sn_cut cut = sn_strategy_leaves(&groups[flow->producer], &producer->list[s], flow->value);
            if (cut >= 0) sn_strategies_follow(&groups[g], reader, flow->value, cut, false, b->arena);
        }
        for (int s = 0; producer && s < reader->n; s++) {
            sn_cut cut = sn_strategy_need(&groups[g], &reader->list[s], flow->value);
            if (cut >= 0) sn_strategies_follow(&groups[flow->producer], producer, flow->value, cut, true, b->arena);
        }
        if (flow->context >= 0) sn_strategies_follow(&groups[g], reader, flow->value, flow->context, false, b->arena);
    }
}

static int count_strategies(const sn_class_table *t) {
    int n = 0;
    for (int g = 0; g < t->block->n_groups; g++) n += t->strategies[g].n;
    return n;
}

// Down the block and up again until all that may follow does.
static void exchange_all(builder *b, sn_class_table *t) {
    for (int before = -1, n = count_strategies(t); n != before; n = count_strategies(t)) {
        before = n;
        for (int f = 0; f < t->n_flows; f++) exchange_cuts(b, t, &t->flows[f]);
        for (int f = t->n_flows - 1; f >= 0; f--) exchange_cuts(b, t, &t->flows[f]);
    }
}

static void add_cut(sn_flow *flow, sn_cut cut) {
    for (int i = 0; i < flow->n_cuts; i++)
        if (flow->cuts[i] == cut) return;
    if (cut >= 0 && flow->n_cuts < SN_MOST_CUTS) flow->cuts[flow->n_cuts++] = cut;
}

static void note_cuts(const builder *b, const sn_class_table *t, sn_flow *flow) {
    const sn_type *type = &flow->value->type;
    if (flow->follows && flow->data >= 0 && type->rank == 3)
        flow->boundary = sn_cut_make(sn_cut_dim(flow->data) == 1 ? 0 : 1, 1);
    if (flow->follows && flow->data >= 0 && type->rank == 2 && type->dim[0] > b->blocks->batch)
        flow->boundary = sn_cut_make(0, b->blocks->batch);
    add_cut(flow, flow->boundary);
    for (int s = 0; flow->producer >= 0 && s < t->strategies[flow->producer].n; s++)
        add_cut(flow, sn_strategy_leaves(&t->block->groups[flow->producer], &t->strategies[flow->producer].list[s],
                                         flow->value));
    for (int r = 0; r < flow->n_readers; r++)
        for (int s = 0; s < t->strategies[flow->readers[r]].n; s++)
            add_cut(flow, sn_strategy_need(&t->block->groups[flow->readers[r]],
                                           &t->strategies[flow->readers[r]].list[s], flow->value));
    add_cut(flow, flow->data);
}

static void build_class(builder *b, sn_class_table *t, const sn_block *block) {
    t->block = block;
    t->strategies = SN_NEW_N(b->arena, sn_strategies, block->n_groups);
    t->weight_only = SN_NEW_N(b->arena, bool *, block->n_groups);
    t->data = SN_NEW_N(b->arena, int, block->n_groups);
    t->context = SN_NEW_N(b->arena, int, block->n_groups);
    for (int g = 0; g < block->n_groups; g++) {
        t->strategies[g] = sn_strategies_of(&block->groups[g], b->arena);
    }
    find_weight_only(b, t);
    find_at_once(b, t);
    collect_flows(b, t);
    exchange_all(b, t);
    choose_data_axis(t, false, t->data);
    choose_data_axis(t, true, t->context);
    for (int f = 0; f < t->n_flows; f++) note_cuts(b, t, &t->flows[f]);
    t->parameters = SN_NEW_N(b->arena, sn_parameter_ops, block->n_parameters + 1);
    for (int p = 0; p < block->n_parameters; p++) {
        const sn_parameter_ops *ops = parameter_of(b, block->parameters[p]->name);
        t->parameters[p] = ops ? *ops : (sn_parameter_ops){.parameter = block->parameters[p]};
        t->parameters[p].least_update = t->parameters[p].least_clear = -1;
    }
}

sn_class_table *sn_class_tables(const sn_blocks *blocks) {
    builder b = {.blocks = blocks, .arena = blocks->arena};
    index_parameters(&b);
    sn_class_table *tables = SN_NEW_N(b.arena, sn_class_table, blocks->n_classes + 1);
    for (int k = 0; k < blocks->n_classes; k++)
        build_class(&b, &tables[k], &blocks->blocks[blocks->classes[k].representative]);
    sn_map_free(&b.parameters);
    return tables;
}
