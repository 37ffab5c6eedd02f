#include "runtime/schedule.h"

#include "base/map.h"
#include "runtime/mesh.h"

#include <inttypes.h>
#include <string.h>

const char *sn_instr_name(sn_instr_kind kind) {
    static const char *const names[] = {
#define X(suffix, name, ...) [SN_INSTR_##suffix] = name,
        SN_INSTRUCTIONS(X)
#undef X
    };
    SN_CHECK(kind < SN_INSTR_COUNT);
    return names[kind];
}

bool sn_resident_is_saved(const sn_resident *resident) {
    return resident->role != SN_RESIDENT_CONSTANT && resident->role != SN_RESIDENT_SUM;
}

bool sn_instr_is_collective(sn_instr_kind kind) {
    return kind >= SN_INSTR_ALL_REDUCE && kind <= SN_INSTR_BROADCAST;
}

const sn_program *sn_schedule_program(const sn_schedule *schedule, const char *name) {
    for (size_t i = 0; i < schedule->programs.count; i++) {
        if (!strcmp(schedule->programs.items[i].name, name)) return &schedule->programs.items[i];
    }
    return NULL;
}

const sn_sequence *sn_schedule_sequence(const sn_schedule *schedule, const char *name) {
    for (size_t i = 0; i < schedule->sequences.count; i++) {
        if (!strcmp(schedule->sequences.items[i].name, name)) return &schedule->sequences.items[i];
    }
    return NULL;
}

int64_t sn_buffer_offset(const sn_buffer *buffer, int64_t micro_batch) {
    if (buffer->slots <= 1 || micro_batch < 0) return buffer->offset;
    bool listed = micro_batch < (int64_t)buffer->slot_of.count;
    int64_t slot = listed ? buffer->slot_of.items[micro_batch] : micro_batch % buffer->slots;
    return buffer->offset + slot * buffer->slot_bytes;
}

int64_t sn_schedules_class(const sn_schedules *schedules, int64_t rank) {
    const sn_schedule *s = &schedules->classes.items[0];
    return s->pipeline_axis < 0 ? 0 : sn_schedule_coordinate(s, rank, (size_t)s->pipeline_axis);
}

void sn_schedule_describe(const sn_schedule *schedule, const sn_program *program, size_t index, sn_str *out) {
    const sn_instr *in = &program->instrs.items[index];
    sn_str_printf(out, "%s #%zu of %s", sn_instr_name(in->kind), index, program->name);
    if (in->origin >= 0 && (size_t)in->origin < schedule->origins.count)
        sn_str_printf(out, " (%s)", schedule->origins.items[in->origin]);
}

// What a check needs to name the place.
typedef struct checker {
    const sn_schedule *schedule;
    const sn_program *program;
    size_t index;
} checker;

static sn_status bad(const checker *c, const char *operand, const char *what) {
    sn_str where = {0};
    sn_schedule_describe(c->schedule, c->program, c->index, &where);
    sn_status status = sn_status_make("schedule: %s: operand %s %s", sn_str_text(&where), operand, what);
    sn_str_free(&where);
    return status;
}

// The operand touches elements at 0 … sum((dims - 1)·strides) from its view.
static sn_status check_strided(const checker *c, const char *operand, sn_view view, sn_dtype dtype, size_t rank,
                               const int64_t *dims, const int64_t *strides) {
    const sn_schedule *s = c->schedule;
    if (view.buffer < 0 || (size_t)view.buffer >= s->buffers.count) return bad(c, operand, "has no such buffer");
    if (dtype >= SN_DTYPE_COUNT) return bad(c, operand, "has no type");
    const sn_buffer *buffer = &s->buffers.items[view.buffer];
    int64_t room = buffer->bytes - view.offset, size = (int64_t)sn_dtype_bytes(dtype), last = 0;
    if (view.offset < 0 || room < 0) return bad(c, operand, "starts outside its buffer");
    if (view.offset % size) return bad(c, operand, "is not aligned to its type");
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0 || strides[i] < 0) return bad(c, operand, "has a negative size or stride");
        if (dims[i] == 0) return SN_OK;
    }
    for (size_t i = 0; i < rank; i++) {
        int64_t reach;
        if (__builtin_mul_overflow(dims[i] - 1, strides[i], &reach) || __builtin_add_overflow(last, reach, &last))
            return bad(c, operand, "is too large");
    }
    if (last >= room / size) return bad(c, operand, "reaches beyond its buffer");
    return SN_OK;
}

