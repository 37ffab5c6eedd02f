// The CUDA C of the zoo run on the CPU (emulate.h), in three orders of threads, against the evaluator.
#include "backend/cuda/cuda.h"
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

static const int64_t sizes[] = {1, 37, 150};
#define N_SIZES (sizeof sizes / sizeof *sizes)

typedef int (*launch)(void **arguments, int grid, int threads, int order);

// NAME_launch(arguments, grid, threads, order) for each kernel.
static void print_launchers(sn_kir *const *kernels, size_t n, sn_str *out) {
    for (size_t i = 0; i < n; i++) {
        int parameters = kernels[i]->n_params + (sn_cuda_workspace(kernels[i]) > 0);
        sn_str_printf(out, "\nstatic void %s_call(void **arguments) {\n    %s(", kernels[i]->name, kernels[i]->name);
        for (int p = 0; p < parameters; p++) sn_str_printf(out, "%sarguments[%d]", p ? ", " : "", p);
        sn_str_printf(out,
                      ");\n}\nint %s_launch(void **arguments, int grid, int threads, int order);\n"
                      "int %s_launch(void **arguments, int grid, int threads, int order) {\n"
                      "    return emulated_launch(%s_call, arguments, grid, threads, order);\n}\n",
                      kernels[i]->name, kernels[i]->name, kernels[i]->name);
    }
}

static void *build(const char *source) {
    char folder[] = "/tmp/sennit-emulate-XXXXXX";
    assert_non_null(mkdtemp(folder));
    sn_str path = {0}, library = {0}, command = {0};
    sn_str_printf(&path, "%s/kernels.cu", folder);
    sn_str_printf(&library, "%s/kernels.so", folder);
    assert_null(sn_file_write(sn_str_text(&path), source, strlen(source)));
    sn_str_printf(&command,
                  "cc -std=gnu17 -O1 -w -fwrapv -ffp-contract=off -mfma -mf16c -shared -fPIC -include "
                  "%s/tests/cuda/emulate.h -x c %s -o %s -lm",
                  SENNIT_SOURCE_DIR, sn_str_text(&path), sn_str_text(&library));
    assert_int_equal(system(sn_str_text(&command)), 0);
    void *handle = dlopen(sn_str_text(&library), RTLD_NOW);
    assert_non_null(handle);
    sn_str_clear(&command);
    sn_str_printf(&command, "rm -r %s", folder);
    assert_int_equal(system(sn_str_text(&command)), 0);
    sn_str_free(&path), sn_str_free(&library), sn_str_free(&command);
    return handle;
}

static launch find(void *library, const char *kernel) {
    char name[96];
    snprintf(name, sizeof name, "%s_launch", kernel);
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    launch function;
    memcpy(&function, &symbol, sizeof function);
    return function;
}

static void compare(const sn_kir *k, launch run, int64_t size, bool exact) {
    void **want = zoo_buffers(k, size, 11);
    sn_kir_evaluate(k, want, 0, k->grid);
    for (int order = 0; order < 3; order++) {
        void **got = zoo_buffers(k, size, 11), **arguments = sn_alloc(sizeof *arguments * (size_t)(k->n_params + 1));
        if (k->n_params) memcpy(arguments, got, sizeof *arguments * (size_t)k->n_params);
        void *workspace = sn_alloc((size_t)(sn_cuda_workspace(k) * k->grid) + 1);
        arguments[k->n_params] = workspace;
        int missed = run(arguments, (int)k->grid, k->threads, order);
        if (missed) fail_msg("%s: thread %d missed a barrier", k->name, missed);
        zoo_compare(k, got, want, exact);
        zoo_free(k, got);
        sn_free(arguments);
        sn_free(workspace);
    }
    zoo_free(k, want);
}

static void zoo_runs(void **state) {
    (void)state;
    sn_kir *kernels[64 * N_SIZES] = {0};
    size_t n = 0;
    for (size_t z = 0; z < zoo_count; z++)
        for (size_t s = 0; s < N_SIZES; s++) kernels[n++] = zoo[z].make(sizes[s]);
    sn_str source = {0};
    sn_cuda_print(kernels, n, &source);
    print_launchers(kernels, n, &source);
    void *library = build(sn_str_text(&source));
    for (size_t i = 0; i < n; i++) {
        compare(kernels[i], find(library, kernels[i]->name), sizes[i % N_SIZES], zoo[i / N_SIZES].exact);
        sn_kir_free(kernels[i]);
    }
    dlclose(library);
    sn_str_free(&source);
}

static void workspace_runs(void **state) {
    (void)state;
    sn_kir *k = zoo[1].make(13000); // a row of softmax beyond shared memory
    assert_true(sn_cuda_workspace(k) > 0);
    sn_str source = {0};
    sn_cuda_print(&k, 1, &source);
    print_launchers(&k, 1, &source);
    void *library = build(sn_str_text(&source));
    compare(k, find(library, k->name), 13000, false);
    dlclose(library);
    sn_kir_free(k);
    sn_str_free(&source);
}

// What the emulation is for: without its barriers the text gives other results in some order.
static void missing_barriers_show(void **state) {
    (void)state;
    sn_kir *k = zoo[9].make(150); // phases
    sn_str source = {0};
    sn_cuda_print(&k, 1, &source);
    print_launchers(&k, 1, &source);
    int removed = 0;
    for (char *at = source.data; (at = strstr(at, "__syncthreads();")); removed++) memset(at, ' ', 16);
    assert_int_equal(removed, 2);
    void *library = build(sn_str_text(&source));
    void **want = zoo_buffers(k, 150, 11);
    sn_kir_evaluate(k, want, 0, k->grid);
    int different = 0;
    for (int order = 0; order < 3; order++) {
        void **got = zoo_buffers(k, 150, 11);
        find(library, k->name)(got, (int)k->grid, k->threads, order);
        different += memcmp(got[1], want[1], 300 * 4) != 0;
        zoo_free(k, got);
    }
    assert_true(different > 0);
    zoo_free(k, want);
    dlclose(library);
    sn_kir_free(k);
    sn_str_free(&source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zoo_runs),
        cmocka_unit_test(workspace_runs),
        cmocka_unit_test(missing_barriers_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
