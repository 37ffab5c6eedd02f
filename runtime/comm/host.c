// Each rank has two slots in memory that all of them map. A collective goes by pieces of at most a slot: a rank puts
// its piece in its slot, all meet, and each takes what it needs out of the others' slots. Pieces alternate between the
// slots, so that one meeting a piece is enough: who writes a slot again has met everybody since they read it.
//
// An all-reduce over more than two ranks would read every slot in every rank; there each rank sums its share of the
// piece in place, all meet again, and fetch the shares. Sums run over the ranks in order: the same bits everywhere.
#include "runtime/comm/host.h"

#include "base/alloc.h"
#include "base/bug.h"

#include <string.h>

enum { SLOT = 128 << 10, LINE = 64, DIRECT = 4096 }; // bytes; an all-reduce of at most DIRECT meets once

typedef struct area { // of one rank
    sn_signal met;    // how often it has come to a meeting
    char apart[LINE - sizeof(sn_signal)];
    sn_signal bell;
    char apart_too[LINE - sizeof(sn_signal)];
    char slots[2][SLOT];
} area;

struct sn_host_group {
    MPI_Win window;
    area **areas;
    int rank, ranks;
    uint32_t meetings, pieces;
    double spin;
};

typedef void (*combine)(void *restrict to, const void *restrict from, int64_t n); // to = to + from, or the larger

#define COMBINE(name, type)                                                                                            \
    static void sum_##name(void *restrict to, const void *restrict from, int64_t n) {                                  \
        type *restrict out = to;                                                                                       \
        const type *restrict in = from;                                                                                \
        for (int64_t i = 0; i < n; i++) out[i] += in[i];                                                               \
    }                                                                                                                  \
    static void max_##name(void *restrict to, const void *restrict from, int64_t n) {                                  \
        type *restrict out = to;                                                                                       \
        const type *restrict in = from;                                                                                \
        for (int64_t i = 0; i < n; i++) out[i] = in[i] > out[i] ? in[i] : out[i];                                      \
    }
COMBINE(f32, float)
COMBINE(f64, double)
COMBINE(i32, int32_t)
COMBINE(i64, int64_t)
#undef COMBINE

static combine combine_of(sn_dtype dtype, sn_reduce reduce) {
    bool max = reduce == SN_REDUCE_MAX;
    switch (dtype) {
    case SN_F32:
        return max ? max_f32 : sum_f32;
    case SN_F64:
        return max ? max_f64 : sum_f64;
    case SN_I32:
        return max ? max_i32 : sum_i32;
    case SN_I64:
        return max ? max_i64 : sum_i64;
    default:
        return NULL;
    }
}

static void meet(sn_host_group *g) {
    g->meetings++;
    sn_signal_raise(&g->areas[g->rank]->met);
    for (int r = 0; r < g->ranks; r++)
        if (r != g->rank) sn_signal_await(&g->areas[r]->met, g->meetings, g->spin);
}

void sn_host_group_barrier(sn_host_group *group) {
    meet(group);
}

static char *slot(const sn_host_group *g, int rank) {
    return g->areas[rank]->slots[g->pieces % 2];
}

// Elements of a piece when a slot holds `parts` of them.
static int64_t piece_of(const sn_collective *c, int64_t parts) {
    int64_t n = SLOT / (int64_t)sn_dtype_bytes(c->dtype) / parts;
    SN_CHECK(n > 0);
    return n;
}

// Sums n elements from `offset` bytes on over all slots.
static void combine_slots(const sn_host_group *g, const sn_collective *c, size_t offset, int64_t n, void *to) {
    combine with = combine_of(c->dtype, c->reduce);
    memcpy(to, slot(g, 0) + offset, (size_t)n * sn_dtype_bytes(c->dtype));
    for (int r = 1; r < g->ranks; r++) with(to, slot(g, r) + offset, n);
}

