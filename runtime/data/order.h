// The order in which samples are taken: functions of (seed, position) alone, so that any rank finds any sample without
// talking to the others, and a resumed run continues where it was.
#pragma once
#include <stdint.h>

// Where position `i` of epoch `epoch` lies in a random permutation of [0, n); n >= 1. A Feistel network over the next
// power of four, walked along its cycles until it lands below n (Black and Rogaway, "Ciphers with arbitrary finite
// domains", 2002, section 4).
int64_t sn_order_permuted(uint64_t seed, uint64_t epoch, int64_t n, int64_t i);

// Uniform in [0, n) for sample `index` of the whole run; n >= 1.
int64_t sn_order_uniform(uint64_t seed, uint64_t index, int64_t n);
