// The replay that decides between the best candidates of the search.
#include "passes/partition/rescore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const sn_search_request own_devices = {0};

static sn_candidate candidate(int pp, int microbatches, sn_stage_report *stages, double step) {
    return (sn_candidate){.pp = pp,
                          .dp = 1,
                          .chunks = 1,
                          .microbatches = microbatches,
                          .n_stages = pp,
                          .stages = stages,
                          .step = step,
                          .sync = 0.5};
}

static sn_stage_report stage(double forward, double backward) {
    return (sn_stage_report){.forward = forward, .backward_input = backward};
}

// Even stages: (M + p - 1) (f + b), and what follows the pipeline.
static void even_stages_take_their_closed_form(void **state) {
    (void)state;
    sn_stage_report stages[] = {stage(1, 2), stage(1, 2)};
    sn_search_result result = {.feasible = true, .best = candidate(2, 4, stages, 15.5)};
    sn_search_rescore(&own_devices, 2, &result);
    assert_float_equal(result.best.replayed, 15.5, 1e-9);
}

// The closed form takes the runner-up for slower than it is.
static void a_faster_runner_up_becomes_the_best(void **state) {
    (void)state;
    sn_stage_report one[] = {stage(1, 2), stage(1, 2)}, other[] = {stage(1, 1), stage(1, 1)};
    sn_candidate runners[] = {candidate(2, 4, one, 15.5), candidate(2, 4, other, 99)};
    sn_search_result result = {
        .feasible = true, .best = candidate(2, 4, one, 15.5), .runners = runners, .n_runners = 2};
    sn_search_rescore(&own_devices, 2, &result);
    assert_ptr_equal(result.best.stages, other);
    assert_float_equal(result.best.replayed, 10.5, 1e-9);
    assert_ptr_equal(runners[1].stages, one);
}

// Candidates that were only estimated have no stages to replay.
static void estimates_stay_where_they_are(void **state) {
    (void)state;
    sn_stage_report stages[] = {stage(1, 2)};
    sn_candidate runner = candidate(2, 4, NULL, 1);
    sn_search_result result = {
        .feasible = true, .best = candidate(1, 4, stages, 12.5), .runners = &runner, .n_runners = 1};
    sn_search_rescore(&own_devices, 2, &result);
    assert_ptr_equal(result.best.stages, stages);
    assert_float_equal(result.best.replayed, 12.5, 1e-9);
}

// Two ranks on one core: all of their work one after the other, and what follows the pipeline twice as long.
static void ranks_that_share_cores_take_turns(void **state) {
    (void)state;
    sn_stage_report stages[] = {stage(1, 2), stage(1, 2)};
    sn_search_request shared = {.cores = 1, .sharing = 1};
    sn_search_result result = {.feasible = true, .best = candidate(2, 4, stages, 25)};
    sn_search_rescore(&shared, 2, &result);
    assert_float_equal(result.best.replayed, 25, 1e-9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_stages_take_their_closed_form),
        cmocka_unit_test(a_faster_runner_up_becomes_the_best),
        cmocka_unit_test(estimates_stay_where_they_are),
        cmocka_unit_test(ranks_that_share_cores_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
