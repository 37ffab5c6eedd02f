#include "passes/partition/evaluate.h"

#include "passes/partition/evaluate_kept.h"
#include "passes/partition/evaluate_model.h"
#include "passes/partition/evaluate_tensors.h"
#include "passes/partition/evaluate_times.h"
#include "passes/partition/heads.h"

#include <math.h>
#include <string.h>

// The strategies over ep or an axis of tp for one degree and layout between blocks, of all classes. Those over the axes
// of tp are solved where those over ep, and over the axes outside of them, are known.
typedef struct solution {
    int axis, boundary;
    int parts[SN_AXIS_KINDS]; // of ep and of the axes of tp up to this one
    bool possible;
    int **choice, **label; // [class][group], [class][flow]
} solution;

// How all axes cut the classes under a setting, and where.
typedef struct ways {
    sn_cut_setting setting;
    sn_site site;
    sn_cost_model model;                 // of the site's device
    const solution *over[SN_AXIS_KINDS]; // NULL for dp and cp
} ways;

// The parameters of all classes under the part of a setting that they depend on.
typedef struct known_tensors {
    sn_cut_setting setting;
    sn_block_tensors *of;
} known_tensors;

typedef struct known {
    sn_cut_setting setting;
    sn_site site;
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
    SN_VEC(known_tensors) tensors;
    size_t next;    // of known: whoever asks again asks in the same order
    double *fusion; // [class][2]: see sn_block_fusion; negative: not asked for yet
    sn_times *times, own_times;
};

void sn_evaluator_split(const sn_evaluator *e, int tp, int inner[SN_TENSOR_AXES - 1]) {
    int64_t ranks = tp;
    for (int k = 0; k < e->blocks->n_classes; k++) {
        const sn_block *block = e->tables[k].block;
        for (int g = 0; g < block->n_groups; g++)
            for (int i = 0; i < block->groups[g].n_forward; i++)
                if (sn_op_has(block->groups[g].forward[i]->kind, SN_TRAIT_LIBRARY))
                    ranks = sn_heads_common_divisor(ranks, sn_heads_ranks(block->groups[g].forward[i], tp));
    }
    memset(inner, 0, sizeof *inner * (SN_TENSOR_AXES - 1));
    if (ranks > 1) inner[0] = (int)(tp / ranks);
}

sn_evaluator *sn_evaluator_new(const sn_blocks *blocks, const sn_cluster *cluster, const sn_cost_model *model) {
    sn_evaluator *e = SN_NEW(blocks->arena, sn_evaluator);
    *e = (sn_evaluator){.blocks = blocks, .cluster = cluster, .model = *model, .arena = blocks->arena};
    e->times = &e->own_times;
    e->tables = sn_class_tables(blocks);
    e->fusion = SN_NEW_N(e->arena, double, 2 * blocks->n_classes + 1);
    for (int k = 0; k < 2 * blocks->n_classes; k++) e->fusion[k] = -1;
    e->has_sequence = sn_has_sequence(blocks->micro);
    e->experts = sn_count_experts(blocks);
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
    memset(&e->tensors, 0, sizeof e->tensors);
    return e;
}

void sn_evaluator_free(sn_evaluator *e) {
    sn_times_free(&e->own_times);
    sn_arena_free(&e->scratch);
    sn_vec_free(&e->solutions);
    sn_vec_free(&e->known);
    sn_vec_free(&e->tensors);
}

sn_site sn_evaluator_site(const sn_evaluator *e) {
    return (sn_site){.device = e->model.device};
}

int sn_evaluator_boundaries(const sn_evaluator *e) {
    return e->boundaries;
}

int64_t sn_evaluator_experts(const sn_evaluator *e) {
    return e->experts;
}

static int inner_of(sn_cut_setting setting, int i) {
    return setting.inner[i] ? setting.inner[i] : 1;
}

static int64_t parts_of(const sn_evaluator *e, sn_cut_setting setting, int axis) {
    int64_t inner = 1;
    for (int i = 0; i < SN_TENSOR_AXES - 1; i++) inner *= inner_of(setting, i);
    if (axis > SN_TENSOR_AXIS) return inner_of(setting, axis - SN_TENSOR_AXIS - 1);
    const int64_t parts[] = {[SN_DATA_AXIS] = e->blocks->batch / setting.micro,
                             [SN_CONTEXT_AXIS] = setting.cp,
                             [SN_EXPERT_AXIS] = setting.ep,
                             [SN_TENSOR_AXIS] = setting.tp / inner};
    return parts[axis];
}

// Ranks of the axes: tp innermost, then cp, then ep.
static sn_group ranks_of(const sn_evaluator *e, const ways *w, int axis) {
    sn_cut_setting setting = w->setting;
    int64_t stride = axis == SN_EXPERT_AXIS ? setting.tp * setting.cp : axis == SN_CONTEXT_AXIS ? setting.tp : 1;
    int64_t first = axis == SN_EXPERT_AXIS ? w->site.ep : axis == SN_CONTEXT_AXIS ? w->site.cp : w->site.tp;
    for (int a = axis + 1; axis >= SN_TENSOR_AXIS && a < SN_AXIS_KINDS; a++) stride *= parts_of(e, setting, a);
    return sn_cluster_group(e->cluster, first, parts_of(e, setting, axis), stride);
}

static const sn_strategy *chosen(const sn_class_table *t, const ways *w, int axis, int g) {
    int choice = axis == SN_DATA_AXIS      ? t->data[g]
                 : axis == SN_CONTEXT_AXIS ? t->context[g]
                                           : w->over[axis]->choice[t->block->kind][g];
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
    return sn_flow_label_at(flow, w->over[axis]->label[t->block->kind][f]).value;
}

