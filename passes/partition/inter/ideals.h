// The downsets of an acyclic graph: the sets of units that contain all that they depend on. They are where a graph can
// be cut, as a prefix is where a chain can be: a pipeline is a sequence of nested downsets, a stage the difference of
// two.
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef struct sn_unit_edge {
    int from, to;
} sn_unit_edge;

typedef struct sn_ideals {
    int units, words; // words of 64 bits per set
    int count;
    uint64_t *bits; // [count][words]; by size: the empty set first, all units last
} sn_ideals;

// False when there are more than `limit` or when the graph has a cycle (then nothing is allocated).
bool sn_ideals_enumerate(int units, const sn_unit_edge *edges, int edge_count, int limit, sn_ideals *out);
// Keeps the sets for which keep(context, set) holds.
void sn_ideals_filter(sn_ideals *ideals, bool (*keep)(void *context, const uint64_t *set), void *context);
void sn_ideals_free(sn_ideals *ideals);

static inline const uint64_t *sn_ideal(const sn_ideals *ideals, int i) {
    return ideals->bits + (long)i * ideals->words;
}
static inline bool sn_ideal_has(const uint64_t *set, int unit) {
    return set[unit >> 6] >> (unit & 63) & 1;
}
bool sn_ideal_within(const sn_ideals *ideals, const uint64_t *inner, const uint64_t *outer);

// An order of the units that visits what a unit feeds soon after it (depth first): its prefixes are a chain of downsets
// that keeps few values alive. order[units]; false for a cycle.
bool sn_ideals_linearize(int units, const sn_unit_edge *edges, int edge_count, int *order);
