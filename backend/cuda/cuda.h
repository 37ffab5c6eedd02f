// Kernels to CUDA C. A kernel becomes `extern "C" __global__ void NAME(params…)`, to be launched with `grid` blocks of
// `threads`; when its scratch does not fit shared memory a last parameter `unsigned char *workspace` of
// grid * sn_cuda_workspace(k) bytes follows.
#pragma once
#include "backend/kernel/kir.h"
#include "base/status.h"

#include <stddef.h>

// Appends a whole source file: the prelude, the math functions that are used, the kernels. Stable from run to run.
void sn_cuda_print(sn_kir *const *kernels, size_t n, sn_str *out);
int64_t sn_cuda_workspace(const sn_kir *k); // bytes per block; 0 when the scratch is in shared memory
// Compiles with NVRTC, found by dlopen at run time (SENNIT_NVRTC names the file, else libnvrtc.so.13). `arch` is
// "sm_90" or the like. The compiler's log goes to `log`, the cubin (may be NULL) to `cubin`. A status when NVRTC is
// absent or refuses.
SN_MUST_USE sn_status sn_nvrtc_compile(const char *source, const char *arch, sn_str *log, sn_str *cubin);
bool sn_nvrtc_available(void);
