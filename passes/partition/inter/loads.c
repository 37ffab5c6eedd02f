// Dynamic programming over the downsets, by the devices in use:
//
//     best[h][a][J] = least largest load of the units of J on h hosts and a accelerators
//
// Which pairs of downsets are looked at decides the speed: gnmt has 1.5e7 of them, Inception-v3 1e8. With the load of a
// known plan as the bound U, J is on the way to a better one with a accelerators only if its units fit into their U
// seconds each and the rest into those that are left. Near the optimum this leaves narrow windows of total time, and as
// downsets are sorted by it, the sets that may follow J are one range. The first U comes from the prefixes of one
// order.
//
// The transfers of a stage I - J come from the nets that cross J or I, where X(J) are those with units on both sides: a
// net crossing only one of the two always has units inside and outside the stage, and one that crosses both only counts
// if it has a unit inside.
#include "passes/partition/inter/loads.h"

#include "base/alloc.h"
#include "base/bug.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct cut {
    double accelerator, host, size;  // sums over the units
    double crossing;                 // cost of the nets that cross
    int host_only, accelerator_only; // units that run on one kind alone
} cut;

typedef struct loads {
    const sn_load_problem *p;
    sn_ideals ideals; // sorted by accelerator time
    cut *cuts;
    int net_words;
    uint64_t *net_units; // [nets][words]
    uint64_t *crossing;  // [ideals][net_words]
    double *best;        // [ideals][hosts + 1][accelerators + 1]
    double bound;        // only plans below this count
    double *absorbed;    // [hosts + 1] most accelerator time that so many hosts save within the bound
    double total;
} loads;

static const uint64_t *crossing_nets(const loads *l, int i) {
    return l->crossing + (long)i * l->net_words;
}

static double *best_of(const loads *l, int ideal) {
    return l->best + (long)ideal * (l->p->hosts + 1) * (l->p->accelerators + 1);
}

static void sum_cut(const loads *l, const uint64_t *set, cut *c) {
    *c = (cut){0};
    for (int u = 0; u < l->p->units; ++u) {
        if (!sn_ideal_has(set, u)) continue;
        bool no_accelerator = isinf(l->p->accelerator_time[u]), no_host = isinf(l->p->host_time[u]);
        c->accelerator += no_accelerator ? 0 : l->p->accelerator_time[u];
        c->host += no_host ? 0 : l->p->host_time[u];
        c->size += l->p->size[u];
        c->host_only += no_accelerator;
        c->accelerator_only += no_host;
    }
}

static void find_crossing(loads *l, int ideal) {
    const uint64_t *set = sn_ideal(&l->ideals, ideal);
    int words = l->ideals.words;
    for (int net = 0; net < l->p->net_count; ++net) {
        const uint64_t *units = l->net_units + (long)net * words;
        uint64_t inside = 0, outside = 0;
        for (int w = 0; w < words; ++w) {
            inside |= units[w] & set[w];
            outside |= units[w] & ~set[w];
        }
        if (!inside || !outside) continue;
        l->crossing[(long)ideal * l->net_words + (net >> 6)] |= (uint64_t)1 << (net & 63);
        l->cuts[ideal].crossing += l->p->net_cost[net];
    }
}

typedef struct keyed {
    double time;
    int index;
} keyed;

static int by_time(const void *left, const void *right) {
    const keyed *a = left, *b = right;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    return a->index - b->index; // smaller sets first
}

// A subset never comes after its superset: sums over more units, in the same order, are no smaller.
static void sort_ideals(loads *l) {
    int count = l->ideals.count;
    size_t bytes = sizeof(uint64_t) * (size_t)l->ideals.words;
    keyed *keys = sn_alloc(sizeof *keys * (size_t)count);
    cut c;
    for (int i = 0; i < count; ++i) {
        sum_cut(l, sn_ideal(&l->ideals, i), &c);
        keys[i] = (keyed){c.accelerator, i};
    }
    qsort(keys, (size_t)count, sizeof *keys, by_time);
    uint64_t *bits = sn_alloc(bytes * (size_t)count);
    for (int i = 0; i < count; ++i)
        memcpy(bits + (long)i * l->ideals.words, sn_ideal(&l->ideals, keys[i].index), bytes);
    sn_free(l->ideals.bits);
    sn_free(keys);
    l->ideals.bits = bits;
}

