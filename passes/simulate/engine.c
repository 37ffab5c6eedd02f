// Time goes from event to event. An event is the end of a task, the moment at which a lag after one is over, or the
// turn of a task that waits for a core; a heap orders them by time. A task counts what it still waits for and becomes
// ready at zero.
//
// A host with k running tasks on c cores has a clock of its own that advances at the rate 1, or c / k times what
// sharing leaves,: a task of s seconds ends when that clock has advanced by s. So the order in which the tasks of a
// host end does not change as others come and go, and one heap per host, by the host's clock, is enough.
#include "passes/simulate/engine.h"

#include "base/bug.h"
#include "base/vec.h"

#include <math.h>

enum { TURN = -2 };

typedef struct event {
    double time;
    int task;
    int edge; // this edge's lag is over; SN_SIM_NONE: the task is done; TURN: it gets its turn
} event;

typedef SN_VEC(event) heap;

typedef struct edge {
    int before, after;
    double lag;
} edge;

typedef struct host {
    double cores, turn, sharing, clock, at; // the clock as it stood at time `at`
    heap running;                           // by the clock
} host;

typedef struct group {
    int size, ready, done;
    int first; // head of the list of members
} group;

typedef struct node { // beside sn_sim_task: what the run needs
    int waits;        // edges and the stream's predecessor, not over yet
    int next_on_stream;
    int next_in_group;
    int from; // the edge that ended last
} node;

struct sn_sim {
    SN_VEC(sn_sim_task) tasks;
    SN_VEC(node) nodes;
    SN_VEC(edge) edges;
    SN_VEC(int) stream_host, stream_last;
    SN_VEC(group) groups;
    SN_VEC(host) hosts;
    int *edge_start, *edge_list; // edges by their `before`
    heap events;
    double now;
    size_t ended;
};

sn_sim *sn_sim_new(void) {
    return sn_alloc(sizeof(sn_sim));
}

void sn_sim_free(sn_sim *sim) {
    if (!sim) return;
    for (size_t i = 0; i < sim->hosts.count; i++) sn_vec_free(&sim->hosts.data[i].running);
    sn_vec_free(&sim->tasks);
    sn_vec_free(&sim->nodes);
    sn_vec_free(&sim->edges);
    sn_vec_free(&sim->stream_host);
    sn_vec_free(&sim->stream_last);
    sn_vec_free(&sim->groups);
    sn_vec_free(&sim->hosts);
    sn_vec_free(&sim->events);
    sn_free(sim->edge_start);
    sn_free(sim->edge_list);
    sn_free(sim);
}

int sn_sim_host(sn_sim *sim, double cores, double turn, double sharing) {
    SN_CHECK(cores > 0 && turn >= 0 && sharing > 0 && sharing <= 1);
    sn_vec_push(&sim->hosts, (host){.cores = cores, .turn = turn, .sharing = sharing});
    return (int)sim->hosts.count - 1;
}

int sn_sim_stream(sn_sim *sim, int host) {
    sn_vec_push(&sim->stream_host, host);
    sn_vec_push(&sim->stream_last, SN_SIM_NONE);
    return (int)sim->stream_host.count - 1;
}

int sn_sim_group(sn_sim *sim) {
    sn_vec_push(&sim->groups, (group){.first = SN_SIM_NONE});
    return (int)sim->groups.count - 1;
}

int sn_sim_add(sn_sim *sim, int stream, double seconds) {
    SN_CHECK(seconds >= 0 && isfinite(seconds));
    int task = (int)sim->tasks.count;
    node n = {.next_on_stream = SN_SIM_NONE, .next_in_group = SN_SIM_NONE, .from = SN_SIM_NONE};
    if (stream != SN_SIM_NONE) {
        int before = sim->stream_last.data[stream];
        if (before != SN_SIM_NONE) {
            sim->nodes.data[before].next_on_stream = task;
            n.waits = 1;
        }
        sim->stream_last.data[stream] = task;
    }
    sn_vec_push(&sim->nodes, n);
    sn_vec_push(&sim->tasks,
                (sn_sim_task){.stream = stream, .group = SN_SIM_NONE, .seconds = seconds, .cause = SN_SIM_NONE});
    return task;
}

void sn_sim_after(sn_sim *sim, int task, int before, double lag) {
    SN_CHECK(lag >= 0 && isfinite(lag));
    sn_vec_push(&sim->edges, (edge){before, task, lag});
}

