// What PyTorch computed for the sample models (the README beside them says how), and comparisons by its tolerances:
// gradients by |g - ref| <= 1e-5 |ref| + 1e-7 |all gradients|, losses by 1e-5 relative.
#pragma once
#include "base/alloc.h"
#include "base/str.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/data/npy.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BATCH = 4, STEPS = 20, MOST_MODELS = 32 };

static const double LOSS_TOLERANCE = 1e-5, GRADIENT_TOLERANCE = 1e-5, GRADIENT_FLOOR = 1e-7;

typedef struct reference {
    const char *folder;
    json_t *json;
} reference;

static void must(sn_status status) {
    if (status) fail_msg("%s", sn_status_message(status));
}

// The folder of models: $SENNIT_SHARED or the shared folder beside the sources when it is there, else the bundled ones.
static const char *models_folder(void) {
    static char path[4096];
    const char *shared = getenv("SENNIT_SHARED");
    snprintf(path, sizeof path, "%s/data/models", shared ? shared : SENNIT_SOURCE_DIR "/../shared");
    if (access(path, R_OK) != 0) snprintf(path, sizeof path, "%s/tests/data/models", SENNIT_SOURCE_DIR);
    return path;
}

static const char *path_in(const char *folder, const char *file) {
    static char paths[8][4096];
    static int next;
    char *path = paths[next++ % 8];
    if (snprintf(path, sizeof paths[0], "%s/%s", folder, file) >= (int)sizeof paths[0]) fail_msg("a path is too long");
    return path;
}

static reference open_reference(const char *folder) {
    json_error_t error;
    reference r = {.folder = folder, .json = json_load_file(path_in(folder, "reference.json"), 0, &error)};
    if (!r.json) fail_msg("%s/reference.json: %s", folder, error.text);
    return r;
}

static const char *text(const json_t *json, const char *key) {
    return json_string_value(json_object_get(json, key));
}

// Losses, gradients and so on of the mode that a file reproduces ("eval" or "train").
static const json_t *mode_of(const reference *r, const json_t *file) {
    return json_object_get(json_object_get(r->json, "modes"), text(file, "mode"));
}

static double wanted_loss(const reference *r, const json_t *file, int step) {
    return json_real_value(json_array_get(json_object_get(mode_of(r, file), "losses"), (size_t)step));
}

// "softmax_cross_entropy:LOGITS,LABELS", or NULL when the file holds its loss.
static const char *loss_spec(const reference *r, const json_t *file, const char *output) {
    static char spec[512];
    if (json_is_true(json_object_get(file, "loss_in_graph"))) return NULL;
    snprintf(spec, sizeof spec, "%s:%s,%s", text(r->json, "loss"), output, text(r->json, "labels"));
    return spec;
}

// What ONNX does not say of a model and its user must: the rows that PyTorch's Embedding(padding_idx=N) does not train.
static const char *padding_rule(const reference *r) {
    return strcmp(text(r->json, "model"), "bert") == 0 ? "(word_embeddings|decoder)[.]weight$=0" : NULL;
}

static double norm(const double *x, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static double distance(const double *x, const double *y, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sqrt(sum);
}

static double relative(double got, double wanted) {
    return fabs(got - wanted) / fabs(wanted);
}

static int64_t entry_count(const sn_tensor_entry *entry) {
    return (int64_t)(entry->bytes / sn_dtype_bytes(entry->dtype));
}

static double *load(const sn_tensor_entry *entry) {
    int64_t count = entry_count(entry);
    double *data = sn_alloc(sizeof *data * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) data[i] = sn_load_f64(entry->dtype, entry->data, i);
    return data;
}

// What a run of one file gave; a negative error was not compared.
typedef struct outcome {
    double output, loss, gradient, curve; // relative errors; that of gradients over the tolerance's scale
    int gradients, not_compared;
    char worst[256], note[256];
} outcome;

// The gradient of an initializer as computed, in double; NULL when it is not trained. Owned by the caller.
typedef double *gradient_source(void *user, const char *initializer, int64_t count);

// Adds the gradient of an initializer to its parameter's; initializers may be stored transposed.
static void add_permuted(double *sum, const double *g, const sn_tensor_entry *parameter, const json_t *perm) {
    int64_t count = entry_count(parameter);
    bool transposed = json_array_size(perm) == 2 && json_integer_value(json_array_get(perm, 0)) == 1;
    if (json_array_size(perm) && !transposed) fail_msg("%s: a permutation that is not a transpose", parameter->name);
    int64_t rows = transposed ? parameter->shape.items[0] : 1, cols = count / (rows ? rows : 1);
    for (int64_t i = 0; i < count; i++) sum[i] += transposed ? g[i % cols * rows + i / cols] : g[i];
}

static bool is_listed(const json_t *list, const char *name) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        if (strcmp(json_string_value(item), name) == 0) return true;
    }
    return false;
}

