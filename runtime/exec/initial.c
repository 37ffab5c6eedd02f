#include "runtime/exec/initial.h"

#include "base/alloc.h"
#include "runtime/exec/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 20 }; // bytes read at a time

typedef struct loader {
    sn_device *device;
    const sn_resident *global;
    const sn_buffer *buffer;
    int fd; // of the last file; kept open, as most weights come from one
    const char *path;
    sn_blob constants;
    char *piece;
} loader;

static sn_status read_exactly(const loader *l, char *to, size_t bytes, int64_t at) {
    while (bytes) {
        ssize_t n = pread(l->fd, to, bytes, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return sn_status_errno("cannot read '%s'", l->path);
        if (n == 0) return sn_status_make("'%s' is shorter than when it was compiled; compile again", l->path);
        to += n, bytes -= (size_t)n, at += n;
    }
    return SN_OK;
}

static sn_status load_run(void *user, int64_t first, int64_t local, int64_t count) {
    loader *l = user;
    const sn_initial *source = &l->global->source;
    int64_t size = (int64_t)sn_dtype_bytes(source->dtype), piece = PIECE / size;
    for (int64_t at = 0; at < count; at += piece) {
        int64_t n = count - at < piece ? count - at : piece;
        int64_t offset = source->offset + (first + at) * size;
        const void *from = l->piece;
        if (source->kind == SN_INITIAL_FILE) {
            SN_TRY(read_exactly(l, l->piece, (size_t)(n * size), offset));
        } else {
            from = (const char *)l->constants.data + offset;
        }
        SN_TRY(sn_shard_write(l->device, l->buffer, local + at, source->dtype, from, n));
    }
    return SN_OK;
}

static sn_status fill(loader *l, const sn_region *region) {
    int64_t count = 1, size = (int64_t)sn_dtype_bytes(l->buffer->dtype), piece = PIECE / size;
    for (size_t i = 0; i < region->rank; i++) count *= region->size[i];
    for (int64_t i = 0; i < piece && i < count; i++)
        sn_store_f64(l->buffer->dtype, l->piece, i, l->global->source.value);
    for (int64_t at = 0; at < count; at += piece) {
        int64_t n = count - at < piece ? count - at : piece;
        SN_TRY(sn_shard_write(l->device, l->buffer, at, l->buffer->dtype, l->piece, n));
    }
    return SN_OK;
}

static sn_status open_source(loader *l) {
    const char *path = l->global->source.path;
    if (l->path && !strcmp(l->path, path)) return SN_OK;
    if (l->fd >= 0) close(l->fd);
    l->path = path;
    l->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (l->fd < 0) return sn_status_errno("cannot open '%s', which holds the weights", path);
    return SN_OK;
}

static sn_status check_model(const sn_schedule *s) {
    bool needed = false;
    for (size_t i = 0; i < s->globals.count; i++) needed = needed || s->globals.items[i].source.kind == SN_INITIAL_FILE;
    struct stat info;
    if (!needed || !s->model_path || stat(s->model_path, &info) != 0) return SN_OK; // opening tells more
    if (info.st_size == s->model_bytes) return SN_OK;
    return sn_status_make("'%s' has changed since it was compiled; compile again", s->model_path);
}

static sn_status load_all(loader *l, const sn_schedule *s, int64_t rank) {
    for (size_t i = 0; i < s->globals.count; i++) {
        const sn_resident *g = l->global = &s->globals.items[i];
        l->buffer = &s->buffers.items[g->buffer];
        const sn_dims *shape = sn_shard_shape(&g->shape, &g->pieces);
        sn_region region;
        sn_shard_region(s, rank, shape, &g->sharding, &region);
        if (g->source.kind == SN_INITIAL_FILL) {
            SN_TRY(fill(l, &region));
            continue;
        }
        if (g->source.kind == SN_INITIAL_FILE) SN_TRY(open_source(l));
        int64_t end;
        if (g->source.offset < 0 || __builtin_add_overflow(g->source.offset, g->source.bytes, &end) ||
            (g->source.kind == SN_INITIAL_PAYLOAD && end > (int64_t)l->constants.bytes))
            return sn_status_make("the source of '%s' lies outside of its file", g->name);
        SN_TRY(sn_shard_runs(shape, &region, load_run, l));
    }
    return SN_OK;
}

sn_status sn_initial_load(const sn_schedule *s, int64_t rank, sn_blob constants, sn_device *device) {
    SN_TRY(check_model(s));
    loader l = {.device = device, .fd = -1, .constants = constants, .piece = sn_alloc(PIECE)};
    sn_status status = load_all(&l, s, rank);
    if (l.fd >= 0) close(l.fd);
    sn_free(l.piece);
    return status;
}
