// Programs cut in pipeline stages against one device, through the interpreter in f64: each pipeline rank runs its
// sequence, with values that it keeps in as many slots as the memory planner gives them, and waits for what it
// receives. All parameters, moments and states after a step must agree.
#include "mesh.h"

#include "base/philox.h"
#include "passes/memory/pool.h"
#include "passes/partition/stages.h"
#include "passes/schedule/sequence.h"

enum { MOST_RANKS = 8, MOST_STAGES = 16 };

typedef struct pipeline {
    const sample *sample;
    sn_module *module;
    const sn_plan *plan;
    sn_interp *interp;
    sn_map kept;               // "rank name slot" -> sn_tensor *
    sn_map pooled[MOST_RANKS]; // slots that values share (passes/memory/pool.h)
    int ranks;
    sn_func_runs runs[MOST_RANKS];
    size_t at[MOST_RANKS];
} pipeline;

static sn_tensor *place_of(pipeline *p, int rank, const char *name, int micro_batch) {
    const sn_pooled *pooled = sn_map_get(&p->pooled[rank], name);
    int slots = sn_slots_of(p->module, p->plan, rank, name), slot = micro_batch < 0 ? 0 : micro_batch % slots;
    const char *key = sn_arena_printf(&p->module->arena, "%d %s %d", rank, name, slot);
    if (pooled) {
        assert_true(pooled->table->of[micro_batch] < pooled->pool->slots);
        key = sn_arena_printf(&p->module->arena, "%d pool %p %d", rank, (void *)pooled->pool,
                              pooled->table->of[micro_batch]);
    }
    sn_tensor *tensor = sn_map_get(&p->kept, key);
    if (!tensor) {
        tensor = sn_arena_alloc(&p->module->arena, sizeof *tensor);
        *tensor = (sn_tensor){0};
        sn_map_put(&p->kept, key, tensor);
    }
    return tensor;
}

static bool is_data(const sn_value *arg) {
    return arg->name[0] != '$';
}

// In dist form types are those of whole tensors.
static sn_tensor whole_argument(const pipeline *p, const sn_value *arg, int part, int64_t step) {
    sn_value whole = *arg;
    whole.layout = (sn_layout){0};
    return sample_argument(p->sample, p->module, &whole, part, step);
}

// Before the first run of a micro-batch, as the runtime does.
static void load(pipeline *p, int rank, int micro_batch) {
    for (size_t f = 0; f < p->module->funcs.count; f++) {
        const sn_func *func = p->module->funcs.data[f];
        for (size_t a = 0; sn_pipeline_rank_of(func) == rank && a < func->args.count; a++) {
            const sn_value *arg = func->args.data[a];
            if (!is_data(arg)) continue;
            sn_tensor *place = place_of(p, rank, arg->name, micro_batch);
            sn_tensor_free(place);
            *place = whole_argument(p, arg, micro_batch, 1);
        }
    }
}

static bool is_first(const pipeline *p, int rank) {
    int micro_batch = p->runs[rank].data[p->at[rank]].micro_batch;
    for (size_t i = 0; i < p->at[rank]; i++)
        if (p->runs[rank].data[i].micro_batch == micro_batch) return false;
    return micro_batch >= 0;
}

static sn_tensor *arguments(pipeline *p, int rank, const sn_func_run *run) {
    sn_tensor *args = calloc(run->func->args.count + 1, sizeof *args);
    int64_t step = run->micro_batch < 0 ? 1 : run->micro_batch + 1;
    for (size_t i = 0; i < run->func->args.count; i++) {
        const sn_value *arg = run->func->args.data[i];
        if (!is_data(arg) && !sn_is_kept_name(arg->name)) {
            args[i] = whole_argument(p, arg, 0, step);
            continue;
        }
        args[i] = *place_of(p, rank, arg->name, run->micro_batch);
        if (!args[i].data) fail_msg("@%s reads %s before it is there", run->func->name, arg->name);
    }
    return args;
}

