#include "passes/memory/pool.h"

#include "passes/partition/stages.h"
#include "passes/schedule/sequence.h"

#include <stdlib.h>
#include <string.h>

typedef struct kept {
    const char *name;
    int64_t bytes;
    int *first, *last; // by micro-batch: runs of the step; first < 0: it does not live
    sn_slot_table *table;
} kept;

typedef struct life {
    kept *of;
    int micro_batch, first;
} life;

static void find_kept(const sn_func_runs *runs, int microbatches, sn_arena *arena, sn_map *all) {
    for (size_t i = 0; i < runs->count; i++) {
        const sn_func *func = runs->data[i].func;
        for (size_t a = 0; a < func->args.count; a++) {
            const sn_value *arg = func->args.data[a];
            if (!sn_is_kept_name(arg->name) || sn_map_has(all, arg->name)) continue;
            kept *k = SN_NEW(arena, kept);
            *k = (kept){.name = arg->name, .bytes = sn_type_bytes(arg->type)};
            k->first = SN_NEW_N(arena, int, microbatches);
            k->last = SN_NEW_N(arena, int, microbatches);
            for (int m = 0; m < microbatches; m++) k->first[m] = k->last[m] = -1;
            sn_map_put(all, arg->name, k);
        }
    }
}

static void find_lives(const sn_func_runs *runs, sn_map *all) {
    for (size_t i = 0; i < runs->count; i++) {
        const sn_func *func = runs->data[i].func;
        int m = runs->data[i].micro_batch;
        if (m < 0) continue;
        for (size_t r = 0; r < func->results.count; r++) {
            kept *k = sn_map_get(all, func->result_names.data[r]);
            if (k && k->first[m] < 0) k->first[m] = (int)i;
            if (k) k->last[m] = (int)i;
        }
        for (size_t a = 0; a < func->args.count; a++) {
            kept *k = sn_map_get(all, func->args.data[a]->name);
            if (k && k->first[m] >= 0) k->last[m] = (int)i;
        }
    }
}

static int by_bytes(const void *a, const void *b) {
    const kept *x = *(kept *const *)a, *y = *(kept *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_first(const void *a, const void *b) {
    const life *x = a, *y = b;
    if (x->first != y->first) return x->first - y->first;
    int order = strcmp(x->of->name, y->of->name);
    return order ? order : x->micro_batch - y->micro_batch;
}

// Gives every life of these values a slot; returns how many that takes.
static int share(kept **values, size_t n, int microbatches, sn_module *module) {
    SN_VEC(life) lives = {0};
    SN_VEC(int) ends = {0}; // by slot: the last run of the life that has it
    for (size_t i = 0; i < n; i++) {
        kept *k = values[i];
        k->table = sn_arena_alloc(&module->arena, sizeof *k->table + (size_t)microbatches * sizeof *k->table->of);
        k->table->n = microbatches;
        for (int m = 0; m < microbatches; m++)
            if (k->first[m] >= 0) sn_vec_push(&lives, (life){k, m, k->first[m]});
    }
    if (lives.count) qsort(lives.data, lives.count, sizeof *lives.data, by_first);
    for (size_t i = 0; i < lives.count; i++) {
        const life *l = &lives.data[i];
        size_t slot = 0;
        while (slot < ends.count && ends.data[slot] >= l->first) slot++;
        if (slot == ends.count) sn_vec_push(&ends, -1);
        ends.data[slot] = l->of->last[l->micro_batch];
        l->of->table->of[l->micro_batch] = (int)slot;
    }
    int slots = (int)ends.count;
    sn_vec_free(&lives);
    sn_vec_free(&ends);
    return slots;
}

// Values that no micro-batch has (a tied parameter) lie alone.
static size_t keep_living(const sn_map *all, int microbatches, kept **values) {
    size_t n = 0;
    for (size_t i = 0; i < all->count; i++) {
        kept *k = all->entries[i].value;
        bool lives = false;
        for (int m = 0; m < microbatches; m++) lives = lives || k->first[m] >= 0;
        if (lives) values[n++] = k;
    }
    return n;
}

void sn_pool_kept(sn_module *module, const sn_plan *plan, int rank, sn_arena *arena, sn_map *out) {
    if (!plan || plan->microbatches < 2 || !sn_module_has_stages(module)) return;
    sn_func_runs runs = {0};
    sn_map all = {0};
    sn_sequence_of(module, plan, rank, SN_SEQUENCE_STEP, &runs);
    find_kept(&runs, plan->microbatches, arena, &all);
    find_lives(&runs, &all);
    kept **values = SN_NEW_N(arena, kept *, all.count + 1);
    size_t n = keep_living(&all, plan->microbatches, values);
    qsort(values, n, sizeof *values, by_bytes);
    for (size_t from = 0, to; from < n; from = to) {
        int alone = 0;
        for (to = from; to < n && values[to]->bytes == values[from]->bytes; to++)
            alone += sn_slots_of(module, plan, rank, values[to]->name);
        int together = share(values + from, to - from, plan->microbatches, module);
        if (together >= alone) continue;
        sn_pool *pool = SN_NEW(arena, sn_pool);
        *pool = (sn_pool){values[from]->bytes, together, -1};
        for (size_t i = from; i < to; i++) {
            sn_pooled *p = SN_NEW(arena, sn_pooled);
            *p = (sn_pooled){pool, values[i]->table};
            sn_map_put(out, values[i]->name, p);
        }
    }
    sn_map_free(&all);
    sn_vec_free(&runs);
}
