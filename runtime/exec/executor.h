// Executes the programs of a schedule on a device and a communicator. An executor belongs to the thread that made it.
//
// A program whose instructions all lie on the compute stream runs in that thread. One with a communication stream has a
// second thread for it, started once; events order the two.
#pragma once
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/exec/progress.h"
#include "runtime/schedule.h"
#include "runtime/trace/trace.h"

typedef struct sn_executor sn_executor;

typedef struct sn_executor_setup {
    const sn_schedule *schedule; // of this rank's class
    sn_device *device;           // has its arena and kernels
    sn_comm *comm;
    sn_progress *progress; // told where the run is
    sn_trace *trace;       // told what ran when; NULL: not wanted
} sn_executor_setup;

// Makes every program ready. What the setup points at must outlive the executor.
SN_MUST_USE sn_status sn_executor_create(const sn_executor_setup *setup, sn_executor **out);
void sn_executor_destroy(sn_executor *executor);

// Runs one program (by its index) to its end on all streams, for a micro-batch (-1: none). Errors name the instruction
// and its ONNX node.
SN_MUST_USE sn_status sn_executor_run(sn_executor *executor, int64_t program, int64_t micro_batch);

// What the time went into, over all runs so far: a line per kind of instruction, then the `most` most expensive
// instructions with their ONNX nodes. Milliseconds are divided by `steps`.
void sn_executor_profile(const sn_executor *executor, size_t most, int64_t steps, sn_str *out);
