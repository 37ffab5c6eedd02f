// Checkpoints: DIR/step-N.safetensors holds every parameter under its initializer's name, every moment as
// NAME.m or NAME.v, and every state, whole and not sharded; its metadata holds where the run stood.
// They do not depend on the plan: a run continues under another one, on other ranks. DIR/latest names the newest. Each
// appears complete or not at all; the newest two are kept.
#pragma once
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/schedule.h"

typedef struct sn_run_position {
    int64_t step;    // updates done
    uint64_t seed;   // of data order and dropout
    int64_t samples; // taken from the data so far
    double loss;     // of the last step
} sn_run_position;

// All ranks call it; rank 0 writes.
SN_MUST_USE sn_status sn_checkpoint_write(const char *folder, const sn_schedules *schedules, sn_device *device,
                                          sn_comm *comm, const sn_run_position *position);

// Removes from `folder` all checkpoints but the newest, and what a run that was killed while it wrote left there.
// Failing to is not an error: it costs room alone. One rank calls it, while none writes.
void sn_checkpoint_tidy(const char *folder);

// Puts this rank's shards of the newest checkpoint of `folder` into the device. Refuses one of another model, or with a
// tensor missing or of another shape.
SN_MUST_USE sn_status sn_checkpoint_read(const char *folder, const sn_schedule *schedule, int64_t rank,
                                         sn_device *device, sn_run_position *position);
