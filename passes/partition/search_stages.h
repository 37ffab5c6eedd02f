// The cut of the chain of blocks into stages, for one candidate. Private to the search.
#pragma once
#include "passes/partition/search.h"

enum { SN_MOST_CLASSES = 64 };

// What a candidate's stages are computed from.
typedef struct sn_stage_context {
    const sn_blocks *blocks;
    const sn_block_cost *costs; // per class
    const int *before;          // [n_blocks + 1][n_classes]: blocks of each class before a cut
    sn_candidate *candidate;
    int stages;          // pp * chunks
    bool remat_is_fixed; // each stage computes `remat` again; else what is cheapest
    sn_remat remat;
    double limit;           // bytes of a device
    double message;         // seconds of one boundary's message, one way; 0 with one stage
    double gather, scatter; // seconds a byte of parameters or gradients costs a micro-batch (ZeRO-2 and 3)
    const double *speed;    // per stage: time on its devices over time on the evaluated ones; NULL: 1
    const double *limits;   // per stage; NULL: `limit`
} sn_stage_context;

// Seconds of stage `index` with the blocks [first, end), the cheapest rematerialisation that fits; INFINITY when none
// does. `out` may be NULL; it is filled with the least memory when nothing fits.
double sn_stage_cost(const sn_stage_context *context, int index, int first, int end, sn_stage_report *out);
// The same with a given rematerialisation, whether it fits or not; returns the bytes of the report.
double sn_stage_with(const sn_stage_context *context, int index, int first, int end, sn_remat remat,
                     sn_stage_report *out);
// Micro-batches that a stage holds at once (sn_pipeline_in_flight of its rank).
double sn_candidate_in_flight(const sn_candidate *candidate, int index);
// Bytes of activations on a stage whose micro-batches each have these.
double sn_candidate_activations(const sn_candidate *candidate, int index, const sn_block_activations *bytes);
// Cuts of about equal time; cut[stages] = n_blocks.
void sn_stages_even(const sn_stage_context *context, int *cut);
// The cut that minimises sum + weight * longest exactly. False when nothing fits. `work` counts stages looked at.
bool sn_stages_exact(const sn_stage_context *context, double weight, int *cut, long *work);
