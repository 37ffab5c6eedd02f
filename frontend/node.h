// What a handler of an ONNX operator (frontend/ops_*.c) sees: the node with its inputs, attributes and outputs, and
// known values. A handler that cannot go on leaves through sn_node_fail or sn_node_unsupported: they record a
// diagnostic and do not return; the node's outputs then stand for nothing, and nodes that read them are skipped.
#pragma once
#include "frontend/onnx.h"
#include "ir/build.h"
#include "ir/interp.h"

#include <onnx.pb-c.h>

typedef struct sn_import sn_import; // frontend/import.h
typedef struct sn_node sn_node;

// A list of tensors, which exists during the import only.
typedef struct sn_tensor_sequence {
    int count;
    sn_value **items;
} sn_tensor_sequence;

const char *sn_node_name(const sn_node *n); // the node's name, or "Conv:y" from its operator and first output
int64_t sn_node_opset(const sn_node *n);
sn_op_kind sn_node_kind(const sn_node *n); // the fourth column of opset.def
sn_builder *sn_node_builder(sn_node *n);
sn_arena *sn_node_arena(sn_node *n); // for the duration of the import
sn_onnx_mode sn_node_mode(const sn_node *n);

// The model's mistake: a diagnostic with the node's name. help: the way out; NULL for the usual one (sn_import_help).
_Noreturn void sn_node_fail(sn_node *n, const char *help, const char *format, ...) SN_PRINTF(3, 4);
_Noreturn void sn_node_unsupported(sn_node *n, const char *format, ...) SN_PRINTF(2, 3);

// Inputs. An index beyond the end, or an empty name, is an absent input.
int sn_node_inputs(const sn_node *n);
bool sn_node_has(const sn_node *n, int input);
sn_value *sn_node_in(sn_node *n, int input);       // fails when absent
sn_value *sn_node_optional(sn_node *n, int input); // NULL when absent
const sn_tensor_sequence *sn_node_sequence(sn_node *n, int input);
bool sn_node_is_sequence(sn_node *n, int input);

// Outputs.
int sn_node_outputs(const sn_node *n);
bool sn_node_wants(const sn_node *n, int output);
void sn_node_out(sn_node *n, int output, sn_value *value); // nothing when no one wants it
void sn_node_out_sequence(sn_node *n, int output, const sn_tensor_sequence *sequence);

// Attributes. One of the wrong type fails.
const Onnx__AttributeProto *sn_node_attr(const sn_node *n, const char *name); // NULL when absent
int64_t sn_node_int(sn_node *n, const char *name, int64_t otherwise);
int64_t sn_node_int_within(sn_node *n, const char *name, int64_t otherwise, int64_t low, int64_t high); // else fails
sn_dtype sn_node_dtype(sn_node *n, const char *name, sn_dtype otherwise); // of an ONNX element type; else unsupported
double sn_node_float(sn_node *n, const char *name, double otherwise);
const char *sn_node_string(sn_node *n, const char *name, const char *otherwise);
bool sn_node_string_is(sn_node *n, const char *name, const char *otherwise, const char *expected);
const int64_t *sn_node_ints(sn_node *n, const char *name, int *count); // NULL when absent
// The dims-many list of an attribute, or `otherwise` in each place; fails for a number that is not in low … INT32_MAX.
void sn_node_list(sn_node *n, const char *name, int count, int64_t otherwise, int64_t low, int64_t *out);
const char *sn_node_list_string(sn_node *n, const char *name, int index); // NULL beyond the end

// Values known at compile time: results of folding, constants, and whatever else can be known when `value` decides a
// shape. NULL when it depends on data. The tensor lives as long as the import.
const sn_tensor *sn_node_known(sn_node *n, const sn_value *value);
// The same for what is constant whoever asks: neither inputs nor parameters.
const sn_tensor *sn_node_folded(sn_node *n, const sn_value *value);
// A known input as integers; fails when it depends on data, or is absent.
const int64_t *sn_node_known_ints(sn_node *n, int input, int *count);
// A known input's single number; `otherwise` when the input is absent, fails when it depends on data. The integer form
// fails for a float that is none.
double sn_node_known_number(sn_node *n, int input, double otherwise);
int64_t sn_node_known_int(sn_node *n, int input, int64_t otherwise);
// An attribute in older opsets, an input (its index) in newer ones. NULL when absent.
const int64_t *sn_node_ints_or_input(sn_node *n, const char *name, int input, int *count);