// Rank r's share of n elements begins at the r-th of these.
static int64_t share_begin(const sn_host_group *g, int rank, int64_t n) {
    return n * rank / g->ranks;
}

static void reduce_by_shares(sn_host_group *g, const sn_collective *c, int64_t n, char *to) {
    size_t size = sn_dtype_bytes(c->dtype);
    int64_t begin = share_begin(g, g->rank, n), end = share_begin(g, g->rank + 1, n);
    combine_slots(g, c, (size_t)begin * size, end - begin, to + (size_t)begin * size);
    memcpy(slot(g, g->rank) + (size_t)begin * size, to + (size_t)begin * size, (size_t)(end - begin) * size);
    meet(g);
    for (int r = 0; r < g->ranks; r++) {
        size_t at = (size_t)share_begin(g, r, n) * size, bytes = (size_t)share_begin(g, r + 1, n) * size - at;
        if (r != g->rank) memcpy(to + at, slot(g, r) + at, bytes);
    }
}

static void all_reduce(sn_host_group *g, const sn_collective *c) {
    int64_t size = (int64_t)sn_dtype_bytes(c->dtype), piece = piece_of(c, 1);
    for (int64_t at = 0; at < c->count; at += piece, g->pieces++) {
        int64_t n = c->count - at < piece ? c->count - at : piece;
        char *to = (char *)c->to + at * size;
        memcpy(slot(g, g->rank), (const char *)c->from + at * size, (size_t)(n * size));
        meet(g);
        if (g->ranks == 2 || n * size <= DIRECT)
            combine_slots(g, c, 0, n, to);
        else
            reduce_by_shares(g, c, n, to);
    }
}

static void all_gather(sn_host_group *g, const sn_collective *c) {
    int64_t size = (int64_t)sn_dtype_bytes(c->dtype), piece = piece_of(c, 1);
    for (int64_t at = 0; at < c->count; at += piece, g->pieces++) {
        size_t bytes = (size_t)((c->count - at < piece ? c->count - at : piece) * size);
        const char *from = (const char *)c->from + at * size;
        memcpy(slot(g, g->rank), from, bytes);
        meet(g);
        for (int r = 0; r < g->ranks; r++)
            memcpy((char *)c->to + (r * c->count + at) * size, r == g->rank ? from : slot(g, r), bytes);
    }
}

// The slot holds a piece of every part of `from`, one after the other. Returns elements of each.
static int64_t put_parts(sn_host_group *g, const sn_collective *c, int64_t at, int64_t piece) {
    int64_t size = (int64_t)sn_dtype_bytes(c->dtype), n = c->count - at < piece ? c->count - at : piece;
    for (int r = 0; r < g->ranks; r++)
        memcpy(slot(g, g->rank) + r * n * size, (const char *)c->from + (r * c->count + at) * size, (size_t)(n * size));
    meet(g);
    return n;
}

static void reduce_scatter(sn_host_group *g, const sn_collective *c) {
    int64_t size = (int64_t)sn_dtype_bytes(c->dtype), piece = piece_of(c, g->ranks);
    for (int64_t at = 0; at < c->count; at += piece, g->pieces++) {
        int64_t n = put_parts(g, c, at, piece);
        combine_slots(g, c, (size_t)(g->rank * n * size), n, (char *)c->to + at * size);
    }
}

static void all_to_all(sn_host_group *g, const sn_collective *c) {
    int64_t size = (int64_t)sn_dtype_bytes(c->dtype), piece = piece_of(c, g->ranks);
    for (int64_t at = 0; at < c->count; at += piece, g->pieces++) {
        int64_t n = put_parts(g, c, at, piece);
        for (int r = 0; r < g->ranks; r++)
            memcpy((char *)c->to + (r * c->count + at) * size, slot(g, r) + g->rank * n * size, (size_t)(n * size));
    }
}

