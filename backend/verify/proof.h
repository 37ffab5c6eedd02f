// Inside of verify-schedule: what its parts share.
#pragma once
#include "backend/verify/verify.h"

typedef struct sn_proof {
    const sn_schedules *all;
    sn_arena *arena;
    sn_findings *out;
    int told[SN_FINDING_COUNT];
} sn_proof;

// A place in the unrolled schedule.
typedef struct sn_proof_place {
    int64_t class;
    const sn_sequence *sequence;
    size_t run, instr;
} sn_proof_place;

// "gemm #12 of stage1.backward (/h.0/mlp/c_fc/MatMul <- autodiff), micro-batch 2, rank class 1". Lives in the arena.
const char *sn_proof_where(const sn_proof *proof, const sn_proof_place *place);
void sn_proof_tell(sn_proof *proof, sn_finding_kind kind, const char *format, ...) SN_PRINTF(3, 4);

// The program of a run.
static inline const sn_program *sn_proof_program(const sn_proof *proof, const sn_proof_place *place) {
    const sn_schedule *s = &proof->all->classes.items[place->class];
    return &s->programs.items[place->sequence->runs.items[place->run].program];
}

void sn_proof_memory(sn_proof *proof, int64_t class, const sn_sequence *sequence);
// All classes together, by the sequence's name.
void sn_proof_order(sn_proof *proof, const char *sequence);
