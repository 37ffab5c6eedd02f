// The Lagrangian relaxation of the memory limits: every byte at a peak has a price.
#pragma once
#include "passes/partition/intra/eliminate.h"

typedef struct sn_relaxation {
    const sn_core *core;
    sn_elimination *elimination; // of all nodes
    double *price;               // by peak, per byte, >= 0: those of the next step
    double *best_price;          // where the bound was best
    double *sum, *direction;     // prices summed up to a peak; the step's direction
    double scale;                // of the step
    int idle;                    // steps since the bound rose
    double bound;                // of the last step
    int64_t lower_bound;         // the best so far, rounded safely; no choice within the limits costs less
    int *values;                 // the last step's choice, which need not keep the limits
    int64_t *usage, excess;
    uint64_t work; // of all steps
} sn_relaxation;

sn_relaxation *sn_relaxation_new(const sn_core *core, size_t max_cells);
void sn_relaxation_free(sn_relaxation *relaxation);
// Evaluates the bound at the prices, decodes a choice, and moves the prices; `target` is what the optimum is thought
// to cost at most (of a known choice, usually). False when no move is left: the choice keeps the limits and attains
// the bound, or prices are of no use.
bool sn_relaxation_step(sn_relaxation *relaxation, double target);
// Evaluates the bound again where it was best, so that the elimination's tables are those of the best bound.
void sn_relaxation_return(sn_relaxation *relaxation);
