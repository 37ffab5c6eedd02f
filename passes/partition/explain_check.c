// An explanation can be edited like the rest of plan.json: what its text shows is checked before any of it is shown.
#include "passes/partition/explain.h"

#include <math.h>
#include <string.h>

typedef enum field_kind { FIELD_TEXT, FIELD_AMOUNT, FIELD_COUNT, FIELD_PAIR, FIELD_LIST, FIELD_OBJECT } field_kind;

static const char *const forms[] = {
    [FIELD_TEXT] = "a text",
    [FIELD_AMOUNT] = "a number that is not negative",
    [FIELD_COUNT] = "a whole number that is not negative",
    [FIELD_PAIR] = "a list of two whole numbers that are not negative",
    [FIELD_LIST] = "a list",
    [FIELD_OBJECT] = "an object",
};

typedef struct field {
    const char *name;
    field_kind kind;
    bool needed;
} field;

#define CANDIDATE(needed)                                                                                              \
    {"outline", FIELD_TEXT, needed}, {"step_seconds", FIELD_AMOUNT, needed}, {"replayed_seconds", FIELD_AMOUNT, 0},    \
        {"pipeline_seconds", FIELD_AMOUNT, needed}, {"sync_seconds", FIELD_AMOUNT, needed},                            \
        {"message_seconds", FIELD_AMOUNT, 0}, {"moved_seconds", FIELD_AMOUNT, 0},                                      \
        {"update_seconds", FIELD_AMOUNT, needed}, {"shared_cores_seconds", FIELD_AMOUNT, 0},                           \
        {"memory_bytes", FIELD_AMOUNT, needed}, {"excess_bytes", FIELD_AMOUNT, 0}, {                                   \
        "pipeline_ranks", FIELD_COUNT, 0                                                                               \
    }

static const field plan_fields[] = {CANDIDATE(true),
                                    {"objective", FIELD_TEXT, 0},
                                    {"lower_bound", FIELD_AMOUNT, true},
                                    {"least_step_seconds", FIELD_AMOUNT, 0},
                                    {"candidates", FIELD_COUNT, 0},
                                    {"cluster", FIELD_TEXT, true},
                                    {"devices", FIELD_COUNT, true},
                                    {"device_bytes", FIELD_AMOUNT, true},
                                    {"binding_stage", FIELD_COUNT, true},
                                    {"stages", FIELD_LIST, true},
                                    {"runners_up", FIELD_LIST, 0},
                                    {"alternatives", FIELD_LIST, 0},
                                    {"more", FIELD_LIST, 0},
                                    {"classes", FIELD_LIST, 0},
                                    {"blocks", FIELD_LIST, 0},
                                    {"decisions", FIELD_OBJECT, 0}};
static const field runner_fields[] = {CANDIDATE(true)};
static const field alternative_fields[] = {CANDIDATE(true), {"axis", FIELD_TEXT, true}, {"value", FIELD_TEXT, true}};
static const field more_fields[] = {CANDIDATE(false), {"what", FIELD_TEXT, true}}; // where nothing fits, no candidate
static const field stage_fields[] = {{"blocks", FIELD_PAIR, true},
                                     {"devices", FIELD_PAIR, 0},
                                     {"remat", FIELD_TEXT, true},
                                     {"forward_seconds", FIELD_AMOUNT, true},
                                     {"backward_seconds", FIELD_AMOUNT, true},
                                     {"communication_seconds", FIELD_AMOUNT, 0},
                                     {"rematerialisation_seconds", FIELD_AMOUNT, 0},
                                     {"memory", FIELD_OBJECT, true}};
static const field memory_fields[] = {{"parameters", FIELD_AMOUNT, true}, {"gradients", FIELD_AMOUNT, true},
                                      {"optimizer", FIELD_AMOUNT, true},  {"activations", FIELD_AMOUNT, true},
                                      {"working", FIELD_AMOUNT, true},    {"buffers", FIELD_AMOUNT, true}};
static const field class_fields[] = {{"count", FIELD_COUNT, true},
                                     {"groups", FIELD_LIST, 0},
                                     {"forward_seconds", FIELD_AMOUNT, 0},
                                     {"backward_seconds", FIELD_AMOUNT, 0},
                                     {"communication_seconds", FIELD_AMOUNT, 0}};
