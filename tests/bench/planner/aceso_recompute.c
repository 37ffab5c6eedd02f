// Recomputing neighbours frees what the first of the two kept, except across layers; while a run of them is computed
// again in the backward pass, what it freed is held once. Within a layer every set of operators is an option: (time, MB
// freed for each micro-batch in flight, MB held at the peak). For a cap on the peak, a stage takes the options of its
// layers along their lower convex hulls, cheapest MB first; the relaxation takes the last step in part, the plan takes
// it whole, or the cheapest single option that does.
#include "aceso_recompute.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYER_MAX = 13 };

typedef struct option {
    double time, freed, peak;
    unsigned set; // of the layer's operators
} option;

typedef SN_VEC(option) options;

// No option of a layer is worse than another in all three.
struct aceso_layer_options {
    int row, count, batch, tensor; // the layer: rows from `row` on
    options all;
    SN_VEC(double) peaks; // that occur, ascending
    options *hulls; // [peaks] of the options within a peak: freed and time grow, each MB dearer than the one before
};

// Operators of a stage between two starts of layers. Layers of the same operators are one, several times over.
typedef struct layer {
    int first, count;
    int times;
    const struct aceso_layer_options *list;
    const options *hull; // within the cap
} layer;

static option make_option(const aceso_profile *p, const aceso_stage *s, const layer *l, unsigned set) {
    option o = {.set = set};
    double run = 0;
    for (int k = 0; k < l->count; ++k) {
        const aceso_operation *op = aceso_stage_operator(p, s, l->first + k);
        bool here = set >> k & 1, next = k + 1 < l->count ? set >> (k + 1) & 1 : here;
        if (here) o.time += op->forward / 1000;
        bool frees = here && next && k + 1 < l->count;
        if (frees) o.freed += op->kept;
        // Behind the last operator of a layer the run may go on: count what that would hold.
        run = here && next ? run + op->kept : 0;
        o.peak = fmax(o.peak, run);
    }
    return o;
}

static int by_time(const void *left, const void *right) {
    const option *a = left, *b = right;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    if (a->freed != b->freed) return a->freed > b->freed ? -1 : 1;
    return a->peak < b->peak ? -1 : a->peak > b->peak;
}

static options list_options(const aceso_profile *p, const aceso_stage *s, const layer *l) {
    options found = {0}, all = {0};
    unsigned allowed = 0;
    for (int k = 0; k < l->count; ++k) {
        if (!aceso_stage_operator(p, s, l->first + k)->never_again) allowed |= 1u << k;
    }
    for (unsigned set = 0; set < 1u << l->count; ++set) {
        // An operator whose neighbours are not recomputed frees nothing.
        if ((set & ~allowed) || (set & ~(set << 1) & ~(set >> 1))) continue;
        sn_vec_push(&found, make_option(p, s, l, set));
    }
    qsort(found.data, found.count, sizeof *found.data, by_time);
    for (size_t i = 0; i < found.count; ++i) {
        bool worse = false;
        for (size_t k = 0; k < all.count && !worse; ++k) {
            worse = all.data[k].freed >= found.data[i].freed && all.data[k].peak <= found.data[i].peak;
        }
        if (!worse) sn_vec_push(&all, found.data[i]);
    }
    sn_vec_free(&found);
    return all;
}

static options make_hull(const options *all, double cap) {
    options h = {0};
    for (size_t i = 0; i < all->count; ++i) {
        option o = all->data[i];
        if (o.peak > cap || (h.count > 0 && o.freed <= sn_vec_last(&h).freed)) continue;
        while (h.count > 1) {
            option a = h.data[h.count - 2], b = h.data[h.count - 1];
            if ((b.time - a.time) * (o.freed - b.freed) <= (o.time - b.time) * (b.freed - a.freed)) break;
            --h.count;
        }
        sn_vec_push(&h, o);
    }
    return h;
}

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static size_t sort_distinct(size_t count, double *values) {
    size_t distinct = 0;
    if (count > 0) qsort(values, count, sizeof *values, by_value);
    for (size_t i = 0; i < count; ++i) {
        if (distinct == 0 || values[i] > values[distinct - 1]) values[distinct++] = values[i];
    }
    return distinct;
}

static void make_hulls(struct aceso_layer_options *l) {
    for (size_t i = 0; i < l->all.count; ++i) sn_vec_push(&l->peaks, l->all.data[i].peak);
    l->peaks.count = sort_distinct(l->peaks.count, l->peaks.data);
    l->hulls = sn_alloc(sizeof *l->hulls * (l->peaks.count + 1));
    for (size_t i = 0; i < l->peaks.count; ++i) l->hulls[i] = make_hull(&l->all, l->peaks.data[i]);
}

// Recomputing nothing has no peak, so there is always a hull.
static const options *hull_within(const struct aceso_layer_options *l, double cap) {
    size_t low = 0, high = l->peaks.count;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (l->peaks.data[middle] <= cap)
            low = middle;
        else
            high = middle;
    }
    return &l->hulls[low];
}

