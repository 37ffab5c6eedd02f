// The memory of one rank class, over one sequence with its runs unrolled.
//
// The arena is cut in cells at every place where an operand or a buffer begins or ends, so that an access covers whole
// cells. A cell knows through which buffer and for which micro-batch it was written last, and the last write and the
// last reads on each stream. A program's instructions are gone through in an order that streams and events allow, with
// vector clocks (one entry a stream) saying what lies before what, as race detectors do (Fidge 1988, Mattern 1989): an
// access is sound when the conflicting ones lie before it. A run starts after the one before it has ended, so accesses
// of different runs are ordered.
//
// Where the accesses are ordered, the last write is the one that a read sees: it must have gone through the buffer that
// the read goes through, which catches memory that was given away while its value was still needed, and belong to the
// same micro-batch, which catches too few slots. Buffers that outlive the step, and what a run of no micro-batch wrote,
// serve all micro-batches.
#include "backend/verify/proof.h"
#include "runtime/operands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NEVER = -1, FROM_OUTSIDE = -1, MOST_RUNS = 4096 };

typedef struct access {
    int64_t run, position; // position: in its stream, from 1
    int64_t instr;         // FROM_OUTSIDE: the runtime did it
    const sn_operand *operand;
} access;

typedef struct cell {
    int64_t buffer;      // that it was written through; NEVER
    int64_t micro_batch; // -1: of none, or good for all
    int64_t run;         // of the last accesses; older ones lie before everything
    access write;
    sn_stream write_stream;
    access reads[SN_STREAM_COUNT];
} cell;

// Operands of a program's instructions, one after the other.
typedef struct program_operands {
    sn_operands all;
    size_t *first; // [instructions + 1]
} program_operands;

typedef struct memory {
    sn_proof *proof;
    const sn_schedule *s;
    sn_proof_place at;
    int64_t micro_batch;  // of the run
    SN_VEC(int64_t) cuts; // sorted: cell i is [cuts[i], cuts[i + 1])
    cell *cells;
    program_operands *programs;
    bool *resident, *constant; // by buffer
    // The run that is gone through.
    int64_t clock[SN_STREAM_COUNT][SN_STREAM_COUNT];
} memory;

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void add_cuts(memory *m, const sn_buffer *b, int64_t from, int64_t to) {
    int64_t slots = b->slots > 1 ? b->slots : 1;
    for (int64_t i = 0; i < slots; i++) {
        int64_t start = b->offset + i * b->slot_bytes;
        sn_vec_push(&m->cuts, start + from);
        sn_vec_push(&m->cuts, start + to);
    }
}

static int64_t buffer_extent(const sn_buffer *b) {
    int64_t bytes = (int64_t)sn_dtype_bytes(b->dtype);
    for (size_t i = 0; i < b->shape.count; i++) bytes *= b->shape.items[i];
    return bytes;
}

static void list_operands(memory *m) {
    m->programs = sn_alloc((m->s->programs.count + 1) * sizeof *m->programs);
    for (size_t p = 0; p < m->s->programs.count; p++) {
        const sn_program *program = &m->s->programs.items[p];
        program_operands *o = &m->programs[p];
        o->first = sn_alloc((program->instrs.count + 1) * sizeof *o->first);
        for (size_t i = 0; i < program->instrs.count; i++) {
            sn_instr_operands(m->s, &program->instrs.items[i], &o->all);
            o->first[i + 1] = o->all.count;
        }
    }
}

static void make_cells(memory *m) {
    for (size_t i = 0; i < m->s->buffers.count; i++) {
        const sn_buffer *b = &m->s->buffers.items[i];
        add_cuts(m, b, 0, buffer_extent(b));
    }
    for (size_t r = 0; r < m->at.sequence->runs.count; r++) {
        const program_operands *o = &m->programs[m->at.sequence->runs.items[r].program];
        bool known = false; // the program came before
        for (size_t k = 0; k < r; k++)
            known = known || m->at.sequence->runs.items[k].program == m->at.sequence->runs.items[r].program;
        for (size_t i = 0; !known && i < o->all.count; i++) {
            const sn_view view = o->all.data[i].view;
            add_cuts(m, &m->s->buffers.items[view.buffer], view.offset,
                     view.offset + sn_operand_extent(&o->all.data[i]));
        }
    }
    if (m->cuts.count) qsort(m->cuts.data, m->cuts.count, sizeof *m->cuts.data, ascending);
    size_t n = 0;
    for (size_t i = 0; i < m->cuts.count; i++) {
        if (!n || m->cuts.data[n - 1] != m->cuts.data[i]) m->cuts.data[n++] = m->cuts.data[i];
    }
    m->cuts.count = n;
    m->cells = sn_alloc((n + 1) * sizeof *m->cells);
    for (size_t i = 0; i < n; i++) m->cells[i].buffer = NEVER;
}