static void init(loads *l, const sn_load_problem *p, sn_ideals ideals) {
    *l = (loads){.p = p, .ideals = ideals, .net_words = (p->net_count + 63) / 64, .bound = INFINITY};
    sort_ideals(l);
    size_t count = (size_t)ideals.count;
    l->cuts = sn_alloc(sizeof *l->cuts * count);
    l->net_units = sn_alloc(sizeof(uint64_t) * (size_t)ideals.words * (size_t)(p->net_count + 1));
    l->crossing = sn_alloc(sizeof(uint64_t) * (size_t)(l->net_words + 1) * count);
    l->best = sn_alloc(sizeof(double) * count * (size_t)(p->hosts + 1) * (size_t)(p->accelerators + 1));
    for (int net = 0; net < p->net_count; ++net) {
        for (int i = p->net_first[net]; i < p->net_first[net + 1]; ++i) {
            int u = p->net_unit[i];
            l->net_units[(long)net * ideals.words + (u >> 6)] |= (uint64_t)1 << (u & 63);
        }
    }
    for (int i = 0; i < ideals.count; ++i) {
        sum_cut(l, sn_ideal(&l->ideals, i), &l->cuts[i]);
        find_crossing(l, i);
    }
    l->total = l->cuts[ideals.count - 1].accelerator;
    l->absorbed = sn_alloc(sizeof(double) * (size_t)(p->hosts + 1));
}

static void release(loads *l) {
    sn_ideals_free(&l->ideals);
    sn_free(l->cuts);
    sn_free(l->net_units);
    sn_free(l->crossing);
    sn_free(l->best);
    sn_free(l->absorbed);
}

static bool touches_stage(const loads *l, int net, int from, int to) {
    const uint64_t *units = l->net_units + (long)net * l->ideals.words;
    const uint64_t *inner = sn_ideal(&l->ideals, from), *outer = sn_ideal(&l->ideals, to);
    for (int w = 0; w < l->ideals.words; ++w) {
        if (units[w] & outer[w] & ~inner[w]) return true;
    }
    return false;
}

static double accelerator_load(const loads *l, int from, int to) {
    const cut *a = &l->cuts[from], *b = &l->cuts[to];
    if (b->host_only > a->host_only || b->size - a->size > l->p->capacity) return INFINITY;
    double load = b->accelerator - a->accelerator;
    if (load + fabs(b->crossing - a->crossing) >= l->bound * (1 + 1e-12))
        return INFINITY; // what both share cancels at best
    load += a->crossing + b->crossing;
    const uint64_t *before = crossing_nets(l, from), *behind = crossing_nets(l, to);
    for (int w = 0; w < l->net_words; ++w) {
        for (uint64_t common = before[w] & behind[w]; common; common &= common - 1) {
            int net = w * 64 + __builtin_ctzll(common);
            load -= l->p->net_cost[net] * (touches_stage(l, net, from, to) ? 1 : 2);
        }
    }
    return load;
}

static double host_load(const loads *l, int from, int to) {
    const cut *a = &l->cuts[from], *b = &l->cuts[to];
    return b->accelerator_only > a->accelerator_only ? INFINITY : b->host - a->host;
}

typedef struct ratio {
    double accelerator, host;
} ratio;

static int by_ratio(const void *left, const void *right) {
    const ratio *a = left, *b = right;
    double x = a->accelerator * b->host, y = b->accelerator * a->host;
    return x > y ? -1 : x < y;
}

// The most accelerator time that `hosts` hosts save within the bound: the units that gain most, the last one in part.
static double most_absorbed(const sn_load_problem *p, double bound, int hosts) {
    ratio *units = sn_alloc(sizeof *units * (size_t)(p->units + 1));
    double saved = 0, room = hosts > 0 ? hosts * bound : -1;
    int count = 0;
    for (int u = 0; u < p->units; ++u) {
        if (isinf(p->accelerator_time[u]) || isinf(p->host_time[u])) continue;
        units[count++] = (ratio){p->accelerator_time[u], p->host_time[u]};
    }
    qsort(units, (size_t)count, sizeof *units, by_ratio);
    for (int i = 0; i < count && room >= 0; ++i) {
        double part = units[i].host > room ? room / units[i].host : 1;
        saved += part * units[i].accelerator;
        room -= units[i].host;
    }
    sn_free(units);
    return saved;
}

