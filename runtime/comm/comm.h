// A communicator: the ranks of a run, and collectives over groups of them along mesh axes. All members of a group call
// the same collectives in the same order. Two streams (runtime/schedule.h) may communicate at the same time; calls of
// one stream come from one thread at a time.
//
// Sums are deterministic: the same inputs on the same number of ranks give the same bits.
#pragma once
#include "base/dtype.h"
#include "base/status.h"
#include "runtime/schedule.h"

#include <stddef.h>

typedef struct sn_comm sn_comm;

// A collective in host addresses; the meaning of `count` is as in sn_do_collective.
typedef struct sn_collective {
    sn_instr_kind kind;
    sn_stream stream;
    int64_t axes; // bit mask
    sn_dtype dtype;
    sn_reduce reduce;
    int64_t count;
    const void *from;
    void *to; // may equal `from` for all_reduce and broadcast
} sn_collective;

// One side of a pipeline transfer (sn_do_transfer) in host addresses.
typedef struct sn_transfer {
    bool send;
    int peer;    // rank; may be this one
    int64_t tag; // of channel and micro-batch
    void *data;  // read by a send
    size_t bytes;
} sn_transfer;

typedef struct sn_comm_vtable {
    void (*destroy)(sn_comm *comm); // after all ranks are done; does not wait for failed ones
    // Groups for every set of axes that a collective of any class uses. All ranks call it, once.
    sn_status (*set_mesh)(sn_comm *comm, const sn_schedules *schedules);
    sn_status (*run)(sn_comm *comm, const sn_collective *collective);
    // Over all ranks, mesh or no mesh. `kind` is ALL_REDUCE, ALL_GATHER or BROADCAST.
    sn_status (*run_all)(sn_comm *comm, const sn_collective *collective);
    // A send returns when `data` may be overwritten, whether or not the other side has come to its receive.
    sn_status (*transfer)(sn_comm *comm, const sn_transfer *transfer);
    // Bytes from one rank to another, outside of programs; the two meet in order. `peer` is not this rank.
    sn_status (*give)(sn_comm *comm, int peer, const void *data, size_t bytes);
    sn_status (*take)(sn_comm *comm, int peer, void *data, size_t bytes);
    sn_status (*barrier)(sn_comm *comm);
    // Prints the message (unless another rank has failed first) and ends all ranks with status 1.
    void (*abort)(sn_comm *comm, const char *message) __attribute__((noreturn));
} sn_comm_vtable;

struct sn_comm {
    const sn_comm_vtable *vtable;
    int rank, ranks;
};

SN_MUST_USE sn_status sn_comm_self_create(sn_comm **out); // one rank; collectives are copies
// Starts MPI. `threads`: several threads will communicate at once, as two streams or transfers need.
SN_MUST_USE sn_status sn_comm_mpi_create(bool threads, sn_comm **out);
bool sn_comm_mpi_launched(void); // this process was started by an MPI launcher

static inline void sn_comm_destroy(sn_comm *comm) {
    if (comm) comm->vtable->destroy(comm);
}

// Every rank calls it with how it fared and whether it was asked to stop; all learn whether anybody was, and the lowest
// rank that failed (-1: none), which speaks for all.
SN_MUST_USE sn_status sn_comm_agree(sn_comm *comm, bool failed, bool *stop, int *first_failed);
