#include "passes/training/optimizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct facts {
    const char *name;
    int n_states;
    const char *states[2]; // suffixes
    const char *keys;      // that it understands, each between blanks
    sn_optimizer defaults;
} facts;

static const facts table[SN_OPTIMIZER_COUNT] = {
    [SN_OPTIMIZER_SGD] = {"sgd", 0, {0}, " lr weight_decay ", {.kind = SN_OPTIMIZER_SGD, .lr = 1e-3}},
    [SN_OPTIMIZER_MOMENTUM] = {"momentum",
                               1,
                               {"momentum"},
                               " lr momentum dampening nesterov weight_decay ",
                               {.kind = SN_OPTIMIZER_MOMENTUM, .lr = 1e-3, .momentum = 0.9}},
    [SN_OPTIMIZER_ADAM] = {"adam",
                           2,
                           {"m", "v"},
                           " lr beta1 beta2 eps weight_decay ",
                           {.kind = SN_OPTIMIZER_ADAM, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    [SN_OPTIMIZER_ADAMW] =
        {"adamw",
         2,
         {"m", "v"},
         " lr beta1 beta2 eps weight_decay ",
         {.kind = SN_OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01}},
};

const char *sn_optimizer_name(sn_optimizer_kind kind) {
    return table[kind].name;
}

sn_optimizer sn_optimizer_default(sn_optimizer_kind kind) {
    return table[kind].defaults;
}

int sn_optimizer_states(const sn_optimizer *optimizer) {
    return table[optimizer->kind].n_states;
}

// What a key sets, and the values that make sense: [low, high), or [low, infinity) when high is 0.
typedef struct key {
    const char *name;
    size_t offset;
    double low, high;
} key;

static const key keys[] = {
    {"lr", offsetof(sn_optimizer, lr), 0, 0},
    {"beta1", offsetof(sn_optimizer, beta1), 0, 1},
    {"beta2", offsetof(sn_optimizer, beta2), 0, 1},
    {"eps", offsetof(sn_optimizer, eps), 0, 0},
    {"weight_decay", offsetof(sn_optimizer, weight_decay), 0, 0},
    {"momentum", offsetof(sn_optimizer, momentum), 0, 1},
    {"dampening", offsetof(sn_optimizer, dampening), 0, 0},
};

static bool knows(const facts *f, const char *name, size_t length) {
    for (const char *at = f->keys; (at = strstr(at, " ")) && at[1]; at++)
        if (strncmp(at + 1, name, length) == 0 && at[1 + length] == ' ') return true;
    return false;
}

static const char *const subject = "--optimizer";

static bool set_key(const facts *f, char *setting, sn_diags *diags, sn_optimizer *out) {
    char *equals = strchr(setting, '=');
    size_t length = equals ? (size_t)(equals - setting) : strlen(setting);
    if (!equals || !knows(f, setting, length)) {
        char *help = sn_arena_printf(&diags->arena, "%s understands:%s (write KEY=X)", f->name, f->keys);
        sn_error(diags, "E0305", subject, help, "\"%s\" is not a setting of %s", setting, f->name);
        return false;
    }
    char *end;
    errno = 0;
    double value = strtod(equals + 1, &end);
    bool is_number = end != equals + 1 && *end == '\0' && !errno && value == value && value < 1e30;
    if (strncmp(setting, "nesterov", length) == 0) {
        out->nesterov = value != 0;
        if (is_number) return true;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const key *k = &keys[i];
        if (strlen(k->name) != length || strncmp(k->name, setting, length) != 0) continue;
        if (!is_number || value < k->low || (k->high > 0 && value >= k->high)) break;
        *(double *)((char *)out + k->offset) = value;
        return true;
    }
    sn_error(diags, "E0305", subject, "lr and eps are positive, betas and momentum lie in [0, 1)",
             "\"%s\" is not a possible value for %.*s", equals + 1, (int)length, setting);
    return false;
}

bool sn_optimizer_parse(const char *text, sn_diags *diags, sn_optimizer *out) {
    char *copy = sn_arena_strdup(&diags->arena, text), *rest = copy, *name = strsep(&rest, ",");
    const facts *f = NULL;
    for (int i = 0; i < SN_OPTIMIZER_COUNT; i++)
        if (strcmp(table[i].name, name) == 0) f = &table[i];
    if (!f) {
        sn_error(diags, "E0305", subject, "known are sgd, momentum, adam and adamw", "there is no optimizer \"%s\"",
                 name);
        return false;
    }
    sn_optimizer result = f->defaults;
    bool fine = true;
    for (char *setting; (setting = strsep(&rest, ","));) fine &= set_key(f, setting, diags, &result);
    if (fine && result.nesterov && (result.momentum == 0 || result.dampening != 0)) {
        sn_error(diags, "E0305", subject, "add momentum=0.9 and leave dampening out, or leave nesterov out",
                 "Nesterov's momentum needs a momentum and no dampening");
        fine = false;
    }
    if (fine) *out = result;
    return fine;
}

void sn_optimizer_add_states(const sn_optimizer *optimizer, sn_module *module, sn_global *parameter,
                             sn_global **states) {
    const facts *f = &table[optimizer->kind];
    sn_type type = parameter->value->type;
    if (sn_dtype_bytes(type.dtype) < 4) type.dtype = SN_F32; // 16 bits would swallow small changes
    for (int i = 0; i < f->n_states; i++) {
        const char *name = sn_arena_printf(&module->arena, "%s.%s", parameter->name, f->states[i]);
        states[i] = sn_module_global(module, name);
        if (states[i] && states[i]->of == parameter) continue;
        states[i] = sn_module_add_global(module, name, type, SN_ROLE_OPTIMIZER, (sn_source){.kind = SN_SOURCE_FILL});
        states[i]->of = parameter;
        states[i]->why = f->name;
    }
}

static void assign(sn_builder *b, sn_global *global, sn_value *value) {
    sn_build(b, SN_OP_ASSIGN, 2, (sn_value *[]){global->value, value}, 0, NULL, NULL);
}

static sn_op *build_sgd(const sn_optimizer *o, sn_builder *b, sn_global *p, sn_global *const *states, sn_value *g,
                        sn_value *lr) {
    sn_attr attrs[] = {sn_attr_float("weight_decay", o->weight_decay), sn_attr_float("momentum", o->momentum),
                       sn_attr_float("dampening", o->dampening), sn_attr_int("nesterov", o->nesterov)};
    bool has_momentum = o->kind == SN_OPTIMIZER_MOMENTUM;
    sn_value *operands[4] = {p->value, g, lr, has_momentum ? states[0]->value : NULL};
    return sn_build(b, SN_OP_SGD, has_momentum ? 4 : 3, operands, has_momentum ? 4 : 1, attrs, NULL);
}

static sn_op *build_adam(const sn_optimizer *o, sn_builder *b, sn_global *p, sn_global *const *states, sn_value *g,
                         sn_value *lr, sn_value *step) {
    sn_attr attrs[] = {sn_attr_float("beta1", o->beta1), sn_attr_float("beta2", o->beta2), sn_attr_float("eps", o->eps),
                       sn_attr_float("weight_decay", o->weight_decay),
                       sn_attr_int("decoupled", o->kind == SN_OPTIMIZER_ADAMW)};
    sn_value *operands[6] = {p->value, g, states[0]->value, states[1]->value, lr, step};
    return sn_build(b, SN_OP_ADAM, 6, operands, 5, attrs, NULL);
}

void sn_optimizer_update(const sn_optimizer *optimizer, sn_builder *b, sn_global *parameter, sn_global *const *states,
                         sn_value *gradient, sn_value *lr, sn_value *step) {
    int n_states = sn_optimizer_states(optimizer);
    sn_op *op = n_states == 2 ? build_adam(optimizer, b, parameter, states, gradient, lr, step)
                              : build_sgd(optimizer, b, parameter, states, gradient, lr);
    assign(b, parameter, op->results[0]);
    for (int i = 0; i < n_states; i++) assign(b, states[i], op->results[1 + i]);
}
