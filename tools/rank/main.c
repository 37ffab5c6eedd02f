// A train executable: this program with a schedule, kernels and constants behind it (runtime/package.h). One process is
// one rank: mpirun -n R ./NAME [options]; a program for one rank starts without mpirun.
#include "base/arena.h"
#include "base/map.h"
#include "base/str.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/run.h"
#include "runtime/exec/stop_signal.h"

#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_ERROR = 1, EXIT_USAGE = 2 };

static int environment_number(const char *name, int otherwise) {
    const char *text = getenv(name);
    int value = text ? atoi(text) : otherwise;
    return value > 0 ? value : otherwise;
}

// Before MPI has started, what all ranks find wrong is said by the first.
static bool is_first(void) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return !rank || !strcmp(rank, "0");
}

static int fail(sn_status status, const char *code, const char *help) {
    if (is_first()) fprintf(stderr, "error[%s]: %s\n  help: %s\n", code, sn_status_message(status), help);
    sn_status_free(status);
    return EXIT_ERROR;
}

// A wrong command line has no code, as with `sennit`.
static int refuse(sn_status status, const char *program) {
    if (is_first())
        fprintf(stderr, "%s: %s\n  help: `%s --help` lists what a run takes\n", program, sn_status_message(status),
                program);
    sn_status_free(status);
    return EXIT_USAGE;
}

static int usable_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static int choose_threads(const sn_schedules *schedules, const sn_run_options *options) {
    if (options->threads) return (int)options->threads;
    int64_t compiled = schedules->classes.items[0].threads;
    if (compiled) return (int)compiled;
    int local = environment_number("OMPI_COMM_WORLD_LOCAL_SIZE", 1), cores = usable_cores();
    // mpirun may have bound every rank to cores of its own, or none.
    int per_rank = cores < (int)sysconf(_SC_NPROCESSORS_ONLN) ? cores : cores / local;
    return per_rank > 0 ? per_rank : 1;
}

// Threads of OpenMP that wait by spinning take the cores from those that work when there are more threads than cores.
// The library reads its setting when it is loaded, so the program starts over with it.
static void calm_waiting(const sn_schedules *schedules, int threads, char **argv) {
    int local = environment_number("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
    int wanted = local * (threads + (local > 1 && sn_schedules_use_comm_stream(schedules)));
    if (threads == 1 || wanted <= (int)sysconf(_SC_NPROCESSORS_ONLN) || getenv("OMP_WAIT_POLICY")) return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
}

static sn_status configure(const sn_schedules *schedules, int argc, char **argv, sn_run_options *options) {
    sn_run_options_init(options);
    const sn_schedule *first = &schedules->classes.items[0]; // settings are the same in all
    for (size_t i = 0; i < first->settings.count; i++) {
        const sn_setting *setting = &first->settings.items[i];
        SN_TRY(sn_run_options_set(options, setting->name, setting->value));
    }
    SN_TRY(sn_run_options_parse(options, argc - 1, argv + 1));
    SN_TRY(sn_run_options_check(options));
    if (!(options->lr > 0) && first->lr > 0 && options->min_lr > first->lr)
        return sn_status_make(
            "--min-lr %g is above the learning rate %g that is compiled in: the rate falls to --min-lr",
            options->min_lr, first->lr);
    return SN_OK;
}

static int run(const sn_package *package, const sn_schedules *schedules, const sn_run_options *options, char **argv) {
    int threads = choose_threads(schedules, options);
    calm_waiting(schedules, threads, argv);
    sn_comm *comm;
    bool threads_communicate = sn_schedules_use_comm_stream(schedules) || sn_schedules_use_transfers(schedules);
    sn_status status =
        sn_comm_mpi_launched() ? sn_comm_mpi_create(threads_communicate, &comm) : sn_comm_self_create(&comm);
    if (status) return fail(status, "E0715", "does `mpirun -n 2 true` work here?");
    uint64_t fingerprint = sn_hash_bytes(package->schedule.data, package->schedule.bytes, 0);
    sn_run_setup setup = {schedules, package->kernels, package->constants, options, comm, fingerprint, threads};
    int result = sn_run(&setup);
    sn_comm_destroy(comm);
    return result;
}

static void print_help(const char *name) {
    sn_str help = {0};
    sn_run_options_help(&help);
    printf("usage: mpirun -n RANKS %s --data DIR|FILE --steps N [options]\n\n%s", name, sn_str_text(&help));
    sn_str_free(&help);
}

int main(int argc, char **argv) {
    sn_stop_signals_hold();
    signal(SIGXFSZ, SIG_IGN); // a write beyond the limit on files fails, as on a full disk
    // Blocks that the library takes and gives back in every collective stay with the process: see the CPU device.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
    if (argc == 2 && !strcmp(argv[1], "--help")) return print_help(argv[0]), 0;
    if (argc == 2 && !strcmp(argv[1], "--version")) return puts("sennit-rank " SENNIT_VERSION), 0;
    static const char broken[] = "copy the program again, or compile it with `sennit compile`";
    sn_package package;
    sn_status status = sn_package_open("/proc/self/exe", &package);
    if (status) return fail(status, "E0716", broken);
    sn_arena arena = {0};
    sn_schedules schedules;
    sn_run_options options;
    int result;
    status = sn_schedules_read(package.schedule.data, package.schedule.bytes, &arena, &schedules);
    if (status) {
        result = fail(status, "E0716", broken);
    } else if ((status = configure(&schedules, argc, argv, &options)) != SN_OK) {
        result = refuse(status, argv[0]);
    } else {
        result = run(&package, &schedules, &options, argv);
    }
    sn_arena_free(&arena);
    sn_package_close(&package);
    return result;
}