// What a rank holds of a flow where these axes cut it: 1 << axis.
static double flow_bytes(const sn_evaluator *e, const sn_class_table *t, int f, const ways *w, unsigned axes) {
    double bytes = (double)sn_type_bytes(t->flows[f].value->type);
    for (int a = 0; a < SN_AXIS_KINDS; a++)
        if (axes >> a & 1 && flow_cut(t, f, w, a) >= 0) bytes /= (double)parts_of(e, w->setting, a);
    return bytes;
}

enum { ALL_AXES = (1 << SN_AXIS_KINDS) - 1 };

// The ranks of a set of tensor axes: by bit, those outside of `axis`, and `axis` itself where it is meant to be in.
static sn_group ranks_of_set(const sn_evaluator *e, const ways *w, int axis, unsigned outside, bool itself) {
    sn_cut_setting setting = w->setting;
    int64_t size = itself ? parts_of(e, setting, axis) : 1, stride = 1;
    int innermost = itself ? axis : SN_TENSOR_AXIS;
    for (int i = 0; SN_TENSOR_AXIS + i < axis; i++) {
        if (!(outside >> i & 1)) continue;
        size *= parts_of(e, setting, SN_TENSOR_AXIS + i);
        if (!itself) innermost = SN_TENSOR_AXIS + i;
    }
    for (int a = innermost + 1; a < SN_AXIS_KINDS; a++) stride *= parts_of(e, setting, a);
    return sn_cluster_group(e->cluster, w->site.tp, size, stride);
}

static void note_outside(sn_evaluator *e, const ways *w, int axis, int k, sn_layout_problem *p) {
    sn_group *together = SN_NEW_N(&e->scratch, sn_group, 1 << SN_TENSOR_AXES),
             *without = SN_NEW_N(&e->scratch, sn_group, 1 << SN_TENSOR_AXES);
    for (int a = SN_TENSOR_AXIS; a < axis; a++)
        p->outside[p->n_outside++] =
            (sn_outer_axis){w->over[a]->choice[k], w->over[a]->label[k], parts_of(e, w->setting, a)};
    for (unsigned set = 1; set < 1u << p->n_outside; set++) {
        together[set] = ranks_of_set(e, w, axis, set, true);
        without[set] = ranks_of_set(e, w, axis, set, false);
    }
    p->together = together;
    p->without = without;
}

static sn_layout_problem layout_problem(sn_evaluator *e, const sn_class_table *t, const ways *w, int axis,
                                        const sn_group *ranks) {
    double *bytes = SN_NEW_N(&e->scratch, double, t->n_flows + 1);
    for (int f = 0; f < t->n_flows; f++) bytes[f] = flow_bytes(e, t, f, w, ALL_AXES & ~(1u << axis));
    sn_layout_problem problem = {.table = t,
                                 .model = &w->model,
                                 .ranks = ranks,
                                 .boundary = axis == SN_EXPERT_AXIS    ? SN_BOUNDARY_SAMPLES
                                             : w->setting.boundary > 0 ? SN_BOUNDARY_SEQUENCE
                                                                       : SN_BOUNDARY_WHOLE,
                                 .bytes = bytes};
    note_outside(e, w, axis, t->block->kind, &problem);
    return problem;
}

static bool moves_alike(const sn_strategy *strategy, const sn_inner_move *like) {
    for (int m = 0; m < strategy->n_moves; m++) {
        const sn_inner_move *move = &strategy->moves[m];
        if (move->value == like->value && move->backward == like->backward &&
            sn_move_kind(move->from, move->to) == sn_move_kind(like->from, like->to))
            return true;
    }
    return false;
}

static double inner_move_seconds(const sn_layout_problem *p, const sn_op_group *group, const sn_group_cut *cut,
                                 int axis, bool backward) {
    const sn_strategy *strategy = cut->strategy[axis];
    double seconds = 0;
    for (int m = 0; m < strategy->n_moves; m++) {
        const sn_inner_move *move = &strategy->moves[m];
        sn_op_kind kind = sn_move_kind(move->from, move->to);
        if (move->backward != backward || kind == SN_OP_COUNT) continue;
        double bytes = (double)sn_type_bytes(move->value->type);
        unsigned joined = 0;
        for (int i = 0; i < p->n_outside; i++)
            if (moves_alike(cut->strategy[SN_TENSOR_AXIS + i], move)) joined |= 1u << i;
        for (int a = 0; a < SN_AXIS_KINDS; a++) {
            bool together = a >= SN_TENSOR_AXIS && joined >> (a - SN_TENSOR_AXIS) & 1;
            if (a != axis && !together && sn_cut_inside(group, cut->strategy[a], move->value) >= 0)
                bytes /= (double)cut->parts[a];
        }
        seconds += sn_move_kind_seconds(p, kind, bytes, joined);
    }
    return seconds;
}

// Experts that a group reads whole are gathered for it, in each pass that reads them; their gradient is scattered.
static double gather_seconds(const sn_cost_model *model, const sn_class_table *t, int g, const sn_group_cut *cut,
                             const sn_group *ranks, bool backward) {
    const sn_op_group *group = &t->block->groups[g];
    double seconds = 0;
    for (int p = 0; p < t->block->n_parameters; p++) {
        const sn_value *value = t->block->parameters[p]->value;
        if (!sn_is_stack(value) || !sn_group_reads(group, value, false)) continue;
        if (sn_strategy_need(group, cut->strategy[SN_EXPERT_AXIS], value) >= 0) continue;
        double bytes = (double)sn_type_bytes(value->type);
        for (int a = SN_TENSOR_AXIS; a < SN_AXIS_KINDS; a++)
            if (sn_strategy_need(group, cut->strategy[a], value) >= 0) bytes /= (double)cut->parts[a];
        if (!backward || sn_group_reads(group, value, true))
            seconds += sn_cost_collective(model, SN_OP_ALL_GATHER, bytes, ranks);
        if (backward) seconds += sn_cost_collective(model, SN_OP_REDUCE_SCATTER, bytes, ranks);
    }
    return seconds;
}

