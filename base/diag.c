#include "base/diag.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdarg.h>
#include <string.h>

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

// Whether the last one repeats an earlier one.
static bool is_said(const sn_diags *diags) {
    const sn_diag *last = &diags->items[diags->count - 1];
    for (const sn_diag *d = diags->items; d < last; d++)
        if (d->severity == last->severity && strcmp(d->code, last->code) == 0 && same_text(d->subject, last->subject) &&
            strcmp(d->message, last->message) == 0)
            return true;
    return false;
}

void sn_diags_add(sn_diags *diags, sn_severity severity, const char *code, const char *subject, const char *help,
                  const char *format, ...) {
    if (diags->count == diags->capacity) {
        diags->capacity = diags->capacity ? diags->capacity * 2 : 8;
        diags->items = sn_realloc(diags->items, diags->capacity * sizeof *diags->items);
    }
    sn_str message = {0};
    va_list args;
    va_start(args, format);
    sn_str_vprintf(&message, format, args);
    va_end(args);
    diags->items[diags->count++] = (sn_diag){
        .severity = severity,
        .code = sn_arena_strdup(&diags->arena, code),
        .subject = subject ? sn_arena_strdup(&diags->arena, subject) : NULL,
        .message = sn_arena_strdup(&diags->arena, sn_str_text(&message)),
        .help = help ? sn_arena_strdup(&diags->arena, help) : NULL,
    };
    if (severity == SN_ERROR) diags->errors++;
    if (severity == SN_WARNING && is_said(diags)) diags->count--;
    sn_str_free(&message);
}

void sn_diags_print(const sn_diags *diags, size_t first, bool remarks, FILE *out) {
    static const char *const word[] = {[SN_REMARK] = "remark", [SN_WARNING] = "warning", [SN_ERROR] = "error"};
    fflush(stdout); // where both go to one file, each stays whole
    for (size_t i = first; i < diags->count; i++) {
        const sn_diag *d = &diags->items[i];
        if (d->severity == SN_REMARK && !remarks) continue;
        fprintf(out, "%s[%s]: %s\n", word[d->severity], d->code, d->message);
        if (d->subject) fprintf(out, "  at: %s\n", d->subject);
        if (d->help) fprintf(out, "  help: %s\n", d->help);
    }
}

void sn_diags_free(sn_diags *diags) {
    sn_arena_free(&diags->arena);
    sn_free(diags->items);
    *diags = (sn_diags){0};
}
