// The cost model: how long ops and collectives take on a kind of device. Built in is a roofline (Williams et al. 2009):
// the larger of arithmetic and memory time, plus the time to start; a plug-in may edit the answers.
#pragma once
#include "passes/plugin.h"

typedef struct sn_device {
    const char *name;
    double contraction_flops, other_flops, memory_bytes; // per second
    double start_seconds;
    double link_bytes, message_seconds;
} sn_device;
const sn_device *sn_device_find(const char *name); // NULL when it is not known

typedef struct sn_work {
    double flops, bytes; // bytes: operands read and results written, once each
} sn_work;
// Of an op's shapes as they stand: global in graph and dist form, local in sched form.
sn_work sn_op_work(const sn_op *op, sn_arena *scratch);

typedef struct sn_cost_model {
    const sn_device *device;
    const sn_plugins *plugins; // NULL: the built-in answers
    sn_diags *diags;           // gets an error (E0827) for an answer of a plug-in that is no time
} sn_cost_model;

// seconds[i] of ops[i], which are no collectives. Views and constants take none.
void sn_cost_ops(const sn_cost_model *model, int n, const sn_op *const *ops, double *seconds, sn_arena *scratch);
// Of a collective over `ranks` ranks on a tensor of `bytes` as a whole.
double sn_cost_collective(const sn_cost_model *model, sn_op_kind kind, double bytes, int64_t ranks);