static void take_results(pipeline *p, int rank, const sn_func_run *run, sn_tensor *args, sn_tensor *results) {
    for (size_t i = 0; i < run->func->results.count; i++) {
        const char *name = run->func->result_names.data[i];
        sn_tensor *place = sn_is_kept_name(name) ? place_of(p, rank, name, run->micro_batch) : &results[i];
        sn_tensor_free(place);
        if (place != &results[i]) *place = results[i];
    }
    for (size_t i = 0; i < run->func->args.count; i++) {
        const char *name = run->func->args.data[i]->name;
        if (name[0] == '$' && !sn_is_kept_name(name)) sn_tensor_free(&args[i]);
    }
    free(args);
    free(results);
}

// The next run of each of the ranks at once.
static void run_next(pipeline *p, int n, const int *ranks) {
    sn_func *funcs[MOST_RANKS] = {0};
    sn_tensor *args[MOST_RANKS] = {0}, *results[MOST_RANKS] = {0};
    for (int i = 0; i < n; i++) {
        const sn_func_run *run = &p->runs[ranks[i]].data[p->at[ranks[i]]];
        if (is_first(p, ranks[i])) load(p, ranks[i], run->micro_batch);
        funcs[i] = (sn_func *)(uintptr_t)run->func;
        args[i] = arguments(p, ranks[i], run);
        results[i] = calloc(run->func->results.count + 1, sizeof *results[i]);
    }
    const char *problem =
        sn_interp_run_all(p->interp, n, funcs, (const sn_tensor *const *)args, (sn_tensor *const *)results);
    if (problem) fail_msg("%s @%s: %s", p->sample->path, funcs[0]->name, problem);
    for (int i = 0; i < n; i++)
        take_results(p, ranks[i], &p->runs[ranks[i]].data[p->at[ranks[i]]++], args[i], results[i]);
}

// All ranks to the end of the sequence. A run starts when what it receives was sent; the last of each rank, of no
// micro-batch, exchanges values both ways, so they run together.
static void run_sequence(pipeline *p, sn_sequence_kind kind) {
    for (int r = 0; r < p->ranks; r++) {
        p->runs[r].count = p->at[r] = 0;
        sn_sequence_of(p->module, p->plan, r, kind, &p->runs[r]);
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->ranks; r++) {
            while (p->at[r] < p->runs[r].count && sn_interp_is_ready(p->interp, p->runs[r].data[p->at[r]].func)) {
                bool last = p->at[r] > 0 && p->runs[r].data[p->at[r]].micro_batch < 0;
                if (last) break;
                run_next(p, 1, &r);
                moved = true;
            }
        }
    }
    int waiting[MOST_RANKS], n = 0;
    for (int r = 0; r < p->ranks; r++) {
        if (p->at[r] == p->runs[r].count) continue;
        if (p->at[r] + 1 < p->runs[r].count) fail_msg("rank %d waits at run %zu forever", r, p->at[r]);
        waiting[n++] = r;
    }
    if (n) run_next(p, n, waiting);
}

static void forget(pipeline *p) {
    for (size_t i = 0; i < p->kept.count; i++) sn_tensor_free(p->kept.entries[i].value);
    sn_map_free(&p->kept);
    for (int r = 0; r < p->ranks; r++) {
        sn_vec_free(&p->runs[r]);
        sn_map_free(&p->pooled[r]);
    }
    sn_interp_free(p->interp);
}

static sn_module *compile(sample *s, const sn_plan *plan, int microbatches) {
    sn_onnx_options options = {.n_shapes = s->n_inputs, .shapes = s->shapes, .mode = SN_ONNX_AS_EXPORTED};
    sn_module *module = sn_onnx_import(s->model, &options, &s->diags);
    sn_training training = sn_training_default();
    training.loss = s->loss, training.accumulate = microbatches, training.splits = true;
    training.clip = 0.5;
    sn_pass_context context = {.diags = &s->diags, .training = &training, .plan = plan};
    sn_pipeline_options to_step = {.stop_after = plan ? "stages" : "training", .pass_limit = -1};
    if (!module || !sn_passes_run(module, &context, &to_step)) {
        sn_diags_print(&s->diags, 0, false, stderr);
        fail_msg("%s is not compiled", s->path);
    }
    return module;
}

