// verify-schedule: sound schedules pass, and each kind of bug is found in all schedules that it is put into.
#include "backend/verify/verify.h"
#include "tests/verify/generate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { SOUND = 1000, BASES = 25 };

static void no_false_alarms(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SOUND; seed++) {
        gen_schedules g;
        gen_make(seed, 1, 1, false, &g);
        sn_findings findings = {0};
        sn_schedules_verify(&g.all, g.classes[0].arena_bytes + (1 << 20), &g.arena, &findings);
        if (findings.count)
            fail_msg("schedule %d: %s: %s", (int)seed, sn_finding_name(findings.data[0].kind), findings.data[0].text);
        sn_vec_free(&findings);
        sn_arena_free(&g.arena);
    }
}

// The lists of a generated schedule are its own: bugs are put in by writing over them.
static sn_program *program(gen_schedules *g, int class, int index) {
    return &g->classes[class].programs.items[index];
}

// Index of the n-th instruction of a kind; negative n counts from the end.
static size_t find(const sn_program *p, sn_instr_kind kind, int n) {
    size_t count = 0;
    for (size_t i = 0; i < p->instrs.count; i++) count += p->instrs.items[i].kind == kind;
    size_t wanted = n < 0 ? count - (size_t)-n : (size_t)n;
    for (size_t i = 0; i < p->instrs.count; i++) {
        if (p->instrs.items[i].kind == kind && wanted-- == 0) return i;
    }
    fail_msg("there is no %s in %s", sn_instr_name(kind), p->name);
    return 0;
}

static sn_instr *instr(gen_schedules *g, int class, int index, sn_instr_kind kind, int n) {
    sn_program *p = program(g, class, index);
    return &p->instrs.items[find(p, kind, n)];
}

static void drop(sn_program *p, size_t at) {
    p->instrs.count--;
    memmove(&p->instrs.items[at], &p->instrs.items[at + 1], (p->instrs.count - at) * sizeof *p->instrs.items);
}

static void insert(gen_schedules *g, sn_program *p, size_t at, sn_instr in) {
    sn_instr *items = sn_arena_alloc(&g->arena, (p->instrs.count + 1) * sizeof *items);
    memcpy(items, p->instrs.items, at * sizeof *items);
    items[at] = in;
    memcpy(items + at + 1, p->instrs.items + at, (p->instrs.count - at) * sizeof *items);
    p->instrs.items = items, p->instrs.count++;
}

static void swap(sn_program *p, size_t a, size_t b) {
    sn_instr kept = p->instrs.items[a];
    p->instrs.items[a] = p->instrs.items[b], p->instrs.items[b] = kept;
}

static sn_buffer *buffer(gen_schedules *g, int class, const char *prefix) {
    sn_schedule *s = &g->classes[class];
    for (size_t i = 0; i < s->buffers.count; i++)
        if (!strncmp(s->buffers.items[i].name, prefix, strlen(prefix))) return &s->buffers.items[i];
    fail_msg("there is no buffer %s", prefix);
    return NULL;
}

// The collectives over pp in "update": the sum of norms and the maximum of flags.
static sn_instr *over_pp(gen_schedules *g, int class, int n) {
    return instr(g, class, GEN_UPDATE, SN_INSTR_ALL_REDUCE, n - 2);
}

