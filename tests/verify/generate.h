// Random schedules that are sound by construction: pipelines of one to four classes over [pp, dp], with layers, kept
// activations in slots, temporaries that share bytes, gradients that are summed over dp, and scalars over pp; on one
// stream or two.
#pragma once
#include "base/arena.h"
#include "base/vec.h"
#include "runtime/operands.h"
#include "runtime/schedule.h"

#include <string.h>

// SplitMix64 (Steele, Lea and Flood 2014).
typedef struct gen_random {
    uint64_t state;
} gen_random;

static int64_t gen_random_below(gen_random *r, int64_t n) {
    uint64_t x = r->state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (int64_t)((x ^ (x >> 31)) % (uint64_t)n);
}

enum { GEN_CLASSES = 4, GEN_LAYERS = 3, GEN_ALIGN = SN_SCHEDULE_ALIGNMENT };
enum { GEN_PP, GEN_DP };
enum { GEN_FORWARD, GEN_BACKWARD, GEN_UPDATE, GEN_LOSS, GEN_PROGRAMS };

typedef struct gen_pending { // on the communication stream, not waited for yet
    int64_t event, buffers[2];
} gen_pending;

typedef struct gen_life { // of a temporary, in positions of its program
    int64_t buffer;
    size_t first, last;
    bool communicated;
} gen_life;

typedef struct gen_class {
    sn_arena *arena;
    gen_random *random;
    int index, count, replicas, parts, layers, slots;
    bool two, gpipe;
    SN_VEC(sn_buffer) buffers;
    SN_VEC(sn_resident) globals;
    SN_VEC(sn_data_input) inputs;
    SN_VEC(sn_instr) instrs;
    SN_VEC(sn_program) programs;
    SN_VEC(sn_sequence_run) runs;
    SN_VEC(sn_sequence) sequences;
    SN_VEC(gen_pending) pending;
    SN_VEC(gen_life) lives; // of the program
    SN_VEC(int64_t) temporaries;
    int64_t resident, temporary; // bytes
    int64_t events, size;
    int64_t weights[GEN_LAYERS], sums[GEN_LAYERS], kept[GEN_LAYERS + 1];
    int64_t target, total, lr, norm, flag, loss, eval_loss, constant;
    sn_phase phase;
} gen_class;

typedef struct gen_schedules {
    sn_arena arena;
    sn_schedule classes[GEN_CLASSES];
    sn_schedules all;
    int parts, slots[GEN_CLASSES];
    bool two;
} gen_schedules;

#define GEN_COPY(c, vec)                                                                                               \
    { sn_arena_copy((c)->arena, (vec).data, (vec).count * sizeof *(vec).data), (vec).count }

static int64_t gen_below(gen_class *c, int64_t n) {
    return gen_random_below(c->random, n);
}

static int64_t gen_align(int64_t bytes) {
    return (bytes + GEN_ALIGN - 1) / GEN_ALIGN * GEN_ALIGN;
}

static sn_dims gen_dims(gen_class *c, int64_t size) {
    return (sn_dims){sn_arena_copy(c->arena, &size, sizeof size), size ? 1 : 0};
}

// A buffer with a place of its own, `slots` times.
static int64_t gen_buffer(gen_class *c, const char *name, int64_t size, int64_t slots) {
    int64_t bytes = 4 * (size ? size : 1);
    sn_buffer b = {.name = sn_arena_printf(c->arena, "%s.%d.%zu", name, c->index, c->buffers.count),
                   .dtype = SN_F32,
                   .shape = gen_dims(c, size),
                   .offset = c->resident,
                   .bytes = bytes,
                   .slots = slots,
                   .slot_bytes = slots > 1 ? gen_align(bytes) : 0};
    c->resident += slots * gen_align(bytes);
    sn_vec_push(&c->buffers, b);
    return (int64_t)c->buffers.count - 1;
}

static int64_t gen_temporary(gen_class *c, int64_t size) {
    int64_t before = c->resident, buffer = gen_buffer(c, "t", size, 1);
    c->resident = before; // placed when the program is complete
    sn_vec_push(&c->temporaries, buffer);
    sn_vec_push(&c->lives, (gen_life){.buffer = buffer, .first = SIZE_MAX});
    return buffer;
}

