// Files: mapped for reading, and written whole or not at all.
#pragma once
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct sn_mapped_file {
    const uint8_t *data; // read-only, shared; NULL for an empty file
    size_t bytes;
} sn_mapped_file;

SN_MUST_USE sn_status sn_file_map(const char *path, sn_mapped_file *out);
void sn_file_unmap(sn_mapped_file *file);

// A file under a temporary name beside `path`; commit flushes to disk and renames, discard removes it. A failed write
// is reported by commit at the latest. What is no plain file (a pipe, /dev/null) is written in its place, and what a
// symbolic link leads to in the link's.
typedef struct sn_atomic_file {
    FILE *stream;
    char *path, *temporary; // no temporary: `path` itself is written
} sn_atomic_file;
SN_MUST_USE sn_status sn_atomic_open(const char *path, sn_atomic_file *out);
SN_MUST_USE sn_status sn_atomic_commit(sn_atomic_file *file); // closes it in any case
void sn_atomic_discard(sn_atomic_file *file);

SN_MUST_USE sn_status sn_file_write(const char *path, const void *data, size_t bytes); // atomically
SN_MUST_USE sn_status sn_make_directories(const char *path);                           // like mkdir -p
