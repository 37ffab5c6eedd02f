// Usage: make_pipeline RUNNER KERNELS STAGES REPLICAS STREAM DATA OUT: writes a train executable for the kernels of
// pipeline_kernels.c, over a mesh [pp=STAGES, dp=REPLICAS], with three micro-batches in 1F1B order, and the data it
// trains on. STAGES is 1 or 2: with one, both stages' programs are one. STREAM is "one" or "two": where ranks talk;
// or "stuck": the first stage waits for what nobody sends.
#include "base/arena.h"
#include "base/file.h"
#include "base/vec.h"
#include "runtime/package.h"
#include "runtime/schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 12, PARTS = 3, MICRO = BATCH / PARTS, SAMPLES = 48, SLOT = 128 };
enum { PP, DP };
enum { H, GRAD_H, NOBODY_SENDS }; // channels
enum { SCALE, RESIDUAL, GRAD1, GRAD0, UPDATE0, UPDATE1, LOSS_OF, PREDICT, KERNELS };
static const char *const kernels[KERNELS] = {"k_scale",   "k_residual", "k_grad1", "k_grad0",
                                             "k_update0", "k_update1",  "k_loss",  "k_predict"};
static const char *const origins[KERNELS] = {"\"/first/Mul\"",
                                             "\"/second/Gemm\"",
                                             "\"/second/Gemm\" <- autodiff",
                                             "\"/first/Mul\" <- autodiff",
                                             "w0 <- optimizer",
                                             "w1 <- optimizer",
                                             "\"/loss\"",
                                             "\"/second/Gemm\""};

// One rank class that is built up.
typedef struct builder {
    sn_arena *arena;
    bool first, last, two, stuck; // which stages it has; whether ranks talk on the second stream; as above
    int64_t replicas, events;
    SN_VEC(sn_buffer) buffers;
    SN_VEC(sn_resident) globals;
    SN_VEC(sn_data_input) inputs;
    SN_VEC(sn_instr) instrs;
    SN_VEC(sn_program) programs;
    SN_VEC(sn_sequence_run) runs;
    SN_VEC(sn_sequence) sequences;
    int64_t w0, m0, sums0, w1, b1, sums1, rows, x, target, h, grad_h, residual, y, lr, loss, norm;
    sn_phase phase;
} builder;

#define COPY(b, vec)                                                                                                   \
    { sn_arena_copy((b)->arena, (vec).data, (vec).count * sizeof *(vec).data), (vec).count }

static sn_dims dims(builder *b, int64_t size) { // 0: a scalar
    return (sn_dims){sn_arena_copy(b->arena, &size, sizeof size), size ? 1 : 0};
}

static int64_t buffer(builder *b, const char *name, sn_dtype dtype, int64_t size, int64_t slots) {
    sn_buffer made = {name, dtype, dims(b, size), 0, SLOT, slots, SLOT, {0}};
    for (size_t i = 0; i < b->buffers.count; i++) made.offset += SLOT * b->buffers.data[i].slots;
    sn_vec_push(&b->buffers, made);
    return (int64_t)b->buffers.count - 1;
}

static int64_t global(builder *b, const char *name, sn_resident_role role, const char *of, sn_dtype dtype, int64_t size,
                      double value) {
    int64_t index = buffer(b, name, dtype, size, 1);
    sn_initial fill = {.kind = SN_INITIAL_FILL, .dtype = dtype, .value = value};
    sn_vec_push(
        &b->globals,
        (sn_resident){.name = name, .role = role, .of = of, .buffer = index, .shape = dims(b, size), .source = fill});
    return index;
}

static int64_t input(builder *b, const char *name, bool label) {
    int64_t index = buffer(b, name, SN_F32, MICRO / b->replicas, 2), cut = 1 << DP;
    sn_dims sharding = {sn_arena_copy(b->arena, &cut, sizeof cut), 1};
    sn_vec_push(&b->inputs,
                (sn_data_input){
                    .name = name, .buffer = index, .shape = dims(b, MICRO), .sharding = sharding, .is_label = label});
    return index;
}

static void add(builder *b, sn_instr in) {
    in.phase = b->phase;
    sn_vec_push(&b->instrs, in);
}

