// The program has one class per rank, along an axis `pp`, so that collectives and messages of all kinds can run:
//
//   for each kind and size:   barrier, collective
//   for each size of message: barrier, rank 0: send, recv (the answer) | rank 1: recv, send      a round trip
//                             rank 0: send, barrier | rank 1: barrier, recv                      one that waits there
//
// A barrier is a small all-reduce: it keeps ranks from waiting for each other in what is measured.
#include "tools/profile_ranks.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/vec.h"
#include "runtime/package.h"
#include "runtime/schedule.h"
#include "tools/launch.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 16 << 20, MOST_SIZES = 10, STEPS = 25, QUICK_STEPS = 9, BARRIER = -1 };

static const sn_instr_kind kinds[] = {SN_INSTR_ALL_REDUCE, SN_INSTR_ALL_GATHER, SN_INSTR_REDUCE_SCATTER,
                                      SN_INSTR_ALL_TO_ALL};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef enum what { OTHER, COLLECTIVE, TRIP_SEND, TRIP_RECV, LATE_RECV } what;

typedef struct item { // beside each instruction: what it measures
    what what;
    int kind, size;
} item;

typedef struct ranks_bench {
    int ranks, sizes;
    int64_t size[MOST_SIZES];
    sn_arena arena;
    sn_schedules schedules;
    item **items; // [class][instruction]
    // [kind][size], and of messages: seconds, as many as there are steps and ranks
    SN_VEC(double)
    collectives[KINDS][MOST_SIZES], trips[MOST_SIZES], sends[MOST_SIZES], receives[MOST_SIZES], gaps, spans;
} ranks_bench;

typedef struct program {
    SN_VEC(sn_instr) instrs;
    SN_VEC(item) items;
} program;

static void add(program *p, sn_instr instr, item item) {
    sn_vec_push(&p->instrs, instr);
    sn_vec_push(&p->items, item);
}

// Views: 0 is read, 1 is written; each has room for the largest tensor.
static sn_instr collective(sn_instr_kind kind, int64_t bytes, int ranks) {
    sn_instr in = {.kind = kind, .origin = -1};
    int64_t count = bytes / 4;
    if (kind != SN_INSTR_ALL_REDUCE) count /= ranks;
    in.collective =
        (sn_do_collective){.dtype = SN_F32, .axes = 1, .count = count ? count : 1, .from = {0, 0}, .to = {1, 0}};
    return in;
}

static void barrier(program *p, int ranks) {
    add(p, collective(SN_INSTR_ALL_REDUCE, 4, ranks), (item){.what = OTHER, .size = BARRIER});
}

static sn_instr transfer(sn_instr_kind kind, int64_t peer, int64_t channel, int64_t bytes) {
    sn_instr in = {.kind = kind, .origin = -1};
    in.transfer = (sn_do_transfer){
        .dtype = SN_F32, .peer = peer, .channel = channel, .count = bytes / 4, .view = {kind == SN_INSTR_RECV, 0}};
    return in;
}

static void add_messages(const ranks_bench *b, int rank, program *p) {
    for (int s = 0; s < b->sizes; s++) {
        int64_t bytes = b->size[s], channel = 3 * (int64_t)s;
        item send = {TRIP_SEND, 0, s}, recv = {TRIP_RECV, 0, s}, other = {OTHER, 0, 0};
        barrier(p, b->ranks);
        if (rank == 0) {
            add(p, transfer(SN_INSTR_SEND, 1, channel, bytes), send);
            add(p, transfer(SN_INSTR_RECV, 1, channel + 1, bytes), recv);
            add(p, transfer(SN_INSTR_SEND, 1, channel + 2, bytes), other);
        } else if (rank == 1) {
            add(p, transfer(SN_INSTR_RECV, 0, channel, bytes), other);
            add(p, transfer(SN_INSTR_SEND, 0, channel + 1, bytes), other);
        }
        for (int i = 0; i < 3; i++) barrier(p, b->ranks);
        if (rank == 1) add(p, transfer(SN_INSTR_RECV, 0, channel + 2, bytes), (item){LATE_RECV, 0, s});
    }
    barrier(p, b->ranks); // the step ends for all at once
}

