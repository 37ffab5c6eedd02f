// The cost model: how long ops, collectives and messages take on a kind of device. Built in is `analytic`: work
// and bytes of the local shapes against efficiency curves (device.h). A profile (profile.h) answers for what was
// measured; a plug-in has the last word, and what it leaves as it is keeps the built-in answer.
#pragma once
#include "passes/cost/cluster.h"
#include "passes/plugin.h"

typedef struct sn_work {
    double flops, bytes; // bytes: operands read and results written, once each
} sn_work;
// Of an op's shapes as they stand: global in graph and dist form, local in sched form.
sn_work sn_op_work(const sn_op *op, sn_arena *scratch);

typedef struct sn_cost_model {
    const sn_device_kind *device;
    const struct sn_profile *profile; // NULL: nothing was measured
    const sn_plugins *plugins;        // NULL: the built-in answers
    sn_diags *diags;                  // gets an error (E0827) for an answer of a plug-in that is no time
} sn_cost_model;

// seconds[i] that ops[i] keeps a device busy; they are no collectives. Views and constants take none.
void sn_cost_ops(const sn_cost_model *model, int n, const sn_op *const *ops, double *seconds, sn_arena *scratch);
// Of a product of `batch` matrices [m, k] x [k, n].
double sn_cost_matmul(const sn_device_kind *device, sn_dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k);
// Of a collective over a group on a tensor of `bytes` as a whole: what all-gather and reduce-scatter cut into parts,
// and what each rank holds before an all-reduce or an all-to-all.
double sn_cost_collective(const sn_cost_model *model, sn_op_kind kind, double bytes, const sn_group *group);
// Of one message between two ranks (a group of two).
double sn_cost_message(const sn_cost_model *model, double bytes, const sn_group *pair);
