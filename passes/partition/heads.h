// Heads on a tensor axis. Attention is cut by heads; where query heads share key/value heads, the query's dim is two
// factors (key heads, and the query heads that share one) and the keys have the outer one alone.
#pragma once
#include "ir/layout.h"

struct sn_diags;
struct sn_module;
struct sn_op;

// Of `tp` ranks, how many may cut the outer factor of an op's dims of two factors while the others cut the inner one;
// `tp` where the outer one takes all of them, or where that does not help.
int64_t sn_heads_ranks(const struct sn_op *op, int64_t tp);
int64_t sn_heads_common_divisor(int64_t a, int64_t b);
// Splits the axis `tp` of a mesh in `tp`, which cuts key heads, and inside of it `tp_q`, which cuts the query heads
// that share one, where the module (in graph form) has fewer key heads than the axis has ranks. The ranks stay in
// order.
void sn_heads_split_axis(const struct sn_module *module, sn_mesh *mesh);
// Warns (W0432) of tensor axes that leave attention whole because they do not divide its heads. The module is in dist
// form, its types whole.
void sn_heads_check(const struct sn_module *module, struct sn_diags *diags);
