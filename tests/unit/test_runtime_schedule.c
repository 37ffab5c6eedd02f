// The schedule's JSON: what is written reads back, and what does not fit is refused with its place.
#include "runtime/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// A model of two axes with one instruction of every kind; all operands fit.
typedef struct sample {
    int64_t shape[2], local[2], masks[2];
    sn_schedule_axis mesh[2];
    sn_buffer buffers[3];
    sn_resident globals[1];
    sn_data_input inputs[1];
    sn_special specials[2];
    sn_output gradients[1];
    sn_setting settings[1];
    const char *kernels[1], *origins[1];
    sn_view args[2];
    int64_t arg_bytes[2], access[2];
    sn_instr instrs[SN_INSTR_COUNT];
    sn_program programs[1];
    sn_sequence_run runs[2];
    sn_sequence sequences[1];
    sn_schedule schedule;
    sn_schedules schedules;
} sample;

static void make_instrs(sample *s) {
    sn_view v = {0, 0};
    for (int i = 0; i < SN_INSTR_COUNT; i++) {
        s->instrs[i] = (sn_instr){.kind = (sn_instr_kind)i, .stream = SN_STREAM_COMPUTE, .phase = SN_PHASE_BACKWARD};
        sn_instr *in = &s->instrs[i];
        switch (in->kind) {
        case SN_INSTR_KERNEL:
            in->kernel = (sn_do_kernel){
                .grid = 7, .args = {s->args, 2}, .arg_bytes = {s->arg_bytes, 2}, .access = {s->access, 2}};
            break;
        case SN_INSTR_GEMM:
            in->gemm = (sn_do_gemm){.dtype = SN_F32,
                                    .m = 2,
                                    .n = 3,
                                    .k = 4,
                                    .transpose_b = true,
                                    .lda = 4,
                                    .ldb = 4,
                                    .ldc = 3,
                                    .batch_rank = 1,
                                    .batch = {2},
                                    .stride_a = {8},
                                    .stride_c = {6},
                                    .alpha = 0.1,
                                    .beta = 1,
                                    .a = v,
                                    .b = v,
                                    .c = {1, 64}};
            break;
        case SN_INSTR_CONV:
        case SN_INSTR_CONV_INPUT_GRAD:
        case SN_INSTR_CONV_WEIGHT_GRAD:
            in->conv = (sn_do_conv){.spatial = 2,
                                    .batch = 1,
                                    .in_channels = 2,
                                    .out_channels = 2,
                                    .groups = 1,
                                    .in = {4, 4},
                                    .kernel = {3, 3},
                                    .out = {2, 4},
                                    .stride = {1, 1},
                                    .dilation = {1, 1},
                                    .pad_begin = {0, 1},
                                    .pad_end = {0, 1},
                                    .x = v,
                                    .w = v,
                                    .y = v};
            break;
        case SN_INSTR_ATTENTION:
        case SN_INSTR_ATTENTION_GRAD:
            in->attention = (sn_do_attention){.batch = 1,
                                              .heads = 2,
                                              .kv_heads = 1,
                                              .sq = 2,
                                              .skv = 2,
                                              .d = 4,
                                              .dv = 4,
                                              .scale = 0.5,
                                              .causal = true,
                                              .q = v,
                                              .k = v,
                                              .v = v,
                                              .o = v,
                                              .lse = v,
                                              .mask = SN_NO_VIEW,
                                              .grad_o = v,
                                              .grad_q = v,
                                              .grad_k = v,
                                              .grad_v = v};
            break;
        case SN_INSTR_ALL_REDUCE:
        case SN_INSTR_ALL_GATHER:
        case SN_INSTR_REDUCE_SCATTER:
        case SN_INSTR_ALL_TO_ALL:
        case SN_INSTR_BROADCAST:
            in->collective = (sn_do_collective){
                .dtype = SN_F32, .reduce = SN_REDUCE_MAX, .axes = 2, .count = 8, .from = v, .to = {1, 0}};
            break;
        case SN_INSTR_SEND:
        case SN_INSTR_RECV:
            in->transfer = (sn_do_transfer){.dtype = SN_F32, .channel = 3, .count = 8, .view = v};
            break;
        case SN_INSTR_COPY:
            in->copy = (sn_do_copy){.dtype = SN_F32,
                                    .rank = 2,
                                    .dims = {2, 3},
                                    .from_stride = {1, 2},
                                    .to_stride = {3, 1},
                                    .from = v,
                                    .to = {1, 0}};
            break;
        case SN_INSTR_FILL:
            in->fill = (sn_do_fill){.dtype = SN_F32, .count = 4, .value = -__builtin_inf(), .to = v};
            break;
        case SN_INSTR_RECORD:
        case SN_INSTR_WAIT:
            in->event.event = 3;
            break;
        case SN_INSTR_COUNT:
            break;
        }
    }
}

