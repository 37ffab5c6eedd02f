// Reverse-mode differentiation on the graph: appends the ops that compute gradients of one scalar.
#pragma once
#include "base/diag.h"
#include "ir/build.h"

// What an operator means to differentiation.
typedef enum sn_gradient_kind {
    SN_GRADIENT_NONE, // has no gradient here: on a path from a wanted value to the loss it is the user's error
    SN_GRADIENT_RULE, // a rule states it
    SN_GRADIENT_ZERO, // zero wherever it exists (steps, comparisons, generators): paths end here
} sn_gradient_kind;
sn_gradient_kind sn_gradient_kind_of(sn_op_kind kind);

// Writes to `gradients` the gradient of `loss` (a float value with one element, of b->func) with respect to each wanted
// value (globals, arguments or results), of the wanted value's type; NULL where no differentiable path leads to the
// loss. The new ops are inserted at the builder's point, which must come after the loss, with phase BACKWARD and
// origins "<node> <- autodiff"; the builder's origin and phase are kept. Kinks take PyTorch's subgradients: 0 for relu
// and abs at 0, equal shares among equal maxima, halves for max(x, y) at x = y, and the whole gradient where y is a
// number (clamp). Returns false after an error in `diags` for each op on a path that has no gradient. Uses sn_value.id
// and sn_op.mark.
bool sn_differentiate(sn_builder *b, sn_value *loss, int n_wanted, sn_value *const *wanted, sn_value **gradients,
                      sn_diags *diags);

// For the deciding of what to train: reached[i] says whether a differentiable path leads from the module's global i to
// the loss. `reached` has module->globals.count elements. Uses sn_value.id and sn_op.mark.
void sn_find_reached(sn_func *func, sn_value *loss, bool *reached);
