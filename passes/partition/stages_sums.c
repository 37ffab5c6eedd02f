#include "passes/partition/stages_sums.h"

#include "base/vec.h"
#include "ir/factors.h"
#include "passes/partition/stages_assign.h"

#include <string.h>

typedef SN_VEC(sn_value *) values;
typedef SN_VEC(sn_op *) ops;

// An op like `like` on other operands, before `before`.
static sn_value *build_like(const sn_op *like, sn_op *before, int n, sn_value *const *operands, const sn_type *type,
                            sn_layout layout) {
    sn_op *op = sn_op_new(before->func, before, like->kind, n, operands, like->n_attrs, like->attrs, 1, type);
    op->origin = like->origin;
    op->phase = before->phase;
    op->results[0]->layout = layout;
    return op->results[0];
}

static sn_op *built_once(sn_value *value, sn_op_kind kind) {
    bool once = value->kind == SN_VALUE_RESULT && value->def->kind == kind && value->uses.count == 1;
    return once ? value->def : NULL;
}

// Whether a sum passes through the op part by part.
static bool passes_sums(const sn_op *op) {
    return op->n_operands == 1 && sn_op_linearity(op, 0) == SN_LINEAR;
}

static void list_terms(sn_value *value, values *terms) {
    sn_op *add = built_once(value, SN_OP_ADD);
    bool whole = add && sn_type_equal(add->operands[0]->type, add->operands[1]->type) &&
                 sn_layout_equal(add->operands[0]->layout, add->operands[1]->layout);
    if (!whole) {
        sn_vec_push(terms, value);
        return;
    }
    list_terms(add->operands[0], terms);
    list_terms(add->operands[1], terms);
}

// assign(@g, add(@g, chain(term + term + …)))
typedef struct accumulation {
    sn_op *assign, *add;
    int addend; // operand of `add`
    ops chain;  // from the last op to the first
    values terms;
    const sn_op *plus; // one of the adds between terms
} accumulation;

static bool match(sn_op *assign, accumulation *out) {
    sn_value *global = assign->operands[0];
    sn_op *add = built_once(assign->operands[1], SN_OP_ADD);
    if (!add || !global->global->of || (add->operands[0] != global && add->operands[1] != global)) return false;
    *out = (accumulation){.assign = assign, .add = add, .addend = add->operands[0] == global};
    sn_value *value = add->operands[out->addend];
    while (value->kind == SN_VALUE_RESULT && value->uses.count == 1 && passes_sums(value->def)) {
        sn_vec_push(&out->chain, value->def);
        value = value->def->operands[0];
    }
    out->plus = value->kind == SN_VALUE_RESULT ? value->def : NULL;
    list_terms(value, &out->terms);
    return out->terms.count > 1;
}

static int stage_of(const sn_value *value, const int *stage) {
    return value->kind == SN_VALUE_RESULT ? stage[value->def->mark] : SN_HOME_ANYWHERE;
}

// The chain on the sum of the terms of one stage (or, with `owned`, of all stages on the owner's rank); NULL for none.
static sn_value *part_of(const accumulation *a, const int *stage, int wanted, int ranks, bool owned) {
    sn_value *sum = NULL;
    for (size_t i = 0; i < a->terms.count; i++) {
        sn_value *term = a->terms.data[i];
        int at = stage_of(term, stage);
        bool own = at == SN_HOME_ANYWHERE || at % ranks == wanted % ranks;
        if (owned ? !own : at != wanted) continue;
        sn_value *pair[] = {sum, term};
        sum = sum ? build_like(a->plus, a->add, 2, pair, &term->type, term->layout) : term;
    }
    for (size_t i = a->chain.count; sum && i-- > 0;) {
        const sn_op *op = a->chain.data[i];
        sum = build_like(op, a->add, 1, &sum, &op->results[0]->type, op->results[0]->layout);
    }
    return sum;
}

static sn_global *new_accumulator(const sn_global *of) {
    sn_module *module = of->value->uses.data[0].op->func->module;
    sn_global *global = sn_module_add_global(module, of->name, of->value->type, of->role, of->source);
    global->of = of->of;
    global->why = of->why;
    global->value->layout = of->value->layout;
    return global;
}

// In @update and @gradients the accumulator is read with its part of the other stage, and both are cleared.
static void read_both(sn_module *module, const sn_func *micro, sn_global *whole, sn_global *part) {
    ops users = {0};
    for (size_t i = 0; i < whole->value->uses.count; i++)
        if (whole->value->uses.data[i].op->func != micro) sn_vec_push(&users, whole->value->uses.data[i].op);
    for (size_t i = 0; i < users.count; i++) {
        sn_op *user = users.data[i];
        const sn_origin *origin = sn_origin_new(module, "stages", user->origin);
        if (user->kind == SN_OP_ASSIGN) {
            sn_value *operands[] = {part->value, user->operands[1]};
            sn_op *clear = sn_op_new(user->func, user, SN_OP_ASSIGN, 2, operands, 0, NULL, 0, NULL);
            clear->phase = user->phase, clear->origin = origin;
            continue;
        }
        // the copy is the other stage's, which then has something to send
        sn_type type = part->value->type;
        sn_op *copy = sn_op_new(user->func, user, SN_OP_COPY, 1, &part->value, 0, NULL, 1, &type);
        sn_value *pair[] = {whole->value, copy->results[0]};
        sn_op *sum = sn_op_new(user->func, user, SN_OP_ADD, 2, pair, 0, NULL, 1, &type);
        copy->phase = sum->phase = user->phase;
        copy->origin = sum->origin = origin;
        copy->results[0]->layout = sum->results[0]->layout = whole->value->layout;
        for (int k = 0; k < user->n_operands; k++)
            if (user->operands[k] == whole->value) sn_op_set_operand(user, k, sum->results[0]);
    }
    sn_vec_free(&users);
}

