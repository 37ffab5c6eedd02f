// The compiled path of ONNX's backend tests: the passes, kernels through LLVM, and the runtime's library calls, in
// process.
#include "tests/onnx/case.h"
#include "tests/support/host.h"

static verdict refused(const sn_diags *diags, sn_str *reason) {
    for (size_t i = 0; i < diags->count; i++) {
        const sn_diag *d = &diags->items[i];
        if (d->severity != SN_ERROR) continue;
        sn_str_printf(reason, "%s %s", d->code, d->message);
        return UNSUPPORTED;
    }
    sn_str_puts(reason, "refused without a diagnostic");
    return WRONG;
}

verdict run_compiled(sn_module *module, const sn_func *func, const sn_tensor *args, sn_tensor *results,
                     sn_str *reason) {
    const char *name = func->name;
    sn_diags diags = {0};
    sn_jit *jit = sn_jit_compile(module, &diags);
    verdict found = jit ? PASS : refused(&diags, reason);
    sn_diags_free(&diags);
    if (!jit) return found;
    sn_device *device = NULL;
    sn_jit_host host = host_of(&device);
    sn_status status = sn_jit_start(jit, &host);
    if (!status) status = sn_jit_run(jit, name, args, results);
    if (status) {
        sn_str_puts(reason, sn_status_message(status));
        sn_status_free(status);
        found = WRONG;
    }
    sn_jit_free(jit);
    sn_device_destroy(device);
    return found;
}
