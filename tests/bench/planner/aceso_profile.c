#include "aceso_profile.h"

#include "format.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *open_csv(const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, "r");
}

static int find_row(const aceso_profile *p, const char *name) {
    for (int i = 0; i < p->rows; ++i) {
        if (strcmp(p->table[(long)i * p->batch_count * ACESO_DEGREES].name, name) == 0) return i;
    }
    return -1;
}

static aceso_operation *cell(const aceso_profile *p, int row, int batch, int degree) {
    return &p->table[((long)row * p->batch_count + batch) * ACESO_DEGREES + degree];
}

static bool starts_layer(const char *name) {
    return strcmp(name, "enc-1st-layernorm") == 0 || strstr(name, "-conv1");
}

static bool never_recomputed(const char *name) {
    return strcmp(name, "encoder-embedding") == 0 || strcmp(name, "gpt-post-process") == 0 ||
           strcmp(name, "conv1") == 0;
}

// Whose output lives in the memory of another operator's.
static bool shares_memory(const char *name) {
    return strcmp(name, "enc-attention-softmax") == 0 || strcmp(name, "bn1") == 0 || strstr(name, "-bn3") ||
           (strstr(name, "-downsample") && !strstr(name, "0-0"));
}

static void apply_rules(aceso_operation *op) {
    op->starts_layer = starts_layer(op->name);
    op->never_again = never_recomputed(op->name);
    op->shares = shares_memory(op->name);
    op->kept = op->shares ? 0 : op->activations;
    if (strcmp(op->name, "enc-attention-dropout") == 0) op->kept = op->activations * 1.5;
}

static bool read_operation(char *line, aceso_operation *op) {
    double *const fields[] = {&op->forward,          &op->backward,         &op->input,
                              &op->output,           &op->weights,          &op->activations,
                              &op->reserved_forward, &op->reserved_backward};
    char *at = strchr(line, ',');
    if (!at || at - line >= (long)sizeof op->name) return false;
    memcpy(op->name, line, (size_t)(at - line));
    for (int i = 0; i < 8; ++i) {
        if (!at) return false;
        *fields[i] = strtod(at + 1, NULL);
        at = strchr(at + 1, ',');
    }
    apply_rules(op);
    return op->measured = true;
}

// Rows of one file; the first file read defines which rows there are.
static void read_rows(aceso_profile *p, const char *name, int batch, int degree, bool first) {
    FILE *in = open_csv(p->folder, name);
    char line[512];
    if (!in && first) bad_file(p->folder, "there is no %s", name);
    for (int at = 0; in && fgets(line, sizeof line, in); ++at) {
        aceso_operation op = {0};
        if (at == 0 || !read_operation(line, &op)) continue;
        int row = first ? p->rows++ : find_row(p, op.name);
        if (row < 0) continue;
        if (first) {
            p->table = sn_realloc(p->table, sizeof op * (size_t)p->rows * (size_t)p->batch_count * ACESO_DEGREES);
            memset(cell(p, row, 0, 0), 0, sizeof op * (size_t)p->batch_count * ACESO_DEGREES);
            memcpy(cell(p, row, 0, 0)->name, op.name, sizeof op.name);
        }
        *cell(p, row, batch, degree) = op;
    }
    if (in) fclose(in);
}

static int read_bandwidths(const char *folder, const char *name, double *out) {
    FILE *in = open_csv(folder, name);
    char line[512] = "";
    int count = 0;
    if (!in) return 0;
    if (!fgets(line, sizeof line, in) || !fgets(line, sizeof line, in)) *line = 0;
    for (char *at = line; *at && count < ACESO_BANDWIDTHS_MAX;) {
        char *end;
        out[count] = strtod(at, &end);
        if (end == at) break;
        ++count;
        at = end + (*end == ',');
    }
    fclose(in);
    return count;
}

// A transformer is its first row, the 13 rows of a layer over and over, and the rows that are left.
static void lay_out(aceso_profile *p, const char *model, int layers) {
    bool transformer = strcmp(model, "gpt") == 0;
    if (transformer && p->rows < 15) bad_file(p->folder, "%d operators are too few for a transformer", p->rows);
    p->operators = transformer ? 1 + 13 * layers + p->rows - 14 : p->rows;
    p->row = sn_alloc(sizeof(int) * (size_t)p->operators);
    for (int i = 0; i < p->operators; ++i) {
        int layer = (i - 1) / 13;
        if (!transformer || i == 0)
            p->row[i] = i;
        else
            p->row[i] = layer < layers ? 1 + (i - 1) % 13 : 14 + i - 1 - 13 * layers;
    }
}

