// Index arithmetic. Sums are kept as c0 * t0 + c1 * t1 + … + constant, with terms of outer loops first (their sum is
// then computed outside the inner loop), so that what a reshape splits and a later one merges cancels:
// (x / 64) * 64 + x % 64 = x. Divisions take out the terms they divide: (a * 64 + b) / 64 = a when 0 <= b < 64.
#include "backend/kernel/build.h"
#include "backend/kernel/scalar.h"

#define MAX_TERMS 16

typedef struct term {
    sn_kir_node *base;
    int64_t factor;
} term;

typedef struct sum {
    term terms[MAX_TERMS];
    int n;
    int64_t constant;
    bool too_long;
} sum;

static int64_t wrap_mul(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

static int64_t wrap_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static void add_term(sum *s, sn_kir_node *base, int64_t factor) {
    for (int i = 0; i < s->n; i++) {
        if (s->terms[i].base != base) continue;
        s->terms[i].factor = wrap_add(s->terms[i].factor, factor);
        return;
    }
    if (s->n == MAX_TERMS) {
        s->too_long = true;
    } else {
        s->terms[s->n++] = (term){base, factor};
    }
}

static void collect(sum *s, sn_kir_node *node, int64_t factor) {
    if (node->op == SN_KIR_CONST) {
        s->constant = wrap_add(s->constant, wrap_mul(factor, node->i64));
    } else if (node->op == SN_KIR_ADD) {
        collect(s, node->in[0], factor);
        collect(s, node->in[1], factor);
    } else if (node->op == SN_KIR_MUL && node->in[1]->op == SN_KIR_CONST) {
        collect(s, node->in[0], wrap_mul(factor, node->in[1]->i64));
    } else {
        add_term(s, node, factor);
    }
}

static void drop(sum *s, int at) {
    for (int i = at; i + 1 < s->n; i++) s->terms[i] = s->terms[i + 1];
    s->n--;
}

// (x / c) * c * m + (x % c) * m = x * m
static bool merge_quotient(sum *s, int at) {
    sn_kir_node *remainder = s->terms[at].base;
    if (remainder->op != SN_KIR_FLOOR_MOD || remainder->in[1]->op != SN_KIR_CONST) return false;
    for (int i = 0; i < s->n; i++) {
        sn_kir_node *quotient = s->terms[i].base;
        if (quotient->op != SN_KIR_FLOOR_DIV || quotient->in[0] != remainder->in[0] ||
            quotient->in[1] != remainder->in[1] ||
            s->terms[i].factor != wrap_mul(s->terms[at].factor, remainder->in[1]->i64))
            continue;
        int64_t factor = s->terms[at].factor;
        drop(s, i > at ? i : at);
        drop(s, i > at ? at : i);
        collect(s, remainder->in[0], factor);
        return true;
    }
    return false;
}

static void normalise(sum *s) {
    for (int i = 0; i < s->n; i++) {
        if (s->terms[i].factor == 0) {
            drop(s, i--);
        } else if (merge_quotient(s, i)) {
            i = -1;
        }
    }
    for (int i = 1; i < s->n; i++) { // insertion sort: outer loops first, then in order of creation
        term moved = s->terms[i];
        int at = i;
        for (; at > 0; at--) {
            const sn_kir_node *before = s->terms[at - 1].base;
            if (before->depth < moved.base->depth ||
                (before->depth == moved.base->depth && before->id <= moved.base->id))
                break;
            s->terms[at] = s->terms[at - 1];
        }
        s->terms[at] = moved;
    }
}

static sn_kir_node *raw(sn_kir *k, sn_kir_op op, sn_kir_node *a, sn_kir_node *b) {
    return sn_kir_intern(k, (sn_kir_node){.op = op, .dtype = SN_I64, .in = {a, b}});
}

static sn_kir_node *build(sn_kir *k, const sum *s) {
    sn_kir_node *total = NULL;
    for (int i = 0; i < s->n; i++) {
        sn_kir_node *value = s->terms[i].base;
        if (s->terms[i].factor != 1) value = raw(k, SN_KIR_MUL, value, sn_kir_index(k, s->terms[i].factor));
        total = total ? raw(k, SN_KIR_ADD, total, value) : value;
    }
    if (!total) return sn_kir_index(k, s->constant);
    return s->constant ? raw(k, SN_KIR_ADD, total, sn_kir_index(k, s->constant)) : total;
}

sn_kir_node *sn_kir_linear(sn_kir *k, const sn_kir_node *template) {
    sum s = {0};
    sn_kir_node *a = template->in[0], *b = template->in[1];
    if (template->op == SN_KIR_ADD || template->op == SN_KIR_SUB) {
        collect(&s, a, 1);
        collect(&s, b, template->op == SN_KIR_ADD ? 1 : -1);
    } else if (template->op == SN_KIR_MUL && b->op == SN_KIR_CONST) {
        collect(&s, a, b->i64);
    } else if (template->op == SN_KIR_NEG) {
        collect(&s, a, -1);
    } else {
        return NULL;
    }
    normalise(&s);
    return s.too_long ? NULL : build(k, &s);
}

static int64_t floor_mod(int64_t a, int64_t b) {
    int64_t rest = a % b;
    return rest < 0 ? rest + b : rest;
}

static bool bounded(const sn_kir_node *x) { // its range is known, so no sum on the way to it wrapped
    return x->min > INT64_MIN / 2 && x->max < INT64_MAX / 2;
}

// x = divisor * quotient + rest, with the terms and the part of the constant that `divisor` divides in the quotient.
static bool split(sn_kir *k, sn_kir_node *x, int64_t divisor, sn_kir_node **quotient, sn_kir_node **rest) {
    sum s = {0}, q = {0}, r = {0};
    if (!bounded(x)) return false;
    collect(&s, x, 1);
    for (int i = 0; i < s.n; i++) {
        bool exact = s.terms[i].factor % divisor == 0;
        add_term(exact ? &q : &r, s.terms[i].base, exact ? s.terms[i].factor / divisor : s.terms[i].factor);
    }
    r.constant = floor_mod(s.constant, divisor);
    q.constant = (s.constant - r.constant) / divisor;
    if (s.too_long || (q.n == 0 && q.constant == 0)) return false;
    normalise(&q);
    normalise(&r);
    *quotient = build(k, &q);
    *rest = build(k, &r);
    return bounded(*rest) && bounded(*quotient);
}

// A divisor g of `divisor` such that x = g * quotient + rest with 0 <= rest < g: then x / divisor = quotient / (divisor
// / g).
static bool split_digit(sn_kir *k, sn_kir_node *x, int64_t divisor, int64_t *g, sn_kir_node **quotient,
                        sn_kir_node **rest) {
    sum s = {0};
    if (!bounded(x)) return false;
    collect(&s, x, 1);
    if (s.too_long) return false;
    for (int i = 0; i < s.n; i++) {
        int64_t factor = s.terms[i].factor;
        if (factor < 2 || factor >= divisor || divisor % factor != 0) continue;
        if (split(k, x, factor, quotient, rest) && (*rest)->min >= 0 && (*rest)->max < factor) {
            *g = factor;
            return true;
        }
    }
    return false;
}

sn_kir_node *sn_kir_divide(sn_kir *k, sn_kir_node *x, int64_t divisor) {
    sn_kir_node *quotient, *rest;
    int64_t g;
    if (divisor == 1) return x;
    if (bounded(x) && x->min >= 0 && x->max < divisor) return sn_kir_index(k, 0);
    if (x->op == SN_KIR_FLOOR_DIV && x->in[1]->op == SN_KIR_CONST && x->in[1]->i64 > 0 &&
        !__builtin_mul_overflow(divisor, x->in[1]->i64, &g))
        return sn_kir_divide(k, x->in[0], g);
    if (x->op == SN_KIR_FLOOR_MOD && x->in[1]->op == SN_KIR_CONST && x->in[1]->i64 > 0 && x->in[1]->i64 % divisor == 0)
        return sn_kir_modulo(k, sn_kir_divide(k, x->in[0], divisor), x->in[1]->i64 / divisor);
    if (split(k, x, divisor, &quotient, &rest)) return sn_kir_add(k, quotient, sn_kir_divide(k, rest, divisor));
    if (split_digit(k, x, divisor, &g, &quotient, &rest)) return sn_kir_divide(k, quotient, divisor / g);
    return raw(k, SN_KIR_FLOOR_DIV, x, sn_kir_index(k, divisor));
}

sn_kir_node *sn_kir_modulo(sn_kir *k, sn_kir_node *x, int64_t divisor) {
    sn_kir_node *quotient, *rest;
    int64_t g;
    if (divisor == 1 || x->multiple % divisor == 0) return sn_kir_index(k, 0);
    if (x->min >= 0 && x->max < divisor) return x;
    if (x->op == SN_KIR_FLOOR_MOD && x->in[1]->op == SN_KIR_CONST && x->in[1]->i64 > 0 && x->in[1]->i64 % divisor == 0)
        return sn_kir_modulo(k, x->in[0], divisor);
    if (split(k, x, divisor, &quotient, &rest)) return sn_kir_modulo(k, rest, divisor);
    if (split_digit(k, x, divisor, &g, &quotient, &rest))
        return sn_kir_add(k, sn_kir_muli(k, sn_kir_modulo(k, quotient, divisor / g), g), rest);
    return raw(k, SN_KIR_FLOOR_MOD, x, sn_kir_index(k, divisor));
}
