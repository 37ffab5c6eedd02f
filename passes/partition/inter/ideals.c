#include "passes/partition/inter/ideals.h"

#include "base/alloc.h"
#include "base/vec.h"

#include <string.h>

// Edges by their source, and the number of edges into each unit.
typedef struct adjacency {
    int *first, *to; // [units + 1], [edges]
    int *inputs;
} adjacency;

static adjacency make_adjacency(int units, const sn_unit_edge *edges, int count) {
    adjacency a = {sn_alloc(sizeof(int) * (size_t)(units + 2)), sn_alloc(sizeof(int) * (size_t)(count + 1)),
                   sn_alloc(sizeof(int) * (size_t)(units + 1))};
    for (int i = 0; i < count; ++i) ++a.first[edges[i].from + 2];
    for (int i = 2; i <= units; ++i) a.first[i] += a.first[i - 1];
    for (int i = 0; i < count; ++i) {
        a.to[a.first[edges[i].from + 1]++] = edges[i].to;
        ++a.inputs[edges[i].to];
    }
    return a;
}

static void free_adjacency(adjacency *a) {
    sn_free(a->first);
    sn_free(a->to);
    sn_free(a->inputs);
}

bool sn_ideals_linearize(int units, const sn_unit_edge *edges, int edge_count, int *order) {
    adjacency a = make_adjacency(units, edges, edge_count);
    int *stack = sn_alloc(sizeof(int) * (size_t)(units + 1)), depth = 0, done = 0;
    for (int i = units - 1; i >= 0; --i) {
        if (a.inputs[i] == 0) stack[depth++] = i;
    }
    while (depth > 0) {
        int unit = stack[--depth];
        order[done++] = unit;
        for (int i = a.first[unit + 1] - 1; i >= a.first[unit]; --i) {
            if (--a.inputs[a.to[i]] == 0) stack[depth++] = a.to[i];
        }
    }
    sn_free(stack);
    free_adjacency(&a);
    return done == units;
}

typedef struct enumeration {
    sn_ideals ideals;
    int capacity, limit;
    int *slot; // hash table of set numbers + 1, of `slots` (a power of two) entries
    int slots;
    uint64_t *needs; // [units][words] what a unit depends on directly
} enumeration;

static uint64_t hash_set(const uint64_t *set, int words) {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < words; ++i) {
        hash = (hash ^ set[i]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash;
}

static size_t set_bytes(const enumeration *e) {
    return sizeof(uint64_t) * (size_t)e->ideals.words;
}

static int *find_slot(const enumeration *e, const uint64_t *set) {
    size_t mask = (size_t)e->slots - 1, i = hash_set(set, e->ideals.words) & mask;
    while (e->slot[i] && memcmp(sn_ideal(&e->ideals, e->slot[i] - 1), set, set_bytes(e)) != 0) i = (i + 1) & mask;
    return &e->slot[i];
}

static void grow(enumeration *e) {
    e->capacity *= 2;
    e->ideals.bits = sn_realloc(e->ideals.bits, set_bytes(e) * (size_t)e->capacity);
    sn_free(e->slot);
    e->slots = e->capacity * 2;
    e->slot = sn_alloc(sizeof(int) * (size_t)e->slots);
    for (int i = 0; i < e->ideals.count; ++i) *find_slot(e, sn_ideal(&e->ideals, i)) = i + 1;
}

static void add_set(enumeration *e, const uint64_t *set) {
    int *slot = find_slot(e, set);
    if (*slot) return;
    *slot = e->ideals.count + 1;
    memcpy(e->ideals.bits + (size_t)e->ideals.count * (size_t)e->ideals.words, set, set_bytes(e));
    if (++e->ideals.count == e->capacity) grow(e);
}

bool sn_ideal_within(const sn_ideals *ideals, const uint64_t *inner, const uint64_t *outer) {
    for (int i = 0; i < ideals->words; ++i) {
        if (inner[i] & ~outer[i]) return false;
    }
    return true;
}

// Sets grow by one unit, so they come out by size.
static bool enumerate(enumeration *e) {
    int words = e->ideals.words;
    uint64_t *set = sn_alloc(set_bytes(e)), *grown = sn_alloc(set_bytes(e));
    add_set(e, set);
    for (int i = 0; i < e->ideals.count && e->ideals.count <= e->limit; ++i) {
        memcpy(set, sn_ideal(&e->ideals, i), set_bytes(e)); // the array may move
        for (int unit = 0; unit < e->ideals.units; ++unit) {
            if (sn_ideal_has(set, unit) || !sn_ideal_within(&e->ideals, e->needs + (long)unit * words, set)) continue;
            memcpy(grown, set, set_bytes(e));
            grown[unit >> 6] |= (uint64_t)1 << (unit & 63);
            add_set(e, grown);
        }
    }
    sn_free(set);
    sn_free(grown);
    return e->ideals.count <= e->limit;
}

bool sn_ideals_enumerate(int units, const sn_unit_edge *edges, int edge_count, int limit, sn_ideals *out) {
    int *order = sn_alloc(sizeof(int) * (size_t)(units + 1));
    bool fine = sn_ideals_linearize(units, edges, edge_count, order);
    sn_free(order);
    if (!fine) return false;
    enumeration e = {.ideals = {.units = units, .words = (units + 63) / 64}, .capacity = 64, .limit = limit};
    e.ideals.words += units == 0;
    e.needs = sn_alloc(set_bytes(&e) * (size_t)(units + 1));
    for (int i = 0; i < edge_count; ++i) {
        e.needs[(long)edges[i].to * e.ideals.words + (edges[i].from >> 6)] |= (uint64_t)1 << (edges[i].from & 63);
    }
    e.capacity = 32;
    grow(&e);
    fine = enumerate(&e);
    sn_free(e.slot);
    sn_free(e.needs);
    if (fine) *out = e.ideals;
    if (!fine) sn_free(e.ideals.bits);
    return fine;
}

void sn_ideals_filter(sn_ideals *ideals, bool (*keep)(void *context, const uint64_t *set), void *context) {
    int kept = 0;
    for (int i = 0; i < ideals->count; ++i) {
        if (!keep(context, sn_ideal(ideals, i))) continue;
        memmove(ideals->bits + (long)kept++ * ideals->words, sn_ideal(ideals, i),
                sizeof(uint64_t) * (size_t)ideals->words);
    }
    ideals->count = kept;
}

void sn_ideals_free(sn_ideals *ideals) {
    sn_free(ideals->bits);
    *ideals = (sn_ideals){0};
}
