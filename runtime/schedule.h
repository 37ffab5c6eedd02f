// The schedule: everything a train executable runs, the contract between the backend (which writes it) and the runtime
// (which executes it). It travels as JSON inside the executable (runtime/package.h).
//
// Ranks form a mesh of named axes; rank r has row-major coordinates in it (the last axis varies fastest). Along the
// pipeline axis ranks run different programs: there is one schedule per coordinate on it, a *rank class*; without one,
// one schedule serves all ranks. Within a class the program is SPMD. Sizes are in elements unless a name says bytes.
// All memory lies in one arena per rank at addresses fixed here: offsets count bytes from the arena's start.
//
// A schedule says what to do twice: programs are lists of instructions on streams, sequences are lists of runs of
// programs, each for one micro-batch. A run starts when the run before it has ended on all streams.
//
// Lists are {items, count}; the items belong to whoever built the schedule (an sn_arena as a rule).
#pragma once
#include "base/arena.h"
#include "base/dtype.h"
#include "base/phase.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define SN_SCHEDULE_VERSION    3
#define SN_SCHEDULE_ALIGNMENT  64 // of every buffer's offset in the arena, in bytes
#define SN_SCHEDULE_BATCH_DIMS 6
#define SN_SCHEDULE_COPY_DIMS  8
#define SN_SCHEDULE_SLOTS      4096 // of a buffer, at most

#define SN_LIST(type)                                                                                                  \
    struct {                                                                                                           \
        type *items;                                                                                                   \
        size_t count;                                                                                                  \
    }

typedef SN_LIST(int64_t) sn_dims; // count is the rank; a 0-d value has none
typedef SN_LIST(const char *) sn_texts;

// Bytes of a buffer from `offset` on; the instruction that uses a view knows how many it touches and with what strides.
// Two views of one buffer, or two buffers at overlapping offsets, may share memory.
typedef struct sn_view {
    int64_t buffer; // index into schedule.buffers, or -1: none (only where an operand is optional)
    int64_t offset; // bytes
} sn_view;
#define SN_NO_VIEW ((sn_view){-1, 0})
typedef SN_LIST(sn_view) sn_views;

typedef struct sn_schedule_axis {
    const char *name; // "dp"
    int64_t size;
} sn_schedule_axis;

// A value that lives from one program to another of the same micro-batch (an input, an activation kept for the backward
// pass) has a slot for each micro-batch in flight: in a run for micro-batch m it lies at
// offset + slot_of[m] * slot_bytes, and at offset in a run for none. Slots may be shared with other buffers, of other
// micro-batches' values.
typedef struct sn_buffer {
    const char *name;
    sn_dtype dtype;
    sn_dims shape;         // local: what this rank holds, dense and row-major
    int64_t offset, bytes; // of one slot
    int64_t slots;         // 0 and 1: one
    int64_t slot_bytes;    // distance of two slots, a multiple of the alignment and >= bytes; 0 for one slot
    sn_dims slot_of;       // by micro-batch; empty: micro-batch m takes slot m % slots
} sn_buffer;

typedef enum sn_resident_role {
    SN_RESIDENT_PARAMETER, // trained
    SN_RESIDENT_STATE,     // changes without a gradient: running statistics
    SN_RESIDENT_MOMENT,    // the optimizer's, of one parameter
    SN_RESIDENT_CONSTANT,  // never changes, not in checkpoints
    SN_RESIDENT_SUM, // adds up over the micro-batches of a step, back at its first value after it: not in checkpoints
    SN_RESIDENT_ROLE_COUNT
} sn_resident_role;

typedef enum sn_initial_kind {
    SN_INITIAL_FILE,    // bytes [offset, offset + bytes) of `path`
    SN_INITIAL_PAYLOAD, // bytes [offset, offset + bytes) of the executable's constants
    SN_INITIAL_FILL,    // every element is `value`
    SN_INITIAL_COUNT
} sn_initial_kind;

