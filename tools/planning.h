// Planning from a command line: what `sennit plan`, and `train` and `compile` with --cluster, share.
#pragma once
#include "passes/cost/profile.h"
#include "passes/partition/search.h"
#include "passes/training/training.h"
#include "tools/model.h"

typedef struct sn_planning {
    const sn_options *options;
    sn_diags *diags;
    sn_arena arena;
    sn_cluster cluster;
    sn_training training;
    sn_plugins *plugins;
    sn_profile profile; // of --profile
    bool has_profile;
    sn_model_source source;
    sn_module *module;
    uint64_t model_hash;
    int64_t batch, fixed_micro;
    bool is_fixed;
    sn_plan fixed; // of --mesh
    sn_blocks blocks;
    sn_search_request request;
    sn_search *search;
} sn_planning;

// Reads the command line and the model, and gets the search ready. False when diags got errors; close it in either
// case.
bool sn_planning_open(sn_planning *planning, const sn_options *options, sn_diags *diags);
void sn_planning_close(sn_planning *planning);
// The best plan for --cluster and --batch, within --mesh when it is given; its lists are in `arena`.
bool sn_planning_find(const sn_options *options, sn_diags *diags, sn_arena *arena, sn_plan *out);
