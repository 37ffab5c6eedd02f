#include "base/arena.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

enum { FIRST_CHUNK = 1 << 14, LARGEST_CHUNK = 1 << 22 };

struct sn_arena_chunk {
    struct sn_arena_chunk *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
};

void *sn_arena_alloc(sn_arena *arena, size_t bytes) {
    SN_CHECK(bytes <= SIZE_MAX / 2);
    bytes = (bytes + 15) & ~(size_t)15;
    struct sn_arena_chunk *chunk = arena->chunk;
    if (!chunk || chunk->size - chunk->used < bytes) {
        size_t size = chunk ? chunk->size * 2 : FIRST_CHUNK;
        if (size > LARGEST_CHUNK) size = LARGEST_CHUNK;
        if (size < bytes) size = bytes;
        struct sn_arena_chunk *fresh = sn_alloc(sizeof *fresh + size);
        fresh->size = size;
        fresh->next = chunk;
        arena->chunk = chunk = fresh;
    }
    void *memory = chunk->data + chunk->used;
    chunk->used += bytes;
    arena->used_bytes += bytes;
    return memory;
}

void *sn_arena_copy(sn_arena *arena, const void *data, size_t bytes) {
    void *copy = sn_arena_alloc(arena, bytes);
    if (bytes) memcpy(copy, data, bytes);
    return copy;
}

char *sn_arena_strdup(sn_arena *arena, const char *text) {
    return sn_arena_copy(arena, text, strlen(text) + 1);
}

char *sn_arena_printf(sn_arena *arena, const char *format, ...) {
    sn_str text = {0};
    va_list args;
    va_start(args, format);
    sn_str_vprintf(&text, format, args);
    va_end(args);
    char *copy = sn_arena_copy(arena, sn_str_text(&text), text.length + 1);
    sn_str_free(&text);
    return copy;
}

void sn_arena_free(sn_arena *arena) {
    for (struct sn_arena_chunk *chunk = arena->chunk, *next; chunk; chunk = next) {
        next = chunk->next;
        sn_free(chunk);
    }
    *arena = (sn_arena){0};
}
