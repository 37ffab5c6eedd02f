// fuse-products: the product that is a weight's gradient moves into the kernel that updates the weight.
//
//     %g = matmul(%x, %dy) <transpose_a=1>           %s = kernel(%dy) <body=@k_copy_…>
//     %v, %m, %w = kernel(%g, @w.v, @w.m, @w)   ->   %v, %m, %w = kernel(%x, %s, @w.v, @w.m, @w) <body=@k_matmul_mul_…>
//
// An update moves many bytes and computes little, a product the reverse: in one kernel the bytes arrive while the
// product is computed, and the gradient is never stored. What it costs is that the product is our own loop and no
// library's, so it is done only where the update writes over several arrays of the gradient's size and the product is
// shallow: operands that are smaller than the gradient, which then live longer in its place. One of them is copied into
// strips of columns first (passes/schedule/product.h).
//
// A kernel between the two that has one result and no other reader moves along: where an embedding is tied to the last
// layer, the gradients of the rows that were looked up are added to the product.
//
// A gradient that anyone else reads (the global norm of clipping, a collective, a sum over micro-batches) stays. So do
// products for GPUs: there a kernel has neither the registers nor the shared memory for this way.
#include "passes/memory/share.h"
#include "passes/pass.h"
#include "passes/schedule/library.h"
#include "passes/schedule/product.h"

#include <string.h>

typedef struct fusion {
    sn_module *module;
    sn_pass_context *context;
    sn_map bodies; // "old body, operand, depth" -> the body with the product, or the old one where it does not fit
} fusion;

// What makes an operand of an update.
typedef struct gradient {
    sn_op *product;
    sn_op *between; // kernel that reads the product as operand `at` and makes the gradient; NULL: the product does
    int at;
} gradient;

static sn_func *new_body(sn_module *module, const char *what, const char *rest) {
    const char *unique = sn_arena_printf(&module->arena, "k_%s_%s", what, rest);
    for (int i = 2; sn_module_func(module, unique); i++)
        unique = sn_arena_printf(&module->arena, "k_%s_%s_v%d", what, rest, i);
    sn_func *body = sn_module_add_func(module, unique);
    body->is_body = true;
    return body;
}

static sn_value *add_op(sn_func *body, sn_op_kind kind, sn_value *x, const sn_attr *attr, sn_type type) {
    return sn_op_new(body, NULL, kind, 1, &x, attr ? 1 : 0, attr, 1, &type)->results[0];
}

static sn_attr swap_leading(void) {
    static const int64_t perm[] = {1, 0, 2};
    return sn_attr_ints("perm", perm, 3);
}

static sn_type type_of(int64_t x, int64_t y, int64_t z) {
    sn_type type = {.dtype = SN_F32, .rank = z ? 3 : 2};
    type.dim[0] = x, type.dim[1] = y, type.dim[2] = z;
    return type;
}

static sn_value *add_argument(sn_func *body, sn_type type) {
    char name[24];
    snprintf(name, sizeof name, "in%zu", body->args.count);
    return sn_func_add_arg(body, name, type);
}

// A matrix [k, n] copied into strips [n / strip, k, strip].
static sn_func *body_of_copy(fusion *f, sn_type matrix, int64_t strip) {
    int64_t k = matrix.dim[0], strips = matrix.dim[1] / strip;
    const char *shape =
        sn_arena_printf(&f->module->arena, "%lldx%lldx%lld", (long long)strips, (long long)k, (long long)strip);
    sn_func *known = sn_map_get(&f->bodies, shape);
    if (known) return known;
    sn_func *body = new_body(f->module, "copy", shape);
    sn_attr perm = swap_leading();
    sn_value *x = add_argument(body, matrix);
    x = add_op(body, SN_OP_RESHAPE, x, NULL, type_of(k, strips, strip));
    x = add_op(body, SN_OP_TRANSPOSE, x, &perm, type_of(strips, k, strip));
    sn_func_add_result(body, add_op(body, SN_OP_COPY, x, NULL, type_of(strips, k, strip)), "");
    sn_map_put(&f->bodies, shape, body);
    return body;
}

static bool is_matrix(sn_type type) {
    for (int i = 0; i + 2 < type.rank; i++)
        if (type.dim[i] != 1) return false;
    return type.rank >= 2;
}

// Without leading ones.
static sn_type matrix_of(sn_type type) {
    return type_of(type.dim[type.rank - 2], type.dim[type.rank - 1], 0);
}

