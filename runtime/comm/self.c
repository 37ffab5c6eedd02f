// The communicator of one rank.
#include "base/alloc.h"
#include "runtime/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void destroy(sn_comm *comm) {
    sn_free(comm);
}

static sn_status set_mesh(sn_comm *comm, const sn_schedule *schedule) {
    (void)comm;
    if (schedule->ranks != 1)
        return sn_status_make("the program is for %lld ranks; use mpirun -n %lld", (long long)schedule->ranks,
                              (long long)schedule->ranks);
    return SN_OK;
}

static sn_status run(sn_comm *comm, const sn_collective *c) {
    (void)comm;
    if (c->from != c->to) memcpy(c->to, c->from, (size_t)c->count * sn_dtype_bytes(c->dtype));
    return SN_OK;
}

static sn_status barrier(sn_comm *comm) {
    (void)comm;
    return SN_OK;
}

static _Noreturn void abort_run(sn_comm *comm, const char *message) {
    (void)comm;
    fputs(message, stderr);
    fflush(NULL);
    _Exit(1);
}

static const sn_comm_vtable vtable = {
    .destroy = destroy,
    .set_mesh = set_mesh,
    .run = run,
    .run_all = run,
    .barrier = barrier,
    .abort = abort_run,
};

sn_status sn_comm_self_create(sn_comm **out) {
    sn_comm *comm = sn_alloc(sizeof *comm);
    *comm = (sn_comm){.vtable = &vtable, .rank = 0, .ranks = 1};
    *out = comm;
    return SN_OK;
}
