// fuse: groups the ops of each function into kernels.
//
//     %m = matmul(%x, @w)                        %m = matmul(%x, @w)
//     %b = add(%m, @bias)                   ->   %g = kernel(%m, @bias) <body=@k_add_gelu_256x3072, inplace=[0]>
//     %g = gelu(%b)
//
// Library calls, collectives and assigns stay; views that they read with strides stay in front of them, anything else
// that they read is stored first. The rest is grouped (passes/schedule/group.c). Kernels come in program order, except
// that parameters are updated as soon as their gradients are there and their old values have been read, which keeps
// gradients short-lived.
#include "passes/schedule/fuse.h"

#include "ir/build.h"
#include "passes/schedule/body.h"
#include "passes/schedule/inplace.h"

#include <stdlib.h>
#include <string.h>

typedef struct node { // of the graph of units
    SN_VEC(int) needed_by;
    int needs; // units that are not emitted yet
    uint32_t position;
    bool emitted;
} node;

typedef struct fusion {
    sn_func *func;
    const sn_pass_context *context;
    sn_grouping g;
    sn_bodies bodies;
    node *nodes;             // by unit
    const sn_value **global; // by op mark: the global that the op's first result is written over
    int *seen, stamp;
    SN_VEC(int) ready;
} fusion;

// A copy of `value` in dense storage, one for all who need it.
static sn_value *stored_copy(sn_func *func, sn_value *value, const sn_op *reader) {
    sn_op *behind = value->kind == SN_VALUE_RESULT ? value->def->next : func->first;
    for (sn_op *op = behind; op && op->kind == SN_OP_COPY; op = op->next)
        if (op->operands[0] == value) return op->results[0];
    sn_builder b = {.func = func, .before = behind, .origin = reader ? reader->origin : NULL};
    if (value->kind == SN_VALUE_RESULT) b.phase = value->def->phase;
    if (value->kind == SN_VALUE_RESULT && value->def->origin) b.origin = value->def->origin;
    return sn_build_unary(&b, SN_OP_COPY, value);
}

// Whether a kernel or an outside op computes the value, or it is there from the start.
static bool is_stored(const sn_value *value) {
    if (value->kind != SN_VALUE_RESULT || sn_stays_outside(value->def)) return true;
    sn_op_class class = sn_op_class_of(value->def->kind);
    return class != SN_CLASS_INDEX;
}

// Whether the reader (NULL: the function's caller) sees `value` through strides that it takes.
static bool takes(const sn_op *reader, int index, const sn_strided *view) {
    if (!reader) return view->offset == 0 && sn_strided_is_dense(view);
    return sn_library_runs(reader) ? sn_library_takes(reader, index, view) : sn_strided_is_dense(view);
}

// What an outside op reads must be stored, and seen through strides that it takes. Of a view of something that kernels
// would make again (a concat, say) the whole is stored, for all its readers.
static sn_value *readable(sn_func *func, const sn_op *reader, int index, sn_value *value) {
    sn_strided view;
    if (!sn_strided_view(value, &view)) return stored_copy(func, value, reader);
    if (!is_stored(view.root) && view.root->def->n_operands) {
        sn_value *root = view.root, *copy = stored_copy(func, root, reader);
        sn_value_replace(root, copy);
        sn_op_set_operand(copy->def, 0, root);
        if (value == root) value = copy;
        view.root = copy;
    }
    return is_stored(view.root) && takes(reader, index, &view) ? value : stored_copy(func, value, reader);
}

// A global that is set to one number everywhere is filled: no kernel makes the tensor.
static bool is_filled(const sn_op *op) {
    return op->kind == SN_OP_ASSIGN && sn_value_is_constant(op->operands[1]);
}

static void store_what_leaves(sn_func *func) {
    for (sn_op *op = func->first, *next; op; op = next) {
        next = op->next;
        if (!sn_stays_outside(op) || is_filled(op)) continue;
        if (sn_restores_transposed(op)) continue;
        for (int i = op->kind == SN_OP_ASSIGN; i < op->n_operands; i++)
            sn_op_set_operand(op, i, readable(func, op, i, op->operands[i]));
    }
    for (size_t i = 0; i < func->results.count; i++)
        func->results.data[i] = readable(func, NULL, 0, func->results.data[i]);
}

static bool is_read_backward(const sn_value *value) {
    for (size_t i = 0; i < value->uses.count; i++)
        if (value->uses.data[i].op->phase == SN_PHASE_BACKWARD) return true;
    return false;
}

