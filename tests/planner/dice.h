// Small random numbers, the same on every run.
#pragma once
#include <stdint.h>

static uint64_t dice_state = 1;

// 0 .. below - 1
static inline int dice(int below) {
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((dice_state >> 33) % (uint64_t)below);
}
