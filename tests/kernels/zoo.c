#include "tests/kernels/zoo.h"

#include "base/alloc.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef sn_kir_node *expr;

#define INDEX(value) sn_kir_index(k, value)
#define F32(value)   sn_kir_float(k, SN_F32, value)

static sn_kir *start(const char *name, int64_t n, int64_t grid) {
    char text[64];
    snprintf(text, sizeof text, "%s_%lld", name, (long long)n);
    sn_kir *k = sn_kir_new(text, grid);
    sn_kir_set_origin(k, text);
    sn_kir_set_threads(k, 64);
    return k;
}

// Elements [block * 100, …) of n: blocks that do not end at a whole vector.
static expr open_chunk(sn_kir *k, int64_t n, int64_t chunk) {
    expr low = sn_kir_muli(k, sn_kir_block(k), chunk);
    return sn_kir_for(k, SN_KIR_LANES, low, sn_kir_mini(k, sn_kir_addi(k, low, chunk), n), 1);
}

static int64_t chunks(int64_t n, int64_t chunk) {
    return (n + chunk - 1) / chunk;
}

static sn_kir *pointwise(int64_t n) {
    sn_kir *k = start("pointwise", n, chunks(n, 100));
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_F32, n, SN_KIR_READ), *y = sn_kir_param(k, "y", SN_F32, n, SN_KIR_WRITE);
    sn_kir_buffer *a = sn_kir_param(k, "a", SN_F32, 1, SN_KIR_READ);
    sn_kir_prefetch(k, y, sn_kir_muli(k, sn_kir_block(k), 100));
    expr scale = sn_kir_load(k, a, INDEX(0)), i = open_chunk(k, n, 100), v = sn_kir_load(k, x, i);
    v = sn_kir_mul(k, sn_kir_tanh(k, sn_kir_fma(k, v, scale, F32(0.25))), sn_kir_exp(k, sn_kir_neg(k, v)));
    sn_kir_store(k, y, i, v);
    sn_kir_end(k);
    return k;
}

static sn_kir *softmax(int64_t n) {
    sn_kir *k = start("softmax", n, 3);
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_F32, 3 * n, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_F32, 3 * n, SN_KIR_WRITE);
    sn_kir_buffer *e = sn_kir_scratch(k, "e", SN_F32, n);
    expr row = sn_kir_muli(k, sn_kir_block(k), n);
    expr c = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1);
    expr max = sn_kir_reduce(k, SN_KIR_MAX, sn_kir_load(k, x, sn_kir_add(k, row, c)));
    sn_kir_end(k);
    c = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1);
    expr power = sn_kir_exp(k, sn_kir_sub(k, sn_kir_load(k, x, sn_kir_add(k, row, c)), max));
    sn_kir_store(k, e, c, power);
    expr sum = sn_kir_reduce(k, SN_KIR_ADD, power);
    sn_kir_end(k);
    sn_kir_barrier(k);
    c = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1);
    expr from_the_end = sn_kir_sub(k, INDEX(n - 1), c); // another lane's value: needs the barrier
    sn_kir_store(k, y, sn_kir_add(k, row, from_the_end), sn_kir_div(k, sn_kir_load(k, e, from_the_end), sum));
    sn_kir_end(k);
    return k;
}

// Sums over rows with the columns on the lanes: a serial reduction in each lane.
static sn_kir *column_sums(int64_t n) {
    sn_kir *k = start("column_sums", n, chunks(n, 64));
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_F32, 13 * n, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_F32, n, SN_KIR_UPDATE);
    sn_kir_buffer *most = sn_kir_param(k, "most", SN_F32, n, SN_KIR_WRITE);
    expr c = open_chunk(k, n, 64);
    expr r = sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), INDEX(13), 1);
    expr v = sn_kir_load(k, x, sn_kir_add(k, sn_kir_muli(k, r, n), c));
    expr sum = sn_kir_reduce(k, SN_KIR_ADD, v), max = sn_kir_reduce(k, SN_KIR_MAX, v);
    sn_kir_end(k);
    sn_kir_store(k, y, c, sn_kir_add(k, sn_kir_load(k, y, c), sum));
    sn_kir_store(k, most, c, max);
    sn_kir_end(k);
    return k;
}

