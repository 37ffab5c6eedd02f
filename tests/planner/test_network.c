// Cost-function networks against brute force: on small random ones the answer is the optimum where it says so, the
// bound never exceeds it, and limits are kept; on larger ones the answer is consistent and repeatable.
#include "base/alloc.h"
#include "passes/partition/intra/branch.h"
#include "passes/partition/intra/messages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t state;

static int below(int count) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((state >> 33) % (uint64_t)count);
}

typedef struct shape {
    int nodes, strategies, edges, time, forbidden; // forbidden: of 100 costs
    int memory;                                    // of 100: the limit between the least and the greatest peak
} shape;

static int64_t cost_of(const sn_network *n, const int *choice) {
    int64_t total = 0;
    for (size_t i = 0; i < n->n_nodes; i++) {
        int64_t cost = n->cells[n->nodes[i].costs + (size_t)choice[i]];
        if (cost >= SN_NETWORK_FORBIDDEN) return -1;
        total += cost;
    }
    for (size_t e = 0; e < n->n_edges; e++) {
        const sn_network_edge *edge = &n->edges[e];
        int64_t cost =
            n->cells[edge->costs + (size_t)(choice[edge->a] * n->nodes[edge->b].n_strategies + choice[edge->b])];
        if (cost >= SN_NETWORK_FORBIDDEN) return -1;
        total += cost;
    }
    return total;
}

static int64_t peak_of(const sn_network *n, const int *choice, int time) {
    int64_t peak = 0;
    for (int t = 0; t < time; t++) {
        int64_t live = 0;
        for (size_t m = 0; m < n->n_terms; m++)
            if (n->terms[m].begin <= t && t < n->terms[m].end)
                live += n->cells[n->terms[m].usages + (size_t)choice[n->terms[m].node]];
        if (live > peak) peak = live;
    }
    return peak;
}

// The least cost of a choice within the limits; -1 when there is none.
static int64_t brute_force(const sn_network *n, int time) {
    int *choice = sn_alloc(sizeof *choice * n->n_nodes);
    int64_t best = -1;
    for (size_t at = 0; at < n->n_nodes;) {
        int64_t cost = cost_of(n, choice);
        if (cost >= 0 && (best < 0 || cost < best) && peak_of(n, choice, time) <= n->limit) best = cost;
        for (at = 0; at < n->n_nodes && ++choice[at] == n->nodes[at].n_strategies; at++) choice[at] = 0;
    }
    sn_free(choice);
    return best;
}

static void fill(int64_t *cells, int count, int greatest, int forbidden) {
    for (int c = 0; c < count; c++) cells[c] = below(100) < forbidden ? SN_NETWORK_FORBIDDEN : below(greatest);
}

// Edges of three kinds: any costs, zero on a matching and forbidden elsewhere (as followers have), few distinct costs.
static void add_random_edge(sn_network *n, const shape *s) {
    int a = below(s->nodes), b = below(s->nodes), kind = below(3);
    if (a == b) return;
    int rows = n->nodes[a].n_strategies, columns = n->nodes[b].n_strategies;
    int64_t *cells = sn_alloc(sizeof *cells * (size_t)(rows * columns));
    fill(cells, rows * columns, kind == 2 ? 2 : 100, s->forbidden);
    if (kind == 1 && rows == columns && s->forbidden)
        for (int c = 0; c < rows * columns; c++) cells[c] = c / columns == c % columns ? 0 : SN_NETWORK_FORBIDDEN;
    sn_network_add_edge(n, a, b, cells);
    sn_free(cells);
}

