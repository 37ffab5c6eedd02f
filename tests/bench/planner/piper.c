// Piper (Tarnawski et al., NeurIPS 2021): stages are differences of nested downsets; a stage takes d x t devices and
// one variant (with or without recomputation) per node; what counts is the longest stage of a full pipeline.
#include "format.h"

#include "base/alloc.h"
#include "base/vec.h"
#include "passes/partition/inter/cover.h"
#include "passes/partition/inter/ideals.h"
#include "passes/partition/inter/stages.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEGREES_MAX = 16, LAYERS_MAX = 4096, CUTS_MAX = 6000, IDEALS_MAX = 2000000 };

typedef struct variant {
    double time, parameters, memory_a, memory_b; // memory: a * in flight + b
    bool lean;                                   // recomputes
} variant;

typedef struct node {
    const json_t *json;
    int id;
    variant variants[DEGREES_MAX][2];
    int variant_count[DEGREES_MAX];
} node;

typedef struct edge {
    int from, to;
    double bytes;
    double sync_from[DEGREES_MAX], sync_to[DEGREES_MAX]; // bytes its ends add when their stage is cut there
} edge;

typedef struct model {
    const char *file;
    SN_VEC(node) nodes;
    SN_VEC(edge) edges;
    int degrees[DEGREES_MAX], degree_count; // of tensor parallelism
    int devices;
    double memory, bandwidth, batch;
    bool data, tensor, recompute; // allowed
} model;

static int node_of(const model *m, int id) {
    for (size_t i = 0; i < m->nodes.count; ++i) {
        if (m->nodes.data[i].id == id) return (int)i;
    }
    bad_file(m->file, "no node has the id %d", id);
}

static int degree_of(model *m, int degree) {
    for (int i = 0; i < m->degree_count; ++i) {
        if (m->degrees[i] == degree) return i;
    }
    if (m->degree_count == DEGREES_MAX) bad_file(m->file, "more than %d degrees of tensor parallelism", DEGREES_MAX);
    m->degrees[m->degree_count] = degree;
    return m->degree_count++;
}

static void read_variants(model *m, node *n, int degree, const json_t *list) {
    size_t i;
    json_t *json;
    json_array_foreach((json_t *)list, i, json) {
        const char *name = json_string_value(json_object_get(json, "id"));
        bool lean = name && strcmp(name, "vanilla") != 0;
        if (lean && !m->recompute) continue;
        if (n->variant_count[degree] == 2) bad_file(m->file, "node %d has more than two variants", n->id);
        n->variants[degree][n->variant_count[degree]++] =
            (variant){json_number_at(json, "timePerSample"), json_number_at(json, "parameterSize"),
                      json_number_at(json, "memoryUsageA"), json_number_at(json, "memoryUsageB"), lean};
    }
}

static void read_node(model *m, const json_t *json) {
    node n = {.json = json, .id = (int)json_integer_value(json_object_get(json, "id"))};
    const char *key;
    json_t *list;
    json_object_foreach(json_object_get(json, "TMPCs"), key, list) {
        int degree = atoi(key);
        if (degree < 1) bad_file(m->file, "node %d: '%s' is no degree", n.id, key);
        if (degree == 1 || m->tensor) read_variants(m, &n, degree_of(m, degree), list);
    }
    sn_vec_push(&m->nodes, n);
}

static double sync_of(const model *m, const node *n, int degree, const char *direction, int other) {
    char key[16], name[16];
    snprintf(key, sizeof key, "%d", m->degrees[degree]);
    snprintf(name, sizeof name, "%d", other);
    const json_t *variants = json_object_get(json_object_get(n->json, "TMPCs"), key);
    double bytes = json_number_at(json_object_get(json_array_get(variants, 0), direction), name);
    for (size_t i = 1; i < json_array_size(variants); ++i) {
        if (json_number_at(json_object_get(json_array_get(variants, i), direction), name) != bytes) {
            bad_file(m->file, "the variants of node %d differ in what they send", n->id);
        }
    }
    return bytes;
}

static void read_edge(model *m, const json_t *json) {
    int from = (int)json_integer_value(json_object_get(json, "sourceId"));
    int to = (int)json_integer_value(json_object_get(json, "destId"));
    edge e = {node_of(m, from), node_of(m, to), json_number_at(json, "communicationCost"), {0}, {0}};
    for (int degree = 0; degree < m->degree_count; ++degree) {
        e.sync_from[degree] = sync_of(m, &m->nodes.data[e.from], degree, "syncTimeBw", to);
        e.sync_to[degree] = sync_of(m, &m->nodes.data[e.to], degree, "syncTimeFw", from);
    }
    sn_vec_push(&m->edges, e);
}

