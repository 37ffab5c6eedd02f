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

// Returns the process's exit status, the same on all ranks: 0 done, 1 after an error, which one rank has printed. All
// ranks call it. SIGTERM and SIGINT end the run after the step it is in, with a checkpoint when one was asked for.
int sn_run(const sn_run_setup *setup);
