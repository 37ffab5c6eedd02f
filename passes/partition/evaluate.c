#include "passes/partition/evaluate.h"

#include "passes/partition/evaluate_local.h"

#include <math.h>
#include <string.h>

// The strategies over tp for one degree and layout between blocks, of all classes.
typedef struct solution {
    int tp, boundary;
    bool possible;
    int **choice, **label; // [class][group], [class][flow]
} solution;

typedef struct known {
    sn_cut_setting setting;
    sn_block_cost *costs; // NULL: it does not divide
} known;

struct sn_evaluator {
    const sn_blocks *blocks;
    const sn_cluster *cluster;
    sn_cost_model model;
    sn_arena *arena;
    sn_arena scratch;
    sn_class_table *tables;
    int boundaries;
    bool has_sequence; // the data has a dim that cp may cut
    SN_VEC(solution) solutions;
    SN_VEC(known) known;
};

// Tokens are integers [samples, sequence], embedded ones floats [samples, sequence, features]; pictures and rows of
// features have no sequence.
static bool has_sequence(const sn_func *micro) {
    bool found = false;
    for (size_t i = 0; i < micro->args.count; i++) {
        const sn_value *arg = micro->args.data[i];
        if (arg->name[0] == '$' || arg->type.rank < 2) continue;
        if (arg->type.rank != (sn_dtype_is_float(arg->type.dtype) ? 3 : 2)) return false;
        found = true;
    }
    return found;
}

sn_evaluator *sn_evaluator_new(const sn_blocks *blocks, const sn_cluster *cluster, const sn_cost_model *model) {
    sn_evaluator *e = SN_NEW(blocks->arena, sn_evaluator);
    *e = (sn_evaluator){.blocks = blocks, .cluster = cluster, .model = *model, .arena = blocks->arena};
    e->tables = sn_class_tables(blocks);
    e->has_sequence = has_sequence(blocks->micro);
    e->boundaries = 1;
    for (int k = 0; k < blocks->n_classes; k++)
        for (int f = 0; f < e->tables[k].n_flows; f++) {
            const sn_flow *flow = &e->tables[k].flows[f];
            if (flow->boundary >= 0) e->boundaries = 2;
        }
    return e;
}

void sn_evaluator_free(sn_evaluator *e) {
    sn_arena_free(&e->scratch);
    sn_vec_free(&e->solutions);
    sn_vec_free(&e->known);
}

int sn_evaluator_boundaries(const sn_evaluator *e) {
    return e->boundaries;
}

static sn_group_cut group_cut(const sn_evaluator *e, const sn_class_table *t, int g, int s, sn_cut_setting setting) {
    const sn_strategy *list = t->strategies[g].list;
    return (sn_group_cut){.strategy = {&list[t->data[g]], &list[t->context[g]], &list[s]},
                          .parts = {e->blocks->batch / setting.micro, setting.cp, setting.tp}};
}

// What a rank holds of a flow before tp cuts it.
static double flow_bytes(const sn_evaluator *e, const sn_flow *flow, sn_cut_setting setting) {
    double bytes = (double)sn_type_bytes(flow->value->type);
    if (flow->data >= 0) bytes *= (double)setting.micro / (double)e->blocks->batch;
    if (flow->context >= 0) bytes /= setting.cp;
    return bytes;
}

static double *all_flow_bytes(sn_evaluator *e, const sn_class_table *t, sn_cut_setting setting) {
    double *bytes = SN_NEW_N(&e->scratch, double, t->n_flows + 1);
    for (int f = 0; f < t->n_flows; f++) bytes[f] = flow_bytes(e, &t->flows[f], setting);
    return bytes;
}

static sn_group tensor_ranks(const sn_evaluator *e, sn_cut_setting setting) {
    return sn_cluster_group(e->cluster, 0, setting.tp, 1);
}

static sn_layout_problem layout_problem(sn_evaluator *e, const sn_class_table *t, sn_cut_setting setting,
                                        const sn_group *ranks) {
    return (sn_layout_problem){.table = t,
                               .model = &e->model,
                               .ranks = ranks,
                               .boundary = setting.boundary > 0,
                               .bytes = all_flow_bytes(e, t, setting)};
}

