// The CUDA C of every kernel of the zoo compiles for sm_90; what does not compile is reported. Needs NVRTC, no GPU.
#include "backend/cuda/cuda.h"
#include "tests/kernels/zoo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void zoo_compiles(void **state) {
    (void)state;
    sn_kir *kernels[64];
    for (size_t z = 0; z < zoo_count; z++) {
        kernels[z] = zoo[z].make(1031);
        assert_null(sn_kir_verify(kernels[z]));
    }
    sn_str source = {0}, again = {0}, log = {0}, cubin = {0};
    sn_cuda_print(kernels, zoo_count, &source);
    sn_status status = sn_nvrtc_compile(sn_str_text(&source), "sm_90", &log, &cubin);
    if (status) fail_msg("%s\n%s", sn_status_message(status), sn_str_text(&log));
    assert_true(cubin.length > 4 && !memcmp(cubin.data,
                                            "\x7f"
                                            "ELF",
                                            4));
    for (size_t z = 0; z < zoo_count; z++)
        assert_non_null(memmem(cubin.data, cubin.length, kernels[z]->name, strlen(kernels[z]->name)));
    sn_cuda_print(kernels, zoo_count, &again);
    assert_string_equal(sn_str_text(&source), sn_str_text(&again));
    for (size_t z = 0; z < zoo_count; z++) sn_kir_free(kernels[z]);
    sn_str_free(&source), sn_str_free(&again), sn_str_free(&log), sn_str_free(&cubin);
}

static void errors_are_reported(void **state) {
    (void)state;
    sn_str log = {0};
    sn_status status = sn_nvrtc_compile("__global__ void f() { undeclared = 1; }", "sm_90", &log, NULL);
    assert_non_null(status);
    assert_non_null(strstr(sn_str_text(&log), "undeclared"));
    sn_status_free(status);
    sn_str_free(&log);
}

static void large_scratch_is_in_a_workspace(void **state) {
    (void)state;
    sn_kir *small = zoo[1].make(1000), *large = zoo[1].make(20000); // softmax
    assert_int_equal(sn_cuda_workspace(small), 0);
    assert_int_equal(sn_cuda_workspace(large), 80000);
    sn_str source = {0}, log = {0};
    sn_cuda_print(&large, 1, &source);
    assert_non_null(strstr(sn_str_text(&source), "workspace + (i64)block * 80000"));
    assert_null(sn_nvrtc_compile(sn_str_text(&source), "sm_90", &log, NULL));
    sn_str_free(&source), sn_str_free(&log);
    sn_kir_free(small), sn_kir_free(large);
}

int main(void) {
    if (!sn_nvrtc_available()) {
        printf("skipped: libnvrtc.so.13 is not here\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zoo_compiles),
        cmocka_unit_test(errors_are_reported),
        cmocka_unit_test(large_scratch_is_in_a_workspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
