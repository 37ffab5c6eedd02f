#include "tools/launch.h"

#include "base/vec.h"
#include "tools/relay.h"
#include "tools/workplace.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef SN_VEC(const char *) words;

// Ranks of one machine talk through shared memory: naming the components spares Open MPI the search for networks
// (0.6 s instead of 2). More ranks than cores are legitimate here, and so is root in a container.
static void add_mpirun(words *line, const char *ranks) {
    static const char *const start[] = {
        "mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated", "--mca",
        "btl",    "self,vader",      "--mca",     "pml",  "ob1",   "-n"};
    for (size_t i = 0; i < sizeof start / sizeof *start; i++) sn_vec_push(line, start[i]);
    sn_vec_push(line, ranks);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
}

// Of several ranks mpirun says how one was killed.
static void report_killed(int number) {
    fprintf(stderr, "error[E0717]: the run was ended by signal %d (%s)\n  help: %s\n", number, strsignal(number),
            number == SIGKILL ? "was memory short? A smaller batch, or more ranks, need less of it"
                              : "this is a bug of the compiler: please report it with the command line");
}

static sn_status wait_for(pid_t child, bool alone, int *exit_status) {
    int state;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return sn_status_errno("cannot wait for the training run");
    if (alone && WIFSIGNALED(state)) report_killed(WTERMSIG(state));
    *exit_status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    if (*exit_status >= 128) *exit_status = 1; // a rank was killed: mpirun says how, we that the run failed
    return SN_OK;
}

// The run: mpirun, which passes SIGUSR1 on to its ranks, or the one rank itself. A rank ends after its step then.
static pid_t running;
static volatile sig_atomic_t stopped_by;
static void pass_on(int number) {
    stopped_by = number;
    kill(running, SIGUSR1);
}

static sigset_t stop_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

// Starts the run so that it ends with us, even when we are killed. What stops us is blocked in it: a terminal sends ^C
// to the whole group, at which mpirun would kill its ranks after a second, or at the second ^C, whatever they are
// writing. SIGUSR1 from us it is that ends them. `errors`: its standard error. 0, or the errno of what failed.
static int start(char *const *line, int errors) {
    int ends[2], failed = 0;
    pid_t self = getpid();
    if (pipe2(ends, O_CLOEXEC)) return errno;
    running = fork();
    if (running < 0) failed = errno;
    if (running == 0) {
        prctl(PR_SET_PDEATHSIG, SIGUSR1);
        if (getppid() != self) _exit(1);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGHUP, SIG_DFL);
        dup2(errors, STDERR_FILENO);
        execvp(line[0], line);
        failed = errno;
        if (write(ends[1], &failed, sizeof failed) < 0) _exit(126);
        _exit(127);
    }
    close(ends[1]); // a program that has started holds no other end
    if (!failed && read(ends[0], &failed, sizeof failed) > 0) waitpid(running, NULL, 0);
    close(ends[0]);
    return failed;
}

// Starts the run and waits for its end; signals that stop us are passed on meanwhile, and it ends in an orderly way.
static sn_status run(char *const *line, bool alone, int errors, int *exit_status) {
    struct sigaction pass = {.sa_handler = pass_on, .sa_flags = SA_RESTART}, interrupt, terminate, hangup;
    sigset_t ours = stop_signals(), before;
    stopped_by = 0;
    sigprocmask(SIG_BLOCK, &ours, &before); // until there is someone to pass them to
    sigaction(SIGINT, &pass, &interrupt);
    sigaction(SIGTERM, &pass, &terminate);
    sigaction(SIGHUP, &pass, &hangup);
    int failed = start(line, errors);
    sigprocmask(SIG_SETMASK, &before, NULL);
    sn_status status = failed ? sn_status_make("cannot start '%s': %s%s", line[0], strerror(failed),
                                               alone ? "" : " (ranks need mpirun: apt-get install openmpi-bin)")
                              : wait_for(running, alone, exit_status);
    if (stopped_by) *exit_status = 128 + stopped_by;
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGTERM, &terminate, NULL);
    sigaction(SIGHUP, &hangup, NULL);
    return status;
}

sn_status sn_launch(const char *program, int ranks, const char *const *arguments, int *exit_status) {
    if (sn_workplace_stopped()) return sn_status_make("stopped by a signal before the run");
    char count[16];
    snprintf(count, sizeof count, "%d", ranks);
    words line = {0};
    if (ranks > 1) add_mpirun(&line, count);
    char *path = realpath(program, NULL); // a bare name would be looked for on PATH
    sn_vec_push(&line, path ? path : program);
    for (; *arguments; arguments++) sn_vec_push(&line, *arguments);
    if (!isatty(STDOUT_FILENO)) sn_vec_push(&line, "--quiet"); // mpirun gives its ranks a terminal, whatever ours is
    sn_vec_push(&line, NULL);
    fflush(NULL);
    char *const *command = (char *const *)(uintptr_t)line.data;
    sn_relay relay;
    sn_status status = ranks > 1 ? sn_relay_start(&relay) : SN_OK;
    if (!status) {
        status = run(command, ranks == 1, ranks > 1 ? relay.end : STDERR_FILENO, exit_status);
        if (ranks > 1) sn_relay_finish(&relay);
    }
    sn_vec_free(&line);
    free(path);
    return status;
}

int sn_launch_and_tell(const char *program, int ranks, const char *const *arguments, sn_diags *diags) {
    int exit_status = 0;
    sn_status status = sn_launch(program, ranks, arguments, &exit_status);
    if (status)
        sn_error(diags, "E0702", NULL, "is there memory for that many ranks, and does `mpirun -n 2 true` work here?",
                 "%s", sn_status_message(status));
    sn_status_free(status);
    return exit_status;
}
