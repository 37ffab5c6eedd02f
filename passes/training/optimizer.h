// Optimizers: what `--optimizer NAME,KEY=X,...` means, the state each keeps per parameter, and the update's ops.
#pragma once
#include "base/diag.h"
#include "ir/build.h"

typedef enum sn_optimizer_kind {
    SN_OPTIMIZER_SGD,
    SN_OPTIMIZER_MOMENTUM,
    SN_OPTIMIZER_ADAM,
    SN_OPTIMIZER_ADAMW,
    SN_OPTIMIZER_COUNT
} sn_optimizer_kind;

typedef struct sn_optimizer {
    sn_optimizer_kind kind;
    double lr; // before the schedule, which the run applies: the update reads $lr
    double beta1, beta2, eps, weight_decay, momentum, dampening;
    bool nesterov;
} sn_optimizer;

const char *sn_optimizer_name(sn_optimizer_kind kind);
// PyTorch's defaults for a kind.
sn_optimizer sn_optimizer_default(sn_optimizer_kind kind);
// "adamw,lr=1e-3,beta1=0.9": keys that are left out keep their defaults. False with E0305 in diags, which lists what
// the optimizer knows.
bool sn_optimizer_parse(const char *text, sn_diags *diags, sn_optimizer *out);

// How many globals of state a parameter has, at most 2.
int sn_optimizer_states(const sn_optimizer *optimizer);
// Adds the state of `parameter` to the module (zeros; f32 for 16-bit parameters) unless it is there: NAME.m, NAME.v or
// NAME.momentum. Writes sn_optimizer_states globals.
void sn_optimizer_add_states(const sn_optimizer *optimizer, sn_module *module, sn_global *parameter,
                             sn_global **states);
// The update of one parameter and its state, with their assigns. lr is f32[], step i64[] (1-based).
void sn_optimizer_update(const sn_optimizer *optimizer, sn_builder *b, sn_global *parameter, sn_global *const *states,
                         sn_value *gradient, sn_value *lr, sn_value *step);
