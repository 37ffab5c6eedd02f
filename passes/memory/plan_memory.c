// plan-memory: gives every value of the sched form that needs storage an address in the rank's arena.
//
//   arena:  [ globals | arguments and rank coordinates ][ transient values of @step, @eval, … share this part ]
//
// With pipeline stages each pipeline rank has an arena of its own, in which only its functions and globals lie.
//
// Globals, arguments (by name, over all functions) and axis_index values keep their place for the whole run. What is
// kept from one function to another (passes/partition/stages.h) is an argument of the second; the op of the first that
// computes it writes it there, if the storage is the value's own. Kept values and inputs have as many slots as
// micro-batches are in flight (passes/schedule/sequence.h); where a rank has several chunks, kept values of equal size
// share theirs (passes/memory/pool.h). A transient value lives from its op to its last reader; two whose lives do not
// overlap may share bytes. Addresses are chosen for the largest values first, each at the lowest place that is free
// during its life (best-fit by decreasing size: the greedy of Pisarchyk and Lee, "Efficient memory management for deep
// neural net inference", 2020, section 5). Values that only rename storage (passes/memory/strided.h), results that a
// kernel writes over an operand, and all-reduces of a value that nobody reads later take their operand's place. A value
// that is assigned to a global is made in the global's place where nobody reads the old one any more.
#include "passes/memory/pool.h"
#include "passes/memory/share.h"
#include "passes/partition/stages.h"
#include "passes/pass.h"
#include "passes/schedule/sequence.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

typedef struct life {
    sn_value *value; // has storage of its own
    int64_t bytes, offset;
    uint32_t first, last; // positions of ops
} life;

typedef struct planner {
    sn_module *module;
    const sn_plan *plan; // may be NULL
    int rank;            // pipeline rank
    int64_t resident;    // bytes taken for the whole run
    sn_map args;         // the first argument of each name
    sn_map pooled;       // kept values that share slots (passes/memory/pool.h)
    SN_VEC(life) lives;
} planner;

static int64_t align(int64_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void place_resident(planner *p, sn_value *value, int slots) {
    value->place = (sn_place){.placed = true, .offset = p->resident, .slots = slots};
    p->resident += slots * align(sn_type_bytes(value->type));
}

static void place_pooled(planner *p, sn_value *value, const sn_pooled *pooled) {
    sn_pool *pool = pooled->pool;
    if (pool->offset < 0) {
        pool->offset = p->resident;
        p->resident += pool->slots * align(pool->bytes);
    }
    value->place = (sn_place){true, pool->offset, pool->slots, pooled->table};
}

static void place_argument(planner *p, sn_value *arg) {
    const sn_value *known = sn_map_get(&p->args, arg->name);
    if (known) {
        SN_CHECK(sn_type_equal(known->type, arg->type));
        arg->place = known->place;
        return;
    }
    bool of_run = arg->name[0] == '$' && !sn_is_kept_name(arg->name);
    const sn_pooled *pooled = sn_map_get(&p->pooled, arg->name);
    if (pooled)
        place_pooled(p, arg, pooled);
    else
        place_resident(p, arg, of_run ? 1 : sn_slots_of(p->module, p->plan, p->rank, arg->name));
    sn_map_put(&p->args, arg->name, arg);
}

// Lives of the function's transient values. value->id is the index of its life plus one.
static void find_lives(planner *p, sn_func *func) {
    p->lives.count = 0;
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_results; i++) op->results[i]->id = 0;
    }
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_operands; i++) {
            const sn_value *storage = sn_owner_of(op->operands[i]);
            if (storage->kind == SN_VALUE_RESULT && storage->id) p->lives.data[storage->id - 1].last = op->mark;
        }
        for (int i = 0; i < op->n_results; i++) {
            sn_value *value = op->results[i];
            if (sn_owner_of(value) != value || value->place.placed || op->kind == SN_OP_CONSTANT) continue;
            sn_vec_push(&p->lives, (life){value, align(sn_type_bytes(value->type)), -1, op->mark, op->mark});
            value->id = (uint32_t)p->lives.count;
        }
    }
}

