// canonicalize: one way to write each thing, so that later passes need to know one. Every rule keeps the values (up to
// the sign of zeros); none reassociates floating-point arithmetic.
//
//   %a = add(2, %x)                        =>  %a = add(%x, 2)          constants stand at the right
//   %b = mul(%a, 1)                        =>  %a                       identities go
//   %c = reshape(reshape(%b))              =>  reshape(%b)              one reshape, transpose, cast, slice, not two
//   %d = add(%c, broadcast(%e))            =>  add(%c, %e)              pointwise ops broadcast by themselves
//   %f = matmul(%d, transpose(%w))         =>  matmul(%d, %w) <transpose_b=1>
#include "passes/simplify/canonicalize.h"

#include <string.h>

static void run(sn_module *module, sn_pass_context *context) {
    static const sn_rule special[SN_OP_COUNT] = {
        [SN_OP_RESHAPE] = sn_canonicalize_reshape,
        [SN_OP_TRANSPOSE] = sn_canonicalize_transpose,
        [SN_OP_BROADCAST] = sn_canonicalize_broadcast,
        [SN_OP_SLICE] = sn_canonicalize_slice,
        [SN_OP_PAD] = sn_canonicalize_pad,
        [SN_OP_CONCAT] = sn_canonicalize_concat,
        [SN_OP_GATHER] = sn_canonicalize_gather,
        [SN_OP_GATHER_ND] = sn_canonicalize_gather_nd,
        [SN_OP_REDUCE_SUM] = sn_canonicalize_reduction,
        [SN_OP_REDUCE_PROD] = sn_canonicalize_reduction,
        [SN_OP_REDUCE_MAX] = sn_canonicalize_reduction,
        [SN_OP_REDUCE_MIN] = sn_canonicalize_reduction,
        [SN_OP_MATMUL] = sn_canonicalize_matmul,
        [SN_OP_ATTENTION] = sn_canonicalize_attention,
    };
    sn_rule rules[SN_OP_COUNT];
    memcpy(rules, special, sizeof rules);
    for (int kind = 0; kind < SN_OP_COUNT; kind++)
        if (!rules[kind] && sn_op_has((sn_op_kind)kind, SN_TRAIT_POINTWISE)) rules[kind] = sn_canonicalize_pointwise;
    sn_rewrite(module, context, rules);
}

const sn_pass sn_pass_canonicalize = {
    .name = "canonicalize",
    .summary = "writes each thing one way: identities go, views compose, constants stand at the right",
    .forms = 1 << SN_FORM_GRAPH | 1 << SN_FORM_SCHED, // values of dist form would lose their layouts
    .run = run,
};
