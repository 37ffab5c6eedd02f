#include "tools/profile_work.h"

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

void sn_profile_end_processes(long n, const pid_t *processes) {
    for (long i = 0; i < n; i++) {
        if (processes[i] <= 0) continue;
        kill(processes[i], SIGKILL);
        waitpid(processes[i], NULL, 0);
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
    sn_profile_end_processes(cores, busy);
    munmap(w, sizeof *w);
    return n ? sum / n : 0;
}

// What workers tell: how many are ready to work, and how often they have.
typedef struct work_done {
    _Atomic int ready;
    _Atomic int64_t rounds;
} work_done;

// A product and a walk through memory that fills a core's cache, again and again; counts how often until killed.
static _Noreturn void work_on(work_done *done, pid_t parent) {
    bench b = {0};
    double seconds;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sn_status status = bench_open(&b);
    sn_instr gemm = product(256, 256, 256), copy = copy_of(1 << 20);
    for (bool first = true; !status && getppid() == parent; first = false) {
        status = measure(&b, &gemm, &seconds);
        if (!status) status = measure(&b, &copy, &seconds);
        if (first) done->ready++;
        done->rounds++;
    }
    _exit(0);
}

// Rounds a second; 0: they could not be started.
static double rounds_of(long processes, double seconds) {
    enum { MOST = 128, PATIENCE = 5000 }; // milliseconds
    pid_t workers[MOST], self = getpid();
    work_done *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (done == MAP_FAILED) return 0;
    if (processes > MOST) processes = MOST;
    for (long i = 0; i < processes; i++)
        if (!(workers[i] = fork())) work_on(done, self);
    for (int i = 0; i < PATIENCE && done->ready < processes; i++) usleep(1000); // their first touch of memory
    int64_t before = done->rounds;
    double begun = sn_seconds();
    usleep((useconds_t)(1e6 * seconds));
    double rate = (double)(done->rounds - before) / (sn_seconds() - begun);
    bool all = done->ready == processes;
    sn_profile_end_processes(processes, workers);
    munmap(done, sizeof *done);
    return all ? rate : 0;
}

double sn_profile_measure_sharing(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double alone = 0, shared = 0;
    for (int i = 0; i < 3; i++) { // in turns, and the best of each
        alone = fmax(alone, rounds_of(cores, 0.4));
        shared = fmax(shared, rounds_of(2 * cores, 0.4));
    }
    double share = alone > 0 && shared > 0 ? shared / alone : 1;
    return share > 1 ? 1 : share < 0.5 ? 0.5 : share;
}
