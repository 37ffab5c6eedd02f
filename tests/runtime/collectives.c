// Every collective over every set of axes of a mesh that the ranks fill, against what the ranks' formula says. Run
// under mpirun; exit status 1 and a line on a difference.
#include "base/alloc.h"
#include "base/bug.h"
#include "runtime/comm/comm.h"
#include "runtime/mesh.h"

#include <stdio.h>
#include <string.h>

enum { COUNT = 3000001 }; // more than a piece, and not a multiple of anything

// Element i of what `rank` puts in: small integers, so that sums are exact in any order.
static float item(int64_t rank, int64_t i) {
    return (float)((rank + 1) * (i % 97) % 1000 - 300);
}

static void must(sn_comm *comm, sn_status status) {
    if (status) comm->vtable->abort(comm, sn_status_message(status));
}

typedef struct members {
    int64_t ranks[16], count, mine;
} members;

static members find_members(const sn_schedule *s, int64_t rank, int64_t axes) {
    members m = {.count = sn_schedule_group_size(s, axes), .mine = sn_schedule_place(s, rank, axes)};
    int64_t others = ~axes & ((1 << s->mesh.count) - 1);
    for (int64_t r = 0; r < s->ranks; r++) {
        if (sn_schedule_place(s, r, others) == sn_schedule_place(s, rank, others))
            m.ranks[sn_schedule_place(s, r, axes)] = r;
    }
    return m;
}

// What element i of the result must be.
static float expected(const members *m, sn_instr_kind kind, sn_reduce reduce, int64_t count, int64_t i) {
    if (kind == SN_INSTR_BROADCAST) return item(m->ranks[0], i);
    if (kind == SN_INSTR_ALL_GATHER) return item(m->ranks[i / count], i % count);
    if (kind == SN_INSTR_ALL_TO_ALL) return item(m->ranks[i / count], m->mine * count + i % count);
    int64_t at = kind == SN_INSTR_REDUCE_SCATTER ? m->mine * count + i : i;
    float sum = 0, max = -1e9f;
    for (int64_t r = 0; r < m->count; r++) {
        float value = item(m->ranks[r], at);
        sum += value, max = value > max ? value : max;
    }
    return reduce == SN_REDUCE_MAX ? max : sum;
}

static void check(sn_comm *comm, const sn_schedule *s, const sn_instr *in) {
    const sn_do_collective *c = &in->collective;
    members m = find_members(s, comm->rank, c->axes);
    bool wide_from = in->kind == SN_INSTR_REDUCE_SCATTER || in->kind == SN_INSTR_ALL_TO_ALL;
    bool wide_to = in->kind == SN_INSTR_ALL_GATHER || in->kind == SN_INSTR_ALL_TO_ALL;
    int64_t n_from = c->count * (wide_from ? m.count : 1), n_to = c->count * (wide_to ? m.count : 1);
    bool in_place = in->kind == SN_INSTR_ALL_REDUCE && c->reduce == SN_REDUCE_MAX;
    float *from = sn_alloc((size_t)n_from * sizeof *from), *to = in_place ? from : sn_alloc((size_t)n_to * sizeof *to);
    for (int64_t i = 0; i < n_from; i++) from[i] = item(comm->rank, i);
    sn_collective collective = {in->kind, in->stream, c->axes, SN_F32, c->reduce, c->count, from, to};
    must(comm, comm->vtable->run(comm, &collective));
    for (int64_t i = 0; i < n_to; i++) {
        float want = expected(&m, in->kind, c->reduce, c->count, i);
        if (to[i] == want) continue;
        char text[128];
        snprintf(text, sizeof text, "rank %d: %s over axes %d: element %lld is %g, not %g\n", comm->rank,
                 sn_instr_name(in->kind), (int)c->axes, (long long)i, (double)to[i], (double)want);
        comm->vtable->abort(comm, text);
    }
    if (!in_place) sn_free(to);
    sn_free(from);
}

static float widened(sn_dtype dtype, uint16_t half) {
    return dtype == SN_BF16 ? sn_bf16_to_f32(half) : sn_f16_to_f32(half);
}

