// dnn-partitioning (Tarnawski et al., NeurIPS 2020): operators to accelerators and host CPUs, least max load, where a
// colour class stays together and, in training, the classes of the forward nodes are what is cut.
#include "format.h"

#include "base/alloc.h"
#include "base/vec.h"
#include "passes/partition/inter/loads.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IDEALS_MAX = 100000, DEVICES_MAX = 4096 };

typedef struct node {
    int id, colour;
    bool backward, on_accelerator;
    double accelerator_time, host_time, size;
    double out_cost; // of sending its value to one device
    int unit;
} node;

typedef struct edge {
    int from, to; // nodes
} edge;

typedef struct model {
    const char *file;
    SN_VEC(node) nodes;
    SN_VEC(edge) edges;
    double capacity;
    int accelerators, hosts, ideals_limit;
    int units;
} model;

static int by_id(const void *left, const void *right) {
    return ((const node *)left)->id - ((const node *)right)->id;
}

static int node_of(const model *m, const json_t *id) {
    node key = {.id = (int)json_integer_value(id)};
    const node *found = bsearch(&key, m->nodes.data, m->nodes.count, sizeof key, by_id);
    if (!found) bad_file(m->file, "no node has the id %d", key.id);
    return (int)(found - m->nodes.data);
}

// Some files say 1, some say true.
static bool is_set(const json_t *object, const char *key) {
    return json_is_true(json_object_get(object, key)) || json_number_at(object, key) != 0;
}

static void read_node(model *m, const json_t *json) {
    const json_t *colour = json_object_get(json, "colorClass");
    node n = {.id = (int)json_integer_value(json_object_get(json, "id")),
              .colour = colour ? (int)json_integer_value(colour) : INT_MIN,
              .backward = is_set(json, "isBackwardNode"),
              .on_accelerator = is_set(json, "supportedOnFpga"),
              .accelerator_time = json_number_at(json, "fpgaLatency"),
              .host_time = json_number_at(json, "cpuLatency"),
              .size = json_number_at(json, "size")};
    sn_vec_push(&m->nodes, n);
}

static json_t *read_model(const char *file, arguments *a, model *m) {
    json_t *json = read_json(file), *entry;
    size_t i;
    *m = (model){.file = file};
    m->capacity = argument_positive(a, "--memory", json_number_at(json, "maxSizePerFPGA"));
    m->accelerators = argument_count(a, "--accelerators", 0, DEVICES_MAX, -1);
    m->hosts = argument_count(a, "--hosts", 0, DEVICES_MAX, -1);
    m->ideals_limit = argument_count(a, "--ideals", 1, INT_MAX, IDEALS_MAX);
    arguments_end(a);
    json_array_foreach(json_object_get(json, "nodes"), i, entry) read_node(m, entry);
    if (m->nodes.count == 0) bad_file(file, "no nodes");
    qsort(m->nodes.data, m->nodes.count, sizeof *m->nodes.data, by_id);
    json_array_foreach(json_object_get(json, "edges"), i, entry) {
        edge e = {node_of(m, json_object_get(entry, "sourceId")), node_of(m, json_object_get(entry, "destId"))};
        m->nodes.data[e.from].out_cost = json_number_at(entry, "cost");
        if (m->nodes.data[e.from].backward && !m->nodes.data[e.to].backward)
            bad_file(file, "an edge from backward to forward");
        sn_vec_push(&m->edges, e);
    }
    if (m->accelerators < 0) m->accelerators = json_count_at(file, json, "maxFPGAs", 0, DEVICES_MAX);
    if (m->hosts < 0) m->hosts = json_count_at(file, json, "maxCPUs", 0, DEVICES_MAX);
    if (m->accelerators + m->hosts == 0) bad_file(file, "no accelerators and no hosts");
    return json;
}

// Units: sets of nodes that stay together.

static int root(int *parent, int i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
}

static void join_colours(const model *m, int *parent) {
    int count = (int)m->nodes.count;
    for (int i = 0; i < count; ++i) parent[i] = i;
    for (int i = 0; i < count; ++i) {
        for (int k = 0; k < i && m->nodes.data[i].colour != INT_MIN; ++k) {
            if (m->nodes.data[k].colour != m->nodes.data[i].colour) continue;
            parent[root(parent, i)] = root(parent, k);
            break;
        }
    }
}

static void number_units(model *m, int *parent) {
    m->units = 0;
    for (size_t i = 0; i < m->nodes.count; ++i) m->nodes.data[i].unit = -1;
    for (size_t i = 0; i < m->nodes.count; ++i) {
        node *first = &m->nodes.data[root(parent, (int)i)];
        if (first->unit < 0) first->unit = m->units++;
        m->nodes.data[i].unit = first->unit;
    }
}

