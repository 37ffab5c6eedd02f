// Factors: the iteration space of an op. Each dim of an operand or a result ranges over a product of factors (major to
// minor); cutting a factor over a mesh axis cuts every dim that it is the major factor of. One fact for partition,
// distribute, cost, overlap and the backend (the precedents are Shardy's sharding rules and nnScaler's annotations).
#pragma once
#include "ir/graph.h"

typedef enum sn_factor_kind {
    SN_FACTOR_PARALLEL, // parts are independent
    SN_FACTOR_SUM,      // parts are summed: cutting it leaves a partial sum in results that do not have it
    SN_FACTOR_MAX,      // parts are joined by the larger
    SN_FACTOR_MIN,      // parts are joined by the smaller
    SN_FACTOR_WHOLE,    // must not be cut
} sn_factor_kind;

enum { SN_MAX_FACTORS = 32, SN_MAX_DIM_FACTORS = 8 };

typedef struct sn_factor {
    sn_factor_kind kind;
    int64_t size;
    bool masked; // a cut needs masking by index range (the rows of an embedding), not just a smaller loop
} sn_factor;

// The factors of one dim, major to minor; none for a dim of size 1.
typedef struct sn_dim_factors {
    int n;
    int8_t factor[SN_MAX_DIM_FACTORS];
} sn_dim_factors;

typedef struct sn_factors {
    int n;
    sn_factor factor[SN_MAX_FACTORS];
    sn_dim_factors (*operand)[SN_MAX_RANK]; // per operand, per dim
    sn_dim_factors (*result)[SN_MAX_RANK];  // per result, per dim
} sn_factors;

// Allocates from `arena`. Types of the operands and results are read as they stand (global or local).
void sn_factors_of(const sn_op *op, sn_arena *arena, sn_factors *out);

// How an op treats operands that are partial sums: whether a sum of parts may pass through it.
typedef enum sn_linearity {
    SN_NOT_LINEAR, // parts must be joined first
    SN_LINEAR,     // in this operand, the others held fixed (matmul, mul, reshape)
    SN_ADDITIVE,   // jointly: all operands that are SN_ADDITIVE must be partial over the same axes (add, concat)
} sn_linearity;
sn_linearity sn_op_linearity(const sn_op *op, int operand);

// "matmul (a b) (b c) -> (a c)  b: sum" for people.
void sn_factors_print(sn_str *out, const sn_op *op, const sn_factors *factors);
