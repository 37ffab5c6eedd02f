// Runs a function compiled and interpreted and compares all results and globals.
#pragma once
#include "base/philox.h"
#include "ir/build.h"
#include "ir/interp.h"
#include "ir/verify.h"
#include "tests/support/host.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_ARGS = 512, MOST_RESULTS = 64, MOST_PARAMETERS = 4096 / 8 /* of a CUDA kernel */ };

// Values in [low, high): a grid in random order, so that neighbours differ.
static inline sn_tensor random_tensor(sn_type type, double low, double high, uint64_t seed) {
    sn_tensor tensor = sn_tensor_new(type);
    for (int64_t i = 0; i < sn_type_count(type); i++) {
        double value = low + (high - low) * (double)sn_random_uniform(seed, 1, 0, (uint64_t)i);
        if (sn_dtype_is_float(type.dtype))
            sn_store_f64(type.dtype, tensor.data, i, value);
        else
            sn_store_i64(type.dtype, tensor.data, i, (int64_t)floor(value));
    }
    return tensor;
}

// How far a compiled result may be from the interpreter's, which computes in f64 and rounds each operator once.
static inline double tolerance_of(sn_dtype dtype) {
    return dtype == SN_F64 ? 1e-12 : dtype == SN_F32 ? 2e-6 : dtype == SN_F16 ? 2e-3 : dtype == SN_BF16 ? 1.6e-2 : 0;
}

static inline bool near(sn_dtype dtype, double a, double b, double scale) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return fabs(a - b) <= tolerance_of(dtype) * scale * fmax(1, fmax(fabs(a), fabs(b)));
}

static inline void compare_tensors(const char *what, const sn_tensor *wanted, const void *found, double scale) {
    sn_dtype dtype = wanted->type.dtype;
    int64_t wrong = 0;
    for (int64_t i = 0; i < sn_type_count(wanted->type); i++) {
        bool same;
        if (sn_dtype_is_float(dtype)) {
            same = near(dtype, sn_load_f64(dtype, wanted->data, i), sn_load_f64(dtype, found, i), scale);
        } else {
            same = sn_load_i64(dtype, wanted->data, i) == sn_load_i64(dtype, found, i);
        }
        if (!same && wrong++ < 3)
            print_error("%s: element %lld is %.9g, not %.9g\n", what, (long long)i, sn_load_f64(dtype, found, i),
                        sn_load_f64(dtype, wanted->data, i));
    }
    if (wrong)
        fail_msg("%s: %lld of %lld elements differ", what, (long long)wrong, (long long)sn_type_count(wanted->type));
}

static inline void dump(const sn_jit *jit) {
    const sn_kernels *kernels = sn_jit_kernels(jit);
    sn_str text = {0};
    for (size_t i = 0; i < kernels->n; i++) sn_kir_print(kernels->kirs[i], &text);
    fputs(sn_str_text(&text), stderr);
    sn_str_free(&text);
}

// Runs a function of the module `runs` times on args, first interpreted, then compiled. `scale` widens the tolerance
// for sums. The module is changed.
static inline sn_jit *compare_function(const char *name, sn_module *module, const char *function, const sn_tensor *args,
                                       int runs, double scale, sn_device **device) {
    const sn_func *func = sn_module_func(module, function);
    sn_str problems = {0};
    if (!sn_verify(module, &problems)) fail_msg("%s: %s", name, sn_str_text(&problems));
    sn_str_free(&problems);
    sn_interp *interp = sn_interp_new(module);
    sn_tensor wanted[MOST_RESULTS], found[MOST_RESULTS];
    size_t n = func->results.count;
    for (int run = 0; run < runs; run++) {
        const char *problem = sn_interp_run(interp, func, args, wanted);
        if (problem) fail_msg("%s: %s", name, problem);
        for (size_t i = 0; run + 1 < runs && i < n; i++) sn_tensor_free(&wanted[i]);
    }
    sn_diags diags = {0};
    sn_jit *jit = sn_jit_compile(module, &diags);
    if (!jit) {
        sn_diags_print(&diags, 0, false, stderr);
        fail_msg("%s does not compile", name);
    }
    if (getenv("SENNIT_DUMP")) dump(jit);
    for (size_t i = 0; i < sn_jit_kernels(jit)->n; i++)
        assert_in_range(sn_jit_kernels(jit)->kirs[i]->n_params, 1, MOST_PARAMETERS - 1);
    sn_jit_host host = host_of(device);
    sn_status status = sn_jit_start(jit, &host);
    for (int run = 0; run < runs && !status; run++) {
        status = sn_jit_run(jit, function, args, found);
        for (size_t i = 0; !status && run + 1 < runs && i < n; i++) sn_tensor_free(&found[i]);
    }
    if (status) fail_msg("%s: %s", name, sn_status_message(status));
    for (size_t i = 0; i < n; i++) {
        char what[160];
        snprintf(what, sizeof what, "%s, result %zu", name, i);
        compare_tensors(what, &wanted[i], found[i].data, scale);
        sn_tensor_free(&wanted[i]);
        sn_tensor_free(&found[i]);
    }
    for (size_t i = 0; i < module->globals.count; i++) {
        const char *problem;
        const sn_tensor *now = sn_interp_global(interp, module->globals.data[i], &problem);
        assert_non_null(now);
        compare_tensors(module->globals.data[i]->name, now, sn_jit_global(jit, module->globals.data[i]->name), scale);
    }
    sn_interp_free(interp);
    sn_diags_free(&diags);
    return jit;
}

// The same for a module that is freed, with random arguments in [low, high).
static inline size_t check_module(const char *name, sn_module *module, double low, double high, double scale) {
    const sn_func *func = sn_module_func(module, "main");
    sn_tensor args[MOST_ARGS];
    size_t n = func->args.count;
    for (size_t i = 0; i < n; i++) args[i] = random_tensor(func->args.data[i]->type, low, high, i + 17);
    sn_device *device = NULL;
    sn_jit *jit = compare_function(name, module, "main", args, 1, scale, &device);
    size_t kernels = sn_jit_kernels(jit)->n;
    sn_jit_free(jit);
    sn_device_destroy(device);
    for (size_t i = 0; i < n; i++) sn_tensor_free(&args[i]);
    sn_module_free(module);
    return kernels;
}
