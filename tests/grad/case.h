// A case: an operator on inputs, with whatever attributes its builder gives it. The cases_*.h list those of all
// operators; test_operators.c compares their gradients with central differences, test_compiled.c compiled with
// interpreted. An includer defines `float_type` and `run_cases` before the lists.
#pragma once
#include "base/philox.h"
#include "ir/build.h"

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

static const sn_dtype float_type; // of inputs

static inline sn_type shape(sn_dtype dtype, const char *text) {
    sn_type type = {.dtype = dtype};
    while (*text) {
        type.dim[type.rank++] = strtoll(text, (char **)&text, 10);
        if (*text == ',') text++;
    }
    return type;
}

// Numbers spread over [low, high) and at least a thousandth of the range apart from each other, so that no maximum is
// near a tie: a shuffled grid, jittered.
static inline void draw(double *data, int64_t count, double low, double high, uint64_t seed) {
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

static inline sn_value *stored(sn_builder *b, sn_type type, const void *data) {
    sn_module *module = b->func->module;
    size_t bytes = (size_t)sn_type_bytes(type);
    sn_source source = {.kind = SN_SOURCE_MEMORY, .data = sn_arena_copy(&module->arena, data, bytes ? bytes : 1)};
    return sn_module_add_global(module, "c", type, SN_ROLE_CONSTANT, source)->value;
}

static inline sn_value *numbers(sn_builder *b, sn_type type, const double *data) {
    void *converted = sn_alloc((size_t)sn_type_bytes(type) + 1);
    for (int64_t i = 0; i < sn_type_count(type); i++) sn_store_f64(type.dtype, converted, i, data[i]);
    sn_value *value = stored(b, type, converted);
    sn_free(converted);
    return value;
}

static inline sn_value *random_weights(sn_builder *b, sn_type type, uint64_t seed) {
    double *data = sn_alloc(sizeof *data * (size_t)(sn_type_count(type) + 1));
    draw(data, sn_type_count(type), -1, 1, seed);
    sn_value *value = numbers(b, sn_type_with_dtype(type, float_type), data);
    sn_free(data);
    return value;
}

// Indices in [-n, n) or [0, n), all different along the way where `distinct`.
static inline sn_value *indices(sn_builder *b, const char *dims, int64_t n, bool negative) {
    sn_type type = shape(SN_I64, dims);
    int64_t *data = sn_alloc(sizeof *data * (size_t)(sn_type_count(type) + 1));
    for (int64_t i = 0; i < sn_type_count(type); i++)
        data[i] = (int64_t)(sn_random_uniform(11, 3, 0, (uint64_t)i) * (float)n) - (negative && i % 2 ? n : 0);
    sn_value *value = stored(b, type, data);
    sn_free(data);
    return value;
}

// sum over all outputs of output * weights: every element of every output counts differently.
static inline sn_value *weighted_sum(sn_builder *b, sn_value *const *out, int n) {
    sn_value *loss = NULL;
    int64_t axes[SN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int i = 0; i < n; i++) {
        sn_value *weights = random_weights(b, out[i]->type, 77 + (uint64_t)i);
        sn_value *product = sn_build_binary(b, SN_OP_MUL, sn_build_cast(b, out[i], float_type), weights);
        sn_value *sum = sn_build_reduce(b, SN_OP_REDUCE_SUM, product, product->type.rank, axes, false);
        loss = loss ? sn_build_binary(b, SN_OP_ADD, loss, sum) : sum;
    }
    return loss;
}

// The arguments of a function for the case's inputs; returns how many.
static inline int add_inputs(sn_func *func, const grad_case *c, sn_value **x) {
    static const char *const names[MOST_INPUTS] = {"x", "y", "z", "u", "v"};
    int n = 0;
    for (; n < MOST_INPUTS && c->shapes[n]; n++)
        x[n] = sn_func_add_arg(func, names[n], shape(float_type, c->shapes[n]));
    return n;
}

static inline void draw_input(const grad_case *c, int input, double *data, int64_t count) {
    bool is_default = c->low == 0 && c->high == 0;
    draw(data, count, is_default ? -1.5 : c->low, is_default ? 1.5 : c->high, (uint64_t)input + 5);
}

static inline int one(sn_value **out, sn_value *y) {
    out[0] = y;
    return 1;
}
