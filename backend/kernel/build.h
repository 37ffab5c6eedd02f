// The builder's state, shared by the files that make nodes.
#pragma once
#include "backend/kernel/kir.h"

#define SN_KIR_DEPTH_MAX 32

typedef struct sn_kir_open { // a region that statements can still be added to
    sn_kir_region *region;
    sn_kir_node *statement; // its FOR or IF; NULL for the kernel's body
    int number;             // unique in the kernel
} sn_kir_open;

struct sn_kir_build {
    sn_kir_open open[SN_KIR_DEPTH_MAX];
    int depth; // of the innermost open region
    int n_regions;
    sn_kir_node *block;
    sn_kir_node *buckets[1024];
};

sn_kir_node *sn_kir_node_new(sn_kir *k, sn_kir_op op, sn_dtype dtype);
void sn_kir_append(sn_kir *k, sn_kir_node *node, int depth); // to the open region of that depth
void sn_kir_use(sn_kir *k, sn_kir_node *value);              // counts a use; SN_BUG when the value is out of scope
// As early as the operands exist, so that loops do not repeat it; but an `if` keeps what is computed inside.
int sn_kir_earliest_depth(const sn_kir *k, const sn_kir_node *node);
// An equal node that is still in scope, or a new one placed as early as its operands allow. `node` is a template.
sn_kir_node *sn_kir_intern(sn_kir *k, sn_kir_node template);
// The node of an operator after simplification; operands' types are already checked.
sn_kir_node *sn_kir_simplify(sn_kir *k, sn_kir_node template);
int64_t sn_kir_gcd(int64_t a, int64_t b); // gcd(0, b) = b: zero is a multiple of everything
void sn_kir_set_range(sn_kir_node *node); // min, max and multiple from the operands

// i64 arithmetic as a sum of terms: ADD, SUB and MUL with a constant; NULL when `template` is none of these or too
// long.
sn_kir_node *sn_kir_linear(sn_kir *k, const sn_kir_node *template);
// floor(x / divisor) and x - divisor * floor(x / divisor) of i64 values, divisor > 0.
sn_kir_node *sn_kir_divide(sn_kir *k, sn_kir_node *x, int64_t divisor);
sn_kir_node *sn_kir_modulo(sn_kir *k, sn_kir_node *x, int64_t divisor);