// Arguments are written when they are negative (~buffer), read and written when they are beyond 1000.
enum { BOTH = 1000 };
static void kernel(builder *b, int64_t symbol, int64_t grid, int count, ...) {
    sn_view views[8];
    int64_t bytes[8], access[8];
    va_list args;
    va_start(args, count);
    for (int i = 0; i < count; i++) {
        int64_t arg = va_arg(args, int64_t), at = arg < 0 ? ~arg : arg % BOTH;
        const sn_dims *shape = &b->buffers.data[at].shape;
        views[i] = (sn_view){at, 0};
        bytes[i] = (int64_t)sn_dtype_bytes(b->buffers.data[at].dtype) * (shape->count ? shape->items[0] : 1);
        access[i] = arg < 0 ? SN_ACCESS_WRITE : arg >= BOTH ? SN_ACCESS_READ | SN_ACCESS_WRITE : SN_ACCESS_READ;
    }
    va_end(args);
    size_t n = (size_t)count;
    add(b, (sn_instr){.kind = SN_INSTR_KERNEL,
                      .origin = symbol,
                      .kernel = {.symbol = symbol,
                                 .grid = grid,
                                 .args = {sn_arena_copy(b->arena, views, n * sizeof *views), n},
                                 .arg_bytes = {sn_arena_copy(b->arena, bytes, n * sizeof *bytes), n},
                                 .access = {sn_arena_copy(b->arena, access, n * sizeof *access), n}}});
}

static void event(builder *b, sn_instr_kind kind, sn_stream stream, int64_t number) {
    add(b, (sn_instr){.kind = kind, .stream = stream, .origin = -1, .event = {number}});
}

// What talks, on its stream, between what comes before and after it.
static void talk(builder *b, sn_instr in) {
    in.stream = b->two ? SN_STREAM_COMM : SN_STREAM_COMPUTE;
    if (b->two) {
        event(b, SN_INSTR_RECORD, SN_STREAM_COMPUTE, b->events);
        event(b, SN_INSTR_WAIT, SN_STREAM_COMM, b->events++);
    }
    add(b, in);
    if (b->two) {
        event(b, SN_INSTR_RECORD, SN_STREAM_COMM, b->events);
        event(b, SN_INSTR_WAIT, SN_STREAM_COMPUTE, b->events++);
    }
}

static void transfer(builder *b, sn_instr_kind kind, int64_t channel, int64_t what) {
    if (b->first && b->last) return;
    talk(b, (sn_instr){.kind = kind,
                       .origin = channel == H ? SCALE : GRAD1,
                       .transfer = {.dtype = SN_F32,
                                    .peer = b->first ? 1 : 0,
                                    .channel = channel,
                                    .count = MICRO / b->replicas,
                                    .view = {what, 0}}});
}

static void sum(builder *b, int64_t axes, int64_t what, int64_t count, int64_t origin) {
    talk(b,
         (sn_instr){.kind = SN_INSTR_ALL_REDUCE,
                    .origin = origin,
                    .collective = {.dtype = SN_F32, .axes = axes, .count = count, .from = {what, 0}, .to = {what, 0}}});
}

static void end_program(builder *b, const char *name) {
    size_t at = b->programs.count;
    sn_program program = {name, COPY(b, b->instrs)};
    sn_vec_push(&b->programs, program);
    SN_CHECK(b->programs.data[at].instrs.count == b->instrs.count);
    b->instrs.count = 0, b->events = 0;
}

static void make_buffers(builder *b) {
    int64_t local = MICRO / b->replicas;
    b->rows = global(b, "rows", SN_RESIDENT_CONSTANT, NULL, SN_I64, 0, (double)local);
    if (b->first) {
        b->w0 = global(b, "w0", SN_RESIDENT_PARAMETER, NULL, SN_F32, 0, 0.5);
        b->m0 = global(b, "optimizer.m.w0", SN_RESIDENT_MOMENT, "w0", SN_F32, 0, 0);
        b->sums0 = global(b, "w0.grad", SN_RESIDENT_SUM, "w0", SN_F32, 0, 0);
        b->x = input(b, "x", false);
    }
    if (b->last) {
        b->w1 = global(b, "w1", SN_RESIDENT_PARAMETER, NULL, SN_F32, 0, 0.75);
        b->b1 = global(b, "b1", SN_RESIDENT_PARAMETER, NULL, SN_F32, 0, 0);
        b->sums1 = global(b, "second.grad", SN_RESIDENT_SUM, NULL, SN_F32, 3, 0);
        b->target = input(b, "target", true);
        b->residual = buffer(b, "residual", SN_F32, local, 1);
        b->y = buffer(b, "y", SN_F32, local, 1);
        b->loss = buffer(b, "loss", SN_F32, 0, 1);
    }
    b->h = buffer(b, "h", SN_F32, local, 2);
    b->grad_h = buffer(b, "grad_h", SN_F32, local, 1);
    b->lr = buffer(b, "lr", SN_F32, 0, 1);
    b->norm = buffer(b, "norm", SN_F32, 0, 1);
}

