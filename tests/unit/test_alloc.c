// When memory runs out, wherever that is, the program ends with status 1 and says so; it does not go on with a null
// pointer. Each allocation of reading and printing a module is made to fail once, in a process of its own.
#include "base/alloc.h"
#include "ir/parse.h"
#include "ir/print.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char module_text[] = "sennit 1 graph\n\n"
                                  "func @main(%x: f32[4,8], %w: f32[8,8]) {\n"
                                  "  %y = matmul(%x, %w) : f32[4,8]\n"
                                  "  %z = tanh(%y)       : f32[4,8]\n"
                                  "  return %z\n"
                                  "}\n";

static bool work(void) {
    sn_diags diags = {0};
    sn_str text = {0};
    sn_module *module = sn_parse(module_text, strlen(module_text), "module.sir", &diags);
    if (!module) sn_diags_print(&diags, 0, true, stderr);
    if (module) sn_print(&text, module, NULL);
    bool good = module && strcmp(sn_str_text(&text), module_text) == 0;
    if (module && !good) fputs(sn_str_text(&text), stderr);
    if (module) sn_module_free(module);
    sn_str_free(&text);
    sn_diags_free(&diags);
    return good;
}

// The exit status of a process whose n-th allocation fails (0: none does), -1 when it died otherwise. What it says on
// the error stream goes to `said`.
static int status_with(long n, char *said, size_t size) {
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        sn_alloc_fail_at(n);
        _Exit(work() ? 0 : 2);
    }
    close(ends[1]);
    ssize_t length = read(ends[0], said, size - 1);
    said[length > 0 ? length : 0] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_every_allocation(void **state) {
    (void)state;
    char said[512];
    if (status_with(0, said, sizeof said) != 0) fail_msg("without a failure: %s", said);
    long n = 1;
    for (int status; (status = status_with(n, said, sizeof said)) != 0; n++) {
        if (status != 1 || !strstr(said, "out of memory"))
            fail_msg("allocation %ld: status %d, \"%s\"", n, status, said);
        assert_true(n < 1000);
    }
    assert_true(n > 10);
}

static jmp_buf hungry;
static size_t asked;

static void leave(size_t bytes) {
    asked = bytes;
    longjmp(hungry, 1);
}

static void test_handler(void **state) {
    (void)state;
    sn_oom_handler former = sn_alloc_on_failure(leave);
    sn_alloc_fail_at(2);
    void *volatile first = sn_alloc(16);
    if (setjmp(hungry) == 0) {
        sn_alloc(48);
        fail_msg("the second allocation did not fail");
    }
    assert_int_equal(asked, 48);
    void *second = sn_alloc(8); // only the n-th fails
    sn_free(second);
    sn_free(first);
    assert_ptr_equal(sn_alloc_on_failure(former), leave);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation), cmocka_unit_test(test_handler)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
