#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>

static void die_of_hunger(size_t bytes) {
    fprintf(stderr, "sennit: out of memory (asked for %zu bytes); smaller batches and shorter sequences need less\n",
            bytes);
    _Exit(1);
}

static sn_oom_handler on_failure = die_of_hunger;
static long fail_countdown;

static int should_fail(void) {
    return fail_countdown > 0 && --fail_countdown == 0;
}

void *sn_alloc(size_t bytes) {
    void *memory = should_fail() ? NULL : calloc(1, bytes ? bytes : 1);
    if (!memory) on_failure(bytes);
    return memory;
}

void *sn_realloc(void *memory, size_t bytes) {
    void *moved = should_fail() ? NULL : realloc(memory, bytes ? bytes : 1);
    if (!moved) on_failure(bytes);
    return moved;
}

void sn_free(void *memory) {
    free(memory);
}

sn_oom_handler sn_alloc_on_failure(sn_oom_handler handler) {
    sn_oom_handler former = on_failure;
    on_failure = handler ? handler : die_of_hunger;
    return former;
}

void sn_alloc_fail_at(long n) {
    fail_countdown = n;
}
