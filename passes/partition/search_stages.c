#include "passes/partition/search_stages.h"

#include "passes/schedule/pipeline_order.h"

#include <math.h>

static double larger(double a, double b) {
    return a > b ? a : b;
}

// The backward pass of the last block follows its forward pass at once, unless all forward passes come first: nothing
// of it is computed again (passes/partition/stages_pass.c). Where it is of a kind with others, it counts as they do.
static bool is_kept_whole(const sn_stage_context *x, int block_class) {
    const sn_blocks *blocks = x->blocks;
    bool last = block_class == blocks->blocks[blocks->n_blocks - 1].kind && blocks->classes[block_class].count == 1;
    return last && (x->candidate->pp == 1 || x->candidate->schedule != SN_PIPELINE_GPIPE);
}

// What it keeps is there for one micro-batch. Without a pipeline one function does both passes, and what it no longer
// needs gives way to what earlier blocks make again.
static void add_activations(const sn_stage_context *x, const sn_block_cost *c, int block_class, int n,
                            sn_stage_sums *t) {
    bool whole = is_kept_whole(x, block_class), once = whole && x->candidate->pp > 1;
    if (once) t->last = c->activations[SN_REMAT_NONE].kept;
    for (int r = 0; r < SN_REMAT_COUNT; r++) {
        const sn_block_activations *held = &c->activations[once ? SN_REMAT_NONE : r];
        if (!whole) t->again[r] += n * c->again[r];
        if (!once) t->activations[r].kept += n * held->kept;
        t->activations[r].late += n * held->late;
        t->activations[r].waiting += n * held->waiting;
        t->activations[r].again = larger(t->activations[r].again, held->again); // block by block
    }
}

void sn_stage_sums_add(const sn_stage_context *x, int stage, int block_class, int n, sn_stage_sums *t) {
    const sn_stage_site *site = sn_stage_site_at(x, stage);
    const sn_block_cost *c = &site->costs[block_class];
    if (site->moves) {
        const sn_block_moves *moves = &site->moves[block_class];
        t->moves.forward += n * moves->forward;
        t->moves.backward_input += n * moves->backward_input;
        t->moves.backward_weight += n * moves->backward_weight;
        if (!is_kept_whole(x, block_class)) t->again[SN_REMAT_FULL] += n * moves->again;
        t->moves.whole_parameters += n * moves->whole_parameters;
        t->moves.whole_gradients += n * moves->whole_gradients;
        t->moves.whole_optimizer += n * moves->whole_optimizer;
        t->moves.largest = larger(t->moves.largest, moves->largest);
    }
    add_activations(x, c, block_class, n, t);
    t->forward += n * c->forward;
    t->backward_input += n * c->backward_input;
    t->backward_weight += n * c->backward_weight;
    t->communication += n * c->communication;
    t->parameters += n * c->parameters;
    t->gradients += n * c->gradients;
    t->optimizer += n * c->optimizer;
    t->working = larger(t->working, c->working);
}

sn_stage_sums sn_stage_sums_begin(const sn_stage_context *x, int stage, int first) {
    int kind = x->blocks->blocks[first].kind, row = stage % x->candidate->pp * x->messages_apart;
    double seconds = !stage ? 0 : x->messages ? x->messages[row + kind] : x->message;
    return (sn_stage_sums){.message = x->messages_are_work ? 0 : seconds,
                           .handed = x->messages_are_work ? seconds : 0,
                           .input = x->first.costs[kind].input};
}

sn_stage_sums sn_stage_sums_of(const sn_stage_context *x, int stage, int first, int end) {
    sn_stage_sums t = sn_stage_sums_begin(x, stage, first);
    int n = x->blocks->n_classes;
    for (int k = 0; k < n; k++) {
        int count = x->before[end * n + k] - x->before[first * n + k];
        if (count) sn_stage_sums_add(x, stage, k, count, &t);
    }
    return t;
}

sn_stage_place sn_stage_place_of(const sn_stage_context *x, int index) {
    const sn_candidate *c = x->candidate;
    int rank = index % c->pp;
    sn_stage_place place = {.index = index,
                            .in_flight =
                                sn_pipeline_in_flight(c->schedule, c->pp, c->chunks, c->pp, c->microbatches, rank),
                            .limit = sn_stage_site_at(x, index)->limit};
    if (c->schedule == SN_PIPELINE_ZERO_BUBBLE) {
        // Its first backward passes run where 1F1B has the whole ones.
        place.early = sn_pipeline_in_flight(SN_PIPELINE_1F1B, c->pp, 1, c->pp, c->microbatches, rank);
        place.waiting = sn_pipeline_waiting(c->schedule, c->microbatches, rank);
    }
    return place;
}

double sn_stage_activations(const sn_stage_context *x, const sn_stage_place *place, const sn_block_activations *bytes) {
    if (x->candidate->schedule != SN_PIPELINE_ZERO_BUBBLE) return place->in_flight * bytes->kept;
    return place->early * bytes->kept + (place->in_flight - place->early) * bytes->late +
           place->waiting * bytes->waiting;
}

