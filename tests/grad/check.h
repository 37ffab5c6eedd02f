// Compares gradients with central differences in f64, through the reference interpreter.
#pragma once
#include "base/philox.h"
#include "ir/build.h"
#include "ir/interp.h"
#include "ir/verify.h"
#include "passes/autodiff/differentiate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_INPUTS = 5, MOST_OUTPUTS = 3 };

typedef struct grad_case grad_case;
// Builds the operator under test on inputs x; writes the float results that the loss shall read and returns how many.
typedef int build_case(sn_builder *b, sn_value **x, const grad_case *c, sn_value **out);

struct grad_case {
    const char *name;
    build_case *build;
    const char *shapes[MOST_INPUTS]; // "2,3"; "" is a scalar; the first NULL ends the list
    double low, high;                // inputs are drawn from here; 0, 0: (-1.5, 1.5)
    sn_op_kind kind;                 // for builders that serve several operators
    int64_t a[8];                    // whatever the builder makes of it
};

static sn_type shape(sn_dtype dtype, const char *text) {
    sn_type type = {.dtype = dtype};
    while (*text) {
        type.dim[type.rank++] = strtoll(text, (char **)&text, 10);
        if (*text == ',') text++;
    }
    return type;
}

// Numbers spread over [low, high) and at least a thousandth of the range apart from each other, so that no maximum is
// near a tie: a shuffled grid, jittered.
static void draw(double *data, int64_t count, double low, double high, uint64_t seed) {
    for (int64_t i = 0; i < count; i++) {
        double jitter = sn_random_uniform(seed, 1, 0, (uint64_t)i) * 0.5;
        data[i] = low + (high - low) * ((double)i + 0.25 + jitter) / (double)count;
    }
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)(sn_random_uniform(seed, 2, 0, (uint64_t)i) * (float)(i + 1));
        double swap = data[i];
        data[i] = data[j], data[j] = swap;
    }
}

static sn_value *stored(sn_builder *b, sn_type type, const void *data) {
    sn_module *module = b->func->module;
    size_t bytes = (size_t)sn_type_bytes(type);
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = sn_arena_copy(&module->arena, data, bytes ? bytes : 1)};
    return sn_module_add_global(module, "c", type, SN_ROLE_CONSTANT, source)->value;
}

static sn_value *random_weights(sn_builder *b, sn_type type, uint64_t seed) {
    type.dtype = SN_F64;
    double *data = sn_alloc(sizeof *data * (size_t)(sn_type_count(type) + 1));
    draw(data, sn_type_count(type), -1, 1, seed);
    sn_value *value = stored(b, type, data);
    sn_free(data);
    return value;
}

// Indices in [-n, n) or [0, n), all different along the way where `distinct`.
static sn_value *indices(sn_builder *b, const char *dims, int64_t n, bool negative) {
    sn_type type = shape(SN_I64, dims);
    int64_t *data = sn_alloc(sizeof *data * (size_t)(sn_type_count(type) + 1));
    for (int64_t i = 0; i < sn_type_count(type); i++)
        data[i] = (int64_t)(sn_random_uniform(11, 3, 0, (uint64_t)i) * (float)n) - (negative && i % 2 ? n : 0);
    sn_value *value = stored(b, type, data);
    sn_free(data);
    return value;
}

// sum over all outputs of output * weights: every element of every output counts differently.
static sn_value *weighted_sum(sn_builder *b, sn_value *const *out, int n) {
    sn_value *loss = NULL;
    int64_t axes[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int i = 0; i < n; i++) {
        sn_value *weights = random_weights(b, out[i]->type, 77 + (uint64_t)i);
        sn_value *product = sn_build_binary(b, SN_OP_MUL, sn_build_cast(b, out[i], SN_F64), weights);
        sn_value *sum = sn_build_reduce(b, SN_OP_REDUCE_SUM, product, product->type.rank, axes, false);
        loss = loss ? sn_build_binary(b, SN_OP_ADD, loss, sum) : sum;
    }
    return loss;
}

