#include "base/file.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

sn_status sn_file_map(const char *path, sn_mapped_file *out) {
    // a pipe is refused below, not waited for
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return sn_status_errno("cannot open '%s'", path);
    struct stat info;
    sn_status status = SN_OK;
    sn_mapped_file file = {0};
    if (fstat(fd, &info) != 0) {
        status = sn_status_errno("cannot read '%s'", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = sn_status_make("'%s' is not a regular file", path);
    } else if (info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            status = sn_status_errno("cannot map '%s'", path);
        } else {
            file = (sn_mapped_file){data, (size_t)info.st_size};
        }
    }
    close(fd);
    if (!status) *out = file;
    return status;
}

void sn_file_unmap(sn_mapped_file *file) {
    if (file->data) munmap((void *)(uintptr_t)file->data, file->bytes);
    *file = (sn_mapped_file){0};
}

static void forget(sn_atomic_file *file) {
    sn_free(file->path);
    sn_free(file->temporary);
    *file = (sn_atomic_file){0};
}

// A rename would put a plain file in the place of a device or a pipe.
static bool is_special(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// And of a symbolic link, /dev/stdout say: what it leads to is written. Other paths stay as the user gave them.
static char *target_of(const char *path) {
    struct stat info;
    char *real = lstat(path, &info) == 0 && S_ISLNK(info.st_mode) ? realpath(path, NULL) : NULL;
    sn_str target = {0};
    sn_str_puts(&target, real ? real : path);
    free(real); // of libc, not of sn_alloc
    return target.data;
}

static int open_temporary(char *name) {
    int fd = mkstemp(name);
    if (fd < 0) return fd;
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
    return fd;
}

sn_status sn_atomic_open(const char *path, sn_atomic_file *out) {
    sn_atomic_file file = {.path = target_of(path)};
    int fd;
    if (is_special(path)) {
        fd = open(path, O_WRONLY | O_CLOEXEC);
    } else {
        sn_str temporary = {0};
        sn_str_printf(&temporary, "%s.tmp.XXXXXX", file.path);
        file.temporary = temporary.data;
        fd = open_temporary(file.temporary);
    }
    if (fd >= 0) file.stream = fdopen(fd, "wb");
    sn_status status = file.stream ? SN_OK : sn_status_errno("cannot write '%s'", path);
    if (status) {
        if (fd >= 0) close(fd);
        forget(&file);
        return status;
    }
    *out = file;
    return SN_OK;
}

sn_status sn_atomic_commit(sn_atomic_file *file) {
    bool failed = fflush(file->stream) != 0 || ferror(file->stream) ||
                  (file->temporary && fsync(fileno(file->stream)) != 0); // pipes have nothing to flush
    sn_status status = failed ? sn_status_errno("cannot write '%s'", file->path) : SN_OK;
    if (fclose(file->stream) != 0 && !status) status = sn_status_errno("cannot write '%s'", file->path);
    if (!status && file->temporary && rename(file->temporary, file->path) != 0)
        status = sn_status_errno("cannot rename to '%s'", file->path);
    if (status && file->temporary) unlink(file->temporary);
    forget(file);
    return status;
}

void sn_atomic_discard(sn_atomic_file *file) {
    if (!file->stream) return;
    fclose(file->stream);
    if (file->temporary) unlink(file->temporary);
    forget(file);
}

sn_status sn_file_write(const char *path, const void *data, size_t bytes) {
    sn_atomic_file file;
    SN_TRY(sn_atomic_open(path, &file));
    if (bytes) fwrite(data, 1, bytes, file.stream); // an error stays with the stream until the commit
    return sn_atomic_commit(&file);
}

sn_status sn_make_directories(const char *path) {
    sn_str partial = {0};
    sn_status status = SN_OK;
    for (const char *c = path; !status; c++) {
        if ((*c == '/' || !*c) && partial.length && mkdir(sn_str_text(&partial), 0777) != 0 && errno != EEXIST)
            status = sn_status_errno("cannot create the folder '%s'", sn_str_text(&partial));
        if (!*c) break;
        sn_str_putc(&partial, *c);
    }
    sn_str_free(&partial);
    return status;
}