// Of what kernels make again from something larger that is there for the forward pass alone, as rows of a table that
// was gathered over ranks, the backward pass reads a copy.
static void store_for_later(sn_func *func) {
    SN_FOR_OPS(op, func) {
        sn_value *result = op->n_results == 1 ? op->results[0] : NULL;
        if (!result || op->phase != SN_PHASE_FORWARD || is_stored(result) || !is_read_backward(result)) continue;
        bool larger = false;
        for (int i = 0; i < op->n_operands; i++) {
            const sn_value *from = op->operands[i];
            while (from->kind == SN_VALUE_RESULT && sn_op_has(from->def->kind, SN_TRAIT_VIEW))
                from = from->def->operands[0];
            larger |= from->kind == SN_VALUE_RESULT && sn_stays_outside(from->def) && !is_read_backward(from) &&
                      sn_type_bytes(from->type) > sn_type_bytes(result->type);
        }
        if (!larger) continue;
        sn_value *copy = stored_copy(func, result, NULL);
        sn_value_replace(result, copy);
        sn_op_set_operand(copy->def, 0, result);
    }
}

static int unit_index(const fusion *f, const sn_unit *unit) {
    return (int)(unit - f->g.units);
}

static void need(fusion *f, int unit, int needed) {
    if (unit == needed) return;
    node *from = &f->nodes[needed];
    for (size_t i = 0; i < from->needed_by.count; i++)
        if (from->needed_by.data[i] == unit) return;
    sn_vec_push(&from->needed_by, unit);
    f->nodes[unit].needs++;
}

// `unit` reads `value`, which is stored or made again from stored values.
static void need_value(fusion *f, const sn_value *value, int unit) {
    if (value->kind != SN_VALUE_RESULT) return;
    if (!sn_is_inlined(&f->g, value->def)) {
        need(f, unit, unit_index(f, sn_unit_of(&f->g, value->def)));
        return;
    }
    for (int i = 0; i < value->def->n_operands; i++) need_value(f, value->def->operands[i], unit);
}

static void connect(fusion *f) {
    SN_FOR_OPS(op, f->func) {
        if (sn_is_inlined(&f->g, op)) continue;
        int unit = unit_index(f, sn_unit_of(&f->g, op));
        if (f->nodes[unit].position < op->mark) f->nodes[unit].position = op->mark;
        for (int i = op->kind == SN_OP_ASSIGN; i < op->n_operands; i++) need_value(f, op->operands[i], unit);
    }
}

typedef struct reader_list {
    int unit[512];
    int n;
    bool overflow;
} reader_list;

static void list_readers(const fusion *f, const sn_value *value, reader_list *out) {
    for (size_t i = 0; i < value->uses.count; i++) {
        const sn_op *user = value->uses.data[i].op;
        if (user->func != f->func) continue; // globals serve all functions
        if (user->kind == SN_OP_ASSIGN && value->uses.data[i].index == 0) continue;
        if (sn_is_inlined(&f->g, user)) {
            for (int r = 0; r < user->n_results; r++) list_readers(f, user->results[r], out);
        } else if (out->n == 512) {
            out->overflow = true;
        } else {
            out->unit[out->n++] = unit_index(f, sn_unit_of(&f->g, user));
        }
    }
}

static bool is_result(const fusion *f, const sn_value *value) {
    for (size_t i = 0; i < f->func->results.count; i++)
        if (f->func->results.data[i] == value) return true;
    return false;
}

static bool depends(const fusion *f, int unit, int on) {
    return f->g.units[unit].ancestors[on / 64] >> (on % 64) & 1;
}

static void add_order(fusion *f, int unit, int after) {
    if (unit == after) return;
    need(f, unit, after);
    sn_unit *u = &f->g.units[unit];
    u->ancestors[after / 64] |= UINT64_C(1) << (after % 64);
    for (int i = 0; i < f->g.words; i++) u->ancestors[i] |= f->g.units[after].ancestors[i];
    for (int v = 0; v < f->g.n_units; v++)
        if (depends(f, v, unit))
            for (int i = 0; i < f->g.words; i++) f->g.units[v].ancestors[i] |= u->ancestors[i];
}

// Whether only members of the unit read the value, apart from `assign`.
static bool is_read_within(const fusion *f, const sn_value *value, const sn_unit *unit, const sn_op *assign) {
    for (size_t i = 0; i < value->uses.count; i++) {
        const sn_op *user = value->uses.data[i].op;
        if (user != assign && (sn_is_inlined(&f->g, user) || sn_unit_of(&f->g, user) != unit)) return false;
    }
    return true;
}

