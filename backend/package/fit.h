// Whether what ranks hold is what the plan promises and what their devices have.
#pragma once
#include "backend/package/schedule.h"
#include "passes/cost/cluster.h"
#include "passes/partition/plan.h"

// A plan that was searched for says what a device will hold; the arenas say what it does hold: W0512.
void sn_fit_check_promise(const sn_schedules *schedules, const sn_plan *plan, const char *subject, sn_diags *diags);
// What a class needs must fit on each device that runs it: E0517, or as a warning W0517.
void sn_fit_check_devices(const sn_schedules *schedules, const sn_cluster *cluster, const char *subject, bool warn,
                          sn_diags *diags);
