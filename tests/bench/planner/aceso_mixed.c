// A path through the choices of the operators, one after the other, costs time and memory. The way through all stages
// that start at one operator is the shortest path for time + price * memory, for a range of prices of memory; the
// fastest of those that fit is kept. This is a Lagrangian relaxation whose multipliers are tried, not solved for, so
// times are upper bounds: good, and not proved best.
#include "aceso_mixed.h"

#include "format.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PRICES = 13, GATHER_LEVELS = 4 };

struct aceso_gather {
    SN_VEC(double) sizes[GATHER_LEVELS], times[GATHER_LEVELS]; // MB, ms; among 2^level devices
};

struct aceso_gather *aceso_gather_read(const char *folder, const char *model, const char *size) {
    struct aceso_gather *g = sn_alloc(sizeof *g);
    for (int level = 1; level < GATHER_LEVELS; ++level) {
        char path[512], line[256];
        snprintf(path, sizeof path, "%s/prim_%s_%s_all_gather_%dgpus.csv", folder, model, size, 1 << level);
        FILE *in = fopen(path, "r");
        while (in && fgets(line, sizeof line, in)) {
            double megabytes, milliseconds;
            if (sscanf(line, "%lf,%lf", &megabytes, &milliseconds) != 2) continue;
            sn_vec_push(&g->sizes[level], megabytes);
            sn_vec_push(&g->times[level], milliseconds);
        }
        if (in) fclose(in);
    }
    return g;
}

void aceso_gather_free(struct aceso_gather *g) {
    for (int level = 0; level < GATHER_LEVELS; ++level) {
        sn_vec_free(&g->sizes[level]);
        sn_vec_free(&g->times[level]);
    }
    sn_free(g);
}

// A measured size, or one a megabyte smaller; others were not measured and count as not possible.
static double gather_time(const struct aceso_gather *g, int devices, double megabytes) {
    int level = 0;
    while (1 << level < devices) ++level;
    if (level >= GATHER_LEVELS || 1 << level != devices) return INFINITY;
    for (int less = 0; less < 2; ++less) {
        double wanted = nearbyint(megabytes - less);
        for (size_t i = 0; i < g->sizes[level].count; ++i) {
            if (g->sizes[level].data[i] == wanted) return g->times[level].data[i];
        }
    }
    return INFINITY;
}

// One operator's possible choices on the stage's devices.
typedef struct aceso_choices {
    int count;
    aceso_choice choice[ACESO_CHOICES_MAX];
    const aceso_operation *op[ACESO_CHOICES_MAX];
    double gather[ACESO_CHOICES_MAX][GATHER_LEVELS]; // ms to gather its input among 2^level devices
} choices;

static int degree_of(int tensor) {
    return tensor == 1 ? 0 : tensor == 2 ? 1 : tensor == 4 ? 2 : 3;
}

static choices list_choices(const aceso_mixed *x, int operator) {
    choices c = {0};
    for (int tensor = 1; tensor <= 8 && tensor <= x->devices; tensor *= 2) {
        int data = x->devices / tensor;
        if (x->devices % tensor || x->batch % data) continue;
        int batch = aceso_batch_index(x->profiles[0], x->batch / data);
        for (int algorithm = 0; algorithm < ACESO_ALGORITHMS && batch >= 0; ++algorithm) {
            const aceso_operation *op = aceso_operator(x->profiles[algorithm], operator, batch, degree_of(tensor));
            for (int again = 0; again < 2 && op->measured; ++again) {
                if (again && op->never_again) continue;
                c.choice[c.count] = (aceso_choice){data, tensor, algorithm, again};
                for (int level = 0; level < GATHER_LEVELS; ++level) {
                    c.gather[c.count][level] = level == 0 ? 0 : gather_time(x->gather, 1 << level, op->input);
                }
                c.op[c.count++] = op;
            }
        }
    }
    return c;
}

// Replicas of `tensor` copies, `data` parts: more copies are gathered in the forward pass, fewer in the backward pass.
static double change_time(const choices *to, int at, int tensor) {
    int level = degree_of(tensor) - degree_of(to->choice[at].tensor);
    return to->gather[at][level < 0 ? -level : level];
}

typedef struct path {
    double cost; // time + price * memory
    double time, weights, held, peak, run, forward, backward;
    double input;
    int first_tensor;
    short before; // choice of the operator before
} path;