static sn_kir *reductions(int64_t n) {
    sn_kir *k = start("reductions", n, 1);
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_I32, n, SN_KIR_READ), *y = sn_kir_param(k, "y", SN_I32, 6, SN_KIR_WRITE);
    sn_kir_buffer *d = sn_kir_param(k, "d", SN_F64, n, SN_KIR_READ), *z = sn_kir_param(k, "z", SN_F64, 4, SN_KIR_WRITE);
    static const sn_kir_op ops[] = {SN_KIR_ADD, SN_KIR_MIN, SN_KIR_MAX, SN_KIR_MUL, SN_KIR_AND, SN_KIR_OR};
    expr i = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1), results[6], doubles[4];
    expr v = sn_kir_load(k, x, i), w = sn_kir_load(k, d, i);
    for (int o = 0; o < 6; o++) results[o] = sn_kir_reduce(k, ops[o], v);
    for (int o = 0; o < 4; o++) // no sum that cancels: its error has no bound relative to it
        doubles[o] = sn_kir_reduce(k, ops[o], o ? w : sn_kir_mul(k, w, w));
    expr any = sn_kir_reduce(k, SN_KIR_OR, sn_kir_gt(k, w, sn_kir_float(k, SN_F64, 2.5)));
    sn_kir_end(k);
    for (int o = 0; o < 5; o++) sn_kir_store(k, y, INDEX(o), results[o]);
    sn_kir_store(k, y, INDEX(5), sn_kir_select(k, any, results[5], sn_kir_int(k, SN_I32, 77)));
    for (int o = 0; o < 4; o++) sn_kir_store(k, z, INDEX(o), doubles[o]);
    return k;
}

// Two carried values that read each other, per lane and for the block.
static sn_kir *scans(int64_t n) {
    sn_kir *k = start("scans", n, 1);
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_F32, 7 * n, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_F32, 7 * n, SN_KIR_WRITE);
    sn_kir_buffer *where = sn_kir_param(k, "where", SN_I64, n + 1, SN_KIR_WRITE);
    expr c = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1);
    expr r = sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), INDEX(7), 1), at = sn_kir_add(k, sn_kir_muli(k, r, n), c);
    expr total = sn_kir_carry(k, F32(0)), best = sn_kir_carry(k, F32(-INFINITY)), place = sn_kir_carry(k, INDEX(-1));
    expr v = sn_kir_load(k, x, at), sum = sn_kir_add(k, total, v), better = sn_kir_gt(k, v, best);
    sn_kir_store(k, y, at, sum);
    sn_kir_set_carry(k, total, sum);
    sn_kir_set_carry(k, best, sn_kir_select(k, better, v, best));
    sn_kir_set_carry(k, place, sn_kir_select(k, better, r, place));
    sn_kir_end(k);
    sn_kir_store(k, where, c, sn_kir_carried(k, place));
    sn_kir_end(k);
    r = sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), INDEX(20), 3); // Fibonacci numbers
    expr a = sn_kir_carry(k, INDEX(0)), b = sn_kir_carry(k, sn_kir_addi(k, sn_kir_block(k), 1));
    sn_kir_set_carry(k, a, b);
    sn_kir_set_carry(k, b, sn_kir_add(k, a, b));
    sn_kir_end(k);
    sn_kir_store(k, where, INDEX(n), sn_kir_carried(k, a));
    return k;
}

// (n, 4, 32) -> (4, n, 32), then a pad on both sides by predicated loads.
static sn_kir *transpose(int64_t n) {
    sn_kir *k = start("transpose", n, chunks(n * 128, 256));
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_F32, n * 128, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_F32, n * 128, SN_KIR_WRITE);
    sn_kir_buffer *z = sn_kir_param(k, "z", SN_F32, n * 128, SN_KIR_WRITE);
    expr i = open_chunk(k, n * 128, 256), d = sn_kir_modi(k, i, 32), row = sn_kir_divi(k, i, 32);
    expr h = sn_kir_divi(k, row, n), t = sn_kir_modi(k, row, n);
    expr from = sn_kir_add(k, sn_kir_muli(k, sn_kir_add(k, sn_kir_muli(k, t, 4), h), 32), d);
    sn_kir_store(k, y, i, sn_kir_load(k, x, from));
    expr shifted = sn_kir_addi(k, i, -5);
    expr inside = sn_kir_and(k, sn_kir_ge(k, shifted, INDEX(0)), sn_kir_lt(k, shifted, INDEX(n * 100)));
    sn_kir_store(k, z, i, sn_kir_load_if(k, x, shifted, inside, F32(-1)));
    sn_kir_end(k);
    return k;
}

