// Where to cut. Between two ONNX nodes the bytes of the values that cross are known; a cut stands where no position
// within a few nodes has fewer. In a transformer that is after each residual addition, in a convolutional network after
// each narrow layer. Within a block there may be such places too (experts read their tokens from one): what is wider
// than cuts not far from it on both sides is none. Values that derive from no data (position tables, masks) are not
// counted: any stage can make them.
//
// Repeated structure needs no search: equal blocks hash equally, because a hash covers operators, attributes, types and
// the places that operands come from, relative to the block.
#include "passes/partition/blocks.h"

#include "passes/partition/crossing.h"

#include <string.h>

enum { WINDOW = 3, MOST_BLOCKS = 400, BLOCK_NODES = 64 }; // BLOCK_NODES: more of them are no block

// Times the bytes at the ends of a block, inside of it.
static const double WIDE = 1.5;

typedef struct finder {
    sn_blocks *out;
    sn_module *module;
    sn_arena *arena;
    int n_groups;
    sn_op_group *groups; // in execution order
    int *block_of;       // group -> block
    double *crossing;    // bytes over the cut before a group
    bool *from_data;     // by value id
    sn_map group_of;     // ONNX node -> group (the first of that name), index + 1
    sn_map owner_of;     // parameter name -> block + 1
} finder;

bool sn_block_op_is_heavy(const sn_op *op) {
    return sn_op_has(op->kind, SN_TRAIT_LIBRARY);
}

uint32_t sn_block_first_result(const sn_block *block, uint32_t *count) {
    const sn_op_group *last = &block->groups[block->n_groups - 1];
    const sn_op *final = last->forward[last->n_forward - 1];
    uint32_t first = block->groups[0].forward[0]->results[0]->id;
    *count = final->results[final->n_results - 1]->id - first + 1;
    return first;
}

static const char *node_of(const sn_op *op) {
    const char *node = sn_origin_node(op->origin);
    return node ? node : "";
}

static bool is_planned(const sn_op *op) {
    return op->phase == SN_PHASE_FORWARD && op->kind != SN_OP_ASSIGN;
}

static void number_values(finder *f, sn_func *func) {
    uint32_t next = 1;
    for (size_t i = 0; i < func->args.count; i++) func->args.data[i]->id = next++;
    for (size_t i = 0; i < f->module->globals.count; i++) f->module->globals.data[i]->value->id = next++;
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_results; i++) op->results[i]->id = next++;
    }
    f->out->value_count = next;
}

// Runs of forward ops of one node are groups.
static void collect_groups(finder *f, const sn_func *func) {
    int most = 1;
    SN_FOR_OPS(op, func) most += is_planned(op);
    f->groups = SN_NEW_N(f->arena, sn_op_group, most);
    sn_op **ops = SN_NEW_N(f->arena, sn_op *, most);
    const char *last = NULL;
    SN_FOR_OPS(op, func) {
        if (!is_planned(op)) continue;
        const char *node = node_of(op);
        if (!last || strcmp(last, node) != 0) {
            f->groups[f->n_groups] = (sn_op_group){.node = node, .forward = ops, .lead = -1};
            if (!sn_map_has(&f->group_of, node)) sn_map_put(&f->group_of, node, (void *)(uintptr_t)(f->n_groups + 1));
            f->n_groups++;
        }
        last = node;
        *ops++ = op;
        f->groups[f->n_groups - 1].n_forward++;
    }
}

// What is the most work for its size leads: a contraction if there is one, else the largest result.
static void choose_leads(finder *f) {
    for (int g = 0; g < f->n_groups; g++) {
        sn_op_group *group = &f->groups[g];
        double best = -1;
        for (int i = 0; i < group->n_forward; i++) {
            const sn_op *op = group->forward[i];
            if (sn_op_has(op->kind, SN_TRAIT_GENERATOR) || !op->n_operands) continue;
            double size = (double)sn_type_bytes(op->results[0]->type);
            for (int o = 0; o < op->n_operands; o++) size += 1e-3 * (double)sn_type_bytes(op->operands[o]->type);
            if (sn_block_op_is_heavy(op)) size *= 1e6;
            if (size > best) best = size, group->lead = i;
        }
    }
}