// The product of two new arguments, b in strips.
static sn_value *add_product(sn_func *body, const sn_op *product) {
    sn_type a = matrix_of(product->operands[0]->type), b = matrix_of(product->operands[1]->type);
    int64_t strip = sn_product_strip(b.dim[1]), strips = b.dim[1] / strip;
    sn_attr perm = swap_leading();
    sn_value *factors[2] = {add_argument(body, a)};
    sn_value *x = add_argument(body, type_of(strips, b.dim[0], strip));
    x = add_op(body, SN_OP_TRANSPOSE, x, &perm, type_of(b.dim[0], strips, strip));
    factors[1] = add_op(body, SN_OP_RESHAPE, x, NULL, b);
    sn_type type = matrix_of(product->results[0]->type);
    sn_op *made = sn_op_new(body, NULL, SN_OP_MATMUL, 2, factors, product->n_attrs, product->attrs, 1, &type);
    made->phase = product->phase;
    return made->results[0];
}

// `x` as `type`; reshapes that undo each other vanish.
static sn_value *reshaped(sn_func *body, sn_value *x, sn_type type) {
    while (x->kind == SN_VALUE_RESULT && x->def->kind == SN_OP_RESHAPE) x = x->def->operands[0];
    return sn_type_equal(x->type, type) ? x : add_op(body, SN_OP_RESHAPE, x, NULL, type);
}

// Copies the ops of `from` to the end of `body`. copy[i] stands for argument i, and receives a new argument where it is
// NULL; it is indexed by ids, which are given here.
static void copy_ops(fusion *f, sn_func *body, sn_func *from, sn_value **copy) {
    uint32_t n = 0;
    for (size_t i = 0; i < from->args.count; i++, n++) {
        from->args.data[i]->id = n;
        if (!copy[n]) copy[n] = add_argument(body, from->args.data[i]->type);
    }
    SN_FOR_OPS(op, from) {
        sn_value **operands = SN_NEW_N(f->context->scratch, sn_value *, op->n_operands + 1);
        for (int i = 0; i < op->n_operands; i++) operands[i] = copy[op->operands[i]->id];
        sn_type type = op->results[0]->type;
        op->results[0]->id = n++;
        if (op->kind == SN_OP_RESHAPE) {
            copy[n - 1] = reshaped(body, operands[0], type);
            continue;
        }
        sn_op *made = sn_op_new(body, NULL, op->kind, op->n_operands, operands, op->n_attrs, op->attrs, 1, &type);
        made->phase = op->phase;
        copy[n - 1] = made->results[0];
    }
}

static sn_value **new_copies(fusion *f, const sn_func *from) {
    size_t n = from->args.count + from->n_ops + 1;
    sn_value **copy = SN_NEW_N(f->context->scratch, sn_value *, n);
    memset(copy, 0, n * sizeof *copy);
    return copy;
}

// What the kernel between makes of the product `x`, as operations of `body`.
static sn_value *copy_between(fusion *f, sn_func *body, const gradient *g, sn_value *x) {
    sn_func *from = sn_op_func(g->between, "body");
    sn_value **copy = new_copies(f, from);
    sn_value *as_read = reshaped(body, x, from->args.data[g->at]->type);
    copy[g->at] = as_read;
    copy_ops(f, body, from, copy);
    sn_value *made = copy[from->results.data[0]->id];
    if (as_read != x && !as_read->uses.count) sn_op_erase(as_read->def);
    return made;
}

// A copy of `old` in which the product of two arguments, with what happens between, takes the place of argument `at`.
static sn_func *body_with_product(fusion *f, sn_func *old, size_t at, const gradient *g) {
    sn_func *body = new_body(f->module, "matmul", strncmp(old->name, "k_", 2) == 0 ? old->name + 2 : old->name);
    sn_value **copy = new_copies(f, old);
    for (size_t i = 0; i < at; i++) copy[i] = add_argument(body, old->args.data[i]->type);
    copy[at] = add_product(body, g->product);
    if (g->between) copy[at] = copy_between(f, body, g, copy[at]);
    copy_ops(f, body, old, copy);
    for (size_t i = 0; i < old->results.count; i++) sn_func_add_result(body, copy[old->results.data[i]->id], "");
    return body;
}

static bool has_single_results(const sn_func *body) {
    SN_FOR_OPS(op, body) if (op->n_results != 1) return false;
    return true;
}

// NULL when they do not go together.
static sn_func *find_body(fusion *f, sn_func *old, size_t at, const gradient *g) {
    sn_func *between = g->between ? sn_op_func(g->between, "body") : NULL;
    sn_str key = {0};
    sn_str_printf(&key, "%s %zu %lld", old->name, at, (long long)matrix_of(g->product->operands[0]->type).dim[0]);
    if (between) sn_str_printf(&key, " %s %d", between->name, g->at);
    sn_func *known = sn_map_get(&f->bodies, sn_str_text(&key));
    if (!known) {
        sn_product fits;
        bool plain = has_single_results(old) && (!between || has_single_results(between));
        known = plain ? body_with_product(f, old, at, g) : old;
        if (known != old && !sn_product_of_body(known, &fits)) {
            sn_module_remove_func(f->module, known);
            known = old;
        }
        sn_map_put(&f->bodies, sn_arena_strdup(&f->module->arena, sn_str_text(&key)), known);
    }
    sn_str_free(&key);
    return known == old ? NULL : known;
}

