// Shadows: copies of ops whose values have the types of one rank's parts, for the cost model to look at. Contractions
// are asked for one by one; the other ops of a group and phase run as one kernel, as `fuse` will make them.
#include "passes/partition/evaluate_local.h"

#include <math.h>
#include <string.h>

typedef struct shadows {
    sn_arena *arena;
    bool divides;
} shadows;

static sn_type local_type(shadows *s, sn_type type, int n, const sn_cut *cuts, const int64_t *parts) {
    sn_type whole = type;
    for (int a = 0; a < n; a++) {
        if (cuts[a] < 0 || parts[a] == 1) continue;
        int dim = sn_cut_dim(cuts[a]);
        if (whole.dim[dim] / sn_cut_outer(cuts[a]) % parts[a] || type.dim[dim] % parts[a])
            s->divides = false;
        else
            type.dim[dim] /= parts[a];
    }
    return type;
}

static sn_value *shadow_value(shadows *s, const sn_value *value, sn_type type) {
    sn_value *shadow = SN_NEW(s->arena, sn_value);
    *shadow = (sn_value){.kind = value->kind, .type = type, .name = value->name, .index = value->index};
    if (value->kind == SN_VALUE_GLOBAL) shadow->global = value->global;
    return shadow;
}

static const sn_op_cut *cut_of(const sn_strategy *strategy, bool backward, int index) {
    return backward ? &strategy->backward[index] : &strategy->forward[index];
}

// A rank with a part of the queries has its causal mask written out (localize_place.c), so that no key is left out.
static void see_all_keys(shadows *s, const sn_op *op, sn_op *shadow) {
    if (op->kind != SN_OP_ATTENTION && op->kind != SN_OP_ATTENTION_GRAD) return;
    if (!sn_op_int(op, "causal") || shadow->operands[0]->type.dim[2] == op->operands[0]->type.dim[2]) return;
    shadow->n_attrs = 2;
    shadow->attrs = SN_NEW_N(s->arena, sn_attr, 2);
    shadow->attrs[0] = sn_attr_float("scale", sn_op_float(op, "scale"));
    shadow->attrs[1] = sn_attr_int("causal", 0);
}

static sn_op *shadow_op(shadows *s, const sn_op *op, const sn_group_cut *cut, bool backward, int index) {
    sn_op *shadow = SN_NEW(s->arena, sn_op);
    *shadow = *op;
    shadow->operands = SN_NEW_N(s->arena, sn_value *, op->n_operands + op->n_results + 1);
    shadow->results = shadow->operands + op->n_operands;
    for (int v = 0; v < op->n_operands + op->n_results; v++) {
        bool result = v >= op->n_operands;
        sn_cut dims[SN_AXIS_KINDS];
        int at = result ? v - op->n_operands : v;
        for (int a = 0; a < SN_AXIS_KINDS; a++) {
            const sn_op_cut *c = cut_of(cut->strategy[a], backward, index);
            dims[a] = result ? c->result[at] : c->operand[at];
        }
        const sn_value *value = result ? op->results[at] : op->operands[at];
        shadow->operands[v] = shadow_value(s, value, local_type(s, value->type, SN_AXIS_KINDS, dims, cut->parts));
    }
    see_all_keys(s, op, shadow);
    return shadow;
}

// One kernel of several ops: what they read from outside and write for others.
typedef struct fused {
    SN_VEC(const sn_op *) ops;
    SN_VEC(sn_op *) shadows;
    bool makes_again; // what is cheap is not kept for the backward pass
} fused;

static bool is_inside(const fused *f, const sn_op *op) {
    for (size_t i = 0; i < f->ops.count; i++)
        if (f->ops.data[i] == op) return true;
    return false;
}

static bool is_made_again(const fused *f, const sn_op *op, const sn_op *reader) {
    return f->makes_again && op->phase == SN_PHASE_FORWARD && reader->phase == SN_PHASE_BACKWARD &&
           sn_op_has(op->kind, SN_TRAIT_POINTWISE | SN_TRAIT_VIEW);
}

static bool is_used_outside(const fused *f, const sn_value *value) {
    for (size_t u = 0; u < value->uses.count; u++) {
        const sn_op *reader = value->uses.data[u].op;
        if (!is_inside(f, reader) && !is_made_again(f, value->def, reader)) return true;
    }
    return false;
}

static bool is_seen(const sn_value *const *originals, int n, const sn_value *original) {
    for (int i = 0; i < n; i++)
        if (originals[i] == original) return true;
    return false;
}

