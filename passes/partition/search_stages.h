// What a stage of a candidate costs. Private to the search.
#pragma once
#include "passes/partition/search.h"

// Seconds of the collectives of a block over the ranks that hold the same parameters, and of the experts' over those
// that hold others: of a micro-batch, by the pass that they are in, and once a step.
typedef struct sn_block_moves {
    double forward, backward_input, backward_weight, once;
    double again; // the backward pass with everything computed again has these as well
    double whole_parameters, whole_gradients, whole_optimizer; // bytes of what ZeRO cannot share out
    double largest; // bytes of the parameter that is gathered, with its gradient before that is scattered: the most
} sn_block_moves;

static inline double sn_shared_out(double bytes, double whole, double shares) {
    return whole + (bytes - whole) / shares;
}

// The share of a device's memory that a plan may promise: what the search does not see (alignment, scalars, what one
// kernel keeps beside another's results) has been up to 2 % of what a plan is lowered to.
#define SN_DEVICE_SHARE 0.98

// What blocks take where a pipeline rank's devices are (search_sites.h).
typedef struct sn_stage_site {
    const sn_block_cost *costs;  // per class
    const sn_block_moves *moves; // per class; NULL: none
    double once;                 // seconds a step of collectives that no block has: the gradients' norm, the loss
    double limit;                // bytes of a device
    double pace; // no class of blocks takes less than so many times what it takes at the first site; 1 there
} sn_stage_site;

// What a candidate's stages are computed from.
typedef struct sn_stage_context {
    const sn_blocks *blocks;
    const int *before; // [n_blocks + 1][n_classes]: blocks of each class before a cut
    sn_candidate *candidate;
    int stages;          // pp * chunks
    bool remat_is_fixed; // each stage computes `remat` again; else what is cheapest
    sn_remat remat;
    double message;         // the least seconds of a message from one stage to the next; 0 with one pipeline rank
    const double *messages; // [class]: of the message that a block of the class receives as the first of its stage;
                            // NULL: `message`
    bool messages_are_work; // of the ranks, as where they are processes on CPUs; else they go beside the passes
    int messages_apart;     // of the rows of `messages`, one for each pipeline rank; 0: links are equal, one for all
    sn_stage_site first;    // site
    const sn_stage_site *sites;
    int n_sites;
    const int *site_of; // per pipeline rank; NULL: the first
} sn_stage_context;

static inline const sn_stage_site *sn_stage_site_at(const sn_stage_context *x, int stage) {
    return x->site_of ? &x->sites[x->site_of[stage % x->candidate->pp]] : &x->first;
}

// Of the blocks of a stage.
typedef struct sn_stage_sums {
    double message, handed; // seconds, one way, of what its first block receives: beside the passes, or a part of them
    double forward, backward_input, backward_weight, communication, input;
    sn_block_moves moves;
    double again[SN_REMAT_COUNT];
    sn_block_activations activations[SN_REMAT_COUNT];
    double last; // bytes that the model's last block keeps, for one micro-batch whatever is in flight
    double parameters, gradients, optimizer, working;
} sn_stage_sums;
sn_stage_sums sn_stage_sums_of(const sn_stage_context *context, int stage, int first, int end);
// Of no block, before the one that is to be the first.
sn_stage_sums sn_stage_sums_begin(const sn_stage_context *context, int stage, int first);
void sn_stage_sums_add(const sn_stage_context *context, int stage, int block_class, int blocks, sn_stage_sums *sums);

// Of a stage's place in the pipeline, whichever blocks it has.
typedef struct sn_stage_place {
    int index;
    double in_flight;      // micro-batches held at once
    double early, waiting; // zero-bubble: held until their first backward pass, and of those, not yet for the second
    double limit;
} sn_stage_place;
sn_stage_place sn_stage_place_of(const sn_stage_context *context, int index);

// Bytes of one of its devices.
sn_memory sn_stage_memory(const sn_stage_context *context, const sn_stage_place *place, const sn_stage_sums *sums,
                          sn_remat remat);
double sn_stage_activations(const sn_stage_context *context, const sn_stage_place *place,
                            const sn_block_activations *bytes);
// Seconds of a micro-batch with the rematerialisation; `again` is a part of backward_input.
typedef struct sn_stage_passes {
    double forward, backward_input, backward_weight, again;
} sn_stage_passes;
sn_stage_passes sn_stage_passes_of(const sn_stage_sums *sums, sn_remat remat);
// Seconds with the cheapest rematerialisation that fits; INFINITY when none does, and `remat` is the one of least
// memory.
double sn_stage_seconds(const sn_stage_context *context, const sn_stage_place *place, const sn_stage_sums *sums,
                        sn_remat *remat);
void sn_stage_report_of(const sn_stage_context *context, const sn_stage_place *place, const sn_stage_sums *sums,
                        sn_remat remat, sn_stage_report *out);

// Seconds of stage `index` with the blocks [first, end), the cheapest rematerialisation that fits; INFINITY when none
// does. `out` may be NULL; it is filled with the least memory when nothing fits.
double sn_stage_cost(const sn_stage_context *context, int index, int first, int end, sn_stage_report *out);
// The same with a given rematerialisation, whether it fits or not; returns the bytes of the report.
double sn_stage_with(const sn_stage_context *context, int index, int first, int end, sn_remat remat,
                     sn_stage_report *out);
