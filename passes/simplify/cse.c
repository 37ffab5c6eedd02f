// cse: ops that compute the same are computed once.
//
//   %a = exp(%x)                  =>   %a = exp(%x)
//   %b = exp(%x)                       %c = add(%a, %a)
//   %c = add(%a, %b)
//
// Two reads of a global are the same read: `assign` takes effect after every read of the old value. Random numbers are
// a function of their operands and `id`, so they too may be shared. All ranks have the same ops, so a collective is
// shared by all or by none; but what the forward pass joins the backward pass joins again rather than keep it (moves.c
// of passes/partition), so only collectives of one phase are the same.
#include "passes/pass.h"

#include <string.h>

// Appends everything that an op's results depend on.
static void describe(sn_str *key, const sn_op *op) {
    sn_str_append(key, (const char *)&op->kind, sizeof op->kind);
    if (sn_op_has(op->kind, SN_TRAIT_COLLECTIVE)) sn_str_printf(key, "%d", (int)op->phase);
    for (int i = 0; i < op->n_operands; i++) sn_str_append(key, (const char *)&op->operands[i], sizeof op->operands[i]);
    int count = sn_op_attr_count(op->kind);
    for (int i = 0; i < count; i++) { // in the order of ops.def, defaults and all
        sn_attr_spec spec = sn_op_attr_spec(op->kind, i);
        if (spec.type == SN_ATTR_INT) {
            sn_str_printf(key, ";%lld", (long long)sn_op_int(op, spec.name));
        } else if (spec.type == SN_ATTR_FLOAT) {
            sn_str_printf(key, ";%a", sn_op_float(op, spec.name));
        } else if (spec.type == SN_ATTR_STRING) {
            sn_str_printf(key, ";%s", sn_op_string(op, spec.name));
        } else if (spec.type == SN_ATTR_INTS) {
            int n;
            const int64_t *ints = sn_op_ints(op, spec.name, &n);
            sn_str_printf(key, ";%d:", n);
            for (int j = 0; j < n; j++) sn_str_printf(key, "%lld,", (long long)ints[j]);
        }
    }
    for (int i = 0; i < op->n_results; i++) {
        sn_str_putc(key, ';');
        sn_type_print(key, op->results[i]->type);
        const sn_layout *layout = &op->results[i]->layout;
        sn_str_append(key, (const char *)layout->dim, sizeof layout->dim);
        sn_str_append(key, (const char *)layout->outer, sizeof layout->outer);
        sn_str_printf(key, ";%d:%d", layout->partial, layout->partial ? layout->partial_kind : 0);
    }
}

static bool may_merge(const sn_op *op) {
    return op->n_results > 0 && op->kind != SN_OP_KERNEL && !sn_op_has(op->kind, SN_TRAIT_TRANSFER | SN_TRAIT_UPDATE);
}

static bool same(const sn_str *a, const sn_str *b) {
    return a->length == b->length && memcmp(a->data, b->data, a->length) == 0;
}

// A hash table from descriptions to ops: chains in `entries`, heads in `heads`.
typedef struct entry {
    uint64_t hash;
    sn_op *op;
    int next; // index + 1
} entry;

static void cse_func(sn_func *func, sn_arena *scratch) {
    size_t n_heads = 16;
    while (n_heads < func->n_ops) n_heads *= 2;
    int *heads = SN_NEW_N(scratch, int, n_heads);
    SN_VEC(entry) entries = {0};
    sn_str key = {0}, other = {0};
    SN_FOR_OPS_SAFE(op, func) {
        if (!may_merge(op)) continue;
        sn_str_clear(&key);
        describe(&key, op);
        uint64_t hash = sn_hash_bytes(key.data, key.length, 0);
        int *head = &heads[hash & (n_heads - 1)];
        sn_op *equal = NULL;
        for (int i = *head; i && !equal; i = entries.data[i - 1].next) {
            if (entries.data[i - 1].hash != hash) continue;
            sn_str_clear(&other);
            describe(&other, entries.data[i - 1].op);
            if (same(&key, &other)) equal = entries.data[i - 1].op;
        }
        if (!equal) {
            entry e = {hash, op, *head};
            sn_vec_push(&entries, e);
            *head = (int)entries.count;
            continue;
        }
        if (op->phase < equal->phase) equal->phase = op->phase;
        for (int i = 0; i < op->n_results; i++) {
            if (!equal->results[i]->name) equal->results[i]->name = op->results[i]->name;
            sn_value_replace(op->results[i], equal->results[i]);
        }
        sn_op_erase(op);
    }
    sn_vec_free(&entries);
    sn_str_free(&key);
    sn_str_free(&other);
}

static void run(sn_module *module, sn_pass_context *context) {
    for (size_t i = 0; i < module->funcs.count; i++) cse_func(module->funcs.data[i], context->scratch);
}

const sn_pass sn_pass_cse = {
    .name = "cse",
    .summary = "computes equal ops once",
    .forms = 1 << SN_FORM_GRAPH | 1 << SN_FORM_DIST | 1 << SN_FORM_SCHED,
    .run = run,
};
