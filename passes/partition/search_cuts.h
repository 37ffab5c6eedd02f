// The cut of the chain of blocks into stages, for one candidate. Private to the search.
#pragma once
#include "passes/partition/search_stages.h"

// Cuts of about equal time; cut[stages] = n_blocks.
void sn_stages_even(const sn_stage_context *context, int *cut);
// The cut that minimises sum + weight * longest exactly. False when nothing fits. `work` counts stages looked at.
bool sn_stages_exact(const sn_stage_context *context, double weight, int *cut, long *work);
