#include "runtime/exec/log.h"

#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>

sn_status sn_run_log_open(const char *path, bool append, bool progress, int64_t first, int64_t steps, sn_run_log *out) {
    sn_run_log log = {.path = path, .first = first, .steps = steps, .started = sn_seconds()};
    log.terminal = progress && isatty(STDOUT_FILENO);
    if (path) {
        log.json = fopen(path, append ? "a" : "w");
        if (!log.json) return sn_status_errno("cannot write the log '%s'", path);
    }
    *out = log;
    return SN_OK;
}

static void add(sn_str *line, const char *key, double value, bool single) {
    sn_str_printf(line, ", \"%s\": ", key);
    sn_str_number(line, value, single);
}

// A line is written whole or not at all: those who read the log while the run goes on, or after the disk was full, find
// whole lines alone.
static sn_status put(const sn_run_log *log, sn_str *line) {
    sn_str_puts(line, "}\n");
    int fd = fileno(log->json);
    off_t before = lseek(fd, 0, SEEK_END); // -1 for a pipe
    bool good = fwrite(line->data, 1, line->length, log->json) == line->length && fflush(log->json) == 0;
    sn_status status = good ? SN_OK : sn_status_errno("cannot write the log '%s'", log->path);
    if (!good) __fpurge(log->json);
    if (!good && before >= 0 && ftruncate(fd, before)) errno = 0; // what failed first is told
    sn_str_free(line);
    return status;
}

// A terminal is slow and eyes are slower: ten times a second.
static void show_progress(sn_run_log *log, const sn_step_report *r) {
    double now = sn_seconds();
    if (now - log->shown < 0.1 && r->step < log->steps) return;
    log->shown = now;
    double left = (now - log->started) / (double)(r->step - log->first) * (double)(log->steps - r->step);
    printf("\r\033[Kstep %" PRId64 "/%" PRId64 "  loss %.4f  %.0f tokens/s  %.1f ms  ETA %d:%02d", r->step, log->steps,
           r->loss, r->tokens_per_s, 1e3 * r->seconds, (int)(left / 60), (int)left % 60);
    fflush(stdout);
}

sn_status sn_run_log_step(sn_run_log *log, const sn_step_report *r) {
    if (log->terminal) show_progress(log, r);
    if (!log->json) return SN_OK;
    sn_str line = {0};
    sn_str_printf(&line, "{\"step\": %" PRId64, r->step);
    add(&line, "loss", r->loss, true);
    if (r->has_grad_norm) add(&line, "grad_norm", r->grad_norm, true);
    add(&line, "lr", r->lr, false);
    sn_str_printf(&line, ", \"step_ms\": %.3f, \"tokens_per_s\": %.1f", 1e3 * r->seconds, r->tokens_per_s);
    return put(log, &line);
}

sn_status sn_run_log_eval(sn_run_log *log, int64_t step, double loss) {
    sn_run_log_say(log, "step %" PRId64 ": eval loss %.4f", step, loss);
    if (!log->json) return SN_OK;
    sn_str line = {0};
    sn_str_printf(&line, "{\"step\": %" PRId64, step);
    add(&line, "eval_loss", loss, true);
    return put(log, &line);
}

void sn_run_log_say(sn_run_log *log, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (log->terminal) fputs("\r\033[K", stdout);
    vprintf(format, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
}

sn_status sn_run_log_close(sn_run_log *log) {
    if (log->terminal) putchar('\n');
    FILE *json = log->json;
    log->json = NULL;
    if (json && fclose(json) != 0) return sn_status_errno("cannot write the log '%s'", log->path);
    return SN_OK;
}
