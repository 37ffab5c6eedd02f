// A block is traced once, op by op, with the local shapes of one rank and one micro-batch, in three parts: what runs
// forwards, the attention core (what selective rematerialisation repeats; Korthikanti et al. 2023) and what runs
// backwards. Backwards, a product is two: one for its input and one for its weight. Under tensor parallelism the block
// has one pair of collectives after attention and one after the feed-forward part (Shoeybi et al. 2019), all-reduces,
// or gathers and reduce-scatters when the sequence is cut too.
#include "passes/cost/transformer.h"

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
    double largest;           // bytes of the widest value
    double parameters, expert_parameters;
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
    t->largest = fmax(t->largest, width(t) * tokens * fmax(input, output));
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

static void fused_attention(trace *t, double heads, double kv_heads, double head, double value_head) {
    double cp = (double)t->degrees->context, length = (double)t->shape->sequence;
    int64_t batch = whole(t->tokens * cp / length);
    // Causal work is spread evenly over context-parallel ranks: each has 1/cp of the queries, all the keys.
    int64_t q[] = {batch, whole(heads), whole(length / cp), whole(head)},
            k[] = {batch, whole(kv_heads), whole(length), whole(head)};
    int64_t v[] = {batch, whole(kv_heads), whole(length), whole(value_head)};
    sn_value *operands[6] = {value(t, t->runtime->dtype, 4, q), value(t, t->runtime->dtype, 4, k),
                             value(t, t->runtime->dtype, 4, v)};
    sn_attr attrs[] = {sn_attr_float("scale", 1), sn_attr_int("causal", t->shape->causal)};
    sn_op *forward = sn_build(&t->b, SN_OP_ATTENTION, 3, operands, 2, attrs, NULL);
    keep(t, CORE, forward);
    operands[3] = forward->results[0];
    operands[4] = forward->results[1];
    operands[5] = forward->results[0];
    keep(t, BACKWARD, sn_build(&t->b, SN_OP_ATTENTION_GRAD, 6, operands, 2, attrs, NULL));
    double keys = width(t) * t->tokens * kv_heads * (head + value_head); // this rank's part
    for (int half = 0; half < 2 && cp > 1; half++) {                     // rings; backwards the gradients travel too
        move(t, CORE, SN_OP_ALL_GATHER, half ? 0 : keys * cp, t->context, true);
        move(t, BACKWARD, half ? SN_OP_REDUCE_SCATTER : SN_OP_ALL_GATHER, keys * cp, t->context, true);
    }
    t->saved += 4 * t->tokens * heads; // log-sum-exp
}