static sn_status check_dense(const checker *c, const char *operand, sn_view view, sn_dtype dtype, int64_t count) {
    return check_strided(c, operand, view, dtype, 1, &count, &(int64_t){1});
}

static sn_status check_matrix(const checker *c, const char *operand, const sn_do_gemm *g, sn_view view, bool transposed,
                              int64_t rows, int64_t columns, int64_t ld, const int64_t *strides) {
    int64_t dims[SN_SCHEDULE_BATCH_DIMS + 2], all[SN_SCHEDULE_BATCH_DIMS + 2];
    for (int64_t i = 0; i < g->batch_rank; i++) dims[i] = g->batch[i], all[i] = strides[i];
    int64_t r = g->batch_rank;
    dims[r] = transposed ? columns : rows, dims[r + 1] = transposed ? rows : columns;
    all[r] = ld, all[r + 1] = 1;
    return check_strided(c, operand, view, g->dtype, (size_t)r + 2, dims, all);
}

static sn_status check_gemm(const checker *c, const sn_instr *in) {
    const sn_do_gemm *g = &in->gemm;
    if (g->dtype != SN_F32) return bad(c, "c", "is not f32");
    if (g->batch_rank < 0 || g->batch_rank > SN_SCHEDULE_BATCH_DIMS) return bad(c, "c", "has too many dimensions");
    SN_TRY(check_matrix(c, "a", g, g->a, g->transpose_a, g->m, g->k, g->lda, g->stride_a));
    SN_TRY(check_matrix(c, "b", g, g->b, g->transpose_b, g->k, g->n, g->ldb, g->stride_b));
    return check_matrix(c, "c", g, g->c, false, g->m, g->n, g->ldc, g->stride_c);
}

static sn_status check_conv(const checker *c, const sn_instr *in) {
    const sn_do_conv *v = &in->conv;
    if (v->spatial < 1 || v->spatial > 3) return bad(c, "x", "has no 1, 2 or 3 spatial dimensions");
    if (v->groups < 1 || v->in_channels % v->groups || v->out_channels % v->groups)
        return bad(c, "w", "has groups that do not divide the channels");
    // Element 0 … product - 1, as strides of a dense array.
    int64_t x[5] = {v->batch, v->in_channels, 1, 1, 1}, w[5] = {v->out_channels, v->in_channels / v->groups, 1, 1, 1};
    int64_t y[5] = {v->batch, v->out_channels, 1, 1, 1};
    int64_t counts[3] = {1, 1, 1};
    for (int64_t i = 0; i < v->spatial; i++) {
        x[2 + i] = v->in[i], w[2 + i] = v->kernel[i], y[2 + i] = v->out[i];
        if (v->stride[i] < 1 || v->dilation[i] < 1 || v->pad_begin[i] < 0 || v->kernel[i] < 1)
            return bad(c, "w", "has a stride, dilation, kernel or padding out of range");
        int64_t span = v->in[i] + v->pad_begin[i] + v->pad_end[i] - (v->kernel[i] - 1) * v->dilation[i] - 1;
        if (span < 0 || span / v->stride[i] + 1 != v->out[i])
            return bad(c, "y", "does not have the convolution's size");
    }
    for (int i = 0; i < 5; i++) {
        if (__builtin_mul_overflow(counts[0], x[i], &counts[0]) ||
            __builtin_mul_overflow(counts[1], w[i], &counts[1]) || __builtin_mul_overflow(counts[2], y[i], &counts[2]))
            return bad(c, "x", "is too large");
    }
    SN_TRY(check_dense(c, "x", v->x, SN_F32, counts[0]));
    SN_TRY(check_dense(c, "w", v->w, SN_F32, counts[1]));
    return check_dense(c, "y", v->y, SN_F32, counts[2]);
}