static bool is_layer(const node *n) {
    const char *name = json_string_value(json_object_get(n->json, "name"));
    return name && strcmp(name, "ParallelTransformerLayer") == 0;
}

static edge *edge_between_layers(model *m, int node, bool from) {
    for (size_t i = 0; i < m->edges.count; ++i) {
        edge *e = &m->edges.data[i];
        if ((from ? e->from : e->to) == node && is_layer(&m->nodes.data[from ? e->to : e->from])) return e;
    }
    return NULL;
}

// The last layer that lies between two others.
static int layer_to_repeat(model *m) {
    for (int i = (int)m->nodes.count - 1; i >= 0; --i) {
        if (is_layer(&m->nodes.data[i]) && edge_between_layers(m, i, true) && edge_between_layers(m, i, false))
            return i;
    }
    bad_file(m->file, "no layer lies between two others");
}

// Larger models repeat one layer, with its edges from and to layers alone.
static void add_layers(model *m, int layers) {
    int present = 0;
    for (size_t i = 0; i < m->nodes.count; ++i) present += is_layer(&m->nodes.data[i]);
    for (; present < layers; ++present) {
        int layer = layer_to_repeat(m);
        edge *e = edge_between_layers(m, layer, true), added = *e;
        node copy = m->nodes.data[layer];
        copy.id = 100000 + present;
        e->to = added.from = (int)m->nodes.count;
        sn_vec_push(&m->nodes, copy);
        sn_vec_push(&m->edges, added);
    }
}

static json_t *read_model(const char *file, arguments *a, model *m) {
    json_t *json = read_json(file), *entry;
    size_t i;
    *m = (model){.file = file};
    m->devices = argument_count(a, "--devices", 1, SN_STAGE_MAX_DEVICES, 0);
    if (m->devices == 0) m->devices = json_count_at(file, json, "maxDevices", 1, SN_STAGE_MAX_DEVICES);
    m->memory = argument_positive(a, "--memory", 0) * 0x1p30;
    if (m->memory == 0) m->memory = json_number_at(json, "maxMemoryPerDevice");
    m->bandwidth = argument_positive(a, "--bandwidth", 0) * 0x1p30;
    if (m->bandwidth == 0) m->bandwidth = json_number_at(json, "bandwidth");
    m->batch = argument_count(a, "--batch", 1, INT_MAX, 0);
    m->data = !argument_flag(a, "--no-data");
    m->tensor = !argument_flag(a, "--no-tensor");
    m->recompute = !argument_flag(a, "--no-recompute");
    int layers = argument_count(a, "--layers", 1, LAYERS_MAX, 0);
    arguments_end(a);
    json_array_foreach(json_object_get(json, "nodes"), i, entry) read_node(m, entry);
    json_array_foreach(json_object_get(json, "edges"), i, entry) read_edge(m, entry);
    if (m->nodes.count == 0) bad_file(file, "no nodes");
    if (m->batch == 0) m->batch = json_count_at(file, json, "mbsInBatch", 1, INT_MAX);
    if (!(m->memory > 0) || !(m->bandwidth > 0)) bad_file(file, "no maxMemoryPerDevice or no bandwidth");
    add_layers(m, layers);
    return json;
}

// What lies between two cuts, on one tensor degree: its least compute time for each number in flight.
typedef struct stage_curve {
    double exchanged, parameters; // bytes
    int steps;                    // 0: it does not run on this degree, or does not fit
    int *until;                   // [steps] largest number in flight
    double *time;                 // [steps]
} stage_curve;

typedef struct instance {
    model *m;
    sn_ideals ideals;
    int *cut; // the downsets that are cuts
    sn_stage_problem problem;
    SN_VEC(sn_stage_shape) shapes;
    int *shape_degree;
    int *from, *to;      // [kinds] downsets
    stage_curve *curves; // [kinds][degrees]
} instance;

static bool in_stage(const instance *x, int kind, int node) {
    return sn_ideal_has(sn_ideal(&x->ideals, x->to[kind]), node) &&
           !sn_ideal_has(sn_ideal(&x->ideals, x->from[kind]), node);
}

// A node's own choice at `in_flight`: the variant that is taken when memory is no concern, and the other one.
typedef struct choice {
    int node;
    const variant *fast, *lean; // lean: NULL when it saves nothing
} choice;

static double memory_of(const variant *v, int in_flight) {
    return v->memory_a * in_flight + v->memory_b;
}

