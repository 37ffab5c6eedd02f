#include "backend/package/link.h"

#include "backend/llvm/llvm.h"
#include "base/file.h"
#include "base/vec.h"

#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static sn_status run_linker(char *const *line) {
    pid_t child;
    int failed = posix_spawnp(&child, line[0], NULL, NULL, line, environ), state = 0;
    if (failed)
        return sn_status_make("cannot start the linker '%s': %s (apt-get install binutils)", line[0], strerror(failed));
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return sn_status_errno("cannot wait for the linker");
    if (state != 0) return sn_status_make("the linker failed on the kernels");
    return SN_OK;
}

// The math library comes with the process that loads the object.
static sn_status link_objects(const char *objects, const char *to) {
    SN_VEC(char *) line = {0};
    sn_arena arena = {0};
    const char *start[] = {"ld", "-shared", "-z", "noexecstack", "-o", to};
    for (size_t i = 0; i < sizeof start / sizeof *start; i++) sn_vec_push(&line, sn_arena_strdup(&arena, start[i]));
    char *names = sn_arena_strdup(&arena, objects);
    for (char *name = strtok(names, "\n"); name; name = strtok(NULL, "\n")) sn_vec_push(&line, name);
    sn_vec_push(&line, NULL);
    sn_status status = run_linker(line.data);
    sn_vec_free(&line);
    sn_arena_free(&arena);
    return status;
}

static void remove_files(const char *names) {
    char *copy = sn_alloc(strlen(names) + 1);
    strcpy(copy, names);
    for (char *name = strtok(copy, "\n"); name; name = strtok(NULL, "\n")) unlink(name);
    sn_free(copy);
}

static sn_status read_whole(const char *path, void **data, size_t *bytes) {
    sn_mapped_file file;
    SN_TRY(sn_file_map(path, &file));
    *data = sn_alloc(file.bytes);
    memcpy(*data, file.data, file.bytes);
    *bytes = file.bytes;
    sn_file_unmap(&file);
    return SN_OK;
}

sn_status sn_kernels_link(const sn_kernels *kernels, int threads, void **data, size_t *bytes) {
    *data = NULL;
    *bytes = 0;
    if (!kernels->n) return SN_OK;
    const char *parent = getenv("TMPDIR");
    sn_str folder = {0}, object = {0}, library = {0}, objects = {0};
    sn_str_printf(&folder, "%s/sennit-XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(folder.data)) {
        sn_status status = sn_status_errno("cannot create a temporary folder in '%s'", parent ? parent : "/tmp");
        sn_str_free(&folder);
        return status;
    }
    sn_str_printf(&object, "%s/kernels.o", folder.data);
    sn_str_printf(&library, "%s/kernels.so", folder.data);
    sn_llvm_options options = {.threads = threads};
    sn_status status = sn_llvm_emit_objects(kernels->kirs, kernels->n, &options, object.data, &objects);
    if (!status) status = link_objects(sn_str_text(&objects), library.data);
    if (!status) status = read_whole(library.data, data, bytes);
    remove_files(sn_str_text(&objects));
    unlink(library.data);
    rmdir(folder.data);
    sn_str_free(&folder);
    sn_str_free(&object);
    sn_str_free(&library);
    sn_str_free(&objects);
    return status;
}
