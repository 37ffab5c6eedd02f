// The problem is a weighted constraint satisfaction problem (a cost-function network; a pairwise Markov random field)
// with one knapsack constraint for every moment. Networks of compilers are large (30,000 operations) but forgiving:
// most operations follow a neighbour's sharding, the graph is sparse, and memory binds at a few moments. Five steps,
// each of which leaves an exact remainder to the next:
//
// 1. Reduce (reduce.c, peaks.c). What decides its neighbour swallows it, dominated strategies go, moments that cannot
//    bind go. 35,000 nodes become 300 to 6,500; nothing is lost.
//
// 2. Price memory (relax.c). With a price on every byte at every peak the limits become costs of strategies, what is
//    left is a network without limits, and its minimum less what the limits would cost is a lower bound for the whole
//    (Lagrangian relaxation: Geoffrion 1974; Fisher 1981). Prices follow the excess of the choice that minimises.
//
// 3. Solve the priced network (messages.c, eliminate.c). Three sweeps of TRW-S per move of the prices: the bound and
// the
//    prices rise together, since both are steps up the same dual function. Where the graph is narrow elimination
//    solves it exactly; otherwise it works with bounded tables on costs that the messages have shifted to where they
//    decide. Both give choices, which keep the limits or nearly do.
//
// 4. Improve (improve.c). From the best choice within the limits: free a part of the network, fix the rest, and solve
//    the part with the same prices, elimination, and branch and bound. Steps 2 and 3 go on with a share of the work.
//
// 5. Close (branch.c). A small network's remaining gap is searched whole, which proves the optimum.
//
// Everything but the clock counts work in table cells and draws from one seeded generator, so the same work and seed
// give the same answer on any machine; seconds only stop the search. Costs are integers, and where bounds are real
// numbers they are rounded to the safe side.
//
// Further reading: Hurley et al., "Multi-language evaluation of exact solvers in graphical model discrete
// optimization", Constraints 2016; Zheng et al., "Alpa", OSDI 2022, section 4 (the problem as an integer program);
// Moffitt and Fegade, "The ASPLOS 2025 / EuroSys 2025 contest on intra-operator parallelism for distributed deep
// learning", 2025.
#include "base/alloc.h"
#include "base/bug.h"
#include "base/clock.h"
#include "passes/partition/intra/branch.h"
#include "passes/partition/intra/improve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TABLE_CELLS = 20000,   // of an elimination of the whole network
    FIRST_STEPS = 80,      // of prices, before neighbourhoods
    BRANCH_STEPS = 100000, // in the tree of the whole network
    TRIAL_PART = 10,       // of the work so far goes on a new start
};
static const double relax_share = 0.3; // of the work, beside neighbourhoods

typedef struct solver {
    const sn_network *network;
    const sn_network_budget *budget;
    sn_core *core;
    sn_relaxation *relaxation;
    double start;
    uint64_t work;
    int *best; // the cheapest within the limits; until there is one, that of the least excess
    int64_t cost, excess, lower_bound;
    bool known;  // there is a best
    bool proven; // nothing better exists
} solver;

static bool is_feasible(const solver *s) {
    return s->known && !s->excess;
}

static bool is_over(const solver *s) {
    if (s->proven || (is_feasible(s) && s->lower_bound >= s->cost)) return true;
    if (s->budget->work && s->work >= s->budget->work) return true;
    return s->budget->seconds > 0 && sn_seconds() - s->start >= s->budget->seconds;
}

static void offer(solver *s, const int *values, int64_t excess) {
    int64_t cost = sn_core_cost(s->core, values);
    if (cost >= SN_NETWORK_FORBIDDEN) return;
    if (s->known && (excess > s->excess || (excess == s->excess && cost >= s->cost))) return;
    s->known = true;
    s->excess = excess;
    s->cost = cost;
    memcpy(s->best, values, sizeof *values * (size_t)s->core->n_nodes);
}

// What the prices aim at: the best known cost; a guess that rises with the bound while there is none.
static double target(const solver *s) {
    const sn_relaxation *r = s->relaxation;
    if (is_feasible(s)) return (double)s->cost;
    double decoded = (double)sn_core_cost(s->core, r->values);
    return fmax(decoded < SN_CORE_FORBIDDEN ? decoded : 0, r->bound + 0.1 * fabs(r->bound) + 1);
}

// One evaluation of the relaxation and a move of its prices; false when there is none left.
static bool relax(solver *s, sn_relaxation_method method) {
    sn_relaxation *r = s->relaxation;
    sn_relaxation_evaluate(r, method);
    s->work += r->work;
    r->work = 0;
    offer(s, r->values, r->excess);
    if (r->lower_bound > s->lower_bound) s->lower_bound = r->lower_bound;
    return sn_relaxation_move(r, target(s)) && r->scale > 1e-4;
}

// Puts the costs where the messages have shifted them: elimination and the neighbourhoods start from there.
static void settle(solver *s) {
    sn_relaxation *r = s->relaxation;
    memcpy(r->price, r->best_price, sizeof *r->price * (size_t)s->core->n_peaks);
    if (!r->messages) return;
    sn_messages_settle(r->messages, s->core);
    relax(s, SN_RELAXATION_ELIMINATION);
}

