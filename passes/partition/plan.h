// The plan: what partition decided, as data. Later passes read it and decide nothing themselves. plan.json is written
// for people, can be edited, and is read back with --plan; --mesh states the outline of one on the command line.
//
//   {"version": 2, "model": "9f…", "cluster": "41…", "batch": 64,
//    "mesh": {"pp": 2, "dp": 2, "tp": 2}, "microbatches": 4, "schedule": "1f1b", "chunks": 1, "zero": 1, "remat":
//    "none", "stages": [{"first": ""}, {"first": "/h.3/ln_1/LayerNormalization", "remat": "full"}], "layouts":
//    {"h.0.mlp.c_fc.weight": "{-,tp}", "/h.0/Add_1": "{dp,tp,-}"}, "predicted": {"step_seconds": 0.21, "memory_bytes":
//    8123456789}}
#pragma once
#include "base/arena.h"
#include "base/diag.h"
#include "base/status.h"
#include "ir/layout.h"

#include <jansson.h>

// The order of (phase, micro-batch, chunk) on each pipeline rank.
typedef enum sn_pipeline {
    SN_PIPELINE_1F1B,        // one forward, one backward (Narayanan et al. 2019, PipeDream-flush of 2021)
    SN_PIPELINE_GPIPE,       // all forwards, then all backwards (Huang et al. 2019)
    SN_PIPELINE_INTERLEAVED, // 1F1B over several chunks a rank (Narayanan et al. 2021, section 2.2)
    SN_PIPELINE_ZERO_BUBBLE, // backward split in an input and a weight part, ZB-H1 (Qi et al. 2024)
    SN_PIPELINE_COUNT
} sn_pipeline;

// What is computed again in the backward pass instead of being kept.
typedef enum sn_remat {
    SN_REMAT_NONE,      // nothing beyond pointwise results whose operands live anyway
    SN_REMAT_SELECTIVE, // what is cheap for its size: all but contractions (Korthikanti et al. 2022, section 5)
    SN_REMAT_FULL,      // a block keeps its inputs alone (Chen et al. 2016)
    SN_REMAT_COUNT
} sn_remat;

typedef struct sn_plan_stage {
    const char *first; // the ONNX node that opens it; "" for the first stage
    sn_remat remat;
} sn_plan_stage;

// The layout of a weight (by its initializer's name; sn_targets_weight) or else of the first result of an ONNX node (by
// the node's name).
// Axes that cut the data need not be stated of results. Everything else follows by propagation.
typedef struct sn_plan_layout {
    const char *name;
    int rank;
    sn_layout layout;
} sn_plan_layout;

// Which fields a text of the plan names: the search keeps those and looks for the others. An axis is named by being in
// the mesh, even with size 1.
enum {
    SN_PLAN_MICROBATCHES = 1 << 0,
    SN_PLAN_CHUNKS = 1 << 1,
    SN_PLAN_ZERO = 1 << 2,
    SN_PLAN_SCHEDULE = 1 << 3,
    SN_PLAN_REMAT = 1 << 4,
};

typedef struct sn_plan {
    // Axes from outer to inner; size-1 axes may be left out. Two names have a meaning: `dp` cuts the data, `pp` counts
    // pipeline ranks and cuts no value. `cp` cuts the sequence of the data, where it is there. Where `tp` is split
    // (sn_evaluator_split), `tp_q` is the inner part.
    sn_mesh mesh;
    int microbatches; // per update; 1 without accumulation
    int64_t batch;    // samples per update over all ranks; 0: not stated
    sn_pipeline schedule;
    int chunks; // stages per pipeline rank: stage s runs on pipeline rank s mod pp
    int zero;   // ZeRO over dp and cp (Rajbhandari et al. 2020): 1 optimizer state, 2 and gradients, 3 and parameters
    sn_remat remat; // of stages that do not say
    unsigned named; // SN_PLAN_*: read from the text; the others have their defaults

    int n_stages; // 0: cut in pp * chunks stages of equal work; else pp * chunks
    sn_plan_stage *stages;
    int n_layouts; // 0 with a mesh beyond pp and dp: chosen by `partition`
    sn_plan_layout *layouts;

    uint64_t model_hash;   // of the graph form and its global shapes: a plan is refused for another model; 0, where the
                           // text has none: any
    uint64_t cluster_hash; // of the cluster it was made for; 0: any
    double predicted_step_seconds; // 0 when nothing was predicted
    double predicted_memory_bytes; // of the fullest device
} sn_plan;

const char *sn_pipeline_name(sn_pipeline schedule);
const char *sn_remat_name(sn_remat remat);

int sn_plan_ranks(const sn_plan *plan);
int sn_plan_axis_size(const sn_plan *plan, const char *axis); // 1 for an axis that is not there
// Whether an axis is none that the names dp, ep, cp and pp have a meaning for: it cuts weights.
bool sn_mesh_is_tensor_axis(const sn_mesh *mesh, int axis);
// Stages of the pipeline over all ranks: pp * chunks.
int sn_plan_stage_count(const sn_plan *plan);
// Data parallelism over `ranks` ranks.
sn_plan sn_plan_data_parallel(int ranks, int microbatches);
// "pp=2,dp=2,tp=2,microbatches=4,schedule=1f1b,chunks=1,zero=1,remat=full": sizes of axes and the words above, in any
// order; axes keep the order of the text. False with E0407.
bool sn_plan_from_outline(const char *text, sn_diags *diags, sn_plan *out);
// The JSON of a plan file, a new reference; NULL with E0405 when it is not JSON.
json_t *sn_plan_load(const char *path, sn_diags *diags);
// A new reference to a JSON object, and back. Reading checks everything and reports errors about `subject`; names and
// lists go to `arena`.
json_t *sn_plan_to_json(const sn_plan *plan);
bool sn_plan_from_json(const json_t *json, const char *subject, sn_diags *diags, sn_arena *arena, sn_plan *out);
uint64_t sn_plan_hash(const sn_plan *plan);
// A new reference: of each field of the plan's JSON but what it predicts, a hash, by which an edit is told.
json_t *sn_plan_decisions(const sn_plan *plan);
