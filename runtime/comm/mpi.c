// The communicator over MPI. Ranks of one host do collectives in memory that they share (runtime/comm/host.h). Every
// set of mesh axes and every stream has a communicator of its own, so that two threads never meet in one. Errors of MPI
// end the run (MPI_ERRORS_RETURN and a status).
#include "base/alloc.h"
#include "base/vec.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/host.h"
#include "runtime/comm/outbox.h"
#include "runtime/mesh.h"

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct group {
    int64_t axes;
    sn_stream stream;
    MPI_Comm comm;
    sn_host_group *host; // NULL: its ranks are on several
} group;

typedef struct mpi {
    sn_comm base;
    SN_VEC(group) groups;
    MPI_Comm world;      // ours, apart from MPI_COMM_WORLD
    MPI_Comm transfers;  // MPI_COMM_NULL without a pipeline; of all streams, tags tell them apart
    sn_outbox *outbox;   // NULL without a pipeline
    sn_host_group *host; // all ranks, from set_mesh on; NULL: they are on several hosts
    double spin;         // seconds that a rank waits before it sleeps
} mpi;

// Pieces keep the library's temporary buffers small, and counts within an int.
enum { PIECE = 4 << 20 };

static sn_status check(int code, const char *what) {
    if (code == MPI_SUCCESS) return SN_OK;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    return sn_status_make("MPI: %s: %.*s", what, length, text);
}

static MPI_Datatype mpi_type(sn_dtype dtype) {
    switch (dtype) {
    case SN_F32:
        return MPI_FLOAT;
    case SN_F64:
        return MPI_DOUBLE;
    case SN_I8:
        return MPI_INT8_T;
    case SN_I16:
        return MPI_INT16_T;
    case SN_I32:
        return MPI_INT32_T;
    case SN_I64:
        return MPI_INT64_T;
    case SN_U8:
    case SN_BOOL:
        return MPI_UINT8_T;
    case SN_U16:
        return MPI_UINT16_T;
    case SN_U32:
        return MPI_UINT32_T;
    case SN_U64:
        return MPI_UINT64_T;
    default:
        return MPI_DATATYPE_NULL;
    }
}

static MPI_Op mpi_op(const sn_collective *c) {
    return c->reduce == SN_REDUCE_MAX ? MPI_MAX : MPI_SUM;
}

// MPI knows no floats of 16 bits: a piece at a time is reduced in f32 and rounded once.
static bool is_half(sn_dtype dtype) {
    return dtype == SN_F16 || dtype == SN_BF16;
}

static void widen(sn_dtype dtype, const uint16_t *from, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i++) to[i] = dtype == SN_BF16 ? sn_bf16_to_f32(from[i]) : sn_f16_to_f32(from[i]);
}

static void narrow(sn_dtype dtype, const float *from, int64_t n, uint16_t *to) {
    for (int64_t i = 0; i < n; i++) to[i] = dtype == SN_BF16 ? sn_bf16_from_f32(from[i]) : sn_f16_from_f32(from[i]);
}

static sn_status all_reduce_halves(MPI_Comm comm, const sn_collective *c) {
    int64_t piece = PIECE / (int64_t)sizeof(float);
    float *wide = sn_alloc((size_t)(c->count < piece ? c->count : piece) * sizeof *wide);
    sn_status status = SN_OK;
    for (int64_t at = 0; at < c->count && !status; at += piece) {
        int64_t n = c->count - at < piece ? c->count - at : piece;
        widen(c->dtype, (const uint16_t *)c->from + at, n, wide);
        status = check(MPI_Allreduce(MPI_IN_PLACE, wide, (int)n, MPI_FLOAT, mpi_op(c), comm), "all_reduce");
        if (!status) narrow(c->dtype, wide, n, (uint16_t *)c->to + at);
    }
    sn_free(wide);
    return status;
}

static sn_status reduce_scatter_halves(MPI_Comm comm, const sn_collective *c) {
    int size;
    MPI_Comm_size(comm, &size);
    int64_t most = PIECE / (int64_t)sizeof(float) / size, piece = most > 0 ? most : 1;
    float *wide = sn_alloc((size_t)(piece * (size + 1)) * sizeof *wide), *sums = wide + piece * size;
    sn_status status = SN_OK;
    for (int64_t at = 0; at < c->count && !status; at += piece) {
        int64_t n = c->count - at < piece ? c->count - at : piece;
        for (int r = 0; r < size; r++) widen(c->dtype, (const uint16_t *)c->from + r * c->count + at, n, wide + r * n);
        status = check(MPI_Reduce_scatter_block(wide, sums, (int)n, MPI_FLOAT, mpi_op(c), comm), "reduce_scatter");
        if (!status) narrow(c->dtype, sums, n, (uint16_t *)c->to + at);
    }
    sn_free(wide);
    return status;
}

