#include "passes/partition/stages_assign.h"

#include "base/options.h"
#include "passes/cost/cost.h"
#include "passes/partition/crossing.h"
#include "passes/pass.h"

#include <math.h>
#include <string.h>

// What a value that is computed anywhere is made from.
enum { FROM_WEIGHTS = 1, FROM_DATA = 2, NOT_ANYWHERE = 4 };

static int source_of(const sn_value *value, const uint8_t *made_from, bool of_globals) {
    if (value->kind == SN_VALUE_ARG) return value->name[0] == '$' ? 0 : FROM_DATA;
    if (value->kind == SN_VALUE_RESULT) return made_from[value->def->mark];
    sn_role role = value->global->role;
    if (role == SN_ROLE_CONSTANT) return 0;
    bool fixed = role == SN_ROLE_PARAMETER || role == SN_ROLE_FROZEN;
    return fixed && of_globals ? FROM_WEIGHTS : NOT_ANYWHERE;
}

static bool is_cheap(const sn_op *op) {
    const unsigned cheap = SN_TRAIT_GENERATOR | SN_TRAIT_POINTWISE | SN_TRAIT_MOVEMENT | SN_TRAIT_VIEW;
    return sn_op_has(op->kind, cheap) || op->kind == SN_OP_ALL_GATHER;
}

void sn_mark_anywhere(sn_func *func, bool of_globals, bool *marks) {
    uint32_t n = 0;
    uint8_t *made_from = sn_alloc(func->n_ops + 1);
    SN_FOR_OPS(op, func) {
        op->mark = n++;
        int from = is_cheap(op) ? 0 : NOT_ANYWHERE;
        for (int i = 0; i < op->n_operands; i++) from |= source_of(op->operands[i], made_from, of_globals);
        // an embedding's rows are of weights and data: the first activation of the model, not a mask
        if (from == (FROM_WEIGHTS | FROM_DATA)) from = NOT_ANYWHERE;
        made_from[op->mark] = (uint8_t)from;
        marks[op->mark] = !(from & NOT_ANYWHERE);
    }
    sn_free(made_from);
}

// 0 for ops of no ONNX node, or of one that only has ops that are computed anywhere.
static int node_of(const sn_node_stages *nodes, const sn_op *op) {
    const char *name = sn_origin_node(op->origin);
    return name ? (int)(intptr_t)sn_map_get(&nodes->index, name) : 0;
}

static int stage_of_node(const sn_node_stages *nodes, int place) {
    int stage = 0;
    while (stage + 1 < nodes->n_stages && nodes->first[stage + 1] < place) stage++;
    return stage;
}

static void number_nodes(const sn_func *func, const bool *anywhere, sn_node_stages *out) {
    SN_FOR_OPS(op, func) {
        const char *name = sn_origin_node(op->origin);
        if (!name || op->phase != SN_PHASE_FORWARD || sn_map_has(&out->index, name)) continue;
        if (sn_pass_find(NULL, name)) continue; // of no node: a pass added it
        if (anywhere[op->mark]) {
            if (!sn_map_has(&out->follower, name))
                sn_map_put(&out->follower, name, (void *)(intptr_t)(out->n_nodes + 1));
            continue;
        }
        sn_map_put(&out->index, name, (void *)(intptr_t)++out->n_nodes);
    }
}

typedef struct weights { // by node, from 0
    double *work;        // FLOPs
    double *crossing;    // bytes of activations that cross a cut before it
} weights;

static weights weigh(const sn_func *func, const bool *anywhere, const sn_node_stages *nodes, sn_arena *arena) {
    size_t n = (size_t)nodes->n_nodes + 2;
    weights w = {SN_NEW_N(arena, double, n), SN_NEW_N(arena, double, n)};
    sn_arena scratch = {0};
    int *place = SN_NEW_N(arena, int, func->n_ops + 1);
    bool *counts = SN_NEW_N(arena, bool, func->n_ops + 1);
    SN_FOR_OPS(op, func) {
        int node = node_of(nodes, op);
        counts[op->mark] = !anywhere[op->mark];
        if (op->phase == SN_PHASE_FORWARD) place[op->mark] = node;
        if (!node) continue;
        w.work[node - 1] += sn_op_work(op, &scratch).flops;
        sn_arena_free(&scratch);
    }
    for (int i = 0; i < nodes->n_nodes; i++) w.work[i] += 1; // nodes of no arithmetic are something, too
    sn_crossing_bytes(func, place, nodes->n_nodes, counts, w.crossing);
    return w;
}

