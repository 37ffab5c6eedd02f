// 1F1B (Narayanan et al. 2019, 2021): stage s starts after s forwards and ends after s backwards, so a step is the sum
// over all stages of one micro-batch and (microbatches - 1) times the slowest one. With c chunks a rank the fill and
// the drain shrink to 1/c: the first micro-batch visits a rank for one chunk at a time. Zero-bubble (ZB-H1, Qi et al.
// 2024) fills what is left with gradients of weights.
#include "passes/cost/step.h"

#include <math.h>

void sn_pipeline_times_add(sn_pipeline_times *t, double forward, double backward_input, double backward_weight,
                           bool last) {
    double without = forward + backward_input, seconds = without + backward_weight;
    t->sum += seconds;
    t->longest_stage = fmax(t->longest_stage, seconds);
    t->longest_without = fmax(t->longest_without, without);
    t->without_weights += without;
    t->least_weights = t->stages ? fmin(t->least_weights, backward_weight) : backward_weight;
    if (!last) t->fill += without - backward_weight;
    t->stages++;
}

double sn_pipeline_seconds(sn_pipeline schedule, int ranks, int64_t microbatches, const sn_pipeline_times *t) {
    double m = (double)microbatches, each = fmax(t->longest_rank, t->turn);
    switch (schedule) {
    case SN_PIPELINE_INTERLEAVED: // until all ranks are at work, and again at the end, a micro-batch crosses all of
                                  // them
        return m * each + (ranks - 1) * (t->longest_stage + t->messages / fmax(1, t->stages - 1));
    case SN_PIPELINE_ZERO_BUBBLE:
        // With fewer micro-batches than ranks the gradients of weights have all run before the pipeline is empty.
        return fmax(m * each + fmax(0, t->fill + t->messages),
                    t->without_weights + t->messages + (m - 1) * fmax(t->longest_without, t->turn) + t->least_weights);
    default:
        return t->sum + t->messages + (m - 1) * each;
    }
}

sn_zero_seconds sn_zero_step(const sn_cost_model *model, int zero, double gradient_bytes, double parameter_bytes,
                             const sn_group *group) {
    sn_zero_seconds seconds = {0};
    if (group->ranks < 2) return seconds;
    if (zero <= 1)
        seconds.reduce =
            sn_cost_collective(model, zero ? SN_OP_REDUCE_SCATTER : SN_OP_ALL_REDUCE, gradient_bytes, group);
    if (zero == 1 || zero == 2) seconds.gather = sn_cost_collective(model, SN_OP_ALL_GATHER, parameter_bytes, group);
    return seconds;
}

// Seconds of `work` that `cover` does not hide.
static double exposed(double work, double cover) {
    return fmax(0, work - cover);
}

// The pipeline's part of a step in which every stage but the first waits `message` seconds for each of its inputs.
static double pipeline_seconds(const sn_pipeline_shape *pipeline, const sn_step_stage *stages, double message) {
    sn_pipeline_times times = {0};
    int ranks = pipeline->stages, chunks = pipeline->chunks;
    for (int s = 0; s < ranks; s++) {
        double rank = 0;
        for (int c = 0; c < chunks; c++) {
            double wait = s + c > 0 ? message : 0, forward = stages[s].forward / chunks + wait,
                   backward = stages[s].backward / chunks + wait;
            sn_pipeline_times_add(&times, forward, backward, 0, s == ranks - 1 && c == chunks - 1);
            rank += forward + backward;
        }
        times.longest_rank = fmax(times.longest_rank, rank);
    }
    sn_pipeline schedule = chunks > 1 ? SN_PIPELINE_INTERLEAVED : SN_PIPELINE_1F1B;
    return sn_pipeline_seconds(schedule, ranks, pipeline->microbatches, &times);
}

sn_step sn_step_of(const sn_pipeline_shape *pipeline, const sn_step_stage *stages) {
    sn_step step = {0};
    double slowest = 0, message = 0, tail = 0;
    int last = 0;
    for (int s = 0; s < pipeline->stages; s++) {
        const sn_step_stage *stage = &stages[s];
        slowest = fmax(slowest, stage->forward + stage->backward);
        message = fmax(message, stage->message);
        double reduce = pipeline->overlap_reduce ? exposed(stage->reduce, stage->backward) : stage->reduce;
        double gather = pipeline->overlap_gather ? exposed(stage->gather, stage->forward) : stage->gather;
        if (reduce + gather + stage->update > tail) {
            tail = reduce + gather + stage->update;
            step.reduce = reduce + gather;
            step.update = stage->update;
        }
        if (sn_memory_total(&stage->memory) > sn_memory_total(&stages[last].memory)) last = s;
    }
    double computed = pipeline_seconds(pipeline, stages, 0);
    step.compute = (double)pipeline->microbatches * slowest;
    step.bubble = computed - step.compute;
    // Messages that hide in the steady state are still waited for while the pipeline fills and drains.
    step.messages = pipeline->overlap_messages ? 2.0 * (pipeline->stages - 1) * message
                                               : pipeline_seconds(pipeline, stages, message) - computed;
    step.seconds = computed + step.messages + tail;
    step.memory = stages[last].memory;
    step.fullest = last;
    return step;
}
