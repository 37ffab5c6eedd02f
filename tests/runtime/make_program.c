// Usage: make_program RUNNER KERNELS RANKS STREAM DATA OUT: writes a train executable for the kernels of kernels.c, and
// the data it trains on. STREAM is "one" or "two": where the collective runs.
#include "base/arena.h"
#include "base/file.h"
#include "base/str.h"
#include "runtime/package.h"
#include "runtime/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 12, SAMPLES = 64 };
enum { W, B, M, X, TARGET, RESIDUAL, ROWS, SUMS, LR, LOSS, NORM, Y, BUFFERS };

static int64_t none[1];
static int64_t batch_shape[1] = {BATCH}, local_shape[1], sums_shape[1] = {3}, masks[1] = {1};

static sn_buffer buffers[BUFFERS];
static sn_resident globals[4];
static sn_data_input inputs[2];
static sn_special specials[1];
static sn_output gradients[2], predictions[1];
static sn_program programs[4];
static sn_sequence_run runs[4];
static sn_sequence sequences[4];
static sn_instr step[8], eval[4], predict[1];
static sn_view views[8][8];
static int64_t access[8][8], sizes[8][8];
static int n_views;

static void set_buffer(int i, const char *name, sn_dtype dtype, int64_t *shape, size_t rank) {
    buffers[i] = (sn_buffer){name, dtype, {shape, rank}, 128 * i, 128, 1, 0, {0}};
}

// The first `reads` arguments are read alone, the others written too.
static sn_instr kernel(int64_t symbol, int64_t grid, int reads, int count, const int *args) {
    sn_view *list = views[n_views];
    int64_t *bytes = sizes[n_views], *how = access[n_views++];
    for (int i = 0; i < count; i++) {
        const sn_buffer *b = &buffers[args[i]];
        list[i] = (sn_view){args[i], 0};
        bytes[i] = (int64_t)sn_dtype_bytes(b->dtype);
        for (size_t d = 0; d < b->shape.count; d++) bytes[i] *= b->shape.items[d];
        how[i] = i < reads ? SN_ACCESS_READ : args[i] < X ? SN_ACCESS_READ | SN_ACCESS_WRITE : SN_ACCESS_WRITE;
    }
    size_t n = (size_t)count;
    return (sn_instr){
        .kind = SN_INSTR_KERNEL,
        .kernel = {.symbol = symbol, .grid = grid, .args = {list, n}, .arg_bytes = {bytes, n}, .access = {how, n}}};
}
#define KERNEL(symbol, grid, reads, ...)                                                                               \
    kernel(symbol, grid, reads, sizeof((int[]){__VA_ARGS__}) / sizeof(int), (const int[]){__VA_ARGS__})

static sn_instr event(sn_instr_kind kind, sn_stream stream, int64_t number) {
    return (sn_instr){.kind = kind, .stream = stream, .origin = -1, .event = {number}};
}

static void make_buffers(int64_t ranks) {
    local_shape[0] = BATCH / ranks;
    set_buffer(W, "w", SN_F32, none, 0), set_buffer(B, "b", SN_F32, none, 0), set_buffer(M, "m", SN_F32, none, 0);
    set_buffer(X, "x", SN_F32, local_shape, 1), set_buffer(TARGET, "target", SN_F32, local_shape, 1);
    set_buffer(RESIDUAL, "residual", SN_F32, local_shape, 1), set_buffer(ROWS, "rows", SN_I64, none, 0);
    set_buffer(SUMS, "sums", SN_F32, sums_shape, 1), set_buffer(LR, "lr", SN_F32, none, 0);
    set_buffer(LOSS, "loss", SN_F32, none, 0), set_buffer(NORM, "norm", SN_F32, none, 0);
    set_buffer(Y, "y", SN_F32, local_shape, 1);
}

static void make_globals(int64_t ranks) {
    sn_initial weight = {.kind = SN_INITIAL_PAYLOAD, .bytes = 4, .dtype = SN_F32}, zero = {.kind = SN_INITIAL_FILL};
    sn_initial rows = {.kind = SN_INITIAL_FILL, .dtype = SN_I64, .value = (double)(BATCH / ranks)};
    globals[0] = (sn_resident){"w", SN_RESIDENT_PARAMETER, NULL, W, {0}, {0}, {0}, weight};
    globals[1] = (sn_resident){"b", SN_RESIDENT_PARAMETER, NULL, B, {0}, {0}, {0}, zero};
    globals[2] = (sn_resident){"optimizer.m.w", SN_RESIDENT_MOMENT, "w", M, {0}, {0}, {0}, zero};
    globals[3] = (sn_resident){"rows", SN_RESIDENT_CONSTANT, NULL, ROWS, {0}, {0}, {0}, rows};
    inputs[0] = (sn_data_input){.name = "x", .buffer = X, .shape = {batch_shape, 1}, .sharding = {masks, 1}};
    inputs[1] = (sn_data_input){
        .name = "target", .buffer = TARGET, .shape = {batch_shape, 1}, .sharding = {masks, 1}, .is_label = true};
    specials[0] = (sn_special){SN_SPECIAL_LR, LR, 0};
    gradients[0] = (sn_output){"sums", SUMS, {sums_shape, 1}, {0}, {0}};
    predictions[0] = (sn_output){"y", Y, {batch_shape, 1}, {0}, {masks, 1}};
}