static int64_t gen_global(gen_class *c, const char *name, sn_resident_role role, int64_t size) {
    int64_t buffer = gen_buffer(c, name, size, 1);
    sn_vec_push(&c->globals, (sn_resident){.name = c->buffers.data[buffer].name,
                                           .role = role,
                                           .buffer = buffer,
                                           .shape = gen_dims(c, size),
                                           .source = {.kind = SN_INITIAL_FILL, .dtype = SN_F32}});
    return buffer;
}

static void gen_push(gen_class *c, sn_instr in) {
    in.phase = c->phase;
    sn_vec_push(&c->instrs, in);
}

static void gen_event(gen_class *c, sn_instr_kind kind, sn_stream stream, int64_t event) {
    gen_push(c, (sn_instr){.kind = kind, .stream = stream, .origin = -1, .event = {event}});
}

static void gen_touch(gen_class *c, int64_t buffer, bool communicated) {
    for (size_t i = 0; i < c->lives.count; i++) {
        gen_life *l = &c->lives.data[i];
        if (l->buffer != buffer) continue;
        if (l->first == SIZE_MAX) l->first = c->instrs.count;
        l->last = c->instrs.count;
        l->communicated = l->communicated || communicated;
    }
}

// Waits for what is under way and touches `buffer`, or for everything when it is -1.
static void gen_settle(gen_class *c, int64_t buffer) {
    for (size_t i = 0; i < c->pending.count;) {
        gen_pending p = c->pending.data[i];
        if (buffer >= 0 && p.buffers[0] != buffer && p.buffers[1] != buffer) {
            i++;
            continue;
        }
        gen_event(c, SN_INSTR_WAIT, SN_STREAM_COMPUTE, p.event);
        c->pending.data[i] = sn_vec_last(&c->pending);
        c->pending.count--;
    }
}

static void gen_compute(gen_class *c, sn_instr in) {
    sn_schedule s = {.buffers = {c->buffers.data, c->buffers.count}};
    sn_operands operands = {0};
    sn_instr_operands(&s, &in, &operands);
    for (size_t i = 0; i < operands.count; i++) gen_settle(c, operands.data[i].view.buffer);
    for (size_t i = 0; i < operands.count; i++) gen_touch(c, operands.data[i].view.buffer, false);
    sn_vec_free(&operands);
    in.origin = gen_below(c, 2);
    gen_push(c, in);
}

static void gen_talk(gen_class *c, sn_instr in, int64_t from, int64_t to) {
    in.stream = c->two ? SN_STREAM_COMM : SN_STREAM_COMPUTE;
    in.origin = gen_below(c, 2);
    if (c->two) {
        gen_event(c, SN_INSTR_RECORD, SN_STREAM_COMPUTE, c->events);
        gen_event(c, SN_INSTR_WAIT, SN_STREAM_COMM, c->events++);
    }
    gen_touch(c, from, c->two);
    gen_touch(c, to, c->two);
    gen_push(c, in);
    if (!c->two) return;
    gen_event(c, SN_INSTR_RECORD, SN_STREAM_COMM, c->events);
    sn_vec_push(&c->pending, (gen_pending){c->events++, {from, to}});
    if (gen_below(c, 3) == 0) gen_settle(c, -1);
}

// reads …, -1, writes …, -1, in place …, -1
static void gen_kernel(gen_class *c, const int64_t *args) {
    sn_view views[16];
    int64_t bytes[16], access[16], how = SN_ACCESS_READ;
    size_t n = 0;
    for (int lists = 0; lists < 3; args++) {
        if (*args < 0) {
            lists++, how = lists == 1 ? SN_ACCESS_WRITE : SN_ACCESS_READ | SN_ACCESS_WRITE;
            continue;
        }
        views[n] = (sn_view){*args, 0}, bytes[n] = c->buffers.data[*args].bytes, access[n++] = how;
    }
    gen_compute(c, (sn_instr){.kind = SN_INSTR_KERNEL,
                              .kernel = {.grid = 1,
                                         .args = {sn_arena_copy(c->arena, views, n * sizeof *views), n},
                                         .arg_bytes = {sn_arena_copy(c->arena, bytes, n * sizeof *bytes), n},
                                         .access = {sn_arena_copy(c->arena, access, n * sizeof *access), n}}});
}
#define GEN_KERNEL(c, ...) gen_kernel(c, (const int64_t[]){__VA_ARGS__})