// The type of a shape that the node asks for; fails when tensors cannot have it (sn_shape_is_valid).
sn_type sn_node_type(sn_node *n, sn_dtype dtype, int64_t rank, const int64_t *dims);
// x * y of sizes, which are not negative; fails when no tensor could be as large.
int64_t sn_node_times(sn_node *n, int64_t x, int64_t y);
// Zeroed memory for a table of this type that the import computes; fails when that is more than SN_LARGEST_TABLE bytes.
enum { SN_LARGEST_TABLE = 256 << 20 };
void *sn_node_table(sn_node *n, sn_type type);
// A value that holds `data` (copied), known from the start.
sn_value *sn_node_constant(sn_node *n, sn_type type, const void *data);
sn_value *sn_node_constant_ints(sn_node *n, int rank, const int64_t *dims, const int64_t *data);

// An axis as given, made non-negative; fails when it is out of range.
int sn_node_axis(sn_node *n, int64_t axis, int rank);
// The values of a subgraph attribute run on `inputs`; `outputs` has room for as many as the subgraph has.
const Onnx__GraphProto *sn_node_graph(sn_node *n, const char *name); // fails when absent
void sn_node_inline(sn_node *n, const Onnx__GraphProto *graph, int n_inputs, sn_value *const *inputs,
                    sn_value **outputs);

// "$seed" and "$step" of the function, and a number of this random op that does not depend on the plan.
void sn_node_random(sn_node *n, sn_value **seed, sn_value **step, int64_t *id);

// Ops, with their result types inferred; operands that do not fit fail. An op whose operands are all known is
// evaluated at once. `typed`: the result types of TYPED operators.
sn_op *sn_emit(sn_node *n, sn_op_kind kind, int n_operands, sn_value *const *operands, int n_attrs,
               const sn_attr *attrs, const sn_type *typed);
sn_value *sn_emit_unary(sn_node *n, sn_op_kind kind, sn_value *x);
sn_value *sn_emit_binary(sn_node *n, sn_op_kind kind, sn_value *x, sn_value *y);
sn_value *sn_emit_number(sn_node *n, sn_op_kind kind, sn_value *x, double number); // binary with a scalar
sn_value *sn_emit_where(sn_node *n, sn_value *condition, sn_value *x, sn_value *y);
sn_value *sn_emit_cast(sn_node *n, sn_value *x, sn_dtype dtype); // x itself when it has the type
sn_value *sn_emit_splat(sn_node *n, sn_type type, double number);
sn_value *sn_emit_scalar(sn_node *n, sn_dtype dtype, double number);
sn_value *sn_emit_iota(sn_node *n, sn_type type, int axis, int64_t start, int64_t step);
sn_value *sn_emit_reshape(sn_node *n, sn_value *x, int rank, const int64_t *dims);
sn_value *sn_emit_transpose(sn_node *n, sn_value *x, const int64_t *perm);
sn_value *sn_emit_broadcast(sn_node *n, sn_value *x, int rank, const int64_t *dims);
sn_value *sn_emit_slice(sn_node *n, sn_value *x, const int64_t *starts, const int64_t *steps, const int64_t *sizes);
// size elements of one dim from start on.
sn_value *sn_emit_part(sn_node *n, sn_value *x, int axis, int64_t start, int64_t size);
sn_value *sn_emit_pad(sn_node *n, sn_value *x, const int64_t *low, const int64_t *high, double number);
sn_value *sn_emit_concat(sn_node *n, int count, sn_value *const *parts, int axis);
sn_value *sn_emit_gather(sn_node *n, sn_value *x, sn_value *indices, int axis);
sn_value *sn_emit_reduce(sn_node *n, sn_op_kind kind, sn_value *x, int n_axes, const int64_t *axes, bool keepdims);
sn_value *sn_emit_reduce_axis(sn_node *n, sn_op_kind kind, sn_value *x, int axis, bool keepdims);
// The mean over axes, dims kept.
sn_value *sn_emit_mean(sn_node *n, sn_value *x, int n_axes, const int64_t *axes);
sn_value *sn_emit_matmul(sn_node *n, sn_value *x, sn_value *y, bool transpose_x, bool transpose_y);
sn_value *sn_emit_along(sn_node *n, sn_op_kind kind, sn_value *x, int axis); // an op with the one attribute `axis`
// x reshaped to [1, …, dims of x, …, 1] of `rank` dims, its first dim at `at`, so that it broadcasts; fails when it has
// too many dims for that.
sn_value *sn_emit_aligned(sn_node *n, sn_value *x, int at, int rank);
