// What the rank classes do together, over one sequence with its runs unrolled.
//
// Ranks of one class run the same program, so a group within a class always agrees, and one rank of each class stands
// for all: the ranks that differ on other axes alone do the same at the same time. What remains are the collectives
// over the pipeline axis, in which all classes meet, and the transfers. Every stream goes on as far as it can: sends
// never block, a receive takes the oldest message of its channel and micro-batch, a collective goes on when all classes
// have come to theirs in the same communicator (a set of axes on a stream). The outcome does not depend on who goes
// first, as in any network of processes that read by blocking (Kahn 1974): if this simulation gets through, so does
// every run, and where it stands still nobody can go on.
#include "backend/verify/proof.h"

#include <inttypes.h>
#include <string.h>

typedef struct stream {
    size_t next;  // instruction
    bool arrived; // at a collective over classes, and waits
} stream;

typedef struct process { // a rank of a class
    sn_proof_place at;
    stream streams[SN_STREAM_COUNT];
    bool *events; // of the run
} process;

typedef struct message {
    int64_t from, to, channel, part;
    const sn_do_transfer *sent;
    sn_proof_place place;
    bool taken;
} message;

typedef struct order {
    sn_proof *proof;
    process *processes;
    size_t count;
    SN_VEC(message) messages;
    size_t first; // message that is not taken
} order;

static const sn_program *program_of(const order *o, const process *p) {
    return sn_proof_program(o->proof, &p->at);
}

static const sn_instr *instr_of(const order *o, const process *p, const stream *s) {
    return &program_of(o, p)->instrs.items[s->next];
}

static const char *where(const order *o, const process *p, size_t instr) {
    sn_proof_place place = p->at;
    place.instr = instr;
    return sn_proof_where(o->proof, &place);
}

static bool is_done(const process *p) {
    return p->at.run >= p->at.sequence->runs.count;
}

static int64_t part_of(const process *p) {
    int64_t micro_batch = p->at.sequence->runs.items[p->at.run].micro_batch;
    return micro_batch < 0 ? 0 : micro_batch;
}

static void send(order *o, const process *p, const stream *s) {
    const sn_do_transfer *t = &instr_of(o, p, s)->transfer;
    sn_proof_place place = p->at;
    place.instr = s->next;
    sn_vec_push(&o->messages, (message){p->at.class, t->peer, t->channel, part_of(p), t, place, false});
}

static bool receive(order *o, const process *p, const stream *s) {
    const sn_do_transfer *t = &instr_of(o, p, s)->transfer;
    for (size_t i = o->first; i < o->messages.count; i++) {
        message *m = &o->messages.data[i];
        if (m->taken || m->from != t->peer || m->to != p->at.class || m->channel != t->channel || m->part != part_of(p))
            continue;
        if (m->sent->count != t->count || m->sent->dtype != t->dtype)
            sn_proof_tell(o->proof, SN_FINDING_MISMATCH, "%s: receives %" PRId64 " %s, but %s sends %" PRId64 " %s",
                          where(o, p, s->next), t->count, sn_dtype_name(t->dtype), sn_proof_where(o->proof, &m->place),
                          m->sent->count, sn_dtype_name(m->sent->dtype));
        m->taken = true;
        while (o->first < o->messages.count && o->messages.data[o->first].taken) o->first++;
        return true;
    }
    return false;
}

static bool meets_classes(const order *o, const process *p, const sn_instr *in) {
    int64_t axis = o->proof->all->classes.items[p->at.class].pipeline_axis;
    return sn_instr_is_collective(in->kind) && axis >= 0 && (in->collective.axes >> axis & 1);
}

// One instruction, if it can go on.
static bool step(order *o, process *p, stream *s) {
    const sn_instr *in = instr_of(o, p, s);
    if (in->kind == SN_INSTR_SEND) send(o, p, s);
    if (in->kind == SN_INSTR_RECV && !receive(o, p, s)) return false;
    if (in->kind == SN_INSTR_RECORD) p->events[in->event.event] = true;
    if (in->kind == SN_INSTR_WAIT && !p->events[in->event.event]) return false;
    if (meets_classes(o, p, in)) {
        s->arrived = true;
        return false;
    }
    s->next++;
    return true;
}

static bool advance_stream(order *o, process *p, sn_stream which) {
    const sn_program *program = program_of(o, p);
    stream *s = &p->streams[which];
    bool moved = false;
    while (s->next < program->instrs.count && !s->arrived) {
        if (program->instrs.items[s->next].stream != which) {
            s->next++;
        } else if (step(o, p, s)) {
            moved = true;
        } else {
            break;
        }
    }
    return moved;
}

