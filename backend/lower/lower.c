#include "backend/lower/lower.h"

#include "backend/lower/schedule.h"
#include "base/alloc.h"

static int64_t at_least_one(int64_t count) {
    return count > 0 ? count : 1;
}

// The operand that a result of the kernel op is written over, or -1.
static int64_t tied_to(const sn_op *op, size_t result) {
    int n;
    const int64_t *inplace = sn_op_ints(op, "inplace", &n);
    return (int)result < n ? inplace[result] : -1;
}

static void set_origin(sn_kir *k, const sn_op *op) {
    sn_str text = {0};
    sn_origin_print(&text, op->origin);
    for (int i = 0; i < op->n_results; i++) {
        sn_str_puts(&text, i ? ", " : "\n-> ");
        sn_type_print(&text, op->results[i]->type);
    }
    sn_kir_set_origin(k, sn_str_text(&text));
    sn_str_free(&text);
}

// Scalars are loaded once, in front of all loops, so that what depends on them alone is computed there.
static void load_scalars(sn_lowering *lowering) {
    sn_lower *l = &lowering->l;
    sn_point origin;
    for (int d = 0; d < SN_MAX_RANK; d++) origin.at[d] = sn_kir_index(l->k, 0);
    for (size_t i = 0; i < lowering->body->args.count; i++) {
        const sn_value *arg = lowering->body->args.data[i];
        if (sn_type_count(arg->type) != 1 || l->buffers[i]->access != SN_KIR_READ) continue;
        sn_lower_remember(l, arg, &origin, sn_kir_load(l->k, l->buffers[i], origin.at[0]));
    }
}

void sn_lowering_begin(sn_lowering *lowering, int64_t grid) {
    const sn_func *body = lowering->body;
    lowering->too_large = grid > SN_KIR_MOST_BLOCKS;
    sn_kir *k = lowering->l.k = sn_kir_new(lowering->name, lowering->too_large ? 1 : grid);
    set_origin(k, lowering->op);
    bool *tied = sn_alloc(body->args.count + 1);
    for (size_t i = 0; i < body->results.count; i++)
        if (tied_to(lowering->op, i) >= 0) tied[tied_to(lowering->op, i)] = true;
    for (size_t i = 0; i < body->args.count; i++) {
        const sn_value *arg = body->args.data[i];
        lowering->l.buffers[i] =
            sn_kir_param(k, sn_arena_printf(&k->arena, "in%zu", i), arg->type.dtype,
                         at_least_one(sn_type_count(arg->type)), tied[i] ? SN_KIR_UPDATE : SN_KIR_READ);
    }
    sn_free(tied);
    for (size_t i = 0; i < body->results.count; i++) {
        int64_t operand = tied_to(lowering->op, i);
        sn_type type = body->results.data[i]->type;
        lowering->results[i] = operand >= 0 ? lowering->l.buffers[operand]
                                            : sn_kir_param(k, sn_arena_printf(&k->arena, "out%zu", i), type.dtype,
                                                           at_least_one(sn_type_count(type)), SN_KIR_WRITE);
    }
    load_scalars(lowering);
}

void sn_lowering_store(sn_lowering *lowering, size_t result, const sn_point *point, sn_kir_node *value) {
    sn_type type = lowering->body->results.data[result]->type;
    sn_kir_store(lowering->l.k, lowering->results[result], sn_lower_flat(&lowering->l, type, point), value);
}

sn_kir_node *sn_kir_at_most(sn_kir *k, sn_kir_node *value, int64_t limit) {
    return value->max <= limit ? value : sn_kir_min(k, value, sn_kir_index(k, limit));
}

static bool check(const sn_func *body, sn_diags *diags) {
    bool fine = true;
    SN_FOR_OPS(op, body) {
        const char *why = sn_lower_refuses(op);
        if (!why) continue;
        const char *node = sn_origin_node(op->origin);
        sn_error(diags, "E0501", node ? node : sn_op_name(op->kind),
                 "rewrite this part of the model with other operators, and please report it", "%s: %s",
                 sn_op_name(op->kind), why);
        fine = false;
    }
    return fine;
}

sn_kir *sn_lower_kernel(const sn_op *op, const char *name, sn_diags *diags) {
    const sn_func *body = sn_op_func(op, "body");
    if (!check(body, diags)) return NULL;
    sn_arena arena = {0};
    sn_lowering lowering = {.op = op,
                            .body = body,
                            .name = name,
                            .l = {.body = body, .buffers = SN_NEW_N(&arena, sn_kir_buffer *, body->args.count + 1)},
                            .results = SN_NEW_N(&arena, sn_kir_buffer *, body->results.count + 1)};
    bool done = sn_schedule_product(&lowering) || sn_schedule_rows(&lowering) || sn_schedule_scatter(&lowering) ||
                sn_schedule_scan(&lowering);
    if (!done) sn_schedule_map(&lowering);
    sn_vec_free(&lowering.l.known);
    sn_vec_free(&lowering.l.scopes);
    sn_arena_free(&arena);
    if (lowering.too_large) {
        const char *node = sn_origin_node(op->origin);
        sn_error(diags, "E0505", node ? node : name, "bind its dims to smaller sizes, or use more ranks",
                 "its tensors are too large for one kernel");
        sn_kir_free(lowering.l.k);
        return NULL;
    }
    const char *problem = sn_kir_verify(lowering.l.k);
    if (problem) {
        sn_str text = {0};
        sn_kir_print(lowering.l.k, &text);
        SN_BUG("kernel %s: %s\n%s", name, problem, sn_str_text(&text));
    }
    return lowering.l.k;
}
