// Ranks of one class do the same at the same time, but for what the cores of a shared host give them. So where devices
// are not shared one rank of each class stands for all of it, once there are many: a collective inside the class then
// has one member and keeps its price, one across classes still meets.
#include "backend/simulate/replay.h"

#include "runtime/mesh.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TASKS = 2 << 20, MOST_RANKS = 256 };

// A communicator: ranks that share a color along some axes, on one stream. Its collectives meet by their number.
typedef struct communicator {
    int64_t axes;
    sn_stream stream;
    SN_VEC(int) * groups; // by color: the engine's, by number
    int64_t *count;       // by replayed rank: how many it has issued
} communicator;

typedef struct end { // one side of a message
    int64_t from, to, channel, micro_batch;
    int task, number; // number: keeps the order
    int receive;      // of a send: the task that receives
    double message;
} end;

typedef SN_VEC(end) ends;

typedef struct builder {
    const sn_replay_request *request;
    sn_arena *arena;
    sn_replay *out;
    SN_VEC(sn_replay_task) tasks;
    SN_VEC(communicator) communicators;
    ends sends, receives;
    int *links; // by replayed rank: the stream of what it sends
} builder;

static const sn_schedule *schedule_of(const builder *b, const sn_replay_rank *rank) {
    return &b->request->schedules->classes.items[rank->rank_class];
}

static size_t count_tasks(const sn_schedule *s, const char *sequence) {
    const sn_sequence *q = sn_schedule_sequence(s, sequence);
    size_t n = 0;
    for (size_t i = 0; q && i < q->runs.count; i++) n += s->programs.items[q->runs.items[i].program].instrs.count;
    return n;
}

static void choose_ranks(builder *b) {
    const sn_schedules *all = b->request->schedules;
    int64_t ranks = all->classes.items[0].ranks;
    size_t tasks = 0, classes = all->classes.count;
    for (size_t c = 0; c < classes; c++) tasks += count_tasks(&all->classes.items[c], b->request->sequence);
    tasks = tasks / classes * (size_t)ranks;
    b->out->whole = b->request->cores > 0 || (!b->request->by_class && ranks <= MOST_RANKS && tasks <= MOST_TASKS);
    b->out->n_ranks = b->out->whole ? (size_t)ranks : classes;
    b->out->ranks = SN_NEW_N(b->arena, sn_replay_rank, b->out->n_ranks);
    for (size_t i = 0; i < b->out->n_ranks; i++) {
        int64_t rank = b->out->whole ? (int64_t)i : sn_schedule_first_rank(&all->classes.items[0], (int64_t)i);
        b->out->ranks[i] = (sn_replay_rank){.rank = rank, .rank_class = sn_schedules_class(all, rank)};
    }
}

// Streams of each rank; those of the ranks of a node share its cores where there are `cores`.
static void make_streams(builder *b) {
    int host = SN_SIM_NONE;
    int64_t node = -1;
    b->links = SN_NEW_N(b->arena, int, b->out->n_ranks);
    for (size_t i = 0; i < b->out->n_ranks; i++) {
        sn_replay_rank *rank = &b->out->ranks[i];
        int64_t at = sn_cluster_node(b->request->cluster, rank->rank);
        if (b->request->cores > 0 && at != node)
            host = sn_sim_host(b->out->sim, b->request->cores, b->request->turn, b->request->sharing);
        node = at;
        for (int s = 0; s < SN_STREAM_COUNT; s++) rank->stream[s] = sn_sim_stream(b->out->sim, host);
        b->links[i] = sn_sim_stream(b->out->sim, SN_SIM_NONE);
    }
}

static int add_task(builder *b, int stream, double seconds, sn_replay_task what) {
    sn_vec_push(&b->tasks, what);
    return sn_sim_add(b->out->sim, stream, seconds);
}

static communicator *find_communicator(builder *b, int64_t axes, sn_stream stream) {
    for (size_t i = 0; i < b->communicators.count; i++)
        if (b->communicators.data[i].axes == axes && b->communicators.data[i].stream == stream)
            return &b->communicators.data[i];
    const sn_schedule *s = &b->request->schedules->classes.items[0];
    communicator c = {.axes = axes, .stream = stream};
    size_t colors = (size_t)(s->ranks / sn_schedule_group_size(s, axes));
    c.groups = sn_arena_alloc(b->arena, colors * sizeof *c.groups);
    c.count = SN_NEW_N(b->arena, int64_t, b->out->n_ranks);
    sn_vec_push(&b->communicators, c);
    return &sn_vec_last(&b->communicators);
}

