#include "passes/cost/cluster.h"

#include "base/map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct preset {
    const char *name, *device;
    int64_t devices;
    const char *inner;
    double inner_alpha, inner_beta;
    const char *outer;
    double outer_alpha, outer_beta;
    const char *doc;
} preset;

static const preset presets[] = {
#define SN_PRESET(...) {__VA_ARGS__},
#include "passes/cost/presets.def"
#undef SN_PRESET
};

static void add_level(sn_cluster *cluster, const char *name, bool inside_node, double alpha, double beta) {
    sn_link_level *level = &cluster->level[cluster->n_levels++];
    *level = (sn_link_level){.inside_node = inside_node, .alpha = alpha, .beta = beta};
    snprintf(level->name, sizeof level->name, "%s", name);
}

bool sn_cluster_preset(const char *name, int64_t n, sn_cluster *out) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const preset *p = &presets[i];
        if (strcmp(p->name, name) != 0) continue;
        sn_cluster cluster = {.n_kinds = 1};
        snprintf(cluster.name, sizeof cluster.name, "%s:%" PRId64, name, n);
        const sn_device_kind *device = sn_device_kind_find(p->device);
        cluster.nodes[0] = (sn_nodes){.count = p->devices ? n : 1,
                                      .devices = p->devices ? p->devices : n,
                                      .device = device,
                                      .memory = device->memory};
        add_level(&cluster, p->inner, true, p->inner_alpha, p->inner_beta);
        if (p->devices && n > 1) add_level(&cluster, p->outer, false, p->outer_alpha, p->outer_beta);
        *out = cluster;
        return true;
    }
    return false;
}

const char *sn_cluster_preset_names(sn_arena *scratch) {
    const char *names = "";
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        names = sn_arena_printf(scratch, "%s%s%s", names, i ? ", " : "", presets[i].name);
    return names;
}

int64_t sn_cluster_devices(const sn_cluster *cluster) {
    int64_t devices = 0;
    for (int i = 0; i < cluster->n_kinds; i++) devices += cluster->nodes[i].count * cluster->nodes[i].devices;
    return devices;
}

int64_t sn_cluster_node_count(const sn_cluster *cluster) {
    int64_t nodes = 0;
    for (int i = 0; i < cluster->n_kinds; i++) nodes += cluster->nodes[i].count;
    return nodes;
}

// Which kind of node a rank is in; *node and *local: the node's number and the device's number inside it.
static int locate(const sn_cluster *cluster, int64_t rank, int64_t *node, int64_t *local) {
    int64_t first = 0, nodes = 0;
    for (int i = 0; i < cluster->n_kinds; i++) {
        const sn_nodes *kind = &cluster->nodes[i];
        int64_t here = kind->count * kind->devices;
        if (rank < first + here) {
            *node = nodes + (rank - first) / kind->devices;
            *local = (rank - first) % kind->devices;
            return i;
        }
        first += here;
        nodes += kind->count;
    }
    SN_BUG("rank %" PRId64 " of a cluster of %" PRId64 " devices", rank, first);
}

int64_t sn_cluster_node(const sn_cluster *cluster, int64_t rank) {
    int64_t node, local;
    locate(cluster, rank, &node, &local);
    return node;
}

const sn_nodes *sn_cluster_nodes_of(const sn_cluster *cluster, int64_t rank) {
    int64_t node, local;
    return &cluster->nodes[locate(cluster, rank, &node, &local)];
}

bool sn_cluster_is_uniform(const sn_cluster *cluster) {
    for (int i = 1; i < cluster->n_kinds; i++) {
        const sn_nodes *a = &cluster->nodes[0], *b = &cluster->nodes[i];
        if (a->devices != b->devices || a->device != b->device || a->memory != b->memory) return false;
    }
    return true;
}

// The number of a rank's group at a level. Numbers rise with the rank, so the ranks of one group are neighbours.
static int64_t group_at(const sn_cluster *cluster, int level, int64_t rank) {
    int64_t node, local;
    if (level < 0) return rank;
    const sn_link_level *l = &cluster->level[level];
    const sn_nodes *kind = &cluster->nodes[locate(cluster, rank, &node, &local)];
    if (!l->inside_node) return l->size ? node / l->size : 0;
    if (l->size == 0 || l->size >= kind->devices) return node * ((int64_t)1 << 20);
    return node * ((int64_t)1 << 20) + local / l->size;
}