static sn_op *make_kernel(shadows *s, const fused *f) {
    int most = 0;
    for (size_t i = 0; i < f->ops.count; i++) most += f->ops.data[i]->n_operands + f->ops.data[i]->n_results;
    sn_op *kernel = SN_NEW(s->arena, sn_op);
    sn_func *body = SN_NEW(s->arena, sn_func);
    const sn_value **originals = SN_NEW_N(s->arena, const sn_value *, most + 1);
    *kernel = (sn_op){.kind = SN_OP_KERNEL,
                      .n_attrs = 1,
                      .operands = SN_NEW_N(s->arena, sn_value *, most + 1),
                      .results = SN_NEW_N(s->arena, sn_value *, most + 1)};
    for (size_t i = 0; i < f->ops.count; i++) {
        const sn_op *op = f->ops.data[i];
        sn_op *shadow = f->shadows.data[i];
        for (int o = 0; o < op->n_operands; o++) {
            const sn_value *value = op->operands[o];
            bool inner = value->kind == SN_VALUE_RESULT && is_inside(f, value->def);
            if (op->kind == SN_OP_ASSIGN && o == 0) { // written, not read
                kernel->results[kernel->n_results++] = shadow->operands[o];
                continue;
            }
            bool made = value->kind == SN_VALUE_RESULT && sn_op_has(value->def->kind, SN_TRAIT_GENERATOR);
            if (inner || made || is_seen(originals, kernel->n_operands, value)) continue;
            originals[kernel->n_operands] = value;
            kernel->operands[kernel->n_operands++] = shadow->operands[o];
        }
        for (int r = 0; r < op->n_results; r++)
            if (is_used_outside(f, op->results[r])) kernel->results[kernel->n_results++] = shadow->results[r];
        shadow->prev = body->last;
        shadow->next = NULL;
        *(body->last ? &body->last->next : &body->first) = shadow;
        body->last = shadow;
    }
    kernel->attrs = SN_NEW(s->arena, sn_attr);
    kernel->attrs[0] = sn_attr_func("body", body);
    return kernel;
}

static bool is_free(const fused *f) {
    for (size_t i = 0; i < f->ops.count; i++)
        if (!sn_op_has(f->ops.data[i]->kind, SN_TRAIT_VIEW) && !sn_op_has(f->ops.data[i]->kind, SN_TRAIT_GENERATOR))
            return false;
    return true;
}

static double time_fused(const sn_cost_model *model, shadows *s, fused *f) {
    double seconds = 0;
    if (f->ops.count && !is_free(f)) {
        const sn_op *kernel = make_kernel(s, f);
        sn_cost_ops(model, 1, &kernel, &seconds, s->arena);
    }
    return seconds;
}

static void release(fused *f) {
    sn_vec_free(&f->ops);
    sn_vec_free(&f->shadows);
}

static double bytes_of(const sn_op *op) {
    double bytes = 0;
    if (sn_op_has(op->kind, SN_TRAIT_VIEW) || !op->n_operands) return 0;
    for (int i = 0; i < op->n_results; i++) bytes += (double)sn_type_bytes(op->results[i]->type);
    return bytes;
}

static bool is_read_by_contraction(const sn_value *value, sn_phase phase) {
    for (size_t u = 0; u < value->uses.count; u++) {
        const sn_op *reader = value->uses.data[u].op;
        if (reader->phase == phase && sn_block_op_is_heavy(reader)) return true;
        if (sn_op_has(reader->kind, SN_TRAIT_VIEW) && is_read_by_contraction(reader->results[0], phase)) return true;
    }
    return false;
}

// The largest value that light ops leave for a contraction. Others read it in the kernel that makes it, mostly.
static double largest_written(const fused *f) {
    double largest = 0;
    for (size_t i = 0; i < f->ops.count; i++) {
        const sn_op *op = f->ops.data[i];
        for (int r = 0; r < op->n_results; r++)
            if (is_read_by_contraction(op->results[r], op->phase))
                largest = fmax(largest, (double)sn_type_bytes(f->shadows.data[i]->results[r]->type));
    }
    return largest;
}