static void join_collective(builder *b, int rank, const sn_instr *in, int task) {
    communicator *c = find_communicator(b, in->collective.axes, in->stream);
    const sn_replay_rank *r = &b->out->ranks[rank];
    int64_t color = sn_schedule_color(schedule_of(b, r), r->rank, in->collective.axes), number = c->count[rank]++;
    if ((int64_t)c->groups[color].count <= number) sn_vec_push(&c->groups[color], sn_sim_group(b->out->sim));
    sn_sim_join(b->out->sim, task, c->groups[color].data[number]);
}

static void note_transfer(builder *b, int rank, const sn_instr *in, int64_t micro_batch, int task, double message) {
    const sn_replay_rank *r = &b->out->ranks[rank];
    int64_t peer = sn_schedule_peer(schedule_of(b, r), r->rank, in->transfer.peer);
    bool send = in->kind == SN_INSTR_SEND;
    ends *list = send ? &b->sends : &b->receives;
    sn_vec_push(list, (end){send ? r->rank : peer, send ? peer : r->rank, in->transfer.channel, micro_batch, task,
                            (int)list->count, SN_SIM_NONE, message});
}

typedef struct place {         // inside a run
    int last[SN_STREAM_COUNT]; // task of each stream before the run; SN_SIM_NONE: none that counts
    int *recorded;             // by event
    bool begun[SN_STREAM_COUNT];
} place;

// A run starts when the run before it has ended on all streams.
static void begin_on_stream(builder *b, place *at, sn_stream stream, int task) {
    for (int s = 0; s < SN_STREAM_COUNT && !at->begun[stream]; s++)
        if (s != (int)stream && at->last[s] != SN_SIM_NONE) sn_sim_after(b->out->sim, task, at->last[s], 0);
    at->begun[stream] = true;
}

static void add_run(builder *b, int rank, const sn_sequence_run *run, int *last) {
    const sn_replay_rank *r = &b->out->ranks[rank];
    const sn_program *program = &schedule_of(b, r)->programs.items[run->program];
    const sn_price *prices = b->request->prices->of[r->rank_class][run->program];
    size_t n = program->instrs.count;
    place at = {.recorded = sn_alloc((n + 1) * sizeof(int))};
    int *tasks = sn_alloc((n + 1) * sizeof *tasks), before[SN_STREAM_COUNT];
    memcpy(at.last, last, sizeof at.last);
    memcpy(before, last, sizeof before);
    for (size_t i = 0; i < n; i++) {
        const sn_instr *in = &program->instrs.items[i];
        double seconds = prices[i].seconds + (i == 0 ? b->request->prices->run : 0);
        int task = tasks[i] = add_task(b, r->stream[in->stream], seconds,
                                       (sn_replay_task){rank, (int)run->program, (int)i, (int)run->micro_batch});
        begin_on_stream(b, &at, in->stream, task);
        before[in->stream] = task;
        if (sn_instr_is_collective(in->kind)) join_collective(b, rank, in, task);
        if (in->kind == SN_INSTR_SEND || in->kind == SN_INSTR_RECV)
            note_transfer(b, rank, in, run->micro_batch, task, prices[i].message);
        if (in->kind == SN_INSTR_RECORD) at.recorded[in->event.event] = task + 1;
    }
    for (size_t i = 0; i < n; i++) {
        const sn_instr *in = &program->instrs.items[i];
        if (in->kind == SN_INSTR_WAIT && at.recorded[in->event.event])
            sn_sim_after(b->out->sim, tasks[i], at.recorded[in->event.event] - 1, 0);
    }
    memcpy(last, before, sizeof before);
    sn_free(at.recorded);
    sn_free(tasks);
}

static void add_rank(builder *b, int rank) {
    const sn_schedule *s = schedule_of(b, &b->out->ranks[rank]);
    const sn_sequence *q = sn_schedule_sequence(s, b->request->sequence);
    int last[SN_STREAM_COUNT];
    for (int i = 0; i < SN_STREAM_COUNT; i++) last[i] = SN_SIM_NONE;
    for (size_t i = 0; q && i < q->runs.count; i++) add_run(b, rank, &q->runs.items[i], last);
}

static int by_message(const void *a, const void *b) {
    const end *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    if (x->channel != y->channel) return x->channel < y->channel ? -1 : 1;
    if (x->micro_batch != y->micro_batch) return x->micro_batch < y->micro_batch ? -1 : 1;
    return x->number - y->number;
}

static int by_number(const void *a, const void *b) {
    return ((const end *)a)->number - ((const end *)b)->number;
}

static int rank_index(const builder *b, int64_t rank) {
    for (size_t i = 0; i < b->out->n_ranks; i++)
        if (b->out->ranks[i].rank == rank) return (int)i;
    return SN_SIM_NONE;
}

