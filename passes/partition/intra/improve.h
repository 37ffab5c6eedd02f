// Large neighbourhood search: one part of the network after another is solved with the rest fixed.
#pragma once
#include "passes/partition/intra/core.h"

typedef struct sn_improver sn_improver;

// Starts from a choice. One that exceeds the limits is led back into them first; the excess never rises, and neither
// does the cost once it is zero.
sn_improver *sn_improver_new(const sn_core *core, const int *values, uint64_t seed);
void sn_improver_free(sn_improver *improver);
// Prices of memory, by peak of the network, from which neighbourhoods start.
void sn_improver_set_prices(sn_improver *improver, const double *price);
// One neighbourhood. Returns its work.
uint64_t sn_improver_step(sn_improver *improver);

const int *sn_improver_values(const sn_improver *improver);
int64_t sn_improver_cost(const sn_improver *improver);
int64_t sn_improver_excess(const sn_improver *improver); // the largest over the peaks
