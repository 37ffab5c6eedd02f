// Moves whole tensors to and from the shards that ranks hold.
#pragma once
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/schedule.h"

enum { SN_SHARD_MAX_RANK = 16 };

// What a rank holds of a tensor: starts and sizes per dimension.
typedef struct sn_region {
    size_t rank;
    int64_t start[SN_SHARD_MAX_RANK], size[SN_SHARD_MAX_RANK];
} sn_region;

// The shape as it is cut: a tensor's pieces where it has them.
static inline const sn_dims *sn_shard_shape(const sn_dims *shape, const sn_dims *pieces) {
    return pieces->count ? pieces : shape;
}

// `shape` is what sn_shard_shape says.
void sn_shard_region(const sn_schedule *schedule, int64_t rank, const sn_dims *shape, const sn_dims *sharding,
                     sn_region *out);

// Calls `run` for each stretch of the region that is contiguous in the whole tensor, in order: elements [first, first +
// count) of the whole are elements [local, local + count) of the region. Stops at the first error.
typedef sn_status (*sn_shard_run)(void *user, int64_t first, int64_t local, int64_t count);
SN_MUST_USE sn_status sn_shard_runs(const sn_dims *shape, const sn_region *region, sn_shard_run run, void *user);

// Writes `bytes` of `from`, elements of `dtype` from element `first` of the buffer on, converting to the buffer's type.
SN_MUST_USE sn_status sn_shard_write(sn_device *device, const sn_buffer *buffer, int64_t first, sn_dtype dtype,
                                     const void *from, int64_t count);

// Hands a whole tensor of rank class `class`, whose schedule it is, to `take` on rank 0, in pieces, in order. All ranks
// call it, and go on to the end even when `take` does nothing, as the others wait for them.
typedef void (*sn_shard_take)(void *user, const void *data, size_t bytes);
SN_MUST_USE sn_status sn_shard_gather(const sn_schedule *schedule, int64_t class, sn_device *device, sn_comm *comm,
                                      const sn_output *tensor, sn_shard_take take, void *user);
