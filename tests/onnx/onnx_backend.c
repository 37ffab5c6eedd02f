// Runs ONNX's backend tests through the reference interpreter and through compiled code.
//
//   onnx_backend [options] FOLDER      FOLDER holds node/, simple/, … as in the onnx package
//     --interpreted, --compiled        only one of the two paths
//     --filter TEXT                    only tests whose name contains TEXT
//     --verbose                        prints every test that does not pass
//     --table FILE [--check]           writes the table of operators, or fails when FILE differs from it
//     --summary FILE                   counts as JSON
//     --floor-interpreted N, --floor-compiled N    fails when fewer node tests pass
//
// Each test runs in a process of its own with a time limit, so that a crash is a verdict and not the end. Status 1
// when any answer is wrong, anything crashes, or a floor is missed.
#include "base/alloc.h"
#include "base/file.h"
#include "base/map.h"
#include "base/vec.h"
#include "tests/onnx/case.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS_PER_TEST = 60 };

typedef enum path { INTERPRETED, COMPILED, PATH_COUNT } path;
static executor *const executors[] = {[INTERPRETED] = run_interpreted, [COMPILED] = run_compiled};
static const char *const path_names[] = {[INTERPRETED] = "interpreted", [COMPILED] = "compiled"};
static const char *const verdict_names[] = {
    [PASS] = "pass", [UNSUPPORTED] = "unsupported", [WRONG] = "wrong", [CRASH] = "crash"};

typedef struct test {
    char *group, *name, *folder, *subject;
    verdict found[PATH_COUNT];
    char *reason[PATH_COUNT];
} test;

typedef struct options {
    bool on[PATH_COUNT], verbose, check;
    const char *filter, *table, *summary, *root;
    long floor[PATH_COUNT];
} options;

typedef SN_VEC(test) tests;

// In the child: one line per path, "verdict reason", after a line with the subject.
static void run_child(const test *t, const options *opts, int out) {
    sn_str line = {0};
    case_subject(t->folder, &line);
    sn_str_putc(&line, '\n');
    for (int p = 0; p < PATH_COUNT; p++) {
        sn_str reason = {0};
        int found = opts->on[p] ? (int)run_case(t->folder, executors[p], &reason) : UNSUPPORTED;
        for (char *c = reason.data; c && *c; c++)
            if (*c == '\n') *c = ' ';
        sn_str_printf(&line, "%d %s\n", found, sn_str_text(&reason));
        if (write(out, line.data, line.length) < 0) _exit(3);
        sn_str_clear(&line);
    }
    _exit(0);
}

// Reads all that the child says, until it ends or its time is over.
static void read_child(int in, pid_t child, sn_str *out) {
    time_t end = time(NULL) + SECONDS_PER_TEST;
    for (;;) {
        struct pollfd waiting = {.fd = in, .events = POLLIN};
        time_t left = end - time(NULL);
        int ready = left > 0 ? poll(&waiting, 1, (int)left * 1000) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) {
            kill(child, SIGKILL);
            return;
        }
        char buffer[4096];
        ssize_t n = read(in, buffer, sizeof buffer);
        if (n <= 0) return;
        sn_str_append(out, buffer, (size_t)n);
    }
}

