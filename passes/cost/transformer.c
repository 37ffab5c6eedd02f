#include "passes/cost/transformer.h"

#include "base/alloc.h"
#include "passes/cost/transformer_ops.h"
#include "passes/schedule/pipeline_order.h"

#include <math.h>

// Ranks: tensor innermost, then context, data, pipeline (the order of Megatron-LM).
static sn_transformer_setting setting_of(const sn_cost_model *model, const sn_cluster *cluster,
                                         const sn_transformer *shape, const sn_degrees *d, const sn_runtime *runtime) {
    sn_transformer_setting s = {.model = model, .shape = shape, .degrees = d, .runtime = runtime};
    int64_t inner = d->tensor, all = inner * d->context * d->data;
    s.tensor = sn_cluster_group(cluster, 0, d->tensor, 1);
    s.context = sn_cluster_group(cluster, 0, d->context, inner);
    s.expert = sn_cluster_group(cluster, 0, d->expert, inner);
    s.data = sn_cluster_group(cluster, 0, d->data * d->context, inner);
    // Experts cut the ranks of a stage their own way: `holders` ranks have one copy of all experts.
    int64_t holders = d->expert * (d->expert_tensor ? d->expert_tensor : d->tensor), replicas = all / holders;
    s.replicas = sn_cluster_group(cluster, 0, replicas > 0 ? replicas : 1, holders);
    s.next = d->pipeline > 1 ? sn_cluster_group(cluster, 0, 2, all) : (sn_group){.ranks = 1};
    return s;
}

// Bytes of a parameter as it is kept: sharded ones without a master copy are f32 (FSDP).
static double stored_bytes(const sn_transformer_setting *s) {
    return s->runtime->master || s->degrees->zero < 3 ? (double)sn_dtype_bytes(s->runtime->dtype) : 4;
}

// What Adam streams through memory, of one parameter: the gradient for its norm and again for the update; moments and
// the master copy, where there is one, read and written; the parameter written, or read too.
static double update_bytes(const sn_transformer_setting *s) {
    double parameter = s->runtime->master ? 8 + stored_bytes(s) : 2 * stored_bytes(s);
    return 2 * s->runtime->gradient_bytes + 16 + parameter;
}

static void data_parallel(const sn_transformer_setting *s, const sn_transformer_block *all, double extra,
                          sn_step_stage *stage) {
    const sn_degrees *d = s->degrees;
    const sn_runtime *r = s->runtime;
    double plain = all->parameters, experts = all->expert_parameters, width = (double)sn_dtype_bytes(r->dtype);
    double groups = d->shard_groups > 1 ? (double)d->shard_groups : 1;
    double share = d->zero >= 1 ? fmax(1, (double)s->data.ranks / groups) : 1,
           expert_share = d->zero >= 1 ? fmax(1, (double)s->replicas.ranks / groups) : 1;
    sn_zero_seconds dense = sn_zero_step(s->model, d->zero, r->reduce_bytes * plain, width * plain, &s->data);
    sn_zero_seconds sparse = sn_zero_step(s->model, d->zero, r->reduce_bytes * experts, width * experts, &s->replicas);
    stage->reduce = dense.reduce + sparse.reduce + extra;
    stage->gather = dense.gather + sparse.gather;
    double owned = plain / share + experts / expert_share;
    const sn_device_kind *device = s->model->device;
    stage->update = owned * update_bytes(s) / (device->memory_bandwidth * device->curve->stream);
    double kept = d->zero >= 3 ? owned : plain + experts, gradients = d->zero >= 2 ? owned : plain + experts;
    stage->memory.parameters = kept * stored_bytes(s);
    stage->memory.gradients = gradients * r->gradient_bytes;
    stage->memory.optimizer = owned * ((r->master ? 12 + r->gradient_copy : 8) + r->left_behind);
    if (groups > 1 && r->left_behind > 0) stage->memory.optimizer += 4 * (plain + experts);
    if (r->host_optimizer) stage->memory.optimizer = 0;
}

// ZeRO-3: seconds of moving a layer's parameters or gradients. Without flat buffers each rank's part is one copy that
// the host issues; that is what stops DeepSpeed's first ZeRO-3 at scale (Narayanan et al. 2021, table 2).
static double shards(const sn_transformer_setting *s, const sn_transformer_block *c, sn_op_kind kind, double width) {
    const sn_runtime *r = s->runtime;
    double parts = r->shard_layers ? 1 : r->gathers;
    double bytes = width * (c->parameters + c->expert_parameters) / parts;
    return parts * sn_cost_collective(s->model, kind, bytes, &s->data);
}