static const field block_fields[] = {
    {"class", FIELD_COUNT, true}, {"nodes", FIELD_LIST, true}, {"parameters", FIELD_LIST, true}};
#undef CANDIDATE

static bool is_count(const json_t *value) {
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

static bool fits(field_kind kind, const json_t *value) {
    switch (kind) {
    case FIELD_TEXT:
        return json_is_string(value);
    case FIELD_AMOUNT:
        return json_is_number(value) && json_number_value(value) >= 0;
    case FIELD_COUNT:
        return is_count(value);
    case FIELD_PAIR:
        return json_array_size(value) == 2 && is_count(json_array_get(value, 0)) && is_count(json_array_get(value, 1));
    case FIELD_LIST:
        return json_is_array(value);
    case FIELD_OBJECT:
        return json_is_object(value);
    }
    return false;
}

typedef struct checker {
    const char *subject;
    sn_diags *diags;
} checker;

static bool refuse(const checker *c, const char *where, const char *name, const char *form) {
    sn_error(c->diags, "E0454", c->subject,
             sn_arena_printf(&c->diags->arena, "it is %s, as `sennit plan` writes it; plan again for a new one", form),
             "the explanation's \"%s%s\" is not usable", where, name);
    return false;
}

static bool check_fields(const checker *c, const json_t *json, const field *fields, size_t n, const char *where) {
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(json, fields[i].name);
        if (value ? !fits(fields[i].kind, value) : fields[i].needed)
            return refuse(c, where, fields[i].name, forms[fields[i].kind]);
    }
    return true;
}

static const char *place_of(const checker *c, const char *list, size_t i) {
    return sn_arena_printf(&c->diags->arena, "%s[%zu].", list, i);
}

static bool check_list(const checker *c, const json_t *x, const char *name, const field *fields, size_t n) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(x, name), i, item) {
        if (!check_fields(c, item, fields, n, place_of(c, name, i))) return false;
    }
    return true;
}

static bool check_stages(const checker *c, const json_t *x) {
    size_t i;
    json_t *stage;
    json_array_foreach(json_object_get(x, "stages"), i, stage) {
        const char *where = sn_arena_printf(&c->diags->arena, "stages[%zu].memory.", i);
        if (!check_fields(c, json_object_get(stage, "memory"), memory_fields,
                          sizeof memory_fields / sizeof *memory_fields, where))
            return false;
    }
    if ((size_t)json_integer_value(json_object_get(x, "binding_stage")) < json_array_size(json_object_get(x, "stages")))
        return true;
    return refuse(c, "", "binding_stage", "the number of one of its stages");
}

bool sn_explanation_check(const json_t *plan, const char *subject, sn_diags *diags) {
    const json_t *x = json_object_get(plan, "explanation");
    const checker c = {subject, diags};
    if (!json_object_size(x)) {
        sn_error(diags, "E0446", subject, "`sennit plan` writes plans that explain themselves",
                 "the plan carries no explanation");
        return false;
    }
#define LIST(name, fields) check_list(&c, x, name, fields, sizeof fields / sizeof *fields)
    return check_fields(&c, x, plan_fields, sizeof plan_fields / sizeof *plan_fields, "") &&
           LIST("stages", stage_fields) && check_stages(&c, x) && LIST("runners_up", runner_fields) &&
           LIST("alternatives", alternative_fields) && LIST("more", more_fields) && LIST("classes", class_fields) &&
           LIST("blocks", block_fields);
#undef LIST
}

const char *sn_explanation_edits(const json_t *explanation, const sn_plan *plan, sn_arena *arena) {
    const json_t *before = json_object_get(explanation, "decisions");
    json_t *now = before ? sn_plan_decisions(plan) : NULL, *value;
    const char *name;
    sn_str text = {0};
    json_object_foreach(now, name, value) {
        if (!json_equal(value, json_object_get(before, name)))
            sn_str_printf(&text, "%s%s", text.length ? ", " : "", name);
    }
    json_object_foreach((json_t *)(uintptr_t)(now ? before : NULL), name, value) {
        if (!json_object_get(now, name)) sn_str_printf(&text, "%s%s", text.length ? ", " : "", name);
    }
    const char *copy = text.length ? sn_arena_strdup(arena, sn_str_text(&text)) : NULL;
    sn_str_free(&text);
    json_decref(now);
    return copy;
}
