// PipeDream's optimizer (Narayanan et al., SOSP 2019): stages and their replication on a hierarchy of machines.
#include "format.h"
#include "profile.h"

#include "base/alloc.h"
#include "base/str.h"
#include "base/vec.h"
#include "passes/partition/inter/levels.h"

#include <math.h>
#include <string.h>

enum { STATES_MAX = 1500, LEVELS_MAX = 4 };

typedef struct model {
    const char *file;
    profile graph;
    int *first_edge, *edge_to; // [nodes + 1], [edges]
    bool *reaches;             // [nodes][nodes] a path of one edge or more
    int source;
    sn_ideals states;
    bool linear; // the states are those of one order alone
    double *time, *parameters, *activations, *output;
    bool *precedes;
} model;

static bool reaches(const model *m, int from, int to) {
    return m->reaches[(size_t)from * m->graph.nodes.count + (size_t)to];
}

// The input costs nothing and its place is no choice; items of tuples that nothing uses are no work.
static void remove_placeless(profile *p) {
    for (int i = (int)p->nodes.count - 1; i >= 0; --i) {
        bool input = sn_starts_with(p->nodes.data[i].description, "Input") && !profile_has_edge(p, i, false);
        if (input) profile_remove(p, i);
    }
    bool *unused = sn_alloc(p->nodes.count + 1);
    for (size_t i = 0; i < p->nodes.count; ++i) {
        unused[i] = sn_starts_with(p->nodes.data[i].description, "__getitem__") && !profile_has_edge(p, (int)i, true);
    }
    for (int i = (int)p->nodes.count - 1; i >= 0; --i) {
        if (unused[i]) profile_remove(p, i);
    }
    sn_free(unused);
}

static void sort_edges(model *m) {
    size_t n = m->graph.nodes.count, count = m->graph.edges.count;
    m->first_edge = sn_alloc(sizeof(int) * (n + 1));
    m->edge_to = sn_alloc(sizeof(int) * (count + 1));
    int end = 0;
    for (size_t node = 0; node < n; ++node) {
        m->first_edge[node] = end;
        for (size_t i = 0; i < count; ++i) {
            if (m->graph.edges.data[i].from == (int)node) m->edge_to[end++] = m->graph.edges.data[i].to;
        }
    }
    m->first_edge[n] = end;
}

static void find_paths(model *m) {
    size_t n = m->graph.nodes.count;
    sort_edges(m);
    int *order = sn_alloc(sizeof(int) * (n + 1));
    m->reaches = sn_alloc(n * n + 1);
    if (!sn_ideals_linearize((int)n, m->graph.edges.data, (int)m->graph.edges.count, order))
        bad_file(m->file, "a cycle");
    for (size_t at = n; at-- > 0;) {
        size_t unit = (size_t)order[at];
        for (size_t i = 0; i < m->graph.edges.count; ++i) {
            sn_unit_edge e = m->graph.edges.data[i];
            if ((size_t)e.from != unit) continue;
            m->reaches[unit * n + (size_t)e.to] = true;
            for (size_t v = 0; v < n; ++v) m->reaches[unit * n + v] |= m->reaches[(size_t)e.to * n + v];
        }
    }
    for (m->source = 0; profile_has_edge(&m->graph, m->source, false);) ++m->source;
    sn_free(order);
}

// Nothing else of the downset uses it.
static bool is_last(const model *m, const uint64_t *set, int node) {
    for (int i = m->first_edge[node]; i < m->first_edge[node + 1]; ++i) {
        if (sn_ideal_has(set, m->edge_to[i])) return false;
    }
    return true;
}

static int size_of(const model *m, const uint64_t *set) {
    int size = 0;
    for (int w = 0; w < m->states.words; ++w) size += __builtin_popcountll(set[w]);
    return size;
}

// Inserts by size; the place, or -1 when the set is known.
static int insert_state(model *m, const uint64_t *set) {
    size_t words = (size_t)m->states.words, bytes = sizeof(uint64_t) * words;
    int at = m->states.count, size = size_of(m, set);
    for (int i = 0; i < m->states.count; ++i) {
        if (memcmp(sn_ideal(&m->states, i), set, bytes) == 0) return -1;
        if (at == m->states.count && size_of(m, sn_ideal(&m->states, i)) > size) at = i;
    }
    uint64_t *place = m->states.bits + (size_t)at * words;
    memmove(place + words, place, bytes * (size_t)(m->states.count++ - at));
    memcpy(place, set, bytes);
    return at;
}

