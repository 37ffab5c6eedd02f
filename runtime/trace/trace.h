// What ran when: a timeline in Chrome's trace event format, which chrome://tracing and ui.perfetto.dev open. One
// process per rank, one thread per stream.
#pragma once
#include "base/status.h"
#include "base/str.h"
#include "base/vec.h"
#include "runtime/schedule.h"

typedef struct sn_trace_event {
    double start, seconds; // from the run's start
    int64_t step;
    int32_t program, instr, micro_batch;
} sn_trace_event;

// Events of one rank. The streams' threads write to lists of their own.
typedef struct sn_trace {
    double origin; // of the times, in seconds of sn_seconds
    SN_VEC(sn_trace_event) events[SN_STREAM_COUNT];
    size_t dropped; // beyond the limit
} sn_trace;

void sn_trace_add(sn_trace *trace, sn_stream stream, const sn_trace_event *event);
void sn_trace_free(sn_trace *trace);

// The events of one process ("rank 3") as items of the list of a trace file, a comma before each but the file's first.
// `pid` numbers it; `label` may say more ("predicted"), or be NULL.
void sn_trace_print(const sn_trace *trace, const sn_schedule *schedule, int64_t rank, int64_t pid, const char *label,
                    sn_str *out);
// {"traceEvents": [items]}: `items` as sn_trace_print writes them.
SN_MUST_USE sn_status sn_trace_write(const char *path, const char *items, size_t bytes);
