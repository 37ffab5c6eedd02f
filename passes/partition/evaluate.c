#include "passes/partition/evaluate.h"

#include "passes/partition/evaluate_times.h"

#include <math.h>
#include <string.h>

// The strategies over ep or tp for one degree and layout between blocks, of all classes. Those over tp are solved where
// those over ep are known.
typedef struct solution {
    int axis, size, boundary, experts; // experts: the degree of ep below
    bool possible;
    int **choice, **label; // [class][group], [class][flow]
} solution;

// How all axes cut the classes under a setting.
typedef struct ways {
    sn_cut_setting setting;
    const solution *experts, *tensor;
} ways;

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
    int64_t experts;   // what ep must divide; 0 without stacks of experts
    SN_VEC(solution *) solutions;
    SN_VEC(known) known;
    double *fusion; // [class][2]: see sn_block_fusion; negative: not asked for yet
    sn_times *times, own_times;
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

static bool is_kernel_of_conv(const sn_value *weight) {
    for (size_t u = 0; u < weight->uses.count; u++)
        if (weight->uses.data[u].op->kind == SN_OP_CONV) return true;
    return false;
}

// An expert's weights are one entry of a stack of matrices.
static bool is_stack(const sn_value *weight) {
    return weight->kind == SN_VALUE_GLOBAL && weight->global->role == SN_ROLE_PARAMETER && weight->type.rank == 3 &&
           !is_kernel_of_conv(weight);
}

static int64_t count_experts(const sn_blocks *blocks) {
    int64_t experts = 0;
    for (int b = 0; b < blocks->n_blocks; b++)
        for (int p = 0; p < blocks->blocks[b].n_parameters; p++) {
            const sn_value *weight = blocks->blocks[b].parameters[p]->value;
            int64_t x = experts, y = is_stack(weight) ? weight->type.dim[0] : 0;
            while (y) { // greatest common divisor
                int64_t rest = x % y;
                x = y, y = rest;
            }
            experts = x;
        }
    return experts;
}

sn_evaluator *sn_evaluator_new(const sn_blocks *blocks, const sn_cluster *cluster, const sn_cost_model *model) {
    sn_evaluator *e = SN_NEW(blocks->arena, sn_evaluator);
    *e = (sn_evaluator){.blocks = blocks, .cluster = cluster, .model = *model, .arena = blocks->arena};
    e->times = &e->own_times;
    e->tables = sn_class_tables(blocks);
    e->fusion = SN_NEW_N(e->arena, double, 2 * blocks->n_classes + 1);
    for (int k = 0; k < 2 * blocks->n_classes; k++) e->fusion[k] = -1;
    e->has_sequence = has_sequence(blocks->micro);
    e->experts = count_experts(blocks);
    e->boundaries = 1;
    for (int k = 0; k < blocks->n_classes; k++)
        for (int f = 0; f < e->tables[k].n_flows; f++) {
            const sn_flow *flow = &e->tables[k].flows[f];
            if (flow->boundary >= 0) e->boundaries = 2;
        }
    return e;
}

sn_evaluator *sn_evaluator_behind(const sn_evaluator *like, const sn_cluster *cluster) {
    sn_evaluator *e = SN_NEW(like->arena, sn_evaluator);
    *e = *like;
    e->cluster = cluster;
    e->own_times = (sn_times){0}; // of `like`
    e->scratch = (sn_arena){0};
    memset(&e->solutions, 0, sizeof e->solutions);
    memset(&e->known, 0, sizeof e->known);
    return e;
}

void sn_evaluator_free(sn_evaluator *e) {
    sn_times_free(&e->own_times);
    sn_arena_free(&e->scratch);
    sn_vec_free(&e->solutions);
    sn_vec_free(&e->known);
}

int sn_evaluator_boundaries(const sn_evaluator *e) {
    return e->boundaries;
}

int64_t sn_evaluator_experts(const sn_evaluator *e) {
    return e->experts;
}

static int64_t parts_of(const sn_evaluator *e, sn_cut_setting setting, int axis) {
    const int64_t parts[SN_AXIS_KINDS] = {[SN_DATA_AXIS] = e->blocks->batch / setting.micro,
                                          [SN_CONTEXT_AXIS] = setting.cp,
                                          [SN_EXPERT_AXIS] = setting.ep,
                                          [SN_TENSOR_AXIS] = setting.tp};
    return parts[axis];
}

// Ranks of the axes: tp innermost, then cp, then ep.
static sn_group ranks_of(const sn_evaluator *e, sn_cut_setting setting, int axis) {
    int64_t stride = axis == SN_TENSOR_AXIS ? 1 : axis == SN_CONTEXT_AXIS ? setting.tp : setting.tp * setting.cp;
    return sn_cluster_group(e->cluster, 0, parts_of(e, setting, axis), stride);
}

static const sn_strategy *chosen(const sn_class_table *t, const ways *w, int axis, int g) {
    int k = t->block->kind;
    int choice = axis == SN_DATA_AXIS      ? t->data[g]
                 : axis == SN_CONTEXT_AXIS ? t->context[g]
                                           : (axis == SN_EXPERT_AXIS ? w->experts : w->tensor)->choice[k][g];
    return &t->strategies[g].list[choice];
}

