// What the blocks of a model cost on one device under a way of cutting them: seconds of each phase, bytes of each class
// of memory. Times come from the cost model alone, for the local shapes; which factor of each group the axes `ep` and
// `tp` cut is solved as a cost-function network, once per class, degree and layout between blocks.
#pragma once
#include "passes/cost/cost.h"
#include "passes/partition/blocks.h"
#include "passes/partition/plan.h"

// Tensor parallelism may be of several axes, one inside the other. Where tp has more ranks than the model has key/value
// heads, the heads are cut over the outer axis; the ranks of the inner one share a key/value head and take different
// query heads of it, as in Megatron-LM and vLLM.
enum { SN_TENSOR_AXES = 3 };

typedef struct sn_cut_setting {
    int tp, cp, ep; // sizes of the axes that cut blocks; ep cuts stacks of experts, and the samples everywhere else
    int boundary;   // how tp cuts what flows between blocks: 0 not at all, 1 + a dim otherwise (sequence parallelism)
    int64_t micro;  // samples of a micro-batch on one data-parallel rank, before ep
    int inner[SN_TENSOR_AXES - 1]; // of tp's ranks, those of further axes inside of the first; 0: there is none
} sn_cut_setting;

// Bytes of a micro-batch. Where the gradients of parameters are a pass of their own (zero-bubble), not all is there for
// it.
typedef struct sn_block_activations {
    double kept;    // that the backward pass needs of the forward pass
    double again;   // what the backward pass makes of it first: without rematerialisation that would be kept as well
    double late;    // of these, what the gradients of parameters need
    double waiting; // what they need of the pass before: gradients of results, and what it computed again
} sn_block_activations;

// Which devices compute. All blocks of a class are laid out in one way, whichever they lie on; what that takes depends
// on the device and on the links that join it to the others of its groups.
typedef struct sn_site {
    const sn_device_kind *device;
    int64_t tp, cp, ep; // first ranks of the groups over these axes
} sn_site;

// A parameter of a block, or several alike: ZeRO and data parallelism move each in a collective of its own, so latency
// counts once for each.
typedef struct sn_block_tensor {
    int count;
    double parameter, gradient, optimizer; // bytes on a rank, before ZeRO
    sn_type type;                          // there
    bool shared;                           // the gradient is summed over ep: all but the experts'
    bool backward;                         // the backward pass reads it
    bool again;                            // what reads it is computed again under full rematerialisation
} sn_block_tensor;

typedef struct sn_block_tensors {
    int n;
    sn_block_tensor *list;
    int sums;         // of data that dp and cp cut, in the forward pass: the loss, statistics of batch normalisation
    double sum_bytes; // of all of them
} sn_block_tensors;

// Of one block, one micro-batch and one device; seconds include the collectives over tp, cp and ep.
typedef struct sn_block_cost {
    double forward, backward_input, backward_weight;
    double communication;         // of all three
    double again[SN_REMAT_COUNT]; // seconds of recomputation
    sn_block_activations activations[SN_REMAT_COUNT];
    double working;  // bytes: temporaries of the largest group
    double input;    // bytes of what comes from the block before
    double received; // bytes of all that a stage gets from others when this is its first block: input, and what skips
                     // blocks
    double parameters, gradients, optimizer; // bytes, before ZeRO
    double update;                           // seconds once a step, before ZeRO
    double clear;                            // the same, of setting the sums of gradients to zero
    double accumulate;                       // of backward_weight: adding to those sums
    double least_update, least_clear;        // of these, what ever so small parameters take
    double reduce;                           // seconds once a step: gradients of parameters that tp or cp leave whole
} sn_block_cost;

typedef struct sn_evaluator sn_evaluator;

// All must outlive the evaluator; its memory is in blocks->arena but for scratch, which sn_evaluator_free gives back.
sn_evaluator *sn_evaluator_new(const sn_blocks *blocks, const sn_cluster *cluster, const sn_cost_model *model);
// The same for a cluster that differs in its links alone; `like` must outlive it.
sn_evaluator *sn_evaluator_behind(const sn_evaluator *like, const sn_cluster *cluster);
void sn_evaluator_free(sn_evaluator *evaluator);
// Layouts between blocks that make sense for this model: 1 + the largest sn_cut_setting.boundary.
int sn_evaluator_boundaries(const sn_evaluator *evaluator);
// The number of experts that sizes of ep divide; 0 where nothing is there for ep to cut.
int64_t sn_evaluator_experts(const sn_evaluator *evaluator);
// How tp ranks are split into axes, as sn_cut_setting.inner: where an op has a dim of two factors and an operand has
// the outer one alone (key heads, and the query heads that share one), and tp is too large for that one.
void sn_evaluator_split(const sn_evaluator *evaluator, int tp, int inner[SN_TENSOR_AXES - 1]);
// Costs of each class, [n_classes]; NULL when some dim does not divide, whatever the site. Kept: asking again is cheap.
const sn_block_cost *sn_evaluator_costs(sn_evaluator *evaluator, sn_cut_setting setting, sn_site site);
// The device of the evaluator's model, in groups that begin with the cluster's first rank: layouts are chosen for it.
sn_site sn_evaluator_site(const sn_evaluator *evaluator);
// What parameters the classes have under the setting, [n_classes]: one answer for all settings that cut them alike.
const sn_block_tensors *sn_evaluator_tensors(sn_evaluator *evaluator, sn_cut_setting setting);
// The layouts that the setting gives the parameters and results of the model, for the axis named "ep" of `mesh` and its
// tensor axes in their order: those that are not dp, ep, cp or pp. Lists and names are in the arena.
sn_plan_layout *sn_evaluator_layouts(sn_evaluator *evaluator, sn_cut_setting setting, const sn_mesh *mesh,
                                     sn_arena *arena, int *count);
// "contraction factor 1 over tp" and the like of a group of a block, for people.
const char *sn_evaluator_choice(sn_evaluator *evaluator, sn_cut_setting setting, int block, int group, sn_arena *arena);
