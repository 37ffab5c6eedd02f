// Where the update stands matters for memory: without clipping each parameter is updated as soon as its gradient is
// whole and the backward pass has read the parameter for the last time, so that gradients do not all live at once.
#include "passes/training/update.h"

#include "passes/training/clone.h"

#include <string.h>

static sn_value *argument(sn_func *func, const char *name, sn_dtype dtype) {
    for (size_t i = 0; i < func->args.count; i++)
        if (strcmp(func->args.data[i]->name, name) == 0) return func->args.data[i];
    return sn_func_add_arg(func, name, sn_type_scalar(dtype));
}

// Numbers the ops from 1 on. behind[i]: the first op that follows the i-th, or comes first of all, and does not update:
// updates of other parameters, and those that are still to come, stay before it. NULL: none follows.
static sn_op **number_ops(sn_func *func) {
    uint32_t n = 0;
    SN_FOR_OPS(op, func) {
        op->mark = ++n;
    }
    sn_op **behind = sn_alloc(sizeof *behind * ((size_t)n + 1));
    for (sn_op *op = func->last; op; op = op->prev)
        behind[op->mark - 1] = op->phase == SN_PHASE_UPDATE ? behind[op->mark] : op;
    return behind;
}

// The op after which a parameter may change: the later of its gradient's and its last reader's. NULL when there is none
// in the function.
static sn_op *ready_after(const sn_func *func, const sn_global *parameter, const sn_value *gradient) {
    sn_op *last = gradient->kind == SN_VALUE_RESULT ? gradient->def : NULL;
    for (size_t i = 0; i < parameter->value->uses.count; i++) {
        sn_op *reader = parameter->value->uses.data[i].op;
        if (reader->func == func && (!last || reader->mark > last->mark)) last = reader;
    }
    return last;
}

// The sum of a gradient's squares as f32[1].
static sn_value *square_sum(sn_builder *b, sn_value *gradient) {
    if (gradient->type.dtype != SN_F64) gradient = sn_build_cast(b, gradient, SN_F32);
    int64_t axes[SN_MAX_RANK], one = 1;
    for (int i = 0; i < gradient->type.rank; i++) axes[i] = i;
    sn_value *squares = sn_build_binary(b, SN_OP_MUL, gradient, gradient);
    sn_value *sum = sn_build_reduce(b, SN_OP_REDUCE_SUM, squares, gradient->type.rank, axes, false);
    return sn_build_cast(b, sn_build_reshape(b, sum, 1, &one), SN_F32);
}

static sn_value *norm_of(sn_builder *b, int n, sn_value *const *square_sums) {
    sn_value *all = sn_build_concat(b, n, square_sums, 0);
    sn_value *sum = sn_build_reduce(b, SN_OP_REDUCE_SUM, all, 1, (int64_t[]){0}, false);
    return sn_build_unary(b, SN_OP_SQRT, sum);
}

// min(1, clip / (norm + 1e-6)), as PyTorch's clip_grad_norm_.
static sn_value *clip_scale(sn_builder *b, sn_value *norm, double clip) {
    sn_value *safe = sn_build_binary_number(b, SN_OP_ADD, norm, 1e-6);
    sn_value *ratio = sn_build_binary(b, SN_OP_DIV, sn_build_number_like(b, norm, clip), safe);
    return sn_build_binary_number(b, SN_OP_MIN, ratio, 1);
}

static void set_origin(sn_builder *b, const sn_global *parameter) {
    sn_module *module = b->func->module;
    b->origin = sn_origin_new(module, "optimizer", sn_origin_new(module, parameter->name, NULL));
}

static sn_value *scaled(sn_builder *b, sn_value *gradient, sn_value *scale) {
    return sn_build_binary(b, SN_OP_MUL, gradient, sn_build_cast(b, scale, gradient->type.dtype));
}

static void update_one(sn_update *u, sn_builder *b, int i, sn_value *gradient, sn_value *lr, sn_value *step) {
    sn_global *states[2];
    set_origin(b, u->parameters[i]);
    sn_optimizer_add_states(u->optimizer, b->func->module, u->parameters[i], states);
    sn_optimizer_update(u->optimizer, b, u->parameters[i], states, gradient, lr, step);
}

void sn_update_build(sn_update *u, sn_func *func) {
    sn_value *step = argument(func, "$step", SN_I64), *lr;
    argument(func, "$seed", SN_I64); // for the order of the arguments; pruned when nothing is random
    lr = argument(func, "$lr", SN_F32);
    sn_op **behind = number_ops(func);
    sn_value **sums = sn_alloc(sizeof *sums * (size_t)u->n);
    sn_builder b = {.func = func, .phase = SN_PHASE_UPDATE};
    for (int i = 0; i < u->n; i++) {
        sn_op *last = ready_after(func, u->parameters[i], u->gradients[i]);
        b.before = behind[last ? last->mark : 0];
        set_origin(&b, u->parameters[i]);
        sums[i] = square_sum(&b, u->gradients[i]);
        if (u->clip <= 0) update_one(u, &b, i, u->gradients[i], lr, step);
    }
    b.before = NULL;
    b.origin = sn_origin_new(func->module, "grad_norm", NULL);
    sn_value *norm = norm_of(&b, u->n, sums);
    sn_func_add_result(func, norm, "grad_norm");
    sn_value *scale = u->clip > 0 ? clip_scale(&b, norm, u->clip) : NULL;
    for (int i = 0; i < u->n && scale; i++) {
        set_origin(&b, u->parameters[i]);
        update_one(u, &b, i, scaled(&b, u->gradients[i], scale), lr, step);
    }
    sn_free(sums);
    sn_free(behind);
}