static sn_status check_heads(const checker *c, const char *operand, const sn_do_attention *a, sn_view view,
                             int64_t heads, int64_t rows, int64_t width, const int64_t stride[3]) {
    return check_strided(c, operand, view, a->dtype, 4, (const int64_t[]){a->batch, heads, rows, width},
                         (const int64_t[]){stride[0], stride[1], stride[2], 1});
}

static sn_status check_attention(const checker *c, const sn_instr *in) {
    const sn_do_attention *a = &in->attention;
    if (a->dtype != SN_F32 && a->dtype != SN_F16 && a->dtype != SN_BF16)
        return bad(c, "q", "is of a type that attention does not take");
    if (a->kv_heads < 1 || a->heads % a->kv_heads) return bad(c, "k", "has a number of heads that does not divide q's");
    SN_TRY(check_heads(c, "q", a, a->q, a->heads, a->sq, a->d, a->q_stride));
    SN_TRY(check_heads(c, "k", a, a->k, a->kv_heads, a->skv, a->d, a->k_stride));
    SN_TRY(check_heads(c, "v", a, a->v, a->kv_heads, a->skv, a->dv, a->v_stride));
    SN_TRY(check_heads(c, "o", a, a->o, a->heads, a->sq, a->dv, a->o_stride));
    if (a->mask.buffer >= 0)
        SN_TRY(check_strided(c, "mask", a->mask, a->dtype, 4, (const int64_t[]){a->batch, a->heads, a->sq, a->skv},
                             a->mask_stride));
    int64_t rows;
    if (__builtin_mul_overflow(a->batch, a->heads, &rows) || __builtin_mul_overflow(rows, a->sq, &rows))
        return bad(c, "lse", "is too large");
    SN_TRY(check_dense(c, "lse", a->lse, SN_F32, rows));
    if (in->kind == SN_INSTR_ATTENTION) return SN_OK;
    SN_TRY(check_heads(c, "grad_o", a, a->grad_o, a->heads, a->sq, a->dv, a->grad_o_stride));
    SN_TRY(check_heads(c, "grad_q", a, a->grad_q, a->heads, a->sq, a->d, a->grad_q_stride));
    SN_TRY(check_heads(c, "grad_k", a, a->grad_k, a->kv_heads, a->skv, a->d, a->grad_k_stride));
    return check_heads(c, "grad_v", a, a->grad_v, a->kv_heads, a->skv, a->dv, a->grad_v_stride);
}

static sn_status check_collective(const checker *c, const sn_instr *in) {
    const sn_do_collective *v = &in->collective;
    if (v->axes < 0 || v->axes >> c->schedule->mesh.count) return bad(c, "from", "goes over an axis the mesh lacks");
    int64_t group = sn_schedule_group_size(c->schedule, v->axes), many;
    if (v->count < 0 || __builtin_mul_overflow(v->count, group, &many)) return bad(c, "from", "is too large");
    bool wide_from = in->kind == SN_INSTR_REDUCE_SCATTER || in->kind == SN_INSTR_ALL_TO_ALL;
    bool wide_to = in->kind == SN_INSTR_ALL_GATHER || in->kind == SN_INSTR_ALL_TO_ALL;
    SN_TRY(check_dense(c, "from", v->from, v->dtype, wide_from ? many : v->count));
    return check_dense(c, "to", v->to, v->dtype, wide_to ? many : v->count);
}

static sn_status check_transfer(const checker *c, const sn_instr *in) {
    const sn_do_transfer *t = &in->transfer;
    const sn_schedule *s = c->schedule;
    int64_t classes = s->pipeline_axis < 0 ? 1 : s->mesh.items[s->pipeline_axis].size;
    if (t->peer < 0 || t->peer >= classes) return bad(c, "peer", "is not on the pipeline axis");
    if (t->channel < 0 || t->channel > INT32_MAX / s->micro_batches) return bad(c, "channel", "is out of range");
    return check_dense(c, "view", t->view, t->dtype, t->count);
}

