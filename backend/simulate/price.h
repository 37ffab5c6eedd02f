// What each instruction of the schedules takes on a cluster, by the cost model. Within a class the programs are the
// same, but its ranks may be of several kinds of devices, and their groups lie on more or fewer nodes: all of them pay
// what the slowest pays, which the others would wait for.
#pragma once
#include "backend/lower/kernels.h"
#include "passes/cost/cost.h"

typedef struct sn_price {
    double seconds; // that its stream is busy with it
    double message; // a send: from its end until the receiver has what was sent
} sn_price;

typedef struct sn_prices {
    sn_price ***of; // [class][program][instruction]
    double run;     // seconds between two runs of programs
} sn_prices;

typedef struct sn_price_request {
    const sn_module *module; // that the schedules were built from
    const sn_schedules *schedules;
    const sn_kernels *kernels;
    const sn_cluster *cluster;        // has the schedules' ranks
    const struct sn_profile *profile; // NULL: analytic
    const sn_plugins *plugins;        // NULL: none
    sn_diags *diags;
} sn_price_request;

// Everything is in `arena`.
void sn_prices_make(const sn_price_request *request, sn_arena *arena, sn_prices *out);
