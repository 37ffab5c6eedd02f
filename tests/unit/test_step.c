// Steps: the closed forms of pipeline schedules against schedules played through, and a transformer's saved activations
// against the formulas of Korthikanti et al. (2023), table 2.
#include "passes/cost/transformer_ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_STAGES = 8, MOST_MICRO = 32 };

// The oracle: 1F1B played through. Stage s runs min(M, stages - s) forwards, then backwards and forwards in turn.
static double play_1f1b(int stages, int micro, const sn_step_stage *stage) {
    static double forward[MOST_STAGES][MOST_MICRO], backward[MOST_STAGES][MOST_MICRO];
    int f[MOST_STAGES] = {0}, b[MOST_STAGES] = {0};
    double now[MOST_STAGES] = {0};
    for (int left = 2 * stages * micro; left > 0;) {
        for (int s = 0; s < stages; s++) {
            int ahead = micro < stages - s ? micro : stages - s;
            bool is_forward = f[s] < micro && f[s] - b[s] < ahead;
            int m = is_forward ? f[s] : b[s];
            if (m == micro) continue;
            bool ready = is_forward ? s == 0 || f[s - 1] > m : f[s] > m && (s == stages - 1 || b[s + 1] > m);
            if (!ready) continue;
            double input = is_forward       ? (s ? forward[s - 1][m] : 0)
                           : s < stages - 1 ? backward[s + 1][m]
                                            : forward[s][m];
            now[s] = fmax(now[s], input) + (is_forward ? stage[s].forward : stage[s].backward);
            if (is_forward)
                forward[s][f[s]++] = now[s];
            else
                backward[s][b[s]++] = now[s];
            left--;
        }
    }
    double end = 0;
    for (int s = 0; s < stages; s++) end = fmax(end, now[s]);
    return end;
}

static void test_1f1b(void **state) {
    (void)state;
    for (int stages = 1; stages <= MOST_STAGES; stages++)
        for (int micro = 1; micro <= MOST_MICRO; micro++) {
            sn_step_stage stage[MOST_STAGES] = {0};
            for (int s = 0; s < stages; s++) stage[s] = (sn_step_stage){.forward = 1.25, .backward = 2.5};
            sn_pipeline_shape pipeline = {.stages = stages, .chunks = 1, .microbatches = micro};
            double played = play_1f1b(stages, micro, stage), said = sn_step_of(&pipeline, stage).seconds;
            assert_true(fabs(played - said) <= 1e-9 * played);
        }
}

// With a slow stage the form is a bound from above: a slow early stage works while its first backward is on the way.
static void test_1f1b_uneven(void **state) {
    (void)state;
    for (int slow = 0; slow < 4; slow++) {
        sn_step_stage stage[4] = {0};
        for (int s = 0; s < 4; s++)
            stage[s] = (sn_step_stage){.forward = s == slow ? 1.5 : 1, .backward = s == slow ? 3 : 2};
        sn_pipeline_shape pipeline = {.stages = 4, .chunks = 1, .microbatches = 16};
        double played = play_1f1b(4, 16, stage), said = sn_step_of(&pipeline, stage).seconds;
        if (said < played * (1 - 1e-9) || said > 1.07 * played) fail_msg("stage %d: %g, played %g", slow, said, played);
    }
}

// Interleaved: the bubble is (stages - 1) / (chunks x micro-batches) of the work (Narayanan et al. 2021, section 2.2).
static void test_interleaved_bubble(void **state) {
    (void)state;
    sn_step_stage stage[4] = {0};
    for (int s = 0; s < 4; s++) stage[s] = (sn_step_stage){.forward = 1, .backward = 2};
    for (int chunks = 1; chunks <= 4; chunks++) {
        sn_pipeline_shape pipeline = {.stages = 4, .chunks = chunks, .microbatches = 8};
        sn_step step = sn_step_of(&pipeline, stage);
        assert_true(fabs(step.bubble / step.compute - 3.0 / (chunks * 8)) < 1e-12);
        assert_true(fabs(step.seconds - step.compute - step.bubble) < 1e-12);
    }
}

static void test_overlap_hides(void **state) {
    (void)state;
    sn_step_stage stage = {.forward = 1, .backward = 2, .reduce = 1.5, .gather = 0.5, .update = 0.25};
    sn_pipeline_shape pipeline = {.stages = 1, .chunks = 1, .microbatches = 4};
    assert_true(sn_step_of(&pipeline, &stage).seconds == 4 * 3 + 1.5 + 0.5 + 0.25);
    pipeline.overlap_reduce = pipeline.overlap_gather = true;
    assert_true(sn_step_of(&pipeline, &stage).seconds == 4 * 3 + 0.25);
    stage.reduce = 2.5; // half a second more than the last backward
    assert_true(sn_step_of(&pipeline, &stage).seconds == 4 * 3 + 0.5 + 0.25);
}

static const sn_transformer gpt = {.layers = 24,
                                   .hidden = 2048,
                                   .ffn = 8192,
                                   .heads = 16,
                                   .kv_heads = 16,
                                   .head = 128,
                                   .vocab = 51200,
                                   .sequence = 1024,
                                   .biased = true,
                                   .causal = true,
                                   .tied = true,
                                   .positions = true,
                                   .dropout = true};

