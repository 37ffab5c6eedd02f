// The replay of a training step: the schedules of all rank classes, with every stream, collective, message and
// micro-batch, on the event engine. It runs what the runtime runs (runtime/exec), in the same order.
#pragma once
#include "backend/simulate/price.h"
#include "passes/simulate/engine.h"

typedef struct sn_replay_request {
    const sn_schedules *schedules;
    const sn_prices *prices;
    const sn_cluster *cluster;
    double cores;         // of a node whose ranks share its cores; 0: each rank has its device
    double turn, sharing; // passes/simulate/engine.h
    const char *sequence; // "step"
    bool by_class;        // one rank of each class alone, however few there are
} sn_replay_request;

// A task of the engine: an instruction of a rank, or a message on its way (instr -1).
typedef struct sn_replay_task {
    int rank; // index into `ranks`
    int program, instr, micro_batch;
} sn_replay_task;

// Seconds of one rank; compute + communication + waiting = the step.
typedef struct sn_replay_rank {
    int64_t rank, rank_class;
    double compute;                  // its device works
    double communication;            // exposed: its device has nothing to do but communication of its own
    double waiting;                  // the bubble: for other ranks, before, between and after
    double phase[SN_PHASE_COUNT][2]; // work and communication by phase
    int stream[SN_STREAM_COUNT];     // of the engine
} sn_replay_rank;

typedef struct sn_replay {
    double seconds;
    sn_sim *sim;
    sn_replay_task *tasks; // by the engine's tasks
    size_t n_ranks;        // all, or the first one of each class where all would be too many
    sn_replay_rank *ranks;
    bool whole; // all ranks
} sn_replay;

// False when the ranks would wait for each other forever; `stuck` then says where the first one stands.
bool sn_replay_run(const sn_replay_request *request, sn_arena *arena, sn_replay *out, sn_str *stuck);
void sn_replay_free(sn_replay *replay);
