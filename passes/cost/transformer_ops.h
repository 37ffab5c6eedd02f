// The ops of a transformer's blocks, built in the IR with local shapes and priced.
#pragma once
#include "passes/cost/transformer.h"

// Everything a block's price depends on. Groups: the ranks of each mesh axis, those that hold the same parameters
// (`data`; of experts, `replicas`), and the pair that a pipeline's message crosses.
typedef struct sn_transformer_setting {
    const sn_cost_model *model;
    const sn_transformer *shape;
    const sn_degrees *degrees;
    const sn_runtime *runtime;
    sn_group tensor, context, expert, data, replicas, next;
} sn_transformer_setting;

typedef enum sn_block_kind {
    SN_BLOCK_EMBEDDING,
    SN_BLOCK_ENCODER,
    SN_BLOCK_DENSE,
    SN_BLOCK_MIXTURE,
    SN_BLOCK_HEAD,
    SN_BLOCK_COUNT
} sn_block_kind;

// Of one block, one micro-batch, one rank.
typedef struct sn_transformer_block {
    double forward, backward;             // seconds, with what collectives expose
    double saved;                         // bytes that the backward pass needs
    double repeated;                      // bytes that rematerialisation brings back while the block runs backwards
    double transient;                     // bytes alive beside these, at the most, backwards
    double boundary;                      // bytes of the block's input
    double parameters, expert_parameters; // elements
    double weights;                       // of them, those of products
} sn_transformer_block;
sn_transformer_block sn_transformer_block_of(const sn_transformer_setting *setting, sn_block_kind kind);
