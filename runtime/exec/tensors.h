// Files of tensors that ranks hold in parts: checkpoints, gradients of one step, predictions.
#pragma once
#include "base/vec.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/schedule.h"

// A tensor and the rank class that has it.
typedef struct sn_tensor_ref {
    const sn_schedule *schedule;
    int64_t class;
    sn_output tensor;
} sn_tensor_ref;
typedef SN_VEC(sn_tensor_ref) sn_tensor_refs;

// All of them, over all classes, each name once, in the order of names; the same list on all ranks.
void sn_tensors_gradients(const sn_schedules *schedules, sn_tensor_refs *out);
void sn_tensors_saved(const sn_schedules *schedules, sn_tensor_refs *out); // what checkpoints hold

// Gathers the tensors and writes them whole to `path` under their names. All ranks call it; rank 0 writes, and the file
// appears complete or not at all.
SN_MUST_USE sn_status sn_tensors_write(const sn_tensor_refs *refs, const sn_tensor_note *notes, size_t n_notes,
                                       sn_device *device, sn_comm *comm, const char *path);

// Predictions of many batches, one after the other, on rank 0.
typedef SN_VEC(char) sn_bytes;
typedef struct sn_collected {
    sn_tensor_refs refs;
    sn_bytes *data; // one per prediction
    int64_t batch;  // samples per run; predictions with that first dimension are joined, others kept once
} sn_collected;

void sn_collected_init(const sn_schedules *schedules, int64_t batch, sn_collected *out);
// Adds what the last run of "predict" produced. All ranks call it.
SN_MUST_USE sn_status sn_collected_add(sn_collected *collected, sn_device *device, sn_comm *comm);
// Writes the first `samples` rows of each. Rank 0 calls it.
SN_MUST_USE sn_status sn_collected_write(const sn_collected *collected, int64_t samples, const char *path);
void sn_collected_free(sn_collected *collected);
