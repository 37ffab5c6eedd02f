// verify-schedule: a proof about the schedules of all rank classes, made before anything runs. It knows the schedule's
// meaning (runtime/schedule.h) and nothing of the passes that made it.
//
//   memory   any two accesses to overlapping bytes, one of them a write, are ordered by streams and events; every byte
//            that is read was written, through the buffer that it is read by, in the same micro-batch
//   order    members of a group issue the same collectives in the same order; every send meets its receive
//   progress no wait is in vain: blocking receives, collectives and events on all streams of all classes
//   bytes    every buffer lies within the arena, and the arena within what a device may hold
//
// What is found is a bug of ours: the compiler stops with it (SN_BUG); `sennit prove` reports it.
#pragma once
#include "base/vec.h"
#include "runtime/schedule.h"

typedef enum sn_finding_kind {
    SN_FINDING_MALFORMED, // sn_schedules_check refuses it
    SN_FINDING_RACE,      // two accesses without an order
    SN_FINDING_OVERLAP,   // operands of one instruction lie in each other
    SN_FINDING_UNWRITTEN, // a read of what nobody wrote
    SN_FINDING_CLOBBERED, // a read of what another buffer or micro-batch wrote there
    SN_FINDING_CONSTANT,  // a write to what never changes
    SN_FINDING_EVENT,     // waited for and not recorded, or recorded twice
    SN_FINDING_MISMATCH,  // collectives or transfers that meet and differ
    SN_FINDING_UNMATCHED, // a send that nobody receives
    SN_FINDING_DEADLOCK,
    SN_FINDING_MEMORY, // more bytes than promised
    SN_FINDING_COUNT
} sn_finding_kind;

typedef struct sn_finding {
    sn_finding_kind kind;
    const char *text; // names the instruction, its ONNX node, micro-batch and rank class; in the arena
} sn_finding;
typedef SN_VEC(sn_finding) sn_findings;

const char *sn_finding_name(sn_finding_kind kind); // "race"

// Appends what is wrong to `out`, at most a few of each kind; nothing is appended when the schedules are sound.
// `memory_bytes`: what a device may hold; 0: no limit.
void sn_schedules_verify(const sn_schedules *schedules, int64_t memory_bytes, sn_arena *arena, sn_findings *out);