static void make_sample(sample *s) {
    *s = (sample){.shape = {4, 8}, .local = {2, 8}, .masks = {1, 0}};
    sn_dims shape = {s->shape, 2}, local = {s->local, 2}, masks = {s->masks, 2};
    s->mesh[0] = (sn_schedule_axis){"dp", 2}, s->mesh[1] = (sn_schedule_axis){"tp", 3};
    s->buffers[0] = (sn_buffer){"w", SN_F32, local, 0, 1024, 1, 0, {0}};
    s->buffers[1] = (sn_buffer){"g \"quoted\"", SN_F32, local, 1024, 1024, 1, 0, {0}};
    s->buffers[2] = (sn_buffer){"step", SN_I64, {0}, 2048, 8, 1, 0, {0}};
    s->globals[0] = (sn_resident){
        .name = "w",
        .role = SN_RESIDENT_PARAMETER,
        .shape = shape,
        .sharding = masks,
        .source = {
            .kind = SN_INITIAL_FILE, .path = "/m.onnx", .offset = 5, .bytes = 128, .dtype = SN_F32, .value = 0.1}};
    s->inputs[0] = (sn_data_input){.name = "x",
                                   .buffer = 1,
                                   .shape = shape,
                                   .sharding = masks,
                                   .has_range = true,
                                   .hi = 65,
                                   .has_ignore = true,
                                   .ignore_index = -100};
    s->specials[0] = (sn_special){.kind = SN_SPECIAL_STEP, .buffer = 2};
    s->specials[1] = (sn_special){.kind = SN_SPECIAL_COORDINATE, .buffer = 2, .axis = 1};
    s->gradients[0] = (sn_output){"w", 1, shape, {0}, masks};
    s->settings[0] = (sn_setting){"warmup", "100"};
    s->kernels[0] = "k_gelu", s->origins[0] = "/h.0/mlp/Gelu <- autodiff";
    s->args[0] = (sn_view){0, 4}, s->args[1] = (sn_view){1, 8};
    for (int i = 0; i < 2; i++) s->arg_bytes[i] = 16, s->access[i] = 1 + i;
    make_instrs(s);
    s->programs[0] = (sn_program){"step", {s->instrs, SN_INSTR_COUNT}};
    s->runs[0] = (sn_sequence_run){0, 0, true}, s->runs[1] = (sn_sequence_run){0, -1, false};
    s->sequences[0] = (sn_sequence){"step", {s->runs, 2}};
    s->schedule = (sn_schedule){.pipeline_axis = -1,
                                .model_path = "/m.onnx",
                                .model_bytes = 133,
                                .model_hash = "a",
                                .plan_hash = "b",
                                .mesh = {s->mesh, 2},
                                .ranks = 6,
                                .threads = 2,
                                .arena_bytes = 4096,
                                .micro_batches = 1,
                                .step_samples = 4,
                                .lr = 1e-3,
                                .kernels = {s->kernels, 1},
                                .origins = {s->origins, 1},
                                .settings = {s->settings, 1},
                                .buffers = {s->buffers, 3},
                                .globals = {s->globals, 1},
                                .inputs = {s->inputs, 1},
                                .specials = {s->specials, 2},
                                .loss = -1,
                                .eval_loss = -1,
                                .grad_norm = -1,
                                .gradients = {s->gradients, 1},
                                .programs = {s->programs, 1},
                                .sequences = {s->sequences, 1}};
    s->schedules = (sn_schedules){SN_SCHEDULE_VERSION, {&s->schedule, 1}};
}

