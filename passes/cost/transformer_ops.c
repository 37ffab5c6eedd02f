// A block is traced once, op by op, with the local shapes of one rank and one micro-batch, in three parts: what runs
// forwards, the attention core (what selective rematerialisation repeats; Korthikanti et al. 2023) and what runs
// backwards. Backwards, a product is two: one for its input and one for its weight. Under tensor parallelism the block
// has one pair of collectives after attention and one after the feed-forward part (Shoeybi et al. 2019), all-reduces,
// or gathers and reduce-scatters when the sequence is cut too.
#include "passes/cost/transformer_ops.h"

#include "ir/build.h"

#include <math.h>
#include <string.h>

typedef enum part { FORWARD, CORE, BACKWARD, PART_COUNT } part;

typedef struct trace {
    const sn_cost_model *model;
    const sn_transformer *shape;
    const sn_degrees *degrees;
    const sn_runtime *runtime;
    const sn_group *tensor, *context, *expert;
    sn_arena *scratch;
    sn_module *module;
    sn_builder b;
    SN_VEC(const sn_op *) ops[PART_COUNT];
    double moves[PART_COUNT];        // seconds of collectives
    double hidden_moves[PART_COUNT]; // of them, behind products
    double launches[PART_COUNT];
    double saved, saved_core; // bytes that the backward pass needs
    double transient;         // bytes alive beside what is saved, at the most, backwards
    double weights;           // elements of the weights of products
    double results, attended; // bytes that products give, and attention
    double parameters, expert_parameters;
    double sequence;            // the block's own: an encoder may have another
    double tokens, thin_tokens; // of a micro-batch on this rank; where the sequence is cut too
    int bodies;
} trace;

static sn_dtype product_dtype(const trace *t) {
    return t->runtime->eight_bit ? SN_I8 : t->runtime->dtype;
}

static double width(const trace *t) {
    return (double)sn_dtype_bytes(t->runtime->dtype);
}

static int64_t whole(double n) {
    return n < 1 ? 1 : (int64_t)llround(n);
}

static sn_value *value(trace *t, sn_dtype dtype, int rank, const int64_t *dims) {
    return sn_func_add_arg(t->b.func, "x", sn_type_make(dtype, rank, dims));
}

static void keep(trace *t, part part, const sn_op *op) {
    sn_vec_push(&t->ops[part], op);
    t->launches[part] += 1;
}

static void matrices(trace *t, part part, sn_dtype dtype, double batch, double m, double n, double k) {
    int64_t left[] = {whole(batch), whole(m), whole(k)}, right[] = {whole(batch), whole(k), whole(n)};
    sn_value *a = value(t, dtype, 3, left), *b = value(t, dtype, 3, right);
    keep(t, part, sn_build_matmul(&t->b, a, b, false, false)->def);
}

