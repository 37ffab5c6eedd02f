#include "passes/partition/rescore.h"

#include "base/alloc.h"
#include "passes/simulate/pipeline.h"

enum {
    MOST_PASSES = 400000, // of one candidate: a tenth of a second
    ALWAYS_REPLAYED = 4,  // candidates, in the order of their closed forms
    MOST_REPLAYED = 16,
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

typedef struct rescorer {
    const sn_search_request *request;
    int64_t devices;
    sn_candidate *list;
    size_t fastest;
    int replays;
} rescorer;

static bool is_candidate(const sn_candidate *c) {
    return c->stages && c->excess <= 0;
}

static void consider(rescorer *r, size_t i) {
    sn_candidate *c = &r->list[i];
    if (c->replayed > 0 || r->replays == MOST_REPLAYED) return;
    r->replays++;
    c->replayed = replay(r->request, r->devices, c);
    if (c->replayed > 0 && c->replayed < r->list[r->fastest].replayed) r->fastest = i;
}

size_t sn_search_rescore(const sn_search_request *request, int64_t devices, sn_candidate *list, size_t n) {
    size_t best = 0, taken = 0;
    while (best < n && !is_candidate(&list[best])) best++;
    if (best == n) return n;
    rescorer r = {request, devices, list, best, 0};
    consider(&r, best);
    if (list[best].replayed <= 0) return best;
    bool seen[SN_PIPELINE_COUNT] = {false};
    for (size_t i = best; i < n; i++) {
        if (!is_candidate(&list[i])) continue;
        bool first = !seen[list[i].schedule] && list[i].step < SN_WORTH_REPLAYING * list[best].step;
        if (taken++ < ALWAYS_REPLAYED || first) consider(&r, i);
        seen[list[i].schedule] = true;
    }
    for (size_t i = best; i < n && list[i].step < list[r.fastest].step; i++)
        if (is_candidate(&list[i])) consider(&r, i);
    return r.fastest;
}