static sn_network random_network(const shape *s) {
    sn_network n = {.limit = INT64_MAX};
    for (int i = 0; i < s->nodes; i++) {
        int64_t cells[16];
        int k = 1 + below(s->strategies);
        fill(cells, k, 100, s->forbidden / 2);
        sn_network_add_node(&n, k, cells);
        for (int terms = below(3); terms > 0; terms--) {
            int begin = below(s->time), end = begin + below(s->time - begin + 1);
            fill(cells, k, 50, 0);
            sn_network_add_term(&n, i, begin, end, cells);
        }
    }
    for (int e = 0; e < s->edges; e++) add_random_edge(&n, s);
    if (s->memory < 100) {
        int64_t least = 0, greatest = 0; // crude: the limit only has to be tight often
        for (size_t m = 0; m < n.n_terms; m++) {
            int64_t low = INT64_MAX, high = 0;
            for (int k = 0; k < n.nodes[n.terms[m].node].n_strategies; k++) {
                int64_t usage = n.cells[n.terms[m].usages + (size_t)k];
                low = usage < low ? usage : low;
                high = usage > high ? usage : high;
            }
            least += low;
            greatest += high;
        }
        n.limit = (least + (greatest - least) * s->memory / 100) / 2;
    }
    return n;
}

static void check(const sn_network *n, const shape *s, const sn_network_answer *a) {
    int64_t best = brute_force(n, s->time);
    if (best < 0) {
        assert_int_equal(a->result, SN_NETWORK_INFEASIBLE);
        return;
    }
    assert_int_equal(a->result, SN_NETWORK_OPTIMAL); // networks of this size are solved to the end
    assert_int_equal(a->cost, best);
    assert_int_equal(cost_of(n, a->choice), best);
    assert_true(a->lower_bound <= best);
    assert_true(peak_of(n, a->choice, s->time) <= n->limit);
    assert_int_equal(a->peak, peak_of(n, a->choice, s->time));
}

static void test_brute_force(void **unused) {
    (void)unused;
    const sn_network_budget budget = {.work = 200000000};
    int feasible = 0, tight = 0;
    for (int i = 0; i < 4000; i++) {
        state = (uint64_t)i;
        shape s = {.nodes = 1 + below(7),
                   .strategies = 1 + below(4),
                   .edges = below(12),
                   .time = 1 + below(8),
                   .forbidden = below(3) * 12,
                   .memory = 10 + below(100)};
        sn_network n = random_network(&s);
        sn_network_answer a = sn_network_solve(&n, &budget);
        check(&n, &s, &a);
        sn_network free_of_limit = n;
        free_of_limit.limit = INT64_MAX;
        if (a.result == SN_NETWORK_OPTIMAL) {
            feasible++;
            tight += brute_force(&free_of_limit, s.time) < a.cost;
        }
        sn_free(a.choice);
        sn_network_free(&n);
    }
    assert_true(feasible > 2000 && tight > 200); // the limit matters in many, and not only by forbidding all
}

// The bounds of both methods, exact or not, at random prices: no choice within the limits costs less.
static void test_bounds(void **unused) {
    (void)unused;
    int split = 0;
    for (int i = 0; i < 1500; i++) {
        state = (uint64_t)i + 1000000;
        shape s = {.nodes = 5 + below(3),
                   .strategies = 2 + below(3),
                   .edges = 8 + below(14),
                   .time = 1 + below(6),
                   .forbidden = below(2) * 10,
                   .memory = 30 + below(60)};
        sn_network n = random_network(&s);
        int64_t best = brute_force(&n, s.time);
        sn_core *core = sn_core_new(&n);
        if (best >= 0) {
            assert_false(core->infeasible);
            sn_relaxation *r = sn_relaxation_new(core, (size_t)(4 + below(16)));
            split += !sn_elimination_is_exact(r->elimination);
            r->messages = sn_messages_new(core);
            for (int step = 0; step < 12; step++) {
                for (int t = 0; t < core->n_peaks; t++)
                    if (below(2)) r->price[t] = below(40) * 0.1;
                if (step == 6) sn_messages_settle(r->messages, core);
                sn_relaxation_evaluate(r, step % 2 ? SN_RELAXATION_MESSAGES : SN_RELAXATION_ELIMINATION);
                assert_true(r->bound <= (double)best + 1e-6);
                assert_true(r->lower_bound <= best);
                int64_t cost = sn_core_cost(core, r->values);
                if (!r->excess && cost < SN_NETWORK_FORBIDDEN) assert_true(cost >= best);
                sn_relaxation_move(r, (double)best);
            }
            sn_relaxation_free(r);
        }
        sn_core_free(core);
        sn_network_free(&n);
    }
    assert_true(split > 50);
}

