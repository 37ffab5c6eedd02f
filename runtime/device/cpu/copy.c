// Strided copies and fills.
#include "runtime/device/cpu/cpu.h"

#include <omp.h>
#include <string.h>

// Drops dimensions of size 1 and joins neighbours that are one dimension on both sides.
static void simplify(sn_do_copy *c) {
    int64_t rank = 0;
    for (int64_t i = 0; i < c->rank; i++) {
        if (c->dims[i] == 1) continue;
        bool joins = rank && c->from_stride[rank - 1] == c->dims[i] * c->from_stride[i] &&
                     c->to_stride[rank - 1] == c->dims[i] * c->to_stride[i];
        if (joins) {
            c->dims[rank - 1] *= c->dims[i];
        } else {
            c->dims[rank++] = c->dims[i];
        }
        c->from_stride[rank - 1] = c->from_stride[i], c->to_stride[rank - 1] = c->to_stride[i];
    }
    c->rank = rank;
}

static void copy_row(const char *from, int64_t from_stride, char *to, int64_t to_stride, int64_t n, int64_t size) {
    if (from_stride == 1 && to_stride == 1) {
        memcpy(to, from, (size_t)(n * size));
    } else if (size == 4) {
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_stride * 4, from + i * from_stride * 4, 4);
    } else {
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_stride * size, from + i * from_stride * size, (size_t)size);
    }
}

enum { WORTH_THREADS = 1 << 16 }; // bytes

void sn_cpu_copy(const sn_do_copy *copy, const void *from, void *to, int threads) {
    sn_do_copy c = *copy;
    for (int64_t i = 0; i < c.rank; i++) {
        if (c.dims[i] == 0) return;
    }
    simplify(&c);
    int64_t size = (int64_t)sn_dtype_bytes(c.dtype), last = c.rank - 1, rows = 1;
    if (c.rank == 0) {
        memcpy(to, from, (size_t)size);
        return;
    }
    for (int64_t i = 0; i < last; i++) rows *= c.dims[i];
    bool dense = c.rank == 1 && c.from_stride[0] == 1 && c.to_stride[0] == 1 && c.dims[0] * size > WORTH_THREADS;
    if (dense && threads > 1) { // one long row: cut it
        c.rank = 2, last = 1, rows = threads;
        int64_t part = c.dims[0] / threads, rest = c.dims[0] - part * threads;
        memcpy((char *)to + (c.dims[0] - rest) * size, (const char *)from + (c.dims[0] - rest) * size,
               (size_t)(rest * size));
        c.dims[0] = threads, c.dims[1] = part;
        c.from_stride[0] = c.to_stride[0] = part, c.from_stride[1] = c.to_stride[1] = 1;
    }
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows > 1 && rows * c.dims[last] * size > WORTH_THREADS)
    for (int64_t row = 0; row < rows; row++) {
        int64_t index = row, a = 0, b = 0;
        for (int64_t i = last - 1; i >= 0; i--) {
            a += index % c.dims[i] * c.from_stride[i], b += index % c.dims[i] * c.to_stride[i];
            index /= c.dims[i];
        }
        copy_row((const char *)from + a * size, c.from_stride[last], (char *)to + b * size, c.to_stride[last],
                 c.dims[last], size);
    }
}

void sn_cpu_fill(const sn_do_fill *fill, void *to, int threads) {
    int64_t size = (int64_t)sn_dtype_bytes(fill->dtype), count = fill->count;
    uint64_t pattern = 0;
    sn_store_f64(fill->dtype, &pattern, 0, fill->value);
    int64_t part = (count + threads - 1) / threads;
#pragma omp parallel for num_threads(threads) if (threads > 1 && count * size > WORTH_THREADS)
    for (int t = 0; t < threads; t++) {
        int64_t begin = t * part, end = begin + part < count ? begin + part : count;
        char *at = (char *)to;
        if (begin >= end) continue;
        if (pattern == 0) {
            memset(at + begin * size, 0, (size_t)((end - begin) * size));
            continue;
        }
        for (int64_t i = begin; i < end; i++) memcpy(at + i * size, &pattern, (size_t)size);
    }
}
