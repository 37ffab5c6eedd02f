// What a plan's own instructions take on this machine: the part of `sennit profile` that is given plans.
#pragma once
#include "backend/lower/kernels.h"

#include <jansson.h>

// Adds the instructions of a plan's training step to an empty object in the form of the profile's "instructions": each
// rank class's step is run for `seconds`, without its communication; with more ranks than one, by as many processes,
// where the time is that of the slowest. `sharing`: the profile's, which is taken out of what was measured where ranks
// take turns on the cores.
SN_MUST_USE sn_status sn_profile_measure_plan(const sn_schedules *schedules, const sn_kernels *kernels, double sharing,
                                              double seconds, json_t *instructions);
