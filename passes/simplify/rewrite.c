#include "passes/simplify/rewrite.h"

sn_builder *sn_rewriter_at(sn_rewriter *rewriter, const sn_op *op) {
    rewriter->builder = (sn_builder){.func = op->func,
                                     .before = (sn_op *)op,
                                     .origin = sn_pass_origin(rewriter->module, rewriter->context, op),
                                     .phase = op->phase};
    return &rewriter->builder;
}

void sn_rewriter_replace(sn_rewriter *rewriter, sn_value *old, sn_value *with) {
    SN_CHECK(sn_type_equal(old->type, with->type));
    if (with->kind == SN_VALUE_RESULT && !with->name) with->name = old->name;
    sn_value_replace(old, with);
    rewriter->changed = true;
}

static bool is_unused(const sn_op *op) {
    for (int i = 0; i < op->n_results; i++)
        if (sn_value_is_used(op->results[i])) return false;
    return op->n_results > 0;
}

static void rewrite_func(sn_rewriter *rewriter, sn_func *func, const sn_rule *rules) {
    for (sn_op *op = func->first, *next; op; op = next) {
        next = op->next;
        if (!rules[op->kind] || is_unused(op)) continue;
        sn_op *before = op->prev;
        sn_value *with = rules[op->kind](rewriter, op);
        if (!with) continue;
        sn_rewriter_replace(rewriter, op->results[0], with);
        // what the rule built may be rewritten further
        next = before ? before->next : func->first;
        if (is_unused(op)) {
            if (next == op) next = op->next;
            sn_op_erase(op);
        }
    }
}

void sn_rewrite(sn_module *module, sn_pass_context *context, const sn_rule *rules) {
    // a rule that undoes another would go round for ever: that is a bug, and found by this bound
    enum { MAX_ROUNDS = 64 };
    sn_rewriter rewriter = {.module = module, .context = context, .changed = true};
    for (int round = 0; rewriter.changed; round++) {
        if (round == MAX_ROUNDS) SN_BUG("%s: the rules do not come to an end", context->pass->name);
        rewriter.changed = false;
        for (size_t i = 0; i < module->funcs.count; i++)
            if (!module->funcs.data[i]->is_body) rewrite_func(&rewriter, module->funcs.data[i], rules);
    }
}

sn_op *sn_defined_by(const sn_value *value, sn_op_kind kind) {
    return value->kind == SN_VALUE_RESULT && value->def->kind == kind ? value->def : NULL;
}

bool sn_is_number(const sn_value *value, double number) {
    double found;
    return sn_value_number(value, &found) && found == number;
}

bool sn_broadcasts_to(sn_type a, sn_type b, sn_type type) {
    sn_type result;
    return sn_type_broadcast(a, b, &result) && sn_shape_equal(result, type);
}
