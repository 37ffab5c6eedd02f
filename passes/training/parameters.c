#include "passes/training/parameters.h"

#include "passes/autodiff/differentiate.h"

#include <math.h>
#include <regex.h>
#include <string.h>

typedef struct patterns {
    const char *option;
    int n;
    const char *const *text;
    regex_t *compiled;
    bool *matched;
} patterns;

static bool compile(patterns *p, const char *option, int n, const char *const *text, sn_arena *scratch,
                    sn_diags *diags) {
    *p = (patterns){option, 0, text, SN_NEW_N(scratch, regex_t, n), SN_NEW_N(scratch, bool, n)};
    for (; p->n < n; p->n++) {
        int code = regcomp(&p->compiled[p->n], text[p->n], REG_EXTENDED | REG_NOSUB);
        if (!code) continue;
        char why[128];
        regerror(code, &p->compiled[p->n], why, sizeof why);
        sn_error(diags, "E0306", option, "write a POSIX extended expression, such as 'h\\.[01]\\..*'",
                 "\"%s\" is not a regular expression: %s", text[p->n], why);
        return false;
    }
    return true;
}

static bool matches(patterns *p, const char *name) {
    bool any = false;
    for (int i = 0; i < p->n; i++) {
        if (regexec(&p->compiled[i], name, 0, NULL, 0) != 0) continue;
        any = p->matched[i] = true;
    }
    return any;
}

static bool check_and_free(patterns *p, bool check, sn_diags *diags) {
    bool fine = true;
    for (int i = 0; i < p->n; i++) {
        if (check && !p->matched[i]) {
            sn_error(diags, "E0306", p->option, "`sennit info MODEL.onnx` lists the weights",
                     "\"%s\" matches no float weight of the model", p->text[i]);
            fine = false;
        }
        regfree(&p->compiled[i]);
    }
    return fine;
}

// A matrix or more of nothing but 0 and one other number that says "not here" (very negative, or 1): an attention mask
// that the exporter stored. Weights differ in their first elements, so looking is cheap.
static bool is_mask(const sn_global *global) {
    sn_type type = global->value->type;
    int64_t count = sn_type_count(type), zeros = 0, lows = 0, ones = 0;
    if (type.rank < 2 || !global->source.data) return false;
    for (int64_t i = 0; i < count; i++) {
        double x = sn_load_f64(type.dtype, global->source.data, i);
        if (x == 0)
            zeros++;
        else if (x == 1)
            ones++;
        else if (x <= -1e4)
            lows++;
        else
            return false;
    }
    return lows > 0 ? ones == 0 : zeros > 0 && ones > 0;
}

static void set(sn_global *global, sn_role role, const char *why) {
    global->role = role;
    global->why = why;
}

static void decide(sn_global *global, patterns *frozen, patterns *trainable) {
    bool marked = global->why && sn_starts_with(global->why, "marked"); // by the exporter (frontend/weights.c)
    bool is_asked = matches(trainable, global->name), is_refused = matches(frozen, global->name);
    if (is_refused)
        set(global, SN_ROLE_FROZEN, "--frozen");
    else if (is_asked)
        set(global, SN_ROLE_PARAMETER, "--trainable");
    else if (global->role == SN_ROLE_PARAMETER && !marked && global->value->type.rank == 0)
        set(global, SN_ROLE_FROZEN, "a scalar that the exporter did not mark as a parameter");
    else if (global->role == SN_ROLE_PARAMETER && !marked && is_mask(global))
        set(global, SN_ROLE_FROZEN, "a mask: nothing but zeros and one other number");
    else if (global->role == SN_ROLE_PARAMETER && !global->why)
        global->why = "a float weight on a differentiable path to the loss";
}

static void warn_unreached(const sn_module *module, const bool *reached, sn_diags *diags) {
    sn_str names = {0};
    int n = 0;
    for (size_t i = 0; i < module->globals.count; i++) {
        sn_global *global = module->globals.data[i];
        if (global->role != SN_ROLE_PARAMETER || reached[i]) continue;
        if (n++ < 8) sn_str_printf(&names, "%s%s", n > 1 ? ", " : "", global->name);
        set(global, SN_ROLE_FROZEN, "no differentiable path leads from it to the loss");
    }
    if (n > 8) sn_str_printf(&names, " and %d more", n - 8);
    if (n)
        sn_warning(diags, "W0307", NULL, "freeze them with --frozen REGEX to say that this is meant",
                   "the loss does not depend differentiably on %d weight%s, which will not be trained: %s", n,
                   n == 1 ? "" : "s", sn_str_text(&names));
    sn_str_free(&names);
}

bool sn_parameters_decide(sn_module *module, sn_func *func, sn_value *loss, const sn_parameter_rules *rules,
                          sn_diags *diags) {
    sn_arena scratch = {0};
    patterns frozen = {0}, trainable = {0};
    bool fine = compile(&frozen, "--frozen", rules->n_frozen, rules->frozen, &scratch, diags) &
                compile(&trainable, "--trainable", rules->n_trainable, rules->trainable, &scratch, diags);
    for (size_t i = 0; i < module->globals.count && fine; i++) {
        sn_global *global = module->globals.data[i];
        bool is_weight =
            global->role != SN_ROLE_STATE && global->role != SN_ROLE_OPTIMIZER && global->role != SN_ROLE_SUM;
        if (is_weight && sn_dtype_is_float(global->value->type.dtype)) decide(global, &frozen, &trainable);
    }
    bool all_match = check_and_free(&frozen, fine, diags) & check_and_free(&trainable, fine, diags);
    if (fine && all_match) {
        bool *reached = SN_NEW_N(&scratch, bool, module->globals.count);
        sn_find_reached(func, loss, reached);
        warn_unreached(module, reached, diags);
        bool any = false;
        for (size_t i = 0; i < module->globals.count; i++) any |= module->globals.data[i]->role == SN_ROLE_PARAMETER;
        if (!any)
            sn_error(diags, "E0307", NULL,
                     "`sennit info MODEL.onnx` says of each weight why; --trainable REGEX overrules",
                     "there is nothing to train");
        fine = any;
    }
    sn_arena_free(&scratch);
    return fine && all_match;
}