static sn_status check_kernel(const checker *c, const sn_instr *in) {
    const sn_do_kernel *k = &in->kernel;
    if (k->symbol < 0 || (size_t)k->symbol >= c->schedule->kernels.count) return bad(c, "symbol", "has no name");
    if (k->grid < 0) return bad(c, "grid", "is negative");
    if (k->arg_bytes.count != k->args.count || k->access.count != k->args.count)
        return bad(c, "of a kernel", "has no size or access");
    for (size_t i = 0; i < k->args.count; i++) {
        if (k->access.items[i] < 1 || k->access.items[i] > (SN_ACCESS_READ | SN_ACCESS_WRITE))
            return bad(c, "of a kernel", "is neither read nor written");
        SN_TRY(check_dense(c, "of a kernel", k->args.items[i], SN_U8, k->arg_bytes.items[i]));
    }
    return SN_OK;
}

static sn_status check_copy(const checker *c, const sn_instr *in) {
    const sn_do_copy *v = &in->copy;
    if (v->rank < 0 || v->rank > SN_SCHEDULE_COPY_DIMS) return bad(c, "from", "has too many dimensions");
    SN_TRY(check_strided(c, "from", v->from, v->dtype, (size_t)v->rank, v->dims, v->from_stride));
    return check_strided(c, "to", v->to, v->dtype, (size_t)v->rank, v->dims, v->to_stride);
}

static sn_status check_fill(const checker *c, const sn_instr *in) {
    return check_dense(c, "to", in->fill.to, in->fill.dtype, in->fill.count);
}

static sn_status check_event(const checker *c, const sn_instr *in) {
    if (in->event.event < 0 || (size_t)in->event.event >= c->program->instrs.count)
        return bad(c, "event", "has a number out of range");
    return SN_OK;
}

static sn_status (*const check_instr[])(const checker *, const sn_instr *) = {
    [SN_INSTR_KERNEL] = check_kernel,
    [SN_INSTR_GEMM] = check_gemm,
    [SN_INSTR_CONV] = check_conv,
    [SN_INSTR_CONV_INPUT_GRAD] = check_conv,
    [SN_INSTR_CONV_WEIGHT_GRAD] = check_conv,
    [SN_INSTR_ATTENTION] = check_attention,
    [SN_INSTR_ATTENTION_GRAD] = check_attention,
    [SN_INSTR_ALL_REDUCE] = check_collective,
    [SN_INSTR_ALL_GATHER] = check_collective,
    [SN_INSTR_REDUCE_SCATTER] = check_collective,
    [SN_INSTR_ALL_TO_ALL] = check_collective,
    [SN_INSTR_BROADCAST] = check_collective,
    [SN_INSTR_SEND] = check_transfer,
    [SN_INSTR_RECV] = check_transfer,
    [SN_INSTR_COPY] = check_copy,
    [SN_INSTR_FILL] = check_fill,
    [SN_INSTR_RECORD] = check_event,
    [SN_INSTR_WAIT] = check_event,
};
_Static_assert(sizeof check_instr / sizeof *check_instr == SN_INSTR_COUNT, "a check per instruction");

// Number of elements, or -1 when it does not fit.
static int64_t elements(const sn_dims *shape) {
    int64_t count = 1;
    for (size_t i = 0; i < shape->count; i++) {
        if (shape->items[i] < 0 || __builtin_mul_overflow(count, shape->items[i], &count)) return -1;
    }
    return count;
}

