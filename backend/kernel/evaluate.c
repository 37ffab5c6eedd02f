// The reference: one element at a time, blocks and lanes in order. Lanes loops run to their end before what follows, so
// a missing barrier does not show here; sn_kir_verify finds it.
#include "backend/kernel/kir.h"

#include "backend/kernel/math.h"
#include "backend/kernel/scalar.h"
#include "base/alloc.h"

typedef struct evaluation {
    const sn_kir *k;
    void *const *params;
    void **scratch;
    int64_t block;
    sn_kir_scalar *values; // by node id
    sn_kir_scalar *accs;   // by the id of a RESULT: the value accumulated so far, or carried
    sn_kir_math math;
} evaluation;

static sn_kir_scalar value_of(evaluation *e, const sn_kir_node *node) {
    if (node->op == SN_KIR_BLOCK) return (sn_kir_scalar){.i64 = e->block};
    return e->values[node->id];
}

static sn_kir_scalar compute(sn_kir_math *math, const sn_kir_node *node, const sn_kir_scalar in[4]) {
    sn_dtype from = node->in[node->op == SN_KIR_SELECT]->dtype;
    bool math_op = (node->op >= SN_KIR_EXP && node->op <= SN_KIR_ATAN2) || node->op == SN_KIR_RANDOM_BITS;
    const sn_kir_function *f = math_op ? sn_kir_math_get(math, node->op, from) : NULL;
    if (!f) return sn_kir_scalar_apply(node->op, node->dtype, from, in);
    sn_kir_scalar *values = sn_alloc(sizeof *values * (size_t)f->body->n_nodes);
    for (int i = 0; i < f->n_args; i++) values[f->args[i]->id] = in[i];
    for (const sn_kir_node *step = f->body->body.first; step; step = step->next) {
        sn_kir_scalar operands[4] = {{0}};
        for (int i = 0; i < sn_kir_op_operands(step->op); i++) operands[i] = values[step->in[i]->id];
        if (step->op == SN_KIR_CONST) {
            values[step->id] = (sn_kir_scalar){.i64 = step->i64}; // the bits of either member
        } else {
            values[step->id] = compute(math, step, operands);
        }
    }
    sn_kir_scalar result = values[f->result->id];
    sn_free(values);
    return result;
}

static void *memory_of(evaluation *e, const sn_kir_node *node, int64_t index) {
    const sn_kir_buffer *b = node->buffer;
    if (index < 0 || index >= b->count)
        SN_BUG("kernel %s: %s[%lld] outside of [0, %lld)", e->k->name, b->name, (long long)index, (long long)b->count);
    return b->access == SN_KIR_SCRATCH ? e->scratch[b->index] : e->params[b->index];
}

static sn_kir_scalar load(const sn_kir_buffer *b, const void *memory, int64_t index) {
    if (sn_dtype_is_float(b->dtype)) return (sn_kir_scalar){.f64 = sn_load_f64(b->dtype, memory, index)};
    return (sn_kir_scalar){.i64 = sn_load_i64(b->dtype, memory, index)};
}

static void store(const sn_kir_buffer *b, void *memory, int64_t index, sn_kir_scalar value) {
    if (sn_dtype_is_float(b->dtype)) {
        sn_store_f64(b->dtype, memory, index, value.f64);
    } else {
        sn_store_i64(b->dtype, memory, index, value.i64);
    }
}

static void access_memory(evaluation *e, const sn_kir_node *node) {
    if (node->op == SN_KIR_LOAD && node->in[1] && !value_of(e, node->in[1]).i64) {
        e->values[node->id] = value_of(e, node->in[2]);
        return;
    }
    int64_t index = value_of(e, node->in[0]).i64;
    void *memory = memory_of(e, node, index);
    if (node->op == SN_KIR_LOAD) {
        e->values[node->id] = load(node->buffer, memory, index);
        return;
    }
    sn_kir_scalar in[4] = {load(node->buffer, memory, index), value_of(e, node->in[1])};
    if (node->op == SN_KIR_ATOMIC_ADD) in[1] = sn_kir_scalar_apply(SN_KIR_ADD, node->dtype, node->dtype, in);
    store(node->buffer, memory, index, in[1]);
}

static void run(evaluation *e, const sn_kir_region *region);

static void run_loop(evaluation *e, const sn_kir_node *loop) {
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link)
        e->accs[acc->result->id] =
            acc->reduce ? sn_kir_scalar_identity(acc->op, acc->result->dtype) : value_of(e, acc->init);
    int64_t low = value_of(e, loop->in[0]).i64, high = value_of(e, loop->in[1]).i64;
    for (int64_t i = low; i < high; i += loop->step) {
        e->values[loop->loop->id].i64 = i;
        for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link)
            if (!acc->reduce) e->values[acc->carry->id] = e->accs[acc->result->id];
        run(e, &loop->body);
        for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link) {
            sn_kir_scalar in[4] = {e->accs[acc->result->id], value_of(e, acc->next)};
            sn_dtype dtype = acc->result->dtype;
            e->accs[acc->result->id] = acc->reduce ? sn_kir_scalar_apply(acc->op, dtype, dtype, in) : in[1];
        }
    }
    for (const sn_kir_acc *acc = loop->acc; acc; acc = acc->link) e->values[acc->result->id] = e->accs[acc->result->id];
}

static void run_statement(evaluation *e, const sn_kir_node *node) {
    switch (node->op) {
    case SN_KIR_CONST:
        e->values[node->id].i64 = node->i64;
        break;
    case SN_KIR_LOAD:
    case SN_KIR_STORE:
    case SN_KIR_ATOMIC_ADD:
        access_memory(e, node);
        break;
    case SN_KIR_FOR:
        run_loop(e, node);
        break;
    case SN_KIR_IF:
        run(e, value_of(e, node->in[0]).i64 ? &node->body : &node->orelse);
        break;
    case SN_KIR_BARRIER:
    case SN_KIR_PREFETCH:
        break;
    default: {
        sn_kir_scalar in[4] = {{0}};
        for (int i = 0; i < sn_kir_op_operands(node->op); i++) in[i] = value_of(e, node->in[i]);
        e->values[node->id] = compute(&e->math, node, in);
    }
    }
}

static void run(evaluation *e, const sn_kir_region *region) {
    for (const sn_kir_node *node = region->first; node; node = node->next) run_statement(e, node);
}

void sn_kir_evaluate(const sn_kir *k, void *const *buffers, int64_t begin, int64_t end) {
    evaluation e = {.k = k, .params = buffers};
    e.values = sn_alloc(sizeof *e.values * (size_t)k->n_nodes);
    e.accs = sn_alloc(sizeof *e.accs * (size_t)k->n_nodes);
    e.scratch = sn_alloc(sizeof *e.scratch * (size_t)(k->n_scratch + 1));
    for (int i = 0; i < k->n_scratch; i++)
        e.scratch[i] = sn_alloc(sn_dtype_bytes(k->scratch[i]->dtype) * (size_t)k->scratch[i]->count);
    for (e.block = begin; e.block < end; e.block++) run(&e, &k->body);
    for (int i = 0; i < k->n_scratch; i++) sn_free(e.scratch[i]);
    sn_free(e.scratch);
    sn_free(e.accs);
    sn_free(e.values);
    sn_kir_math_free(&e.math);
}