static sn_cut parameter_cut(const sn_evaluator *e, const sn_class_table *t, const ways *w, int axis,
                            const sn_value *value) {
    if (axis == SN_EXPERT_AXIS) return w->setting.ep > 1 && sn_is_stack(value) ? sn_cut_make(0, 1) : SN_UNCUT;
    bool tensor = axis >= SN_TENSOR_AXIS && parts_of(e, w->setting, axis) > 1;
    for (int g = 0; tensor && g < t->block->n_groups; g++) {
        sn_cut need = sn_strategy_need(&t->block->groups[g], chosen(t, w, axis, g), value);
        if (need >= 0) return need;
    }
    return SN_UNCUT;
}

// A little for each byte of parameters that a strategy leaves whole: of two ways that are as fast the smaller is taken.
static double kept_seconds(const sn_evaluator *e, const sn_class_table *t, int g, const sn_group_cut *cut) {
    double seconds = 0;
    for (int p = 0; p < t->block->n_parameters; p++) {
        const sn_value *value = t->block->parameters[p]->value;
        double bytes = (double)sn_type_bytes(value->type);
        if (!sn_group_reads(&t->block->groups[g], value, false)) continue;
        for (int a = SN_TENSOR_AXIS; a < SN_AXIS_KINDS; a++)
            if (sn_strategy_need(&t->block->groups[g], cut->strategy[a], value) >= 0) bytes /= (double)cut->parts[a];
        seconds += 2 * bytes / e->model.device->memory_bandwidth;
    }
    return seconds;
}

// Over ep only stacks are cut, along the experts; the samples are dp's, and tp leaves them alone, as it does experts
// that ep cuts.
static bool is_open(const sn_class_table *t, int g, int s, int axis, bool experts_are_cut) {
    const sn_op_group *group = &t->block->groups[g];
    bool tensor = axis >= SN_TENSOR_AXIS;
    if (tensor && s && s == t->data[g]) return false;
    if (tensor && !experts_are_cut) return true;
    for (int i = 0; i < group->n_forward; i++)
        for (int o = 0; o < group->forward[i]->n_operands; o++) {
            const sn_value *value = group->forward[i]->operands[o];
            bool weight = value->kind == SN_VALUE_GLOBAL && value->global->role == SN_ROLE_PARAMETER;
            sn_cut cut = t->strategies[g].list[s].forward[i].operand[o];
            if (!weight || cut < 0) continue;
            bool along_experts = sn_is_stack(value) && cut == sn_cut_make(0, 1);
            if (along_experts == tensor) return false;
        }
    return true;
}

// A strategy's seconds in the network: its ops and its inner moves.
static double strategy_seconds(sn_evaluator *e, const sn_layout_problem *p, int g, int s, const ways *w, int axis) {
    const sn_class_table *t = p->table;
    const sn_op_group *group = &t->block->groups[g];
    sn_group_cut cut = group_cut(e, t, g, w);
    sn_group_seconds seconds;
    cut.strategy[axis] = &t->strategies[g].list[s];
    if (!is_open(t, g, s, axis, w->setting.ep > 1) ||
        !sn_times_group(e->times, &w->model, group, t->weight_only[g], &cut, &e->scratch, &seconds))
        return INFINITY;
    double total = seconds.forward + seconds.backward_input + seconds.backward_weight;
    for (int side = 0; side < 2; side++) {
        total += inner_move_seconds(p, group, &cut, axis, side);
        if (axis == SN_EXPERT_AXIS) total += gather_seconds(&w->model, t, g, &cut, p->ranks, side);
    }
    if (axis >= SN_TENSOR_AXIS) total += kept_seconds(e, t, g, &cut);
    return total;
}

static void force_cut(const sn_layout_problem *p, int g, const sn_value *parameter, sn_cut cut) {
    const sn_op_group *group = &p->table->block->groups[g];
    if (!sn_group_reads(group, parameter, false)) return;
    for (int s = 0; s < p->table->strategies[g].n; s++)
        if (sn_strategy_need(group, &p->table->strategies[g].list[s], parameter) != cut) p->seconds[g][s] = INFINITY;
}

// With a parameter (NULL: none) cut so. Returns the seconds of all blocks of the class.
static double solve_class(sn_evaluator *e, int k, const ways *w, const sn_value *parameter, sn_cut cut, solution *out) {
    const sn_class_table *t = &e->tables[k];
    int axis = out->axis;
    double seconds = 0;
    sn_group ranks = ranks_of(e, w, axis);
    sn_layout_problem problem = layout_problem(e, t, w, axis, &ranks);
    problem.seconds = SN_NEW_N(&e->scratch, double *, t->block->n_groups + 1);
    for (int g = 0; g < t->block->n_groups; g++) {
        problem.seconds[g] = SN_NEW_N(&e->scratch, double, t->strategies[g].n);
        for (int s = 0; s < t->strategies[g].n; s++)
            problem.seconds[g][s] = strategy_seconds(e, &problem, g, s, w, axis);
    }
    if (axis >= SN_TENSOR_AXIS) sn_forbid_whole_matrices(&problem);
    for (int g = 0; parameter && g < t->block->n_groups; g++) force_cut(&problem, g, parameter, cut);
    bool possible = sn_layout_solve(&problem, out->choice[k], out->label[k], &seconds);
    sn_arena_free(&e->scratch);
    return possible ? seconds * e->blocks->classes[k].count : INFINITY;
}