// Whether units of a plan below the bound may be left behind the downset for so many devices. Without a host, the nets
// that cross cost what is behind at least once.
static bool rest_fits(const loads *l, const cut *c, int accelerators, int hosts) {
    double rest = l->total - c->accelerator + (hosts == 0 ? c->crossing : 0);
    double room = (accelerators > 0 ? accelerators * l->bound : 0) + l->absorbed[hosts];
    return rest <= room + 1e-9 * l->total;
}

static void relax(loads *l, int from, int to, double accelerator, double host) {
    int a_max = l->p->accelerators, h_max = l->p->hosts;
    const double *source = best_of(l, from);
    double *target = best_of(l, to);
    for (int h = 0; h <= h_max; ++h) {
        for (int a = 0; a <= a_max; ++a) {
            double so_far = source[h * (a_max + 1) + a];
            if (!(so_far < l->bound)) continue;
            if (a < a_max) {
                double *cell = &target[h * (a_max + 1) + a + 1];
                *cell = fmin(*cell, fmax(so_far, accelerator));
            }
            if (h < h_max) {
                double *cell = &target[(h + 1) * (a_max + 1) + a];
                *cell = fmin(*cell, fmax(so_far, host));
            }
        }
    }
}

// The ways to go on from a downset: by device counts, those that a plan below the bound may have used so far.
typedef struct ways {
    bool accelerator, host;   // some may take another
    double least_accelerator; // the least accelerator time up to the next cut, if an accelerator comes next
} ways;

static ways find_ways(const loads *l, int from) {
    const sn_load_problem *p = l->p;
    const double *best = best_of(l, from);
    ways w = {.least_accelerator = INFINITY};
    for (int h = 0; h <= p->hosts; ++h) {
        for (int a = 0; a <= p->accelerators; ++a) {
            int hosts = p->hosts - h, left = p->accelerators - a;
            if (!(best[h * (p->accelerators + 1) + a] < l->bound) || !rest_fits(l, &l->cuts[from], left, hosts))
                continue;
            w.host |= hosts > 0;
            if (left == 0) continue;
            double room = (left > 1 ? (left - 1) * l->bound : 0) + l->absorbed[hosts];
            w.accelerator = true;
            w.least_accelerator = fmin(w.least_accelerator, l->total - room - 1e-9 * l->total);
        }
    }
    return w;
}