static void plain_attention(trace *t, double heads, double head) {
    double length = (double)t->shape->sequence, batch = t->tokens / length * heads, scores = batch * length * length;
    sn_dtype dtype = t->runtime->dtype;
    matrices(t, CORE, dtype, batch, length, length, head);
    pointwise(t, CORE, scores, 1, 1, dtype, SN_OP_SIGMOID); // scale, mask, softmax
    if (t->shape->dropout)
        pointwise(t, CORE, scores, 1, 1, dtype, SN_OP_NEG), pointwise(t, CORE, scores, 0, 1, SN_U8, SN_OP_NEG);
    matrices(t, CORE, dtype, batch, length, head, length);
    matrices(t, BACKWARD, dtype, batch, length, length, head);
    matrices(t, BACKWARD, dtype, batch, length, head, length);
    if (t->shape->dropout)
        pointwise(t, BACKWARD, scores, 1, 1, dtype, SN_OP_NEG), pointwise(t, BACKWARD, scores, 1, 0, SN_U8, SN_OP_NEG);
    pointwise(t, BACKWARD, scores, 2, 1, dtype, SN_OP_NEG);
    matrices(t, BACKWARD, dtype, batch, length, head, length);
    matrices(t, BACKWARD, dtype, batch, length, head, length);
    t->saved_core += scores * (width(t) + (t->shape->dropout ? width(t) + 1 : 0));
    t->largest = fmax(t->largest, scores * width(t));
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

static void attention(trace *t) {
    const sn_transformer *s = t->shape;
    double tp = (double)t->degrees->tensor, heads = (double)s->heads / tp, kv_heads = fmax(1, (double)s->kv_heads / tp);
    double head = (double)s->head, value_head = s->value_head ? (double)s->value_head : head,
           hidden = (double)s->hidden;
    norm(t, t->thin_tokens);
    tensor_moves(t, false);
    if (s->kv_rank) {
        latent_projections(t, heads);
    } else {
        linear(t, t->tokens, hidden, (heads + 2 * kv_heads) * head, s->biased, false);
        t->saved += width(t) * hidden * (t->degrees->sequence ? t->thin_tokens : t->tokens);
        if (s->biased) stream(t, FORWARD, t->tokens * (heads + 2 * kv_heads) * head, 1, 1);
    }
    if (!s->positions) { // rotary positions
        stream(t, FORWARD, t->tokens * (heads + kv_heads) * head, 1, 1);
        stream(t, BACKWARD, t->tokens * (heads + kv_heads) * head, 1, 1);
    }
    t->saved += width(t) * t->tokens * (heads + (s->kv_rank ? heads : kv_heads)) * head;
    t->saved += width(t) * t->tokens * (s->kv_rank ? heads : kv_heads) * value_head;
    if (t->runtime->attention != SN_ATTENTION_PLAIN) {
        fused_attention(t, heads, s->kv_rank ? heads : kv_heads, head, value_head);
    } else {
        plain_attention(t, heads, head);
        stream(t, FORWARD, t->tokens * heads * head, 1, 1); // heads back side by side
        stream(t, BACKWARD, t->tokens * heads * head, 3, 3);
    }
    linear(t, t->tokens, heads * value_head, hidden, false, true);
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
    for (int way = 0; way < 2; way++) {
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

static void block(trace *t, bool dense) {
    const sn_transformer *s = t->shape;
    attention(t);
    join(t);
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
    t->parameters += rows * hidden + (t->shape->positions ? (double)t->shape->sequence * hidden : 0);
    if (t->shape->dropout) t->saved += t->thin_tokens * hidden;
}

static void head(trace *t) {
    double hidden = (double)t->shape->hidden, columns = (double)t->shape->vocab / (double)t->degrees->tensor;
    double logits = t->tokens * columns;
    norm(t, t->thin_tokens);
    tensor_moves(t, false);
    sn_runtime exact = *t->runtime;
    exact.eight_bit = false;
    const sn_runtime *runtime = t->runtime;
    t->runtime = &exact;
    linear(t, t->tokens, hidden, columns, false, true);
    t->runtime = runtime;
    if (t->shape->tied && t->degrees->pipeline == 1) t->parameters -= hidden * columns;
    int passes = t->runtime->fused_head ? 1 : 3; // conversion, largest, exponentials with their sum
    pointwise(t, FORWARD, logits, passes, passes - 1, SN_F32, SN_OP_EXP);
    pointwise(t, BACKWARD, logits, 1, 1, SN_F32, SN_OP_NEG);
    if (!t->runtime->fused_head) stream(t, BACKWARD, logits, 2, 1);
    for (int i = 0; i < 3; i++) move(t, FORWARD, SN_OP_ALL_REDUCE, 4 * t->tokens, t->tensor, false);
    t->saved += logits * (t->runtime->fused_head ? width(t) : 4);
    t->largest = fmax(t->largest, logits * (t->runtime->fused_head ? width(t) : 4 + width(t)));
}

typedef struct costs {
    double forward, backward; // seconds of a micro-batch
    double saved, largest, parameters, expert_parameters;
    double boundary; // bytes of a block's input, all that full rematerialisation saves
} costs;

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

static costs finish(trace *t, bool is_block) {
    sn_remat remat = is_block ? t->degrees->remat : SN_REMAT_NONE;
    static const part forward[] = {FORWARD, CORE}, backward[] = {BACKWARD}, selective[] = {CORE, BACKWARD},
                      full[] = {FORWARD, CORE, BACKWARD};
    costs c = {.parameters = t->parameters, .expert_parameters = t->expert_parameters, .largest = t->largest};
    c.boundary = width(t) * (double)t->shape->hidden * t->thin_tokens;
    c.forward = part_seconds(t, forward, 2);
    if (remat == SN_REMAT_NONE) {
        c.backward = part_seconds(t, backward, 1);
        c.saved = t->saved + t->saved_core;
    } else if (remat == SN_REMAT_SELECTIVE) {
        c.backward = part_seconds(t, selective, 2);
        c.saved = t->saved;
        c.largest += t->saved_core;
    } else {
        c.backward = c.forward + part_seconds(t, backward, 1);
        c.saved = c.boundary;
        c.largest += t->saved + t->saved_core;
    }
    (void)full;
    for (int p = 0; p < PART_COUNT; p++) sn_vec_free(&t->ops[p]);
    sn_module_free(t->module);
    return c;
}

typedef struct setting {
    const sn_cost_model *model;
    const sn_transformer *shape;
    const sn_degrees *degrees;
    const sn_runtime *runtime;
    sn_group tensor, context, expert, data, replicas, next;
    sn_arena scratch;
} setting;

static costs priced(setting *s, void (*build)(trace *), bool is_block) {
    trace t = {.model = s->model,
               .shape = s->shape,
               .degrees = s->degrees,
               .runtime = s->runtime,
               .tensor = &s->tensor,
               .context = &s->context,
               .expert = &s->expert,
               .scratch = &s->scratch};
    t.module = sn_module_new("block");
    t.b.func = sn_module_add_func(t.module, "block");
    t.tokens = (double)s->degrees->micro_batch * (double)s->shape->sequence / (double)s->degrees->context;
    t.thin_tokens = s->degrees->sequence ? t.tokens / (double)s->degrees->tensor : t.tokens;
    build(&t);
    return finish(&t, is_block);
}

static void dense_block(trace *t) {
    block(t, true);
}

static void mixture_block(trace *t) {
    block(t, false);
}

// Ranks: tensor innermost, then context, data, pipeline (the order of Megatron-LM).
static setting setting_of(const sn_cost_model *model, const sn_cluster *cluster, const sn_transformer *shape,
                          const sn_degrees *d, const sn_runtime *runtime) {
    setting s = {.model = model, .shape = shape, .degrees = d, .runtime = runtime};
    int64_t inner = d->tensor, all = inner * d->context * d->data;
    s.tensor = sn_cluster_group(cluster, 0, d->tensor, 1);
    s.context = sn_cluster_group(cluster, 0, d->context, inner);
    s.expert = sn_cluster_group(cluster, 0, d->expert, inner);
    s.data = sn_cluster_group(cluster, 0, d->data * d->context, inner);
    int64_t replicas = d->data * d->context / d->expert;
    s.replicas = sn_cluster_group(cluster, 0, replicas > 0 ? replicas : 1, inner * d->expert);
    s.next = d->pipeline > 1 ? sn_cluster_group(cluster, 0, 2, all) : (sn_group){.ranks = 1};
    return s;
}

// What Adam streams through memory, of one parameter: the gradient for its norm and again for the update; master copy
// and moments read and written; the parameter that computes written.
static double update_bytes(const sn_runtime *runtime) {
    return 2 * runtime->gradient_bytes + 24 + (runtime->master ? (double)sn_dtype_bytes(runtime->dtype) : 0);
}

static void data_parallel(setting *s, const costs *all, double extra, sn_stage *stage) {
    const sn_degrees *d = s->degrees;
    const sn_runtime *r = s->runtime;
    double plain = all->parameters, experts = all->expert_parameters, width = (double)sn_dtype_bytes(r->dtype);
    sn_op_kind kind = d->zero >= 1 ? SN_OP_REDUCE_SCATTER : SN_OP_ALL_REDUCE;
    double share = d->zero >= 1 ? (double)s->data.ranks : 1,
           expert_share = d->zero >= 1 ? (double)s->replicas.ranks : 1;
    if (d->zero < 3) {
        stage->reduce = sn_cost_collective(s->model, kind, r->reduce_bytes * plain, &s->data) +
                        sn_cost_collective(s->model, kind, r->reduce_bytes * experts, &s->replicas) + extra;
        if (d->zero >= 1)
            stage->gather = sn_cost_collective(s->model, SN_OP_ALL_GATHER, width * plain, &s->data) +
                            sn_cost_collective(s->model, SN_OP_ALL_GATHER, width * experts, &s->replicas);
    }
    double owned = plain / share + experts / expert_share;
    const sn_device *device = s->model->device;
    stage->update = owned * update_bytes(r) / (device->memory_bandwidth * device->curve->stream);
    double kept = d->zero >= 3 ? owned : plain + experts, gradients = d->zero >= 2 ? owned : plain + experts;
    stage->memory.parameters = kept * (r->master || d->zero < 3 ? width : 4);
    stage->memory.gradients = gradients * r->gradient_bytes;
    stage->memory.optimizer = owned * (r->master ? 12 : 8);
}

// ZeRO-3: seconds of moving a layer's parameters or gradients. Without flat buffers each rank's part is one copy that
// the host issues; that is what stops DeepSpeed's first ZeRO-3 at scale (Narayanan et al. 2021, table 2).
static double shards(setting *s, const costs *c, sn_op_kind kind, double width) {
    const sn_runtime *r = s->runtime;
    double parts = r->shard_layers ? 1 : r->gathers;
    double bytes = width * (c->parameters + c->expert_parameters) / parts;
    return parts * sn_cost_collective(s->model, kind, bytes, &s->data);
}

static double copies(const setting *s, const costs *c) {
    const sn_runtime *r = s->runtime;
    bool many = c->parameters > 0 && !r->shard_layers;
    return many ? r->gathers * (double)s->data.ranks * s->model->device->curve->host_issue : 0;
}

// Layers that are gathered ahead of their use hide as far as that takes shorter than computing.
static void shard_costs(setting *s, costs *c) {
    double width = (double)sn_dtype_bytes(s->runtime->dtype), host = copies(s, c);
    double gather = shards(s, c, SN_OP_ALL_GATHER, width);
    double scatter = shards(s, c, SN_OP_REDUCE_SCATTER, s->runtime->reduce_bytes);
    bool ahead = s->runtime->shard_layers;
    c->forward = ahead ? fmax(c->forward, gather) : c->forward + gather + host;
    c->backward = ahead ? fmax(c->backward, gather + scatter) : c->backward + gather + scatter + 2 * host;
}

sn_step sn_transformer_step(const sn_cost_model *model, const sn_cluster *cluster, const sn_transformer *shape,
                            const sn_degrees *d, const sn_runtime *runtime) {
    setting s = setting_of(model, cluster, shape, d, runtime);
    int stages = (int)d->pipeline;
    costs dense = priced(&s, dense_block, true), first = priced(&s, embedding, false), last = priced(&s, head, false),
          mixed = dense;
    if (shape->experts > 1) mixed = priced(&s, mixture_block, true);
    sn_stage *stage = SN_NEW_N(&s.scratch, sn_stage, stages);
    double per_stage = (double)shape->layers / stages;
    for (int i = 0; i < stages; i++) {
        costs all = {0};
        double blocks = per_stage,
               plain = shape->experts > 1 ? fmin(blocks, fmax(0, (double)shape->dense - i * blocks)) : blocks;
        const struct {
            const costs *c;
            double n;
        } kinds[] = {{&dense, plain}, {&mixed, blocks - plain}, {&first, i == 0}, {&last, i == stages - 1}};
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            costs c = *kinds[k].c;
            if (d->zero >= 3) shard_costs(&s, &c);
            all.forward += kinds[k].n * c.forward;
            all.backward += kinds[k].n * c.backward;
            all.saved += kinds[k].n * c.saved;
            all.parameters += kinds[k].n * c.parameters;
            all.expert_parameters += kinds[k].n * c.expert_parameters;
            if (kinds[k].n > 0) all.largest = fmax(all.largest, c.largest);
        }
        stage[i].forward = all.forward;
        stage[i].backward = all.backward;
        double boundary = dense.boundary;
        bool scatter = runtime->scatter_messages && !d->sequence;
        stage[i].message = sn_cost_message(model, scatter ? boundary / (double)d->tensor : boundary, &s.next);
        if (scatter) stage[i].message += sn_cost_collective(model, SN_OP_ALL_GATHER, boundary, &s.tensor);
        double tied = shape->tied && stages > 1 && (i == 0 || i == stages - 1)
                          ? sn_cost_message(model, 2 * runtime->reduce_bytes * first.parameters, &s.next)
                          : 0;
        data_parallel(&s, &all, tied, &stage[i]);
        double flying = fmin((double)d->microbatches, stages - i);
        if (d->chunks > 1)
            flying =
                fmin((double)d->microbatches, (stages - i - 1) * 2.0 / (double)d->chunks +
                                                  stages * (1 - 1.0 / (double)d->chunks) + 1.0 / (double)d->chunks);
        stage[i].memory.activations = flying * all.saved;
        stage[i].memory.transient = all.largest;
    }
    sn_pipeline pipeline = {.stages = stages,
                            .chunks = (int)d->chunks,
                            .microbatches = d->microbatches,
                            .overlap_messages = runtime->overlap_messages,
                            .overlap_reduce = runtime->overlap_reduce,
                            .overlap_gather = runtime->overlap_gather};
    sn_step step = sn_step_of(&pipeline, stage);
    sn_arena_free(&s.scratch);
    return step;
}

double sn_transformer_parameters(const sn_transformer *shape) {
    double hidden = (double)shape->hidden,
           attention = hidden * (double)(shape->head * (2 * shape->heads + 2 * shape->kv_heads));
    double feed = (shape->gated ? 3 : 2) * hidden * (double)shape->ffn;
    return (double)shape->layers * (attention + feed) + (shape->tied ? 1 : 2) * hidden * (double)shape->vocab;
}
