// Ranks watch each other, so that one that dies or hangs does not leave the others waiting for ever. A thread of each
// rank says ten times a second where the rank is (runtime/exec/progress.h), over TCP to rank 0, apart from MPI, whose
// calls block. Rank 0 finds
//
//   a rank that is gone: its connection is,
//   a rank that is not heard of: the process is stopped, or its machine is lost,
//   a rank that makes no progress in an instruction while it uses no processor time: it hangs. A slow instruction uses
//     processor time, however long it takes, or waits for pages from the disk; reading and writing files lies outside
//     of programs: none of this is an error,
//   ranks that all wait for each other, for longer than a slow network needs for their messages.
//
// The first is told at once, the others after `timeout` seconds. Rank 0 prints what happened and where everybody was,
// and all ranks end with status 1. When rank 0 is the one that is lost, one of the others does.
#pragma once
#include "runtime/comm/comm.h"
#include "runtime/exec/progress.h"

typedef struct sn_watch sn_watch;

typedef struct sn_watch_setup {
    sn_comm *comm;
    const sn_schedules *schedules;
    const sn_progress *progress; // of this rank
    double timeout;              // seconds; 0: nobody is watched
} sn_watch_setup;

// All ranks call it. NULL when there is nobody to watch. Without a network between the ranks it warns and watches none.
SN_MUST_USE sn_status sn_watch_start(const sn_watch_setup *setup, sn_watch **out);
// This rank is about to end, in an orderly way or with an error that it reports itself: nobody is to be told on it.
void sn_watch_stop(sn_watch *watch); // NULL is fine
