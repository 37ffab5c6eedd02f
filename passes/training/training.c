#include "passes/training/training.h"

#include "passes/autodiff/differentiate.h"
#include "passes/training/clone.h"
#include "passes/training/loss.h"
#include "passes/training/padding.h"
#include "passes/training/update.h"

#include <string.h>

sn_training sn_training_default(void) {
    return (sn_training){.ignore_index = -100, .optimizer = sn_optimizer_default(SN_OPTIMIZER_ADAMW), .accumulate = 1};
}

static sn_builder at_end(sn_func *func, const char *origin) {
    const sn_origin *from = origin ? sn_origin_new(func->module, origin, NULL) : NULL;
    return (sn_builder){.func = func, .origin = from};
}

// A copy of the model with its loss; the model's outputs are dropped.
static sn_func *with_loss(sn_module *module, const sn_func *model, const char *name, bool effects,
                          const sn_training *training, sn_diags *diags, sn_loss *loss) {
    sn_func *func = sn_func_clone(module, model, name, effects);
    sn_builder b = at_end(func, "loss");
    if (!sn_loss_build(&b, training->loss, training->ignore_index, diags, loss)) return NULL;
    func->results.count = func->result_names.count = 0;
    return func;
}

static void return_loss(sn_func *func, sn_value *loss) {
    sn_builder b = at_end(func, "loss");
    sn_func_add_result(func, sn_build_cast(&b, loss, SN_F32), "loss");
}

static int collect_parameters(sn_module *module, sn_global **out) {
    int n = 0;
    for (size_t i = 0; i < module->globals.count; i++)
        if (module->globals.data[i]->role == SN_ROLE_PARAMETER) out[n++] = module->globals.data[i];
    return n;
}

static bool differentiate(sn_func *func, sn_value *of, sn_update *u, sn_diags *diags) {
    sn_builder b = at_end(func, NULL);
    sn_value **wanted = sn_alloc(sizeof *wanted * (size_t)(u->n + 1));
    for (int i = 0; i < u->n; i++) wanted[i] = u->parameters[i]->value;
    bool fine = sn_differentiate(&b, of, u->n, wanted, u->gradients, diags);
    sn_free(wanted);
    return fine;
}

static bool add_gradients(sn_module *module, const sn_func *model, const sn_training *training, sn_update *u,
                          sn_diags *diags) {
    sn_loss loss;
    sn_func *func = with_loss(module, model, "gradients", false, training, diags, &loss);
    if (!func || !differentiate(func, loss.value, u, diags)) return false;
    return_loss(func, loss.value);
    for (int i = 0; i < u->n; i++) {
        const char *name = sn_arena_printf(&module->arena, "grad:%s", u->parameters[i]->name);
        sn_func_add_result(func, u->gradients[i], name);
    }
    sn_func_prune(func);
    return true;
}

static bool add_eval_and_predict(sn_module *module, const sn_func *model, const sn_training *training,
                                 sn_diags *diags) {
    sn_loss loss;
    sn_func *eval = with_loss(module, model, "eval", false, training, diags, &loss);
    if (!eval) return false;
    return_loss(eval, loss.value);
    sn_func_prune(eval);
    sn_func_prune(sn_func_clone(module, model, "predict", false));
    return true;
}

static bool build(sn_module *module, sn_func *main, const sn_training *training, sn_update *u, sn_diags *diags) {
    const sn_func *infer = sn_module_func(module, "infer");
    bool accumulates = training->accumulate > 1 || training->splits;
    sn_loss loss;
    if (!sn_padding_mark(main, training->n_paddings, training->paddings, diags)) return false;
    sn_func *step = with_loss(module, main, accumulates ? "micro" : "step", true, training, diags, &loss);
    if (!step || !sn_parameters_decide(module, step, loss.value, &training->parameters, diags)) return false;
    u->n = collect_parameters(module, u->parameters);
    if (!differentiate(step, accumulates ? loss.sum : loss.value, u, diags)) return false;
    return_loss(step, loss.value);
    if (accumulates)
        sn_update_build_accumulated(u, step, &loss, training->with_gradients);
    else
        sn_update_build(u, step);
    sn_func_prune(step);
    return add_eval_and_predict(module, infer ? infer : main, training, diags) &&
           (!training->with_gradients || accumulates || add_gradients(module, main, training, u, diags));
}

bool sn_training_build(sn_module *module, const sn_training *training, sn_diags *diags) {
    sn_func *main = sn_module_func(module, "main"), *infer = sn_module_func(module, "infer");
    SN_CHECK(main && module->form == SN_FORM_GRAPH && training->accumulate >= 1);
    sn_update u = {.optimizer = &training->optimizer, .clip = training->clip};
    u.parameters = sn_alloc(sizeof *u.parameters * (module->globals.count + 1));
    u.gradients = sn_alloc(sizeof *u.gradients * (module->globals.count + 1));
    bool fine = build(module, main, training, &u, diags);
    if (fine) {
        sn_module_remove_func(module, main);
        if (infer) sn_module_remove_func(module, infer);
    }
    sn_free(u.parameters);
    sn_free(u.gradients);
    return fine;
}
