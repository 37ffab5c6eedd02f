#include "passes/partition/intra/core.h"

#include "base/alloc.h"
#include "base/vec.h"
#include "passes/partition/intra/peaks.h"

#include <stdlib.h>
#include <string.h>

void sn_core_usage(const sn_core *core, const int *values, int64_t *usage) {
    memset(usage, 0, sizeof *usage * (size_t)(core->n_peaks + 1));
    for (int i = 0; i < core->n_nodes; i++)
        for (int m = 0; m < core->nodes[i].n_terms; m++) {
            const sn_core_term *term = &core->nodes[i].terms[m];
            usage[term->first] += term->usage[values[i]];
            usage[term->last] -= term->usage[values[i]];
        }
    for (int t = 1; t <= core->n_peaks; t++) usage[t] += usage[t - 1];
}

int64_t sn_core_excess(const sn_core *core, const int64_t *usage) {
    int64_t excess = 0;
    for (int t = 0; t < core->n_peaks; t++)
        if (usage[t] - core->capacity[t] > excess) excess = usage[t] - core->capacity[t];
    return excess;
}

int64_t sn_core_cost(const sn_core *core, const int *values) {
    int64_t cost = core->constant;
    for (int i = 0; i < core->n_nodes; i++) {
        const sn_core_node *node = &core->nodes[i];
        cost += node->cost[values[i]];
        for (int n = 0; n < node->n_links; n++) {
            const sn_core_link *link = &node->links[n];
            if (link->other < i) continue;
            double pair = link->table[(size_t)values[link->other] * (size_t)node->size + (size_t)values[i]];
            if (pair >= SN_CORE_FORBIDDEN) return SN_NETWORK_FORBIDDEN;
            cost += (int64_t)pair;
        }
    }
    return cost;
}

static int by_int(const void *left, const void *right) {
    return *(const int *)left - *(const int *)right;
}

// The distinct ends of the nodes' terms: between two of them the nodes' usage does not change.
static int *find_ends(const sn_core *core, const int *nodes, int n_nodes, int *count) {
    SN_VEC(int) ends = {0};
    for (int i = 0; i < n_nodes; i++)
        for (int m = 0; m < core->nodes[nodes[i]].n_terms; m++) {
            sn_vec_push(&ends, core->nodes[nodes[i]].terms[m].first);
            sn_vec_push(&ends, core->nodes[nodes[i]].terms[m].last);
        }
    qsort(ends.data, ends.count, sizeof *ends.data, by_int);
    *count = 0;
    for (size_t i = 0; i < ends.count; i++)
        if (!i || ends.data[i] != ends.data[i - 1]) ends.data[(*count)++] = ends.data[i];
    return ends.data;
}

static int index_of(const int *ends, int count, int end) {
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (ends[middle] < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void restrict_terms(const sn_core *core, sn_core *part, const int *nodes, const int *values,
                           const int64_t *usage) {
    int n_ends;
    int *ends = find_ends(core, nodes, part->n_nodes, &n_ends);
    part->n_peaks = n_ends > 0 ? n_ends - 1 : 0;
    part->capacity = SN_NEW_N(&part->arena, int64_t, part->n_peaks + 1);
    part->origin = sn_arena_copy(&part->arena, ends, sizeof *ends * (size_t)n_ends);
    int64_t *own = sn_alloc(sizeof *own * (size_t)(part->n_peaks + 1));
    for (int i = 0; i < part->n_nodes; i++) {
        const sn_core_node *from = &core->nodes[nodes[i]];
        sn_core_node *to = &part->nodes[i];
        to->n_terms = from->n_terms;
        to->terms = sn_arena_copy(&part->arena, from->terms, sizeof *to->terms * (size_t)from->n_terms);
        for (int m = 0; m < to->n_terms; m++) {
            sn_core_term *term = &to->terms[m];
            term->first = index_of(ends, n_ends, term->first);
            term->last = index_of(ends, n_ends, term->last);
            own[term->first] += term->usage[values[nodes[i]]];
            own[term->last] -= term->usage[values[nodes[i]]];
        }
    }
    for (int s = 0; s < part->n_peaks; s++) {
        if (s) own[s] += own[s - 1];
        int64_t least = INT64_MAX;
        for (int t = ends[s]; t < ends[s + 1]; t++)
            if (core->capacity[t] - usage[t] < least) least = core->capacity[t] - usage[t];
        part->capacity[s] = least + own[s];
    }
    sn_free(own);
    sn_free(ends);
}

// `usage` is that of `values`.
sn_core *sn_core_restrict(const sn_core *core, const int *nodes, int n_nodes, const int *values, const int64_t *usage) {
    sn_core *part = sn_alloc(sizeof *part);
    *part = (sn_core){.n_nodes = n_nodes, .n_edges = core->n_edges};
    part->nodes = SN_NEW_N(&part->arena, sn_core_node, n_nodes + 1);
    int *local = sn_alloc(sizeof *local * (size_t)(core->n_nodes + 1));
    for (int i = 0; i < n_nodes; i++) local[nodes[i]] = i + 1;
    for (int i = 0; i < n_nodes; i++) {
        const sn_core_node *from = &core->nodes[nodes[i]];
        sn_core_node *to = &part->nodes[i];
        to->size = from->size;
        to->cost = sn_arena_copy(&part->arena, from->cost, sizeof *to->cost * (size_t)from->size);
        to->links = SN_NEW_N(&part->arena, sn_core_link, from->n_links + 1);
        for (int n = 0; n < from->n_links; n++) {
            const sn_core_link *link = &from->links[n];
            if (local[link->other]) {
                to->links[to->n_links++] = (sn_core_link){local[link->other] - 1, link->edge, link->table};
                continue;
            }
            const double *row = link->table + (size_t)values[link->other] * (size_t)from->size;
            for (int k = 0; k < from->size; k++)
                to->cost[k] = row[k] >= SN_CORE_FORBIDDEN ? SN_NETWORK_FORBIDDEN : to->cost[k] + (int64_t)row[k];
        }
    }
    sn_free(local);
    restrict_terms(core, part, nodes, values, usage);
    sn_core_drop_peaks(part);
    return part;
}