static void mark_data(finder *f, const sn_func *func) {
    f->from_data = SN_NEW_N(f->arena, bool, f->out->value_count);
    for (size_t i = 0; i < func->args.count; i++) f->from_data[func->args.data[i]->id] = true;
    SN_FOR_OPS(op, func) {
        bool data = false;
        for (int i = 0; i < op->n_operands; i++) {
            const sn_value *value = op->operands[i];
            data |=
                f->from_data[value->id] || (value->kind == SN_VALUE_GLOBAL && value->global->role == SN_ROLE_PARAMETER);
        }
        for (int i = 0; i < op->n_results; i++) f->from_data[op->results[i]->id] = data;
    }
}

static void measure_cuts(finder *f) {
    const sn_func *func = f->out->micro;
    uint32_t n = 0;
    SN_FOR_OPS(op, func) op->mark = n++;
    int *place = SN_NEW_N(f->arena, int, n + 1);
    bool *counts = SN_NEW_N(f->arena, bool, n + 1);
    for (int g = 0; g < f->n_groups; g++)
        for (int i = 0; i < f->groups[g].n_forward; i++) {
            const sn_op *op = f->groups[g].forward[i];
            place[op->mark] = g + 1;
            counts[op->mark] = op->n_results && f->from_data[op->results[0]->id];
        }
    f->crossing = SN_NEW_N(f->arena, double, f->n_groups + 2);
    sn_crossing_bytes(func, place, f->n_groups, counts, f->crossing);
    SN_FOR_OPS(op, func) op->mark = 0;
}

// Whether a cut may stand before group g: nothing near it is cheaper to cut.
static bool is_narrow(const finder *f, int g, int window) {
    for (int at = g - window; at <= g + window; at++)
        if (at > 0 && at < f->n_groups && f->crossing[at] < f->crossing[g]) return false;
    return true;
}

// A block worth being one: it multiplies, or it holds a table.
static bool has_substance(const sn_op_group *group) {
    for (int i = 0; i < group->n_forward; i++) {
        const sn_op *op = group->forward[i];
        if (sn_block_op_is_heavy(op)) return true;
        for (int o = 0; o < op->n_operands; o++) {
            const sn_value *value = op->operands[o];
            if (value->kind == SN_VALUE_GLOBAL && value->global->role == SN_ROLE_PARAMETER && op->kind == SN_OP_GATHER)
                return true;
        }
    }
    return false;
}

static bool has_substance_from(const finder *f, int g) {
    for (; g < f->n_groups; g++)
        if (has_substance(&f->groups[g])) return true;
    return false;
}

static bool has_substance_before(const finder *f, int g) {
    while (--g >= 0)
        if (has_substance(&f->groups[g])) return true;
    return false;
}

// Whether a narrower place to cut lies on this side of group g.
static bool is_wider_than(const finder *f, int g, int step) {
    for (int at = g + step; at > 0 && at < f->n_groups && (at - g) * step <= BLOCK_NODES; at += step)
        if (f->crossing[at] * WIDE <= f->crossing[g])
            return step < 0 ? has_substance_before(f, at) : has_substance_from(f, at);
    return false;
}

static bool is_cut(const finder *f, int g, int window) {
    return is_narrow(f, g, window) && !(is_wider_than(f, g, -1) && is_wider_than(f, g, 1));
}

static int cut_chain(finder *f, int window) {
    int block = 0;
    bool substance = false;
    for (int g = 0; g < f->n_groups; g++) {
        if (g && substance && is_cut(f, g, window) && has_substance_from(f, g)) block++, substance = false;
        substance |= has_substance(&f->groups[g]);
        f->block_of[g] = block;
    }
    return block + 1;
}

static void make_blocks(finder *f) {
    f->block_of = SN_NEW_N(f->arena, int, f->n_groups + 1);
    int window = WINDOW, count = cut_chain(f, window);
    while (count > MOST_BLOCKS && window < f->n_groups) count = cut_chain(f, window *= 2);
    f->out->n_blocks = f->n_groups ? count : 0;
    f->out->blocks = SN_NEW_N(f->arena, sn_block, count);
    for (int g = 0; g < f->n_groups; g++) {
        sn_block *block = &f->out->blocks[f->block_of[g]];
        if (!g || f->block_of[g] != f->block_of[g - 1])
            *block = (sn_block){.first = f->groups[g].node, .groups = &f->groups[g], .input_bytes = f->crossing[g]};
        block->n_groups++;
        for (int i = 0; i < f->groups[g].n_forward; i++) f->groups[g].forward[i]->mark = (uint32_t)f->block_of[g] + 1;
    }
}

// The first group of the node that the op is a gradient of.
static sn_op_group *group_of_gradient(finder *f, const sn_op *op) {
    uintptr_t at = (uintptr_t)sn_map_get(&f->group_of, node_of(op));
    return at ? &f->groups[at - 1] : NULL;
}

