#include "passes/cost/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *subject;
    sn_arena *arena;
    sn_diags *diags;
    bool failed;
} reader;

static void fail(reader *r, const char *member, const char *what) {
    if (!r->failed)
        sn_error(r->diags, "E0414", r->subject, "measure again with `sennit profile -o FILE`",
                 "the profile's \"%s\" %s", member, what);
    r->failed = true;
}

static double read_seconds(reader *r, const json_t *json, const char *member) {
    const json_t *value = json_object_get(json, member);
    double seconds = json_number_value(value);
    if (!json_is_number(value) || !(seconds >= 0) || !isfinite(seconds)) fail(r, member, "is no time");
    return seconds;
}

// Rows of numbers, none negative, that do not fall in their first column.
static sn_profile_table read_table(reader *r, const json_t *json, const char *member, int columns) {
    bool sorted = strcmp(member, "gemms") != 0;
    sn_profile_table table = {.columns = columns, .rows = json_array_size(json)};
    table.data = SN_NEW_N(r->arena, double, table.rows *(size_t)columns + 1);
    for (size_t i = 0; i < table.rows; i++) {
        const json_t *row = json_array_get(json, i);
        for (int c = 0; c < columns; c++) {
            const json_t *item = json_array_get(row, (size_t)c);
            double value = json_number_value(item);
            if (json_array_size(row) != (size_t)columns || !json_is_number(item) || !(value >= 0) || !isfinite(value))
                fail(r, member, "has a row of other than the expected numbers");
            table.data[i * (size_t)columns + (size_t)c] = value;
        }
        if (sorted && i && table.data[i * (size_t)columns] < table.data[(i - 1) * (size_t)columns])
            fail(r, member, "is not in rising order");
    }
    return table;
}

static void read_instructions(reader *r, const json_t *json, sn_profile *out) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, name, value) {
        double *seconds = SN_NEW_N(r->arena, double, 2);
        for (size_t i = 0; i < 2; i++) {
            const json_t *item = json_array_get(value, i);
            if (json_is_null(item)) item = json_array_get(value, 1 - i);
            seconds[i] = json_number_value(item);
            if (!json_is_number(item) || !(seconds[i] >= 0)) fail(r, name, "is no pair of times");
        }
        sn_map_put(&out->instructions, sn_arena_strdup(r->arena, name), seconds);
    }
}

static void check_collectives(reader *r, const json_t *json) {
    const char *kind, *ranks;
    json_t *of_kind, *table;
    json_object_foreach((json_t *)(uintptr_t)json, kind, of_kind) {
        json_object_foreach(of_kind, ranks, table) {
            read_table(r, table, kind, 2);
        }
    }
}

static bool read_profile(json_t *json, const char *subject, sn_arena *arena, sn_diags *diags, sn_profile *out) {
    reader r = {subject, arena, diags, false};
    sn_profile profile = {.json = json_incref(json),
                          .collectives = json_object_get(json, "collectives"),
                          .step = json_object_get(json, "step")};
    if (json_integer_value(json_object_get(json, "version")) != SN_PROFILE_VERSION) fail(&r, "version", "is not 1");
    profile.issue = read_seconds(&r, json, "issue");
    profile.run = read_seconds(&r, json, "run");
    profile.turn = read_seconds(&r, json, "turn");
    profile.sharing = read_seconds(&r, json, "sharing");
    if (!(profile.sharing > 0 && profile.sharing <= 1)) fail(&r, "sharing", "is no share of one");
    profile.cores = json_number_value(json_object_get(json, "cores"));
    if (!(profile.cores >= 1)) fail(&r, "cores", "is no number of cores");
    profile.gemms = read_table(&r, json_object_get(json, "gemms"), "gemms", 4);
    profile.attentions = read_table(&r, json_object_get(json, "attentions"), "attentions", 2);
    profile.streams = read_table(&r, json_object_get(json, "streams"), "streams", 2);
    profile.messages = read_table(&r, json_object_get(json, "messages"), "messages", 4);
    check_collectives(&r, profile.collectives);
    read_instructions(&r, json_object_get(json, "instructions"), &profile);
    if (r.failed)
        sn_profile_free(&profile);
    else
        *out = profile;
    return !r.failed;
}

bool sn_profile_load(const char *path, sn_arena *arena, sn_diags *diags, sn_profile *out) {
    json_error_t error;
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        const char *line = error.line > 0 ? sn_arena_printf(arena, "line %d: ", error.line) : "";
        sn_error(diags, "E0414", path, "`sennit profile -o FILE` writes one", "the profile cannot be read: %s%s", line,
                 error.text);
        return false;
    }
    bool good = read_profile(json, path, arena, diags, out);
    json_decref(json);
    return good;
}

