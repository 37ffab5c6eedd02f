// Memory from the C heap. These never return NULL: when memory runs out the handler is called and does not return.
// Tests make the n-th call fail through sn_alloc_fail_at and leave with longjmp from a handler of their own.
#pragma once
#include <stddef.h>

void *sn_alloc(size_t bytes);                 // zeroed
void *sn_realloc(void *memory, size_t bytes); // the added part is not zeroed
void sn_free(void *memory);

// Replaces the handler (default: a message and _Exit(1)); returns the former one. Not thread-safe.
typedef void (*sn_oom_handler)(size_t bytes);
sn_oom_handler sn_alloc_on_failure(sn_oom_handler handler);
// The n-th allocation from now fails (1 is the next one); 0 switches this off. For tests.
void sn_alloc_fail_at(long n);
