// published DIR [--rows] [--all] [--table] [--file NAME] [--set CURVE.FIELD=VALUE]…: predicts the step time, and the
// memory where it is given, of each published training step in DIR/steps_*.csv and DIR/memory_megatron_ci.csv, and
// prints the errors, per source as text (--table: as a page) and per file as one JSON object on the last line. Scored
// are the rows of completeness A whose plan is complete; --all scores B too. --rows prints each row. --set replaces a
// constant of the cost model, for fitting. memory_mape and so on are of memory; where a file measures memory alone,
// mape is too.
//
// The predictions are the cost model's; steps.c, micro.c and memory_ci.c know how rows are written.
#include "memory_ci.h"
#include "steps.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct score {
    char source[64];
    int rows, memory_rows, skipped;
    double absolute, bias, worst, memory_absolute, memory_bias, memory_worst, memory_under;
} score;

typedef struct options {
    const char *directory, *file;
    bool rows, all, table;
    int n_set;
    const char *set[64];
} options;

// A curve's field by name; the order is sn_curve's.
static bool set_field(sn_curve *curve, const char *field, double value) {
    static const char *const names[] = {
        "tile_efficiency",    "eight_bit",       "tile_ramp",      "small_tile",   "misaligned", "attention_forward",
        "attention_backward", "attention_early", "attention_ramp", "stream",       "ramp_bytes", "start",
        "host_issue",         "host_jitter",     "library_issue",  "library_ramp", "workspace"};
    double *fields = &curve->tile_efficiency;
    _Static_assert(sizeof(sn_curve) == sizeof(char *) + sizeof names / sizeof *names * sizeof(double),
                   "one name per field");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], field) == 0) {
            fields[i] = value;
            return true;
        }
    return false;
}

// The device with the constants that --set replaces, and a link's by "link.FIELD".
static void adjust(void *user, sn_device_kind *device, sn_curve *curve, sn_cluster *cluster) {
    const options *o = user;
    (void)device;
    for (int i = 0; i < o->n_set; i++) {
        char name[64], field[64];
        double v;
        if (sscanf(o->set[i], "%63[^.].%63[^=]=%lf", name, field, &v) != 3) continue;
        if (strcmp(name, curve->name) == 0) set_field(curve, field, v);
        for (int l = 0; l < cluster->n_levels; l++)
            if (strcmp(name, cluster->level[l].name) == 0) {
                if (strcmp(field, "alpha") == 0) cluster->level[l].alpha = v;
                if (strcmp(field, "beta") == 0) cluster->level[l].beta *= v;
            }
    }
}

static void count_row(score *s, double error, double memory_error) {
    if (isfinite(error)) {
        s->rows++;
        s->absolute += fabs(error);
        s->bias += error;
        if (fabs(error) > fabs(s->worst)) s->worst = error;
    }
    if (isfinite(memory_error)) {
        s->memory_rows++;
        s->memory_absolute += fabs(memory_error);
        s->memory_bias += memory_error;
        if (fabs(memory_error) > fabs(s->memory_worst)) s->memory_worst = memory_error;
        s->memory_under = fmin(s->memory_under, memory_error);
    }
}

static json_t *score_json(const score *s) {
    json_t *json = json_pack("{s:i}", "rows", s->rows);
    if (s->rows) {
        json_object_set_new(json, "mape", json_real(100 * s->absolute / s->rows));
        json_object_set_new(json, "bias", json_real(100 * s->bias / s->rows));
        json_object_set_new(json, "worst", json_real(100 * s->worst));
    }
    if (s->memory_rows) {
        json_object_set_new(json, "memory_rows", json_integer(s->memory_rows));
        json_object_set_new(json, "memory_mape", json_real(100 * s->memory_absolute / s->memory_rows));
        json_object_set_new(json, "memory_bias", json_real(100 * s->memory_bias / s->memory_rows));
        json_object_set_new(json, "memory_worst", json_real(100 * s->memory_worst));
        json_object_set_new(json, "memory_under", json_real(100 * s->memory_under));
    }
    return json;
}