static void collect_backward(finder *f, const sn_func *func) {
    SN_FOR_OPS(op, func) {
        sn_op_group *group = op->phase == SN_PHASE_BACKWARD ? group_of_gradient(f, op) : NULL;
        if (group) group->n_backward++;
    }
    for (int g = 0; g < f->n_groups; g++) {
        f->groups[g].backward = SN_NEW_N(f->arena, sn_op *, f->groups[g].n_backward + 1);
        f->groups[g].n_backward = 0;
    }
    SN_FOR_OPS(op, func) {
        sn_op_group *group = op->phase == SN_PHASE_BACKWARD ? group_of_gradient(f, op) : NULL;
        if (!group) continue;
        group->backward[group->n_backward++] = op;
        op->mark = (uint32_t)f->block_of[group - f->groups] + 1;
    }
}

static void collect_parameters(finder *f) {
    for (int b = 0; b < f->out->n_blocks; b++) {
        sn_block *block = &f->out->blocks[b];
        SN_VEC(sn_global *) own = {0};
        for (int g = 0; g < block->n_groups; g++)
            for (int i = 0; i < block->groups[g].n_forward; i++) {
                const sn_op *op = block->groups[g].forward[i];
                for (int o = 0; o < op->n_operands; o++) {
                    const sn_value *value = op->operands[o];
                    bool ours = value->kind == SN_VALUE_GLOBAL && value->global->role <= SN_ROLE_STATE;
                    if (!ours || sn_map_has(&f->owner_of, value->global->name)) continue;
                    sn_map_put(&f->owner_of, value->global->name, (void *)(uintptr_t)(b + 1));
                    sn_vec_push(&own, value->global);
                }
            }
        block->n_parameters = (int)own.count;
        block->parameters = sn_arena_copy(f->arena, own.data, own.count * sizeof(sn_global *));
        sn_vec_free(&own);
    }
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    return sn_hash_bytes(&value, sizeof value, hash);
}

static uint64_t hash_type(uint64_t hash, sn_type type) {
    hash = mix(hash, (uint64_t)type.dtype << 8 | (uint64_t)type.rank);
    return sn_hash_bytes(type.dim, sizeof(int64_t) * (size_t)type.rank, hash);
}

static uint64_t hash_attrs(uint64_t hash, const sn_op *op) {
    for (int i = 0; i < op->n_attrs; i++) {
        const sn_attr *attr = &op->attrs[i];
        hash = sn_hash_bytes(attr->name, strlen(attr->name), hash);
        if (attr->type == SN_ATTR_INTS)
            hash = sn_hash_bytes(attr->ints.data, sizeof(int64_t) * (size_t)attr->ints.count, hash);
        else if (attr->type == SN_ATTR_STRING)
            hash = sn_hash_bytes(attr->s, strlen(attr->s), hash);
        else if (attr->type != SN_ATTR_FUNC && strcmp(attr->name, "id") != 0)
            hash = mix(hash, (uint64_t)attr->i);
    }
    return hash;
}

// Where an operand comes from, relative to the block: an earlier op of it, or the n-th thing from outside.
typedef struct places {
    SN_VEC(const sn_value *) outside;
    uint32_t first_id;
} places;

static uint64_t hash_operand(uint64_t hash, const sn_value *value, int block, places *p) {
    hash = hash_type(hash, value->type);
    if (value->kind == SN_VALUE_RESULT && (int)value->def->mark == block + 1) return mix(hash, value->id - p->first_id);
    size_t at = 0;
    while (at < p->outside.count && p->outside.data[at] != value) at++;
    if (at == p->outside.count) sn_vec_push(&p->outside, value);
    uint64_t role = value->kind == SN_VALUE_GLOBAL ? (uint64_t)value->global->role : 0;
    return mix(hash, 1000000 + at * 16 + (uint64_t)value->kind * 100000000 + role);
}

static uint64_t hash_block(finder *f, int b) {
    const sn_block *block = &f->out->blocks[b];
    places p = {.first_id = block->groups[0].forward[0]->results[0]->id};
    uint64_t hash = 0;
    for (int g = 0; g < block->n_groups; g++) {
        const sn_op_group *group = &block->groups[g];
        hash = mix(hash, (uint64_t)group->n_backward);
        for (int i = 0; i < group->n_forward; i++) {
            const sn_op *op = group->forward[i];
            hash = hash_attrs(mix(hash, (uint64_t)op->kind), op);
            for (int o = 0; o < op->n_operands; o++) hash = hash_operand(hash, op->operands[o], b, &p);
            for (int r = 0; r < op->n_results; r++) hash = hash_type(hash, op->results[r]->type);
        }
    }
    sn_vec_free(&p.outside);
    return mix(hash, (uint64_t)block->n_parameters);
}

