#include "base/bug.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static sn_bug_context print_context;
static void *context_user;

void sn_bug_set_context(sn_bug_context context, void *user) {
    print_context = context;
    context_user = user;
}

void sn_bug_at(const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "sennit: internal error at %s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    sn_bug_context context = print_context;
    print_context = NULL; // a bug inside the context printer must not recurse
    if (context) context(context_user);
    abort();
}