static void make_class(ranks_bench *b, int rank) {
    static int64_t count[1] = {MOST_BYTES / 4}, one[1] = {1};
    program p = {0};
    for (int k = 0; k < KINDS; k++) {
        for (int s = 0; s < b->sizes; s++) {
            barrier(&p, b->ranks);
            add(&p, collective(kinds[k], b->size[s], b->ranks), (item){COLLECTIVE, k, s});
        }
    }
    add_messages(b, rank, &p);
    sn_schedule *s = &b->schedules.classes.items[rank];
    sn_arena *arena = &b->arena;
    *s = (sn_schedule){.model_hash = "profile", .plan_hash = "profile", .ranks = b->ranks, .threads = 1};
    s->micro_batches = 1, s->step_samples = 0, s->eval_loss = s->grad_norm = -1, s->loss = rank == 0 ? 2 : -1;
    s->model_path = "", s->arena_bytes = 2ll * MOST_BYTES + SN_SCHEDULE_ALIGNMENT;
    s->mesh.items = SN_NEW(arena, sn_schedule_axis), s->mesh.count = 1;
    s->mesh.items[0] = (sn_schedule_axis){"pp", b->ranks};
    s->buffers.items = SN_NEW_N(arena, sn_buffer, 3), s->buffers.count = 3;
    for (int i = 0; i < 3; i++)
        s->buffers.items[i] = (sn_buffer){.name = "x",
                                          .dtype = SN_F32,
                                          .shape = {i < 2 ? count : one, 1},
                                          .offset = (int64_t)i * MOST_BYTES,
                                          .bytes = i < 2 ? MOST_BYTES : 4};
    s->buffers.items[2].shape.count = 0;
    s->programs.items = SN_NEW(arena, sn_program), s->programs.count = 1;
    s->programs.items[0].name = "step";
    s->programs.items[0].instrs.items = sn_arena_copy(arena, p.instrs.data, p.instrs.count * sizeof *p.instrs.data);
    s->programs.items[0].instrs.count = p.instrs.count;
    s->sequences.items = SN_NEW(arena, sn_sequence), s->sequences.count = 1;
    s->sequences.items[0].name = "step";
    s->sequences.items[0].runs.items = SN_NEW(arena, sn_sequence_run), s->sequences.items[0].runs.count = 1;
    s->sequences.items[0].runs.items[0] = (sn_sequence_run){0, -1, false};
    b->items[rank] = sn_arena_copy(arena, p.items.data, p.items.count * sizeof *p.items.data);
    sn_vec_free(&p.instrs);
    sn_vec_free(&p.items);
}

static sn_status write_program(ranks_bench *b, const char *path) {
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length < 0 ? 0 : length] = 0;
    char *slash = strrchr(self, '/');
    const char *runner =
        sn_arena_printf(&b->arena, "%.*s/sennit-rank", slash ? (int)(slash - self) : 1, slash ? self : ".");
    SN_TRY(sn_schedules_check(&b->schedules));
    sn_str text = {0};
    sn_schedules_write(&b->schedules, &text);
    sn_package package = {.schedule = {text.data, text.length}};
    sn_status status = sn_package_write(&package, runner, path);
    sn_str_free(&text);
    return status;
}

static sn_status run(ranks_bench *b, const char *folder, bool quick, json_t **trace, json_t **log) {
    const char *path = sn_arena_printf(&b->arena, "%s/ranks-%d", folder, b->ranks);
    const char *trace_path = sn_arena_printf(&b->arena, "%s.json", path);
    const char *log_path = sn_arena_printf(&b->arena, "%s.log", path);
    const char *steps = sn_arena_printf(&b->arena, "%d", quick ? QUICK_STEPS : STEPS);
    const char *arguments[] = {"--data",   folder,  "--steps", steps,     "--trace",
                               trace_path, "--log", log_path,  "--quiet", NULL};
    int exit_status = 0;
    json_error_t error;
    SN_TRY(write_program(b, path));
    SN_TRY(sn_launch(path, b->ranks, arguments, &exit_status));
    if (exit_status) return sn_status_make("the measuring program ended with status %d", exit_status);
    *trace = json_load_file(trace_path, 0, &error);
    if (!*trace) return sn_status_make("its trace cannot be read: %s", error.text);
    *log = json_array();
    FILE *lines = fopen(log_path, "r");
    for (json_t *line; lines && (line = json_loadf(lines, JSON_DISABLE_EOF_CHECK, &error));)
        json_array_append_new(*log, line);
    if (lines) fclose(lines);
    return SN_OK;
}

static double number(const json_t *event, const char *key) {
    return json_number_value(json_object_get(event, key)) * 1e-6;
}

