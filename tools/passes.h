// What commands that run passes share: the options of the pass manager, and the end of a command.
#pragma once
#include "passes/plugin.h"
#include "tools/options.h"

// From --passes, --start-from, --stop-after, --pass-limit, --dump-ir, --dump-dir and --time-passes.
sn_pipeline_options sn_command_pipeline(const sn_options *options);
// Loads the plug-ins of --plugin; NULL after errors. Free it with sn_plugins_free.
sn_plugins *sn_command_plugins(const sn_options *options, sn_diags *diags);
// Prints the diagnostics to stderr (remarks with --remarks) and frees them; the exit status is 1 when one is an error.
int sn_command_end(const sn_options *options, sn_diags *diags);