// The states PipeDream looks at: it begins with the first source and goes on to a user of what it has, with all that
// the user depends on. These are the downsets that hold the first source, except some of models with several sources.
static bool grow_states(model *m) {
    int n = (int)m->graph.nodes.count;
    m->states = (sn_ideals){.units = n, .words = (n + 63) / 64};
    size_t words = (size_t)m->states.words;
    m->states.bits = sn_alloc(sizeof(uint64_t) * words * (STATES_MAX + 1));
    uint64_t *set = sn_alloc(sizeof(uint64_t) * words);
    set[m->source >> 6] |= (uint64_t)1 << (m->source & 63);
    insert_state(m, set);
    // A new state is larger than the one it grows from, so it lies behind it.
    bool fine = true;
    for (int i = 0; i < m->states.count && fine; ++i) {
        for (size_t k = 0; k < m->graph.edges.count && fine; ++k) {
            sn_unit_edge e = m->graph.edges.data[k];
            memcpy(set, sn_ideal(&m->states, i), sizeof(uint64_t) * words);
            if (!sn_ideal_has(set, e.from) || sn_ideal_has(set, e.to)) continue;
            for (int v = 0; v < n; ++v) {
                if (v == e.to || reaches(m, v, e.to)) set[v >> 6] |= (uint64_t)1 << (v & 63);
            }
            fine = m->states.count < STATES_MAX;
            if (fine) insert_state(m, set);
        }
    }
    sn_free(set);
    return fine;
}

// Too many states: the prefixes of one order.
static void chain_states(model *m) {
    int n = m->states.units, *order = sn_alloc(sizeof(int) * (size_t)n);
    size_t words = (size_t)m->states.words;
    uint64_t *set = sn_alloc(sizeof(uint64_t) * words);
    sn_ideals_linearize(n, m->graph.edges.data, (int)m->graph.edges.count, order);
    m->states.count = 0;
    m->linear = true;
    for (int i = 0; i < n; ++i) {
        set[order[i] >> 6] |= (uint64_t)1 << (order[i] & 63);
        insert_state(m, set);
    }
    sn_free(set);
    sn_free(order);
}

// What crosses a cut: the last nodes, and what a last node depends on that has a user it does not depend on.
static bool crosses(const model *m, int node, int last_count, const int *last) {
    for (int k = 0; k < last_count; ++k) {
        if (last[k] == node) return true;
        for (int i = m->first_edge[node]; i < m->first_edge[node + 1] && reaches(m, node, last[k]); ++i) {
            if (m->edge_to[i] != last[k] && !reaches(m, m->edge_to[i], last[k])) return true;
        }
    }
    return false;
}

static void sum_states(model *m) {
    size_t count = (size_t)m->states.count;
    m->time = sn_alloc(sizeof(double) * count);
    m->parameters = sn_alloc(sizeof(double) * count);
    m->activations = sn_alloc(sizeof(double) * count);
    m->output = sn_alloc(sizeof(double) * count);
    m->precedes = sn_alloc(count * count);
    int *last = sn_alloc(sizeof(int) * (size_t)(m->states.units + 1));
    for (size_t s = 0; s < count; ++s) {
        const uint64_t *set = sn_ideal(&m->states, (int)s);
        int last_count = 0;
        for (int v = 0; v < m->states.units; ++v) {
            if (sn_ideal_has(set, v) && is_last(m, set, v)) last[last_count++] = v;
        }
        for (int v = 0; v < m->states.units; ++v) {
            const profile_node *n = &m->graph.nodes.data[v];
            if (!sn_ideal_has(set, v)) continue;
            m->time[s] += (n->forward + n->backward) / 1000;
            m->activations[s] += n->activation;
            m->parameters[s] += n->parameters;
            if (crosses(m, v, last_count, last)) m->output[s] += n->activation;
        }
        for (size_t t = 0; t < s; ++t)
            m->precedes[t * count + s] = sn_ideal_within(&m->states, sn_ideal(&m->states, (int)t), set);
    }
    sn_free(last);
}

static void read_model(const char *file, model *m) {
    *m = (model){.file = file, .graph = profile_read(file)};
    remove_placeless(&m->graph);
    find_paths(m);
    if (!grow_states(m)) chain_states(m);
    sum_states(m);
}

static void free_model(model *m) {
    profile_free(&m->graph);
    sn_ideals_free(&m->states);
    sn_free(m->reaches);
    sn_free(m->first_edge);
    sn_free(m->edge_to);
    sn_free(m->time);
    sn_free(m->parameters);
    sn_free(m->activations);
    sn_free(m->output);
    sn_free(m->precedes);
}

// The evaluation adds up nodes, stage by stage.

typedef struct stage_sums {
    double milliseconds, parameters, activations;
} stage_sums;

static stage_sums sums_of(const model *m, const sn_level_stage *s) {
    stage_sums sums = {0};
    for (int v = 0; v < m->states.units; ++v) {
        const profile_node *n = &m->graph.nodes.data[v];
        if (!sn_ideal_has(sn_ideal(&m->states, s->to), v)) continue;
        if (s->from >= 0 && sn_ideal_has(sn_ideal(&m->states, s->from), v)) continue;
        sums.milliseconds += n->forward + n->backward;
        sums.parameters += n->parameters;
        sums.activations += n->activation;
    }
    return sums;
}