static double inner_move_seconds(const sn_evaluator *e, const sn_strategy *strategy, const sn_group *ranks,
                                 double share, bool backward) {
    double seconds = 0;
    for (int m = 0; m < strategy->n_moves; m++) {
        const sn_inner_move *move = &strategy->moves[m];
        sn_op_kind kind = sn_move_kind(move->from, move->to);
        if (move->backward != backward || kind == SN_OP_COUNT) continue;
        double bytes = (double)sn_type_bytes(move->value->type) * share;
        if (kind == SN_OP_ALL_TO_ALL) bytes /= (double)ranks->ranks;
        seconds += sn_cost_collective(&e->model, kind, bytes, ranks);
    }
    return seconds;
}

static sn_cut parameter_cut(const sn_class_table *t, const int *choice, const sn_value *value) {
    for (int g = 0; g < t->block->n_groups; g++) {
        const sn_strategy *strategy = &t->strategies[g].list[choice[g]];
        sn_cut need = sn_strategy_need(&t->block->groups[g], strategy, value);
        if (need >= 0) return need;
    }
    return SN_UNCUT;
}

static double share_of(const sn_evaluator *e, sn_cut_setting setting) {
    return (double)setting.micro / (double)e->blocks->batch / setting.cp;
}

// A strategy's seconds in the network: its ops, its inner moves, and a little for each byte of parameters that it
// leaves whole, so that of two ways that are as fast the smaller one is taken.
static double strategy_seconds(sn_evaluator *e, const sn_class_table *t, int g, int s, sn_cut_setting setting,
                               const sn_group *ranks) {
    const sn_strategy *strategy = &t->strategies[g].list[s];
    sn_group_cut cut = group_cut(e, t, g, s, setting);
    sn_group_seconds seconds;
    if (s && s == t->data[g]) return INFINITY; // the samples are dp's
    if (!sn_group_local_seconds(&e->model, &t->block->groups[g], t->weight_only[g], &cut, &e->scratch, &seconds))
        return INFINITY;
    double total = seconds.forward + seconds.backward_input + seconds.backward_weight;
    for (int side = 0; side < 2; side++) total += inner_move_seconds(e, strategy, ranks, share_of(e, setting), side);
    for (int p = 0; p < t->block->n_parameters; p++) {
        const sn_value *value = t->block->parameters[p]->value;
        bool reads = false;
        for (size_t u = 0; u < value->uses.count; u++)
            for (int i = 0; i < t->block->groups[g].n_forward; i++)
                reads |= value->uses.data[u].op == t->block->groups[g].forward[i];
        double parts = sn_strategy_need(&t->block->groups[g], strategy, value) >= 0 ? setting.tp : 1;
        if (reads) total += 2 * (double)sn_type_bytes(value->type) / parts / e->model.device->memory_bandwidth;
    }
    return total;
}

// Whether a strategy leaves a matrix of parameters whole on each rank.
static bool leaves_matrix(const sn_class_table *t, int g, int s) {
    const sn_op_group *group = &t->block->groups[g];
    for (int i = 0; i < group->n_forward; i++)
        for (int o = 0; o < group->forward[i]->n_operands; o++) {
            const sn_value *value = group->forward[i]->operands[o];
            bool matrix =
                value->kind == SN_VALUE_GLOBAL && value->global->role == SN_ROLE_PARAMETER && value->type.rank >= 2;
            if (matrix && t->strategies[g].list[s].forward[i].operand[o] < 0) return true;
        }
    return false;
}

// Memory is what tp is for as well: where a matrix can be cut, it is. Cutting the samples or the sequence alone is what
// dp and cp do.
static void forbid_whole_matrices(const sn_class_table *t, int g, double *seconds) {
    bool can = false;
    for (int s = 0; s < t->strategies[g].n; s++) can |= isfinite(seconds[s]) && !leaves_matrix(t, g, s);
    for (int s = 0; s < t->strategies[g].n; s++)
        if (can && leaves_matrix(t, g, s)) seconds[s] = INFINITY;
}

static void solve_class(sn_evaluator *e, int k, sn_cut_setting setting, solution *out) {
    const sn_class_table *t = &e->tables[k];
    sn_group ranks = tensor_ranks(e, setting);
    sn_layout_problem problem = layout_problem(e, t, setting, &ranks);
    problem.seconds = SN_NEW_N(&e->scratch, double *, t->block->n_groups + 1);
    for (int g = 0; g < t->block->n_groups; g++) {
        problem.seconds[g] = SN_NEW_N(&e->scratch, double, t->strategies[g].n);
        for (int s = 0; s < t->strategies[g].n; s++)
            problem.seconds[g][s] = strategy_seconds(e, t, g, s, setting, &ranks);
        forbid_whole_matrices(t, g, problem.seconds[g]);
    }
    out->choice[k] = SN_NEW_N(e->arena, int, t->block->n_groups + 1);
    out->label[k] = SN_NEW_N(e->arena, int, t->n_flows + 1);
    out->possible = out->possible && sn_layout_solve(&problem, out->choice[k], out->label[k]);
    sn_arena_free(&e->scratch);
}