static double path_memory(const aceso_limits *m, const path *p, int in_flight) {
    return p->weights * (2 + m->master_copies + m->optimizer) + (p->input + p->held) * in_flight + p->peak +
           fmax(p->forward + p->backward, p->weights);
}

static path start_path(const aceso_mixed *x, const aceso_choice *c, const aceso_operation *op) {
    double in = aceso_transfer(x->profiles[0], op->input, x->in_cross) / 1000;
    return (path){.cost = in, .time = in, .input = op->input, .first_tensor = c->tensor, .before = -1};
}

// Adds an operator to a path; `saved` MB of the operator before are recomputed.
static void add_operator(const aceso_limits *m, path *p, const aceso_choice *c, const aceso_operation *op, double price,
                         int in_flight) {
    double time = (op->forward * (c->again ? 2 : 1) + op->backward) / 1000;
    p->time += time;
    p->weights += op->weights;
    p->held += op->kept;
    p->cost += time + price * (op->weights * (2 + m->master_copies + m->optimizer) + op->kept * in_flight);
}

static path extend_path(const aceso_mixed *x, path p, const choices *here, int a, const choices *there, int b,
                        double change, double price, int in_flight) {
    const aceso_choice *from = &here->choice[a], *to = &there->choice[b];
    const aceso_operation *before = here->op[a], *op = there->op[b];
    p.time += change;
    p.cost += change;
    p.forward = fmax(p.forward, before->reserved_forward);
    p.backward = fmax(p.backward, before->reserved_backward);
    bool layer = op->starts_layer;
    if (from->again && to->again) {
        if (!layer) {
            p.held -= before->kept;
            p.cost -= price * before->kept * in_flight;
        }
        p.run += before->kept;
        p.peak = fmax(p.peak, p.run);
        if (layer && !before->shares) p.run = 0;
    } else {
        p.run = 0;
    }
    add_operator(x->limits, &p, to, op, price, in_flight);
    return p;
}

// The cheapest path to each choice of the next operator.
static void step(const aceso_mixed *x, const choices *from, const path *paths, const choices *to, double price,
                 int in_flight, path *next) {
    for (int b = 0; b < to->count; ++b) {
        next[b] = (path){.cost = INFINITY};
        for (int a = 0; a < from->count; ++a) {
            double change = change_time(to, b, from->choice[a].tensor);
            if (isinf(paths[a].cost) || isinf(change)) continue;
            path p = extend_path(x, paths[a], from, a, to, b, change, price, in_flight);
            p.before = (short)a;
            if (p.cost < next[b].cost) next[b] = p;
        }
    }
}

static double price_of(int i) {
    return i == 0 ? 0 : 0.0005 * pow(2, i - 1);
}

// Walks from `first`; calls back at each operator with the paths that end there. `all` keeps every step when not NULL.
static void walk(const aceso_mixed *x, int first, int count, int in_flight, double price, const choices *lists,
                 path *all) {
    for (int k = 0; k < count; ++k) {
        const choices *here = &lists[first + k];
        path *paths = all + (long)k * ACESO_CHOICES_MAX;
        if (k > 0) {
            step(x, here - 1, paths - ACESO_CHOICES_MAX, here, price, in_flight, paths);
            continue;
        }
        for (int a = 0; a < here->count; ++a) {
            paths[a] = start_path(x, &here->choice[a], here->op[a]);
            add_operator(x->limits, &paths[a], &here->choice[a], here->op[a], price, in_flight);
        }
    }
}

void aceso_mixed_prepare(aceso_mixed *x) {
    x->lists = sn_alloc(sizeof *x->lists * (size_t)x->profiles[0]->operators);
    for (int i = 0; i < x->profiles[0]->operators; ++i) x->lists[i] = list_choices(x, i);
}

void aceso_mixed_release(aceso_mixed *x) {
    sn_free(x->lists);
    x->lists = NULL;
}

static double output_size(const aceso_mixed *x, int operator, const aceso_choice * last, int first_tensor) {
    int batch = aceso_batch_index(x->profiles[0], x->batch / last->data);
    return aceso_operator(x->profiles[last->algorithm], operator, batch, degree_of(first_tensor))->output;
}