// How far a stage that begins at node `from` may reach within `most` work: at least one node.
static int reach(const double *work, int n, int from, double most) {
    double sum = work[from];
    int end = from + 1;
    while (end < n && sum + work[end] <= most) sum += work[end++];
    return end;
}

static bool fits(const double *work, int n, int stages, double most) {
    int at = 0;
    for (int s = 0; s < stages && at < n; s++) {
        if (work[at] > most) return false;
        at = reach(work, n, at, most);
    }
    return at == n;
}

// The least bottleneck of contiguous stages, by bisection down to a part in a million.
static double least_bottleneck(const double *work, int n, int stages) {
    double low = 0, high = 0;
    for (int i = 0; i < n; i++) high += work[i];
    while (high - low > 1e-6 * high) {
        double middle = (low + high) / 2;
        if (fits(work, n, stages, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

// The earliest node at which stage s may begin so that the rest fits: filled from the back.
static void earliest_starts(const double *work, int n, int stages, double most, int *earliest) {
    int end = n;
    for (int s = stages - 1; s > 0; s--) {
        double sum = 0;
        int start = end;
        while (start > s && (start == end || sum + work[start - 1] <= most)) sum += work[--start];
        earliest[s] = end = start;
    }
}

// Of the cuts before nodes first … last the one that the fewest bytes cross; of equals the one with the work before it
// closest to `wanted`.
static int cheapest_cut(const weights *w, int first, int last, double wanted) {
    int best = first;
    double before = 0, best_off = 0;
    for (int at = 0; at < first; at++) before += w->work[at];
    for (int at = first; at <= last; before += w->work[at++]) {
        double off = fabs(before - wanted);
        bool fewer = w->crossing[at] < w->crossing[best], equal = w->crossing[at] == w->crossing[best];
        if (at == first || fewer || (equal && off < best_off)) best = at, best_off = off;
    }
    return best;
}

// Stages of equal work; each cut then moves, within a tenth more work, to where the fewest bytes cross it.
static void cut_equally(const weights *w, sn_node_stages *out, sn_arena *arena) {
    int n = out->n_nodes, stages = out->n_stages, *earliest = SN_NEW_N(arena, int, stages + 1);
    double most = 1.1 * least_bottleneck(w->work, n, stages), total = 0;
    for (int i = 0; i < n; i++) total += w->work[i];
    earliest_starts(w->work, n, stages, most, earliest);
    for (int s = 1; s < stages; s++) {
        int from = out->first[s - 1], last = reach(w->work, n, from, most), first = earliest[s];
        if (last > n - (stages - s)) last = n - (stages - s); // a node for each stage that follows
        if (first <= from) first = from + 1;
        if (first > last) first = last;
        out->first[s] = cheapest_cut(w, first, last, total * s / stages);
    }
}

static bool cut_as_planned(const sn_plan *plan, sn_diags *diags, sn_node_stages *out) {
    bool good = true;
    for (int s = 1; s < plan->n_stages; s++) {
        const char *name = plan->stages[s].first;
        int place = (int)(intptr_t)sn_map_get(&out->index, name) - 1;
        if (place < 0) place = (int)(intptr_t)sn_map_get(&out->follower, name) - 1;
        if (place < 0) {
            sn_suggestion close = {0};
            for (size_t i = 0; i < out->index.count; i++) sn_suggest(&close, name, out->index.entries[i].key);
            sn_error(diags, "E0420", name,
                     close.best ? sn_arena_printf(&diags->arena, "did you mean '%s'?", close.best)
                                : "`--dump-ir=after=distribute` shows the nodes that are left",
                     "stage %d of the plan begins at a node that the program does not have", s);
            good = false;
        } else if (place <= out->first[s - 1] || place == out->n_nodes) {
            sn_error(diags, "E0421", name, "list the stages in the order in which the model runs",
                     "stage %d of the plan begins no later than stage %d, or nothing is left for it", s, s - 1);
            good = false;
        }
        out->first[s] = place;
    }
    return good;
}

bool sn_node_stages_find(const sn_func *func, const sn_plan *plan, sn_diags *diags, sn_arena *arena,
                         sn_node_stages *out) {
    *out = (sn_node_stages){.n_stages = sn_plan_stage_count(plan)};
    out->first = SN_NEW_N(arena, int, out->n_stages + 1);
    bool *anywhere = SN_NEW_N(arena, bool, func->n_ops + 1);
    sn_mark_anywhere((sn_func *)(uintptr_t)func, true, anywhere);
    number_nodes(func, anywhere, out);
    if (out->n_nodes < out->n_stages) {
        sn_error(diags, "E0421", NULL, "choose a smaller pp, or fewer chunks",
                 "the model has %d nodes to cut in %d stages", out->n_nodes, out->n_stages);
        return false;
    }
    if (plan->n_stages) return cut_as_planned(plan, diags, out);
    weights w = weigh(func, anywhere, out, arena);
    cut_equally(&w, out, arena);
    return true;
}

void sn_node_stages_free(sn_node_stages *stages) {
    sn_map_free(&stages->index);
    sn_map_free(&stages->follower);
}

typedef struct assigner {
    sn_func *func;
    const sn_node_stages *nodes;
    const bool *anywhere;
    sn_map *owner;
    int *stage, *least; // by op mark
} assigner;

static int owner_of(const assigner *a, const sn_global *global) {
    return (int)(intptr_t)sn_map_get(a->owner, global->name) - 1;
}

static void set_owner(assigner *a, const sn_global *global, int stage) {
    sn_map_put(a->owner, global->name, (void *)(intptr_t)(stage + 1));
}

// The result of an op that has a stage, or NULL.
static const sn_op *settled(const assigner *a, const sn_value *value) {
    return value->kind == SN_VALUE_RESULT && !a->anywhere[value->def->mark] ? value->def : NULL;
}

static int preferred(const assigner *a, const sn_op *op) {
    int node = node_of(a->nodes, op);
    return node ? stage_of_node(a->nodes, node) : -1;
}

// Forward: a stage that is not before those of the operands.
static void assign_forward(assigner *a) {
    SN_FOR_OPS(op, a->func) {
        if (op->phase != SN_PHASE_FORWARD || a->anywhere[op->mark]) continue;
        int stage = preferred(a, op);
        for (int i = 0; i < op->n_operands; i++) {
            const sn_op *from = settled(a, op->operands[i]);
            if (from && a->stage[from->mark] > stage) stage = a->stage[from->mark];
        }
        a->stage[op->mark] = stage;
    }
    // Ops of no node that read nothing with a stage (the count of the labels) go to their first reader.
    for (sn_op *op = a->func->last; op; op = op->prev) {
        if (op->phase != SN_PHASE_FORWARD || a->anywhere[op->mark] || a->stage[op->mark] >= 0) continue;
        int stage = a->nodes->n_stages - 1;
        for (int r = 0; r < op->n_results; r++) {
            for (size_t u = 0; u < op->results[r]->uses.count; u++) {
                const sn_op *user = op->results[r]->uses.data[u].op;
                bool counts = user->phase == SN_PHASE_FORWARD && !a->anywhere[user->mark] && user->func == a->func;
                if (counts && a->stage[user->mark] >= 0 && a->stage[user->mark] < stage) stage = a->stage[user->mark];
            }
        }
        a->stage[op->mark] = stage;
    }
}

// A parameter belongs to the stage of its first use, seen through what is computed anywhere.
static void own_weights(assigner *a, const sn_value *value, int stage, int depth) {
    if (value->kind == SN_VALUE_GLOBAL) {
        sn_role role = value->global->role;
        if (role != SN_ROLE_PARAMETER && role != SN_ROLE_STATE) return;
        int now = owner_of(a, value->global);
        if (now < 0 || stage < now) set_owner(a, value->global, stage);
    } else if (value->kind == SN_VALUE_RESULT && a->anywhere[value->def->mark] && depth < 64) {
        for (int i = 0; i < value->def->n_operands; i++) own_weights(a, value->def->operands[i], stage, depth + 1);
    }
}

static void own(assigner *a) {
    SN_FOR_OPS(op, a->func) {
        if (op->phase != SN_PHASE_FORWARD || a->anywhere[op->mark]) continue;
        for (int i = 0; i < op->n_operands; i++) own_weights(a, op->operands[i], a->stage[op->mark], 0);
    }
    SN_FOR_OPS(op, a->func) {
        const sn_global *global = op->kind == SN_OP_ASSIGN ? op->operands[0]->global : NULL;
        if (!global || owner_of(a, global) >= 0) continue;
        const sn_op *from = settled(a, op->operands[1]);
        int stage = global->of ? owner_of(a, global->of) : -1;
        if (stage < 0) stage = from && op->phase == SN_PHASE_FORWARD ? a->stage[from->mark] : 0;
        set_owner(a, global, stage);
    }
}

// The stage below which a backward op may not go: its result ends up in a global there.
static void find_least(assigner *a) {
    for (sn_op *op = a->func->last; op; op = op->prev) {
        a->least[op->mark] = 0;
        if (op->kind == SN_OP_ASSIGN) a->least[op->mark] = owner_of(a, op->operands[0]->global);
        for (int r = 0; r < op->n_results; r++) {
            for (size_t u = 0; u < op->results[r]->uses.count; u++) {
                const sn_op *user = op->results[r]->uses.data[u].op;
                if (a->least[user->mark] > a->least[op->mark]) a->least[op->mark] = a->least[user->mark];
            }
        }
    }
}

// A sum over micro-batches is read where it is written.
static bool is_accumulator(const sn_global *global) {
    const unsigned others = 1 << SN_ROLE_PARAMETER | 1 << SN_ROLE_FROZEN | 1 << SN_ROLE_STATE | 1 << SN_ROLE_CONSTANT;
    return !(others >> global->role & 1);
}

static int backward_stage(const assigner *a, const sn_op *op) {
    if (op->kind == SN_OP_ASSIGN) return owner_of(a, op->operands[0]->global);
    int stage = preferred(a, op), most = a->nodes->n_stages - 1, forward = -1, backward = 0;
    for (int i = 0; i < op->n_operands; i++) {
        const sn_op *from = settled(a, op->operands[i]);
        const sn_value *value = op->operands[i];
        if (value->kind == SN_VALUE_GLOBAL && is_accumulator(value->global)) return owner_of(a, value->global);
        if (!from) continue;
        int at = a->stage[from->mark];
        if (from->phase == SN_PHASE_FORWARD)
            forward = at > forward ? at : forward;
        else
            most = at < most ? at : most, backward++;
    }
    // Gradients of later stages are added in the first of them: one value crosses the cut, not two, and one that a
    // stage reads itself goes no further.
    if (op->kind == SN_OP_ADD && backward == 2) stage = most;
    if (stage < 0) stage = most < a->nodes->n_stages - 1 || forward < 0 ? most : forward;
    if (stage > most) stage = most;
    return stage < a->least[op->mark] ? a->least[op->mark] : stage;
}

// The stage of the reader that runs first: the lowest, of what the backward pass makes the highest; -1 where one has
// none.
static int first_reader(const assigner *a, const sn_op *op) {
    int stage = -1;
    const sn_value *result = op->results[0];
    for (size_t u = 0; u < result->uses.count; u++) {
        const sn_op *user = result->uses.data[u].op;
        if (user->func != a->func || a->anywhere[user->mark]) return -1;
        int at = a->stage[user->mark];
        bool earlier = op->phase == SN_PHASE_FORWARD ? at < stage : at > stage;
        if (stage < 0 || earlier) stage = at;
    }
    return stage;
}

// What is gathered for another stage is gathered there: its parts cross the cut.
static void gather_where_read(assigner *a) {
    for (sn_op *op = a->func->last; op; op = op->prev) {
        if (op->kind != SN_OP_ALL_GATHER || a->anywhere[op->mark] || !settled(a, op->operands[0])) continue;
        int stage = first_reader(a, op);
        if (stage >= 0) a->stage[op->mark] = stage;
    }
}

void sn_stages_assign(sn_func *func, const sn_node_stages *nodes, const bool *anywhere, sn_map *owner, int *stage) {
    assigner a = {func, nodes, anywhere, owner, stage, sn_alloc(sizeof(int) * (func->n_ops + 1))};
    SN_FOR_OPS(op, func) stage[op->mark] = SN_HOME_ANYWHERE;
    assign_forward(&a);
    own(&a);
    find_least(&a);
    SN_FOR_OPS(op, func) {
        if (op->phase != SN_PHASE_FORWARD && !anywhere[op->mark]) stage[op->mark] = backward_stage(&a, op);
    }
    gather_where_read(&a);
    sn_free(a.least);
}
