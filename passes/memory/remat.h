// Rematerialisation: what the backward pass computes again instead of having it kept.
#pragma once
#include "passes/partition/plan.h"
#include "passes/pass.h"

// Pointwise results and views of at least `smallest` bytes, where that costs no other value a longer life. `moves`: and
// what only moves elements, which library calls and kernels read in place; as a value that is kept from one function to
// another it would be a copy.
void sn_remat_free(sn_func *func, const sn_pass_context *context, int64_t smallest, bool moves);

typedef struct sn_remat_blocks {
    const int *block;     // by op mark: of forward ops; values between blocks are kept
    const sn_remat *mode; // by block
    const bool *anywhere; // by op mark, or NULL: ops that are made again wherever they are needed
} sn_remat_blocks;

// As a plan says, block by block. SN_REMAT_FULL: a block keeps what it reads and what others read of it;
// SN_REMAT_SELECTIVE: and results of contractions, attention and collectives. Leaves a remark with the bytes that are
// kept before and after. Marks must be the ops' places.
void sn_remat_planned(sn_func *func, sn_pass_context *context, const sn_remat_blocks *blocks);
