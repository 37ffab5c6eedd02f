#include "passes/cost/json_line.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct cursor {
    const char *at, *end;
    int line;
} cursor;

static void skip_blanks(cursor *c) {
    for (; c->at < c->end && strchr(" \t\r\n", *c->at); c->at++) c->line += *c->at == '\n';
}

static bool take(cursor *c, char wanted) {
    skip_blanks(c);
    if (c->at >= c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

// Skips a string; whether it is `key` as written (keys with escapes are never asked for).
static bool skip_string(cursor *c, const char *key, size_t length) {
    const char *start = ++c->at;
    while (c->at < c->end && *c->at != '"') c->at += *c->at == '\\' ? 2 : 1;
    bool same = (size_t)(c->at - start) == length && memcmp(start, key, length) == 0;
    if (c->at < c->end) c->at++;
    return same;
}

static void skip_value(cursor *c) {
    int depth = 0;
    do {
        skip_blanks(c);
        if (c->at >= c->end) return;
        char first = *c->at;
        if (first == '"') {
            skip_string(c, "", 0);
        } else {
            depth += first == '{' || first == '[';
            depth -= first == '}' || first == ']';
            c->at++;
            if (!strchr("{}[],:", first))
                while (c->at < c->end && !strchr("{}[],: \t\r\n", *c->at)) c->at++;
        }
    } while (depth > 0);
}

static bool enter_member(cursor *c, const char *key, size_t length) {
    if (!take(c, '{')) return false;
    while (skip_blanks(c), c->at < c->end && *c->at == '"') {
        bool found = skip_string(c, key, length);
        if (!take(c, ':')) return false;
        skip_blanks(c);
        if (found) return true;
        skip_value(c);
        if (!take(c, ',')) return false;
    }
    return false;
}

static bool enter_element(cursor *c, long index) {
    if (!take(c, '[')) return false;
    for (; index > 0; index--) {
        skip_value(c);
        if (!take(c, ',')) return false;
    }
    skip_blanks(c);
    return true;
}

int sn_json_line(const char *text, size_t length, const char *path) {
    cursor c = {text, text + length, 1};
    skip_blanks(&c);
    while (*path) {
        cursor before = c;
        bool found;
        if (*path == '[') {
            char *end;
            found = enter_element(&c, strtol(path + 1, &end, 10));
            path = end + (*end == ']');
        } else {
            path += *path == '.';
            size_t n = strcspn(path, ".[");
            found = enter_member(&c, path, n);
            path += n;
        }
        if (!found) return before.line; // a member that is missing: the line of the object it is missing in
    }
    return c.line;
}