static void keep_to_the_end(planner *p, const sn_value *value) {
    const sn_value *storage = sn_owner_of((sn_value *)(uintptr_t)value);
    if (storage->kind == SN_VALUE_RESULT && storage->id) p->lives.data[storage->id - 1].last = UINT32_MAX;
}

// What is read after the last op: the function's results, and the values of assignments that were not made in place.
static void keep_what_leaves(planner *p, const sn_func *func) {
    for (size_t i = 0; i < func->results.count; i++) keep_to_the_end(p, func->results.data[i]);
    SN_FOR_OPS(op, func) {
        if (op->kind == SN_OP_ASSIGN) keep_to_the_end(p, op->operands[1]);
    }
}

static int by_size(const void *a, const void *b) {
    const life *x = *(const life *const *)a, *y = *(const life *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static int by_offset(const void *a, const void *b) {
    const life *x = *(const life *const *)a, *y = *(const life *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

// The lowest offset where `bytes` fit between the placed values that live at the same time.
static int64_t lowest_gap(const life *wanted, life **neighbours, size_t n) {
    qsort(neighbours, n, sizeof *neighbours, by_offset);
    int64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (neighbours[i]->offset - at >= wanted->bytes) break;
        int64_t end = neighbours[i]->offset + neighbours[i]->bytes;
        if (end > at) at = end;
    }
    return at;
}

// Offsets from 0; returns the bytes they need.
static int64_t pack(planner *p, sn_arena *scratch) {
    size_t n = p->lives.count;
    life **order = SN_NEW_N(scratch, life *, n + 1), **neighbours = SN_NEW_N(scratch, life *, n + 1);
    for (size_t i = 0; i < n; i++) order[i] = &p->lives.data[i];
    qsort(order, n, sizeof *order, by_size);
    int64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        size_t near = 0;
        for (size_t j = 0; j < i; j++)
            if (order[j]->first <= order[i]->last && order[i]->first <= order[j]->last) neighbours[near++] = order[j];
        order[i]->offset = lowest_gap(order[i], neighbours, near);
        if (order[i]->offset + order[i]->bytes > bytes) bytes = order[i]->offset + order[i]->bytes;
    }
    return bytes;
}

// Storage of a kept value that is the value's own lies where the functions that read it look.
static void place_kept(planner *p, sn_func *func) {
    for (size_t i = 0; i < func->results.count; i++) {
        const char *name = func->result_names.data[i];
        const sn_value *reader = sn_is_kept_name(name) ? sn_map_get(&p->args, name) : NULL;
        sn_strided view;
        if (!reader || !sn_strided_view(func->results.data[i], &view) || !sn_strided_is_dense(&view)) continue;
        sn_value *storage = sn_owner_of(view.root);
        bool own = storage->kind == SN_VALUE_RESULT && !storage->place.placed && view.offset == 0 &&
                   sn_type_bytes(storage->type) == sn_type_bytes(reader->type);
        if (own) storage->place = reader->place;
    }
}

static bool is_read_from(const sn_op *first, const sn_value *global) {
    for (const sn_op *op = first; op; op = op->next)
        for (int i = op->kind == SN_OP_ASSIGN; i < op->n_operands; i++)
            if (sn_owner_of(op->operands[i]) == global) return true;
    return false;
}

// The new value of a global lies where the global does, if nobody reads the old one when it is made: parameters that
// ZeRO's ranks join after their update are not held twice.
static void place_assigned(sn_func *func) {
    SN_FOR_OPS(op, func) {
        sn_strided view;
        if (op->kind != SN_OP_ASSIGN || !sn_strided_view(op->operands[1], &view) || !sn_strided_is_dense(&view))
            continue;
        sn_value *storage = sn_owner_of(view.root);
        const sn_value *global = op->operands[0];
        bool own = storage->kind == SN_VALUE_RESULT && !storage->place.placed && view.offset == 0 &&
                   storage->def->kind != SN_OP_CONSTANT && sn_type_bytes(storage->type) == sn_type_bytes(global->type);
        if (own && !is_read_from(storage->def, global)) storage->place = global->place;
    }
}

static int64_t plan_func(planner *p, sn_func *func, sn_arena *scratch) {
    sn_order_updates(func);
    sn_delay_reductions(func);
    sn_share_storage(func);
    place_kept(p, func);
    place_assigned(func);
    find_lives(p, func);
    keep_what_leaves(p, func);
    int64_t bytes = pack(p, scratch);
    for (size_t i = 0; i < p->lives.count; i++)
        p->lives.data[i].value->place = (sn_place){.placed = true, .offset = p->resident + p->lives.data[i].offset};
    return bytes;
}

// Values that took another's storage say so in the dump: the address of their first element.
static void place_shared(sn_func *func) {
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_results; i++) {
            sn_strided view;
            if (op->results[i]->place.placed || !sn_strided_view(op->results[i], &view)) continue;
            const sn_value *storage = sn_owner_of(view.root);
            int64_t bytes = (int64_t)sn_dtype_bytes(op->results[i]->type.dtype);
            op->results[i]->place = storage->place;
            op->results[i]->place.offset += view.offset * bytes;
        }
    }
}