static choice choose(const node *n, int index, int degree, int in_flight) {
    const variant *a = &n->variants[degree][0], *b = &n->variants[degree][1];
    if (n->variant_count[degree] == 1) return (choice){index, a, NULL};
    bool swap = b->time < a->time || (b->time == a->time && memory_of(b, in_flight) < memory_of(a, in_flight));
    const variant *fast = swap ? b : a, *lean = swap ? a : b;
    return (choice){index, fast, memory_of(lean, in_flight) < memory_of(fast, in_flight) ? lean : NULL};
}

// The least compute time of a stage and, if asked, the variants that attain it.
static double least_time(const instance *x, int kind, int degree, int in_flight, const variant **taken) {
    int nodes = (int)x->m->nodes.count, items = 0;
    sn_cover_item *item = sn_alloc(sizeof *item * (size_t)(nodes + 1));
    choice *choices = sn_alloc(sizeof *choices * (size_t)(nodes + 1));
    bool *lean = sn_alloc((size_t)nodes + 1);
    double time = 0, memory = 0;
    for (int v = 0; v < nodes; ++v) {
        if (!in_stage(x, kind, v)) continue;
        choice c = choose(&x->m->nodes.data[v], v, degree, in_flight);
        time += c.fast->time;
        memory += memory_of(c.fast, in_flight);
        if (taken) taken[v] = c.fast;
        if (!c.lean) continue;
        choices[items] = c;
        item[items++] =
            (sn_cover_item){c.lean->time - c.fast->time, memory_of(c.fast, in_flight) - memory_of(c.lean, in_flight)};
    }
    time += sn_cover_least(items, item, memory - x->m->memory, taken ? lean : NULL);
    for (int i = 0; taken && i < items; ++i) {
        if (lean[i]) taken[choices[i].node] = choices[i].lean;
    }
    sn_free(item);
    sn_free(choices);
    sn_free(lean);
    return time;
}

// The largest number in flight, from `low` (which does) on, that takes no longer than `time`.
static int same_until(const instance *x, int kind, int degree, int low, int most, double time) {
    int step = 1;
    while (low < most) {
        int probe = low + step > most ? most : low + step;
        if (least_time(x, kind, degree, probe, NULL) <= time) {
            low = probe;
            step *= 2;
        } else if (step == 1) {
            break;
        } else {
            step = 1;
            most = probe - 1;
        }
    }
    return low;
}

static void make_curve(const instance *x, int kind, int degree, stage_curve *curve) {
    const model *m = x->m;
    for (int v = 0; v < (int)m->nodes.count; ++v) {
        if (!in_stage(x, kind, v)) continue;
        if (m->nodes.data[v].variant_count[degree] == 0) return;
        curve->parameters += m->nodes.data[v].variants[degree][0].parameters;
    }
    for (size_t i = 0; i < m->edges.count; ++i) {
        const edge *e = &m->edges.data[i];
        bool from = in_stage(x, kind, e->from), to = in_stage(x, kind, e->to);
        if (from != to) curve->exchanged += 2 * (e->bytes + (from ? e->sync_from : e->sync_to)[degree]);
    }
    int most = m->batch < m->devices ? (int)m->batch : m->devices;
    SN_VEC(int) until = {0};
    SN_VEC(double) times = {0};
    for (int in_flight = 1; in_flight <= most;) {
        double time = least_time(x, kind, degree, in_flight, NULL);
        if (isinf(time)) break;
        in_flight = same_until(x, kind, degree, in_flight, most, time);
        sn_vec_push(&until, in_flight == most ? INT_MAX : in_flight);
        sn_vec_push(&times, time);
        ++in_flight;
    }
    curve->steps = (int)until.count;
    curve->until = until.data;
    curve->time = times.data;
}

static double stage_time(void *context, int kind, int shape, int in_flight, int *until) {
    const instance *x = context;
    const stage_curve *c = &x->curves[kind * x->m->degree_count + x->shape_degree[shape]];
    int low = 0, high = c->steps;
    while (low < high) {
        int middle = (low + high) / 2;
        if (c->until[middle] < in_flight) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == c->steps) return INFINITY;
    *until = c->until[low];
    double d = x->shapes.data[shape].data;
    double synchronised = 4 * (d - 1) / d * (c->parameters / x->m->batch);
    return (c->exchanged / d + synchronised) / x->m->bandwidth + c->time[low] / d;
}

static void make_shapes(instance *x) {
    const model *m = x->m;
    for (int degree = 0; degree < m->degree_count; ++degree) {
        for (int d = 1; d * m->degrees[degree] <= m->devices && (d == 1 || m->data); ++d) {
            if (fmod(m->batch, d) != 0) continue;
            sn_vec_push(&x->shapes, (sn_stage_shape){d, m->degrees[degree]});
        }
    }
    x->shape_degree = sn_alloc(sizeof(int) * (x->shapes.count + 1));
    for (size_t i = 0; i < x->shapes.count; ++i) x->shape_degree[i] = degree_of(x->m, x->shapes.data[i].tensor);
}