static sn_transformer_block block_of(sn_degrees d) {
    sn_cluster cluster;
    assert_true(sn_cluster_preset("dgx-a100", 2, &cluster));
    sn_cost_model model = {.device = cluster.nodes[0].device};
    sn_runtime runtime = {.dtype = SN_BF16, .master = true, .gradient_bytes = 2, .reduce_bytes = 2};
    sn_transformer_setting s = {.model = &model, .shape = &gpt, .degrees = &d, .runtime = &runtime};
    s.tensor = sn_cluster_group(&cluster, 0, d.tensor, 1);
    s.context = s.expert = s.data = s.replicas = (sn_group){.ranks = 1};
    return sn_transformer_block_of(&s, SN_BLOCK_DENSE);
}

static void expect_saved(sn_degrees d, double per_sbh) {
    double s = (double)gpt.sequence, b = (double)d.micro_batch, h = (double)gpt.hidden;
    double saved = block_of(d).saved;
    if (fabs(saved - s * b * h * per_sbh) > 1e-9 * saved) fail_msg("%g bytes, not %g", saved, s * b * h * per_sbh);
}

static void test_saved_activations(void **state) {
    (void)state;
    double scores = 5.0 * (double)gpt.heads * (double)gpt.sequence / (double)gpt.hidden;
    sn_degrees one = {.tensor = 1,
                      .context = 1,
                      .expert = 1,
                      .data = 1,
                      .pipeline = 1,
                      .chunks = 1,
                      .micro_batch = 4,
                      .microbatches = 1};
    expect_saved(one, 34 + scores);
    for (int64_t t = 2; t <= 8; t *= 2) {
        sn_degrees d = one;
        d.tensor = t;
        double n = (double)t;
        expect_saved(d, 10 + 24 / n + scores / n);
        d.remat = SN_REMAT_SELECTIVE;
        expect_saved(d, 10 + 24 / n);
        d.sequence = true;
        expect_saved(d, 34 / n);
        d.remat = SN_REMAT_NONE;
        expect_saved(d, (34 + scores) / n);
    }
    one.remat = SN_REMAT_FULL;
    expect_saved(one, 2);
}

static void test_parameters(void **state) {
    (void)state;
    sn_degrees one = {.tensor = 1,
                      .context = 1,
                      .expert = 1,
                      .data = 1,
                      .pipeline = 1,
                      .chunks = 1,
                      .micro_batch = 1,
                      .microbatches = 1};
    double h = (double)gpt.hidden;
    assert_true(block_of(one).parameters == 12 * h * h + 13 * h);
}

// Rematerialisation repeats the forward pass; a larger micro-batch takes longer, but less than in proportion.
static void test_block_times(void **state) {
    (void)state;
    sn_degrees d = {.tensor = 1,
                    .context = 1,
                    .expert = 1,
                    .data = 1,
                    .pipeline = 1,
                    .chunks = 1,
                    .micro_batch = 4,
                    .microbatches = 1};
    sn_transformer_block none = block_of(d);
    d.remat = SN_REMAT_FULL;
    sn_transformer_block full = block_of(d);
    assert_true(fabs(full.backward - none.backward - none.forward) < 1e-12);
    assert_true(none.backward > 1.5 * none.forward && none.backward < 2.6 * none.forward);
    d.remat = SN_REMAT_NONE;
    d.micro_batch = 8;
    sn_transformer_block twice = block_of(d);
    assert_true(twice.forward > none.forward && twice.forward < 2.05 * none.forward);
}

static sn_step step_of(int64_t data, int zero, int64_t nodes) {
    sn_cluster cluster;
    assert_true(sn_cluster_preset("dgx-a100", nodes, &cluster));
    sn_cost_model model = {.device = cluster.nodes[0].device};
    sn_runtime runtime = {.dtype = SN_BF16, .master = true, .gradient_bytes = 4, .reduce_bytes = 4};
    sn_degrees d = {.tensor = 1,
                    .context = 1,
                    .expert = 1,
                    .data = data,
                    .pipeline = 1,
                    .zero = zero,
                    .chunks = 1,
                    .micro_batch = 1,
                    .microbatches = 512 / data};
    return sn_transformer_step(&model, &cluster, &gpt, &d, &runtime);
}

static void test_more_devices_and_zero(void **state) {
    (void)state;
    double before = INFINITY;
    for (int64_t data = 8; data <= 128; data *= 2) {
        sn_step step = step_of(data, 0, data / 8);
        assert_true(step.seconds < before);
        before = step.seconds;
    }
    double memory = INFINITY;
    for (int zero = 0; zero <= 3; zero++) {
        sn_step step = step_of(16, zero, 2);
        double now = step.memory.parameters + step.memory.gradients + step.memory.optimizer;
        assert_true(now < memory);
        memory = now;
    }
    double parameters = step_of(16, 0, 2).memory.parameters / 2;
    assert_true(fabs(step_of(16, 1, 2).memory.optimizer - 12 * parameters / 16) < 1);
}

