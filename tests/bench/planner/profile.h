// A model profiled by PipeDream's tools, which DAPPLE's planner reads as well: lines of nodes, then lines of edges.
#pragma once
#include "base/vec.h"
#include "passes/partition/inter/ideals.h"

typedef struct profile_node {
    char *id, *description;
    double forward, backward;      // ms
    double activation, parameters; // bytes
} profile_node;

typedef struct profile {
    SN_VEC(profile_node) nodes;
    SN_VEC(sn_unit_edge) edges;
} profile;

profile profile_read(const char *file); // ends the program when the file is wrong
void profile_free(profile *p);
// Removes a node and its edges.
void profile_remove(profile *p, int node);
bool profile_has_edge(const profile *p, int node, bool from); // from it, or into it
