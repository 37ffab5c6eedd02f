// TRW-S (Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI 2006): the network is a
// convex combination of chains that visit the nodes in one order; each chain's minimum is found by dynamic programming,
// and their sum is a lower bound. A message M_ij(x_j) is cost moved from the edge ij to node j. Visiting a node
// averages what its chains say about it and sends the average on, which never lowers the bound; a sweep forth and back
// costs no more than reading every edge twice.
#include "passes/partition/intra/messages.h"

#include "base/alloc.h"
#include "passes/partition/intra/vector.h"

#include <math.h>
#include <string.h>

struct sn_messages {
    sn_arena arena;
    const sn_core *core;
    double ***in;       // by node and link: the message from the other end, by value
    double ***out;      // the message to the other end: an alias of its in
    double *sum, *rest; // scratch, by value
    size_t cells;
};

static int link_back(const sn_core *core, int node, const sn_core_link *link) {
    const sn_core_node *other = &core->nodes[link->other];
    for (int n = 0; n < other->n_links; n++)
        if (other->links[n].edge == link->edge && other->links[n].other == node) return n;
    return -1;
}

// By node and link, the index of the same edge among the other end's links: found through the edges' numbers.
static void connect(sn_messages *m) {
    const sn_core *core = m->core;
    int *first_node = sn_alloc(sizeof *first_node * (size_t)(core->n_edges + 1));
    int *first_link = sn_alloc(sizeof *first_link * (size_t)(core->n_edges + 1));
    for (int i = 0; i < core->n_nodes; i++)
        for (int n = 0; n < core->nodes[i].n_links; n++) {
            int e = core->nodes[i].links[n].edge;
            if (!first_node[e]) {
                first_node[e] = i + 1;
                first_link[e] = n;
                continue;
            }
            m->out[i][n] = m->in[first_node[e] - 1][first_link[e]];
            m->out[first_node[e] - 1][first_link[e]] = m->in[i][n];
        }
    sn_free(first_node);
    sn_free(first_link);
}

sn_messages *sn_messages_new(const sn_core *core) {
    sn_messages *m = sn_alloc(sizeof *m);
    *m = (sn_messages){.core = core};
    m->in = SN_NEW_N(&m->arena, double **, core->n_nodes + 1);
    m->out = SN_NEW_N(&m->arena, double **, core->n_nodes + 1);
    int largest = 1;
    for (int i = 0; i < core->n_nodes; i++) {
        const sn_core_node *node = &core->nodes[i];
        if (node->size > largest) largest = node->size;
        m->in[i] = SN_NEW_N(&m->arena, double *, node->n_links + 1);
        m->out[i] = SN_NEW_N(&m->arena, double *, node->n_links + 1);
        for (int n = 0; n < node->n_links; n++) {
            m->in[i][n] = SN_NEW_N(&m->arena, double, node->size);
            m->cells += (size_t)node->size * (size_t)core->nodes[node->links[n].other].size;
        }
    }
    m->sum = SN_NEW_N(&m->arena, double, largest);
    m->rest = SN_NEW_N(&m->arena, double, largest);
    connect(m);
    return m;
}

void sn_messages_free(sn_messages *m) {
    sn_arena_free(&m->arena);
    sn_free(m);
}

size_t sn_messages_cells(const sn_messages *m) {
    return m->cells;
}

// M_ij(x_j) = min over x_i of rest(x_i) + E(x_i, x_j), less its least, which is returned.
static double send(const sn_core_node *node, const sn_core_link *link, int other_size, const double *rest,
                   double *out) {
    double least = INFINITY;
    for (int y = 0; y < other_size; y++) {
        out[y] = sn_least_of_sum(rest, link->table + (size_t)y * (size_t)node->size, node->size);
        if (out[y] < least) least = out[y];
    }
    for (int y = 0; y < other_size; y++) out[y] -= least;
    return least;
}

// Visits one node and sends messages to the neighbours after it, or before it. Returns the part of the bound that
// leaves the node and its messages.
static double visit(sn_messages *m, int i, const double *cost, bool forth) {
    const sn_core_node *node = &m->core->nodes[i];
    int before = 0, after = 0;
    memcpy(m->sum, cost, sizeof *cost * (size_t)node->size);
    for (int n = 0; n < node->n_links; n++) {
        sn_add_to(m->sum, m->in[i][n], node->size);
        before += node->links[n].other < i;
        after += node->links[n].other > i;
    }
    double bound = sn_least_of(m->sum, node->size);
    for (int k = 0; k < node->size; k++) m->sum[k] -= bound;
    int chains = before > after ? before : after;
    for (int n = 0; n < node->n_links; n++) {
        const sn_core_link *link = &node->links[n];
        if ((link->other > i) != forth) continue;
        for (int k = 0; k < node->size; k++) m->rest[k] = m->sum[k] / chains - m->in[i][n][k];
        bound += send(node, link, m->core->nodes[link->other].size, m->rest, m->out[i][n]);
    }
    return bound;
}

double sn_messages_sweep(sn_messages *m, double *const *costs) {
    double bound = 0;
    for (int i = 0; i < m->core->n_nodes; i++) visit(m, i, costs[i], true);
    for (int i = m->core->n_nodes; i-- > 0;) bound += visit(m, i, costs[i], false);
    return bound;
}

void sn_messages_decode(const sn_messages *m, double *const *costs, int *values) {
    for (int i = 0; i < m->core->n_nodes; i++) {
        const sn_core_node *node = &m->core->nodes[i];
        memcpy(m->sum, costs[i], sizeof *m->sum * (size_t)node->size);
        for (int n = 0; n < node->n_links; n++) {
            const sn_core_link *link = &node->links[n];
            bool known = link->other < i;
            sn_add_to(m->sum, known ? link->table + (size_t)values[link->other] * (size_t)node->size : m->in[i][n],
                      node->size);
        }
        int best = 0;
        for (int k = 1; k < node->size; k++)
            if (m->sum[k] < m->sum[best]) best = k;
        values[i] = best;
    }
}

void sn_messages_settle(sn_messages *m, sn_core *core) {
    for (int i = 0; i < core->n_nodes; i++) {
        sn_core_node *node = &core->nodes[i];
        for (int n = 0; n < node->n_links; n++) {
            const sn_core_link *link = &node->links[n];
            double *in = m->in[i][n], *table = link->table,
                   *back = core->nodes[link->other].links[link_back(core, i, link)].table;
            size_t mine = (size_t)node->size, theirs = (size_t)core->nodes[link->other].size;
            for (size_t k = 0; k < mine; k++) {
                double moved = round(in[k]);
                node->cost[k] += (int64_t)moved;
                for (size_t y = 0; y < theirs; y++) {
                    if (table[y * mine + k] >= SN_CORE_FORBIDDEN) continue;
                    table[y * mine + k] -= moved;
                    back[k * theirs + y] -= moved;
                }
                in[k] = 0;
            }
        }
    }
}
