// The train executable: a copy of `sennit-rank` with a payload behind it, found through a trailer at the file's end.
//
//   [sennit-rank] [schedule, JSON] [kernels, a shared object] [constants] [trailer]
#pragma once
#include "base/file.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sn_blob {
    const void *data;
    size_t bytes;
} sn_blob;

typedef struct sn_package {
    sn_blob schedule;    // text of runtime/schedule.h
    sn_blob kernels;     // ELF shared object exporting the schedule's kernel symbols (sn_kernel_function); may be empty
    sn_blob constants;   // what SN_INITIAL_PAYLOAD points into; may be empty
    sn_mapped_file file; // behind the blobs when the package was opened
} sn_package;

// Writes `path`, executable, whole or not at all: `runner` (a file, sennit-rank) followed by the package's blobs.
SN_MUST_USE sn_status sn_package_write(const sn_package *package, const char *runner, const char *path);
// Maps `path` and checks its trailer. "carries no training program" when there is none.
SN_MUST_USE sn_status sn_package_open(const char *path, sn_package *out);
void sn_package_close(sn_package *package);