static sn_global *accumulator(sn_module *module, const char *name, sn_type type, sn_global *of) {
    if (sn_dtype_bytes(type.dtype) < 4) type.dtype = SN_F32;
    sn_global *global = sn_module_add_global(module, name, type, SN_ROLE_SUM, (sn_source){.kind = SN_SOURCE_FILL});
    global->of = of;
    global->why = "adds up over micro-batches";
    return global;
}

static void assign(sn_builder *b, sn_global *global, sn_value *value) {
    sn_build(b, SN_OP_ASSIGN, 2, (sn_value *[]){global->value, value}, 0, NULL, NULL);
}

static void add_to(sn_builder *b, sn_global *global, sn_value *value) {
    value = sn_build_cast(b, value, global->value->type.dtype);
    assign(b, global, sn_build_binary(b, SN_OP_ADD, global->value, value));
}

static void add_gradients(sn_update *u, sn_func *micro, sn_global **accumulators) {
    sn_builder b = {.func = micro, .phase = SN_PHASE_BACKWARD};
    for (int i = 0; i < u->n; i++) {
        sn_module *module = micro->module;
        const char *name = sn_arena_printf(&module->arena, "%s.grad", u->parameters[i]->name);
        accumulators[i] = accumulator(module, name, u->parameters[i]->value->type, u->parameters[i]);
        sn_value *gradient = u->gradients[i];
        b.before = gradient->kind == SN_VALUE_RESULT ? gradient->def->next : NULL;
        b.origin = sn_origin_new(module, "accumulate", sn_origin_new(module, u->parameters[i]->name, NULL));
        add_to(&b, accumulators[i], gradient);
    }
}

typedef struct accumulators {
    sn_global **gradient; // by parameter
    sn_global *sum, *count;
} accumulators;

// The loss, and the accumulated gradients of its sum divided by the accumulated count.
static void read_accumulators(sn_update *u, sn_builder *b, const accumulators *a) {
    b->origin = sn_origin_new(b->func->module, "loss", NULL);
    sn_value *loss = sn_build_binary(b, SN_OP_DIV, a->sum->value, a->count->value);
    sn_func_add_result(b->func, sn_build_cast(b, loss, SN_F32), "loss");
    sn_value *scale = sn_build_unary(b, SN_OP_RECIPROCAL, a->count->value);
    for (int i = 0; i < u->n; i++) {
        set_origin(b, u->parameters[i]);
        u->gradients[i] = scaled(b, a->gradient[i]->value, scale);
    }
}

static void clear_accumulators(const sn_update *u, sn_builder *b, const accumulators *a) {
    for (int i = 0; i < u->n; i++) {
        set_origin(b, u->parameters[i]);
        assign(b, a->gradient[i], sn_build_splat(b, a->gradient[i]->value->type, 0));
    }
    assign(b, a->sum, sn_build_splat(b, a->sum->value->type, 0));
    assign(b, a->count, sn_build_splat(b, a->count->value->type, 0));
    sn_func_prune(b->func);
}

static void build_update(sn_update *u, sn_func *func, const accumulators *a) {
    sn_builder b = {.func = func, .phase = SN_PHASE_UPDATE};
    read_accumulators(u, &b, a);
    sn_update_build(u, func);
    clear_accumulators(u, &b, a);
}

static void build_gradients(sn_update *u, sn_func *func, const accumulators *a) {
    sn_module *module = func->module;
    sn_builder b = {.func = func, .phase = SN_PHASE_UPDATE};
    read_accumulators(u, &b, a);
    for (int i = 0; i < u->n; i++) {
        sn_value *gradient = sn_build_cast(&b, u->gradients[i], u->parameters[i]->value->type.dtype);
        sn_func_add_result(func, gradient, sn_arena_printf(&module->arena, "grad:%s", u->parameters[i]->name));
    }
    clear_accumulators(u, &b, a);
}

void sn_update_build_accumulated(sn_update *u, sn_func *micro, const sn_loss *loss, bool with_gradients) {
    sn_module *module = micro->module;
    accumulators a = {.gradient = sn_alloc(sizeof *a.gradient * (size_t)u->n)};
    add_gradients(u, micro, a.gradient);
    sn_builder b = {.func = micro, .phase = SN_PHASE_FORWARD, .origin = sn_origin_new(module, "loss", NULL)};
    a.sum = accumulator(module, "loss.sum", loss->sum->type, NULL);
    a.count = accumulator(module, "loss.count", loss->count->type, NULL);
    add_to(&b, a.sum, loss->sum);
    add_to(&b, a.count, loss->count);
    build_update(u, sn_module_add_func(module, "update"), &a);
    if (with_gradients) build_gradients(u, sn_module_add_func(module, "gradients"), &a);
    sn_free(a.gradient);
}