static void make_programs(builder *b) {
    int64_t local = MICRO / b->replicas;
    b->phase = SN_PHASE_FORWARD;
    if (b->first) kernel(b, SCALE, local, 3, b->w0, b->x, ~b->h);
    transfer(b, b->first ? SN_INSTR_SEND : SN_INSTR_RECV, H, b->h);
    if (b->last) kernel(b, PREDICT, local, 4, b->w1, b->b1, b->h, ~b->y);
    end_program(b, "predict");
    if (b->first && b->stuck) transfer(b, SN_INSTR_RECV, NOBODY_SENDS, b->grad_h);
    if (b->first) kernel(b, SCALE, local, 3, b->w0, b->x, ~b->h);
    transfer(b, b->first ? SN_INSTR_SEND : SN_INSTR_RECV, H, b->h);
    end_program(b, "forward");

    b->phase = SN_PHASE_BACKWARD;
    if (b->last) kernel(b, RESIDUAL, local, 5, b->w1, b->b1, b->h, b->target, ~b->residual);
    if (b->last) kernel(b, GRAD1, 1, 6, b->h, b->residual, b->w1, b->rows, b->sums1 + BOTH, ~b->grad_h);
    transfer(b, b->last ? SN_INSTR_SEND : SN_INSTR_RECV, GRAD_H, b->grad_h);
    if (b->first) kernel(b, GRAD0, 1, 4, b->x, b->grad_h, b->rows, b->sums0 + BOTH);
    end_program(b, "backward");

    b->phase = SN_PHASE_UPDATE;
    add(b, (sn_instr){.kind = SN_INSTR_FILL, .origin = -1, .fill = {.dtype = SN_F32, .count = 1, .to = {b->norm, 0}}});
    if (b->first) sum(b, 1 << DP, b->sums0, 1, GRAD0);
    if (b->first) kernel(b, UPDATE0, 1, 5, b->lr, b->sums0 + BOTH, b->w0 + BOTH, b->m0 + BOTH, b->norm + BOTH);
    if (b->last) sum(b, 1 << DP, b->sums1, 3, GRAD1);
    if (b->last) kernel(b, UPDATE1, 1, 6, b->lr, b->sums1 + BOTH, b->w1 + BOTH, b->b1 + BOTH, ~b->loss, b->norm + BOTH);
    sum(b, 1 << PP, b->norm, 1, -1);
    end_program(b, "update");

    b->phase = SN_PHASE_FORWARD;
    if (b->first) kernel(b, SCALE, local, 3, b->w0, b->x, ~b->h);
    transfer(b, b->first ? SN_INSTR_SEND : SN_INSTR_RECV, H, b->h);
    if (b->last) {
        kernel(b, RESIDUAL, local, 5, b->w1, b->b1, b->h, b->target, ~b->residual);
        kernel(b, LOSS_OF, 1, 3, b->residual, b->rows, ~b->loss);
        sum(b, 1 << DP, b->loss, 1, LOSS_OF);
    }
    end_program(b, "eval");
}

enum { PROGRAM_PREDICT, PROGRAM_FORWARD, PROGRAM_BACKWARD, PROGRAM_UPDATE, PROGRAM_EVAL };

static void run(builder *b, int64_t program, int64_t micro_batch) {
    bool load = micro_batch >= 0 && program != PROGRAM_BACKWARD;
    sn_vec_push(&b->runs, (sn_sequence_run){program, micro_batch, load});
}

static void end_sequence(builder *b, const char *name) {
    sn_sequence sequence = {name, COPY(b, b->runs)};
    sn_vec_push(&b->sequences, sequence);
    b->runs.count = 0;
}