static sn_status check_buffer(const sn_schedule *s, const sn_buffer *b) {
    int64_t count = elements(&b->shape), more = b->slots > 1 ? b->slots - 1 : 0, end;
    if (count < 0 || b->offset < 0 || b->offset % SN_SCHEDULE_ALIGNMENT || b->bytes < 0 || b->slots < 0 ||
        b->slots > SN_SCHEDULE_SLOTS || b->slot_bytes % SN_SCHEDULE_ALIGNMENT || (more && b->slot_bytes < b->bytes) ||
        __builtin_mul_overflow(more, b->slot_bytes, &end) || __builtin_add_overflow(end, b->offset, &end) ||
        __builtin_add_overflow(end, b->bytes, &end) || end > s->arena_bytes ||
        count > b->bytes / (int64_t)sn_dtype_bytes(b->dtype))
        return sn_status_make("schedule: buffer '%s' does not fit where it is put", b->name ? b->name : "");
    bool good = !b->slot_of.count || (int64_t)b->slot_of.count == s->micro_batches;
    for (size_t m = 0; m < b->slot_of.count; m++)
        good = good && b->slot_of.items[m] >= 0 && b->slot_of.items[m] <= more;
    if (!good) return sn_status_make("schedule: buffer '%s' has no slot for each micro-batch", b->name ? b->name : "");
    return SN_OK;
}

// Elements of dimension `at` of a rank's part; -1 when the axes do not cut it evenly.
static int64_t local_size(const sn_schedule *s, const sn_dims *cut, const sn_dims *sharding, size_t at) {
    int64_t axes = sharding->count ? sharding->items[at] : 0;
    int64_t parts = axes >= 0 && !(axes >> s->mesh.count) ? sn_schedule_group_size(s, axes) : 0;
    return parts > 0 && cut->items[at] % parts == 0 ? cut->items[at] / parts : -1;
}

// A tensor whose shards lie in `buffer`: a local dimension is the product of what is left of its pieces.
static sn_status check_sharded(const sn_schedule *s, const char *name, int64_t buffer, const sn_dims *shape,
                               const sn_dims *pieces, const sn_dims *sharding) {
    if (!name) return sn_status_make("schedule: a tensor without a name");
    if (buffer < 0 || (size_t)buffer >= s->buffers.count) return sn_status_make("schedule: '%s' has no buffer", name);
    const sn_dims *local = &s->buffers.items[buffer].shape, *cut = pieces->count ? pieces : shape;
    bool fits = local->count == shape->count && (!sharding->count || sharding->count == cut->count);
    size_t at = 0;
    for (size_t i = 0; fits && i < shape->count; i++) {
        int64_t whole = 1, part = 1;
        do {
            if (pieces->count && shape->items[i] == 1) break; // has no pieces
            int64_t left = at < cut->count ? local_size(s, cut, sharding, at) : -1;
            fits = left >= 0;
            if (!fits) break;
            whole *= cut->items[at++];
            part *= left;
        } while (pieces->count && whole < shape->items[i]);
        fits = fits && whole == shape->items[i] && part == local->items[i];
    }
    fits = fits && at == cut->count;
    if (!fits) return sn_status_make("schedule: the shards of '%s' do not make up its shape", name);
    return SN_OK;
}

static sn_status check_scalar(const sn_schedule *s, const char *name, int64_t buffer, sn_dtype dtype) {
    if (buffer < 0 || (size_t)buffer >= s->buffers.count || s->buffers.items[buffer].dtype != dtype ||
        elements(&s->buffers.items[buffer].shape) != 1)
        return sn_status_make("schedule: '%s' is not one %s", name, sn_dtype_name(dtype));
    return SN_OK;
}

static sn_status check_input(const sn_schedule *s, const sn_data_input *in) {
    if (in->batch_dim < -1 || in->batch_dim >= (int64_t)in->shape.count)
        return sn_status_make("schedule: input '%s' has no such batch dimension", in->name ? in->name : "");
    return check_sharded(s, in->name, in->buffer, &in->shape, &(sn_dims){0}, &in->sharding);
}

static sn_status check_specials(const sn_schedule *s) {
    for (size_t i = 0; i < s->specials.count; i++) {
        const sn_special *special = &s->specials.items[i];
        bool real = special->kind == SN_SPECIAL_LR;
        SN_TRY(check_scalar(s, "a special input", special->buffer, real ? SN_F32 : SN_I64));
        if (special->kind == SN_SPECIAL_COORDINATE && (special->axis < 0 || (size_t)special->axis >= s->mesh.count))
            return sn_status_make("schedule: a coordinate of an axis that the mesh lacks");
    }
    if (s->loss >= 0) SN_TRY(check_scalar(s, "loss", s->loss, SN_F32));
    if (s->eval_loss >= 0) SN_TRY(check_scalar(s, "eval_loss", s->eval_loss, SN_F32));
    if (s->grad_norm >= 0) SN_TRY(check_scalar(s, "grad_norm", s->grad_norm, SN_F32));
    return SN_OK;
}

