#include "tools/profile_work.h"

#include "backend/package/link.h"
#include "backend/simulate/signature.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "runtime/comm/signal.h"
#include "runtime/device/device.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUFFER = 32 << 20, WARM_UPS = 2, LEAST_RUNS = 5, MOST_SAMPLES = 64 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The lower quartile: what else the machine does can only make a run longer.
static double typical(double *values, size_t n) {
    qsort(values, n, sizeof *values, by_value);
    return n ? values[n / 4] : 0;
}

// Three buffers that instructions of any kind can use.
typedef struct bench {
    sn_device *device;
    sn_schedule schedule;
    sn_buffer buffers[3];
    double seconds; // to spend on each instruction
} bench;

static sn_status bench_open(bench *b) {
    static int64_t count[1] = {BUFFER / 4};
    for (int i = 0; i < 3; i++)
        b->buffers[i] = (sn_buffer){
            .name = "x", .dtype = SN_F32, .shape = {count, 1}, .offset = (int64_t)i * BUFFER, .bytes = BUFFER};
    b->schedule = (sn_schedule){.ranks = 1, .micro_batches = 1, .pipeline_axis = -1, .arena_bytes = 3ll * BUFFER};
    b->schedule.buffers.items = b->buffers;
    b->schedule.buffers.count = 3;
    SN_TRY(sn_device_cpu_create(1, &b->device));
    SN_TRY(b->device->vtable->allocate(b->device, b->schedule.arena_bytes));
    float *numbers = sn_alloc(BUFFER);
    for (int i = 0; i < BUFFER / 4; i++) numbers[i] = (float)(i % 251) / 256;
    sn_status status = SN_OK;
    for (int i = 0; i < 3 && !status; i++)
        status = b->device->vtable->write(b->device, (int64_t)i * BUFFER, numbers, BUFFER);
    sn_free(numbers);
    return status;
}

// The time of an instruction that runs again and again.
static sn_status measure(const bench *b, const sn_instr *instr, double *seconds) {
    sn_device_op *op;
    double samples[MOST_SAMPLES], begun = sn_seconds();
    size_t n = 0;
    SN_TRY(b->device->vtable->prepare(b->device, &b->schedule, instr, -1, &op));
    sn_status status = SN_OK;
    for (int run = -WARM_UPS; !status && n < MOST_SAMPLES && (run < LEAST_RUNS || sn_seconds() - begun < b->seconds);
         run++) {
        double start = sn_seconds();
        status = b->device->vtable->launch(b->device, op);
        if (run >= 0) samples[n++] = sn_seconds() - start;
    }
    b->device->vtable->release(b->device, op);
    *seconds = typical(samples, n);
    return status;
}

static void add_row(json_t *table, size_t n, const double *values) {
    json_t *row = json_array();
    for (size_t i = 0; i < n; i++) {
        bool size = values[i] >= 1; // what is measured takes no second
        json_array_append_new(row, size ? json_integer((json_int_t)values[i]) : json_real(values[i]));
    }
    json_array_append_new(table, row);
}

static sn_instr product(int64_t m, int64_t n, int64_t k) {
    sn_instr in = {.kind = SN_INSTR_GEMM, .origin = -1};
    in.gemm = (sn_do_gemm){.dtype = SN_F32, .m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n, .alpha = 1};
    in.gemm.a = (sn_view){0, 0}, in.gemm.b = (sn_view){1, 0}, in.gemm.c = (sn_view){2, 0};
    return in;
}

static sn_instr copy_of(int64_t bytes) {
    sn_instr in = {.kind = SN_INSTR_COPY, .origin = -1};
    in.copy = (sn_do_copy){.dtype = SN_F32, .rank = 1, .dims = {bytes / 4}, .from_stride = {1}, .to_stride = {1}};
    in.copy.from = (sn_view){0, 0}, in.copy.to = (sn_view){1, 0};
    return in;
}

