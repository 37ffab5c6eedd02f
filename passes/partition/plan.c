#include "passes/partition/plan.h"

#include "base/map.h"
#include "base/options.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_VERSION = 2, MOST_RANKS = 1 << 20, MOST_COUNT = 1 << 20 };

static const char *const pipeline_names[SN_PIPELINE_COUNT] = {
    [SN_PIPELINE_1F1B] = "1f1b",
    [SN_PIPELINE_GPIPE] = "gpipe",
    [SN_PIPELINE_INTERLEAVED] = "interleaved",
    [SN_PIPELINE_ZERO_BUBBLE] = "zero-bubble",
};
static const char *const remat_names[SN_REMAT_COUNT] = {
    [SN_REMAT_NONE] = "none", [SN_REMAT_SELECTIVE] = "selective", [SN_REMAT_FULL] = "full"};

const char *sn_pipeline_name(sn_pipeline schedule) {
    return pipeline_names[schedule];
}

const char *sn_remat_name(sn_remat remat) {
    return remat_names[remat];
}

static int find_name(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (name && strcmp(names[i], name) == 0) return i;
    return -1;
}

int sn_plan_ranks(const sn_plan *plan) {
    return (int)sn_mesh_ranks(&plan->mesh);
}

int sn_plan_axis_size(const sn_plan *plan, const char *axis) {
    int i = sn_mesh_axis(&plan->mesh, axis);
    return i < 0 ? 1 : plan->mesh.size[i];
}

bool sn_mesh_is_tensor_axis(const sn_mesh *mesh, int axis) {
    static const char *const others[] = {"dp", "ep", "cp", "pp"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(mesh->name[axis], others[i]) == 0) return false;
    return true;
}

int sn_plan_stage_count(const sn_plan *plan) {
    return sn_plan_axis_size(plan, "pp") * plan->chunks;
}

sn_plan sn_plan_data_parallel(int ranks, int microbatches) {
    sn_plan plan = {.microbatches = microbatches, .chunks = 1};
    plan.mesh.n_axes = 1;
    strcpy(plan.mesh.name[0], "dp");
    plan.mesh.size[0] = ranks;
    return plan;
}

// Rules that hold between the fields of a plan, wherever it comes from.
static bool check(const sn_plan *plan, const char *subject, sn_diags *diags) {
    int stages = sn_plan_stage_count(plan);
    if (plan->chunks > 1 && plan->schedule != SN_PIPELINE_INTERLEAVED) {
        sn_error(diags, "E0408", subject, "add schedule=interleaved, or leave chunks out",
                 "%d chunks a rank need the interleaved schedule", plan->chunks);
    } else if (plan->n_stages && plan->n_stages != stages) {
        sn_error(diags, "E0408", subject, "list one stage for each pipeline rank and chunk, or none",
                 "the plan lists %d stages for pp * chunks = %d", plan->n_stages, stages);
    } else {
        return true;
    }
    return false;
}

// What is wrong with the axis, or NULL: it was added.
static const char *add_axis(sn_mesh *mesh, const char *name, int64_t size) {
    static const char neither[] = "is no axis size and no setting";
    static const char *const options[] = {"ranks", "batch", "accumulate"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strcmp(name, options[i]) == 0) return "is no part of a mesh but an option of its own, written --NAME N";
    if (!*name || strlen(name) >= sizeof mesh->name[0] || size < 1) return neither;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_') return neither;
    if (sn_mesh_axis(mesh, name) >= 0) return "gives an axis twice";
    if (mesh->n_axes == SN_MAX_AXES) return "is one axis too many";
    if (size > MOST_RANKS || sn_mesh_ranks(mesh) * size > MOST_RANKS)
        return "makes the mesh too large: above 2^20 ranks";
    strcpy(mesh->name[mesh->n_axes], name);
    mesh->size[mesh->n_axes++] = (int)size;
    return NULL;
}

