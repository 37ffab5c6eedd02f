// Kernels to native code through LLVM. A kernel becomes
//     void NAME(void *const *buffers, int64_t block_begin, int64_t block_end)
// that runs the blocks [block_begin, block_end): the caller splits [0, grid) over threads, but runs a `one_thread`
// kernel on one. `buffers` holds one pointer per parameter, each aligned to its element type. Objects need libm.
#pragma once
#include "backend/kernel/kir.h"
#include "base/status.h"

#include <stddef.h>

typedef struct sn_llvm_options {
    const char *cpu;      // as `clang -mcpu=`; NULL: this machine's
    const char *features; // "+avx2,-avx512f": on top of cpu; NULL: none, or this machine's when cpu is NULL
    int level;            // 0 to 3; 0 asks for the default, 2
    int threads;          // that compile; 0: 2
} sn_llvm_options;

// Objects written for `n` kernels: one file per compile thread, path, path with ".1" before its extension, … . Appends
// the names of the files to `paths`, one a line. `options` may be NULL.
SN_MUST_USE sn_status sn_llvm_emit_objects(sn_kir *const *kernels, size_t n, const sn_llvm_options *options,
                                           const char *path, sn_str *paths);

typedef void (*sn_llvm_kernel)(void *const *buffers, int64_t block_begin, int64_t block_end);
typedef struct sn_llvm_jit sn_llvm_jit;
SN_MUST_USE sn_status sn_llvm_jit_open(sn_kir *const *kernels, size_t n, const sn_llvm_options *options,
                                       sn_llvm_jit **out);
sn_llvm_kernel sn_llvm_jit_find(sn_llvm_jit *jit, const char *name); // NULL when absent
void sn_llvm_jit_close(sn_llvm_jit *jit);
