// 1F1B (Narayanan et al. 2019, 2021): stage s starts after s forwards and ends after s backwards, so a step is the sum
// over all stages of one micro-batch and (microbatches - 1) times the slowest one. With c chunks a stage the fill and
// the drain shrink to 1/c: the first micro-batch visits a stage for one chunk at a time.
#include "passes/cost/step.h"

#include <math.h>

// Seconds of `work` that `cover` does not hide.
static double exposed(double work, double cover) {
    return fmax(0, work - cover);
}

sn_step sn_step_of(const sn_pipeline_shape *pipeline, const sn_step_stage *stages) {
    sn_step step = {0};
    double sum = 0, slowest = 0, message = 0, tail = 0;
    int last = 0;
    for (int s = 0; s < pipeline->stages; s++) {
        const sn_step_stage *stage = &stages[s];
        double both = stage->forward + stage->backward;
        sum += both;
        if (both > slowest) slowest = both;
        message = fmax(message, stage->message);
        double backward = stage->backward;
        double reduce = pipeline->overlap_reduce ? exposed(stage->reduce, backward) : stage->reduce;
        double gather = pipeline->overlap_gather ? exposed(stage->gather, stage->forward) : stage->gather;
        if (reduce + gather + stage->update > tail) {
            tail = reduce + gather + stage->update;
            step.reduce = reduce + gather;
            step.update = stage->update;
        }
        if (sn_memory_total(&stage->memory) > sn_memory_total(&stages[last].memory)) last = s;
    }
    double micro = (double)pipeline->microbatches, chunks = pipeline->chunks;
    step.compute = micro * slowest;
    step.bubble = (sum - slowest) / chunks;
    // Filling and draining: each hop waits for its message. In the steady state a stage receives and sends, per chunk.
    double hops = pipeline->stages - 1;
    step.messages = 2 * hops * message;
    if (!pipeline->overlap_messages && hops > 0) step.messages += 2 * (micro - 1) * chunks * message;
    step.seconds = step.compute + step.bubble + step.messages + tail;
    step.memory = stages[last].memory;
    step.fullest = last;
    return step;
}