static sn_status check_mesh(const sn_schedule *s) {
    int64_t ranks = 1;
    if (s->mesh.count > 16) return sn_status_make("schedule: too many mesh axes");
    for (size_t i = 0; i < s->mesh.count; i++) {
        const sn_schedule_axis *axis = &s->mesh.items[i];
        if (!axis->name || axis->size < 1 || __builtin_mul_overflow(ranks, axis->size, &ranks))
            return sn_status_make("schedule: a mesh axis without a name or size");
    }
    if (s->pipeline_axis < -1 || s->pipeline_axis >= (int64_t)s->mesh.count)
        return sn_status_make("schedule: no such pipeline axis");
    if (s->ranks != ranks) return sn_status_make("schedule: %" PRId64 " ranks do not fill the mesh", s->ranks);
    return SN_OK;
}

static sn_status check_global(const sn_schedule *s, const sn_resident *g) {
    SN_TRY(check_sharded(s, g->name, g->buffer, &g->shape, &g->pieces, &g->sharding));
    if (s->buffers.items[g->buffer].slots > 1)
        return sn_status_make("schedule: '%s' outlives a step, but has slots", g->name);
    if (g->source.kind == SN_INITIAL_FILE && !g->source.path)
        return sn_status_make("schedule: '%s' comes from a file without a path", g->name);
    if (g->source.kind != SN_INITIAL_FILL &&
        (g->source.bytes % (int64_t)sn_dtype_bytes(g->source.dtype) ||
         g->source.bytes / (int64_t)sn_dtype_bytes(g->source.dtype) != elements(&g->shape)))
        return sn_status_make("schedule: the source of '%s' does not have its size", g->name);
    return SN_OK;
}

static sn_status check_sequences(const sn_schedule *s) {
    for (size_t i = 0; i < s->sequences.count; i++) {
        const sn_sequence *sequence = &s->sequences.items[i];
        if (!sequence->name) return sn_status_make("schedule: a sequence without a name");
        for (size_t k = 0; k < sequence->runs.count; k++) {
            const sn_sequence_run *run = &sequence->runs.items[k];
            if (run->program < 0 || (size_t)run->program >= s->programs.count)
                return sn_status_make("schedule: run %zu of '%s' has no such program", k, sequence->name);
            if (run->micro_batch < -1 || run->micro_batch >= s->micro_batches || (run->load && run->micro_batch < 0))
                return sn_status_make("schedule: run %zu of '%s' has no such micro-batch", k, sequence->name);
        }
    }
    return SN_OK;
}

sn_status sn_schedule_check(const sn_schedule *s) {
    SN_TRY(check_mesh(s));
    if (s->micro_batches < 1 || s->step_samples < 0 || s->arena_bytes < 0 || s->threads < 0)
        return sn_status_make("schedule: a count is out of range");
    for (size_t i = 0; i < s->buffers.count; i++) SN_TRY(check_buffer(s, &s->buffers.items[i]));
    for (size_t i = 0; i < s->globals.count; i++) SN_TRY(check_global(s, &s->globals.items[i]));
    for (size_t i = 0; i < s->inputs.count; i++) SN_TRY(check_input(s, &s->inputs.items[i]));
    SN_TRY(check_specials(s));
    const sn_output *outputs[] = {s->gradients.items, s->predictions.items};
    size_t counts[] = {s->gradients.count, s->predictions.count};
    for (int list = 0; list < 2; list++) {
        for (size_t i = 0; i < counts[list]; i++) {
            const sn_output *o = &outputs[list][i];
            SN_TRY(check_sharded(s, o->name, o->buffer, &o->shape, &o->pieces, &o->sharding));
        }
    }
    for (size_t p = 0; p < s->programs.count; p++) {
        checker c = {s, &s->programs.items[p], 0};
        if (!c.program->name) return sn_status_make("schedule: a program without a name");
        for (; c.index < c.program->instrs.count; c.index++) {
            const sn_instr *in = &c.program->instrs.items[c.index];
            SN_TRY(check_instr[in->kind](&c, in));
        }
    }
    return check_sequences(s);
}

