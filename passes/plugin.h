// Loads plug-ins: shared objects with passes or a cost model, written against include/sennit/plugin.h. What is wrong
// with one is an error (E0821 to E0828, E0832) that names its file.
#pragma once
#include "passes/pass.h"

#include "sennit/plugin.h"

typedef struct sn_plugins sn_plugins;

sn_plugins *sn_plugins_new(void);
// Opens one more, unless it is open. False after an error in `diags`; the plug-ins loaded before stay.
bool sn_plugins_load(sn_plugins *plugins, const char *path, sn_diags *diags);
// Frees the tables; the shared objects stay mapped, because passes may be referred to until the process ends.
void sn_plugins_free(sn_plugins *plugins);

const sn_pass *sn_plugins_pass(const sn_plugins *plugins, const char *name); // NULL when none has it
size_t sn_plugins_pass_count(const sn_plugins *plugins);
const sn_pass *sn_plugins_pass_at(const sn_plugins *plugins, size_t index);
// Asks the cost model of the plug-in loaded last that has one: `seconds` holds the answers so far, one per query, then
// the plug-in's. False, with `seconds` to be dropped, when none answers, or after an error in `diags` (E0827) for an
// answer that is no time; that plug-in is not asked again. `plugins` may be NULL.
bool sn_plugins_cost_ops(const sn_plugins *plugins, const sennit_cost_query *queries, size_t count, double *seconds,
                         sn_diags *diags);
bool sn_plugins_cost_collectives(const sn_plugins *plugins, const sennit_collective_query *queries, size_t count,
                                 double *seconds, sn_diags *diags);
