// Coordinate descent over the weights. Axis by axis of the mesh, each weight may be cut along one of its dims or stay
// whole; what a choice costs is measured by distributing the training step on trial: bytes sent in forward and backward
// passes, bytes read and written by local ops, and bytes of weights that stay. From all weights whole, column and row
// cuts find each other in the second round: a first matrix cut by columns makes the second one's rows the cheap cut.
//
// Once the weights are cut, biases and scales follow the ops that they are part of, and the residual stream may be cut
// along the sequence where it is summed (Korthikanti et al. 2022, section 4.2.2: a reduce-scatter and an all-gather
// send what an all-reduce sends, and what lies between them is computed and kept in parts).
//
// Weights that stand in the same place of repeated blocks are one choice: they are told apart by a hash of their
// surroundings in the graph (Weisfeiler and Leman 1968: each round takes in the neighbours).
#include "passes/partition/choose.h"

#include "base/alloc.h"
#include "base/philox.h"
#include "passes/partition/distributor.h"

#include <string.h>

enum { ROUNDS_OF_HASH = 2, ROUNDS = 8, MOST_OUTERS = 6 };

// What a byte counts: kept weights most, as tensor parallelism is asked for where they do not fit. A collective costs
// as much as sending this many bytes before it sends any.
static const double weight_of_sent = 32, weight_of_kept = 512, most_bytes_of_message = 8192;

typedef struct choice {
    uint64_t place;      // hash of type and surroundings
    int n;               // weights
    sn_global **weights; // n
    sn_layout layout;
} choice;

typedef struct chooser {
    sn_module *module;
    sn_distributor d;
    sn_plan plan; // layouts as tried
    double bytes_of_message;
    SN_VEC(choice) choices;
    SN_VEC(sn_plan_layout) nodes; // layouts of results
    SN_VEC(sn_plan_layout) layouts;
} chooser;

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t pair[2] = {a, b};
    return sn_hash_bytes(pair, sizeof pair, 0);
}

static bool is_trained_function(const sn_func *func) {
    return strcmp(func->name, "step") == 0 || strcmp(func->name, "micro") == 0;
}

// Step or micro-batch; for inference the forward pass.
static sn_func *measured_function(const sn_module *module) {
    for (size_t i = 0; i < module->funcs.count; i++)
        if (is_trained_function(module->funcs.data[i])) return module->funcs.data[i];
    return module->funcs.count ? module->funcs.data[0] : NULL;
}

// Hashes per value, kept by value->id: of globals and of the function's results.
typedef struct hashes {
    SN_VEC(uint64_t) of, next;
} hashes;

static void number(hashes *h, sn_value *value) {
    sn_vec_push(&h->of, sn_hash_bytes(&value->type, sizeof value->type, 0));
    sn_vec_push(&h->next, 0);
    value->id = (uint32_t)h->of.count;
}

static void spread(hashes *h, const sn_op *op) {
    uint64_t hash = op->kind;
    if (op->phase != SN_PHASE_FORWARD) return;
    for (int i = 0; i < op->n_operands; i++)
        if (op->operands[i]->id) hash = mix(hash, h->of.data[op->operands[i]->id - 1]);
    for (int i = 0; i < op->n_results; i++) h->next.data[op->results[i]->id - 1] += hash;
    for (int i = 0; i < op->n_results; i++) hash = mix(hash, h->of.data[op->results[i]->id - 1]);
    for (int i = 0; i < op->n_operands; i++)
        if (op->operands[i]->id) h->next.data[op->operands[i]->id - 1] += mix(hash, (uint64_t)i);
}

static void hash_places(chooser *c, hashes *h, sn_func *func) {
    for (size_t i = 0; i < c->module->globals.count; i++) number(h, c->module->globals.data[i]->value);
    for (size_t i = 0; i < func->args.count; i++) number(h, func->args.data[i]);
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_results; i++) number(h, op->results[i]);
    }
    for (int round = 0; round < ROUNDS_OF_HASH; round++) {
        memcpy(h->next.data, h->of.data, h->of.count * sizeof *h->of.data);
        SN_FOR_OPS(op, func) {
            spread(h, op);
        }
        for (size_t i = 0; i < h->of.count; i++) h->of.data[i] = mix(h->of.data[i], h->next.data[i]);
    }
}