void sn_profile_free(sn_profile *profile) {
    sn_map_free(&profile->instructions);
    if (profile->json) json_decref(profile->json);
    *profile = (sn_profile){0};
}

bool sn_profile_instruction(const sn_profile *profile, const char *signature, bool crowded, double *seconds) {
    const double *found = sn_map_get(&profile->instructions, signature);
    if (found) *seconds = found[crowded];
    return found != NULL;
}

// A column at `x` of the first one: between two rows on the straight line through them, outside on the nearest two's.
static double interpolate(const sn_profile_table *table, int column, double x) {
    size_t row = 1, columns = (size_t)table->columns;
    if (table->rows == 1) return table->data[column];
    while (row + 1 < table->rows && table->data[row * columns] < x) row++;
    const double *a = &table->data[(row - 1) * columns], *b = a + columns;
    double t = b[0] > a[0] ? (x - a[0]) / (b[0] - a[0]) : 0;
    return fmax(0, a[column] + t * (b[column] - a[column]));
}

bool sn_profile_message(const sn_profile *profile, double bytes, sn_message_cost *out) {
    if (!profile->messages.rows) return false;
    out->send = interpolate(&profile->messages, 1, bytes);
    out->flight = interpolate(&profile->messages, 2, bytes);
    out->receive = interpolate(&profile->messages, 3, bytes);
    return true;
}

static bool stream_seconds(const sn_profile *profile, double bytes, double *seconds) {
    if (!profile->streams.rows) return false;
    *seconds = interpolate(&profile->streams, 1, bytes);
    return true;
}

bool sn_profile_collective(const sn_profile *profile, sn_op_kind kind, int64_t ranks, double bytes, double *seconds) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)ranks);
    const json_t *json = json_object_get(json_object_get(profile->collectives, sn_op_name(kind)), text);
    sn_arena scratch = {0};
    reader r = {.arena = &scratch};
    if (json_array_size(json)) {
        sn_profile_table table = read_table(&r, json, text, 2);
        *seconds = interpolate(&table, 1, bytes);
    }
    sn_arena_free(&scratch);
    return json_array_size(json) > 0;
}

// The rate of what was measured nearby, weighted by nearness in the logarithms of the three sizes (Shepard 1968).
static double matmul_seconds(const sn_profile *profile, double batch, double m, double n, double k) {
    double sum = 0, weights = 0;
    for (size_t i = 0; i < profile->gemms.rows; i++) {
        const double *g = &profile->gemms.data[4 * i];
        double a = log2(g[0] / m), b = log2(g[1] / n), c = log2(g[2] / k);
        double weight = 1 / (pow(a * a + b * b + c * c, 2) + 1e-6);
        sum += weight * log(2 * g[0] * g[1] * g[2] / g[3]);
        weights += weight;
    }
    return batch * 2 * m * n * k / exp(sum / weights);
}

bool sn_profile_op(const sn_profile *profile, const sn_op *op, double flops, double bytes, double *seconds) {
    bool attention = op->kind == SN_OP_ATTENTION || op->kind == SN_OP_ATTENTION_GRAD;
    if (attention && profile->attentions.rows) {
        *seconds = interpolate(&profile->attentions, 1, flops);
    } else if (op->kind == SN_OP_MATMUL && profile->gemms.rows) {
        sn_type a = op->operands[0]->type, out = op->results[0]->type;
        int64_t m = out.dim[out.rank - 2], n = out.dim[out.rank - 1];
        int64_t k = a.dim[sn_op_int(op, "transpose_a") ? a.rank - 2 : a.rank - 1];
        if (m * n * k == 0) return false;
        *seconds = matmul_seconds(profile, (double)(sn_type_count(out) / (m * n)), (double)m, (double)n, (double)k);
    } else {
        return false;
    }
    double streaming = 0;
    if (stream_seconds(profile, bytes, &streaming)) *seconds = fmax(*seconds, streaming);
    return true;
}

double sn_profile_step(const sn_profile *profile, int64_t ranks) {
    const char *name;
    json_t *value;
    double best = 0, nearest = INFINITY;
    json_object_foreach((json_t *)(uintptr_t)profile->step, name, value) {
        double distance = fabs(log((double)ranks / strtod(name, NULL)));
        if (distance < nearest) nearest = distance, best = json_number_value(value);
    }
    return best;
}
