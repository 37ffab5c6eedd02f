#include "passes/partition/rescore.h"

#include "base/alloc.h"
#include "passes/simulate/pipeline.h"

enum {
    MOST_PASSES = 400000, // of one candidate: a tenth of a second
    ALWAYS_REPLAYED = 4,  // candidates, in the order of their closed forms
    MOST_REPLAYED = 16,
};

static sn_stage_times times_of(const sn_candidate *c, int stage) {
    const sn_stage_report *s = &c->stages[stage];
    return (sn_stage_times){.forward = s->forward,
                            .backward_input = s->backward_input,
                            .backward_weight = s->backward_weight,
                            .to_next = stage + 1 < c->n_stages ? c->stages[stage + 1].message : 0,
                            .to_previous = s->message};
}

// Seconds of a step; 0 when it is not replayed.
static double replay(const sn_search_request *request, int64_t devices, const sn_candidate *c) {
    if (!c->stages || c->n_stages != c->pp * c->chunks || (int64_t)c->n_stages * c->microbatches > MOST_PASSES)
        return 0;
    sn_stage_times *stages = sn_alloc((size_t)c->n_stages * sizeof *stages);
    double *after = sn_alloc((size_t)c->pp * sizeof *after);
    for (int i = 0; i < c->n_stages; i++) stages[i] = times_of(c, i);
    // Of the ranks that share cores one of each coordinate is replayed, with its part of them; what follows their
    // passes takes all cores.
    double each = request->cores * c->pp / (double)devices, crowd = 1;
    bool crowded = each > 0 && each < c->pp;
    if (crowded) crowd = c->pp / (each * request->sharing);
    for (int i = 0; i < c->pp && !crowded; i++) after[i] = c->stages[i].once;
    sn_pipeline_case pipeline = {c->schedule, c->pp, c->chunks, c->microbatches, stages, after, each, request->sharing};
    double seconds = sn_pipeline_simulate(&pipeline).seconds;
    sn_free(stages);
    sn_free(after);
    return crowded ? seconds + crowd * (c->sync + c->update) : seconds;
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