static sn_status all_reduce(MPI_Comm comm, const sn_collective *c) {
    if (is_half(c->dtype)) return all_reduce_halves(comm, c);
    MPI_Datatype type = mpi_type(c->dtype);
    if (type == MPI_DATATYPE_NULL) return sn_status_make("MPI cannot reduce %s", sn_dtype_name(c->dtype));
    int64_t size = (int64_t)sn_dtype_bytes(c->dtype), piece = PIECE / size;
    for (int64_t at = 0; at < c->count; at += piece) {
        int n = (int)(c->count - at < piece ? c->count - at : piece);
        const void *from = c->from == c->to ? MPI_IN_PLACE : (const char *)c->from + at * size;
        SN_TRY(check(MPI_Allreduce(from, (char *)c->to + at * size, n, type, mpi_op(c), comm), "all_reduce"));
    }
    return SN_OK;
}

static sn_status fits_int(int64_t bytes, const char *what) {
    if (bytes > INT_MAX) return sn_status_make("MPI: %s of more than 2 GiB from one rank", what);
    return SN_OK;
}

static sn_status all_gather(MPI_Comm comm, const sn_collective *c) {
    int64_t bytes = c->count * (int64_t)sn_dtype_bytes(c->dtype);
    SN_TRY(fits_int(bytes, "all_gather"));
    return check(MPI_Allgather(c->from, (int)bytes, MPI_BYTE, c->to, (int)bytes, MPI_BYTE, comm), "all_gather");
}

static sn_status reduce_scatter(MPI_Comm comm, const sn_collective *c) {
    if (is_half(c->dtype)) return reduce_scatter_halves(comm, c);
    MPI_Datatype type = mpi_type(c->dtype);
    if (type == MPI_DATATYPE_NULL) return sn_status_make("MPI cannot reduce %s", sn_dtype_name(c->dtype));
    SN_TRY(fits_int(c->count, "reduce_scatter"));
    return check(MPI_Reduce_scatter_block(c->from, c->to, (int)c->count, type, mpi_op(c), comm), "reduce_scatter");
}

static sn_status all_to_all(MPI_Comm comm, const sn_collective *c) {
    int64_t bytes = c->count * (int64_t)sn_dtype_bytes(c->dtype);
    SN_TRY(fits_int(bytes, "all_to_all"));
    return check(MPI_Alltoall(c->from, (int)bytes, MPI_BYTE, c->to, (int)bytes, MPI_BYTE, comm), "all_to_all");
}

static sn_status broadcast(MPI_Comm comm, const sn_collective *c) {
    int64_t bytes = c->count * (int64_t)sn_dtype_bytes(c->dtype);
    int rank;
    MPI_Comm_rank(comm, &rank);
    if (rank == 0 && c->from != c->to) memcpy(c->to, c->from, (size_t)bytes);
    for (int64_t at = 0; at < bytes; at += PIECE) {
        int n = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        SN_TRY(check(MPI_Bcast((char *)c->to + at, n, MPI_BYTE, 0, comm), "broadcast"));
    }
    return SN_OK;
}

static sn_status run_on(MPI_Comm comm, const sn_collective *c) {
    static sn_status (*const kinds[SN_INSTR_COUNT])(MPI_Comm, const sn_collective *) = {
        [SN_INSTR_ALL_REDUCE] = all_reduce,         [SN_INSTR_ALL_GATHER] = all_gather,
        [SN_INSTR_REDUCE_SCATTER] = reduce_scatter, [SN_INSTR_ALL_TO_ALL] = all_to_all,
        [SN_INSTR_BROADCAST] = broadcast,
    };
    SN_CHECK(kinds[c->kind]);
    return kinds[c->kind](comm, c);
}

static sn_status run_by(sn_host_group *host, MPI_Comm comm, const sn_collective *c) {
    if (!sn_host_group_takes(host, c)) return run_on(comm, c);
    sn_host_group_run(host, c);
    return SN_OK;
}

static const group *find(const mpi *m, int64_t axes, sn_stream stream) {
    for (size_t i = 0; i < m->groups.count; i++) {
        if (m->groups.data[i].axes == axes && m->groups.data[i].stream == stream) return &m->groups.data[i];
    }
    return NULL;
}

