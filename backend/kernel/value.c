// Values of kernel IR: type rules, sharing, and where a value is computed.
#include "backend/kernel/build.h"
#include "backend/kernel/scalar.h"

#include <string.h>

static bool in_scope(const sn_kir *k, const sn_kir_node *node) {
    return node->depth <= k->build->depth && k->build->open[node->depth].number == node->region;
}

static sn_kir_node **bucket_of(sn_kir *k, const sn_kir_node *node) {
    uint64_t hash = (uint64_t)node->op * 0x9e3779b97f4a7c15u ^ (uint64_t)node->dtype ^ (uint64_t)node->i64 * 31;
    for (int i = 0; i < 4; i++) hash = (hash ^ (node->in[i] ? (uint64_t)node->in[i]->id + 1 : 0)) * 0x100000001b3u;
    return &k->build->buckets[(hash ^ hash >> 29) % 1024];
}

int sn_kir_earliest_depth(const sn_kir *k, const sn_kir_node *node) {
    int depth = 0;
    for (int i = 0; i < 4; i++)
        if (node->in[i] && node->in[i]->depth > depth) depth = node->in[i]->depth;
    for (int d = k->build->depth; d > depth; d--) {
        const sn_kir_node *statement = k->build->open[d].statement;
        if (node->op != SN_KIR_CONST && statement && statement->op == SN_KIR_IF) return d;
    }
    return depth;
}

sn_kir_node *sn_kir_intern(sn_kir *k, sn_kir_node template) {
    sn_kir_node **bucket = bucket_of(k, &template);
    for (sn_kir_node *node = *bucket; node; node = node->same)
        if (node->op == template.op && node->dtype == template.dtype && node->i64 == template.i64 &&
            !memcmp(node->in, template.in, sizeof node->in) && !node->buffer && in_scope(k, node))
            return node;
    sn_kir_node *node = sn_kir_node_new(k, template.op, template.dtype);
    memcpy(node->in, template.in, sizeof node->in);
    node->i64 = template.i64;
    for (int i = 0; i < 4; i++)
        if (node->in[i]) sn_kir_use(k, node->in[i]);
    sn_kir_append(k, node, sn_kir_earliest_depth(k, node));
    if (!sn_dtype_is_float(node->dtype)) sn_kir_set_range(node);
    node->same = *bucket;
    *bucket = node;
    return node;
}

sn_kir_node *sn_kir_int(sn_kir *k, sn_dtype dtype, int64_t value) {
    SN_CHECK(!sn_dtype_is_float(dtype));
    return sn_kir_intern(k, (sn_kir_node){.op = SN_KIR_CONST, .dtype = dtype, .i64 = sn_kir_wrap(dtype, value)});
}

sn_kir_node *sn_kir_index(sn_kir *k, int64_t value) {
    return sn_kir_int(k, SN_I64, value);
}

sn_kir_node *sn_kir_float(sn_kir *k, sn_dtype dtype, double value) {
    SN_CHECK(dtype == SN_F32 || dtype == SN_F64);
    if (dtype == SN_F32) value = (float)value;
    return sn_kir_intern(k, (sn_kir_node){.op = SN_KIR_CONST, .dtype = dtype, .f64 = value});
}

sn_kir_node *sn_kir_number(sn_kir *k, sn_dtype dtype, double value) {
    uint64_t memory = 0;
    sn_store_f64(dtype, &memory, 0, value);
    if (!sn_dtype_is_float(dtype)) return sn_kir_int(k, dtype, sn_load_i64(dtype, &memory, 0));
    return sn_kir_float(k, dtype == SN_F64 ? SN_F64 : SN_F32, sn_load_f64(dtype, &memory, 0));
}

static void check(const sn_kir *k, bool fine, sn_kir_op op, sn_dtype dtype) {
    if (!fine) SN_BUG("kernel %s: %s does not apply to %s", k->name, sn_kir_op_name(op), sn_dtype_name(dtype));
}

static bool unary_applies(sn_kir_op op, sn_dtype dtype) {
    switch (op) {
    case SN_KIR_NEG:
    case SN_KIR_ABS:
    case SN_KIR_SIGN:
        return dtype != SN_BOOL;
    case SN_KIR_NOT:
        return !sn_dtype_is_float(dtype);
    case SN_KIR_ROUND_F16:
    case SN_KIR_ROUND_BF16:
        return dtype == SN_F32;
    default:
        return sn_dtype_is_float(dtype);
    }
}

sn_kir_node *sn_kir_unary(sn_kir *k, sn_kir_op op, sn_kir_node *a) {
    SN_CHECK(sn_kir_op_operands(op) == 1 && op > SN_KIR_BITCAST);
    check(k, unary_applies(op, a->dtype), op, a->dtype);
    sn_dtype dtype = op == SN_KIR_ISNAN || op == SN_KIR_ISINF ? SN_BOOL : a->dtype;
    return sn_kir_simplify(k, (sn_kir_node){.op = op, .dtype = dtype, .in = {a}});
}

