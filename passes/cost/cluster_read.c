// Reads clusters: the JSON that people write, and PRESET:N. Every mistake is reported with the line it is on.
#include "base/file.h"
#include "passes/cost/cluster.h"
#include "passes/cost/json_line.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 1 << 20 };

typedef struct reader {
    const char *text, *subject;
    size_t length;
    sn_diags *diags;
    bool failed;
} reader;

static SN_PRINTF(4, 5) void fail(reader *r, const char *path, const char *help, const char *format, ...) {
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    sn_error(r->diags, "E0412", r->subject, help, "line %d: %s", sn_json_line(r->text, r->length, path), message);
    r->failed = true;
}

// A unit that people write behind a number: decimal for rates, binary for memory of "GiB".
typedef struct unit {
    const char *name;
    double factor;
} unit;
static const unit bandwidths[] = {{"B/s", 1},         {"KB/s", 1e3},    {"MB/s", 1e6},    {"GB/s", 1e9},
                                  {"TB/s", 1e12},     {"Mb/s", 1.25e5}, {"Gb/s", 1.25e8}, {"Mbit/s", 1.25e5},
                                  {"Gbit/s", 1.25e8}, {NULL, 0}};
static const unit times[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
static const unit sizes[] = {{"B", 1},          {"KB", 1e3},          {"MB", 1e6},    {"GB", 1e9}, {"TB", 1e12},
                             {"MiB", 1048576.}, {"GiB", 1073741824.}, {"KiB", 1024.}, {NULL, 0}};

static bool quantity(const json_t *json, const unit *units, double *out) {
    if (json_is_number(json)) {
        *out = json_number_value(json);
        return isfinite(*out);
    }
    const char *text = json_string_value(json);
    char *end;
    if (!text) return false;
    double number = strtod(text, &end);
    if (end == text || !isfinite(number)) return false;
    while (isspace((unsigned char)*end)) end++;
    for (; units->name; units++)
        if (strcmp(units->name, end) == 0) {
            *out = number * units->factor;
            return true;
        }
    return false;
}

static void read_quantity(reader *r, const char *path, const json_t *json, const unit *units, const char *help,
                          double least, double *out) {
    double value;
    if (!quantity(json, units, &value) || value < least)
        fail(r, path, help, "%s is no quantity that can be used", path);
    else
        *out = value;
}

static int64_t read_count(reader *r, const char *path, const json_t *json) {
    json_int_t n = json_integer_value(json);
    if (json_is_integer(json) && n >= 1 && n <= MOST_DEVICES) return n;
    fail(r, path, NULL, "%s must be an integer from 1 to %d", path, MOST_DEVICES);
    return 1;
}

// Reports members that no one reads: a misspelt one would go unnoticed otherwise.
static void check_members(reader *r, const char *path, const json_t *object, const char *const *known) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        bool found = false;
        for (int i = 0; known[i]; i++) found |= strcmp(known[i], name) == 0;
        if (found) continue;
        char member[160], list[160] = "";
        snprintf(member, sizeof member, "%s%s%s", path, *path ? "." : "", name);
        for (int i = 0; known[i]; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "known here: ", known[i]);
        fail(r, member, list, "'%s' is not known", name);
    }
}

static void read_nodes(reader *r, int index, const json_t *json, sn_cluster *cluster) {
    static const char *const known[] = {"count", "devices", "device", "memory", NULL};
    char path[64], member[96];
    snprintf(path, sizeof path, "nodes[%d]", index);
    check_members(r, path, json, known);
    sn_nodes nodes = {.count = 1, .devices = 1};
    const json_t *value;
    snprintf(member, sizeof member, "%s.count", path);
    if ((value = json_object_get(json, "count"))) nodes.count = read_count(r, member, value);
    snprintf(member, sizeof member, "%s.devices", path);
    if ((value = json_object_get(json, "devices"))) nodes.devices = read_count(r, member, value);
    snprintf(member, sizeof member, "%s.device", path);
    const char *name = json_string_value(json_object_get(json, "device"));
    nodes.device = name ? sn_device_kind_find(name) : NULL;
    if (!nodes.device) {
        sn_arena scratch = {0};
        const char *help = sn_arena_printf(&scratch, "kinds: %s", sn_device_kind_names(&scratch));
        fail(r, member, help, name ? "device '%s' is not known" : "nodes need a device kind, \"device\"", name);
        sn_arena_free(&scratch);
        return;
    }
    nodes.memory = nodes.device->memory;
    snprintf(member, sizeof member, "%s.memory", path);
    if ((value = json_object_get(json, "memory")))
        read_quantity(r, member, value, sizes, "bytes, or text as \"80 GB\" or \"40 GiB\"", 1, &nodes.memory);
    cluster->nodes[cluster->n_kinds++] = nodes;
}