static void print_row(const char *file, const csv_row *row, const sn_step *p, double error, double memory_error) {
    printf("%s,%s,%s,%.6g,%.6g,%+.4f,%.4g,%+.4f,%.4g,%.4g,%.4g,%.4g,%.4g\n", file, csv_get(row, "row_id"),
           csv_get(row, "source_id"), csv_number(row, "step_time_s", NAN), p->seconds, error,
           sn_memory_total(&p->memory) / 1073741824., memory_error, p->compute, p->bubble, p->messages, p->reduce,
           p->update);
}

static score *score_of(score *scores, int *n, const char *source) {
    for (int i = 0; i < *n; i++)
        if (strcmp(scores[i].source, source) == 0) return &scores[i];
    score *s = &scores[(*n)++];
    snprintf(s->source, sizeof s->source, "%s", source);
    return s;
}

// One row of a file: errors of time and memory (NAN where there is none to compare), false when it cannot be predicted.
static bool score_row(const options *o, const char *name, const csv_row *row, double *error, double *memory_error) {
    *memory_error = NAN;
    if (strncmp(name, "micro", 5) == 0) {
        double predicted, measured;
        bool gemm = strcmp(name, "micro_gemm.csv") == 0, known;
        known = (gemm ? micro_gemm : micro_collective)(row, adjust, (void *)(uintptr_t)o, &predicted, &measured);
        *error = known ? predicted / measured - 1 : NAN;
        if (known && o->rows)
            printf("%s,%s,%s,%.6g,%.6g,%+.4f\n", name, csv_get(row, "row_id"), csv_get(row, "source_id"), measured,
                   predicted, *error);
        return known;
    }
    if (strcmp(name, "memory_megatron_ci.csv") == 0) {
        double predicted, reached = csv_number(row, "mem_max_alloc_bytes", NAN);
        if (!memory_ci_row(row, &predicted)) return false;
        *error = *memory_error = predicted / reached - 1; // the file's one measurement
        if (o->rows)
            printf("%s,%s,%s,%.6g,%.6g,%+.4f\n", name, csv_get(row, "row_id"), csv_get(row, "source_id"), reached,
                   predicted, *memory_error);
        return isfinite(*memory_error);
    }
    sn_step p;
    double measured = csv_number(row, "step_time_s", NAN), memory = csv_number(row, "mem_gib", NAN);
    if (!steps_predict(row, adjust, (void *)(uintptr_t)o, &p)) return false;
    *error = p.seconds / measured - 1;
    *memory_error = sn_memory_total(&p.memory) / 1073741824. / memory - 1;
    if (o->rows) print_row(name, row, &p, *error, *memory_error);
    return true;
}

// Whether a row is scored: complete, and something was measured.
static bool is_scored(const options *o, const char *name, const csv_row *row) {
    if (strncmp(name, "micro", 5) == 0) return true;
    char grade = csv_get(row, "completeness")[0];
    bool measured = isfinite(csv_number(row, "step_time_s", NAN)) ||
                    isfinite(csv_number(row, "mem_max_alloc_bytes", NAN)) || isfinite(csv_number(row, "mem_gib", NAN));
    return measured && (grade == 'A' || (o->all && grade == 'B'));
}

static void print_percent(double sum, int rows) {
    if (rows)
        printf(" %.1f |", 100 * sum / rows);
    else
        printf(" |");
}

static void print_table_row(const char *name, const score *s) {
    printf("| %s | %s | %d |", name, s->source, s->rows);
    print_percent(s->absolute, s->rows);
    print_percent(s->bias, s->rows);
    print_percent(s->rows ? s->worst * s->rows : 0, s->rows);
    printf(" %d |", s->memory_rows);
    print_percent(s->memory_absolute, s->memory_rows);
    print_percent(s->memory_bias, s->memory_rows);
    print_percent(s->memory_under * s->memory_rows, s->memory_rows);
    puts("");
}

