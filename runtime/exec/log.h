// What a run tells: JSON lines in a file, and a progress line on a terminal. Rank 0's business.
#pragma once
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct sn_step_report {
    int64_t step; // 1 is the first
    double loss;  // global mean before the update
    double grad_norm;
    bool has_grad_norm;
    double lr, seconds, tokens_per_s;
} sn_step_report;

typedef struct sn_run_log {
    FILE *json; // NULL: none
    const char *path;
    bool terminal;         // show progress
    int64_t steps;         // of the whole run
    double started, shown; // times: of the start, of the last progress line
    int64_t first;         // step that this process started with
} sn_run_log;

// `path` may be NULL; append when a run is resumed.
SN_MUST_USE sn_status sn_run_log_open(const char *path, bool append, bool progress, int64_t first, int64_t steps,
                                      sn_run_log *out);
SN_MUST_USE sn_status sn_run_log_step(sn_run_log *log, const sn_step_report *report);
SN_MUST_USE sn_status sn_run_log_eval(sn_run_log *log, int64_t step, double loss);
void sn_run_log_say(sn_run_log *log, const char *format, ...) SN_PRINTF(2, 3); // one line on standard output
SN_MUST_USE sn_status sn_run_log_close(sn_run_log *log);
