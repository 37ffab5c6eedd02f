// Times of groups and parameters that were asked for before: most settings cut most groups alike, links do not change
// what a kernel takes, and parameters know nothing of the micro-batch. Private to the evaluator's files.
#pragma once
#include "passes/partition/evaluate_local.h"

#include "base/vec.h"

// Everything that tells two questions apart; made of whole words, for hashing.
typedef struct sn_times_key {
    const void *device;
    const void *what[2 + SN_AXIS_KINDS]; // the group and its strategies; the parameter and the list of ops
    int64_t parts[SN_AXIS_KINDS], cut[SN_AXIS_KINDS];
} sn_times_key;

typedef struct sn_known_times {
    sn_times_key key;
    bool divides;
    sn_group_seconds seconds; // of a parameter: forward
} sn_known_times;

// Zero-initialise. Of one model; cost models differ in the device alone.
typedef struct sn_times {
    SN_VEC(sn_known_times) known;
    uint32_t *slots; // index + 1 into known, 0 when empty
    size_t n_slots;  // a power of two
} sn_times;
void sn_times_free(sn_times *times);

// As sn_group_local_seconds and sn_parameter_local_seconds.
bool sn_times_group(sn_times *times, const sn_cost_model *model, const sn_op_group *group, const bool *weight_only,
                    const sn_group_cut *cut, sn_arena *scratch, sn_group_seconds *out);
double sn_times_parameter(sn_times *times, const sn_cost_model *model, const sn_global *parameter, int n,
                          sn_op *const *ops, const sn_cut cuts[SN_AXIS_KINDS], const int64_t parts[SN_AXIS_KINDS],
                          sn_arena *scratch);