static bool is_used_in(const sn_func *func, const sn_value *value) {
    for (size_t i = 0; i < value->uses.count; i++)
        if (value->uses.data[i].op->func == func) return true;
    return false;
}

static void collect(chooser *c, sn_func *func) {
    hashes h = {0};
    hash_places(c, &h, func);
    for (size_t i = 0; i < c->module->globals.count; i++) {
        sn_global *global = c->module->globals.data[i];
        bool weight = global->role == SN_ROLE_PARAMETER || global->role == SN_ROLE_FROZEN;
        if (!weight || !global->value->type.rank || !is_used_in(func, global->value)) continue;
        uint64_t place = h.of.data[global->value->id - 1];
        size_t at = 0;
        while (at < c->choices.count && c->choices.data[at].place != place) at++;
        if (at == c->choices.count) {
            choice new = {.place = place};
            new.weights = SN_NEW_N(&c->module->arena, sn_global *, c->module->globals.count);
            sn_vec_push(&c->choices, new);
        }
        choice *found = &c->choices.data[at];
        found->weights[found->n++] = global;
    }
    sn_vec_free(&h.of);
    sn_vec_free(&h.next);
}

static void state_layouts(chooser *c) {
    c->layouts.count = 0;
    for (size_t i = 0; i < c->choices.count; i++) {
        const choice *made = &c->choices.data[i];
        for (int k = 0; k < made->n; k++) {
            sn_plan_layout entry = {made->weights[k]->name, made->weights[k]->value->type.rank, made->layout};
            sn_vec_push(&c->layouts, entry);
        }
    }
    for (size_t i = 0; i < c->nodes.count; i++) sn_vec_push(&c->layouts, c->nodes.data[i]);
    c->plan.layouts = c->layouts.data;
    c->plan.n_layouts = (int)c->layouts.count;
}

static double cost_of(chooser *c, sn_func *func) {
    state_layouts(c);
    c->d.plan = &c->plan;
    c->d.sent = c->d.touched = c->d.messages = 0;
    c->d.sums.count = 0;
    double kept = 0;
    if (!sn_targets_of_globals(&c->d) || !sn_distribute_func(&c->d, func)) return -1;
    for (size_t i = 0; i < c->layouts.count; i++) {
        const sn_global *global = sn_targets_weight(c->module, c->layouts.data[i].name);
        if (!global) continue;
        const sn_value *value = global->value;
        kept += (double)sn_type_bytes(value->type) / (double)sn_mesh_size(c->d.mesh, sn_layout_axes(value->layout));
    }
    double sent = c->d.sent + c->bytes_of_message * c->d.messages;
    return weight_of_sent * sent + c->d.touched + weight_of_kept * kept;
}

// Places of a digit in a dim of this size that ops of the function show: q, k and v in a fused dim are blocks.
static int find_outers(const sn_func *func, int64_t size, int64_t *outers) {
    int n = 0;
    sn_arena scratch = {0};
    SN_FOR_OPS(op, func) {
        bool shows = op->kind == SN_OP_SLICE || op->kind == SN_OP_CONCAT || op->kind == SN_OP_RESHAPE;
        if (!shows || op->phase != SN_PHASE_FORWARD) continue;
        sn_factors factors;
        sn_factors_of(op, &scratch, &factors);
        for (int d = 0; d < op->operands[0]->type.rank; d++) {
            const sn_dim_factors *dim = &factors.operand[0][d];
            if (op->operands[0]->type.dim[d] != size || dim->n < 2) continue;
            int64_t outer = factors.factor[dim->factor[0]].size;
            bool known = false;
            for (int k = 0; k < n; k++) known |= outers[k] == outer;
            if (!known && n < MOST_OUTERS) outers[n++] = outer;
        }
    }
    sn_arena_free(&scratch);
    return n;
}

// The place of a digit inside of all parts of a dim.
static int64_t inside_of(const sn_mesh *mesh, sn_layout layout, int dim) {
    int64_t outers[SN_MAX_AXES];
    int order[SN_MAX_AXES], n = sn_layout_order(mesh, layout, dim, order);
    sn_layout_outers(mesh, layout, dim, outers);
    return n ? outers[order[n - 1]] * mesh->size[order[n - 1]] : 1;
}

