// The event engine against evaluators that share nothing with it: longest paths by relaxation to a fixed point, and
// processor sharing with the remaining work of every task recomputed at every event.
#include "passes/simulate/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MOST_TASKS = 64, MOST_EDGES = 256, MOST_STREAMS = 6 };

// A problem small enough to solve by hand.
typedef struct problem {
    int tasks, edges, streams, groups;
    int stream[MOST_TASKS], group[MOST_TASKS];
    double seconds[MOST_TASKS];
    int before[MOST_EDGES], after[MOST_EDGES];
    double lag[MOST_EDGES];
    double cores, sharing; // of the one host of all streams; no cores: no host
} problem;

static uint64_t state_of_random = 88172645463325252ull;

static unsigned random_below(unsigned n) {
    state_of_random ^= state_of_random << 13;
    state_of_random ^= state_of_random >> 7;
    state_of_random ^= state_of_random << 17;
    return (unsigned)((state_of_random >> 20) % n);
}

// Edges go from lower to higher numbers and groups take consecutive tasks of different streams, so nothing can hang.
static problem random_problem(void) {
    problem p = {.tasks = 2 + (int)random_below(MOST_TASKS - 2), .streams = 1 + (int)random_below(MOST_STREAMS)};
    for (int t = 0; t < p.tasks; t++) {
        p.stream[t] = (int)random_below((unsigned)p.streams);
        p.group[t] = SN_SIM_NONE;
        p.seconds[t] = random_below(5) ? (double)random_below(1000) / 256 : 0;
    }
    for (int t = 0; t + p.streams <= p.tasks; t += p.streams) {
        if (random_below(4)) continue;
        for (int i = 0; i < p.streams; i++)
            p.stream[t + i] = i, p.group[t + i] = p.groups, p.seconds[t + i] = p.seconds[t];
        p.groups++;
    }
    int wanted = (int)random_below(MOST_EDGES);
    for (int e = 0; e < wanted; e++) {
        int after = 1 + (int)random_below((unsigned)p.tasks - 1), before = (int)random_below((unsigned)after);
        bool together = p.group[before] != SN_SIM_NONE && p.group[before] == p.group[after];
        // a group is one event: an edge may not enter it behind a member that it leaves
        int first = after;
        while (first && p.group[after] != SN_SIM_NONE && p.group[first - 1] == p.group[after]) first--;
        if (together || before >= first) continue;
        p.before[p.edges] = before, p.after[p.edges] = after;
        p.lag[p.edges++] = random_below(3) ? 0 : (double)random_below(500) / 128;
    }
    return p;
}

static sn_sim *build(const problem *p) {
    sn_sim *sim = sn_sim_new();
    int host = p->cores > 0 ? sn_sim_host(sim, p->cores, 0, p->sharing) : SN_SIM_NONE;
    for (int s = 0; s < p->streams; s++) sn_sim_stream(sim, host);
    for (int g = 0; g < p->groups; g++) sn_sim_group(sim);
    for (int t = 0; t < p->tasks; t++) {
        sn_sim_add(sim, p->stream[t], p->seconds[t]);
        if (p->group[t] != SN_SIM_NONE) sn_sim_join(sim, t, p->group[t]);
    }
    for (int e = 0; e < p->edges; e++) sn_sim_after(sim, p->after[e], p->before[e], p->lag[e]);
    return sim;
}

// Starts by relaxation: raise each start to what its stream, its edges and its group ask, until nothing moves.
static void longest_paths(const problem *p, double *start) {
    memset(start, 0, sizeof *start * (size_t)p->tasks);
    for (bool moved = true; moved;) {
        moved = false;
        for (int t = 0; t < p->tasks; t++) {
            double at = start[t];
            for (int u = 0; u < t; u++)
                if (p->stream[u] == p->stream[t]) at = fmax(at, start[u] + p->seconds[u]);
            for (int e = 0; e < p->edges; e++)
                if (p->after[e] == t) at = fmax(at, start[p->before[e]] + p->seconds[p->before[e]] + p->lag[e]);
            for (int u = 0; u < p->tasks; u++)
                if (p->group[t] != SN_SIM_NONE && p->group[u] == p->group[t]) at = fmax(at, start[u]);
            moved |= at > start[t];
            start[t] = at;
        }
    }
}

static void test_longest_paths(void **state) {
    (void)state;
    for (int i = 0; i < 3000; i++) {
        problem p = random_problem();
        double start[MOST_TASKS];
        longest_paths(&p, start);
        sn_sim *sim = build(&p);
        assert_true(sn_sim_run(sim));
        for (int t = 0; t < p.tasks; t++) {
            const sn_sim_task *task = sn_sim_task_at(sim, t);
            if (fabs(task->start - start[t]) > 1e-9 || fabs(task->end - start[t] - p.seconds[t]) > 1e-9)
                fail_msg("problem %d, task %d starts at %g, not %g", i, t, task->start, start[t]);
        }
        sn_sim_free(sim);
    }
}