// The fields of a plan that are numbers or words, as an outline and as JSON spell them.
static bool set_word(sn_plan *plan, const char *key, const char *value, int64_t number, bool *known) {
    *known = true;
    if (strcmp(key, "schedule") == 0 || strcmp(key, "remat") == 0) {
        bool schedule = key[0] == 's';
        int found = schedule ? find_name(pipeline_names, SN_PIPELINE_COUNT, value)
                             : find_name(remat_names, SN_REMAT_COUNT, value);
        if (found < 0) return false;
        if (schedule)
            plan->schedule = (sn_pipeline)found;
        else
            plan->remat = (sn_remat)found;
        plan->named |= schedule ? SN_PLAN_SCHEDULE : SN_PLAN_REMAT;
        return true;
    }
    const struct {
        const char *key;
        int *field, least, most;
        unsigned bit;
    } numbers[] = {{"microbatches", &plan->microbatches, 1, MOST_COUNT, SN_PLAN_MICROBATCHES},
                   {"chunks", &plan->chunks, 1, MOST_COUNT, SN_PLAN_CHUNKS},
                   {"zero", &plan->zero, 0, 3, SN_PLAN_ZERO}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(key, numbers[i].key) != 0) continue;
        if (number < numbers[i].least || number > numbers[i].most) return false;
        *numbers[i].field = (int)number;
        plan->named |= numbers[i].bit;
        return true;
    }
    return *known = false;
}

// Any name may be an axis, so a misspelt setting would be one. NULL where the word resembles none.
static const char *resembled(const char *word, const char *const *names, size_t n) {
    sn_suggestion close = {0};
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, names[i]) == 0) return NULL;
    for (size_t i = 0; i < n; i++) sn_suggest(&close, word, names[i]);
    size_t most = strlen(word) > 3 ? strlen(word) / 3 : 1;
    return strlen(word) > 1 && close.best && close.distance <= most ? close.best : NULL;
}

static const char *resembled_setting(const char *word) {
    static const char *const settings[] = {"microbatches", "schedule", "chunks", "zero", "remat"};
    return resembled(word, settings, sizeof settings / sizeof *settings);
}

// tp1 and tp_q are names that people give; tpp and TP are hardly.
static void warn_of_axis(const char *name, sn_diags *diags) {
    static const char *const axes[] = {"dp", "tp", "pp", "cp", "ep"};
    char lower[sizeof((sn_mesh *)0)->name[0]] = "";
    for (size_t i = 0; name[i]; i++) lower[i] = (char)tolower((unsigned char)name[i]);
    const char *axis = resembled(name, axes, sizeof axes / sizeof *axes);
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (strcmp(lower, axes[i]) == 0 && strcmp(name, axes[i]) != 0) axis = axes[i];
    if (axis && !isdigit((unsigned char)name[strlen(name) - 1]))
        sn_warning(diags, "W0407", "--mesh",
                   sn_arena_printf(&diags->arena,
                                   "did you mean %s? Else a name that resembles none of dp, tp, pp, cp, ep", axis),
                   "'%s' is taken for the name of an axis that cuts weights", name);
}

bool sn_plan_from_outline(const char *text, sn_diags *diags, sn_plan *out) {
    static const char help[] = "write it as pp=2,dp=2,tp=2,microbatches=4,schedule=1f1b|gpipe|interleaved|zero-bubble,"
                               "chunks=1,zero=0..3,remat=none|selective|full";
    sn_plan plan = {.microbatches = 1, .chunks = 1};
    char *copy = strdup(text), *rest = copy;
    bool good = true;
    for (char *item; good && (item = strsep(&rest, ","));) {
        char *value = strchr(item, '='), *end = NULL;
        if (value) *value++ = 0;
        int64_t number = value ? strtoll(value, &end, 10) : 0;
        if (!value || !*value || *end) number = -1;
        bool known = false;
        good = value && set_word(&plan, item, value, number, &known);
        const char *problem = good    ? NULL
                              : known ? "names a value that it cannot have"
                                      : "is no axis size and no setting";
        const char *setting = value && !known ? resembled_setting(item) : NULL;
        if (setting)
            problem = sn_arena_printf(&diags->arena, "is no setting; did you mean %s?", setting);
        else if (value && !known)
            problem = add_axis(&plan.mesh, item, number);
        good = !problem;
        if (good && !known) warn_of_axis(item, diags);
        if (!good)
            sn_error(diags, "E0407", "--mesh", help, "'%s%s%s' %s", item, value ? "=" : "", value ? value : "",
                     problem);
    }
    free(copy);
    good = good && check(&plan, "--mesh", diags);
    if (good) *out = plan;
    return good;
}

