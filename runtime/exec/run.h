// A run: training from the first or the resumed step to the last, with evaluations, checkpoints and the log; or a pass
// forward over all data (--output).
#pragma once
#include "runtime/comm/comm.h"
#include "runtime/options.h"
#include "runtime/package.h"
#include "runtime/schedule.h"

typedef struct sn_run_setup {
    const sn_schedules *schedules;
    sn_blob kernels, constants;    // mapped from a file, as sn_package_open does
    const sn_run_options *options; // checked
    sn_comm *comm;
    uint64_t fingerprint; // of the program: the same on all ranks, or they are told so
    int threads;          // of this rank
} sn_run_setup;

// Returns the process's exit status: 0 done, 1 (on all ranks) after an error, which one rank has printed. All ranks
// call it. SIGTERM, SIGINT and SIGUSR1, which the caller holds back (stop_signal.h), end the run after the step it is
// in, with a checkpoint when one was asked for; the status is 128 + the signal for the first two, on the ranks that got
// it.
int sn_run(const sn_run_setup *setup);