// Where a global's first values come from: the whole (global) tensor, dense and row-major, little endian.
typedef struct sn_initial {
    sn_initial_kind kind;
    const char *path; // SN_INITIAL_FILE only, absolute; else NULL
    int64_t offset, bytes;
    sn_dtype dtype; // as stored; converted when the buffer's differs
    double value;   // SN_INITIAL_FILL only
} sn_initial;

// A tensor that outlives a step. Each name belongs to one rank class.
typedef struct sn_resident {
    const char *name; // ONNX initializer; moments: "optimizer.m.NAME", "optimizer.v.NAME"
    sn_resident_role role;
    const char *of; // the parameter that a moment belongs to; else NULL
    int64_t buffer;
    sn_dims shape;    // global
    sn_dims pieces;   // the shape with dims taken apart where they are not cut in blocks: [3, h] of a fused dim of 3 h
                      // that is cut by heads; the same elements in the same order. Empty: the shape itself
    sn_dims sharding; // per dimension (of pieces) a bit mask of the mesh axes that cut it (bit i: axis i; major first);
                      // empty: none
    sn_initial source;
} sn_resident;

// A graph input fed from the data, one micro-batch at a time. `dtype` of the buffer is what the graph wants.
typedef struct sn_data_input {
    const char *name;  // of the graph input, and of its .npy file
    int64_t buffer;    // holds the rank's part of one micro-batch
    sn_dims shape;     // global, of one micro-batch
    int64_t batch_dim; // -1: the same value in every step (the file then holds exactly that value)
    sn_dims sharding;  // as for globals
    bool is_label;     // the loss reads it as class ids or target
    bool has_range;    // integers: every value must lie in [lo, hi) or equal ignore_index
    int64_t lo, hi;
    bool has_ignore;
    int64_t ignore_index;
} sn_data_input;

typedef enum sn_special_kind {
    SN_SPECIAL_STEP,       // i64: number of this step, from 1; in a run for micro-batch m of a training step
                           // (step - 1) * micro_batches + m + 1
    SN_SPECIAL_SEED,       // i64
    SN_SPECIAL_LR,         // f32: learning rate of this step
    SN_SPECIAL_COORDINATE, // i64: this rank's coordinate on mesh axis `axis`
    SN_SPECIAL_COUNT
} sn_special_kind;

// A scalar that the runtime writes before every run of a program.
typedef struct sn_special {
    sn_special_kind kind;
    int64_t buffer; // 0-d, of the type above
    int64_t axis;   // SN_SPECIAL_COORDINATE only
} sn_special;

// A value that the runtime reads back after a sequence ran.
typedef struct sn_output {
    const char *name; // gradients: the initializer's; predictions: the graph output's
    int64_t buffer;
    sn_dims shape;  // global
    sn_dims pieces; // as for globals
    sn_dims sharding;
} sn_output;

typedef enum sn_stream { SN_STREAM_COMPUTE, SN_STREAM_COMM, SN_STREAM_COUNT } sn_stream;

// What a kernel looks like in kernels.so: runs blocks [begin, end) of [0, grid); blocks are independent. `args` are
// addresses in the order of the instruction's.
typedef void (*sn_kernel_function)(void *const *args, int64_t begin, int64_t end);

enum { SN_ACCESS_READ = 1, SN_ACCESS_WRITE = 2 };

typedef struct sn_do_kernel {
    int64_t symbol; // index into schedule.kernels
    int64_t grid;
    bool one_thread; // the blocks add to the same elements: they run in order on one thread
    sn_views args;
    sn_dims arg_bytes, access; // per argument: how many bytes from its view on, and SN_ACCESS_*, both for in place
} sn_do_kernel;

