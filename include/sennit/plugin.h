/* Plug-ins of sennit: passes and cost models in a shared object that `--plugin FILE.so` loads.
 *
 * This header is all that a plug-in needs: plain C99, no library to link. The plug-in exports one function,
 *
 *     const sennit_plugin *sennit_plugin_query(uint32_t host_abi);
 *
 * which returns a table that lives as long as the process, or NULL when it cannot serve a host of that ABI. Everything
 * the plug-in wants of the host it asks through the table `sennit_host` that each call hands in.
 *
 * Compatibility: SENNIT_PLUGIN_ABI changes when a field changes its meaning. Tables only ever grow at the end, and each
 * starts with its size, so that host and plug-in may be of different ages: read no field beyond `size`.
 *
 * A mistake of a plug-in (a malformed module, NaN for a cost, a name that is taken, a crash, a call of exit) is
 * reported to the user as an error that names the plug-in. What C lets a plug-in do to memory, nobody can report.
 */
#ifndef SENNIT_PLUGIN_H
#define SENNIT_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SENNIT_PLUGIN_ABI 1u
#define SENNIT_MAX_RANK   8

/* The IR, opaque: a module holds functions, a function ops in order of execution, an op operands and results. */
typedef struct sennit_module sennit_module;
typedef struct sennit_func sennit_func;
typedef struct sennit_op sennit_op;
typedef struct sennit_value sennit_value;

typedef struct sennit_type {
    const char *dtype; /* "f32", "i64", "bool", …; the host's strings live as long as the process */
    int32_t rank;
    int64_t dim[SENNIT_MAX_RANK];
} sennit_type;

typedef enum sennit_attr_kind {
    SENNIT_ATTR_INT,
    SENNIT_ATTR_FLOAT,
    SENNIT_ATTR_STRING,
    SENNIT_ATTR_INTS
} sennit_attr_kind;

typedef struct sennit_attr {
    const char *name;
    sennit_attr_kind kind;
    int64_t i;           /* SENNIT_ATTR_INT */
    double f;            /* SENNIT_ATTR_FLOAT */
    const char *s;       /* SENNIT_ATTR_STRING */
    const int64_t *ints; /* SENNIT_ATTR_INTS: `count` of them */
    size_t count;
} sennit_attr;

typedef enum sennit_severity { SENNIT_REMARK, SENNIT_WARNING, SENNIT_ERROR } sennit_severity;

/* Forms of a module, as bits. */
enum { SENNIT_FORM_GRAPH = 1, SENNIT_FORM_DIST = 2, SENNIT_FORM_SCHED = 4 };

/* The host's services. Handles are valid during the call that the table was handed to, and an op's until it is erased.
 */
typedef struct sennit_host sennit_host;
struct sennit_host {
    uint32_t size; /* bytes of this table */
    uint32_t abi;

    /* Reading. Indices must be in range; names of operators and attributes are those of `sennit opt`'s text. */
    uint32_t (*form)(const sennit_module *module);
    size_t (*func_count)(const sennit_module *module);
    sennit_func *(*func)(sennit_module *module, size_t index);
    const char *(*func_name)(const sennit_func *func);
    sennit_op *(*first_op)(sennit_func *func); /* NULL for an empty function */
    sennit_op *(*next_op)(sennit_op *op);      /* NULL at the end */
    const char *(*op_name)(const sennit_op *op);
    const char *(*op_origin)(const sennit_op *op); /* the ONNX node, or "" */
    size_t (*operand_count)(const sennit_op *op);
    sennit_value *(*operand)(sennit_op *op, size_t index);
    size_t (*result_count)(const sennit_op *op);
    sennit_value *(*result)(sennit_op *op, size_t index);
    sennit_type (*value_type)(const sennit_value *value);
    const char *(*value_name)(const sennit_value *value); /* of an argument, a global or a hint; may be "" */
    sennit_op *(*value_op)(sennit_value *value);          /* the op that defines it; NULL for arguments and globals */
    size_t (*use_count)(const sennit_value *value);       /* operands that read it, and results of functions */
    int (*value_number)(const sennit_value *value, double *number); /* 1 when every element is one known number */
    int (*get_attr)(const sennit_op *op, const char *name, sennit_attr *out); /* 1 when set or with a default */