static sn_status run(sn_comm *comm, const sn_collective *c) {
    const group *g = find((mpi *)comm, c->axes, c->stream);
    SN_CHECK(g);
    return run_by(g->host, g->comm, c);
}

static sn_status run_all(sn_comm *comm, const sn_collective *c) {
    const mpi *m = (mpi *)comm;
    return run_by(m->host, m->world, c);
}

static sn_status barrier(sn_comm *comm) {
    const mpi *m = (mpi *)comm;
    if (!m->host) return check(MPI_Barrier(m->world), "barrier");
    sn_host_group_barrier(m->host);
    return SN_OK;
}

// The members of a group share all coordinates on the other axes.
static sn_status add_group(mpi *m, const sn_schedule *s, int64_t axes, sn_stream stream) {
    group g = {.axes = axes, .stream = stream};
    int color = (int)sn_schedule_color(s, m->base.rank, axes), key = (int)sn_schedule_place(s, m->base.rank, axes);
    SN_TRY(check(MPI_Comm_split(m->world, color, key, &g.comm), "groups"));
    sn_status status = sn_host_group_create(g.comm, m->spin, &g.host);
    sn_vec_push(&m->groups, g);
    return status;
}

// The same groups in the same order on all ranks, whatever their class.
static sn_status add_groups(mpi *m, const sn_schedule *s, const sn_program *program, bool *transfers) {
    for (size_t i = 0; i < program->instrs.count; i++) {
        const sn_instr *in = &program->instrs.items[i];
        if (in->kind == SN_INSTR_SEND) *transfers = true;
        if (sn_instr_is_collective(in->kind) && !find(m, in->collective.axes, in->stream))
            SN_TRY(add_group(m, s, in->collective.axes, in->stream));
    }
    return SN_OK;
}

static sn_status check_tags(const mpi *m, const sn_schedule *s, const sn_program *program) {
    int *most, found;
    MPI_Comm_get_attr(m->world, MPI_TAG_UB, &most, &found);
    for (size_t i = 0; found && i < program->instrs.count; i++) {
        const sn_instr *in = &program->instrs.items[i];
        if (in->kind == SN_INSTR_SEND && (in->transfer.channel + 1) * s->micro_batches > *most)
            return sn_status_make("MPI has no room for so many channels and micro-batches");
    }
    return SN_OK;
}

// By whether every thread of this host's ranks has a core.
static double spin_of(const mpi *m, const sn_schedules *all) {
    int64_t threads = all->classes.items[0].threads, ranks;
    int here = m->base.ranks;
    MPI_Comm local;
    cpu_set_t cores;
    if (MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local) == MPI_SUCCESS) {
        MPI_Comm_size(local, &here);
        MPI_Comm_free(&local);
    }
    ranks = here;
    if (sched_getaffinity(0, sizeof cores, &cores)) return sn_signal_spin(true);
    if (threads < 1) threads = CPU_COUNT(&cores) > ranks ? CPU_COUNT(&cores) / ranks : 1;
    if (sn_schedules_use_comm_stream(all)) threads++;
    return sn_signal_spin(ranks * threads > CPU_COUNT(&cores));
}

static sn_status set_mesh(sn_comm *comm, const sn_schedules *all) {
    mpi *m = (mpi *)comm;
    const sn_schedule *first = &all->classes.items[0];
    if (first->ranks != comm->ranks)
        return sn_status_make("the program is for %lld rank%s, but %d were started; use mpirun -n %lld",
                              (long long)first->ranks, first->ranks == 1 ? "" : "s", comm->ranks,
                              (long long)first->ranks);
    bool transfers = false;
    m->spin = spin_of(m, all);
    SN_TRY(sn_host_group_create(m->world, m->spin, &m->host));
    for (size_t c = 0; c < all->classes.count; c++) {
        const sn_schedule *s = &all->classes.items[c];
        for (size_t p = 0; p < s->programs.count; p++) {
            SN_TRY(add_groups(m, s, &s->programs.items[p], &transfers));
            SN_TRY(check_tags(m, s, &s->programs.items[p]));
        }
    }
    if (!transfers) return SN_OK;
    SN_TRY(check(MPI_Comm_dup(m->world, &m->transfers), "groups"));
    return sn_outbox_create(m->host, &m->outbox);
}

// Sleeps until somebody rings; also now and then, for what comes without.
static sn_status wait_for(const mpi *m, MPI_Request *request, MPI_Status *got) {
    const double patience = 1e-2;
    if (!m->host) return check(MPI_Wait(request, got), "receive");
    sn_signal *bell = sn_host_group_bell(m->host, m->base.rank);
    for (;;) {
        uint32_t rung = sn_signal_value(bell);
        int done;
        SN_TRY(check(MPI_Test(request, &done, got), "receive"));
        if (done) return SN_OK;
        sn_signal_await_for(bell, rung + 1, sn_host_group_spin(m->host), patience);
    }
}