static bool class_reads(const sn_evaluator *e, int k, const sn_value *value) {
    const sn_block *block = e->tables[k].block;
    for (int g = 0; g < block->n_groups; g++)
        if (sn_group_reads(&block->groups[g], value, false)) return true;
    return false;
}

static double solve_readers(sn_evaluator *e, const ways *w, const sn_value *parameter, sn_cut cut, solution *out) {
    double seconds = 0;
    for (int k = 0; k < e->blocks->n_classes && isfinite(seconds); k++)
        if (class_reads(e, k, parameter)) seconds += solve_class(e, k, w, parameter, cut, out);
    return seconds;
}

// A parameter that several classes read, as a tied embedding, is stored in one way: each way that any of them could
// read it in is tried on all of them. False where none is possible.
static bool solve_tied(sn_evaluator *e, const ways *w, const sn_value *parameter, solution *out) {
    double least = INFINITY;
    sn_cut best = SN_UNCUT;
    for (int k = 0; k < e->blocks->n_classes; k++)
        for (int g = 0; g < e->tables[k].block->n_groups; g++) {
            const sn_op_group *group = &e->tables[k].block->groups[g];
            for (int s = 0; sn_group_reads(group, parameter, false) && s < e->tables[k].strategies[g].n; s++) {
                sn_cut cut = sn_strategy_need(group, &e->tables[k].strategies[g].list[s], parameter);
                double seconds = s && cut == best ? INFINITY : solve_readers(e, w, parameter, cut, out);
                if (seconds < least) least = seconds, best = cut;
            }
        }
    return isfinite(least) && isfinite(solve_readers(e, w, parameter, best, out));
}

static const sn_value *tied_parameter(const sn_evaluator *e, int k) {
    for (int p = 0; p < e->tables[k].block->n_parameters; p++) {
        const sn_value *value = e->tables[k].block->parameters[p]->value;
        for (int other = 0; value->type.rank >= 2 && other < e->blocks->n_classes; other++)
            if (other != k && class_reads(e, other, value)) return value;
    }
    return NULL;
}

static void solve_classes(sn_evaluator *e, const ways *w, solution *out) {
    const sn_value *tied = NULL; // the first one; what others cost when they are moved is not known here
    for (int k = 0; k < e->blocks->n_classes && out->axis >= SN_TENSOR_AXIS && !tied; k++) tied = tied_parameter(e, k);
    if (tied && !solve_tied(e, w, tied, out)) tied = NULL;
    for (int k = 0; k < e->blocks->n_classes && out->possible; k++)
        if (!tied || !class_reads(e, k, tied)) out->possible = isfinite(solve_class(e, k, w, NULL, SN_UNCUT, out));
}

// Layouts are chosen for one micro-batch of a usual size, which ep divides: what they move and compute grow alike with
// it.
static int64_t usual_micro(const sn_evaluator *e, int ep) {
    int64_t micro = 8 * ep < e->blocks->batch ? 8 * ep : e->blocks->batch;
    while (micro > 1 && (e->blocks->batch % micro || micro % ep)) micro--;
    return micro;
}

static solution *new_solution(sn_evaluator *e, const solution *like) {
    solution *s = SN_NEW(e->arena, solution);
    *s = *like;
    s->possible = true;
    s->choice = SN_NEW_N(e->arena, int *, e->blocks->n_classes + 1);
    s->label = SN_NEW_N(e->arena, int *, e->blocks->n_classes + 1);
    for (int k = 0; k < e->blocks->n_classes; k++) { // nothing is cut
        s->choice[k] = SN_NEW_N(e->arena, int, e->tables[k].block->n_groups + 1);
        s->label[k] = SN_NEW_N(e->arena, int, e->tables[k].n_flows + 1);
    }
    sn_vec_push(&e->solutions, s);
    return s;
}

// The part of a setting that a solution over an axis depends on: what is inside of it is not there yet.
static solution key_of(const sn_evaluator *e, sn_cut_setting setting, int axis) {
    solution key = {.axis = axis, .boundary = setting.boundary};
    for (int a = SN_EXPERT_AXIS; a < SN_AXIS_KINDS; a++) key.parts[a] = a > axis ? 1 : (int)parts_of(e, setting, a);
    if (axis == SN_EXPERT_AXIS) key.boundary = 0;
    if (key.parts[axis] > 1) return key;
    for (int a = 0; a < axis; a++) key.parts[a] = key.boundary = 0; // nothing is cut, whatever the others do
    return key;
}

static const solution *find_solution(sn_evaluator *e, sn_cut_setting setting, int axis);