typedef struct graph {
    sn_module *module;
    sn_func *func;      // -> loss, gradients of the inputs
    sn_func *loss_only; // -> loss
    int n;
    sn_tensor x[MOST_INPUTS];
} graph;

static sn_func *build_func(graph *g, const grad_case *c, const char *name, sn_value **loss, sn_value **x) {
    sn_func *func = sn_module_add_func(g->module, name);
    sn_builder b = {.func = func};
    static const char *const names[MOST_INPUTS] = {"x", "y", "z", "u", "v"};
    for (g->n = 0; g->n < MOST_INPUTS && c->shapes[g->n]; g->n++)
        x[g->n] = sn_func_add_arg(func, names[g->n], shape(SN_F64, c->shapes[g->n]));
    sn_value *out[MOST_OUTPUTS];
    int n_out = c->build(&b, x, c, out);
    *loss = weighted_sum(&b, out, n_out);
    sn_func_add_result(func, *loss, "loss");
    return func;
}

static graph build_graph(const grad_case *c) {
    graph g = {.module = sn_module_new("grad")};
    sn_value *loss, *x[MOST_INPUTS], *gradients[MOST_INPUTS];
    g.loss_only = build_func(&g, c, "loss", &loss, x);
    g.func = build_func(&g, c, "gradients", &loss, x);
    sn_builder b = {.func = g.func};
    sn_diags diags = {0};
    assert_true(sn_differentiate(&b, loss, g.n, x, gradients, &diags));
    for (int i = 0; i < g.n; i++) {
        if (!gradients[i]) fail_msg("%s: input %d has no gradient", c->name, i);
        assert_true(sn_type_equal(gradients[i]->type, x[i]->type));
        sn_func_add_result(g.func, gradients[i], "");
        g.x[i] = sn_tensor_new(x[i]->type);
        bool is_default = c->low == 0 && c->high == 0;
        draw(g.x[i].data, sn_type_count(x[i]->type), is_default ? -1.5 : c->low, is_default ? 1.5 : c->high,
             (uint64_t)i + 5);
    }
    sn_str problems = {0};
    if (!sn_verify(g.module, &problems)) fail_msg("%s: %s", c->name, sn_str_text(&problems));
    sn_str_free(&problems);
    sn_diags_free(&diags);
    return g;
}

static double loss_at(sn_interp *interp, const graph *g, const char *name) {
    sn_tensor result;
    const char *problem = sn_interp_run(interp, g->loss_only, g->x, &result);
    if (problem) fail_msg("%s: %s", name, problem);
    double loss = *(double *)result.data;
    sn_tensor_free(&result);
    return loss;
}

// The error of a central difference is about h^2 f''' / 6 + eps |f| / h: 1e-10 and better here.
static void compare(sn_interp *interp, graph *g, int input, const sn_tensor *gradient, const char *name) {
    double *x = g->x[input].data;
    const double *got = gradient->data, h = 1e-5;
    for (int64_t i = 0; i < sn_type_count(gradient->type); i++) {
        double at = x[i];
        x[i] = at + h;
        double above = loss_at(interp, g, name);
        x[i] = at - h;
        double below = loss_at(interp, g, name);
        x[i] = at;
        double wanted = (above - below) / (2 * h);
        if (!(fabs(got[i] - wanted) <= 2e-7 * (1 + fabs(wanted))))
            fail_msg("%s: input %d, element %d: gradient %.12g, central difference %.12g", name, input, (int)i, got[i],
                     wanted);
    }
}

static void check_case(const grad_case *c) {
    graph g = build_graph(c);
    sn_interp *interp = sn_interp_new(g.module);
    sn_tensor results[1 + MOST_INPUTS];
    const char *problem = sn_interp_run(interp, g.func, g.x, results);
    if (problem) fail_msg("%s: %s", c->name, problem);
    for (int i = 0; i < g.n; i++) compare(interp, &g, i, &results[1 + i], c->name);
    for (int i = 0; i <= g.n; i++) sn_tensor_free(&results[i]);
    for (int i = 0; i < g.n; i++) sn_tensor_free(&g.x[i]);
    sn_interp_free(interp);
    sn_module_free(g.module);
}
