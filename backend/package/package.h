// The end of the pipeline: a module in sched form with its addresses becomes a train executable, one file, with a
// folder NAME.d beside it for people (plan.json, kernels as text).
#pragma once
#include "backend/package/schedule.h"
#include "passes/cost/cluster.h"
#include "passes/partition/plan.h"
#include "passes/plugin.h"

typedef struct sn_package_request {
    const char *path;   // of the executable
    const char *runner; // the file sennit-rank, of which it is a copy
    const sn_plan *plan;
    const sn_cluster *cluster; // that the report predicts a step on; NULL: ranks of this machine
    const sn_plugins *plugins; // with a cost model, perhaps; or NULL
    sn_schedule_request schedule;
} sn_package_request;

// False with diagnostics (E05xx); nothing is left half-written.
bool sn_package_build(sn_module *module, const sn_package_request *request, sn_diags *diags);

// Only the kernels' source as CUDA C, to `path`.
bool sn_package_cuda_source(const sn_module *module, const char *path, sn_diags *diags);