static void solve_axis(sn_evaluator *e, solution *s) {
    ways w = {.setting = {.tp = 1, .cp = 1, .ep = s->parts[SN_EXPERT_AXIS], .boundary = s->boundary},
              .site = sn_evaluator_site(e),
              .model = e->model};
    for (int a = SN_TENSOR_AXIS; a <= s->axis; a++) {
        w.setting.tp *= s->parts[a];
        if (a > SN_TENSOR_AXIS) w.setting.inner[a - SN_TENSOR_AXIS - 1] = s->parts[a];
    }
    w.setting.micro = usual_micro(e, w.setting.ep);
    for (int a = SN_EXPERT_AXIS; a < SN_AXIS_KINDS; a++) {
        if (a == s->axis) continue;
        w.over[a] = find_solution(e, w.setting, a);
        s->possible &= w.over[a]->possible;
    }
    sn_cut_setting without = w.setting; // the axis: its own entry stands for nothing cut while it is solved
    without.tp /= s->parts[s->axis];
    if (s->axis == SN_EXPERT_AXIS)
        without = (sn_cut_setting){.tp = 1, .cp = 1, .ep = 1, .micro = 1};
    else if (s->axis > SN_TENSOR_AXIS)
        without.inner[s->axis - SN_TENSOR_AXIS - 1] = 1;
    w.over[s->axis] = find_solution(e, without, s->axis);
    if (s->possible) solve_classes(e, &w, s);
}

static const solution *find_solution(sn_evaluator *e, sn_cut_setting setting, int axis) {
    solution key = key_of(e, setting, axis);
    for (size_t i = 0; i < e->solutions.count; i++) {
        const solution *s = e->solutions.data[i];
        if (s->axis == axis && s->boundary == key.boundary && memcmp(s->parts, key.parts, sizeof key.parts) == 0)
            return s;
    }
    solution *s = new_solution(e, &key);
    if (key.parts[axis] > 1) solve_axis(e, s);
    return s;
}

static ways ways_at(sn_evaluator *e, sn_cut_setting setting, sn_site site) {
    ways w = {.setting = setting, .site = site, .model = e->model};
    w.model.device = site.device;
    for (int a = SN_EXPERT_AXIS; a < SN_AXIS_KINDS; a++) w.over[a] = find_solution(e, setting, a);
    return w;
}

static ways ways_of(sn_evaluator *e, sn_cut_setting setting) {
    return ways_at(e, setting, sn_evaluator_site(e));
}

// Over cp: what flows with the sequence cut and is read whole is gathered, in each pass that reads it, and its gradient
// scattered.
static double context_seconds(const sn_evaluator *e, const sn_class_table *t, const ways *w, bool backward) {
    if (w->setting.cp == 1) return 0;
    sn_group ranks = ranks_of(e, w, SN_CONTEXT_AXIS);
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
            double bytes = flow_bytes(e, t, f, w, 1u << SN_DATA_AXIS | 1u << SN_EXPERT_AXIS);
            for (int a = SN_TENSOR_AXIS; a < SN_AXIS_KINDS; a++)
                if (sn_strategy_need(group, chosen(t, w, a, g), flow->value) >= 0)
                    bytes /= (double)parts_of(e, w->setting, a);
            if (kind == SN_OP_ALL_TO_ALL) bytes /= w->setting.cp;
            sn_op_kind mirror = kind == SN_OP_ALL_GATHER ? SN_OP_REDUCE_SCATTER : kind;
            seconds += sn_cost_collective(&w->model, backward ? mirror : kind, bytes, &ranks);
            if (backward && mirror != kind && sn_is_read_backward(e->blocks->micro, flow->value))
                seconds += sn_cost_collective(&w->model, kind, bytes, &ranks);
        }
    }
    return seconds;
}

static double input_bytes(const sn_evaluator *e, const sn_class_table *t, const ways *w) {
    double bytes = 0;
    for (int f = 0; f < t->n_flows; f++)
        if (t->flows[f].follows && t->flows[f].producer < 0) bytes += flow_bytes(e, t, f, w, ALL_AXES);
    return bytes;
}

// What skips blocks (an encoder's result that all of a decoder reads) is cut as what lies between them is.
static double received_bytes(const sn_class_table *t, double input) {
    double whole = 0;
    for (int f = 0; f < t->n_flows; f++)
        if (t->flows[f].follows && t->flows[f].producer < 0) whole += (double)sn_type_bytes(t->flows[f].value->type);
    return whole > 0 ? input * fmax(1, t->block->input_bytes / whole) : input;
}

static double parameter_seconds(sn_evaluator *e, const sn_cost_model *model, const sn_parameter_ops *of, int n,
                                sn_op *const *ops, const sn_cut *cuts, const int64_t *parts) {
    return sn_times_parameter(e->times, model, of->parameter, n, ops, cuts, parts, &e->scratch);
}

static double least_seconds(sn_evaluator *e, double *known, int n, sn_op *const *ops) {
    if (*known < 0) *known = sn_parameter_least_seconds(&e->model, n, ops, &e->scratch);
    return *known;
}

static void add_parameters(sn_evaluator *e, const sn_class_table *t, const ways *w, sn_block_cost *out) {
    sn_group ranks = sn_cluster_group(e->cluster, w->site.tp, w->setting.tp, 1);
    for (int p = 0; p < t->block->n_parameters; p++) {
        sn_parameter_ops *ops = &t->parameters[p];
        const sn_value *value = ops->parameter->value;
        sn_cut cuts[SN_AXIS_KINDS];
        int64_t axis_parts[SN_AXIS_KINDS];
        double parts = 1;
        bool whole = true; // over all of tp
        for (int a = 0; a < SN_AXIS_KINDS; a++) {
            cuts[a] = parameter_cut(e, t, w, a, value);
            whole &= a < SN_TENSOR_AXIS || cuts[a] < 0;
            axis_parts[a] = cuts[a] >= 0 ? parts_of(e, w->setting, a) : 1;
            parts *= (double)axis_parts[a];
        }
        out->parameters += (double)sn_type_bytes(value->type) / parts;
        out->gradients += ops->gradient_bytes / parts;
        out->optimizer += ops->optimizer_bytes / parts;
        out->update += parameter_seconds(e, &w->model, ops, ops->n_update, ops->update, cuts, axis_parts);
        out->clear += parameter_seconds(e, &w->model, ops, ops->n_clear, ops->clear, cuts, axis_parts);
        out->least_update += least_seconds(e, &ops->least_update, ops->n_update, ops->update);
        out->least_clear += least_seconds(e, &ops->least_clear, ops->n_clear, ops->clear);
        out->backward_weight +=
            parameter_seconds(e, &w->model, ops, ops->n_accumulate, ops->accumulate, cuts, axis_parts);
        if (w->setting.tp > 1 && whole && w->setting.boundary)
            out->reduce += sn_cost_collective(&w->model, SN_OP_ALL_REDUCE,
                                              ops->gradient_bytes / (double)axis_parts[SN_EXPERT_AXIS], &ranks);
    }
}