static json_t *stages_to_json(const sn_plan *plan) {
    json_t *stages = json_array();
    for (int i = 0; i < plan->n_stages; i++) {
        json_t *stage = json_object();
        json_object_set_new(stage, "first", json_string(plan->stages[i].first));
        json_object_set_new(stage, "remat", json_string(sn_remat_name(plan->stages[i].remat)));
        json_array_append_new(stages, stage);
    }
    return stages;
}

static bool entry_is_cut(const sn_plan_layout *entry) {
    return !sn_layout_is_replicated(entry->layout);
}

static json_t *layouts_to_json(const sn_plan *plan) {
    json_t *layouts = json_object();
    for (int i = 0; i < plan->n_layouts; i++) {
        const sn_plan_layout *entry = &plan->layouts[i];
        sn_str text = {0};
        sn_layout_print(&text, &plan->mesh, entry->layout, entry->rank);
        for (int d = 0; !entry_is_cut(entry) && d < entry->rank; d++) sn_str_puts(&text, d ? ",-" : "{-");
        if (!entry_is_cut(entry)) sn_str_putc(&text, '}');
        json_object_set_new(layouts, entry->name, json_string(sn_str_text(&text)));
        sn_str_free(&text);
    }
    return layouts;
}

static void set_hash(json_t *json, const char *key, uint64_t hash) {
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    if (hash) json_object_set_new(json, key, json_string(text));
}

json_t *sn_plan_to_json(const sn_plan *plan) {
    json_t *mesh = json_object();
    for (int i = 0; i < plan->mesh.n_axes; i++)
        json_object_set_new(mesh, plan->mesh.name[i], json_integer(plan->mesh.size[i]));
    json_t *json = json_object();
    json_object_set_new(json, "version", json_integer(PLAN_VERSION));
    set_hash(json, "model", plan->model_hash);
    set_hash(json, "cluster", plan->cluster_hash);
    if (plan->batch) json_object_set_new(json, "batch", json_integer(plan->batch));
    json_object_set_new(json, "mesh", mesh);
    json_object_set_new(json, "microbatches", json_integer(plan->microbatches));
    json_object_set_new(json, "schedule", json_string(sn_pipeline_name(plan->schedule)));
    json_object_set_new(json, "chunks", json_integer(plan->chunks));
    json_object_set_new(json, "zero", json_integer(plan->zero));
    json_object_set_new(json, "remat", json_string(sn_remat_name(plan->remat)));
    if (plan->n_stages) json_object_set_new(json, "stages", stages_to_json(plan));
    if (plan->n_layouts) json_object_set_new(json, "layouts", layouts_to_json(plan));
    if (plan->predicted_step_seconds > 0) {
        json_t *predicted = json_object();
        json_object_set_new(predicted, "step_seconds", json_real(plan->predicted_step_seconds));
        json_object_set_new(predicted, "memory_bytes", json_integer((json_int_t)ceil(plan->predicted_memory_bytes)));
        json_object_set_new(json, "predicted", predicted);
    }
    return json;
}

static bool read_mesh(const json_t *json, const char *subject, sn_diags *diags, sn_mesh *out) {
    const char *name;
    json_t *size;
    sn_mesh mesh = {0};
    json_object_foreach((json_t *)(uintptr_t)json, name, size) {
        if (json_is_integer(size) && !add_axis(&mesh, name, json_integer_value(size))) continue;
        sn_error(diags, "E0401", subject, "write it as {\"dp\": 4}", "the plan's mesh axis '%s' is not usable", name);
        return false;
    }
    *out = mesh;
    return true;
}