static const struct aceso_layer_options *options_of(const aceso_profile *p, const aceso_stage *s, const layer *l,
                                                    aceso_options *known) {
    int row = p->row[s->first + l->first];
    for (int i = 0; i < known->count; ++i) {
        struct aceso_layer_options *list = known->lists + i;
        if (list->row == row && list->count == l->count && list->batch == s->batch && list->tensor == s->tensor)
            return list;
    }
    known->lists = sn_realloc(known->lists, sizeof *known->lists * (size_t)(known->count + 1));
    struct aceso_layer_options *list = &known->lists[known->count++];
    *list = (struct aceso_layer_options){.row = row, .count = l->count, .batch = s->batch, .tensor = s->tensor};
    list->all = list_options(p, s, l);
    make_hulls(list);
    return list;
}

void aceso_options_free(aceso_options *known) {
    for (int i = 0; i < known->count; ++i) {
        struct aceso_layer_options *list = &known->lists[i];
        for (size_t k = 0; k < list->peaks.count; ++k) sn_vec_free(&list->hulls[k]);
        sn_free(list->hulls);
        sn_vec_free(&list->peaks);
        sn_vec_free(&list->all);
    }
    sn_free(known->lists);
}

// Of the layers of one kind, `stepped` have taken the step behind `chosen`.
typedef struct stage_layers {
    SN_VEC(layer) layers;
    int *chosen, *stepped; // [layers] index into the hull
    int special_at;        // a layer that takes `special` instead, -1: none
    option special;
    SN_VEC(double) caps; // peaks that occur
} stage_layers;

static void add_layer(const aceso_profile *p, const aceso_stage *s, stage_layers *x, int first, int end) {
    layer l = {.first = first, .count = end - first, .times = 1};
    for (size_t i = 0; i < x->layers.count; ++i) {
        layer *other = &x->layers.data[i];
        if (p->row[s->first + other->first] != p->row[s->first + first] || other->count != l.count) continue;
        ++other->times;
        return;
    }
    sn_vec_push(&x->layers, l);
}

static void split_layers(const aceso_profile *p, const aceso_stage *s, stage_layers *x, aceso_options *known) {
    int first = 0;
    for (int k = 1; k <= s->count; ++k) {
        bool ends = k == s->count || k - first == LAYER_MAX || aceso_stage_operator(p, s, k)->starts_layer;
        if (!ends) continue;
        add_layer(p, s, x, first, k);
        first = k;
    }
    for (size_t i = 0; i < x->layers.count; ++i) options_of(p, s, &x->layers.data[i], known);
    for (size_t i = 0; i < x->layers.count; ++i) { // only now: the lists may have moved
        layer *l = &x->layers.data[i];
        l->list = options_of(p, s, l, known);
        for (size_t k = 0; k < l->list->peaks.count; ++k) sn_vec_push(&x->caps, l->list->peaks.data[k]);
    }
    x->chosen = sn_alloc(sizeof(int) * (x->layers.count + 1));
    x->stepped = sn_alloc(sizeof(int) * (x->layers.count + 1));
    x->caps.count = sort_distinct(x->caps.count, x->caps.data);
}

static void free_layers(stage_layers *x) {
    sn_vec_free(&x->layers);
    sn_vec_free(&x->caps);
    sn_free(x->chosen);
    sn_free(x->stepped);
}

// The cheapest option of one layer, within the cap, that frees `needed` more than its choice so far.
static double cheapest_step(stage_layers *x, double cap, double needed) {
    double least = INFINITY;
    for (size_t i = 0; i < x->layers.count; ++i) {
        const layer *l = &x->layers.data[i];
        const option *now = &l->hull->data[x->chosen[i]];
        for (size_t k = 0; k < l->list->all.count; ++k) {
            const option *o = &l->list->all.data[k];
            if (o->peak > cap || o->freed < now->freed + needed || o->time - now->time >= least) continue;
            least = o->time - now->time;
            x->special_at = (int)i;
            x->special = *o;
        }
    }
    return least;
}

// The kind of layer whose next step along its hull is cheapest for what it frees; -1 when all are at their ends.
static int next_step(const stage_layers *x, double *time, double *freed) {
    double ratio = INFINITY;
    int at = -1;
    for (size_t i = 0; i < x->layers.count; ++i) {
        const options *h = x->layers.data[i].hull;
        if ((size_t)x->chosen[i] + 1 >= h->count) continue;
        const option *now = &h->data[x->chosen[i]], *next = now + 1;
        double r = (next->time - now->time) / (next->freed - now->freed);
        if (r >= ratio) continue;
        ratio = r;
        *time = next->time - now->time;
        *freed = next->freed - now->freed;
        at = (int)i;
    }
    return at;
}