static void gen_copy_transposed(gen_class *c, int64_t from, int64_t to) {
    int64_t half = c->size / 2;
    gen_compute(c, (sn_instr){.kind = SN_INSTR_COPY,
                              .copy = {.dtype = SN_F32,
                                       .rank = 2,
                                       .dims = {2, half},
                                       .from_stride = {half, 1},
                                       .to_stride = {1, 2},
                                       .from = {from, 0},
                                       .to = {to, 0}}});
}

static void gen_transfer(gen_class *c, sn_instr_kind kind, int64_t channel, int peer, int64_t buffer) {
    gen_talk(
        c,
        (sn_instr){
            .kind = kind,
            .transfer = {.dtype = SN_F32, .peer = peer, .channel = channel, .count = c->size, .view = {buffer, 0}}},
        buffer, buffer);
}

static void gen_reduce(gen_class *c, int64_t axes, sn_reduce reduce, int64_t buffer) {
    const sn_buffer *b = &c->buffers.data[buffer];
    sn_do_collective all = {
        .dtype = SN_F32, .reduce = reduce, .axes = axes, .count = b->bytes / 4, .from = {buffer, 0}, .to = {buffer, 0}};
    gen_talk(c, (sn_instr){.kind = SN_INSTR_ALL_REDUCE, .collective = all}, buffer, buffer);
}

static bool gen_meet(const gen_life *a, const gen_life *b) {
    return a->first <= b->last && b->first <= a->last;
}

// Temporaries share bytes where their lives allow; one that is under way on the other stream lives to the end.
static void gen_place(gen_class *c) {
    for (size_t i = 0; i < c->lives.count; i++) {
        gen_life *l = &c->lives.data[i];
        sn_buffer *b = &c->buffers.data[l->buffer];
        if (l->communicated) l->last = SIZE_MAX;
        b->offset = 0;
        for (size_t k = 0; k < i; k++) {
            const sn_buffer *other = &c->buffers.data[c->lives.data[k].buffer];
            bool overlap = b->offset < other->offset + gen_align(other->bytes) && other->offset < b->offset + b->bytes;
            if (!gen_meet(l, &c->lives.data[k]) || !overlap) continue;
            b->offset = other->offset + gen_align(other->bytes);
            k = (size_t)-1; // from the start
        }
        if (b->offset + gen_align(b->bytes) > c->temporary) c->temporary = b->offset + gen_align(b->bytes);
    }
    c->lives.count = 0;
}

static void gen_end_program(gen_class *c, const char *name) {
    if (gen_below(c, 2)) gen_settle(c, -1);
    c->pending.count = 0;
    gen_place(c);
    sn_program program = {name, GEN_COPY(c, c->instrs)};
    sn_vec_push(&c->programs, program);
    c->instrs.count = 0, c->events = 0;
}

static bool gen_is_last(const gen_class *c) {
    return c->index == c->count - 1;
}

static int64_t gen_input(gen_class *c, const char *name) {
    int64_t buffer = gen_buffer(c, name, c->size, c->slots), cut = 1 << GEN_DP;
    sn_dims sharding = {sn_arena_copy(c->arena, &cut, sizeof cut), 1};
    sn_vec_push(&c->inputs, (sn_data_input){.name = c->buffers.data[buffer].name,
                                            .buffer = buffer,
                                            .shape = gen_dims(c, c->size * c->replicas),
                                            .sharding = sharding});
    return buffer;
}

static void gen_buffers(gen_class *c) {
    for (int l = 0; l < c->layers; l++) {
        c->weights[l] = gen_global(c, "w", SN_RESIDENT_PARAMETER, c->size);
        c->sums[l] = gen_global(c, "w.grad", SN_RESIDENT_SUM, c->size);
    }
    c->constant = gen_global(c, "constant", SN_RESIDENT_CONSTANT, c->size);
    c->total = gen_global(c, "loss.sum", SN_RESIDENT_SUM, 0);
    c->kept[0] = c->index == 0 ? gen_input(c, "x") : gen_buffer(c, "h", c->size, c->slots);
    for (int l = 1; l <= c->layers; l++) c->kept[l] = gen_buffer(c, "a", c->size, c->slots);
    if (gen_is_last(c)) c->target = gen_input(c, "target");
    c->lr = gen_buffer(c, "lr", 0, 1), c->norm = gen_buffer(c, "norm", 0, 1), c->flag = gen_buffer(c, "flag", 0, 1);
    c->loss = gen_buffer(c, "loss", 0, 1), c->eval_loss = gen_buffer(c, "eval_loss", 0, 1);
}

