#include "passes/schedule/sequence.h"

#include "passes/partition/stages.h"
#include "passes/schedule/pipeline_order.h"

#include <string.h>

static const char *const names[SN_SEQUENCE_COUNT] = {
    [SN_SEQUENCE_STEP] = "step",
    [SN_SEQUENCE_GRADIENTS] = "gradients",
    [SN_SEQUENCE_EVAL] = "eval",
    [SN_SEQUENCE_PREDICT] = "predict",
};

const char *sn_sequence_name(sn_sequence_kind kind) {
    return names[kind];
}

static bool add(sn_func_runs *out, const sn_func *func, int micro_batch) {
    if (func) sn_vec_push(out, (sn_func_run){func, micro_batch});
    return func != NULL;
}

// Without stages: one function, or one per micro-batch and one at the end.
static bool simple_sequence(const sn_module *module, int microbatches, sn_sequence_kind kind, sn_func_runs *out) {
    const sn_func *micro = sn_module_func(module, "micro"), *last = sn_module_func(module, names[kind]);
    if (kind == SN_SEQUENCE_STEP && micro) last = sn_module_func(module, "update");
    if (!last) return false;
    bool parts = micro && (kind == SN_SEQUENCE_STEP || kind == SN_SEQUENCE_GRADIENTS);
    for (int m = 0; parts && m < microbatches; m++) add(out, micro, m);
    return add(out, last, parts ? -1 : 0);
}

static void add_pipeline(const sn_module *module, const sn_plan *plan, int rank, sn_func_runs *out) {
    static const sn_stage_part parts[SN_RUN_KIND_COUNT] = {
        [SN_RUN_FORWARD] = SN_PART_FORWARD,
        [SN_RUN_BACKWARD] = SN_PART_BACKWARD,
        [SN_RUN_BACKWARD_INPUT] = SN_PART_BACKWARD_INPUT,
        [SN_RUN_BACKWARD_WEIGHT] = SN_PART_BACKWARD_WEIGHT,
    };
    int ranks = sn_pipeline_ranks(module);
    sn_pipeline_order order = {0};
    sn_pipeline_order_of(plan->schedule, ranks, plan->chunks, plan->microbatches, rank, &order);
    for (size_t i = 0; i < order.count; i++) {
        const sn_pipeline_run *run = &order.data[i];
        add(out, sn_stage_func(module, run->chunk * ranks + rank, parts[run->kind]), run->micro_batch);
    }
    sn_vec_free(&order);
}

static bool any_stage_has(const sn_module *module, sn_stage_part wanted) {
    int stage;
    sn_stage_part part;
    for (size_t i = 0; i < module->funcs.count; i++)
        if (sn_stage_of(module->funcs.data[i], &stage, &part) && part == wanted) return true;
    return false;
}

bool sn_sequence_of(const sn_module *module, const sn_plan *plan, int rank, sn_sequence_kind kind, sn_func_runs *out) {
    static const sn_stage_part lasts[] = {[SN_SEQUENCE_STEP] = SN_PART_UPDATE,
                                          [SN_SEQUENCE_GRADIENTS] = SN_PART_GRADIENTS,
                                          [SN_SEQUENCE_EVAL] = SN_PART_EVAL,
                                          [SN_SEQUENCE_PREDICT] = SN_PART_PREDICT};
    if (!sn_module_has_stages(module)) return simple_sequence(module, plan ? plan->microbatches : 1, kind, out);
    SN_CHECK(plan);
    if (!any_stage_has(module, lasts[kind])) return false;
    int ranks = sn_pipeline_ranks(module);
    add(out, sn_stage_func(module, rank, SN_PART_TIE), -1);
    if (kind == SN_SEQUENCE_STEP || kind == SN_SEQUENCE_GRADIENTS) {
        add_pipeline(module, plan, rank, out);
        add(out, sn_stage_func(module, rank, lasts[kind]), -1);
    } else {
        for (int c = 0; c < plan->chunks; c++) add(out, sn_stage_func(module, c * ranks + rank, lasts[kind]), 0);
    }
    return true;
}

static bool takes(const sn_func *func, const char *name) {
    for (size_t i = 0; i < func->args.count; i++)
        if (strcmp(func->args.data[i]->name, name) == 0) return true;
    return false;
}

static bool returns(const sn_func *func, const char *name) {
    for (size_t i = 0; i < func->results.count; i++)
        if (strcmp(func->result_names.data[i], name) == 0) return true;
    return false;
}

void sn_lives_of(const sn_func_runs *runs, const char *name, int microbatches, sn_life *lives) {
    bool input = !sn_is_kept_name(name);
    for (int m = 0; m < microbatches; m++) lives[m] = (sn_life){-1, -1};
    for (size_t i = 0; i < runs->count; i++) {
        const sn_func_run *run = &runs->data[i];
        if (run->micro_batch < 0) continue; // a value of no micro-batch has one slot
        sn_life *l = &lives[run->micro_batch];
        if (l->first < 0 && (input || returns(run->func, name))) l->first = (int)i;
        if (l->first >= 0 && (takes(run->func, name) || returns(run->func, name))) l->last = (int)i;
    }
    for (int m = 0; m < microbatches; m++)
        if (lives[m].last < lives[m].first) lives[m] = (sn_life){-1, -1};
}

static bool fits(const sn_life *lives, int microbatches, int slots) {
    for (int a = 0; a < microbatches; a++) {
        for (int b = a + slots; b < microbatches; b += slots) {
            if (lives[a].first < 0 || lives[b].first < 0) continue;
            if (lives[a].first <= lives[b].last && lives[b].first <= lives[a].last) return false;
        }
    }
    return true;
}

int sn_slots_of(const sn_module *module, const sn_plan *plan, int rank, const char *name) {
    int n = plan ? plan->microbatches : 1, slots = 1;
    if (n == 1 || !sn_module_has_stages(module)) return 1;
    sn_func_runs runs = {0};
    sn_sequence_of(module, plan, rank, SN_SEQUENCE_STEP, &runs);
    sn_life *lives = sn_alloc(sizeof *lives * (size_t)n);
    sn_lives_of(&runs, name, n, lives);
    while (!fits(lives, n, slots)) slots++;
    sn_free(lives);
    sn_vec_free(&runs);
    return slots;
}
