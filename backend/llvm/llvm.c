#include "backend/llvm/llvm.h"

#include "backend/llvm/emit.h"
#include "base/alloc.h"
#include "base/file.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The IR is born in SSA form with its loops vectorised: what is left is sharing, folding and moving out of loops.
static const char pipeline[] = "function(early-cse<memssa>,instcombine<no-verify-fixpoint;max-iterations=1>,loop-mssa("
                               "licm),simplifycfg,early-cse)";

typedef struct target {
    char *triple, *cpu, *features; // LLVM's
    int width, level;
} target;

static void initialise(void) {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
}

static sn_status from_llvm(const char *what, char *message) {
    sn_status status = sn_status_make("%s: %s", what, message ? message : "no reason given");
    LLVMDisposeMessage(message);
    return status;
}

static sn_status from_error(const char *what, LLVMErrorRef error) {
    char *message = LLVMGetErrorMessage(error);
    sn_status status = sn_status_make("%s: %s", what, message);
    LLVMDisposeErrorMessage(message);
    return status;
}

static bool has_avx512(const target *t) {
    static const char *const cpus[] = {"x86-64-v4", "skylake-avx512", "cascadelake", "cooperlake",
                                       "icelake",   "tigerlake",      "rocketlake",  "sapphire",
                                       "emerald",   "granite",        "znver4",      "znver5"};
    bool has = strstr(t->features, "+avx512f") && strstr(t->features, "+avx512bw");
    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) has = has || sn_starts_with(t->cpu, cpus[i]);
    return has && !strstr(t->features, "-avx512f");
}

static target describe_target(const sn_llvm_options *options) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialise);
    target t = {.triple = LLVMGetDefaultTargetTriple(), .level = options && options->level ? options->level : 2};
    bool host = !options || !options->cpu;
    t.cpu = host ? LLVMGetHostCPUName() : LLVMCreateMessage(options->cpu);
    char *found = host ? LLVMGetHostCPUFeatures() : NULL;
    const char *more = options && options->features ? options->features : "";
    sn_str features = {0};
    sn_str_printf(&features, "%s%s%s", found ? found : "", found && *more ? "," : "", more);
    t.features = LLVMCreateMessage(sn_str_text(&features));
    sn_str_free(&features);
    if (found) LLVMDisposeMessage(found);
    t.width = has_avx512(&t) ? 16 : 8;
    return t;
}

static void free_target(target *t) {
    LLVMDisposeMessage(t->triple);
    LLVMDisposeMessage(t->cpu);
    LLVMDisposeMessage(t->features);
}

static sn_status make_machine(const target *t, LLVMTargetMachineRef *machine) {
    LLVMTargetRef found;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(t->triple, &found, &message)) return from_llvm("LLVM target", message);
    *machine = LLVMCreateTargetMachine(found, t->triple, t->cpu, t->features, (LLVMCodeGenOptLevel)t->level,
                                       LLVMRelocPIC, LLVMCodeModelDefault);
    return *machine ? SN_OK : sn_status_make("LLVM cannot generate code for %s, CPU %s", t->triple, t->cpu);
}

static void set_attribute(LLVMContextRef context, LLVMValueRef function, const char *key, const char *value) {
    LLVMAttributeRef a = LLVMCreateStringAttribute(context, key, (unsigned)strlen(key), value, (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

static void set_target_attributes(LLVMModuleRef module, const target *t) {
    LLVMContextRef context = LLVMGetModuleContext(module);
    for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f)) {
        if (LLVMIsDeclaration(f)) continue;
        set_attribute(context, f, "target-cpu", t->cpu);
        set_attribute(context, f, "target-features", t->features);
        set_attribute(context, f, "prefer-vector-width", t->width == 16 ? "512" : "256");
    }
}

// A module with every `stride`-th kernel from `first` on, optimised.
static sn_status build_module(LLVMContextRef context, sn_kir *const *kernels, size_t n, size_t first, size_t stride,
                              const target *t, LLVMTargetMachineRef machine, LLVMModuleRef *out) {
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("kernels", context);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
    char *text = LLVMCopyStringRepOfTargetData(layout), *message = NULL;
    LLVMSetDataLayout(module, text);
    LLVMSetTarget(module, t->triple);
    LLVMDisposeMessage(text);
    LLVMDisposeTargetData(layout);
    sn_emitter e = {.context = context, .module = module, .width = t->width};
    e.builder = LLVMCreateBuilderInContext(context);
    for (size_t i = first; i < n; i += stride) sn_codegen_kernel(&e, kernels[i]);
    LLVMDisposeBuilder(e.builder);
    sn_kir_math_free(&e.math);
    set_target_attributes(module, t);
    if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message)) SN_BUG("LLVM IR we emitted is wrong: %s", message);
    LLVMDisposeMessage(message);
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(module, pipeline, machine, options);
    LLVMDisposePassBuilderOptions(options);
    *out = module;
    return error ? from_error("LLVM passes", error) : SN_OK;
}

typedef struct job {
    sn_kir *const *kernels;
    size_t n, first, stride;
    const target *target;
    char *path;
    sn_status status;
} job;

static sn_status write_object(const job *j, LLVMContextRef context, LLVMTargetMachineRef machine) {
    LLVMModuleRef module = NULL;
    char *message = NULL;
    sn_status status = build_module(context, j->kernels, j->n, j->first, j->stride, j->target, machine, &module);
    LLVMMemoryBufferRef object = NULL;
    // Through memory: LLVM ends the process when it cannot write a file.
    if (!status && LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, &object))
        status = from_llvm(j->path, message);
    if (object) {
        status = sn_file_write(j->path, LLVMGetBufferStart(object), LLVMGetBufferSize(object));
        LLVMDisposeMemoryBuffer(object);
    }
    LLVMDisposeModule(module);
    return status;
}

