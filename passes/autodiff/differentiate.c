// The walk. Values are numbered; a value is active when a differentiable path leads to it from a wanted value and from
// it to the loss. Then ops are visited from the loss backwards: when an op is reached, all parts of its results'
// gradients have been sent, so they are summed once, and the op's rule sends parts to its operands.
#include "passes/autodiff/gradient.h"

// A part of a value's gradient; a slice's part is zero outside of the slice.
typedef struct part {
    sn_value *value;
    bool is_slice;
    int64_t starts[SN_MAX_RANK], steps[SN_MAX_RANK];
} part;

struct sn_gradient_sum {
    part *parts;
    size_t count, capacity;
    sn_value *whole; // once summed
};

static bool is_differentiable(const sn_op *op) {
    return sn_gradient_kind_of(op->kind) != SN_GRADIENT_ZERO;
}

static bool is_float(const sn_value *value) {
    return sn_dtype_is_float(value->type.dtype);
}

// A number for every value that the function can see, from 1; sn_value.id of any other value stays what it was, but no
// op of this function reads it.
static uint32_t number_values(sn_func *func) {
    uint32_t n = 0;
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_operands; i++) op->operands[i]->id = 0;
        for (int i = 0; i < op->n_results; i++) op->results[i]->id = 0;
    }
    for (size_t i = 0; i < func->args.count; i++) func->args.data[i]->id = ++n;
    SN_FOR_OPS(op, func) {
        for (int i = 0; i < op->n_operands; i++)
            if (!op->operands[i]->id) op->operands[i]->id = ++n;
        for (int i = 0; i < op->n_results; i++) op->results[i]->id = ++n;
    }
    return n + 1;
}

// reaches[id]: a differentiable path leads from the value to the loss.
static void mark_reaching(sn_op *last, const sn_value *loss, bool *reaches) {
    reaches[loss->id] = true;
    for (sn_op *op = last; op; op = op->prev) {
        bool any = false;
        for (int i = 0; i < op->n_results; i++) any |= reaches[op->results[i]->id];
        op->mark = any && is_differentiable(op);
        for (int i = 0; i < op->n_operands && op->mark; i++)
            if (is_float(op->operands[i])) reaches[op->operands[i]->id] = true;
    }
}

// Narrows `reaches` to values that depend on a wanted value, too.
static void mark_active(sn_func *func, const bool *wanted, bool *reaches, size_t n_values) {
    bool *depends = sn_alloc(n_values);
    for (size_t i = 0; i < n_values; i++) depends[i] = wanted[i];
    SN_FOR_OPS(op, func) {
        bool any = false;
        for (int i = 0; i < op->n_operands; i++) any |= depends[op->operands[i]->id];
        if (!any || !op->mark) {
            op->mark = 0;
            continue;
        }
        for (int i = 0; i < op->n_results; i++)
            if (is_float(op->results[i])) depends[op->results[i]->id] = true;
    }
    for (size_t i = 0; i < n_values; i++) reaches[i] &= depends[i];
    sn_free(depends);
}

void sn_find_reached(sn_func *func, sn_value *loss, bool *reached) {
    const sn_module *module = func->module;
    for (size_t i = 0; i < module->globals.count; i++) module->globals.data[i]->value->id = 0;
    loss->id = 0;
    bool *reaches = sn_alloc(number_values(func));
    mark_reaching(func->last, loss, reaches);
    for (size_t i = 0; i < module->globals.count; i++) {
        const sn_value *value = module->globals.data[i]->value;
        reached[i] = value->id && reaches[value->id];
    }
    sn_free(reaches);
}

bool sn_gradient_wanted(const sn_gradient_walk *w, const sn_op *op, int operand) {
    return operand < op->n_operands && w->active[op->operands[operand]->id];
}

void sn_gradient_missing(sn_gradient_walk *w, const sn_op *op, const char *what) {
    sn_error(
        w->diags, "E0310", sn_origin_node(op->origin),
        "freeze the weights before this node with --frozen REGEX, or compute the node's result outside of the model",
        "there is no gradient %s of the operator %s, which lies between trained weights and the loss", what,
        sn_op_name(op->kind));
    w->failed = true;
}

static void add_part(sn_gradient_walk *w, sn_value *of, part p) {
    struct sn_gradient_sum *sum = &w->sums[of->id];
    SN_CHECK(!sum->whole);
    if (sum->count == sum->capacity) {
        size_t capacity = sum->capacity ? 2 * sum->capacity : 2;
        part *parts = SN_NEW_N(&w->scratch, part, capacity);
        for (size_t i = 0; i < sum->count; i++) parts[i] = sum->parts[i];
        sum->parts = parts;
        sum->capacity = capacity;
    }
    sum->parts[sum->count++] = p;
}