static int layers_of(const char *size) {
    static const struct {
        const char *size;
        int layers;
    } known[] = {{"350M", 24}, {"1_3B", 24}, {"2_6B", 32}, {"6_7B", 32}, {"13B", 40}};
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
        if (strcmp(known[i].size, size) == 0) return known[i].layers;
    }
    return 1;
}

aceso_profile aceso_profile_read(const char *folder, const char *model, const char *size, int algorithm, int layers,
                                 int batch_count, const double *batches) {
    aceso_profile p = {.folder = folder, .batch_count = batch_count};
    char name[256];
    for (int b = 0; b < batch_count; ++b) {
        p.batches[b] = (int)batches[b];
        for (int degree = 0; degree < ACESO_DEGREES; ++degree) {
            snprintf(name, sizeof name, "%s_%s_mbs%d_tp%d_algo%d.csv", model, size, p.batches[b], 1 << degree,
                     algorithm);
            read_rows(&p, name, b, degree, b == 0 && degree == 0);
        }
    }
    p.inner_count = read_bandwidths(folder, "p2p_intra_node.csv", p.inner);
    p.outer_count = read_bandwidths(folder, "p2p_inter_node.csv", p.outer);
    if (p.inner_count == 0) bad_file(folder, "p2p_intra_node.csv has no bandwidths");
    if (p.outer_count == 0) memcpy(p.outer, p.inner, sizeof p.inner);
    if (p.outer_count == 0) p.outer_count = p.inner_count;
    lay_out(&p, model, layers > 0 ? layers : layers_of(size));
    return p;
}

void aceso_profile_free(aceso_profile *p) {
    sn_free(p->table);
    sn_free(p->row);
}

int aceso_batch_index(const aceso_profile *p, int batch) {
    for (int i = 0; i < p->batch_count; ++i) {
        if (p->batches[i] == batch) return i;
    }
    return -1;
}

static int degree_index(int tensor) {
    return tensor == 1 ? 0 : tensor == 2 ? 1 : tensor == 4 ? 2 : 3;
}

const aceso_operation *aceso_operator(const aceso_profile *p, int operator, int batch_index, int degree) {
    return cell(p, p->row[operator], batch_index, degree);
}

const aceso_operation *aceso_stage_operator(const aceso_profile *p, const aceso_stage *s, int k) {
    return aceso_operator(p, s->first + k, aceso_batch_index(p, s->batch), degree_index(s->tensor));
}

// GB/s of a message, by its size rounded down to a power of two; sizes below 1 MB index the list from its end, as the
// search this database belongs to does.
static double bandwidth(const double *list, int count, double megabytes) {
    if (megabytes <= 0) return 1000;
    int index = (int)log2(megabytes);
    if (index >= 1) --index;
    if (index < 0) index += count;
    return list[index >= count ? count - 1 : index < 0 ? 0 : index];
}

double aceso_transfer(const aceso_profile *p, double megabytes, bool cross) {
    const double *list = cross ? p->outer : p->inner;
    return megabytes / (bandwidth(list, cross ? p->outer_count : p->inner_count, megabytes) * 0.001);
}

double aceso_stage_compute(const aceso_profile *p, const aceso_stage *s) {
    double microseconds = 0;
    for (int k = 0; k < s->count; ++k) {
        const aceso_operation *op = aceso_stage_operator(p, s, k);
        if (!op->measured) return INFINITY;
        microseconds += op->forward + op->backward;
    }
    return microseconds / 1000;
}

double aceso_stage_transfers(const aceso_profile *p, const aceso_stage *s, bool in_cross, bool out_cross) {
    double in = aceso_transfer(p, aceso_stage_operator(p, s, 0)->input, in_cross);
    return (in + aceso_transfer(p, aceso_stage_operator(p, s, s->count - 1)->output, out_cross)) / 1000;
}

double aceso_evaluate_time(const aceso_profile *p, const aceso_stage *s, const bool *again, bool in_cross,
                           bool out_cross) {
    double forward = 0, backward = 0, repeated = 0;
    for (int k = 0; k < s->count; ++k) {
        const aceso_operation *op = aceso_stage_operator(p, s, k);
        forward += op->forward;
        backward += op->backward;
        repeated += again[k] ? op->forward : 0;
    }
    double in = aceso_transfer(p, aceso_stage_operator(p, s, 0)->input, in_cross);
    double out = aceso_transfer(p, aceso_stage_operator(p, s, s->count - 1)->output, out_cross);
    return (forward + backward + in + out + repeated) / 1000;
}
