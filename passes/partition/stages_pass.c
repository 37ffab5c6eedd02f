// stages: cuts the program in pipeline stages.
//
//   @micro(%x, %labels)            @stage0.forward(%x)      %h = …; send(%h) <channel=0 stage=1>; return %h as
//   "$keep.0"
//     %h = …        node of 0      @stage1.forward(%labels) %h = recv() <channel=0 stage=0>; …
//     %y = …(%h)    node of 1  =>  @stage1.backward(…)      … send(%dh) <channel=1 stage=0>
//     … backward                   @stage0.backward(%$keep.0) %dh = recv() <channel=1 stage=1>; …
//   @update                        @stage0.update, @stage1.update: each for what its rank holds
//   @eval, @predict                @stage0.eval, @stage1.eval, …
//
// Parameters, their moments and their accumulators belong to the stage that uses the parameter first. A use in another
// stage (a tied embedding) gets the parameter once per sequence (@stageN.tie) and returns its part of the gradient.
#include "passes/memory/remat.h"
#include "passes/memory/remat_structure.h"
#include "passes/partition/stages_assign.h"
#include "passes/partition/stages_cut.h"
#include "passes/partition/stages_sums.h"
#include "passes/partition/weight_pass.h"
#include "passes/pass.h"

#include <string.h>

typedef struct stager {
    sn_module *module;
    sn_pass_context *context;
    const sn_plan *plan;
    sn_node_stages nodes;
    sn_map owner; // of globals: stage + 1
    sn_stage_cutter cutter;
} stager;

static int stage_count(const stager *s) {
    return s->nodes.n_stages;
}

// Whether an op leads to what an earlier stage waits for: by op mark.
static bool *mark_needed_before(const stager *s, const sn_func *func, const int *stage) {
    bool *needed = SN_NEW_N(s->context->scratch, bool, func->n_ops + 1);
    for (const sn_op *op = func->last; op; op = op->prev) {
        for (int r = 0; r < op->n_results; r++) {
            for (size_t u = 0; u < op->results[r]->uses.count; u++) {
                const sn_op *user = op->results[r]->uses.data[u].op;
                bool other = stage[user->mark] != SN_HOME_ANYWHERE && stage[user->mark] != stage[op->mark];
                needed[op->mark] |= user->phase != SN_PHASE_FORWARD && (other || needed[user->mark]);
            }
        }
    }
    return needed;
}

// The ops of the pass of the weights' gradients, by op mark.
static bool *mark_late(const stager *s, sn_func *func, const int *stage) {
    sn_arena *scratch = s->context->scratch;
    bool *needed = mark_needed_before(s, func, stage), *marks = SN_NEW_N(scratch, bool, func->n_ops + 1);
    bool *late = SN_NEW_N(scratch, bool, func->n_ops + 1);
    sn_op **ops = SN_NEW_N(scratch, sn_op *, func->n_ops + 1);
    size_t n = 0;
    uint32_t n_values = 0;
    SN_FOR_OPS(op, func) {
        for (int r = 0; r < op->n_results; r++) op->results[r]->id = n_values++;
        bool backward = op->phase != SN_PHASE_FORWARD && stage[op->mark] != SN_HOME_ANYWHERE;
        if (backward && !needed[op->mark]) ops[n++] = op;
    }
    sn_weight_pass_find(ops, n, n_values, late);
    for (size_t i = 0; i < n; i++) marks[ops[i]->mark] = late[i];
    return marks;
}

static sn_remat remat_of(const stager *s, int stage) {
    return s->plan->n_stages ? s->plan->stages[stage].remat : s->plan->remat;
}

