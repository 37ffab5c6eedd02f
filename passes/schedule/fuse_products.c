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

// The factors of the product as arguments of the body: b in strips.
static void add_factors(sn_func *body, const sn_op *product, sn_value *factors[2]) {
    sn_type b = product->operands[1]->type;
    int64_t strip = sn_product_strip(b.dim[1]), strips = b.dim[1] / strip;
    sn_attr perm = swap_leading();
    factors[0] = add_argument(body, product->operands[0]->type);
    sn_value *x = add_argument(body, type_of(strips, b.dim[0], strip));
    x = add_op(body, SN_OP_TRANSPOSE, x, &perm, type_of(b.dim[0], strips, strip));
    factors[1] = add_op(body, SN_OP_RESHAPE, x, NULL, b);
}

// A copy of `old` in which the product of two arguments takes the place of argument `at`.
static sn_func *body_with_product(fusion *f, sn_func *old, size_t at, const sn_op *product) {
    sn_func *body = new_body(f->module, "matmul", strncmp(old->name, "k_", 2) == 0 ? old->name + 2 : old->name);
    sn_value **copy = SN_NEW_N(f->context->scratch, sn_value *, old->args.count + 2 * old->n_ops + 64);
    uint32_t n = 0;
    sn_value *factors[2] = {NULL, NULL};
    for (size_t i = 0; i < old->args.count; i++) {
        old->args.data[i]->id = n++;
        if (i == at) {
            add_factors(body, product, factors);
        } else {
            copy[n - 1] = add_argument(body, old->args.data[i]->type);
        }
    }
    sn_type type = product->results[0]->type;
    sn_op *made = sn_op_new(body, NULL, SN_OP_MATMUL, 2, factors, product->n_attrs, product->attrs, 1, &type);
    made->phase = product->phase;
    copy[at] = made->results[0];
    SN_FOR_OPS(op, old) {
        sn_value **operands = SN_NEW_N(f->context->scratch, sn_value *, op->n_operands + 1);
        for (int i = 0; i < op->n_operands; i++) operands[i] = copy[op->operands[i]->id];
        sn_type result = op->results[0]->type;
        made = sn_op_new(body, NULL, op->kind, op->n_operands, operands, op->n_attrs, op->attrs, 1, &result);
        made->phase = op->phase;
        op->results[0]->id = n++;
        copy[n - 1] = made->results[0];
    }
    for (size_t i = 0; i < old->results.count; i++) sn_func_add_result(body, copy[old->results.data[i]->id], "");
    return body;
}

static bool has_single_results(const sn_func *body) {
    SN_FOR_OPS(op, body) if (op->n_results != 1) return false;
    return true;
}

// NULL when the two do not go together.
static sn_func *find_body(fusion *f, sn_func *old, size_t at, const sn_op *product) {
    sn_str key = {0};
    sn_str_printf(&key, "%s %zu %lld", old->name, at, (long long)product->operands[0]->type.dim[0]);
    sn_func *known = sn_map_get(&f->bodies, sn_str_text(&key));
    if (!known) {
        sn_product fits;
        known = has_single_results(old) ? body_with_product(f, old, at, product) : old;
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

// Whether a kernel between the product and its reader writes over an operand of the product, whose last reader the
// product was.
static bool is_overwritten(const sn_op *product, const sn_op *reader) {
    for (const sn_op *op = product->next; op != reader; op = op->next) {
        int n = 0;
        const int64_t *inplace = op->kind == SN_OP_KERNEL ? sn_op_ints(op, "inplace", &n) : NULL;
        for (int i = 0; i < n; i++)
            for (int x = 0; inplace[i] >= 0 && x < 2; x++)
                if (sn_owner_of(op->operands[inplace[i]]) == sn_owner_of(product->operands[x])) return true;
    }
    return false;
}

static bool is_returned(const sn_func *func, const sn_value *value) {
    for (size_t i = 0; i < func->results.count; i++)
        if (func->results.data[i] == value) return true;
    return false;
}

// The product behind operand `at` of the kernel, if it may move there.
static sn_op *product_of(const sn_op *kernel, int at) {
    sn_value *gradient = kernel->operands[at];
    if (gradient->kind != SN_VALUE_RESULT || gradient->uses.count != 1) return NULL;
    sn_op *product = gradient->def;
    if (product->kind != SN_OP_MATMUL || !sn_library_runs(product) || is_returned(kernel->func, gradient)) return NULL;
    sn_type a = product->operands[0]->type, b = product->operands[1]->type;
    bool smaller = sn_type_bytes(a) + sn_type_bytes(b) <= sn_type_bytes(gradient->type);
    bool plain = a.rank == 2 && b.rank == 2 && sn_op_int(product, "transpose_a") && !sn_op_int(product, "transpose_b");
    if (!plain || !smaller || !sn_product_strip(b.dim[1])) return NULL;
    bool readable = is_dense(product->operands[0]) && is_dense(product->operands[1]);
    return readable && !is_overwritten(product, kernel) ? product : NULL;
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

static sn_value *copy_into_strips(fusion *f, sn_op *product) {
    sn_value *b = product->operands[1];
    int64_t strip = sn_product_strip(b->type.dim[1]), inplace = -1;
    sn_type type = type_of(b->type.dim[1] / strip, b->type.dim[0], strip);
    sn_attr attrs[] = {sn_attr_func("body", body_of_copy(f, b->type, strip)), sn_attr_ints("inplace", &inplace, 1)};
    sn_op *made = sn_op_new(product->func, product, SN_OP_KERNEL, 1, &b, 2, attrs, 1, &type);
    made->phase = product->phase, made->stream = product->stream;
    made->origin = sn_pass_origin(f->module, f->context, product);
    return made->results[0];
}

static void replace(fusion *f, sn_op *kernel, int at, sn_op *product, sn_func *body) {
    sn_arena *scratch = f->context->scratch;
    int n_inplace, n = kernel->n_operands + 1;
    const int64_t *old = sn_op_ints(kernel, "inplace", &n_inplace);
    int64_t *inplace = SN_NEW_N(scratch, int64_t, n_inplace + 1);
    for (int i = 0; i < n_inplace; i++) inplace[i] = old[i] + (old[i] > at);
    sn_value **operands = SN_NEW_N(scratch, sn_value *, n);
    for (int i = 0; i < kernel->n_operands; i++) operands[i + (i > at)] = kernel->operands[i];
    operands[at] = product->operands[0], operands[at + 1] = copy_into_strips(f, product);
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
    sn_op_erase(product);
}

static void fuse_kernel(fusion *f, sn_op *kernel) {
    for (int at = 0; at < kernel->n_operands; at++) {
        sn_op *product = product_of(kernel, at);
        if (!product || !updates_much(kernel, at)) continue;
        sn_func *body = find_body(f, sn_op_func(kernel, "body"), (size_t)at, product);
        if (!body) continue;
        replace(f, kernel, at, product, body);
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