static sn_status measure_gemms(const bench *b, bool quick, sn_profile_progress progress, json_t *table) {
    static const int64_t sizes[] = {32, 128, 512, 1024}, few[] = {64, 512};
    const int64_t *size = quick ? few : sizes;
    size_t n = quick ? 2 : 4, done = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            for (size_t l = 0; l < n; l++) {
                progress("matrix products", done++, n * n * n);
                sn_instr in = product(size[i], size[j], size[l]);
                double row[4] = {(double)size[i], (double)size[j], (double)size[l]};
                SN_TRY(measure(b, &in, &row[3]));
                add_row(table, 4, row);
            }
        }
    }
    return SN_OK;
}

static sn_status measure_streams(const bench *b, sn_profile_progress progress, json_t *table) {
    size_t done = 0;
    for (int64_t bytes = 4096; bytes <= BUFFER; bytes *= 4) {
        progress("copies", done++, 7);
        sn_instr in = copy_of(bytes);
        double row[2] = {2 * (double)bytes};
        SN_TRY(measure(b, &in, &row[1]));
        add_row(table, 2, row);
    }
    return SN_OK;
}

// A causal head of 64 over s rows, times as many as fit.
static sn_instr attention(int64_t s, int64_t heads) {
    enum { D = 64 };
    sn_instr in = {.kind = SN_INSTR_ATTENTION, .origin = -1};
    sn_do_attention *a = &in.attention;
    *a = (sn_do_attention){.batch = 1, .heads = heads, .kv_heads = heads, .sq = s, .skv = s, .d = D, .dv = D};
    a->scale = 0.125;
    a->causal = true;
    sn_view *views[] = {&a->q, &a->k, &a->v, &a->o, &a->lse};
    int64_t *strides[] = {a->q_stride, a->k_stride, a->v_stride, a->o_stride};
    for (int i = 0; i < 5; i++) *views[i] = (sn_view){i % 3, i < 3 ? 0 : BUFFER / 2};
    for (int i = 0; i < 4; i++) strides[i][0] = heads * s * D, strides[i][1] = s * D, strides[i][2] = D;
    a->mask = a->grad_o = a->grad_q = a->grad_k = a->grad_v = SN_NO_VIEW;
    return in;
}

static sn_status measure_attentions(const bench *b, bool quick, sn_profile_progress progress, json_t *table) {
    static const int64_t shapes[][2] = {{32, 4}, {64, 8}, {128, 8}, {256, 8}, {512, 8}, {1024, 8}};
    size_t n = sizeof shapes / sizeof *shapes;
    for (size_t i = 0; i < n; i += quick ? 2 : 1) {
        progress("attention", i, n);
        int64_t s = shapes[i][0], heads = shapes[i][1];
        sn_instr in = attention(s, heads);
        double row[2] = {2.0 * (double)heads * (double)s * (double)s * 128 * 0.5};
        SN_TRY(measure(b, &in, &row[1]));
        add_row(table, 2, row);
    }
    return SN_OK;
}

sn_status sn_profile_measure_kinds(bool quick, sn_profile_progress progress, json_t *profile) {
    bench b = {.seconds = quick ? 2e-3 : 2e-2};
    json_t *gemms = json_array(), *attentions = json_array(), *streams = json_array();
    json_object_set_new(profile, "gemms", gemms);
    json_object_set_new(profile, "attentions", attentions);
    json_object_set_new(profile, "streams", streams);
    sn_status status = bench_open(&b);
    if (!status) status = measure_gemms(&b, quick, progress, gemms);
    if (!status) status = measure_attentions(&b, quick, progress, attentions);
    if (!status) status = measure_streams(&b, progress, streams);
    sn_device_destroy(b.device);
    return status;
}

// One rank class on a device of its own, ready to run.
typedef struct class_bench {
    const sn_schedule *schedule;
    const sn_sequence *step;
    sn_device *device;
    sn_device_op ****ops; // [program][instruction][micro-batch + 1]: values of each in slots of their own, as in a run,
                          // or they would stay in the caches; NULL: communication and events
    double ***samples;    // [program][instruction][MOST_SAMPLES]
    size_t **count;
    sn_arena arena;
} class_bench;

