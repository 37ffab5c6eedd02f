// Kernel IR (kir): one kernel as a loop nest over flat buffers, with the mapping to hardware in the IR. The LLVM and
// CUDA printers and the evaluator read the same nodes and decide nothing about parallelism.
//
//   grid    The body runs once per value of `block` in [0, grid). Blocks are independent: threads of a pool on the CPU,
//           thread blocks on the GPU.
//   lanes   A loop whose iterations are independent: SIMD lanes on the CPU, the threads of a block (with a stride) on
//           the GPU. A lanes loop may contain serial loops (each lane runs them for itself: put the reduced or
//           strided dimension there and the contiguous one on the lanes) but no other lanes loop.
//   serial  An ordinary loop.
//   scratch Memory of one block: stack on the CPU, shared memory on the GPU.
//   barrier Orders what the lanes of one loop wrote to a buffer before what those of another read.
//
// Outside lanes loops everything is uniform over the block: all threads of a GPU block compute it, one stores.
//
// Building. A kernel is its own builder: values are made by sn_kir_* functions, statements go to the place that
// sn_kir_for / sn_kir_if opened last. Values of pure operators are simplified, shared when equal, and computed in the
// outermost loop where their operands exist (never outside an enclosing `if`), so index arithmetic written naively in
// the innermost loop costs nothing there. So are loads from READ parameters whose index always lies inside; other loads
// and stores stay where they are written.
//
//     sn_kir *k = sn_kir_new("softmax_768", 256);                                // one block per row
//     sn_kir_buffer *x = sn_kir_param(k, "x", SN_F32, 256 * 768, SN_KIR_READ);
//     sn_kir_buffer *y = sn_kir_param(k, "y", SN_F32, 256 * 768, SN_KIR_WRITE);
//     sn_kir_node *row = sn_kir_muli(k, sn_kir_block(k), 768);
//     sn_kir_node *c = sn_kir_for(k, SN_KIR_LANES, sn_kir_index(k, 0), sn_kir_index(k, 768), 1);
//     sn_kir_node *max = sn_kir_reduce(k, SN_KIR_MAX, sn_kir_load(k, x, sn_kir_add(k, row, c)));
//     sn_kir_end(k);
//     ... sum = sn_kir_reduce(k, SN_KIR_ADD, sn_kir_exp(k, sn_kir_sub(k, load, max))) in a second loop, store in a
//     third
//
// Types. f32, f64, all integers, bool. f16 and bf16 exist in buffers alone: loads widen to f32, stores round to nearest
// even. Indices are i64. Operands of one operator have one type (sn_kir_cast converts); a violation is SN_BUG.
#pragma once
#include "base/arena.h"
#include "base/dtype.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum sn_kir_op {
#define X(suffix, ...) SN_KIR_##suffix,
#include "backend/kernel/kir_ops.def"
#undef X
    SN_KIR_OP_COUNT
} sn_kir_op;

const char *sn_kir_op_name(sn_kir_op op);
int sn_kir_op_operands(sn_kir_op op);

typedef enum sn_kir_access { SN_KIR_READ, SN_KIR_WRITE, SN_KIR_UPDATE, SN_KIR_SCRATCH } sn_kir_access;

// Flat memory. Distinct parameters must not overlap when the kernel runs, except two read-only ones: an in-place
// kernel uses one UPDATE parameter.
typedef struct sn_kir_buffer {
    const char *name;
    sn_dtype dtype;
    int64_t count; // elements, >= 1
    sn_kir_access access;
    int index; // among the parameters, or among the scratch arrays
} sn_kir_buffer;

typedef struct sn_kir_node sn_kir_node;

typedef struct sn_kir_region { // statements and the values between them, in order
    sn_kir_node *first, *last;
} sn_kir_region;

typedef enum sn_kir_mapping { SN_KIR_SERIAL, SN_KIR_LANES } sn_kir_mapping;

// One value that a loop accumulates or carries.
typedef struct sn_kir_acc {
    bool reduce;        // else carried
    sn_kir_op op;       // reduce: ADD, MUL, MIN, MAX, AND, OR
    sn_kir_node *init;  // carried: before the loop; reduce: NULL (the identity of `op`)
    sn_kir_node *carry; // carried: its CARRY node
    sn_kir_node *next;  // the value to accumulate, or the carried value at the end of an iteration
    sn_kir_node *result;
    struct sn_kir_acc *link;
} sn_kir_acc;