sn_memory sn_stage_memory(const sn_stage_context *x, const sn_stage_place *place, const sn_stage_sums *t,
                          sn_remat remat) {
    const sn_candidate *c = x->candidate;
    sn_memory m = {.parameters = t->parameters, .gradients = t->gradients, .optimizer = t->optimizer};
    double shares = sn_candidate_shares(c);
    if (c->zero >= 1) m.optimizer = sn_shared_out(m.optimizer, t->moves.whole_optimizer, shares);
    if (c->zero >= 2) m.gradients = sn_shared_out(m.gradients, t->moves.whole_gradients, shares);
    if (c->zero >= 3) m.parameters = sn_shared_out(m.parameters, t->moves.whole_parameters, shares);
    m.activations = t->last + sn_stage_activations(x, place, &t->activations[remat]);
    if (sn_candidate_is_one_program(c)) { // its gradients take the place of activations, as the backward pass goes on
        double gradients = fmin(t->gradients, t->parameters);
        if (c->zero >= 1) gradients = sn_shared_out(gradients, t->moves.whole_parameters, shares);
        m.gradients = larger(0, gradients - m.activations);
    }
    m.working = t->working + t->activations[remat].again;
    m.buffers = c->pp > 1 ? 2 * t->input : 0;
    m.buffers += larger(0, t->moves.largest - m.working); // the largest activations are not there when it is
    return m;
}

static double moved_seconds(const sn_stage_sums *t) {
    return t->moves.forward + t->moves.backward_input + t->moves.backward_weight;
}

sn_stage_passes sn_stage_passes_of(const sn_stage_sums *t, sn_remat remat) {
    double again = t->again[remat];
    return (sn_stage_passes){.forward = t->forward + t->handed + t->moves.forward,
                             .backward_input = t->backward_input + again + t->handed + t->moves.backward_input,
                             .backward_weight = t->backward_weight + t->moves.backward_weight,
                             .again = again};
}

void sn_stage_report_of(const sn_stage_context *x, const sn_stage_place *place, const sn_stage_sums *t, sn_remat remat,
                        sn_stage_report *out) {
    sn_stage_passes passes = sn_stage_passes_of(t, remat);
    *out = (sn_stage_report){.remat = remat,
                             .forward = passes.forward,
                             .backward_input = passes.backward_input,
                             .backward_weight = passes.backward_weight,
                             .again = passes.again,
                             .message = t->message,
                             .in_flight = place->in_flight};
    out->communication = t->communication + 2 * t->handed + moved_seconds(t);
    out->memory = sn_stage_memory(x, place, t, remat);
    double now = sn_memory_total(&out->memory), least = now;
    for (int r = 0; r < SN_REMAT_COUNT; r++) {
        sn_memory other = sn_stage_memory(x, place, t, (sn_remat)r);
        least = fmin(least, sn_memory_total(&other));
        if (r == SN_REMAT_NONE) out->saved = sn_memory_total(&other) - now;
    }
    out->could_save = now - least;
}

double sn_stage_seconds(const sn_stage_context *x, const sn_stage_place *place, const sn_stage_sums *t,
                        sn_remat *chosen) {
    double limit = place->limit / x->candidate->chunks, best = INFINITY, least = INFINITY;
    int first = x->remat_is_fixed ? (int)x->remat : 0, end = x->remat_is_fixed ? first + 1 : SN_REMAT_COUNT;
    for (int r = first; r < end && !isfinite(best); r++) {
        // In the order of the enumeration each saves more and takes longer.
        sn_memory memory = sn_stage_memory(x, place, t, (sn_remat)r);
        double bytes = sn_memory_total(&memory);
        if (bytes < least) least = bytes, *chosen = (sn_remat)r;
        if (bytes <= limit) best = t->again[r], *chosen = (sn_remat)r;
    }
    if (!isfinite(best)) return INFINITY;
    double seconds = t->forward + t->backward_input + t->backward_weight + best;
    return seconds + 2 * (t->message + t->handed) + moved_seconds(t);
}

double sn_stage_cost(const sn_stage_context *x, int index, int first, int end, sn_stage_report *out) {
    sn_stage_sums t = sn_stage_sums_of(x, index, first, end);
    sn_stage_place place = sn_stage_place_of(x, index);
    sn_remat chosen = SN_REMAT_NONE;
    double seconds = sn_stage_seconds(x, &place, &t, &chosen);
    if (out) sn_stage_report_of(x, &place, &t, chosen, out), out->first = first, out->end = end;
    return seconds;
}

double sn_stage_with(const sn_stage_context *x, int index, int first, int end, sn_remat remat, sn_stage_report *out) {
    sn_stage_sums t = sn_stage_sums_of(x, index, first, end);
    sn_stage_place place = sn_stage_place_of(x, index);
    sn_stage_report_of(x, &place, &t, remat, out), out->first = first, out->end = end;
    return sn_memory_total(&out->memory);
}
