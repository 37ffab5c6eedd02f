// sn_loads_solve against every sequence of nested downsets, on random graphs with nets, hosts, sizes and units that run
// on one kind of device alone. Loads are added up net by net.
#include "passes/partition/inter/loads.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dice.h"

enum { INSTANCES = 6000, UNITS_MAX = 6, NETS_MAX = 8 };

typedef struct instance {
    sn_load_problem p;
    sn_unit_edge edges[UNITS_MAX * UNITS_MAX];
    double accelerator[UNITS_MAX], host[UNITS_MAX], size[UNITS_MAX], cost[NETS_MAX];
    int first[NETS_MAX + 1], unit[NETS_MAX * UNITS_MAX];
} instance;

static void make(instance *x) {
    memset(x, 0, sizeof *x);
    sn_load_problem *p = &x->p;
    *p = (sn_load_problem){.units = 1 + dice(UNITS_MAX),
                           .edges = x->edges,
                           .accelerator_time = x->accelerator,
                           .host_time = x->host,
                           .size = x->size,
                           .capacity = 4 + dice(16),
                           .accelerators = dice(4),
                           .hosts = dice(3),
                           .net_first = x->first,
                           .net_unit = x->unit,
                           .net_cost = x->cost,
                           .ideals_limit = 1000};
    for (int u = 0; u < p->units; ++u) {
        x->accelerator[u] = dice(12) == 0 ? INFINITY : dice(9) * 0.5;
        x->host[u] = dice(12) == 0 ? INFINITY : dice(20) * 0.5;
        x->size[u] = dice(5);
        for (int v = 0; v < u; ++v) {
            if (dice(3) == 0) x->edges[p->edge_count++] = (sn_unit_edge){v, u};
        }
    }
    int end = 0;
    for (p->net_count = 0; p->net_count < dice(NETS_MAX + 1);) {
        for (int u = 0; u < p->units; ++u) {
            if (dice(2)) x->unit[end++] = u;
        }
        x->cost[p->net_count++] = dice(5) * 0.5;
        x->first[p->net_count] = end;
    }
}

static bool is_downset(const sn_load_problem *p, int set) {
    for (int i = 0; i < p->edge_count; ++i) {
        if (set >> p->edges[i].to & 1 && !(set >> p->edges[i].from & 1)) return false;
    }
    return true;
}

static double load_of(const sn_load_problem *p, int set, bool host) {
    double load = 0, size = 0;
    for (int u = 0; u < p->units; ++u) {
        if (!(set >> u & 1)) continue;
        load += host ? p->host_time[u] : p->accelerator_time[u];
        size += p->size[u];
    }
    if (host) return load;
    for (int net = 0; net < p->net_count; ++net) {
        int inside = 0, outside = 0;
        for (int i = p->net_first[net]; i < p->net_first[net + 1]; ++i) {
            if (set >> p->net_unit[i] & 1)
                ++inside;
            else
                ++outside;
        }
        if (inside > 0 && outside > 0) load += p->net_cost[net];
    }
    return size > p->capacity ? INFINITY : load;
}

static double best_from(const sn_load_problem *p, int done, int accelerators, int hosts) {
    int all = (1 << p->units) - 1;
    double best = INFINITY;
    if (done == all) return 0;
    for (int next = 1; next <= all; ++next) {
        if ((next & done) != done || next == done || !is_downset(p, next)) continue;
        for (int host = 0; host < 2; ++host) {
            if ((host ? hosts : accelerators) == 0) continue;
            double load = load_of(p, next & ~done, host);
            if (load >= best) continue;
            best = fmin(best, fmax(load, best_from(p, next, accelerators - !host, hosts - host)));
        }
    }
    return best;
}

static void check_plan(const sn_load_problem *p, const sn_load_plan *plan) {
    double longest = 0;
    int accelerators = 0, hosts = 0;
    for (int stage = 0; stage < plan->stages; ++stage) {
        int set = 0;
        for (int u = 0; u < p->units; ++u) set |= (plan->device[u] == stage) << u;
        assert_true(set != 0);
        longest = fmax(longest, load_of(p, set, plan->on_host[stage]));
        accelerators += !plan->on_host[stage];
        hosts += plan->on_host[stage];
    }
    assert_true(accelerators <= p->accelerators && hosts <= p->hosts);
    assert_true(fabs(longest - plan->objective) <= 1e-9);
}

static void test_every_placement(void **unused) {
    (void)unused;
    static instance x;
    int feasible = 0, several = 0;
    for (int i = 0; i < INSTANCES; ++i) {
        make(&x);
        double best = best_from(&x.p, 0, x.p.accelerators, x.p.hosts);
        sn_load_plan plan;
        assert_true(sn_loads_solve(&x.p, &plan));
        assert_int_equal(plan.feasible, !isinf(best));
        if (plan.feasible) {
            check_plan(&x.p, &plan);
            assert_true(fabs(plan.objective - best) <= 1e-9);
            assert_true(plan.lower_bound <= plan.objective && plan.lower_bound >= best - 1e-9);
        }
        feasible += plan.feasible;
        several += plan.stages > 1;
        sn_load_plan_free(&plan);
    }
    print_message("%d instances, %d feasible, %d on several devices\n", INSTANCES, feasible, several);
    assert_true(feasible > INSTANCES / 2 && several > INSTANCES / 4);
}

static void test_cycle(void **unused) {
    (void)unused;
    static instance x;
    make(&x);
    x.p.units = 2;
    x.edges[0] = (sn_unit_edge){0, 1};
    x.edges[1] = (sn_unit_edge){1, 0};
    x.p.edge_count = 2;
    x.p.net_count = 0;
    sn_load_plan plan;
    assert_false(sn_loads_solve(&x.p, &plan));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_placement), cmocka_unit_test(test_cycle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
