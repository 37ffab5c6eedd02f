#include "passes/partition/search_sites.h"

#include "passes/cost/analytic.h"
#include "passes/partition/search_price.h"

#include <math.h>

// Of two groups over the same axes the one that takes longer with a tensor of this size is the slower one.
static const double USUAL_BYTES = 16 << 20;

// Ranks of the axes: tp innermost, then cp, then ep; pp outermost, or dp.
static int64_t ranks_inside(const sn_candidate *c) {
    return (int64_t)c->setting.tp * c->setting.cp * c->setting.ep;
}

static int64_t stride_of_data(const sn_candidate *c) {
    return ranks_inside(c) * (c->data_outside ? c->pp : 1);
}

static int64_t stride_of_pipeline(const sn_candidate *c) {
    return ranks_inside(c) * (c->data_outside ? 1 : c->dp);
}

static const sn_group *one_of_equals(sn_search *s, sn_group group) {
    for (size_t i = 0; i < s->groups.count; i++)
        if (sn_group_equal(s->groups.data[i], &group)) return s->groups.data[i];
    sn_group *kept = SN_NEW(s->arena, sn_group);
    *kept = group;
    sn_vec_push(&s->groups, kept);
    return kept;
}

static const sn_group *find_group(sn_search *s, int64_t first, int64_t size, int64_t stride) {
    return one_of_equals(s, sn_cluster_group(s->request.cluster, first, size, stride));
}

// Runs of ranks whose first ones are so far apart.
static const sn_group *find_runs(sn_search *s, int64_t first, int64_t size, int64_t stride, int64_t runs,
                                 int64_t apart) {
    if (runs == 1 || apart == size * stride) return find_group(s, first, size * runs, stride);
    if (size == 1) return find_group(s, first, runs, apart);
    int64_t n = size * runs, *ranks = sn_alloc((size_t)n * sizeof *ranks);
    for (int64_t i = 0; i < n; i++) ranks[i] = first + i / size * apart + i % size * stride;
    sn_group group = sn_cluster_group_of(s->request.cluster, n, ranks);
    sn_free(ranks);
    return one_of_equals(s, group);
}

static const sn_group *find_shares(sn_search *s, const sn_candidate *c, int64_t first) {
    return find_runs(s, first, c->setting.cp, c->setting.tp, c->dp, stride_of_data(c));
}

// The norm of the gradients is summed over the axes that cut parameters or, under ZeRO, gradients.
static const sn_group *find_norm(sn_search *s, const sn_candidate *c, int64_t first) {
    if (!c->zero) return find_group(s, first, c->setting.tp, 1);
    return find_runs(s, first, ranks_inside(c), 1, c->dp, stride_of_data(c));
}

static bool nests(int64_t extent, int64_t stride) {
    return extent % stride == 0 || stride % extent == 0;
}

// Whether every pipeline rank sees the links as the first one does, in each of its groups: a level of links joins a
// whole number of the ranks of each axis, or the other way round.
static bool is_aligned(const sn_search *s, const sn_candidate *c) {
    const sn_cluster *cluster = s->request.cluster;
    if (s->uneven) return false;
    int64_t devices = cluster->nodes[0].devices;
    int64_t strides[] = {c->setting.tp, (int64_t)c->setting.tp * c->setting.cp, ranks_inside(c), stride_of_pipeline(c),
                         stride_of_data(c)};
    for (int l = 0; l < cluster->n_levels; l++) {
        const sn_link_level *level = &cluster->level[l];
        int64_t extent = level->inside_node ? level->size && level->size < devices ? level->size : devices
                         : level->size      ? level->size * devices
                                            : s->devices;
        for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
            if (!nests(extent, strides[i])) return false;
    }
    return true;
}

static sn_search_site first_site(sn_search *s, const sn_candidate *c) {
    return (sn_search_site){.at = sn_evaluator_site(s->evaluator),
                            .memory = s->request.cluster->nodes[0].memory,
                            .shares = find_shares(s, c, 0),
                            .experts = find_group(s, 0, c->setting.ep, (int64_t)c->setting.tp * c->setting.cp),
                            .norm = find_norm(s, c, 0)};
}

static double usual_seconds(const sn_search *s, const sn_group *group) {
    return sn_analytic_collective(s->model.device, SN_OP_ALL_REDUCE, USUAL_BYTES, group);
}

// Keeps the slower group; true when it is the new one.
static bool keep_slower(const sn_search *s, const sn_group **kept, const sn_group *group) {
    if (*kept && (*kept == group || usual_seconds(s, group) <= usual_seconds(s, *kept))) return false;
    *kept = group;
    return true;
}

// The groups over the axes inside of a pipeline rank whose first rank is this one.
typedef struct slowest {
    const sn_group *tp, *cp, *ep;
} slowest;

