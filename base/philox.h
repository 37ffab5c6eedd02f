// Philox4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
// section 5.3). Random numbers are a function of (seed, step, op, global element index) alone, so they do not depend on
// how a program is split over ranks.
#pragma once
#include <stdint.h>

void sn_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

// The 32 random bits of element `index` of random op `op` in step `step`: counter = {index/4 lo, index/4 hi, op, step},
// key = {seed lo, seed hi}, word index % 4. Kernel IR has the same function as an intrinsic.
uint32_t sn_random_bits(uint64_t seed, uint32_t step, uint32_t op, uint64_t index);
// Uniform in [0, 1): the upper 24 bits times 2^-24.
float sn_random_uniform(uint64_t seed, uint32_t step, uint32_t op, uint64_t index);
