#include "runtime/exec/shard.h"

#include "base/alloc.h"
#include "runtime/mesh.h"

#include <string.h>

void sn_shard_region(const sn_schedule *schedule, int64_t rank, const sn_dims *shape, const sn_dims *sharding,
                     sn_region *out) {
    SN_CHECK(shape->count <= SN_SHARD_MAX_RANK);
    *out = (sn_region){.rank = shape->count};
    for (size_t i = 0; i < shape->count; i++) {
        int64_t axes = sharding->count ? sharding->items[i] : 0;
        out->size[i] = shape->items[i] / sn_schedule_group_size(schedule, axes);
        out->start[i] = sn_schedule_place(schedule, rank, axes) * out->size[i];
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

// Mesh axes that cut the tensor.
static int64_t cutting_axes(const sn_output *tensor) {
    int64_t axes = 0;
    for (size_t i = 0; i < tensor->sharding.count; i++) axes |= tensor->sharding.items[i];
    return axes;
}

// Of the ranks that hold the same part, the lowest speaks: it has coordinate 0 on the axes that do not cut the tensor,
// but for the pipeline axis, which says where the tensor is.
static bool speaks(const sn_schedule *s, int64_t class, int64_t axes, int64_t rank) {
    for (size_t i = 0; i < s->mesh.count; i++) {
        int64_t wanted = (int64_t)i == s->pipeline_axis ? class : 0, at = sn_schedule_coordinate(s, rank, i);
        if (at != wanted && ((int64_t)i == s->pipeline_axis || !(axes >> i & 1))) return false;
    }
    return true;
}

typedef struct gathering {
    const sn_schedule *schedule; // of the class that has the tensor
    int64_t class;
    const sn_output *tensor;
    size_t local, whole; // bytes
} gathering;

// Rank 0's side: its own part, or another rank's, of every rank that speaks, in the ranks' order.
static sn_status collect_parts(const gathering *g, sn_device *device, sn_comm *comm, char *whole) {
    const sn_schedule *s = g->schedule;
    const sn_buffer *buffer = &s->buffers.items[g->tensor->buffer];
    char *part = sn_alloc(g->local + 1);
    sn_status status = SN_OK;
    for (int rank = 0; rank < comm->ranks && !status; rank++) {
        if (!speaks(s, g->class, cutting_axes(g->tensor), rank)) continue;
        status = rank == 0 ? device->vtable->read(device, buffer->offset, part, g->local)
                           : comm->vtable->take(comm, rank, part, g->local);
        if (status) break;
        const sn_dims *shape = sn_shard_shape(&g->tensor->shape, &g->tensor->pieces);
        sn_region region;
        sn_shard_region(s, rank, shape, &g->tensor->sharding, &region);
        assembly a = {part, whole, sn_dtype_bytes(buffer->dtype)};
        status = sn_shard_runs(shape, &region, place, &a);
    }
    sn_free(part);
    return status;
}

static sn_status give_part(const gathering *g, sn_device *device, sn_comm *comm) {
    const sn_schedule *s = g->schedule;
    if (!speaks(s, g->class, cutting_axes(g->tensor), comm->rank)) return SN_OK;
    char *part = sn_alloc(g->local + 1);
    sn_status failed = device->vtable->read(device, s->buffers.items[g->tensor->buffer].offset, part, g->local);
    sn_status status = comm->vtable->give(comm, 0, part, g->local); // rank 0 waits for it in any case
    sn_free(part);
    if (status) sn_status_free(failed);
    return status ? status : failed;
}

sn_status sn_shard_gather(const sn_schedule *schedule, int64_t class, sn_device *device, sn_comm *comm,
                          const sn_output *tensor, sn_shard_take take, void *user) {
    const sn_buffer *buffer = &schedule->buffers.items[tensor->buffer];
    size_t size = sn_dtype_bytes(buffer->dtype);
    gathering g = {schedule, class, tensor, (size_t)elements(&buffer->shape) * size,
                   (size_t)elements(&tensor->shape) * size};
    if (comm->rank != 0) return give_part(&g, device, comm);
    if (!cutting_axes(tensor) && sn_schedule_first_rank(schedule, class) == 0)
        return take_own(device, buffer, g.local, take, user);
    char *whole = sn_alloc(g.whole + 1);
    sn_status status = collect_parts(&g, device, comm, whole);
    if (!status) take(user, whole, g.whole);
    sn_free(whole);
    return status;
}