// Over ep or an axis of tp: inside of groups, and between them. Adds to *again what full rematerialisation repeats: the
// moves of groups that are made again, and all but what leaves the block.
static sn_move_seconds axis_seconds(sn_evaluator *e, const sn_class_table *t, const ways *w, int axis,
                                    const bool *made_again, double *again) {
    sn_move_seconds sum = {0};
    if (parts_of(e, w->setting, axis) == 1) return sum;
    sn_group ranks = ranks_of(e, w, axis);
    sn_layout_problem problem = layout_problem(e, t, w, axis, &ranks);
    for (int g = 0; g < t->block->n_groups; g++) {
        sn_group_cut cut = group_cut(e, t, g, w);
        for (int side = 0; side < 2; side++) {
            double seconds = inner_move_seconds(&problem, &t->block->groups[g], &cut, axis, side);
            if (axis == SN_EXPERT_AXIS) seconds += gather_seconds(&w->model, t, g, &cut, &ranks, side);
            *(side ? &sum.backward : &sum.forward) += seconds;
            if (!side && made_again[g]) *again += seconds;
        }
    }
    for (int f = 0; f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        sn_flow_label label = sn_flow_label_at(flow, w->over[axis]->label[t->block->kind][f]);
        for (int r = flow->producer >= 0 ? -1 : 0; r < flow->n_readers; r++) {
            int g = r < 0 ? flow->producer : flow->readers[r];
            sn_move_seconds moves = sn_flow_moves(&problem, f, r < 0 ? -1 : g, chosen(t, w, axis, g), label);
            sum.forward += moves.forward;
            sum.backward += moves.backward;
            if (made_again[g] && (r >= 0 || !flow->leaves)) *again += moves.forward;
        }
    }
    return sum;
}