// Embedding: rows chosen by ids that may be negative or wrong, and its gradient by owners of columns and by atomics.
static sn_kir *gather(int64_t n) {
    sn_kir *k = start("gather", n, 1);
    sn_kir_buffer *ids = sn_kir_param(k, "ids", SN_I64, 9, SN_KIR_READ);
    sn_kir_buffer *table = sn_kir_param(k, "table", SN_F32, n * 8, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_F32, 9 * 8, SN_KIR_WRITE);
    sn_kir_buffer *dt = sn_kir_param(k, "dt", SN_F32, n * 8, SN_KIR_UPDATE);
    sn_kir_buffer *hits = sn_kir_param(k, "hits", SN_I32, n, SN_KIR_UPDATE);
    expr i = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(72), 1);
    expr id = sn_kir_load(k, ids, sn_kir_divi(k, i, 8));
    id = sn_kir_clamp(k, sn_kir_select(k, sn_kir_lt(k, id, INDEX(0)), sn_kir_addi(k, id, n), id), 0, n - 1);
    sn_kir_store(k, y, i, sn_kir_load(k, table, sn_kir_add(k, sn_kir_muli(k, id, 8), sn_kir_modi(k, i, 8))));
    sn_kir_atomic_add(k, hits, id, sn_kir_int(k, SN_I32, 1));
    sn_kir_end(k);
    expr t = sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), INDEX(9), 1);
    expr row = sn_kir_clamp(k, sn_kir_load(k, ids, t), 0, n - 1);
    expr c = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(8), 1), at = sn_kir_add(k, sn_kir_muli(k, row, 8), c);
    sn_kir_store(k, dt, at, sn_kir_add(k, sn_kir_load(k, dt, at), sn_kir_cast(k, t, SN_F32)));
    sn_kir_end(k);
    sn_kir_end(k);
    return k;
}

static sn_kir *branches(int64_t n) {
    sn_kir *k = start("branches", n, 2);
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_F32, n, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_F32, 2 * n, SN_KIR_WRITE);
    sn_kir_buffer *one = sn_kir_param(k, "one", SN_F32, 2, SN_KIR_WRITE);
    expr block = sn_kir_block(k);
    expr i = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1), v = sn_kir_load(k, x, i);
    expr to = sn_kir_add(k, sn_kir_muli(k, block, n), i);
    sn_kir_if(k, sn_kir_gt(k, v, F32(0)));
    expr j = sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), sn_kir_addi(k, block, 1), 1);
    expr before = sn_kir_sub(k, i, j), w = sn_kir_load_if(k, x, before, sn_kir_ge(k, before, INDEX(0)), F32(0));
    expr sum = sn_kir_reduce(k, SN_KIR_ADD, w);
    sn_kir_end(k);
    sn_kir_if(k, sn_kir_lt(k, sum, F32(1)));
    sn_kir_store(k, y, to, sn_kir_neg(k, sum));
    sn_kir_else(k);
    sn_kir_store(k, y, to, sn_kir_sqrt(k, sum));
    sn_kir_end(k);
    sn_kir_else(k);
    sn_kir_store(k, y, to, F32(-7));
    sn_kir_end(k);
    sn_kir_end(k);
    sn_kir_if(k, sn_kir_eq(k, block, INDEX(1)));
    sn_kir_store(k, one, INDEX(0), F32(1));
    sn_kir_else(k);
    sn_kir_store(k, one, INDEX(1), F32(2));
    sn_kir_end(k);
    return k;
}

