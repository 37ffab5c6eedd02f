#include "tools/workplace.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A signal that comes while the folder is there waits until it is gone; a second one does not.
static const int deadly[] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t came;
static void note_signal(int number) {
    came = number;
}

// On a stack of its own, as a profile computes here: see runtime/exec/stop_signal.h.
static void defer_signals(void) {
    static char stack[64 << 10];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART | SA_ONSTACK | (int)SA_RESETHAND};
    struct sigaction before;
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        if (!sigaction(deadly[i], NULL, &before) && before.sa_handler == SIG_DFL) sigaction(deadly[i], &action, NULL);
}

bool sn_workplace_stopped(void) {
    return came;
}

const char *sn_workplace_make(sn_diags *diags) {
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent) parent = "/tmp";
    char *folder = sn_arena_printf(&diags->arena, "%s/sennit-XXXXXX", parent);
    defer_signals();
    if (mkdtemp(folder)) return folder;
    sn_error(diags, "E0703", parent, "name another place in TMPDIR", "no temporary folder can be made");
    return NULL;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

void sn_workplace_remove(const char *folder) {
    enum { OPEN_FOLDERS = 8 };
    if (folder) nftw(folder, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    if (!came) return;
    signal(came, SIG_DFL);
    raise(came);
}
