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
    return (sn_stage_report){.forward = forward, .backward_input = backward, .once = 0.5};
}

// Even stages: (M + p - 1) (f + b), and what follows the pipeline.
static void even_stages_take_their_closed_form(void **state) {
    (void)state;
    sn_stage_report stages[] = {stage(1, 2), stage(1, 2)};
    sn_candidate list[] = {candidate(2, 4, stages, 15.5)};
    assert_int_equal(sn_search_rescore(&own_devices, 2, list, 1), 0);
    assert_float_equal(list[0].replayed, 15.5, 1e-9);
}

// The closed form takes the runner-up for slower than it is.
static void a_faster_runner_up_becomes_the_best(void **state) {
    (void)state;
    sn_stage_report one[] = {stage(1, 2), stage(1, 2)}, other[] = {stage(1, 1), stage(1, 1)};
    sn_candidate list[] = {candidate(2, 4, one, 15.5), candidate(2, 4, one, 15.5), candidate(2, 4, other, 99)};
    assert_int_equal(sn_search_rescore(&own_devices, 2, list, 3), 2);
    assert_float_equal(list[2].replayed, 10.5, 1e-9);
}

// Candidates that were only estimated have no stages to replay, and those that do not fit are none.
static void estimates_stay_where_they_are(void **state) {
    (void)state;
    sn_stage_report stages[] = {stage(1, 2)};
    sn_candidate list[] = {candidate(2, 4, NULL, 1), candidate(1, 4, stages, 12.5), candidate(1, 2, stages, 6.5)};
    list[2].excess = 1;
    assert_int_equal(sn_search_rescore(&own_devices, 2, list, 3), 1);
    assert_float_equal(list[0].replayed, 0, 0);
    assert_float_equal(list[1].replayed, 12.5, 1e-9);
    assert_float_equal(list[2].replayed, 0, 0);
    assert_int_equal(sn_search_rescore(&own_devices, 2, list, 1), 1);
}

// Behind any number of one schedule the best of another is replayed if it is close, and so is all that its closed form
// hides behind.
static void each_schedule_is_replayed(void **state) {
    (void)state;
    enum { SAME = 6, N = SAME + 3 };
    sn_stage_report slow[] = {stage(2, 2), stage(2, 2)}, fast[] = {stage(1, 1), stage(1, 1)};
    sn_candidate list[N];
    for (int i = 0; i < SAME; i++) list[i] = candidate(2, 4, slow, 15 + 0.1 * i);
    for (int i = SAME; i < N; i++) {
        list[i] = candidate(2, 4, fast, i == N - 1 ? 20 : 15.7);
        list[i].schedule = SN_PIPELINE_GPIPE;
    }
    list[SAME - 1].stages = fast; // the sixth: replayed because the winner's closed form is greater
    list[N - 1].schedule = SN_PIPELINE_INTERLEAVED;
    assert_int_equal(sn_search_rescore(&own_devices, 2, list, N), SAME);
    for (int i = 0; i < N; i++) assert_true((list[i].replayed > 0) == (i <= SAME));
    assert_float_equal(list[SAME - 1].replayed, 10.5, 1e-9);
}

// Two ranks on one core: all of their work one after the other, and what follows the pipeline twice as long.
static void ranks_that_share_cores_take_turns(void **state) {
    (void)state;
    sn_stage_report stages[] = {stage(1, 2), stage(1, 2)};
    sn_search_request shared = {.cores = 1, .sharing = 1};
    sn_candidate list[] = {candidate(2, 4, stages, 25)};
    assert_int_equal(sn_search_rescore(&shared, 2, list, 1), 0);
    assert_float_equal(list[0].replayed, 25, 1e-9);
}

// Messages go beside the passes: two stages, two micro-batches, and a message of 10 each way between them. The second
// one waits for the first, then both ranks have ended but for what follows.
static void messages_go_beside_the_passes(void **state) {
    (void)state;
    sn_stage_report stages[] = {stage(1, 2), stage(1, 2)};
    stages[1].message = 10;
    sn_candidate list[] = {candidate(2, 2, stages, 99)};
    (void)sn_search_rescore(&own_devices, 2, list, 1);
    // forward 1, sent by 11 and by 21, forward and backward of the second by 24, back by 34, backward by 36
    assert_float_equal(list[0].replayed, 36.5, 1e-9);
}

// What a rank does once a step begins when its own passes have ended.
static void ranks_finish_on_their_own(void **state) {
    (void)state;
    sn_stage_report stages[] = {stage(1, 2), stage(1, 2)};
    stages[0].once = 0.5, stages[1].once = 2;
    sn_candidate list[] = {candidate(2, 4, stages, 99)};
    (void)sn_search_rescore(&own_devices, 2, list, 1);
    assert_float_equal(list[0].replayed, 15.5, 1e-9); // the second rank ends at 13 and is done at 15
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_stages_take_their_closed_form), cmocka_unit_test(a_faster_runner_up_becomes_the_best),
        cmocka_unit_test(estimates_stay_where_they_are),      cmocka_unit_test(each_schedule_is_replayed),
        cmocka_unit_test(ranks_that_share_cores_take_turns),  cmocka_unit_test(messages_go_beside_the_passes),
        cmocka_unit_test(ranks_finish_on_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
