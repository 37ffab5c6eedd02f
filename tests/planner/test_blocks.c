// Blocks, strategies and layouts of a real model (samples/chargpt) and of a two-layer perceptron: every op and
// parameter is in one block, equal layers are one class, and the layouts that cost least are the known ones.
#include "frontend/onnx.h"
#include "passes/partition/evaluate.h"
#include "passes/partition/evaluate_table.h"
#include "passes/pass.h"
#include "passes/training/training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dice.h"

typedef struct model {
    sn_diags diags;
    sn_arena arena;
    sn_onnx_model *onnx;
    sn_module *module;
    uint64_t hash;
    sn_blocks blocks;
} model;

enum { BATCH = 16 };

static void open_model(model *m, int64_t batch, int64_t sequence) {
    *m = (model){0};
    m->onnx = sn_onnx_open_shapes(SENNIT_SOURCE_DIR "/samples/chargpt/model.onnx", &m->diags);
    assert_non_null(m->onnx);
    sn_onnx_binding bindings[] = {{"batch", batch}, {"seq", sequence}};
    sn_onnx_options options = {.n_bindings = 2, .bindings = bindings};
    m->module = sn_onnx_import(m->onnx, &options, &m->diags);
    assert_non_null(m->module);
    m->hash = sn_model_hash(m->module);
    sn_training training = sn_training_default();
    training.loss = "softmax_cross_entropy:logits,labels";
    training.accumulate = 2;
    sn_pass_context context = {.diags = &m->diags, .training = &training};
    sn_pipeline_options pipeline = {.stop_after = "training", .pass_limit = -1};
    assert_true(sn_passes_run(m->module, &context, &pipeline));
    m->blocks = sn_blocks_find(m->module, batch, &m->arena);
}

static void close_model(model *m) {
    sn_module_free(m->module);
    sn_onnx_close(m->onnx);
    sn_arena_free(&m->arena);
    sn_diags_free(&m->diags);
}

static void every_op_and_parameter_is_in_one_block(void **state) {
    (void)state;
    model m;
    open_model(&m, BATCH, 32);
    const sn_blocks *b = &m.blocks;
    size_t forward = 0, backward = 0, listed_forward = 0, listed_backward = 0, parameters = 0, listed_parameters = 0;
    SN_FOR_OPS(op, b->micro) {
        forward += op->phase == SN_PHASE_FORWARD && op->kind != SN_OP_ASSIGN;
        backward += op->phase == SN_PHASE_BACKWARD && op->mark != 0;
        // gradients of a block's ops may only miss a block where they add up a parameter's
        if (op->phase == SN_PHASE_BACKWARD && op->mark == 0)
            assert_non_null(sn_module_global(m.module, sn_origin_node(op->origin)));
    }
    for (int i = 0; i < b->n_blocks; i++) {
        listed_parameters += (size_t)b->blocks[i].n_parameters;
        for (int g = 0; g < b->blocks[i].n_groups; g++) {
            listed_forward += (size_t)b->blocks[i].groups[g].n_forward;
            listed_backward += (size_t)b->blocks[i].groups[g].n_backward;
        }
    }
    for (size_t i = 0; i < m.module->globals.count; i++) parameters += m.module->globals.data[i]->role <= SN_ROLE_STATE;
    assert_int_equal(listed_forward, forward);
    assert_int_equal(listed_backward, backward);
    assert_int_equal(listed_parameters, parameters);
    close_model(&m);
}

// Four layers of attention and perceptron: each kind is one class, whatever the layer's names.
static void equal_layers_are_one_class(void **state) {
    (void)state;
    model m;
    open_model(&m, BATCH, 32);
    int repeated = 0, in_repeated = 0;
    for (int k = 0; k < m.blocks.n_classes; k++) {
        if (m.blocks.classes[k].count < 3) continue;
        repeated++;
        in_repeated += m.blocks.classes[k].count;
    }
    assert_true(repeated >= 2);                             // attention and perceptron at least
    assert_true(in_repeated * 10 >= m.blocks.n_blocks * 6); // most of the chain
    assert_true(m.blocks.n_classes < m.blocks.n_blocks);
    for (int i = 1; i < m.blocks.n_blocks; i++) assert_true(m.blocks.blocks[i].input_bytes > 0);
    close_model(&m);
}

static void the_hash_knows_shapes_but_not_the_batch(void **state) {
    (void)state;
    model a, b, c;
    open_model(&a, 16, 32);
    open_model(&b, 8, 32);
    open_model(&c, 16, 16);
    assert_true(a.hash == b.hash);
    assert_true(a.hash != c.hash);
    close_model(&a);
    close_model(&b);
    close_model(&c);
}

