// The IR: a module holds globals (weights, optimizer state, constants) and functions; a function holds a list of ops
// in execution order; an op has operands, attributes and results, which are values in SSA form. Three forms share these
// structures: graph form (one logical device), dist form (layouts and collectives), sched form (kernels, placements,
// streams). Everything lives in the module's arena and is never freed piece by piece. Not thread-safe.
#pragma once
#include "base/arena.h"
#include "base/map.h"
#include "base/phase.h"
#include "base/vec.h"
#include "ir/layout.h"
#include "ir/op.h"
#include "ir/type.h"

typedef struct sn_module sn_module;
typedef struct sn_func sn_func;
typedef struct sn_op sn_op;
typedef struct sn_value sn_value;
typedef struct sn_global sn_global;

typedef enum sn_form { SN_FORM_GRAPH, SN_FORM_DIST, SN_FORM_SCHED, SN_FORM_COUNT } sn_form;

// Where an op comes from: an ONNX node, or the pass that made it from another op ("/h.0/c_fc/MatMul" <- autodiff).
typedef struct sn_origin {
    const char *name;               // the node's name, or the pass's
    const struct sn_origin *parent; // NULL for an ONNX node
} sn_origin;

typedef struct sn_attr {
    const char *name;
    sn_attr_type type;
    union {
        int64_t i;
        double f;
        const char *s;
        sn_func *func;
        struct {
            const int64_t *data;
            int count;
        } ints;
    };
} sn_attr;

typedef struct sn_use {
    sn_op *op;
    int index; // of the operand
} sn_use;

// The slot of each micro-batch, where values of other micro-batches take slots of the same place too.
typedef struct sn_slot_table {
    int n;
    int of[];
} sn_slot_table;

// Where a value of the sched form lives.
typedef struct sn_place {
    bool placed;
    int64_t offset;             // bytes from the start of the rank's arena
    int slots;                  // copies of the value, one per micro-batch in flight; 0 and 1: one
    const sn_slot_table *table; // NULL: micro-batch m takes slot m mod slots
} sn_place;

bool sn_place_equal(const sn_place *a, const sn_place *b);

typedef enum sn_value_kind { SN_VALUE_RESULT, SN_VALUE_ARG, SN_VALUE_GLOBAL } sn_value_kind;

struct sn_value {
    sn_value_kind kind;
    sn_type type; // global shape in graph and dist form, local in sched form
    sn_layout layout;
    sn_place place;
    const char *name;                   // of an argument or a global; a hint, or NULL, for results
    const struct sn_index_range *range; // of an argument: which integers it may hold (ir/index_range.h); NULL: any
    union {
        sn_op *def;        // SN_VALUE_RESULT
        sn_func *func;     // SN_VALUE_ARG
        sn_global *global; // SN_VALUE_GLOBAL: one value serves all functions
    };
    int index;           // among the results or the arguments
    uint32_t id;         // scratch number for printers and passes
    SN_VEC(sn_use) uses; // operands only; function results are not in here
};

struct sn_op {
    sn_op_kind kind;
    sn_phase phase;
    int n_operands, n_results, n_attrs;
    sn_value **operands;
    sn_value **results;
    sn_attr *attrs;
    const sn_origin *origin; // may be NULL
    int stream;              // sched form: 0 compute, 1 communication
    sn_func *func;           // NULL once erased
    sn_op *prev, *next;
    uint32_t mark; // scratch for passes
};

struct sn_func {
    const char *name; // without the @
    sn_module *module;
    SN_VEC(sn_value *) args;
    SN_VEC(sn_value *) results;
    SN_VEC(const char *) result_names; // parallel to results; "" when unnamed
    sn_op *first, *last;
    size_t n_ops;
    bool is_body; // the body of a kernel op
};

typedef enum sn_role {
    SN_ROLE_PARAMETER, // trained
    SN_ROLE_FROZEN,    // a weight that is not trained
    SN_ROLE_STATE,     // changed by the forward pass: running statistics
    SN_ROLE_OPTIMIZER, // moments
    SN_ROLE_SUM,       // adds up over micro-batches, back at its first value after the update
    SN_ROLE_CONSTANT,  // a tensor that no one may change
    SN_ROLE_COUNT
} sn_role;

typedef enum sn_source_kind { SN_SOURCE_FILL, SN_SOURCE_FILE, SN_SOURCE_MEMORY } sn_source_kind;