static int64_t argument(const json_t *event, const char *key) {
    const json_t *value = json_object_get(json_object_get(event, "args"), key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

typedef struct walk { // the last events of a rank
    double end, trip, span_begin;
    int64_t step;
} walk;

static void end_span(ranks_bench *b, const walk *w) {
    if (w->step > 1) sn_vec_push(&b->spans, w->end - w->span_begin);
}

// Events of a rank come in the order in which they ran. The first step touches memory for the first time.
static void take_event(ranks_bench *b, const json_t *event, walk *w) {
    int64_t rank = json_integer_value(json_object_get(event, "pid")), index = argument(event, "instruction");
    double start = number(event, "ts"), seconds = number(event, "dur");
    const item *at = &b->items[rank][index];
    if (argument(event, "step") != w->step) {
        if (rank == 0) end_span(b, w);
        w->step = argument(event, "step");
        w->span_begin = start;
    } else if (w->step > 1) {
        sn_vec_push(&b->gaps, start - w->end);
    }
    w->end = start + seconds;
    if (w->step <= 1) return;
    if (at->what == COLLECTIVE) sn_vec_push(&b->collectives[at->kind][at->size], seconds);
    if (at->what == TRIP_SEND) {
        w->trip = start;
        sn_vec_push(&b->sends[at->size], seconds);
    }
    if (at->what == TRIP_RECV) sn_vec_push(&b->trips[at->size], start + seconds - w->trip);
    if (at->what == LATE_RECV) sn_vec_push(&b->receives[at->size], seconds);
}

static void take_trace(ranks_bench *b, const json_t *trace) {
    const json_t *events = json_object_get(trace, "traceEvents");
    for (int rank = 0; rank < b->ranks; rank++) {
        walk w = {0};
        for (size_t i = 0; i < json_array_size(events); i++) {
            const json_t *event = json_array_get(events, i);
            const char *ph = json_string_value(json_object_get(event, "ph"));
            bool mine = json_integer_value(json_object_get(event, "pid")) == rank;
            if (ph && *ph == 'X' && mine && argument(event, "instruction") >= 0) take_event(b, event, &w);
        }
        if (rank == 0) end_span(b, &w);
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#define MEDIAN(vec)                                                                                                    \
    ((vec)->count ? (qsort((vec)->data, (vec)->count, sizeof(double), by_value), (vec)->data[(vec)->count / 2]) : 0)

static void write_collectives(ranks_bench *b, double share, json_t *profile) {
    json_t *all = json_object_get(profile, "collectives");
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", b->ranks);
    for (int k = 0; k < KINDS; k++) {
        json_t *table = json_array(), *of_kind = json_object_get(all, sn_instr_name(kinds[k]));
        for (int s = 0; s < b->sizes; s++)
            json_array_append_new(table,
                                  json_pack("[I, f]", (json_int_t)b->size[s], share * MEDIAN(&b->collectives[k][s])));
        if (!of_kind) {
            of_kind = json_object();
            json_object_set_new(all, sn_instr_name(kinds[k]), of_kind);
        }
        json_object_set_new(of_kind, ranks, table);
    }
}

// A trip is twice: send, on the way, receive.
static void write_messages(ranks_bench *b, json_t *profile) {
    json_t *table = json_array();
    for (int s = 0; s < b->sizes; s++) {
        double send = MEDIAN(&b->sends[s]), receive = MEDIAN(&b->receives[s]);
        double flight = MEDIAN(&b->trips[s]) / 2 - send - receive;
        json_array_append_new(
            table, json_pack("[I, f, f, f]", (json_int_t)b->size[s], send, flight > 0 ? flight : 0, receive));
    }
    json_object_set_new(profile, "messages", table);
    json_object_set_new(profile, "issue", json_real(MEDIAN(&b->gaps)));
    json_object_set_new(profile, "run", json_real(2 * MEDIAN(&b->gaps)));
}

// What a step takes beyond its program.
static void write_step(ranks_bench *b, const json_t *log, json_t *profile) {
    SN_VEC(double) rests = {0};
    for (size_t i = 1; i < json_array_size(log) && i <= b->spans.count; i++) {
        double step = json_number_value(json_object_get(json_array_get(log, i), "step_ms")) * 1e-3;
        sn_vec_push(&rests, step - b->spans.data[i - 1]);
    }
    double outside = MEDIAN(&rests);
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", b->ranks);
    json_object_set_new(json_object_get(profile, "step"), ranks, json_real(outside > 0 ? outside : 0));
    sn_vec_free(&rests);
}

static void release(ranks_bench *b) {
    for (int s = 0; s < MOST_SIZES; s++) {
        for (int k = 0; k < KINDS; k++) sn_vec_free(&b->collectives[k][s]);
        sn_vec_free(&b->trips[s]);
        sn_vec_free(&b->sends[s]);
        sn_vec_free(&b->receives[s]);
    }
    sn_vec_free(&b->gaps);
    sn_vec_free(&b->spans);
    sn_arena_free(&b->arena);
}

bool sn_profile_measure_ranks(int ranks, double cores, bool quick, const char *folder, sn_diags *diags,
                              json_t *profile) {
    ranks_bench b = {.ranks = ranks, .schedules = {.version = SN_SCHEDULE_VERSION}};
    for (int64_t bytes = 64; bytes <= MOST_BYTES; bytes *= quick ? 64 : 8) b.size[b.sizes++] = bytes;
    b.schedules.classes.items = SN_NEW_N(&b.arena, sn_schedule, ranks);
    b.schedules.classes.count = (size_t)ranks;
    b.items = SN_NEW_N(&b.arena, item *, ranks);
    for (int rank = 0; rank < ranks; rank++) make_class(&b, rank);
    json_t *trace = NULL, *log = NULL;
    sn_status status = run(&b, folder, quick, &trace, &log);
    if (!status) {
        take_trace(&b, trace);
        write_collectives(&b, ranks > cores ? cores / ranks : 1, profile);
        if (ranks == 2) write_messages(&b, profile);
        write_step(&b, log, profile);
    } else {
        sn_error(diags, "E0831", NULL, "does mpirun start that many ranks here? --ranks 1 leaves communication out",
                 "communication of %d ranks cannot be measured: %s", ranks, sn_status_message(status));
    }
    bool good = !status;
    sn_status_free(status);
    json_decref(trace);
    json_decref(log);
    release(&b);
    return good;
}
