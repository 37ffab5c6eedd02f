#include "runtime/exec/shard.h"

#include "base/alloc.h"

#include <string.h>

void sn_shard_region(const sn_schedule *schedule, int64_t rank, const sn_dims *shape, const sn_dims *sharding,
                     sn_region *out) {
    SN_CHECK(shape->count <= SN_SHARD_MAX_RANK);
    *out = (sn_region){.rank = shape->count};
    for (size_t i = 0; i < shape->count; i++) {
        int64_t axes = sharding->count ? sharding->items[i] : 0;
        out->size[i] = shape->items[i] / sn_mesh_group_size(schedule, axes);
        out->start[i] = sn_mesh_member(schedule, rank, axes) * out->size[i];
    }
}

sn_status sn_shard_runs(const sn_dims *shape, const sn_region *region, sn_shard_run run, void *user) {
    int64_t count = 1, rows = 1;
    size_t outer = shape->count; // dimensions in front of the contiguous stretch
    while (outer > 0) {
        outer--;
        count *= region->size[outer];
        if (region->size[outer] != shape->items[outer]) break;
    }
    for (size_t i = 0; i < outer; i++) rows *= region->size[i];
    for (int64_t row = 0; row < rows; row++) {
        int64_t rest = row, first = 0, step = 1;
        for (size_t i = shape->count; i-- > 0;) {
            int64_t at = region->start[i];
            if (i < outer) at += rest % region->size[i], rest /= region->size[i];
            first += at * step;
            step *= shape->items[i];
        }
        SN_TRY(run(user, first, row * count, count));
    }
    return SN_OK;
}

sn_status sn_shard_write(sn_device *device, const sn_buffer *buffer, int64_t first, sn_dtype dtype, const void *from,
                         int64_t count) {
    enum { PIECE = 4096 };
    size_t size = sn_dtype_bytes(buffer->dtype), from_size = sn_dtype_bytes(dtype);
    if (dtype == buffer->dtype)
        return device->vtable->write(device, buffer->offset + first * (int64_t)size, from, (size_t)count * size);
    uint64_t converted[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;
        for (int64_t i = 0; i < n; i++) {
            uint64_t element; // files need not be aligned
            memcpy(&element, (const char *)from + (size_t)(at + i) * from_size, from_size);
            if (sn_dtype_is_float(buffer->dtype)) {
                sn_store_f64(buffer->dtype, converted, i, sn_load_f64(dtype, &element, 0));
            } else {
                sn_store_i64(buffer->dtype, converted, i, sn_load_i64(dtype, &element, 0));
            }
        }
        SN_TRY(
            device->vtable->write(device, buffer->offset + (first + at) * (int64_t)size, converted, (size_t)n * size));
    }
    return SN_OK;
}

typedef struct assembly {
    const char *part;
    char *whole;
    size_t size;
} assembly;

static sn_status place(void *user, int64_t first, int64_t local, int64_t count) {
    assembly *a = user;
    memcpy(a->whole + (size_t)first * a->size, a->part + (size_t)local * a->size, (size_t)count * a->size);
    return SN_OK;
}

static int64_t elements(const sn_dims *shape) {
    int64_t count = 1;
    for (size_t i = 0; i < shape->count; i++) count *= shape->items[i];
    return count;
}

// A tensor that rank 0 holds itself: no copy of it is made.
static sn_status take_own(sn_device *device, const sn_buffer *buffer, size_t bytes, sn_shard_take take, void *user) {
    enum { PIECE = 1 << 20 };
    char *piece = sn_alloc(PIECE);
    sn_status status = SN_OK;
    for (size_t at = 0; at < bytes && !status; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        status = device->vtable->read(device, buffer->offset + (int64_t)at, piece, n);
        if (!status) take(user, piece, n);
    }
    sn_free(piece);
    return status;
}

static sn_status take_parts(const sn_schedule *schedule, int ranks, const sn_output *tensor, const char *parts,
                            size_t local, sn_shard_take take, void *user) {
    size_t size = sn_dtype_bytes(schedule->buffers.items[tensor->buffer].dtype);
    size_t bytes = (size_t)elements(&tensor->shape) * size;
    char *whole = sn_alloc(bytes + 1);
    sn_status status = SN_OK;
    for (int rank = 0; rank < ranks && !status; rank++) {
        const sn_dims *shape = sn_shard_shape(&tensor->shape, &tensor->pieces);
        sn_region region;
        sn_shard_region(schedule, rank, shape, &tensor->sharding, &region);
        assembly a = {parts + (size_t)rank * local, whole, size};
        status = sn_shard_runs(shape, &region, place, &a);
    }
    if (!status) take(user, whole, bytes);
    sn_free(whole);
    return status;
}

sn_status sn_shard_gather(const sn_schedule *schedule, sn_device *device, sn_comm *comm, const sn_output *tensor,
                          sn_shard_take take, void *user) {
    const sn_buffer *buffer = &schedule->buffers.items[tensor->buffer];
    size_t local = (size_t)elements(&buffer->shape) * sn_dtype_bytes(buffer->dtype);
    bool sharded = false;
    for (size_t i = 0; i < tensor->sharding.count; i++) sharded = sharded || tensor->sharding.items[i];
    if (!sharded) return comm->rank == 0 ? take_own(device, buffer, local, take, user) : SN_OK;
    char *part = sn_alloc(local + 1), *parts = sn_alloc(local * (size_t)comm->ranks + 1);
    sn_status status = device->vtable->read(device, buffer->offset, part, local);
    sn_collective c = {.kind = SN_INSTR_ALL_GATHER, .dtype = SN_U8, .count = (int64_t)local, .from = part, .to = parts};
    if (!status) status = comm->vtable->run_all(comm, &c);
    if (!status && comm->rank == 0) status = take_parts(schedule, comm->ranks, tensor, parts, local, take, user);
    sn_free(part), sn_free(parts);
    return status;
}
