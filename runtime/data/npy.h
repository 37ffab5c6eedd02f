// NumPy's .npy files (format versions 1 to 3), mapped for reading. Little endian and C order only.
#pragma once
#include "base/dtype.h"
#include "base/file.h"
#include "base/status.h"

enum { SN_NPY_MAX_RANK = 8 };

typedef struct sn_npy {
    sn_mapped_file file;
    sn_dtype dtype;
    size_t rank;
    int64_t shape[SN_NPY_MAX_RANK];
    const void *data; // inside the map; may be unaligned
} sn_npy;

// Errors name the file and say what to do; a header that lies about the size is one.
SN_MUST_USE sn_status sn_npy_open(const char *path, sn_npy *out);
void sn_npy_close(sn_npy *npy);
