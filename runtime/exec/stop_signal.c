#include "runtime/exec/stop_signal.h"

#include <signal.h>
#include <time.h>

static sigset_t stop_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    return set;
}

void sn_stop_signals_hold(void) {
    sigset_t set = stop_signals();
    // A shell's background jobs ignore SIGINT, and what is ignored need not be kept.
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

int sn_stop_signal_take(void) {
    sigset_t set = stop_signals();
    struct timespec now = {0};
    int last = 0;
    for (int number; (number = sigtimedwait(&set, NULL, &now)) > 0;) last = number;
    return last;
}
