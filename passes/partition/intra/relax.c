#include "passes/partition/intra/relax.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

// Messages follow the prices a few sweeps late. PATIENCE counts steps that did not raise the best bound, those that did
// not even raise the last one twice.
enum { SWEEPS = 3, PATIENCE = 20 };

sn_relaxation *sn_relaxation_new(const sn_core *core, size_t max_cells) {
    sn_relaxation *r = sn_alloc(sizeof *r);
    size_t peaks = (size_t)core->n_peaks + 1, bytes = sizeof(double) * peaks;
    int *nodes = sn_alloc(sizeof *nodes * (size_t)(core->n_nodes + 1));
    for (int i = 0; i < core->n_nodes; i++) nodes[i] = i;
    *r = (sn_relaxation){.core = core,
                         .scale = 1,
                         .lower_bound = INT64_MIN,
                         .bound = -INFINITY,
                         .elimination = sn_elimination_new(core, nodes, core->n_nodes, max_cells),
                         .price = sn_alloc(bytes),
                         .best_price = sn_alloc(bytes),
                         .sum = sn_alloc(bytes),
                         .direction = sn_alloc(bytes),
                         .usage = sn_alloc(sizeof(int64_t) * peaks),
                         .values = sn_alloc(sizeof(int) * (size_t)(core->n_nodes + 1))};
    sn_free(nodes);
    return r;
}

void sn_relaxation_free(sn_relaxation *r) {
    if (r->messages) sn_messages_free(r->messages);
    sn_elimination_free(r->elimination);
    sn_free(r->price);
    sn_free(r->best_price);
    sn_free(r->sum);
    sn_free(r->direction);
    sn_free(r->usage);
    sn_free(r->values);
    sn_free(r);
}

// Costs with memory at its price: a term's price is a difference of the prices' running sum.
static void set_costs(sn_relaxation *r) {
    const sn_core *core = r->core;
    for (int t = 0; t < core->n_peaks; t++) r->sum[t + 1] = r->sum[t] + r->price[t];
    for (int i = 0; i < core->n_nodes; i++) {
        const sn_core_node *node = &core->nodes[i];
        double *costs = sn_elimination_costs(r->elimination)[i];
        for (int k = 0; k < node->size; k++) costs[k] = (double)node->cost[k];
        for (int m = 0; m < node->n_terms; m++) {
            const sn_core_term *term = &node->terms[m];
            double price = r->sum[term->last] - r->sum[term->first];
            if (price <= 0) continue;
            for (int k = 0; k < node->size; k++) costs[k] += price * (double)term->usage[k];
        }
    }
}

// Takes a bound of the priced network. It is a sum over n_nodes tables and n_peaks prices, all rounded: 10^-9 of its
// parts is far above the error.
static void take_bound(sn_relaxation *r, double least) {
    double allowed = 0;
    for (int t = 0; t < r->core->n_peaks; t++) allowed += r->price[t] * (double)r->core->capacity[t];
    double former = r->bound;
    r->bound = (double)r->core->constant + least - allowed;
    double safe = r->bound - 1e-9 * (fabs(r->bound) + fabs(allowed)) - 1e-3;
    if (safe > 0.5 * SN_CORE_FORBIDDEN) safe = 0.5 * SN_CORE_FORBIDDEN;
    r->idle += r->bound <= former ? 2 : 1;
    if (r->lower_bound != INT64_MIN && ceil(safe) <= (double)r->lower_bound) return;
    r->lower_bound = safe < -0.5 * SN_CORE_FORBIDDEN ? INT64_MIN + 1 : (int64_t)ceil(safe);
    memcpy(r->best_price, r->price, sizeof *r->price * (size_t)r->core->n_peaks);
    r->idle = 0;
}

static void run_elimination(sn_relaxation *r) {
    set_costs(r);
    take_bound(r, sn_elimination_run(r->elimination));
    r->work += sn_elimination_cells(r->elimination);
}

// A subgradient of the bound is the excess over the capacities, deflected by the former directions (Camerini, Fratta
// and Maffioli 1975) and as long as Polyak's rule says for the target.
bool sn_relaxation_move(sn_relaxation *r, double target) {
    double norm = 0;
    for (int t = 0; t < r->core->n_peaks; t++) {
        double *d = &r->direction[t];
        *d = (double)(r->usage[t] - r->core->capacity[t]) + 0.7 * *d;
        if (r->price[t] <= 0 && *d < 0) *d = 0;
        norm += *d * *d;
    }
    double gap = target - r->bound;
    if (gap <= 0) return false;
    if (norm <= 0) return r->messages && r->idle <= PATIENCE; // the prices are right: only messages can raise the bound
    if (r->idle > PATIENCE) {                                 // back to where the bound was best, with a shorter step
        memcpy(r->price, r->best_price, sizeof *r->price * (size_t)r->core->n_peaks);
        memset(r->direction, 0, sizeof *r->direction * (size_t)r->core->n_peaks);
        r->scale *= 0.6;
        r->idle = 0;
        return true;
    }
    double step = r->scale * gap / norm;
    for (int t = 0; t < r->core->n_peaks; t++) {
        r->price[t] += step * r->direction[t];
        if (r->price[t] < 0) r->price[t] = 0;
    }
    return true;
}

void sn_relaxation_evaluate(sn_relaxation *r, sn_relaxation_method method) {
    if (r->messages && method == SN_RELAXATION_MESSAGES) {
        set_costs(r);
        double *const *costs = sn_elimination_costs(r->elimination);
        for (int i = 1; i < SWEEPS; i++) sn_messages_sweep(r->messages, costs);
        take_bound(r, sn_messages_sweep(r->messages, costs));
        r->work += 2 * SWEEPS * sn_messages_cells(r->messages);
        sn_messages_decode(r->messages, costs, r->values);
    } else {
        run_elimination(r);
        sn_elimination_decode(r->elimination, r->values);
    }
    sn_core_usage(r->core, r->values, r->usage);
    r->excess = sn_core_excess(r->core, r->usage);
}

void sn_relaxation_return(sn_relaxation *r) {
    memcpy(r->price, r->best_price, sizeof *r->price * (size_t)r->core->n_peaks);
    run_elimination(r);
}
