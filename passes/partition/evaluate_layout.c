// The intra-operator problem of one block over one axis, tp or ep, as a cost-function network. Its nodes are the groups
// (a strategy cuts a factor) and the flows between them (a label is the layout that the readers share, so that a value
// which several groups read is moved once); its edges are the seconds of the moves, forwards and backwards. The value's
// move has a mirror image in its gradient's: what is gathered forwards is reduce-scattered backwards.
#include "passes/partition/evaluate_model.h"
#include "passes/partition/evaluate_table.h"
#include "passes/partition/intra/network.h"

#include <math.h>

static const double PICO = 1e12;

static int label_count(const sn_flow *flow) {
    return 2 + flow->n_cuts;
}

sn_flow_label sn_flow_label_at(const sn_flow *flow, int label) {
    if (label >= 2) return (sn_flow_label){flow->cuts[label - 2], flow->cuts[label - 2]};
    return (sn_flow_label){SN_UNCUT, label ? SN_PARTIAL_VALUE : SN_UNCUT};
}

double sn_move_kind_seconds(const sn_layout_problem *p, sn_op_kind kind, double bytes, unsigned joined) {
    const sn_group *all = joined ? &p->together[joined] : p->ranks;
    if (kind == SN_OP_COUNT) return 0;
    double shared = kind == SN_OP_ALL_TO_ALL ? (double)all->ranks : 1;
    double seconds = sn_cost_collective(p->model, kind, bytes / shared, all);
    if (!joined) return seconds;
    const sn_group *outside = &p->without[joined];
    shared = kind == SN_OP_ALL_TO_ALL ? (double)outside->ranks : 1;
    return seconds - sn_cost_collective(p->model, kind, bytes / shared, outside);
}

// The gradient of an operand that the strategy leaves whole is a partial sum where the op that reads it is cut.
static sn_cut gradient_of_need(const sn_op_group *group, const sn_strategy *strategy, const sn_value *value) {
    for (int i = 0; i < group->n_forward; i++)
        for (int o = 0; o < group->forward[i]->n_operands; o++) {
            if (group->forward[i]->operands[o] != value) continue;
            const sn_op *op = group->forward[i];
            sn_cut need = strategy->forward[i].operand[o];
            if (need != SN_UNCUT) return sn_gradient_cut(need);
            for (int k = 0; k < op->n_operands; k++)
                if (strategy->forward[i].operand[k] >= 0) return SN_PARTIAL_VALUE;
            for (int k = 0; k < op->n_results; k++)
                if (strategy->forward[i].result[k] >= 0) return SN_PARTIAL_VALUE;
        }
    return SN_UNCUT;
}

// The collectives of a flow between its label and its producer (`reader` -1) or a reader, over one axis.
typedef struct flow_moves {
    sn_op_kind forward, backward;
    bool again; // what the forward pass joined is kept cut and joined again (Korthikanti et al. 2022, section 4.2.2)
} flow_moves;

static flow_moves moves_of(const sn_class_table *t, const sn_flow *flow, int reader, const sn_strategy *strategy,
                           sn_flow_label label) {
    const sn_op_group *groups = t->block->groups;
    flow_moves out = {SN_OP_COUNT, SN_OP_COUNT, false};
    if (reader < 0) {
        sn_cut leaves = sn_strategy_leaves(&groups[flow->producer], strategy, flow->value);
        out.forward = sn_move_kind(leaves, label.value);
        if (flow->differentiable) out.backward = sn_move_kind(label.gradient, sn_gradient_cut(leaves));
        bool again = false;
        for (int r = 0; r < flow->n_readers; r++) again |= sn_group_reads(&groups[flow->readers[r]], flow->value, true);
        out.again = leaves >= 0 && label.value != leaves && again;
        return out;
    }
    const sn_op_group *group = &groups[reader];
    sn_cut need = sn_strategy_need(group, strategy, flow->value);
    out.forward = sn_move_kind(label.value, need);
    if (flow->differentiable)
        out.backward = sn_move_kind(gradient_of_need(group, strategy, flow->value), label.gradient);
    out.again = label.value >= 0 && sn_group_reads(group, flow->value, true);
    return out;
}

sn_move_seconds sn_flow_moves(const sn_layout_problem *p, int f, int reader, const sn_strategy *strategy,
                              sn_flow_label label) {
    const sn_flow *flow = &p->table->flows[f];
    flow_moves own = moves_of(p->table, flow, reader, strategy, label);
    sn_move_seconds out = {0};
    if (own.forward == SN_OP_COUNT && own.backward == SN_OP_COUNT) return out;
    unsigned forward = 0, backward = 0;
    double forward_bytes = p->bytes[f], backward_bytes = p->bytes[f];
    for (int i = 0; i < p->n_outside; i++) {
        const sn_outer_axis *axis = &p->outside[i];
        int g = reader < 0 ? flow->producer : reader;
        sn_flow_label outside = sn_flow_label_at(flow, axis->label[f]);
        flow_moves moves = moves_of(p->table, flow, reader, &p->table->strategies[g].list[axis->choice[g]], outside);
        double cut = outside.value >= 0 ? (double)axis->parts : 1; // which p->bytes has
        if (moves.forward == own.forward) forward |= 1u << i, forward_bytes *= cut;
        if (moves.backward == own.backward) backward |= 1u << i, backward_bytes *= cut;
    }
    out.forward = sn_move_kind_seconds(p, own.forward, forward_bytes, forward);
    out.backward = sn_move_kind_seconds(p, own.backward, backward_bytes, backward);
    if (own.again) out.backward += out.forward;
    return out;
}