// Compares one parameter's gradient, the sum over its initializers; returns how many there are.
static int compare_gradient(const json_t *file, const sn_tensor_entry *wanted, double all, gradient_source *source,
                            void *user, outcome *out) {
    const char *parameter = wanted->name + strlen("grad.");
    int64_t count = entry_count(wanted);
    double *reference = load(wanted), *sum = sn_alloc(sizeof *sum * (size_t)(count + 1));
    int found = 0;
    const char *initializer;
    json_t *entry;
    json_object_foreach(json_object_get(file, "initializers"), initializer, entry) {
        if (strcmp(text(entry, "param"), parameter) != 0) continue;
        double *g = source(user, initializer, count);
        if (!g) continue;
        add_permuted(sum, g, wanted, json_object_get(entry, "perm"));
        sn_free(g);
        found++;
    }
    if (found) {
        double error =
            distance(sum, reference, count) / (norm(reference, count) + GRADIENT_FLOOR / GRADIENT_TOLERANCE * all);
        if (!(error <= out->gradient)) {
            out->gradient = error;
            snprintf(out->worst, sizeof out->worst, "%s", parameter);
        }
        out->gradients++;
    } else if (is_listed(json_object_get(file, "parameters_not_found"), parameter)) {
        out->not_compared++;
    } else {
        fail_msg("%s is not trained", parameter);
    }
    sn_free(reference);
    sn_free(sum);
    return found;
}

// All gradients; returns whether each parameter has exactly one initializer that is trained: then the curve compares.
static bool compare_gradients(const reference *r, const json_t *file, gradient_source *source, void *user,
                              outcome *out) {
    sn_safetensors gradients;
    must(sn_safetensors_open(path_in(r->folder, text(mode_of(r, file), "gradients")), &gradients));
    double square = 0;
    for (size_t i = 0; i < gradients.tensors.count; i++) {
        if (!sn_starts_with(gradients.tensors.items[i].name, "grad.")) continue;
        double *g = load(&gradients.tensors.items[i]);
        double length = norm(g, entry_count(&gradients.tensors.items[i]));
        square += length * length;
        sn_free(g);
    }
    bool one_each = true;
    out->gradient = 0;
    for (size_t i = 0; i < gradients.tensors.count; i++)
        if (sn_starts_with(gradients.tensors.items[i].name, "grad."))
            one_each &= compare_gradient(file, &gradients.tensors.items[i], sqrt(square), source, user, out) == 1;
    sn_safetensors_close(&gradients);
    return one_each;
}

static double compare_output(const reference *r, const json_t *file, const double *got, int64_t count) {
    sn_safetensors gradients;
    must(sn_safetensors_open(path_in(r->folder, text(mode_of(r, file), "gradients")), &gradients));
    const sn_tensor_entry *entry = sn_safetensors_find(&gradients, "output");
    if (!entry || entry_count(entry) != count) fail_msg("the output has another size than the reference's");
    double *wanted = load(entry), error = distance(got, wanted, count) / norm(wanted, count);
    sn_free(wanted);
    sn_safetensors_close(&gradients);
    return error;
}

static void add_note(outcome *out, const char *note) {
    size_t length = strlen(out->note);
    snprintf(out->note + length, sizeof out->note - length, "%s%s", length ? "; " : "", note);
}

