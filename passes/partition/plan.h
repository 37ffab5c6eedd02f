// The plan: what partition decided, as data. Later passes read it and decide nothing themselves. plan.json is written
// for people, can be edited, and is read back with --plan.
#pragma once
#include "base/diag.h"
#include "base/status.h"
#include "ir/layout.h"

#include <jansson.h>

typedef struct sn_plan {
    sn_mesh mesh;                  // axes in the order outer to inner; size-1 axes may be left out
    int microbatches;              // per update; 1 without accumulation
    uint64_t model_hash;           // of the graph form and its global shapes: a plan is refused for another model
    double predicted_step_seconds; // 0 when nothing was predicted
} sn_plan;

int sn_plan_ranks(const sn_plan *plan);
// Data parallelism over `ranks` ranks.
sn_plan sn_plan_data_parallel(int ranks, int microbatches);
// A new reference to a JSON object, and back. Reading checks everything and reports errors about `subject`.
json_t *sn_plan_to_json(const sn_plan *plan);
bool sn_plan_from_json(const json_t *json, const char *subject, sn_diags *diags, sn_plan *out);
uint64_t sn_plan_hash(const sn_plan *plan);
