// The signals that ask a run to end early: SIGTERM, SIGINT, and SIGUSR1, which mpirun passes on to its ranks (it
// answers SIGTERM with an end after a second).
//
// They are held back and asked for, never handled: oneDNN's sgemm kernels for long K point the stack register at a
// buffer of the heap while they run, and the frame that the kernel of the system pushes for a handler would be written
// over whatever lies before it. The same goes for any other signal that a thread of a run could be made to handle.
#pragma once

// Called before any thread is made, as threads inherit it. Holds through exec.
void sn_stop_signals_hold(void);

// The last of them that came since the call before, 0 for none. Does not wait.
int sn_stop_signal_take(void);