// Backwards from `last`, so that what only dead ops read goes in the same walk.
static void erase_dead(sn_op *last) {
    for (sn_op *op = last, *prev; op; op = prev) {
        prev = op->prev;
        bool used = op->n_results == 0;
        for (int i = 0; i < op->n_results; i++) used |= sn_value_is_used(op->results[i]);
        if (!used) sn_op_erase(op);
    }
}

static void split(accumulation *a, sn_func *micro, int ranks, int stages, const int *stage, sn_map *owner) {
    sn_global *whole = a->assign->operands[0]->global;
    int home = (int)(intptr_t)sn_map_get(owner, whole->name) - 1;
    bool foreign = false;
    for (size_t i = 0; i < a->terms.count; i++) {
        int at = stage_of(a->terms.data[i], stage);
        foreign |= at != SN_HOME_ANYWHERE && at % ranks != home % ranks;
    }
    if (!foreign) return;
    for (int s = 0; s < stages; s++) {
        sn_value *sum = s % ranks == home % ranks ? NULL : part_of(a, stage, s, ranks, false);
        if (!sum) continue;
        sn_global *part = new_accumulator(whole);
        sn_map_put(owner, part->name, (void *)(intptr_t)(s + 1));
        sn_value *pair[] = {part->value, sum};
        sn_value *next = build_like(a->add, a->assign, 2, pair, &sum->type, sum->layout);
        sn_value *assigned[] = {part->value, next};
        sn_op *assign = sn_op_new(micro, a->assign, SN_OP_ASSIGN, 2, assigned, 0, NULL, 0, NULL);
        assign->phase = a->assign->phase, assign->origin = a->assign->origin;
        read_both(micro->module, micro, whole, part);
    }
    sn_value *own = part_of(a, stage, home, ranks, true);
    if (own)
        sn_op_set_operand(a->add, a->addend, own);
    else
        sn_op_erase(a->assign);
}

void sn_stages_split_accumulators(sn_func *micro, int ranks, const int *stage, sn_map *owner) {
    int stages = 0;
    ops assigns = {0};
    SN_FOR_OPS(op, micro) {
        if (stage[op->mark] >= stages) stages = stage[op->mark] + 1;
        if (op->kind == SN_OP_ASSIGN && op->phase == SN_PHASE_BACKWARD) sn_vec_push(&assigns, op);
    }
    for (size_t i = 0; i < assigns.count; i++) {
        accumulation a = {0};
        if (match(assigns.data[i], &a)) split(&a, micro, ranks, stages, stage, owner);
        sn_vec_free(&a.chain);
        sn_vec_free(&a.terms);
    }
    erase_dead(micro->last);
    sn_vec_free(&assigns);
}

static bool only_sums_read(const sn_op *concat) {
    const sn_value *value = concat->results[0];
    for (size_t i = 0; i < value->uses.count; i++)
        if (value->uses.data[i].op->kind != SN_OP_REDUCE_SUM) return false;
    return value->type.rank == 1 && value->uses.count == 1;
}

// The operands that are on `rank`, joined, summed, and as a vector of one element again.
static sn_value *sum_of_rank(sn_op *concat, int rank, const int *home) {
    const sn_op *reduce = concat->results[0]->uses.data[0].op;
    values own = {0};
    int64_t n = 0, one = 1;
    for (int i = 0; i < concat->n_operands; i++) {
        if (stage_of(concat->operands[i], home) != rank) continue;
        sn_vec_push(&own, concat->operands[i]);
        n += concat->operands[i]->type.dim[0];
    }
    sn_value *sum = own.count ? own.data[0] : NULL;
    if (own.count > 1) {
        sn_layout layout = concat->results[0]->layout;
        sn_type joined = sn_type_make(concat->results[0]->type.dtype, 1, &n),
                vector = sn_type_make(joined.dtype, 1, &one);
        sum = build_like(concat, concat, (int)own.count, own.data, &joined, layout);
        sum = build_like(reduce, concat, 1, &sum, &reduce->results[0]->type, reduce->results[0]->layout);
        sn_op *reshape = sn_op_new(concat->func, concat, SN_OP_RESHAPE, 1, &sum, 0, NULL, 1, &vector);
        reshape->origin = concat->origin, reshape->phase = concat->phase;
        reshape->results[0]->layout = layout;
        sum = reshape->results[0];
    }
    sn_vec_free(&own);
    return sum;
}

void sn_stages_sum_by_rank(sn_func *func, int ranks, const int *home) {
    ops concats = {0};
    SN_FOR_OPS(op, func) {
        if (op->kind == SN_OP_CONCAT && only_sums_read(op)) sn_vec_push(&concats, op);
    }
    for (size_t c = 0; c < concats.count; c++) {
        sn_op *concat = concats.data[c];
        bool placed = true;
        values sums = {0};
        for (int i = 0; i < concat->n_operands; i++) placed &= stage_of(concat->operands[i], home) >= 0;
        for (int r = 0; placed && r < ranks; r++) {
            sn_value *sum = sum_of_rank(concat, r, home);
            if (sum) sn_vec_push(&sums, sum);
        }
        int64_t n = (int64_t)sums.count;
        sn_type type = sn_type_make(concat->results[0]->type.dtype, 1, &n);
        if (sums.count > 1 && (int)sums.count < concat->n_operands) {
            sn_value *joined =
                build_like(concat, concat, (int)sums.count, sums.data, &type, concat->results[0]->layout);
            sn_value_replace(concat->results[0], joined);
            sn_op_erase(concat);
        }
        sn_vec_free(&sums);
    }
    sn_vec_free(&concats);
}
