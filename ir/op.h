// Facts about operators, from ir/ops.def.
#pragma once
#include <stdbool.h>
#include <stdint.h>

typedef enum sn_op_kind {
#define SN_OP(suffix, ...) SN_OP_##suffix,
#include "ir/ops.def"
#undef SN_OP
    SN_OP_COUNT
} sn_op_kind;

typedef enum sn_trait {
    SN_TRAIT_POINTWISE = 1 << 0,  // each result element depends on the same (broadcast) element of the operands
    SN_TRAIT_PREDICATE = 1 << 1,  // the result is bool
    SN_TRAIT_GENERATOR = 1 << 2,  // no data operand: cheap to compute again
    SN_TRAIT_VIEW = 1 << 3,       // the operand's bytes unchanged
    SN_TRAIT_MOVEMENT = 1 << 4,   // moves elements without arithmetic
    SN_TRAIT_REDUCTION = 1 << 5,  // reduces `axes`
    SN_TRAIT_LIBRARY = 1 << 6,    // may run as a library call
    SN_TRAIT_COMPOSITE = 1 << 7,  // defined by other operators (passes/simplify/decompose)
    SN_TRAIT_UPDATE = 1 << 8,     // part of the parameter update
    SN_TRAIT_COLLECTIVE = 1 << 9, // communicates
    SN_TRAIT_SCHEDULE = 1 << 10,  // orders streams
    SN_TRAIT_TYPED = 1 << 11,     // the result type is stated, not inferred
    SN_TRAIT_TRANSFER = 1 << 12,  // hands a value from one pipeline stage to another: done for its effect
} sn_trait;

typedef struct sn_op_info {
    const char *enum_name, *mnemonic, *attributes, *doc;
    int min_operands, max_operands, results; // -1: any number
    unsigned traits;
} sn_op_info;

const sn_op_info *sn_op_info_of(sn_op_kind kind);
const char *sn_op_name(sn_op_kind kind);
bool sn_op_has(sn_op_kind kind, sn_trait trait);
sn_op_kind sn_op_from_name(const char *mnemonic); // SN_OP_COUNT when unknown

typedef enum sn_attr_type { SN_ATTR_INT, SN_ATTR_FLOAT, SN_ATTR_INTS, SN_ATTR_STRING, SN_ATTR_FUNC } sn_attr_type;

// What ops.def says of an attribute of an operator; false when it has none of that name. `default_text` is NULL when
// the attribute must be given.
typedef struct sn_attr_spec {
    char name[24];
    sn_attr_type type;
    bool required;
    char default_text[24];
} sn_attr_spec;
int sn_op_attr_count(sn_op_kind kind);
sn_attr_spec sn_op_attr_spec(sn_op_kind kind, int index);
bool sn_op_find_attr(sn_op_kind kind, const char *name, sn_attr_spec *out);
