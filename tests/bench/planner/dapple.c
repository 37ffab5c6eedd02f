// DAPPLE (Fan et al., PPoPP 2021): synchronous pipelines of replicated stages on nodes of devices, from profiles in
// PipeDream's format. A step of M micro-batches takes the sum of the stages' times and M - 1 times the longest; a
// stage's time is its compute on r replicas, what it receives and sends, and its share of the gradients' exchange,
// which happens once a step. Links within and between nodes differ, so a cut is a place in the model together with the
// devices used of the node.
#include "format.h"
#include "profile.h"

#include "base/alloc.h"
#include "base/vec.h"
#include "passes/partition/inter/ideals.h"
#include "passes/partition/inter/stages.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { IDEALS_MAX = 120 };

typedef struct planning {
    const char *file;
    profile graph;
    sn_ideals states;
    double *seconds, *parameters, *activations, *crossing; // [states] sums, and bytes that cross the state
    int devices, per_node, microbatches;
    double scale; // samples of a micro-batch by samples of the profile
    double inner, outer, memory;
    SN_VEC(sn_stage_shape) shapes;
} planning;

static void sum_states(planning *x) {
    size_t count = (size_t)x->states.count;
    x->seconds = sn_alloc(sizeof(double) * count);
    x->parameters = sn_alloc(sizeof(double) * count);
    x->activations = sn_alloc(sizeof(double) * count);
    x->crossing = sn_alloc(sizeof(double) * count);
    for (size_t s = 0; s < count; ++s) {
        const uint64_t *set = sn_ideal(&x->states, (int)s);
        for (int v = 0; v < x->states.units; ++v) {
            const profile_node *n = &x->graph.nodes.data[v];
            if (!sn_ideal_has(set, v)) continue;
            x->seconds[s] += (n->forward + n->backward) / 1000 * x->scale;
            x->parameters[s] += n->parameters;
            x->activations[s] += n->activation * x->scale;
            bool used = false;
            for (size_t i = 0; i < x->graph.edges.count && !used; ++i) {
                used = x->graph.edges.data[i].from == v && !sn_ideal_has(set, x->graph.edges.data[i].to);
            }
            if (used) x->crossing[s] += n->activation * x->scale;
        }
    }
}

// All downsets when they are few, else the prefixes of one order.
static void make_states(planning *x) {
    int units = (int)x->graph.nodes.count, count = (int)x->graph.edges.count;
    sn_unit_edge *edges = sn_alloc(sizeof *edges * (size_t)(count + units));
    int *order = sn_alloc(sizeof(int) * (size_t)units);
    if (count > 0) memcpy(edges, x->graph.edges.data, sizeof *edges * (size_t)count);
    if (!sn_ideals_linearize(units, edges, count, order)) bad_file(x->file, "the graph has a cycle");
    if (!sn_ideals_enumerate(units, edges, count, IDEALS_MAX, &x->states)) {
        for (int i = 1; i < units; ++i) edges[count++] = (sn_unit_edge){order[i - 1], order[i]};
        SN_CHECK(sn_ideals_enumerate(units, edges, count, units + 1, &x->states));
    }
    sn_free(edges);
    sn_free(order);
    sum_states(x);
}

// Cuts: the start, each inner state with each number of devices used of a node, the end.
static int cut_of(const planning *x, int state, int used) {
    return state == 0 ? 0 : 1 + (state - 1) * x->per_node + used;
}
static int cut_count(const planning *x) {
    return cut_of(x, x->states.count - 1, 0) + 1;
}
static int state_of(const planning *x, int cut) {
    return cut == 0 ? 0 : 1 + (cut - 1) / x->per_node;
}
static int used_of(const planning *x, int cut) {
    return cut == 0 ? 0 : (cut - 1) % x->per_node;
}

static int *make_kinds(const planning *x) {
    int cuts = cut_count(x), *kind = sn_alloc(sizeof(int) * (size_t)cuts * (size_t)cuts);
    for (int from = 0; from < cuts; ++from) {
        for (int to = 0; to < cuts; ++to) {
            const uint64_t *inner = sn_ideal(&x->states, state_of(x, from)),
                           *outer = sn_ideal(&x->states, state_of(x, to));
            bool follows = state_of(x, from) < state_of(x, to) && sn_ideal_within(&x->states, inner, outer);
            kind[from * cuts + to] = follows ? from * cuts + to : -1;
        }
    }
    return kind;
}

// Seconds to move bytes over a place in the cluster; between nodes when all devices of a node are used there.
static double moved(const planning *x, double bytes, bool cross) {
    return 2 * bytes / (cross ? x->outer : x->inner);
}

static double exchange(const planning *x, double parameters, int replicas, int used_before) {
    bool cross = used_before + replicas > x->per_node;
    return 2.0 * (replicas - 1) / replicas * parameters / (cross ? x->outer : x->inner);
}

static double stage_time(void *context, int kind, int shape, int in_flight, int *same_until) {
    const planning *x = context;
    int cuts = cut_count(x), from = kind / cuts, to = kind % cuts, a = state_of(x, from), b = state_of(x, to);
    int replicas = x->shapes.data[shape].data, before = used_of(x, from), used = (before + replicas) % x->per_node;
    if (to != cuts - 1 && used != used_of(x, to)) return INFINITY;
    double parameters = x->parameters[b] - x->parameters[a], kept = x->activations[b] - x->activations[a];
    if (4 * parameters + kept * in_flight / replicas > x->memory) return INFINITY; // weights, gradients, two moments
    if (kept == 0 || isinf(x->memory)) *same_until = INT_MAX;
    double time = (x->seconds[b] - x->seconds[a]) / replicas;
    if (a > 0) time += moved(x, x->crossing[a], before == 0) / replicas;
    if (to != cuts - 1) time += moved(x, x->crossing[b], used == 0) / replicas;
    return time + exchange(x, parameters, replicas, before) / x->microbatches;
}

