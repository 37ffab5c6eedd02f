#include "passes/schedule/op_class.h"

sn_op_class sn_op_class_of(sn_op_kind kind) {
    if (kind == SN_OP_KERNEL || kind == SN_OP_ASSIGN || kind == SN_OP_AXIS_INDEX ||
        sn_op_has(kind, SN_TRAIT_COLLECTIVE | SN_TRAIT_TRANSFER | SN_TRAIT_SCHEDULE))
        return SN_CLASS_OUTSIDE;
    if (sn_op_has(kind, SN_TRAIT_POINTWISE)) return SN_CLASS_POINTWISE;
    if (sn_op_has(kind, SN_TRAIT_REDUCTION)) return SN_CLASS_REDUCTION;
    if (sn_op_has(kind, SN_TRAIT_GENERATOR | SN_TRAIT_VIEW | SN_TRAIT_MOVEMENT)) return SN_CLASS_INDEX;
    return SN_CLASS_LOOP;
}

bool sn_op_is_expensive(sn_op_kind kind) {
    static const bool expensive[SN_OP_COUNT] = {
        [SN_OP_EXP] = true,
        [SN_OP_LOG] = true,
        [SN_OP_SIN] = true,
        [SN_OP_COS] = true,
        [SN_OP_TAN] = true,
        [SN_OP_ASIN] = true,
        [SN_OP_ACOS] = true,
        [SN_OP_ATAN] = true,
        [SN_OP_SINH] = true,
        [SN_OP_COSH] = true,
        [SN_OP_TANH] = true,
        [SN_OP_ASINH] = true,
        [SN_OP_ACOSH] = true,
        [SN_OP_ATANH] = true,
        [SN_OP_ERF] = true,
        [SN_OP_SIGMOID] = true,
        [SN_OP_GELU] = true,
        [SN_OP_GELU_TANH] = true,
        [SN_OP_SOFTPLUS] = true,
        [SN_OP_POW] = true,
        [SN_OP_MOD] = true,
        [SN_OP_FMOD] = true,
        [SN_OP_RANDOM_UNIFORM] = true,
    };
    return expensive[kind] || sn_op_class_of(kind) == SN_CLASS_LOOP;
}