void sn_gradient_send(sn_gradient_walk *w, const sn_op *op, int operand, sn_value *value) {
    if (!sn_gradient_wanted(w, op, operand)) return;
    sn_value *of = op->operands[operand];
    value = sn_build_sum_to(w->b, value, of->type);
    add_part(w, of, (part){.value = sn_build_cast(w->b, value, of->type.dtype)});
}

void sn_gradient_send_slice(sn_gradient_walk *w, const sn_op *op, int operand, sn_value *value, const int64_t *starts,
                            const int64_t *steps) {
    if (!sn_gradient_wanted(w, op, operand)) return;
    part p = {.value = value, .is_slice = true};
    for (int i = 0; i < value->type.rank; i++) p.starts[i] = starts[i], p.steps[i] = steps[i];
    add_part(w, op->operands[operand], p);
}

// The axis along which a slice is a proper run of whole rows of `type`; -1 when it is something else.
static int run_axis(const part *p, sn_type type) {
    int axis = -1;
    for (int i = 0; i < type.rank; i++) {
        int64_t size = p->value->type.dim[i];
        if (p->steps[i] != 1 && size > 1) return -1;
        if (size == type.dim[i]) continue;
        if (axis >= 0) return -1;
        axis = i;
    }
    return axis;
}

// Joins slices that tile the value along one axis; NULL when the value's slices do not.
static sn_value *join_tiles(sn_gradient_walk *w, struct sn_gradient_sum *sum, sn_type type) {
    int axis = -1;
    int64_t covered = 0;
    for (size_t i = 0; i < sum->count; i++) {
        int mine = sum->parts[i].is_slice ? run_axis(&sum->parts[i], type) : -1;
        if (mine < 0 || (axis >= 0 && mine != axis)) return NULL;
        axis = mine;
        covered += sum->parts[i].value->type.dim[axis];
    }
    if (axis < 0 || covered != type.dim[axis]) return NULL;
    sn_value **tiles = SN_NEW_N(&w->scratch, sn_value *, sum->count);
    int64_t at = 0;
    for (size_t n = 0; n < sum->count; n++) {
        for (size_t i = 0; i < sum->count && !tiles[n]; i++)
            if (sum->parts[i].starts[axis] == at) tiles[n] = sum->parts[i].value;
        if (!tiles[n]) return NULL;
        at += tiles[n]->type.dim[axis];
    }
    return sn_build_concat(w->b, (int)sum->count, tiles, axis);
}

// A slice's gradient in the whole value: flipped where the step is negative, spread where it is beyond 1, then padded.
static sn_value *pad_slice(sn_gradient_walk *w, const part *p, sn_type type) {
    int64_t zero[SN_MAX_RANK] = {0}, low[SN_MAX_RANK], high[SN_MAX_RANK], flip[SN_MAX_RANK], first[SN_MAX_RANK];
    sn_value *value = p->value;
    bool flips = false;
    for (int i = 0; i < type.rank; i++) {
        bool negative = p->steps[i] < 0 && value->type.dim[i] > 1;
        flips |= negative;
        flip[i] = negative ? -1 : 1;
        first[i] = negative ? value->type.dim[i] - 1 : 0;
    }
    if (flips) value = sn_build_slice(w->b, value, first, flip, value->type.dim);
    for (int i = 0; i < type.rank; i++) { // [.., n, ..] -> [.., n, 1, ..] -> pad -> [.., n * step, ..] -> cut the tail
        int64_t n = value->type.dim[i], step = p->steps[i] < 0 ? -p->steps[i] : p->steps[i];
        if (step == 1 || n <= 1) continue;
        SN_CHECK(type.rank < SN_MAX_RANK);
        sn_type split = value->type;
        split.rank++;
        for (int d = split.rank - 1; d > i + 1; d--) split.dim[d] = value->type.dim[d - 1];
        split.dim[i + 1] = 1;
        int64_t tail[SN_MAX_RANK] = {0}, ones[SN_MAX_RANK];
        for (int d = 0; d < SN_MAX_RANK; d++) ones[d] = 1;
        tail[i + 1] = step - 1;
        sn_type spread = value->type;
        spread.dim[i] = n * step;
        value = sn_build_pad(w->b, g_reshape_as(w, value, split), zero, tail, 0);
        value = g_reshape_as(w, value, spread);
        spread.dim[i] = (n - 1) * step + 1;
        value = sn_build_slice(w->b, value, zero, ones, spread.dim);
    }
    for (int i = 0; i < type.rank; i++) {
        int64_t n = p->value->type.dim[i], last = p->starts[i] + (n - 1) * p->steps[i];
        low[i] = n == 0 ? 0 : p->steps[i] < 0 && n > 1 ? last : p->starts[i];
        high[i] = type.dim[i] - low[i] - value->type.dim[i];
    }
    return sn_build_pad(w->b, value, low, high, 0);
}