static void try_layout(chooser *c, sn_func *func, choice *made, sn_layout layout, int dim, double *least,
                       sn_layout *best) {
    if (!sn_layout_divides(c->d.mesh, layout, dim, made->weights[0]->value->type.dim[dim])) return;
    made->layout = layout;
    double cost = cost_of(c, func);
    if (cost < 0 || cost >= *least) return;
    *least = cost;
    *best = layout;
}

// Tables are cut by rows: cut by columns, all that is added to what they give would follow.
static bool may_cut_dim(const sn_value *weight, int dim) {
    bool table = true;
    int64_t row_dim = 0;
    for (size_t i = 0; i < weight->uses.count && table; i++) {
        const sn_op *op = weight->uses.data[i].op;
        table = op->phase != SN_PHASE_FORWARD || op->kind == SN_OP_GATHER;
        if (op->kind == SN_OP_GATHER) row_dim = sn_op_int(op, "axis");
    }
    return !table || dim == row_dim;
}

static bool improve(chooser *c, sn_func *func, choice *made, int axis) {
    sn_type type = made->weights[0]->value->type;
    sn_layout before = made->layout, whole = before, best;
    sn_layout_remove(c->d.mesh, &whole, (sn_axes)(1 << axis));
    best = before;
    double least = cost_of(c, func) * (1 - 1e-9);
    if (!sn_layout_equal(before, whole)) try_layout(c, func, made, whole, 0, &least, &best);
    for (int dim = 0; dim < type.rank; dim++) {
        if (!may_cut_dim(made->weights[0]->value, dim)) continue;
        int64_t outers[MOST_OUTERS + 1] = {inside_of(c->d.mesh, whole, dim)};
        int n = 1 + find_outers(func, type.dim[dim], &outers[1]);
        for (int k = 0; k < n; k++) {
            sn_layout layout = whole;
            sn_layout_add(c->d.mesh, &layout, dim, axis, outers[k]);
            if (!sn_layout_equal(layout, before)) try_layout(c, func, made, layout, dim, &least, &best);
        }
    }
    made->layout = best;
    return !sn_layout_equal(best, before);
}

// A vector is kept as the forward pass cuts it for its first use; whole where it does not.
static void follow_use(chooser *c, choice *made, int axis) {
    uint32_t first = 0;
    for (uint32_t at = made->weights[0]->value->id; at; at = c->d.moves.data[at - 1].next)
        if (c->d.moves.data[at - 1].phase == SN_PHASE_FORWARD) first = at;
    if (!first) return;
    sn_layout used = c->d.moves.data[first - 1].layout;
    int64_t outers[SN_MAX_AXES];
    if (sn_layout_dim_of(used, axis) != 0) return;
    sn_layout_outers(c->d.mesh, used, 0, outers);
    sn_layout_add(c->d.mesh, &made->layout, 0, axis, outers[axis]);
}

// Additions of the forward pass that sum over the axis: where branches join the residual stream.
static void cut_stream(chooser *c, int axis) {
    for (size_t i = 0; i < c->d.sums.count; i++) {
        const sn_op *op = c->d.sums.data[i];
        const sn_value *value = op->results[0];
        const char *node = sn_origin_node(op->origin);
        bool joins = op->kind == SN_OP_ADD && op->phase == SN_PHASE_FORWARD && value->type.rank > 2 && node;
        if (!joins || sn_targets_weight(c->module, node) || sn_layout_dim_of(value->layout, axis) >= 0) continue;
        sn_plan_layout entry = {node, value->type.rank, value->layout};
        sn_layout_add(c->d.mesh, &entry.layout, 1, axis, inside_of(c->d.mesh, value->layout, 1));
        if (sn_layout_divides(c->d.mesh, entry.layout, 1, value->type.dim[1])) sn_vec_push(&c->nodes, entry);
    }
}

static void choose_stream(chooser *c, sn_func *func, int axis) {
    double whole = cost_of(c, func);
    size_t before = c->nodes.count;
    cut_stream(c, axis);
    double cost = c->nodes.count > before ? cost_of(c, func) : -1;
    if (cost < 0 || cost >= whole) c->nodes.count = before;
}

static bool is_kernel_of_conv(const sn_value *weight) {
    for (size_t i = 0; i < weight->uses.count; i++)
        if (weight->uses.data[i].op->kind == SN_OP_CONV) return true;
    return false;
}

