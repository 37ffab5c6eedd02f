// Published training steps: what a row of steps_*.csv says, as a cluster, a transformer, its degrees and its software.
#pragma once
#include "micro.h"
#include "passes/cost/transformer.h"

// False where the row leaves out what a plan needs, or has a device or a number format that the cost model has not.
bool steps_predict(const csv_row *row, micro_adjust adjust, void *user, sn_step *out);