// Of the first class's forward pass: its send, the record before it on the compute stream, the wait for that on the
// other. Of the second's: the receive and what follows.
static void missing_wait_before_send(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_FORWARD);
    drop(p, find(p, SN_INSTR_SEND, 0) - 1);
}
static void missing_wait_after_receive(gen_schedules *g) {
    sn_program *p = program(g, 1, GEN_FORWARD);
    for (size_t i = find(p, SN_INSTR_RECV, 0); i < p->instrs.count; i++) {
        const sn_instr *in = &p->instrs.items[i];
        if (in->kind == SN_INSTR_WAIT && in->stream == SN_STREAM_COMPUTE) return drop(p, i);
    }
    fail_msg("nobody waits for the receive");
}
static void missing_record(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_FORWARD);
    drop(p, find(p, SN_INSTR_SEND, 0) - 2);
}
static void record_too_early(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_FORWARD);
    size_t at = find(p, SN_INSTR_SEND, 0) - 2;
    sn_instr record = p->instrs.items[at];
    drop(p, at);
    insert(g, p, 0, record);
}
static void wait_for_an_earlier_event(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_FORWARD);
    sn_instr *wait = &p->instrs.items[find(p, SN_INSTR_SEND, 0) - 1];
    insert(g, p, 0, (sn_instr){.kind = SN_INSTR_RECORD, .origin = -1, .event = {2}});
    wait = &p->instrs.items[find(p, SN_INSTR_SEND, 0) - 1];
    wait->event.event = 2;
}
static void event_recorded_twice(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_FORWARD);
    size_t at = find(p, SN_INSTR_SEND, 0) - 2;
    insert(g, p, at, p->instrs.items[at]);
}
static void wait_for_nothing(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_UPDATE);
    insert(g, p, 0, (sn_instr){.kind = SN_INSTR_WAIT, .origin = -1, .event = {(int64_t)p->instrs.count}});
}
static void reduction_without_events(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_UPDATE);
    size_t at = find(p, SN_INSTR_ALL_REDUCE, -2);
    drop(p, at - 1);
}
static void swapped_collectives(gen_schedules *g) {
    sn_program *p = program(g, 1, GEN_UPDATE);
    swap(p, find(p, SN_INSTR_ALL_REDUCE, -2), find(p, SN_INSTR_ALL_REDUCE, -1));
}
static void collective_of_another_count(gen_schedules *g) {
    over_pp(g, 1, 0)->collective.count = 0;
}
static void collective_of_another_type(gen_schedules *g) {
    over_pp(g, 1, 0)->collective.dtype = SN_I32;
}
static void collective_of_another_reduction(gen_schedules *g) {
    over_pp(g, 1, 0)->collective.reduce = SN_REDUCE_MAX;
}
static void collective_of_another_kind(gen_schedules *g) {
    over_pp(g, 1, 0)->kind = SN_INSTR_BROADCAST;
}
static void collective_over_other_axes(gen_schedules *g) {
    over_pp(g, 1, 0)->collective.axes = 1 << GEN_DP;
}
static void collective_on_the_other_stream(gen_schedules *g) {
    over_pp(g, 1, 1)->stream = SN_STREAM_COMPUTE;
}
static void missing_collective(gen_schedules *g) {
    sn_program *p = program(g, 1, GEN_UPDATE);
    drop(p, find(p, SN_INSTR_ALL_REDUCE, -1));
}
static void collective_too_many(gen_schedules *g) {
    sn_program *p = program(g, 1, GEN_UPDATE);
    size_t at = find(p, SN_INSTR_ALL_REDUCE, -1);
    insert(g, p, at, p->instrs.items[at]);
}
static void missing_send(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_FORWARD);
    drop(p, find(p, SN_INSTR_SEND, 0));
}
static void missing_receive(gen_schedules *g) {
    sn_program *p = program(g, 1, GEN_FORWARD);
    drop(p, find(p, SN_INSTR_RECV, 0));
}
static void send_twice(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_FORWARD);
    size_t at = find(p, SN_INSTR_SEND, 0);
    insert(g, p, at, p->instrs.items[at]);
}
static void wrong_peer(gen_schedules *g) {
    instr(g, 0, GEN_FORWARD, SN_INSTR_SEND, 0)->transfer.peer = 2;
}
static void wrong_channel(gen_schedules *g) {
    instr(g, 1, GEN_FORWARD, SN_INSTR_RECV, 0)->transfer.channel = 99;
}
static void transfer_of_another_count(gen_schedules *g) {
    instr(g, 1, GEN_FORWARD, SN_INSTR_RECV, 0)->transfer.count--;
}
static void transfer_of_another_type(gen_schedules *g) {
    instr(g, 1, GEN_FORWARD, SN_INSTR_RECV, 0)->transfer.dtype = SN_I32;
}
static void backward_before_forward(gen_schedules *g) {
    sn_sequence *step = &g->classes[0].sequences.items[0];
    sn_sequence_run last = step->runs.items[0];
    for (size_t i = 0; i < step->runs.count; i++) { // the first backward run goes first
        if (step->runs.items[i].program != GEN_BACKWARD) continue;
        step->runs.items[0] = step->runs.items[i], step->runs.items[i] = last;
        return;
    }
}
static void slot_too_few(gen_schedules *g) {
    buffer(g, 1, "h")->slots--;
}
static void input_slot_too_few(gen_schedules *g) {
    buffer(g, 0, "x")->slots--;
}
static void slots_in_each_other(gen_schedules *g) {
    buffer(g, 1, "h")->slot_bytes -= GEN_ALIGN;
}
static void early_reuse(gen_schedules *g) { // the two temporaries of a layer in one place
    sn_buffer *t = buffer(g, 0, "t");
    t[1].offset = t[0].offset;
}
static void temporary_in_a_kept_value(gen_schedules *g) {
    buffer(g, 1, "t")->offset = buffer(g, 1, "h")->offset;
}
static void temporary_in_a_weight(gen_schedules *g) {
    buffer(g, 0, "t")->offset = buffer(g, 0, "w")->offset;
}
static void temporary_in_a_sum(gen_schedules *g) {
    buffer(g, 0, "t")->offset = buffer(g, 0, "w.grad")->offset;
}
static void weights_in_each_other(gen_schedules *g) {
    buffer(g, 0, "w.grad")->offset = buffer(g, 0, "w")->offset;
}
static void special_in_a_kept_value(gen_schedules *g) {
    buffer(g, 1, "lr")->offset = buffer(g, 1, "h")->offset;
}
static void beyond_the_arena(gen_schedules *g) {
    buffer(g, 0, "t")->offset += gen_align(g->classes[0].arena_bytes);
}
static void operand_beyond_its_buffer(gen_schedules *g) {
    instr(g, 0, GEN_FORWARD, SN_INSTR_COPY, 0)->copy.dims[0]++;
}
static void operands_swapped(gen_schedules *g) { // from the result to the operand
    sn_do_copy *c = &instr(g, 0, GEN_FORWARD, SN_INSTR_COPY, 0)->copy;
    sn_view from = c->from;
    c->from = c->to, c->to = from;
}
static void read_before_write(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_FORWARD);
    swap(p, find(p, SN_INSTR_KERNEL, 0), find(p, SN_INSTR_COPY, 0));
}
static void half_written(gen_schedules *g) {
    instr(g, 0, GEN_FORWARD, SN_INSTR_COPY, 0)->copy.dims[0] = 1;
}
static void partly_in_place(gen_schedules *g) {
    sn_do_copy *c = &instr(g, 0, GEN_FORWARD, SN_INSTR_COPY, 0)->copy;
    c->to = c->from;
}
static void data_not_loaded(gen_schedules *g) {
    g->classes[0].sequences.items[0].runs.items[0].load = false;
}
static void run_missing(gen_schedules *g) {
    sn_sequence *step = &g->classes[0].sequences.items[0];
    step->runs.count--;
    memmove(step->runs.items, step->runs.items + 1, step->runs.count * sizeof *step->runs.items);
}
static void micro_batch_twice(gen_schedules *g) { // and another one never
    sn_sequence *step = &g->classes[0].sequences.items[0];
    for (size_t i = 1; i < step->runs.count; i++) {
        if (step->runs.items[i].program != GEN_BACKWARD) continue;
        step->runs.items[i].micro_batch = (step->runs.items[i].micro_batch + 1) % g->parts;
        return;
    }
}
static void write_to_a_constant(gen_schedules *g) {
    sn_do_kernel *k = &instr(g, 0, GEN_FORWARD, SN_INSTR_KERNEL, 0)->kernel;
    k->access.items[1] |= SN_ACCESS_WRITE;
}
static void result_not_written(gen_schedules *g) {
    sn_program *p = program(g, 0, GEN_UPDATE);
    drop(p, find(p, SN_INSTR_KERNEL, -1));
}
static void sequence_missing(gen_schedules *g) {
    g->classes[1].sequences.items[1].name = "evil";
}
static void two_tensors_of_a_name(gen_schedules *g) {
    g->classes[1].globals.items[0].name = g->classes[0].globals.items[0].name;
}
static void more_than_the_device_has(gen_schedules *g) {
    for (size_t c = 0; c < g->all.classes.count; c++) g->classes[c].arena_bytes += INT64_C(1) << 40;
}

