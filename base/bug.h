// Bugs of ours: print what is known and abort. Users' mistakes are diagnostics (base/diag.h), the environment's are
// statuses (base/status.h).
#pragma once

#define SN_PRINTF(at, first) __attribute__((format(printf, at, first)))

// `context`, when set, prints the state around a bug (the IR, say) before the abort.
typedef void (*sn_bug_context)(void *user);
void sn_bug_set_context(sn_bug_context context, void *user);

_Noreturn void sn_bug_at(const char *file, int line, const char *format, ...) SN_PRINTF(3, 4);

#define SN_BUG(...) sn_bug_at(__FILE__, __LINE__, __VA_ARGS__)
#define SN_CHECK(condition)                                                                                            \
    do {                                                                                                               \
        if (!(condition)) SN_BUG("check failed: %s", #condition);                                                      \
    } while (0)