static bool read_words(const json_t *json, const char *subject, sn_diags *diags, sn_plan *plan) {
    static const char *const keys[] = {"microbatches", "chunks", "zero", "schedule", "remat"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(json, keys[i]);
        bool known;
        int64_t number = json_is_integer(value) ? json_integer_value(value) : -1;
        if (!value || set_word(plan, keys[i], json_string_value(value), number, &known)) continue;
        sn_error(diags, "E0403", subject,
                 "microbatches and chunks are positive integers, zero is 0 to 3, schedule is one of 1f1b, gpipe, "
                 "interleaved, zero-bubble, remat is one of none, selective, full",
                 "the plan's \"%s\" is not usable", keys[i]);
        return false;
    }
    return true;
}

// The field that is not usable, with what it may be in *form; NULL: the stage is read.
static const char *read_stage(const json_t *json, int index, sn_arena *arena, sn_plan *plan, const char **form) {
    const json_t *remat = json_object_get(json, "remat");
    const char *first = json_string_value(json_object_get(json, "first"));
    int kind = remat ? find_name(remat_names, SN_REMAT_COUNT, json_string_value(remat)) : (int)plan->remat;
    *form = index ? "it is the name of the ONNX node that the stage begins with: \"/onnx/node/name\""
                  : "it is \"\" in the first stage, which begins with the model";
    if (!first || (index == 0) != !*first) return "first";
    *form = "it is one of none, selective, full; left out, the plan's own";
    if (kind < 0) return "remat";
    plan->stages[index] = (sn_plan_stage){sn_arena_strdup(arena, first), (sn_remat)kind};
    return NULL;
}

static bool read_stages(const json_t *json, const char *subject, sn_diags *diags, sn_arena *arena, sn_plan *plan) {
    plan->n_stages = (int)json_array_size(json);
    plan->stages = SN_NEW_N(arena, sn_plan_stage, plan->n_stages + 1);
    for (int i = 0; i < plan->n_stages; i++) {
        const char *form, *wrong = read_stage(json_array_get(json, (size_t)i), i, arena, plan, &form);
        if (!wrong) continue;
        sn_error(diags, "E0409", subject, form, "the plan's stage %d's \"%s\" is not usable", i, wrong);
        return false;
    }
    return true;
}

// ":2:1", where the axes of a dim cut it elsewhere than in nested blocks (ir/layout.h).
static bool read_outers(const char **text, const sn_mesh *mesh, int dim, sn_layout *out) {
    int64_t outer[SN_MAX_AXES];
    if (**text != ':') return true;
    for (int a = 0; a < mesh->n_axes; a++) {
        char *end;
        if (!(out->dim[dim] >> a & 1)) continue;
        if (*(*text)++ != ':') return false;
        outer[a] = strtoll(*text, &end, 10);
        if (end == *text || outer[a] < 1 || outer[a] > INT32_MAX) return false;
        *text = end;
    }
    sn_layout_set_dim(mesh, out, dim, out->dim[dim], outer);
    return true;
}

// "-", "tp" or "dp.tp"
static bool read_axes(const char **text, const sn_mesh *mesh, sn_axes *used, sn_axes *out) {
    for (;; ++*text) {
        size_t length = strcspn(*text, ",.:}");
        char name[sizeof mesh->name[0]] = "";
        if (length == 0 || length >= sizeof name) return false;
        memcpy(name, *text, length);
        *text += length;
        int axis = sn_mesh_axis(mesh, name);
        if (strcmp(name, "-") != 0 && (axis < 0 || *used >> axis & 1)) return false;
        if (axis >= 0) *out |= (sn_axes)(1 << axis), *used |= (sn_axes)(1 << axis);
        if (**text != '.') return true;
    }
}

