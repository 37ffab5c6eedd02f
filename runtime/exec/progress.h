// Where a rank is: written by the threads that run it, read by the one that watches (runtime/comm/watch.h). Each stream
// states the instruction it is in; the counter moves whenever something has been done.
#pragma once
#include "runtime/schedule.h"

#include <stdatomic.h>

// What a rank does between runs of programs, and in them.
typedef enum sn_activity {
    SN_ACTIVITY_SETUP,
    SN_ACTIVITY_DATA,
    SN_ACTIVITY_STEP,
    SN_ACTIVITY_EVAL,
    SN_ACTIVITY_PREDICT,
    SN_ACTIVITY_CHECKPOINT,
    SN_ACTIVITY_SETTLE, // waits for the other ranks, outside of programs
    SN_ACTIVITY_COUNT
} sn_activity;

typedef struct sn_progress {
    _Atomic uint64_t done;
    _Atomic int64_t step; // number of the step, from 1
    _Atomic int activity;
    _Atomic int64_t program, micro_batch;   // of the run; program -1: in none
    _Atomic int64_t instr[SN_STREAM_COUNT]; // of that program; -1: idle
} sn_progress;

static inline void sn_progress_init(sn_progress *p) {
    atomic_store_explicit(&p->program, -1, memory_order_relaxed);
    for (int i = 0; i < SN_STREAM_COUNT; i++) atomic_store_explicit(&p->instr[i], -1, memory_order_relaxed);
}

static inline void sn_progress_done(sn_progress *p) {
    atomic_fetch_add_explicit(&p->done, 1, memory_order_relaxed);
}

static inline void sn_progress_enter(sn_progress *p, sn_activity activity) {
    atomic_store_explicit(&p->activity, (int)activity, memory_order_relaxed);
    sn_progress_done(p);
}

// "step 12, micro-batch 3, backward: recv #1 of stage0.backward (/h.3/mlp <- stages)": where a rank of the schedule is.
void sn_progress_describe(const sn_progress *progress, const sn_schedule *schedule, sn_str *out);
// Whether it waits for other ranks: in a collective, a receive, or an event that such an instruction records.
bool sn_progress_waits(const sn_progress *progress, const sn_schedule *schedule);
// Bytes that a rank which waits takes part in moving, to see what patience it deserves.
double sn_progress_bytes(const sn_progress *progress, const sn_schedule *schedule);
