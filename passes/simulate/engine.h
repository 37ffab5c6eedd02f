// A discrete-event simulation of tasks on streams. A task runs when the task before it on its stream has ended, when
// what it depends on has ended, and, in a group (a collective), when all members of the group are ready. It knows
// nothing of tensors: who builds the tasks says how long each takes.
//
// Streams may share the cores of a host. As long as no more tasks run on a host than it has cores, each takes its own
// time; beyond that they all slow down alike (processor sharing), which is what a fair scheduler of processes does. It
// does so in turns: a stream that has waited for something and finds all cores taken gets one when its turn comes.
//
// The same tasks give the same times, to the bit: ties are broken by the order in which tasks were added.
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { SN_SIM_NONE = -1 };

typedef struct sn_sim_task {
    int stream, group; // SN_SIM_NONE: none
    double seconds;    // alone on a core
    double ready;      // when its stream had reached it and its dependencies had ended
    double start, end; // the last member of a group to be ready starts all; the last one to be done ends all
    int cause;         // the task whose end let this one start, for the critical path; SN_SIM_NONE at the beginning
} sn_sim_task;

typedef struct sn_sim sn_sim;

sn_sim *sn_sim_new(void);
void sn_sim_free(sn_sim *sim);

// Each returns the index of what it adds, from 0.
// `turn`: seconds until a stream that has waited gets a core of a host where none is free. `sharing`: the share of the
// cores' speed that is left while streams take turns on them; 1: all of it.
int sn_sim_host(sn_sim *sim, double cores, double turn, double sharing);
int sn_sim_stream(sn_sim *sim, int host); // SN_SIM_NONE: its tasks share nothing
int sn_sim_group(sn_sim *sim);
// Tasks of a stream run in the order in which they are added; `stream` may be SN_SIM_NONE.
int sn_sim_add(sn_sim *sim, int stream, double seconds);
// `task` starts at the earliest `lag` seconds after the end of `before`, which may be added later.
void sn_sim_after(sn_sim *sim, int task, int before, double lag);
void sn_sim_join(sn_sim *sim, int task, int group);

// Runs all tasks once. False when some wait for each other forever; sn_sim_stuck then names the first of them.
bool sn_sim_run(sn_sim *sim);
int sn_sim_stuck(const sn_sim *sim); // SN_SIM_NONE after a run that came to its end

size_t sn_sim_count(const sn_sim *sim);
const sn_sim_task *sn_sim_task_at(const sn_sim *sim, int task);
double sn_sim_seconds(const sn_sim *sim);          // the end of the last task
double sn_sim_busy(const sn_sim *sim, int stream); // seconds in which a task of the stream ran
// The critical path, from its first task to the one that ends last: at most `most` of its last tasks. Returns how many.
size_t sn_sim_critical(const sn_sim *sim, int *tasks, size_t most);
