#include "ir/type.h"

#include "base/bug.h"

#include <inttypes.h>
#include <string.h>

bool sn_shape_is_valid(int64_t rank, const int64_t *dims) {
    if (rank < 0 || rank > SN_MAX_RANK) return false;
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0 || dims[i] > SN_MAX_ELEMENTS / count) return false;
        if (dims[i]) count *= dims[i];
    }
    return true;
}

sn_type sn_type_make(sn_dtype dtype, int rank, const int64_t *dims) {
    SN_CHECK(rank >= 0 && rank <= SN_MAX_RANK);
    sn_type type = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) type.dim[i] = dims[i];
    return type;
}

sn_type sn_type_scalar(sn_dtype dtype) {
    return (sn_type){.dtype = dtype};
}

sn_type sn_type_with_dtype(sn_type type, sn_dtype dtype) {
    type.dtype = dtype;
    return type;
}

bool sn_shape_equal(sn_type a, sn_type b) {
    return a.rank == b.rank && memcmp(a.dim, b.dim, sizeof *a.dim * (size_t)a.rank) == 0;
}

bool sn_type_equal(sn_type a, sn_type b) {
    return a.dtype == b.dtype && sn_shape_equal(a, b);
}

int64_t sn_type_count(sn_type type) {
    int64_t count = 1;
    for (int i = 0; i < type.rank; i++) count *= type.dim[i];
    return count;
}

int64_t sn_type_bytes(sn_type type) {
    return sn_type_count(type) * (int64_t)sn_dtype_bytes(type.dtype);
}

void sn_type_print(sn_str *out, sn_type type) {
    sn_str_printf(out, "%s[", sn_dtype_name(type.dtype));
    for (int i = 0; i < type.rank; i++) sn_str_printf(out, "%s%" PRId64, i ? "," : "", type.dim[i]);
    sn_str_putc(out, ']');
}

bool sn_type_broadcast(sn_type a, sn_type b, sn_type *out) {
    sn_type result = {.dtype = a.dtype, .rank = a.rank > b.rank ? a.rank : b.rank};
    for (int i = 0; i < result.rank; i++) {
        int ia = i - (result.rank - a.rank), ib = i - (result.rank - b.rank);
        int64_t da = ia >= 0 ? a.dim[ia] : 1, db = ib >= 0 ? b.dim[ib] : 1;
        if (da != db && da != 1 && db != 1) return false;
        result.dim[i] = da == 1 ? db : da;
    }
    *out = result;
    return true;
}

void sn_type_strides(sn_type type, int64_t stride[SN_MAX_RANK]) {
    int64_t step = 1;
    for (int i = type.rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= type.dim[i];
    }
}

void sn_broadcast_strides(sn_type operand, sn_type result, int64_t stride[SN_MAX_RANK]) {
    int64_t own[SN_MAX_RANK];
    sn_type_strides(operand, own);
    for (int i = 0; i < result.rank; i++) {
        int at = i - (result.rank - operand.rank);
        stride[i] = at < 0 || operand.dim[at] == 1 ? 0 : own[at];
    }
}