// Index of the cell that begins at or before `at`.
static size_t cell_at(const memory *m, int64_t at) {
    size_t low = 0, high = m->cuts.count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (m->cuts.data[middle] <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// The contiguous stretches of an operand: `bytes` at each place that the outer dims lead to.
typedef struct stretches {
    int64_t bytes, count;
    int rank;                                                // outer dims
    int64_t dims[SN_OPERAND_DIMS], strides[SN_OPERAND_DIMS]; // bytes, largest stride first
} stretches;

static stretches stretches_of(const sn_operand *o) {
    stretches s = {.bytes = o->element, .count = 1};
    for (int i = 0; i < o->rank; i++) {
        if (o->dims[i] == 0) return (stretches){0};
        if (o->dims[i] == 1 || o->strides[i] == 0) continue;
        int at = s.rank++;
        for (; at > 0 && s.strides[at - 1] < o->strides[i] * o->element; at--)
            s.dims[at] = s.dims[at - 1], s.strides[at] = s.strides[at - 1];
        s.dims[at] = o->dims[i], s.strides[at] = o->strides[i] * o->element;
    }
    while (s.rank > 0 && s.strides[s.rank - 1] == s.bytes) s.bytes *= s.dims[--s.rank];
    for (int i = 0; i < s.rank && s.count <= MOST_RUNS; i++) s.count *= s.dims[i];
    if (s.count > MOST_RUNS) s = (stretches){.bytes = sn_operand_extent(o), .count = 1}; // the whole stretch instead
    return s;
}

static int64_t stretch_start(const stretches *s, int64_t index) {
    int64_t at = 0;
    for (int i = s->rank; i-- > 0;) {
        at += index % s->dims[i] * s->strides[i];
        index /= s->dims[i];
    }
    return at;
}

static int64_t address(const memory *m, const sn_operand *o, int64_t micro_batch) {
    return sn_buffer_offset(&m->s->buffers.items[o->view.buffer], micro_batch) + o->view.offset;
}

// Whether two operands that share a cell share bytes: views of one buffer may lie between each other's rows.
static bool share_bytes(const memory *m, const sn_operand *a, const sn_operand *b) {
    stretches x = stretches_of(a), y = stretches_of(b);
    int64_t from_a = address(m, a, m->micro_batch), from_b = address(m, b, m->micro_batch);
    for (int64_t i = 0; i < x.count; i++) {
        int64_t start = from_a + stretch_start(&x, i);
        for (int64_t k = 0; k < y.count; k++) {
            int64_t other = from_b + stretch_start(&y, k);
            if (start < other + y.bytes && other < start + x.bytes) return true;
        }
    }
    return false;
}

static const char *name_of(const memory *m, int64_t buffer) {
    const char *name = buffer >= 0 ? m->s->buffers.items[buffer].name : NULL;
    return name ? name : "";
}

static const char *where_of(const memory *m, const access *a) {
    if (a->instr == FROM_OUTSIDE) return "the runtime";
    sn_proof_place place = m->at;
    place.run = (size_t)a->run, place.instr = (size_t)a->instr;
    return sn_proof_where(m->proof, &place);
}

static bool lies_before(const memory *m, const access *a, sn_stream stream_of_a, sn_stream now) {
    return a->run != (int64_t)m->at.run || a->instr == FROM_OUTSIDE || m->clock[now][stream_of_a] >= a->position;
}

static void check_order(memory *m, const cell *c, const sn_operand *o, sn_stream now) {
    const access *late = NULL;
    bool writes = o->access & SN_ACCESS_WRITE;
    if (c->write.position && !lies_before(m, &c->write, c->write_stream, now)) late = &c->write;
    for (int s = 0; writes && s < SN_STREAM_COUNT; s++) {
        if (c->reads[s].position && !lies_before(m, &c->reads[s], (sn_stream)s, now)) late = &c->reads[s];
    }
    if (!late || (late->operand && late->operand->view.buffer == o->view.buffer && !share_bytes(m, late->operand, o)))
        return;
    sn_proof_tell(m->proof, SN_FINDING_RACE, "%s: nothing orders it after %s; both touch '%s'",
                  sn_proof_where(m->proof, &m->at), where_of(m, late), name_of(m, o->view.buffer));
}

static void check_value(memory *m, const cell *c, const sn_operand *o) {
    const char *name = name_of(m, o->view.buffer);
    if (c->buffer == NEVER) {
        sn_proof_tell(m->proof, SN_FINDING_UNWRITTEN, "%s: reads '%s' (operand %s), which nobody wrote",
                      sn_proof_where(m->proof, &m->at), name, o->name);
    } else if (c->buffer != o->view.buffer) {
        sn_proof_tell(m->proof, SN_FINDING_CLOBBERED, "%s: reads '%s' (operand %s), but '%s' was written there by %s",
                      sn_proof_where(m->proof, &m->at), name, o->name, name_of(m, c->buffer), where_of(m, &c->write));
    } else if (c->micro_batch >= 0 && c->micro_batch != m->micro_batch && m->s->micro_batches > 1) {
        sn_proof_tell(m->proof, SN_FINDING_CLOBBERED,
                      "%s: reads '%s' (operand %s), which holds the value of micro-batch %" PRId64 ", written by %s",
                      sn_proof_where(m->proof, &m->at), name, o->name, c->micro_batch, where_of(m, &c->write));
    }
}

// Calls `visit` for every cell that the operand touches; stops when it says so.
static void for_cells(memory *m, const sn_operand *o, bool (*visit)(memory *, cell *, const sn_operand *, sn_stream),
                      sn_stream now) {
    stretches s = stretches_of(o);
    int64_t from = address(m, o, m->micro_batch);
    for (int64_t i = 0; i < s.count; i++) {
        int64_t start = from + stretch_start(&s, i), end = start + s.bytes;
        for (size_t k = cell_at(m, start); k + 1 < m->cuts.count && m->cuts.data[k] < end; k++) {
            if (!visit(m, &m->cells[k], o, now)) return;
        }
    }
}

static bool see(memory *m, cell *c, const sn_operand *o, sn_stream now) {
    int before =
        m->proof->told[SN_FINDING_RACE] + m->proof->told[SN_FINDING_UNWRITTEN] + m->proof->told[SN_FINDING_CLOBBERED];
    check_order(m, c, o, now);
    if (o->access & SN_ACCESS_READ) check_value(m, c, o);
    int after =
        m->proof->told[SN_FINDING_RACE] + m->proof->told[SN_FINDING_UNWRITTEN] + m->proof->told[SN_FINDING_CLOBBERED];
    return before == after; // one finding an operand
}

static bool keep(memory *m, cell *c, const sn_operand *o, sn_stream now) {
    access a = {(int64_t)m->at.run, m->clock[now][now], (int64_t)m->at.instr, o};
    if (o->access & SN_ACCESS_WRITE) {
        c->buffer = o->view.buffer;
        c->micro_batch = m->resident[o->view.buffer] ? -1 : m->micro_batch;
        c->write = a, c->write_stream = now;
        memset(c->reads, 0, sizeof c->reads);
    }
    if (o->access & SN_ACCESS_READ) c->reads[now] = a;
    return true;
}

static bool works_in_place(const sn_instr *in, const sn_operand *a, const sn_operand *b) {
    bool may = in->kind == SN_INSTR_KERNEL || in->kind == SN_INSTR_ALL_REDUCE || in->kind == SN_INSTR_BROADCAST;
    return may && a->view.buffer == b->view.buffer && a->view.offset == b->view.offset;
}

// What an instruction writes must not lie in what it reads, unless it is made for it.
static void check_operands(memory *m, const sn_instr *in, const sn_operand *operands, size_t count) {
    for (size_t a = 0; a < count; a++) {
        const sn_operand *x = &operands[a];
        int64_t from = address(m, x, m->micro_batch), to = from + sn_operand_extent(x);
        if (!(x->access & SN_ACCESS_WRITE)) continue;
        if (m->constant[x->view.buffer])
            sn_proof_tell(m->proof, SN_FINDING_CONSTANT, "%s: writes '%s', which never changes",
                          sn_proof_where(m->proof, &m->at), name_of(m, x->view.buffer));
        for (size_t b = 0; b < count; b++) {
            const sn_operand *y = &operands[b];
            int64_t other = address(m, y, m->micro_batch);
            bool apart = to <= other || other + sn_operand_extent(y) <= from;
            if (a == b || (b < a && y->access & SN_ACCESS_WRITE) || apart || works_in_place(in, x, y)) continue;
            if (x->view.buffer == y->view.buffer && !share_bytes(m, x, y)) continue;
            sn_proof_tell(m->proof, SN_FINDING_OVERLAP, "%s: '%s' (operand %s) lies in '%s' (operand %s)",
                          sn_proof_where(m->proof, &m->at), name_of(m, x->view.buffer), x->name,
                          name_of(m, y->view.buffer), y->name);
        }
    }
}

static void go_through(memory *m, size_t i) {
    const sn_sequence_run *run = &m->at.sequence->runs.items[m->at.run];
    const sn_instr *in = &m->s->programs.items[run->program].instrs.items[i];
    const program_operands *o = &m->programs[run->program];
    m->at.instr = i;
    m->clock[in->stream][in->stream]++;
    const sn_operand *operands = o->all.data + o->first[i];
    size_t count = o->first[i + 1] - o->first[i];
    check_operands(m, in, operands, count);
    for (size_t k = 0; k < count; k++) for_cells(m, &operands[k], see, in->stream);
    for (size_t k = 0; k < count; k++) for_cells(m, &operands[k], keep, in->stream);
}

// Events of a run.
typedef struct event {
    bool recorded;
    int64_t clock[SN_STREAM_COUNT];
} event;

// Goes on in a stream up to a wait for what has not been recorded. Whether it got anywhere.
static bool advance(memory *m, const sn_program *program, sn_stream stream, size_t *next, event *events) {
    bool moved = false;
    for (; *next < program->instrs.count; ++*next) {
        const sn_instr *in = &program->instrs.items[*next];
        if (in->stream != stream) continue;
        m->at.instr = *next;
        if (in->kind == SN_INSTR_WAIT) {
            const event *e = &events[in->event.event];
            if (!e->recorded) return moved;
            for (int s = 0; s < SN_STREAM_COUNT; s++)
                if (e->clock[s] > m->clock[stream][s]) m->clock[stream][s] = e->clock[s];
        } else if (in->kind == SN_INSTR_RECORD) {
            event *e = &events[in->event.event];
            if (e->recorded)
                sn_proof_tell(m->proof, SN_FINDING_EVENT, "%s: event %" PRId64 " is recorded twice in a run",
                              sn_proof_where(m->proof, &m->at), in->event.event);
            e->recorded = true;
            memcpy(e->clock, m->clock[stream], sizeof e->clock);
        } else {
            go_through(m, *next);
        }
        moved = true;
    }
    return moved;
}

static void run_program(memory *m, const sn_program *program) {
    event *events = sn_alloc((program->instrs.count + 1) * sizeof *events);
    size_t next[SN_STREAM_COUNT] = {0};
    memset(m->clock, 0, sizeof m->clock);
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < SN_STREAM_COUNT; s++) moved |= advance(m, program, (sn_stream)s, &next[s], events);
    }
    for (int s = 0; s < SN_STREAM_COUNT; s++) {
        if (next[s] >= program->instrs.count) continue;
        m->at.instr = next[s];
        sn_proof_tell(m->proof, SN_FINDING_EVENT, "%s: the event it waits for is not recorded before",
                      sn_proof_where(m->proof, &m->at));
    }
    sn_free(events);
}

