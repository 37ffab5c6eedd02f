#include "passes/memory/pool.h"

#include "passes/partition/stages.h"
#include "passes/schedule/sequence.h"

#include <stdlib.h>
#include <string.h>

typedef struct kept {
    const char *name;
    int64_t bytes;
    sn_life *lives; // by micro-batch
    sn_slot_table *table;
} kept;

typedef struct claim { // of a slot
    kept *of;
    int micro_batch;
    sn_life life;
} claim;

typedef SN_VEC(kept *) kept_values;

// Values that no micro-batch has (a tied parameter) lie alone.
static void add_living(const sn_func_runs *runs, const sn_value *arg, int microbatches, sn_arena *arena,
                       kept_values *out) {
    kept *k = SN_NEW(arena, kept);
    *k = (kept){.name = arg->name, .bytes = sn_type_bytes(arg->type)};
    k->lives = SN_NEW_N(arena, sn_life, microbatches);
    sn_lives_of(runs, arg->name, microbatches, k->lives);
    bool lives = false;
    for (int m = 0; m < microbatches; m++) lives = lives || k->lives[m].first >= 0;
    if (lives) sn_vec_push(out, k);
}

static void find_kept(const sn_func_runs *runs, int microbatches, sn_arena *arena, kept_values *out) {
    sn_map seen = {0};
    for (size_t i = 0; i < runs->count; i++) {
        const sn_func *func = runs->data[i].func;
        for (size_t a = 0; a < func->args.count; a++) {
            sn_value *arg = func->args.data[a];
            if (!sn_is_kept_name(arg->name) || sn_map_has(&seen, arg->name)) continue;
            sn_map_put(&seen, arg->name, arg);
            add_living(runs, arg, microbatches, arena, out);
        }
    }
    sn_map_free(&seen);
}

static int by_bytes(const void *a, const void *b) {
    const kept *x = *(kept *const *)a, *y = *(kept *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_first(const void *a, const void *b) {
    const claim *x = a, *y = b;
    if (x->life.first != y->life.first) return x->life.first - y->life.first;
    int order = strcmp(x->of->name, y->of->name);
    return order ? order : x->micro_batch - y->micro_batch;
}

// Gives every life of these values a slot; returns how many that takes.
static int share(kept **values, size_t n, int microbatches, sn_module *module) {
    SN_VEC(claim) claims = {0};
    SN_VEC(int) ends = {0}; // by slot: the last run of the life that has it
    for (size_t i = 0; i < n; i++) {
        kept *k = values[i];
        k->table = sn_arena_alloc(&module->arena, sizeof *k->table + (size_t)microbatches * sizeof *k->table->of);
        k->table->n = microbatches;
        for (int m = 0; m < microbatches; m++)
            if (k->lives[m].first >= 0) sn_vec_push(&claims, (claim){k, m, k->lives[m]});
    }
    qsort(claims.data, claims.count, sizeof *claims.data, by_first);
    for (size_t i = 0; i < claims.count; i++) {
        const claim *c = &claims.data[i];
        size_t slot = 0;
        while (slot < ends.count && ends.data[slot] >= c->life.first) slot++;
        if (slot == ends.count) sn_vec_push(&ends, -1);
        ends.data[slot] = c->life.last;
        c->of->table->of[c->micro_batch] = (int)slot;
    }
    int slots = (int)ends.count;
    sn_vec_free(&claims);
    sn_vec_free(&ends);
    return slots;
}

void sn_pool_kept(sn_module *module, const sn_plan *plan, int rank, sn_arena *arena, sn_map *out) {
    if (!plan || plan->microbatches < 2 || !sn_module_has_stages(module)) return;
    sn_func_runs runs = {0};
    kept_values values = {0};
    sn_sequence_of(module, plan, rank, SN_SEQUENCE_STEP, &runs);
    find_kept(&runs, plan->microbatches, arena, &values);
    if (values.count) qsort(values.data, values.count, sizeof *values.data, by_bytes);
    for (size_t from = 0, to; from < values.count; from = to) {
        kept **first = &values.data[from];
        int alone = 0;
        for (to = from; to < values.count && values.data[to]->bytes == (*first)->bytes; to++)
            alone += sn_slots_of(module, plan, rank, values.data[to]->name);
        int together = share(first, to - from, plan->microbatches, module);
        if (together >= alone) continue;
        sn_pool *pool = SN_NEW(arena, sn_pool);
        *pool = (sn_pool){(*first)->bytes, together, -1};
        for (size_t i = from; i < to; i++) {
            sn_pooled *p = SN_NEW(arena, sn_pooled);
            *p = (sn_pooled){pool, values.data[i]->table};
            sn_map_put(out, values.data[i]->name, p);
        }
    }
    sn_vec_free(&values);
    sn_vec_free(&runs);
}