static void written_reads_back(void **state) {
    (void)state;
    sample s;
    make_sample(&s);
    sn_str first = {0}, second = {0};
    sn_schedules_write(&s.schedules, &first);
    sn_arena arena = {0};
    sn_schedules all;
    sn_status status = sn_schedules_read(sn_str_text(&first), first.length, &arena, &all);
    assert_string_equal(sn_status_message(status), "");
    sn_schedule read = all.classes.items[0];
    sn_schedules_write(&all, &second);
    assert_string_equal(sn_str_text(&first), sn_str_text(&second));

    assert_int_equal(read.programs.items[0].instrs.count, SN_INSTR_COUNT);
    const sn_do_gemm *gemm = &sn_schedule_program(&read, "step")->instrs.items[SN_INSTR_GEMM].gemm;
    assert_memory_equal(gemm, &s.instrs[SN_INSTR_GEMM].gemm, sizeof *gemm);
    assert_memory_equal(&read.programs.items[0].instrs.items[SN_INSTR_FILL].fill.value,
                        &s.instrs[SN_INSTR_FILL].fill.value, sizeof(double));
    assert_int_equal(read.programs.items[0].instrs.items[SN_INSTR_ATTENTION].attention.mask.buffer, -1);
    assert_string_equal(read.buffers.items[1].name, "g \"quoted\"");
    assert_int_equal(read.inputs.items[0].ignore_index, -100);
    assert_int_equal(read.globals.items[0].sharding.items[0], 1);
    assert_null(read.globals.items[0].of);
    assert_null(sn_schedule_program(&read, "eval"));
    sn_str_free(&first), sn_str_free(&second), sn_arena_free(&arena);
}

// `status` must be an error whose text holds `part`.
static void assert_refused(sn_status status, const char *part) {
    assert_non_null(status);
    if (!strstr(sn_status_message(status), part)) fail_msg("'%s' lacks '%s'", sn_status_message(status), part);
    sn_status_free(status);
}

static void operands_must_fit(void **state) {
    (void)state;
    sample s;
    make_sample(&s);
    s.instrs[SN_INSTR_GEMM].gemm.c.offset = 1024 - 4 * 11;
    assert_refused(sn_schedule_check(&s.schedule), "gemm #1 of step (/h.0/mlp/Gelu <- autodiff): operand c reaches");
    make_sample(&s);
    s.instrs[SN_INSTR_ALL_GATHER].collective.count = 86; // three of them need 1032 bytes
    assert_refused(sn_schedule_check(&s.schedule), "operand to reaches beyond its buffer");
    make_sample(&s);
    s.instrs[SN_INSTR_CONV].conv.out[1] = 3;
    assert_refused(sn_schedule_check(&s.schedule), "operand y does not have the convolution's size");
    make_sample(&s);
    s.instrs[SN_INSTR_COPY].copy.from_stride[1] = INT64_MAX;
    assert_refused(sn_schedule_check(&s.schedule), "operand from is too large");
    make_sample(&s);
    s.buffers[1].offset = 4096 - 512;
    assert_refused(sn_schedule_check(&s.schedule), "does not fit where it is put");
    make_sample(&s);
    s.local[0] = 4;
    assert_refused(sn_schedule_check(&s.schedule), "the shards of 'w' do not make up its shape");
    make_sample(&s);
    s.globals[0].source.bytes = 127;
    assert_refused(sn_schedule_check(&s.schedule), "source of 'w'");
}

