// Inside of passes/partition: which stage each op belongs to.
#pragma once
#include "base/diag.h"
#include "base/map.h"
#include "passes/partition/stages.h"

enum { SN_HOME_ANYWHERE = -1 }; // made again by each function that needs it

// The order of the model's nodes in the program, and the stage of each.
typedef struct sn_node_stages {
    sn_map index;    // ONNX node -> its place, from 1
    sn_map follower; // a node whose ops are all computed anywhere -> the place of the next that has a place
    int n_nodes, n_stages;
    int *first; // n_stages: place (from 0) of the node that opens the stage
} sn_node_stages;

// Nodes in the order of the forward ops of `func`, cut where the plan says or in stages of equal work (FLOPs of
// forward and backward ops), where few bytes cross. False with E0420 (a node that is not there) or E0421 (stages out
// of order, or more stages than nodes).
bool sn_node_stages_find(const sn_func *func, const sn_plan *plan, sn_diags *diags, sn_arena *arena,
                         sn_node_stages *out);
void sn_node_stages_free(sn_node_stages *stages);

// What can be computed in each function that needs it, at little cost: ops without data operands, and what pointwise
// and movement ops make of them; of weights (their transposes, gathered shards); or of inputs (masks). `marks` gets a
// flag by op mark, which this sets to the op's place in the function. With `of_globals` false globals do not count:
// in an update they change.
void sn_mark_anywhere(sn_func *func, bool of_globals, bool *marks);

// The stage of each op, by op mark; SN_HOME_ANYWHERE where `anywhere` says so. Values then flow from forward ops to
// forward ops of the same or later stages, from backward ops to backward ops of the same or earlier ones, and what is
// added to a global is computed where it ends up: on `owner` (by global), which is filled in for parameters and states
// that no earlier function has set (stages from 1).
void sn_stages_assign(sn_func *func, const sn_node_stages *nodes, const bool *anywhere, sn_map *owner, int *stage);