// Messages of a rank leave one after the other, in the order of its sends.
static void add_messages(builder *b) {
    SN_CHECK(b->sends.count == b->receives.count);
    if (!b->sends.count) return;
    qsort(b->sends.data, b->sends.count, sizeof(end), by_message);
    qsort(b->receives.data, b->receives.count, sizeof(end), by_message);
    for (size_t i = 0; i < b->sends.count; i++) {
        const end *send = &b->sends.data[i], *receive = &b->receives.data[i];
        SN_CHECK(send->from == receive->from && send->to == receive->to && send->channel == receive->channel);
        b->sends.data[i].receive = receive->task;
    }
    qsort(b->sends.data, b->sends.count, sizeof(end), by_number);
    for (size_t i = 0; i < b->sends.count; i++) {
        const end *send = &b->sends.data[i];
        int rank = rank_index(b, send->from);
        sn_replay_task what = b->tasks.data[send->task];
        what.instr = -1;
        int message = add_task(b, b->links[rank], send->message, what);
        sn_sim_after(b->out->sim, message, send->task, 0);
        sn_sim_after(b->out->sim, send->receive, message, 0);
    }
}

static bool is_communication(const sn_instr *in) {
    return sn_instr_is_collective(in->kind) || in->kind == SN_INSTR_SEND || in->kind == SN_INSTR_RECV;
}

static const sn_instr *instr_of(const builder *b, const sn_replay_task *task) {
    const sn_replay_rank *r = &b->out->ranks[task->rank];
    return &schedule_of(b, r)->programs.items[task->program].instrs.items[task->instr];
}

// Where the time of each rank goes, by what its compute stream does. A gap before a wait for the communication stream
// is communication; any other gap is a wait for other ranks.
static void account(builder *b) {
    sn_replay *out = b->out;
    double *clock = sn_alloc((out->n_ranks + 1) * sizeof *clock);
    for (size_t t = 0; t < b->tasks.count; t++) {
        const sn_replay_task *what = &b->tasks.data[t];
        const sn_sim_task *task = sn_sim_task_at(out->sim, (int)t);
        if (what->instr < 0) continue;
        sn_replay_rank *rank = &out->ranks[what->rank];
        const sn_instr *in = instr_of(b, what);
        double seconds = task->end - task->start;
        rank->phase[in->phase][is_communication(in)] += seconds;
        if (task->stream != rank->stream[SN_STREAM_COMPUTE]) continue;
        if (is_communication(in))
            rank->communication += seconds;
        else
            rank->compute += seconds;
        if (in->kind == SN_INSTR_WAIT) rank->communication += task->start - clock[what->rank];
        clock[what->rank] = task->end;
    }
    for (size_t r = 0; r < out->n_ranks; r++)
        out->ranks[r].waiting = fmax(0, out->seconds - out->ranks[r].compute - out->ranks[r].communication);
    sn_free(clock);
}

static void describe_stuck(const builder *b, sn_str *text) {
    const sn_replay_task *what = &b->tasks.data[sn_sim_stuck(b->out->sim)];
    const sn_replay_rank *rank = &b->out->ranks[what->rank];
    const sn_schedule *s = schedule_of(b, rank);
    sn_str_printf(text, "rank %" PRId64 ", micro-batch %d: ", rank->rank, what->micro_batch);
    sn_schedule_describe(s, &s->programs.items[what->program], (size_t)(what->instr < 0 ? 0 : what->instr), text);
}

bool sn_replay_run(const sn_replay_request *request, sn_arena *arena, sn_replay *out, sn_str *stuck) {
    *out = (sn_replay){.sim = sn_sim_new()};
    builder b = {.request = request, .arena = arena, .out = out};
    choose_ranks(&b);
    make_streams(&b);
    for (size_t r = 0; r < out->n_ranks; r++) add_rank(&b, (int)r);
    add_messages(&b);
    bool good = sn_sim_run(out->sim);
    if (good) {
        out->seconds = sn_sim_seconds(out->sim);
        account(&b);
    } else {
        describe_stuck(&b, stuck);
    }
    for (size_t i = 0; i < b.communicators.count; i++) {
        const communicator *c = &b.communicators.data[i];
        const sn_schedule *s = &request->schedules->classes.items[0];
        for (int64_t k = 0; k < s->ranks / sn_schedule_group_size(s, c->axes); k++) sn_vec_free(&c->groups[k]);
    }
    sn_vec_free(&b.communicators);
    sn_vec_free(&b.sends);
    sn_vec_free(&b.receives);
    out->tasks = b.tasks.data;
    return good;
}

void sn_replay_free(sn_replay *replay) {
    sn_sim_free(replay->sim);
    sn_free(replay->tasks);
    *replay = (sn_replay){0};
}
