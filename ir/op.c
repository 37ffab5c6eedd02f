#include "ir/op.h"

#include "base/bug.h"

#include <string.h>

enum {
    POINTWISE = SN_TRAIT_POINTWISE,
    PREDICATE = SN_TRAIT_PREDICATE,
    GENERATOR = SN_TRAIT_GENERATOR,
    VIEW = SN_TRAIT_VIEW,
    MOVEMENT = SN_TRAIT_MOVEMENT,
    REDUCTION = SN_TRAIT_REDUCTION,
    LIBRARY = SN_TRAIT_LIBRARY,
    COMPOSITE = SN_TRAIT_COMPOSITE,
    UPDATE = SN_TRAIT_UPDATE,
    COLLECTIVE = SN_TRAIT_COLLECTIVE,
    SCHEDULE = SN_TRAIT_SCHEDULE,
    TYPED = SN_TRAIT_TYPED,
    TRANSFER = SN_TRAIT_TRANSFER,
};

static const sn_op_info table[] = {
#define SN_OP(suffix, mnemonic, min, max, results, traits, attributes, doc)                                            \
    [SN_OP_##suffix] = {"SN_OP_" #suffix, mnemonic, attributes, doc, min, max, results, traits},
#include "ir/ops.def"
#undef SN_OP
};
_Static_assert(sizeof table / sizeof *table == SN_OP_COUNT, "one row per operator");

const sn_op_info *sn_op_info_of(sn_op_kind kind) {
    SN_CHECK((unsigned)kind < SN_OP_COUNT);
    return &table[kind];
}

const char *sn_op_name(sn_op_kind kind) {
    return sn_op_info_of(kind)->mnemonic;
}

bool sn_op_has(sn_op_kind kind, sn_trait trait) {
    return (sn_op_info_of(kind)->traits & trait) != 0;
}

sn_op_kind sn_op_from_name(const char *mnemonic) {
    for (int kind = 0; kind < SN_OP_COUNT; kind++)
        if (strcmp(table[kind].mnemonic, mnemonic) == 0) return (sn_op_kind)kind;
    return SN_OP_COUNT;
}

// Reads one "name:type[=default]" at *text and moves past it; false at the end.
static bool next_spec(const char **text, sn_attr_spec *out) {
    static const char letters[] = "ifIs@";
    const char *at = *text + strspn(*text, " ");
    if (!*at) return false;
    size_t length = strcspn(at, " "), name = strcspn(at, ":");
    SN_CHECK(name < length && name < sizeof out->name);
    *out = (sn_attr_spec){.required = true};
    memcpy(out->name, at, name);
    const char *letter = strchr(letters, at[name + 1]);
    SN_CHECK(letter);
    out->type = (sn_attr_type)(letter - letters);
    if (name + 2 < length) {
        SN_CHECK(at[name + 2] == '=' && length - name - 3 < sizeof out->default_text);
        memcpy(out->default_text, at + name + 3, length - name - 3);
        out->required = false;
    }
    *text = at + length;
    return true;
}

int sn_op_attr_count(sn_op_kind kind) {
    const char *text = sn_op_info_of(kind)->attributes;
    sn_attr_spec spec;
    int count = 0;
    while (next_spec(&text, &spec)) count++;
    return count;
}

sn_attr_spec sn_op_attr_spec(sn_op_kind kind, int index) {
    const char *text = sn_op_info_of(kind)->attributes;
    sn_attr_spec spec;
    while (next_spec(&text, &spec))
        if (index-- == 0) return spec;
    SN_BUG("%s has no attribute of that index", sn_op_name(kind));
}

bool sn_op_find_attr(sn_op_kind kind, const char *name, sn_attr_spec *out) {
    const char *text = sn_op_info_of(kind)->attributes;
    sn_attr_spec spec;
    while (next_spec(&text, &spec)) {
        if (strcmp(spec.name, name) == 0) {
            *out = spec;
            return true;
        }
    }
    return false;
}