// Values of chunks share slots, and then fewer than each had alone.
static void make_pools(pipeline *p) {
    size_t pooled = 0;
    for (int r = 0; r < p->ranks; r++) {
        sn_pool_kept(p->module, p->plan, r, &p->module->arena, &p->pooled[r]);
        pooled += p->pooled[r].count;
    }
    if (p->plan->chunks > 2) assert_true(pooled > 0);
}

static void compare(const sn_module *one, sn_interp *alone, const sn_module *many, sn_interp *cut) {
    for (size_t i = 0; i < one->globals.count; i++) {
        const sn_global *a = one->globals.data[i], *b = sn_module_global(many, a->name);
        if (a->role == SN_ROLE_CONSTANT || !sn_dtype_is_float(a->value->type.dtype)) continue;
        const char *problem = NULL;
        const sn_tensor *x = sn_interp_global(alone, a, &problem), *y = b ? sn_interp_global(cut, b, &problem) : NULL;
        if (problem || !y) fail_msg("%s: %s", a->name, problem ? problem : "is lost");
        double error = norm_of(x, y) / (norm_of(x, NULL) + 1e-3);
        if (!(error <= 1e-9)) fail_msg("%s differs by %g", a->name, error);
    }
}

// Stages that begin at random nodes.
static void draw_stages(sn_plan *plan, const sn_module *module, uint64_t seed, sn_plan_stage *stages) {
    const char *names[2048];
    int n = 0, count = sn_plan_stage_count(plan);
    SN_FOR_OPS(op, sn_module_func(module, "micro")) {
        const char *name = sn_origin_node(op->origin);
        bool known = !name || op->phase != SN_PHASE_FORWARD || !op->n_operands || n == 2048;
        for (int i = 0; i < n && !known; i++) known = strcmp(names[i], name) == 0;
        if (!known) names[n++] = name;
    }
    assert_true(n > 3 * count);
    int at = 0;
    for (int i = 0; i < count; i++) {
        stages[i] = (sn_plan_stage){i ? names[at] : "", plan->remat};
        int room = n - 2 * (count - i) - at;
        at += 1 + (int)(sn_random_uniform(seed, 0, 0, (uint64_t)i) * (float)(room > 2 ? room / 2 : 1));
    }
    plan->n_stages = count;
    plan->stages = stages;
}

static void check(const char *model, const char *outline, uint64_t seed) {
    sample s;
    sn_plan plan;
    sn_plan_stage stages[MOST_STAGES];
    if (!sample_find(model, "dynamo-20-raw", &s)) return;
    sample_open(&s, 4);
    assert_true(sn_plan_from_outline(outline, &s.diags, &plan));
    sn_module *one = compile(&s, NULL, plan.microbatches);
    if (seed) draw_stages(&plan, one, seed, stages);
    outcome alone = {.module = one};
    sn_interp *interp = sn_interp_new(one);
    sn_interp_set_f64(interp, true);
    for (int m = 0; m < plan.microbatches; m++) run_function(&s, &alone, interp, "micro", m, m + 1);
    run_function(&s, &alone, interp, "update", 0, 1);

    pipeline p = {.sample = &s, .plan = &plan, .ranks = sn_plan_axis_size(&plan, "pp")};
    p.module = compile(&s, &plan, plan.microbatches);
    p.interp = sn_interp_new(p.module);
    sn_interp_set_f64(p.interp, true);
    make_pools(&p);
    run_sequence(&p, SN_SEQUENCE_STEP);
    run_sequence(&p, SN_SEQUENCE_EVAL);
    run_sequence(&p, SN_SEQUENCE_PREDICT);
    compare(one, interp, p.module, p.interp);
    forget(&p);
    sn_interp_free(interp);
    sn_module_free(p.module);
    outcome_free(&alone);
    sample_close(&s);
}

