#include "runtime/exec/executor.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct ready {        // an instruction made ready
    sn_device_op *op;         // device work
    sn_collective collective; // communication
    double seconds;           // spent in it so far
} ready;

typedef struct prepared {
    const sn_program *program;
    ready *instrs;
    bool two_streams;
    bool *events; // recorded in this run
} prepared;

struct sn_executor {
    const sn_schedule *schedule;
    sn_device *device;
    sn_comm *comm;
    prepared *programs;

    // Between the two threads, under the lock.
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const prepared *job; // for the communication thread; NULL when it is idle
    bool quit;
    sn_status failed; // the first error of either stream
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool uses_comm_stream(const sn_schedule *s) {
    for (size_t p = 0; p < s->programs.count; p++) {
        for (size_t i = 0; i < s->programs.items[p].instrs.count; i++) {
            if (s->programs.items[p].instrs.items[i].stream == SN_STREAM_COMM) return true;
        }
    }
    return false;
}

bool sn_schedules_use_comm_stream(const sn_schedules *schedules) {
    bool uses = false;
    for (size_t c = 0; c < schedules->classes.count; c++) uses = uses || uses_comm_stream(&schedules->classes.items[c]);
    return uses;
}

static void record_event(sn_executor *e, const prepared *p, int64_t event) {
    pthread_mutex_lock(&e->lock);
    p->events[event] = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static sn_status wait_event(sn_executor *e, const prepared *p, int64_t event) {
    pthread_mutex_lock(&e->lock);
    while (!p->events[event] && !e->failed) pthread_cond_wait(&e->changed, &e->lock);
    bool reached = p->events[event];
    pthread_mutex_unlock(&e->lock);
    return reached ? SN_OK : sn_status_make("the other stream failed");
}

static sn_status run_instr(sn_executor *e, const prepared *p, size_t i) {
    const sn_instr *in = &p->program->instrs.items[i];
    switch (in->kind) {
    case SN_INSTR_RECORD:
        record_event(e, p, in->event.event);
        return SN_OK;
    case SN_INSTR_WAIT:
        return wait_event(e, p, in->event.event);
    default:
        break;
    }
    if (p->instrs[i].op) return e->device->vtable->launch(e->device, p->instrs[i].op);
    return e->comm->vtable->run(e->comm, &p->instrs[i].collective);
}

static sn_status run_stream(sn_executor *e, const prepared *p, sn_stream stream) {
    for (size_t i = 0; i < p->program->instrs.count; i++) {
        const sn_instr *in = &p->program->instrs.items[i];
        if (in->stream != stream) continue;
        double start = now();
        sn_status status = run_instr(e, p, i);
        p->instrs[i].seconds += now() - start;
        if (status) {
            sn_str where = {0};
            sn_schedule_describe(e->schedule, p->program, i, &where);
            sn_status told = sn_status_make("%s: %s", sn_str_text(&where), sn_status_message(status));
            sn_status_free(status), sn_str_free(&where);
            return told;
        }
    }
    return SN_OK;
}

// Keeps the first error and wakes the other stream.
static void report(sn_executor *e, sn_status status) {
    if (!status) return;
    pthread_mutex_lock(&e->lock);
    if (e->failed) {
        sn_status_free(status);
    } else {
        e->failed = status;
    }
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static void *communicate(void *user) {
    sn_executor *e = user;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->job && !e->quit) pthread_cond_wait(&e->changed, &e->lock);
        if (e->quit) break;
        const prepared *job = e->job;
        pthread_mutex_unlock(&e->lock);
        report(e, run_stream(e, job, SN_STREAM_COMM));
        pthread_mutex_lock(&e->lock);
        e->job = NULL;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static sn_status run_both(sn_executor *e, const prepared *p) {
    memset(p->events, 0, p->program->instrs.count * sizeof *p->events);
    pthread_mutex_lock(&e->lock);
    e->job = p;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    report(e, run_stream(e, p, SN_STREAM_COMPUTE));
    pthread_mutex_lock(&e->lock);
    while (e->job) pthread_cond_wait(&e->changed, &e->lock);
    sn_status status = e->failed;
    e->failed = SN_OK;
    pthread_mutex_unlock(&e->lock);
    return status;
}

sn_status sn_executor_run(sn_executor *e, const sn_program *program) {
    const prepared *p = &e->programs[program - e->schedule->programs.items];
    return p->two_streams ? run_both(e, p) : run_stream(e, p, SN_STREAM_COMPUTE);
}

static void *address(const sn_executor *e, sn_view view) {
    return e->device->vtable->address(e->device, e->schedule->buffers.items[view.buffer].offset + view.offset);
}

static sn_status prepare_instr(sn_executor *e, const sn_instr *in, ready *out) {
    switch (in->kind) {
    case SN_INSTR_RECORD:
    case SN_INSTR_WAIT:
        return SN_OK;
    case SN_INSTR_ALL_REDUCE:
    case SN_INSTR_ALL_GATHER:
    case SN_INSTR_REDUCE_SCATTER:
    case SN_INSTR_ALL_TO_ALL:
    case SN_INSTR_BROADCAST: {
        const sn_do_collective *c = &in->collective;
        out->collective = (sn_collective){in->kind, in->stream,          c->axes,          c->dtype, c->reduce,
                                          c->count, address(e, c->from), address(e, c->to)};
        return SN_OK;
    }
    default:
        return e->device->vtable->prepare(e->device, e->schedule, in, &out->op);
    }
}

static sn_status prepare_program(sn_executor *e, const sn_program *program, prepared *out) {
    size_t count = program->instrs.count;
    out->program = program;
    out->instrs = sn_alloc(count * sizeof *out->instrs);
    out->events = sn_alloc(count * sizeof *out->events);
    for (size_t i = 0; i < count; i++) {
        const sn_instr *in = &program->instrs.items[i];
        if (in->stream == SN_STREAM_COMM) out->two_streams = true;
        sn_status status = prepare_instr(e, in, &out->instrs[i]);
        if (!status) continue;
        sn_str where = {0};
        sn_schedule_describe(e->schedule, program, i, &where);
        sn_status told = sn_status_make("%s: %s", sn_str_text(&where), sn_status_message(status));
        sn_status_free(status), sn_str_free(&where);
        return told;
    }
    return SN_OK;
}

sn_status sn_executor_create(const sn_schedule *schedule, sn_device *device, sn_comm *comm, sn_executor **out) {
    sn_executor *e = sn_alloc(sizeof *e);
    e->schedule = schedule, e->device = device, e->comm = comm;
    e->programs = sn_alloc(schedule->programs.count * sizeof *e->programs);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    sn_status status = SN_OK;
    bool two = false;
    for (size_t i = 0; i < schedule->programs.count && !status; i++) {
        status = prepare_program(e, &schedule->programs.items[i], &e->programs[i]);
        two = two || e->programs[i].two_streams;
    }
    if (!status && two) {
        if (pthread_create(&e->thread, NULL, communicate, e) != 0) {
            status = sn_status_errno("cannot start the communication thread");
        } else {
            e->started = true;
        }
    }
    if (status) {
        sn_executor_destroy(e);
        return status;
    }
    *out = e;
    return SN_OK;
}

void sn_executor_destroy(sn_executor *e) {
    if (!e) return;
    if (e->started) {
        pthread_mutex_lock(&e->lock);
        e->quit = true;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    for (size_t p = 0; p < e->schedule->programs.count; p++) {
        prepared *program = &e->programs[p];
        for (size_t i = 0; program->instrs && i < program->program->instrs.count; i++)
            e->device->vtable->release(e->device, program->instrs[i].op);
        sn_free(program->instrs), sn_free(program->events);
    }
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    sn_free(e->programs);
    sn_free(e);
}

typedef struct cost {
    const prepared *program;
    size_t index;
    double seconds;
} cost;

static int most_expensive_first(const void *a, const void *b) {
    double x = ((const cost *)a)->seconds, y = ((const cost *)b)->seconds;
    return (x < y) - (x > y);
}

void sn_executor_profile(const sn_executor *e, size_t most, int64_t steps, sn_str *out) {
    SN_VEC(cost) costs = {0};
    double kinds[SN_INSTR_COUNT] = {0}, scale = 1e3 / (double)(steps > 0 ? steps : 1);
    for (size_t p = 0; p < e->schedule->programs.count; p++) {
        const prepared *program = &e->programs[p];
        for (size_t i = 0; i < program->program->instrs.count; i++) {
            kinds[program->program->instrs.items[i].kind] += program->instrs[i].seconds;
            sn_vec_push(&costs, (cost){program, i, program->instrs[i].seconds});
        }
    }
    for (sn_instr_kind kind = 0; kind < SN_INSTR_COUNT; kind++) {
        if (kinds[kind] > 0) sn_str_printf(out, "%10.3f ms  %s\n", kinds[kind] * scale, sn_instr_name(kind));
    }
    if (costs.count) qsort(costs.data, costs.count, sizeof *costs.data, most_expensive_first);
    for (size_t k = 0; k < costs.count && k < most; k++) {
        const cost *c = &costs.data[k];
        const sn_instr *in = &c->program->program->instrs.items[c->index];
        sn_str_printf(out, "%10.3f ms  ", c->seconds * scale);
        sn_schedule_describe(e->schedule, c->program->program, c->index, out);
        if (in->kind == SN_INSTR_KERNEL) sn_str_printf(out, " %s", e->schedule->kernels.items[in->kernel.symbol]);
        sn_str_putc(out, '\n');
    }
    sn_vec_free(&costs);
}