static bool is_device_work(const sn_instr *in) {
    return !sn_instr_is_collective(in->kind) && in->kind != SN_INSTR_SEND && in->kind != SN_INSTR_RECV &&
           in->kind != SN_INSTR_RECORD && in->kind != SN_INSTR_WAIT;
}

// One instruction for each micro-batch that a run of its program has.
static sn_status prepare_instr(class_bench *c, size_t p, const sn_instr *in, sn_device_op ***out) {
    *out = SN_NEW_N(&c->arena, sn_device_op *, c->schedule->micro_batches + 1);
    for (size_t r = 0; c->step && r < c->step->runs.count; r++) {
        const sn_sequence_run *run = &c->step->runs.items[r];
        if (run->program == (int64_t)p && !(*out)[run->micro_batch + 1])
            SN_TRY(c->device->vtable->prepare(c->device, c->schedule, in, run->micro_batch,
                                              &(*out)[run->micro_batch + 1]));
    }
    return SN_OK;
}

static sn_status prepare(class_bench *c) {
    size_t programs = c->schedule->programs.count;
    c->ops = SN_NEW_N(&c->arena, sn_device_op ***, programs + 1);
    c->samples = SN_NEW_N(&c->arena, double **, programs + 1);
    c->count = SN_NEW_N(&c->arena, size_t *, programs + 1);
    for (size_t p = 0; p < programs; p++) {
        const sn_program *program = &c->schedule->programs.items[p];
        c->ops[p] = SN_NEW_N(&c->arena, sn_device_op **, program->instrs.count + 1);
        c->samples[p] = SN_NEW_N(&c->arena, double *, program->instrs.count + 1);
        c->count[p] = SN_NEW_N(&c->arena, size_t, program->instrs.count + 1);
        for (size_t i = 0; i < program->instrs.count; i++) {
            if (!is_device_work(&program->instrs.items[i])) continue;
            c->samples[p][i] = SN_NEW_N(&c->arena, double, MOST_SAMPLES);
            SN_TRY(prepare_instr(c, p, &program->instrs.items[i], &c->ops[p][i]));
        }
    }
    return SN_OK;
}

// Parameters get small numbers, so that nothing overflows and no shortcut for zeros is taken; ids stay 0.
static sn_status fill_globals(class_bench *c) {
    for (size_t g = 0; g < c->schedule->globals.count; g++) {
        const sn_buffer *buffer = &c->schedule->buffers.items[c->schedule->globals.items[g].buffer];
        if (buffer->dtype != SN_F32) continue;
        size_t n = (size_t)buffer->bytes / sizeof(float);
        float *numbers = sn_alloc(n * sizeof *numbers + 1);
        for (size_t i = 0; i < n; i++) numbers[i] = (float)(1 + (i * 2654435761u) % 1021) / 32768;
        sn_status status = c->device->vtable->write(c->device, buffer->offset, numbers, n * sizeof *numbers);
        sn_free(numbers);
        if (status) return status;
    }
    return SN_OK;
}

static sn_status open_class(const sn_schedule *schedule, sn_blob kernels, class_bench *c) {
    *c = (class_bench){.schedule = schedule, .step = sn_schedule_sequence(schedule, "step")};
    SN_TRY(sn_device_cpu_create(1, &c->device));
    SN_TRY(c->device->vtable->allocate(c->device, schedule->arena_bytes));
    SN_TRY(c->device->vtable->load(c->device, kernels, &schedule->kernels));
    SN_TRY(fill_globals(c));
    return prepare(c);
}

static void close_class(class_bench *c) {
    for (size_t p = 0; c->ops && p < c->schedule->programs.count; p++)
        for (size_t i = 0; c->ops[p] && i < c->schedule->programs.items[p].instrs.count; i++)
            for (int64_t m = 0; c->ops[p][i] && m <= c->schedule->micro_batches; m++)
                if (c->ops[p][i][m]) c->device->vtable->release(c->device, c->ops[p][i][m]);
    sn_device_destroy(c->device);
    sn_arena_free(&c->arena);
}

