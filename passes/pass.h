// Passes and their manager. A pass rewrites a module in place; passes.def lists them, the default pipeline is a string
// (sn_default_pipeline), and the manager runs, verifies, times, dumps and bisects them.
#pragma once
#include "base/diag.h"
#include "ir/graph.h"

#include <stdio.h>

typedef struct sn_pass_context sn_pass_context;

typedef struct sn_pass {
    const char *name; // as in pipelines: "fold-constants"
    const char *summary;
    const char *arguments; // "limit=N: …; …", shown by --list-passes; NULL when it takes none
    unsigned forms;        // the forms it accepts: bits 1 << SN_FORM_…
    sn_form result;        // the form it leaves (ignored when it accepts several: it then keeps the form)
    // What the user did wrong goes to context->diags as errors; the pipeline then stops. A pass that finds nothing to
    // do changes nothing.
    void (*run)(sn_module *module, sn_pass_context *context);
    void *user; // of a plug-in's pass
} sn_pass;

struct sn_plugins;  // passes/plugin.h
struct sn_plan;     // passes/partition
struct sn_training; // passes/training: what the user wants trained, and how

struct sn_pass_context {
    sn_diags *diags;
    const struct sn_training *training; // NULL when the pipeline has no training passes
    const struct sn_plan *plan;         // NULL until `partition` sets it, or given by the user
    struct sn_plugins *plugins;         // NULL when none are loaded
    bool gpu;                           // the kernels are for a GPU

    // Set by the manager for each pass.
    const sn_pass *pass;
    const char *arguments; // "limit=64,deep" of "name{limit=64,deep}", or ""
    sn_arena *scratch;     // emptied after the pass
};

extern const sn_pass *const sn_pass_table[]; // of passes.def
extern const int sn_pass_count;
// One of passes.def or of a plug-in; NULL when there is none. `plugins` may be NULL.
const sn_pass *sn_pass_find(const struct sn_plugins *plugins, const char *name);

// An argument of the running pass; `otherwise` when it is not given. A value that is not a number is an error.
int64_t sn_pass_argument_int(sn_pass_context *context, const char *name, int64_t otherwise);

// Leaves a remark "pass: message" on an op's ONNX node: what the pass did not do, and why.
void sn_pass_remark(sn_pass_context *context, const char *code, const sn_op *op, const char *format, ...)
    SN_PRINTF(4, 5);
// The origin of an op that the running pass makes from `from` (which may be NULL).
const sn_origin *sn_pass_origin(sn_module *module, const sn_pass_context *context, const sn_op *from);

typedef struct sn_pipeline_options {
    const char *pipeline;   // "a,b{key=value},c"; NULL: the default
    const char *start_from; // skip the passes before the first of this name; NULL: none
    const char *stop_after; // skip the passes after the first of this name; NULL: none
    int64_t pass_limit;     // run this many passes at most; < 0: all
    const char *dump_ir;    // after-all, before-all, after=NAME, before=NAME; NULL: no dumps
    const char *dump_dir;   // folder of NN-NAME.sir; NULL: sennit-dumps
    FILE *times;            // where a table of times goes; NULL: nowhere
} sn_pipeline_options;

const char *sn_default_pipeline(void);   // to a training step
const char *sn_inference_pipeline(void); // the same, to the forward pass alone
// Runs a pipeline. False when it did not run to its end: context->diags then has an error (of the command line, of the
// environment or of a pass). A module that a pass leaves malformed is a bug.
bool sn_passes_run(sn_module *module, sn_pass_context *context, const sn_pipeline_options *options);
// "canonicalize\nfold-constants\n…": the passes that sn_passes_run would run. False as there.
bool sn_passes_print(sn_pass_context *context, const sn_pipeline_options *options, FILE *out);
