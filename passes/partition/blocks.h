// A training step as a chain of blocks, for planning. The forward ops are cut where the fewest bytes cross, each
// backward op goes with the ONNX node that it is the gradient of, and blocks of one structure form a class: a class is
// costed once, however often it repeats.
#pragma once
#include "ir/graph.h"

// What one ONNX node became. The group is sharded as a whole.
typedef struct sn_op_group {
    const char *node;
    int n_forward, n_backward;
    sn_op **forward, **backward; // in execution order
    int lead;                    // the forward op whose factors are the group's choices; -1 when none can be cut
} sn_op_group;

typedef struct sn_block {
    const char *first; // the ONNX node that opens it
    int kind;          // its class
    int n_groups, n_parameters;
    sn_op_group *groups;
    sn_global **parameters; // first used here
    double input_bytes;     // of what comes from the block before
} sn_block;

typedef struct sn_block_class {
    uint64_t hash; // of operators, attributes, shapes and how they are joined
    int count, representative;
    double tied_bytes; // parameters that an earlier block has as well
} sn_block_class;

typedef struct sn_blocks {
    sn_arena *arena;
    const sn_func *micro, *update; // of `module`
    int n_blocks, n_classes;
    sn_block *blocks;
    sn_block_class *classes;
    int64_t batch;        // samples that the module's shapes stand for
    uint64_t model_hash;  // of the nodes, the parameters and the shape of a sample
    uint32_t value_count; // sn_value.id of the values of @micro is below
} sn_blocks;

// `module` is a training step with accumulation in graph form (functions @micro and @update); it must outlive the
// result, whose lists are in `arena`. Numbers the values of @micro (sn_value.id) and marks its ops (sn_op.mark: 1 +
// the index of the block).
sn_blocks sn_blocks_find(sn_module *module, int64_t batch, sn_arena *arena);
// Of the imported model (graph form, before the training passes): the same for any batch.
uint64_t sn_model_hash(const sn_module *module);
// The id of the block's first forward result; ids of the others follow, `count` in all.
uint32_t sn_block_first_result(const sn_block *block, uint32_t *count);
bool sn_block_op_is_heavy(const sn_op *op); // a contraction: what selective rematerialisation keeps