// A chain whose nodes follow each other, with leaves: reductions alone decide it.
static void test_followers(void **unused) {
    (void)unused;
    sn_network n = {.limit = INT64_MAX};
    int64_t same[9] = {0}, costs[3] = {5, 3, 4};
    for (int c = 0; c < 9; c++) same[c] = c % 4 ? SN_NETWORK_FORBIDDEN : 0;
    for (int i = 0; i < 50000; i++) {
        sn_network_add_node(&n, 3, costs);
        if (i) sn_network_add_edge(&n, i - 1, i, same);
    }
    sn_core *core = sn_core_new(&n);
    assert_int_equal(core->n_nodes, 0);
    assert_int_equal(core->constant, 150000);
    sn_core_free(core);
    sn_network_free(&n);
}

// Larger than brute force can do: the same work and seed give the same answer, more work none that is worse, and what
// it says of cost, memory and bound is so.
static void test_larger(void **unused) {
    (void)unused;
    for (int i = 0; i < 6; i++) {
        state = (uint64_t)i + 77;
        shape s = {.nodes = 150, .strategies = 6, .edges = 320, .time = 40, .forbidden = 3, .memory = 8 + 4 * i};
        sn_network n = random_network(&s);
        sn_network_budget budget = {.work = 20000000, .seed = 3};
        sn_network_answer a = sn_network_solve(&n, &budget), b = sn_network_solve(&n, &budget);
        budget.work *= 4;
        sn_network_answer c = sn_network_solve(&n, &budget);
        assert_int_equal(a.result, b.result);
        assert_int_equal(a.work, b.work);
        assert_memory_equal(a.choice, b.choice, sizeof(int) * n.n_nodes);
        if (a.result == SN_NETWORK_FEASIBLE || a.result == SN_NETWORK_OPTIMAL) {
            assert_int_equal(cost_of(&n, a.choice), a.cost);
            assert_true(peak_of(&n, a.choice, s.time) <= n.limit);
            assert_true(c.cost <= a.cost && a.lower_bound <= c.cost && c.lower_bound <= c.cost);
        }
        sn_free(a.choice);
        sn_free(b.choice);
        sn_free(c.choice);
        sn_network_free(&n);
    }
}

// Where only one corner of the choices keeps the limits: every node must take its frugal strategy, which costs most.
static void test_tight(void **unused) {
    (void)unused;
    sn_network n = {.limit = 400};
    const int64_t costs[3] = {0, 10, 100}, usages[3] = {16, 4, 1};
    int64_t apart[9] = {0, 7, 9, 7, 0, 7, 9, 7, 0};
    for (int i = 0; i < 400; i++) {
        sn_network_add_node(&n, 3, costs);
        sn_network_add_term(&n, i, 0, 10, usages);
        if (i) sn_network_add_edge(&n, i - 1, i, apart);
        if (i > 7) sn_network_add_edge(&n, i - 7, i, apart);
    }
    sn_network_budget budget = {.work = 500000000};
    sn_network_answer a = sn_network_solve(&n, &budget);
    assert_int_equal(a.result, SN_NETWORK_OPTIMAL);
    assert_int_equal(a.cost, 40000);
    sn_free(a.choice);
    n.limit = 399;
    a = sn_network_solve(&n, &budget);
    assert_int_equal(a.result, SN_NETWORK_INFEASIBLE);
    sn_free(a.choice);
    sn_network_free(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_brute_force), cmocka_unit_test(test_bounds),
                                       cmocka_unit_test(test_followers), cmocka_unit_test(test_larger),
                                       cmocka_unit_test(test_tight)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
