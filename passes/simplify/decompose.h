// Composite operators in operators that passes see through.
#pragma once
#include "passes/pass.h"

// States every cross_entropy as maxima and sums over its classes: in graph form, before the classes are cut.
void sn_decompose_cross_entropy(sn_module *module, sn_pass_context *context);