// The runtime's own writes: data, special inputs, first values.
static void write_from_outside(memory *m, int64_t buffer, int64_t micro_batch) {
    const sn_buffer *b = &m->s->buffers.items[buffer];
    int64_t from = sn_buffer_offset(b, micro_batch), to = from + buffer_extent(b);
    for (size_t k = cell_at(m, from); k + 1 < m->cuts.count && m->cuts.data[k] < to; k++) {
        cell *c = &m->cells[k];
        *c = (cell){.buffer = buffer, .micro_batch = m->resident[buffer] ? -1 : micro_batch};
        c->write = (access){.run = (int64_t)m->at.run, .instr = FROM_OUTSIDE};
    }
}

// What the runtime reads back after the sequence, or must find again in the next one.
static void check_kept(memory *m, int64_t buffer, const char *name, bool own) {
    if (buffer < 0) return;
    const sn_buffer *b = &m->s->buffers.items[buffer];
    int64_t to = b->offset + buffer_extent(b);
    for (size_t k = cell_at(m, b->offset); k + 1 < m->cuts.count && m->cuts.data[k] < to; k++) {
        const cell *c = &m->cells[k];
        if (c->buffer == NEVER) {
            sn_proof_tell(m->proof, SN_FINDING_UNWRITTEN, "sequence %s of rank class %" PRId64 " does not write '%s'",
                          m->at.sequence->name, m->at.class, name);
            return;
        }
        if (own && c->buffer != buffer) {
            sn_proof_tell(m->proof, SN_FINDING_CLOBBERED,
                          "sequence %s of rank class %" PRId64 " leaves '%s' overwritten by '%s', which %s wrote",
                          m->at.sequence->name, m->at.class, name, name_of(m, c->buffer), where_of(m, &c->write));
            return;
        }
    }
}