static void add_moves(sn_evaluator *e, const sn_class_table *t, const ways *w, const bool *made_again,
                      sn_block_cost *out) {
    double forward = context_seconds(e, t, w, false), backward = context_seconds(e, t, w, true);
    out->again[SN_REMAT_FULL] += forward;
    for (int axis = SN_EXPERT_AXIS; axis < SN_AXIS_KINDS; axis++) {
        sn_move_seconds moves = axis_seconds(e, t, w, axis, made_again, &out->again[SN_REMAT_FULL]);
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
    int n = t->block->n_groups;
    double light = 0, *group_seconds = SN_NEW_N(&e->scratch, double, n + 1);
    sn_group_cut *cuts = SN_NEW_N(&e->scratch, sn_group_cut, n + 1);
    for (int g = 0; g < n; g++) {
        sn_group_seconds seconds;
        cuts[g] = group_cut(e, t, g, w);
        if (!sn_times_group(e->times, &w->model, &t->block->groups[g], t->weight_only[g], &cuts[g], &e->scratch,
                            &seconds))
            return false;
        group_seconds[g] = seconds.forward + (fusion[0] - 1) * seconds.light[0];
        out->forward += group_seconds[g];
        out->backward_input += seconds.backward_input + (fusion[1] - 1) * seconds.light[1];
        out->backward_weight += seconds.backward_weight + (fusion[1] - 1) * seconds.light[2];
        light += fusion[0] * seconds.light[0];
        if (seconds.temporary > out->working) out->working = seconds.temporary;
    }
    bool *made_again = SN_NEW_N(&e->scratch, bool, n + 1);
    sn_block_again_groups(t, &e->scratch, made_again);
    for (int g = 0; g < n; g++) out->again[SN_REMAT_FULL] += made_again[g] ? group_seconds[g] : 0;
    add_moves(e, t, w, made_again, out);
    add_parameters(e, t, w, out);
    out->backward_weight += out->accumulate;
    out->input = input_bytes(e, t, w);
    out->received = received_bytes(t, out->input);
    sn_block_kept(t, cuts, &e->scratch, out);
    out->again[SN_REMAT_SELECTIVE] = fmin(light, out->again[SN_REMAT_FULL]);
    out->parameters += e->blocks->classes[k].tied_bytes / w->setting.tp;
    sn_arena_free(&e->scratch);
    return true;
}

static bool setting_equal(sn_cut_setting a, sn_cut_setting b) {
    bool equal = a.tp == b.tp && a.cp == b.cp && a.ep == b.ep && a.boundary == b.boundary && a.micro == b.micro;
    for (int i = 0; i < SN_TENSOR_AXES - 1; i++) equal &= inner_of(a, i) == inner_of(b, i);
    return equal;
}

static bool site_equal(sn_site a, sn_site b) {
    return a.device == b.device && a.tp == b.tp && a.cp == b.cp && a.ep == b.ep;
}

const sn_block_cost *sn_evaluator_costs(sn_evaluator *e, sn_cut_setting setting, sn_site site) {
    for (size_t n = 0; n < e->known.count; n++) {
        size_t i = (e->next + n) % e->known.count;
        const known *k = &e->known.data[i];
        if (!setting_equal(k->setting, setting) || !site_equal(k->site, site)) continue;
        e->next = i + 1;
        return k->costs;
    }
    ways w = ways_at(e, setting, site);
    sn_block_cost *costs = SN_NEW_N(e->arena, sn_block_cost, e->blocks->n_classes + 1);
    bool good = e->blocks->batch % setting.micro == 0 && setting.micro % setting.ep == 0 &&
                (setting.cp == 1 || e->has_sequence) &&
                (setting.ep == 1 || (e->experts && e->experts % setting.ep == 0));
    for (int a = SN_EXPERT_AXIS; a < SN_AXIS_KINDS; a++) good &= w.over[a]->possible;
    for (int k = 0; good && k < e->blocks->n_classes; k++) good = cost_class(e, k, &w, &costs[k]);
    sn_arena_free(&e->scratch);
    sn_vec_push(&e->known, (known){setting, site, good ? costs : NULL});
    return good ? costs : NULL;
}

static bool is_read_again(const sn_class_table *t, const bool *made_again, const sn_value *parameter) {
    for (int g = 0; g < t->block->n_groups; g++)
        if (made_again[g] && sn_group_reads(&t->block->groups[g], parameter, false)) return true;
    return false;
}

static void list_tensors(sn_evaluator *e, const sn_class_table *t, const ways *w, sn_block_tensors *out) {
    bool *made_again = SN_NEW_N(&e->scratch, bool, t->block->n_groups + 1);
    sn_block_again_groups(t, &e->scratch, made_again);
    out->list = SN_NEW_N(e->arena, sn_block_tensor, t->block->n_parameters + 1);
    for (int p = 0; p < t->block->n_parameters; p++) {
        const sn_value *value = t->parameters[p].parameter->value;
        if (t->parameters[p].parameter->role != SN_ROLE_PARAMETER) continue; // frozen: whole, and never summed
        sn_block_tensor tensor = {.type = value->type,
                                  .backward = sn_is_read_backward(e->blocks->micro, value),
                                  .again = is_read_again(t, made_again, value)};
        double parts = 1;
        for (int a = 0; a < SN_AXIS_KINDS; a++) {
            sn_cut cut = parameter_cut(e, t, w, a, value);
            if (a == SN_EXPERT_AXIS) tensor.shared = cut < 0;
            if (cut < 0) continue;
            parts *= (double)parts_of(e, w->setting, a);
            tensor.type.dim[sn_cut_dim(cut)] /= parts_of(e, w->setting, a);
        }
        tensor.parameter = (double)sn_type_bytes(value->type) / parts;
        tensor.gradient = t->parameters[p].gradient_bytes / parts;
        tensor.optimizer = t->parameters[p].optimizer_bytes / parts;
        sn_tensors_add(out, tensor);
    }
    sn_tensors_count_sums(out, t);
    sn_arena_free(&e->scratch);
}

const sn_block_tensors *sn_evaluator_tensors(sn_evaluator *e, sn_cut_setting setting) {
    setting.cp = 1, setting.micro = usual_micro(e, setting.ep);
    for (size_t i = 0; i < e->tensors.count; i++)
        if (setting_equal(e->tensors.data[i].setting, setting)) return e->tensors.data[i].of;
    sn_block_tensors *of = SN_NEW_N(e->arena, sn_block_tensors, e->blocks->n_classes + 1);
    ways w = ways_of(e, setting);
    for (int k = 0; k < e->blocks->n_classes; k++) list_tensors(e, &e->tables[k], &w, &of[k]);
    sn_vec_push(&e->tensors, (known_tensors){setting, of});
    return of;
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
static void put_cut(const named_axes *axes, int axis, sn_cut cut, sn_type type, sn_plan_layout *entry) {
    if (cut < 0 || axes->of[axis] < 0) return;
    int64_t outer = sn_cut_outer(cut), outers[SN_MAX_AXES];
    int dim = sn_cut_dim(cut), order[SN_MAX_AXES];
    int n = sn_layout_order(axes->mesh, entry->layout, dim, order);
    sn_layout_outers(axes->mesh, entry->layout, dim, outers);
    for (int i = 0; i < n; i++) {
        int64_t end = outers[order[i]] * axes->mesh->size[order[i]];
        if (outer >= outers[order[i]] && outer < end) outer = end;
    }
    sn_layout layout = entry->layout;
    sn_layout_add(axes->mesh, &layout, dim, axes->of[axis], outer);
    if (!n || sn_layout_divides(axes->mesh, layout, dim, type.dim[dim])) entry->layout = layout;
}

// Over an axis of tp all results are said: what is whole is no less of a choice than what is cut, and its gradient is
// laid alike. What the axes of the data cut stays cut.
static bool is_stated(const sn_class_table *t, const ways *w, int axis, int f) {
    const sn_flow *flow = &t->flows[f];
    const sn_strategy *strategy = chosen(t, w, axis, flow->producer);
    sn_cut cut = flow_cut(t, f, w, axis);
    sn_cut leaves = sn_strategy_leaves(&t->block->groups[flow->producer], strategy, flow->value);
    return axis != SN_EXPERT_AXIS || leaves == SN_PARTIAL_VALUE || (cut >= 0 && (cut != flow->data || leaves != cut));
}

// Rows of merged samples and tokens have the samples outermost, in the dim that dp cuts: those of one micro-batch of
// all ranks, in the program that the plan is for.
static sn_cut cut_of_program(const sn_evaluator *e, sn_cut cut, sn_cut data, int64_t samples, sn_type *type) {
    int64_t batch = e->blocks->batch;
    int dim = cut >= 0 ? sn_cut_dim(cut) : 0;
    bool rows = cut >= 0 && data >= 0 && sn_cut_dim(data) == dim && sn_cut_outer(data) == 1;
    bool merged = rows && type->dim[dim] > batch && sn_cut_outer(cut) % batch == 0;
    if (!merged) return cut;
    type->dim[dim] = type->dim[dim] / batch * samples;
    return sn_cut_make(dim, sn_cut_outer(cut) / batch * samples);
}

// Where axes of the data and one of tp cut rows of merged samples and tokens, the plan says where among them each is.
static void put_rows(const sn_evaluator *e, const sn_class_table *t, const ways *w, int f, const named_axes *axes,
                     int64_t samples, sn_plan_layout *entry) {
    const sn_flow *flow = &t->flows[f];
    sn_cut experts = w->setting.ep > 1 ? flow_cut(t, f, w, SN_EXPERT_AXIS) : SN_UNCUT;
    sn_cut context = w->setting.cp > 1 ? flow->context : SN_UNCUT;
    int rows = flow->data >= 0 ? sn_cut_dim(flow->data) : -1;
    bool tensor = false,
         data = (experts >= 0 && sn_cut_dim(experts) == rows) || (context >= 0 && sn_cut_dim(context) == rows);
    for (int a = SN_TENSOR_AXIS; a < SN_AXIS_KINDS; a++) {
        sn_cut cut = flow_cut(t, f, w, a);
        tensor |= cut >= 0 && sn_cut_dim(cut) == rows && parts_of(e, w->setting, a) > 1;
    }
    if (!tensor || !data) return;
    sn_type type = flow->value->type;
    put_cut(axes, SN_DATA_AXIS, flow->data, type, entry);
    context = cut_of_program(e, context, flow->data, samples, &type);
    put_cut(axes, SN_CONTEXT_AXIS, context, type, entry);
}

// Parameters that are cut, and results between groups whose layout must be said.
static void block_layouts(const sn_evaluator *e, const sn_block *block, const ways *w, const named_axes *axes,
                          int64_t samples, sn_plan_layout *list, int *count) {
    const sn_class_table *t = &e->tables[block->kind];
    for (int p = 0; p < block->n_parameters; p++) {
        const sn_value *like = t->block->parameters[p]->value;
        sn_plan_layout entry = {.name = block->parameters[p]->name, .rank = like->type.rank};
        for (int a = SN_EXPERT_AXIS; a < SN_AXIS_KINDS; a++)
            put_cut(axes, a, parameter_cut(e, t, w, a, like), like->type, &entry);
        if (sn_layout_axes(entry.layout)) list[(*count)++] = entry;
    }
    for (int f = 0; f < t->n_flows; f++) {
        const sn_flow *flow = &t->flows[f];
        if (flow->producer < 0 || flow->value != first_result(&t->block->groups[flow->producer])) continue;
        if (!flow->value->type.rank || !*block->groups[flow->producer].node) continue; // what has no name
        sn_plan_layout entry = {.name = block->groups[flow->producer].node, .rank = flow->value->type.rank};
        bool stated = false;
        put_rows(e, t, w, f, axes, samples, &entry);
        for (int a = SN_EXPERT_AXIS; a < SN_AXIS_KINDS; a++) {
            if (axes->of[a] < 0) continue;
            stated |= is_stated(t, w, a, f);
            sn_type type = flow->value->type;
            sn_cut cut = cut_of_program(e, flow_cut(t, f, w, a), flow->data, samples, &type);
            put_cut(axes, a, cut, type, &entry);
        }
        if (stated) list[(*count)++] = entry;
    }
}

static named_axes axes_of(const sn_mesh *mesh) {
    named_axes axes = {.mesh = mesh};
    for (int a = 0; a < SN_AXIS_KINDS; a++) axes.of[a] = -1;
    axes.of[SN_DATA_AXIS] = sn_mesh_axis(mesh, "dp");
    axes.of[SN_CONTEXT_AXIS] = sn_mesh_axis(mesh, "cp");
    axes.of[SN_EXPERT_AXIS] = sn_mesh_axis(mesh, "ep");
    for (int a = 0, next = SN_TENSOR_AXIS; a < mesh->n_axes && next < SN_AXIS_KINDS; a++)
        if (sn_mesh_is_tensor_axis(mesh, a)) axes.of[next++] = a;
    return axes;
}

sn_plan_layout *sn_evaluator_layouts(sn_evaluator *e, sn_cut_setting setting, const sn_mesh *mesh, sn_arena *arena,
                                     int *count) {
    named_axes axes = axes_of(mesh);
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
    static const char *const names[SN_AXIS_KINDS] = {
        [SN_TENSOR_AXIS] = "tp", [SN_TENSOR_AXIS + 1] = "tp_q", [SN_EXPERT_AXIS] = "ep"};
    sn_str text = {0};
    for (int a = SN_AXIS_KINDS - 1; a >= SN_EXPERT_AXIS; a--)
        if (names[a] && parts_of(e, setting, a) > 1 && chosen(t, &w, a, group)->cuts)
            describe_cut(g, chosen(t, &w, a, group), names[a], &text);
    const char *copy = text.length ? sn_arena_strdup(arena, sn_str_text(&text)) : "whole on each rank of tp";
    sn_str_free(&text);
    return copy;
}
