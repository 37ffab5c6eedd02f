#include "tools/relay.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_all(const char *text, size_t length) {
    while (length) {
        ssize_t written = write(STDERR_FILENO, text, length);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return; // nobody listens
        text += written, length -= (size_t)written;
    }
}

// mpirun's help texts stand between two such lines.
static bool is_rule(const char *line, size_t length) {
    enum { SHORTEST = 40 };
    size_t dashes = 0;
    while (dashes < length && line[dashes] == '-') dashes++;
    return dashes >= SHORTEST && dashes + 1 == length;
}

static bool is_noise(const char *text) {
    return sn_starts_with(text, "Primary job  terminated normally, but ") ||
           sn_starts_with(text, "mpirun detected that one or more processes exited with non-zero status");
}

typedef struct filter {
    sn_str line, box; // not complete yet
} filter;

static void pass_on(sn_str *text) {
    write_all(sn_str_text(text), text->length);
    sn_str_clear(text);
}

static void end_line(filter *f) {
    enum { LONGEST = 4096 }; // bytes of a help text: then the rule was somebody else's
    const char *line = sn_str_text(&f->line);
    bool rule = is_rule(line, f->line.length);
    if (f->box.length || rule) {
        bool ends = f->box.length && rule;
        sn_str_append(&f->box, line, f->line.length);
        const char *text = strchr(sn_str_text(&f->box), '\n') + 1;
        if (ends && is_noise(text))
            sn_str_clear(&f->box);
        else if (ends || f->box.length > LONGEST)
            pass_on(&f->box);
    } else if (!sn_starts_with(line, "mpirun: Forwarding signal ")) {
        write_all(line, f->line.length);
    }
    sn_str_clear(&f->line);
}

static void copy_lines(int from) {
    filter f = {0};
    char block[4096];
    for (ssize_t n; (n = read(from, block, sizeof block)) > 0 || (n < 0 && errno == EINTR);) {
        for (ssize_t i = 0; i < n; i++) {
            sn_str_putc(&f.line, block[i]);
            if (block[i] == '\n') end_line(&f);
        }
    }
    pass_on(&f.box);
    pass_on(&f.line);
    sn_str_free(&f.line), sn_str_free(&f.box);
}

sn_status sn_relay_start(sn_relay *out) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return sn_status_errno("cannot make a pipe");
    pid_t process = fork();
    if (process == 0) {
        // what stops the run reaches us too, as one process group: the run still has something to say
        static const int ignored[] = {SIGINT, SIGTERM, SIGHUP};
        for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
        close(ends[1]);
        copy_lines(ends[0]);
        _exit(0);
    }
    close(ends[0]);
    if (process < 0) {
        sn_status status = sn_status_errno("cannot start a process");
        close(ends[1]);
        return status;
    }
    *out = (sn_relay){process, ends[1]};
    return SN_OK;
}

void sn_relay_finish(sn_relay *relay) {
    close(relay->end);
    while (waitpid(relay->process, NULL, 0) < 0 && errno == EINTR) continue;
}