// The first cut behind `from` of at least so much accelerator time.
static int first_of_time(const loads *l, int from, double time) {
    int low = from + 1, high = l->ideals.count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (l->cuts[middle].accelerator < time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool contains(const loads *l, int from, int to) {
    return sn_ideal_within(&l->ideals, sn_ideal(&l->ideals, from), sn_ideal(&l->ideals, to));
}

static void extend_by_accelerator(loads *l, int from, double least) {
    const cut *start = &l->cuts[from];
    for (int to = first_of_time(l, from, least); to < l->ideals.count; ++to) {
        const cut *c = &l->cuts[to];
        double time = c->accelerator - start->accelerator;
        if (time >= l->bound) break;
        if (time + fabs(c->crossing - start->crossing) >= l->bound || !contains(l, from, to)) continue;
        double load = accelerator_load(l, from, to);
        if (load < l->bound) relax(l, from, to, load, INFINITY);
    }
}

static void extend_by_host(loads *l, int from) {
    const cut *start = &l->cuts[from];
    double most = start->accelerator + l->absorbed[l->p->hosts] + 1e-9 * l->total;
    for (int to = from + 1; to < l->ideals.count && l->cuts[to].accelerator <= most; ++to) {
        if (l->cuts[to].host - start->host >= l->bound || !contains(l, from, to)) continue;
        double load = host_load(l, from, to);
        if (load < l->bound) relax(l, from, to, INFINITY, load);
    }
}

static void extend(loads *l, int from) {
    ways w = find_ways(l, from);
    if (w.accelerator) extend_by_accelerator(l, from, w.least_accelerator);
    if (w.host) extend_by_host(l, from);
}

static void run(loads *l, double bound) {
    long cells = (long)l->ideals.count * (l->p->hosts + 1) * (l->p->accelerators + 1);
    l->bound = bound;
    for (int hosts = 0; hosts <= l->p->hosts; ++hosts) l->absorbed[hosts] = most_absorbed(l->p, bound, hosts);
    for (long i = 0; i < cells; ++i) l->best[i] = INFINITY;
    best_of(l, 0)[0] = 0;
    for (int i = 0; i + 1 < l->ideals.count; ++i) extend(l, i);
}

static void take_stage(const loads *l, sn_load_plan *plan, int from, int to, bool host) {
    for (int u = 0; u < l->p->units; ++u) {
        if (sn_ideal_has(sn_ideal(&l->ideals, to), u) && !sn_ideal_has(sn_ideal(&l->ideals, from), u)) {
            plan->device[u] = plan->stages;
        }
    }
    plan->on_host[plan->stages++] = host;
}

// The stage that ends at `to` with a and h devices in use, whose value is `value`.
static int backtrack_stage(const loads *l, int to, int *a, int *h, double value, bool *host) {
    int row = l->p->accelerators + 1;
    for (int from = 0; from < to; ++from) {
        const double *best = best_of(l, from);
        if (!sn_ideal_within(&l->ideals, sn_ideal(&l->ideals, from), sn_ideal(&l->ideals, to))) continue;
        if (*a > 0 && best[*h * row + *a - 1] <= value && accelerator_load(l, from, to) <= value) {
            --*a;
            *host = false;
            return from;
        }
        if (*h > 0 && best[(*h - 1) * row + *a] <= value && host_load(l, from, to) <= value) {
            --*h;
            *host = true;
            return from;
        }
    }
    SN_BUG("a reached downset has no way there");
}

// Takes the plan just found if there is one.
static void collect(const loads *l, sn_load_plan *plan) {
    int last = l->ideals.count - 1, row = l->p->accelerators + 1, cells = row * (l->p->hosts + 1), at = 0;
    const double *best = best_of(l, last);
    for (int i = 1; i < cells; ++i) at = best[i] < best[at] ? i : at;
    if (!(best[at] < l->bound)) return;
    plan->feasible = true;
    plan->objective = best[at];
    plan->stages = 0;
    for (int to = last, a = at % row, h = at / row; to > 0;) {
        bool host;
        double value = best_of(l, to)[h * row + a];
        int from = backtrack_stage(l, to, &a, &h, value, &host);
        take_stage(l, plan, from, to, host);
        to = from;
    }
}

// The prefixes of one order.
static sn_ideals prefixes(const sn_load_problem *p, const int *order) {
    int count = p->edge_count;
    sn_unit_edge *edges = sn_alloc(sizeof *edges * (size_t)(count + p->units + 1));
    if (count > 0) memcpy(edges, p->edges, sizeof *edges * (size_t)count);
    for (int i = 1; i < p->units; ++i) edges[count++] = (sn_unit_edge){order[i - 1], order[i]};
    sn_ideals chain;
    SN_CHECK(sn_ideals_enumerate(p->units, edges, count, p->units + 1, &chain));
    sn_free(edges);
    return chain;
}

static void solve_over(const sn_load_problem *p, sn_ideals ideals, sn_load_plan *plan) {
    loads l;
    init(&l, p, ideals);
    run(&l, plan->objective);
    collect(&l, plan);
    plan->ideals += ideals.count;
    release(&l);
}

bool sn_loads_solve(const sn_load_problem *p, sn_load_plan *out) {
    int *order = sn_alloc(sizeof(int) * (size_t)(p->units + 1));
    bool acyclic = sn_ideals_linearize(p->units, p->edges, p->edge_count, order);
    if (acyclic) {
        sn_ideals all;
        *out = (sn_load_plan){.objective = INFINITY};
        out->device = sn_alloc(sizeof(int) * (size_t)(p->units + 1));
        out->on_host = sn_alloc((size_t)(p->accelerators + p->hosts + 1));
        solve_over(p, prefixes(p, order), out);
        if (sn_ideals_enumerate(p->units, p->edges, p->edge_count, p->ideals_limit, &all)) {
            solve_over(p, all, out);
            out->lower_bound = out->objective;
        } else {
            double total = 0;
            for (int u = 0; u < p->units; ++u) total += isinf(p->accelerator_time[u]) ? 0 : p->accelerator_time[u];
            double spared = most_absorbed(p, out->objective, p->hosts);
            out->lower_bound = p->accelerators > 0 ? fmax(0, (total - spared) / p->accelerators) : 0;
        }
    }
    sn_free(order);
    return acyclic;
}

void sn_load_plan_free(sn_load_plan *plan) {
    sn_free(plan->device);
    sn_free(plan->on_host);
    *plan = (sn_load_plan){0};
}
