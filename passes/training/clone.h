// Copies of a model's function, from which the functions of training are made.
#pragma once
#include "ir/graph.h"

// A new function of the module with the arguments, ops and results of `from`. Without `effects`, assign ops are left
// out.
sn_func *sn_func_clone(sn_module *module, const sn_func *from, const char *name, bool effects);
// Removes ops that no result and no effect needs, then arguments that no one reads; those whose names begin with '$'
// come last.
void sn_func_prune(sn_func *func);
