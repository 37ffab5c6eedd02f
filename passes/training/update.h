// Inside of passes/training: the part of a step that follows the gradients.
#pragma once
#include "passes/training/loss.h"
#include "passes/training/optimizer.h"

typedef struct sn_update {
    const sn_optimizer *optimizer;
    double clip;
    int n;
    sn_global **parameters; // n
    sn_value **gradients;   // n, of the function at hand
} sn_update;

// Completes @step: norm, clipping, updates, the arguments "$step" and "$lr" and the result "grad_norm".
void sn_update_build(sn_update *u, sn_func *step);
// Completes @micro, which has gradients of the loss's sum, with accumulators, and makes @update and, when asked,
// @gradients.
void sn_update_build_accumulated(sn_update *u, sn_func *micro, const sn_loss *loss, bool with_gradients);
