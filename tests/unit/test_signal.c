// runtime/comm/signal.h between two threads: nobody sleeps through a raise, and patience ends.
#include "base/clock.h"
#include "runtime/comm/signal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>

#include <cmocka.h>

enum { TURNS = 20000 };

typedef struct court {
    sn_signal ping, pong;
    double spin;
    bool lost;
} court;

static void *answer(void *user) {
    court *c = user;
    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        c->lost |= !sn_signal_await_for(&c->ping, turn, c->spin, 10);
        sn_signal_raise(&c->pong);
    }
    return NULL;
}

static void play(double spin) {
    court c = {.spin = spin};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, answer, &c), 0);
    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        sn_signal_raise(&c.ping);
        assert_true(sn_signal_await_for(&c.pong, turn, spin, 10));
    }
    pthread_join(thread, NULL);
    assert_false(c.lost);
}

static void sleepers_are_woken(void **state) {
    (void)state;
    play(0);
}

static void spinners_see_it(void **state) {
    (void)state;
    play(20e-6);
}

static void patience_ends(void **state) {
    (void)state;
    sn_signal signal = {0};
    double begun = sn_seconds();
    assert_false(sn_signal_await_for(&signal, 1, 0, 0.02));
    assert_true(sn_seconds() - begun >= 0.02);
    sn_signal_raise(&signal);
    assert_true(sn_signal_await_for(&signal, 1, 0, 0));
}

// A counter that is about to wrap around is not beyond its target.
static void counters_wrap_around(void **state) {
    (void)state;
    sn_signal signal = {.value = UINT32_MAX};
    assert_false(sn_signal_await_for(&signal, 0, 0, 0.001));
    sn_signal_raise(&signal);
    assert_true(sn_signal_await_for(&signal, 0, 0, 0));
    assert_false(sn_signal_await_for(&signal, 1, 0, 0.001));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sleepers_are_woken),
        cmocka_unit_test(spinners_see_it),
        cmocka_unit_test(patience_ends),
        cmocka_unit_test(counters_wrap_around),
    };
    return cmocka_run_group_tests_name("signal", tests, NULL, NULL);
}
