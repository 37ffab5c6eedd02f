#include "tools/launch.h"

#include "base/vec.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

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

static sn_status wait_for(pid_t child, int *exit_status) {
    int state;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return sn_status_errno("cannot wait for the training run");
    *exit_status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    return SN_OK;
}

sn_status sn_launch(const char *program, int ranks, const char *const *arguments, int *exit_status) {
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
    // A terminal sends ^C to the whole group: the run ends itself in an orderly way, and we report how.
    void (*interrupt)(int) = signal(SIGINT, SIG_IGN);
    posix_spawnattr_t attributes;
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGINT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    pid_t child;
    int failed = posix_spawnp(&child, line.data[0], NULL, &attributes, (char *const *)(uintptr_t)line.data, environ);
    posix_spawnattr_destroy(&attributes);
    sn_status status = failed ? sn_status_make("cannot start '%s': %s%s", line.data[0], strerror(failed),
                                               ranks > 1 ? " (ranks need mpirun: apt-get install openmpi-bin)" : "")
                              : wait_for(child, exit_status);
    signal(SIGINT, interrupt);
    sn_vec_free(&line);
    free(path);
    return status;
}
