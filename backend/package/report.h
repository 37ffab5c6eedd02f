// report.html: what was compiled, for people. One self-contained page, light and dark.
#pragma once
#include "base/str.h"
#include "runtime/schedule.h"

void sn_report_write(const sn_schedule *schedule, sn_str *out);