// Loops by 3, from 2, with bounds known only as ranges, and empty.
static sn_kir *odd_bounds(int64_t n) {
    sn_kir *k = start("odd_bounds", n, 5);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_I32, 5 * n, SN_KIR_WRITE);
    sn_kir_buffer *sums = sn_kir_param(k, "sums", SN_I64, 5, SN_KIR_WRITE);
    expr block = sn_kir_block(k), base = sn_kir_muli(k, block, n);
    expr i = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1);
    sn_kir_store(k, y, sn_kir_add(k, base, i), sn_kir_int(k, SN_I32, -1));
    sn_kir_end(k);
    sn_kir_barrier(k);
    expr high = sn_kir_mini(k, sn_kir_muli(k, block, 40), n); // empty for block 0
    i = sn_kir_for(k, SN_KIR_LANES, sn_kir_mini(k, block, n), high, 3);
    sn_kir_store(k, y, sn_kir_add(k, base, i), sn_kir_cast(k, sn_kir_muli(k, i, 3), SN_I32));
    expr sum = sn_kir_reduce(k, SN_KIR_ADD, i);
    sn_kir_end(k);
    sn_kir_store(k, sums, block, sum);
    return k;
}

// Two phases through scratch, twice: what the next round writes must wait for the last one's readers.
static sn_kir *phases(int64_t n) {
    sn_kir *k = start("phases", n, 2);
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_F32, 2 * n, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_F32, 2 * n, SN_KIR_UPDATE);
    sn_kir_buffer *s = sn_kir_scratch(k, "s", SN_F32, n);
    expr base = sn_kir_muli(k, sn_kir_block(k), n);
    expr round = sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), INDEX(3), 1);
    expr i = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1);
    expr v = sn_kir_load(k, x, sn_kir_add(k, base, i));
    sn_kir_store(k, s, i, sn_kir_mul(k, v, sn_kir_cast(k, round, SN_F32)));
    sn_kir_end(k);
    sn_kir_barrier(k);
    i = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1);
    expr next = sn_kir_modi(k, sn_kir_addi(k, i, n / 2 + 1), n), at = sn_kir_add(k, base, i);
    sn_kir_store(k, y, at, sn_kir_add(k, sn_kir_load(k, y, at), sn_kir_load(k, s, next)));
    sn_kir_end(k);
    sn_kir_barrier(k);
    sn_kir_end(k);
    return k;
}

// Every operator on integers of one type, with operands that hit zero, -1 and the extremes.
static sn_kir *integers(int64_t n, sn_dtype dtype, const char *name) {
    static const sn_kir_op ops[] = {SN_KIR_ADD,       SN_KIR_SUB,       SN_KIR_MUL, SN_KIR_DIV, SN_KIR_REM,
                                    SN_KIR_FLOOR_DIV, SN_KIR_FLOOR_MOD, SN_KIR_MIN, SN_KIR_MAX, SN_KIR_AND,
                                    SN_KIR_OR,        SN_KIR_XOR,       SN_KIR_SHL, SN_KIR_SHR};
    enum { BINARY = sizeof ops / sizeof *ops, ALL = BINARY + 5 };
    sn_kir *k = start(name, n, 1);
    sn_kir_buffer *a = sn_kir_param(k, "a", dtype, n, SN_KIR_READ), *b = sn_kir_param(k, "b", dtype, n, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", dtype, ALL * n, SN_KIR_WRITE);
    sn_kir_buffer *less = sn_kir_param(k, "less", SN_BOOL, n, SN_KIR_WRITE);
    sn_kir_buffer *f = sn_kir_param(k, "f", SN_F32, n, SN_KIR_WRITE);
    expr i = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1);
    expr p = sn_kir_load(k, a, i), q = sn_kir_load(k, b, i), results[ALL];
    for (int o = 0; o < BINARY; o++) results[o] = sn_kir_binary(k, ops[o], p, q);
    results[BINARY] = sn_kir_neg(k, p);
    results[BINARY + 1] = sn_kir_abs(k, p);
    results[BINARY + 2] = sn_kir_not(k, p);
    results[BINARY + 3] = sn_kir_unary(k, SN_KIR_SIGN, p);
    results[BINARY + 4] = sn_kir_binary(k, SN_KIR_SHR, p, sn_kir_int(k, dtype, 3));
    for (int o = 0; o < ALL; o++) sn_kir_store(k, y, sn_kir_addi(k, i, o * n), results[o]);
    sn_kir_store(k, less, i, sn_kir_lt(k, p, q));
    sn_kir_store(k, f, i, sn_kir_cast(k, p, SN_F32));
    sn_kir_end(k);
    return k;
}
#define INTEGERS(type, TYPE)                                                                                           \
    static sn_kir *integers_##type(int64_t n) {                                                                        \
        return integers(n, SN_##TYPE, "integers_" #type);                                                              \
    }
