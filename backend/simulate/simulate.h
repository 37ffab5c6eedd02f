// A plan's training step on the cost model: prices, replay, and what they add up to.
#pragma once
#include "backend/simulate/replay.h"

typedef struct sn_simulation {
    const sn_schedules *schedules;
    sn_prices prices;
    sn_replay replay;
    double outside; // seconds of a step that no program takes; a profile knows
} sn_simulation;

// `cores`: see sn_replay_request. False with E0516 when the schedules wait for each other forever.
bool sn_simulate(const sn_price_request *request, double cores, sn_arena *arena, sn_simulation *out);
void sn_simulation_free(sn_simulation *simulation);

// Cores that the ranks of a cluster share, node by node: of a profile, else of this machine for "local:N"; 0 where each
// rank has a device of its own.
double sn_simulate_cores(const sn_cluster *cluster, const struct sn_profile *profile);

// Bytes of one rank class.
typedef struct sn_class_memory {
    int64_t role[SN_RESIDENT_ROLE_COUNT];
    int64_t transient; // activations, gradients and inputs
    int64_t total;     // the arena
} sn_class_memory;
sn_class_memory sn_class_memory_of(const sn_schedule *schedule);
const char *sn_class_memory_name(sn_resident_role role); // "parameters"

// The replayed ranks' figures as a new JSON object.
json_t *sn_simulation_to_json(const sn_simulation *simulation);
// The same as text: the step, a line per class, the phases.
void sn_simulation_print(const sn_simulation *simulation, sn_str *out);