static void check_results(memory *m) {
    const sn_schedule *s = m->s;
    const char *name = m->at.sequence->name;
    for (size_t i = 0; i < s->globals.count; i++)
        check_kept(m, s->globals.items[i].buffer, s->globals.items[i].name, true);
    if (!strcmp(name, "step")) check_kept(m, s->loss, "loss", false), check_kept(m, s->grad_norm, "grad_norm", false);
    if (!strcmp(name, "eval")) check_kept(m, s->eval_loss, "eval_loss", false);
    for (size_t i = 0; !strcmp(name, "gradients") && i < s->gradients.count; i++)
        check_kept(m, s->gradients.items[i].buffer, s->gradients.items[i].name, false);
    for (size_t i = 0; !strcmp(name, "predict") && i < s->predictions.count; i++)
        check_kept(m, s->predictions.items[i].buffer, s->predictions.items[i].name, false);
}

static void find_residents(memory *m) {
    m->resident = sn_alloc((m->s->buffers.count + 1) * sizeof *m->resident);
    m->constant = sn_alloc((m->s->buffers.count + 1) * sizeof *m->constant);
    for (size_t i = 0; i < m->s->globals.count; i++) {
        const sn_resident *g = &m->s->globals.items[i];
        m->resident[g->buffer] = true;
        if (g->role == SN_RESIDENT_CONSTANT) m->constant[g->buffer] = true;
    }
}