static sn_group_cut group_cut(const sn_evaluator *e, const sn_class_table *t, int g, const ways *w) {
    sn_group_cut cut;
    for (int a = 0; a < SN_AXIS_KINDS; a++) {
        cut.strategy[a] = chosen(t, w, a, g);
        cut.parts[a] = parts_of(e, w->setting, a);
    }
    return cut;
}

static sn_cut flow_cut(const sn_class_table *t, int f, const ways *w, int axis) {
    const sn_flow *flow = &t->flows[f];
    if (axis == SN_DATA_AXIS) return flow->data;
    if (axis == SN_CONTEXT_AXIS) return flow->context;
    return sn_flow_label_at(flow, (axis == SN_EXPERT_AXIS ? w->experts : w->tensor)->label[t->block->kind][f]).value;
}

// What a rank holds of a flow where these axes cut it: 1 << axis.
static double flow_bytes(const sn_evaluator *e, const sn_class_table *t, int f, const ways *w, unsigned axes) {
    double bytes = (double)sn_type_bytes(t->flows[f].value->type);
    for (int a = 0; a < SN_AXIS_KINDS; a++)
        if (axes >> a & 1 && flow_cut(t, f, w, a) >= 0) bytes /= (double)parts_of(e, w->setting, a);
    return bytes;
}

enum { ALL_AXES = (1 << SN_AXIS_KINDS) - 1 };

static sn_layout_problem layout_problem(sn_evaluator *e, const sn_class_table *t, const ways *w, int axis,
                                        const sn_group *ranks) {
    double *bytes = SN_NEW_N(&e->scratch, double, t->n_flows + 1);
    for (int f = 0; f < t->n_flows; f++) bytes[f] = flow_bytes(e, t, f, w, ALL_AXES & ~(1u << axis));
    return (sn_layout_problem){.table = t,
                               .model = &e->model,
                               .ranks = ranks,
                               .boundary = axis == SN_EXPERT_AXIS    ? SN_BOUNDARY_SAMPLES
                                           : w->setting.boundary > 0 ? SN_BOUNDARY_SEQUENCE
                                                                     : SN_BOUNDARY_WHOLE,
                               .bytes = bytes};
}

// How a strategy cuts what an op of the group makes.
static sn_cut cut_inside(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value) {
    for (int side = 0; side < 2 && value->kind == SN_VALUE_RESULT; side++)
        for (int i = 0; i < (side ? group->n_backward : group->n_forward); i++)
            if ((side ? group->backward : group->forward)[i] == value->def)
                return (side ? strategy->backward : strategy->forward)[i].result[value->index];
    return SN_UNCUT;
}

static double inner_move_seconds(const sn_evaluator *e, const sn_op_group *group, const sn_group_cut *cut, int axis,
                                 const sn_group *ranks, bool backward) {
    const sn_strategy *strategy = cut->strategy[axis];
    double seconds = 0;
    for (int m = 0; m < strategy->n_moves; m++) {
        const sn_inner_move *move = &strategy->moves[m];
        sn_op_kind kind = sn_move_kind(move->from, move->to);
        if (move->backward != backward || kind == SN_OP_COUNT) continue;
        double bytes = (double)sn_type_bytes(move->value->type);
        for (int a = 0; a < SN_AXIS_KINDS; a++)
            if (a != axis && cut_inside(group, cut->strategy[a], move->value) >= 0) bytes /= (double)cut->parts[a];
        if (kind == SN_OP_ALL_TO_ALL) bytes /= (double)ranks->ranks;
        seconds += sn_cost_collective(&e->model, kind, bytes, ranks);
    }
    return seconds;
}

static bool is_read_by(const sn_op_group *group, const sn_value *value, bool backward) {
    for (int i = 0; i < (backward ? group->n_backward : group->n_forward); i++) {
        const sn_op *op = backward ? group->backward[i] : group->forward[i];
        for (int o = 0; o < op->n_operands; o++)
            if (op->operands[o] == value) return true;
    }
    return false;
}

// Experts that a group reads whole are gathered for it, in each pass that reads them; their gradient is scattered.
static double gather_seconds(const sn_evaluator *e, const sn_class_table *t, int g, const sn_group_cut *cut,
                             const sn_group *ranks, bool backward) {
    const sn_op_group *group = &t->block->groups[g];
    double seconds = 0;
    for (int p = 0; p < t->block->n_parameters; p++) {
        const sn_value *value = t->block->parameters[p]->value;
        if (!is_stack(value) || !is_read_by(group, value, false)) continue;
        if (sn_strategy_need(group, cut->strategy[SN_EXPERT_AXIS], value) >= 0) continue;
        bool parted = sn_strategy_need(group, cut->strategy[SN_TENSOR_AXIS], value) >= 0;
        double bytes = (double)sn_type_bytes(value->type) / (double)(parted ? cut->parts[SN_TENSOR_AXIS] : 1);
        if (!backward || is_read_by(group, value, true))
            seconds += sn_cost_collective(&e->model, SN_OP_ALL_GATHER, bytes, ranks);
        if (backward) seconds += sn_cost_collective(&e->model, SN_OP_REDUCE_SCATTER, bytes, ranks);
    }
    return seconds;
}