struct sn_kir_node {
    sn_kir_op op;
    sn_dtype dtype; // never f16 or bf16; statements: unused
    int id;         // dense, in order of creation
    int uses;
    int depth;          // of the region that holds it
    const char *name;   // a hint for printers; may be NULL
    sn_kir_node *in[4]; // operands, as kir_ops.def says
    union {
        double f64;  // CONST of a float type
        int64_t i64; // CONST of an integer type or bool, sign-extended (u64: its bits)
    };
    // Integers: all values lie in [min, max] (whole range of the type when unknown) and are multiples of `multiple`.
    int64_t min, max, multiple;
    sn_kir_buffer *buffer;  // LOAD, STORE, ATOMIC_ADD
    sn_kir_mapping mapping; // FOR
    int64_t step;           // FOR, > 0
    sn_kir_node *loop;      // INDEX, CARRY, RESULT: the FOR; FOR: its INDEX
    sn_kir_acc *acc;        // FOR: the list; CARRY, RESULT: its entry
    sn_kir_region body, orelse;
    sn_kir_node *next; // in the region
    sn_kir_node *same; // in the hash table's bucket
    int region;        // number of the region that holds it
};

typedef struct sn_kir {
    const char *name;   // a C identifier, unique in its module
    const char *origin; // ONNX names, shapes: printed as a comment; may hold several lines; "" when none
    int64_t grid;
    int threads; // of a GPU block; a multiple of 32
    sn_kir_buffer **params, **scratch;
    int n_params, n_scratch;
    sn_kir_region body;
    int n_nodes;
    bool one_thread; // has an ATOMIC_ADD: the CPU runs all blocks in order on one thread, so sums do not vary
    struct sn_kir_build *build;
    sn_arena arena;
} sn_kir;

enum { SN_KIR_MOST_BLOCKS = INT32_MAX };            // what CUDA's grids have along x
sn_kir *sn_kir_new(const char *name, int64_t grid); // grid in [1, SN_KIR_MOST_BLOCKS]
void sn_kir_free(sn_kir *k);
void sn_kir_set_origin(sn_kir *k, const char *text);
void sn_kir_set_threads(sn_kir *k, int threads); // default 256; rounded up to a multiple of 32, at most 1024
sn_kir_buffer *sn_kir_param(sn_kir *k, const char *name, sn_dtype dtype, int64_t count, sn_kir_access access);
// All scratch together is at most SN_KIR_SCRATCH_MAX bytes. Its content is undefined at the start of a block.
#define SN_KIR_SCRATCH_MAX (1 << 20)
sn_kir_buffer *sn_kir_scratch(sn_kir *k, const char *name, sn_dtype dtype, int64_t count);

// Statements.

// Opens `for i in [low, high) by step` and returns i. low and high are uniform i64.
sn_kir_node *sn_kir_for(sn_kir *k, sn_kir_mapping mapping, sn_kir_node *low, sn_kir_node *high, int64_t step);
// A value accumulated over the loop opened last, from its identity (ADD 0, MUL 1, MIN/MAX the type's extreme, AND all
// ones, OR 0), in any order; returns the result, to be used after sn_kir_end. Directly in the loop's body, not in an
// `if`. `value`'s type is the accumulator's. MIN and MAX propagate NaN.
sn_kir_node *sn_kir_reduce(sn_kir *k, sn_kir_op op, sn_kir_node *value);
// A value carried from one iteration of the serial loop opened last to the next: returns it as the iteration finds it.
// Set what it becomes once, directly in the body; read the final one (init, when the loop did not run) after
// sn_kir_end.
sn_kir_node *sn_kir_carry(sn_kir *k, sn_kir_node *init);
void sn_kir_set_carry(sn_kir *k, sn_kir_node *carry, sn_kir_node *next);
sn_kir_node *sn_kir_carried(sn_kir *k, sn_kir_node *carry);
void sn_kir_if(sn_kir *k, sn_kir_node *condition);
void sn_kir_else(sn_kir *k);
void sn_kir_end(sn_kir *k); // of the loop or `if` opened last
void sn_kir_store(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index, sn_kir_node *value);
// buffer[index] += value where several lanes or blocks may meet. f32, f64, i32, i64, u32, u64. A scatter whose blocks
// own distinct elements (say, one block per range of columns and a serial loop over rows) needs no atomics: load, add,
// store.
void sn_kir_atomic_add(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index, sn_kir_node *value);
// The element is loaded, and stored where the buffer may be, some time later. Only a hint, and only to the CPU; the
// index is the same in all lanes and may lie anywhere.
void sn_kir_prefetch(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index);
void sn_kir_barrier(sn_kir *k); // uniform control flow only, not in a lanes loop

// Values. A loaded or computed value may be used until the region that holds it ends.

sn_kir_node *sn_kir_block(sn_kir *k);
sn_kir_node *sn_kir_index(sn_kir *k, int64_t value);                 // an i64 constant
sn_kir_node *sn_kir_float(sn_kir *k, sn_dtype dtype, double value);  // f32 (rounded) or f64
sn_kir_node *sn_kir_int(sn_kir *k, sn_dtype dtype, int64_t value);   // an integer type (wraps) or bool
sn_kir_node *sn_kir_number(sn_kir *k, sn_dtype dtype, double value); // any type, f16 and bf16 giving a rounded f32
sn_kir_node *sn_kir_load(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index);
// `otherwise` where `predicate` (bool) is false; the index may then lie anywhere.
sn_kir_node *sn_kir_load_if(sn_kir *k, sn_kir_buffer *buffer, sn_kir_node *index, sn_kir_node *predicate,
                            sn_kir_node *otherwise);