static sn_status run_program(class_bench *c, const sn_sequence_run *run) {
    int64_t p = run->program;
    const sn_program *program = &c->schedule->programs.items[p];
    for (size_t i = 0; i < program->instrs.count; i++) {
        if (!c->ops[p][i]) continue;
        double start = sn_seconds();
        SN_TRY(c->device->vtable->launch(c->device, c->ops[p][i][run->micro_batch + 1]));
        c->samples[p][i][c->count[p][i]++ % MOST_SAMPLES] = sn_seconds() - start;
    }
    return SN_OK;
}

// The step again and again: its first time touches memory and does not count.
static sn_status run_class(class_bench *c, double seconds) {
    double begun = sn_seconds();
    for (int step = 0; step < LEAST_RUNS || sn_seconds() - begun < seconds; step++) {
        for (size_t r = 0; c->step && r < c->step->runs.count; r++) SN_TRY(run_program(c, &c->step->runs.items[r]));
        if (step) continue;
        for (size_t p = 0; p < c->schedule->programs.count; p++)
            memset(c->count[p], 0, c->schedule->programs.items[p].instrs.count * sizeof *c->count[p]);
        begun = sn_seconds();
    }
    return SN_OK;
}

typedef struct tally {
    double sum;
    int64_t n;
} tally;

static void add_samples(const class_bench *c, const char *const *kernels, sn_map *tallies, sn_arena *arena) {
    sn_str text = {0};
    for (size_t p = 0; p < c->schedule->programs.count; p++) {
        const sn_program *program = &c->schedule->programs.items[p];
        for (size_t i = 0; i < program->instrs.count; i++) {
            size_t n = c->count[p][i] < MOST_SAMPLES ? c->count[p][i] : MOST_SAMPLES;
            if (!n) continue;
            sn_str_clear(&text);
            sn_instr_signature(&program->instrs.items[i], kernels, &text);
            tally *t = sn_map_get(tallies, sn_str_text(&text));
            if (!t) {
                t = SN_NEW(arena, tally);
                sn_map_put(tallies, sn_arena_strdup(arena, sn_str_text(&text)), t);
            }
            t->sum += typical(c->samples[p][i], n);
            t->n++;
        }
    }
    sn_str_free(&text);
}

static void end_twins(long n, const pid_t *twins) {
    for (long i = 0; i < n; i++) {
        if (twins[i] <= 0) continue;
        kill(twins[i], SIGKILL);
        waitpid(twins[i], NULL, 0);
    }
}

// What two processes share to measure a wake-up.
typedef struct wake_up {
    sn_signal signal;
    _Atomic double raised; // when it was
} wake_up;

// Works without end; the one with a wake-up to give does so every now and then.
static _Noreturn void keep_busy(wake_up *gives, pid_t parent) {
    const double apart = 2e-3;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent) {
        for (double begun = sn_seconds(); sn_seconds() - begun < apart;)
            for (volatile int k = 0; k < 1000; k++) continue;
        if (!gives) continue;
        gives->raised = sn_seconds();
        sn_signal_raise(&gives->signal);
    }
    _exit(0);
}

// A process works on each core, and this one sleeps until one of them wakes it, as a rank does that waits for another
// one: the mean time until it runs.
double sn_profile_measure_turn(void) {
    enum { MOST = 64, TIMES = 200 };
    pid_t busy[MOST], self = getpid();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores > MOST) cores = MOST;
    wake_up *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w == MAP_FAILED) return 0;
    for (long i = 0; i < cores; i++)
        if (!(busy[i] = fork())) keep_busy(i ? NULL : w, self);
    double sum = 0;
    int n = 0;
    for (uint32_t target = 1; n < TIMES && busy[0] > 0; target = sn_signal_value(&w->signal) + 1) {
        if (!sn_signal_await_for(&w->signal, target, 0, 1)) break;
        if (target > 10) sum += sn_seconds() - w->raised, n++;
    }
    end_twins(cores, busy);
    munmap(w, sizeof *w);
    return n ? sum / n : 0;
}

