// One value of kernel IR and what its operators compute, one element at a time. Constant folding and the evaluator
// share it; the printers must agree with it.
#pragma once
#include "backend/kernel/kir.h"

typedef union sn_kir_scalar {
    double f64;  // floats: an f32 is held exactly
    int64_t i64; // integers, sign- or zero-extended (u64: its bits), and bool
} sn_kir_scalar;

// `op` is PURE or COMPARE, or a MATH operator computed by libm; `from` is the type of the operands (of the second and
// third of SELECT), `to` the result's.
sn_kir_scalar sn_kir_scalar_apply(sn_kir_op op, sn_dtype to, sn_dtype from, const sn_kir_scalar in[4]);
sn_kir_scalar sn_kir_scalar_identity(sn_kir_op reduce, sn_dtype dtype);
int64_t sn_kir_wrap(sn_dtype dtype, int64_t value); // to the width of an integer type; bool: value != 0
// The smallest and largest value of an integer type, as an i64; u64's largest counts as INT64_MAX.
int64_t sn_kir_type_min(sn_dtype dtype);
int64_t sn_kir_type_max(sn_dtype dtype);

static inline bool sn_kir_is_signed(sn_dtype dtype) {
    return sn_dtype_class(dtype) == 'i';
}
static inline bool sn_kir_is_integer(sn_dtype dtype) { // bool is not
    return sn_dtype_class(dtype) == 'i' || sn_dtype_class(dtype) == 'u';
}
