// The state of one import.
#pragma once
#include "frontend/model.h"
#include "frontend/node.h"

#include <setjmp.h>

// What an ONNX name stands for: a value, a sequence, or neither when the node that makes it failed.
typedef struct sn_entry {
    sn_value *value;
    const sn_tensor_sequence *sequence;
} sn_entry;

typedef struct sn_opset_version {
    const char *domain;
    int64_t version;
} sn_opset_version;

// Names of a graph, a subgraph (which sees its parent's) or a function (which does not).
typedef struct sn_scope {
    struct sn_scope *parent;
    sn_map names;      // -> sn_entry
    sn_map attributes; // of the function's call -> Onnx__AttributeProto
    const Onnx__OperatorSetIdProto *const *opsets;
    size_t n_opsets;
    const char *prefix; // of node names; "" in the model's graph
    bool is_function;
    int depth;
} sn_scope;

typedef struct sn_onnx_op {
    const char *type, *domain;
    int since, until; // opsets
    void (*handler)(sn_node *n);
    sn_op_kind kind;
    const char *inputs; // frontend/signature.h
} sn_onnx_op;

typedef struct sn_unsupported {
    const char *node, *type, *domain, *reason;
    int64_t opset;
} sn_unsupported;

typedef struct sn_known_value {
    sn_tensor tensor;
    sn_value *settled; // what stands for the value in `func` in the end; NULL as long as no one asked
    sn_func *func;
} sn_known_value;

struct sn_import {
    sn_onnx_model *model;
    const sn_onnx_options *options;
    sn_onnx_mode mode;
    sn_diags *diags;
    sn_module *module;
    sn_func *func;
    sn_arena arena;
    sn_scope *root;
    SN_VEC(sn_known_value) known; // indexed by sn_value.id; 0 is unused
    SN_VEC(sn_global *) stored;   // constants that folding left
    SN_VEC(sn_unsupported) unsupported;
    SN_VEC(sn_scope *) scopes;     // to free their maps
    sn_map functions;              // "domain:name:overload" -> Onnx__FunctionProto
    sn_map positions;              // initializer name -> index + 1 in info.weights
    sn_map sources;                // initializer name -> sn_global
    SN_VEC(const char *) unmerged; // parameters that were merged by the exporter
    sn_map tensors;                // address of an Onnx__TensorProto of a subgraph or attribute -> its value
    sn_map noted;                  // tied weights that were reported
    sn_entry absent;               // what a function's input stands for that a call does not give
    sn_value *seed, *step;
    size_t n_nodes;    // imported so far, inlined ones counted each time
    int64_t n_random;  // random ops so far
    bool has_training; // a Dropout or BatchNormalization in training mode was met
};

struct sn_node {
    sn_import *import;
    sn_scope *scope;
    const Onnx__NodeProto *proto;
    const sn_onnx_op *op;
    const char *name;
    int64_t opset;
    sn_builder builder;
    jmp_buf escape;
};

const sn_onnx_op *sn_onnx_find_op(const char *type, const char *domain); // NULL: no handler

// The way out where a node makes no sense: other sizes of the dims that were bound, if any; else the model is invalid.
const char *sn_import_help(sn_import *import);
// The entry of a name, looked up through the scopes; an initializer becomes a global when first asked for. NULL when
// nothing has the name.
sn_entry *sn_scope_find(sn_import *import, sn_scope *scope, const char *name);
void sn_scope_define(sn_import *import, sn_scope *scope, const char *name, sn_value *value,
                     const sn_tensor_sequence *sequence);
sn_scope *sn_scope_new(sn_import *import, sn_scope *parent);
// Imports the nodes of a graph or function in an order that dependences allow.
void sn_import_nodes(sn_import *import, sn_scope *scope, size_t n_nodes, Onnx__NodeProto *const *nodes);
// Initializers of a subgraph.
void sn_import_initializers(sn_import *import, sn_scope *scope, const Onnx__GraphProto *graph);
// The constant that a tensor of a subgraph or an attribute is: one, however often a loop comes by. NULL: diagnosed.
sn_value *sn_import_tensor(sn_import *import, const Onnx__TensorProto *proto, const char *name);

// frontend/order.c: an order of the nodes in which each comes after what it reads; the given one when it is one.
// Diagnoses cycles, and names that are defined twice or not at all; false then.
bool sn_import_order(sn_import *import, sn_scope *scope, size_t n_nodes, Onnx__NodeProto *const *nodes, size_t *order);

// frontend/weights.c
sn_value *sn_import_weight(sn_import *import, const char *name);   // NULL when there is no such initializer
sn_value *sn_import_unmerged(sn_import *import, const char *name); // NULL when it is no merged parameter
void sn_import_report_unmerged(sn_import *import);
void sn_import_settle_roles(sn_import *import);

// frontend/fold.c: what is known of values.
const sn_tensor *sn_fold_known(sn_import *import, const sn_value *value, bool demand);
void sn_fold_op(sn_import *import, sn_op *op); // evaluates it when its operands are known
// Turns known values that ops still read into constants, and removes everything that nothing reads.
void sn_fold_settle(sn_import *import, sn_func *func);