// Precedence between units: of the forward nodes, and, for units that have no forward node, of the backward nodes in
// reverse (a backward node comes after what its forward node, if there were one, came before).
static int precedence(const model *m, sn_unit_edge *out) {
    bool *forward = sn_alloc((size_t)m->units + 1);
    int count = 0;
    for (size_t i = 0; i < m->nodes.count; ++i) forward[m->nodes.data[i].unit] |= !m->nodes.data[i].backward;
    for (size_t i = 0; i < m->edges.count; ++i) {
        const node *from = &m->nodes.data[m->edges.data[i].from], *to = &m->nodes.data[m->edges.data[i].to];
        if (from->unit == to->unit) continue;
        if (!to->backward) out[count++] = (sn_unit_edge){from->unit, to->unit};
        bool orphaned = !forward[from->unit] || !forward[to->unit];
        if (from->backward && to->backward && orphaned) out[count++] = (sn_unit_edge){to->unit, from->unit};
    }
    sn_free(forward);
    return count;
}

static void reach(int unit, int units, const sn_unit_edge *edges, int count, bool *reached) {
    int *stack = sn_alloc(sizeof(int) * (size_t)(units + 1)), depth = 0;
    stack[depth++] = unit;
    while (depth > 0) {
        int u = stack[--depth];
        for (int i = 0; i < count; ++i) {
            if (edges[i].from != u || reached[edges[i].to]) continue;
            reached[edges[i].to] = true;
            stack[depth++] = edges[i].to;
        }
    }
    sn_free(stack);
}

static int any_node(const model *m, int unit) {
    for (size_t i = 0; i < m->nodes.count; ++i) {
        if (m->nodes.data[i].unit == unit) return (int)i;
    }
    return -1;
}

// Units that depend on each other become one.
static void join_cycles(model *m, int *parent, const sn_unit_edge *edges, int count) {
    int units = m->units, *order = sn_alloc(sizeof(int) * (size_t)(units + 1));
    bool acyclic = sn_ideals_linearize(units, edges, count, order);
    bool *reached = sn_alloc((size_t)units * (size_t)units + 1);
    for (int u = 0; u < units && !acyclic; ++u) reach(u, units, edges, count, reached + (long)u * units);
    for (int u = 0; u < units && !acyclic; ++u) {
        for (int v = 0; v < u; ++v) {
            if (!reached[(long)u * units + v] || !reached[(long)v * units + u]) continue;
            parent[root(parent, any_node(m, u))] = root(parent, any_node(m, v));
            break;
        }
    }
    sn_free(reached);
    sn_free(order);
    number_units(m, parent);
}

// A unit that takes no time and has one neighbour is nowhere better than beside it, if memory allows: sources and sinks
// of this kind multiply the downsets.
static bool join_idle(model *m, int *parent) {
    double *time = sn_alloc(sizeof(double) * (size_t)m->units), size = 0;
    int *neighbour = sn_alloc(sizeof(int) * (size_t)m->units); // -1: none, -2: several
    bool joined = false;
    for (int u = 0; u < m->units; ++u) neighbour[u] = -1;
    for (size_t i = 0; i < m->nodes.count; ++i) {
        const node *n = &m->nodes.data[i];
        time[n->unit] += n->accelerator_time + n->host_time + (n->on_accelerator ? 0 : 1);
        size += n->size;
    }
    for (size_t i = 0; i < m->edges.count; ++i) {
        int a = m->nodes.data[m->edges.data[i].from].unit, b = m->nodes.data[m->edges.data[i].to].unit;
        if (a == b) continue;
        neighbour[a] = neighbour[a] == -1 || neighbour[a] == b ? b : -2;
        neighbour[b] = neighbour[b] == -1 || neighbour[b] == a ? a : -2;
    }
    for (int u = 0; u < m->units && size <= m->capacity; ++u) {
        if (time[u] > 0 || neighbour[u] < 0) continue;
        parent[root(parent, any_node(m, u))] = root(parent, any_node(m, neighbour[u]));
        joined = true;
        break; // neighbours change
    }
    sn_free(time);
    sn_free(neighbour);
    number_units(m, parent);
    return joined;
}

static int make_units(model *m, sn_unit_edge *edges) {
    int *parent = sn_alloc(sizeof(int) * (m->nodes.count + 1));
    join_colours(m, parent);
    number_units(m, parent);
    join_cycles(m, parent, edges, precedence(m, edges));
    while (join_idle(m, parent)) {
    }
    sn_free(parent);
    return precedence(m, edges);
}

typedef struct nets {
    int count;
    int *first, *unit;
    double *cost;
} nets;

