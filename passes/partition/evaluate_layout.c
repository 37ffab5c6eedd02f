// The intra-operator problem of one block over one axis, tp or ep, as a cost-function network. Its nodes are the groups
// (a strategy cuts a factor) and the flows between them (a label is the layout that the readers share, so that a value
// which several groups read is moved once); its edges are the seconds of the moves, forwards and backwards. The value's
// move has a mirror image in its gradient's: what is gathered forwards is reduce-scattered backwards.
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

static double move_seconds(const sn_layout_problem *p, sn_cut from, sn_cut to, double bytes) {
    sn_op_kind kind = sn_move_kind(from, to);
    if (kind == SN_OP_COUNT) return 0;
    if (kind == SN_OP_ALL_TO_ALL) bytes /= (double)p->ranks->ranks;
    return sn_cost_collective(p->model, kind, bytes, p->ranks);
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

static bool is_read_backward(const sn_op_group *group, const sn_value *value) {
    for (int i = 0; i < group->n_backward; i++)
        for (int o = 0; o < group->backward[i]->n_operands; o++)
            if (group->backward[i]->operands[o] == value) return true;
    return false;
}

sn_move_seconds sn_flow_moves(const sn_layout_problem *p, const sn_flow *flow, int reader, const sn_strategy *strategy,
                              sn_flow_label label, double bytes) {
    const sn_op_group *groups = p->table->block->groups;
    sn_move_seconds out = {0};
    if (reader < 0) {
        sn_cut leaves = sn_strategy_leaves(&groups[flow->producer], strategy, flow->value);
        out.forward = move_seconds(p, leaves, label.value, bytes);
        if (flow->differentiable) out.backward = move_seconds(p, label.gradient, sn_gradient_cut(leaves), bytes);
        // What was gathered is kept cut and gathered again (Korthikanti et al. 2022, section 4.2.2).
        bool again = false;
        for (int r = 0; r < flow->n_readers; r++) again |= is_read_backward(&groups[flow->readers[r]], flow->value);
        if (leaves >= 0 && label.value != leaves && again) out.backward += out.forward;
        return out;
    }
    const sn_op_group *group = &groups[reader];
    sn_cut need = sn_strategy_need(group, strategy, flow->value);
    out.forward = move_seconds(p, label.value, need, bytes);
    if (flow->differentiable)
        out.backward = move_seconds(p, gradient_of_need(group, strategy, flow->value), label.gradient, bytes);
    if (label.value >= 0 && is_read_backward(group, flow->value)) out.backward += out.forward;
    return out;
}

static bool divides(const sn_layout_problem *p, const sn_flow *flow, sn_cut cut) {
    return flow->value->type.dim[sn_cut_dim(cut)] / sn_cut_outer(cut) % p->ranks->ranks == 0;
}

static bool label_is_possible(const sn_layout_problem *p, const sn_flow *flow, int label) {
    sn_cut cut = sn_flow_label_at(flow, label).value;
    bool samples = p->boundary == SN_BOUNDARY_SAMPLES;
    if (cut >= 0 && (!divides(p, flow, cut) || (cut == flow->data && !samples))) return false;
    if (flow->producer >= 0 && !flow->leaves) return true;
    sn_cut between = samples ? flow->data : p->boundary == SN_BOUNDARY_SEQUENCE ? flow->boundary : SN_UNCUT;
    return between >= 0 && divides(p, flow, between) ? cut == between : label == 0;
}

static int64_t to_cost(double seconds) {
    return isfinite(seconds) ? (int64_t)(seconds * PICO) : SN_NETWORK_FORBIDDEN;
}

static void add_moves(const sn_layout_problem *p, sn_network *network, const int *nodes, int flow_node, int f,
                      int reader) {
    const sn_flow *flow = &p->table->flows[f];
    int g = reader < 0 ? flow->producer : reader, labels = label_count(flow), n = p->table->strategies[g].n;
    int64_t *costs = sn_alloc((size_t)(n * labels) * sizeof *costs);
    for (int s = 0; s < n; s++)
        for (int l = 0; l < labels; l++) {
            sn_move_seconds moves = sn_flow_moves(p, flow, reader, &p->table->strategies[g].list[s],
                                                  sn_flow_label_at(flow, l), p->bytes[f]);
            costs[s * labels + l] = to_cost(moves.forward + moves.backward);
        }
    sn_network_add_edge(network, nodes[g], flow_node, costs);
    sn_free(costs);
}

static void add_flow(const sn_layout_problem *p, sn_network *network, const int *nodes, int f) {
    const sn_flow *flow = &p->table->flows[f];
    int64_t costs[SN_MOST_CUTS + 2];
    for (int l = 0; l < label_count(flow); l++) costs[l] = label_is_possible(p, flow, l) ? 0 : SN_NETWORK_FORBIDDEN;
    int node = sn_network_add_node(network, label_count(flow), costs);
    if (flow->producer >= 0) add_moves(p, network, nodes, node, f, -1);
    for (int r = 0; r < flow->n_readers; r++) add_moves(p, network, nodes, node, f, flow->readers[r]);
}

bool sn_layout_solve(const sn_layout_problem *p, int *choice, int *flow_label) {
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
    sn_free(answer.choice);
    sn_free(nodes);
    sn_network_free(&network);
    return solved;
}
