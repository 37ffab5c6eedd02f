#include "passes/partition/intra/network.h"

#include "base/alloc.h"
#include "base/bug.h"

#include <stdlib.h>
#include <string.h>

static void *grow(void *data, size_t *capacity, size_t wanted, size_t item) {
    if (*capacity >= wanted) return data;
    *capacity = *capacity * 2 > wanted ? *capacity * 2 : wanted;
    return sn_realloc(data, *capacity * item);
}

static size_t add_cells(sn_network *network, const int64_t *values, size_t count) {
    size_t at = network->n_cells;
    network->cells = grow(network->cells, &network->cell_capacity, at + count, sizeof *network->cells);
    memcpy(network->cells + at, values, count * sizeof *values);
    network->n_cells += count;
    return at;
}

int sn_network_add_node(sn_network *network, int n_strategies, const int64_t *costs) {
    SN_CHECK(n_strategies > 0);
    network->nodes = grow(network->nodes, &network->node_capacity, network->n_nodes + 1, sizeof *network->nodes);
    network->nodes[network->n_nodes] = (sn_network_node){n_strategies, add_cells(network, costs, (size_t)n_strategies)};
    return (int)network->n_nodes++;
}

void sn_network_add_edge(sn_network *network, int a, int b, const int64_t *costs) {
    SN_CHECK(a != b && a >= 0 && b >= 0 && (size_t)a < network->n_nodes && (size_t)b < network->n_nodes);
    size_t count = (size_t)network->nodes[a].n_strategies * (size_t)network->nodes[b].n_strategies;
    network->edges = grow(network->edges, &network->edge_capacity, network->n_edges + 1, sizeof *network->edges);
    network->edges[network->n_edges++] = (sn_network_edge){a, b, add_cells(network, costs, count)};
}

void sn_network_add_term(sn_network *network, int node, int64_t begin, int64_t end, const int64_t *usages) {
    SN_CHECK(node >= 0 && (size_t)node < network->n_nodes);
    network->terms = grow(network->terms, &network->term_capacity, network->n_terms + 1, sizeof *network->terms);
    size_t cells = add_cells(network, usages, (size_t)network->nodes[node].n_strategies);
    network->terms[network->n_terms++] = (sn_network_term){node, begin, end, cells};
}

void sn_network_free(sn_network *network) {
    sn_free(network->nodes);
    sn_free(network->edges);
    sn_free(network->terms);
    sn_free(network->cells);
    *network = (sn_network){.limit = INT64_MAX};
}

static int64_t add_cost(int64_t total, int64_t cost) {
    return total >= SN_NETWORK_FORBIDDEN || cost >= SN_NETWORK_FORBIDDEN ? SN_NETWORK_FORBIDDEN : total + cost;
}

int64_t sn_network_cost(const sn_network *network, const int *choice) {
    int64_t total = 0;
    for (size_t i = 0; i < network->n_nodes; i++)
        total = add_cost(total, network->cells[network->nodes[i].costs + (size_t)choice[i]]);
    for (size_t e = 0; e < network->n_edges; e++) {
        const sn_network_edge *edge = &network->edges[e];
        size_t columns = (size_t)network->nodes[edge->b].n_strategies;
        total =
            add_cost(total, network->cells[edge->costs + (size_t)choice[edge->a] * columns + (size_t)choice[edge->b]]);
    }
    return total;
}

typedef struct event {
    int64_t time, delta;
} event;

// Memory is given back before it is taken at the same time: intervals are half-open.
static int by_time_then_delta(const void *left, const void *right) {
    const event *a = left, *b = right;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    return (a->delta > b->delta) - (a->delta < b->delta);
}

int64_t sn_network_peak(const sn_network *network, const int *choice) {
    event *events = sn_alloc(sizeof *events * (2 * network->n_terms + 1));
    size_t count = 0;
    for (size_t m = 0; m < network->n_terms; m++) {
        const sn_network_term *term = &network->terms[m];
        int64_t usage = network->cells[term->usages + (size_t)choice[term->node]];
        if (term->begin >= term->end) continue;
        events[count++] = (event){term->begin, usage};
        events[count++] = (event){term->end, -usage};
    }
    qsort(events, count, sizeof *events, by_time_then_delta);
    int64_t live = 0, peak = 0;
    for (size_t i = 0; i < count; i++) {
        live += events[i].delta;
        if (live > peak) peak = live;
    }
    sn_free(events);
    return peak;
}
