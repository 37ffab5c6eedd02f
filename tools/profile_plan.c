// A step's instructions depend on what ran before them (caches) and on what other cores do (memory, the machine's other
// users). So the whole step is run, by as many processes as the plan has ranks, which wait for each other wherever
// ranks would meet: the slowest of those that meet decides how long a step takes, and its lead over the others is time
// that no instruction by itself shows. Nor does one show what it costs that ranks on one core fill its caches by turns.
//
// A step's time varies. Its median is what a run is compared by, and the median of a sum is not the sum of medians, as
// times of one instruction are skewed: so whole steps are sorted, and those of the middle half are averaged.
#include "tools/profile_plan.h"

#include "backend/package/link.h"
#include "backend/simulate/signature.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/map.h"
#include "runtime/comm/signal.h"
#include "runtime/device/device.h"
#include "runtime/mesh.h"
#include "tools/profile_work.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { LEAST_STEPS = 6, MOST_STEPS = 256, MOST_PROCESSES = 64, MOST_ON_CORE = 4 };

// Processes that meet. Each counts its own arrivals.
typedef struct meeting {
    int count;
    bool turns;   // they are more than the cores
    double share; // of a core that each has
    sn_signal arrived[MOST_PROCESSES];
} meeting;

// One rank class on a device of its own, ready to run.
typedef struct class_bench {
    const sn_schedule *schedule;
    const sn_sequence *step;
    sn_device *device;
    sn_device_op ****ops; // [program][instruction][micro-batch + 1]: values of each in slots of their own, as in a run,
                          // or they would stay in the caches; NULL: communication and events
    size_t *first;        // by program: of its instructions' counters in a step
    size_t counters;
    meeting *meeting; // NULL: alone
    int process;
    sn_arena arena;
} class_bench;

typedef struct step_time {
    double wall, *of; // seconds: of all, and by counter, over all runs of its program
} step_time;