INTEGERS(i8, I8)
INTEGERS(u8, U8)
INTEGERS(i16, I16)
INTEGERS(u16, U16)
INTEGERS(i32, I32)
INTEGERS(u32, U32)
INTEGERS(i64, I64)
INTEGERS(u64, U64)

// f32 to every type and back, rounding and saturating.
static sn_kir *casts(int64_t n) {
    sn_kir *k = start("casts", n, 1);
    sn_kir_buffer *x = sn_kir_param(k, "extreme", SN_F32, n, SN_KIR_READ);
    sn_kir_buffer *outs[SN_DTYPE_COUNT], *back = sn_kir_param(k, "back", SN_F32, SN_DTYPE_COUNT * n, SN_KIR_WRITE);
    for (int t = 0; t < SN_DTYPE_COUNT; t++) {
        char name[16];
        snprintf(name, sizeof name, "to_%s", sn_dtype_name((sn_dtype)t));
        outs[t] = sn_kir_param(k, name, (sn_dtype)t, n, SN_KIR_WRITE);
    }
    expr i = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1), v = sn_kir_load(k, x, i);
    for (int t = 0; t < SN_DTYPE_COUNT; t++) {
        expr converted = sn_kir_cast(k, v, (sn_dtype)t);
        sn_kir_store(k, outs[t], i, converted);
        sn_kir_store(k, back, sn_kir_addi(k, i, t * n), sn_kir_cast(k, converted, SN_F32));
    }
    sn_kir_end(k);
    return k;
}

// Storage in 16 bits, floats' remaining operators.
static sn_kir *halves(int64_t n) {
    sn_kir *k = start("halves", n, 1);
    sn_kir_buffer *a = sn_kir_param(k, "a", SN_F16, n, SN_KIR_READ), *b = sn_kir_param(k, "b", SN_BF16, n, SN_KIR_READ);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_F16, n, SN_KIR_WRITE),
                  *z = sn_kir_param(k, "z", SN_BF16, n, SN_KIR_WRITE);
    sn_kir_buffer *w = sn_kir_param(k, "w", SN_F32, 10 * n, SN_KIR_WRITE);
    sn_kir_buffer *flags = sn_kir_param(k, "flags", SN_BOOL, 2 * n, SN_KIR_UPDATE);
    static const sn_kir_op ops[] = {SN_KIR_FLOOR, SN_KIR_CEIL, SN_KIR_ROUND, SN_KIR_TRUNC, SN_KIR_SIGN, SN_KIR_ABS};
    expr i = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1), p = sn_kir_load(k, a, i), q = sn_kir_load(k, b, i);
    sn_kir_store(k, y, i, sn_kir_mul(k, p, q));
    sn_kir_store(k, z, i, sn_kir_sub(k, p, q));
    for (int o = 0; o < 6; o++) sn_kir_store(k, w, sn_kir_addi(k, i, o * n), sn_kir_unary(k, ops[o], p));
    sn_kir_store(k, w, sn_kir_addi(k, i, 6 * n), sn_kir_min(k, p, q));
    sn_kir_store(k, w, sn_kir_addi(k, i, 7 * n), sn_kir_max(k, q, p));
    sn_kir_store(k, w, sn_kir_addi(k, i, 8 * n), sn_kir_rem(k, p, q));
    sn_kir_store(k, w, sn_kir_addi(k, i, 9 * n), sn_kir_cast(k, sn_kir_div(k, p, q), SN_BF16));
    expr flag = sn_kir_load(k, flags, i);
    flag = sn_kir_or(k, sn_kir_unary(k, SN_KIR_ISNAN, sn_kir_div(k, p, q)), sn_kir_not(k, flag));
    sn_kir_store(k, flags, i, sn_kir_binary(k, SN_KIR_XOR, flag, sn_kir_unary(k, SN_KIR_ISINF, sn_kir_div(k, p, q))));
    sn_kir_end(k);
    return k;
}