static void make_sequences(builder *b) {
    int64_t ahead = b->first && !b->last ? 1 : 0; // forwards before the first backward, 1F1B
    for (int64_t m = 0; m < ahead; m++) run(b, PROGRAM_FORWARD, m);
    for (int64_t m = 0; m < PARTS; m++) {
        if (m + ahead < PARTS) run(b, PROGRAM_FORWARD, m + ahead);
        run(b, PROGRAM_BACKWARD, m);
    }
    run(b, PROGRAM_UPDATE, -1);
    end_sequence(b, "step");
    run(b, PROGRAM_EVAL, 0);
    end_sequence(b, "eval");
    run(b, PROGRAM_PREDICT, 0);
    end_sequence(b, "predict");
}

static sn_schedule make_class(builder *b, int64_t stages) {
    int64_t micro = MICRO, cut = 1 << DP;
    make_buffers(b);
    make_programs(b);
    make_sequences(b);
    sn_schedule_axis mesh[] = {{"pp", stages}, {"dp", b->replicas}};
    sn_special lr = {.kind = SN_SPECIAL_LR, .buffer = b->lr};
    sn_output y = {.name = "y",
                   .buffer = b->y,
                   .shape = {sn_arena_copy(b->arena, &micro, sizeof micro), 1},
                   .sharding = {sn_arena_copy(b->arena, &cut, sizeof cut), 1}};
    const sn_buffer *end = &sn_vec_last(&b->buffers);
    sn_schedule s = {.model_hash = "test",
                     .plan_hash = stages == 1 ? "one" : "two",
                     .mesh = {sn_arena_copy(b->arena, mesh, sizeof mesh), 2},
                     .pipeline_axis = PP,
                     .ranks = stages * b->replicas,
                     .threads = 1,
                     .arena_bytes = end->offset + SLOT * end->slots,
                     .micro_batches = PARTS,
                     .step_samples = BATCH,
                     .lr = 0.05,
                     .kernels = {sn_arena_copy(b->arena, kernels, sizeof kernels), KERNELS},
                     .origins = {sn_arena_copy(b->arena, origins, sizeof origins), KERNELS},
                     .buffers = COPY(b, b->buffers),
                     .globals = COPY(b, b->globals),
                     .inputs = COPY(b, b->inputs),
                     .specials = {sn_arena_copy(b->arena, &lr, sizeof lr), 1},
                     .loss = b->last ? b->loss : -1,
                     .eval_loss = b->last ? b->loss : -1,
                     .grad_norm = b->norm,
                     .predictions = {sn_arena_copy(b->arena, &y, sizeof y), b->last},
                     .programs = COPY(b, b->programs),
                     .sequences = COPY(b, b->sequences)};
    return s;
}

static void write_npy(const char *folder, const char *name, const float *values) {
    sn_str path = {0}, bytes = {0};
    sn_str_printf(&path, "%s/%s.npy", folder, name);
    sn_str_append(&bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
    sn_str_printf(&bytes, "%-117s\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (48,), }");
    sn_str_append(&bytes, (const char *)values, SAMPLES * sizeof *values);
    sn_status status = sn_file_write(path.data, bytes.data, bytes.length);
    if (status) SN_BUG("%s", sn_status_message(status));
    sn_str_free(&path), sn_str_free(&bytes);
}

int main(int argc, char **argv) {
    SN_CHECK(argc == 8);
    int64_t stages = atoi(argv[3]), replicas = atoi(argv[4]);
    sn_arena arena = {0};
    sn_schedule classes[2];
    for (int64_t c = 0; c < stages; c++) {
        builder b = {
            .arena = &arena, .replicas = replicas, .two = !strcmp(argv[5], "two"), .stuck = !strcmp(argv[5], "stuck")};
        b.first = c == 0, b.last = c == stages - 1;
        classes[c] = make_class(&b, stages);
    }
    sn_schedules all = {SN_SCHEDULE_VERSION, {classes, (size_t)stages}};
    sn_str text = {0};
    sn_schedules_write(&all, &text);
    sn_mapped_file library;
    sn_status status = sn_file_map(argv[2], &library);
    if (status) SN_BUG("%s", sn_status_message(status));
    sn_package package = {.schedule = {text.data, text.length}, .kernels = {library.data, library.bytes}};
    status = sn_package_write(&package, argv[1], argv[7]);
    if (!status) status = sn_make_directories(argv[6]);
    if (status) SN_BUG("%s", sn_status_message(status));
    float x[SAMPLES], target[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        x[i] = (float)(i % 13) / 7 - 0.8f, target[i] = 1.5f * x[i] - 0.3f + (float)(i % 5) / 50;
    write_npy(argv[6], "x", x), write_npy(argv[6], "target", target);
    return 0; // the arena and the vectors end with the process
}