// What is computed again in the backward pass is decided here, before forward and backward go apart. The last block's
// backward pass follows at once, unless all forward passes come first.
static void rematerialise(stager *s, sn_func *func, const bool *anywhere, const int *stage) {
    enum { SMALLEST = 1 << 10 }; // bytes
    sn_arena *scratch = s->context->scratch;
    int stages = stage_count(s), last = 0;
    int *block = SN_NEW_N(scratch, int, func->n_ops + 1), n = sn_remat_find_blocks(func, anywhere, block);
    sn_remat *modes = SN_NEW_N(scratch, sn_remat, n * stages);
    SN_FOR_OPS(op, func) {
        if (op->phase != SN_PHASE_FORWARD) continue;
        block[op->mark] += n * (stage[op->mark] < 0 ? 0 : stage[op->mark]);
        if (block[op->mark] > last) last = block[op->mark];
    }
    for (int i = 0; i < n * stages; i++) modes[i] = remat_of(s, i / n);
    if (s->plan->schedule != SN_PIPELINE_GPIPE) modes[last] = SN_REMAT_NONE;
    sn_remat_blocks blocks = {.block = block, .mode = modes, .anywhere = anywhere};
    sn_remat_planned(func, s->context, &blocks);
    sn_remat_free(func, s->context, SMALLEST, true);
}

// The stage of each op of a function of one micro-batch.
static int *assign(stager *s, sn_func *func, bool **anywhere) {
    int *home = SN_NEW_N(s->context->scratch, int, func->n_ops + 1);
    *anywhere = SN_NEW_N(s->context->scratch, bool, func->n_ops + 1);
    sn_mark_anywhere(func, true, *anywhere);
    sn_stages_assign(func, &s->nodes, *anywhere, &s->owner, home);
    return home;
}

// Cells of @micro: forward 0 … S-1, then backward, or backward_input and backward_weight, 0 … S-1.
static void cut_micro(stager *s, sn_func *func) {
    sn_arena *scratch = s->context->scratch;
    int stages = stage_count(s), ranks = s->cutter.ranks, n = 0;
    bool split = s->plan->schedule == SN_PIPELINE_ZERO_BUBBLE;
    sn_stage_cell *cells = SN_NEW_N(scratch, sn_stage_cell, 3 * stages);
    for (int i = 0; i < stages; i++) cells[n++] = (sn_stage_cell){SN_PART_FORWARD, i, i % ranks, i};
    for (int i = 0; i < stages; i++)
        cells[n++] = (sn_stage_cell){split ? SN_PART_BACKWARD_INPUT : SN_PART_BACKWARD, i, i % ranks,
                                     stages + 2 * (stages - 1 - i)};
    for (int i = 0; split && i < stages; i++)
        cells[n++] = (sn_stage_cell){SN_PART_BACKWARD_WEIGHT, i, i % ranks, stages + 2 * (stages - 1 - i) + 1};
    bool *anywhere;
    int *home = assign(s, func, &anywhere);
    rematerialise(s, func, anywhere, home);
    home = assign(s, func, &anywhere);
    sn_stages_split_accumulators(func, ranks, home, &s->owner);
    home = assign(s, func, &anywhere);
    bool *late = split ? mark_late(s, func, home) : NULL;
    SN_FOR_OPS(op, func) {
        if (home[op->mark] == SN_HOME_ANYWHERE || op->phase == SN_PHASE_FORWARD) continue;
        home[op->mark] += late && late[op->mark] ? 2 * stages : stages;
        if (sn_op_has(op->kind, SN_TRAIT_VIEW)) home[op->mark] = SN_HOME_ANYWHERE; // what it views crosses a cut once
    }
    func->results.count = func->result_names.count = 0; // the loss of a part: @update has that of the step
    sn_stage_cut(&s->cutter, func, n, cells, home);
}

static void cut_forward(stager *s, sn_func *func, sn_stage_part part) {
    sn_arena *scratch = s->context->scratch;
    int stages = stage_count(s);
    sn_stage_cell *cells = SN_NEW_N(scratch, sn_stage_cell, stages);
    for (int i = 0; i < stages; i++) cells[i] = (sn_stage_cell){part, i, i % s->cutter.ranks, i};
    bool *anywhere;
    int *home = assign(s, func, &anywhere);
    sn_stage_cut(&s->cutter, func, stages, cells, home);
}

static int rank_of_global(stager *s, const sn_global *global) {
    if (!sn_map_has(&s->owner, global->name)) {
        const void *of = global->of ? sn_map_get(&s->owner, global->of->name) : NULL;
        sn_map_put(&s->owner, global->name, of ? (void *)(uintptr_t)of : (void *)(intptr_t)1);
    }
    return ((int)(intptr_t)sn_map_get(&s->owner, global->name) - 1) % s->cutter.ranks;
}

