// A counter in memory that ranks of one host share, and the waiting for it to rise.
//
// MPI waits by polling, and yields between two looks where ranks outnumber cores. To the kernel such a rank still runs:
// an idle core pulls no work from a core where one rank computes and another waits, and under a fair scheduler each
// yield gives the core away for a whole time slice (milliseconds), however soon the awaited comes. Here a rank spins
// for about as long as putting it to sleep and waking it costs, which is at most twice what the best choice would have
// cost (Karlin et al., "Empirical Studies of Competitive Spinning", SOSP 1991), and then sleeps in the kernel.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct sn_signal {
    _Atomic uint32_t value;    // wraps around
    _Atomic uint32_t sleepers; // waits in the kernel
} sn_signal;

// Seconds to spin, for a rank whose host has more ranks than cores (`turns`) or not.
double sn_signal_spin(bool turns);
uint32_t sn_signal_value(const sn_signal *signal);
// Adds one, and wakes who waits. What was written before is seen by who has seen the new value.
void sn_signal_raise(sn_signal *signal);
// Returns once the value has reached `target`; spins for `spin` seconds first.
void sn_signal_await(sn_signal *signal, uint32_t target, double spin);
// The same, but gives up after `patience` seconds in the kernel: false.
bool sn_signal_await_for(sn_signal *signal, uint32_t target, double spin, double patience);
