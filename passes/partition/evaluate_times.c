#include "passes/partition/evaluate_times.h"

#include <string.h>

static uint64_t hash_of(const sn_times_key *key) {
    uint64_t words[sizeof *key / sizeof(uint64_t)], hash = 0;
    memcpy(words, key, sizeof *key);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u; // the golden ratio (Knuth 1998, section 6.4)
        hash ^= hash >> 32;
    }
    return hash;
}

static uint32_t *slot_of(const sn_times *times, const sn_times_key *key) {
    size_t at = hash_of(key) & (times->n_slots - 1);
    while (times->slots[at] && memcmp(&times->known.data[times->slots[at] - 1].key, key, sizeof *key) != 0)
        at = (at + 1) & (times->n_slots - 1);
    return &times->slots[at];
}

static void grow(sn_times *times) {
    sn_free(times->slots);
    times->n_slots = times->n_slots ? 2 * times->n_slots : 1024;
    times->slots = sn_alloc(times->n_slots * sizeof *times->slots);
    for (size_t i = 0; i < times->known.count; i++) *slot_of(times, &times->known.data[i].key) = (uint32_t)i + 1;
}

// What is known of a key; `is_new`: it is to be filled. Valid until the next call.
static sn_known_times *find(sn_times *times, const sn_times_key *key, bool *is_new) {
    if (2 * (times->known.count + 1) > times->n_slots) grow(times);
    uint32_t *slot = slot_of(times, key);
    *is_new = !*slot;
    if (*is_new) {
        sn_vec_push(&times->known, (sn_known_times){.key = *key});
        *slot = (uint32_t)times->known.count;
    }
    return &times->known.data[*slot - 1];
}

void sn_times_free(sn_times *times) {
    sn_vec_free(&times->known);
    sn_free(times->slots);
    *times = (sn_times){0};
}

bool sn_times_group(sn_times *times, const sn_cost_model *model, const sn_op_group *group, const bool *weight_only,
                    const sn_group_cut *cut, sn_arena *scratch, sn_group_seconds *out) {
    sn_times_key key = {.device = model->device, .what = {group}};
    for (int a = 0; a < SN_AXIS_KINDS; a++) {
        if (!cut->strategy[a]->cuts || cut->parts[a] == 1) continue; // the shapes are whole
        key.what[2 + a] = cut->strategy[a];
        key.parts[a] = cut->parts[a];
    }
    bool is_new;
    sn_known_times *known = find(times, &key, &is_new);
    if (is_new) known->divides = sn_group_local_seconds(model, group, weight_only, cut, scratch, &known->seconds);
    *out = known->seconds;
    return known->divides;
}

double sn_times_parameter(sn_times *times, const sn_cost_model *model, const sn_global *parameter, int n,
                          sn_op *const *ops, const sn_cut cuts[SN_AXIS_KINDS], const int64_t parts[SN_AXIS_KINDS],
                          sn_arena *scratch) {
    sn_times_key key = {.device = model->device, .what = {parameter, ops}};
    for (int a = 0; a < SN_AXIS_KINDS; a++) {
        if (cuts[a] < 0 || parts[a] == 1) continue;
        key.parts[a] = parts[a];
        key.cut[a] = cuts[a];
    }
    bool is_new;
    sn_known_times *known = find(times, &key, &is_new);
    if (is_new) known->seconds.forward = sn_parameter_local_seconds(model, parameter, n, ops, cuts, parts, scratch);
    return known->seconds.forward;
}