// Layouts are chosen for one micro-batch of a usual size: what they move and compute grow alike with it.
static int64_t usual_micro(const sn_evaluator *e) {
    int64_t micro = 8;
    while (e->blocks->batch % micro) micro--;
    return micro;
}

static const solution *find_solution(sn_evaluator *e, int tp, int boundary) {
    for (size_t i = 0; i < e->solutions.count; i++)
        if (e->solutions.data[i].tp == tp && e->solutions.data[i].boundary == boundary) return &e->solutions.data[i];
    solution s = {.tp = tp, .boundary = boundary, .possible = true};
    s.choice = SN_NEW_N(e->arena, int *, e->blocks->n_classes + 1);
    s.label = SN_NEW_N(e->arena, int *, e->blocks->n_classes + 1);
    for (int k = 0; k < e->blocks->n_classes; k++) {
        if (tp > 1) {
            solve_class(e, k, (sn_cut_setting){.tp = tp, .cp = 1, .boundary = boundary, .micro = usual_micro(e)}, &s);
        } else {
            s.choice[k] = SN_NEW_N(e->arena, int, e->tables[k].block->n_groups + 1);
            s.label[k] = SN_NEW_N(e->arena, int, e->tables[k].n_flows + 1);
        }
    }
    sn_vec_push(&e->solutions, s);
    return &sn_vec_last(&e->solutions);
}

// Over cp: what flows with the sequence cut and is read whole is gathered, and its gradient scattered.
static double context_seconds(const sn_evaluator *e, const sn_class_table *t, const int *choice, sn_cut_setting setting,
                              bool backward) {
    if (setting.cp == 1) return 0;
    sn_group ranks = sn_cluster_group(e->cluster, 0, setting.cp, setting.tp);
    double seconds = 0;
    for (int f = 0; f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        for (int r = 0; r < flow->n_readers; r++) {
            int g = flow->readers[r];
            const sn_strategy *list = t->strategies[g].list;
            sn_cut need = sn_strategy_need(&t->block->groups[g], &list[t->context[g]], flow->value);
            if (backward && !flow->differentiable) continue;
            sn_op_kind kind = sn_move_kind(flow->context, need);
            if (kind == SN_OP_COUNT) continue;
            sn_cut cut = sn_strategy_need(&t->block->groups[g], &list[choice[g]], flow->value);
            double bytes = flow_bytes(e, flow, setting) * setting.cp / (cut >= 0 ? setting.tp : 1);
            if (kind == SN_OP_ALL_TO_ALL) bytes /= setting.cp;
            sn_op_kind mirror = kind == SN_OP_ALL_GATHER ? SN_OP_REDUCE_SCATTER : kind;
            seconds += sn_cost_collective(&e->model, backward ? mirror : kind, bytes, &ranks);
        }
    }
    return seconds;
}

// What the backward pass needs of the forward pass. Values are taken in program order; views count as what they view.
typedef struct keeper {
    const sn_block *block;
    uint32_t first, count; // ids of the block's results
    bool *needed;          // by a backward op
    bool *required;        // to compute what is needed again from contractions alone
    bool *available;
} keeper;

static const sn_value *root_of(const sn_value *value) {
    while (value->kind == SN_VALUE_RESULT && sn_op_has(value->def->kind, SN_TRAIT_VIEW) &&
           value->def->phase == SN_PHASE_FORWARD)
        value = value->def->operands[0];
    return value;
}

static bool is_local(const keeper *k, const sn_value *value) {
    return value->kind == SN_VALUE_RESULT && value->id >= k->first && value->id < k->first + k->count &&
           value->def->phase == SN_PHASE_FORWARD;
}

static bool is_leaving(const sn_class_table *t, const sn_value *value) {
    for (int f = 0; f < t->n_flows; f++)
        if (t->flows[f].value == value) return t->flows[f].leaves;
    return false;
}