static double tied_bytes(const finder *f, int b) {
    const sn_block *block = &f->out->blocks[b];
    double bytes = 0;
    for (int g = 0; g < block->n_groups; g++)
        for (int i = 0; i < block->groups[g].n_forward; i++)
            for (int o = 0; o < block->groups[g].forward[i]->n_operands; o++) {
                const sn_value *value = block->groups[g].forward[i]->operands[o];
                if (value->kind != SN_VALUE_GLOBAL || value->global->role != SN_ROLE_PARAMETER) continue;
                if ((int)(uintptr_t)sn_map_get(&f->owner_of, value->global->name) != b + 1)
                    bytes += (double)sn_type_bytes(value->type);
            }
    return bytes;
}

static void classify(finder *f) {
    sn_blocks *out = f->out;
    out->classes = SN_NEW_N(f->arena, sn_block_class, out->n_blocks + 1);
    for (int b = 0; b < out->n_blocks; b++) {
        uint64_t hash = hash_block(f, b);
        int k = 0;
        while (k < out->n_classes && out->classes[k].hash != hash) k++;
        if (k == out->n_classes)
            out->classes[out->n_classes++] =
                (sn_block_class){.hash = hash, .representative = b, .tied_bytes = tied_bytes(f, b)};
        out->classes[k].count++;
        out->blocks[b].kind = k;
    }
}

sn_blocks sn_blocks_find(sn_module *module, int64_t batch, sn_arena *arena) {
    sn_func *micro = sn_module_func(module, "micro");
    SN_CHECK(micro && sn_module_func(module, "update"));
    sn_blocks out = {.arena = arena, .micro = micro, .update = sn_module_func(module, "update"), .batch = batch};
    finder f = {.out = &out, .module = module, .arena = arena};
    SN_FOR_OPS(op, micro) op->mark = 0;
    number_values(&f, micro);
    collect_groups(&f, micro);
    choose_leads(&f);
    mark_data(&f, micro);
    measure_cuts(&f);
    make_blocks(&f);
    collect_backward(&f, micro);
    collect_parameters(&f);
    classify(&f);
    sn_map_free(&f.group_of);
    sn_map_free(&f.owner_of);
    return out;
}

// Where a dim has size 1, a broadcast along it is none, and so on: a batch of one has fewer ops than one of two.
static bool may_vanish(sn_op_kind kind) {
    return sn_op_has(kind, SN_TRAIT_VIEW) || sn_op_has(kind, SN_TRAIT_MOVEMENT) ||
           sn_op_has(kind, SN_TRAIT_REDUCTION) || sn_op_has(kind, SN_TRAIT_GENERATOR);
}

// Whether the op makes something of the data or of weights. What is made of constants alone is folded, or is not where
// it is too large, which the batch may decide. Sets the mark.
static bool is_of_data(sn_op *op) {
    op->mark = 0;
    for (int i = 0; i < op->n_operands; i++) {
        const sn_value *value = op->operands[i];
        op->mark |= value->kind == SN_VALUE_RESULT   ? value->def->mark
                    : value->kind == SN_VALUE_GLOBAL ? value->global->role != SN_ROLE_CONSTANT
                                                     : 1;
    }
    return op->mark;
}

uint64_t sn_model_hash(const sn_module *module) {
    const sn_func *func = sn_module_func(module, "main");
    uint64_t hash = 0;
    for (size_t i = 0; func && i < func->args.count; i++) {
        sn_type type = func->args.data[i]->type;
        if (type.rank) type.dim[0] = 0; // the batch is the plan's own affair
        hash = hash_type(hash, type);
    }
    SN_FOR_OPS(op, func) {
        const char *node = node_of(op);
        if (!is_of_data(op) || may_vanish(op->kind)) continue;
        hash = mix(sn_hash_bytes(node, strlen(node), hash), (uint64_t)op->kind);
    }
    for (size_t i = 0; i < module->globals.count; i++) {
        const sn_global *global = module->globals.data[i];
        if (global->role == SN_ROLE_CONSTANT) continue;
        hash = hash_type(sn_hash_bytes(global->name, strlen(global->name), hash), global->value->type);
    }
    return hash ? hash : 1;
}
