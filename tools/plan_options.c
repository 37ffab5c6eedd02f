#include "tools/plan_options.h"

#include "tools/options.h"

#include <jansson.h>
#include <string.h>

// The model's shapes and the training step follow from these. What else `sennit plan` records (--optimizer, --clip) may
// be chosen anew: rates are no part of a plan.
static const char *const bound[] = {"dim",       "loss",          "ignore-index", "frozen",
                                    "trainable", "padding-index", "train-mode"};
static const char *const open[] = {"optimizer", "clip"};

static bool is_among(const char *const *names, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static bool is_bound(const char *name) {
    return is_among(bound, sizeof bound / sizeof *bound, name);
}

static bool read_recorded(const json_t *list, const char *path, sn_diags *diags, sn_options *out) {
    size_t n = json_array_size(list);
    char **line = SN_NEW_N(&diags->arena, char *, n + 2);
    line[0] = sn_arena_strdup(&diags->arena, "compile");
    line[1] = sn_arena_strdup(&diags->arena, "MODEL.onnx");
    bool good = !list || json_is_array(list);
    for (size_t i = 0; i < n && good; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        good = text && strncmp(text, "--", 2) == 0;
        line[2 + i] = good ? sn_arena_strdup(&diags->arena, text) : NULL;
    }
    int status;
    good = good && sn_command_parse(SN_COMMAND_COMPILE, (int)n + 2, line, out, &status);
    if (!good)
        sn_error(diags, "E0453", path, "plan again with `sennit plan`", "the plan's \"made_from\" is not usable");
    return good;
}

// NAME of NAME=N.
static bool same_dim(const char *a, const char *b) {
    size_t length = strcspn(a, "=");
    return length == strcspn(b, "=") && strncmp(a, b, length) == 0;
}

static bool refuse(const char *path, const char *name, const char *planned, const char *given, sn_diags *diags) {
    sn_error(diags, "E0455", path, "leave the option out, as the plan has it; or plan again",
             "the plan was made with --%s %s, and the command line says --%s %s", name, planned, name, given);
    return false;
}

// *take: nothing given says otherwise. False with E0455.
static bool compare(const sn_options *options, const sn_options *recorded, size_t index, const char *path, bool *take,
                    sn_diags *diags) {
    const char *name = recorded->given.data[index].spec->name, *planned = recorded->given.data[index].text;
    bool is_dim = strcmp(name, "dim") == 0, found = false, same = false;
    const char *other = NULL;
    for (size_t i = 0; i < options->given.count; i++) {
        const struct sn_option_given *given = &options->given.data[i];
        if (strcmp(given->spec->name, name) != 0 || (is_dim && !same_dim(planned, given->text))) continue;
        found = true;
        if (strcmp(given->text, planned) == 0)
            same = true;
        else
            other = given->text;
    }
    *take = !found;
    bool contradicts =
        found && (is_dim || recorded->given.data[index].spec->type != SN_OPTION_LIST ? other != NULL : !same);
    return !is_bound(name) || !contradicts || refuse(path, name, planned, other, diags);
}

// Of a list, what is given beside the plan must be of it: one rule more makes another model.
static bool check_lists(const sn_options *options, const sn_options *recorded, const char *path, sn_diags *diags) {
    for (size_t i = 0; i < options->given.count; i++) {
        const struct sn_option_given *given = &options->given.data[i];
        const char *name = given->spec->name, *planned = NULL;
        bool same = false;
        if (!is_bound(name) || strcmp(name, "dim") == 0) continue;
        for (size_t k = 0; k < recorded->given.count; k++) {
            if (recorded->given.data[k].spec != given->spec) continue;
            planned = recorded->given.data[k].text;
            same |= strcmp(planned, given->text) == 0;
        }
        if (planned && !same) return refuse(path, name, planned, given->text, diags);
    }
    return true;
}

static const sn_options *merge(const sn_options *options, const sn_options *recorded, bool all, const char *path,
                               sn_diags *diags) {
    sn_options *out = SN_NEW(&diags->arena, sn_options);
    size_t n = options->given.count;
    *out = *options;
    out->given.data = SN_NEW_N(&diags->arena, struct sn_option_given, n + recorded->given.count + 1);
    out->given.capacity = n + recorded->given.count + 1;
    if (n) memcpy(out->given.data, options->given.data, n * sizeof *out->given.data);
    for (size_t i = 0; i < recorded->given.count; i++) {
        const char *name = recorded->given.data[i].spec->name;
        bool take;
        if (!all && !is_bound(name) && !is_among(open, sizeof open / sizeof *open, name)) continue;
        if (!compare(options, recorded, i, path, &take, diags)) return NULL;
        if (take) out->given.data[out->given.count++] = recorded->given.data[i];
    }
    return check_lists(options, recorded, path, diags) ? out : NULL;
}

const sn_options *sn_plan_options(const sn_options *options, bool all, sn_diags *diags) {
    const char *path = sn_options_text(options, "plan", NULL);
    json_t *json = path ? json_load_file(path, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const json_t *from = json_object_get(json, "made_from");
    const sn_options *merged = options;
    sn_options recorded = {0};
    if (from)
        merged = read_recorded(json_object_get(from, "options"), path, diags, &recorded)
                     ? merge(options, &recorded, all, path, diags)
                     : NULL;
    sn_options_free(&recorded);
    json_decref(json);
    return merged;
}