// Beside what the axes outside of it cut at the same place.
static bool divides(const sn_layout_problem *p, int f, sn_cut cut) {
    const sn_flow *flow = &p->table->flows[f];
    int64_t parts = p->ranks->ranks;
    for (int i = 0; i < p->n_outside; i++)
        if (sn_flow_label_at(flow, p->outside[i].label[f]).value == cut) parts *= p->outside[i].parts;
    return flow->value->type.dim[sn_cut_dim(cut)] / sn_cut_outer(cut) % parts == 0;
}

sn_cut sn_layout_between(const sn_layout_problem *p, int f) {
    const sn_flow *flow = &p->table->flows[f];
    sn_cut cut = p->boundary == SN_BOUNDARY_SAMPLES    ? flow->data
                 : p->boundary == SN_BOUNDARY_SEQUENCE ? flow->boundary
                                                       : SN_UNCUT;
    return cut >= 0 && divides(p, f, cut) ? cut : SN_UNCUT;
}

static bool label_is_possible(const sn_layout_problem *p, int f, int label) {
    const sn_flow *flow = &p->table->flows[f];
    sn_cut cut = sn_flow_label_at(flow, label).value;
    bool samples = p->boundary == SN_BOUNDARY_SAMPLES;
    if (cut >= 0 && (!divides(p, f, cut) || (cut == flow->data && !samples))) return false;
    if (flow->producer >= 0 && !flow->leaves) return true;
    sn_cut between = sn_layout_between(p, f);
    return between >= 0 ? cut == between : label == 0;
}

static int64_t to_cost(double seconds) {
    return seconds < SN_NETWORK_FORBIDDEN / PICO ? (int64_t)(fmax(0, seconds) * PICO) : SN_NETWORK_FORBIDDEN;
}

static void add_moves(const sn_layout_problem *p, sn_network *network, const int *nodes, int flow_node, int f,
                      int reader) {
    const sn_flow *flow = &p->table->flows[f];
    int g = reader < 0 ? flow->producer : reader, labels = label_count(flow), n = p->table->strategies[g].n;
    int64_t *costs = sn_alloc((size_t)(n * labels) * sizeof *costs);
    for (int s = 0; s < n; s++)
        for (int l = 0; l < labels; l++) {
            sn_move_seconds moves =
                sn_flow_moves(p, f, reader, &p->table->strategies[g].list[s], sn_flow_label_at(flow, l));
            costs[s * labels + l] = to_cost(moves.forward + moves.backward);
        }
    sn_network_add_edge(network, nodes[g], flow_node, costs);
    sn_free(costs);
}

static void add_flow(const sn_layout_problem *p, sn_network *network, const int *nodes, int f) {
    const sn_flow *flow = &p->table->flows[f];
    int64_t costs[SN_MOST_CUTS + 2];
    for (int l = 0; l < label_count(flow); l++) costs[l] = label_is_possible(p, f, l) ? 0 : SN_NETWORK_FORBIDDEN;
    int node = sn_network_add_node(network, label_count(flow), costs);
    if (flow->producer >= 0) add_moves(p, network, nodes, node, f, -1);
    for (int r = 0; r < flow->n_readers; r++) add_moves(p, network, nodes, node, f, flow->readers[r]);
}

bool sn_layout_solve(const sn_layout_problem *p, int *choice, int *flow_label, double *seconds) {
    const sn_class_table *t = p->table;
    sn_network network = {.limit = INT64_MAX};
    int *nodes = sn_alloc((size_t)(t->block->n_groups + 1) * sizeof *nodes);
    for (int g = 0; g < t->block->n_groups; g++) {
        int64_t costs[SN_MOST_STRATEGIES];
        for (int s = 0; s < t->strategies[g].n; s++) costs[s] = to_cost(p->seconds[g][s]);
        nodes[g] = sn_network_add_node(&network, t->strategies[g].n, costs);
    }
    for (int f = 0; f < t->n_flows; f++) add_flow(p, &network, nodes, f);
    sn_network_budget budget = {.work = 200000000};
    sn_network_answer answer = sn_network_solve(&network, &budget);
    bool solved = answer.result == SN_NETWORK_OPTIMAL || answer.result == SN_NETWORK_FEASIBLE;
    for (int g = 0; solved && g < t->block->n_groups; g++) choice[g] = answer.choice[nodes[g]];
    for (int f = 0; solved && f < t->n_flows; f++) flow_label[f] = answer.choice[t->block->n_groups + f];
    *seconds = solved ? (double)answer.cost / PICO : INFINITY;
    sn_free(answer.choice);
    sn_free(nodes);
    sn_network_free(&network);
    return solved;
}
