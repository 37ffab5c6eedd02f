// What the memory of one device goes to. The search, the closed forms of published steps and the reports count in these
// classes.
#pragma once

// Bytes of one device.
typedef struct sn_memory {
    double parameters, gradients, optimizer;
    double activations; // saved for the backward pass, of all micro-batches in flight
    double working;     // alive inside one block: gradients of activations, logits, rematerialised values
    double buffers;     // of communication: gathered parameters, messages
} sn_memory;

static inline double sn_memory_total(const sn_memory *m) {
    return m->parameters + m->gradients + m->optimizer + m->activations + m->working + m->buffers;
}
