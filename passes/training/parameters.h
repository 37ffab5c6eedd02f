// Which weights are trained, and why.
#pragma once
#include "base/diag.h"
#include "ir/graph.h"

typedef struct sn_parameter_rules {
    int n_frozen, n_trainable; // POSIX extended regular expressions, searched for in the weight's name
    const char *const *frozen, *const *trainable;
} sn_parameter_rules;

// Decides the role of every float weight that the loss can see, PARAMETER or FROZEN, and says why: `--trainable` and
// `--frozen` (which wins) come first; then what the importer marked PARAMETER stays so, less masks and scalars where
// the exporter left no mark of its own. A parameter from which no differentiable path leads to the loss is frozen, with
// one warning W0307 for all of them. False with errors: E0306 a broken expression or one that matches nothing, E0307
// nothing is left to train. `func` is a copy of the model with the loss; uses sn_value.id and sn_op.mark.
bool sn_parameters_decide(sn_module *module, sn_func *func, sn_value *loss, const sn_parameter_rules *rules,
                          sn_diags *diags);