// c[m, n] = alpha * op(a)[m, k] op(b)[k, n] + beta * c, row-major; op(a) is a[k, m] transposed when transpose_a, and so
// on; ld* is the distance of two rows as stored. Repeated over the batch dimensions (batch_rank of them, outermost
// first), operands moving by strides in elements; a stride 0 in a or b broadcasts. beta = 0 never reads c.
typedef struct sn_do_gemm {
    sn_dtype dtype; // f32
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    int64_t lda, ldb, ldc;
    int64_t batch_rank;
    int64_t batch[SN_SCHEDULE_BATCH_DIMS];
    int64_t stride_a[SN_SCHEDULE_BATCH_DIMS], stride_b[SN_SCHEDULE_BATCH_DIMS], stride_c[SN_SCHEDULE_BATCH_DIMS];
    double alpha, beta;
    sn_view a, b, c;
} sn_do_gemm;

// y[n, out_channels, out…] = x[n, in_channels, in…] (*) w[out_channels, in_channels / groups, kernel…], f32, dense,
// cross-correlation as in ONNX Conv, no bias. The gradients use the same shapes: conv_input_grad reads y (the gradient)
// and w, writes x; conv_weight_grad reads x and y, writes w. ConvTranspose is conv_input_grad.
typedef struct sn_do_conv {
    int64_t spatial; // 1 … 3: how many entries of the arrays count
    int64_t batch, in_channels, out_channels, groups;
    int64_t in[3], kernel[3], out[3], stride[3], dilation[3], pad_begin[3], pad_end[3];
    sn_view x, w, y;
} sn_do_conv;

// o = softmax(softcap(scale q kᵀ) + mask) v for every batch and query head; all but lse, which is f32, are of `dtype`:
// f32 or a float of 16 bits, with sums in f32. Query head h reads key/value head h / (heads / kv_heads). With causal,
// row i sees columns j <= i + causal_offset. softcap c > 0: s -> c tanh(s / c). Strides are in elements for (batch,
// head, row); the last dimension is dense. mask (optional) is added; its strides are (batch, head, row, column), 0
// broadcasts. lse[batch, heads, sq] (dense) receives log of the softmax's denominator, natural logarithm, maximum
// included; a row that sees nothing gives o = 0. attention_grad reads q, k, v, mask, o, lse and grad_o and writes
// grad_q, grad_k, grad_v with q's, k's, v's shapes.
typedef struct sn_do_attention {
    sn_dtype dtype;
    int64_t batch, heads, kv_heads, sq, skv, d, dv;
    double scale, softcap;
    bool causal;
    int64_t causal_offset;
    sn_view q, k, v, mask, o, lse, grad_o, grad_q, grad_k, grad_v;
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3], mask_stride[4];
    int64_t grad_o_stride[3], grad_q_stride[3], grad_k_stride[3], grad_v_stride[3];
} sn_do_attention;

typedef enum sn_reduce { SN_REDUCE_SUM, SN_REDUCE_MAX, SN_REDUCE_COUNT } sn_reduce;

// Collectives over the mesh axes in `axes` (bit mask); P is the group's size, members in row-major order of their
// coordinates. `count` elements: all_reduce and broadcast: in all (from -> to, which may be equal); all_gather: of
// `from` (`to` has P of them); reduce_scatter: of `to` (`from` has P); all_to_all: for each peer. broadcast sends the
// first member's. Floats of 16 bits travel as they are, are reduced in f32 and rounded once.
typedef struct sn_do_collective {
    sn_dtype dtype;
    sn_reduce reduce;
    int64_t axes;
    int64_t count;
    sn_view from, to;
} sn_do_collective;

// Between the ranks whose coordinates differ on the pipeline axis alone. A send meets the receive of the same channel
// and micro-batch; within one channel and micro-batch they meet in order. A send is buffered: when it has run, `view`
// may be overwritten, whether or not the other side has received. A receive ends when the elements are there.
typedef struct sn_do_transfer {
    sn_dtype dtype;
    int64_t peer;    // the other side's coordinate on the pipeline axis; may be this rank's own
    int64_t channel; // one per value that crosses a cut, the same on both sides, from 0
    int64_t count;
    sn_view view; // what is sent, or where it is received
} sn_do_transfer;

