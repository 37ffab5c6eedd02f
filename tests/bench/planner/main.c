// planner --format NAME FILE [options]: plans a problem of another system. The last line is one JSON object.
#include "format.h"

#include "base/alloc.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static const format *const formats[] = {
    &format_piper, &format_dnn_partitioning, &format_pipedream, &format_dapple, &format_nnscaler,
    &format_aceso, &format_galvatron,
};
enum { FORMATS = sizeof formats / sizeof *formats };

_Noreturn void bad_file(const char *file, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "planner: %s: ", file);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(1);
}

static _Noreturn void wrong_line(const char *what, const char *which) {
    fprintf(stderr, "planner: %s '%s'; --help lists the options\n", what, which);
    exit(2);
}

json_t *read_json(const char *file) {
    json_error_t error;
    json_t *json = json_load_file(file, 0, &error);
    if (!json && error.line < 1) bad_file(file, "%s", error.text);
    if (!json) bad_file(file, "line %d: %s", error.line, error.text);
    return json;
}

double json_number_at(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

int json_count_at(const char *file, const json_t *object, const char *key, int least, int most) {
    const json_t *value = json_object_get(object, key);
    double count = json_number_value(value);
    if (!json_is_number(value) || !(count >= least && count <= most) || count != floor(count))
        bad_file(file, "%s must be an integer from %d to %d", key, least, most);
    return (int)count;
}

static int find(arguments *a, const char *name) {
    for (int i = 0; i < a->count; ++i) {
        if (strcmp(a->values[i], name) != 0) continue;
        a->used[i] = true;
        return i;
    }
    return -1;
}

static double number(const char *text, const char *name) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value)) wrong_line("no number behind", name);
    return value;
}

bool argument_flag(arguments *a, const char *name) {
    return find(a, name) >= 0;
}

const char *argument_text(arguments *a, const char *name, const char *otherwise) {
    int at = find(a, name);
    if (at < 0) return otherwise;
    if (at + 1 >= a->count) wrong_line("nothing behind", name);
    a->used[at + 1] = true;
    return a->values[at + 1];
}

double argument_number(arguments *a, const char *name, double otherwise) {
    const char *text = argument_text(a, name, NULL);
    return text ? number(text, name) : otherwise;
}

int argument_count(arguments *a, const char *name, int least, int most, int otherwise) {
    const char *text = argument_text(a, name, NULL);
    if (!text) return otherwise;
    double value = number(text, name);
    if (!(value >= least && value <= most) || value != floor(value)) {
        char what[64];
        snprintf(what, sizeof what, "no integer from %d to %d behind", least, most);
        wrong_line(what, name);
    }
    return (int)value;
}

double argument_positive(arguments *a, const char *name, double otherwise) {
    const char *text = argument_text(a, name, NULL);
    double value = text ? number(text, name) : otherwise;
    if (text && !(value > 0)) wrong_line("no number above 0 behind", name);
    return value;
}

void arguments_end(const arguments *a) {
    for (int i = 0; i < a->count; ++i) {
        if (!a->used[i]) wrong_line("unknown argument", a->values[i]);
    }
}

int argument_numbers(arguments *a, const char *name, double *out, int most) {
    int at = find(a, name), count = 0;
    if (at < 0) return 0;
    for (int i = at + 1; i < a->count && a->values[i][0] != '-'; ++i) {
        if (count == most) wrong_line("too many numbers behind", name);
        a->used[i] = true;
        out[count++] = number(a->values[i], name);
    }
    if (count == 0) wrong_line("no numbers behind", name);
    return count;
}

static void print_help(void) {
    puts("usage: planner --format NAME FILE [options of the format] [--plan]\n"
         "Plans a problem of another system and prints, as its last line,\n"
         "{\"objective\": seconds or null, \"seconds\": ..., \"peak_mb\": ..., \"lower_bound\": ...}.\n"
         "--plan prints the plan first.\n");
    for (int i = 0; i < FORMATS; ++i) printf("--format %s FILE\n%s\n", formats[i]->name, formats[i]->help);
}

static double processor_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double peak_megabytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static void print_result(const answer *result) {
    if (result->feasible) {
        printf("{\"objective\": %.17g, \"lower_bound\": %.17g", result->objective,
               fmin(result->lower_bound, result->objective));
    } else {
        printf("{\"objective\": null, \"lower_bound\": null");
    }
    if (result->parts) printf(", \"objectives\": %s", result->parts);
    printf(", \"seconds\": %.6f, \"peak_mb\": %.1f}\n", processor_seconds(), peak_megabytes());
}

static int run(arguments *a) {
    const char *name = argument_text(a, "--format", "");
    const format *chosen = NULL;
    for (int i = 0; i < FORMATS; ++i) chosen = strcmp(formats[i]->name, name) == 0 ? formats[i] : chosen;
    if (!chosen) wrong_line("no such format", name);
    const char *file = NULL;
    for (int i = 0; i < a->count && !file; ++i) {
        if (!a->used[i] && a->values[i][0] != '-' && (i == 0 || a->values[i - 1][0] != '-' || a->used[i - 1])) {
            file = a->values[i];
            a->used[i] = true;
        }
    }
    if (!file) wrong_line("no file for format", name);
    bool show = argument_flag(a, "--plan");
    answer result = {0};
    chosen->solve(file, a, &result);
    if (result.feasible && !(fabs(result.planned - result.objective) <= 1e-9 * fabs(result.objective))) {
        bad_file(file, "the plan takes %.17g, not %.17g as planned", result.objective, result.planned);
    }
    if (show && result.plan) fputs(result.plan, stdout);
    print_result(&result);
    sn_free(result.plan);
    sn_free(result.parts);
    return 0;
}

int main(int argc, char **argv) {
    arguments a = {argc - 1, argv + 1, sn_alloc((size_t)argc)};
    int status = argc < 2 ? 2 : 0;
    if (argc < 2 || argument_flag(&a, "--help"))
        print_help();
    else
        status = run(&a);
    sn_free(a.used);
    return status;
}