static void *run_job(void *argument) {
    job *j = argument;
    LLVMContextRef context = LLVMContextCreate();
    LLVMTargetMachineRef machine;
    j->status = make_machine(j->target, &machine);
    if (!j->status) {
        j->status = write_object(j, context, machine);
        LLVMDisposeTargetMachine(machine);
    }
    LLVMContextDispose(context);
    return NULL;
}

static char *numbered(const char *path, size_t number) { // "a/b.o", 1 -> "a/b.1.o"
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    sn_str s = {0};
    int stem = dot ? (int)(dot - path) : (int)strlen(path);
    if (number) {
        sn_str_printf(&s, "%.*s.%zu%s", stem, path, number, dot ? dot : "");
    } else {
        sn_str_puts(&s, path);
    }
    return s.data;
}

sn_status sn_llvm_emit_objects(sn_kir *const *kernels, size_t n, const sn_llvm_options *options, const char *path,
                               sn_str *paths) {
    size_t threads = options && options->threads > 0 ? (size_t)options->threads : 2;
    if (threads > n) threads = n ? n : 1;
    target t = describe_target(options);
    job *jobs = sn_alloc(sizeof *jobs * threads);
    pthread_t *ids = sn_alloc(sizeof *ids * threads);
    for (size_t i = 0; i < threads; i++) {
        jobs[i] = (job){kernels, n, i, threads, &t, numbered(path, i), SN_OK};
        if (i && pthread_create(&ids[i], NULL, run_job, &jobs[i])) SN_BUG("cannot start a thread");
    }
    run_job(&jobs[0]);
    sn_status status = jobs[0].status;
    for (size_t i = 0; i < threads; i++) {
        if (i) pthread_join(ids[i], NULL);
        if (i && !status) {
            status = jobs[i].status;
        } else if (i) {
            sn_status_free(jobs[i].status);
        }
        sn_str_printf(paths, "%s\n", jobs[i].path);
        sn_free(jobs[i].path);
    }
    sn_free(ids);
    sn_free(jobs);
    free_target(&t);
    return status;
}

struct sn_llvm_jit {
    LLVMOrcLLJITRef orc;
};

static sn_status add_to_jit(LLVMOrcLLJITRef orc, sn_kir *const *kernels, size_t n, const target *t) {
    LLVMOrcThreadSafeContextRef safe = LLVMOrcCreateNewThreadSafeContext();
    LLVMContextRef context = LLVMOrcThreadSafeContextGetContext(safe);
    LLVMTargetMachineRef machine;
    LLVMModuleRef module = NULL;
    sn_status status = make_machine(t, &machine);
    if (!status) {
        status = build_module(context, kernels, n, 0, 1, t, machine, &module);
        LLVMDisposeTargetMachine(machine);
    }
    if (!status) {
        LLVMOrcJITDylibRef library = LLVMOrcLLJITGetMainJITDylib(orc);
        LLVMErrorRef error = LLVMOrcLLJITAddLLVMIRModule(orc, library, LLVMOrcCreateNewThreadSafeModule(module, safe));
        if (error) status = from_error("LLVM JIT", error);
    } else if (module) {
        LLVMDisposeModule(module);
    }
    LLVMOrcDisposeThreadSafeContext(safe);
    return status;
}

static sn_status add_process_symbols(LLVMOrcLLJITRef orc) {
    LLVMOrcDefinitionGeneratorRef generator;
    LLVMErrorRef error =
        LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(&generator, LLVMOrcLLJITGetGlobalPrefix(orc), NULL, NULL);
    if (error) return from_error("LLVM JIT", error);
    LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(orc), generator);
    return SN_OK;
}

sn_status sn_llvm_jit_open(sn_kir *const *kernels, size_t n, const sn_llvm_options *options, sn_llvm_jit **out) {
    target t = describe_target(options);
    LLVMTargetMachineRef machine;
    LLVMOrcLLJITRef orc = NULL;
    sn_status status = make_machine(&t, &machine);
    if (!status) {
        LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder(); // consumes the machine, is consumed itself
        LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder,
                                                      LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine));
        LLVMErrorRef error = LLVMOrcCreateLLJIT(&orc, builder);
        if (error) status = from_error("LLVM JIT", error);
    }
    if (!status) status = add_process_symbols(orc);
    if (!status) status = add_to_jit(orc, kernels, n, &t);
    free_target(&t);
    if (status) {
        if (orc) LLVMConsumeError(LLVMOrcDisposeLLJIT(orc));
        return status;
    }
    *out = sn_alloc(sizeof **out);
    (*out)->orc = orc;
    return SN_OK;
}

sn_llvm_kernel sn_llvm_jit_find(sn_llvm_jit *jit, const char *name) {
    LLVMOrcExecutorAddress address = 0;
    LLVMErrorRef error = LLVMOrcLLJITLookup(jit->orc, &address, name);
    if (error) {
        LLVMConsumeError(error);
        return NULL;
    }
    sn_llvm_kernel function;
    memcpy(&function, &address, sizeof function);
    return function;
}

void sn_llvm_jit_close(sn_llvm_jit *jit) {
    if (!jit) return;
    LLVMConsumeError(LLVMOrcDisposeLLJIT(jit->orc));
    sn_free(jit);
}