static bool same_text(const char *a, const char *b) {
    return a && b ? !strcmp(a, b) : a == b;
}

static bool same_for_all_ranks(const sn_schedule *a, const sn_schedule *b) {
    bool same = a->mesh.count == b->mesh.count && a->pipeline_axis == b->pipeline_axis && a->ranks == b->ranks &&
                a->micro_batches == b->micro_batches && a->step_samples == b->step_samples &&
                same_text(a->model_hash, b->model_hash) && same_text(a->plan_hash, b->plan_hash) &&
                a->settings.count == b->settings.count && a->sequences.count == b->sequences.count;
    for (size_t i = 0; same && i < a->mesh.count; i++)
        same =
            same_text(a->mesh.items[i].name, b->mesh.items[i].name) && a->mesh.items[i].size == b->mesh.items[i].size;
    for (size_t i = 0; same && i < a->settings.count; i++)
        same = same_text(a->settings.items[i].name, b->settings.items[i].name) &&
               same_text(a->settings.items[i].value, b->settings.items[i].value);
    for (size_t i = 0; same && i < a->sequences.count; i++) same = sn_schedule_sequence(b, a->sequences.items[i].name);
    return same;
}

// Checkpoints know tensors by name, so a name must mean one tensor. Constants are in none.
static sn_status check_names(const sn_schedules *all) {
    sn_map owners = {0};
    const char *twice = NULL;
    for (size_t c = 0; c < all->classes.count && !twice; c++) {
        const sn_schedule *s = &all->classes.items[c];
        for (size_t i = 0; i < s->globals.count && !twice; i++) {
            const sn_resident *g = &s->globals.items[i];
            if (!sn_resident_is_saved(g)) continue;
            if (sn_map_get(&owners, g->name)) twice = g->name;
            sn_map_put(&owners, g->name, (void *)(uintptr_t)g);
        }
    }
    sn_map_free(&owners);
    if (twice) return sn_status_make("schedule: there are two globals called '%s'", twice);
    return SN_OK;
}

sn_status sn_schedules_check(const sn_schedules *all) {
    if (!all->classes.count) return sn_status_make("schedule: there is none");
    const sn_schedule *first = &all->classes.items[0];
    for (size_t c = 0; c < all->classes.count; c++) {
        SN_TRY(sn_schedule_check(&all->classes.items[c]));
        if (!same_for_all_ranks(first, &all->classes.items[c]))
            return sn_status_make("schedule: rank class %zu does not fit the first", c);
    }
    int64_t wanted = first->pipeline_axis < 0 ? 1 : first->mesh.items[first->pipeline_axis].size;
    if (wanted != (int64_t)all->classes.count)
        return sn_status_make("schedule: %zu rank classes, but %" PRId64 " on the pipeline axis", all->classes.count,
                              wanted);
    return check_names(all);
}

static bool is_on_comm_stream(const sn_instr *in) {
    return in->stream == SN_STREAM_COMM;
}

static bool is_transfer(const sn_instr *in) {
    return in->kind == SN_INSTR_SEND || in->kind == SN_INSTR_RECV;
}

static bool has_any(const sn_schedules *all, bool (*is)(const sn_instr *)) {
    for (size_t c = 0; c < all->classes.count; c++) {
        for (size_t p = 0; p < all->classes.items[c].programs.count; p++) {
            const sn_program *program = &all->classes.items[c].programs.items[p];
            for (size_t i = 0; i < program->instrs.count; i++) {
                if (is(&program->instrs.items[i])) return true;
            }
        }
    }
    return false;
}

bool sn_schedules_use_comm_stream(const sn_schedules *all) {
    return has_any(all, is_on_comm_stream);
}

bool sn_schedules_use_transfers(const sn_schedules *all) {
    return has_any(all, is_transfer);
}
