// A hash map from strings to pointers (insertion order is kept for iteration). Keys are not copied: they must outlive
// the map. Zero-initialise.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sn_map_entry {
    const char *key;
    void *value;
} sn_map_entry;

typedef struct sn_map {
    sn_map_entry *entries; // in insertion order; count of them
    size_t count, capacity;
    uint32_t *slots; // index + 1 into entries, 0 when empty
    size_t n_slots;
} sn_map;

void sn_map_put(sn_map *map, const char *key, void *value); // replaces an equal key's value
void *sn_map_get(const sn_map *map, const char *key);       // NULL when absent
bool sn_map_has(const sn_map *map, const char *key);
void sn_map_free(sn_map *map);

uint64_t sn_hash_bytes(const void *data, size_t bytes, uint64_t seed); // FNV-1a, 64 bit