static void test_schedules(void **state) {
    (void)state;
    check("gpt2", "pp=2,microbatches=2,schedule=gpipe", 0);
    check("gpt2", "pp=3,microbatches=4", 0); // the tied embedding is in the first and the last stage
    check("moe", "pp=2,microbatches=3,schedule=zero-bubble", 0);
    check("mlp", "pp=2,microbatches=1", 0);
    check("lenet", "pp=4,microbatches=5,schedule=zero-bubble", 0);
}

static void test_chunks(void **state) {
    (void)state;
    check("gpt2", "pp=2,microbatches=4,schedule=interleaved,chunks=3", 0);
    check("moe", "pp=3,microbatches=3,schedule=interleaved,chunks=2", 0);
    check("moe", "pp=2,microbatches=3,schedule=interleaved,chunks=2", 0);
}

static void test_uneven(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        check("gpt2", seed % 2 ? "pp=3,microbatches=2" : "pp=4,microbatches=3,schedule=zero-bubble", seed);
        check("moe", seed % 2 ? "pp=2,microbatches=2,schedule=interleaved,chunks=2" : "pp=3,microbatches=2", seed);
    }
}

static void test_remat(void **state) {
    (void)state;
    check("gpt2", "pp=2,microbatches=3,schedule=gpipe,remat=full", 0);
    check("gpt2", "pp=2,microbatches=3,schedule=zero-bubble,remat=selective", 0);
    check("moe", "pp=2,microbatches=2,remat=full", 0);
    check("lenet", "pp=3,microbatches=2,remat=full", 0);
}

// What is wrong with a plan's stages; the text names the stage or the node.
static void refuse(const char *outline, const char *second, const char *third, const char *code, const char *text) {
    sample s;
    sn_plan plan;
    assert_true(sample_find("gpt2", "dynamo-20-raw", &s));
    sample_open(&s, 4);
    assert_true(sn_plan_from_outline(outline, &s.diags, &plan));
    sn_plan_stage stages[] = {{"", SN_REMAT_NONE}, {second, SN_REMAT_NONE}, {third, SN_REMAT_NONE}};
    if (second) plan.n_stages = third ? 3 : 2, plan.stages = stages;
    sn_onnx_options options = {.n_shapes = s.n_inputs, .shapes = s.shapes, .mode = SN_ONNX_AS_EXPORTED};
    sn_module *module = sn_onnx_import(s.model, &options, &s.diags);
    sn_training training = sn_training_default();
    training.loss = s.loss, training.splits = true;
    sn_pass_context context = {.diags = &s.diags, .training = &training, .plan = &plan};
    sn_pipeline_options to_stages = {.stop_after = "stages", .pass_limit = -1};
    assert_false(sn_passes_run(module, &context, &to_stages));
    const sn_diag *last = NULL;
    for (size_t i = 0; i < s.diags.count; i++)
        if (s.diags.items[i].severity == SN_ERROR) last = &s.diags.items[i];
    assert_non_null(last);
    assert_string_equal(last->code, code);
    if (!strstr(last->message, text) && !(last->help && strstr(last->help, text))) fail_msg("%s", last->message);
    sn_module_free(module);
    sample_close(&s);
}

static void test_refusals(void **state) {
    (void)state;
    refuse("pp=2", "node_layer_norm_3x", NULL, "E0420", "node_layer_norm_3");
    refuse("pp=3", "node_layer_norm_3", "node_layer_norm_1", "E0421", "stage 2");
    refuse("pp=3", "node_layer_norm_3", "node_layer_norm_3", "E0421", "stage 2");
    refuse("pp=64,schedule=interleaved,chunks=8", NULL, NULL, "E0421", "512 stages");
}

static void test_with_data_parallelism(void **state) {
    (void)state;
    check("gpt2", "pp=2,dp=2,microbatches=2,zero=1", 0);
    check("moe", "dp=2,pp=2,microbatches=2,schedule=zero-bubble", 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_remat),
        cmocka_unit_test(test_with_data_parallelism),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
