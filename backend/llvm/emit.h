// From kernel IR to LLVM IR. Lanes loops become loops over vectors of `width` elements, as in ISPC: inside them a value
// is uniform (a scalar), linear (the index arithmetic of the lanes: a scalar and a stride) or a vector; a loop's last
// partial vector and the arms of a varying `if` run under a mask. LLVM's own vectoriser is not used: it takes only
// innermost loops, so a reduction inside the lanes would defeat it, and the order of sums would not be ours.
#pragma once
#include "backend/kernel/kir.h"
#include "backend/kernel/math.h"

#include <llvm-c/Core.h>

typedef enum sn_codegen_shape { SN_EMIT_UNIFORM, SN_EMIT_LINEAR, SN_EMIT_VECTOR } sn_codegen_shape;

typedef struct sn_emitted {
    LLVMValueRef value; // uniform and linear: a scalar (of lane 0); vector
    sn_codegen_shape shape;
    bool narrow;              // a vector of i32 that stands for i64
    int64_t stride, multiple; // linear: the step from lane to lane; lane 0 is a multiple of `multiple`
} sn_emitted;

typedef struct sn_emitter {
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    sn_kir_math math;
    int width; // lanes
    // The kernel being emitted.
    const sn_kir *k;
    LLVMValueRef function, block;
    LLVMValueRef *params, *scratch;
    sn_emitted *values; // by node id
    bool in_lanes;
    LLVMValueRef mask; // lanes that take part; NULL: all
    int guards;        // varying `if`s around, so that the mask may be empty
    sn_arena memory;
} sn_emitter;

LLVMValueRef sn_codegen_kernel(sn_emitter *e, const sn_kir *k); // the function with the public ABI
void sn_codegen_region(sn_emitter *e, const sn_kir_region *region);
void sn_codegen_loop(sn_emitter *e, const sn_kir_node *loop);
void sn_codegen_access(sn_emitter *e, const sn_kir_node *node); // LOAD, STORE, ATOMIC_ADD
void sn_codegen_value(sn_emitter *e, const sn_kir_node *node);  // PURE, MATH, COMPARE

// The operator on LLVM values, all scalars or all vectors; `narrow`: i64 operands and result are i32.
LLVMValueRef sn_codegen_compute(sn_emitter *e, const sn_kir_node *node, const LLVMValueRef in[4], bool vector,
                                bool narrow);

sn_emitted sn_codegen_get(sn_emitter *e, const sn_kir_node *node);
LLVMValueRef sn_codegen_scalar(sn_emitter *e, const sn_kir_node *node); // of a uniform value
LLVMValueRef sn_codegen_vector(sn_emitter *e, const sn_kir_node *node);
LLVMValueRef sn_codegen_narrow(sn_emitter *e,
                               const sn_kir_node *node); // an i64 in the range of i32, as a vector of i32
bool sn_codegen_fits_i32(const sn_kir_node *node);

LLVMTypeRef sn_codegen_type(sn_emitter *e, sn_dtype dtype, bool vector);
LLVMValueRef sn_codegen_int(LLVMTypeRef type, int64_t value); // splat, for a vector type
LLVMValueRef sn_codegen_float(LLVMTypeRef type, double value);
LLVMValueRef sn_codegen_constant(sn_emitter *e, const sn_kir_node *node, bool vector);
LLVMValueRef sn_codegen_splat(sn_emitter *e, LLVMValueRef scalar);
LLVMValueRef sn_codegen_call(sn_emitter *e, const char *intrinsic, LLVMTypeRef *overloads, int n_overloads,
                             LLVMValueRef *args, int n_args);
LLVMValueRef sn_codegen_combine(sn_emitter *e, sn_kir_op op, sn_dtype dtype, LLVMValueRef a, LLVMValueRef b);