// "{dp,-,a,b}": each axis of the mesh at most once; several axes of one dim are joined by '.' ("{dp.tp,-}"). Pipeline
// ranks run different programs: `pp` cuts nothing.
static bool read_layout(const char *text, const sn_mesh *mesh, sn_plan_layout *out) {
    sn_axes used = 0;
    if (*text++ != '{') return false;
    for (out->rank = 0;; out->rank++) {
        if (out->rank == SN_MAX_RANK) return false;
        if (!read_axes(&text, mesh, &used, &out->layout.dim[out->rank]) ||
            !read_outers(&text, mesh, out->rank, &out->layout))
            return false;
        if (*text == '}') break;
        if (*text++ != ',') return false;
    }
    out->rank++;
    int pipeline = sn_mesh_axis(mesh, "pp");
    return text[1] == 0 && (pipeline < 0 || !(used >> pipeline & 1));
}

static bool read_layouts(const json_t *json, const char *subject, sn_diags *diags, sn_arena *arena, sn_plan *plan) {
    const char *name;
    json_t *text;
    plan->layouts = SN_NEW_N(arena, sn_plan_layout, json_object_size(json) + 1);
    json_object_foreach((json_t *)(uintptr_t)json, name, text) {
        sn_plan_layout entry = {.name = sn_arena_strdup(arena, name)};
        if (!json_is_string(text) || !read_layout(json_string_value(text), &plan->mesh, &entry)) {
            sn_error(diags, "E0450", subject,
                     "write it as {\"NAME\": \"{-,tp}\"}: one entry a dim, axes of the mesh but pp",
                     "the plan's layout of '%s' is not usable", name);
            return false;
        }
        plan->layouts[plan->n_layouts++] = entry;
    }
    return true;
}

static uint64_t read_hash(const json_t *json, const char *key) {
    const char *text = json_string_value(json_object_get(json, key));
    return text ? strtoull(text, NULL, 16) : 0;
}

typedef struct plan_key {
    const char *name;
    bool (*fits)(const json_t *value);
    const char *form;
} plan_key;

static bool is_object(const json_t *value) {
    return json_is_object(value);
}

static bool is_array(const json_t *value) {
    return json_is_array(value);
}

static bool is_any(const json_t *value) {
    (void)value;
    return true; // whoever reads it says more
}

static bool is_count(const json_t *value) {
    return json_is_integer(value) && json_integer_value(value) > 0;
}

static bool is_amount(const json_t *value) {
    return json_is_number(value) && json_number_value(value) >= 0;
}

// No hash is zero, which stands for any: whoever means that leaves the field out.
static bool is_hash(const json_t *value) {
    size_t length = json_string_length(value);
    const char *text = json_string_value(value);
    return length > 0 && length <= 16 && strspn(text, "0123456789abcdefABCDEF") == length && strspn(text, "0") < length;
}

static const plan_key plan_keys[] = {
    {"version", is_any, ""},
    {"model", is_hash, "up to 16 hexadecimal digits, not zero; left out, the plan is for any model"},
    {"cluster", is_hash, "up to 16 hexadecimal digits, not zero; left out, the plan is for any cluster"},
    {"batch", is_count, "a positive integer"},
    {"mesh", is_object, "an object"},
    {"microbatches", is_any, ""},
    {"schedule", is_any, ""},
    {"chunks", is_any, ""},
    {"zero", is_any, ""},
    {"remat", is_any, ""},
    {"stages", is_array, "an array"},
    {"layouts", is_object, "an object"},
    {"predicted", is_object, "an object"},
    {"explanation", is_object, "an object"}, // what `sennit plan` adds for `explain` and `simulate`
    {"made_from", is_object, "an object"},
};
static const plan_key stage_keys[] = {{"first", is_any, ""}, {"remat", is_any, ""}};
static const plan_key predicted_keys[] = {{"step_seconds", is_amount, "a number"},
                                          {"memory_bytes", is_amount, "a number"}};

