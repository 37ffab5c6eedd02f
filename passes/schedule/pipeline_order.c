// GPipe (Huang et al. 2019): all forward passes, then all backward passes.
//
// 1F1B (Narayanan et al. 2019; the flushing form of 2021): rank r of p begins with p - r - 1 forward passes, then
// alternates one forward and one backward pass, so that p - r micro-batches are in flight at most, not all of them.
//
// Interleaved 1F1B (Narayanan et al. 2021, section 2.2): a rank holds several chunks, each a p-th of a p-th deep, and
// runs them in groups of p micro-batches; filling the pipeline takes p - 1 passes of one chunk, not of all. Where p
// does not divide their number the last group is run as if it were full, without the passes of those that it lacks:
// leaving micro-batches out of an order that no one waits for in vain leaves such an order.
//
// ZB-H1 (Qi et al. 2024, section 2): 1F1B in which the part of the backward pass that only the parameters' gradients
// need is run later, where the rank would wait. Rank r lags it by r micro-batches: then p micro-batches are in flight
// on each rank, as many as 1F1B has on its first. Of the wait (p - 1)(F + B + W) remains (p - 1)(F + B - W).
#include "passes/schedule/pipeline_order.h"

#include "base/bug.h"

#include <math.h>

static void add(sn_pipeline_order *out, sn_run_kind kind, int micro_batch, int chunk) {
    sn_vec_push(out, (sn_pipeline_run){kind, micro_batch, chunk});
}

static int least(int a, int b) {
    return a < b ? a : b;
}

static void gpipe(int microbatches, sn_pipeline_order *out) {
    for (int m = 0; m < microbatches; m++) add(out, SN_RUN_FORWARD, m, 0);
    for (int m = 0; m < microbatches; m++) add(out, SN_RUN_BACKWARD, m, 0);
}

// The i-th pass of a rank over its chunks, in groups of `ranks` micro-batches.
static sn_pipeline_run interleaved_pass(int ranks, int chunks, int i, bool forward) {
    int group = i / (ranks * chunks), within = i % (ranks * chunks), chunk = within / ranks;
    return (sn_pipeline_run){forward ? SN_RUN_FORWARD : SN_RUN_BACKWARD, group * ranks + within % ranks,
                             forward ? chunk : chunks - 1 - chunk};
}

static void add_if_there(int microbatches, sn_pipeline_run run, sn_pipeline_order *out) {
    if (run.micro_batch < microbatches) sn_vec_push(out, run);
}

static void one_forward_one_backward(int ranks, int chunks, int microbatches, int rank, sn_pipeline_order *out) {
    int full = chunks == 1 ? microbatches : (microbatches + ranks - 1) / ranks * ranks, total = full * chunks;
    int ahead = chunks == 1 ? ranks - rank - 1 : (ranks - rank - 1) * 2 + (chunks - 1) * ranks;
    ahead = least(ahead, total);
    for (int i = 0; i < ahead; i++) add_if_there(microbatches, interleaved_pass(ranks, chunks, i, true), out);
    for (int i = 0; i < total; i++) {
        if (i + ahead < total) add_if_there(microbatches, interleaved_pass(ranks, chunks, i + ahead, true), out);
        add_if_there(microbatches, interleaved_pass(ranks, chunks, i, false), out);
    }
}

static void zero_bubble(int ranks, int microbatches, int rank, sn_pipeline_order *out) {
    int ahead = least(ranks - rank - 1, microbatches);
    for (int i = 0; i < ahead; i++) add(out, SN_RUN_FORWARD, i, 0);
    for (int i = 0; i < microbatches + rank; i++) {
        if (i + ahead < microbatches) add(out, SN_RUN_FORWARD, i + ahead, 0);
        if (i < microbatches) add(out, SN_RUN_BACKWARD_INPUT, i, 0);
        if (i >= rank) add(out, SN_RUN_BACKWARD_WEIGHT, i - rank, 0);
    }
}

void sn_pipeline_order_of(sn_pipeline schedule, int ranks, int chunks, int microbatches, int rank,
                          sn_pipeline_order *out) {
    SN_CHECK(rank >= 0 && rank < ranks && chunks >= 1 && microbatches >= 1);
    SN_CHECK(chunks == 1 || schedule == SN_PIPELINE_INTERLEAVED);
    switch (schedule) {
    case SN_PIPELINE_GPIPE:
        gpipe(microbatches, out);
        return;
    case SN_PIPELINE_ZERO_BUBBLE:
        zero_bubble(ranks, microbatches, rank, out);
        return;
    default:
        one_forward_one_backward(ranks, chunks, microbatches, rank, out);
    }
}

double sn_pipeline_in_flight(sn_pipeline schedule, int ranks, int chunks, int group, int microbatches, int rank) {
    double most = microbatches;
    switch (schedule) {
    case SN_PIPELINE_GPIPE:
        return most;
    case SN_PIPELINE_ZERO_BUBBLE:
        return fmin(most, ranks);
    default:
        if (chunks == 1) return fmin(most, ranks - rank);
        return fmin(most, ((ranks - rank - 1) * 2 + (chunks - 1) * group + 1) / (double)chunks);
    }
}

double sn_pipeline_waiting(sn_pipeline schedule, int microbatches, int rank) {
    return schedule == SN_PIPELINE_ZERO_BUBBLE ? fmin(microbatches, rank + 1) : 0;
}