static bool binary_applies(sn_kir_op op, sn_dtype dtype) {
    switch (op) {
    case SN_KIR_POW:
    case SN_KIR_ATAN2:
        return sn_dtype_is_float(dtype);
    case SN_KIR_FLOOR_DIV:
    case SN_KIR_FLOOR_MOD:
    case SN_KIR_SHL:
    case SN_KIR_SHR:
        return sn_kir_is_integer(dtype);
    case SN_KIR_MUL_HIGH:
        return dtype == SN_U32;
    case SN_KIR_AND:
    case SN_KIR_OR:
    case SN_KIR_XOR:
        return !sn_dtype_is_float(dtype);
    case SN_KIR_EQ:
    case SN_KIR_NE:
        return true;
    default:
        return dtype != SN_BOOL;
    }
}

sn_kir_node *sn_kir_binary(sn_kir *k, sn_kir_op op, sn_kir_node *a, sn_kir_node *b) {
    SN_CHECK(sn_kir_op_operands(op) == 2 && op >= SN_KIR_POW && op <= SN_KIR_GE);
    if (a->dtype != b->dtype)
        SN_BUG("kernel %s: %s of %s and %s", k->name, sn_kir_op_name(op), sn_dtype_name(a->dtype),
               sn_dtype_name(b->dtype));
    check(k, binary_applies(op, a->dtype), op, a->dtype);
    sn_dtype dtype = op >= SN_KIR_EQ && op <= SN_KIR_GE ? SN_BOOL : a->dtype;
    return sn_kir_simplify(k, (sn_kir_node){.op = op, .dtype = dtype, .in = {a, b}});
}

sn_kir_node *sn_kir_select(sn_kir *k, sn_kir_node *condition, sn_kir_node *a, sn_kir_node *b) {
    SN_CHECK(condition->dtype == SN_BOOL && a->dtype == b->dtype);
    return sn_kir_simplify(k, (sn_kir_node){.op = SN_KIR_SELECT, .dtype = a->dtype, .in = {condition, a, b}});
}

sn_kir_node *sn_kir_fma(sn_kir *k, sn_kir_node *a, sn_kir_node *b, sn_kir_node *c) {
    SN_CHECK(a->dtype == b->dtype && a->dtype == c->dtype);
    if (sn_kir_is_integer(a->dtype)) return sn_kir_add(k, sn_kir_mul(k, a, b), c);
    check(k, sn_dtype_is_float(a->dtype), SN_KIR_FMA, a->dtype);
    return sn_kir_simplify(k, (sn_kir_node){.op = SN_KIR_FMA, .dtype = a->dtype, .in = {a, b, c}});
}

sn_kir_node *sn_kir_random_bits(sn_kir *k, sn_kir_node *seed, sn_kir_node *step, sn_kir_node *op, sn_kir_node *index) {
    SN_CHECK(seed->dtype == SN_U64 && step->dtype == SN_U32 && op->dtype == SN_U32);
    index = sn_kir_cast(k, index, SN_U64);
    return sn_kir_intern(k, (sn_kir_node){.op = SN_KIR_RANDOM_BITS, .dtype = SN_U32, .in = {seed, step, op, index}});
}

sn_kir_node *sn_kir_cast(sn_kir *k, sn_kir_node *value, sn_dtype dtype) {
    if (dtype == SN_F16 || dtype == SN_BF16) {
        sn_kir_node *single = sn_kir_cast(k, value, SN_F32);
        return sn_kir_unary(k, dtype == SN_F16 ? SN_KIR_ROUND_F16 : SN_KIR_ROUND_BF16, single);
    }
    if (value->dtype == dtype) return value;
    if (dtype == SN_BOOL) return sn_kir_ne(k, value, sn_kir_number(k, value->dtype, 0));
    return sn_kir_simplify(k, (sn_kir_node){.op = SN_KIR_CAST, .dtype = dtype, .in = {value}});
}

sn_kir_node *sn_kir_bitcast(sn_kir *k, sn_kir_node *value, sn_dtype dtype) {
    SN_CHECK(sn_dtype_bytes(value->dtype) == sn_dtype_bytes(dtype) && dtype != SN_BOOL && value->dtype != SN_BOOL);
    if (value->dtype == dtype) return value;
    return sn_kir_simplify(k, (sn_kir_node){.op = SN_KIR_BITCAST, .dtype = dtype, .in = {value}});
}

sn_kir_node *sn_kir_clamp(sn_kir *k, sn_kir_node *value, int64_t min, int64_t max) {
    return sn_kir_mini(k, sn_kir_maxi(k, value, min), max);
}