#define BUG(name, ...)                                                                                                 \
    {                                                                                                                  \
#name, name, {                                                                                                 \
            __VA_ARGS__, -1                                                                                            \
        }                                                                                                              \
    }
#define K(kind) SN_FINDING_##kind

static const struct bug {
    const char *name;
    void (*put)(gen_schedules *g);
    int kinds[4]; // one of these must be found
} bugs[] = {
    BUG(missing_wait_before_send, K(RACE)),
    BUG(missing_wait_after_receive, K(RACE), K(UNWRITTEN), K(CLOBBERED)),
    BUG(missing_record, K(EVENT)),
    BUG(record_too_early, K(RACE)),
    BUG(wait_for_an_earlier_event, K(RACE), K(EVENT)),
    BUG(event_recorded_twice, K(EVENT)),
    BUG(wait_for_nothing, K(EVENT)),
    BUG(reduction_without_events, K(RACE)),
    BUG(swapped_collectives, K(MISMATCH)),
    BUG(collective_of_another_count, K(MISMATCH)),
    BUG(collective_of_another_type, K(MISMATCH)),
    BUG(collective_of_another_reduction, K(MISMATCH)),
    BUG(collective_of_another_kind, K(MISMATCH)),
    BUG(collective_over_other_axes, K(DEADLOCK), K(MISMATCH)),
    BUG(collective_on_the_other_stream, K(DEADLOCK)),
    BUG(missing_collective, K(DEADLOCK)),
    BUG(collective_too_many, K(DEADLOCK)),
    BUG(missing_send, K(DEADLOCK)),
    BUG(missing_receive, K(UNMATCHED)),
    BUG(send_twice, K(UNMATCHED)),
    BUG(wrong_peer, K(DEADLOCK)),
    BUG(wrong_channel, K(DEADLOCK)),
    BUG(transfer_of_another_count, K(MISMATCH)),
    BUG(transfer_of_another_type, K(MISMATCH)),
    BUG(backward_before_forward, K(DEADLOCK)),
    BUG(slot_too_few, K(CLOBBERED)),
    BUG(input_slot_too_few, K(CLOBBERED)),
    BUG(slots_in_each_other, K(MALFORMED), K(CLOBBERED)),
    BUG(early_reuse, K(OVERLAP)),
    BUG(temporary_in_a_kept_value, K(CLOBBERED), K(OVERLAP)),
    BUG(temporary_in_a_weight, K(CLOBBERED)),
    BUG(temporary_in_a_sum, K(CLOBBERED)),
    BUG(weights_in_each_other, K(CLOBBERED)),
    BUG(special_in_a_kept_value, K(CLOBBERED)),
    BUG(beyond_the_arena, K(MALFORMED)),
    BUG(operand_beyond_its_buffer, K(MALFORMED)),
    BUG(operands_swapped, K(UNWRITTEN), K(CLOBBERED)),
    BUG(read_before_write, K(UNWRITTEN), K(CLOBBERED)),
    BUG(half_written, K(UNWRITTEN), K(CLOBBERED)),
    BUG(partly_in_place, K(OVERLAP)),
    BUG(data_not_loaded, K(UNWRITTEN)),
    BUG(run_missing, K(DEADLOCK)),
    BUG(micro_batch_twice, K(CLOBBERED), K(UNWRITTEN), K(DEADLOCK)),
    BUG(write_to_a_constant, K(CONSTANT)),
    BUG(result_not_written, K(UNWRITTEN)),
    BUG(sequence_missing, K(MALFORMED)),
    BUG(two_tensors_of_a_name, K(MALFORMED)),
    BUG(more_than_the_device_has, K(MEMORY)),
};