typedef struct sharing { // of every task
    bool started, ended;
    double left, end;
} sharing;

static bool may_start(const problem *p, const sharing *s, int t, double now) {
    for (int u = 0; u < t; u++)
        if (p->stream[u] == p->stream[t] && !s[u].ended) return false;
    for (int e = 0; e < p->edges; e++)
        if (p->after[e] == t && (!s[p->before[e]].ended || s[p->before[e]].end + p->lag[e] > now + 1e-12)) return false;
    return true;
}

static void start_all(const problem *p, sharing *s, double now) {
    for (int t = 0; t < p->tasks; t++) {
        bool all = !s[t].started && may_start(p, s, t, now);
        for (int u = 0; u < p->tasks && all; u++)
            if (p->group[t] != SN_SIM_NONE && p->group[u] == p->group[t]) all = may_start(p, s, u, now);
        for (int u = 0; u < p->tasks && all; u++)
            if (u == t || (p->group[t] != SN_SIM_NONE && p->group[u] == p->group[t]))
                s[u] = (sharing){.started = true, .left = p->seconds[u]};
    }
}

// Ends whatever has no work left; more may then start at the same moment.
static bool end_some(const problem *p, sharing *s, double now) {
    bool any = false;
    for (int t = 0; t < p->tasks; t++) {
        if (!s[t].started || s[t].ended || s[t].left > 1e-11) continue;
        s[t].ended = any = true;
        s[t].end = now;
    }
    return any;
}

static void share_cores(const problem *p, double *end) {
    sharing s[MOST_TASKS] = {0};
    double now = 0;
    for (;;) {
        do start_all(p, s, now);
        while (end_some(p, s, now));
        int running = 0;
        double next = INFINITY;
        for (int t = 0; t < p->tasks; t++) running += s[t].started && !s[t].ended;
        double speed = running > p->cores ? p->sharing * p->cores / running : 1;
        for (int t = 0; t < p->tasks; t++)
            if (s[t].started && !s[t].ended) next = fmin(next, now + s[t].left / speed);
        for (int e = 0; e < p->edges; e++) {
            double over = s[p->before[e]].end + p->lag[e];
            if (s[p->before[e]].ended && over > now + 1e-12) next = fmin(next, over);
        }
        if (isinf(next)) break;
        for (int t = 0; t < p->tasks; t++)
            if (s[t].started && !s[t].ended) s[t].left -= (next - now) * speed;
        now = next;
    }
    for (int t = 0; t < p->tasks; t++) end[t] = s[t].end;
}

static void test_processor_sharing(void **state) {
    (void)state;
    for (int i = 0; i < 1000; i++) {
        problem p = random_problem();
        p.cores = 1 + (double)random_below(6) / 2;
        p.sharing = random_below(2) ? 1 : 0.875;
        double end[MOST_TASKS];
        share_cores(&p, end);
        sn_sim *sim = build(&p);
        assert_true(sn_sim_run(sim));
        for (int t = 0; t < p.tasks; t++)
            if (fabs(sn_sim_task_at(sim, t)->end - end[t]) > 1e-7)
                fail_msg("problem %d, task %d ends at %.12g, not %.12g", i, t, sn_sim_task_at(sim, t)->end, end[t]);
        sn_sim_free(sim);
    }
}

static void test_same_again(void **state) {
    (void)state;
    problem p = random_problem();
    p.cores = 1.5;
    p.sharing = 0.9;
    sn_sim *a = build(&p), *b = build(&p);
    assert_true(sn_sim_run(a) && sn_sim_run(b));
    for (int t = 0; t < p.tasks; t++) {
        const sn_sim_task *x = sn_sim_task_at(a, t), *y = sn_sim_task_at(b, t);
        assert_memory_equal(&x->start, &y->start, sizeof x->start);
        assert_memory_equal(&x->end, &y->end, sizeof x->end);
        assert_int_equal(x->cause, y->cause);
    }
    sn_sim_free(a);
    sn_sim_free(b);
}