static sn_status receive(const mpi *m, MPI_Comm comm, int from, int tag, void *data, size_t bytes) {
    char *to = data;
    for (size_t at = 0; at == 0 || at < bytes;) {
        size_t n = bytes - at < SN_OUTBOX_PIECE ? bytes - at : SN_OUTBOX_PIECE;
        MPI_Request request;
        MPI_Status got;
        int count;
        SN_TRY(check(MPI_Irecv(to + at, (int)n, MPI_BYTE, from, tag, comm, &request), "receive"));
        SN_TRY(wait_for(m, &request, &got));
        MPI_Get_count(&got, MPI_BYTE, &count);
        if ((size_t)count != n) return sn_status_make("MPI: received %d bytes, not %zu", count, n);
        at += n;
        if (!n) break;
    }
    return SN_OK;
}

static sn_status transfer(sn_comm *comm, const sn_transfer *t) {
    mpi *m = (mpi *)comm;
    SN_CHECK(m->outbox);
    if (!t->send) return receive(m, m->transfers, t->peer, (int)t->tag, t->data, t->bytes);
    return check(sn_outbox_send(m->outbox, m->transfers, t->peer, (int)t->tag, t->data, t->bytes), "send");
}

static sn_status give(sn_comm *comm, int peer, const void *data, size_t bytes) {
    const char *from = data;
    for (size_t at = 0; at < bytes; at += SN_OUTBOX_PIECE) {
        size_t n = bytes - at < SN_OUTBOX_PIECE ? bytes - at : SN_OUTBOX_PIECE;
        SN_TRY(check(MPI_Send(from + at, (int)n, MPI_BYTE, peer, 0, ((mpi *)comm)->world), "send"));
    }
    return SN_OK;
}

static sn_status take(sn_comm *comm, int peer, void *data, size_t bytes) {
    const mpi *m = (mpi *)comm;
    return bytes ? receive(m, m->world, peer, 0, data, bytes) : SN_OK;
}

static void destroy(sn_comm *comm) {
    mpi *m = (mpi *)comm;
    sn_outbox_destroy(m->outbox);
    if (m->transfers != MPI_COMM_NULL) MPI_Comm_free(&m->transfers);
    for (size_t i = 0; i < m->groups.count; i++) {
        sn_host_group_destroy(m->groups.data[i].host);
        MPI_Comm_free(&m->groups.data[i].comm);
    }
    sn_host_group_destroy(m->host);
    sn_vec_free(&m->groups);
    if (m->world != MPI_COMM_NULL) MPI_Comm_free(&m->world);
    MPI_Finalize();
    sn_free(m);
}

// Ranks often fail alike; the lowest of those that fail within a moment speaks.
static _Noreturn void abort_run(sn_comm *comm, const char *message) {
    usleep(50000 * (unsigned)(comm->rank > 0 ? 1 + comm->rank % 16 : 0));
    fputs(message, stderr);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _Exit(1);
}

static const sn_comm_vtable vtable = {
    .destroy = destroy,
    .set_mesh = set_mesh,
    .run = run,
    .run_all = run_all,
    .transfer = transfer,
    .give = give,
    .take = take,
    .barrier = barrier,
    .abort = abort_run,
};

bool sn_comm_mpi_launched(void) {
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        if (getenv(variables[i])) return true;
    }
    return false;
}

sn_status sn_comm_mpi_create(bool threads, sn_comm **out) {
    mpi *m = sn_alloc(sizeof *m);
    m->base.vtable = &vtable;
    m->world = MPI_COMM_NULL;
    m->transfers = MPI_COMM_NULL;
    int wanted = threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, provided;
    sn_status status = check(MPI_Init_thread(NULL, NULL, wanted, &provided), "start");
    if (!status && provided < wanted) status = sn_status_make("MPI does not support several threads");
    if (!status) status = check(MPI_Comm_dup(MPI_COMM_WORLD, &m->world), "start");
    if (status) {
        sn_free(m);
        return status;
    }
    MPI_Comm_set_errhandler(m->world, MPI_ERRORS_RETURN); // inherited by the groups
    MPI_Comm_rank(m->world, &m->base.rank);
    MPI_Comm_size(m->world, &m->base.ranks);
    *out = &m->base;
    return SN_OK;
}