// An expert's weights are one entry of a stack of matrices. `ep` is asked for to cut the stacks, and does.
static void cut_experts(chooser *c, int axis) {
    for (size_t i = 0; i < c->choices.count; i++) {
        choice *made = &c->choices.data[i];
        const sn_value *weight = made->weights[0]->value;
        if (weight->type.rank != 3 || is_kernel_of_conv(weight)) continue;
        sn_layout cut = made->layout;
        sn_layout_add(c->d.mesh, &cut, 0, axis, inside_of(c->d.mesh, cut, 0));
        if (sn_layout_divides(c->d.mesh, cut, 0, weight->type.dim[0])) made->layout = cut;
    }
}

// Where `tp` was split for the sake of shared heads (heads.h) the inner axis cuts what the outer one does, the rows and
// columns of the same matrices, but for keys and values. One matrix at a time no cut pays before the others are there.
static void follow_outer_axis(chooser *c, int axis) {
    int outer = sn_mesh_axis(c->d.mesh, "tp");
    for (size_t i = 0; i < c->choices.count; i++) {
        choice *made = &c->choices.data[i];
        int dim = outer < 0 ? -1 : sn_layout_dim_of(made->layout, outer);
        sn_layout cut = made->layout;
        if (dim < 0) continue;
        sn_layout_add(c->d.mesh, &cut, dim, axis, inside_of(c->d.mesh, cut, dim));
        if (sn_layout_divides(c->d.mesh, cut, dim, made->weights[0]->value->type.dim[dim])) made->layout = cut;
    }
}

static bool descend(chooser *c, sn_func *func, int axis) {
    bool changed = true, cuts = false;
    for (int round = 0; round < ROUNDS && changed; round++) {
        changed = false;
        for (size_t i = 0; i < c->choices.count; i++)
            if (c->choices.data[i].weights[0]->value->type.rank > 1)
                changed |= improve(c, func, &c->choices.data[i], axis);
    }
    for (size_t i = 0; i < c->choices.count; i++) cuts |= sn_layout_dim_of(c->choices.data[i].layout, axis) >= 0;
    return cuts;
}

static void choose_for_axis(chooser *c, sn_func *func, int axis) {
    if (strcmp(c->d.mesh->name[axis], "ep") == 0) {
        cut_experts(c, axis);
        return;
    }
    if (strcmp(c->d.mesh->name[axis], "tp_q") == 0) follow_outer_axis(c, axis);
    c->bytes_of_message = most_bytes_of_message;
    if (!descend(c, func, axis)) { // a model so small that no message pays: ranks that all do the same are worse still
        c->bytes_of_message = 0;
        (void)descend(c, func, axis);
    }
    if (cost_of(c, func) < 0) return;
    for (size_t i = 0; i < c->choices.count; i++)
        if (c->choices.data[i].weights[0]->value->type.rank == 1) follow_use(c, &c->choices.data[i], axis);
    choose_stream(c, func, axis);
}

static bool is_chosen_here(const sn_mesh *mesh, int axis) {
    static const char *const others[] = {"dp", "pp", "cp"}; // cut the data, or nothing
    for (int i = 0; i < 3; i++)
        if (strcmp(mesh->name[axis], others[i]) == 0) return false;
    return mesh->size[axis] > 1;
}

void sn_choose_layouts(sn_module *module, const sn_plan *plan, sn_plan *out) {
    sn_func *func = measured_function(module);
    sn_diags diags = {0}; // what is wrong with the batch the real distribution says
    chooser c = {.module = module, .plan = *plan};
    c.d = (sn_distributor){.module = module, .mesh = &module->mesh, .diags = &diags, .trial = true};
    if (func) collect(&c, func);
    for (int axis = 0; axis < module->mesh.n_axes; axis++) {
        if (func && is_chosen_here(&module->mesh, axis)) choose_for_axis(&c, func, axis);
    }
    state_layouts(&c);
    out->n_layouts = c.plan.n_layouts;
    out->layouts = sn_arena_copy(&module->arena, c.layouts.data, c.layouts.count * sizeof *c.layouts.data);
    sn_vec_free(&c.choices);
    sn_vec_free(&c.layouts);
    sn_vec_free(&c.nodes);
    sn_vec_free(&c.d.sums);
    sn_vec_free(&c.d.moves);
    sn_vec_free(&c.d.targets);
    sn_map_free(&c.d.nodes);
    sn_arena_free(&c.d.scratch);
    sn_diags_free(&diags);
}