static void read_size(reader *r, const char *path, const json_t *json, sn_link_level *level) {
    const json_t *devices = json_object_get(json, "devices"), *nodes = json_object_get(json, "nodes");
    if (!devices == !nodes) {
        fail(r, path, "\"devices\": how many of a node it joins, or \"nodes\": how many nodes; \"all\" for all",
             "a link joins either devices or nodes");
        return;
    }
    level->inside_node = devices != NULL;
    const json_t *size = devices ? devices : nodes;
    char member[96];
    snprintf(member, sizeof member, "%s.%s", path, devices ? "devices" : "nodes");
    const char *text = json_string_value(size);
    if (text && strcmp(text, "all") == 0)
        level->size = 0;
    else
        level->size = read_count(r, member, size);
}

static void read_link(reader *r, int index, const json_t *json, sn_cluster *cluster) {
    static const char *const known[] = {"name", "devices", "nodes", "latency", "bandwidth", "shared", NULL};
    char path[64], member[96];
    snprintf(path, sizeof path, "links[%d]", index);
    check_members(r, path, json, known);
    sn_link_level level = {0};
    const char *name = json_string_value(json_object_get(json, "name"));
    snprintf(level.name, sizeof level.name, "%s", name ? name : "link");
    read_size(r, path, json, &level);
    snprintf(member, sizeof member, "%s.latency", path);
    read_quantity(r, member, json_object_get(json, "latency"), times, "seconds, or text as \"5 us\"", 0, &level.alpha);
    snprintf(member, sizeof member, "%s.bandwidth", path);
    read_quantity(r, member, json_object_get(json, "bandwidth"), bandwidths,
                  "bytes per second each way, or text as \"300 GB/s\" or \"100 Gb/s\"", 1, &level.beta);
    const json_t *shared = json_object_get(json, "shared");
    snprintf(member, sizeof member, "%s.shared", path);
    if (shared && !json_is_boolean(shared)) fail(r, member, NULL, "shared is true or false");
    level.shared = json_is_true(shared);
    cluster->level[cluster->n_levels++] = level;
}

// A link's groups are all of its size, in every kind of node; larger nodes than this kind may need a larger link.
static void check_size(reader *r, const char *path, const sn_link_level *level, const sn_cluster *cluster,
                       int64_t nodes, int64_t devices) {
    int64_t size = level->size ? level->size : 1, all = level->inside_node ? devices : nodes;
    bool whole = size <= all;
    if (!level->inside_node) whole &= nodes % size == 0;
    for (int i = 0; level->inside_node && i < cluster->n_kinds; i++)
        whole &= cluster->nodes[i].devices < size || cluster->nodes[i].devices % size == 0;
    if (!whole)
        fail(r, path, "give a size that divides them, or \"all\"",
             "link '%s' joins groups of %" PRId64 ", which do not divide the %s", level->name, size,
             level->inside_node ? "devices of a node" : "nodes");
}

// Levels go outwards: inside the node first, each made of whole groups of the one below, the last one joining all.
static void check_levels(reader *r, const sn_cluster *cluster) {
    char path[64];
    int64_t nodes = sn_cluster_node_count(cluster), devices = 1;
    for (int i = 0; i < cluster->n_kinds; i++)
        if (cluster->nodes[i].devices > devices) devices = cluster->nodes[i].devices;
    for (int i = 0; i < cluster->n_levels; i++) {
        const sn_link_level *level = &cluster->level[i], *below = i ? level - 1 : NULL;
        snprintf(path, sizeof path, "links[%d]", i);
        if (below && level->inside_node && !below->inside_node)
            fail(r, path, "order links from the innermost to the outermost",
                 "a link inside a node follows one between nodes");
        else if (below && level->inside_node == below->inside_node &&
                 (below->size == 0 || (level->size && (level->size <= below->size || level->size % below->size))))
            fail(r, path, "each link joins several whole groups of the link before it",
                 "link '%s' does not join groups of '%s'", level->name, below->name);
        else
            check_size(r, path, level, cluster, nodes, devices);
    }
    const sn_link_level *last = cluster->n_levels ? &cluster->level[cluster->n_levels - 1] : NULL;
    bool joins = last && (nodes > 1 ? !last->inside_node && (!last->size || last->size >= nodes)
                                    : !last->inside_node || !last->size || last->size >= devices);
    if (nodes * devices > 1 && !joins)
        fail(r, "links", "add a link with \"nodes\": \"all\"", "no link joins all devices of the cluster");
    if (sn_cluster_devices(cluster) > MOST_DEVICES)
        fail(r, "nodes", NULL, "the cluster has more than %d devices", MOST_DEVICES);
}

