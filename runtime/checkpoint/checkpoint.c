#include "runtime/checkpoint/checkpoint.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/vec.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/exec/shard.h"
#include "runtime/exec/tensors.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEPT = 2 };

// "step-12.safetensors" -> 12; -1 for anything else.
static int64_t step_of(const char *name) {
    int64_t step = 0;
    if (!sn_starts_with(name, "step-")) return -1;
    const char *c = name + 5;
    for (; *c >= '0' && *c <= '9' && c - name < 5 + 18; c++) step = step * 10 + (*c - '0');
    return c > name + 5 && !strcmp(c, ".safetensors") ? step : -1;
}

// What sn_atomic_open names a file of ours before it is complete.
static bool is_half_written(const char *name) {
    return (sn_starts_with(name, "step-") && strstr(name, ".safetensors.tmp.")) || sn_starts_with(name, "latest.tmp.");
}

static int descending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

void sn_checkpoint_tidy(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir) return;
    SN_VEC(int64_t) steps = {0};
    sn_str path = {0};
    for (struct dirent *entry; (entry = readdir(dir));) {
        int64_t step = step_of(entry->d_name);
        if (step >= 0) sn_vec_push(&steps, step);
        if (is_half_written(entry->d_name)) {
            sn_str_clear(&path);
            sn_str_printf(&path, "%s/%s", folder, entry->d_name);
            unlink(path.data);
        }
    }
    closedir(dir);
    if (steps.count) qsort(steps.data, steps.count, sizeof *steps.data, descending);
    for (size_t i = KEPT; i < steps.count; i++) {
        sn_str_clear(&path);
        sn_str_printf(&path, "%s/step-%" PRId64 ".safetensors", folder, steps.data[i]);
        unlink(path.data);
    }
    sn_str_free(&path);
    sn_vec_free(&steps);
}

static void sync_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

enum { NOTES = 9 };

// The texts of numbers, which the notes point at.
typedef struct note_texts {
    char step[32], seed[32], samples[32], loss[40], ranks[32];
} note_texts;

static void make_notes(const sn_schedule *s, const sn_run_position *at, note_texts *t, sn_tensor_note notes[NOTES]) {
    snprintf(t->step, sizeof t->step, "%" PRId64, at->step);
    snprintf(t->seed, sizeof t->seed, "%" PRIu64, at->seed);
    snprintf(t->samples, sizeof t->samples, "%" PRId64, at->samples);
    snprintf(t->loss, sizeof t->loss, "%.17g", at->loss);
    snprintf(t->ranks, sizeof t->ranks, "%" PRId64, s->ranks);
    const sn_tensor_note all[NOTES] = {
        {"format", "sennit-checkpoint-1"},
        {"step", t->step},
        {"seed", t->seed},
        {"samples", t->samples},
        {"loss", t->loss},
        {"ranks", t->ranks},
        {"model", s->model_path ? s->model_path : ""},
        {"model_hash", s->model_hash ? s->model_hash : ""},
        {"plan_hash", s->plan_hash ? s->plan_hash : ""},
    };
    memcpy(notes, all, sizeof all);
}

sn_status sn_checkpoint_write(const char *folder, const sn_schedules *all, sn_device *device, sn_comm *comm,
                              const sn_run_position *position) {
    sn_str path = {0}, latest = {0}, name = {0};
    sn_str_printf(&name, "step-%" PRId64 ".safetensors", position->step);
    sn_str_printf(&path, "%s/%s", folder, sn_str_text(&name));
    sn_str_printf(&latest, "%s/latest", folder);
    note_texts texts;
    sn_tensor_note notes[NOTES];
    make_notes(&all->classes.items[0], position, &texts, notes);
    sn_tensor_refs refs = {0};
    sn_tensors_saved(all, &refs);
    sn_status failed = comm->rank == 0 ? sn_make_directories(folder) : SN_OK;
    sn_status status = sn_tensors_write(&refs, notes, NOTES, device, comm, path.data);
    if (!status && !failed && comm->rank == 0) {
        sync_folder(folder);
        sn_str_putc(&name, '\n');
        failed = sn_file_write(latest.data, name.data, name.length);
        if (!failed) sn_checkpoint_tidy(folder);
    }
    sn_vec_free(&refs);
    sn_str_free(&path), sn_str_free(&latest), sn_str_free(&name);
    if (failed) { // says more than what follows from it
        sn_status_free(status);
        return failed;
    }
    return status;
}

