// The services that a plug-in's pass is handed: the table sennit_host over our IR.
#pragma once
#include "passes/pass.h"

#include "sennit/plugin.h"

// The table for one run of a pass; valid while `context` is.
sennit_host sn_plugin_host(sn_pass_context *context);
sennit_module *sn_plugin_module(sn_module *module);