static void gen_forward(gen_class *c) {
    c->phase = SN_PHASE_FORWARD;
    if (c->index > 0) gen_transfer(c, SN_INSTR_RECV, c->index - 1, c->index - 1, c->kept[0]);
    for (int l = 0; l < c->layers; l++) {
        int64_t t = gen_temporary(c, c->size), u = gen_temporary(c, c->size);
        GEN_KERNEL(c, c->kept[l], c->constant, -1, t, -1, -1);
        gen_copy_transposed(c, t, u);
        GEN_KERNEL(c, u, c->weights[l], -1, c->kept[l + 1], -1, -1);
    }
    if (!gen_is_last(c)) gen_transfer(c, SN_INSTR_SEND, c->index, c->index + 1, c->kept[c->layers]);
    gen_end_program(c, "forward");
}

static void gen_backward(gen_class *c) {
    c->phase = SN_PHASE_BACKWARD;
    int64_t gradient = gen_temporary(c, c->size);
    if (gen_is_last(c)) {
        GEN_KERNEL(c, c->kept[c->layers], c->target, -1, gradient, -1, c->total, -1);
    } else {
        gen_transfer(c, SN_INSTR_RECV, GEN_CLASSES + c->index, c->index + 1, gradient);
    }
    for (int l = c->layers - 1; l >= 0; l--) {
        int64_t t = gen_temporary(c, c->size), next = gen_temporary(c, c->size);
        GEN_KERNEL(c, gradient, c->kept[l], -1, t, -1, c->sums[l], -1);
        GEN_KERNEL(c, t, c->weights[l], -1, next, -1, -1);
        gradient = next;
    }
    if (c->index > 0) gen_transfer(c, SN_INSTR_SEND, GEN_CLASSES + c->index - 1, c->index - 1, gradient);
    gen_end_program(c, "backward");
}

static void gen_update(gen_class *c) {
    c->phase = SN_PHASE_UPDATE;
    GEN_KERNEL(c, c->constant, -1, c->norm, c->flag, -1, -1);
    for (int l = 0; l < c->layers; l++) gen_reduce(c, 1 << GEN_DP, SN_REDUCE_SUM, c->sums[l]);
    for (int l = 0; l < c->layers; l++) GEN_KERNEL(c, c->sums[l], -1, -1, c->norm, -1);
    gen_reduce(c, 1 << GEN_PP, SN_REDUCE_SUM, c->norm);
    gen_reduce(c, 1 << GEN_PP, SN_REDUCE_MAX, c->flag);
    for (int l = 0; l < c->layers; l++) GEN_KERNEL(c, c->lr, c->norm, -1, -1, c->sums[l], c->weights[l], -1);
    GEN_KERNEL(c, c->flag, -1, c->loss, -1, c->total, -1);
    gen_end_program(c, "update");
    c->phase = SN_PHASE_FORWARD;
    if (gen_is_last(c)) GEN_KERNEL(c, c->kept[c->layers], c->target, -1, c->eval_loss, -1, -1);
    if (!gen_is_last(c)) GEN_KERNEL(c, c->constant, -1, c->eval_loss, -1, -1);
    gen_end_program(c, "loss");
}

static void gen_end_sequence(gen_class *c, const char *name) {
    sn_sequence sequence = {name, GEN_COPY(c, c->runs)};
    sn_vec_push(&c->sequences, sequence);
    c->runs.count = 0;
}

