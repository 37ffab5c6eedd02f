// What commands that run passes share: the options of the pass manager, and plug-ins.
#pragma once
#include "passes/plugin.h"
#include "tools/options.h"

// From --passes, --start-from, --stop-after, --pass-limit, --dump-ir, --dump-dir and --time-passes.
sn_pipeline_options sn_command_pipeline(const sn_options *options);
// Loads the plug-ins of --plugin; NULL after errors. Free it with sn_plugins_free.
sn_plugins *sn_command_plugins(const sn_options *options, sn_diags *diags);