// Parts that 16 bits hold; their sum needs more, so it tells whether it was rounded once.
static void check_halves(sn_comm *comm, const sn_schedule *s, const sn_instr *in, sn_dtype dtype) {
    const sn_do_collective *c = &in->collective;
    int64_t count = c->count / 2; // still more than a piece
    members m = find_members(s, comm->rank, c->axes);
    int64_t n_from = count * (in->kind == SN_INSTR_REDUCE_SCATTER ? m.count : 1);
    uint16_t *from = sn_alloc((size_t)n_from * sizeof *from), *to = sn_alloc((size_t)count * sizeof *to);
    for (int64_t i = 0; i < n_from; i++) {
        float value = item(comm->rank, i) / 8;
        from[i] = dtype == SN_BF16 ? sn_bf16_from_f32(value) : sn_f16_from_f32(value);
    }
    sn_collective collective = {in->kind, in->stream, c->axes, dtype, c->reduce, count, from, to};
    must(comm, comm->vtable->run(comm, &collective));
    for (int64_t i = 0; i < count; i++) {
        int64_t at = in->kind == SN_INSTR_REDUCE_SCATTER ? m.mine * count + i : i;
        float sum = 0, max = -1e9f;
        for (int64_t r = 0; r < m.count; r++) {
            float value = item(m.ranks[r], at) / 8;
            value = widened(dtype, dtype == SN_BF16 ? sn_bf16_from_f32(value) : sn_f16_from_f32(value));
            sum += value, max = value > max ? value : max;
        }
        float want = c->reduce == SN_REDUCE_MAX ? max : sum;
        if (to[i] != (dtype == SN_BF16 ? sn_bf16_from_f32(want) : sn_f16_from_f32(want)))
            comm->vtable->abort(comm, "a reduction of 16-bit floats is not the rounded sum\n");
    }
    sn_free(from);
    sn_free(to);
}

// Everybody sends to all and itself before anybody receives, and takes the last channel first.
static void check_transfers(sn_comm *comm, int64_t micro_batches) {
    float *data = sn_alloc(COUNT * sizeof *data);
    for (int peer = 0; peer < comm->ranks; peer++) {
        for (int64_t tag = 0; tag < micro_batches; tag++) {
            for (int64_t i = 0; i < COUNT; i++) data[i] = item(comm->rank + 10 * tag, i);
            sn_transfer t = {true, peer, tag, data, COUNT * sizeof *data};
            must(comm, comm->vtable->transfer(comm, &t));
        }
    }
    for (int peer = comm->ranks - 1; peer >= 0; peer--) {
        for (int64_t tag = micro_batches - 1; tag >= 0; tag--) {
            sn_transfer t = {false, peer, tag, data, COUNT * sizeof *data};
            must(comm, comm->vtable->transfer(comm, &t));
            for (int64_t i = 0; i < COUNT; i++)
                if (data[i] != item(peer + 10 * tag, i)) comm->vtable->abort(comm, "a transfer brings other numbers\n");
        }
    }
    sn_free(data);
}

static void check_agreement(sn_comm *comm) {
    for (int failing = -1; failing < comm->ranks; failing++) {
        bool stop = comm->rank == comm->ranks - 1 && failing >= 0;
        int first = 99;
        must(comm, sn_comm_agree(comm, failing >= 0 && comm->rank >= failing, &stop, &first));
        if (first != failing || stop != (failing >= 0)) comm->vtable->abort(comm, "ranks do not agree\n");
    }
}

int main(void) {
    sn_comm *comm;
    sn_status status = sn_comm_mpi_launched() ? sn_comm_mpi_create(true, &comm) : sn_comm_self_create(&comm);
    if (status) SN_BUG("%s", sn_status_message(status));
    int64_t second = comm->ranks % 2 ? 1 : 2;
    sn_schedule_axis mesh[] = {{"dp", comm->ranks / second}, {"tp", second}};
    sn_instr instrs[65];
    size_t n = 0;
    for (int64_t axes = 0; axes < 4; axes++) {
        for (sn_instr_kind kind = SN_INSTR_ALL_REDUCE; kind <= SN_INSTR_BROADCAST; kind++) {
            bool reduces = kind == SN_INSTR_ALL_REDUCE || kind == SN_INSTR_REDUCE_SCATTER;
            for (sn_reduce r = SN_REDUCE_SUM; r <= (reduces ? SN_REDUCE_MAX : SN_REDUCE_SUM); r++)
                instrs[n++] = (sn_instr){
                    .kind = kind,
                    .collective = {.dtype = SN_F32, .reduce = r, .axes = axes, .count = reduces ? COUNT : 1000}};
        }
    }
    sn_program program = {"step", {instrs, n}};
    sn_schedule schedule = {
        .mesh = {mesh, 2}, .pipeline_axis = 1, .ranks = comm->ranks, .micro_batches = 3, .programs = {&program, 1}};
    instrs[n] = (sn_instr){.kind = SN_INSTR_SEND};
    program.instrs.count++;
    must(comm, comm->vtable->set_mesh(comm, &(sn_schedules){SN_SCHEDULE_VERSION, {&schedule, 1}}));
    for (size_t i = 0; i < n; i++) {
        check(comm, &schedule, &instrs[i]);
        if (instrs[i].kind != SN_INSTR_ALL_REDUCE && instrs[i].kind != SN_INSTR_REDUCE_SCATTER) continue;
        check_halves(comm, &schedule, &instrs[i], SN_BF16);
        check_halves(comm, &schedule, &instrs[i], SN_F16);
    }
    check_transfers(comm, 3);
    check_agreement(comm);
    must(comm, comm->vtable->barrier(comm));
    sn_comm_destroy(comm);
    return 0;
}
