#include "profile.h"

#include "format.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *trim(char *text) {
    while (*text == ' ' || *text == '\t') ++text;
    for (size_t n = strlen(text); n > 0 && strchr(" \t\r\n", text[n - 1]); --n) text[n - 1] = 0;
    return text;
}

static char *copy(const char *text) {
    char *made = sn_alloc(strlen(text) + 1);
    return strcpy(made, text);
}

// Splits at " -- "; the number of parts.
static int split(char *line, char **parts, int most) {
    int count = 0;
    for (char *at = line; at && count < most;) {
        char *next = strstr(at, " -- ");
        if (next) *next = 0;
        parts[count++] = trim(at);
        at = next ? next + 4 : NULL;
    }
    return count;
}

// The value behind "name=": a number or the sum of a list "[a; b]".
static double field(const char *file, const char *text, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "%s=", name);
    const char *at = strstr(text, key);
    if (!at) bad_file(file, "'%s' has no %s", text, name);
    at += strlen(key);
    bool list = *at == '[';
    double sum = 0;
    do {
        char *end;
        if (list) ++at;
        sum += strtod(at, &end);
        if (end == at) bad_file(file, "'%s': %s is no number", text, name);
        at = end;
    } while (list && *at == ';');
    return sum;
}

static int find_node(const char *file, const profile *p, const char *id) {
    for (size_t i = 0; i < p->nodes.count; ++i) {
        if (strcmp(p->nodes.data[i].id, id) == 0) return (int)i;
    }
    bad_file(file, "an edge names '%s', which is no node", id);
}

static void read_line(const char *file, profile *p, char *line) {
    bool indented = *line == ' ' || *line == '\t';
    char *parts[4] = {NULL};
    int count = split(trim(line), parts, 4);
    if (count == 1 && !*parts[0]) return;
    if (indented || count == 2) {
        if (count != 2) bad_file(file, "'%s': an edge has two ends", parts[0]);
        sn_unit_edge edge = {find_node(file, p, parts[0]), find_node(file, p, parts[1])};
        sn_vec_push(&p->edges, edge);
        return;
    }
    if (count < 3) bad_file(file, "'%s' has no description or no numbers", parts[0]);
    profile_node node = {copy(parts[0]),
                         copy(parts[1]),
                         field(file, parts[2], "forward_compute_time"),
                         field(file, parts[2], "backward_compute_time"),
                         field(file, parts[2], "activation_size"),
                         field(file, parts[2], "parameter_size")};
    sn_vec_push(&p->nodes, node);
}

profile profile_read(const char *file) {
    profile p = {0};
    FILE *in = fopen(file, "r");
    if (!in) bad_file(file, "cannot be opened");
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, in) >= 0) read_line(file, &p, line);
    free(line);
    fclose(in);
    if (p.nodes.count == 0) bad_file(file, "no nodes");
    return p;
}

void profile_free(profile *p) {
    for (size_t i = 0; i < p->nodes.count; ++i) {
        sn_free(p->nodes.data[i].id);
        sn_free(p->nodes.data[i].description);
    }
    sn_vec_free(&p->nodes);
    sn_vec_free(&p->edges);
}

bool profile_has_edge(const profile *p, int node, bool from) {
    for (size_t i = 0; i < p->edges.count; ++i) {
        if ((from ? p->edges.data[i].from : p->edges.data[i].to) == node) return true;
    }
    return false;
}

void profile_remove(profile *p, int node) {
    size_t kept = 0;
    sn_free(p->nodes.data[node].id);
    sn_free(p->nodes.data[node].description);
    memmove(p->nodes.data + node, p->nodes.data + node + 1,
            sizeof *p->nodes.data * (p->nodes.count - (size_t)node - 1));
    --p->nodes.count;
    for (size_t i = 0; i < p->edges.count; ++i) {
        sn_unit_edge e = p->edges.data[i];
        if (e.from == node || e.to == node) continue;
        p->edges.data[kept++] = (sn_unit_edge){e.from - (e.from > node), e.to - (e.to > node)};
    }
    p->edges.count = kept;
}
