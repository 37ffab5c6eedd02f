// Two-stage reductions. One block would otherwise read everything:
//
//     %s = reduce_sum(%x) <axes=[0,1]> : f32[]            %x: f32[50257,768]
//  -> %r = reshape(%x) : f32[50257,768];  %p = reduce_sum(%r) <axes=[1]> : f32[50257];  %s = reduce_sum(%p) <axes=[0]>
#include "ir/build.h"
#include "passes/schedule/fuse.h"

enum { LARGE = 32 << 10, MIN_PARTS = 8 };

// The number of leading elements groups: a product of leading dims, so that pointwise producers keep their shape.
static int64_t parts_of(sn_type type) {
    int64_t count = sn_type_count(type), parts = 1;
    for (int d = 0; d < type.rank && parts < MIN_PARTS; d++) parts *= type.dim[d];
    if (parts >= MIN_PARTS && count / parts >= MIN_PARTS) return parts;
    for (parts = 64; parts >= MIN_PARTS; parts--)
        if (count % parts == 0) return parts;
    return 1;
}

void sn_split_reductions(sn_func *func) {
    SN_FOR_OPS_SAFE(op, func) {
        if (!sn_op_has(op->kind, SN_TRAIT_REDUCTION) || sn_type_count(op->results[0]->type) != 1) continue;
        sn_type type = op->operands[0]->type;
        int64_t count = sn_type_count(type), parts = count >= LARGE ? parts_of(type) : 1;
        if (parts == 1) continue;
        sn_builder b = {func, op, op->origin, op->phase};
        int64_t shape[] = {parts, count / parts}, inner = 1, outer = 0;
        sn_value *rows = sn_build_reshape(&b, op->operands[0], 2, shape);
        sn_value *partial = sn_build_reduce(&b, op->kind, rows, 1, &inner, false);
        sn_value *whole = sn_build_reduce(&b, op->kind, partial, 1, &outer, false);
        sn_type result = op->results[0]->type;
        sn_value_replace(op->results[0], sn_build_reshape(&b, whole, result.rank, result.dim));
        sn_op_erase(op);
    }
}