static sn_value *sum_parts(sn_gradient_walk *w, sn_value *of) {
    struct sn_gradient_sum *sum = &w->sums[of->id];
    if (sum->whole || sum->count == 0) return sum->whole;
    sn_value *whole = join_tiles(w, sum, of->type);
    for (size_t i = 0; i < sum->count && (i || !whole); i++) {
        const part *p = &sum->parts[i];
        sn_value *value = p->is_slice ? pad_slice(w, p, of->type) : p->value;
        whole = whole ? g_add(w, whole, value) : value;
    }
    return sum->whole = whole;
}

sn_value *sn_gradient_of(sn_gradient_walk *w, const sn_op *op, int result) {
    return w->active[op->results[result]->id] ? sum_parts(w, op->results[result]) : NULL;
}

static void visit(sn_gradient_walk *w, sn_op *op) {
    bool any = false;
    for (int i = 0; i < op->n_results; i++)
        any |=
            w->active[op->results[i]->id] && (w->sums[op->results[i]->id].count || w->sums[op->results[i]->id].whole);
    if (!any) return;
    w->b->origin = sn_origin_new(op->func->module, "autodiff", op->origin);
    if (sn_gradient_rules[op->kind])
        sn_gradient_rules[op->kind](w, op);
    else
        sn_gradient_missing(w, op, "");
    // A wanted value's gradient is summed as soon as its first reader has been passed, so that it can be consumed
    // early.
    for (int i = 0; i < op->n_operands; i++) {
        sn_value *operand = op->operands[i];
        if (w->active[operand->id] && --w->readers[operand->id] == 0 && operand->kind != SN_VALUE_RESULT)
            sum_parts(w, operand);
    }
}

static void count_readers(sn_gradient_walk *w, sn_op *last) {
    w->readers = SN_NEW_N(&w->scratch, uint32_t, w->n_values);
    for (const sn_op *op = last; op; op = op->prev)
        for (int i = 0; i < op->n_operands && op->mark; i++) w->readers[op->operands[i]->id]++;
}

bool sn_differentiate(sn_builder *b, sn_value *loss, int n_wanted, sn_value *const *wanted, sn_value **gradients,
                      sn_diags *diags) {
    SN_CHECK(is_float(loss) && sn_type_count(loss->type) == 1);
    sn_builder at_entry = *b;
    loss->id = 0;
    for (int i = 0; i < n_wanted; i++) wanted[i]->id = 0; // those that no op reads stay so
    size_t n_values = number_values(b->func);
    bool *is_wanted = sn_alloc(n_values), *active = sn_alloc(n_values);
    for (int i = 0; i < n_wanted; i++) is_wanted[wanted[i]->id] = true;
    is_wanted[0] = false;
    sn_op *last = b->func->last;
    mark_reaching(last, loss, active);
    mark_active(b->func, is_wanted, active, n_values);
    sn_gradient_walk w = {.b = b, .diags = diags, .active = active, .n_values = n_values};
    w.sums = SN_NEW_N(&w.scratch, struct sn_gradient_sum, n_values);
    count_readers(&w, last);
    b->phase = SN_PHASE_BACKWARD;
    b->origin = sn_origin_new(b->func->module, "autodiff", loss->kind == SN_VALUE_RESULT ? loss->def->origin : NULL);
    if (active[loss->id]) w.sums[loss->id].whole = sn_build_splat(b, loss->type, 1);
    for (sn_op *op = last; op; op = op->prev)
        if (op->mark) visit(&w, op);
    for (int i = 0; i < n_wanted; i++) {
        bool reached = wanted[i]->id && active[wanted[i]->id];
        gradients[i] = reached && !w.failed ? sum_parts(&w, wanted[i]) : NULL;
    }
    b->phase = at_entry.phase;
    b->origin = at_entry.origin;
    sn_arena_free(&w.scratch);
    sn_free(active);
    sn_free(is_wanted);
    return !w.failed;
}
