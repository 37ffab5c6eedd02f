// Executes the programs of a schedule on a device and a communicator. An executor belongs to the thread that made it.
//
// A program whose instructions all lie on the compute stream runs in that thread. One with a communication stream has a
// second thread for it, started once; events order the two.
#pragma once
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/schedule.h"

typedef struct sn_executor sn_executor;

// Makes every program ready. The three must outlive the executor; the device has its arena and kernels.
SN_MUST_USE sn_status sn_executor_create(const sn_schedule *schedule, sn_device *device, sn_comm *comm,
                                         sn_executor **out);
void sn_executor_destroy(sn_executor *executor);

// Runs one program to its end. Errors name the instruction and its ONNX node.
SN_MUST_USE sn_status sn_executor_run(sn_executor *executor, const sn_program *program);

bool sn_schedules_use_comm_stream(const sn_schedules *schedules); // of any class

// What the time went into, over all runs so far: a line per kind of instruction, then the `most` most expensive
// instructions with their ONNX nodes. Milliseconds are divided by `steps`.
void sn_executor_profile(const sn_executor *executor, size_t most, int64_t steps, sn_str *out);
