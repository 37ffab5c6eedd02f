// NVRTC, NVIDIA's run-time compiler: found when it is asked for, so that neither sennit nor what it makes depends on
// CUDA.
#include "backend/cuda/cuda.h"

#include "base/alloc.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef struct nvrtc {
    void *library;
    int (*create)(void **program, const char *source, const char *name, int n, const char *const *headers,
                  const char *const *names);
    int (*compile)(void *program, int n, const char *const *options);
    int (*log_size)(void *program, size_t *bytes);
    int (*log)(void *program, char *text);
    int (*cubin_size)(void *program, size_t *bytes);
    int (*cubin)(void *program, char *data);
    int (*destroy)(void **program);
    const char *(*error)(int result);
} nvrtc;

static void *open_library(void) {
    const char *named = getenv("SENNIT_NVRTC"), *home = getenv("CUDA_HOME");
    if (named && *named) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    void *library = dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL);
    static const char *const folders[] = {"lib", "lib64"};
    for (int i = 0; i < 2 && !library && home; i++) {
        sn_str path = {0};
        sn_str_printf(&path, "%s/%s/libnvrtc.so.13", home, folders[i]);
        library = dlopen(sn_str_text(&path), RTLD_NOW | RTLD_LOCAL);
        sn_str_free(&path);
    }
    return library;
}

static bool find(nvrtc *n) {
    struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"nvrtcCreateProgram", &n->create},       {"nvrtcCompileProgram", &n->compile},
        {"nvrtcGetProgramLogSize", &n->log_size}, {"nvrtcGetProgramLog", &n->log},
        {"nvrtcGetCUBINSize", &n->cubin_size},    {"nvrtcGetCUBIN", &n->cubin},
        {"nvrtcDestroyProgram", &n->destroy},     {"nvrtcGetErrorString", &n->error},
    };
    n->library = open_library();
    if (!n->library) return false;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(n->library, symbols[i].name);
        if (!found) return false;
        *(void **)symbols[i].function = found; // as POSIX has it for function pointers
    }
    return true;
}

// The library stays loaded: it starts threads of its own, and loading it takes a tenth of a second.
static const nvrtc *loaded(void) {
    static nvrtc found;
    static int state; // 1: found, -1: not
    if (!state) state = find(&found) ? 1 : -1;
    return state > 0 ? &found : NULL;
}

bool sn_nvrtc_available(void) {
    return loaded() != NULL;
}

static void read_text(void *program, int (*size)(void *, size_t *), int (*read)(void *, char *), size_t trim,
                      sn_str *out) {
    size_t bytes = 0;
    if (size(program, &bytes) || bytes <= trim) return;
    char *text = sn_alloc(bytes + 1);
    if (!read(program, text)) sn_str_append(out, text, bytes - trim);
    sn_free(text);
}

sn_status sn_nvrtc_compile(const char *source, const char *arch, sn_str *log, sn_str *cubin) {
    const nvrtc *n = loaded();
    if (!n) return sn_status_make("libnvrtc.so.13 is not installed (SENNIT_NVRTC or CUDA_HOME may name its place)");
    void *program = NULL;
    int result = n->create(&program, source, "kernels.cu", 0, NULL, NULL);
    if (result) return sn_status_make("NVRTC: %s", n->error(result));
    sn_str option = {0};
    sn_str_printf(&option, "--gpu-architecture=%s", arch);
    const char *options[] = {sn_str_text(&option), "--fmad=false", "--restrict"};
    result = n->compile(program, 3, options);
    sn_str_free(&option);
    read_text(program, n->log_size, n->log, 1, log); // without its NUL
    if (!result && cubin) read_text(program, n->cubin_size, n->cubin, 0, cubin);
    n->destroy(&program);
    return result ? sn_status_make("NVRTC: %s", n->error(result)) : SN_OK;
}
