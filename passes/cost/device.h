// Kinds of devices: datasheet figures (devices.def) and the curves of their architecture (curves.def, which
// passes/cost/fit.py fits to published measurements). The curves belong to the cost model; others read the name, the
// memory and the peak.
#pragma once
#include "base/arena.h"
#include "ir/type.h"

// What a contraction runs at, by the element type of its operands.
typedef enum sn_rate { SN_RATE_F64, SN_RATE_F32, SN_RATE_TF32, SN_RATE_16, SN_RATE_8, SN_RATE_COUNT } sn_rate;

// How far an architecture stays below its datasheet. Efficiencies are fractions of the datasheet's figure.
typedef struct sn_curve {
    const char *name;
    // Contractions: cores work on tiles in waves; a tile of depth K takes the time of (K + ramp) steps.
    double tile_efficiency; // of the peak, inside a large tile
    double eight_bit;       // factor on that for 8-bit floats
    double tile_ramp;       // steps to fill and drain a tile's pipeline
    double small_tile;      // exponent: a tile of s times the largest's area runs at s^small_tile of its rate
    double misaligned;      // factor on the rate when a row is no multiple of 16 bytes
    double attention[2];    // of the peak, of fused attention written for the architecture: forwards, backwards
    double attention_early; // factor on it for kernels that were not (FlashAttention of 2022)
    double attention_ramp;  // keys that are worth the start of a row of scores
    // Memory-bound ops.
    double stream;     // of the memory bandwidth, of a kernel that streams
    double ramp_bytes; // bytes in flight before the bandwidth is reached
    double start;      // seconds a kernel takes at least
    // The host.
    double host_issue;    // seconds to issue one op of an eager framework
    double host_jitter;   // its relative spread: ranks that meet in a collective wait for the slowest
    double library_issue; // seconds a communication library adds to a collective
    double library_ramp;  // bytes that are worth filling a ring's links
    double workspace;     // bytes that libraries keep on the device
} sn_curve;

typedef struct sn_device_kind {
    const char *name;
    const sn_curve *curve;       // of its architecture
    double memory;               // bytes
    double flops[SN_RATE_COUNT]; // peak of dense contractions, per second; 0: it cannot
    double vector_flops;         // of the rest, per second
    double memory_bandwidth;     // bytes per second
    int cores;                   // SMs; of a CPU 1: a library runs it as one
} sn_device_kind;

const sn_device_kind *sn_device_kind_find(const char *name); // NULL when it is not known
const sn_device_kind *sn_device_kind_at(size_t index);       // NULL behind the last: for messages and tables
// The names, comma-separated, in scratch memory.
const char *sn_device_kind_names(sn_arena *scratch);
// What kinds of devices are compared by: the peak on the element type of the contractions. What several kinds do
// together takes as long as with the slowest alone.
double sn_device_pace(const sn_device_kind *device);