static double copies(const sn_transformer_setting *s, const sn_transformer_block *c) {
    const sn_runtime *r = s->runtime;
    bool many = c->parameters > 0 && r->copies_parts;
    return many ? r->gathers * (double)s->data.ranks * s->model->device->curve->host_issue : 0;
}

// Layers that are gathered ahead of their use hide as far as that takes shorter than computing.
static void shard_costs(const sn_transformer_setting *s, sn_transformer_block *c) {
    double width = (double)sn_dtype_bytes(s->runtime->dtype), host = copies(s, c);
    double gather = shards(s, c, SN_OP_ALL_GATHER, width);
    double scatter = shards(s, c, SN_OP_REDUCE_SCATTER, s->runtime->reduce_bytes);
    bool ahead = s->runtime->shard_layers;
    c->forward = ahead ? fmax(c->forward, gather) : c->forward + gather + host;
    c->backward = ahead ? fmax(c->backward, gather + scatter) : c->backward + gather + scatter + 2 * host;
}

typedef struct block_costs {
    sn_transformer_block kind[SN_BLOCK_COUNT];
} block_costs;

static block_costs price_blocks(const sn_transformer_setting *s) {
    block_costs costs = {0};
    for (int k = 0; k < SN_BLOCK_COUNT; k++) {
        bool there = k == SN_BLOCK_MIXTURE   ? s->shape->experts > 1
                     : k == SN_BLOCK_ENCODER ? s->shape->encoder_layers > 0
                                             : true;
        if (there) costs.kind[k] = sn_transformer_block_of(s, (sn_block_kind)k);
    }
    if (s->shape->experts <= 1) costs.kind[SN_BLOCK_MIXTURE] = costs.kind[SN_BLOCK_DENSE];
    return costs;
}

// The layers of stage `i`, and in *before those of the stages in front of it.
static double layers_of(const sn_transformer_setting *s, int i, double *before) {
    const sn_degrees *d = s->degrees;
    double first = (double)d->first_layers, last = (double)d->last_layers, stages = (double)d->pipeline;
    bool uneven = stages > 1 && (first > 0 || last > 0);
    double middle = stages - (first > 0) - (last > 0), layers = (double)s->shape->layers;
    double even = uneven ? (layers - first - last) / fmax(1, middle) : layers / stages;
    bool own_first = uneven && first > 0, own_last = uneven && last > 0;
    *before = i == 0 ? 0 : (own_first ? first : even) + (i - 1) * even;
    return i == 0 && own_first ? first : i == stages - 1 && own_last ? last : even;
}

// How many blocks of each kind stage `i` has. An encoder is cut like the rest.
static void count_blocks(const sn_transformer_setting *s, int i, double n[SN_BLOCK_COUNT]) {
    const sn_transformer *shape = s->shape;
    int stages = (int)s->degrees->pipeline;
    double before, blocks = layers_of(s, i, &before);
    double dense = shape->experts > 1 ? fmin(blocks, fmax(0, (double)shape->dense - before)) : blocks;
    n[SN_BLOCK_EMBEDDING] = i == 0;
    n[SN_BLOCK_ENCODER] = (double)shape->encoder_layers / stages;
    n[SN_BLOCK_DENSE] = dense;
    n[SN_BLOCK_MIXTURE] = blocks - dense;
    n[SN_BLOCK_HEAD] = i == stages - 1;
}

static double in_flight(const sn_degrees *d, int stage) {
    sn_pipeline schedule = d->chunks > 1 ? SN_PIPELINE_INTERLEAVED : SN_PIPELINE_1F1B;
    int group = (int)(d->chunk_group ? d->chunk_group : d->pipeline), chunks = d->chunks > 1 ? (int)d->chunks : 1;
    return sn_pipeline_in_flight(schedule, (int)d->pipeline, chunks, group, (int)d->microbatches, stage);
}

// At the end of the forward pass the loss has its logits; then blocks run backwards, each with what it brings back.
static void activation_memory(const sn_transformer_setting *s, const block_costs *costs, const double n[SN_BLOCK_COUNT],
                              int i, sn_memory *m) {
    double flying = in_flight(s->degrees, i), saved = 0, width = (double)sn_dtype_bytes(s->runtime->dtype);
    for (int k = 0; k < SN_BLOCK_COUNT; k++) {
        const sn_transformer_block *c = &costs->kind[k];
        if (n[k] <= 0) continue;
        saved += n[k] * c->saved * (k == SN_BLOCK_HEAD ? 1 : flying);
        m->working = fmax(m->working, c->transient + c->repeated);
    }
    double paired = 0, weights = 0;
    for (int k = SN_BLOCK_ENCODER; k <= SN_BLOCK_MIXTURE; k++) {
        if (n[k] <= 0) continue;
        paired = fmax(paired, costs->kind[k].saved);
        weights = fmax(weights, costs->kind[k].weights);
    }
    m->activations = saved + (s->runtime->pairs_blocks ? paired : 0);
    m->buffers = s->runtime->workspace > 0 ? s->runtime->workspace : s->model->device->curve->workspace;
    // Where kernels add a weight's gradient to the kept one, autograd still wants a tensor of its shape: one per shape.
    if (s->runtime->placeholders) m->buffers += width * weights;
    if (s->degrees->zero >= 3) { // two layers, gathered
        const sn_transformer_block *c = &costs->kind[SN_BLOCK_DENSE];
        m->buffers += 2 * width * (c->parameters + c->expert_parameters);
    }
}

