// report.html: what was compiled and what it is expected to do, for people. One self-contained page, light and dark.
#pragma once
#include "backend/simulate/simulate.h"
#include "passes/partition/plan.h"

typedef struct sn_report {
    const sn_plan *plan;
    const sn_schedules *schedules;
    const sn_simulation *simulation; // of a step; NULL: none (a program that does not train)
    const char *cluster;             // what it was simulated on
} sn_report;

void sn_report_write(const sn_report *report, sn_str *out);