static sn_kir *dropout(int64_t n) {
    sn_kir *k = start("dropout", n, chunks(n, 128));
    sn_kir_buffer *x = sn_kir_param(k, "x", SN_F32, n, SN_KIR_READ), *y = sn_kir_param(k, "y", SN_F32, n, SN_KIR_WRITE);
    sn_kir_buffer *step = sn_kir_param(k, "id_step", SN_U32, 1, SN_KIR_READ);
    expr at = sn_kir_load(k, step, INDEX(0)), i = open_chunk(k, n, 128);
    expr bits = sn_kir_random_bits(k, sn_kir_int(k, SN_U64, 1234567890123), at, sn_kir_int(k, SN_U32, 4), i);
    expr keep = sn_kir_lt(k, bits, sn_kir_int(k, SN_U32, 3000000000));
    sn_kir_store(k, y, i, sn_kir_select(k, keep, sn_kir_mul(k, sn_kir_load(k, x, i), F32(1.25)), F32(0)));
    sn_kir_end(k);
    return k;
}

// A tile of 4 rows of a product: carried accumulators, one broadcast per row.
static sn_kir *matmul(int64_t n) {
    sn_kir *k = start("matmul", n, 2);
    sn_kir_buffer *a = sn_kir_param(k, "a", SN_F32, 8 * 17, SN_KIR_READ);
    sn_kir_buffer *b = sn_kir_param(k, "b", SN_F32, 17 * n, SN_KIR_READ);
    sn_kir_buffer *c = sn_kir_param(k, "c", SN_F32, 8 * n, SN_KIR_WRITE);
    expr row = sn_kir_muli(k, sn_kir_block(k), 4), column = sn_kir_for(k, SN_KIR_LANES, INDEX(0), INDEX(n), 1), acc[4];
    expr t = sn_kir_for(k, SN_KIR_SERIAL, INDEX(0), INDEX(17), 1);
    expr right = sn_kir_load(k, b, sn_kir_add(k, sn_kir_muli(k, t, n), column));
    for (int r = 0; r < 4; r++) acc[r] = sn_kir_carry(k, F32(0));
    for (int r = 0; r < 4; r++) {
        expr left = sn_kir_load(k, a, sn_kir_add(k, sn_kir_muli(k, sn_kir_addi(k, row, r), 17), t));
        sn_kir_set_carry(k, acc[r], sn_kir_fma(k, left, right, acc[r]));
    }
    sn_kir_end(k);
    for (int r = 0; r < 4; r++)
        sn_kir_store(k, c, sn_kir_add(k, sn_kir_muli(k, sn_kir_addi(k, row, r), n), column), sn_kir_carried(k, acc[r]));
    sn_kir_end(k);
    return k;
}

const zoo_entry zoo[] = {
    {"pointwise", pointwise, true},
    {"softmax", softmax, false},
    {"column_sums", column_sums, true},
    {"reductions", reductions, false},
    {"scans", scans, true},
    {"transpose", transpose, true},
    {"gather", gather, true},
    {"branches", branches, true},
    {"odd_bounds", odd_bounds, true},
    {"phases", phases, true},
    {"integers_i8", integers_i8, true},
    {"integers_u8", integers_u8, true},
    {"integers_i16", integers_i16, true},
    {"integers_u16", integers_u16, true},
    {"integers_i32", integers_i32, true},
    {"integers_u32", integers_u32, true},
    {"integers_i64", integers_i64, true},
    {"integers_u64", integers_u64, true},
    {"casts", casts, true},
    {"halves", halves, true},
    {"dropout", dropout, true},
    {"matmul", matmul, true},
};
const size_t zoo_count = sizeof zoo / sizeof *zoo;

