// The state of printing CUDA C, shared by its files.
#pragma once
#include "backend/kernel/kir.h"
#include "backend/kernel/math.h"

typedef struct sn_cuda_text { // of a value that was printed: a name, or an expression to put in its single place
    const char *text;
    bool atom; // needs no parentheses
} sn_cuda_text;

typedef struct sn_cuda_printer {
    const sn_kir *k;
    sn_str *out;
    int indent;
    bool in_lanes;
    sn_cuda_text *texts; // by node id
    int *uses;           // by node id: by what is printed
    int *user_depth;     // by node id: of the last user
    int n_values, n_indices;
    sn_kir_math *math;
    // Helpers that the text calls, to be printed before it.
    bool ops[SN_KIR_OP_COUNT][SN_DTYPE_COUNT];   // sn_max_f32(a, b)
    bool block[SN_KIR_OP_COUNT][SN_DTYPE_COUNT]; // sn_block_max_f32(value)
    bool casts[SN_DTYPE_COUNT][SN_DTYPE_COUNT];  // from, to: sn_f32_to_i32(x)
    bool f16, bf16;
    sn_arena memory;
} sn_cuda_printer;

const char *sn_cuda_type(sn_dtype dtype);        // of a value in a register
const char *sn_cuda_memory_type(sn_dtype dtype); // of an element
bool sn_cuda_is_int(const sn_kir_node *node);    // an i64 that is printed as int
const char *sn_cuda_value_type(const sn_kir_node *node);

void sn_cuda_line(sn_cuda_printer *p, const char *format, ...) SN_PRINTF(2, 3);
const char *sn_cuda_format(sn_cuda_printer *p, const char *format, ...) SN_PRINTF(2, 3);
const char *sn_cuda_operand(sn_cuda_printer *p, const sn_kir_node *node);  // parenthesised if need be
const char *sn_cuda_argument(sn_cuda_printer *p, const sn_kir_node *node); // as is, between commas or brackets
const char *sn_cuda_constant(sn_cuda_printer *p, const sn_kir_node *node);
sn_cuda_text sn_cuda_expression(sn_cuda_printer *p, const sn_kir_node *node); // LOAD and what computes
const char *sn_cuda_combine(sn_cuda_printer *p, sn_kir_op op, sn_dtype dtype, const char *a, const char *b);
const char *sn_cuda_identifier(sn_cuda_printer *p, const char *name); // a name no value or keyword has
const char *sn_cuda_buffer(sn_cuda_printer *p, const sn_kir_buffer *b);

// The helpers in use, in a fixed order.
void sn_cuda_print_prelude(sn_cuda_printer *p);
// A math function whose expansion is printed as the body of `f`.
void sn_cuda_print_function(sn_cuda_printer *p, sn_kir_op op, sn_dtype dtype, const sn_kir_function *f);