static void look_at_rank(sn_search *s, const sn_candidate *c, int64_t base, int64_t local, slowest *slow,
                         sn_search_site *out) {
    int64_t tp = c->setting.tp, cp = c->setting.cp, ep = c->setting.ep, first = base + local;
    bool first_of_tp = local % tp == 0, first_of_cp = local / tp % cp == 0, first_of_ep = local / (tp * cp) == 0;
    if (first_of_tp && keep_slower(s, &slow->tp, find_group(s, first, tp, 1))) out->at.tp = first;
    if (first_of_cp && keep_slower(s, &slow->cp, find_group(s, first, cp, tp))) out->at.cp = first;
    if (first_of_ep && keep_slower(s, &slow->ep, find_group(s, first, ep, tp * cp))) out->at.ep = first;
    const sn_nodes *nodes = sn_cluster_nodes_of(s->request.cluster, first);
    if (!out->at.device || sn_device_pace(nodes->device) < sn_device_pace(out->at.device))
        out->at.device = nodes->device;
    out->memory = fmin(out->memory, nodes->memory);
}

static sn_search_site look_at(sn_search *s, const sn_candidate *c, int rank, slowest *slow) {
    sn_search_site site = {.memory = INFINITY};
    int64_t inside = ranks_inside(c), begin = rank * stride_of_pipeline(c);
    for (int64_t d = 0; d < c->dp; d++)
        for (int64_t local = 0; local < inside; local++)
            look_at_rank(s, c, begin + d * stride_of_data(c), local, slow, &site);
    for (int64_t local = 0; local < inside; local++) {
        if (local / c->setting.tp % c->setting.cp == 0)
            (void)keep_slower(s, &site.shares, find_shares(s, c, begin + local));
        if (c->zero ? local == 0 : local % c->setting.tp == 0)
            (void)keep_slower(s, &site.norm, find_norm(s, c, begin + local));
    }
    site.experts = slow->ep;
    return site;
}

static bool same_site(const sn_search_site *a, const sn_search_site *b, const slowest *x, const slowest *y) {
    return a->at.device == b->at.device && a->memory == b->memory && a->shares == b->shares && a->norm == b->norm &&
           x->tp == y->tp && x->cp == y->cp && x->ep == y->ep;
}

static void look_everywhere(sn_search *s, const sn_candidate *c, sn_known_sites *out) {
    slowest *slow = sn_alloc((size_t)c->pp * sizeof *slow); // per site
    out->sites = SN_NEW_N(s->arena, sn_search_site, c->pp);
    out->of = SN_NEW_N(s->arena, int, c->pp);
    for (int rank = 0; rank < c->pp; rank++) {
        slowest here = {0};
        sn_search_site site = look_at(s, c, rank, &here);
        int i = 0;
        while (i < out->n && !same_site(&site, &out->sites[i], &here, &slow[i])) i++;
        if (i == out->n) out->sites[out->n] = site, slow[out->n++] = here;
        out->of[rank] = i;
    }
    sn_free(slow);
}

static const sn_group *slowest_pair(sn_search *s, const sn_candidate *c, bool aligned, int from, int to) {
    int64_t stride = stride_of_pipeline(c), inside = aligned ? 1 : ranks_inside(c);
    int64_t begin = (from < to ? from : to) * stride, apart = (from < to ? to - from : from - to) * stride;
    const sn_group *slow = NULL;
    for (int64_t d = 0; d < (aligned ? 1 : c->dp); d++)
        for (int64_t local = 0; local < inside; local++)
            (void)keep_slower(s, &slow, find_group(s, begin + d * stride_of_data(c) + local, 2, apart));
    return slow;
}

static void look_between(sn_search *s, const sn_candidate *c, bool aligned, sn_known_sites *out) {
    out->before = SN_NEW_N(s->arena, const sn_group *, c->pp);
    out->one_message = true;
    for (int rank = 0; rank < c->pp && c->pp > 1; rank++) {
        out->before[rank] = slowest_pair(s, c, aligned, (rank + c->pp - 1) % c->pp, rank);
        out->one_message &= out->before[rank] == out->before[0];
    }
}

static bool are_of(const sn_known_sites *known, const sn_candidate *c) {
    return known->pp == c->pp && known->dp == c->dp && known->tp == c->setting.tp && known->cp == c->setting.cp &&
           known->ep == c->setting.ep && known->data_outside == c->data_outside && known->shared == (c->zero > 0);
}

const sn_known_sites *sn_sites_of(sn_search *s, const sn_candidate *c) {
    size_t count = s->sites.count, orders = 4; // who asks goes through both orders of the axes, with ZeRO and without
    for (size_t k = 0; k < count; k++) {
        size_t i = (s->next_sites + count + k - (count < orders ? 0 : orders - 1)) % count;
        if (!are_of(&s->sites.data[i], c)) continue;
        s->next_sites = i;
        return &s->sites.data[i];
    }
    sn_known_sites sites = {.pp = c->pp,
                            .dp = c->dp,
                            .tp = c->setting.tp,
                            .cp = c->setting.cp,
                            .ep = c->setting.ep,
                            .data_outside = c->data_outside,
                            .shared = c->zero > 0};
    bool aligned = is_aligned(s, c);
    if (aligned) {
        sites.n = 1;
        sites.sites = SN_NEW(s->arena, sn_search_site);
        *sites.sites = first_site(s, c);
    } else {
        look_everywhere(s, c, &sites);
    }
    look_between(s, c, aligned, &sites);
    s->next_sites = count;
    sn_vec_push(&s->sites, sites);
    return &sn_vec_last(&s->sites);
}