static bool is_one_of(const int *kinds, sn_finding_kind kind) {
    for (; *kinds >= 0; kinds++)
        if (*kinds == (int)kind) return true;
    return false;
}

static void seeded_bugs_are_found(void **state) {
    (void)state;
    size_t count = sizeof bugs / sizeof *bugs;
    for (size_t b = 0; b < count; b++) {
        for (uint64_t seed = 1; seed <= BASES; seed++) {
            gen_schedules g;
            gen_make(1000 * (b + 1) + seed, 3, 4, true, &g);
            bugs[b].put(&g);
            sn_findings findings = {0};
            sn_schedules_verify(&g.all, INT64_C(1) << 30, &g.arena, &findings);
            bool found = false;
            for (size_t i = 0; i < findings.count; i++)
                found = found || is_one_of(bugs[b].kinds, findings.data[i].kind);
            if (!found)
                fail_msg("%s in schedule %d: %s", bugs[b].name, (int)seed,
                         findings.count ? findings.data[0].text : "nothing is found");
            sn_vec_free(&findings);
            sn_arena_free(&g.arena);
        }
    }
    printf("%zu kinds of bugs, each in %d schedules\n", count, BASES);
}

// The message says which instruction it is, of which ONNX node, when and where.
static void findings_name_the_place(void **state) {
    (void)state;
    gen_schedules g;
    gen_make(7, 3, 4, true, &g);
    instr(&g, 1, GEN_FORWARD, SN_INSTR_RECV, 0)->transfer.count--;
    sn_findings findings = {0};
    sn_schedules_verify(&g.all, 0, &g.arena, &findings);
    for (size_t i = 0; i < findings.count; i++) {
        if (findings.data[i].kind != SN_FINDING_MISMATCH) continue;
        const char *text = findings.data[i].text;
        assert_non_null(strstr(text, "recv #"));
        assert_non_null(strstr(text, "of forward (\"/layer/"));
        assert_non_null(strstr(text, "micro-batch 0, run 0 of sequence step, rank class 1"));
        assert_non_null(strstr(text, "send #"));
        sn_vec_free(&findings);
        sn_arena_free(&g.arena);
        return;
    }
    fail_msg("no mismatch is found");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_false_alarms),
        cmocka_unit_test(seeded_bugs_are_found),
        cmocka_unit_test(findings_name_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
