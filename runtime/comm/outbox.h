// Sends that return at once: copies of what is sent wait here until MPI has delivered them. A thread pushes them on, as
// MPI moves large messages only while somebody calls it and the sender is computing.
#pragma once
#include "runtime/comm/host.h"

#include <mpi.h>
#include <stddef.h>

enum { SN_OUTBOX_PIECE = 1 << 30 }; // messages are sent in pieces of at most so many bytes

typedef struct sn_outbox sn_outbox;

// MPI must have been started for several threads. `host` (NULL: none) has the bells of those to whom something is sent.
SN_MUST_USE sn_status sn_outbox_create(sn_host_group *host, sn_outbox **out);
// Waits until everything is delivered. NULL is fine.
void sn_outbox_destroy(sn_outbox *outbox);
// Any thread may call it. Returns MPI's error code.
int sn_outbox_send(sn_outbox *outbox, MPI_Comm comm, int peer, int tag, const void *data, size_t bytes);
