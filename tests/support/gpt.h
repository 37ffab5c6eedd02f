// A GPT-2-like model in graph form, as the frontend leaves one: @main(ids, labels) -> loss.
#pragma once
#include "base/philox.h"
#include "ir/build.h"

#include <stdio.h>

typedef struct gpt_size {
    int64_t layers, batch, tokens, width, heads, vocabulary;
} gpt_size;

// With small random values, or, when `fill` is set, all the same (for figures of time alone: nothing is allocated).
static inline sn_value *gpt_weight(sn_module *module, const char *name, int rank, int64_t a, int64_t b, double center,
                                   bool fill) {
    sn_type type = sn_type_make(SN_F32, rank, (int64_t[]){a, b});
    sn_source source = {.kind = SN_SOURCE_FILL, .fill = center + 0.01};
    if (!fill) {
        float *data = sn_arena_alloc(&module->arena, (size_t)sn_type_bytes(type));
        uint64_t seed = sn_hash_bytes(name, strlen(name), 0);
        for (int64_t i = 0; i < sn_type_count(type); i++)
            data[i] = (float)center + 0.2f * (sn_random_uniform(seed, 0, 0, (uint64_t)i) - 0.5f);
        source = (sn_source){.kind = SN_SOURCE_MEMORY, .data = data};
    }
    return sn_module_add_global(module, name, type, SN_ROLE_PARAMETER, source)->value;
}

typedef struct gpt {
    sn_builder b;
    gpt_size size;
    int layer;
    bool fill;
} gpt;

static inline sn_value *gpt_parameter(gpt *g, const char *name, int rank, int64_t a, int64_t b, double center) {
    char full[64];
    snprintf(full, sizeof full, "h.%d.%s", g->layer, name);
    return gpt_weight(g->b.func->module, full, rank, a, b, center, g->fill);
}

static inline sn_value *gpt_norm(gpt *g, sn_value *x, const char *name) {
    char scale[32], bias[32];
    snprintf(scale, sizeof scale, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sn_value *in[] = {x, gpt_parameter(g, scale, 1, g->size.width, 0, 1),
                      gpt_parameter(g, bias, 1, g->size.width, 0, 0)};
    sn_attr axis = sn_attr_int("axis", x->type.rank - 1);
    return sn_build(&g->b, SN_OP_LAYER_NORM, 3, in, 1, &axis, NULL)->results[0];
}

static inline sn_value *gpt_linear(gpt *g, sn_value *x, const char *name, int64_t in, int64_t out) {
    char weight[32], bias[32];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sn_value *y = sn_build_matmul(&g->b, x, gpt_parameter(g, weight, 2, in, out, 0), false, false);
    return sn_build_binary(&g->b, SN_OP_ADD, y, gpt_parameter(g, bias, 1, out, 0, 0));
}

// One of q, k, v out of [B,S,3W]: a slice as [B,H,S,D].
static inline sn_value *gpt_heads(gpt *g, sn_value *qkv, int which) {
    gpt_size s = g->size;
    int64_t starts[] = {0, 0, which * s.width}, steps[] = {1, 1, 1}, sizes[] = {s.batch, s.tokens, s.width};
    sn_value *part = sn_build_slice(&g->b, qkv, starts, steps, sizes);
    int64_t split[] = {s.batch, s.tokens, s.heads, s.width / s.heads}, perm[] = {0, 2, 1, 3};
    return sn_build_transpose(&g->b, sn_build_reshape(&g->b, part, 4, split), perm);
}

static inline sn_value *gpt_attention(gpt *g, sn_value *x) {
    gpt_size s = g->size;
    sn_value *qkv = gpt_linear(g, x, "attn.c_attn", s.width, 3 * s.width);
    sn_value *in[] = {gpt_heads(g, qkv, 0), gpt_heads(g, qkv, 1), gpt_heads(g, qkv, 2)};
    sn_attr attrs[] = {sn_attr_float("scale", 1 / sqrt((double)(s.width / s.heads))), sn_attr_int("causal", 1)};
    sn_value *o = sn_build(&g->b, SN_OP_ATTENTION, 3, in, 2, attrs, NULL)->results[0];
    int64_t perm[] = {0, 2, 1, 3}, joined[] = {s.batch, s.tokens, s.width};
    o = sn_build_reshape(&g->b, sn_build_transpose(&g->b, o, perm), 3, joined);
    return gpt_linear(g, o, "attn.c_proj", s.width, s.width);
}

static inline sn_value *gpt_block(gpt *g, sn_value *x) {
    x = sn_build_binary(&g->b, SN_OP_ADD, x, gpt_attention(g, gpt_norm(g, x, "ln_1")));
    sn_value *h = gpt_linear(g, gpt_norm(g, x, "ln_2"), "mlp.c_fc", g->size.width, 4 * g->size.width);
    h = sn_build_unary(&g->b, SN_OP_GELU_TANH, h);
    return sn_build_binary(&g->b, SN_OP_ADD, x, gpt_linear(g, h, "mlp.c_proj", 4 * g->size.width, g->size.width));
}

static inline sn_module *gpt_module(gpt_size size, bool fill) {
    sn_module *module = sn_module_new("gpt");
    gpt g = {.b = {.func = sn_module_add_func(module, "main")}, .size = size, .fill = fill};
    sn_type ids = sn_type_make(SN_I64, 2, (int64_t[]){size.batch, size.tokens});
    sn_value *tokens = sn_func_add_arg(g.b.func, "input_ids", ids), *labels = sn_func_add_arg(g.b.func, "labels", ids);
    sn_value *wte = gpt_weight(module, "wte", 2, size.vocabulary, size.width, 0, fill);
    sn_value *wpe = gpt_weight(module, "wpe", 2, size.tokens, size.width, 0, fill);
    sn_value *x = sn_build_binary(&g.b, SN_OP_ADD, sn_build_gather(&g.b, wte, tokens, 0), wpe);
    for (g.layer = 0; g.layer < size.layers; g.layer++) x = gpt_block(&g, x);
    x = gpt_norm(&g, x, "ln_f");
    sn_value *in[] = {sn_build_matmul(&g.b, x, wte, false, true), labels};
    sn_attr attrs[] = {sn_attr_int("axis", 2), sn_attr_int("ignore_index", -100)};
    sn_value *losses = sn_build(&g.b, SN_OP_CROSS_ENTROPY, 2, in, 2, attrs, NULL)->results[0];
    int64_t axes[] = {0, 1};
    sn_value *sum = sn_build_reduce(&g.b, SN_OP_REDUCE_SUM, losses, 2, axes, false);
    double count = (double)(size.batch * size.tokens);
    sn_func_add_result(g.b.func, sn_build_binary_number(&g.b, SN_OP_MUL, sum, 1 / count), "loss");
    return module;
}
