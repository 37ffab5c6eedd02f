#include "runtime/comm/signal.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS = 32 }; // between two looks at the clock

static bool reached(const sn_signal *signal, uint32_t target) {
    return (int32_t)(atomic_load_explicit(&signal->value, memory_order_acquire) - target) >= 0;
}

// While every rank of a host has a core, who waits takes it from nobody; else it soon lets go of its own.
double sn_signal_spin(bool turns) {
    return turns ? 5e-6 : 1e-3;
}

uint32_t sn_signal_value(const sn_signal *signal) {
    return atomic_load_explicit(&signal->value, memory_order_acquire);
}

// Of the new value and `sleepers`, one side sees what the other wrote: both are sequentially consistent.
void sn_signal_raise(sn_signal *signal) {
    atomic_fetch_add(&signal->value, 1);
    if (atomic_load(&signal->sleepers)) syscall(SYS_futex, &signal->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void breathe(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static bool spin_for(const sn_signal *signal, uint32_t target, double seconds) {
    double end = sn_seconds() + seconds;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (reached(signal, target)) return true;
            breathe();
        }
    } while (sn_seconds() < end);
    return reached(signal, target);
}

bool sn_signal_await_for(sn_signal *signal, uint32_t target, double spin, double patience) {
    if (reached(signal, target) || spin_for(signal, target, spin)) return true;
    double end = sn_seconds() + patience, left = patience;
    atomic_fetch_add(&signal->sleepers, 1);
    for (uint32_t seen; !reached(signal, target) && left > 0; left = end - sn_seconds()) {
        struct timespec time = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
        seen = atomic_load(&signal->value);
        if ((int32_t)(seen - target) >= 0) break;
        syscall(SYS_futex, &signal->value, FUTEX_WAIT, seen, &time, NULL, 0);
    }
    atomic_fetch_sub(&signal->sleepers, 1);
    return reached(signal, target);
}

void sn_signal_await(sn_signal *signal, uint32_t target, double spin) {
    while (!sn_signal_await_for(signal, target, spin, 60)) spin = 0;
}
