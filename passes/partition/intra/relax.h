// The Lagrangian relaxation of the memory limits: every byte at a peak has a price.
#pragma once
#include "passes/partition/intra/eliminate.h"
#include "passes/partition/intra/messages.h"

typedef struct sn_relaxation {
    const sn_core *core;
    sn_elimination *elimination; // of all nodes
    sn_messages *messages;       // NULL when elimination is to be used alone
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
// Evaluates the bound at the prices and decodes a choice: by message passing, or by elimination.
typedef enum sn_relaxation_method { SN_RELAXATION_MESSAGES, SN_RELAXATION_ELIMINATION } sn_relaxation_method;
void sn_relaxation_evaluate(sn_relaxation *relaxation, sn_relaxation_method method);
// Moves the prices for the next evaluation; `target` is what the optimum is thought to cost at most (that of a known
// choice, usually). False when no move is left: the choice keeps the limits and prices are paid for what is used.
bool sn_relaxation_move(sn_relaxation *relaxation, double target);
// Evaluates the bound again where it was best, so that the elimination's tables are those of the best bound.
void sn_relaxation_return(sn_relaxation *relaxation);
