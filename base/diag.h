// Diagnostics: what the user should know. They are collected, many per run, each with a code, the ONNX node (or file)
// it is about, and a way out. Not thread-safe.
#pragma once
#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum sn_severity { SN_REMARK, SN_WARNING, SN_ERROR } sn_severity;

typedef struct sn_diag {
    sn_severity severity;
    const char *code;    // "E0104", "W0301", "R0007": stable, documented in docs/diagnostics.md
    const char *subject; // the ONNX node, file or option it is about; NULL when none
    const char *message; // one sentence
    const char *help;    // the way out; NULL when none
} sn_diag;

typedef struct sn_diags {
    sn_arena arena;
    sn_diag *items;
    size_t count, capacity;
    size_t errors;
} sn_diags;

// Adds one; a warning that was given before is not given again (a command may compile a model twice). all text is
// copied. `subject` may be NULL, and so may the help of a remark.
void sn_diags_add(sn_diags *diags, sn_severity severity, const char *code, const char *subject, const char *help,
                  const char *format, ...) SN_PRINTF(6, 7);
// Errors and warnings say the way out: a literal NULL for `help` does not compile.
#define SN_DIAG_HELP(help) _Generic((help), char * : (help), const char * : (help))
#define sn_error(diags, code, subject, help, ...)                                                                      \
    sn_diags_add(diags, SN_ERROR, code, subject, SN_DIAG_HELP(help), __VA_ARGS__)
#define sn_warning(diags, code, subject, help, ...)                                                                    \
    sn_diags_add(diags, SN_WARNING, code, subject, SN_DIAG_HELP(help), __VA_ARGS__)
#define sn_remark(diags, code, subject, help, ...) sn_diags_add(diags, SN_REMARK, code, subject, help, __VA_ARGS__)

// Prints items from `first` on as "error[E0104]: message" / "  at: subject" / "  help: …"; remarks only when asked.
void sn_diags_print(const sn_diags *diags, size_t first, bool remarks, FILE *out);
void sn_diags_free(sn_diags *diags);