static void make_kinds(instance *x) {
    int cuts = x->ideals.count, kinds = 0;
    int *kind = sn_alloc(sizeof(int) * (size_t)cuts * (size_t)cuts);
    for (int i = 0; i < cuts * cuts; ++i) kind[i] = -1;
    for (int from = 0; from < cuts; ++from) {
        for (int to = from + 1; to < cuts; ++to) {
            if (sn_ideal_within(&x->ideals, sn_ideal(&x->ideals, from), sn_ideal(&x->ideals, to))) {
                kind[from * cuts + to] = kinds++;
            }
        }
    }
    x->from = sn_alloc(sizeof(int) * (size_t)kinds);
    x->to = sn_alloc(sizeof(int) * (size_t)kinds);
    x->curves = sn_alloc(sizeof *x->curves * (size_t)kinds * (size_t)x->m->degree_count);
    for (int i = 0; i < cuts * cuts; ++i) {
        if (kind[i] < 0) continue;
        x->from[kind[i]] = i / cuts;
        x->to[kind[i]] = i % cuts;
        for (int degree = 0; degree < x->m->degree_count; ++degree) {
            make_curve(x, kind[i], degree, &x->curves[kind[i] * x->m->degree_count + degree]);
        }
    }
    x->problem.cuts = cuts;
    x->problem.kind = kind;
    x->problem.kinds = kinds;
}

// From the file's numbers: the load of each stage, and whether it fits.
static double evaluate(const instance *x, const sn_stage_plan *plan, sn_str *text) {
    const model *m = x->m;
    double longest = 0;
    int replicas_after = 0;
    const variant **taken = sn_alloc(sizeof *taken * (m->nodes.count + 1));
    for (int i = plan->stage_count - 1; i >= 0; --i) {
        const sn_stage *s = &plan->stages[i];
        int kind = x->problem.kind[s->from * x->problem.cuts + s->to], degree = x->shape_degree[s->shape], lean = 0,
            nodes = 0;
        int d = x->shapes.data[s->shape].data;
        replicas_after += d;
        int in_flight = (replicas_after + d - 1) / d;
        least_time(x, kind, degree, in_flight, taken);
        double bytes = 0, time = 0, memory = 0;
        for (size_t v = 0; v < m->nodes.count; ++v) {
            if (!in_stage(x, kind, (int)v)) continue;
            time += taken[v]->time / d;
            memory += taken[v]->memory_a * in_flight + taken[v]->memory_b;
            bytes += 4.0 * (d - 1) / d * taken[v]->parameters / m->batch;
            lean += taken[v]->lean;
            ++nodes;
            for (size_t k = 0; k < m->edges.count; ++k) {
                const edge *e = &m->edges.data[k];
                if (e->to == (int)v && !in_stage(x, kind, e->from)) bytes += 2 * (e->bytes + e->sync_to[degree]) / d;
                if (e->from == (int)v && !in_stage(x, kind, e->to)) bytes += 2 * (e->bytes + e->sync_from[degree]) / d;
            }
        }
        if (memory > m->memory * (1 + 1e-12)) bad_file(m->file, "stage %d does not fit", i);
        time += bytes / m->bandwidth;
        longest = fmax(longest, time);
        sn_str_printf(text, "stage %d: %d nodes (%d recompute), data %d x tensor %d, %d in flight, %.9g s\n", i, nodes,
                      lean, d, m->degrees[degree], in_flight, time);
    }
    sn_free(taken);
    return longest;
}

// The whole model on one pipeline of D devices takes at least work / D a micro-batch, so a cut with a plan below
// `bound` leaves as many devices on each side as the work there needs.
typedef struct window {
    const model *m;
    double *work; // [nodes] least device-seconds
    double total, bound;
} window;

static bool within_window(void *context, const uint64_t *set) {
    const window *w = context;
    double before = 0;
    for (size_t v = 0; v < w->m->nodes.count; ++v) before += sn_ideal_has(set, (int)v) ? w->work[v] : 0;
    double after = w->total - before, slack = w->total * 1e-12;
    double devices = (before > slack) * fmax(1, ceil((before - slack) / w->bound)) +
                     (after > slack) * fmax(1, ceil((after - slack) / w->bound));
    return devices <= w->m->devices;
}

