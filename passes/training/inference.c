// inference: keeps the model's forward function alone.
//
//   func @main(%x) -> logits   =>   @predict      (from @infer, when the importer made one without dropout)
#include "passes/pass.h"
#include "passes/training/clone.h"

static void run(sn_module *module, sn_pass_context *context) {
    sn_func *main = sn_module_func(module, "main"), *infer = sn_module_func(module, "infer");
    if (!main) {
        sn_error(context->diags, "E0300", NULL, "begin with an imported model", "there is no function @main to run");
        return;
    }
    sn_func *predict = sn_func_clone(module, infer ? infer : main, "predict", false);
    sn_func_prune(predict);
    if (infer) sn_module_remove_func(module, infer);
    sn_module_remove_func(module, main);
}

const sn_pass sn_pass_inference = {
    .name = "inference",
    .summary = "keep the model's forward function, as @predict",
    .forms = 1u << SN_FORM_GRAPH,
    .result = SN_FORM_GRAPH,
    .run = run,
};
