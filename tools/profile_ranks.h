// What ranks of this machine take to communicate: the half of `sennit profile` that starts processes.
#pragma once
#include "base/diag.h"

#include <jansson.h>

// Runs a program of collectives and messages of many sizes on so many ranks, under the runtime itself, and reads its
// trace: adds to "collectives" and "step" of the profile and, for two ranks, sets "messages", "issue" and "run".
// `cores`: of the machine; ranks beyond them take turns, which a core of one's own would not have to. `folder` is for
// its files. False with an error in diags.
bool sn_profile_measure_ranks(int ranks, double cores, bool quick, const char *folder, sn_diags *diags,
                              json_t *profile);