// Ties the value of an assign to its global where the kernel that computes it may write there: no one else reads the
// value, the kernel reads the global elementwise, and all other readers of the global can run before.
static void tie_assign(fusion *f, const sn_op *assign) {
    sn_value *global = assign->operands[0], *value = assign->operands[1];
    if (value->kind != SN_VALUE_RESULT || is_result(f, value)) return;
    if (sn_is_inlined(&f->g, value->def) || !sn_type_equal(global->type, value->type)) return;
    const sn_unit *unit = sn_unit_of(&f->g, value->def);
    int at = unit_index(f, unit);
    if (unit->outside || is_result(f, global) || !is_read_within(f, value, unit, assign)) return;
    if (!sn_reads_elementwise(&f->g, unit, global, f->seen, ++f->stamp)) return;
    reader_list readers = {.n = 0};
    list_readers(f, global, &readers);
    bool possible = !readers.overflow, reads = false;
    for (int i = 0; i < readers.n; i++) {
        reads |= readers.unit[i] == at;
        possible &= !depends(f, readers.unit[i], at);
    }
    if (!possible || !reads) return;
    for (int i = 0; i < readers.n; i++) add_order(f, at, readers.unit[i]);
    f->global[value->def->mark] = global;
}

// A transient operand may be overwritten when this unit is its last reader.
static bool dies_here(fusion *f, const sn_unit *unit, const sn_value *operand, const sn_value *result) {
    if (operand->kind != SN_VALUE_RESULT || sn_is_stored_transposed(operand)) return false;
    if (operand->def->kind != SN_OP_KERNEL && !sn_library_runs(operand->def)) return false;
    bool fits =
        operand->type.dtype == result->type.dtype && sn_type_count(operand->type) == sn_type_count(result->type);
    if (!fits || is_result(f, operand)) return false;
    reader_list readers = {.n = 0};
    for (size_t i = 0; i < operand->uses.count; i++) {
        const sn_op *user = operand->uses.data[i].op;
        if (user->mark == UINT32_MAX) continue; // emitted
        if (user->kind == SN_OP_ASSIGN) return false;
        if (!sn_is_inlined(&f->g, user)) {
            if (sn_unit_of(&f->g, user) != unit && !f->nodes[unit_index(f, sn_unit_of(&f->g, user))].emitted)
                return false;
            continue;
        }
        for (int r = 0; r < user->n_results; r++) {
            if (is_result(f, user->results[r])) return false;
            list_readers(f, user->results[r], &readers);
        }
    }
    for (int i = 0; i < readers.n; i++)
        if (readers.unit[i] != unit_index(f, unit) && !f->nodes[readers.unit[i]].emitted) return false;
    return !readers.overflow && sn_reads_elementwise(&f->g, unit, operand, f->seen, ++f->stamp);
}

static sn_value *find_dying(fusion *f, const sn_unit *unit, sn_value *value, const sn_value *result) {
    if (value->kind != SN_VALUE_RESULT) return NULL;
    const sn_op *op = value->def;
    if (op->mark == UINT32_MAX || (!sn_is_inlined(&f->g, op) && sn_unit_of(&f->g, op) != unit))
        return dies_here(f, unit, value, result) ? value : NULL;
    if (sn_type_count(op->results[0]->type) != sn_type_count(result->type)) return NULL;
    for (int i = 0; i < op->n_operands; i++) {
        sn_value *found = find_dying(f, unit, op->operands[i], result);
        if (found) return found;
    }
    return NULL;
}

static sn_value *tie(void *user, const sn_unit *unit, const sn_value *result) {
    fusion *f = user;
    if (f->global[result->def->mark] && result->index == 0) return (sn_value *)(uintptr_t)f->global[result->def->mark];
    if (sn_op_class_of(result->def->kind) != SN_CLASS_POINTWISE) return NULL;
    for (int i = 0; i < result->def->n_operands; i++) {
        sn_value *found = find_dying(f, unit, result->def->operands[i], result);
        if (found) return found;
    }
    return NULL;
}

static void emit_one(fusion *f, int index) {
    sn_unit *unit = &f->g.units[index];
    f->nodes[index].emitted = true;
    sn_op *first = unit->members.data[0];
    if (unit->outside) {
        sn_op_move_before(first, NULL);
    } else {
        const sn_origin *origin = sn_pass_origin(f->func->module, f->context, first);
        sn_body_make_kernel(&f->bodies, unit, NULL, origin, tie, f);
    }
    for (size_t i = 0; i < f->nodes[index].needed_by.count; i++) {
        int next = f->nodes[index].needed_by.data[i];
        if (--f->nodes[next].needs == 0 && f->g.units[next].phase == SN_PHASE_UPDATE) sn_vec_push(&f->ready, next);
    }
}

