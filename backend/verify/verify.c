#include "backend/verify/verify.h"

#include "backend/verify/proof.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

enum { MOST_TOLD = 4 }; // of each kind: one bug is often found in every layer of a model

const char *sn_finding_name(sn_finding_kind kind) {
    static const char *const names[SN_FINDING_COUNT] = {
        [SN_FINDING_MALFORMED] = "malformed", [SN_FINDING_RACE] = "race",
        [SN_FINDING_OVERLAP] = "overlap",     [SN_FINDING_UNWRITTEN] = "unwritten",
        [SN_FINDING_CLOBBERED] = "clobbered", [SN_FINDING_CONSTANT] = "constant",
        [SN_FINDING_EVENT] = "event",         [SN_FINDING_MISMATCH] = "mismatch",
        [SN_FINDING_UNMATCHED] = "unmatched", [SN_FINDING_DEADLOCK] = "deadlock",
        [SN_FINDING_MEMORY] = "memory",
    };
    SN_CHECK(kind < SN_FINDING_COUNT);
    return names[kind];
}

const char *sn_proof_where(const sn_proof *proof, const sn_proof_place *place) {
    const sn_schedule *s = &proof->all->classes.items[place->class];
    const sn_sequence_run *run = &place->sequence->runs.items[place->run];
    sn_str text = {0};
    sn_schedule_describe(s, sn_proof_program(proof, place), place->instr, &text);
    if (run->micro_batch >= 0) sn_str_printf(&text, ", micro-batch %" PRId64, run->micro_batch);
    sn_str_printf(&text, ", run %zu of sequence %s", place->run, place->sequence->name);
    if (proof->all->classes.count > 1) sn_str_printf(&text, ", rank class %" PRId64, place->class);
    const char *kept = sn_arena_strdup(proof->arena, sn_str_text(&text));
    sn_str_free(&text);
    return kept;
}

void sn_proof_tell(sn_proof *proof, sn_finding_kind kind, const char *format, ...) {
    if (proof->told[kind]++ >= MOST_TOLD) return;
    va_list args;
    va_start(args, format);
    sn_str text = {0};
    sn_str_vprintf(&text, format, args);
    va_end(args);
    sn_vec_push(proof->out, (sn_finding){kind, sn_arena_strdup(proof->arena, sn_str_text(&text))});
    sn_str_free(&text);
}

void sn_schedules_verify(const sn_schedules *all, int64_t memory_bytes, sn_arena *arena, sn_findings *out) {
    sn_proof proof = {.all = all, .arena = arena, .out = out};
    sn_status malformed = sn_schedules_check(all);
    if (malformed) {
        sn_proof_tell(&proof, SN_FINDING_MALFORMED, "%s", sn_status_message(malformed));
        sn_status_free(malformed);
        return;
    }
    for (size_t c = 0; c < all->classes.count; c++) {
        const sn_schedule *s = &all->classes.items[c];
        if (memory_bytes > 0 && s->arena_bytes > memory_bytes)
            sn_proof_tell(&proof, SN_FINDING_MEMORY,
                          "ranks of class %zu hold %" PRId64 " bytes, but their device has %" PRId64, c, s->arena_bytes,
                          memory_bytes);
        for (size_t q = 0; q < s->sequences.count; q++) sn_proof_memory(&proof, (int64_t)c, &s->sequences.items[q]);
    }
    for (size_t q = 0; q < all->classes.items[0].sequences.count; q++)
        sn_proof_order(&proof, all->classes.items[0].sequences.items[q].name);
}
