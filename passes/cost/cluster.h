// Clusters: nodes with devices, joined by levels of links. A cluster is written as JSON (docs/clusters.md) or named as
// a preset, "dgx-a100:16". Ranks are placed on devices in order, node by node, so the inner axes of a mesh lie
// innermost. A cluster is a plain value: copying it is fine, nothing is owned.
#pragma once
#include "base/diag.h"
#include "passes/cost/device.h"

#include <jansson.h>

enum { SN_MAX_LEVELS = 6, SN_MAX_NODE_KINDS = 32 };

// `count` nodes of one kind, one after the other.
typedef struct sn_nodes {
    int64_t count;
    int64_t devices; // of each node
    const sn_device_kind *device;
    double memory; // bytes of each device that a program may use
} sn_nodes;

// A level joins the groups of the level below (innermost: devices) to larger groups.
typedef struct sn_link_level {
    char name[24];
    bool inside_node; // `size` counts devices of a node; otherwise nodes
    int64_t size;     // of one group of this level; 0: all there are
    double alpha;     // seconds of a message
    double beta;      // bytes per second, each way: of every device, or (shared) of a group of the level below
    bool shared;
} sn_link_level;

typedef struct sn_cluster {
    char name[64];
    int n_kinds;
    sn_nodes nodes[SN_MAX_NODE_KINDS];
    int n_levels;
    sn_link_level level[SN_MAX_LEVELS]; // innermost first; the last one joins all nodes
} sn_cluster;

// A file, or PRESET:N (N nodes; of "local" N CPU ranks). What is wrong is an error (E041x) with its line.
bool sn_cluster_load(const char *file_or_preset, sn_diags *diags, sn_cluster *out);
bool sn_cluster_parse(const char *text, size_t length, const char *subject, sn_diags *diags, sn_cluster *out);
// False when there is no such preset.
bool sn_cluster_preset(const char *name, int64_t n, sn_cluster *out);
const char *sn_cluster_preset_names(sn_arena *scratch); // comma-separated
// A new reference: the cluster as its file would say it.
json_t *sn_cluster_to_json(const sn_cluster *cluster);
uint64_t sn_cluster_hash(const sn_cluster *cluster); // of everything but the name

int64_t sn_cluster_devices(const sn_cluster *cluster);
int64_t sn_cluster_node_count(const sn_cluster *cluster);
// The node that a rank's device is in, and what it is.
int64_t sn_cluster_node(const sn_cluster *cluster, int64_t rank);
const sn_nodes *sn_cluster_nodes_of(const sn_cluster *cluster, int64_t rank);
// Whether all devices are of one kind and memory, and all nodes alike.
bool sn_cluster_is_uniform(const sn_cluster *cluster);

// A set of ranks as the links see it. At each level the group's members inside one group of the level below form one
// party; `parties` of them meet inside one group of the level (the most, where groups differ).
typedef struct sn_group {
    int64_t ranks;
    int n_levels; // 1 + the outermost level that the group spans; 0 for one rank
    struct {
        int64_t parties; // 1: the group does not use this level
        double members;  // ranks of one party
        double alpha;    // seconds of a message
        double beta;     // bytes per second of one rank, each way, when all its neighbours do the same
    } level[SN_MAX_LEVELS];
} sn_group;
// Ranks first, first + stride, …: how a mesh axis cuts the ranks.
sn_group sn_cluster_group(const sn_cluster *cluster, int64_t first, int64_t size, int64_t stride);
sn_group sn_cluster_group_of(const sn_cluster *cluster, int64_t n, const int64_t *ranks); // in rising order
bool sn_group_equal(const sn_group *a, const sn_group *b);