// To f16 and bf16: rounds an f32 (the value stays f32).
sn_kir_node *sn_kir_cast(sn_kir *k, sn_kir_node *value, sn_dtype dtype);
sn_kir_node *sn_kir_bitcast(sn_kir *k, sn_kir_node *value, sn_dtype dtype);
sn_kir_node *sn_kir_unary(sn_kir *k, sn_kir_op op, sn_kir_node *a); // any PURE or MATH operator of one operand
sn_kir_node *sn_kir_binary(sn_kir *k, sn_kir_op op, sn_kir_node *a, sn_kir_node *b); // also comparisons
sn_kir_node *sn_kir_select(sn_kir *k, sn_kir_node *condition, sn_kir_node *a, sn_kir_node *b);
sn_kir_node *sn_kir_fma(sn_kir *k, sn_kir_node *a, sn_kir_node *b, sn_kir_node *c);
sn_kir_node *sn_kir_random_bits(sn_kir *k, sn_kir_node *seed, sn_kir_node *step, sn_kir_node *op, sn_kir_node *index);
// The same integer, of which the caller knows that it lies in [min, max].
sn_kir_node *sn_kir_clamp(sn_kir *k, sn_kir_node *value, int64_t min, int64_t max); // min(max(value, min), max)
sn_kir_node *sn_kir_named(sn_kir_node *node, const char *name);                     // a hint for readers; returns node

#define SN_KIR_UNARY(name, OP)                                                                                         \
    static inline sn_kir_node *sn_kir_##name(sn_kir *k, sn_kir_node *a) {                                              \
        return sn_kir_unary(k, SN_KIR_##OP, a);                                                                        \
    }
#define SN_KIR_BINARY(name, OP)                                                                                        \
    static inline sn_kir_node *sn_kir_##name(sn_kir *k, sn_kir_node *a, sn_kir_node *b) {                              \
        return sn_kir_binary(k, SN_KIR_##OP, a, b);                                                                    \
    }
// Integer arithmetic with a constant of a's type.
#define SN_KIR_IMMEDIATE(name, OP)                                                                                     \
    static inline sn_kir_node *sn_kir_##name(sn_kir *k, sn_kir_node *a, int64_t b) {                                   \
        return sn_kir_binary(k, SN_KIR_##OP, a, sn_kir_int(k, a->dtype, b));                                           \
    }
SN_KIR_UNARY(neg, NEG)
SN_KIR_UNARY(abs, ABS)
SN_KIR_UNARY(not, NOT)
SN_KIR_UNARY(sqrt, SQRT)
SN_KIR_UNARY(rsqrt, RSQRT)
SN_KIR_UNARY(exp, EXP)
SN_KIR_UNARY(log, LOG)
SN_KIR_UNARY(tanh, TANH)
SN_KIR_UNARY(sigmoid, SIGMOID)
SN_KIR_UNARY(erf, ERF)
SN_KIR_BINARY(add, ADD)
SN_KIR_BINARY(sub, SUB)
SN_KIR_BINARY(mul, MUL)
SN_KIR_BINARY(div, DIV)
SN_KIR_BINARY(rem, REM)
SN_KIR_BINARY(min, MIN)
SN_KIR_BINARY(max, MAX)
SN_KIR_BINARY(and, AND)
SN_KIR_BINARY(or, OR)
SN_KIR_BINARY(eq, EQ)
SN_KIR_BINARY(ne, NE)
SN_KIR_BINARY(lt, LT)
SN_KIR_BINARY(le, LE)
SN_KIR_BINARY(gt, GT)
SN_KIR_BINARY(ge, GE)
SN_KIR_IMMEDIATE(addi, ADD)
SN_KIR_IMMEDIATE(muli, MUL)
SN_KIR_IMMEDIATE(divi, FLOOR_DIV)
SN_KIR_IMMEDIATE(modi, FLOOR_MOD)
SN_KIR_IMMEDIATE(mini, MIN)
SN_KIR_IMMEDIATE(maxi, MAX)
#undef SN_KIR_UNARY
#undef SN_KIR_BINARY
#undef SN_KIR_IMMEDIATE

// Appends the kernel as text, for dumps.
void sn_kir_print(const sn_kir *k, sn_str *out);
// Checks types, that values are used where they exist, that lanes do not nest, barriers and scratch, and that every
// index not guarded by an `if` or a predicate provably lies in its buffer. NULL when fine, else what is wrong (in k's
// arena).
const char *sn_kir_verify(sn_kir *k);
// Runs blocks [begin, end) slowly, for tests: `buffers` holds one pointer per parameter. Aborts on an index out of
// range.
void sn_kir_evaluate(const sn_kir *k, void *const *buffers, int64_t begin, int64_t end);