// Devices in the group of a level that a rank is in.
static int64_t devices_in_group(const sn_cluster *cluster, int level, int64_t rank) {
    if (level < 0) return 1;
    const sn_link_level *l = &cluster->level[level];
    int64_t devices = sn_cluster_nodes_of(cluster, rank)->devices;
    if (l->inside_node) return l->size && l->size < devices ? l->size : devices;
    int64_t nodes = sn_cluster_node_count(cluster);
    return devices * (l->size && l->size < nodes ? l->size : nodes);
}

static int64_t rank_at(int64_t i, const int64_t *ranks, int64_t first, int64_t stride) {
    return ranks ? ranks[i] : first + i * stride;
}

static sn_group span(const sn_cluster *cluster, int64_t n, const int64_t *ranks, int64_t first, int64_t stride) {
    sn_group group = {.ranks = n};
    double members = 1;
    for (int level = 0; level < cluster->n_levels; level++) {
        int64_t parties = 0, most = 0, outer = -1, inner = -1;
        for (int64_t i = 0; i < n; i++) {
            int64_t rank = rank_at(i, ranks, first, stride);
            int64_t o = group_at(cluster, level, rank), in = group_at(cluster, level - 1, rank);
            if (o != outer) parties = 0, inner = -1;
            parties += in != inner;
            outer = o, inner = in;
            if (parties > most) most = parties;
        }
        const sn_link_level *l = &cluster->level[level];
        group.level[level].parties = most;
        group.level[level].members = members;
        group.level[level].alpha = l->alpha;
        int64_t below = l->shared ? devices_in_group(cluster, level - 1, rank_at(0, ranks, first, stride)) : 1;
        group.level[level].beta = l->beta / (double)below;
        if (most > 1) group.n_levels = level + 1;
        members *= (double)most;
    }
    return group;
}

sn_group sn_cluster_group(const sn_cluster *cluster, int64_t first, int64_t size, int64_t stride) {
    return span(cluster, size, NULL, first, stride);
}

sn_group sn_cluster_group_of(const sn_cluster *cluster, int64_t n, const int64_t *ranks) {
    return span(cluster, n, ranks, 0, 0);
}

bool sn_group_equal(const sn_group *a, const sn_group *b) {
    bool equal = a->ranks == b->ranks && a->n_levels == b->n_levels;
    for (int i = 0; equal && i < a->n_levels; i++)
        equal = a->level[i].parties == b->level[i].parties && a->level[i].members == b->level[i].members &&
                a->level[i].alpha == b->level[i].alpha && a->level[i].beta == b->level[i].beta;
    return equal;
}

json_t *sn_cluster_to_json(const sn_cluster *cluster) {
    json_t *nodes = json_array(), *links = json_array();
    for (int i = 0; i < cluster->n_kinds; i++) {
        const sn_nodes *kind = &cluster->nodes[i];
        json_array_append_new(nodes, json_pack("{s:I, s:I, s:s, s:f}", "count", (json_int_t)kind->count, "devices",
                                               (json_int_t)kind->devices, "device", kind->device->name, "memory",
                                               kind->memory));
    }
    for (int i = 0; i < cluster->n_levels; i++) {
        const sn_link_level *l = &cluster->level[i];
        json_t *link = json_pack("{s:s, s:f, s:f, s:b}", "name", l->name, "latency", l->alpha, "bandwidth", l->beta,
                                 "shared", (int)l->shared);
        const char *unit = l->inside_node ? "devices" : "nodes";
        json_object_set_new(link, unit, l->size ? json_integer(l->size) : json_string("all"));
        json_array_append_new(links, link);
    }
    return json_pack("{s:s, s:o, s:o}", "name", cluster->name, "nodes", nodes, "links", links);
}

uint64_t sn_cluster_hash(const sn_cluster *cluster) {
    json_t *json = sn_cluster_to_json(cluster);
    json_object_del(json, "name");
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    uint64_t hash = sn_hash_bytes(text, strlen(text), 0);
    free(text);
    json_decref(json);
    return hash;
}