// Memory above all: the choice under prices that no cost outweighs. This is not skipped when the budget is used up, but
// then done at once.
static void economise(solver *s) {
    sn_relaxation *r = s->relaxation;
    double *former = sn_alloc(sizeof *former * (size_t)(s->core->n_peaks + 1));
    memcpy(former, r->price, sizeof *former * (size_t)s->core->n_peaks);
    for (double price = is_over(s) ? 1e12 : 1; price < 1e13 && !is_feasible(s); price *= 1e3) {
        for (int t = 0; t < s->core->n_peaks; t++) r->price[t] = price;
        sn_relaxation_evaluate(r, SN_RELAXATION_ELIMINATION);
        offer(s, r->values, r->excess);
    }
    s->work += r->work;
    r->work = 0;
    memcpy(r->price, former, sizeof *former * (size_t)s->core->n_peaks);
    sn_free(former);
}

// The tree behind the relaxation, searched to its end if that is near.
static void branch(solver *s) {
    sn_relaxation *r = s->relaxation;
    sn_relaxation_return(r);
    int64_t cost = is_feasible(s) ? s->cost : SN_NETWORK_FORBIDDEN, had = cost;
    int *values = sn_alloc(sizeof *values * (size_t)(s->core->n_nodes + 1));
    s->proven = sn_branch(r, &cost, values, BRANCH_STEPS);
    if (cost < had) offer(s, values, 0);
    if (s->proven && is_feasible(s)) s->lower_bound = s->cost;
    s->work += r->work;
    r->work = 0;
    sn_free(values);
}

// A share of the work goes on moving prices. False when they have nothing more to give.
static bool relax_beside(solver *s, uint64_t *spent) {
    uint64_t before = s->work;
    bool moves = relax(s, SN_RELAXATION_MESSAGES);
    *spent += s->work - before;
    return moves;
}

static void step(solver *s, sn_improver *m) {
    s->work += sn_improver_step(m);
    offer(s, sn_improver_values(m), sn_improver_excess(m));
}

// Prices near their optimum decode to choices that cost little more than the bound and exceed a limit or two. One of
// those, led back into the limits and improved for a while, often ends below where the search stands: then it goes on
// from there.
static sn_improver *start_again(solver *s, sn_improver *m, int round) {
    settle(s);
    sn_improver *other = sn_improver_new(s->core, s->relaxation->values, s->budget->seed + (uint64_t)round);
    sn_improver_set_prices(other, s->relaxation->best_price);
    uint64_t until = s->work + s->work / TRIAL_PART;
    while (s->work < until && !is_over(s)) step(s, other);
    bool better = sn_improver_excess(other) < sn_improver_excess(m) ||
                  (sn_improver_excess(other) == sn_improver_excess(m) && sn_improver_cost(other) < sn_improver_cost(m));
    sn_improver_free(better ? m : other);
    return better ? other : m;
}

static void improve(solver *s) {
    sn_improver *m = sn_improver_new(s->core, s->best, s->budget->seed);
    uint64_t start = s->work, spent = 0, next = s->work + s->work / TRIAL_PART;
    int64_t bound = s->lower_bound;
    bool moves = s->relaxation->messages != NULL;
    sn_improver_set_prices(m, s->relaxation->best_price);
    for (int round = 1; !is_over(s);) {
        if (moves && (double)spent < relax_share * (double)(s->work - start)) {
            moves = relax_beside(s, &spent);
            sn_improver_set_prices(m, s->relaxation->best_price);
        }
        step(s, m);
        if (s->work < next || s->lower_bound <= bound) continue;
        bound = s->lower_bound;
        m = start_again(s, m, round++);
        next = s->work + 2 * (s->work / TRIAL_PART);
    }
    sn_improver_free(m);
}

static void search(solver *s) {
    sn_relaxation *r = s->relaxation = sn_relaxation_new(s->core, TABLE_CELLS);
    if (!sn_elimination_is_exact(r->elimination)) r->messages = sn_messages_new(s->core);
    bool moves = true;
    for (int i = 0; moves && i < FIRST_STEPS && (!i || !is_over(s)); i++) moves = relax(s, SN_RELAXATION_MESSAGES);
    if (!is_over(s)) settle(s);
    if (!is_feasible(s)) economise(s);
    if (!is_over(s)) branch(s);
    if (s->known && !is_over(s)) improve(s);
    sn_relaxation_free(r);
}

static sn_network_result result_of(const solver *s) {
    if (s->core->infeasible || (s->proven && !is_feasible(s))) return SN_NETWORK_INFEASIBLE;
    if (!is_feasible(s)) return SN_NETWORK_UNKNOWN;
    return s->lower_bound >= s->cost ? SN_NETWORK_OPTIMAL : SN_NETWORK_FEASIBLE;
}

static sn_network_answer answer(const solver *s) {
    int *choice = sn_alloc(sizeof *choice * (s->network->n_nodes + 1));
    if (!s->core->infeasible) sn_core_lift(s->core, s->best, choice);
    sn_network_answer a = {.result = result_of(s),
                           .choice = choice,
                           .cost = sn_network_cost(s->network, choice),
                           .peak = sn_network_peak(s->network, choice),
                           .lower_bound = s->lower_bound,
                           .work = s->work,
                           .seconds = sn_seconds() - s->start};
    // Costs beyond 2^53 are rounded while searching: what the choice costs exactly is a bound of the bound.
    if (is_feasible(s) && a.lower_bound > a.cost) a.lower_bound = a.cost;
    return a;
}

sn_network_answer sn_network_solve(const sn_network *network, const sn_network_budget *budget) {
    SN_CHECK(budget->seconds > 0 || budget->work > 0);
    solver s = {.network = network, .budget = budget, .start = sn_seconds(), .lower_bound = INT64_MIN};
    s.core = sn_core_new(network);
    s.best = sn_alloc(sizeof *s.best * (size_t)(s.core->n_nodes + 1));
    if (!s.core->infeasible) search(&s);
    sn_network_answer result = answer(&s);
    sn_free(s.best);
    sn_core_free(s.core);
    return result;
}