// Whether kernels read the value where it is.
static bool is_dense(sn_value *value) {
    sn_strided view;
    return sn_strided_view(value, &view) && sn_strided_is_dense(&view);
}

static bool overwrites(const sn_op *kernel, sn_value *value) {
    int n = 0;
    const int64_t *inplace = kernel->kind == SN_OP_KERNEL ? sn_op_ints(kernel, "inplace", &n) : NULL;
    for (int i = 0; i < n; i++)
        if (inplace[i] >= 0 && sn_owner_of(kernel->operands[inplace[i]]) == sn_owner_of(value)) return true;
    return false;
}

// Whether an operand of `op` changes before `reader` is done: `op` may have been the last to read it.
static bool is_overwritten(const sn_op *op, sn_value *operand, const sn_op *reader) {
    for (; op != reader; op = op->next)
        if (overwrites(op->next, operand)) return true;
    return false;
}

static bool is_returned(const sn_func *func, const sn_value *value) {
    for (size_t i = 0; i < func->results.count; i++)
        if (func->results.data[i] == value) return true;
    return false;
}

// Whether the value is a product that may move to `kernel`, if its only reader does.
static bool is_product(const sn_value *value, const sn_op *kernel) {
    if (value->kind != SN_VALUE_RESULT || value->uses.count != 1) return false;
    const sn_op *product = value->def;
    if (product->kind != SN_OP_MATMUL || !sn_library_runs(product) || is_returned(kernel->func, value)) return false;
    sn_type a = product->operands[0]->type, b = product->operands[1]->type;
    bool smaller = sn_type_bytes(a) + sn_type_bytes(b) <= sn_type_bytes(value->type);
    bool plain =
        is_matrix(a) && is_matrix(b) && sn_op_int(product, "transpose_a") && !sn_op_int(product, "transpose_b");
    if (!plain || !smaller || !sn_product_strip(matrix_of(b).dim[1])) return false;
    if (!is_dense(product->operands[0]) || !is_dense(product->operands[1])) return false;
    return !is_overwritten(product, product->operands[0], kernel); // the other is copied where the product was
}

// Whether all that the kernel reads beside the product is there when `reader` runs.
static bool may_move(const sn_op *between, int at, const sn_op *reader) {
    for (int i = 0; i < between->n_operands; i++) {
        if (i == at) continue;
        if (!is_dense(between->operands[i]) || is_overwritten(between, between->operands[i], reader)) return false;
    }
    return true;
}

// How operand `at` of the kernel comes about, if that may move into it.
static bool find_gradient(const sn_op *kernel, int at, gradient *out) {
    sn_value *value = kernel->operands[at];
    if (is_product(value, kernel)) {
        *out = (gradient){.product = value->def};
        return true;
    }
    if (value->kind != SN_VALUE_RESULT || value->uses.count != 1 || is_returned(kernel->func, value)) return false;
    sn_op *between = value->def;
    if (between->kind != SN_OP_KERNEL || between->n_results != 1) return false;
    for (int i = 0; i < between->n_operands; i++) {
        if (!is_product(between->operands[i], kernel) || !may_move(between, i, kernel)) continue;
        *out = (gradient){.product = between->operands[i]->def, .between = between, .at = i};
        return true;
    }
    return false;
}

// Whether the kernel writes over two arrays of the gradient's size or more, and not over the gradient.
static bool updates_much(const sn_op *kernel, int at) {
    int n, over = 0;
    const int64_t *inplace = sn_op_ints(kernel, "inplace", &n);
    for (int i = 0; i < n; i++) {
        if (inplace[i] == at) return false;
        over += inplace[i] >= 0 && sn_type_equal(kernel->results[i]->type, kernel->operands[at]->type);
    }
    return over >= 2;
}

// The operand without leading ones.
static sn_value *as_matrix(fusion *f, sn_op *product, int operand) {
    sn_value *x = product->operands[operand];
    if (x->type.rank == 2) return x;
    sn_type type = matrix_of(x->type);
    sn_op *made = sn_op_new(product->func, product, SN_OP_RESHAPE, 1, &x, 0, NULL, 1, &type);
    made->phase = product->phase, made->stream = product->stream;
    made->origin = sn_pass_origin(f->module, f->context, product);
    return made->results[0];
}