// to[i·to_stride] = from[i·from_stride] over `rank` dimensions; same type on both sides.
typedef struct sn_do_copy {
    sn_dtype dtype;
    int64_t rank;
    int64_t dims[SN_SCHEDULE_COPY_DIMS];
    int64_t from_stride[SN_SCHEDULE_COPY_DIMS], to_stride[SN_SCHEDULE_COPY_DIMS]; // elements
    sn_view from, to;
} sn_do_copy;

typedef struct sn_do_fill {
    sn_dtype dtype;
    int64_t count;
    double value;
    sn_view to;
} sn_do_fill;

// record marks the point in its stream; wait holds its stream until that point of the other stream is reached. Events
// are numbered from 0 in each program; each is recorded once per run.
typedef struct sn_do_event {
    int64_t event;
} sn_do_event;

// enum suffix, name, member of the union, type
#define SN_INSTRUCTIONS(X)                                                                                             \
    X(KERNEL, "kernel", kernel, sn_do_kernel)                                                                          \
    X(GEMM, "gemm", gemm, sn_do_gemm)                                                                                  \
    X(CONV, "conv", conv, sn_do_conv)                                                                                  \
    X(CONV_INPUT_GRAD, "conv_input_grad", conv, sn_do_conv)                                                            \
    X(CONV_WEIGHT_GRAD, "conv_weight_grad", conv, sn_do_conv)                                                          \
    X(ATTENTION, "attention", attention, sn_do_attention)                                                              \
    X(ATTENTION_GRAD, "attention_grad", attention, sn_do_attention)                                                    \
    X(ALL_REDUCE, "all_reduce", collective, sn_do_collective)                                                          \
    X(ALL_GATHER, "all_gather", collective, sn_do_collective)                                                          \
    X(REDUCE_SCATTER, "reduce_scatter", collective, sn_do_collective)                                                  \
    X(ALL_TO_ALL, "all_to_all", collective, sn_do_collective)                                                          \
    X(BROADCAST, "broadcast", collective, sn_do_collective)                                                            \
    X(SEND, "send", transfer, sn_do_transfer)                                                                          \
    X(RECV, "recv", transfer, sn_do_transfer)                                                                          \
    X(COPY, "copy", copy, sn_do_copy)                                                                                  \
    X(FILL, "fill", fill, sn_do_fill)                                                                                  \
    X(RECORD, "record", event, sn_do_event)                                                                            \
    X(WAIT, "wait", event, sn_do_event)

typedef enum sn_instr_kind {
#define X(suffix, ...) SN_INSTR_##suffix,
    SN_INSTRUCTIONS(X)
#undef X
        SN_INSTR_COUNT
} sn_instr_kind;

typedef struct sn_instr {
    sn_instr_kind kind;
    sn_stream
        stream; // collectives and transfers may run on either; a program without SN_STREAM_COMM needs no second thread
    sn_phase phase;
    int64_t origin; // index into schedule.origins; -1: none
    union {
        sn_do_kernel kernel;
        sn_do_gemm gemm;
        sn_do_conv conv;
        sn_do_attention attention;
        sn_do_collective collective;
        sn_do_transfer transfer;
        sn_do_copy copy;
        sn_do_fill fill;
        sn_do_event event;
    };
} sn_instr;

typedef struct sn_program {
    const char *name;
    SN_LIST(sn_instr) instrs;
} sn_program;

typedef struct sn_sequence_run {
    int64_t program;     // index into schedule.programs
    int64_t micro_batch; // from 0; -1: of no micro-batch (the update)
    bool load;           // put that micro-batch's data into this class's inputs first
} sn_sequence_run;

// The runtime knows these names; those that a model has no use for are absent, in all classes alike:
//   "step"       a whole training step over all micro-batches; writes `loss` and `grad_norm`
//   "gradients"  forward and backward of a step without the update; writes `gradients`
//   "eval"       forward of one micro-batch, as for inference; writes `eval_loss`
//   "predict"    forward of one micro-batch; writes `predictions`
typedef struct sn_sequence {
    const char *name;
    SN_LIST(sn_sequence_run) runs;
} sn_sequence;