static const sn_degrees alone = {
    .tensor = 1, .context = 1, .expert = 1, .data = 1, .pipeline = 1, .chunks = 1, .micro_batch = 1, .microbatches = 1};

static void stages_of(const sn_transformer *shape, sn_degrees d, double left_behind, sn_step_stage *stages) {
    sn_cluster cluster;
    assert_true(sn_cluster_preset("dgx-a100", 4, &cluster));
    sn_cost_model model = {.device = cluster.nodes[0].device};
    sn_runtime runtime = {.dtype = SN_BF16,
                          .master = true,
                          .gradient_bytes = 4,
                          .reduce_bytes = 4,
                          .workspace = 1,
                          .left_behind = left_behind};
    sn_transformer_stages(&model, &cluster, shape, &d, &runtime, stages);
}

// Attention to an encoder adds 4 h^2 + 6 h to a decoder's block; an encoder's block is one without it.
static void test_encoder(void **state) {
    (void)state;
    sn_transformer both = gpt, decoder = gpt;
    both.encoder_layers = 12;
    both.encoder_sequence = 2 * gpt.sequence;
    sn_step_stage with, without;
    stages_of(&both, alone, 0, &with);
    stages_of(&decoder, alone, 0, &without);
    double h = (double)gpt.hidden, block = 12 * h * h + 13 * h, cross = 4 * h * h + 6 * h;
    double more = 12 * block + 24 * cross + (double)gpt.sequence * h; // and positions of the longer sequence
    assert_true(with.memory.parameters - without.memory.parameters == 2 * more);
    assert_true(with.forward > without.forward && with.memory.activations > 2 * without.memory.activations);
}

static void test_uneven_stages(void **state) {
    (void)state;
    sn_step_stage stages[4];
    sn_degrees d = alone;
    d.pipeline = 4;
    d.first_layers = 3;
    d.last_layers = 5;
    stages_of(&gpt, d, 0, stages);
    double h = (double)gpt.hidden, block = 2 * (12 * h * h + 13 * h);
    assert_true(stages[1].memory.parameters == 8 * block && stages[2].memory.parameters == 8 * block);
    double table = 2 * h * (double)(gpt.vocab + gpt.sequence), head = 2 * (h * (double)gpt.vocab + 2 * h);
    assert_true(stages[0].memory.parameters == 3 * block + table);
    assert_true(stages[3].memory.parameters == 5 * block + head);
}

// Two groups that shard for themselves own twice as much; what a checkpoint left is of what a rank owns.
static void test_shard_groups(void **state) {
    (void)state;
    sn_step_stage one, two, resumed;
    sn_degrees d = alone;
    d.data = 8;
    d.zero = 1;
    stages_of(&gpt, d, 0, &one);
    stages_of(&gpt, d, 8, &resumed);
    d.shard_groups = 2;
    stages_of(&gpt, d, 0, &two);
    assert_true(fabs(two.memory.optimizer - 2 * one.memory.optimizer) < 1);
    assert_true(fabs(resumed.memory.optimizer - one.memory.optimizer * 20 / 12) < 1);
}

// Keeping every second product's result lies between keeping all and nothing, in bytes and in seconds.
static void test_kept_products(void **state) {
    (void)state;
    sn_cluster cluster;
    assert_true(sn_cluster_preset("dgx-a100", 1, &cluster));
    sn_cost_model model = {.device = cluster.nodes[0].device};
    sn_runtime runtime = {.dtype = SN_BF16, .attention = SN_ATTENTION_TUNED, .keeps_products = true};
    sn_degrees d = alone;
    sn_transformer_setting s = {.model = &model, .shape = &gpt, .degrees = &d, .runtime = &runtime};
    s.tensor = s.context = s.expert = s.data = s.replicas = (sn_group){.ranks = 1};
    sn_transformer_block block[SN_REMAT_COUNT];
    for (int remat = 0; remat < SN_REMAT_COUNT; remat++) {
        d.remat = (sn_remat)remat;
        block[remat] = sn_transformer_block_of(&s, SN_BLOCK_DENSE);
    }
    const sn_transformer_block *none = &block[SN_REMAT_NONE], *full = &block[SN_REMAT_FULL],
                               *some = &block[SN_REMAT_SELECTIVE];
    assert_true(full->saved < some->saved && some->saved < none->saved);
    assert_true(none->backward < some->backward && some->backward < full->backward);
    double tokens = (double)gpt.sequence, h = (double)gpt.hidden; // input, half of 3h + h + 4h + h, attention
    assert_true(some->saved == 2 * tokens * (h + 4.5 * h + h));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1f1b),
        cmocka_unit_test(test_1f1b_uneven),
        cmocka_unit_test(test_interleaved_bubble),
        cmocka_unit_test(test_overlap_hides),
        cmocka_unit_test(test_saved_activations),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_block_times),
        cmocka_unit_test(test_more_devices_and_zero),
        cmocka_unit_test(test_encoder),
        cmocka_unit_test(test_uneven_stages),
        cmocka_unit_test(test_shard_groups),
        cmocka_unit_test(test_kept_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