static void runs_and_slots_must_fit(void **state) {
    (void)state;
    sample s;
    make_sample(&s);
    s.runs[1].program = 1;
    assert_refused(sn_schedule_check(&s.schedule), "run 1 of 'step' has no such program");
    make_sample(&s);
    s.runs[0].micro_batch = 1;
    assert_refused(sn_schedule_check(&s.schedule), "run 0 of 'step' has no such micro-batch");
    make_sample(&s);
    s.runs[1].load = true; // of no micro-batch
    assert_refused(sn_schedule_check(&s.schedule), "run 1 of 'step' has no such micro-batch");
    make_sample(&s);
    s.buffers[1].slots = 3, s.buffers[1].slot_bytes = 1024; // to 4096
    assert_null(sn_schedule_check(&s.schedule));
    assert_int_equal(sn_buffer_offset(&s.buffers[1], 4), 2048);
    assert_int_equal(sn_buffer_offset(&s.buffers[1], -1), 1024);
    s.schedule.micro_batches = 4;
    s.buffers[1].slot_of = (sn_dims){(int64_t[]){2, 0, 1, 0}, 4};
    assert_null(sn_schedule_check(&s.schedule));
    assert_int_equal(sn_buffer_offset(&s.buffers[1], 0), 3072);
    assert_int_equal(sn_buffer_offset(&s.buffers[1], 3), 1024);
    s.buffers[1].slot_of.items[2] = 3;
    assert_refused(sn_schedule_check(&s.schedule), "no slot for each micro-batch");
    s.buffers[1].slot_of.count = 2;
    assert_refused(sn_schedule_check(&s.schedule), "no slot for each micro-batch");
    make_sample(&s);
    s.buffers[1].slots = 4, s.buffers[1].slot_bytes = 1024;
    assert_refused(sn_schedule_check(&s.schedule), "does not fit where it is put");
    s.buffers[1].slots = 2, s.buffers[1].slot_bytes = 960;
    assert_refused(sn_schedule_check(&s.schedule), "does not fit where it is put");
    make_sample(&s);
    s.buffers[0].slots = 2, s.buffers[0].slot_bytes = 1024;
    assert_refused(sn_schedule_check(&s.schedule), "outlives a step, but has slots");
    make_sample(&s);
    s.instrs[SN_INSTR_SEND].transfer.peer = 1;
    assert_refused(sn_schedule_check(&s.schedule), "peer is not on the pipeline axis");
    make_sample(&s);
    s.access[0] = 0;
    assert_refused(sn_schedule_check(&s.schedule), "neither read nor written");
    make_sample(&s);
    s.arg_bytes[1] = 2000;
    assert_refused(sn_schedule_check(&s.schedule), "reaches beyond its buffer");
}

static void classes_must_fit_together(void **state) {
    (void)state;
    sample a, b;
    make_sample(&a), make_sample(&b);
    sn_schedule classes[2];
    sn_schedules all = {SN_SCHEDULE_VERSION, {classes, 2}};
    a.schedule.pipeline_axis = b.schedule.pipeline_axis = 0; // of size 2
    b.globals[0].name = "v";
    classes[0] = a.schedule, classes[1] = b.schedule;
    assert_null(sn_schedules_check(&all));
    for (int64_t rank = 0; rank < 6; rank++) assert_int_equal(sn_schedules_class(&all, rank), rank / 3);
    all.classes.count = 1;
    assert_refused(sn_schedules_check(&all), "1 rank classes, but 2 on the pipeline axis");
    all.classes.count = 2;
    b.globals[0].name = "w";
    assert_refused(sn_schedules_check(&all), "two globals called 'w'");
    b.globals[0].role = SN_RESIDENT_CONSTANT; // each class may have its own
    assert_null(sn_schedules_check(&all));
    classes[1].step_samples++;
    assert_refused(sn_schedules_check(&all), "class 1 does not fit the first");
    classes[1] = b.schedule;
    b.sequences[0].name = "eval";
    assert_refused(sn_schedules_check(&all), "class 1 does not fit the first");
    b.sequences[0].name = "step";
    classes[1].pipeline_axis = 1;
    assert_refused(sn_schedules_check(&all), "class 1 does not fit the first");
}

static sn_status read_text(const char *text) {
    sn_arena arena = {0};
    sn_schedules read;
    sn_status status = sn_schedules_read(text, strlen(text), &arena, &read);
    sn_arena_free(&arena);
    return status;
}

static void malformed_text_is_refused(void **state) {
    (void)state;
    assert_refused(read_text("{"), "line 1");
    assert_refused(read_text("[]"), "not of version");
    assert_refused(read_text("{\"version\": 99}"), "not of version");
    assert_refused(read_text("{\"version\": 3}"), "'classes' is missing");
    sample s;
    make_sample(&s);
    sn_str text = {0};
    sn_schedules_write(&s.schedules, &text);
    char *at = strstr(text.data, "\"all_reduce\"");
    memcpy(at, "\"all_rEduce\"", 12);
    assert_refused(read_text(text.data), "'kind' is not one of its words");
    // Every truncation is refused without a crash.
    for (size_t length = 0; length + 1 < text.length; length += 37) {
        char kept = text.data[length];
        text.data[length] = 0;
        assert_refused(read_text(text.data), "schedule");
        text.data[length] = kept;
    }
    sn_str_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_reads_back),        cmocka_unit_test(operands_must_fit),
        cmocka_unit_test(runs_and_slots_must_fit),   cmocka_unit_test(classes_must_fit_together),
        cmocka_unit_test(malformed_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
