#include "passes/simulate/pipeline.h"

#include "base/alloc.h"
#include "base/bug.h"
#include "passes/schedule/pipeline_order.h"
#include "passes/simulate/engine.h"

typedef struct replay {
    const sn_pipeline_case *pipeline;
    sn_sim *sim;
    int *tasks, *messages; // [kind][stage][micro-batch]; SN_SIM_NONE: nothing is to be waited for but the pass
} replay;

static int stage_count(const sn_pipeline_case *p) {
    return p->ranks * p->chunks;
}

static int cell(const replay *r, sn_run_kind kind, int stage, int micro_batch) {
    return ((int)kind * stage_count(r->pipeline) + stage) * r->pipeline->microbatches + micro_batch;
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

static double message_of(const sn_pipeline_case *p, int stage, sn_run_kind kind) {
    if (kind == SN_RUN_FORWARD) return stage + 1 < stage_count(p) ? p->stages[stage].to_next : 0;
    return kind == SN_RUN_BACKWARD_WEIGHT || stage == 0 ? 0 : p->stages[stage].to_previous;
}

// Passes of a rank, in order, on its stream, and what they send on its link.
static void add_rank(replay *r, int rank, int link) {
    const sn_pipeline_case *p = r->pipeline;
    sn_pipeline_order order = {0};
    sn_pipeline_order_of(p->schedule, p->ranks, p->chunks, p->microbatches, rank, &order);
    for (size_t i = 0; i < order.count; i++) {
        const sn_pipeline_run *run = &order.data[i];
        int stage = run->chunk * p->ranks + rank;
        int at = cell(r, run->kind, stage, run->micro_batch);
        double message = message_of(p, stage, run->kind);
        r->tasks[at] = sn_sim_add(r->sim, rank, seconds_of(&p->stages[stage], run->kind));
        r->messages[at] = message > 0 ? sn_sim_add(r->sim, link, message) : SN_SIM_NONE;
        if (message > 0) sn_sim_after(r->sim, r->messages[at], r->tasks[at], 0);
    }
    if (p->after) (void)sn_sim_add(r->sim, rank, p->after[rank]);
    sn_vec_free(&order);
}

static void receive(replay *r, int reader, int sender) {
    int message = r->messages[sender];
    sn_sim_after(r->sim, r->tasks[reader], message == SN_SIM_NONE ? r->tasks[sender] : message, 0);
}

// What a pass takes from other passes. The order of a rank itself sees to backward after forward, weight after input.
static void add_edges(replay *r) {
    const sn_pipeline_case *p = r->pipeline;
    bool split = p->schedule == SN_PIPELINE_ZERO_BUBBLE;
    sn_run_kind backward = split ? SN_RUN_BACKWARD_INPUT : SN_RUN_BACKWARD;
    for (int s = 0; s + 1 < stage_count(p); s++) {
        for (int m = 0; m < p->microbatches; m++) {
            receive(r, cell(r, SN_RUN_FORWARD, s + 1, m), cell(r, SN_RUN_FORWARD, s, m));
            receive(r, cell(r, backward, s, m), cell(r, backward, s + 1, m));
        }
    }
}

sn_pipeline_replay sn_pipeline_simulate(const sn_pipeline_case *pipeline) {
    size_t cells = (size_t)SN_RUN_KIND_COUNT * (size_t)stage_count(pipeline) * (size_t)pipeline->microbatches;
    replay r = {pipeline, sn_sim_new(), sn_alloc(cells * sizeof(int)), sn_alloc(cells * sizeof(int))};
    int host = pipeline->cores > 0 ? sn_sim_host(r.sim, pipeline->cores, 0, pipeline->sharing) : SN_SIM_NONE;
    for (int rank = 0; rank < pipeline->ranks; rank++) (void)sn_sim_stream(r.sim, host); // numbered from 0
    for (int rank = 0; rank < pipeline->ranks; rank++) add_rank(&r, rank, sn_sim_stream(r.sim, SN_SIM_NONE));
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
    sn_free(r.messages);
    return out;
}
