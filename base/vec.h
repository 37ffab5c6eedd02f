// Growing arrays. `SN_VEC(T) name = {0};` then sn_vec_push(&name, item); name.data[i]; name.count; sn_vec_free(&name).
#pragma once
#include "base/alloc.h"

#include <stddef.h>

#define SN_VEC(type)                                                                                                   \
    struct {                                                                                                           \
        type *data;                                                                                                    \
        size_t count, capacity;                                                                                        \
    }

#define sn_vec_reserve(vec, wanted)                                                                                    \
    do {                                                                                                               \
        if ((vec)->capacity < (size_t)(wanted)) {                                                                      \
            size_t capacity_ = (vec)->capacity ? (vec)->capacity * 2 : 8;                                              \
            if (capacity_ < (size_t)(wanted)) capacity_ = (size_t)(wanted);                                            \
            (vec)->data = sn_realloc((vec)->data, capacity_ * sizeof *(vec)->data);                                    \
            (vec)->capacity = capacity_;                                                                               \
        }                                                                                                              \
    } while (0)

#define sn_vec_push(vec, ...)                                                                                          \
    do {                                                                                                               \
        sn_vec_reserve(vec, (vec)->count + 1);                                                                         \
        (vec)->data[(vec)->count++] = (__VA_ARGS__);                                                                   \
    } while (0)

#define sn_vec_last(vec) ((vec)->data[(vec)->count - 1])
#define sn_vec_free(vec)                                                                                               \
    do {                                                                                                               \
        sn_free((vec)->data);                                                                                          \
        (vec)->data = NULL;                                                                                            \
        (vec)->count = (vec)->capacity = 0;                                                                            \
    } while (0)