static sn_cut parameter_cut(const sn_class_table *t, const ways *w, int axis, const sn_value *value) {
    if (axis == SN_EXPERT_AXIS) return w->setting.ep > 1 && is_stack(value) ? sn_cut_make(0, 1) : SN_UNCUT;
    for (int g = 0; axis == SN_TENSOR_AXIS && w->setting.tp > 1 && g < t->block->n_groups; g++) {
        sn_cut need = sn_strategy_need(&t->block->groups[g], chosen(t, w, axis, g), value);
        if (need >= 0) return need;
    }
    return SN_UNCUT;
}

// A little for each byte of parameters that a strategy leaves whole: of two ways that are as fast the smaller is taken.
static double kept_seconds(const sn_evaluator *e, const sn_class_table *t, int g, const sn_strategy *strategy, int tp) {
    double seconds = 0;
    for (int p = 0; p < t->block->n_parameters; p++) {
        const sn_value *value = t->block->parameters[p]->value;
        if (!is_read_by(&t->block->groups[g], value, false)) continue;
        double parts = sn_strategy_need(&t->block->groups[g], strategy, value) >= 0 ? tp : 1;
        seconds += 2 * (double)sn_type_bytes(value->type) / parts / e->model.device->memory_bandwidth;
    }
    return seconds;
}

// Over ep only stacks are cut, along the experts; the samples are dp's, and tp leaves them alone.
static bool is_open(const sn_class_table *t, int g, int s, int axis) {
    if (axis == SN_TENSOR_AXIS) return s == 0 || s != t->data[g];
    const sn_op_group *group = &t->block->groups[g];
    for (int i = 0; i < group->n_forward; i++)
        for (int o = 0; o < group->forward[i]->n_operands; o++) {
            const sn_value *value = group->forward[i]->operands[o];
            bool weight = value->kind == SN_VALUE_GLOBAL && value->global->role == SN_ROLE_PARAMETER;
            sn_cut cut = t->strategies[g].list[s].forward[i].operand[o];
            if (weight && cut >= 0 && (!is_stack(value) || cut != sn_cut_make(0, 1))) return false;
        }
    return true;
}

