// Loads plug-ins: shared objects with passes or a cost model, written against include/sennit/plugin.h.
#pragma once
#include "passes/pass.h"

typedef struct sn_plugins sn_plugins;

const sn_pass *sn_plugins_pass(const sn_plugins *plugins, const char *name); // NULL when none has it