static bool read_list(reader *r, const json_t *json, const char *name, int most,
                      void (*read)(reader *, int, const json_t *, sn_cluster *), sn_cluster *cluster) {
    const json_t *list = json_object_get(json, name);
    if (!json_is_array(list) || (int)json_array_size(list) > most) {
        fail(r, name, NULL, "a cluster needs \"%s\", a list of at most %d objects", name, most);
        return false;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        char path[64];
        snprintf(path, sizeof path, "%s[%zu]", name, i);
        if (json_is_object(item))
            read(r, (int)i, item, cluster);
        else
            fail(r, path, NULL, "%s must be an object", path);
    }
    return true;
}

bool sn_cluster_parse(const char *text, size_t length, const char *subject, sn_diags *diags, sn_cluster *out) {
    static const char *const known[] = {"name", "nodes", "links", NULL};
    json_error_t error;
    json_t *json = json_loadb(text ? text : "", length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(json)) {
        sn_error(diags, "E0411", subject, "docs/clusters.md shows a cluster", "line %d: %s", json ? 1 : error.line,
                 json ? "a cluster is an object" : error.text);
        json_decref(json);
        return false;
    }
    reader r = {text, subject, length, diags, false};
    sn_cluster cluster = {0};
    check_members(&r, "", json, known);
    const char *name = json_string_value(json_object_get(json, "name"));
    snprintf(cluster.name, sizeof cluster.name, "%s", name ? name : subject);
    bool lists = read_list(&r, json, "nodes", SN_MAX_NODE_KINDS, read_nodes, &cluster);
    lists &= !json_object_get(json, "links") || read_list(&r, json, "links", SN_MAX_LEVELS, read_link, &cluster);
    if (lists && cluster.n_kinds == 0 && !r.failed) fail(&r, "nodes", NULL, "a cluster needs at least one node");
    if (!r.failed) check_levels(&r, &cluster);
    json_decref(json);
    if (!r.failed) *out = cluster;
    return !r.failed;
}

// "dgx-a100:16": whether it is a preset's name and a count; *out is filled when both are right.
static bool load_preset(const char *text, sn_diags *diags, sn_cluster *out, bool *ok) {
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    char name[64];
    if (length >= sizeof name) return false;
    memcpy(name, text, length);
    name[length] = 0;
    char *end;
    long long n = colon ? strtoll(colon + 1, &end, 10) : 1;
    bool counted = !colon || (end != colon + 1 && *end == 0 && n >= 1 && n <= MOST_DEVICES);
    if (!sn_cluster_preset(name, counted ? n : 1, out)) return false;
    *ok = counted && sn_cluster_devices(out) <= MOST_DEVICES;
    if (!*ok)
        sn_error(diags, "E0413", text, "write it as dgx-a100:16", "'%s' is no number of nodes", colon ? colon + 1 : "");
    return true;
}

bool sn_cluster_load(const char *file_or_preset, sn_diags *diags, sn_cluster *out) {
    bool ok = false;
    sn_cluster cluster;
    if (load_preset(file_or_preset, diags, &cluster, &ok)) {
        if (ok) *out = cluster;
        return ok;
    }
    sn_mapped_file file;
    sn_status status = sn_file_map(file_or_preset, &file);
    if (status) {
        sn_arena scratch = {0};
        const char *help = sn_arena_printf(&scratch, "a JSON file, or one of %s with a number of nodes, as dgx-a100:16",
                                           sn_cluster_preset_names(&scratch));
        sn_error(diags, "E0410", file_or_preset, help, "no such cluster: %s", sn_status_message(status));
        sn_arena_free(&scratch);
        sn_status_free(status);
        return false;
    }
    ok = sn_cluster_parse((const char *)file.data, file.bytes, file_or_preset, diags, out);
    sn_file_unmap(&file);
    return ok;
}