bool sn_group_local_seconds(const sn_cost_model *model, const sn_op_group *group, const bool *weight_only,
                            const sn_group_cut *cut, sn_arena *scratch, sn_group_seconds *out) {
    shadows s = {scratch, true};
    fused light[3] = {0}; // forward, backward of inputs, backward of weights
    *out = (sn_group_seconds){0};
    double *const heavy[3] = {&out->forward, &out->backward_input, &out->backward_weight};
    double largest = 0;
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < (side ? group->n_backward : group->n_forward); i++) {
            const sn_op *op = side ? group->backward[i] : group->forward[i];
            int part = !side ? 0 : weight_only[i] ? 2 : 1;
            sn_op *shadow = shadow_op(&s, op, cut, side, i);
            if (!s.divides) break;
            if (part == 2 || sn_block_op_is_heavy(op)) largest = fmax(largest, bytes_of(shadow));
            if (!sn_block_op_is_heavy(op)) {
                sn_vec_push(&light[part].ops, op);
                sn_vec_push(&light[part].shadows, shadow);
                continue;
            }
            double seconds;
            const sn_op *asked = shadow;
            sn_cost_ops(model, 1, &asked, &seconds, scratch);
            *heavy[part] += seconds;
        }
    for (int part = 0; part < 3; part++) {
        double seconds = s.divides ? time_fused(model, &s, &light[part]) : 0;
        out->light[part] = seconds;
        *heavy[part] += seconds;
    }
    largest = fmax(largest, largest_written(&light[1]));
    out->temporary = 2 * largest; // one being read, one being written
    for (int part = 0; part < 3; part++) release(&light[part]);
    return s.divides;
}

// A light op of a block; those that `fuse` joins have the same root.
typedef struct light_op {
    const sn_op *op;
    sn_op *shadow;
    size_t parent;
} light_op;

typedef SN_VEC(light_op) light_ops;

static size_t root_of(light_ops *ops, size_t i) {
    while (ops->data[i].parent != i) i = ops->data[i].parent = ops->data[ops->data[i].parent].parent;
    return i;
}

// Producers and consumers are one kernel as long as no contraction lies between them.
static void join(light_ops *ops, size_t i) {
    const sn_op *op = ops->data[i].op;
    for (int o = 0; o < op->n_operands; o++) {
        const sn_value *value = op->operands[o];
        for (size_t k = 0; value->kind == SN_VALUE_RESULT && k < ops->count; k++)
            if (ops->data[k].op == value->def && value->def->phase == op->phase)
                ops->data[root_of(ops, k)].parent = root_of(ops, i);
    }
}

// Library calls take strides: what only changes the order of dims for them is no kernel.
static bool is_strided(const fused *f) {
    for (size_t i = 0; i < f->ops.count; i++) {
        sn_op_kind kind = f->ops.data[i]->kind;
        if (kind != SN_OP_TRANSPOSE && !sn_op_has(kind, SN_TRAIT_VIEW | SN_TRAIT_GENERATOR)) return false;
    }
    return true;
}

// A cheap result that a contraction of the backward pass reads is a kernel there.
static double again_seconds(const sn_cost_model *model, shadows *s, const light_op *light) {
    const sn_op *op = light->op;
    double seconds = 0;
    if (op->phase != SN_PHASE_FORWARD || !op->n_operands || !sn_op_has(op->kind, SN_TRAIT_POINTWISE)) return 0;
    if (!is_read_by_contraction(op->results[0], SN_PHASE_BACKWARD)) return 0;
    const sn_op *asked = light->shadow;
    sn_cost_ops(model, 1, &asked, &seconds, s->arena);
    return seconds;
}

static void list_light(shadows *s, const sn_op_group *group, const sn_group_cut *cut, light_ops *out) {
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < (side ? group->n_backward : group->n_forward); i++) {
            const sn_op *op = side ? group->backward[i] : group->forward[i];
            if (sn_block_op_is_heavy(op)) continue;
            light_op light = {op, shadow_op(s, op, cut, side, i), out->count};
            sn_vec_push(out, light);
        }
}

static void add_joined(const sn_cost_model *model, shadows *s, light_ops *ops, double joined[2]) {
    for (size_t i = 0; i < ops->count; i++) {
        bool backward = ops->data[i].op->phase != SN_PHASE_FORWARD;
        joined[1] += again_seconds(model, s, &ops->data[i]);
        if (root_of(ops, i) != i) continue;
        fused kernel = {.makes_again = true};
        for (size_t k = 0; k < ops->count; k++) {
            if (root_of(ops, k) != i) continue;
            sn_vec_push(&kernel.ops, ops->data[k].op);
            sn_vec_push(&kernel.shadows, ops->data[k].shadow);
        }
        if (!is_strided(&kernel)) joined[backward] += time_fused(model, s, &kernel);
        release(&kernel);
    }
}

