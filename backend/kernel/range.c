// Known ranges and divisors of integer values: what makes an index provably in range, a division exact, or a comparison
// constant.
#include "backend/kernel/build.h"
#include "backend/kernel/scalar.h"

typedef struct range {
    int64_t min, max;
    bool known;
} range;

int64_t sn_kir_gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

static int64_t magnitude(int64_t value) {
    return value == INT64_MIN ? 1 : value < 0 ? -value : value;
}

static range hull(const int64_t *values, int n) {
    range r = {values[0], values[0], true};
    for (int i = 1; i < n; i++) {
        if (values[i] < r.min) r.min = values[i];
        if (values[i] > r.max) r.max = values[i];
    }
    return r;
}

static range add_range(const sn_kir_node *a, const sn_kir_node *b) {
    range r = {.known = true};
    if (__builtin_add_overflow(a->min, b->min, &r.min) || __builtin_add_overflow(a->max, b->max, &r.max))
        r.known = false;
    return r;
}

static range sub_range(const sn_kir_node *a, const sn_kir_node *b) {
    range r = {.known = true};
    if (__builtin_sub_overflow(a->min, b->max, &r.min) || __builtin_sub_overflow(a->max, b->min, &r.max))
        r.known = false;
    return r;
}

static range mul_range(const sn_kir_node *a, const sn_kir_node *b) {
    int64_t corners[4];
    bool overflow =
        __builtin_mul_overflow(a->min, b->min, &corners[0]) | __builtin_mul_overflow(a->min, b->max, &corners[1]) |
        __builtin_mul_overflow(a->max, b->min, &corners[2]) | __builtin_mul_overflow(a->max, b->max, &corners[3]);
    if (overflow) return (range){.known = false};
    return hull(corners, 4);
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

static range div_range(const sn_kir_node *a, const sn_kir_node *b, bool floor) {
    if (b->min <= 0) return (range){.known = false};
    int64_t corners[4] = {a->min, a->max, a->min, a->max};
    for (int i = 0; i < 4; i++) {
        int64_t divisor = i < 2 ? b->min : b->max;
        corners[i] = floor ? floor_div(corners[i], divisor) : corners[i] / divisor;
    }
    return hull(corners, 4);
}

static range mod_range(const sn_kir_node *a, const sn_kir_node *b, bool floor) {
    if (b->min <= 0) return (range){.known = false};
    range r = {0, b->max - 1, true};
    if (a->min >= 0 && a->max < r.max) r.max = a->max;
    if (!floor && a->min < 0) r.min = -r.max;
    return r;
}

static range min_max_range(const sn_kir_node *a, const sn_kir_node *b, bool is_max) {
    if (is_max) return (range){a->min > b->min ? a->min : b->min, a->max > b->max ? a->max : b->max, true};
    return (range){a->min < b->min ? a->min : b->min, a->max < b->max ? a->max : b->max, true};
}

static range and_range(const sn_kir_node *a, const sn_kir_node *b) {
    if (a->min < 0 && b->min < 0) return (range){.known = false};
    int64_t max = INT64_MAX;
    if (a->min >= 0) max = a->max;
    if (b->min >= 0 && b->max < max) max = b->max;
    return (range){0, max, true};
}

static range shift_range(sn_kir_op op, const sn_kir_node *a, const sn_kir_node *b) {
    if (op == SN_KIR_SHL || b->op != SN_KIR_CONST || b->i64 < 0 || b->i64 > 62) return (range){.known = false};
    if (a->min < 0 && !sn_kir_is_signed(a->dtype)) return (range){.known = false}; // a u64 beyond 2^63
    return (range){a->min >> b->i64, a->max >> b->i64, true};
}

static range range_of(const sn_kir_node *node) {
    const sn_kir_node *a = node->in[0], *b = node->in[1];
    switch (node->op) {
    case SN_KIR_CONST:
        return (range){node->i64, node->i64, true};
    case SN_KIR_CAST:
        if (sn_dtype_is_float(a->dtype)) return (range){.known = false};
        if (a->dtype == SN_U64 && a->min < 0) return (range){.known = false};
        return (range){a->min, a->max, true};
    case SN_KIR_ADD:
        return add_range(a, b);
    case SN_KIR_SUB:
        return sub_range(a, b);
    case SN_KIR_MUL:
        return mul_range(a, b);
    case SN_KIR_DIV:
    case SN_KIR_FLOOR_DIV:
        return div_range(a, b, node->op == SN_KIR_FLOOR_DIV);
    case SN_KIR_REM:
    case SN_KIR_FLOOR_MOD:
        return mod_range(a, b, node->op == SN_KIR_FLOOR_MOD);
    case SN_KIR_MIN:
    case SN_KIR_MAX:
        return min_max_range(a, b, node->op == SN_KIR_MAX);
    case SN_KIR_AND:
        return and_range(a, b);
    case SN_KIR_SHL:
    case SN_KIR_SHR:
        return shift_range(node->op, a, b);
    case SN_KIR_SELECT: {
        const sn_kir_node *c = node->in[2];
        return (range){b->min < c->min ? b->min : c->min, b->max > c->max ? b->max : c->max, true};
    }
    default:
        return (range){.known = false};
    }
}

static int64_t multiple_of(const sn_kir_node *node) {
    const sn_kir_node *a = node->in[0], *b = node->in[1];
    int64_t product;
    switch (node->op) {
    case SN_KIR_CONST:
        return magnitude(node->i64);
    case SN_KIR_ADD:
    case SN_KIR_SUB:
    case SN_KIR_MIN:
    case SN_KIR_MAX:
    case SN_KIR_FLOOR_MOD:
        return sn_kir_gcd(a->multiple, b->multiple);
    case SN_KIR_MUL:
        return __builtin_mul_overflow(a->multiple, b->multiple, &product) ? 1 : product;
    case SN_KIR_FLOOR_DIV:
        return b->op == SN_KIR_CONST && b->i64 > 0 && a->multiple % b->i64 == 0 ? a->multiple / b->i64 : 1;
    case SN_KIR_SELECT:
        return sn_kir_gcd(b->multiple, node->in[2]->multiple);
    default:
        return 1;
    }
}

void sn_kir_set_range(sn_kir_node *node) {
    int64_t min = sn_kir_type_min(node->dtype), max = sn_kir_type_max(node->dtype);
    bool is_u64 = node->dtype == SN_U64;
    range r = range_of(node);
    if (is_u64) { // ordered as unsigned: only values below 2^63 have a range
        bool operands = true;
        for (int i = 0; i < 4; i++)
            if (node->in[i] && !sn_dtype_is_float(node->in[i]->dtype) && node->in[i]->min < 0) operands = false;
        if (!operands || (r.known && r.min < 0 && node->op != SN_KIR_CONST)) r.known = false;
    }
    node->multiple = 1;
    if (!r.known || r.min < min || r.max > max) { // unknown, or it may wrap
        node->min = min;
        node->max = max;
        return;
    }
    node->min = r.min;
    node->max = r.max;
    if (node->dtype != SN_BOOL) node->multiple = multiple_of(node);
}