// A kernel that reads and writes so many tensors of `count` elements.
static void pointwise(trace *t, part part, double count, int reads, int writes, sn_dtype dtype, sn_op_kind does) {
    int64_t n = whole(count);
    sn_type type = sn_type_make(dtype, 1, &n), types[8];
    sn_value *operands[8];
    for (int i = 0; i < reads; i++) operands[i] = value(t, dtype, 1, &n);
    for (int i = 0; i < writes; i++) types[i] = type;
    sn_func *body = sn_module_add_func(t->module, sn_arena_printf(t->scratch, "body%d", t->bodies++));
    body->is_body = true;
    sn_builder inside = {.func = body};
    sn_build_unary(&inside, does, sn_func_add_arg(body, "x", type));
    int64_t inplace[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    sn_attr attrs[] = {sn_attr_func("body", body), sn_attr_ints("inplace", inplace, writes)};
    keep(t, part, sn_op_new(t->b.func, NULL, SN_OP_KERNEL, reads, operands, 2, attrs, writes, types));
}

static void stream(trace *t, part part, double count, int reads, int writes) {
    pointwise(t, part, count, reads, writes, t->runtime->dtype, SN_OP_NEG);
}

static void norm(trace *t, double tokens) {
    int64_t dims[] = {whole(tokens), t->shape->hidden}, scale[] = {t->shape->hidden};
    sn_value *operands[] = {value(t, t->runtime->dtype, 2, dims), value(t, t->runtime->dtype, 1, scale)};
    sn_attr axis = sn_attr_int("axis", 1);
    sn_op_kind kind = t->shape->rms_norm ? SN_OP_RMS_NORM : SN_OP_LAYER_NORM;
    keep(t, FORWARD, sn_build(&t->b, kind, 2, operands, 1, &axis, NULL));
    stream(t, BACKWARD, tokens * (double)t->shape->hidden, 2, 1); // gradient and input to gradient
    stream(t, BACKWARD, tokens * (double)t->shape->hidden, 2, 0); // of the scale and the bias
    t->saved += width(t) * tokens * (double)t->shape->hidden;
    t->parameters += (double)t->shape->hidden * (t->shape->rms_norm ? 1 : 2);
}

// y = x w [+ b]: `input`, `output` local widths; the input is saved unless the caller says it is already.
static void linear(trace *t, double tokens, double input, double output, bool biased, bool save) {
    sn_dtype dtype = product_dtype(t);
    matrices(t, FORWARD, dtype, 1, tokens, output, input);
    matrices(t, BACKWARD, dtype, 1, tokens, input, output);
    matrices(t, BACKWARD, dtype, 1, input, output, tokens);
    if (t->runtime->eight_bit) { // conversions, and transposed copies for the backward products
        stream(t, FORWARD, tokens * input, 1, 1);
        stream(t, BACKWARD, tokens * output, 1, 1);
    }
    if (biased) pointwise(t, BACKWARD, tokens * output, 1, 0, t->runtime->dtype, SN_OP_NEG);
    // The weight's gradient is added to what earlier micro-batches left.
    if (t->degrees->microbatches > 1 || t->runtime->gradient_bytes > width(t))
        pointwise(t, BACKWARD, input * output * t->runtime->gradient_bytes / 4, 2, 1, SN_F32, SN_OP_NEG);
    if (save) t->saved += tokens * input * (t->runtime->eight_bit ? 1 : width(t));
    t->parameters += input * output + (biased ? output : 0);
    t->transient = fmax(t->transient, width(t) * tokens * (input + output));
    t->weights += input * output;
    t->results += width(t) * tokens * output;
}

static void move(trace *t, part part, sn_op_kind kind, double bytes, const sn_group *group, bool overlaps) {
    double seconds = sn_cost_collective(t->model, kind, bytes, group);
    if (seconds <= 0) return;
    t->launches[part] += 1;
    t->moves[part] += seconds;
    if (overlaps) t->hidden_moves[part] += seconds * (1 - 1 / (double)group->ranks);
}

// Around the tensor-parallel products: in front of the first, behind the last.
static void tensor_moves(trace *t, bool behind) {
    double bytes = width(t) * t->tokens * (double)t->shape->hidden;
    bool overlaps = t->runtime->overlap_tensor;
    part all = behind ? FORWARD : BACKWARD;
    if (!t->degrees->sequence) {
        move(t, all, SN_OP_ALL_REDUCE, bytes, t->tensor, overlaps);
        return;
    }
    move(t, FORWARD, behind ? SN_OP_REDUCE_SCATTER : SN_OP_ALL_GATHER, bytes, t->tensor, overlaps);
    move(t, BACKWARD, behind ? SN_OP_ALL_GATHER : SN_OP_REDUCE_SCATTER, bytes, t->tensor, overlaps);
    if (!behind) move(t, BACKWARD, SN_OP_ALL_GATHER, bytes, t->tensor, overlaps); // the input again, for the weight
}

// The attention core of one rank: `keys` positions of each sample, whose tokens may be an encoder's.
typedef struct core {
    double heads, kv_heads, head, value_head, keys;
    bool causal;
} core;

static void fused_attention(trace *t, const core *c) {
    double cp = (double)t->degrees->context, samples = t->tokens * cp / t->sequence;
    int64_t batch = whole(samples), queries = whole(t->sequence / cp), keys = whole(c->keys);
    // Causal work is spread evenly over context-parallel ranks: each has 1/cp of the queries, all the keys.
    int64_t q[] = {batch, whole(c->heads), queries, whole(c->head)},
            k[] = {batch, whole(c->kv_heads), keys, whole(c->head)};
    int64_t v[] = {batch, whole(c->kv_heads), keys, whole(c->value_head)};
    sn_value *operands[6] = {value(t, t->runtime->dtype, 4, q), value(t, t->runtime->dtype, 4, k),
                             value(t, t->runtime->dtype, 4, v)};
    sn_attr attrs[] = {sn_attr_float("scale", 1), sn_attr_int("causal", c->causal)};
    sn_op *forward = sn_build(&t->b, SN_OP_ATTENTION, 3, operands, 2, attrs, NULL);
    keep(t, CORE, forward);
    operands[3] = forward->results[0];
    operands[4] = forward->results[1];
    operands[5] = forward->results[0];
    keep(t, BACKWARD, sn_build(&t->b, SN_OP_ATTENTION_GRAD, 6, operands, 2, attrs, NULL));
    double bytes = width(t) * samples * c->keys * c->kv_heads * (c->head + c->value_head);
    for (int half = 0; half < 2 && cp > 1; half++) { // rings; backwards the gradients travel too
        move(t, CORE, SN_OP_ALL_GATHER, half ? 0 : bytes, t->context, true);
        move(t, BACKWARD, half ? SN_OP_REDUCE_SCATTER : SN_OP_ALL_GATHER, bytes, t->context, true);
    }
    t->saved += 4 * t->tokens * c->heads; // log-sum-exp
}

static void plain_attention(trace *t, const core *c) {
    double queries = t->sequence, keys = c->keys, batch = t->tokens / queries * c->heads;
    double scores = batch * queries * keys;
    sn_dtype dtype = t->runtime->dtype;
    matrices(t, CORE, dtype, batch, queries, keys, c->head);
    pointwise(t, CORE, scores, 1, 1, dtype, SN_OP_SIGMOID); // scale, mask, softmax
    if (t->shape->dropout)
        pointwise(t, CORE, scores, 1, 1, dtype, SN_OP_NEG), pointwise(t, CORE, scores, 0, 1, SN_U8, SN_OP_NEG);
    matrices(t, CORE, dtype, batch, queries, c->value_head, keys);
    matrices(t, BACKWARD, dtype, batch, queries, keys, c->value_head);
    matrices(t, BACKWARD, dtype, batch, keys, c->value_head, queries);
    if (t->shape->dropout)
        pointwise(t, BACKWARD, scores, 1, 1, dtype, SN_OP_NEG), pointwise(t, BACKWARD, scores, 1, 0, SN_U8, SN_OP_NEG);
    pointwise(t, BACKWARD, scores, 2, 1, dtype, SN_OP_NEG);
    matrices(t, BACKWARD, dtype, batch, queries, c->head, keys);
    matrices(t, BACKWARD, dtype, batch, keys, c->head, queries);
    double softmax = t->runtime->softmax_bytes > 0 ? t->runtime->softmax_bytes : width(t);
    t->saved_core += scores * (softmax + (t->shape->dropout ? width(t) + 1 : 0));
    t->transient = fmax(t->transient, 2 * scores * width(t));
}

// Down to a rank and up again (DeepSeek-V2): the products that make queries, keys and values.
static void latent_projections(trace *t, double heads) {
    const sn_transformer *s = t->shape;
    double hidden = (double)s->hidden, query = (double)s->query_rank, kv = (double)s->kv_rank, rope = (double)s->rope;
    double head = (double)s->head, value_head = (double)s->value_head;
    linear(t, t->tokens, hidden, query > 0 ? query : heads * head, false, true);
    if (query > 0) linear(t, t->tokens, query, heads * head, false, true);
    linear(t, t->tokens, hidden, kv + rope, false, false);
    linear(t, t->tokens, kv, heads * (head - rope + value_head), false, true);
    stream(t, FORWARD, t->tokens * heads * head, 2, 2); // rotary parts joined to queries and keys
    stream(t, BACKWARD, t->tokens * heads * head, 2, 2);
}

// Queries, keys and values by one product; of a decoder that reads an encoder's result by two.
static void projections(trace *t, const core *c, bool cross) {
    const sn_transformer *s = t->shape;
    double hidden = (double)s->hidden, others = t->tokens / t->sequence * c->keys;
    if (cross) {
        linear(t, t->tokens, hidden, c->heads * c->head, s->biased, false);
        linear(t, others, hidden, 2 * c->kv_heads * c->head, s->biased, false); // the encoder's result is saved once
    } else {
        linear(t, t->tokens, hidden, (c->heads + 2 * c->kv_heads) * c->head, s->biased, false);
    }
    t->saved += width(t) * hidden * (t->degrees->sequence ? t->thin_tokens : t->tokens);
    if (s->biased) stream(t, FORWARD, (t->tokens * c->heads + others * 2 * c->kv_heads) * c->head, 1, 1);
}

// Rotary positions and normalised heads.
static void turn_heads(trace *t, const core *c) {
    const sn_transformer *s = t->shape;
    double count = t->tokens * (c->heads + c->kv_heads) * c->head;
    if (!s->positions) {
        stream(t, FORWARD, count, 1, 1);
        stream(t, BACKWARD, count, 1, 1);
        // Values are a part of the product's result, which stays beside the turned queries and keys.
        if (!s->kv_rank) t->saved += width(t) * count;
    }
    if (s->norm_heads) {
        stream(t, FORWARD, count, 1, 1);
        stream(t, BACKWARD, count, 2, 1);
        t->saved += width(t) * count;
    }
}

static void attention(trace *t, bool causal, bool cross) {
    const sn_transformer *s = t->shape;
    double tp = (double)t->degrees->tensor, hidden = (double)s->hidden;
    core c = {.heads = (double)s->heads / tp, .head = (double)s->head, .causal = causal};
    c.kv_heads = s->kv_rank ? c.heads : fmax(1, (double)s->kv_heads / tp);
    c.value_head = s->value_head ? (double)s->value_head : c.head;
    c.keys = cross ? (double)s->encoder_sequence : t->sequence;
    norm(t, t->thin_tokens);
    tensor_moves(t, false);
    if (s->kv_rank)
        latent_projections(t, c.heads);
    else
        projections(t, &c, cross);
    turn_heads(t, &c);
    double others = t->tokens / t->sequence * c.keys;
    t->attended += width(t) * t->tokens * c.heads * c.value_head;
    t->saved += width(t) * (t->tokens * c.heads * c.head + others * c.kv_heads * (c.head + c.value_head));
    if (t->runtime->attention != SN_ATTENTION_PLAIN) {
        fused_attention(t, &c);
    } else {
        plain_attention(t, &c);
        stream(t, FORWARD, t->tokens * c.heads * c.value_head, 1, 1); // heads back side by side
        stream(t, BACKWARD, t->tokens * c.heads * c.value_head, 3, 3);
    }
    linear(t, t->tokens, c.heads * c.value_head, hidden, s->biased, true);
    tensor_moves(t, true);
}

// What joins a part of the block to its input: bias, dropout and sum in one kernel.
static void join(trace *t) {
    double count = t->thin_tokens * (double)t->shape->hidden;
    stream(t, FORWARD, count, 2, 1);
    if (!t->shape->dropout) return;
    stream(t, BACKWARD, count, 1, 1);
    t->saved += count;
}

static void activation(trace *t, double tokens, double ffn) {
    int inputs = t->shape->gated ? 2 : 1;
    pointwise(t, FORWARD, tokens * ffn, inputs, 1, t->runtime->dtype, SN_OP_GELU_TANH);
    pointwise(t, BACKWARD, tokens * ffn, inputs + 1, inputs, t->runtime->dtype, SN_OP_GELU_TANH);
    t->saved += width(t) * tokens * ffn * inputs;
}

static void feed_forward(trace *t, double ffn) {
    double hidden = (double)t->shape->hidden, local = ffn / (double)t->degrees->tensor;
    linear(t, t->tokens, hidden, local * (t->shape->gated ? 2 : 1), t->shape->biased, false);
    activation(t, t->tokens, local);
    linear(t, t->tokens, local, hidden, t->shape->biased, true);
}

// Tokens go to the ranks of their experts and back; each expert computes on what it got, evenly spread.
static void mixture(trace *t) {
    const sn_transformer *s = t->shape;
    double hidden = (double)s->hidden, ep = (double)t->degrees->expert, experts = (double)s->experts / ep;
    double etp = (double)(t->degrees->expert_tensor ? t->degrees->expert_tensor : t->degrees->tensor);
    double tokens = t->thin_tokens, routed = tokens * (double)s->top_k * etp, ffn = (double)s->expert_ffn / etp;
    double bytes = width(t) * tokens * (double)s->top_k * hidden;
    linear(t, tokens, hidden, (double)s->experts, false, false);
    stream(t, FORWARD, routed * hidden, 1, 1);
    stream(t, BACKWARD, routed * hidden, 1, 1);
    if (t->runtime->gather_tokens) {
        double all = width(t) * tokens * hidden * ep;
        move(t, FORWARD, SN_OP_ALL_GATHER, all, t->expert, false);
        move(t, FORWARD, SN_OP_REDUCE_SCATTER, all, t->expert, false);
        move(t, BACKWARD, SN_OP_ALL_GATHER, all, t->expert, false);
        move(t, BACKWARD, SN_OP_REDUCE_SCATTER, all, t->expert, false);
        t->saved += all * etp;
    }
    for (int way = 0; way < 2 && !t->runtime->gather_tokens; way++) {
        move(t, FORWARD, SN_OP_ALL_TO_ALL, bytes, t->expert, false);
        move(t, BACKWARD, SN_OP_ALL_TO_ALL, bytes, t->expert, false);
    }
    double rows = fmax(1, routed / experts), first = ffn * (s->gated ? 2 : 1);
    sn_dtype dtype = product_dtype(t);
    matrices(t, FORWARD, dtype, experts, rows, first, hidden);
    activation(t, routed, ffn);
    matrices(t, FORWARD, dtype, experts, rows, hidden, ffn);
    matrices(t, BACKWARD, dtype, experts, rows, hidden, first);
    matrices(t, BACKWARD, dtype, experts, hidden, first, rows);
    matrices(t, BACKWARD, dtype, experts, rows, ffn, hidden);
    matrices(t, BACKWARD, dtype, experts, ffn, hidden, rows);
    pointwise(t, BACKWARD, experts * (hidden * first + ffn * hidden) * t->runtime->gradient_bytes / 4, 2, 1, SN_F32,
              SN_OP_NEG);
    stream(t, FORWARD, routed * hidden, 1, 1);
    stream(t, BACKWARD, routed * hidden, 1, 1);
    t->expert_parameters += experts * (hidden * first + ffn * hidden);
    t->saved += width(t) * routed * (2 * hidden + ffn); // what experts read, what they gave, their inner input
}

// `cross`: a decoder's block, with a second attention that reads what the encoder gave.
static void block(trace *t, bool dense, bool causal, bool cross) {
    const sn_transformer *s = t->shape;
    attention(t, causal, false);
    join(t);
    if (cross) {
        t->saved += width(t) * (double)s->hidden * t->thin_tokens;
        attention(t, false, true);
        join(t);
    }
    norm(t, t->thin_tokens);
    t->saved += width(t) * (double)s->hidden * (t->degrees->sequence ? t->thin_tokens : t->tokens);
    if (dense || s->shared_ffn) tensor_moves(t, false);
    if (dense)
        feed_forward(t, (double)s->ffn);
    else {
        if (s->shared_ffn) feed_forward(t, (double)s->shared_ffn);
        mixture(t);
    }
    if (dense || s->shared_ffn) tensor_moves(t, true);
    join(t);
}

static void embedding(trace *t) {
    double hidden = (double)t->shape->hidden, rows = (double)t->shape->vocab / (double)t->degrees->tensor;
    stream(t, FORWARD, t->tokens * hidden, 1, 1);
    if (t->shape->dropout || t->shape->positions) stream(t, FORWARD, t->thin_tokens * hidden, 2, 1);
    stream(t, BACKWARD, t->tokens * hidden, 2, 1);
    stream(t, BACKWARD, rows * hidden, 1, 2); // a gradient as large as the table, summed to the kept one
    tensor_moves(t, true);
    double places = fmax((double)t->shape->sequence, (double)t->shape->encoder_sequence);
    t->parameters += rows * hidden + (t->shape->positions ? places * hidden : 0);
    if (t->shape->dropout) t->saved += t->thin_tokens * hidden;
}

static void head(trace *t) {
    double hidden = (double)t->shape->hidden, columns = (double)t->shape->vocab / (double)t->degrees->tensor;
    double tokens = t->tokens * (t->shape->labelled > 0 ? t->shape->labelled : 1), logits = tokens * columns;
    norm(t, t->thin_tokens);
    tensor_moves(t, false);
    sn_runtime exact = *t->runtime;
    exact.eight_bit = false;
    const sn_runtime *runtime = t->runtime;
    t->runtime = &exact;
    linear(t, tokens, hidden, columns, false, true);
    t->runtime = runtime;
    if (t->shape->tied && t->degrees->pipeline == 1) t->parameters -= hidden * columns;
    bool fused = t->runtime->loss_bytes == 0;
    int passes = fused ? 1 : 3; // conversion, largest, exponentials with their sum
    pointwise(t, FORWARD, logits, passes, passes - 1, SN_F32, SN_OP_EXP);
    pointwise(t, BACKWARD, logits, 1, 1, SN_F32, SN_OP_NEG);
    if (!fused) stream(t, BACKWARD, logits, 2, 1);
    for (int i = 0; i < 3; i++) move(t, FORWARD, SN_OP_ALL_REDUCE, 4 * tokens, t->tensor, false);
    // The loss needs the logits, and in f32 unless it is fused; later their gradient beside the weight's.
    double loss = logits * (width(t) + t->runtime->loss_bytes), weight = 0;
    if (t->runtime->placeholders) weight = width(t) * hidden * columns;
    t->transient = fmax(loss, width(t) * logits + weight);
}

static double device_seconds(trace *t, part part) {
    int n = (int)t->ops[part].count;
    double *seconds = SN_NEW_N(t->scratch, double, n + 1), sum = 0;
    sn_cost_ops(t->model, n, t->ops[part].data, seconds, t->scratch);
    double early = t->runtime->attention == SN_ATTENTION_EARLY ? t->model->device->curve->attention_early : 1;
    for (int i = 0; i < n; i++) {
        sn_op_kind kind = t->ops[part].data[i]->kind;
        sum += kind == SN_OP_ATTENTION || kind == SN_OP_ATTENTION_GRAD ? seconds[i] / early : seconds[i];
    }
    return sum;
}

// How many standard deviations the largest of n normal numbers lies above the mean, within 4 % up to 100.
static double slowest_of(double n) {
    return n > 1 ? 0.8 * pow(log(n), 0.8) : 0;
}

// Device and host run beside each other; a part of a block takes the longer. What hides collectives is computation.
static double part_seconds(trace *t, const part *parts, int n) {
    const sn_curve *curve = t->model->device->curve;
    double device = 0, moves = 0, hidden = 0, launches = 0;
    for (int i = 0; i < n; i++) {
        device += device_seconds(t, parts[i]);
        moves += t->moves[parts[i]];
        hidden += t->hidden_moves[parts[i]];
        launches += t->launches[parts[i]];
    }
    double exposed = moves - hidden + fmax(0, hidden - device);
    double host = t->runtime->captured ? 0 : launches * curve->host_issue;
    if (moves > 0) host *= 1 + curve->host_jitter * slowest_of((double)t->tensor->ranks);
    return fmax(device + exposed, host);
}

// Bytes that the backward pass finds.
static double saved_with(const trace *t, sn_remat remat, double boundary) {
    if (remat == SN_REMAT_NONE) return t->saved + t->saved_core;
    if (remat == SN_REMAT_FULL) return boundary;
    return t->runtime->keeps_products ? boundary + t->results / 2 + t->attended : t->saved;
}

// Seconds of the backward pass with what it computes again: everything, the attention core, or all but attention and
// the products that were kept.
static double backward_seconds(trace *t, sn_remat remat, double forward) {
    static const part again[] = {FORWARD}, backward[] = {BACKWARD}, core[] = {CORE, BACKWARD};
    if (remat == SN_REMAT_SELECTIVE && t->runtime->keeps_products)
        return part_seconds(t, backward, 1) + part_seconds(t, again, 1) / 2;
    if (remat == SN_REMAT_SELECTIVE) return part_seconds(t, core, 2);
    return part_seconds(t, backward, 1) + (remat == SN_REMAT_FULL ? forward : 0);
}

static sn_transformer_block finish(trace *t, sn_remat remat) {
    static const part forward[] = {FORWARD, CORE};
    sn_transformer_block c = {.boundary = width(t) * (double)t->shape->hidden * t->thin_tokens,
                              .transient = t->transient,
                              .parameters = t->parameters,
                              .expert_parameters = t->expert_parameters,
                              .weights = t->weights};
    c.forward = part_seconds(t, forward, 2);
    c.backward = backward_seconds(t, remat, c.forward);
    c.saved = saved_with(t, remat, c.boundary);
    c.repeated = t->saved + t->saved_core - (remat == SN_REMAT_FULL ? 0 : fmin(c.saved, t->saved + t->saved_core));
    return c;
}

static void encoder_block(trace *t) {
    block(t, true, false, false);
}

static void dense_block(trace *t) {
    block(t, true, t->shape->causal, t->shape->encoder_layers > 0);
}

static void mixture_block(trace *t) {
    block(t, false, t->shape->causal, t->shape->encoder_layers > 0);
}

// Positions of a sample that a block of the kind works on.
static double positions_of(const sn_transformer *shape, sn_block_kind kind) {
    double encoder = (double)shape->encoder_sequence, own = (double)shape->sequence;
    return kind == SN_BLOCK_ENCODER ? encoder : kind == SN_BLOCK_EMBEDDING ? encoder + own : own;
}

sn_transformer_block sn_transformer_block_of(const sn_transformer_setting *s, sn_block_kind kind) {
    static void (*const build[SN_BLOCK_COUNT])(trace *) = {[SN_BLOCK_EMBEDDING] = embedding,
                                                           [SN_BLOCK_ENCODER] = encoder_block,
                                                           [SN_BLOCK_DENSE] = dense_block,
                                                           [SN_BLOCK_MIXTURE] = mixture_block,
                                                           [SN_BLOCK_HEAD] = head};
    sn_arena scratch = {0};
    trace t = {.model = s->model,
               .shape = s->shape,
               .degrees = s->degrees,
               .runtime = s->runtime,
               .tensor = &s->tensor,
               .context = &s->context,
               .expert = &s->expert,
               .scratch = &scratch,
               .module = sn_module_new("block")};
    t.b.func = sn_module_add_func(t.module, "block");
    t.sequence = positions_of(s->shape, kind);
    t.tokens = (double)s->degrees->micro_batch * t.sequence / (double)s->degrees->context;
    t.thin_tokens = s->degrees->sequence ? t.tokens / (double)s->degrees->tensor : t.tokens;
    build[kind](&t);
    bool repeats = kind == SN_BLOCK_ENCODER || kind == SN_BLOCK_DENSE || kind == SN_BLOCK_MIXTURE;
    sn_transformer_block c = finish(&t, repeats ? s->degrees->remat : SN_REMAT_NONE);
    for (int p = 0; p < PART_COUNT; p++) sn_vec_free(&t.ops[p]);
    sn_module_free(t.module);
    sn_arena_free(&scratch);
    return c;
}
