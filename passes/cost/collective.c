// Collectives: alpha-beta over the levels of links that a group spans.
//
// A ring moves (ranks - 1) parts of 1/ranks of the tensor through every link (an all-reduce twice). A party with m
// ranks reaches out with m links at once, so the ring runs at the least over the levels of members x beta (NCCL opens
// one channel per adapter). A tree does an all-reduce in log2 steps between parties; the library takes the faster. An
// all-to-all sends each rank's bytes straight to where they go, so each level carries only what crosses it.
// (Thakur et al. 2005; Sanders et al. 2009 for the double tree.)
#include "passes/cost/analytic.h"

#include <math.h>

static double ring_bandwidth(const sn_group *group) {
    double bandwidth = INFINITY;
    for (int i = 0; i < group->n_levels; i++)
        if (group->level[i].parties > 1) bandwidth = fmin(bandwidth, group->level[i].members * group->level[i].beta);
    return bandwidth;
}

// Steps of one turn of the ring, each at the latency of the link it crosses.
static double ring_latency(const sn_group *group) {
    double seconds = 0, outside = 1; // parties of the level, counted over the whole group
    for (int i = group->n_levels - 1; i >= 0; i--) {
        double crossings = outside * (double)(group->level[i].parties - 1);
        seconds += crossings * group->level[i].alpha;
        outside *= (double)group->level[i].parties;
    }
    return seconds;
}

static double tree_latency(const sn_group *group) {
    double seconds = 0;
    for (int i = 0; i < group->n_levels; i++) {
        double parties = (double)group->level[i].parties;
        seconds += group->level[i].alpha * (i ? ceil(log2(parties)) : parties - 1);
    }
    return seconds;
}

static double all_to_all(double bytes, const sn_group *group) {
    double seconds = 0, inside = 1, ranks = (double)group->ranks;
    for (int i = 0; i < group->n_levels; i++) {
        double reach = inside * (double)group->level[i].parties;
        double crossing = bytes * (reach - inside) / ranks; // to ranks that this level is the first to reach
        seconds = fmax(seconds, crossing / group->level[i].beta);
        seconds += group->level[i].parties > 1 ? group->level[i].alpha : 0;
        inside = reach;
    }
    return seconds;
}

double sn_analytic_collective(const sn_device_kind *device, sn_op_kind kind, double bytes, const sn_group *group) {
    if (group->ranks < 2 || bytes <= 0) return 0;
    double issue = device->curve->library_issue, ranks = (double)group->ranks;
    if (kind == SN_OP_ALL_TO_ALL) return issue + all_to_all(bytes, group);
    double ring = bytes * (ranks - 1) / ranks, ramp = device->curve->library_ramp;
    double moved = (ring + (ramp > 0 ? ring * ramp / (ring + ramp) : 0)) / ring_bandwidth(group);
    if (kind != SN_OP_ALL_REDUCE) return issue + ring_latency(group) + moved;
    return issue + 2 * moved + 2 * fmin(ring_latency(group), tree_latency(group));
}