// What is cut in tp parts takes a tp-th; what is computed for b samples is a share of the batch.
static void costs_scale_as_they_must(void **state) {
    (void)state;
    model m;
    open_model(&m, BATCH, 32);
    sn_cluster cluster;
    assert_true(sn_cluster_preset("dgx-a100", 1, &cluster));
    sn_cost_model costs = {.device = cluster.nodes[0].device, .diags = &m.diags};
    sn_evaluator *e = sn_evaluator_new(&m.blocks, &cluster, &costs);
    const sn_block_cost *one =
        sn_evaluator_costs(e, (sn_cut_setting){.tp = 1, .cp = 1, .ep = 1, .micro = 8}, sn_evaluator_site(e));
    const sn_block_cost *half =
        sn_evaluator_costs(e, (sn_cut_setting){.tp = 1, .cp = 1, .ep = 1, .micro = 4}, sn_evaluator_site(e));
    const sn_block_cost *cut = sn_evaluator_costs(
        e, (sn_cut_setting){.tp = 2, .cp = 1, .ep = 1, .boundary = 1, .micro = 8}, sn_evaluator_site(e));
    assert_non_null(one);
    assert_non_null(half);
    assert_non_null(cut);
    double parameters = 0, expected = 0;
    for (int k = 0; k < m.blocks.n_classes; k++) {
        parameters += m.blocks.classes[k].count * (one[k].parameters - m.blocks.classes[k].tied_bytes);
        assert_true(fabs(half[k].activations[SN_REMAT_NONE].kept - one[k].activations[SN_REMAT_NONE].kept / 2) <= 64);
        assert_true(half[k].forward <= one[k].forward);
        assert_true(one[k].activations[SN_REMAT_FULL].kept <= one[k].activations[SN_REMAT_NONE].kept);
        assert_true(one[k].again[SN_REMAT_NONE] == 0 && one[k].again[SN_REMAT_FULL] <= one[k].forward);
        assert_true(one[k].again[SN_REMAT_SELECTIVE] <= one[k].again[SN_REMAT_FULL]);
        assert_true(cut[k].parameters <= one[k].parameters && cut[k].input <= one[k].input);
        assert_true(one[k].communication == 0);
    }
    for (size_t i = 0; i < m.module->globals.count; i++)
        if (m.module->globals.data[i]->role == SN_ROLE_PARAMETER)
            expected += (double)sn_type_bytes(m.module->globals.data[i]->value->type);
    assert_true(fabs(parameters - expected) <= 1);
    assert_null(sn_evaluator_costs(e, (sn_cut_setting){.tp = 3, .cp = 1, .ep = 1, .micro = 5},
                                   sn_evaluator_site(e))); // 5 does not divide 16
    sn_evaluator_free(e);
    close_model(&m);
}

static const sn_plan_layout *find_layout(const sn_plan_layout *list, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0) return &list[i];
    return NULL;
}

// The pair of Megatron-LM (Shoeybi et al. 2019): columns of the first product, rows of the second, so that nothing
// moves between them. On a slow processor and slow links, where neither tiles nor the start of a message count.
static void a_perceptron_is_cut_in_columns_then_rows(void **state) {
    (void)state;
    model m;
    open_model(&m, BATCH, 32);
    sn_cluster cluster;
    assert_true(sn_cluster_preset("local", 2, &cluster));
    for (int i = 0; i < cluster.n_levels; i++) cluster.level[i].alpha = 0, cluster.level[i].beta /= 100;
    sn_device_kind slow = *cluster.nodes[0].device;
    for (int r = 0; r < SN_RATE_COUNT; r++) slow.flops[r] /= 1000;
    sn_cost_model costs = {.device = &slow, .diags = &m.diags};
    sn_evaluator *e = sn_evaluator_new(&m.blocks, &cluster, &costs);
    sn_mesh mesh = {.n_axes = 1, .name = {"tp"}, .size = {2}};
    int count;
    sn_plan_layout *list =
        sn_evaluator_layouts(e, (sn_cut_setting){.tp = 2, .cp = 1, .ep = 1, .micro = 8}, &mesh, &m.arena, &count);
    const sn_plan_layout *first = find_layout(list, count, "lm.transformer.h.2.mlp.c_fc.weight");
    const sn_plan_layout *second = find_layout(list, count, "lm.transformer.h.2.mlp.c_proj.weight");
    assert_non_null(first);
    assert_non_null(second);
    assert_int_equal(first->layout.dim[1], 1);
    assert_int_equal(first->layout.dim[0], 0);
    assert_int_equal(second->layout.dim[0], 1);
    assert_int_equal(second->layout.dim[1], 0);
    sn_evaluator_free(e);
    close_model(&m);
}

// What the network minimises, added up group by group and flow by flow.
static double cost_of_choice(const sn_layout_problem *p, const int *choice, const int *label) {
    double total = 0;
    for (int g = 0; g < p->table->block->n_groups; g++) total += p->seconds[g][choice[g]];
    for (int f = 0; f < p->table->n_flows; f++) {
        const sn_flow *flow = &p->table->flows[f];
        for (int r = flow->producer >= 0 ? -1 : 0; r < flow->n_readers; r++) {
            int g = r < 0 ? flow->producer : flow->readers[r];
            sn_move_seconds s = sn_flow_moves(p, f, r < 0 ? -1 : g, &p->table->strategies[g].list[choice[g]],
                                              sn_flow_label_at(flow, label[f]));
            total += s.forward + s.backward;
        }
    }
    return total;
}

