// Native code against the evaluator, at sizes around the vector width, with vectors of 16 and of 8 lanes, as objects
// and in blocks.
#include "backend/llvm/llvm.h"
#include "base/alloc.h"
#include "base/file.h"
#include "tests/kernels/zoo.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const int64_t sizes[] = {1, 13, 16, 37, 257, 1031};
#define N_SIZES   (sizeof sizes / sizeof *sizes)
#define MAX_KINDS 64

static sn_kir *kernels[MAX_KINDS * N_SIZES];

static size_t make_all(void) {
    size_t n = 0;
    for (size_t z = 0; z < zoo_count; z++)
        for (size_t s = 0; s < N_SIZES; s++) {
            sn_kir *k = zoo[z].make(sizes[s]);
            const char *problem = sn_kir_verify(k);
            if (problem) fail_msg("%s", problem);
            kernels[n++] = k;
        }
    return n;
}

static void run_blocks(const sn_kir *k, sn_llvm_kernel function, void **buffers) {
    int64_t middle = k->one_thread ? 0 : k->grid / 2; // as two threads would
    function(buffers, 0, middle);
    function(buffers, middle, k->grid);
}

static void compare_all(size_t n, const sn_llvm_options *options) {
    sn_llvm_jit *jit;
    sn_status status = sn_llvm_jit_open(kernels, n, options, &jit);
    if (status) fail_msg("%s", sn_status_message(status));
    for (size_t i = 0; i < n; i++) {
        sn_llvm_kernel function = sn_llvm_jit_find(jit, kernels[i]->name);
        assert_non_null(function);
        int64_t size = sizes[i % N_SIZES];
        void **got = zoo_buffers(kernels[i], size, (unsigned)i), **want = zoo_buffers(kernels[i], size, (unsigned)i);
        run_blocks(kernels[i], function, got);
        sn_kir_evaluate(kernels[i], want, 0, kernels[i]->grid);
        zoo_compare(kernels[i], got, want, zoo[i / N_SIZES].exact);
        zoo_free(kernels[i], got);
        zoo_free(kernels[i], want);
    }
    sn_llvm_jit_close(jit);
}

static void host_agrees_with_evaluator(void **state) {
    (void)state;
    size_t n = make_all();
    compare_all(n, NULL);
    for (size_t i = 0; i < n; i++) sn_kir_free(kernels[i]);
}

static void narrow_vectors_agree_with_evaluator(void **state) {
    (void)state;
    size_t n = make_all();
    compare_all(n, &(sn_llvm_options){.cpu = "haswell"});
    for (size_t i = 0; i < n; i++) sn_kir_free(kernels[i]);
}

static void objects_link_and_run(void **state) {
    (void)state;
    sn_kir *two[] = {zoo[0].make(100), zoo[1].make(50), zoo[4].make(20)};
    char folder[] = "/tmp/sennit-objects-XXXXXX";
    assert_non_null(mkdtemp(folder));
    sn_str path = {0}, paths = {0}, command = {0};
    sn_str_printf(&path, "%s/kernels.o", folder);
    assert_null(sn_llvm_emit_objects(two, 3, NULL, sn_str_text(&path), &paths));
    sn_str_printf(&command, "cc -shared -o %s/kernels.so %s/kernels.o %s/kernels.1.o -lm", folder, folder, folder);
    assert_int_equal(system(sn_str_text(&command)), 0);
    sn_str_clear(&path);
    sn_str_printf(&path, "%s/kernels.so", folder);
    void *library = dlopen(sn_str_text(&path), RTLD_NOW);
    assert_non_null(library);
    for (int i = 0; i < 3; i++) {
        sn_llvm_kernel function;
        void *symbol = dlsym(library, two[i]->name);
        assert_non_null(symbol);
        memcpy(&function, &symbol, sizeof function);
        void **got = zoo_buffers(two[i], 20, 3), **want = zoo_buffers(two[i], 20, 3);
        function(got, 0, two[i]->grid);
        sn_kir_evaluate(two[i], want, 0, two[i]->grid);
        zoo_compare(two[i], got, want, i != 1);
        zoo_free(two[i], got);
        zoo_free(two[i], want);
        sn_kir_free(two[i]);
    }
    dlclose(library);
    sn_str_clear(&command);
    sn_str_printf(&command, "rm -r %s", folder);
    assert_int_equal(system(sn_str_text(&command)), 0);
    sn_str_free(&path), sn_str_free(&paths), sn_str_free(&command);
}

static void unwritable_path_is_a_status(void **state) {
    (void)state;
    sn_kir *k = zoo[0].make(10);
    sn_str paths = {0};
    sn_status status = sn_llvm_emit_objects(&k, 1, NULL, "/nonexistent/kernels.o", &paths);
    assert_non_null(status);
    assert_non_null(strstr(sn_status_message(status), "/nonexistent/kernels.o"));
    sn_status_free(status);
    sn_str_free(&paths);
    sn_kir_free(k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_agrees_with_evaluator),
        cmocka_unit_test(narrow_vectors_agree_with_evaluator),
        cmocka_unit_test(objects_link_and_run),
        cmocka_unit_test(unwritable_path_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