// A message between stages blocks the host too: it allocates, exchanges the shape, posts, waits and copies.
static double message_seconds(const sn_transformer_setting *s, double boundary) {
    const double ops = 4;
    double host = s->runtime->captured || s->next.ranks < 2 ? 0 : ops * s->model->device->curve->host_issue;
    bool scatter = s->runtime->scatter_messages && !s->degrees->sequence;
    if (!scatter) return host + sn_cost_message(s->model, boundary, &s->next);
    return host + sn_cost_message(s->model, boundary / (double)s->degrees->tensor, &s->next) +
           sn_cost_collective(s->model, SN_OP_ALL_GATHER, boundary, &s->tensor);
}

// ZeRO-2 keeps no whole gradients, so it scatters those of each micro-batch.
static void scatter_each_time(const sn_transformer_setting *s, const sn_transformer_block *all, sn_step_stage *stage) {
    double bytes = s->runtime->reduce_bytes;
    double scatter = sn_cost_collective(s->model, SN_OP_REDUCE_SCATTER, bytes * all->parameters, &s->data) +
                     sn_cost_collective(s->model, SN_OP_REDUCE_SCATTER, bytes * all->expert_parameters, &s->replicas);
    stage->backward = s->runtime->overlap_reduce ? fmax(stage->backward, scatter) : stage->backward + scatter;
}

static sn_step_stage stage_of(const sn_transformer_setting *s, const block_costs *costs, int i) {
    sn_step_stage stage = {0};
    sn_transformer_block all = {0};
    double n[SN_BLOCK_COUNT];
    count_blocks(s, i, n);
    for (int k = 0; k < SN_BLOCK_COUNT; k++) {
        sn_transformer_block c = costs->kind[k];
        if (s->degrees->zero >= 3) shard_costs(s, &c);
        stage.forward += n[k] * c.forward;
        stage.backward += n[k] * c.backward;
        all.parameters += n[k] * c.parameters;
        all.expert_parameters += n[k] * c.expert_parameters;
    }
    stage.message = message_seconds(s, costs->kind[SN_BLOCK_DENSE].boundary);
    bool ends = i == 0 || i == s->degrees->pipeline - 1;
    double table = s->runtime->reduce_bytes * costs->kind[SN_BLOCK_EMBEDDING].parameters;
    double tied =
        s->shape->tied && s->degrees->pipeline > 1 && ends ? sn_cost_message(s->model, 2 * table, &s->next) : 0;
    data_parallel(s, &all, tied, &stage);
    if (s->degrees->zero == 2) scatter_each_time(s, &all, &stage);
    activation_memory(s, costs, n, i, &stage.memory);
    return stage;
}

void sn_transformer_stages(const sn_cost_model *model, const sn_cluster *cluster, const sn_transformer *shape,
                           const sn_degrees *degrees, const sn_runtime *runtime, sn_step_stage *stages) {
    sn_transformer_setting s = setting_of(model, cluster, shape, degrees, runtime);
    block_costs costs = price_blocks(&s);
    for (int i = 0; i < (int)degrees->pipeline; i++) stages[i] = stage_of(&s, &costs, i);
}

sn_step sn_transformer_step(const sn_cost_model *model, const sn_cluster *cluster, const sn_transformer *shape,
                            const sn_degrees *degrees, const sn_runtime *runtime) {
    sn_step_stage *stages = sn_alloc(sizeof *stages * (size_t)degrees->pipeline);
    sn_transformer_stages(model, cluster, shape, degrees, runtime, stages);
    sn_pipeline_shape pipeline = {.stages = (int)degrees->pipeline,
                                  .chunks = (int)degrees->chunks,
                                  .microbatches = degrees->microbatches,
                                  .overlap_messages = runtime->overlap_messages,
                                  .overlap_reduce = runtime->overlap_reduce,
                                  .overlap_gather = runtime->overlap_gather};
    sn_step step = sn_step_of(&pipeline, stages);
    sn_free(stages);
    return step;
}