// Whether a flow inside the block may have the label.
static bool may_have(const sn_layout_problem *p, const sn_flow *flow, int label) {
    sn_cut cut = sn_flow_label_at(flow, label).value;
    if (cut < 0) return true;
    return cut != flow->data && flow->value->type.dim[sn_cut_dim(cut)] / sn_cut_outer(cut) % p->ranks->ranks == 0;
}

// The least cost of strategies: given them, each flow has its best label by itself. What crosses the block's ends keeps
// the one that it has.
static double least_of_choice(const sn_layout_problem *p, const int *choice, const int *label) {
    double total = 0;
    for (int g = 0; g < p->table->block->n_groups; g++) total += p->seconds[g][choice[g]];
    for (int f = 0; f < p->table->n_flows; f++) {
        const sn_flow *flow = &p->table->flows[f];
        bool inside = flow->producer >= 0 && !flow->leaves;
        double best = INFINITY;
        for (int l = 0; l < flow->n_cuts + 2; l++) {
            double cost = 0;
            if (inside ? !may_have(p, flow, l) : l != label[f]) continue;
            for (int r = flow->producer >= 0 ? -1 : 0; r < flow->n_readers; r++) {
                int g = r < 0 ? flow->producer : flow->readers[r];
                sn_move_seconds s = sn_flow_moves(p, f, r < 0 ? -1 : g, &p->table->strategies[g].list[choice[g]],
                                                  sn_flow_label_at(flow, l));
                cost += s.forward + s.backward;
            }
            best = fmin(best, cost);
        }
        total += best;
    }
    return total;
}

// The least cost over all strategies of all groups, or over many drawn at random where they are too many; *all says
// which.
static double least_by_enumeration(const sn_layout_problem *p, const int *label, sn_arena *arena, bool *all) {
    enum { MOST = 400000, DRAWN = 4000 };
    int n = p->table->block->n_groups, *choice = SN_NEW_N(arena, int, n + 1);
    double count = 1, least = INFINITY;
    for (int g = 0; g < n; g++) count *= p->table->strategies[g].n;
    *all = count <= MOST;
    for (int i = 0; i < (*all ? (int)count : DRAWN); i++) {
        for (int g = 0, rest = i; g < n; g++) {
            int strategies = p->table->strategies[g].n;
            choice[g] = *all ? rest % strategies : dice(strategies);
            rest /= strategies;
        }
        least = fmin(least, least_of_choice(p, choice, label));
    }
    return least;
}

static void no_layouts_are_cheaper(void **state) {
    (void)state;
    model m;
    open_model(&m, BATCH, 32);
    sn_cluster cluster;
    assert_true(sn_cluster_preset("dgx-a100", 1, &cluster));
    sn_cost_model costs = {.device = cluster.nodes[0].device, .diags = &m.diags};
    sn_group ranks = sn_cluster_group(&cluster, 0, 2, 1);
    sn_class_table *tables = sn_class_tables(&m.blocks);
    int enumerated = 0;
    for (int k = 0; k < m.blocks.n_classes; k++) {
        const sn_class_table *t = &tables[k];
        sn_layout_problem p = {.table = t, .model = &costs, .ranks = &ranks};
        double *bytes = SN_NEW_N(&m.arena, double, t->n_flows + 1);
        int *choice = SN_NEW_N(&m.arena, int, t->block->n_groups + 1), *label = SN_NEW_N(&m.arena, int, t->n_flows + 1);
        for (int f = 0; f < t->n_flows; f++) bytes[f] = (double)sn_type_bytes(t->flows[f].value->type);
        p.bytes = bytes;
        p.seconds = SN_NEW_N(&m.arena, double *, t->block->n_groups + 1);
        for (int g = 0; g < t->block->n_groups; g++) {
            p.seconds[g] = SN_NEW_N(&m.arena, double, t->strategies[g].n);
            for (int s = 0; s < t->strategies[g].n; s++) p.seconds[g][s] = 1e-6 * (s ? 0.5 + 0.01 * s : 1);
        }
        double seconds;
        assert_true(sn_layout_solve(&p, choice, label, &seconds));
        double best = cost_of_choice(&p, choice, label);
        bool all;
        double least = least_by_enumeration(&p, label, &m.arena, &all);
        assert_true(least >= best * (1 - 1e-6));
        if (all) assert_true(least <= best * (1 + 1e-6));
        enumerated += all;
        // no change of one group's strategy is cheaper
        for (int g = 0; g < t->block->n_groups; g++)
            for (int s = 0, kept = choice[g]; s < t->strategies[g].n; s++, choice[g] = kept) {
                choice[g] = s;
                assert_true(cost_of_choice(&p, choice, label) >= best * (1 - 1e-6));
            }
    }
    assert_true(enumerated > 0);
    close_model(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_and_parameter_is_in_one_block),   cmocka_unit_test(equal_layers_are_one_class),
        cmocka_unit_test(the_hash_knows_shapes_but_not_the_batch),  cmocka_unit_test(costs_scale_as_they_must),
        cmocka_unit_test(a_perceptron_is_cut_in_columns_then_rows), cmocka_unit_test(no_layouts_are_cheaper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
