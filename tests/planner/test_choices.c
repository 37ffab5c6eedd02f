// The smaller searches against all choices: covering knapsacks, chains of partitions under a memory bound, downsets.
#include "passes/partition/inter/chain.h"
#include "passes/partition/inter/cover.h"
#include "passes/partition/inter/ideals.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dice.h"

static void test_cover(void **unused) {
    (void)unused;
    sn_cover_item items[10];
    bool taken[10];
    for (int i = 0; i < 5000; ++i) {
        int count = dice(11);
        double needed = dice(30) - 2, best = INFINITY;
        for (int k = 0; k < count; ++k) items[k] = (sn_cover_item){dice(6), 1 + dice(5)};
        for (int set = 0; set < 1 << count; ++set) {
            double cost = 0, saving = 0;
            for (int k = 0; k < count; ++k) {
                cost += set >> k & 1 ? items[k].cost : 0;
                saving += set >> k & 1 ? items[k].saving : 0;
            }
            if (saving >= needed) best = fmin(best, cost);
        }
        double found = sn_cover_least(count, items, needed, taken), cost = 0, saving = 0;
        assert_true(found == best);
        for (int k = 0; k < count; ++k) {
            cost += taken[k] ? items[k].cost : 0;
            saving += taken[k] ? items[k].saving : 0;
        }
        if (!isinf(best)) assert_true(cost == best && saving >= needed);
    }
}

enum { OPERATORS = 6, WAYS = 3 };

typedef struct chain {
    sn_chain_problem p;
    int first[OPERATORS + 1];
    sn_chain_way ways[OPERATORS * WAYS];
    double moves[OPERATORS * WAYS][WAYS];
} chain;

static void make_chain(chain *x) {
    int operators = 1 + dice(OPERATORS);
    x->p = (sn_chain_problem){operators, x->first, x->ways, 20 + dice(15 * operators)};
    for (int i = 0; i < operators * WAYS; ++i) {
        x->ways[i] = (sn_chain_way){dice(20), dice(10), dice(10), dice(10), dice(20), x->moves[i]};
        for (int k = 0; k < WAYS; ++k) x->moves[i][k] = dice(8);
    }
    for (int i = 0; i <= operators; ++i) x->first[i] = WAYS * i;
}

// Time of the ways that the base-3 digits of `code` name; INFINITY when they do not fit.
static double chain_time(const chain *x, int code) {
    double time = 0, resident = 0, activations = 0, optimizer = 0, largest = 0, second = 0;
    for (int i = 0, before = 0; i < x->p.operators; ++i, code /= WAYS) {
        const sn_chain_way *w = &x->ways[WAYS * i + code % WAYS];
        time += w->time + (i > 0 ? w->move[before] : 0);
        before = code % WAYS;
        resident += w->resident;
        activations += w->activations;
        optimizer += w->optimizer;
        second = fmax(second, fmin(largest, w->buffer));
        largest = fmax(largest, w->buffer);
    }
    return resident + fmax(activations, optimizer) + largest + second <= x->p.bound ? time : INFINITY;
}

static void test_chain(void **unused) {
    (void)unused;
    static chain x;
    int feasible = 0;
    for (int i = 0; i < 4000; ++i) {
        make_chain(&x);
        int codes = 1;
        for (int k = 0; k < x.p.operators; ++k) codes *= WAYS;
        double best = INFINITY;
        for (int code = 0; code < codes; ++code) best = fmin(best, chain_time(&x, code));
        sn_chain_plan plan = sn_chain_solve(&x.p);
        assert_int_equal(plan.feasible, !isinf(best));
        int code = 0;
        for (int k = x.p.operators - 1; k >= 0 && plan.feasible; --k) code = code * WAYS + plan.way[k];
        if (plan.feasible) assert_true(plan.time == best && chain_time(&x, code) == best);
        feasible += plan.feasible;
        sn_chain_plan_free(&plan);
    }
    assert_true(feasible > 1000 && feasible < 3900);
}

static void test_downsets(void **unused) {
    (void)unused;
    for (int i = 0; i < 500; ++i) {
        sn_unit_edge edges[64];
        int units = dice(9), count = 0, expected = 0, order[9];
        for (int u = 0; u < units; ++u) {
            for (int v = 0; v < u; ++v) {
                if (dice(4) == 0) edges[count++] = (sn_unit_edge){v, u};
            }
        }
        for (int set = 0; set < 1 << units; ++set) {
            bool closed = true;
            for (int k = 0; k < count; ++k) closed &= !(set >> edges[k].to & 1) || set >> edges[k].from & 1;
            expected += closed;
        }
        sn_ideals ideals;
        assert_true(sn_ideals_enumerate(units, edges, count, 1 << units, &ideals));
        assert_int_equal(ideals.count, expected);
        for (int k = 0; k + 1 < ideals.count; ++k) {
            assert_true(__builtin_popcountll(*sn_ideal(&ideals, k)) <= __builtin_popcountll(*sn_ideal(&ideals, k + 1)));
        }
        sn_ideals_free(&ideals);
        if (expected > 1) assert_false(sn_ideals_enumerate(units, edges, count, expected - 1, &ideals));
        assert_true(sn_ideals_linearize(units, edges, count, order));
        bool seen[9] = {false};
        for (int k = 0; k < units; ++k) {
            for (int e = 0; e < count; ++e) assert_true(edges[e].to != order[k] || seen[edges[e].from]);
            seen[order[k]] = true;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cover), cmocka_unit_test(test_chain),
                                       cmocka_unit_test(test_downsets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