static void gen_sequences(gen_class *c) {
    int ahead = c->gpipe ? c->parts : c->slots - 1;
    for (int m = 0; m < ahead; m++) sn_vec_push(&c->runs, (sn_sequence_run){GEN_FORWARD, m, true});
    for (int m = 0; m < c->parts; m++) {
        if (m + ahead < c->parts) sn_vec_push(&c->runs, (sn_sequence_run){GEN_FORWARD, m + ahead, true});
        sn_vec_push(&c->runs, (sn_sequence_run){GEN_BACKWARD, m, false});
    }
    sn_vec_push(&c->runs, (sn_sequence_run){GEN_UPDATE, -1, false});
    gen_end_sequence(c, "step");
    sn_vec_push(&c->runs, (sn_sequence_run){GEN_FORWARD, 0, true});
    sn_vec_push(&c->runs, (sn_sequence_run){GEN_LOSS, 0, false});
    gen_end_sequence(c, "eval");
}

static void gen_finish(gen_class *c, sn_schedule *out) {
    static const char *kernels[] = {"k"}, *origins[] = {"\"/layer/MatMul\"", "\"/layer/Relu\" <- autodiff"};
    for (size_t i = 0; i < c->temporaries.count; i++) c->buffers.data[c->temporaries.data[i]].offset += c->resident;
    sn_schedule_axis mesh[] = {{"pp", c->count}, {"dp", c->replicas}};
    sn_special lr = {.kind = SN_SPECIAL_LR, .buffer = c->lr};
    *out = (sn_schedule){.model_hash = "m",
                         .plan_hash = "p",
                         .mesh = {sn_arena_copy(c->arena, mesh, sizeof mesh), 2},
                         .pipeline_axis = GEN_PP,
                         .ranks = c->count * c->replicas,
                         .arena_bytes = c->resident + c->temporary,
                         .micro_batches = c->parts,
                         .step_samples = c->size * c->replicas * c->parts,
                         .kernels = {kernels, 1},
                         .origins = {origins, 2},
                         .buffers = GEN_COPY(c, c->buffers),
                         .globals = GEN_COPY(c, c->globals),
                         .inputs = GEN_COPY(c, c->inputs),
                         .specials = {sn_arena_copy(c->arena, &lr, sizeof lr), 1},
                         .loss = c->loss,
                         .eval_loss = c->eval_loss,
                         .grad_norm = c->norm,
                         .programs = GEN_COPY(c, c->programs),
                         .sequences = GEN_COPY(c, c->sequences)};
    sn_vec_free(&c->buffers);
    sn_vec_free(&c->globals);
    sn_vec_free(&c->inputs);
    sn_vec_free(&c->instrs);
    sn_vec_free(&c->programs);
    sn_vec_free(&c->runs);
    sn_vec_free(&c->sequences);
    sn_vec_free(&c->pending);
    sn_vec_free(&c->lives);
    sn_vec_free(&c->temporaries);
}

// `least_classes`, `least_parts` and `two` narrow the choice for tests that need a pipeline or two streams.
static void gen_make(uint64_t seed, int least_classes, int least_parts, bool two, gen_schedules *out) {
    gen_random random = {seed};
    *out = (gen_schedules){0};
    int classes = least_classes + (int)gen_random_below(&random, GEN_CLASSES + 1 - least_classes);
    int replicas = 1 + (int)gen_random_below(&random, 2);
    out->parts = least_parts + (int)gen_random_below(&random, 6);
    out->two = two || gen_random_below(&random, 2);
    bool gpipe = gen_random_below(&random, 3) == 0;
    int64_t size = 2 + 2 * gen_random_below(&random, 40);
    for (int i = 0; i < classes; i++) {
        gen_class c = {.arena = &out->arena,
                       .random = &random,
                       .index = i,
                       .count = classes,
                       .replicas = replicas,
                       .parts = out->parts,
                       .layers = 1 + (int)gen_random_below(&random, GEN_LAYERS),
                       .slots = classes - i < out->parts && !gpipe ? classes - i : out->parts,
                       .two = out->two,
                       .gpipe = gpipe,
                       .size = size};
        out->slots[i] = c.slots;
        gen_buffers(&c);
        gen_forward(&c);
        gen_backward(&c);
        gen_update(&c);
        gen_sequences(&c);
        gen_finish(&c, &out->classes[i]);
    }
    out->all = (sn_schedules){SN_SCHEDULE_VERSION, {out->classes, (size_t)classes}};
}
