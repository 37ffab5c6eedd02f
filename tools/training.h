// From a command line to a train executable: what `train`, `compile` and `verify` share.
#pragma once
#include "base/diag.h"
#include "base/options.h"
#include "frontend/onnx.h"
#include "passes/cost/cluster.h"
#include "passes/partition/plan.h"
#include "passes/training/training.h"
#include "tools/model.h"

typedef struct sn_train_build {
    const char *output; // the executable's path
    int ranks;          // 0: as the options say
    int64_t batch;      // where --batch is left out and the model's is symbolic; 0: that is an error
    bool with_gradients;
    bool inference;    // the forward pass alone
    bool shapes_alone; // nothing will run: weights may be missing
} sn_train_build;

// The ranks that --ranks or --plan ask for; 1 by default. 0 after an error.
int sn_train_ranks(const sn_options *options, sn_diags *diags);
// What the options say of the loss, the optimizer and the parameters; lists are in the arena.
bool sn_train_read(const sn_options *options, sn_arena *arena, sn_diags *diags, sn_training *out);
bool sn_train_mode(const sn_options *options, sn_diags *diags, sn_onnx_mode *out); // --train-mode

// A command line's training step in sched form, as the plan splits it.
typedef struct sn_train_step {
    sn_arena arena;
    sn_training training;
    sn_plan plan;     // complete: what the program does
    bool has_cluster; // --cluster names one
    sn_cluster cluster;
    struct sn_plugins *plugins;
    sn_model_source source;
    uint64_t model_hash; // of the model as imported: the same for every plan
    sn_module *module;
} sn_train_step;

// Lowers argument 0 of the command line. False when diags got errors, or when --print-pipeline or --stop-after ended it
// early; free `out` in either case.
bool sn_train_lower(const sn_options *options, const sn_train_build *build, sn_diags *diags, sn_train_step *out);
void sn_train_step_free(sn_train_step *step);
// Compiles argument 0 of the command line to build->output. False when diags got errors, or when --print-pipeline or
// --stop-after ended it early (build->output is then not written).
bool sn_train_compile(const sn_options *options, const sn_train_build *build, sn_diags *diags);
// --frozen and --trainable; the lists are in the arena.
void sn_train_rules(const sn_options *options, sn_arena *arena, sn_parameter_rules *out);
// Run options of this command line, as the train executable takes them: NULL-terminated, in the arena.
const char *const *sn_train_run_arguments(const sn_options *options, sn_arena *arena);