// What leaves the block is the next one's input, which is there whatever is computed again.
static void find_needed(keeper *k, const sn_class_table *t) {
    const sn_block *block = k->block;
    for (int g = block->n_groups - 1; g >= 0; g--)
        for (int i = block->groups[g].n_forward - 1; i >= 0; i--) {
            const sn_op *op = block->groups[g].forward[i];
            for (int r = 0; r < op->n_results; r++) {
                const sn_value *root = root_of(op->results[r]);
                if (!is_local(k, root)) continue;
                for (size_t u = 0; u < op->results[r]->uses.count; u++)
                    if (op->results[r]->uses.data[u].op->phase == SN_PHASE_BACKWARD)
                        k->needed[root->id - k->first] = k->required[root->id - k->first] = true;
            }
            bool again = false;
            for (int r = 0; r < op->n_results; r++)
                again |= k->required[op->results[r]->id - k->first] && !is_leaving(t, op->results[r]);
            for (int o = 0; again && !sn_block_op_is_heavy(op) && o < op->n_operands; o++) {
                const sn_value *root = root_of(op->operands[o]);
                if (is_local(k, root)) k->required[root->id - k->first] = true;
            }
        }
}

// A pointwise result whose operands are there anyway is made again.
static bool is_made_again(const keeper *k, const sn_op *op) {
    if (!sn_op_has(op->kind, SN_TRAIT_POINTWISE)) return !op->n_operands;
    for (int o = 0; o < op->n_operands; o++) {
        const sn_value *root = root_of(op->operands[o]);
        if (is_local(k, root) && !k->available[root->id - k->first]) return false;
    }
    return true;
}

static keeper keeper_of(sn_evaluator *e, const sn_class_table *t) {
    const sn_op_group *last = &t->block->groups[t->block->n_groups - 1];
    const sn_op *final = last->forward[last->n_forward - 1];
    keeper k = {.block = t->block, .first = t->block->groups[0].forward[0]->results[0]->id};
    k.count = final->results[final->n_results - 1]->id - k.first + 1;
    k.needed = SN_NEW_N(&e->scratch, bool, k.count);
    k.required = SN_NEW_N(&e->scratch, bool, k.count);
    k.available = SN_NEW_N(&e->scratch, bool, k.count);
    find_needed(&k, t);
    return k;
}

static void add_kept(sn_evaluator *e, const sn_class_table *t, const int *choice, sn_cut_setting setting,
                     sn_block_cost *out) {
    keeper k = keeper_of(e, t);
    for (int g = 0; g < t->block->n_groups; g++) {
        sn_group_cut cut = group_cut(e, t, g, choice[g], setting);
        for (int i = 0; i < t->block->groups[g].n_forward; i++) {
            const sn_op *op = t->block->groups[g].forward[i];
            for (int r = 0; r < op->n_results; r++) {
                uint32_t at = op->results[r]->id - k.first;
                if (is_leaving(t, op->results[r])) k.available[at] = true;
                if (k.available[at] || sn_op_has(op->kind, SN_TRAIT_VIEW)) continue;
                double bytes = sn_group_local_bytes(&t->block->groups[g], &cut, i, r);
                if (k.required[at] && sn_block_op_is_heavy(op)) out->kept[SN_REMAT_SELECTIVE] += bytes;
                if (!k.needed[at]) continue;
                k.available[at] = true;
                if (!is_made_again(&k, op)) out->kept[SN_REMAT_NONE] += bytes;
            }
        }
    }
    for (int remat = 0; remat < SN_REMAT_COUNT; remat++) out->kept[remat] += out->input;
}

static double input_bytes(const sn_evaluator *e, const sn_class_table *t, sn_cut_setting setting) {
    double bytes = 0;
    for (int f = 0; f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        if (!flow->follows || flow->producer >= 0) continue;
        sn_cut along = setting.boundary ? flow->boundary : SN_UNCUT;
        bool cut = along >= 0 && flow->value->type.dim[sn_cut_dim(along)] / sn_cut_outer(along) % setting.tp == 0;
        bytes += flow_bytes(e, flow, setting) / (cut ? setting.tp : 1);
    }
    return bytes;
}

