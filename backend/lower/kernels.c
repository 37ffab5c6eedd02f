#include "backend/lower/kernels.h"

static bool is_lowered(const sn_kernels *kernels, const sn_func *body) {
    for (size_t i = kernels->n; i-- > 0;)
        if (kernels->entries[i].body == body) return true;
    return false;
}

static size_t count_kernels(const sn_module *module) {
    size_t n = 0;
    for (size_t f = 0; f < module->funcs.count; f++) n += module->funcs.data[f]->is_body;
    return n;
}

bool sn_kernels_lower(const sn_module *module, sn_diags *diags, sn_kernels *out) {
    size_t n = count_kernels(module);
    *out = (sn_kernels){sn_alloc((n + 1) * sizeof(sn_kir *)), sn_alloc((n + 1) * sizeof(sn_kernel_entry)), 0};
    bool fine = true;
    for (size_t f = 0; f < module->funcs.count; f++) {
        if (module->funcs.data[f]->is_body) continue;
        SN_FOR_OPS(op, module->funcs.data[f]) {
            const sn_func *body = op->kind == SN_OP_KERNEL ? sn_op_func(op, "body") : NULL;
            if (!body || is_lowered(out, body)) continue;
            sn_kir *k = sn_lower_kernel(op, body->name, diags);
            if (!k) {
                fine = false;
                continue;
            }
            SN_CHECK(out->n < n);
            out->kirs[out->n] = k;
            out->entries[out->n++] = (sn_kernel_entry){body, body->name, k->grid, k->one_thread};
        }
    }
    return fine;
}

void sn_kernels_free(sn_kernels *kernels) {
    for (size_t i = 0; i < kernels->n; i++) sn_kir_free(kernels->kirs[i]);
    sn_free(kernels->kirs);
    sn_free(kernels->entries);
    *kernels = (sn_kernels){0};
}