static void free_kinds(instance *x) {
    for (int i = 0; i < x->problem.kinds * x->m->degree_count; ++i) {
        sn_free(x->curves[i].until);
        sn_free(x->curves[i].time);
    }
    sn_free(x->curves);
    sn_free(x->from);
    sn_free(x->to);
    sn_free((int *)x->problem.kind);
    sn_ideals_free(&x->ideals);
}

// Plans over the instance's downsets, which this frees. The better of this and the answer so far stays.
static void solve_cuts(instance *x, answer *out) {
    make_kinds(x);
    sn_stage_plan plan = sn_stages_solve(&x->problem);
    if (plan.feasible && (!out->feasible || plan.objective < out->planned)) {
        sn_str text = {0};
        out->objective = evaluate(x, &plan, &text);
        out->feasible = true;
        out->planned = plan.objective;
        sn_free(out->plan);
        out->plan = text.data;
    }
    out->lower_bound = out->feasible ? fmin(plan.lower_bound, out->planned) : INFINITY;
    sn_stage_plan_free(&plan);
    free_kinds(x);
}

static double *least_work(const model *m, double *total) {
    double *work = sn_alloc(sizeof *work * (m->nodes.count + 1));
    *total = 0;
    for (size_t v = 0; v < m->nodes.count; ++v) {
        work[v] = INFINITY;
        for (int degree = 0; degree < m->degree_count; ++degree) {
            for (int i = 0; i < m->nodes.data[v].variant_count[degree]; ++i) {
                work[v] = fmin(work[v], m->nodes.data[v].variants[degree][i].time * m->degrees[degree]);
            }
        }
        *total += work[v];
    }
    return work;
}

// All downsets are cuts when they are few. Otherwise the prefixes of one order give a first plan, and then those
// downsets are cuts that a better plan can use.
static void solve_downsets(instance *x, sn_unit_edge *edges, answer *out) {
    const model *m = x->m;
    int units = (int)m->nodes.count, count = (int)m->edges.count, *order = sn_alloc(sizeof(int) * (size_t)units);
    sn_ideals all = {0};
    if (!sn_ideals_linearize(units, edges, count, order)) bad_file(m->file, "the graph has a cycle");
    bool enumerated = sn_ideals_enumerate(units, edges, count, IDEALS_MAX, &all);
    if (!enumerated || all.count > CUTS_MAX) {
        for (int i = 1; i < units; ++i) edges[count++] = (sn_unit_edge){order[i - 1], order[i]};
        SN_CHECK(sn_ideals_enumerate(units, edges, count, CUTS_MAX, &x->ideals));
        solve_cuts(x, out);
        window w = {.m = m, .bound = out->planned};
        w.work = least_work(m, &w.total);
        if (out->feasible) sn_ideals_filter(&all, within_window, &w);
        out->lower_bound = w.total / m->devices;
        sn_free(w.work);
    }
    if (enumerated && all.count <= CUTS_MAX) {
        x->ideals = all;
        solve_cuts(x, out);
    } else {
        sn_ideals_free(&all);
    }
    sn_free(order);
}

static void solve(const char *file, arguments *a, answer *out) {
    model m;
    json_t *json = read_model(file, a, &m);
    instance x = {.m = &m};
    make_shapes(&x);
    x.problem = (sn_stage_problem){.shapes = x.shapes.data,
                                   .shape_count = (int)x.shapes.count,
                                   .devices = m.devices,
                                   .max_depth = m.batch < m.devices ? (int)m.batch : m.devices,
                                   .objective = SN_STAGE_STEADY,
                                   .stash = SN_STAGE_STASH_REPLICAS,
                                   .time = stage_time,
                                   .context = &x};
    sn_unit_edge *edges = sn_alloc(sizeof *edges * (m.edges.count + m.nodes.count + 1));
    for (size_t i = 0; i < m.edges.count; ++i) edges[i] = (sn_unit_edge){m.edges.data[i].from, m.edges.data[i].to};
    solve_downsets(&x, edges, out);
    sn_free(edges);
    sn_free(x.shape_degree);
    sn_vec_free(&x.shapes);
    sn_vec_free(&m.nodes);
    sn_vec_free(&m.edges);
    json_decref(json);
}

const format format_piper = {
    .name = "piper",
    .help = "  --devices K        devices (default: the file's)\n"
            "  --memory GIB       memory of a device\n"
            "  --bandwidth GIB    a second, between devices\n"
            "  --batch N          micro-batches a batch\n"
            "  --layers L         repeats a transformer layer up to L\n"
            "  --no-data --no-tensor --no-recompute\n"
            "  objective: seconds of the longest stage\n",
    .solve = solve,
};