// A product and a walk through memory that fills a core's cache, again and again; counts how often until killed.
static void work_on(_Atomic int64_t *rounds, pid_t parent) {
    bench b = {0};
    double seconds;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sn_status status = bench_open(&b);
    sn_instr gemm = product(256, 256, 256), copy = copy_of(1 << 20);
    while (!status && getppid() == parent) {
        status = measure(&b, &gemm, &seconds);
        if (!status) status = measure(&b, &copy, &seconds);
        (*rounds)++;
    }
    _exit(0);
}

static double rounds_of(long processes, double seconds) {
    enum { MOST = 128 };
    pid_t workers[MOST], self = getpid();
    _Atomic int64_t *rounds = mmap(NULL, sizeof *rounds, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rounds == MAP_FAILED) return 0;
    if (processes > MOST) processes = MOST;
    for (long i = 0; i < processes; i++)
        if (!(workers[i] = fork())) work_on(rounds, self);
    usleep(250000); // their first touch of memory
    int64_t before = *rounds;
    double begun = sn_seconds();
    usleep((useconds_t)(1e6 * seconds));
    double rate = (double)(*rounds - before) / (sn_seconds() - begun);
    end_twins(processes, workers);
    munmap((void *)(uintptr_t)rounds, sizeof *rounds);
    return rate;
}

double sn_profile_measure_sharing(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double alone = 0, shared = 0;
    for (int i = 0; i < 3; i++) { // in turns, and the best of each
        alone = fmax(alone, rounds_of(cores, 0.4));
        shared = fmax(shared, rounds_of(2 * cores, 0.4));
    }
    double share = alone > 0 ? shared / alone : 1;
    return share > 1 ? 1 : share < 0.5 ? 0.5 : share;
}

// Processes that run the same class until they are killed, or until we end.
static void start_twins(class_bench *c, long n, pid_t *twins) {
    pid_t self = getpid();
    for (long i = 0; i < n; i++) {
        twins[i] = fork();
        if (twins[i]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sn_status status = getppid() == self ? run_class(c, 3600) : SN_OK;
        sn_status_free(status);
        _exit(0);
    }
}

// [alone, crowded], null where it was not measured.
static void keep_mean(json_t *instructions, const sn_map_entry *entry, bool crowded) {
    const tally *t = entry->value;
    json_t *pair = json_pack("[n, n]");
    json_array_set_new(pair, crowded, json_real(t->sum / (double)t->n));
    json_object_set_new(instructions, entry->key, pair);
}

sn_status sn_profile_measure_plan(const sn_schedules *schedules, const sn_kernels *kernels, double seconds,
                                  json_t *instructions) {
    enum { MOST_TWINS = 64 };
    pid_t twins[MOST_TWINS];
    void *library = NULL;
    size_t bytes = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bool crowded = schedules->classes.items[0].ranks > 1;
    long n = !crowded || cores < 2 ? 0 : cores > MOST_TWINS ? MOST_TWINS : cores - 1;
    sn_arena arena = {0};
    sn_map tallies = {0};
    const char **signatures = sn_kernel_signatures(kernels, &arena);
    sn_status status = sn_kernels_link(kernels, 2, &library, &bytes);
    for (size_t i = 0; i < schedules->classes.count && !status; i++) {
        class_bench c;
        status = open_class(&schedules->classes.items[i], (sn_blob){library, bytes}, &c);
        if (!status) {
            start_twins(&c, n, twins);
            status = run_class(&c, seconds);
            end_twins(n, twins);
        }
        if (!status) add_samples(&c, signatures, &tallies, &arena);
        close_class(&c);
    }
    for (size_t i = 0; i < tallies.count; i++) keep_mean(instructions, &tallies.entries[i], crowded);
    sn_map_free(&tallies);
    sn_free(library);
    sn_arena_free(&arena);
    return status;
}
