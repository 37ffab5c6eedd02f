// check_trace FILE PREFIX…: whether a file is in Chrome's trace event format as its viewers want it, whole and in
// order: complete events with all fields, on named processes, none overlapping another of its thread, each beginning at
// 0 or later; and whether it has a process whose name starts with each PREFIX.
#include "base/alloc.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct event {
    json_int_t pid, tid;
    double ts, dur;
    size_t index;
} event;

static int failures;
static const char *path;

static void complain(size_t index, const char *what) {
    fprintf(stderr, "%s: event %zu: %s\n", path, index, what);
    failures++;
}

static int by_place(const void *a, const void *b) {
    const event *x = a, *y = b;
    if (x->pid != y->pid) return x->pid < y->pid ? -1 : 1;
    if (x->tid != y->tid) return x->tid < y->tid ? -1 : 1;
    if (x->ts < y->ts || x->ts > y->ts) return x->ts < y->ts ? -1 : 1;
    return (x->dur > y->dur) - (x->dur < y->dur);
}

static const char *process_name(const json_t *item) {
    const char *name = json_string_value(json_object_get(item, "name"));
    if (!name || strcmp(name, "process_name") != 0) return NULL;
    return json_string_value(json_object_get(json_object_get(item, "args"), "name"));
}

static bool is_named(const json_t *list, json_int_t pid) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (process_name(item) && json_integer_value(json_object_get(item, "pid")) == pid) return true;
    }
    return false;
}

static bool read_event(const json_t *item, size_t index, event *out) {
    const char *ph = json_string_value(json_object_get(item, "ph"));
    const json_t *pid = json_object_get(item, "pid"), *tid = json_object_get(item, "tid");
    if (!ph || !json_is_string(json_object_get(item, "name"))) complain(index, "no ph or name");
    if (!json_is_integer(pid) || !json_is_integer(tid)) complain(index, "no pid or tid");
    if (!ph || strcmp(ph, "M") == 0) return false;
    if (strcmp(ph, "X") != 0) complain(index, "neither M nor X");
    const json_t *ts = json_object_get(item, "ts"), *dur = json_object_get(item, "dur");
    if (!json_is_number(ts) || !json_is_number(dur)) complain(index, "no ts or dur");
    if (json_number_value(ts) < 0 || json_number_value(dur) < 0) complain(index, "ts or dur below 0");
    *out =
        (event){json_integer_value(pid), json_integer_value(tid), json_number_value(ts), json_number_value(dur), index};
    return true;
}

static void check_order(const json_t *list, event *events, size_t n) {
    if (n) qsort(events, n, sizeof *events, by_place);
    for (size_t i = 0; i < n; i++) {
        bool next = i && events[i].pid == events[i - 1].pid && events[i].tid == events[i - 1].tid;
        // rounding to nanoseconds when the file was written
        if (next && events[i].ts < events[i - 1].ts + events[i - 1].dur - 0.01)
            complain(events[i].index, "overlaps another of its thread");
        if ((!i || events[i].pid != events[i - 1].pid) && !is_named(list, events[i].pid))
            complain(events[i].index, "its process has no name");
    }
}

static void expect_process(const json_t *list, const char *prefix) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = process_name(json_array_get(list, i));
        if (name && strncmp(name, prefix, strlen(prefix)) == 0) return;
    }
    fprintf(stderr, "%s: no process '%s…'\n", path, prefix);
    failures++;
}

int main(int argc, char **argv) {
    json_error_t error;
    path = argc > 1 ? argv[1] : "";
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const json_t *list = json_object_get(json, "traceEvents");
    if (!json_array_size(list)) {
        fprintf(stderr, "%s: no trace events: %s\n", path, json ? "" : error.text);
        return 1;
    }
    event *events = sn_alloc(json_array_size(list) * sizeof *events);
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) n += read_event(json_array_get(list, i), i, &events[n]);
    check_order(list, events, n);
    for (int i = 2; i < argc; i++) expect_process(list, argv[i]);
    sn_free(events);
    json_decref(json);
    return failures != 0;
}