static void print_cell(FILE *stream, double error) {
    if (error < 0)
        fprintf(stream, " | -");
    else
        fprintf(stream, " | %.1e", error);
}

static void print_row(FILE *stream, const char *model, const char *file, const outcome *out) {
    fprintf(stream, "| %s | %s", model, file);
    print_cell(stream, out->output);
    print_cell(stream, out->loss);
    print_cell(stream, out->gradient);
    print_cell(stream, out->curve);
    fprintf(stream, " | %d | %s |\n", out->gradients, out->note);
    fflush(stream);
}

static void print_header(FILE *stream, const char *title) {
    fprintf(stream,
            "%s\n\n| model | file | output | loss | worst gradient | worst of %d losses | gradients | notes |\n"
            "|---|---|---|---|---|---|---|---|\n",
            title, STEPS);
}

// Within tolerance, and nothing is NaN.
static bool is_fine(const outcome *out) {
    return out->output <= 1e-5 && out->loss <= LOSS_TOLERANCE && out->gradient <= GRADIENT_TOLERANCE &&
           out->curve <= LOSS_TOLERANCE;
}

static void describe(const json_t *file, bool one_each, outcome *out) {
    bool folded = json_is_true(json_object_get(file, "batch_norm_folded"));
    if (folded) add_note(out, "batch norm folded by the exporter");
    if (out->not_compared) add_note(out, "a parameter is folded into a constant");
    if (strcmp(text(file, "asked_mode"), text(file, "mode")) != 0)
        add_note(out, "exported in training mode, which the exporter dropped");
    if (!one_each && !folded && !out->not_compared) add_note(out, "untied weights: sum of their gradients");
}

// Compares one file, adds its rows to the table and returns how many of them are out of tolerance.
typedef int check_file(const reference *r, const char *model, const char *name, const json_t *file, FILE *table);

// Adds a row to the table; 1 when it is out of tolerance.
static int report(FILE *table, const char *model, const char *label, const outcome *out) {
    print_row(table, model, label, out);
    if (is_fine(out)) return 0;
    print_row(stderr, model, label, out);
    if (out->gradient > GRADIENT_TOLERANCE) print_error("worst gradient: %s\n", out->worst);
    return 1;
}

static const char *table_path;
static check_file *checker;

static void test_model(void **state) {
    const char *model = *state;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/%s", models_folder(), model);
    reference r = open_reference(folder);
    FILE *table = fopen(table_path, "a");
    assert_non_null(table);
    int failures = 0;
    const char *name;
    json_t *file;
    json_object_foreach(json_object_get(r.json, "files"), name, file) {
        if (access(path_in(folder, name), R_OK) != 0) continue; // the bundled models are fewer
        failures += checker(&r, model, name, file, table);
    }
    fclose(table);
    json_decref(r.json);
    assert_int_equal(failures, 0);
}

// One test for each model, or for the one named on the command line.
static int run_models(int argc, char **argv, const char *title, const char *path, check_file *check) {
    const char *folder = models_folder(), *only = argc > 1 ? argv[1] : NULL;
    static struct CMUnitTest tests[MOST_MODELS];
    size_t n = 0;
    table_path = path;
    checker = check;
    DIR *stream = opendir(folder);
    for (struct dirent *entry; stream && (entry = readdir(stream)) && n < MOST_MODELS;) {
        char reference[8192];
        snprintf(reference, sizeof reference, "%s/%s/reference.json", folder, entry->d_name);
        if (access(reference, R_OK) != 0 || (only && strcmp(only, entry->d_name) != 0)) continue;
        char *name = strdup(entry->d_name);
        tests[n++] = (struct CMUnitTest){name, test_model, NULL, NULL, name};
    }
    if (stream) closedir(stream);
    FILE *table = fopen(path, "w");
    if (n == 0 || !table) {
        fprintf(stderr, "no models in %s, or no place for %s\n", folder, path);
        return 1;
    }
    print_header(table, title);
    fclose(table);
    return _cmocka_run_group_tests("parity", tests, n, NULL, NULL);
}
