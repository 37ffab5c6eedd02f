// Memory that is given back all at once. Zero-initialise; allocations are zeroed and 16-byte aligned.
#pragma once
#include "base/bug.h"

#include <stddef.h>

typedef struct sn_arena {
    struct sn_arena_chunk *chunk;
    size_t used_bytes; // handed out, over all chunks
} sn_arena;

void *sn_arena_alloc(sn_arena *arena, size_t bytes);
void *sn_arena_copy(sn_arena *arena, const void *data, size_t bytes);
char *sn_arena_strdup(sn_arena *arena, const char *text);
char *sn_arena_printf(sn_arena *arena, const char *format, ...) SN_PRINTF(2, 3);
void sn_arena_free(sn_arena *arena); // gives everything back; the arena can be used again

#define SN_NEW(arena, type)          ((type *)sn_arena_alloc((arena), sizeof(type)))
#define SN_NEW_N(arena, type, count) ((type *)sn_arena_alloc((arena), sizeof(type) * (size_t)(count)))
