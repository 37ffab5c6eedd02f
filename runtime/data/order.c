#include "runtime/data/order.h"

#include "base/philox.h"

// Numbers of the random streams, apart from those of dropout (small op numbers).
enum { STREAM_PERMUTATION = 0x5e9d0001, STREAM_WINDOW = 0x5e9d0002 };
enum { ROUNDS = 6 };

static uint32_t mix(uint64_t seed, uint64_t epoch, int round, uint32_t half) {
    uint32_t counter[4] = {half, (uint32_t)round, STREAM_PERMUTATION, (uint32_t)epoch};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ (uint32_t)(epoch >> 32)}, out[4];
    sn_philox4x32(counter, key, out);
    return out[0];
}

int64_t sn_order_permuted(uint64_t seed, uint64_t epoch, int64_t n, int64_t i) {
    int bits = 1; // of each half
    while (bits < 31 && (INT64_C(1) << 2 * bits) < n) bits++;
    uint32_t mask = (uint32_t)((UINT64_C(1) << bits) - 1);
    uint64_t x = (uint64_t)i;
    do {
        uint32_t left = (uint32_t)(x >> bits) & mask, right = (uint32_t)x & mask;
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t next = left ^ (mix(seed, epoch, round, right) & mask);
            left = right, right = next;
        }
        x = (uint64_t)left << bits | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t sn_order_uniform(uint64_t seed, uint64_t index, int64_t n) {
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), STREAM_WINDOW, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
    sn_philox4x32(counter, key, out);
    uint64_t bits = (uint64_t)out[0] << 32 | out[1];
    return (int64_t)((unsigned __int128)bits * (uint64_t)n >> 64);
}
