// The last word on the best candidates of the search: their pipelines are replayed pass by pass. The search compares
// closed forms, which are exact for even stages and a bound for others (an early slow stage, an uneven interleaving).
#pragma once
#include "passes/partition/search.h"

// Sets `replayed` of the best candidate and of the runners-up that have stages, and swaps the best with the runner-up
// that replays fastest, if one does. For SN_OBJECTIVE_STEP and a feasible result. Replays of more than a fixed number
// of passes are left out (replayed 0): the pipeline is then so long that its closed form is all that counts.
void sn_search_rescore(const sn_search_request *request, int64_t devices, sn_search_result *result);
