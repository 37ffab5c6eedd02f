// From a forward model to its training step: @main (and @infer, when the importer made one with dropout and batch norm
// in inference mode) become
//
//   @step            accumulate == 1: forward, backward, update. Arguments: the inputs and the target, then "$step"
//                    i64[] (1-based), "$seed" i64[], "$lr" f32[]; results "loss" f32[] (before the update),
//                    "grad_norm" f32[] (before clipping)
//   @micro, @update  accumulate == K > 1, or splits: @micro runs forward and backward on a K-th of the batch and adds
//   to the
//                    gradient accumulators (globals NAME.grad, "loss.sum" and "loss.count"; zero at first); results
//                    "loss" of this part. @update, after K of them, has the arguments "$step" and "$lr" and the results
//                    of @step, updates, and sets the accumulators back to zero. Where the loss is a mean over labels or
//                    elements the result is that of the whole batch exactly (sums and counts are accumulated apart),
//                    for any other loss it is the mean of the parts' losses. For dropout to differ between the parts,
//                    pass $step = (step - 1) K + part (1-based) to @micro.
//   @eval            the inputs and the target; result "loss"
//   @predict         the inputs; results: the model's outputs
//   @gradients       when asked for: like @step without the update; results "loss" and "grad:NAME" for each parameter.
//                    With @micro: to be run in @update's place; the results are those of the whole batch, the
//                    accumulators go back to zero, and nothing else changes
//
// A function only takes the arguments it uses. Running statistics are assigned in @step and @micro alone.
#pragma once
#include "passes/training/optimizer.h"
#include "passes/training/parameters.h"

typedef struct sn_training {
    const char *loss; // as sn_loss_build takes it; NULL: the model's own
    int64_t ignore_index;
    sn_optimizer optimizer;
    double clip;    // largest global norm of the gradients, as PyTorch's clip_grad_norm_; 0: no clipping
    int accumulate; // micro-batches per update, >= 1
    bool splits;    // makes @micro and @update of one micro-batch, too: pipeline stages run them apart
    sn_parameter_rules parameters;
    int n_paddings; // as sn_padding_mark takes them
    const char *const *paddings;
    bool with_gradients;
} sn_training;

// AdamW with its defaults, ignore_index -100, no clipping, no accumulation.
sn_training sn_training_default(void);

// Replaces @main and @infer. False with errors in diags (the module is then of no further use): see loss.h,
// parameters.h and differentiate.h.
bool sn_training_build(sn_module *module, const sn_training *training, sn_diags *diags);