void sn_sim_join(sn_sim *sim, int task, int index) {
    group *g = &sim->groups.data[index];
    sim->tasks.data[task].group = index;
    sim->nodes.data[task].next_in_group = g->first;
    g->first = task;
    g->size++;
}

static bool earlier(const event *a, const event *b) {
    if (a->time < b->time || a->time > b->time) return a->time < b->time;
    return a->task != b->task ? a->task < b->task : a->edge < b->edge;
}

static void push(heap *h, event e) {
    sn_vec_push(h, e);
    size_t i = h->count - 1;
    for (; i && earlier(&e, &h->data[(i - 1) / 2]); i = (i - 1) / 2) h->data[i] = h->data[(i - 1) / 2];
    h->data[i] = e;
}

static event pop(heap *h) {
    event top = h->data[0], last = h->data[--h->count];
    size_t i = 0, child;
    for (; (child = 2 * i + 1) < h->count; i = child) {
        if (child + 1 < h->count && earlier(&h->data[child + 1], &h->data[child])) child++;
        if (!earlier(&h->data[child], &last)) break;
        h->data[i] = h->data[child];
    }
    if (h->count) h->data[i] = last;
    return top;
}

// Edges by the task that they leave.
static void sort_edges(sn_sim *sim) {
    size_t tasks = sim->tasks.count;
    sim->edge_start = sn_alloc((tasks + 2) * sizeof *sim->edge_start);
    sim->edge_list = sn_alloc((sim->edges.count + 1) * sizeof *sim->edge_list);
    int *start = sim->edge_start;
    for (size_t i = 0; i < sim->edges.count; i++) {
        start[sim->edges.data[i].before + 2]++;
        sim->nodes.data[sim->edges.data[i].after].waits++;
    }
    for (size_t t = 2; t <= tasks; t++) start[t] += start[t - 1];
    for (size_t i = 0; i < sim->edges.count; i++) sim->edge_list[start[sim->edges.data[i].before + 1]++] = (int)i;
}

static double rate(const host *h) {
    double running = (double)h->running.count;
    return running > h->cores ? h->cores * h->sharing / running : 1;
}

static void advance(host *h, double now) {
    h->clock += (now - h->at) * rate(h);
    h->at = now;
}

static host *host_of(sn_sim *sim, const sn_sim_task *t) {
    int index = t->stream == SN_SIM_NONE ? SN_SIM_NONE : sim->stream_host.data[t->stream];
    return index == SN_SIM_NONE ? NULL : &sim->hosts.data[index];
}

static void run_task(sn_sim *sim, int task) {
    sn_sim_task *t = &sim->tasks.data[task];
    host *h = host_of(sim, t);
    if (!h || !(t->seconds > 0)) {
        push(&sim->events, (event){sim->now + t->seconds, task, SN_SIM_NONE});
        return;
    }
    advance(h, sim->now);
    push(&h->running, (event){h->clock + t->seconds, task, SN_SIM_NONE});
}

// `waited`: its stream gave the core away before.
static void start(sn_sim *sim, int task, bool waited) {
    sn_sim_task *t = &sim->tasks.data[task];
    const host *h = host_of(sim, t);
    t->start = sim->now;
    if (waited && h && h->turn > 0 && (double)h->running.count >= h->cores)
        push(&sim->events, (event){sim->now + h->turn, task, TURN});
    else
        run_task(sim, task);
}

static void make_ready(sn_sim *sim, int task) {
    sn_sim_task *t = &sim->tasks.data[task];
    t->ready = sim->now;
    if (t->group == SN_SIM_NONE) {
        start(sim, task, t->cause != SN_SIM_NONE && sim->tasks.data[t->cause].stream != t->stream);
        return;
    }
    group *g = &sim->groups.data[t->group];
    if (++g->ready < g->size) return;
    start(sim, task, false);
    for (int member = g->first; member != SN_SIM_NONE; member = sim->nodes.data[member].next_in_group) {
        if (member == task) continue;
        sim->tasks.data[member].cause = t->cause;
        start(sim, member, sim->tasks.data[member].ready < sim->now);
    }
}

// One thing less that `task` waits for: the end of `cause`.
static void release(sn_sim *sim, int task, int cause) {
    sim->tasks.data[task].cause = cause;
    if (--sim->nodes.data[task].waits == 0) make_ready(sim, task);
}

