// iopddl FOLDER [SHARE]: solves every contest problem of a folder within SHARE (default 0.1) of the contest's seconds,
// on one core, and compares with the best published costs (iopddl.csv). Costs and peaks are evaluated again here, from
// the files' numbers. JSON on the last line.
#include "base/alloc.h"
#include "base/str.h"
#include "passes/partition/intra/contest.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct published {
    char instance[16];
    double seconds;
    int64_t best; // 0: not known
} published;

// asplos-2025-iopddl-A.json.gz: A.
static published find_published(const char *table, const char *file) {
    published found = {.seconds = 60};
    const char *dash = strrchr(file, '-');
    const char *start = dash ? dash + 1 : file;
    snprintf(found.instance, sizeof found.instance, "%.*s", (int)strcspn(start, "."), start);
    FILE *in = fopen(table, "r");
    char line[256];
    while (in && fgets(line, sizeof line, in)) {
        published row = {0};
        if (sscanf(line, "%15[^,],%lf,%" SCNd64, row.instance, &row.seconds, &row.best) == 3 &&
            strcmp(row.instance, found.instance) == 0)
            found = row;
    }
    if (in) fclose(in);
    return found;
}

static int by_number(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static size_t at_or_after(const int64_t *times, size_t count, int64_t time) {
    size_t low = 0;
    while (count > 0) {
        size_t half = count / 2;
        if (times[low + half] < time) {
            low += half + 1;
            count -= half + 1;
        } else
            count = half;
    }
    return low;
}

// The highest memory at any time: usage is added over every beginning within an interval, one by one.
static int64_t evaluate_peak(const sn_network *n, const int *choice) {
    int64_t *times = sn_alloc(sizeof *times * (n->n_terms + 1)), *live = sn_alloc(sizeof *live * (n->n_terms + 1));
    int64_t peak = 0;
    for (size_t m = 0; m < n->n_terms; m++) times[m] = n->terms[m].begin;
    qsort(times, n->n_terms, sizeof *times, by_number);
    for (size_t m = 0; m < n->n_terms; m++) {
        const sn_network_term *term = &n->terms[m];
        int64_t usage = n->cells[term->usages + (size_t)choice[term->node]];
        for (size_t t = at_or_after(times, n->n_terms, term->begin); t < n->n_terms && times[t] < term->end; t++)
            live[t] += usage;
    }
    for (size_t t = 0; t < n->n_terms; t++)
        if (live[t] > peak) peak = live[t];
    sn_free(times);
    sn_free(live);
    return peak;
}

static int64_t evaluate_cost(const sn_network *n, const int *choice) {
    int64_t cost = 0;
    for (size_t i = 0; i < n->n_nodes; i++) cost += n->cells[n->nodes[i].costs + (size_t)choice[i]];
    for (size_t e = 0; e < n->n_edges; e++) {
        const sn_network_edge *edge = &n->edges[e];
        cost += n->cells[edge->costs + (size_t)choice[edge->a] * (size_t)n->nodes[edge->b].n_strategies +
                         (size_t)choice[edge->b]];
    }
    return cost;
}

// One row of the table, and one member of the JSON object.
static bool run(const char *table, const char *folder, const char *file, double share, sn_str *json) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    published known = find_published(table, file);
    sn_network n = {.limit = INT64_MAX};
    sn_diags diags = {0};
    bool good = sn_contest_read(path, &n, &diags);
    if (good) {
        sn_network_budget budget = {.seconds = share * known.seconds};
        sn_network_answer a = sn_network_solve(&n, &budget);
        int64_t cost = evaluate_cost(&n, a.choice), peak = evaluate_peak(&n, a.choice);
        bool feasible = (a.result == SN_NETWORK_OPTIMAL || a.result == SN_NETWORK_FEASIBLE) && peak <= n.limit;
        good = feasible && cost == a.cost && peak == a.peak && a.lower_bound <= cost;
        double ratio = known.best ? (double)cost / (double)known.best : 0,
               gap = (double)(cost - a.lower_bound) / (double)cost;
        printf("%-9s %8zu %8zu %8.1f %16" PRId64 " %16" PRId64 " %8.5f %16" PRId64 " %7.4f%%%s\n", known.instance,
               n.n_nodes, n.n_edges, a.seconds, cost, known.best, ratio, a.lower_bound, 100 * gap,
               good ? "" : (feasible ? "  WRONG FIGURES" : "  NOT FEASIBLE"));
        fflush(stdout);
        sn_str_printf(
            json,
            "%s\"%s\": {\"cost\": %" PRId64 ", \"ratio\": %.6f, \"gap\": %.6f, \"seconds\": %.2f, \"feasible\": %s}",
            json->length > 1 ? ", " : "", known.instance, cost, ratio, gap, a.seconds, feasible ? "true" : "false");
        sn_free(a.choice);
    }
    sn_diags_print(&diags, 0, false, stderr);
    sn_diags_free(&diags);
    sn_network_free(&n);
    return good;
}

static int is_problem(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return (length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0) ||
           (length > 8 && strcmp(entry->d_name + length - 8, ".json.gz") == 0);
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s FOLDER [SHARE of the contest's seconds]\n", argv[0]);
        return 2;
    }
    struct dirent **files;
    int count = scandir(argv[1], &files, is_problem, alphasort), failed = 0;
    if (count <= 0) {
        fprintf(stderr, "%s: no problems in %s\n", argv[0], argv[1]);
        return 1;
    }
    sn_str json = {0};
    sn_str_putc(&json, '{');
    printf("%-9s %8s %8s %8s %16s %16s %8s %16s %8s\n", "instance", "nodes", "edges", "seconds", "cost", "published",
           "ratio", "lower bound", "gap");
    for (int i = 0; i < count; i++) {
        failed |= !run(SENNIT_SOURCE_DIR "/tests/bench/iopddl.csv", argv[1], files[i]->d_name,
                       argc > 2 ? atof(argv[2]) : 0.1, &json);
        free(files[i]);
    }
    free(files);
    sn_str_putc(&json, '}');
    puts(sn_str_text(&json));
    sn_str_free(&json);
    return failed;
}