// A strategy's seconds in the network: its ops and its inner moves.
static double strategy_seconds(sn_evaluator *e, const sn_class_table *t, int g, int s, const ways *w, int axis,
                               const sn_group *ranks) {
    const sn_op_group *group = &t->block->groups[g];
    sn_group_cut cut = group_cut(e, t, g, w);
    sn_group_seconds seconds;
    cut.strategy[axis] = &t->strategies[g].list[s];
    if (!is_open(t, g, s, axis) ||
        !sn_times_group(e->times, &e->model, group, t->weight_only[g], &cut, &e->scratch, &seconds))
        return INFINITY;
    double total = seconds.forward + seconds.backward_input + seconds.backward_weight;
    for (int side = 0; side < 2; side++) {
        total += inner_move_seconds(e, group, &cut, axis, ranks, side);
        if (axis == SN_EXPERT_AXIS) total += gather_seconds(e, t, g, &cut, ranks, side);
    }
    if (axis == SN_TENSOR_AXIS) total += kept_seconds(e, t, g, cut.strategy[axis], w->setting.tp);
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

static void solve_class(sn_evaluator *e, int k, const ways *w, int axis, solution *out) {
    const sn_class_table *t = &e->tables[k];
    sn_group ranks = ranks_of(e, w->setting, axis);
    sn_layout_problem problem = layout_problem(e, t, w, axis, &ranks);
    problem.seconds = SN_NEW_N(&e->scratch, double *, t->block->n_groups + 1);
    for (int g = 0; g < t->block->n_groups; g++) {
        problem.seconds[g] = SN_NEW_N(&e->scratch, double, t->strategies[g].n);
        for (int s = 0; s < t->strategies[g].n; s++)
            problem.seconds[g][s] = strategy_seconds(e, t, g, s, w, axis, &ranks);
        if (axis == SN_TENSOR_AXIS) forbid_whole_matrices(t, g, problem.seconds[g]);
    }
    out->possible = out->possible && sn_layout_solve(&problem, out->choice[k], out->label[k]);
    sn_arena_free(&e->scratch);
}

// Layouts are chosen for one micro-batch of a usual size, which ep divides: what they move and compute grow alike with
// it.
static int64_t usual_micro(const sn_evaluator *e, int ep) {
    int64_t micro = 8 * ep < e->blocks->batch ? 8 * ep : e->blocks->batch;
    while (micro > 1 && (e->blocks->batch % micro || micro % ep)) micro--;
    return micro;
}

static solution *new_solution(sn_evaluator *e, int axis, int size, int boundary, int experts) {
    solution *s = SN_NEW(e->arena, solution);
    *s = (solution){.axis = axis, .size = size, .boundary = boundary, .experts = experts, .possible = true};
    s->choice = SN_NEW_N(e->arena, int *, e->blocks->n_classes + 1);
    s->label = SN_NEW_N(e->arena, int *, e->blocks->n_classes + 1);
    for (int k = 0; k < e->blocks->n_classes; k++) { // nothing is cut
        s->choice[k] = SN_NEW_N(e->arena, int, e->tables[k].block->n_groups + 1);
        s->label[k] = SN_NEW_N(e->arena, int, e->tables[k].n_flows + 1);
    }
    sn_vec_push(&e->solutions, s);
    return s;
}

static const solution *find_solution(sn_evaluator *e, int axis, int size, int boundary, int experts) {
    if (size == 1) boundary = experts = 1;
    for (size_t i = 0; i < e->solutions.count; i++) {
        const solution *s = e->solutions.data[i];
        if (s->axis == axis && s->size == size && s->boundary == boundary && s->experts == experts) return s;
    }
    solution *s = new_solution(e, axis, size, boundary, experts);
    if (size == 1) return s;
    bool tensor = axis == SN_TENSOR_AXIS;
    int ep = tensor ? experts : size;
    ways w = {.setting = {.tp = tensor ? size : 1, .cp = 1, .ep = ep, .boundary = boundary}};
    w.setting.micro = usual_micro(e, ep);
    w.experts = find_solution(e, SN_EXPERT_AXIS, tensor ? ep : 1, 0, 1);
    w.tensor = find_solution(e, SN_TENSOR_AXIS, 1, 0, 1);
    s->possible = w.experts->possible;
    for (int k = 0; k < e->blocks->n_classes && s->possible; k++) solve_class(e, k, &w, axis, s);
    return s;
}

static ways ways_of(sn_evaluator *e, sn_cut_setting setting) {
    return (ways){.setting = setting,
                  .experts = find_solution(e, SN_EXPERT_AXIS, setting.ep, 0, 1),
                  .tensor = find_solution(e, SN_TENSOR_AXIS, setting.tp, setting.boundary, setting.ep)};
}

// Over cp: what flows with the sequence cut and is read whole is gathered, and its gradient scattered.
static double context_seconds(const sn_evaluator *e, const sn_class_table *t, const ways *w, bool backward) {
    if (w->setting.cp == 1) return 0;
    sn_group ranks = ranks_of(e, w->setting, SN_CONTEXT_AXIS);
    double seconds = 0;
    for (int f = 0; f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        for (int r = 0; r < flow->n_readers; r++) {
            int g = flow->readers[r];
            const sn_op_group *group = &t->block->groups[g];
            sn_cut need = sn_strategy_need(group, chosen(t, w, SN_CONTEXT_AXIS, g), flow->value);
            if (backward && !flow->differentiable) continue;
            sn_op_kind kind = sn_move_kind(flow->context, need);
            if (kind == SN_OP_COUNT) continue;
            sn_cut cut = sn_strategy_need(group, chosen(t, w, SN_TENSOR_AXIS, g), flow->value);
            double bytes = flow_bytes(e, t, f, w, 1u << SN_DATA_AXIS | 1u << SN_EXPERT_AXIS);
            if (cut >= 0) bytes /= w->setting.tp;
            if (kind == SN_OP_ALL_TO_ALL) bytes /= w->setting.cp;
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
    bool *held; // without rematerialisation
    bool *late; // of these, what the gradients of parameters are made of
    bool late_input;
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
    k.held = SN_NEW_N(&e->scratch, bool, k.count);
    k.late = SN_NEW_N(&e->scratch, bool, k.count);
    find_needed(&k, t);
    return k;
}

static const sn_value *viewed(const sn_value *value) {
    while (value->kind == SN_VALUE_RESULT && sn_op_has(value->def->kind, SN_TRAIT_VIEW))
        value = value->def->operands[0];
    return value;
}

static bool is_of_weights(const sn_class_table *t, const sn_op *op) {
    for (int g = 0; g < t->block->n_groups; g++)
        for (int i = 0; i < t->block->groups[g].n_backward; i++)
            if (t->block->groups[g].backward[i] == op) return t->weight_only[g][i];
    return false;
}

// Where the gradients of parameters are a pass of their own, what they are made of waits for it: gradients of results,
// and what the pass before it computed again.
static void add_waiting(const sn_class_table *t, const keeper *k, const sn_value *value, double bytes,
                        sn_block_cost *out) {
    bool backward = value->kind == SN_VALUE_RESULT && value->def->phase == SN_PHASE_BACKWARD;
    if (backward && is_of_weights(t, value->def)) return;
    if (!backward && (!is_local(k, value) || is_leaving(t, value))) return;
    bool product = !backward && sn_block_op_is_heavy(value->def);
    if (backward) out->activations[SN_REMAT_NONE].waiting += bytes;
    if (backward || (k->held[value->id - k->first] && !product)) out->activations[SN_REMAT_SELECTIVE].waiting += bytes;
    out->activations[SN_REMAT_FULL].waiting += bytes;
}

// What is held of a value that the pass of the weights' gradients reads: itself, or what it is made again from.
static void find_late(keeper *k, const sn_class_table *t, const sn_value *value) {
    value = root_of(value);
    if (!is_local(k, value)) {
        k->late_input |= value->kind == SN_VALUE_RESULT && value->def->phase == SN_PHASE_FORWARD;
        return;
    }
    bool *late = &k->late[value->id - k->first];
    if (*late || is_leaving(t, value)) return;
    *late = true;
    for (int o = 0; !k->held[value->id - k->first] && o < value->def->n_operands; o++)
        find_late(k, t, value->def->operands[o]);
}

static void find_waiting(sn_evaluator *e, const sn_class_table *t, const ways *w, keeper *k, sn_block_cost *out) {
    SN_VEC(const sn_value *) seen = {0};
    for (int g = 0; g < t->block->n_groups; g++) {
        const sn_op_group *group = &t->block->groups[g];
        sn_group_cut cut = group_cut(e, t, g, w);
        for (int i = 0; i < group->n_backward; i++)
            for (int o = 0; t->weight_only[g][i] && o < group->backward[i]->n_operands; o++) {
                const sn_value *root = viewed(group->backward[i]->operands[o]);
                bool is_new = true;
                for (size_t v = 0; v < seen.count; v++) is_new &= seen.data[v] != root;
                if (!is_new) continue;
                sn_vec_push(&seen, root);
                find_late(k, t, root);
                add_waiting(t, k, root, sn_group_operand_bytes(group, &cut, i, o), out);
            }
    }
    sn_vec_free(&seen);
}

static void add_late(sn_evaluator *e, const sn_class_table *t, const ways *w, const keeper *k, sn_block_cost *out) {
    for (int g = 0; g < t->block->n_groups; g++) {
        sn_group_cut cut = group_cut(e, t, g, w);
        for (int i = 0; i < t->block->groups[g].n_forward; i++) {
            const sn_op *op = t->block->groups[g].forward[i];
            for (int r = 0; r < op->n_results; r++) {
                uint32_t at = op->results[r]->id - k->first;
                if (!k->late[at]) continue;
                double bytes = sn_group_local_bytes(&t->block->groups[g], &cut, i, r);
                if (k->held[at]) out->activations[SN_REMAT_NONE].late += bytes;
                if (k->required[at] && sn_block_op_is_heavy(op)) out->activations[SN_REMAT_SELECTIVE].late += bytes;
            }
        }
    }
}

static void add_kept(sn_evaluator *e, const sn_class_table *t, const ways *w, sn_block_cost *out) {
    keeper k = keeper_of(e, t);
    for (int g = 0; g < t->block->n_groups; g++) {
        sn_group_cut cut = group_cut(e, t, g, w);
        for (int i = 0; i < t->block->groups[g].n_forward; i++) {
            const sn_op *op = t->block->groups[g].forward[i];
            for (int r = 0; r < op->n_results; r++) {
                uint32_t at = op->results[r]->id - k.first;
                if (is_leaving(t, op->results[r])) k.available[at] = true;
                if (k.available[at] || sn_op_has(op->kind, SN_TRAIT_VIEW)) continue;
                double bytes = sn_group_local_bytes(&t->block->groups[g], &cut, i, r);
                if (k.required[at] && sn_block_op_is_heavy(op)) out->activations[SN_REMAT_SELECTIVE].kept += bytes;
                if (!k.needed[at]) continue;
                k.available[at] = true;
                k.held[at] = !is_made_again(&k, op);
                if (k.held[at]) out->activations[SN_REMAT_NONE].kept += bytes;
            }
        }
    }
    find_waiting(e, t, w, &k, out);
    add_late(e, t, w, &k, out);
    for (int remat = 0; remat < SN_REMAT_COUNT; remat++) {
        out->activations[remat].kept += out->input;
        if (k.late_input) out->activations[remat].late += out->input;
    }
}

// Full rematerialisation begins at the block's input: the groups that lead to something that the backward pass needs
// run again. What leads to the next block's input alone does not, which is kept.
static double again_seconds(sn_evaluator *e, const sn_class_table *t, const double *group_seconds) {
    keeper k = keeper_of(e, t);
    double seconds = 0;
    for (int g = t->block->n_groups - 1; g >= 0; g--) {
        bool any = false;
        for (int i = t->block->groups[g].n_forward - 1; i >= 0; i--) {
            const sn_op *op = t->block->groups[g].forward[i];
            bool again = false;
            for (int r = 0; r < op->n_results; r++) {
                const sn_value *root = root_of(op->results[r]);
                if (is_local(&k, root)) again |= k.needed[root->id - k.first] && !is_leaving(t, op->results[r]);
            }
            any |= again;
            for (int o = 0; again && o < op->n_operands; o++) {
                const sn_value *root = root_of(op->operands[o]);
                if (is_local(&k, root)) k.needed[root->id - k.first] = true;
            }
        }
        if (any) seconds += group_seconds[g];
    }
    return seconds;
}

static double input_bytes(const sn_evaluator *e, const sn_class_table *t, const ways *w) {
    double bytes = 0;
    for (int f = 0; f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        if (!flow->follows || flow->producer >= 0) continue;
        sn_cut along = w->setting.boundary ? flow->boundary : SN_UNCUT;
        int64_t size = along >= 0 ? flow->value->type.dim[sn_cut_dim(along)] / sn_cut_outer(along) : 0;
        bool cut = along >= 0 && size % w->setting.tp == 0;
        bytes += flow_bytes(e, t, f, w, ALL_AXES & ~(1u << SN_TENSOR_AXIS)) / (cut ? w->setting.tp : 1);
    }
    return bytes;
}

static void add_parameters(sn_evaluator *e, const sn_class_table *t, const ways *w, sn_block_cost *out) {
    sn_group ranks = ranks_of(e, w->setting, SN_TENSOR_AXIS);
    for (int p = 0; p < t->block->n_parameters; p++) {
        const sn_parameter_ops *ops = &t->parameters[p];
        const sn_value *value = ops->parameter->value;
        sn_cut cuts[SN_AXIS_KINDS];
        int64_t axis_parts[SN_AXIS_KINDS];
        double parts = 1;
        for (int a = 0; a < SN_AXIS_KINDS; a++) {
            cuts[a] = parameter_cut(t, w, a, value);
            axis_parts[a] = cuts[a] >= 0 ? parts_of(e, w->setting, a) : 1;
            parts *= (double)axis_parts[a];
        }
        out->parameters += (double)sn_type_bytes(value->type) / parts;
        out->gradients += ops->gradient_bytes / parts;
        if (cuts[SN_EXPERT_AXIS] < 0) out->shared += ops->gradient_bytes / parts;
        out->optimizer += ops->optimizer_bytes / parts;
        out->update += sn_times_parameter(e->times, &e->model, ops->parameter, ops->n_update, ops->update, cuts,
                                          axis_parts, &e->scratch);
        out->backward_weight += sn_times_parameter(e->times, &e->model, ops->parameter, ops->n_accumulate,
                                                   ops->accumulate, cuts, axis_parts, &e->scratch);
        if (w->setting.tp > 1 && cuts[SN_TENSOR_AXIS] < 0 && w->setting.boundary)
            out->reduce += sn_cost_collective(&e->model, SN_OP_ALL_REDUCE,
                                              ops->gradient_bytes / (double)axis_parts[SN_EXPERT_AXIS], &ranks);
    }
}

// Over ep or tp: inside of groups, and between them.
static sn_move_seconds axis_seconds(sn_evaluator *e, const sn_class_table *t, const ways *w, int axis) {
    sn_move_seconds sum = {0};
    if (parts_of(e, w->setting, axis) == 1) return sum;
    sn_group ranks = ranks_of(e, w->setting, axis);
    sn_layout_problem problem = layout_problem(e, t, w, axis, &ranks);
    const solution *s = axis == SN_EXPERT_AXIS ? w->experts : w->tensor;
    for (int g = 0; g < t->block->n_groups; g++) {
        sn_group_cut cut = group_cut(e, t, g, w);
        for (int side = 0; side < 2; side++) {
            double seconds = inner_move_seconds(e, &t->block->groups[g], &cut, axis, &ranks, side);
            if (axis == SN_EXPERT_AXIS) seconds += gather_seconds(e, t, g, &cut, &ranks, side);
            *(side ? &sum.backward : &sum.forward) += seconds;
        }
    }
    for (int f = 0; f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        for (int r = flow->producer >= 0 ? -1 : 0; r < flow->n_readers; r++) {
            int g = r < 0 ? flow->producer : flow->readers[r];
            sn_flow_label label = sn_flow_label_at(flow, s->label[t->block->kind][f]);
            sn_move_seconds moves =
                sn_flow_moves(&problem, flow, r < 0 ? -1 : g, chosen(t, w, axis, g), label, problem.bytes[f]);
            sum.forward += moves.forward;
            sum.backward += moves.backward;
        }
    }
    return sum;
}

static void add_moves(sn_evaluator *e, const sn_class_table *t, const ways *w, sn_block_cost *out) {
    double forward = context_seconds(e, t, w, false), backward = context_seconds(e, t, w, true);
    for (int axis = SN_EXPERT_AXIS; axis <= SN_TENSOR_AXIS; axis++) {
        sn_move_seconds moves = axis_seconds(e, t, w, axis);
        forward += moves.forward;
        backward += moves.backward;
    }
    out->forward += forward;
    out->backward_input += backward;
    out->communication += forward + backward;
}

// Of a usual micro-batch that only dp cuts: how kernels are joined depends little on the shapes.
static const double *fusion_of(sn_evaluator *e, int k) {
    const sn_class_table *t = &e->tables[k];
    double *share = &e->fusion[2 * k];
    if (share[0] >= 0) return share;
    sn_cut_setting setting = {.tp = 1, .cp = 1, .ep = 1, .micro = usual_micro(e, 1)};
    ways w = ways_of(e, setting);
    sn_group_cut *cuts = SN_NEW_N(&e->scratch, sn_group_cut, t->block->n_groups + 1);
    for (int g = 0; g < t->block->n_groups; g++) cuts[g] = group_cut(e, t, g, &w);
    sn_block_fusion(&e->model, t->block, t->weight_only, cuts, &e->scratch, share);
    sn_arena_free(&e->scratch);
    return share;
}

static bool cost_class(sn_evaluator *e, int k, const ways *w, sn_block_cost *out) {
    const sn_class_table *t = &e->tables[k];
    const double *fusion = fusion_of(e, k);
    double light = 0, *group_seconds = SN_NEW_N(&e->scratch, double, t->block->n_groups + 1);
    for (int g = 0; g < t->block->n_groups; g++) {
        sn_group_cut cut = group_cut(e, t, g, w);
        sn_group_seconds seconds;
        if (!sn_times_group(e->times, &e->model, &t->block->groups[g], t->weight_only[g], &cut, &e->scratch, &seconds))
            return false;
        group_seconds[g] = seconds.forward + (fusion[0] - 1) * seconds.light[0];
        out->forward += group_seconds[g];
        out->backward_input += seconds.backward_input + (fusion[1] - 1) * seconds.light[1];
        out->backward_weight += seconds.backward_weight + (fusion[1] - 1) * seconds.light[2];
        light += fusion[0] * seconds.light[0];
        if (seconds.temporary > out->working) out->working = seconds.temporary;
    }
    double computed = out->forward;
    add_moves(e, t, w, out);
    add_parameters(e, t, w, out);
    out->input = input_bytes(e, t, w);
    add_kept(e, t, w, out);
    out->again[SN_REMAT_FULL] = again_seconds(e, t, group_seconds) + out->forward - computed;
    out->again[SN_REMAT_SELECTIVE] = fmin(light, out->again[SN_REMAT_FULL]);
    out->parameters += e->blocks->classes[k].tied_bytes / w->setting.tp;
    sn_arena_free(&e->scratch);
    return true;
}

static bool setting_equal(sn_cut_setting a, sn_cut_setting b) {
    return a.tp == b.tp && a.cp == b.cp && a.ep == b.ep && a.boundary == b.boundary && a.micro == b.micro;
}

const sn_block_cost *sn_evaluator_costs(sn_evaluator *e, sn_cut_setting setting) {
    for (size_t i = 0; i < e->known.count; i++)
        if (setting_equal(e->known.data[i].setting, setting)) return e->known.data[i].costs;
    ways w = ways_of(e, setting);
    sn_block_cost *costs = SN_NEW_N(e->arena, sn_block_cost, e->blocks->n_classes + 1);
    bool good = w.tensor->possible && w.experts->possible && e->blocks->batch % setting.micro == 0 &&
                setting.micro % setting.ep == 0 && (setting.cp == 1 || e->has_sequence) &&
                (setting.ep == 1 || (e->experts && e->experts % setting.ep == 0));
    for (int k = 0; good && k < e->blocks->n_classes; k++) good = cost_class(e, k, &w, &costs[k]);
    sn_arena_free(&e->scratch);
    sn_vec_push(&e->known, (known){setting, good ? costs : NULL});
    return good ? costs : NULL;
}

// What a plan's layout of the group's node is about (passes/partition/plan.h).
static const sn_value *first_result(const sn_op_group *group) {
    return group->forward[group->n_forward - 1]->results[0];
}

// The axes of a mesh by which layouts are stated; -1: the mesh does not have it.
typedef struct named_axes {
    const sn_mesh *mesh;
    int of[SN_AXIS_KINDS];
} named_axes;

// Inside of what an axis before it cuts at the same place.
static void put_cut(const named_axes *axes, int axis, sn_cut cut, sn_plan_layout *entry) {
    if (cut < 0 || axes->of[axis] < 0) return;
    int64_t outer = sn_cut_outer(cut), outers[SN_MAX_AXES];
    int dim = sn_cut_dim(cut), order[SN_MAX_AXES];
    int n = sn_layout_order(axes->mesh, entry->layout, dim, order);
    sn_layout_outers(axes->mesh, entry->layout, dim, outers);
    for (int i = 0; i < n; i++) {
        int64_t end = outers[order[i]] * axes->mesh->size[order[i]];
        if (outer >= outers[order[i]] && outer < end) outer = end;
    }
    sn_layout_add(axes->mesh, &entry->layout, dim, axes->of[axis], outer);
}

// Whether a result's layout over an axis is not what the readers alone would give it. What the axes of the data cut
// stays cut.
static bool is_stated(const sn_class_table *t, const ways *w, int axis, int f) {
    const sn_flow *flow = &t->flows[f];
    const sn_strategy *strategy = chosen(t, w, axis, flow->producer);
    sn_cut cut = flow_cut(t, f, w, axis);
    sn_cut leaves = sn_strategy_leaves(&t->block->groups[flow->producer], strategy, flow->value);
    if (axis == SN_EXPERT_AXIS && cut == flow->data && leaves == cut) return false;
    return leaves == SN_PARTIAL_VALUE || cut >= 0;
}

// Rows of merged samples and tokens have the samples outermost: those of one micro-batch of all ranks, in the program
// that the plan is for.
static sn_cut cut_of_program(const sn_evaluator *e, sn_type type, sn_cut cut, int64_t samples) {
    int64_t batch = e->blocks->batch;
    bool merged = cut >= 0 && sn_cut_dim(cut) == 0 && type.dim[0] > batch && sn_cut_outer(cut) % batch == 0;
    return merged ? sn_cut_make(0, sn_cut_outer(cut) / batch * samples) : cut;
}

// Parameters that are cut, and results between groups whose layout must be said.
static void block_layouts(const sn_evaluator *e, const sn_block *block, const ways *w, const named_axes *axes,
                          int64_t samples, sn_plan_layout *list, int *count) {
    const sn_class_table *t = &e->tables[block->kind];
    for (int p = 0; p < block->n_parameters; p++) {
        const sn_value *like = t->block->parameters[p]->value;
        sn_plan_layout entry = {.name = block->parameters[p]->name, .rank = like->type.rank};
        for (int a = SN_EXPERT_AXIS; a <= SN_TENSOR_AXIS; a++) put_cut(axes, a, parameter_cut(t, w, a, like), &entry);
        if (sn_layout_axes(entry.layout)) list[(*count)++] = entry;
    }
    for (int f = 0; f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        if (flow->producer < 0 || flow->value != first_result(&t->block->groups[flow->producer])) continue;
        sn_plan_layout entry = {.name = block->groups[flow->producer].node, .rank = flow->value->type.rank};
        bool stated = false;
        for (int a = SN_EXPERT_AXIS; a <= SN_TENSOR_AXIS; a++) {
            if (axes->of[a] < 0) continue;
            stated |= is_stated(t, w, a, f);
            put_cut(axes, a, cut_of_program(e, flow->value->type, flow_cut(t, f, w, a), samples), &entry);
        }
        if (stated) list[(*count)++] = entry;
    }
}

sn_plan_layout *sn_evaluator_layouts(sn_evaluator *e, sn_cut_setting setting, const sn_mesh *mesh, sn_arena *arena,
                                     int *count) {
    named_axes axes = {mesh, {-1, -1, -1, -1}};
    axes.of[SN_EXPERT_AXIS] = sn_mesh_axis(mesh, "ep");
    axes.of[SN_TENSOR_AXIS] = sn_mesh_axis(mesh, "tp");
    ways w = ways_of(e, setting);
    int most = 0;
    for (int b = 0; b < e->blocks->n_blocks; b++)
        most += e->blocks->blocks[b].n_parameters + e->tables[e->blocks->blocks[b].kind].n_flows;
    sn_plan_layout *list = SN_NEW_N(arena, sn_plan_layout, most + 1);
    *count = 0;
    int dp = sn_mesh_axis(mesh, "dp");
    int64_t samples = setting.micro * (dp >= 0 ? mesh->size[dp] : 1);
    for (int b = 0; b < e->blocks->n_blocks; b++)
        block_layouts(e, &e->blocks->blocks[b], &w, &axes, samples, list, count);
    return list;
}

static void describe_cut(const sn_op_group *group, const sn_strategy *strategy, const char *axis, sn_str *text) {
    int at = group->lead < 0 ? group->n_forward - 1 : group->lead; // without a lead it follows its neighbours
    const sn_op *lead = group->forward[at];
    sn_str_printf(text, "%s%s cut over %s:", text->length ? "; " : "", sn_op_name(lead->kind), axis);
    for (int o = 0; o < lead->n_operands; o++) {
        sn_cut cut = strategy->forward[at].operand[o];
        if (cut >= 0) sn_str_printf(text, " operand %d along dim %d,", o, sn_cut_dim(cut));
    }
    sn_cut leaves = strategy->forward[at].result[0];
    if (leaves >= 0) sn_str_printf(text, " result along dim %d", sn_cut_dim(leaves));
    if (leaves == SN_PARTIAL_VALUE) sn_str_puts(text, " result a partial sum");
}

const char *sn_evaluator_choice(sn_evaluator *e, sn_cut_setting setting, int block, int group, sn_arena *arena) {
    const sn_class_table *t = &e->tables[e->blocks->blocks[block].kind];
    const sn_op_group *g = &t->block->groups[group];
    ways w = ways_of(e, setting);
    const sn_strategy *tensor = chosen(t, &w, SN_TENSOR_AXIS, group), *experts = chosen(t, &w, SN_EXPERT_AXIS, group);
    sn_str text = {0};
    if (setting.tp > 1 && tensor->cuts) describe_cut(g, tensor, "tp", &text);
    if (setting.ep > 1 && experts->cuts) describe_cut(g, experts, "ep", &text);
    const char *copy = text.length ? sn_arena_strdup(arena, sn_str_text(&text)) : "whole on each rank of tp";
    sn_str_free(&text);
    return copy;
}