static double float_value(const char *name, unsigned h) {
    static const double extremes[] = {0,     -0.0,  INFINITY, -INFINITY,    NAN,   0.5,         1.5,    2.5,     -0.5,
                                      -1.5,  127.5, 128,      -129,         255.9, 256,         32767,  40000,   -40000,
                                      65504, 65520, 1e-8,     2147483647.0, 3e9,   -3e9,        9.3e18, -9.3e18, 2e19,
                                      1e30,  -1e30, 1.00001f, 6.1e-5f,      -1,    4294967040.0};
    if (!strcmp(name, "extreme") && h % 3 != 0) return extremes[h / 3 % (sizeof extremes / sizeof *extremes)];
    return ((int)(h % 2000) - 1000) / 250.0;
}

static int64_t integer_value(const sn_kir_buffer *b, int64_t n, unsigned h) {
    static const int64_t values[] = {0, 1, -1, 2, 3, -3, 7, 100, -100, INT64_MAX, INT64_MIN, 127, -128, 31, 8, 63, 64};
    if (!strncmp(b->name, "id", 2)) return (int64_t)(h % (unsigned)(n + 3)) - 1; // a little out of range too
    int64_t value = h % 2 ? values[h / 2 % (sizeof values / sizeof *values)] : (int)(h / 2 % 601) - 300;
    bool extreme = value == INT64_MIN || value == INT64_MAX;
    if (extreme && sn_dtype_bytes(b->dtype) < 8) // the type's own
        value = value > 0 ? INT64_MAX >> (64 - 8 * sn_dtype_bytes(b->dtype))
                          : INT64_MIN >> (64 - 8 * sn_dtype_bytes(b->dtype));
    return value;
}

void **zoo_buffers(const sn_kir *k, int64_t n, unsigned seed) {
    void **buffers = sn_alloc(sizeof *buffers * (size_t)(k->n_params + 1));
    for (int p = 0; p < k->n_params; p++) {
        const sn_kir_buffer *b = k->params[p];
        buffers[p] = sn_alloc((size_t)b->count * sn_dtype_bytes(b->dtype));
        for (int64_t i = 0; i < b->count; i++) {
            unsigned h = (unsigned)i * 2654435761u + seed * 40503u + (unsigned)p * 97u;
            h = (h ^ h >> 15) * 2246822519u;
            h ^= h >> 13;
            if (sn_dtype_is_float(b->dtype)) {
                sn_store_f64(b->dtype, buffers[p], i, float_value(b->name, h));
            } else {
                sn_store_i64(b->dtype, buffers[p], i, integer_value(b, n, h));
            }
        }
    }
    return buffers;
}

void zoo_free(const sn_kir *k, void **buffers) {
    for (int p = 0; p < k->n_params; p++) sn_free(buffers[p]);
    sn_free(buffers);
}

// Sums of n terms in two orders differ by about sqrt(n) roundings.
static double sum_tolerance(const sn_kir *k, sn_dtype dtype) {
    int64_t n = 1;
    for (int p = 0; p < k->n_params; p++)
        if (k->params[p]->count > n) n = k->params[p]->count;
    return 2 * sqrt((double)n) * (dtype == SN_F64 ? 0x1p-53 : 0x1p-24);
}

static bool same(const sn_kir_buffer *b, const void *got, const void *want, int64_t i, double tolerance) {
    if (!sn_dtype_is_float(b->dtype)) return sn_load_i64(b->dtype, got, i) == sn_load_i64(b->dtype, want, i);
    double x = sn_load_f64(b->dtype, got, i), y = sn_load_f64(b->dtype, want, i);
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    return x == y || fabs(x - y) <= tolerance * fabs(y);
}

void zoo_compare(const sn_kir *k, void *const *got, void *const *want, bool exact) {
    for (int p = 0; p < k->n_params; p++) {
        const sn_kir_buffer *b = k->params[p];
        double tolerance = exact ? 0 : sum_tolerance(k, b->dtype);
        for (int64_t i = 0; i < b->count; i++)
            if (!same(b, got[p], want[p], i, tolerance))
                fail_msg("%s: %s[%lld] = %.9g, want %.9g", k->name, b->name, (long long)i,
                         sn_load_f64(b->dtype, got[p], i), sn_load_f64(b->dtype, want[p], i));
    }
}
