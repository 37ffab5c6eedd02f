// Sched form: ops become kernels, library calls stay.
#pragma once
#include "passes/pass.h"

void sn_fuse_function(sn_func *func, const sn_pass_context *context, sn_map *bodies);
// Replaces a reduction to few elements by two, so that several blocks share the first.
void sn_split_reductions(sn_func *func);
// Stored values that one value of a kernel is put together from at most, without arithmetic in between.
enum { SN_MAX_CONE = 128 };
// Stores parts of what would be put together from more.
void sn_split_concats(sn_func *func);
