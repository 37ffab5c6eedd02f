// Kernels with one of everything kernel IR has. The tests of the evaluator, LLVM, NVRTC and the CUDA emulation share
// them.
#pragma once
#include "backend/kernel/kir.h"

#include <stddef.h>

// Builds a kernel for problem size n (1 … a few thousand).
typedef sn_kir *(*zoo_make)(int64_t n);

typedef struct zoo_entry {
    const char *name;
    zoo_make make;
    bool exact; // no sums whose order differs between targets: the same bits everywhere
} zoo_entry;

extern const zoo_entry zoo[];
extern const size_t zoo_count;

// Buffers for a kernel's parameters, filled with small varied numbers that depend on `seed` alone; integer buffers
// named "id…" hold indices below `n`.
void **zoo_buffers(const sn_kir *k, int64_t n, unsigned seed);
void zoo_free(const sn_kir *k, void **buffers);
// Fails the cmocka test when the buffers of `got` and `want` differ by more than the element type's rounding (exact: at
// all).
void zoo_compare(const sn_kir *k, void *const *got, void *const *want, bool exact);