// What a crashed child wrote to stderr, and how it ended.
static char *crash_reason(int log, int status) {
    char text[400];
    ssize_t n = pread(log, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    sn_str reason = {0};
    sn_str_printf(&reason, "%s: %s", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit", text);
    return reason.data;
}

static void read_verdicts(test *t, char *text, int log, int status) {
    char *line = strsep(&text, "\n");
    t->subject = strdup(line && *line ? line : "unreadable");
    for (int p = 0; p < PATH_COUNT; p++) {
        line = text ? strsep(&text, "\n") : NULL;
        if (line && *line) {
            t->found[p] = (verdict)(line[0] - '0');
            t->reason[p] = strdup(line + 2);
        } else {
            t->found[p] = p > 0 && t->found[p - 1] == CRASH ? UNSUPPORTED : CRASH;
            t->reason[p] = t->found[p] == CRASH ? crash_reason(log, status) : strdup("the other path crashed");
        }
    }
}

// Tests whose stored outputs cannot be met: why, and in which folders (a part of their path) when not in all.
static const struct {
    const char *name, *where, *reason;
} unmeetable[] = {
    {"test_dft_inverse", "", "where the exact output is 0 the stored one is numpy's rounding noise, 1.9e-7 > atol"},
    {"test_dft_inverse_opset19", "", "as test_dft_inverse: numpy's rounding noise"},
    {"test_cast_FLOAT_to_BFLOAT16", "libonnx-testdata", "onnx 1.12 truncated where the standard rounds to nearest"},
    {"test_adam_multiple", "libonnx-testdata",
     "the model of onnx 1.12 lacks the epsilon that its outputs were made with"},
};

static void excuse_unmeetable(test *t) {
    for (size_t i = 0; i < sizeof unmeetable / sizeof *unmeetable; i++)
        for (int p = 0; p < PATH_COUNT; p++) {
            if (t->found[p] != WRONG || strcmp(t->name, unmeetable[i].name) != 0) continue;
            if (!strstr(t->folder, unmeetable[i].where)) continue;
            t->found[p] = UNSUPPORTED;
            t->reason[p] = strdup(unmeetable[i].reason);
        }
}

typedef struct worker {
    pid_t child;
    int out, log; // what it says, and its stderr
} worker;

static worker start(const test *t, const options *opts) {
    int ends[2], log = memfd_create("stderr", MFD_CLOEXEC);
    if (log < 0 || pipe(ends) != 0) SN_BUG("no pipe: %s", strerror(errno));
    fflush(NULL);
    worker w = {fork(), ends[0], log};
    if (w.child == 0) {
        close(ends[0]);
        dup2(log, STDERR_FILENO);
        run_child(t, opts, ends[1]);
    }
    if (w.child < 0) SN_BUG("no process: %s", strerror(errno));
    close(ends[1]);
    return w;
}

static void finish(worker w, test *t, const options *opts) {
    sn_str said = {0};
    int status = 0;
    read_child(w.out, w.child, &said);
    waitpid(w.child, &status, 0);
    sn_str_putc(&said, '\n');
    read_verdicts(t, said.data, w.log, status);
    close(w.out), close(w.log);
    sn_str_free(&said);
    excuse_unmeetable(t);
    for (int p = 0; p < PATH_COUNT; p++) {
        bool bad = t->found[p] == WRONG || t->found[p] == CRASH;
        if (opts->on[p] && (bad || (opts->verbose && t->found[p] != PASS)))
            printf("%s %s/%s %s: %s\n", verdict_names[t->found[p]], t->group, t->name, path_names[p], t->reason[p]);
    }
}

// Two at a time: one test starts while the one before it still runs.
static void run_tests(const tests *all, const options *opts) {
    worker now = start(&all->data[0], opts);
    for (size_t i = 0; i < all->count; i++) {
        worker next = {0};
        if (i + 1 < all->count) next = start(&all->data[i + 1], opts);
        finish(now, &all->data[i], opts);
        now = next;
    }
}

static int visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static void find_tests(const options *opts, tests *out) {
    struct dirent **groups, **names;
    int n_groups = scandir(opts->root, &groups, visible, alphasort);
    for (int g = 0; g < n_groups; g++) {
        sn_str folder = {0};
        sn_str_printf(&folder, "%s/%s", opts->root, groups[g]->d_name);
        int n = scandir(sn_str_text(&folder), &names, visible, alphasort);
        for (int i = 0; i < n; i++) {
            sn_str at = {0};
            sn_str_printf(&at, "%s/%s", sn_str_text(&folder), names[i]->d_name);
            sn_str model = {0};
            sn_str_printf(&model, "%s/model.onnx", sn_str_text(&at));
            bool wanted = !opts->filter || strstr(names[i]->d_name, opts->filter);
            if (wanted && access(sn_str_text(&model), R_OK) == 0)
                sn_vec_push(out, (test){.group = strdup(groups[g]->d_name),
                                        .name = strdup(names[i]->d_name),
                                        .folder = strdup(sn_str_text(&at))});
            sn_str_free(&at), sn_str_free(&model);
            free(names[i]);
        }
        if (n >= 0) free(names);
        sn_str_free(&folder);
        free(groups[g]);
    }
    if (n_groups >= 0) free(groups);
}

static long count(const tests *all, const char *group, const char *subject, path p, verdict wanted) {
    long n = 0;
    for (size_t i = 0; i < all->count; i++) {
        const test *t = &all->data[i];
        n += (!group || strcmp(t->group, group) == 0) && (!subject || strcmp(t->subject, subject) == 0) &&
             t->found[p] == wanted;
    }
    return n;
}

static int by_subject(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// A cell of the table: how many pass of all, and which other verdicts there are.
static void print_cell(sn_str *out, const tests *all, const char *group, const char *subject, path p) {
    long n[VERDICT_COUNT], total = 0;
    for (int v = 0; v < VERDICT_COUNT; v++) total += n[v] = count(all, group, subject, p, (verdict)v);
    sn_str_printf(out, " %ld of %ld", n[PASS], total);
    if (n[WRONG] + n[CRASH]) sn_str_printf(out, ", **%ld wrong**", n[WRONG] + n[CRASH]);
    sn_str_puts(out, " |");
}

static const char *first_reason(const tests *all, const char *subject) {
    for (size_t i = 0; i < all->count; i++) {
        const test *t = &all->data[i];
        for (int p = 0; p < PATH_COUNT; p++)
            if (strcmp(t->subject, subject) == 0 && t->found[p] == UNSUPPORTED) return t->reason[p];
    }
    return "";
}

static void print_reason(sn_str *out, const char *reason) {
    for (const char *c = reason; *c && c < reason + 110; c++) {
        if (*c == '|') sn_str_putc(out, '\\');
        sn_str_putc(out, *c);
    }
}

static void print_table(const tests *all, sn_str *out) {
    sn_map seen = {0};
    sn_str_puts(out, "# ONNX's backend tests\n\nWritten by `onnx_backend --table`; a test fails when it is stale. "
                     "\"4 of 5\" means that four tests pass and one ends in a diagnostic, of which the last column "
                     "shows the first.\n\n| group | interpreted | compiled |\n|---|---|---|\n");
    for (size_t i = 0; i < all->count; i++) {
        const char *group = all->data[i].group;
        if (sn_map_has(&seen, group)) continue;
        sn_map_put(&seen, group, (void *)group);
        sn_str_printf(out, "| %s |", group);
        for (int p = 0; p < PATH_COUNT; p++) print_cell(out, all, group, NULL, (path)p);
        sn_str_putc(out, '\n');
    }
    sn_map_free(&seen);
    SN_VEC(const char *) subjects = {0};
    for (size_t i = 0; i < all->count; i++) {
        const char *subject = all->data[i].subject;
        if (sn_map_has(&seen, subject)) continue;
        sn_map_put(&seen, subject, (void *)subject);
        sn_vec_push(&subjects, subject);
    }
    if (subjects.count) qsort(subjects.data, subjects.count, sizeof *subjects.data, by_subject);
    sn_str_puts(out, "\n| operator | interpreted | compiled | unsupported |\n|---|---|---|---|\n");
    for (size_t i = 0; i < subjects.count; i++) {
        sn_str_printf(out, "| %s |", subjects.data[i]);
        for (int p = 0; p < PATH_COUNT; p++) print_cell(out, all, NULL, subjects.data[i], (path)p);
        sn_str_putc(out, ' ');
        print_reason(out, first_reason(all, subjects.data[i]));
        sn_str_puts(out, " |\n");
    }
    sn_vec_free(&subjects);
    sn_map_free(&seen);
}

static int write_or_check_table(const tests *all, const options *opts) {
    sn_str text = {0};
    print_table(all, &text);
    int failed = 0;
    if (opts->check) {
        sn_mapped_file old = {0};
        sn_status status = sn_file_map(opts->table, &old);
        failed = status || old.bytes != text.length || memcmp(old.data, text.data, text.length) != 0;
        if (failed) printf("%s is stale: run tests/onnx/run.sh --update\n", opts->table);
        if (!status) sn_file_unmap(&old);
        sn_status_free(status);
    } else {
        sn_status status = sn_file_write(opts->table, text.data, text.length);
        if (status) printf("%s\n", sn_status_message(status));
        failed = status != SN_OK;
        sn_status_free(status);
    }
    sn_str_free(&text);
    return failed;
}

// Prints the counts of a path and returns whether they are bad.
static int judge(const tests *all, const options *opts, path p, json_t *summary) {
    json_t *counts = json_object();
    long bad = 0, node = count(all, "node", NULL, p, PASS);
    printf("%s:", path_names[p]);
    for (int v = 0; v < VERDICT_COUNT; v++) {
        long n = count(all, NULL, NULL, p, (verdict)v);
        if (v == WRONG || v == CRASH) bad += n;
        printf(" %ld %s,", n, verdict_names[v]);
        json_object_set_new(counts, verdict_names[v], json_integer(n));
    }
    printf(" %ld node tests pass\n", node);
    json_object_set_new(counts, "node_pass", json_integer(node));
    json_object_set_new(summary, path_names[p], counts);
    if (node >= opts->floor[p]) return bad > 0;
    printf("%s: fewer than %ld node tests pass\n", path_names[p], opts->floor[p]);
    return 1;
}

static int usage(void) {
    fprintf(stderr,
            "usage: onnx_backend [--interpreted|--compiled] [--filter TEXT] [--verbose] [--table FILE [--check]]\n"
            "                    [--summary FILE] [--floor-interpreted N] [--floor-compiled N] FOLDER\n");
    return 2;
}

static bool parse_options(int argc, char **argv, options *opts) {
    enum { ONLY_INTERPRETED, ONLY_COMPILED, FILTER, VERBOSE, TABLE, CHECK, SUMMARY, FLOOR_I, FLOOR_C };
    static const struct option known[] = {{"interpreted", no_argument, NULL, ONLY_INTERPRETED},
                                          {"compiled", no_argument, NULL, ONLY_COMPILED},
                                          {"filter", required_argument, NULL, FILTER},
                                          {"verbose", no_argument, NULL, VERBOSE},
                                          {"table", required_argument, NULL, TABLE},
                                          {"check", no_argument, NULL, CHECK},
                                          {"summary", required_argument, NULL, SUMMARY},
                                          {"floor-interpreted", required_argument, NULL, FLOOR_I},
                                          {"floor-compiled", required_argument, NULL, FLOOR_C},
                                          {0}};
    *opts = (options){.on = {true, true}};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == ONLY_INTERPRETED)
            opts->on[COMPILED] = false;
        else if (c == ONLY_COMPILED)
            opts->on[INTERPRETED] = false;
        else if (c == FILTER)
            opts->filter = optarg;
        else if (c == VERBOSE)
            opts->verbose = true;
        else if (c == TABLE)
            opts->table = optarg;
        else if (c == CHECK)
            opts->check = true;
        else if (c == SUMMARY)
            opts->summary = optarg;
        else if (c == FLOOR_I)
            opts->floor[INTERPRETED] = atol(optarg);
        else if (c == FLOOR_C)
            opts->floor[COMPILED] = atol(optarg);
        else
            return false;
    }
    opts->root = optind + 1 == argc ? argv[optind] : NULL;
    return opts->root != NULL;
}

int main(int argc, char **argv) {
    options opts;
    if (!parse_options(argc, argv, &opts)) return usage();
    tests all = {0};
    find_tests(&opts, &all);
    if (all.count == 0) {
        fprintf(stderr, "onnx_backend: no tests in %s\n", opts.root);
        return 1;
    }
    run_tests(&all, &opts);
    int failed = 0;
    json_t *summary = json_object();
    for (int p = 0; p < PATH_COUNT; p++)
        if (opts.on[p]) failed |= judge(&all, &opts, (path)p, summary);
    if (opts.table) failed |= write_or_check_table(&all, &opts);
    if (opts.summary) failed |= json_dump_file(summary, opts.summary, JSON_INDENT(2)) != 0;
    json_decref(summary);
    return failed;
}
