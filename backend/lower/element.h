// Elements of values as expressions of their indices, within one kernel.
#pragma once
#include "backend/kernel/kir.h"
#include "base/vec.h"
#include "ir/graph.h"

// Indices of one element, one per dim.
typedef struct sn_point {
    sn_kir_node *at[SN_MAX_RANK];
} sn_point;

// What is known of a value's elements at the place where code is being made.
typedef struct sn_known_element {
    const sn_value *value;
    sn_point point;
    sn_kir_node *predicate;
    sn_kir_node *node;      // the element at `point`
    sn_kir_buffer *scratch; // else: holds the elements of a row, those with `point` in the dims where it is set
} sn_known_element;

typedef struct sn_lower {
    sn_kir *k;
    const sn_func *body;
    sn_kir_buffer **buffers;        // of the arguments, by index
    sn_kir_node *predicate;         // loads happen only where it holds; NULL: always
    SN_VEC(sn_known_element) known; // innermost scope last
    SN_VEC(size_t) scopes;          // where each scope of `known` starts
} sn_lower;

// Fills `out` with an element of each result of the op at `point`; all results of such an op have one shape.
typedef void (*sn_lower_rule)(sn_lower *l, const sn_op *op, const sn_point *point, sn_kir_node **out);
extern const sn_lower_rule sn_lower_rules[SN_OP_COUNT];

sn_kir_node *sn_lower_element(sn_lower *l, const sn_value *value, const sn_point *point);
// The element that implicit broadcasting reads for `point` of a result of type `result`.
sn_kir_node *sn_lower_broadcast_element(sn_lower *l, const sn_value *value, sn_type result, const sn_point *point);

// The type that elements of `dtype` are computed in: f32 for the 16-bit floats.
sn_dtype sn_lower_compute_type(sn_dtype dtype);
// `node` as an element of `dtype`: rounds to the 16-bit floats.
sn_kir_node *sn_lower_round(sn_lower *l, sn_kir_node *node, sn_dtype dtype);
sn_kir_node *sn_lower_zero(sn_lower *l, sn_dtype dtype);
// Conversion of an element of type `from` to `to`, as the operator `cast` defines it.
sn_kir_node *sn_lower_convert(sn_lower *l, sn_kir_node *node, sn_dtype from, sn_dtype to);

// Row-major position of `point` in `type`, and back.
sn_kir_node *sn_lower_flat(sn_lower *l, sn_type type, const sn_point *point);
sn_point sn_lower_unflat(sn_lower *l, sn_type type, sn_kir_node *flat);

// Loops and conditions that rules open. What is known inside is forgotten at the end.
sn_kir_node *sn_lower_for(sn_lower *l, sn_kir_mapping mapping, sn_kir_node *low, sn_kir_node *high, int64_t step);
sn_kir_node *sn_lower_for_count(sn_lower *l, int64_t count); // serial, from 0
void sn_lower_end(sn_lower *l);
// Narrows where loads happen; returns what to give back to sn_lower_unguard.
sn_kir_node *sn_lower_guard(sn_lower *l, sn_kir_node *condition);
void sn_lower_unguard(sn_lower *l, sn_kir_node *outer);

void sn_lower_remember(sn_lower *l, const sn_value *value, const sn_point *point, sn_kir_node *node);
// `kept` is NULL in the dims over which `scratch` holds the elements, row-major.
void sn_lower_remember_row(sn_lower *l, const sn_value *value, const sn_point *kept, sn_kir_buffer *scratch);
