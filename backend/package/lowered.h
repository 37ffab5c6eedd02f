// Whether a module is what a schedule is made of: a pipeline may end early, or leave passes out.
#pragma once
#include "ir/graph.h"

// In sched form, every op a kernel, a library call, a collective or the like, every value that they touch at an address
// and in strides that they take. The default pipeline leaves no other.
bool sn_module_is_lowered(const sn_module *module);