static void start_run(order *o, process *p) {
    sn_free(p->events);
    p->events = NULL;
    memset(p->streams, 0, sizeof p->streams);
    if (!is_done(p)) p->events = sn_alloc(program_of(o, p)->instrs.count + 1);
}

static bool advance(order *o, process *p) {
    bool moved = false;
    while (!is_done(p)) {
        bool ended = true;
        for (int s = 0; s < SN_STREAM_COUNT; s++) {
            moved |= advance_stream(o, p, (sn_stream)s);
            ended = ended && p->streams[s].next >= program_of(o, p)->instrs.count;
        }
        // One stream may have recorded what the other waits for.
        for (int s = 0; s < SN_STREAM_COUNT && !ended; s++) moved |= advance_stream(o, p, (sn_stream)s);
        if (!ended) {
            ended = true;
            for (int s = 0; s < SN_STREAM_COUNT; s++)
                ended = ended && p->streams[s].next >= program_of(o, p)->instrs.count;
        }
        if (!ended) return moved;
        p->at.run++;
        start_run(o, p);
        moved = true;
    }
    return moved;
}

static bool same_collective(const sn_instr *a, const sn_instr *b) {
    const sn_do_collective *x = &a->collective, *y = &b->collective;
    return a->kind == b->kind && x->dtype == y->dtype && x->count == y->count && x->reduce == y->reduce;
}

// Lets the collective that all classes wait in on this stream go on.
static bool meet(order *o, sn_stream which) {
    const sn_instr *first = NULL;
    for (size_t i = 0; i < o->count; i++) {
        process *p = &o->processes[i];
        if (is_done(p) || !p->streams[which].arrived) return false;
        const sn_instr *in = instr_of(o, p, &p->streams[which]);
        if (!first) first = in;
        if (in->collective.axes != first->collective.axes) return false;
    }
    for (size_t i = 0; i < o->count; i++) {
        process *p = &o->processes[i];
        if (!same_collective(first, instr_of(o, p, &p->streams[which])))
            sn_proof_tell(o->proof, SN_FINDING_MISMATCH, "%s meets another collective: %s",
                          where(o, p, p->streams[which].next),
                          where(o, &o->processes[0], o->processes[0].streams[which].next));
    }
    for (size_t i = 0; i < o->count; i++) {
        o->processes[i].streams[which].arrived = false;
        o->processes[i].streams[which].next++;
    }
    return true;
}

static void tell_deadlock(order *o) {
    sn_str text = {0};
    for (size_t i = 0; i < o->count; i++) {
        const process *p = &o->processes[i];
        if (is_done(p)) sn_str_printf(&text, "; rank class %zu has ended", i);
        for (int s = 0; s < SN_STREAM_COUNT && !is_done(p); s++) {
            if (p->streams[s].next < program_of(o, p)->instrs.count)
                sn_str_printf(&text, "; %s waits", where(o, p, p->streams[s].next));
        }
    }
    sn_proof_tell(o->proof, SN_FINDING_DEADLOCK, "nobody can go on%s", sn_str_text(&text));
    sn_str_free(&text);
}

static void tell_unmatched(order *o) {
    for (size_t i = o->first; i < o->messages.count; i++) {
        const message *m = &o->messages.data[i];
        if (!m->taken)
            sn_proof_tell(o->proof, SN_FINDING_UNMATCHED, "%s: rank class %" PRId64 " does not receive it",
                          sn_proof_where(o->proof, &m->place), m->to);
    }
}

void sn_proof_order(sn_proof *proof, const char *name) {
    order o = {.proof = proof, .count = proof->all->classes.count};
    o.processes = sn_alloc(o.count * sizeof *o.processes);
    for (size_t c = 0; c < o.count; c++) {
        o.processes[c].at = (sn_proof_place){.class = (int64_t)c,
                                             .sequence = sn_schedule_sequence(&proof->all->classes.items[c], name)};
        start_run(&o, &o.processes[c]);
    }
    bool done = false;
    for (bool moved = true; moved && !done;) {
        moved = false, done = true;
        for (size_t c = 0; c < o.count; c++) moved |= advance(&o, &o.processes[c]);
        for (int s = 0; s < SN_STREAM_COUNT; s++) moved |= meet(&o, (sn_stream)s);
        for (size_t c = 0; c < o.count; c++) done = done && is_done(&o.processes[c]);
    }
    if (done) {
        tell_unmatched(&o);
    } else {
        tell_deadlock(&o);
    }
    for (size_t c = 0; c < o.count; c++) sn_free(o.processes[c].events);
    sn_free(o.processes);
    sn_vec_free(&o.messages);
}