static sn_value *copy_into_strips(fusion *f, sn_op *product) {
    sn_value *b = as_matrix(f, product, 1);
    int64_t strip = sn_product_strip(b->type.dim[1]), inplace = -1;
    sn_type type = type_of(b->type.dim[1] / strip, b->type.dim[0], strip);
    sn_attr attrs[] = {sn_attr_func("body", body_of_copy(f, b->type, strip)), sn_attr_ints("inplace", &inplace, 1)};
    sn_op *made = sn_op_new(product->func, product, SN_OP_KERNEL, 1, &b, 2, attrs, 1, &type);
    made->phase = product->phase, made->stream = product->stream;
    made->origin = sn_pass_origin(f->module, f->context, product);
    return made->results[0];
}

// The operands of the new kernel, in the order of its body's arguments; returns their number.
static int join_operands(fusion *f, const sn_op *kernel, int at, const gradient *g, sn_value **operands) {
    int n = 0;
    for (int i = 0; i < at; i++) operands[n++] = kernel->operands[i];
    operands[n++] = as_matrix(f, g->product, 0);
    operands[n++] = copy_into_strips(f, g->product);
    for (int i = 0; g->between && i < g->between->n_operands; i++)
        if (i != g->at) operands[n++] = g->between->operands[i];
    for (int i = at + 1; i < kernel->n_operands; i++) operands[n++] = kernel->operands[i];
    return n;
}

static void replace(fusion *f, sn_op *kernel, int at, const gradient *g, sn_func *body) {
    sn_arena *scratch = f->context->scratch;
    int n_inplace, more = g->between ? g->between->n_operands : 1;
    const int64_t *old = sn_op_ints(kernel, "inplace", &n_inplace);
    int64_t *inplace = SN_NEW_N(scratch, int64_t, n_inplace + 1);
    for (int i = 0; i < n_inplace; i++) inplace[i] = old[i] + (old[i] > at ? more : 0);
    sn_value **operands = SN_NEW_N(scratch, sn_value *, kernel->n_operands + more);
    int n = join_operands(f, kernel, at, g, operands);
    sn_type *types = SN_NEW_N(scratch, sn_type, kernel->n_results + 1);
    for (int i = 0; i < kernel->n_results; i++) types[i] = kernel->results[i]->type;
    sn_attr attrs[] = {sn_attr_func("body", body), sn_attr_ints("inplace", inplace, n_inplace)};
    sn_op *made = sn_op_new(kernel->func, kernel, SN_OP_KERNEL, n, operands, 2, attrs, kernel->n_results, types);
    made->phase = kernel->phase, made->origin = kernel->origin, made->stream = kernel->stream;
    for (int i = 0; i < kernel->n_results; i++) {
        made->results[i]->name = kernel->results[i]->name;
        sn_value_replace(kernel->results[i], made->results[i]);
    }
    sn_op_erase(kernel);
    if (g->between) sn_op_erase(g->between);
    sn_op_erase(g->product);
}

static void fuse_kernel(fusion *f, sn_op *kernel) {
    for (int at = 0; at < kernel->n_operands; at++) {
        gradient g;
        if (!updates_much(kernel, at) || !find_gradient(kernel, at, &g)) continue;
        sn_func *body = find_body(f, sn_op_func(kernel, "body"), (size_t)at, &g);
        if (!body) continue;
        replace(f, kernel, at, &g, body);
        return;
    }
}

static bool is_used(const sn_module *module, const sn_func *body) {
    for (size_t i = 0; i < module->funcs.count; i++) SN_FOR_OPS(op, module->funcs.data[i])
    if (op->kind == SN_OP_KERNEL && sn_op_func(op, "body") == body) return true;
    return false;
}

static void run(sn_module *module, sn_pass_context *context) {
    fusion f = {.module = module, .context = context};
    if (context->gpu) return;
    for (size_t i = 0; i < module->funcs.count; i++) {
        sn_func *func = module->funcs.data[i];
        for (sn_op *op = func->is_body ? NULL : func->first, *next; op; op = next) {
            next = op->next;
            if (op->kind == SN_OP_KERNEL && op->phase == SN_PHASE_UPDATE) fuse_kernel(&f, op);
        }
    }
    for (size_t i = f.bodies.count ? module->funcs.count : 0; i-- > 0;) {
        sn_func *func = module->funcs.data[i];
        if (func->is_body && !is_used(module, func)) sn_module_remove_func(module, func);
    }
    sn_map_free(&f.bodies);
}

const sn_pass sn_pass_fuse_products = {
    .name = "fuse-products",
    .summary = "computes a weight's gradient inside the kernel that updates the weight",
    .forms = 1 << SN_FORM_SCHED,
    .result = SN_FORM_SCHED,
    .run = run,
};
