#include "runtime/exec/executor.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/vec.h"
#include "runtime/mesh.h"
#include "runtime/operands.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// An instruction made ready. Buffers with slots move it from micro-batch to micro-batch: it is made ready once for each
// combination of slots that its operands can be in, `period` of them.
typedef struct ready {
    int64_t period;
    sn_device_op **ops; // [period], device work; NULL otherwise
    double seconds;     // spent in it so far
} ready;

typedef struct prepared {
    const sn_program *program;
    ready *instrs;
    bool two_streams;
    bool *events; // recorded in this run
} prepared;

typedef struct job { // a run of a program
    const prepared *program;
    int64_t micro_batch;
} job;

struct sn_executor {
    const sn_schedule *schedule;
    sn_device *device;
    sn_comm *comm;
    prepared *programs;
    sn_progress *progress;
    sn_trace *trace; // NULL: not wanted

    // Between the two threads, under the lock.
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job job; // for the communication thread; no program when it is idle
    bool quit;
    sn_status failed; // the first error of either stream
};

static bool is_transfer(const sn_instr *in) {
    return in->kind == SN_INSTR_SEND || in->kind == SN_INSTR_RECV;
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

static void *address(const sn_executor *e, sn_view view, int64_t micro_batch) {
    int64_t offset = sn_buffer_offset(&e->schedule->buffers.items[view.buffer], micro_batch) + view.offset;
    return e->device->vtable->address(e->device, offset);
}

// The error, and where it happened.
static sn_status at_instr(const sn_executor *e, const sn_program *program, size_t i, sn_status status) {
    sn_str where = {0};
    sn_schedule_describe(e->schedule, program, i, &where);
    sn_status told = sn_status_make("%s: %s", sn_str_text(&where), sn_status_message(status));
    sn_status_free(status), sn_str_free(&where);
    return told;
}

static sn_status communicate_instr(sn_executor *e, const sn_instr *in, int64_t micro_batch) {
    if (is_transfer(in)) {
        const sn_do_transfer *t = &in->transfer;
        int64_t part = micro_batch < 0 ? 0 : micro_batch;
        sn_transfer transfer = {.send = in->kind == SN_INSTR_SEND,
                                .peer = (int)sn_schedule_peer(e->schedule, e->comm->rank, t->peer),
                                .tag = t->channel * e->schedule->micro_batches + part,
                                .data = address(e, t->view, micro_batch),
                                .bytes = (size_t)t->count * sn_dtype_bytes(t->dtype)};
        return e->comm->vtable->transfer(e->comm, &transfer);
    }
    const sn_do_collective *c = &in->collective;
    sn_collective collective = {in->kind,
                                in->stream,
                                c->axes,
                                c->dtype,
                                c->reduce,
                                c->count,
                                address(e, c->from, micro_batch),
                                address(e, c->to, micro_batch)};
    return e->comm->vtable->run(e->comm, &collective);
}

static sn_status run_instr(sn_executor *e, job run, size_t i) {
    const sn_instr *in = &run.program->program->instrs.items[i];
    switch (in->kind) {
    case SN_INSTR_RECORD:
        record_event(e, run.program, in->event.event);
        return SN_OK;
    case SN_INSTR_WAIT:
        return wait_event(e, run.program, in->event.event);
    default:
        break;
    }
    const ready *r = &run.program->instrs[i];
    if (!r->ops) return communicate_instr(e, in, run.micro_batch);
    int64_t variant = run.micro_batch < 0 ? 0 : run.micro_batch % r->period;
    return e->device->vtable->launch(e->device, r->ops[variant]);
}

static void keep_time(sn_executor *e, job run, size_t i, sn_stream stream, double start) {
    double seconds = sn_seconds() - start;
    run.program->instrs[i].seconds += seconds;
    if (!e->trace) return;
    sn_trace_event event = {.start = start - e->trace->origin,
                            .seconds = seconds,
                            .step = atomic_load_explicit(&e->progress->step, memory_order_relaxed),
                            .program = (int32_t)(run.program - e->programs),
                            .instr = (int32_t)i,
                            .micro_batch = (int32_t)run.micro_batch};
    sn_trace_add(e->trace, stream, &event);
}

static sn_status run_stream(sn_executor *e, job run, sn_stream stream) {
    const sn_program *program = run.program->program;
    _Atomic int64_t *place = &e->progress->instr[stream];
    sn_status status = SN_OK;
    for (size_t i = 0; i < program->instrs.count && !status; i++) {
        if (program->instrs.items[i].stream != stream) continue;
        atomic_store_explicit(place, (int64_t)i, memory_order_relaxed);
        double start = sn_seconds();
        status = run_instr(e, run, i);
        if (status) {
            status = at_instr(e, program, i, status);
        } else {
            keep_time(e, run, i, stream, start);
            sn_progress_done(e->progress);
        }
    }
    atomic_store_explicit(place, -1, memory_order_relaxed);
    return status;
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
        while (!e->job.program && !e->quit) pthread_cond_wait(&e->changed, &e->lock);
        if (e->quit) break;
        job run = e->job;
        pthread_mutex_unlock(&e->lock);
        report(e, run_stream(e, run, SN_STREAM_COMM));
        pthread_mutex_lock(&e->lock);
        e->job.program = NULL;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static sn_status run_both(sn_executor *e, job run) {
    memset(run.program->events, 0, run.program->program->instrs.count * sizeof *run.program->events);
    pthread_mutex_lock(&e->lock);
    e->job = run;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    report(e, run_stream(e, run, SN_STREAM_COMPUTE));
    pthread_mutex_lock(&e->lock);
    while (e->job.program) pthread_cond_wait(&e->changed, &e->lock);
    sn_status status = e->failed;
    e->failed = SN_OK;
    pthread_mutex_unlock(&e->lock);
    return status;
}

sn_status sn_executor_run(sn_executor *e, int64_t program, int64_t micro_batch) {
    job run = {&e->programs[program], micro_batch};
    atomic_store_explicit(&e->progress->micro_batch, micro_batch, memory_order_relaxed);
    atomic_store_explicit(&e->progress->program, program, memory_order_relaxed);
    sn_status status = run.program->two_streams ? run_both(e, run) : run_stream(e, run, SN_STREAM_COMPUTE);
    atomic_store_explicit(&e->progress->program, -1, memory_order_relaxed);
    return status;
}

// Least common multiple of the slots of its operands' buffers; of all micro-batches where one lists its slots.
static int64_t period_of(const sn_schedule *s, const sn_instr *in) {
    sn_operands operands = {0};
    sn_instr_operands(s, in, &operands);
    int64_t period = 1;
    for (size_t i = 0; i < operands.count; i++) {
        const sn_buffer *buffer = &s->buffers.items[operands.data[i].view.buffer];
        int64_t slots = buffer->slot_of.count ? s->micro_batches : buffer->slots, a = period, b = slots;
        if (slots <= 1) continue;
        while (b) {
            int64_t rest = a % b;
            a = b, b = rest;
        }
        period = period / a * slots;
    }
    sn_vec_free(&operands);
    return period < s->micro_batches ? period : s->micro_batches;
}

static bool is_device_work(const sn_instr *in) {
    return !sn_instr_is_collective(in->kind) && !is_transfer(in) && in->kind != SN_INSTR_RECORD &&
           in->kind != SN_INSTR_WAIT;
}

static sn_status prepare_instr(sn_executor *e, const sn_instr *in, ready *out) {
    if (!is_device_work(in)) return SN_OK;
    out->period = period_of(e->schedule, in);
    out->ops = sn_alloc((size_t)out->period * sizeof *out->ops);
    for (int64_t m = 0; m < out->period; m++)
        SN_TRY(e->device->vtable->prepare(e->device, e->schedule, in, m, &out->ops[m]));
    return SN_OK;
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
        if (status) return at_instr(e, program, i, status);
    }
    return SN_OK;
}

sn_status sn_executor_create(const sn_executor_setup *setup, sn_executor **out) {
    const sn_schedule *schedule = setup->schedule;
    sn_executor *e = sn_alloc(sizeof *e);
    e->schedule = schedule, e->device = setup->device, e->comm = setup->comm;
    e->progress = setup->progress, e->trace = setup->trace;
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

static void release(sn_executor *e, ready *r) {
    for (int64_t m = 0; r->ops && m < r->period; m++) e->device->vtable->release(e->device, r->ops[m]);
    sn_free(r->ops);
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
        for (size_t i = 0; program->instrs && i < program->program->instrs.count; i++) release(e, &program->instrs[i]);
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