// Where a global's first value is. Weights stay in their files: data points into a mapping that outlives the module.
typedef struct sn_source {
    sn_source_kind kind;
    double fill;      // SN_SOURCE_FILL: every element
    const char *path; // SN_SOURCE_FILE
    int64_t offset;   // bytes into the file
    const void *data; // SN_SOURCE_FILE (mapped; NULL when only named, after parsing text) and SN_SOURCE_MEMORY
} sn_source;

struct sn_global {
    const char *name; // without the @; the ONNX initializer's name
    sn_role role;
    sn_global *of;   // SN_ROLE_OPTIMIZER, SN_ROLE_SUM: the parameter it belongs to; a sum may belong to none
    const char *why; // how the role was decided, for `sennit info`
    sn_source source;
    sn_value *value;
};

struct sn_module {
    sn_arena arena;
    sn_form form;
    const char *name;
    sn_mesh mesh; // n_axes 0 in graph form
    SN_VEC(sn_global *) globals;
    SN_VEC(sn_func *) funcs;
    sn_map globals_by_name, funcs_by_name;
    sn_map last_suffixes; // of globals' names that were taken: name -> the number added to it last
    int64_t arena_bytes;  // sched form: of one rank
};

sn_module *sn_module_new(const char *name);
void sn_module_free(sn_module *module);
sn_func *sn_module_add_func(sn_module *module, const char *name); // the name must be new
sn_func *sn_module_func(const sn_module *module, const char *name);
void sn_module_remove_func(sn_module *module, sn_func *func);
// Adds a global; a taken name gets a suffix (".1"). `name` is copied.
sn_global *sn_module_add_global(sn_module *module, const char *name, sn_type type, sn_role role, sn_source source);
sn_global *sn_module_global(const sn_module *module, const char *name);
void sn_module_remove_global(sn_module *module, sn_global *global); // must have no uses

sn_value *sn_func_add_arg(sn_func *func, const char *name, sn_type type);
void sn_func_add_result(sn_func *func, sn_value *value, const char *name);

// A new op before `before` (NULL: at the end). Operands may not be NULL. Attributes are copied; missing ones with a
// default are not stored, the accessors know it. `result_types` has n_results types.
sn_op *sn_op_new(sn_func *func, sn_op *before, sn_op_kind kind, int n_operands, sn_value *const *operands, int n_attrs,
                 const sn_attr *attrs, int n_results, const sn_type *result_types);
void sn_op_erase(sn_op *op);                      // its results must have no uses
void sn_op_move_before(sn_op *op, sn_op *before); // within the function; NULL: to the end
void sn_op_set_operand(sn_op *op, int index, sn_value *value);
void sn_value_replace(sn_value *old, sn_value *with); // in all ops and in the results of the function(s)
bool sn_value_is_used(const sn_value *value);         // by an op or as a function's result
// The value whose bytes it shows, seen through any number of views (SN_TRAIT_VIEW); itself where it is not a view.
const sn_value *sn_value_viewed(const sn_value *value);
bool sn_value_is_constant(const sn_value *value); // a CONSTANT op's result
// The number of a CONSTANT op's result, whatever its element type; false for other values.
bool sn_value_number(const sn_value *value, double *out);

const sn_attr *sn_op_attr(const sn_op *op, const char *name); // NULL when not stored
// These know the defaults of ops.def; asking for an attribute that the operator does not have is a bug.
int64_t sn_op_int(const sn_op *op, const char *name);
double sn_op_float(const sn_op *op, const char *name);
const char *sn_op_string(const sn_op *op, const char *name);
const int64_t *sn_op_ints(const sn_op *op, const char *name, int *count); // count may be NULL
sn_func *sn_op_func(const sn_op *op, const char *name);
void sn_op_set_attr(sn_op *op, sn_attr attr); // copied; replaces one of the same name

sn_attr sn_attr_int(const char *name, int64_t value);
sn_attr sn_attr_float(const char *name, double value);
sn_attr sn_attr_string(const char *name, const char *value);
sn_attr sn_attr_ints(const char *name, const int64_t *data, int count);
sn_attr sn_attr_func(const char *name, sn_func *func);

const sn_origin *sn_origin_new(sn_module *module, const char *name, const sn_origin *parent);
// "/h.0/c_fc/MatMul" <- autodiff, or "" for NULL.
void sn_origin_print(sn_str *out, const sn_origin *origin);
const char *sn_origin_node(const sn_origin *origin); // the ONNX node at the root of the chain, or NULL

#define SN_FOR_OPS(op, func) for (sn_op *op = (func)->first; op; op = op->next)
#define SN_FOR_OPS_SAFE(op, func)                                                                                      \
    for (sn_op *op = (func)->first, *next_ = op ? op->next : NULL; op; op = next_, next_ = op ? op->next : NULL)
