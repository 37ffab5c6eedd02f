// Schedules: how the elements of a body's results are spread over blocks and loops.
#pragma once
#include "backend/lower/element.h"
#include "passes/schedule/domain.h"

// Everything but the kernel itself, which needs its grid when it is made.
typedef struct sn_lowering {
    const sn_op *op; // the kernel op
    const sn_func *body;
    const char *name;
    sn_lower l;
    sn_kir_buffer **results; // of the body's results, by index
    bool too_large;          // for the blocks that a launch can have: what is built then is thrown away
} sn_lowering;

// Makes the kernel with its parameters; the schedules below call it once they know the grid.
void sn_lowering_begin(sn_lowering *lowering, int64_t grid);
void sn_lowering_store(sn_lowering *lowering, size_t result, const sn_point *point, sn_kir_node *value);

// Results of any shapes, element by element.
void sn_schedule_map(sn_lowering *lowering);
// All reductions of the body over one domain that has reduced segments; false (nothing done) when the body is no such
// thing.
bool sn_schedule_rows(sn_lowering *lowering);

// A product whose elements are used where they are made; false (nothing done) for other bodies.
bool sn_schedule_product(sn_lowering *lowering);

// Scatters, and running sums and products, that are a kernel of their own; false (nothing done) for other bodies.
bool sn_schedule_scatter(sn_lowering *lowering);
bool sn_schedule_scan(sn_lowering *lowering);

sn_kir_node *sn_kir_at_most(sn_kir *k, sn_kir_node *value, int64_t limit); // min(value, limit)