// Two streams whose collectives come in opposite orders wait for each other.
static void test_deadlock(void **state) {
    (void)state;
    sn_sim *sim = sn_sim_new();
    int s[2] = {sn_sim_stream(sim, SN_SIM_NONE), sn_sim_stream(sim, SN_SIM_NONE)};
    int g[2] = {sn_sim_group(sim), sn_sim_group(sim)};
    sn_sim_add(sim, s[0], 1);
    for (int i = 0; i < 2; i++) sn_sim_join(sim, sn_sim_add(sim, s[0], 1), g[i]);
    for (int i = 0; i < 2; i++) sn_sim_join(sim, sn_sim_add(sim, s[1], 1), g[1 - i]);
    assert_false(sn_sim_run(sim));
    assert_int_equal(sn_sim_stuck(sim), 1);
    sn_sim_free(sim);
}

// Two cores for three streams: what waited for the first task gets a core at its turn, or at once where one is free.
static void test_turns(void **state) {
    (void)state;
    for (int busy = 1; busy <= 2; busy++) {
        sn_sim *sim = sn_sim_new();
        int host = sn_sim_host(sim, 2, 0.25, 1), streams[3];
        for (int s = 0; s < 3; s++) streams[s] = sn_sim_stream(sim, host);
        int first = sn_sim_add(sim, streams[0], 1), more = sn_sim_add(sim, streams[0], 4), other = SN_SIM_NONE;
        if (busy == 2) other = sn_sim_add(sim, streams[1], 5);
        int waits = sn_sim_add(sim, streams[2], 1);
        sn_sim_after(sim, waits, first, 0);
        assert_true(sn_sim_run(sim));
        // at 1.25 it is the third of three on two cores: a second's work takes 1.5
        assert_float_equal(sn_sim_task_at(sim, waits)->end, busy == 2 ? 2.75 : 2, 1e-12);
        assert_float_equal(sn_sim_task_at(sim, more)->end, busy == 2 ? 5.5 : 5, 1e-12);
        if (busy == 2) assert_float_equal(sn_sim_task_at(sim, other)->end, 5.5, 1e-12);
        sn_sim_free(sim);
    }
}

// A collective ends for all when the slowest member is done.
static void test_group_ends_together(void **state) {
    (void)state;
    sn_sim *sim = sn_sim_new();
    int group = sn_sim_group(sim), tasks[2];
    for (int i = 0; i < 2; i++) {
        int stream = sn_sim_stream(sim, SN_SIM_NONE);
        sn_sim_add(sim, stream, 1 + i);
        sn_sim_join(sim, tasks[i] = sn_sim_add(sim, stream, 3 - i), group);
    }
    assert_true(sn_sim_run(sim));
    for (int i = 0; i < 2; i++) {
        assert_float_equal(sn_sim_task_at(sim, tasks[i])->start, 2, 1e-12);
        assert_float_equal(sn_sim_task_at(sim, tasks[i])->end, 5, 1e-12);
    }
    sn_sim_free(sim);
}

// The path that ends last is one of causes, each of which ends when the next begins.
static void test_critical_path(void **state) {
    (void)state;
    for (int i = 0; i < 500; i++) {
        problem p = random_problem();
        for (int e = 0; e < p.edges; e++) p.lag[e] = 0;
        sn_sim *sim = build(&p);
        int path[MOST_TASKS];
        assert_true(sn_sim_run(sim));
        size_t n = sn_sim_critical(sim, path, MOST_TASKS);
        assert_true(n > 0 && sn_sim_task_at(sim, path[0])->start == 0);
        double sum = 0;
        for (size_t k = 0; k < n; k++) sum += p.seconds[path[k]];
        assert_float_equal(sum, sn_sim_seconds(sim), 1e-9);
        sn_sim_free(sim);
    }
}

static void test_million_tasks(void **state) {
    (void)state;
    enum { STREAMS = 100, LAYERS = 10000 };
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    sn_sim *sim = sn_sim_new();
    for (int s = 0; s < STREAMS; s++) sn_sim_stream(sim, SN_SIM_NONE);
    for (int l = 0; l < LAYERS; l++) {
        for (int s = 0; s < STREAMS; s++) {
            int task = sn_sim_add(sim, s, 1 + (double)((l * 31 + s * 17) % 13));
            if (l) sn_sim_after(sim, task, (l - 1) * STREAMS + (s + 1) % STREAMS, 0.5);
        }
    }
    assert_true(sn_sim_run(sim));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    printf("10^6 tasks: %.2f s\n", seconds);
#ifdef NDEBUG
    assert_true(seconds < 10); // about one; the rest is for sanitizers and busy machines
#endif
    sn_sim_free(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_paths), cmocka_unit_test(test_processor_sharing),
        cmocka_unit_test(test_turns),         cmocka_unit_test(test_group_ends_together),
        cmocka_unit_test(test_same_again),    cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_critical_path), cmocka_unit_test(test_million_tasks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
