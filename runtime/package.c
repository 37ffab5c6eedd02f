#include "runtime/package.h"

#include <string.h>
#include <sys/stat.h>

// The last bytes of the file, little endian.
typedef struct trailer {
    struct {
        uint64_t offset, bytes;
    } parts[3]; // schedule, kernels, constants
    uint64_t version;
    char magic[16];
} trailer;

static const char trailer_magic[16] = "sennit-package\n";
enum { TRAILER_VERSION = 1, PART_ALIGNMENT = 4096 };

static void append(FILE *stream, const void *data, size_t bytes, uint64_t *at) {
    if (bytes) fwrite(data, 1, bytes, stream); // an error stays with the stream until the commit
    *at += bytes;
}

static void pad(FILE *stream, uint64_t *at) {
    static const char zeros[PART_ALIGNMENT];
    append(stream, zeros, (PART_ALIGNMENT - *at % PART_ALIGNMENT) % PART_ALIGNMENT, at);
}

sn_status sn_package_write(const sn_package *package, const char *runner, const char *path) {
    sn_mapped_file program;
    SN_TRY(sn_file_map(runner, &program));
    sn_atomic_file file;
    sn_status status = sn_atomic_open(path, &file);
    if (!status) {
        const sn_blob *blobs[] = {&package->schedule, &package->kernels, &package->constants};
        trailer end = {.version = TRAILER_VERSION};
        memcpy(end.magic, trailer_magic, sizeof end.magic);
        uint64_t at = 0;
        append(file.stream, program.data, program.bytes, &at);
        for (int i = 0; i < 3; i++) {
            pad(file.stream, &at);
            end.parts[i].offset = at, end.parts[i].bytes = blobs[i]->bytes;
            append(file.stream, blobs[i]->data, blobs[i]->bytes, &at);
        }
        append(file.stream, &end, sizeof end, &at);
        struct stat info; // executable for those who may read it
        if (fstat(fileno(file.stream), &info) == 0)
            fchmod(fileno(file.stream), info.st_mode | ((info.st_mode & 0444) >> 2));
        status = sn_atomic_commit(&file);
    }
    sn_file_unmap(&program);
    return status;
}

static sn_status find_parts(const char *path, const sn_mapped_file *file, sn_package *out) {
    trailer end;
    if (file->bytes < sizeof end) return sn_status_make("'%s' carries no training program", path);
    memcpy(&end, file->data + file->bytes - sizeof end, sizeof end);
    if (memcmp(end.magic, trailer_magic, sizeof end.magic) != 0)
        return sn_status_make("'%s' carries no training program; `sennit compile` writes one", path);
    if (end.version != TRAILER_VERSION) return sn_status_make("'%s' is of another version of sennit", path);
    sn_blob *blobs[] = {&out->schedule, &out->kernels, &out->constants};
    for (int i = 0; i < 3; i++) {
        if (end.parts[i].offset > file->bytes || end.parts[i].bytes > file->bytes - end.parts[i].offset)
            return sn_status_make("'%s' is damaged: a part lies outside the file", path);
        *blobs[i] = (sn_blob){file->data + end.parts[i].offset, (size_t)end.parts[i].bytes};
    }
    return SN_OK;
}

sn_status sn_package_open(const char *path, sn_package *out) {
    sn_package package = {0};
    SN_TRY(sn_file_map(path, &package.file));
    sn_status status = find_parts(path, &package.file, &package);
    if (status) {
        sn_file_unmap(&package.file);
        return status;
    }
    *out = package;
    return SN_OK;
}

void sn_package_close(sn_package *package) {
    sn_file_unmap(&package->file);
    *package = (sn_package){0};
}
