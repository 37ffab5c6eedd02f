#include "ir/index_range.h"

enum { DEEPEST = 16 }; // ops between an input and the table: exporters put casts and reshapes there

static void narrow(sn_index_range *range, int64_t lo, int64_t hi) {
    if (!range->known) *range = (sn_index_range){.known = true, .lo = lo, .hi = hi};
    if (lo > range->lo) range->lo = lo;
    if (hi < range->hi) range->hi = hi;
}

static bool keeps_numbers(sn_op_kind kind) {
    return sn_op_has(kind, SN_TRAIT_VIEW) || kind == SN_OP_TRANSPOSE || kind == SN_OP_BROADCAST || kind == SN_OP_COPY ||
           kind == SN_OP_SLICE || kind == SN_OP_SHARD || kind == SN_OP_ALL_GATHER;
}

static void look(const sn_value *value, int depth, sn_index_range *range) {
    if (depth > DEEPEST) return;
    for (size_t i = 0; i < value->uses.count; i++) {
        const sn_op *op = value->uses.data[i].op;
        int at = value->uses.data[i].index;
        bool indexes = (op->kind == SN_OP_GATHER || op->kind == SN_OP_GATHER_ELEMENTS) && at == 1;
        if (indexes) {
            int64_t size = op->operands[0]->type.dim[sn_op_int(op, "axis")];
            narrow(range, -size, size);
        } else if (op->kind == SN_OP_CROSS_ENTROPY && at == 1) {
            narrow(range, 0, op->operands[0]->type.dim[sn_op_int(op, "axis")]);
            range->has_ignore = true;
            range->ignore = sn_op_int(op, "ignore_index");
        } else if (keeps_numbers(op->kind) ||
                   (op->kind == SN_OP_CAST && !sn_dtype_is_float(op->results[0]->type.dtype) &&
                    op->results[0]->type.dtype != SN_BOOL)) {
            look(op->results[0], depth + 1, range);
        }
    }
}

sn_index_range sn_index_range_of(const sn_value *value) {
    sn_index_range range = {0};
    char class = sn_dtype_class(value->type.dtype);
    if (class == 'i' || class == 'u') look(value, 0, &range);
    return range;
}
