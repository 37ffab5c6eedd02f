#include "base/map.h"

#include "base/alloc.h"

#include <string.h>

uint64_t sn_hash_bytes(const void *data, size_t bytes, uint64_t seed) {
    uint64_t hash = 0xcbf29ce484222325u ^ seed;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

static uint32_t *find_slot(const sn_map *map, const char *key) {
    size_t at = sn_hash_bytes(key, strlen(key), 0) & (map->n_slots - 1);
    while (map->slots[at] && strcmp(map->entries[map->slots[at] - 1].key, key) != 0) at = (at + 1) & (map->n_slots - 1);
    return &map->slots[at];
}

static void grow(sn_map *map) {
    map->n_slots = map->n_slots ? map->n_slots * 2 : 16;
    sn_free(map->slots);
    map->slots = sn_alloc(map->n_slots * sizeof *map->slots);
    for (size_t i = 0; i < map->count; i++) *find_slot(map, map->entries[i].key) = (uint32_t)i + 1;
}

void sn_map_put(sn_map *map, const char *key, void *value) {
    if (map->count * 2 >= map->n_slots) grow(map);
    uint32_t *slot = find_slot(map, key);
    if (*slot) {
        map->entries[*slot - 1].value = value;
        return;
    }
    if (map->count == map->capacity) {
        map->capacity = map->capacity ? map->capacity * 2 : 8;
        map->entries = sn_realloc(map->entries, map->capacity * sizeof *map->entries);
    }
    map->entries[map->count++] = (sn_map_entry){key, value};
    *slot = (uint32_t)map->count;
}

static const sn_map_entry *find(const sn_map *map, const char *key) {
    if (!map->n_slots) return NULL;
    uint32_t index = *find_slot(map, key);
    return index ? &map->entries[index - 1] : NULL;
}

void *sn_map_get(const sn_map *map, const char *key) {
    const sn_map_entry *entry = find(map, key);
    return entry ? entry->value : NULL;
}

bool sn_map_has(const sn_map *map, const char *key) {
    return find(map, key) != NULL;
}

void sn_map_free(sn_map *map) {
    sn_free(map->entries);
    sn_free(map->slots);
    *map = (sn_map){0};
}
