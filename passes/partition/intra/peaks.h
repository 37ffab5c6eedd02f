// Which peaks of a reduced network can bind.
#pragma once
#include "passes/partition/intra/core.h"

// Drops the peaks whose capacity no choice exceeds and those where, beside a neighbouring peak, every value uses no
// more and there is no less capacity; terms that cannot be told apart any more become one.
void sn_core_drop_peaks(sn_core *core);