// The fastest path that fits and ends at operator first + k; -1 when there is none.
static int fastest(const aceso_mixed *x, const path *paths, const choices *here, int in_flight, double *time) {
    int best = -1;
    for (int a = 0; a < here->count; ++a) {
        if (isinf(paths[a].cost) || paths[a].time >= *time) continue;
        if (path_memory(x->limits, &paths[a], in_flight) > x->limits->memory) continue;
        *time = paths[a].time;
        best = a;
    }
    return best;
}

void aceso_mixed_times(const aceso_mixed *x, int first, int in_flight, double *time, double *out_size) {
    int count = x->profiles[0]->operators - first;
    const choices *lists = x->lists;
    path *all = sn_alloc(sizeof *all * (size_t)count * ACESO_CHOICES_MAX);
    for (int k = 0; k <= x->profiles[0]->operators; ++k) time[k] = INFINITY;
    for (int i = 0; i < PRICES; ++i) {
        walk(x, first, count, in_flight, price_of(i), lists, all);
        for (int k = 0; k < count; ++k) {
            const path *paths = all + (long)k * ACESO_CHOICES_MAX;
            int a = fastest(x, paths, &lists[first + k], in_flight, &time[first + k + 1]);
            if (a >= 0)
                out_size[first + k + 1] = output_size(x, first + k, &lists[first + k].choice[a], paths[a].first_tensor);
        }
    }
    sn_free(all);
}

void aceso_mixed_choices(const aceso_mixed *x, int first, int count, int in_flight, aceso_choice *choice) {
    const choices *lists = x->lists;
    path *all = sn_alloc(sizeof *all * (size_t)count * ACESO_CHOICES_MAX);
    double time = INFINITY;
    for (int i = 0; i < PRICES; ++i) {
        walk(x, first, count, in_flight, price_of(i), lists, all);
        int a = fastest(x, all + (long)(count - 1) * ACESO_CHOICES_MAX, &lists[first + count - 1], in_flight, &time);
        for (int k = count - 1; a >= 0; --k) {
            choice[k] = lists[first + k].choice[a];
            a = all[(long)k * ACESO_CHOICES_MAX + a].before;
        }
    }
    sn_free(all);
}

double aceso_mixed_evaluate(const aceso_mixed *x, int first, int count, const aceso_choice *choice, bool out_cross,
                            int stages_behind, double *memory) {
    double forward = 0, backward = 0, repeated = 0, changed = 0, weights = 0, activations = 0, freed = 0, run = 0,
           peak = 0;
    double reserved_forward = 0, reserved_backward = 0, input = 0;
    for (int k = 0; k < count; ++k) {
        const aceso_choice *c = &choice[k];
        int batch = aceso_batch_index(x->profiles[0], x->batch / c->data);
        const aceso_operation *op = aceso_operator(x->profiles[c->algorithm], first + k, batch, degree_of(c->tensor));
        forward += op->forward;
        backward += op->backward;
        repeated += c->again ? op->forward : 0;
        weights += op->weights;
        activations += op->kept;
        if (k == 0) input = op->input;
        if (k > 0 && choice[k - 1].tensor != c->tensor) {
            int more =
                c->tensor > choice[k - 1].tensor ? c->tensor / choice[k - 1].tensor : choice[k - 1].tensor / c->tensor;
            changed += gather_time(x->gather, more, op->input) * 1000;
        }
        if (k == count - 1) break;
        reserved_forward = fmax(reserved_forward, op->reserved_forward);
        reserved_backward = fmax(reserved_backward, op->reserved_backward);
        bool layer = aceso_operator(x->profiles[0], first + k + 1, 0, 0)->starts_layer,
             both = c->again && choice[k + 1].again;
        if (both && !layer) freed += op->kept;
        run = both ? run + op->kept : 0;
        peak = fmax(peak, run);
        if (layer && !op->shares) run = 0;
    }
    double held = input + activations - freed;
    *memory = weights * (2 + x->limits->master_copies + x->limits->optimizer) + held * (stages_behind + 1) + peak +
              fmax(reserved_forward + reserved_backward, weights);
    double in = aceso_transfer(x->profiles[0], input, x->in_cross);
    double out = aceso_transfer(x->profiles[0], output_size(x, first + count - 1, &choice[count - 1], choice[0].tensor),
                                out_cross);
    return (forward + backward + repeated + changed + in + out) / 1000;
}