static bool is_of_rank(const planner *p, const sn_func *func) {
    int rank = sn_pipeline_rank_of(func);
    return !func->is_body && (rank < 0 || rank == p->rank);
}

// The arena of one pipeline rank; returns its bytes.
static int64_t plan_rank(planner *p, bool has_stages, sn_arena *scratch) {
    sn_module *module = p->module;
    int64_t transient = 0;
    p->resident = 0;
    sn_pool_kept(module, p->plan, p->rank, scratch, &p->pooled);
    for (size_t i = 0; i < module->globals.count; i++) {
        sn_global *global = module->globals.data[i];
        if (!has_stages || sn_pipeline_rank_of_global(global) == p->rank) place_resident(p, global->value, 1);
    }
    for (size_t f = 0; f < module->funcs.count; f++) {
        sn_func *func = module->funcs.data[f];
        if (!is_of_rank(p, func)) continue;
        for (size_t a = 0; a < func->args.count; a++) place_argument(p, func->args.data[a]);
        SN_FOR_OPS(op, func) {
            if (op->kind == SN_OP_AXIS_INDEX) place_resident(p, op->results[0], 1);
        }
    }
    for (size_t f = 0; f < module->funcs.count; f++) {
        sn_func *func = module->funcs.data[f];
        if (!is_of_rank(p, func)) continue;
        int64_t bytes = plan_func(p, func, scratch);
        if (bytes > transient) transient = bytes;
        place_shared(func);
    }
    sn_map_free(&p->args);
    sn_map_free(&p->pooled);
    return p->resident + transient;
}

static void run(sn_module *module, sn_pass_context *context) {
    planner p = {.module = module, .plan = context->plan};
    bool has_stages = sn_module_has_stages(module);
    int ranks = has_stages ? sn_pipeline_ranks(module) : 1;
    module->arena_bytes = 0;
    for (p.rank = 0; p.rank < ranks; p.rank++) {
        int64_t bytes = plan_rank(&p, has_stages, context->scratch);
        if (bytes > module->arena_bytes) module->arena_bytes = bytes;
    }
    sn_vec_free(&p.lives);
}

const sn_pass sn_pass_plan_memory = {
    .name = "plan-memory",
    .summary = "gives every value an address in the rank's arena; values that do not live together share bytes",
    .forms = 1 << SN_FORM_SCHED,
    .result = SN_FORM_SCHED,
    .run = run,
};
