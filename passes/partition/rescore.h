// The last word on the best candidates of the search: their pipelines are replayed pass by pass. The search compares
// closed forms, which are exact for even stages and a bound for others (an early slow stage, an uneven interleaving),
// and which err in different directions for different schedules.
#pragma once
#include "passes/partition/search.h"

// How far from the best closed form a schedule's best candidate is given stages and replayed.
#define SN_WORTH_REPLAYING 1.05

// `list` is in rising order of the closed form (`step`), what fits first. Sets `replayed` of the first few that have
// stages and fit, of the first of each schedule, and of all (up to a fixed number) whose closed form is less than that
// of the one that replays fastest. Returns the index of that one; n when nothing has stages and fits. Replays of more
// than a fixed number of passes are left out (replayed 0): the pipeline is then so long that its closed form is all
// that counts.
size_t sn_search_rescore(const sn_search_request *request, int64_t devices, sn_candidate *list, size_t n);