static void make_programs(int64_t rows, bool two) {
    sn_stream comm = two ? SN_STREAM_COMM : SN_STREAM_COMPUTE;
    sn_instr reduce = {
        .kind = SN_INSTR_ALL_REDUCE,
        .stream = comm,
        .origin = 0,
        .collective = {
            .dtype = SN_F32, .reduce = SN_REDUCE_SUM, .axes = 1, .count = 3, .from = {SUMS, 0}, .to = {SUMS, 0}}};
    size_t n = 0;
    step[n++] = KERNEL(0, rows, 4, W, B, X, TARGET, RESIDUAL);
    step[n++] = KERNEL(1, 1, 3, X, RESIDUAL, ROWS, SUMS);
    if (two) step[n++] = event(SN_INSTR_RECORD, SN_STREAM_COMPUTE, 0), step[n++] = event(SN_INSTR_WAIT, comm, 0);
    step[n++] = reduce;
    if (two) step[n++] = event(SN_INSTR_RECORD, comm, 1), step[n++] = event(SN_INSTR_WAIT, SN_STREAM_COMPUTE, 1);
    step[n++] = KERNEL(2, 1, 2, SUMS, LR, W, B, M, LOSS, NORM);
    programs[0] = (sn_program){"step", {step, n}};
    reduce.stream = SN_STREAM_COMPUTE;
    eval[0] = step[0], eval[1] = step[1], eval[2] = reduce;
    eval[3] =
        (sn_instr){.kind = SN_INSTR_COPY, .origin = -1, .copy = {.dtype = SN_F32, .from = {SUMS, 8}, .to = {LOSS, 0}}};
    programs[1] = (sn_program){"eval", {eval, 4}};
    predict[0] = KERNEL(3, rows, 3, W, B, X, Y);
    programs[2] = (sn_program){"predict", {predict, 1}};
    programs[3] = (sn_program){"gradients", {eval, 3}};
}

static void make_sequences(void) {
    for (int i = 0; i < 4; i++) {
        runs[i] = (sn_sequence_run){i, 0, true};
        sequences[i] = (sn_sequence){programs[i].name, {&runs[i], 1}};
    }
}

static void write_npy(const char *folder, const char *name, const float *values) {
    sn_str path = {0}, bytes = {0};
    sn_str_printf(&path, "%s/%s.npy", folder, name);
    sn_str_append(&bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
    sn_str_printf(&bytes, "%-117s\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (64,), }");
    sn_str_append(&bytes, (const char *)values, SAMPLES * sizeof *values);
    sn_status status = sn_file_write(path.data, bytes.data, bytes.length);
    if (status) SN_BUG("%s", sn_status_message(status));
    sn_str_free(&path), sn_str_free(&bytes);
}

int main(int argc, char **argv) {
    SN_CHECK(argc == 7);
    int64_t ranks = atoi(argv[3]);
    make_buffers(ranks);
    make_globals(ranks);
    make_programs(BATCH / ranks, !strcmp(argv[4], "two"));
    make_sequences();
    const char *kernels[] = {"k_residual", "k_gradient", "k_update", "k_predict"}, *origins[] = {"/loss"};
    sn_schedule_axis mesh[] = {{"dp", ranks}};
    sn_schedule schedule = {.pipeline_axis = -1,
                            .model_hash = "test",
                            .plan_hash = "test",
                            .mesh = {mesh, 1},
                            .ranks = ranks,
                            .threads = 1,
                            .arena_bytes = 128 * BUFFERS,
                            .micro_batches = 1,
                            .step_samples = BATCH,
                            .lr = 0.05,
                            .kernels = {kernels, 4},
                            .origins = {origins, 1},
                            .buffers = {buffers, BUFFERS},
                            .globals = {globals, 4},
                            .inputs = {inputs, 2},
                            .specials = {specials, 1},
                            .loss = LOSS,
                            .eval_loss = LOSS,
                            .grad_norm = NORM,
                            .gradients = {gradients, 1},
                            .predictions = {predictions, 1},
                            .programs = {programs, 4},
                            .sequences = {sequences, 4}};
    sn_schedules schedules = {SN_SCHEDULE_VERSION, {&schedule, 1}};
    sn_str text = {0};
    sn_schedules_write(&schedules, &text);
    sn_mapped_file library;
    sn_status status = sn_file_map(argv[2], &library);
    if (status) SN_BUG("%s", sn_status_message(status));
    float weight = 0.25f;
    sn_package package = {.schedule = {text.data, text.length},
                          .kernels = {library.data, library.bytes},
                          .constants = {&weight, sizeof weight}};
    status = sn_package_write(&package, argv[1], argv[6]);
    if (!status) status = sn_make_directories(argv[5]);
    if (status) SN_BUG("%s", sn_status_message(status));
    float x[SAMPLES], target[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        x[i] = (float)(i % 13) / 7 - 0.8f, target[i] = 1.5f * x[i] - 0.3f + (float)(i % 5) / 50;
    write_npy(argv[5], "x", x), write_npy(argv[5], "target", target);
    sn_str_free(&text), sn_file_unmap(&library);
    return 0;
}