static void print_sources(const options *o, const char *name, const score *sources, int n, const score *total) {
    for (int i = 0; i < n; i++) {
        if (o->table) {
            print_table_row(name, &sources[i]);
            continue;
        }
        json_t *json = score_json(&sources[i]);
        char *text = json_dumps(json, JSON_REAL_PRECISION(4));
        printf("%s %s %s\n", name, sources[i].source, text);
        free(text);
        json_decref(json);
    }
    if (total->skipped && !o->table) printf("%s: %d rows leave out what a plan needs\n", name, total->skipped);
}

static bool read_file(const options *o, const char *name, json_t *report) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", o->directory, name);
    csv_table table;
    if (!csv_read(path, &table)) return false;
    score total = {0}, sources[32] = {0};
    int n = 0;
    for (int i = 0; i < table.n_rows; i++) {
        const csv_row row = {&table, i};
        double error, memory_error;
        if (!is_scored(o, name, &row)) continue;
        if (n == 32 || !score_row(o, name, &row, &error, &memory_error)) {
            total.skipped++;
            continue;
        }
        count_row(&total, error, memory_error);
        count_row(score_of(sources, &n, csv_get(&row, "source_id")), error, memory_error);
    }
    csv_free(&table);
    print_sources(o, name, sources, n, &total);
    if (total.rows || total.memory_rows) json_object_set_new(report, name, score_json(&total));
    return true;
}

static bool read_options(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rows") == 0)
            o->rows = true;
        else if (strcmp(argv[i], "--table") == 0)
            o->table = true;
        else if (strcmp(argv[i], "--all") == 0)
            o->all = true;
        else if (strcmp(argv[i], "--file") == 0 && i + 1 < argc)
            o->file = argv[++i];
        else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc && o->n_set < 64)
            o->set[o->n_set++] = argv[++i];
        else if (argv[i][0] != '-' && !o->directory)
            o->directory = argv[i];
        else
            return false;
    }
    return o->directory != NULL;
}

int main(int argc, char **argv) {
    static const char *const files[] = {"micro_gemm.csv",
                                        "micro_collectives.csv",
                                        "steps_vtrain_single.csv",
                                        "steps_vtrain_multi.csv",
                                        "steps_llm_foundry_fsdp.csv",
                                        "steps_mlperf.csv",
                                        "steps_megatron_papers.csv",
                                        "steps_simumax.csv",
                                        "steps_bigscience.csv",
                                        "steps_internevo.csv",
                                        "steps_torchtitan.csv",
                                        "steps_bert_dp.csv",
                                        "steps_nemo_megatron_bridge.csv",
                                        "steps_zero_offload.csv",
                                        "steps_sailor.csv",
                                        "memory_megatron_ci.csv"};
    options o = {0};
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr, "usage: published DIR [--rows] [--all] [--table] [--file NAME] [--set CURVE.FIELD=VALUE]…\n");
        return 2;
    }
    if (o.table)
        puts(
            "<!-- Generated: published DIR --table. -->\n"
            "# Errors of the cost model\n\n"
            "Against published measurements (rows with a complete configuration), in per cent; positive: predicted too "
            "long or too large.\nOne set of constants per device kind. `worst under`: the most that memory was "
            "predicted too small.\n\n"
            "| file | source | rows | mean abs. | bias | worst | memory rows | mean abs. | bias | worst under |\n"
            "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    json_t *report = json_object();
    int found = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!o.file || strcmp(o.file, files[i]) == 0) found += read_file(&o, files[i], report);
    if (!found) {
        fprintf(stderr, "published: %s has no steps_*.csv\n", o.directory);
        return 1;
    }
    char *text = json_dumps(report, JSON_REAL_PRECISION(4));
    if (!o.table) puts(text);
    free(text);
    json_decref(report);
    return 0;
}