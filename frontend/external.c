#include "frontend/external.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct place {
    const char *location;
    uint64_t offset, length;
    bool has_length;
} place;

static bool parse_number(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0;
}

// NULL, or what is wrong with the entries.
static const char *parse_place(const Onnx__TensorProto *proto, place *out) {
    *out = (place){0};
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const char *key = proto->external_data[i]->key, *value = proto->external_data[i]->value;
        if (!key || !value) continue;
        if (strcmp(key, "location") == 0) out->location = value;
        if (strcmp(key, "offset") == 0 && !parse_number(value, &out->offset)) return "its offset is not a number";
        if (strcmp(key, "length") == 0) {
            if (!parse_number(value, &out->length)) return "its length is not a number";
            out->has_length = true;
        }
    }
    return out->location && *out->location ? NULL : "it names no file";
}

static bool leaves_folder(const char *location) {
    if (*location == '/' || strchr(location, '\\')) return true;
    for (const char *part = location; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (strncmp(part, "..", 2) == 0 && (!part[2] || part[2] == '/')) return true;
    return false;
}

// Kernels before 5.6 and some sandboxes lack openat2: one component at a time, none of them a link.
static int open_by_component(int folder, const char *location) {
    int at = dup(folder);
    while (at >= 0) {
        const char *slash = strchr(location, '/');
        char name[256];
        size_t length = slash ? (size_t)(slash - location) : strlen(location);
        int next = -1;
        if (length < sizeof name) {
            memcpy(name, location, length);
            name[length] = 0;
            next = openat(at, length ? name : ".",
                          O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (slash ? O_DIRECTORY : 0));
        } else {
            errno = ENAMETOOLONG;
        }
        int error = errno;
        close(at);
        errno = error;
        at = next;
        if (!slash) break;
        location = slash + 1;
    }
    return at;
}

static int open_inside(int folder, const char *location) {
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, folder, location, &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL)) return open_by_component(folder, location);
    return fd;
}

static bool map_file(sn_onnx_model *model, const char *location, sn_diags *diags, sn_tensor_file *out) {
    static const char outside[] = "external data must lie in the model's folder, in files that are no links";
    if (model->folder < 0) {
        sn_error(diags, "E0105", location, "give the model as a file, or save it with its weights inside",
                 "a model in memory has no external data");
        return false;
    }
    if (leaves_folder(location)) {
        sn_error(diags, "E0106", location, outside, "the model asks for data outside its folder: '%s'", location);
        return false;
    }
    int fd = open_inside(model->folder, location);
    if (fd < 0 && (errno == ELOOP || errno == EXDEV)) {
        sn_error(diags, "E0106", location, outside, "the external data file '%s' is a link", location);
        return false;
    }
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        sn_error(diags, "E0107", location, "copy it beside the model; exporters write both",
                 "cannot open the external data file '%s': %s", location,
                 fd < 0 ? strerror(errno) : "not a regular file");
        if (fd >= 0) close(fd);
        return false;
    }
    size_t bytes = (size_t)info.st_size;
    void *data = bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (data == MAP_FAILED) {
        sn_error(diags, "E0107", location, "check the file's permissions and its file system",
                 "cannot map the external data file '%s': %s", location, strerror(errno));
        return false;
    }
    const char *slash = strrchr(model->info.path, '/');
    int folder = slash ? (int)(slash - model->info.path) + 1 : 0;
    *out = (sn_tensor_file){data, bytes, sn_arena_printf(&model->arena, "%.*s%s", folder, model->info.path, location)};
    return true;
}

static sn_tensor_file *find_file(sn_onnx_model *model, const char *location, sn_diags *diags) {
    if (sn_map_has(&model->external, location)) return sn_map_get(&model->external, location);
    sn_tensor_file *file = SN_NEW(&model->arena, sn_tensor_file);
    if (!map_file(model, location, diags, file)) return NULL;
    sn_map_put(&model->external, location, file);
    return file;
}

// Whether the data may be, and is, not there.
static bool is_missing(const sn_onnx_model *model, const char *location) {
    if (!model->shapes_only || sn_map_has(&model->external, location) || leaves_folder(location)) return false;
    return faccessat(model->folder, location, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

bool sn_external_data(sn_onnx_model *model, const Onnx__TensorProto *proto, sn_type type, const char *subject,
                      sn_diags *diags, sn_source *out) {
    place at;
    const char *problem = parse_place(proto, &at);
    if (problem) {
        sn_error(diags, "E0105", subject, "export the model again, or save it with its weights inside",
                 "the external data of '%s': %s", subject, problem);
        return false;
    }
    if (is_missing(model, at.location)) {
        *out = (sn_source){.kind = SN_SOURCE_FILE, .path = at.location, .offset = (int64_t)at.offset};
        return true;
    }
    sn_tensor_file *file = find_file(model, at.location, diags);
    if (!file) return false;
    uint64_t wanted = (uint64_t)sn_type_bytes(type);
    if ((at.has_length && at.length != wanted) || at.offset > file->bytes || wanted > file->bytes - at.offset) {
        sn_error(diags, "E0108", subject, "the data file does not belong to this model, or was cut off",
                 "'%s' needs %llu bytes at %llu of '%s', which has %zu%s", subject, (unsigned long long)wanted,
                 (unsigned long long)at.offset, at.location, file->bytes,
                 at.has_length && at.length != wanted ? ", and states another length" : "");
        return false;
    }
    *out = (sn_source){
        .kind = SN_SOURCE_FILE, .path = file->path, .offset = (int64_t)at.offset, .data = file->data + at.offset};
    return true;
}

void sn_external_unmap(sn_tensor_file *file) {
    if (file->data) munmap((void *)(uintptr_t)file->data, file->bytes);
}
