// Checks that a module is well-formed: links and use lists, order of definitions and uses, operands, attributes, result
// types, layouts, and what its form allows.
#pragma once
#include "ir/graph.h"

// False when something is wrong; appends one line for each problem to `problems`, each naming function and op. Stops
// after 20.
bool sn_verify(const sn_module *module, sn_str *problems);