void sn_block_fusion(const sn_cost_model *model, const sn_block *block, bool *const *weight_only,
                     const sn_group_cut *cuts, sn_arena *scratch, double share[2]) {
    shadows s = {scratch, true};
    light_ops ops = {0};
    double joined[2] = {0}, apart[2] = {0};
    for (int g = 0; g < block->n_groups; g++) {
        sn_group_seconds seconds;
        if (!sn_group_local_seconds(model, &block->groups[g], weight_only[g], &cuts[g], scratch, &seconds))
            s.divides = false;
        apart[0] += seconds.light[0];
        apart[1] += seconds.light[1] + seconds.light[2];
        list_light(&s, &block->groups[g], &cuts[g], &ops);
    }
    for (size_t i = 0; i < ops.count; i++) join(&ops, i);
    if (s.divides) add_joined(model, &s, &ops, joined);
    for (int side = 0; side < 2; side++) share[side] = s.divides && apart[side] > 0 ? joined[side] / apart[side] : 1;
    sn_vec_free(&ops);
}

// How the values of a parameter's update lie on a rank.
typedef struct parameter_cut {
    const sn_global *parameter; // NULL: all are of one element
    const sn_cut *cuts;
    const int64_t *parts;
} parameter_cut;

static sn_type parameter_type(shadows *s, const parameter_cut *cut, sn_type type) {
    for (int d = 0; !cut->parameter && d < type.rank; d++) type.dim[d] = 1;
    bool like = cut->parameter && sn_shape_equal(type, cut->parameter->value->type);
    return like ? local_type(s, type, SN_AXIS_KINDS, cut->cuts, cut->parts) : type;
}

static double time_parameter(const sn_cost_model *model, const parameter_cut *cut, int n, sn_op *const *ops,
                             sn_arena *scratch) {
    shadows s = {scratch, true};
    fused all = {0};
    for (int i = 0; i < n; i++) {
        sn_op *shadow = SN_NEW(scratch, sn_op);
        *shadow = *ops[i];
        shadow->operands = SN_NEW_N(scratch, sn_value *, ops[i]->n_operands + ops[i]->n_results + 1);
        shadow->results = shadow->operands + ops[i]->n_operands;
        for (int v = 0; v < ops[i]->n_operands + ops[i]->n_results; v++) {
            const sn_value *value =
                v < ops[i]->n_operands ? ops[i]->operands[v] : ops[i]->results[v - ops[i]->n_operands];
            shadow->operands[v] = shadow_value(&s, value, parameter_type(&s, cut, value->type));
        }
        sn_vec_push(&all.ops, ops[i]);
        sn_vec_push(&all.shadows, shadow);
    }
    double seconds = time_fused(model, &s, &all);
    release(&all);
    return seconds;
}

double sn_parameter_local_seconds(const sn_cost_model *model, const sn_global *parameter, int n, sn_op *const *ops,
                                  const sn_cut cuts[SN_AXIS_KINDS], const int64_t parts[SN_AXIS_KINDS],
                                  sn_arena *scratch) {
    return time_parameter(model, &(parameter_cut){parameter, cuts, parts}, n, ops, scratch);
}

double sn_parameter_least_seconds(const sn_cost_model *model, int n, sn_op *const *ops, sn_arena *scratch) {
    return time_parameter(model, &(parameter_cut){0}, n, ops, scratch);
}

double sn_group_local_bytes(const sn_op_group *group, const sn_group_cut *cut, int op, int result) {
    shadows s = {NULL, true};
    sn_cut dims[SN_AXIS_KINDS];
    for (int a = 0; a < SN_AXIS_KINDS; a++) dims[a] = cut->strategy[a]->forward[op].result[result];
    return (double)sn_type_bytes(
        local_type(&s, group->forward[op]->results[result]->type, SN_AXIS_KINDS, dims, cut->parts));
}

double sn_group_operand_bytes(const sn_op_group *group, const sn_group_cut *cut, int op, int operand) {
    shadows s = {NULL, true};
    sn_cut dims[SN_AXIS_KINDS];
    for (int a = 0; a < SN_AXIS_KINDS; a++) dims[a] = cut->strategy[a]->backward[op].operand[operand];
    return (double)sn_type_bytes(
        local_type(&s, group->backward[op]->operands[operand]->type, SN_AXIS_KINDS, dims, cut->parts));
}
