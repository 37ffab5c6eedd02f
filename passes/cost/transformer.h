// Transformers as their shape: the ops of a block, of the embedding and of the head are built in the IR with the local
// shapes that a plan gives them, and priced by the cost model. For planning before there is a graph, and for holding
// the cost model against measured steps.
#pragma once
#include "passes/cost/step.h"

typedef struct sn_transformer {
    int64_t layers, hidden, ffn, heads, kv_heads, head, vocab, sequence;
    int64_t value_head;                                    // 0: as head
    int64_t experts, top_k, expert_ffn, shared_ffn, dense; // a mixture: the first `dense` layers are none
    int64_t encoder_layers, encoder_sequence;              // T5: the other layers attend to the encoder's result too
    int64_t query_rank, kv_rank, rope;                     // latent attention (DeepSeek-V2, 2024); 0: none
    bool gated, rms_norm, biased, causal, tied, positions; // positions: a learned table
    double labelled;          // the share of tokens that the head sees (BERT: those that were masked); 0: all
    bool dropout, norm_heads; // norm_heads: queries and keys are normalised
} sn_transformer;

// Scores in memory, or one kernel: of the first generation, or written for the architecture.
typedef enum sn_attention { SN_ATTENTION_PLAIN, SN_ATTENTION_EARLY, SN_ATTENTION_TUNED } sn_attention;

typedef struct sn_degrees {
    int64_t tensor, context, expert, data, pipeline; // data: ranks with different samples
    int64_t expert_tensor;                           // 0: as tensor
    bool sequence;                             // the parts between tensor-parallel ones are cut along the sequence
    int zero;                                  // stage
    int64_t shard_groups;                      // groups of data-parallel ranks that each shard for themselves; 0: one
    int64_t first_layers, last_layers;         // of the first and last stage, where they have other numbers; 0: not
    int64_t chunks, micro_batch, microbatches; // chunks: model chunks of a pipeline stage
    int64_t chunk_group;                       // micro-batches that run one chunk in a row; 0: one per stage
    sn_remat remat;
} sn_degrees;

// What the software under measurement does; none of it is a number that was fitted.
typedef struct sn_runtime {
    sn_dtype dtype; // of activations and of the parameters that compute
    bool eight_bit; // products in 8 bits
    sn_attention attention;
    double loss_bytes;     // of one logit, that the loss keeps beside the logits: 4 for an f32 copy, 0 when fused
    bool master;           // f32 parameters beside those that compute
    double gradient_bytes; // of one parameter's gradient, as it is kept
    double reduce_bytes;   // as it travels
    double gradient_copy;  // bytes of a copy of the gradients that the optimizer keeps
    double softmax_bytes;  // of a score after softmax, as it is saved where scores are in memory; 0: of the dtype
    double workspace;      // bytes that its libraries keep on the device; 0: the device's figure
    // Bytes of an owned parameter that loading a checkpoint leaves until the host collects garbage; groups that shard
    // for themselves read the f32 parameters whole.
    double left_behind;
    bool gather_tokens;  // experts get all tokens of their group and pick, in place of an all-to-all
    bool placeholders;   // gradients are added in place, with a placeholder per shape of weight
    bool host_optimizer; // optimizer state takes none of the device's memory
    bool keeps_products; // selective rematerialisation keeps every second product's result, and attention's
    bool pairs_blocks;   // a block runs backwards beside another micro-batch's forwards: one more is alive
    bool overlap_tensor; // tensor-parallel collectives hide behind products, in chunks
    bool overlap_messages, overlap_reduce, overlap_gather;
    bool captured;         // a CUDA graph: the host issues nothing
    bool scatter_messages; // tensor-parallel ranks send 1/tensor of a boundary each and gather it
    bool shard_layers;     // ZeRO-3 gathers a layer at once, ahead of its use (FSDP)
    int gathers;           // ZeRO-3: collectives of one layer when it does not
    bool copies_parts;     // each into one tensor per rank, which is a copy per rank
} sn_runtime;

// stages[i] of each of degrees->pipeline stages.
void sn_transformer_stages(const sn_cost_model *model, const sn_cluster *cluster, const sn_transformer *shape,
                           const sn_degrees *degrees, const sn_runtime *runtime, sn_step_stage *stages);
sn_step sn_transformer_step(const sn_cost_model *model, const sn_cluster *cluster, const sn_transformer *shape,
                            const sn_degrees *degrees, const sn_runtime *runtime);
