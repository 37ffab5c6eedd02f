// Random index arithmetic over nested loops: what the builder makes of it, run by the evaluator and by native code,
// against arithmetic on the tree it was made from.
#include "backend/kernel/kir.h"
#include "backend/llvm/llvm.h"
#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KERNELS = 60, TREES = 6, NODES = 64 };

typedef enum kind { VARIABLE, CONSTANT, ADD, SUB, MUL, DIV, MOD, MIN, MAX, CHOOSE, KINDS } kind;

typedef struct tree {
    kind kind;
    int a, b;
    int64_t value; // CONSTANT, the right side of MUL, DIV and MOD; VARIABLE: which
} tree;

typedef struct problem {
    int64_t extents[4]; // of block, an outer loop, a serial loop in the lanes, and the lanes
    tree trees[TREES][NODES];
    int roots[TREES];
    sn_kir *k;
} problem;

static uint64_t random_state;
static int64_t draw(int64_t n) { // in [0, n)
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

static int make_tree(const problem *p, tree *t, int *n, int depth) {
    tree node = {.kind = depth == 0 || *n > NODES - 8 ? VARIABLE : (kind)draw(KINDS)};
    static const int64_t divisors[] = {2, 3, 4, 5, 8, 16, 32, 48, 64, 100};
    if (node.kind == VARIABLE) node.value = draw(4);
    if (node.kind == CONSTANT) node.value = draw(200) - 60;
    if (node.kind >= ADD) node.a = make_tree(p, t, n, depth - 1);
    if (node.kind == MUL || node.kind == DIV || node.kind == MOD) { // often what fits the loops
        int64_t fitting = p->extents[draw(4)], other = divisors[draw(10)];
        node.value = draw(2) ? fitting : other;
    } else if (node.kind >= ADD) {
        node.b = make_tree(p, t, n, depth - 1);
    }
    t[*n] = node;
    return (*n)++;
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

static int64_t value_of(const tree *t, int at, const int64_t *variables) {
    const tree *node = &t[at];
    int64_t a = node->kind >= ADD ? value_of(t, node->a, variables) : 0;
    bool unary = node->kind == MUL || node->kind == DIV || node->kind == MOD;
    int64_t b = node->kind >= ADD && !unary ? value_of(t, node->b, variables) : node->value;
    switch (node->kind) {
    case VARIABLE:
        return variables[node->value];
    case CONSTANT:
        return node->value;
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case DIV:
        return floor_div(a, b);
    case MOD:
        return a - b * floor_div(a, b);
    case MIN:
        return a < b ? a : b;
    case MAX:
        return a > b ? a : b;
    default:
        return a < b ? a : b + 1;
    }
}

static sn_kir_node *build(sn_kir *k, const tree *t, int at, sn_kir_node *const *variables) {
    const tree *node = &t[at];
    if (node->kind == VARIABLE) return variables[node->value];
    if (node->kind == CONSTANT) return sn_kir_index(k, node->value);
    sn_kir_node *a = build(k, t, node->a, variables);
    if (node->kind == MUL) return sn_kir_muli(k, a, node->value);
    if (node->kind == DIV) return sn_kir_divi(k, a, node->value);
    if (node->kind == MOD) return sn_kir_modi(k, a, node->value);
    sn_kir_node *b = build(k, t, node->b, variables);
    if (node->kind == ADD) return sn_kir_add(k, a, b);
    if (node->kind == SUB) return sn_kir_sub(k, a, b);
    if (node->kind == MIN) return sn_kir_min(k, a, b);
    if (node->kind == MAX) return sn_kir_max(k, a, b);
    return sn_kir_select(k, sn_kir_lt(k, a, b), a, sn_kir_addi(k, b, 1));
}

static void make_problem(problem *p, int number) {
    static const int64_t extents[] = {1, 2, 3, 4, 5, 8, 16, 24, 37, 48, 64};
    char name[32];
    for (int i = 0; i < 4; i++) p->extents[i] = extents[draw(i < 3 ? 6 : 11)];
    int64_t n = p->extents[0] * p->extents[1] * p->extents[2] * p->extents[3];
    snprintf(name, sizeof name, "random_%d", number);
    sn_kir *k = p->k = sn_kir_new(name, p->extents[0]);
    sn_kir_buffer *y = sn_kir_param(k, "y", SN_I64, n * TREES, SN_KIR_WRITE);
    sn_kir_node *v[4] = {sn_kir_block(k)}, *zero = sn_kir_index(k, 0);
    v[1] = sn_kir_for(k, SN_KIR_SERIAL, zero, sn_kir_index(k, p->extents[1]), 1);
    v[3] = sn_kir_for(k, SN_KIR_LANES, zero, sn_kir_index(k, p->extents[3]), 1);
    v[2] = sn_kir_for(k, SN_KIR_SERIAL, zero, sn_kir_index(k, p->extents[2]), 1);
    sn_kir_node *flat = v[0];
    for (int i = 1; i < 4; i++) flat = sn_kir_add(k, sn_kir_muli(k, flat, p->extents[i]), v[i]);
    for (int t = 0; t < TREES; t++) {
        int nodes = 0;
        p->roots[t] = make_tree(p, p->trees[t], &nodes, 5);
        sn_kir_node *value = build(k, p->trees[t], p->roots[t], v);
        sn_kir_store(k, y, sn_kir_addi(k, flat, t * n), value);
    }
    for (int i = 0; i < 3; i++) sn_kir_end(k);
    const char *wrong = sn_kir_verify(k);
    if (wrong) fail_msg("%s", wrong);
}

static void check(const problem *p, const int64_t *y, const char *who) {
    int64_t n = p->extents[0] * p->extents[1] * p->extents[2] * p->extents[3];
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, v[4];
        for (int d = 3; d >= 0; d--) {
            v[d] = rest % p->extents[d];
            rest /= p->extents[d];
        }
        for (int t = 0; t < TREES; t++) {
            int64_t want = value_of(p->trees[t], p->roots[t], v);
            if (y[t * n + i] == want) continue;
            sn_str text = {0};
            sn_kir_print(p->k, &text);
            fail_msg("%s, tree %d at %lld: %lld, want %lld\n%s", who, t, (long long)i, (long long)y[t * n + i],
                     (long long)want, sn_str_text(&text));
        }
    }
}

static void index_arithmetic(void **state) {
    (void)state;
    static problem problems[KERNELS];
    sn_kir *kernels[KERNELS] = {0};
    random_state = 20250607;
    for (int i = 0; i < KERNELS; i++) {
        make_problem(&problems[i], i);
        kernels[i] = problems[i].k;
    }
    sn_llvm_jit *jit;
    assert_null(sn_llvm_jit_open(kernels, KERNELS, NULL, &jit));
    for (int i = 0; i < KERNELS; i++) {
        const sn_kir *k = kernels[i];
        int64_t *y = sn_alloc(sizeof *y * (size_t)k->params[0]->count);
        sn_kir_evaluate(k, (void *[]){y}, 0, k->grid);
        check(&problems[i], y, "evaluator");
        memset(y, 0x55, sizeof *y * (size_t)k->params[0]->count);
        sn_llvm_jit_find(jit, k->name)((void *[]){y}, 0, k->grid);
        check(&problems[i], y, "LLVM");
        sn_free(y);
        sn_kir_free(kernels[i]);
    }
    sn_llvm_jit_close(jit);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(index_arithmetic)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