static void end(sn_sim *sim, int task) {
    sim->tasks.data[task].end = sim->now;
    sim->ended++;
    int next = sim->nodes.data[task].next_on_stream;
    if (next != SN_SIM_NONE) release(sim, next, task);
    for (int i = sim->edge_start[task]; i < sim->edge_start[task + 1]; i++) {
        int index = sim->edge_list[i];
        const edge *e = &sim->edges.data[index];
        if (e->lag > 0)
            push(&sim->events, (event){sim->now + e->lag, e->after, index});
        else
            release(sim, e->after, task);
    }
}

// A task has done its work. A group ends when all of it has.
static void finish(sn_sim *sim, int task) {
    int index = sim->tasks.data[task].group;
    if (index == SN_SIM_NONE) {
        end(sim, task);
        return;
    }
    group *g = &sim->groups.data[index];
    if (++g->done < g->size) return;
    for (int member = g->first; member != SN_SIM_NONE; member = sim->nodes.data[member].next_in_group) end(sim, member);
}

// When the next task of a host ends.
static double host_next(const host *h) {
    return h->running.count ? h->at + fmax(0, h->running.data[0].time - h->clock) / rate(h) : INFINITY;
}

// Takes the next event. False when there is none.
static bool step(sn_sim *sim) {
    double time = sim->events.count ? sim->events.data[0].time : INFINITY;
    host *from = NULL;
    for (size_t i = 0; i < sim->hosts.count; i++) {
        double next = host_next(&sim->hosts.data[i]);
        if (next < time) time = next, from = &sim->hosts.data[i];
    }
    if (from) {
        advance(from, time);
        event e = pop(&from->running);
        from->clock = e.time; // what rounding left of it
        sim->now = time;
        finish(sim, e.task);
        return true;
    }
    if (!sim->events.count) return false;
    event e = pop(&sim->events);
    sim->now = e.time;
    if (e.edge == SN_SIM_NONE)
        finish(sim, e.task);
    else if (e.edge == TURN)
        run_task(sim, e.task);
    else
        release(sim, e.task, sim->edges.data[e.edge].before);
    return true;
}

bool sn_sim_run(sn_sim *sim) {
    SN_CHECK(!sim->edge_start); // once
    sort_edges(sim);
    int tasks = (int)sim->tasks.count;
    for (int t = 0; t < tasks; t++) sim->tasks.data[t].end = -1;
    for (int t = 0; t < tasks; t++)
        if (sim->nodes.data[t].waits == 0) make_ready(sim, t);
    while (step(sim)) {
    }
    return sim->ended == sim->tasks.count;
}

int sn_sim_stuck(const sn_sim *sim) {
    for (size_t t = 0; t < sim->tasks.count; t++)
        if (sim->tasks.data[t].end < 0) return (int)t;
    return SN_SIM_NONE;
}

size_t sn_sim_count(const sn_sim *sim) {
    return sim->tasks.count;
}

const sn_sim_task *sn_sim_task_at(const sn_sim *sim, int task) {
    return &sim->tasks.data[task];
}

double sn_sim_seconds(const sn_sim *sim) {
    double seconds = 0;
    for (size_t t = 0; t < sim->tasks.count; t++) seconds = fmax(seconds, sim->tasks.data[t].end);
    return seconds;
}

double sn_sim_busy(const sn_sim *sim, int stream) {
    double seconds = 0;
    for (size_t t = 0; t < sim->tasks.count; t++)
        if (sim->tasks.data[t].stream == stream) seconds += sim->tasks.data[t].end - sim->tasks.data[t].start;
    return seconds;
}

size_t sn_sim_critical(const sn_sim *sim, int *tasks, size_t most) {
    int last = SN_SIM_NONE;
    size_t n = 0;
    for (size_t t = 0; t < sim->tasks.count; t++)
        if (last == SN_SIM_NONE || sim->tasks.data[t].end > sim->tasks.data[last].end) last = (int)t;
    for (; last != SN_SIM_NONE && n < most; last = sim->tasks.data[last].cause) tasks[n++] = last;
    for (size_t i = 0; i < n / 2; i++) {
        int other = tasks[n - 1 - i];
        tasks[n - 1 - i] = tasks[i];
        tasks[i] = other;
    }
    return n;
}
