#include "runtime/exec/tensors.h"

#include "base/alloc.h"
#include "runtime/exec/shard.h"

#include <stdlib.h>
#include <string.h>

static sn_dtype type_of(const sn_tensor_ref *ref) {
    return ref->schedule->buffers.items[ref->tensor.buffer].dtype;
}

static void drop(void *user, const void *data, size_t bytes) {
    (void)user, (void)data, (void)bytes;
}

static size_t bytes_of(const sn_tensor_ref *ref) {
    size_t bytes = sn_dtype_bytes(type_of(ref));
    for (size_t k = 0; k < ref->tensor.shape.count; k++) bytes *= (size_t)ref->tensor.shape.items[k];
    return bytes;
}

static sn_status gather(const sn_tensor_ref *ref, sn_device *device, sn_comm *comm, sn_shard_take take, void *user) {
    return sn_shard_gather(ref->schedule, ref->class, device, comm, &ref->tensor, take, user);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const sn_tensor_ref *)a)->tensor.name, ((const sn_tensor_ref *)b)->tensor.name);
}

// So that a file of the same tensors is the same whichever stages of a pipeline have them.
static void sort_by_name(sn_tensor_refs *refs) {
    if (refs->count) qsort(refs->data, refs->count, sizeof *refs->data, by_name);
}

void sn_tensors_gradients(const sn_schedules *all, sn_tensor_refs *out) {
    for (size_t c = 0; c < all->classes.count; c++) {
        const sn_schedule *s = &all->classes.items[c];
        for (size_t i = 0; i < s->gradients.count; i++)
            sn_vec_push(out, (sn_tensor_ref){s, (int64_t)c, s->gradients.items[i]});
    }
    sort_by_name(out);
}

// Several classes may have an output that they all compute: the lowest one's counts.
static void predictions(const sn_schedules *all, sn_tensor_refs *out) {
    for (size_t c = 0; c < all->classes.count; c++) {
        const sn_schedule *s = &all->classes.items[c];
        for (size_t i = 0; i < s->predictions.count; i++) {
            bool known = false;
            for (size_t k = 0; k < out->count; k++)
                known = known || !strcmp(out->data[k].tensor.name, s->predictions.items[i].name);
            if (!known) sn_vec_push(out, (sn_tensor_ref){s, (int64_t)c, s->predictions.items[i]});
        }
    }
}

void sn_tensors_saved(const sn_schedules *all, sn_tensor_refs *out) {
    for (size_t c = 0; c < all->classes.count; c++) {
        const sn_schedule *s = &all->classes.items[c];
        for (size_t i = 0; i < s->globals.count; i++) {
            const sn_resident *g = &s->globals.items[i];
            if (!sn_resident_is_saved(g)) continue;
            sn_output tensor = {g->name, g->buffer, g->shape, g->pieces, g->sharding};
            sn_vec_push(out, (sn_tensor_ref){s, (int64_t)c, tensor});
        }
    }
    sort_by_name(out);
}

sn_status sn_tensors_write(const sn_tensor_refs *refs, const sn_tensor_note *notes, size_t n_notes, sn_device *device,
                           sn_comm *comm, const char *path) {
    sn_safetensors_writer writer = {0};
    sn_status failed = SN_OK;
    if (comm->rank == 0) {
        sn_tensor_entry *entries = sn_alloc((refs->count + 1) * sizeof *entries);
        for (size_t i = 0; i < refs->count; i++) {
            const sn_tensor_ref *ref = &refs->data[i];
            entries[i] = (sn_tensor_entry){ref->tensor.name, type_of(ref), ref->tensor.shape, NULL, 0};
        }
        failed = sn_safetensors_create(path, entries, refs->count, notes, n_notes, &writer);
        sn_free(entries);
    }
    sn_status status = SN_OK;
    bool writes = comm->rank == 0 && !failed;
    for (size_t i = 0; i < refs->count && !status; i++) // the others wait for rank 0 even when it cannot write
        status = gather(&refs->data[i], device, comm, writes ? sn_safetensors_append : drop, &writer);
    if (writes) {
        if (!status) return sn_safetensors_commit(&writer);
        sn_safetensors_discard(&writer);
    }
    if (status) sn_status_free(failed);
    return status ? status : failed;
}

void sn_collected_init(const sn_schedules *all, int64_t batch, sn_collected *out) {
    *out = (sn_collected){.batch = batch};
    predictions(all, &out->refs);
    out->data = sn_alloc((out->refs.count + 1) * sizeof *out->data);
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

sn_status sn_collected_add(sn_collected *c, sn_device *device, sn_comm *comm) {
    for (size_t i = 0; i < c->refs.count; i++) {
        bool wanted = is_joined(c, &c->refs.data[i].tensor) || !c->data[i].count;
        SN_TRY(gather(&c->refs.data[i], device, comm, wanted ? append : drop, &c->data[i]));
    }
    return SN_OK;
}

sn_status sn_collected_write(const sn_collected *c, int64_t samples, const char *path) {
    size_t count = c->refs.count, *bytes = sn_alloc((count + 1) * sizeof *bytes);
    sn_tensor_entry *entries = sn_alloc((count + 1) * sizeof *entries);
    sn_arena arena = {0};
    for (size_t i = 0; i < count; i++) {
        const sn_tensor_ref *ref = &c->refs.data[i];
        const sn_output *o = &ref->tensor;
        entries[i] = (sn_tensor_entry){o->name, type_of(ref), o->shape, NULL, 0};
        bytes[i] = c->data[i].count;
        if (!is_joined(c, o)) continue;
        bytes[i] = bytes_of(ref) / (size_t)c->batch * (size_t)samples;
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

void sn_collected_free(sn_collected *c) {
    for (size_t i = 0; i < c->refs.count; i++) sn_vec_free(&c->data[i]);
    sn_free(c->data);
    sn_vec_free(&c->refs);
    *c = (sn_collected){0};
}
