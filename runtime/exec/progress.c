#include "runtime/exec/progress.h"

#include "runtime/operands.h"

#include <inttypes.h>

static int64_t load(const _Atomic int64_t *at) {
    return atomic_load_explicit(at, memory_order_relaxed);
}

// The instruction that a stream is in; NULL when it is idle.
static const sn_instr *instr_of(const sn_progress *p, const sn_schedule *s, int stream, int64_t *index) {
    int64_t program = load(&p->program);
    *index = load(&p->instr[stream]);
    if (program < 0 || (size_t)program >= s->programs.count || *index < 0) return NULL;
    const sn_program *in = &s->programs.items[program];
    return (size_t)*index < in->instrs.count ? &in->instrs.items[*index] : NULL;
}

static bool waits_for_ranks(const sn_instr *in) {
    return sn_instr_is_collective(in->kind) || in->kind == SN_INSTR_RECV;
}

bool sn_progress_waits(const sn_progress *p, const sn_schedule *s) {
    bool waits = false;
    for (int stream = 0; stream < SN_STREAM_COUNT; stream++) {
        int64_t index;
        const sn_instr *in = instr_of(p, s, stream, &index);
        if (!in) continue;
        if (!waits_for_ranks(in) && in->kind != SN_INSTR_WAIT) return false; // it works
        waits = waits || waits_for_ranks(in);
    }
    return waits || atomic_load_explicit(&p->activity, memory_order_relaxed) == SN_ACTIVITY_SETTLE;
}

double sn_progress_bytes(const sn_progress *p, const sn_schedule *s) {
    double bytes = 0;
    for (int stream = 0; stream < SN_STREAM_COUNT; stream++) {
        int64_t index;
        const sn_instr *in = instr_of(p, s, stream, &index);
        if (!in || !waits_for_ranks(in)) continue;
        sn_operands operands = {0};
        sn_instr_operands(s, in, &operands);
        for (size_t i = 0; i < operands.count; i++) bytes += (double)sn_operand_extent(&operands.data[i]);
        sn_vec_free(&operands);
    }
    return bytes;
}

// What tells most: an instruction that waits for an event says less than what records it.
static const sn_instr *telling_instr(const sn_progress *p, const sn_schedule *s, int64_t *index) {
    const sn_instr *found = NULL;
    for (int stream = 0; stream < SN_STREAM_COUNT; stream++) {
        int64_t at;
        const sn_instr *in = instr_of(p, s, stream, &at);
        if (in && (!found || found->kind == SN_INSTR_WAIT)) found = in, *index = at;
    }
    return found;
}

void sn_progress_describe(const sn_progress *p, const sn_schedule *s, sn_str *out) {
    static const char *const activities[SN_ACTIVITY_COUNT] = {
        [SN_ACTIVITY_SETUP] = "setting up",      [SN_ACTIVITY_DATA] = "reading data",
        [SN_ACTIVITY_STEP] = "between programs", [SN_ACTIVITY_EVAL] = "evaluation",
        [SN_ACTIVITY_PREDICT] = "prediction",    [SN_ACTIVITY_CHECKPOINT] = "writing a file",
        [SN_ACTIVITY_SETTLE] = "between steps",
    };
    static const char *const phases[SN_PHASE_COUNT] = {"forward", "backward", "update"};
    int64_t step = load(&p->step), micro_batch = load(&p->micro_batch), index;
    int activity = atomic_load_explicit(&p->activity, memory_order_relaxed);
    if (step > 0) sn_str_printf(out, "step %" PRId64 ", ", step);
    const sn_instr *in = telling_instr(p, s, &index);
    if (!in) {
        sn_str_puts(out, activities[activity >= 0 && activity < SN_ACTIVITY_COUNT ? activity : 0]);
        return;
    }
    if (micro_batch >= 0) sn_str_printf(out, "micro-batch %" PRId64 ", ", micro_batch);
    sn_str_printf(out, "%s: ", phases[in->phase]);
    sn_schedule_describe(s, &s->programs.items[load(&p->program)], (size_t)index, out);
}
