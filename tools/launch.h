// Starting a train executable on this machine.
#pragma once
#include "base/diag.h"
#include "base/status.h"

// Runs `program` with `arguments` (NULL-terminated, without the program) on `ranks` processes: directly for one, under
// mpirun for more. Waits; *exit_status is what it ended with: 1 when a rank was killed, 128 + the signal when one told
// us to stop (the run then ends after its step). An error when it cannot be started.
SN_MUST_USE sn_status sn_launch(const char *program, int ranks, const char *const *arguments, int *exit_status);
// The same; that it cannot be started is an error (E0702). Returns the exit status.
int sn_launch_and_tell(const char *program, int ranks, const char *const *arguments, sn_diags *diags);