static void add_parameters(sn_evaluator *e, const sn_class_table *t, const int *choice, sn_cut_setting setting,
                           sn_block_cost *out) {
    sn_group ranks = tensor_ranks(e, setting);
    for (int p = 0; p < t->block->n_parameters; p++) {
        const sn_parameter_ops *ops = &t->parameters[p];
        const sn_value *value = ops->parameter->value;
        sn_cut dim = setting.tp > 1 ? parameter_cut(t, choice, value) : SN_UNCUT;
        double parts = dim >= 0 ? setting.tp : 1;
        out->parameters += (double)sn_type_bytes(value->type) / parts;
        out->gradients += ops->gradient_bytes / parts;
        out->optimizer += ops->optimizer_bytes / parts;
        out->update += sn_parameter_local_seconds(&e->model, ops->parameter, ops->n_update, ops->update, dim,
                                                  (int64_t)parts, &e->scratch);
        out->backward_weight += sn_parameter_local_seconds(&e->model, ops->parameter, ops->n_accumulate,
                                                           ops->accumulate, dim, (int64_t)parts, &e->scratch);
        if (setting.tp > 1 && dim < 0 && setting.boundary)
            out->reduce += sn_cost_collective(&e->model, SN_OP_ALL_REDUCE, ops->gradient_bytes, &ranks);
    }
}

static void add_moves(sn_evaluator *e, const sn_class_table *t, const solution *s, int k, sn_cut_setting setting,
                      sn_block_cost *out) {
    sn_group ranks = tensor_ranks(e, setting);
    sn_layout_problem problem = layout_problem(e, t, setting, &ranks);
    double forward = context_seconds(e, t, s->choice[k], setting, false);
    double backward = context_seconds(e, t, s->choice[k], setting, true);
    for (int g = 0; setting.tp > 1 && g < t->block->n_groups; g++) {
        const sn_strategy *strategy = &t->strategies[g].list[s->choice[k][g]];
        forward += inner_move_seconds(e, strategy, &ranks, share_of(e, setting), false);
        backward += inner_move_seconds(e, strategy, &ranks, share_of(e, setting), true);
    }
    for (int f = 0; setting.tp > 1 && f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        for (int r = flow->producer >= 0 ? -1 : 0; r < flow->n_readers; r++) {
            int g = r < 0 ? flow->producer : flow->readers[r];
            sn_move_seconds moves =
                sn_flow_moves(&problem, flow, r < 0 ? -1 : g, &t->strategies[g].list[s->choice[k][g]],
                              sn_flow_label_at(flow, s->label[k][f]), problem.bytes[f]);
            forward += moves.forward;
            backward += moves.backward;
        }
    }
    out->forward += forward;
    out->backward_input += backward;
    out->communication += forward + backward;
}

static bool cost_class(sn_evaluator *e, int k, const solution *s, sn_cut_setting setting, sn_block_cost *out) {
    const sn_class_table *t = &e->tables[k];
    double light = 0;
    for (int g = 0; g < t->block->n_groups; g++) {
        sn_group_cut cut = group_cut(e, t, g, s->choice[k][g], setting);
        sn_group_seconds seconds;
        if (!sn_group_local_seconds(&e->model, &t->block->groups[g], t->weight_only[g], &cut, &e->scratch, &seconds))
            return false;
        out->forward += seconds.forward;
        out->backward_input += seconds.backward_input;
        out->backward_weight += seconds.backward_weight;
        light += seconds.light;
        if (seconds.temporary > out->working) out->working = seconds.temporary;
    }
    add_moves(e, t, s, k, setting, out);
    add_parameters(e, t, s->choice[k], setting, out);
    out->input = input_bytes(e, t, setting);
    add_kept(e, t, s->choice[k], setting, out);
    out->again[SN_REMAT_SELECTIVE] = light;
    out->again[SN_REMAT_FULL] = out->forward;
    out->parameters += e->blocks->classes[k].tied_bytes / setting.tp;
    sn_arena_free(&e->scratch);
    return true;
}

static bool setting_equal(sn_cut_setting a, sn_cut_setting b) {
    return a.tp == b.tp && a.cp == b.cp && a.boundary == b.boundary && a.micro == b.micro;
}

const sn_block_cost *sn_evaluator_costs(sn_evaluator *e, sn_cut_setting setting) {
    for (size_t i = 0; i < e->known.count; i++)
        if (setting_equal(e->known.data[i].setting, setting)) return e->known.data[i].costs;
    const solution *s = find_solution(e, setting.tp, setting.boundary);
    sn_block_cost *costs = SN_NEW_N(e->arena, sn_block_cost, e->blocks->n_classes + 1);
    bool good = s->possible && e->blocks->batch % setting.micro == 0 && (setting.cp == 1 || e->has_sequence);
    for (int k = 0; good && k < e->blocks->n_classes; k++) good = cost_class(e, k, s, setting, &costs[k]);
    sn_arena_free(&e->scratch);
    sn_vec_push(&e->known, (known){setting, good ? costs : NULL});
    return good ? costs : NULL;
}

