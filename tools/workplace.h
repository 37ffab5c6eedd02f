// A folder for the files of one command, gone when it ends.
#pragma once
#include "base/arena.h"
#include "base/diag.h"

// The folder's path (in diags->arena), or NULL with an error.
const char *sn_workplace_make(sn_diags *diags);
// Whether SIGINT, SIGTERM or SIGHUP came since then: the command should end soon.
bool sn_workplace_stopped(void);
// Removes the folder with everything in it; NULL is fine.
void sn_workplace_remove(const char *folder);