// From the profile's nodes and edges: the seconds of a step.
static double evaluate(const planning *x, const sn_stage_plan *plan, sn_str *text) {
    double sum = 0, longest = 0;
    int used = 0;
    for (int i = 0; i < plan->stage_count; ++i) {
        const sn_stage *s = &plan->stages[i];
        const uint64_t *before = sn_ideal(&x->states, state_of(x, s->from)),
                       *behind = sn_ideal(&x->states, state_of(x, s->to));
        int replicas = x->shapes.data[s->shape].data, nodes = 0;
        double milliseconds = 0, parameters = 0, in = 0, out = 0;
        for (int v = 0; v < x->states.units; ++v) {
            const profile_node *n = &x->graph.nodes.data[v];
            bool earlier = sn_ideal_has(before, v), later = !sn_ideal_has(behind, v), used_here = false,
                 used_later = false;
            for (size_t k = 0; k < x->graph.edges.count; ++k) {
                if (x->graph.edges.data[k].from != v) continue;
                used_here |= !sn_ideal_has(before, x->graph.edges.data[k].to);
                used_later |= !sn_ideal_has(behind, x->graph.edges.data[k].to);
            }
            if (earlier && used_here) in += n->activation * x->scale; // values for later stages pass through
            if (!later && used_later) out += n->activation * x->scale;
            if (earlier || later) continue;
            milliseconds += (n->forward + n->backward) * x->scale;
            parameters += n->parameters;
            ++nodes;
        }
        double time = milliseconds / 1000 / replicas;
        time += 2 * in / (used % x->per_node == 0 ? x->outer : x->inner) / replicas;
        bool within = used % x->per_node + replicas <= x->per_node;
        time += 2.0 * (replicas - 1) / replicas * parameters / (within ? x->inner : x->outer) / x->microbatches;
        used += replicas;
        time += 2 * out / (used % x->per_node == 0 ? x->outer : x->inner) / replicas;
        sum += time;
        longest = fmax(longest, time);
        sn_str_printf(text, "stage %d: %d nodes on %d replicas, %.6g s\n", i, nodes, replicas, time);
    }
    return sum + longest * (x->microbatches - 1);
}

static void solve(const char *file, arguments *a, answer *out) {
    planning x = {.file = file, .graph = profile_read(file)};
    int micro = argument_count(a, "--micro-batch", 1, 1 << 20, 1);
    int global = argument_count(a, "--global-batch", 1, INT_MAX, 32 * micro);
    x.scale = micro / argument_positive(a, "--profile-batch", micro);
    x.per_node = argument_count(a, "--gpus-per-node", 1, 128, 8);
    x.devices = x.per_node * argument_count(a, "--nodes", 1, SN_STAGE_MAX_DEVICES / x.per_node, 2);
    x.inner = argument_positive(a, "--inner-bandwidth", 130e9);
    x.outer = argument_positive(a, "--outer-bandwidth", 3.125e9);
    x.memory = argument_positive(a, "--memory", INFINITY);
    arguments_end(a);
    if (global % micro != 0) bad_file(file, "a batch of %d has no whole micro-batches of %d", global, micro);
    x.microbatches = global / micro;
    make_states(&x);
    for (int replicas = 1; replicas <= x.devices; ++replicas) sn_vec_push(&x.shapes, (sn_stage_shape){replicas, 1});
    int *kind = make_kinds(&x);
    sn_stage_problem p = {.cuts = cut_count(&x),
                          .kind = kind,
                          .kinds = cut_count(&x) * cut_count(&x),
                          .shapes = x.shapes.data,
                          .shape_count = (int)x.shapes.count,
                          .devices = x.devices,
                          .microbatches = x.microbatches,
                          .objective = SN_STAGE_SYNCHRONOUS,
                          .stash = SN_STAGE_STASH_STAGES,
                          .time = stage_time,
                          .context = &x};
    sn_stage_plan plan = sn_stages_solve(&p);
    sn_str text = {0};
    *out = (answer){.feasible = plan.feasible, .planned = plan.objective, .lower_bound = plan.lower_bound};
    if (plan.feasible) out->objective = evaluate(&x, &plan, &text);
    out->plan = text.data;
    sn_stage_plan_free(&plan);
    sn_free(kind);
    sn_vec_free(&x.shapes);
    sn_ideals_free(&x.states);
    sn_free(x.seconds);
    sn_free(x.parameters);
    sn_free(x.activations);
    sn_free(x.crossing);
    profile_free(&x.graph);
}

const format format_dapple = {
    .name = "dapple",
    .help = "  --nodes N --gpus-per-node G       (default 2 x 8)\n"
            "  --global-batch B --micro-batch m --profile-batch p   samples (default: 32 micro-batches as profiled)\n"
            "  --inner-bandwidth B --outer-bandwidth B   bytes a second within and between nodes\n"
            "  --memory BYTES     of a device (default: no bound)\n"
            "  objective: seconds of a step\n",
    .solve = solve,
};
