// Files of tensors that a run writes besides checkpoints: gradients of one step, predictions.
#pragma once
#include "base/vec.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/schedule.h"

// Gathers the tensors and writes them to `path` under their names. All ranks call it; rank 0 writes.
SN_MUST_USE sn_status sn_tensors_write(const sn_schedule *schedule, sn_device *device, sn_comm *comm,
                                       const sn_output *tensors, size_t count, const char *path);

// Predictions of many batches, one after the other, on rank 0.
typedef SN_VEC(char) sn_bytes;
typedef struct sn_collected {
    sn_bytes *data; // one per prediction
    int64_t batch;  // samples per run; predictions with that first dimension are joined, others kept once
} sn_collected;

void sn_collected_init(const sn_schedule *schedule, int64_t batch, sn_collected *out);
// Adds what the last run of "predict" produced. All ranks call it.
SN_MUST_USE sn_status sn_collected_add(sn_collected *collected, const sn_schedule *schedule, sn_device *device,
                                       sn_comm *comm);
// Writes the first `samples` rows of each. Rank 0 calls it.
SN_MUST_USE sn_status sn_collected_write(const sn_collected *collected, const sn_schedule *schedule, int64_t samples,
                                         const char *path);
void sn_collected_free(sn_collected *collected, const sn_schedule *schedule);