typedef struct evaluation {
    const model *m;
    const sn_level_problem *p;
    const sn_level_plan *plan;
    int next; // stage
    sn_str *text;
} evaluation;

// The slowest stage of the pipeline whose stages follow, behind state `from` up to state `to`.
static double evaluate_pipeline(evaluation *e, int level, int from, int to) {
    const sn_level *l = &e->p->levels[level];
    double slowest = 0;
    int machines = 0;
    while (from < to) {
        const sn_level_stage *s = &e->plan->stages[e->next++];
        if (s->level != level || s->from != from) bad_file(e->m->file, "the plan's stages do not follow one another");
        bool first = machines == 0, last = s->to == to;
        machines += s->machines;
        stage_sums sums = sums_of(e->m, s);
        sn_str_printf(e->text, "%*slevel %d: states %d to %d on %d\n", 2 * (e->p->level_count - 1 - level), "", level,
                      s->from + 1, s->to, s->machines);
        double inside = level > 0 ? evaluate_pipeline(e, level - 1, from, s->to) : sums.milliseconds / 1000;
        double exchange = 4.0 * (s->machines - 1) * sums.parameters / (l->bandwidth * s->machines);
        if (first && level > 0) exchange /= e->p->levels[level - 1].machines; // as PipeDream divides it
        slowest = fmax(slowest, (inside + exchange) / s->machines);
        double held = ceil((double)(l->machines - machines) / s->machines) * (sums.activations + sums.parameters);
        if (held > e->p->memory) bad_file(e->m->file, "a stage does not fit");
        double sent = 2 * e->p->transfer_weight / (l->bandwidth * s->machines);
        if (!first) slowest = fmax(slowest, sent * e->m->output[from]);
        if (!first && s->to < e->m->states.count - 1) slowest = fmax(slowest, sent * e->m->output[s->to]);
        from = s->to;
        if (last && machines != l->machines)
            bad_file(e->m->file, "the plan uses %d of %d machines", machines, l->machines);
    }
    return slowest;
}

static void solve(const char *file, arguments *a, answer *out) {
    model m;
    double machines[LEVELS_MAX] = {1}, bandwidth[LEVELS_MAX] = {1e9};
    int levels = argument_numbers(a, "-n", machines, LEVELS_MAX),
        bandwidths = argument_numbers(a, "-b", bandwidth, LEVELS_MAX);
    if (levels == 0 || levels != bandwidths) bad_file(file, "-n and -b take one number a level");
    sn_level level[LEVELS_MAX];
    for (int i = 0; i < levels; ++i) {
        if (machines[i] < 1 || machines[i] > 1024 || !(bandwidth[i] > 0))
            bad_file(file, "level %d: no machines or no bandwidth", i);
        level[i] = (sn_level){(int)machines[i], bandwidth[i]};
    }
    double ratio = argument_positive(a, "--activation_compression_ratio", 0);
    double memory = argument_positive(a, "-s", 16e9);
    bool bounded = argument_flag(a, "--use_memory_constraint");
    arguments_end(a);
    read_model(file, &m);
    sn_level_problem p = {.states = m.states.count,
                          .precedes = m.precedes,
                          .time = m.time,
                          .parameters = m.parameters,
                          .activations = m.activations,
                          .output = m.output,
                          .level_count = levels,
                          .levels = level,
                          .memory = bounded ? memory : INFINITY,
                          .transfer_weight = ratio > 0 ? 1 / ratio : 0};
    sn_level_plan plan = sn_levels_solve(&p);
    sn_str text = {0};
    *out = (answer){.feasible = plan.feasible, .planned = plan.objective, .lower_bound = plan.objective};
    sn_str_printf(&text, "%d states\n", m.states.count);
    evaluation e = {&m, &p, &plan, 0, &text};
    if (plan.feasible) out->objective = evaluate_pipeline(&e, levels - 1, -1, m.states.count - 1);
    out->plan = text.data;
    if (m.linear) {
        double all = 1;
        for (int i = 0; i < levels; ++i) all *= machines[i];
        out->lower_bound = m.time[m.states.count - 1] / all;
    }
    sn_level_plan_free(&plan);
    free_model(&m);
}

const format format_pipedream = {
    .name = "pipedream",
    .help = "  -n M...            machines of each level, innermost first\n"
            "  -b B...            bandwidth of each level, bytes a second\n"
            "  --activation_compression_ratio R   transfers between stages count, divided by R\n"
            "  --use_memory_constraint -s BYTES   memory of a device (default 16e9)\n"
            "  objective: seconds of the slowest stage\n",
    .solve = solve,
};
