// A group of ranks on one host: collectives through memory that they share, and a bell for each rank that others ring
// when they have sent it something. Who waits sleeps (runtime/comm/signal.h).
#pragma once
#include "runtime/comm/comm.h"
#include "runtime/comm/signal.h"

#include <mpi.h>

typedef struct sn_host_group sn_host_group;

// All ranks of `comm` call it. NULL when they are not all on one host, or cannot share memory there: MPI then does it
// all. `spin`: seconds that a rank waits before it sleeps.
SN_MUST_USE sn_status sn_host_group_create(MPI_Comm comm, double spin, sn_host_group **out);
// All ranks of the group call it. NULL is fine.
void sn_host_group_destroy(sn_host_group *group);

// The same on all ranks: a collective that a group does not take is MPI's.
bool sn_host_group_takes(const sn_host_group *group, const sn_collective *collective);
void sn_host_group_run(sn_host_group *group, const sn_collective *collective);
void sn_host_group_barrier(sn_host_group *group);

sn_signal *sn_host_group_bell(sn_host_group *group, int rank);
double sn_host_group_spin(const sn_host_group *group);
