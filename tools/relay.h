// What mpirun writes to its standard error, passed on to ours without what tells a user nothing: that it forwards the
// signal that ends the run, and that the program, which has said why itself, ended with an error.
#pragma once
#include "base/status.h"

#include <sys/types.h>

typedef struct sn_relay {
    pid_t process; // of its own: it goes on when we are killed, so that mpirun can still write
    int end;       // to write to; closed on exec
} sn_relay;

SN_MUST_USE sn_status sn_relay_start(sn_relay *out);
// Closes our copy of the end and waits until all that was written has been passed on.
void sn_relay_finish(sn_relay *relay);
