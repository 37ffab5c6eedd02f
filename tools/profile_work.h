// What instructions take on a core of this machine: the measuring half of `sennit profile` that needs no other rank.
#pragma once
#include "backend/lower/kernels.h"

#include <jansson.h>
#include <sys/types.h>

// Told before each part: what is measured, and how far it is.
typedef void (*sn_profile_progress)(const char *what, size_t done, size_t all);

// Sets "gemms", "attentions" and "streams" of a profile.
SN_MUST_USE sn_status sn_profile_measure_kinds(bool quick, sn_profile_progress progress, json_t *profile);
// Seconds until a process that yields gets a core again, in the mean, while one more process than there are cores
// works.
double sn_profile_measure_turn(void);
// What is left of the work that the cores get done when two processes take turns on each: caches are filled again.
double sn_profile_measure_sharing(void);
// Kills the processes that were started, and waits for their end; ids of those that were not are not positive.
void sn_profile_end_processes(long n, const pid_t *processes);
