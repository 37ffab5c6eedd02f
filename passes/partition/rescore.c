#include "passes/partition/rescore.h"

#include "base/alloc.h"
#include "passes/simulate/pipeline.h"

enum {
    MOST_PASSES = 400000, // of one candidate: a tenth of a second
    MOST_REPLAYED = 3,    // runners-up
};

// Seconds of a step; 0 when it is not replayed. Messages are part of the stages' times (sn_stage_report).
static double replay(const sn_search_request *request, int64_t devices, const sn_candidate *c) {
    if (!c->stages || c->n_stages != c->pp * c->chunks || (int64_t)c->n_stages * c->microbatches > MOST_PASSES)
        return 0;
    sn_stage_times *stages = sn_alloc((size_t)c->n_stages * sizeof *stages);
    for (int i = 0; i < c->n_stages; i++)
        stages[i] = (sn_stage_times){.forward = c->stages[i].forward,
                                     .backward_input = c->stages[i].backward_input,
                                     .backward_weight = c->stages[i].backward_weight};
    // of the ranks that share cores one of each coordinate is replayed, with its part of them
    double each = request->cores * c->pp / (double)devices, crowd = 1;
    if (each > 0 && each < c->pp) crowd = c->pp / (each * request->sharing);
    sn_pipeline_case pipeline = {c->schedule, c->pp, c->chunks, c->microbatches, stages, each, request->sharing};
    double seconds = sn_pipeline_simulate(&pipeline).seconds;
    sn_free(stages);
    return seconds + crowd * (c->sync + c->update);
}

void sn_search_rescore(const sn_search_request *request, int64_t devices, sn_search_result *result) {
    if (!result->feasible) return;
    result->best.replayed = replay(request, devices, &result->best);
    if (result->best.replayed <= 0) return;
    sn_candidate *fastest = &result->best;
    for (int i = 0; i < result->n_runners && i < MOST_REPLAYED; i++) {
        sn_candidate *runner = &result->runners[i];
        runner->replayed = replay(request, devices, runner);
        if (runner->replayed > 0 && runner->replayed < fastest->replayed) fastest = runner;
    }
    sn_candidate best = *fastest;
    *fastest = result->best;
    result->best = best;
}