// From the group's first rank.
static void broadcast(sn_host_group *g, const sn_collective *c) {
    int64_t size = (int64_t)sn_dtype_bytes(c->dtype), piece = piece_of(c, 1);
    for (int64_t at = 0; at < c->count; at += piece, g->pieces++) {
        size_t bytes = (size_t)((c->count - at < piece ? c->count - at : piece) * size);
        const char *from = (const char *)c->from + at * size;
        char *to = (char *)c->to + at * size;
        if (g->rank == 0) memcpy(slot(g, 0), from, bytes);
        meet(g);
        if (g->rank > 0 || from != to) memcpy(to, g->rank ? slot(g, 0) : from, bytes);
    }
}

static void (*const kinds[SN_INSTR_COUNT])(sn_host_group *, const sn_collective *) = {
    [SN_INSTR_ALL_REDUCE] = all_reduce, [SN_INSTR_ALL_GATHER] = all_gather, [SN_INSTR_REDUCE_SCATTER] = reduce_scatter,
    [SN_INSTR_ALL_TO_ALL] = all_to_all, [SN_INSTR_BROADCAST] = broadcast,
};

bool sn_host_group_takes(const sn_host_group *group, const sn_collective *c) {
    bool reduces = c->kind == SN_INSTR_ALL_REDUCE || c->kind == SN_INSTR_REDUCE_SCATTER;
    return group && kinds[c->kind] && group->ranks <= SLOT / LINE && (!reduces || combine_of(c->dtype, c->reduce));
}

void sn_host_group_run(sn_host_group *group, const sn_collective *collective) {
    kinds[collective->kind](group, collective);
}

sn_signal *sn_host_group_bell(sn_host_group *group, int rank) {
    return &group->areas[rank]->bell;
}

double sn_host_group_spin(const sn_host_group *group) {
    return group->spin;
}

static bool on_one_host(MPI_Comm comm) {
    MPI_Comm local;
    int ranks, here = 0;
    MPI_Comm_size(comm, &ranks);
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local) != MPI_SUCCESS) return false;
    MPI_Comm_size(local, &here);
    MPI_Comm_free(&local);
    return here == ranks;
}

// Everybody's area as it is mapped here. False where there is none.
static bool find_areas(sn_host_group *g) {
    for (int r = 0; r < g->ranks; r++) {
        MPI_Aint bytes;
        int unit;
        if (MPI_Win_shared_query(g->window, r, &bytes, &unit, &g->areas[r]) != MPI_SUCCESS) return false;
        if (bytes < (MPI_Aint)sizeof(area)) return false;
    }
    return true;
}

sn_status sn_host_group_create(MPI_Comm comm, double spin, sn_host_group **out) {
    sn_host_group *g = sn_alloc(sizeof *g);
    area *mine = NULL;
    *g = (sn_host_group){.window = MPI_WIN_NULL, .spin = spin};
    MPI_Comm_rank(comm, &g->rank);
    MPI_Comm_size(comm, &g->ranks);
    g->areas = sn_alloc((size_t)g->ranks * sizeof *g->areas);
    int good = on_one_host(comm), all = 0;
    if (good) good = MPI_Win_allocate_shared(sizeof(area), 1, MPI_INFO_NULL, comm, &mine, &g->window) == MPI_SUCCESS;
    good = good && find_areas(g);
    if (good) {
        atomic_init(&mine->met.value, 0), atomic_init(&mine->met.sleepers, 0);
        atomic_init(&mine->bell.value, 0), atomic_init(&mine->bell.sleepers, 0);
    }
    // also the meeting before which nobody may use another's area
    if (MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, comm) != MPI_SUCCESS) {
        sn_host_group_destroy(g);
        return sn_status_make("MPI: ranks cannot agree on shared memory");
    }
    *out = all ? g : NULL;
    if (!all) sn_host_group_destroy(g);
    return SN_OK;
}

void sn_host_group_destroy(sn_host_group *group) {
    if (!group) return;
    if (group->window != MPI_WIN_NULL) MPI_Win_free(&group->window);
    sn_free(group->areas);
    sn_free(group);
}