void sn_proof_memory(sn_proof *proof, int64_t class, const sn_sequence *sequence) {
    memory m = {.proof = proof, .s = &proof->all->classes.items[class], .at = {.class = class, .sequence = sequence}};
    list_operands(&m);
    make_cells(&m);
    find_residents(&m);
    for (size_t i = 0; i < m.s->globals.count; i++) write_from_outside(&m, m.s->globals.items[i].buffer, -1);
    for (; m.at.run < sequence->runs.count; m.at.run++) {
        const sn_sequence_run *run = &sequence->runs.items[m.at.run];
        m.micro_batch = run->micro_batch;
        for (size_t i = 0; run->load && i < m.s->inputs.count; i++)
            write_from_outside(&m, m.s->inputs.items[i].buffer, run->micro_batch);
        for (size_t i = 0; i < m.s->specials.count; i++) write_from_outside(&m, m.s->specials.items[i].buffer, -1);
        run_program(&m, &m.s->programs.items[run->program]);
    }
    check_results(&m);
    for (size_t p = 0; p < m.s->programs.count; p++) {
        sn_vec_free(&m.programs[p].all);
        sn_free(m.programs[p].first);
    }
    sn_vec_free(&m.cuts);
    sn_free(m.cells), sn_free(m.programs), sn_free(m.resident), sn_free(m.constant);
}