static sn_status newest(const char *folder, sn_str *path) {
    sn_str latest = {0};
    sn_str_printf(&latest, "%s/latest", folder);
    sn_mapped_file file;
    sn_status status = sn_file_map(latest.data, &file);
    sn_str_free(&latest);
    if (status) {
        sn_status_free(status);
        return sn_status_make("'%s' holds no checkpoint: give the folder that --checkpoint wrote, with its file latest",
                              folder);
    }
    int length = file.bytes < 64 ? (int)file.bytes : 64;
    char name[65] = {0};
    if (length) memcpy(name, file.data, (size_t)length);
    sn_file_unmap(&file);
    name[strcspn(name, "\n")] = 0;
    if (step_of(name) < 0) return sn_status_make("'%s/latest' does not name a checkpoint", folder);
    sn_str_printf(path, "%s/%s", folder, name);
    return SN_OK;
}

typedef struct reader {
    sn_device *device;
    const sn_buffer *buffer;
    const sn_tensor_entry *entry;
} reader;

static sn_status read_run(void *user, int64_t first, int64_t local, int64_t count) {
    reader *r = user;
    const char *from = (const char *)r->entry->data + (size_t)first * sn_dtype_bytes(r->entry->dtype);
    return sn_shard_write(r->device, r->buffer, local, r->entry->dtype, from, count);
}

static sn_status read_tensor(const sn_safetensors *file, const char *path, const sn_schedule *s, const sn_resident *g,
                             int64_t rank, sn_device *device) {
    reader r = {device, &s->buffers.items[g->buffer], sn_safetensors_find(file, g->name)};
    if (!r.entry) return sn_status_make("'%s' lacks '%s'; it is of another model or optimizer", path, g->name);
    bool same = r.entry->dtype == r.buffer->dtype && r.entry->shape.count == g->shape.count;
    for (size_t i = 0; same && i < g->shape.count; i++) same = r.entry->shape.items[i] == g->shape.items[i];
    if (!same) return sn_status_make("'%s' has another shape or type in '%s'", g->name, path);
    sn_region region;
    const sn_dims *shape = sn_shard_shape(&g->shape, &g->pieces);
    sn_shard_region(s, rank, shape, &g->sharding, &region);
    return sn_shard_runs(shape, &region, read_run, &r);
}

static sn_status read_position(const sn_safetensors *file, const char *path, const sn_schedule *s,
                               sn_run_position *out) {
    const char *format = sn_safetensors_note(file, "format"), *hash = sn_safetensors_note(file, "model_hash");
    const char *step = sn_safetensors_note(file, "step"), *seed = sn_safetensors_note(file, "seed");
    const char *samples = sn_safetensors_note(file, "samples"), *loss = sn_safetensors_note(file, "loss");
    if (!format || strcmp(format, "sennit-checkpoint-1") != 0 || !hash || !step || !seed || !samples || !loss)
        return sn_status_make("'%s' is not a checkpoint of this version of sennit", path);
    if (strcmp(hash, s->model_hash ? s->model_hash : "") != 0)
        return sn_status_make("'%s' is a checkpoint of another model", path);
    *out = (sn_run_position){strtoll(step, NULL, 10), strtoull(seed, NULL, 10), strtoll(samples, NULL, 10),
                             strtod(loss, NULL)};
    if (out->step < 0 || out->samples < 0) return sn_status_make("'%s' is damaged: a negative step", path);
    return SN_OK;
}

sn_status sn_checkpoint_read(const char *folder, const sn_schedule *s, int64_t rank, sn_device *device,
                             sn_run_position *position) {
    sn_str path = {0};
    sn_safetensors file = {0};
    sn_status status = newest(folder, &path);
    if (!status) status = sn_safetensors_open(path.data, &file);
    if (!status) status = read_position(&file, path.data, s, position);
    for (size_t i = 0; i < s->globals.count && !status; i++) {
        const sn_resident *g = &s->globals.items[i];
        if (sn_resident_is_saved(g)) status = read_tensor(&file, path.data, s, g, rank, device);
    }
    sn_safetensors_close(&file);
    sn_str_free(&path);
    return status;
}
