// What a plan was made from, as options: a plan is good for the shapes and the training step that it was made for, so
// they need not be said again beside --plan.
#pragma once
#include "base/diag.h"
#include "base/options.h"

// The options with those that "made_from" of the plan of --plan records: what decides the model's shapes and the
// training step (--dim, --loss, …), and, with `all`, the cluster and whatever else. An option that is given keeps its
// value; where that makes another model or step of it, E0455 names both. NULL after an error; else `options` itself or
// a copy in the diags' arena. A plan that is not readable is whoever reads it next's to report.
const sn_options *sn_plan_options(const sn_options *options, bool all, sn_diags *diags);
