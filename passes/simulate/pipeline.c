#include "passes/simulate/pipeline.h"

#include "base/alloc.h"
#include "base/bug.h"
#include "passes/schedule/pipeline_order.h"
#include "passes/simulate/engine.h"

typedef struct replay {
    const sn_pipeline_case *pipeline;
    sn_sim *sim;
    int *tasks; // [kind][stage][micro-batch]
} replay;

static int stage_count(const sn_pipeline_case *p) {
    return p->ranks * p->chunks;
}

static int *task_of(const replay *r, sn_run_kind kind, int stage, int micro_batch) {
    return &r->tasks[((int)kind * stage_count(r->pipeline) + stage) * r->pipeline->microbatches + micro_batch];
}

static double seconds_of(const sn_stage_times *stage, sn_run_kind kind) {
    switch (kind) {
    case SN_RUN_FORWARD:
        return stage->forward;
    case SN_RUN_BACKWARD:
        return stage->backward_input + stage->backward_weight;
    case SN_RUN_BACKWARD_INPUT:
        return stage->backward_input;
    default:
        return stage->backward_weight;
    }
}

// Passes of a rank, in order, on a stream of its own.
static void add_rank(replay *r, int host, int rank) {
    const sn_pipeline_case *p = r->pipeline;
    int stream = sn_sim_stream(r->sim, host);
    sn_pipeline_order order = {0};
    sn_pipeline_order_of(p->schedule, p->ranks, p->chunks, p->microbatches, rank, &order);
    for (size_t i = 0; i < order.count; i++) {
        const sn_pipeline_run *run = &order.data[i];
        int stage = run->chunk * p->ranks + rank;
        *task_of(r, run->kind, stage, run->micro_batch) =
            sn_sim_add(r->sim, stream, seconds_of(&p->stages[stage], run->kind));
    }
    sn_vec_free(&order);
}

// What a pass takes from other passes. The order of a rank itself sees to backward after forward, weight after input.
static void add_edges(replay *r) {
    const sn_pipeline_case *p = r->pipeline;
    bool split = p->schedule == SN_PIPELINE_ZERO_BUBBLE;
    sn_run_kind backward = split ? SN_RUN_BACKWARD_INPUT : SN_RUN_BACKWARD;
    for (int s = 0; s + 1 < stage_count(p); s++) {
        for (int m = 0; m < p->microbatches; m++) {
            sn_sim_after(r->sim, *task_of(r, SN_RUN_FORWARD, s + 1, m), *task_of(r, SN_RUN_FORWARD, s, m),
                         p->stages[s].to_next);
            sn_sim_after(r->sim, *task_of(r, backward, s, m), *task_of(r, backward, s + 1, m),
                         p->stages[s + 1].to_previous);
        }
    }
}

sn_pipeline_replay sn_pipeline_simulate(const sn_pipeline_case *pipeline) {
    size_t cells = (size_t)SN_RUN_KIND_COUNT * (size_t)stage_count(pipeline) * (size_t)pipeline->microbatches;
    replay r = {pipeline, sn_sim_new(), sn_alloc(cells * sizeof(int))};
    int host = pipeline->cores > 0 ? sn_sim_host(r.sim, pipeline->cores, 0, pipeline->sharing) : SN_SIM_NONE;
    for (int rank = 0; rank < pipeline->ranks; rank++) add_rank(&r, host, rank);
    add_edges(&r);
    if (!sn_sim_run(r.sim)) SN_BUG("the orders of the pipeline's ranks wait for each other");
    sn_pipeline_replay out = {.seconds = sn_sim_seconds(r.sim)};
    for (int rank = 0; rank < pipeline->ranks; rank++) {
        double busy = sn_sim_busy(r.sim, rank);
        if (busy > out.busy) out.busy = busy, out.busiest = rank;
    }
    out.bubble = out.seconds - out.busy;
    sn_sim_free(r.sim);
    sn_free(r.tasks);
    return out;
}
