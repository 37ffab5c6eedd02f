// training: makes the training step, evaluation and prediction from the model's function.
//
//   func @main(%x) -> logits   =>   @step, @eval, @predict (passes/training/training.h)
#include "passes/pass.h"
#include "passes/training/training.h"

static void run(sn_module *module, sn_pass_context *context) {
    sn_training otherwise = sn_training_default();
    if (!sn_module_func(module, "main")) {
        sn_error(context->diags, "E0300", NULL,
                 "begin with an imported model, or leave this pass out with --start-from",
                 "there is no function @main to train");
        return;
    }
    (void)sn_training_build(module, context->training ? context->training : &otherwise, context->diags);
}

const sn_pass sn_pass_training = {
    .name = "training",
    .summary = "differentiate the loss and make the training step",
    .forms = 1u << SN_FORM_GRAPH,
    .result = SN_FORM_GRAPH,
    .run = run,
};
