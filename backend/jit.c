#include "backend/jit.h"

#include "backend/llvm/llvm.h"
#include "passes/memory/share.h"

#include <string.h>

struct sn_jit {
    sn_module *module;
    sn_kernels kernels;
    sn_llvm_jit *code;
    sn_llvm_kernel *entries; // parallel to kernels
    sn_arena arena;
    sn_str constants;
    sn_schedule schedule;
    sn_jit_host host;
    uint8_t *memory;
};

static bool run_passes(sn_module *module, sn_diags *diags) {
    sn_pass_context context = {.diags = diags};
    sn_pipeline_options options = {.pass_limit = -1};
    if (module->form == SN_FORM_GRAPH) {
        options.pipeline = "decompose,canonicalize,cse,dce";
        if (!sn_passes_run(module, &context, &options)) return false;
        module->form = SN_FORM_SCHED; // one rank: local types are the global ones
        options.pipeline = "fuse,fuse-products,plan-memory";
    } else {
        options.pipeline = module->form == SN_FORM_DIST
                               ? "localize,decompose,canonicalize,cse,dce,fuse,fuse-products,plan-memory"
                               : "decompose,canonicalize,cse,dce,fuse,fuse-products,plan-memory";
    }
    return sn_passes_run(module, &context, &options);
}

static sn_status compile(sn_jit *jit) {
    const sn_kernels *kernels = &jit->kernels;
    if (!kernels->n) return SN_OK;
    SN_TRY(sn_llvm_jit_open(kernels->kirs, kernels->n, NULL, &jit->code));
    jit->entries = SN_NEW_N(&jit->arena, sn_llvm_kernel, kernels->n);
    for (size_t i = 0; i < kernels->n; i++) {
        jit->entries[i] = sn_llvm_jit_find(jit->code, kernels->entries[i].symbol);
        SN_CHECK(jit->entries[i]);
    }
    return SN_OK;
}

sn_jit *sn_jit_compile(sn_module *module, sn_diags *diags) {
    if (!run_passes(module, diags)) return NULL;
    sn_jit *jit = sn_alloc(sizeof *jit);
    jit->module = module;
    sn_status status = SN_OK;
    if (!sn_kernels_lower(module, diags, &jit->kernels) || (status = compile(jit))) {
        if (status)
            sn_error(diags, "E0502", NULL, "free some memory, or choose a smaller batch", "%s",
                     sn_status_message(status));
        sn_status_free(status);
        sn_jit_free(jit);
        return NULL;
    }
    sn_schedule_request request = {.model_path = "", .model_hash = "", .plan_hash = "", .microbatches = 1};
    sn_schedule_build(module, &request, 0, jit->kernels.entries, jit->kernels.n, &jit->arena, &jit->constants,
                      &jit->schedule);
    return jit;
}

const sn_kernels *sn_jit_kernels(const sn_jit *jit) {
    return &jit->kernels;
}

static sn_status set_global(sn_jit *jit, const sn_global *global) {
    uint8_t *to = jit->memory + global->value->place.offset;
    sn_type type = global->value->type;
    if (global->source.kind == SN_SOURCE_FILL) {
        for (int64_t i = 0; i < sn_type_count(type); i++) sn_store_f64(type.dtype, to, i, global->source.fill);
    } else if (global->source.data) {
        memcpy(to, global->source.data, (size_t)sn_type_bytes(type));
    } else {
        return sn_status_make("%s has no values in memory", global->name);
    }
    return SN_OK;
}

sn_status sn_jit_start(sn_jit *jit, const sn_jit_host *host) {
    void *memory;
    jit->host = *host;
    SN_TRY(host->allocate(host->user, &jit->schedule, &memory));
    jit->memory = memory;
    for (size_t i = 0; i < jit->module->globals.count; i++) SN_TRY(set_global(jit, jit->module->globals.data[i]));
    return SN_OK;
}

static void run_kernel(sn_jit *jit, const sn_do_kernel *kernel) {
    void *addresses[512];
    SN_CHECK(kernel->args.count <= 512);
    for (size_t i = 0; i < kernel->args.count; i++) {
        sn_view view = kernel->args.items[i];
        addresses[i] = jit->memory + jit->schedule.buffers.items[view.buffer].offset + view.offset;
    }
    jit->entries[kernel->symbol](addresses, 0, kernel->grid);
}

static uint8_t *address_of(sn_jit *jit, sn_value *value) {
    sn_strided view;
    SN_CHECK(sn_strided_view(value, &view) && sn_strided_is_dense(&view));
    int64_t bytes = (int64_t)sn_dtype_bytes(value->type.dtype);
    return jit->memory + sn_owner_of(view.root)->place.offset + view.offset * bytes;
}

sn_status sn_jit_run(sn_jit *jit, const char *name, const sn_tensor *args, sn_tensor *results) {
    const sn_func *func = sn_module_func(jit->module, name);
    const sn_program *program = NULL;
    for (size_t i = 0; i < jit->schedule.programs.count; i++)
        if (strcmp(jit->schedule.programs.items[i].name, name) == 0) program = &jit->schedule.programs.items[i];
    if (!func || !program) return sn_status_make("there is no function %s", name);
    for (size_t i = 0; i < func->args.count; i++) {
        const sn_value *arg = func->args.data[i];
        SN_CHECK(sn_type_equal(arg->type, args[i].type));
        memcpy(jit->memory + arg->place.offset, args[i].data, (size_t)sn_type_bytes(arg->type));
    }
    for (size_t i = 0; i < program->instrs.count; i++) {
        const sn_instr *instr = &program->instrs.items[i];
        if (instr->kind == SN_INSTR_KERNEL)
            run_kernel(jit, &instr->kernel);
        else
            SN_TRY(jit->host.library(jit->host.user, &jit->schedule, instr));
    }
    for (size_t i = 0; i < func->results.count; i++) {
        results[i] = sn_tensor_new(func->results.data[i]->type);
        memcpy(results[i].data, address_of(jit, func->results.data[i]), (size_t)sn_type_bytes(results[i].type));
    }
    return SN_OK;
}

void *sn_jit_global(sn_jit *jit, const char *name) {
    const sn_global *global = sn_module_global(jit->module, name);
    return global ? jit->memory + global->value->place.offset : NULL;
}

void sn_jit_free(sn_jit *jit) {
    if (!jit) return;
    sn_llvm_jit_close(jit->code);
    sn_kernels_free(&jit->kernels);
    sn_str_free(&jit->constants);
    sn_arena_free(&jit->arena);
    sn_free(jit);
}
