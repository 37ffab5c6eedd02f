// The price of one candidate: a cut of the blocks into stages, what each stage computes again, and the closed form of
// its schedule. Private to the search.
#pragma once
#include "passes/partition/search_cuts.h"
#include "passes/partition/search_sites.h"

// Of the parameters of a setting (sn_evaluator_tensors) over two sets of ranks.
typedef struct known_moves {
    const sn_block_tensors *tensors;
    const sn_group *shares, *experts;
    const sn_device_kind *device;
    int zero;
    bool one_program;
    sn_block_moves *of; // [n_classes]
} known_moves;

struct sn_search {
    sn_search_request request;
    sn_arena *arena;
    sn_cost_model model; // of the slowest kind of device
    sn_evaluator *evaluator;
    int *before; // see sn_stage_context
    int64_t devices;
    bool uneven;                     // nodes differ
    SN_VEC(const sn_group *) groups; // one of all that are equal
    SN_VEC(sn_known_sites) sites;
    size_t next_sites;
    SN_VEC(known_moves) moves;
    size_t next_moves;     // who asks again asks in the same order
    SN_VEC(double) bounds; // of all candidates, in the order of the enumeration: memory does not change them
};

// To be given back by sn_price_context_free.
sn_stage_context sn_price_context(sn_search *search, double limit_scale, sn_candidate *candidate);
void sn_price_context_free(sn_stage_context *context);
// Fills everything of a candidate from its cut; `stages` (context->stages) may be NULL. Chunks of a rank take turns:
// its memory is the sum of theirs, but for working memory, of which the largest counts.
void sn_price(sn_search *search, sn_candidate *candidate, const sn_stage_context *context, const int *cut,
              sn_stage_report *stages);
// Makes it the context of a candidate that differs in schedule and chunks alone.
void sn_price_set_candidate(sn_stage_context *context, sn_candidate *candidate);

// What all blocks take together, and the average rank's gradients: the same for all schedules and chunks.
typedef struct sn_price_sums {
    double work, total; // seconds of a micro-batch at the first site; with the messages of ZeRO
    double least;       // that all blocks take together wherever they are: the total of each class's fastest site
    double longest, fill, without; // each class where it takes least
    double once;                   // seconds a step: the least that a rank's update and gradients take
} sn_price_sums;
sn_price_sums sn_price_sums_of(sn_search *search, const sn_candidate *candidate, const sn_stage_context *context);
// No cut does better than one whose stages all take the same time, none computes anything again, and nothing waits.
double sn_price_bound(const sn_search *search, const sn_candidate *candidate, const sn_stage_context *context,
                      const sn_price_sums *sums);
// A tighter bound, for more work: what each rank can hold and compute within a time, blocks taken apart at will.
double sn_price_tight_bound(const sn_search *search, const sn_candidate *candidate, const sn_stage_context *context,
                            const sn_price_sums *sums);