// A word that is misspelt would be a setting without effect: what is not known is refused. `where` ends in a space, or
// is empty.
static bool check_keys(const json_t *json, const plan_key *keys, size_t count, const char *where, const char *subject,
                       sn_diags *diags) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, name, value) {
        size_t i = 0;
        while (i < count && strcmp(keys[i].name, name) != 0) i++;
        if (i < count && keys[i].fits(value)) continue;
        sn_str help = {0};
        if (i < count) {
            sn_str_printf(&help, "it is %s", keys[i].form);
            sn_error(diags, "E0403", subject, sn_str_text(&help), "the plan's %s\"%s\" is not usable", where, name);
        } else {
            for (size_t k = 0; k < count; k++) sn_str_printf(&help, "%s%s", k ? ", " : "known are ", keys[k].name);
            sn_error(diags, "E0403", subject, sn_str_text(&help), "the plan's %s\"%s\" is no known key", where, name);
        }
        sn_str_free(&help);
        return false;
    }
    return true;
}

static bool check_all_keys(const json_t *json, const char *subject, sn_diags *diags) {
    const json_t *stages = json_object_get(json, "stages"), *predicted = json_object_get(json, "predicted");
    bool good = check_keys(json, plan_keys, sizeof plan_keys / sizeof *plan_keys, "", subject, diags) &&
                check_keys(predicted, predicted_keys, sizeof predicted_keys / sizeof *predicted_keys, "predicted ",
                           subject, diags);
    for (size_t i = 0; good && i < json_array_size(stages); i++) {
        char where[32];
        snprintf(where, sizeof where, "stage %zu's ", i);
        good = check_keys(json_array_get(stages, i), stage_keys, sizeof stage_keys / sizeof *stage_keys, where, subject,
                          diags);
    }
    return good;
}

json_t *sn_plan_load(const char *path, sn_diags *diags) {
    json_error_t error;
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const char *line = error.line > 0 ? sn_arena_printf(&diags->arena, "line %d: ", error.line) : "";
    if (!json)
        sn_error(diags, "E0405", path, "`sennit plan -o FILE` writes one; docs/planning.md describes it",
                 "the plan cannot be read: %s%s", line, error.text);
    return json;
}

bool sn_plan_from_json(const json_t *json, const char *subject, sn_diags *diags, sn_arena *arena, sn_plan *out) {
    const json_t *mesh = json_object_get(json, "mesh"), *predicted = json_object_get(json, "predicted");
    if (json_integer_value(json_object_get(json, "version")) != PLAN_VERSION || !json_is_object(mesh)) {
        sn_error(diags, "E0402", subject, "write a plan with `sennit plan` and edit that",
                 "this is not a plan of version %d", PLAN_VERSION);
        return false;
    }
    sn_plan plan = {.microbatches = 1, .chunks = 1};
    if (!check_all_keys(json, subject, diags) || !read_mesh(mesh, subject, diags, &plan.mesh) ||
        !read_words(json, subject, diags, &plan) ||
        !read_stages(json_object_get(json, "stages"), subject, diags, arena, &plan) ||
        !read_layouts(json_object_get(json, "layouts"), subject, diags, arena, &plan) || !check(&plan, subject, diags))
        return false;
    plan.batch = json_integer_value(json_object_get(json, "batch"));
    plan.model_hash = read_hash(json, "model");
    plan.cluster_hash = read_hash(json, "cluster");
    plan.predicted_step_seconds = json_number_value(json_object_get(predicted, "step_seconds"));
    plan.predicted_memory_bytes = json_number_value(json_object_get(predicted, "memory_bytes"));
    *out = plan;
    return true;
}

uint64_t sn_plan_hash(const sn_plan *plan) {
    json_t *json = sn_plan_to_json(plan);
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = sn_hash_bytes(text, strlen(text), 0);
    free(text);
    json_decref(json);
    return hash;
}

json_t *sn_plan_decisions(const sn_plan *plan) {
    json_t *json = sn_plan_to_json(plan), *hashes = json_object(), *value;
    const char *name;
    json_object_foreach(json, name, value) {
        if (strcmp(name, "predicted") == 0) continue;
        bool ordered = strcmp(name, "mesh") == 0; // axes from outer to inner
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | (ordered ? 0 : JSON_SORT_KEYS));
        set_hash(hashes, name, sn_hash_bytes(text, strlen(text), 0));
        free(text);
    }
    json_decref(json);
    return hashes;
}