// The rank of each op of a function that is not of one micro-batch: where the largest of its operands is.
static int *assign_ranks(stager *s, sn_func *func) {
    bool *anywhere = SN_NEW_N(s->context->scratch, bool, func->n_ops + 1);
    int *home = SN_NEW_N(s->context->scratch, int, func->n_ops + 1);
    sn_mark_anywhere(func, false, anywhere);
    SN_FOR_OPS(op, func) {
        int64_t most = -1;
        home[op->mark] = anywhere[op->mark] ? SN_HOME_ANYWHERE : 0;
        for (int i = 0; i < op->n_operands && !anywhere[op->mark]; i++) {
            const sn_value *value = op->operands[i];
            bool global = value->kind == SN_VALUE_GLOBAL && value->global->role != SN_ROLE_CONSTANT;
            bool result = value->kind == SN_VALUE_RESULT && home[value->def->mark] != SN_HOME_ANYWHERE;
            if ((!global && !result) || sn_type_bytes(value->type) <= most) continue;
            if (op->kind == SN_OP_ASSIGN && i) continue;
            most = sn_type_bytes(value->type);
            home[op->mark] = global ? rank_of_global(s, value->global) : home[value->def->mark];
        }
    }
    return home;
}

static void cut_by_rank(stager *s, sn_func *func, sn_stage_part part) {
    int ranks = s->cutter.ranks;
    sn_stage_cell *cells = SN_NEW_N(s->context->scratch, sn_stage_cell, ranks);
    for (int i = 0; i < ranks; i++) cells[i] = (sn_stage_cell){part, i, i, i};
    sn_stages_sum_by_rank(func, ranks, assign_ranks(s, func));
    sn_stage_cut(&s->cutter, func, ranks, cells, assign_ranks(s, func));
}

static void cut_all(stager *s) {
    sn_func *func;
    if ((func = sn_module_func(s->module, "micro"))) cut_micro(s, func);
    if ((func = sn_module_func(s->module, "eval"))) cut_forward(s, func, SN_PART_EVAL);
    if ((func = sn_module_func(s->module, "predict"))) cut_forward(s, func, SN_PART_PREDICT);
    if ((func = sn_module_func(s->module, "update"))) cut_by_rank(s, func, SN_PART_UPDATE);
    if ((func = sn_module_func(s->module, "gradients"))) cut_by_rank(s, func, SN_PART_GRADIENTS);
}

static void run(sn_module *module, sn_pass_context *context) {
    sn_plan of_mesh = {.mesh = module->mesh, .microbatches = 1};
    of_mesh.chunks = (int)sn_pass_argument_int(context, "chunks", 1);
    if (sn_pass_argument_int(context, "zero-bubble", 0)) of_mesh.schedule = SN_PIPELINE_ZERO_BUBBLE;
    const sn_plan *plan = context->plan ? context->plan : &of_mesh;
    if (sn_plan_stage_count(plan) == 1 || sn_module_has_stages(module)) return;
    stager s = {.module = module, .context = context, .plan = plan};
    s.cutter = (sn_stage_cutter){.module = module, .ranks = sn_plan_axis_size(plan, "pp"), .owner = &s.owner};
    sn_func *model = sn_module_func(module, "micro");
    if (!model) model = sn_module_func(module, "predict");
    SN_CHECK(model);
    if (sn_node_stages_find(model, plan, context->diags, context->scratch, &s.nodes)) cut_all(&s);
    sn_node_stages_free(&s.nodes);
    sn_map_free(&s.owner);
    sn_map_free(&s.cutter.tied);
}

const sn_pass sn_pass_stages = {
    .name = "stages",
    .summary = "cuts the program in the plan's pipeline stages; what crosses a cut is sent and received",
    .arguments = "chunks=N: stages per rank; zero-bubble=1: backward passes in two parts; where no plan is given",
    .forms = 1 << SN_FORM_DIST,
    .result = SN_FORM_DIST,
    .run = run,
};
