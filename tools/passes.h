// What commands that run passes share: the options of the pass manager, and the end of a command.
#pragma once
#include "passes/pass.h"
#include "tools/options.h"

// From --passes, --start-from, --stop-after, --pass-limit, --dump-ir, --dump-dir and --time-passes.
sn_pipeline_options sn_command_pipeline(const sn_options *options);
// Prints the diagnostics to stderr (remarks with --remarks) and frees them; the exit status is 1 when one is an error.
int sn_command_end(const sn_options *options, sn_diags *diags);