static void emit_ready(fusion *f) {
    while (f->ready.count) {
        int next = f->ready.data[--f->ready.count];
        if (!f->nodes[next].emitted) emit_one(f, next);
    }
}

static void emit(fusion *f, int index) {
    if (f->nodes[index].emitted) return;
    for (int u = 0; f->nodes[index].needs > 0 && u < f->g.n_units; u++)
        if (depends(f, index, u) && f->g.units[u].merged_into < 0) emit(f, u);
    SN_CHECK(f->nodes[index].needs == 0);
    if (f->nodes[index].emitted) return; // an update goes out as soon as the last unit that it needs has
    emit_one(f, index);
    emit_ready(f);
}

static int by_position(const void *a, const void *b, void *user) {
    const fusion *f = user;
    uint32_t x = f->nodes[*(const int *)a].position, y = f->nodes[*(const int *)b].position;
    return x < y ? -1 : x > y;
}

static void emit_all(fusion *f) {
    int *order = SN_NEW_N(f->g.arena, int, f->g.n_units + 1), n = 0;
    for (int u = 0; u < f->g.n_units; u++)
        if (f->g.units[u].merged_into < 0) order[n++] = u;
    qsort_r(order, (size_t)n, sizeof *order, by_position, f);
    for (int i = 0; i < n; i++) emit(f, order[i]);
}

// What is left in front of the kernels: members and inlined ops, dead or read by outside ops as views (or as the number
// that fills a global).
static void clean(fusion *f) {
    for (sn_op *op = f->func->last, *prev; op; op = prev) {
        prev = op->prev;
        bool effect = op->kind == SN_OP_ASSIGN || op->kind == SN_OP_KERNEL || sn_stays_outside(op);
        bool used = effect;
        for (int r = 0; r < op->n_results && !used; r++) used = sn_value_is_used(op->results[r]);
        if (!used) sn_op_erase(op);
    }
}

// Puts each view right behind what it views.
static void place_views(fusion *f) {
    for (sn_op *op = f->func->first, *next; op; op = next) {
        next = op->next;
        if (op->kind == SN_OP_KERNEL || op->kind == SN_OP_CONSTANT || sn_stays_outside(op)) continue;
        sn_value *from = op->operands[0];
        if (from->kind == SN_VALUE_RESULT) sn_op_move_before(op, from->def->next);
    }
}

void sn_fuse_function(sn_func *func, const sn_pass_context *context, sn_map *bodies) {
    sn_split_reductions(func);
    sn_split_concats(func);
    store_for_later(func);
    store_what_leaves(func);
    fusion f = {.func = func, .context = context};
    sn_arena arena = {0};
    sn_group_ops(func, &arena, &f.g);
    size_t n = func->n_ops + 1;
    f.bodies = (sn_bodies){.module = func->module,
                           .grouping = &f.g,
                           .by_text = *bodies,
                           .copy_of = SN_NEW_N(&arena, sn_value *, n),
                           .made_in = SN_NEW_N(&arena, int, n)};
    f.nodes = SN_NEW_N(&arena, node, f.g.n_units + 1);
    f.global = SN_NEW_N(&arena, const sn_value *, n);
    f.seen = SN_NEW_N(&arena, int, n);
    connect(&f);
    SN_FOR_OPS(op, func) if (op->kind == SN_OP_ASSIGN) tie_assign(&f, op);
    emit_all(&f);
    *bodies = f.bodies.by_text;
    clean(&f);
    place_views(&f);
    for (int u = 0; u < f.g.n_units; u++) {
        sn_vec_free(&f.nodes[u].needed_by);
        sn_vec_free(&f.g.units[u].members);
    }
    sn_vec_free(&f.ready);
    sn_arena_free(&arena);
}

static void run(sn_module *module, sn_pass_context *context) {
    sn_map bodies = {0};
    size_t n = module->funcs.count;
    for (size_t i = 0; i < n; i++)
        if (!module->funcs.data[i]->is_body) sn_fuse_function(module->funcs.data[i], context, &bodies);
    sn_map_free(&bodies);
}

const sn_pass sn_pass_fuse = {
    .name = "fuse",
    .summary = "groups ops into kernels; library calls read views with strides, parameters are updated in place",
    .forms = 1 << SN_FORM_SCHED,
    .result = SN_FORM_SCHED,
    .run = run,
};