// What a plan's layout of the group's node is about (passes/partition/plan.h).
static const sn_value *first_result(const sn_op_group *group) {
    return group->forward[group->n_forward - 1]->results[0];
}

static void add_layout(sn_plan_layout *list, int *count, const char *name, sn_type type, sn_cut cut,
                       const sn_mesh *mesh, int axis) {
    sn_plan_layout entry = {.name = name, .rank = type.rank};
    if (cut >= 0) sn_layout_add(mesh, &entry.layout, sn_cut_dim(cut), axis, sn_cut_outer(cut));
    list[(*count)++] = entry;
}

// Parameters that are cut, and results between groups whose layout is not what the readers alone would give.
static void block_layouts(const sn_evaluator *e, const sn_block *block, const solution *s, const sn_mesh *mesh,
                          int axis, sn_plan_layout *list, int *count) {
    const sn_class_table *t = &e->tables[block->kind];
    for (int p = 0; p < block->n_parameters; p++) {
        const sn_value *like = t->block->parameters[p]->value;
        sn_cut cut = parameter_cut(t, s->choice[block->kind], like);
        if (cut >= 0) add_layout(list, count, block->parameters[p]->name, like->type, cut, mesh, axis);
    }
    for (int f = 0; f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        if (flow->producer < 0 || flow->value != first_result(&t->block->groups[flow->producer])) continue;
        sn_flow_label label = sn_flow_label_at(flow, s->label[block->kind][f]);
        const sn_strategy *strategy = &t->strategies[flow->producer].list[s->choice[block->kind][flow->producer]];
        sn_cut leaves = sn_strategy_leaves(&t->block->groups[flow->producer], strategy, flow->value);
        if (leaves != SN_PARTIAL_VALUE && label.value < 0) continue;
        add_layout(list, count, block->groups[flow->producer].node, flow->value->type, label.value, mesh, axis);
    }
}

sn_plan_layout *sn_evaluator_layouts(sn_evaluator *e, sn_cut_setting setting, const sn_mesh *mesh, sn_arena *arena,
                                     int *count) {
    int axis = sn_mesh_axis(mesh, "tp"), most = 0;
    const solution *s = find_solution(e, setting.tp, setting.boundary);
    for (int b = 0; b < e->blocks->n_blocks; b++)
        most += e->blocks->blocks[b].n_parameters + e->tables[e->blocks->blocks[b].kind].n_flows;
    sn_plan_layout *list = SN_NEW_N(arena, sn_plan_layout, most + 1);
    *count = 0;
    for (int b = 0; axis >= 0 && b < e->blocks->n_blocks; b++)
        block_layouts(e, &e->blocks->blocks[b], s, mesh, axis, list, count);
    return list;
}

const char *sn_evaluator_choice(sn_evaluator *e, sn_cut_setting setting, int block, int group, sn_arena *arena) {
    const sn_block *b = &e->blocks->blocks[block];
    const sn_class_table *t = &e->tables[b->kind];
    const solution *s = find_solution(e, setting.tp, setting.boundary);
    const sn_strategy *strategy = &t->strategies[group].list[s->choice[b->kind][group]];
    if (setting.tp == 1 || !strategy->cuts) return "whole on each rank of tp";
    const sn_op_group *g = &t->block->groups[group];
    const sn_op *lead = g->forward[g->lead];
    sn_str text = {0};
    sn_str_printf(&text, "%s cut over tp:", sn_op_name(lead->kind));
    for (int o = 0; o < lead->n_operands; o++) {
        sn_cut cut = strategy->forward[g->lead].operand[o];
        if (cut >= 0) sn_str_printf(&text, " operand %d along dim %d,", o, sn_cut_dim(cut));
    }
    sn_cut leaves = strategy->forward[g->lead].result[0];
    if (leaves >= 0) sn_str_printf(&text, " result along dim %d", sn_cut_dim(leaves));
    if (leaves == SN_PARTIAL_VALUE) sn_str_puts(&text, " result a partial sum");
    const char *copy = sn_arena_strdup(arena, sn_str_text(&text));
    sn_str_free(&text);
    return copy;
}