typedef SN_VEC(step_time) step_times;

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
    c->first = SN_NEW_N(&c->arena, size_t, programs + 1);
    for (size_t p = 0; p < programs; p++) {
        const sn_program *program = &c->schedule->programs.items[p];
        c->first[p] = c->counters;
        c->counters += program->instrs.count;
        c->ops[p] = SN_NEW_N(&c->arena, sn_device_op **, program->instrs.count + 1);
        for (size_t i = 0; i < program->instrs.count; i++)
            if (is_device_work(&program->instrs.items[i]))
                SN_TRY(prepare_instr(c, p, &program->instrs.items[i], &c->ops[p][i]));
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

static sn_status open_class(const sn_schedule *schedule, sn_blob kernels, meeting *meeting, class_bench *c) {
    *c = (class_bench){
        .schedule = schedule, .step = sn_schedule_sequence(schedule, "step"), .meeting = meeting, .process = 0};
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

// Waits for the processes whose ranks are in one group along these axes; of those that are not there, for none.
static sn_status meet(const class_bench *c, int64_t axes) {
    const double patience = 120; // on a busy machine, with many ranks on a core
    meeting *m = c->meeting;
    if (!m) return SN_OK;
    sn_signal_raise(&m->arrived[c->process]);
    uint32_t target = sn_signal_value(&m->arrived[c->process]);
    int64_t color = sn_schedule_color(c->schedule, c->process, axes);
    for (int i = 0; i < m->count; i++)
        if (i != c->process && sn_schedule_color(c->schedule, i, axes) == color &&
            !sn_signal_await_for(&m->arrived[i], target, sn_signal_spin(m->turns), patience))
            return sn_status_make("of %d processes that stand for its ranks, number %d does not go on", m->count, i);
    return SN_OK;
}

static double now(const class_bench *c) {
    return c->meeting && c->meeting->turns ? sn_cpu_seconds() : sn_seconds();
}

static sn_status run_program(const class_bench *c, const sn_sequence_run *run, double *seconds) {
    int64_t p = run->program;
    const sn_program *program = &c->schedule->programs.items[p];
    for (size_t i = 0; i < program->instrs.count; i++) {
        const sn_instr *in = &program->instrs.items[i];
        if (c->ops[p][i]) {
            double start = now(c);
            SN_TRY(c->device->vtable->launch(c->device, c->ops[p][i][run->micro_batch + 1]));
            seconds[c->first[p] + i] += now(c) - start;
        } else if (sn_instr_is_collective(in->kind)) {
            SN_TRY(meet(c, in->collective.axes));
        } else if (in->kind == SN_INSTR_RECV) {
            SN_TRY(meet(c, 1ll << c->schedule->pipeline_axis));
        }
    }
    return SN_OK;
}

// The step again and again, for so long. Its first time touches memory and does not count.
static sn_status run_class(class_bench *c, double seconds, step_times *times) {
    double begun = 0;
    for (int step = -1; step < LEAST_STEPS || (step < MOST_STEPS && sn_seconds() - begun < seconds); step++) {
        double start = sn_seconds();
        step_time time = {.of = SN_NEW_N(&c->arena, double, c->counters + 1)};
        for (size_t r = 0; c->step && r < c->step->runs.count; r++)
            SN_TRY(run_program(c, &c->step->runs.items[r], time.of));
        SN_TRY(meet(c, -1));
        time.wall = sn_seconds() - start;
        if (step < 0)
            begun = sn_seconds();
        else
            sn_vec_push(times, time);
    }
    return SN_OK;
}

static int by_wall(const void *a, const void *b) {
    double x = ((const step_time *)a)->wall, y = ((const step_time *)b)->wall;
    return (x > y) - (x < y);
}

// By counter: seconds of one run, in the mean of the middle half of the steps. With other processes, the waits for the
// slowest are spread over the instructions.
static void mean_of(const class_bench *c, step_times *times, double *mean) {
    size_t n = times->count, from = n / 4, to = n - n / 4;
    double wall = 0, work = 0;
    qsort(times->data, n, sizeof *times->data, by_wall);
    for (size_t t = from; t < to; t++) {
        wall += times->data[t].wall;
        for (size_t i = 0; i < c->counters; i++) {
            mean[i] += times->data[t].of[i] / (double)(to - from);
            work += times->data[t].of[i];
        }
    }
    double slowest = c->meeting && work > 0 ? c->meeting->share * wall / work : 1;
    for (size_t p = 0; p < c->schedule->programs.count; p++) {
        double runs = 0;
        for (size_t r = 0; c->step && r < c->step->runs.count; r++)
            runs += c->step->runs.items[r].program == (int64_t)p;
        for (size_t i = 0; runs > 0 && i < c->schedule->programs.items[p].instrs.count; i++)
            mean[c->first[p] + i] *= slowest / runs;
    }
}

typedef struct tally {
    double sum;
    int64_t n;
} tally;

static void add_means(const class_bench *c, const double *mean, const char *const *kernels, sn_map *tallies,
                      sn_arena *arena) {
    sn_str text = {0};
    for (size_t p = 0; p < c->schedule->programs.count; p++) {
        const sn_program *program = &c->schedule->programs.items[p];
        for (size_t i = 0; i < program->instrs.count; i++) {
            double seconds = mean[c->first[p] + i];
            if (!(seconds > 0)) continue;
            sn_str_clear(&text);
            sn_instr_signature(&program->instrs.items[i], kernels, &text);
            tally *t = sn_map_get(tallies, sn_str_text(&text));
            if (!t) {
                t = SN_NEW(arena, tally);
                sn_map_put(tallies, sn_arena_strdup(arena, sn_str_text(&text)), t);
            }
            t->sum += seconds;
            t->n++;
        }
    }
    sn_str_free(&text);
}

// Processes that run the same class until they are killed, or until we end.
static void start_twins(class_bench *c, int n, pid_t *twins) {
    pid_t self = getpid();
    for (int i = 0; i < n; i++) {
        twins[i] = fork();
        if (twins[i]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        c->process = i + 1;
        step_times times = {0};
        sn_status status = SN_OK;
        while (!status && getppid() == self) {
            times.count = 0;
            status = run_class(c, 0, &times);
        }
        _exit(0);
    }
}

static sn_status measure_class(const sn_schedule *schedule, sn_blob kernels, const char *const *signatures,
                               meeting *meeting, double seconds, sn_map *tallies, sn_arena *arena) {
    class_bench c;
    pid_t twins[MOST_PROCESSES];
    step_times times = {0};
    sn_status status = open_class(schedule, kernels, meeting, &c);
    if (!status) {
        int n = meeting ? meeting->count - 1 : 0;
        if (meeting) memset(meeting->arrived, 0, sizeof meeting->arrived);
        start_twins(&c, n, twins);
        status = run_class(&c, seconds, &times);
        sn_profile_end_processes(n, twins);
    }
    if (!status) {
        double *mean = sn_alloc((c.counters + 1) * sizeof *mean);
        mean_of(&c, &times, mean);
        add_means(&c, mean, signatures, tallies, arena);
        sn_free(mean);
    }
    sn_vec_free(&times);
    close_class(&c);
    return status;
}

// [alone, crowded], null where it was not measured.
static void keep_mean(json_t *instructions, const sn_map_entry *entry, bool crowded, double share) {
    const tally *t = entry->value;
    json_t *pair = json_pack("[n, n]");
    json_array_set_new(pair, crowded, json_real(share * t->sum / (double)t->n));
    json_object_set_new(instructions, entry->key, pair);
}

// Of the processes that stand for so many ranks; none for a rank by itself.
static sn_status open_meeting(int64_t ranks, meeting **out) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (ranks < 2) return SN_OK;
    if (cores < 1) cores = 1;
    if (ranks > MOST_ON_CORE * cores) ranks = MOST_ON_CORE * cores;
    if (ranks > MOST_PROCESSES) ranks = MOST_PROCESSES;
    meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return sn_status_make("no memory that processes share");
    *m = (meeting){.count = (int)ranks, .turns = ranks > cores, .share = fmin(1, (double)cores / (double)ranks)};
    *out = m;
    return SN_OK;
}

sn_status sn_profile_measure_plan(const sn_schedules *schedules, const sn_kernels *kernels, double sharing,
                                  double seconds, json_t *instructions) {
    void *library = NULL;
    size_t bytes = 0;
    sn_arena arena = {0};
    sn_map tallies = {0};
    const char **signatures = sn_kernel_signatures(kernels, &arena);
    meeting *meeting = NULL;
    SN_TRY(open_meeting(schedules->classes.items[0].ranks, &meeting));
    sn_status status = sn_kernels_link(kernels, 2, &library, &bytes);
    for (size_t i = 0; i < schedules->classes.count && !status; i++)
        status = measure_class(&schedules->classes.items[i], (sn_blob){library, bytes}, signatures, meeting, seconds,
                               &tallies, &arena);
    double share = meeting && meeting->turns ? sharing : 1;
    for (size_t i = 0; i < tallies.count; i++) keep_mean(instructions, &tallies.entries[i], meeting, share);
    if (meeting) munmap(meeting, sizeof *meeting);
    sn_map_free(&tallies);
    sn_free(library);
    sn_arena_free(&arena);
    return status;
}