    /* Changing. */
    /* A new op before `before`. Attributes may be NULL when there are none; `types` (one per result) is needed for
     * operators whose result type is stated, and may be NULL for the rest. NULL, and an error, when it is not legal. */
    sennit_op *(*insert)(const sennit_host *host, sennit_op *before, const char *op, size_t n_operands,
                         sennit_value *const *operands, size_t n_attrs, const sennit_attr *attrs,
                         const sennit_type *types);
    /* Replaces every read of a value by another of the same type: 1; 0, and an error, otherwise. */
    int (*replace)(const sennit_host *host, sennit_value *old, sennit_value *with);
    /* Removes an op that no one reads: 1; 0, and an error, otherwise. */
    int (*erase)(const sennit_host *host, sennit_op *op);

    /* Tells the user something, about an op or (NULL) in general. An error stops the pipeline after the pass. */
    void (*report)(const sennit_host *host, sennit_severity severity, const sennit_op *op, const char *text);

    void *reserved; /* the host's */
};

typedef struct sennit_pass {
    uint32_t size;    /* sizeof(sennit_pass) */
    const char *name; /* as in --passes: letters, digits, '-', '_'; not one that sennit has */
    const char *summary;
    uint32_t forms; /* forms that it accepts; it must leave the form as it is */
    /* `arguments` is the text of "name{…}", or "". Returns 0; anything else is an error. */
    int (*run)(const sennit_host *host, sennit_module *module, const char *arguments);
} sennit_pass;

/* What a cost is asked for: an op for the shapes of one rank, on a kind of device. */
typedef struct sennit_cost_query {
    uint32_t size;
    const char *op;     /* "matmul" */
    const char *device; /* "cpu", "cuda:sm_90" */
    size_t n_operands, n_results;
    const sennit_type *operands, *results;
    double flops, bytes; /* as the host counts them */
} sennit_cost_query;

typedef struct sennit_collective_query {
    uint32_t size;
    const char *op; /* "all_reduce", "all_gather", "reduce_scatter", "all_to_all" */
    const char *device;
    double bytes; /* of the whole tensor */
    int64_t ranks;
} sennit_collective_query;

/* The host proposes, the plug-in edits: `seconds` comes filled with the built-in model's answers, one per query; what
 * the plug-in leaves as it is keeps that answer. A time is 0 to SENNIT_MAX_SECONDS: the first answer that is none (NaN,
 * a negative number) is an error of the command, and the plug-in is not asked again. Either function may be NULL. */
#define SENNIT_MAX_SECONDS 1e4
typedef struct sennit_cost_model {
    uint32_t size; /* sizeof(sennit_cost_model) */
    const char *name;
    void (*ops)(const sennit_cost_query *queries, size_t count, double *seconds);
    void (*collectives)(const sennit_collective_query *queries, size_t count, double *seconds);
} sennit_cost_model;

typedef struct sennit_plugin {
    uint32_t size; /* sizeof(sennit_plugin) */
    uint32_t abi;  /* SENNIT_PLUGIN_ABI */
    const char *name, *version;
    size_t n_passes;
    const sennit_pass *passes;
    const sennit_cost_model *cost_model; /* NULL when there is none */
} sennit_plugin;

/* The one symbol. */
typedef const sennit_plugin *(*sennit_plugin_query_fn)(uint32_t host_abi);
#define SENNIT_PLUGIN_SYMBOL "sennit_plugin_query"
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const sennit_plugin *
sennit_plugin_query(uint32_t host_abi);

#ifdef __cplusplus
}
#endif
#endif
