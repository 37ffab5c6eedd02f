#include "runtime/exec/tensors.h"

#include "base/alloc.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/exec/shard.h"

#include <string.h>

static sn_dtype type_of(const sn_schedule *s, const sn_output *o) {
    return s->buffers.items[o->buffer].dtype;
}

static void drop(void *user, const void *data, size_t bytes) {
    (void)user, (void)data, (void)bytes;
}

static size_t bytes_of(const sn_schedule *s, const sn_output *o) {
    size_t bytes = sn_dtype_bytes(type_of(s, o));
    for (size_t k = 0; k < o->shape.count; k++) bytes *= (size_t)o->shape.items[k];
    return bytes;
}

sn_status sn_tensors_write(const sn_schedule *s, sn_device *device, sn_comm *comm, const sn_output *tensors,
                           size_t count, const char *path) {
    sn_safetensors_writer writer = {0};
    sn_status failed = SN_OK;
    if (comm->rank == 0) {
        sn_tensor_entry *entries = sn_alloc((count + 1) * sizeof *entries);
        for (size_t i = 0; i < count; i++)
            entries[i] = (sn_tensor_entry){tensors[i].name, type_of(s, &tensors[i]), tensors[i].shape, NULL, 0};
        failed = sn_safetensors_create(path, entries, count, NULL, 0, &writer);
        sn_free(entries);
    }
    sn_status status = SN_OK;
    bool writes = comm->rank == 0 && !failed;
    for (size_t i = 0; i < count && !status; i++) // the others wait for rank 0 even when it cannot write
        status = sn_shard_gather(s, device, comm, &tensors[i], writes ? sn_safetensors_append : drop, &writer);
    if (writes) {
        if (!status) return sn_safetensors_commit(&writer);
        sn_safetensors_discard(&writer);
    }
    if (status) sn_status_free(failed);
    return status ? status : failed;
}

void sn_collected_init(const sn_schedule *s, int64_t batch, sn_collected *out) {
    *out = (sn_collected){.batch = batch};
    out->data = sn_alloc((s->predictions.count + 1) * sizeof *out->data);
}

static bool is_joined(const sn_collected *c, const sn_output *o) {
    return c->batch > 0 && o->shape.count > 0 && o->shape.items[0] == c->batch;
}

static void append(void *user, const void *data, size_t bytes) {
    sn_bytes *to = user;
    sn_vec_reserve(to, to->count + bytes);
    memcpy(to->data + to->count, data, bytes);
    to->count += bytes;
}

sn_status sn_collected_add(sn_collected *c, const sn_schedule *s, sn_device *device, sn_comm *comm) {
    for (size_t i = 0; i < s->predictions.count; i++) {
        const sn_output *o = &s->predictions.items[i];
        bool wanted = is_joined(c, o) || !c->data[i].count;
        SN_TRY(sn_shard_gather(s, device, comm, o, wanted ? append : drop, &c->data[i]));
    }
    return SN_OK;
}

sn_status sn_collected_write(const sn_collected *c, const sn_schedule *s, int64_t samples, const char *path) {
    size_t count = s->predictions.count, *bytes = sn_alloc((count + 1) * sizeof *bytes);
    sn_tensor_entry *entries = sn_alloc((count + 1) * sizeof *entries);
    sn_arena arena = {0};
    for (size_t i = 0; i < count; i++) {
        const sn_output *o = &s->predictions.items[i];
        entries[i] = (sn_tensor_entry){o->name, type_of(s, o), o->shape, NULL, 0};
        bytes[i] = c->data[i].count;
        if (!is_joined(c, o)) continue;
        bytes[i] = bytes_of(s, o) / (size_t)c->batch * (size_t)samples;
        SN_CHECK(bytes[i] <= c->data[i].count);
        entries[i].shape.items = sn_arena_copy(&arena, o->shape.items, o->shape.count * sizeof(int64_t));
        entries[i].shape.items[0] = samples;
    }
    sn_safetensors_writer writer;
    sn_status status = sn_safetensors_create(path, entries, count, NULL, 0, &writer);
    if (!status) {
        for (size_t i = 0; i < count; i++) sn_safetensors_append(&writer, c->data[i].data, bytes[i]);
        status = sn_safetensors_commit(&writer);
    }
    sn_arena_free(&arena);
    sn_free(bytes), sn_free(entries);
    return status;
}

void sn_collected_free(sn_collected *c, const sn_schedule *s) {
    for (size_t i = 0; i < s->predictions.count; i++) sn_vec_free(&c->data[i]);
    sn_free(c->data);
    *c = (sn_collected){0};
}