// Milliseconds to free `needed` MB within the cap; INFINITY when it cannot be done. Leaves the choice behind.
static double free_memory(stage_layers *x, double cap, double needed) {
    double time = 0, step = 0, freed = 0;
    x->special_at = -1;
    for (size_t i = 0; i < x->layers.count; ++i) {
        x->layers.data[i].hull = hull_within(x->layers.data[i].list, cap);
        x->chosen[i] = x->stepped[i] = 0;
    }
    while (needed > 0) {
        int at = next_step(x, &step, &freed);
        if (at < 0) return time + cheapest_step(x, cap, needed);
        int left = x->layers.data[at].times, whole = (int)fmin(left, floor(needed / freed));
        needed -= whole * freed;
        time += whole * step;
        if (whole == left) {
            ++x->chosen[at];
            continue;
        }
        if (needed <= 0) {
            x->stepped[at] = whole;
            break;
        }
        double special = cheapest_step(x, cap, needed);
        x->stepped[at] = special < step ? whole : whole + 1;
        if (special >= step) x->special_at = -1;
        return time + fmin(special, step);
    }
    return time;
}

static void mark(const aceso_profile *p, const aceso_stage *s, const stage_layers *x, bool *again) {
    int *seen = sn_alloc(sizeof(int) * (x->layers.count + 1));
    int first = 0;
    for (int k = 1; k <= s->count; ++k) {
        bool ends = k == s->count || k - first == LAYER_MAX || aceso_stage_operator(p, s, k)->starts_layer;
        if (!ends) continue;
        int kind = 0;
        while (p->row[s->first + x->layers.data[kind].first] != p->row[s->first + first] ||
               x->layers.data[kind].count != k - first) {
            ++kind;
        }
        const layer *l = &x->layers.data[kind];
        int number = seen[kind]++;
        // The last layer of its kind takes the special option: it has not stepped.
        bool special = kind == x->special_at && number == l->times - 1;
        const option *o = &l->hull->data[x->chosen[kind] + (number < x->stepped[kind])];
        unsigned set = special ? x->special.set : o->set;
        for (int i = 0; i < k - first; ++i) again[first + i] = set >> i & 1;
        first = k;
    }
    sn_free(seen);
}

typedef struct sums {
    double weights, input, activations, reserved;
} sums;

static sums sum_stage(const aceso_profile *p, const aceso_stage *s) {
    sums t = {.input = aceso_stage_operator(p, s, 0)->input};
    double forward = 0, backward = 0;
    for (int k = 0; k < s->count; ++k) {
        const aceso_operation *op = aceso_stage_operator(p, s, k);
        t.weights += op->weights;
        t.activations += op->kept;
        if (k == s->count - 1) break;
        forward = fmax(forward, op->reserved_forward);
        backward = fmax(backward, op->reserved_backward);
    }
    t.reserved = fmax(forward + backward, t.weights);
    return t;
}

static double without_recompute(const aceso_limits *m, const sums *t, int in_flight) {
    return t->weights * (2 + m->master_copies + m->optimizer) + (t->input + t->activations) * in_flight + t->reserved;
}

double aceso_least_recompute(const aceso_profile *p, const aceso_limits *m, const aceso_stage *s, int in_flight,
                             aceso_options *known, bool *again) {
    sums t = sum_stage(p, s);
    double over = without_recompute(m, &t, in_flight) - m->memory, best = INFINITY, best_cap = 0;
    if (again) memset(again, 0, (size_t)s->count);
    if (over <= 0) return 0;
    if (over >= (t.input + t.activations) * in_flight) return INFINITY;
    stage_layers x = {0};
    split_layers(p, s, &x, known);
    for (size_t i = 0; i < x.caps.count; ++i) {
        double time = free_memory(&x, x.caps.data[i], (over + x.caps.data[i]) / in_flight);
        if (time < best) best_cap = x.caps.data[i];
        best = fmin(best, time);
    }
    if (again && !isinf(best)) {
        free_memory(&x, best_cap, (over + best_cap) / in_flight);
        mark(p, s, &x, again);
    }
    free_layers(&x);
    return best;
}

double aceso_evaluate_memory(const aceso_profile *p, const aceso_limits *m, const aceso_stage *s, const bool *again,
                             int stages_behind) {
    sums t = sum_stage(p, s);
    double freed = 0, run = 0, peak = 0;
    for (int k = 0; k + 1 < s->count; ++k) {
        const aceso_operation *op = aceso_stage_operator(p, s, k);
        bool layer = aceso_stage_operator(p, s, k + 1)->starts_layer;
        if (!again[k] || !again[k + 1]) {
            run = 0;
            continue;
        }
        if (!layer) freed += op->kept;
        run += op->kept;
        peak = fmax(peak, run);
        if (!op->shares && strcmp(op->name, "enc-attention-dropout") != 0 && layer) run = 0;
    }
    double held = t.input + t.activations - freed;
    double weights = t.weights * (1 + m->master_copies), gradients = t.weights, optimizer = t.weights * m->optimizer;
    return weights + gradients + optimizer + held * stages_behind + held + peak + t.reserved;
}
