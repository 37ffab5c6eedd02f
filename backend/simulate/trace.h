// Timelines as Chrome trace events (docs/trace.md), which ui.perfetto.dev and chrome://tracing open: a process per
// rank, a thread per stream. The measured trace of a run (`--trace`) goes into the same file beside the prediction.
#pragma once
#include "backend/simulate/simulate.h"

// A new list of events of the prediction: processes "predicted rank N (…)", pid 2 N, times from the step's start.
json_t *sn_simulation_trace(const sn_simulation *simulation);
// Adds one step of a measured trace to `events`: processes "measured rank N (…)", pid 2 N + 1, times from that step's
// start. Of the steps there are it takes the one of median length. False with E0829 when `measured` is no trace.
bool sn_trace_add_measured(json_t *events, const json_t *measured, const char *subject, sn_diags *diags);