// The units that hold each node's value.
static nets make_nets(const model *m) {
    size_t most = m->nodes.count + m->edges.count + 1;
    nets n = {0, sn_alloc(sizeof(int) * (m->nodes.count + 1)), sn_alloc(sizeof(int) * most),
              sn_alloc(sizeof(double) * most)};
    int end = 0;
    for (size_t i = 0; i < m->nodes.count; ++i) {
        int start = end;
        n.unit[end++] = m->nodes.data[i].unit;
        for (size_t k = 0; k < m->edges.count; ++k) {
            if (m->edges.data[k].from != (int)i) continue;
            int unit = m->nodes.data[m->edges.data[k].to].unit, at = start;
            while (at < end && n.unit[at] != unit) ++at;
            if (at == end) n.unit[end++] = unit;
        }
        if (end - start < 2 || m->nodes.data[i].out_cost == 0) {
            end = start;
            continue;
        }
        n.cost[n.count++] = m->nodes.data[i].out_cost;
        n.first[n.count] = end;
    }
    return n;
}

// From the file's nodes and edges: the largest load of the devices.
static double evaluate(const model *m, const sn_load_plan *plan, sn_str *text) {
    double longest = 0;
    for (int device = 0; device < plan->stages; ++device) {
        double time = 0, transfers = 0, size = 0;
        int nodes = 0;
        for (size_t i = 0; i < m->nodes.count; ++i) {
            const node *n = &m->nodes.data[i];
            bool here = plan->device[n->unit] == device, used_here = false, used_elsewhere = false;
            for (size_t k = 0; k < m->edges.count; ++k) {
                if (m->edges.data[k].from != (int)i) continue;
                bool inside = plan->device[m->nodes.data[m->edges.data[k].to].unit] == device;
                used_here |= inside;
                used_elsewhere |= !inside;
            }
            if (here && !plan->on_host[device] && !n->on_accelerator)
                bad_file(m->file, "node %d cannot run there", n->id);
            time += here ? (plan->on_host[device] ? n->host_time : n->accelerator_time) : 0;
            size += here ? n->size : 0;
            transfers += (here ? used_elsewhere : used_here) ? n->out_cost : 0;
            nodes += here;
        }
        if (!plan->on_host[device] && size > m->capacity) bad_file(m->file, "device %d is too small", device);
        double load = plan->on_host[device] ? time : time + transfers;
        longest = fmax(longest, load);
        sn_str_printf(text, "%s: %d nodes, %.6g ms + %.6g ms of transfers\n",
                      plan->on_host[device] ? "host" : "accelerator", nodes, time,
                      plan->on_host[device] ? 0 : transfers);
    }
    return longest;
}

static void sum_units(const model *m, double *accelerator, double *host, double *size) {
    for (size_t i = 0; i < m->nodes.count; ++i) {
        const node *n = &m->nodes.data[i];
        accelerator[n->unit] += n->on_accelerator ? n->accelerator_time : INFINITY;
        host[n->unit] += n->host_time;
        size[n->unit] += n->size;
    }
}

static void solve(const char *file, arguments *a, answer *out) {
    model m;
    json_t *json = read_model(file, a, &m);
    sn_unit_edge *edges = sn_alloc(sizeof *edges * (2 * m.edges.count + 1));
    sn_load_problem p = {.edges = edges, .capacity = m.capacity, .accelerators = m.accelerators, .hosts = m.hosts};
    p.ideals_limit = m.ideals_limit;
    p.edge_count = make_units(&m, edges);
    p.units = m.units;
    double *sums = sn_alloc(sizeof(double) * 3 * (size_t)m.units);
    sum_units(&m, sums, sums + m.units, sums + 2 * m.units);
    p.accelerator_time = sums;
    p.host_time = sums + m.units;
    p.size = sums + 2 * m.units;
    nets n = make_nets(&m);
    p.net_count = n.count;
    p.net_first = n.first;
    p.net_unit = n.unit;
    p.net_cost = n.cost;
    sn_load_plan plan;
    if (!sn_loads_solve(&p, &plan)) bad_file(file, "the graph has a cycle");
    sn_str text = {0};
    sn_str_printf(&text, "%d nodes in %d units, %d downsets\n", (int)m.nodes.count, m.units, plan.ideals);
    *out = (answer){.feasible = plan.feasible, .planned = plan.objective, .lower_bound = plan.lower_bound};
    if (plan.feasible) out->objective = evaluate(&m, &plan, &text);
    out->plan = text.data;
    sn_load_plan_free(&plan);
    sn_free(n.first);
    sn_free(n.unit);
    sn_free(n.cost);
    sn_free(sums);
    sn_free(edges);
    sn_vec_free(&m.nodes);
    sn_vec_free(&m.edges);
    json_decref(json);
}

const format format_dnn_partitioning = {
    .name = "dnn-partitioning",
    .help = "  --accelerators K --hosts H --memory BYTES   (default: the file's)\n"
            "  --ideals N         only the prefixes of one order are cuts when there are more downsets\n"
            "  objective: the largest load, in the file's milliseconds\n",
    .solve = solve,
};