// A run option fixed at compile time, as on the command line: {"warmup", "100"}. The command line overrides it.
typedef struct sn_setting {
    const char *name, *value;
} sn_setting;

// What the ranks of one class run. What concerns all ranks (up to settings) is the same in all classes.
typedef struct sn_schedule {
    const char *model_path; // absolute
    int64_t model_bytes;    // size of that file, checked at start when a source reads from it
    const char *model_hash; // text, copied into checkpoints
    const char *plan_hash;  // text, equal on all ranks
    SN_LIST(sn_schedule_axis) mesh;
    int64_t pipeline_axis; // index into mesh: the axis whose coordinate is the rank class; -1: one class
    int64_t ranks;         // product of the mesh
    int64_t threads;       // per rank; 0: cores / ranks of the machine it runs on
    int64_t arena_bytes;
    int64_t micro_batches; // per step (1: no accumulation)
    int64_t step_samples;  // rows of data that one step consumes over all ranks and micro-batches
    double lr;             // base learning rate; schedules scale it
    sn_texts kernels;      // symbols in kernels.so
    sn_texts origins;      // ONNX node names with the passes that derived from them
    SN_LIST(sn_setting) settings;
    SN_LIST(sn_buffer) buffers;
    SN_LIST(sn_resident) globals;
    SN_LIST(sn_data_input) inputs;
    SN_LIST(sn_special) specials;
    // Scalars of the whole model, in buffers of the classes that compute them (the lowest one speaks); -1: not here.
    int64_t loss;                 // 0-d f32: global mean
    int64_t eval_loss;            // 0-d f32
    int64_t grad_norm;            // 0-d f32: global norm before clipping
    SN_LIST(sn_output) gradients; // of this class's parameters, valid after "gradients", unscaled by clipping
    SN_LIST(sn_output) predictions;
    SN_LIST(sn_program) programs;
    SN_LIST(sn_sequence) sequences;
} sn_schedule;

// The schedules of all rank classes: what a train executable carries.
typedef struct sn_schedules {
    int64_t version;
    SN_LIST(sn_schedule) classes; // by coordinate on the pipeline axis
} sn_schedules;

const char *sn_instr_name(sn_instr_kind kind);
bool sn_resident_is_saved(const sn_resident *resident); // in checkpoints
bool sn_instr_is_collective(sn_instr_kind kind);
const sn_program *sn_schedule_program(const sn_schedule *schedule, const char *name);   // NULL when absent
const sn_sequence *sn_schedule_sequence(const sn_schedule *schedule, const char *name); // NULL when absent
// "gemm #12 of step (/h.0/mlp/c_fc/MatMul <- autodiff)", for messages.
void sn_schedule_describe(const sn_schedule *schedule, const sn_program *program, size_t index, sn_str *out);
// Where a buffer lies in a run for micro-batch `micro_batch` (-1: none): bytes from the arena's start.
int64_t sn_buffer_offset(const sn_buffer *buffer, int64_t micro_batch);
// Index of the rank class of a rank; the class's schedule is its own.
int64_t sn_schedules_class(const sn_schedules *schedules, int64_t rank);
bool sn_schedules_use_comm_stream(const sn_schedules *schedules); // in any class
bool sn_schedules_use_transfers(const sn_schedules *schedules);

// JSON, one line per list item. Never fails; floats read back to the same bits.
void sn_schedules_write(const sn_schedules *schedules, sn_str *out);
// Everything the result points at is in `arena`. Errors (malformed text, unknown version, what sn_schedules_check
// finds) name the item.
SN_MUST_USE sn_status sn_schedules_read(const char *text, size_t length, sn_arena *arena, sn_schedules *out);
// Of one class: indices in range, buffers inside the arena and aligned, the extent of every operand inside its buffer,
// micro-batches in range.
SN_MUST_USE sn_status sn_schedule_check(const sn_schedule *schedule);
// Of each class, and that they fit together: one per coordinate, the same mesh, sequences and settings, no name in two.
SN_MUST_USE sn_status sn_schedules_check(const sn_schedules *schedules);
